"""What the papers claim and print, ``data/papers``, and our numbers beside theirs (all chapters)."""

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.core.notebook_files import read_yaml
from retlib.data.datasets.catalogue import called, part_of
from retlib.evaluation import results
from retlib.report.contrasts import Contrast, Term, test

SUBSET, STAND_IN = "subset", "stand-in"
# Units of measures, and by how many places the point moves to make points of a hundred of them.
POINTS = {"%": 0, "fraction": 2}
NO_NUMBER = np.nan, np.nan, "", "", ""  # of ours, half of its interval, system, collection, fidelity
SPARSE = 0.7  # of cells that are empty: a table with more has a line for each number


class Paper(BaseModel, frozen=True, extra="forbid"):
    """What ``papers.yaml`` says of a paper, and explains."""

    key: str
    part: str
    name: str
    authors: str
    title: str
    link: str
    chapters: tuple[str, ...]
    pages: dict[str, str]
    notes: dict[str, str] = {}


def papers(root: Path | None = None) -> dict[str, Paper]:
    """Return the papers by key, in the order of the book's parts; `DataError` for another form of ``papers.yaml``."""
    path = (root or runtime.root()) / "data" / "papers" / "papers.yaml"
    try:
        return {key: Paper(key=key, **entry) for key, entry in read_yaml(path).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: {error}") from error


def papers_table(name: str) -> pd.DataFrame:
    """Return one of the tables of ``data/papers``, such as claims, collections, tables, settings, artefacts."""
    return pd.read_csv(runtime.root() / "data" / "papers" / f"{name}.csv", keep_default_na=False)


def collections(paper: str, profile: str) -> pd.DataFrame:
    """Return which collection stands for each of a paper's data sets at a profile, its `fidelity`, and `why`."""
    return papers_table("collections").query("paper == @paper and profile == @profile").set_index("data_set")


def data_sets(paper: str, profile: str) -> pd.DataFrame:
    """Return `collections` as a page shows them, with what each collection is of its source."""
    table = collections(paper, profile).reset_index()
    what = pd.Series(["; ".join(filter(None, (part_of(row.collection), row.why))) for row in table.itertuples()])
    names = table["data_set"].map(called)
    what = what.mask(what.duplicated() & (what != ""), "as for " + names.groupby(what).transform("first"))
    here = table["collection"].map(called)
    return pd.DataFrame({"paper's data set": names, "here": here, "fidelity": table["fidelity"], "what that is": what})


def table_lines(paper: str, artefact: str) -> pd.DataFrame:
    """Return the lines of ``tables.csv`` on one table, figure or section of a paper, as it prints them."""
    return papers_table("tables").query("paper == @paper and artefact == @artefact").reset_index(drop=True)


def paper_numbers(paper: str) -> pd.DataFrame:
    """Return the lines of tables.csv on a paper, with what of ours stands for the same method, "" where nothing does.

    That are `experiment`, `system`, `data_set` (several, joined by +, are averaged), `measure`, and `times`, which
    takes a recorded number that is no measure to the paper's unit. Columns besides: `place`, data set and split in one;
    `theirs`, the number as text, of a measure in points of a hundred.
    """
    lines = papers_table("tables").query("paper == @paper")
    lines["place"] = (lines["dataset"] + ", " + lines["split"]).str.strip(", ")
    pairs = zip(lines["value"], lines["unit"], strict=True)
    lines["theirs"] = [value and format(Decimal(value).scaleb(POINTS.get(unit, 0)), "f") for value, unit in pairs]
    return lines


def paper_values(paper: str, experiment: str, data_set: str) -> dict[tuple[str, str], float]:
    """Return what a paper prints for a data set beside the systems of an experiment, by (system, measure).

    The first of several, in the unit of `theirs`. After a comma in a data set's name stands a variant of it.
    """
    lines = paper_numbers(paper).query("experiment == @experiment and theirs != ''")
    lines = lines[lines["data_set"].str.split(",").str[0] == data_set.split(",")[0]]
    return lines[::-1].set_index(["system", "measure"])["theirs"].astype(float).to_dict()


def by_collection(paper: str, experiment: str, profile: str) -> dict[str, dict[tuple[str, str], float]]:
    """Return what `paper_values` has, by the collections that stand for one data set alone at a profile."""
    alone = collections(paper, profile)["collection"].drop_duplicates(keep=False)
    return {collection: paper_values(paper, experiment, data_set) for data_set, collection in alone.items()}


def numbers(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return every number that a paper reports, of the artefacts that have any, with ours.

    Beside columns of `paper_numbers` the artefact's `title`; `ours`, in the unit of `theirs`, with `half` of its 95 %
    interval if it has values per query; and the `system`, `collection` and `fidelity` of ours, "" if there is none.
    """
    lines, stand = paper_numbers(paper), collections(paper, profile)
    lines = lines[lines.groupby("artefact")["value"].transform(lambda values: (values != "").any())]
    load = cache(lambda name: results.load(name, profile, source))
    columns = ["ours", "half", "system", "collection", "fidelity"]
    ours = pd.DataFrame([_ours(line, stand, load) for line in lines.itertuples()], lines.index, columns)
    titles = papers_table("artefacts").query("paper == @paper").set_index("artefact")["title"]
    artefact = lines["artefact"].replace("text-abstract", "abstract").str.replace("text-", "section ")
    title = artefact.str.replace("-", " ").str.capitalize() + ": " + lines["artefact"].map(titles)
    return lines.assign(**ours, title=title)


def _ours(line: Any, stand: pd.DataFrame, load: Callable) -> tuple:
    names = line.data_set.split("+")
    rows = load(line.experiment) if {*names} <= {*stand.index} else None
    if rows is None:
        return NO_NUMBER
    on, fidelity = (stand.loc[names, column].tolist() for column in ("collection", "fidelity"))
    if all(line.system in rows.systems(each, "test", line.measure) for each in on):
        mean = test(Contrast((Term(1.0, line.system, tuple(on), line.measure, rows=rows),)))
        ours, half = mean["effect"], mean["high"] - mean["effect"]
    elif len(on) == 1 and len(values := rows.lines(line.system, on[0]).query("measure == @line.measure")["value"]):
        ours, half = values.mean() * float(line.times or 1), np.nan
    else:
        return NO_NUMBER
    fidelity = STAND_IN if STAND_IN in fidelity else SUBSET
    return ours, half, line.system, f"{' and '.join(map(called, on))} ({fidelity})", fidelity


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
    wide = tall.pivot_table("value", ["data", "in the paper"], "what", "\n".join, sort=False).fillna("")
    if (wide == "").to_numpy().mean() > SPARSE:
        return tall.reset_index(drop=True)
    return wide.rename_axis(columns=None).reset_index()
