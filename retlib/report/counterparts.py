"""The papers' tables with our numbers beside theirs: ``data/papers/rows.yaml`` says what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
# What the papers call the sizes of a data set.
SIZES = {
    "candidates": ("Candidates", "#candidate", "# Passages", "passages", "documents"),
    "queries": ("Test queries", "#query", "# Evaluation queries", "queries"),
}
UNKNOWN = float("nan")
NOTHING = {
    "ours": UNKNOWN, "half": UNKNOWN, "seeds": 0, "queries": 0, "candidates": UNKNOWN,
    "system": "", "collection": "", "fidelity": "",
}  # fmt: skip


@dataclass(frozen=True)
class Counterpart:
    """What of ours stands beside a number of a paper.

    Parameters
    ----------
    data_sets : tuple of str
        Of the paper, as collections.csv names them; several are averaged.
    times : float
        What takes a recorded number without values per query to the paper's unit.
    """

    experiment: str
    system: str
    data_sets: tuple[str, ...]
    measure: str
    times: float


def printed(paper: str) -> pd.DataFrame:
    """The lines of tables.csv on a paper, with `place`: data set and split in one."""
    frame = papers_table("tables").query("paper == @paper")
    places = [", ".join(filter(None, parts)) for parts in zip(frame["dataset"], frame["split"], strict=True)]
    return frame.assign(place=places)


def declared(paper: str) -> dict[str, list[dict]]:
    """What rows.yaml says of a paper: artefact to its groups."""
    return notebook_files.parsed(runtime.root() / "data" / "papers" / "rows.yaml").get(paper, {})


def rows_of(paper: str, artefact: str, experiment: str) -> dict[str, str]:
    """The systems of an experiment that have a row in a paper's table: system to the name of the row."""
    pairs = [(name.split(":", 1), row) for group in declared(paper)[artefact] for row, name in group["rows"].items()]
    return {system: row for (where, system), row in pairs if where == experiment}


def beside(paper: str, experiment: str, collection: str, profile: str) -> dict[tuple[str, str], float]:
    """What a paper reports for the data set that a collection plays: (our system, measure) to its number.

    Empty where the collection stands for several data sets. What follows a comma in the name of a data set is a
    variant of it.
    """
    here = places(paper, profile)["collection"]
    mine = list(here.index[here == collection])
    if len(mine) != 1:
        return {}
    values, wanted = printed(paper)["value"], mine[0].partition(",")[0]
    return {
        (each.system, each.measure): float(values[line])
        for line, each in counterparts(paper).items()
        if each.experiment == experiment
        and values[line]
        and [name.partition(",")[0] for name in each.data_sets] == [wanted]
    }


def counterparts(paper: str) -> dict[int, Counterpart]:
    """Which of our numbers stands beside which of a paper's: index of `printed` to counterpart.

    Raises
    ------
    DataError
        Naming an entry of rows.yaml that matches nothing, or a number that two entries match.
    """
    lines, found = printed(paper), {}
    bound = set(papers_table("collections").query("paper == @paper")["data_set"])
    for artefact, group in ((artefact, group) for artefact, groups in declared(paper).items() for group in groups):
        where = f"rows.yaml, {paper}, {artefact}"
        for line in _matched(lines[lines["artefact"] == artefact], group, where).itertuples():
            require(line.Index not in found, f"{where}: two entries for {line.row!r}", DataError)
            data_sets = tuple(group["data"][line.place].split("+"))
            for name in data_sets:
                require(name in bound, f"{where}: collections.csv has no data set {name!r}", DataError)
            measure, times = group["measures"][line.metric], group.get("times", 1.0)
            found[line.Index] = Counterpart(*group["rows"][line.row].split(":", 1), data_sets, measure, times)
    return found


def _matched(lines: pd.DataFrame, group: Mapping, where: str) -> pd.DataFrame:
    """The lines that are in one of a group's rows, places and metrics; each of these must have one."""
    sides, narrowed = {"row": group["rows"], "place": group["data"], "metric": group["measures"]}, lines
    for column, names in sides.items():
        narrowed = narrowed[narrowed[column].isin(names)]
    # First a name that is nowhere in the table, then one that meets none of the group's other names.
    for known, column in product((lines, narrowed), sides):
        for name in sides[column]:
            require(name in set(known[column]), f"{where}: no number of the paper has the {column} {name!r}", DataError)
    return narrowed


def numbers(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Every number that a paper reports, with ours.

    Returns
    -------
    DataFrame
        The columns of `printed` for all artefacts that have numbers; `theirs`, the paper's number as text,
        and `ours` with `half` of its 95 % interval (none where nothing is recorded per query), both in
        points of a hundred if the number is a measure and in the paper's unit otherwise; `seeds`,
        `queries`, `candidates`, `system`, `collection` and `fidelity` of ours.
    """
    lines, matched = printed(paper), counterparts(paper)
    lines = lines[lines.groupby("artefact")["value"].transform(lambda values: (values != "").any())]
    here, load = places(paper, profile), cache(lambda name: results.load(name, profile, source))
    ours = [_ours(matched[i], here, load) if i in matched else NOTHING for i in lines.index]
    theirs = [
        format(Decimal(line.value).scaleb(POINTS.get(line.unit, 0)), "f") if line.value else ""
        for line in lines.itertuples()
    ]
    return lines.assign(theirs=theirs, **pd.DataFrame(ours, index=lines.index))


def _ours(wanted: Counterpart, here: pd.DataFrame, load: Callable[[str], Results | None]) -> dict:
    found = load(wanted.experiment)
    if found is None or not {*wanted.data_sets} <= {*here.index}:
        return NOTHING
    collections = here.loc[list(wanted.data_sets), "collection"].tolist()
    known = " and ".join(map(called, collections))
    parts = [_estimate(found, wanted, collection) for collection in collections]
    if None in parts:
        return NOTHING
    joined = parts[0]
    if len(parts) > 1:
        seeds = min(part.seeds for part in parts)
        joined = average(parts, found.pooled([(1.0, wanted.system)], collections, wanted.measure, seeds))
    low, high = joined.interval()
    rows = found.lines(wanted.system, collections[0])
    candidates = rows.get("candidates", pd.Series(dtype=float)).max() if len(parts) == 1 else UNKNOWN
    return {
        "ours": joined.effect, "half": (high - low) / 2, "seeds": joined.seeds, "queries": joined.queries,
        "candidates": candidates, "system": wanted.system, "collection": known,
        "fidelity": joint_fidelity(here.loc[list(wanted.data_sets), "fidelity"].tolist()),
    }  # fmt: skip


def _estimate(found: Results, wanted: Counterpart, collection: str) -> Comparison | None:
    """A mean with its error over queries and seeds; without the error where there are no values per query."""
    if wanted.system in found.systems(collection, "test", wanted.measure):
        return found.compared(collection, wanted.measure, wanted.system)
    rows = found.lines(wanted.system, collection)
    values = rows.loc[rows["measure"] == wanted.measure, "value"]
    return Comparison(values.mean() * wanted.times, UNKNOWN, UNKNOWN, 0, len(values)) if len(values) else None


def titles(paper: str) -> dict[str, str]:
    """Artefact to its title: "Table 2: retrieval results"."""
    mine = papers_table("artefacts").query("paper == @paper")
    return {line.artefact: f"{_place(line.artefact)}: {line.title}" for line in mine.itertuples()}


def _place(artefact: str) -> str:
    kind, _, number = artefact.partition("-")
    return number.capitalize() if number.isalpha() else f"{'Section' if kind == 'text' else kind.capitalize()} {number}"


def coverage(found: pd.DataFrame) -> pd.DataFrame:
    """How many numbers each artefact has, and how many of these have ours beside them, or ours on a stand-in.

    Parameters
    ----------
    found : DataFrame
        As `numbers` returns it; likewise below.
    """
    mine = found[found["theirs"] != ""]
    beside = mine["ours"].notna()
    mine = mine.assign(numbers=1, ours=beside, stand_ins=beside & (mine["fidelity"] == STAND_IN))
    return mine.groupby("artefact", sort=False)[["numbers", "ours", "stand_ins"]].sum().reset_index()


def titled(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """What `coverage` returns, as a page shows it."""
    names = {"artefact": "in the paper", "ours": "with ours", "stand_ins": "of these on a stand-in"}
    return table.assign(artefact=table["artefact"].map(titles(paper))).rename(columns=names)


def page(found: pd.DataFrame, artefact: str) -> HTML:
    """A table of the paper under its title, for a page."""
    title = titles(found["paper"].iloc[0])[artefact]
    return HTML(f"<h3>{escape(title)}</h3>\n{as_page(table(found, artefact)).data}")


def table(found: pd.DataFrame, artefact: str) -> pd.DataFrame:
    """One of the paper's tables: "theirs | ours ± half of the 95 % interval", theirs alone without ours."""
    mine = found[found["artefact"] == artefact]
    here = (mine["collection"] + " (" + mine["fidelity"] + ")").where(mine["collection"] != "", "")
    mine = mine.assign(
        both=[_both(line.theirs, line.ours, line.half) for line in mine.itertuples()],
        head=_beside(mine["place"], here),
        row=_beside(mine["row"], mine["system"]),
        metric=[line.metric if line.unit in POINTS else f"{line.metric} ({line.unit})" for line in mine.itertuples()],
    )
    index = ["head", "row"]
    if len(mine.drop_duplicates(["place", "metric"])) <= WIDEST:
        mine["metric"] = [f"{line.head}\n{line.metric}".strip() for line in mine.itertuples()]
        index = ["row"]
    wide = mine.pivot_table(index=index, columns="metric", values="both", aggfunc="\n".join, sort=False).fillna("")
    if (wide == "").to_numpy().mean() > SPARSE:
        names = {"head": "data", "row": "in the paper", "metric": "what", "both": "value"}
        return mine[list(names)].rename(columns=names).reset_index(drop=True)
    return wide.rename_axis(columns=None).reset_index().rename(columns={"head": "data", "row": "in the paper"})


def _both(theirs: str, ours: float, half: float) -> str:
    if pd.isna(ours):
        return theirs
    text = f"{ours:.3g}" if pd.isna(half) else f"{ours:.1f} ± {half:.1f}"
    return f"{theirs or '–'} | {text}"


def _beside(theirs: pd.Series, ours: pd.Series) -> pd.Series:
    """Names of the paper as a table has them: each with all that stands for it here."""
    here = theirs.map(ours.groupby(theirs).agg(lambda names: " / ".join(filter(None, names.unique()))))
    return theirs + ("\nours: " + here).where((here != "") & (here != theirs), "")
