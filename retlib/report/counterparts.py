"""The papers' tables with our numbers beside theirs: ``data/papers/rows.yaml`` says what belongs together."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from html import escape
from itertools import product

import pandas as pd
from IPython.display import HTML

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.measures import Comparison, average
from retlib.evaluation.results import Results
from retlib.report.papers import STAND_IN, joint_fidelity, papers_table, places
from retlib.report.tables import as_page

# Units of measures, and by how many places the point moves to make points of a hundred of them.
POINTS = {"%": 0, "fraction": 2}
# A table with more columns than this is cut up: its data sets become lines.
WIDEST = 8
# One with a larger share of empty cells has a line for each number.
SPARSE = 0.7
UNKNOWN = float("nan")
NOTHING = {"ours": UNKNOWN, "half": UNKNOWN, "system": "", "collection": "", "fidelity": ""}


@dataclass(frozen=True)
class Counterpart:
    """What of ours stands beside a number of a paper: a mean over data sets as collections.csv names them.

    `times` takes a recorded number without values per query to the paper's unit.
    """

    experiment: str
    system: str
    data_sets: tuple[str, ...]
    measure: str
    times: float


def printed(paper: str) -> pd.DataFrame:
    """Return the lines of tables.csv on a paper, with `place`: data set and split in one."""
    lines = papers_table("tables").query("paper == @paper")
    where = [", ".join(filter(None, parts)) for parts in zip(lines["dataset"], lines["split"], strict=True)]
    return lines.assign(place=where)


def declared(paper: str) -> dict[str, list[dict]]:
    """Return what rows.yaml says of a paper: artefact to its groups."""
    return notebook_files.parsed(runtime.root() / "data" / "papers" / "rows.yaml").get(paper, {})


def rows_of(paper: str, artefact: str, experiment: str) -> dict[str, str]:
    """Return the systems of an experiment that have a row in a paper's table, and the name of that row."""
    pairs = [(name.split(":", 1), row) for group in declared(paper)[artefact] for row, name in group["rows"].items()]
    return {system: row for (where, system), row in pairs if where == experiment}


def beside(paper: str, experiment: str, collection: str, profile: str) -> dict[tuple[str, str], float]:
    """Return what a paper reports for the data set that a collection plays, by (our system, measure).

    Empty where the collection stands for several data sets. What follows a comma in the name of a data set is a
    variant of it.
    """
    played = places(paper, profile)["collection"]
    names = list(played.index[played == collection])
    if len(names) != 1:
        return {}
    values, wanted = printed(paper)["value"], names[0].partition(",")[0]
    return {
        (each.system, each.measure): float(values[line])
        for line, each in counterparts(paper).items()
        if each.experiment == experiment
        and values[line]
        and [name.partition(",")[0] for name in each.data_sets] == [wanted]
    }


def counterparts(paper: str) -> dict[int, Counterpart]:
    """Return which of our numbers stands beside which of a paper's, by the index of `printed`.

    Raises `DataError` for an entry of rows.yaml that matches nothing, or a number that two entries match.
    """
    lines, found = printed(paper), {}
    bound = set(papers_table("collections").query("paper == @paper")["data_set"])
    for artefact, group in ((artefact, group) for artefact, groups in declared(paper).items() for group in groups):
        where = f"rows.yaml, {paper}, {artefact}"
        every = matched = lines[lines["artefact"] == artefact]
        sides = {"row": group["rows"], "place": group["data"], "metric": group["measures"]}
        for column, names in sides.items():
            matched = matched[matched[column].isin(names)]
        # First a name that is nowhere in the table, then one that meets none of the group's other names.
        for known, column in product((every, matched), sides):
            for name in sides[column]:
                wrong = f"{where}: no number of the paper has the {column} {name!r}"
                require(name in set(known[column]), wrong, DataError)
        for line in matched.itertuples():
            require(line.Index not in found, f"{where}: two entries for {line.row!r}", DataError)
            data_sets = tuple(group["data"][line.place].split("+"))
            for name in data_sets:
                require(name in bound, f"{where}: collections.csv has no data set {name!r}", DataError)
            measure, times = group["measures"][line.metric], group.get("times", 1.0)
            found[line.Index] = Counterpart(*group["rows"][line.row].split(":", 1), data_sets, measure, times)
    return found


def numbers(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return every number that a paper reports, of the artefacts that have any, with ours.

    Beside the columns of `printed`: `theirs` as text, and `ours` with `half` of its 95 % interval, if it has values
    per query; both in points of a hundred if the number is a measure, else in the paper's unit; and the `system`,
    `collection` and `fidelity` of ours.
    """
    lines, matched = printed(paper), counterparts(paper)
    lines = lines[lines.groupby("artefact")["value"].transform(lambda values: (values != "").any())]
    played, load = places(paper, profile), cache(lambda name: results.load(name, profile, source))
    ours = [_ours(matched[i], played, load(matched[i].experiment)) if i in matched else NOTHING for i in lines.index]
    theirs = [
        format(Decimal(line.value).scaleb(POINTS.get(line.unit, 0)), "f") if line.value else ""
        for line in lines.itertuples()
    ]
    return lines.assign(theirs=theirs, **pd.DataFrame(ours, index=lines.index))


def _ours(wanted: Counterpart, played: pd.DataFrame, recorded: Results | None) -> dict:
    names, system, measure = list(wanted.data_sets), wanted.system, wanted.measure
    if recorded is None or not {*names} <= {*played.index}:
        return NOTHING
    collections, parts = played.loc[names, "collection"].tolist(), []
    for collection in collections:
        rows = recorded.lines(system, collection)
        values = rows.loc[rows["measure"] == measure, "value"]
        if system in recorded.systems(collection, "test", measure):
            parts.append(recorded.compared(collection, measure, system))
        elif len(values):
            parts.append(Comparison(values.mean() * wanted.times, UNKNOWN, UNKNOWN, 0, len(values)))
        else:
            return NOTHING
    mean = parts[0]
    if len(parts) > 1:
        seeds = min(part.seeds for part in parts)
        mean = average(parts, recorded.pooled([(1.0, system)], collections, measure, seeds))
    low, high = mean.interval()
    return {
        "ours": mean.effect, "half": (high - low) / 2, "system": system,
        "collection": " and ".join(map(called, collections)),
        "fidelity": joint_fidelity(played.loc[names, "fidelity"].tolist()),
    }  # fmt: skip


def titles(paper: str) -> dict[str, str]:
    """Return each artefact's title: "Table 2: retrieval results"."""
    found = {}
    for line in papers_table("artefacts").query("paper == @paper").itertuples():
        kind, _, number = line.artefact.partition("-")
        place = f"{'Section' if kind == 'text' else kind.capitalize()} {number}"
        found[line.artefact] = f"{number.capitalize() if number.isalpha() else place}: {line.title}"
    return found


def coverage(found: pd.DataFrame) -> pd.DataFrame:
    """Return how many of the `numbers` each artefact has, and how many have ours beside them, or ours on a stand-in."""
    theirs = found[found["theirs"] != ""]
    ours = theirs["ours"].notna()
    counted = theirs.assign(numbers=1, ours=ours, stand_ins=ours & (theirs["fidelity"] == STAND_IN))
    return counted.groupby("artefact", sort=False)[["numbers", "ours", "stand_ins"]].sum().reset_index()


def titled(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Return the table of `coverage` as a page shows it."""
    names = {"artefact": "in the paper", "ours": "with ours", "stand_ins": "of these on a stand-in"}
    return table.assign(artefact=table["artefact"].map(titles(paper))).rename(columns=names)


def page(found: pd.DataFrame, artefact: str) -> HTML:
    """Return a table of the paper, made of `numbers`, under its title."""
    title = titles(found["paper"].iloc[0])[artefact]
    return HTML(f"<h3>{escape(title)}</h3>\n{as_page(table(found, artefact)).data}")


def table(found: pd.DataFrame, artefact: str) -> pd.DataFrame:
    """Return one of the paper's tables, of `numbers`: "theirs | ours ± half of the 95 % interval"."""

    def cell(line) -> str:
        ours = f"{line.ours:.3g}" if pd.isna(line.half) else f"{line.ours:.1f} ± {line.half:.1f}"
        return line.theirs if pd.isna(line.ours) else f"{line.theirs or '–'} | {ours}"

    def with_ours(theirs: pd.Series, ours: pd.Series) -> pd.Series:
        """Names of the paper, each with all that stands for it here."""
        here = theirs.map(ours.groupby(theirs).agg(lambda names: " / ".join(filter(None, names.unique()))))
        return theirs + ("\nours: " + here).where((here != "") & (here != theirs), "")

    lines = found[found["artefact"] == artefact]
    here = (lines["collection"] + " (" + lines["fidelity"] + ")").where(lines["collection"] != "", "")
    lines = lines.assign(
        both=[cell(line) for line in lines.itertuples()],
        head=with_ours(lines["place"], here),
        row=with_ours(lines["row"], lines["system"]),
        metric=lines["metric"].where(lines["unit"].isin(POINTS), lines["metric"] + " (" + lines["unit"] + ")"),
    )
    index = ["head", "row"]
    if len(lines.drop_duplicates(["place", "metric"])) <= WIDEST:
        lines["metric"] = (lines["head"] + "\n" + lines["metric"]).str.strip()
        index = ["row"]
    wide = lines.pivot_table(index=index, columns="metric", values="both", aggfunc="\n".join, sort=False).fillna("")
    names = {"head": "data", "row": "in the paper", "metric": "what", "both": "value"}
    if (wide == "").to_numpy().mean() > SPARSE:
        return lines[list(names)].rename(columns=names).reset_index(drop=True)
    return wide.rename_axis(columns=None).reset_index().rename(columns=names)
