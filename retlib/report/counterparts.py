"""The papers' tables with our numbers beside theirs: ``data/papers/rows.yaml`` says what belongs together."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.measures import average
from retlib.evaluation.results import Results
from retlib.report.papers import STAND_IN, joint_fidelity, papers_table, places

# Units of measures, and by how many places the point moves to make points of a hundred of them.
POINTS = {"%": 0, "fraction": 2}
WIDEST = 8  # columns of a table; of a wider one data sets become lines
SPARSE = 0.7  # of cells that are empty: a table with more has a line for each number


def paper_numbers(paper: str) -> pd.DataFrame:
    """Return the lines of tables.csv on a paper, with what rows.yaml sets beside them.

    Columns besides: `place`, data set and split in one; `theirs`, the number as text, in points of a hundred if it is a
    measure; and, NaN where nothing of ours stands beside it, `experiment`, `system`, `data_set` as collections.csv
    names it (several, joined by +, are averaged), `measure`, and `times`, which takes a recorded number without values
    per query to the paper's unit. Raises `DataError` for a name in rows.yaml that no number has.
    """
    lines, rows = papers_table("tables").query("paper == @paper"), []
    lines["place"] = (lines["dataset"] + ", " + lines["split"]).str.strip(", ")
    pairs = zip(lines["value"], lines["unit"].map(POINTS).fillna(0).astype(int), strict=True)
    lines["theirs"] = [value and format(Decimal(value).scaleb(shift), "f") for value, shift in pairs]
    entries = notebook_files.read_yaml(runtime.root() / "data" / "papers" / "rows.yaml").get(paper, {})
    for artefact, group in ((artefact, group) for artefact, groups in entries.items() for group in groups):
        matched = lines[lines["artefact"] == artefact]
        for side, names in {"row": "rows", "place": "data", "metric": "measures"}.items():
            matched = matched[matched[side].isin(group[names])]
            unmatched = [name for name in group[names] if name not in set(matched[side])]
            require(not unmatched, f"rows.yaml, {paper}, {artefact}: no number of the paper has {unmatched}", DataError)
        for line in matched.itertuples():
            experiment, _, system = group["rows"][line.row].partition(":")
            data_set, measure = group["data"][line.place], group["measures"][line.metric]
            rows.append((line.Index, experiment, system, data_set, measure, group.get("times", 1.0)))
    columns = ["line", "experiment", "system", "data_set", "measure", "times"]
    return lines.join(pd.DataFrame(rows, columns=columns).set_index("line"))


def paper_values(paper: str, experiment: str, data_set: str) -> dict[tuple[str, str], float]:
    """Return what a paper prints for a data set beside the systems of an experiment, by (system, measure).

    The first of several, in the unit of `theirs`. After a comma in a data set's name stands a variant of it.
    """
    lines = paper_numbers(paper).query("experiment == @experiment and theirs != ''")
    lines = lines[lines["data_set"].str.partition(",")[0] == data_set.partition(",")[0]]
    return lines[::-1].set_index(["system", "measure"])["theirs"].astype(float).to_dict()


def by_collection(paper: str, experiment: str, profile: str) -> dict[str, dict[tuple[str, str], float]]:
    """Return what `paper_values` has, by the collections that stand for one data set alone at a profile."""
    played = places(paper, profile)["collection"].drop_duplicates(keep=False)
    return {collection: paper_values(paper, experiment, data_set) for data_set, collection in played.items()}


def numbers(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return every number that a paper reports, of the artefacts that have any, with ours.

    Beside columns of `paper_numbers` the artefact's `title`; `ours`, in the unit of `theirs`, with `half` of its 95 %
    interval if it has values per query; and the `system`, `collection` and `fidelity` of ours, "" if there is none.
    """
    lines, played = paper_numbers(paper), places(paper, profile)
    lines = lines[lines.groupby("artefact")["value"].transform(lambda values: (values != "").any())]
    load = cache(lambda name: results.load(name, profile, source))
    ours = [_ours(line, played, load) for line in lines.itertuples()]
    titles = papers_table("artefacts").query("paper == @paper").set_index("artefact")["title"]
    artefact = lines["artefact"].replace("text-abstract", "abstract").str.replace("text-", "section ")
    title = artefact.str.replace("-", " ").str.capitalize() + ": " + lines["artefact"].map(titles)
    return lines.assign(**pd.DataFrame(ours, lines.index), title=title)


def _ours(line: Any, played: pd.DataFrame, load: Any) -> dict[str, Any]:
    row = {"ours": np.nan, "half": np.nan, "system": "", "collection": "", "fidelity": ""}
    names = [] if pd.isna(line.experiment) else line.data_set.split("+")
    recorded: Results | None = load(line.experiment) if names and {*names} <= {*played.index} else None
    if recorded is None:
        return row
    system, measure, collections = line.system, line.measure, played.loc[names, "collection"].tolist()
    if all(system in recorded.systems(name, "test", measure) for name in collections):
        parts = [recorded.compared(name, measure, system) for name in collections]
        pooled = recorded.pooled([(1.0, system)], collections, measure, min(part.seeds for part in parts))
        mean = average(parts, pooled) if len(parts) > 1 else parts[0]
        row |= {"ours": mean.effect, "half": mean.interval()[1] - mean.effect}
    else:
        values = recorded.lines(system, collections[0]).query("measure == @measure")["value"]
        if len(values) == 0 or len(collections) > 1:
            return row
        row["ours"] = values.mean() * line.times
    fidelity = joint_fidelity(played.loc[names, "fidelity"].tolist())
    where = f"{' and '.join(map(called, collections))} ({fidelity})"
    return row | {"system": system, "collection": where, "fidelity": fidelity}


def coverage(lines: pd.DataFrame) -> pd.DataFrame:
    """Return how many of the `numbers` each artefact has, with ours beside them, and ours on a stand-in."""
    theirs = lines[lines["theirs"] != ""]
    ours = theirs["ours"].notna()
    counts = {"numbers": 1, "with ours": ours, "of these on a stand-in": ours & (theirs["fidelity"] == STAND_IN)}
    return theirs[["title"]].assign(**counts).groupby("title", sort=False).sum().reset_index(names="in the paper")


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the `numbers` of an artefact as the paper's table: "theirs | ours ± half of the 95 % interval"."""

    def with_ours(theirs: pd.Series, ours: pd.Series) -> pd.Series:
        # Names of the paper, each with all that stands for it here.
        here = ours.groupby(theirs).transform(lambda names: " / ".join(filter(None, names.unique())))
        return theirs + ("\nours: " + here).where((here != "") & (here != theirs), "")

    half = lines["half"].map(" ± {:.1f}".format).where(lines["half"].notna(), "")
    ours = lines["ours"].map("{:.3g}".format).where(lines["half"].isna(), lines["ours"].map("{:.1f}".format)) + half
    value = lines["theirs"].where(lines["ours"].isna(), lines["theirs"].replace("", "–") + " | " + ours)
    what = lines["metric"].where(lines["unit"].isin(POINTS), lines["metric"] + " (" + lines["unit"] + ")")
    place, row = with_ours(lines["place"], lines["collection"]), with_ours(lines["row"], lines["system"])
    tall = pd.DataFrame({"data": place, "in the paper": row, "what": what, "value": value})
    index, columns = ["data", "in the paper"], tall
    if len(tall[["data", "what"]].drop_duplicates()) <= WIDEST:
        index, columns = index[1:], tall.assign(what=(tall["data"] + "\n" + tall["what"]).str.strip())
    wide = columns.pivot_table(index=index, columns="what", values="value", aggfunc="\n".join, sort=False).fillna("")
    if (wide == "").to_numpy().mean() > SPARSE:
        return tall.reset_index(drop=True)
    return wide.rename_axis(columns=None).reset_index()
