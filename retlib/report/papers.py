"""What the papers claim and print: ``data/papers`` (all chapters)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pydantic import BaseModel

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.core.notebook_files import read_yaml
from retlib.data.datasets.catalogue import called, part_of

SUBSET, STAND_IN = "subset", "stand-in"


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

    @property
    def label(self) -> str:
        """Part and name, as tables and figures call it."""
        return f"{self.part}  {self.name}"


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


def joint_fidelity(fidelities: Sequence[str]) -> str:
    """Return `stand-in` if one of the collections that stand for data sets is one, else `subset`."""
    return STAND_IN if STAND_IN in fidelities else SUBSET


def data_sets(paper: str, profile: str) -> pd.DataFrame:
    """Return `collections` as a page shows them, with what each collection is of its source."""
    table = collections(paper, profile).reset_index()
    what = pd.Series(["; ".join(filter(None, (part_of(row.collection), row.why))) for row in table.itertuples()])
    names = table["data_set"].map(called)
    what = what.mask(what.duplicated() & (what != ""), "as for " + names.groupby(what).transform("first"))
    columns = {"paper's data set": names, "here": table["collection"].map(called), "fidelity": table["fidelity"]}
    return pd.DataFrame({**columns, "what that is": what})


def table_lines(paper: str, artefact: str) -> pd.DataFrame:
    """Return the lines of ``tables.csv`` on one table, figure or section of a paper, as it prints them."""
    return papers_table("tables").query("paper == @paper and artefact == @artefact").reset_index(drop=True)
