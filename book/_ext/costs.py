"""Sphinx extension: the directive `costs`, a table of what it takes to run each chapter of a profile anew.

The data sets are those that the profile names, their sizes the catalogue's, the minutes those of the published rows::

    ```{costs} laptop
    ```
"""

from __future__ import annotations

import json

import pandas as pd
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from retlib.core import notebook_files, runtime
from retlib.data.datasets import catalogue
from retlib.evaluation import results

# What of recorded settings is the encoder itself.
ENCODER = "encoder", "layers", "width", "dimension", "towers", "query_length", "document_length", "checkpoint", "tokens"
HEAD = ("chapter", "data to fetch", "MB", "systems", "seeds", "minutes of the costliest", "hours of all, at least")


def costs(profile: str) -> list[tuple[str, ...]]:
    """A row for each chapter that needs data: as `HEAD` has it; what no published row tells stays empty."""
    root, found, trained = runtime.root(), [], []
    sizes = catalogue.table().set_index("name")["size"].str.removesuffix(" MB")
    for name, entry in notebook_files.read_yaml(root / "notebooks" / "profiles" / f"{profile}.yaml").items():
        if isinstance(entry, dict) and (needs := entry.get("needs")):
            megabytes = sum(float(sizes[each]) for each in needs)
            given, recorded = entry.get("parameters", {}), results.load(name, profile, "reference")
            seeds = {*given.get("seeds", [0]), *given.get("further_seeds", ())}  # more may be recorded
            rows = recorded.rows[recorded.rows["seed"].isin(seeds)] if recorded else pd.DataFrame()
            trained.append(rows)
            found.append((f"{{doc}}`../notebooks/{name}`", ", ".join(needs), f"{megabytes:.0f}", *_trained(rows)))
    every = _together(pd.concat(trained)) if trained else 0
    return [*found, ("all of these, what several share once", *[""] * (len(HEAD) - 2), f"{every / 3600:.0f}")]


def _trained(rows: pd.DataFrame) -> tuple[str, ...]:
    """How many systems were trained, with how many seeds; minutes of the costliest, median over seeds, hours of all."""
    if "seconds" not in rows or not (rows["seconds"].fillna(0) > 0).any():
        return ("",) * 4
    rows = rows[rows["seconds"].fillna(0) > 0]
    counts = str(rows["system"].nunique()), str(rows["seed"].nunique())
    together = _together(rows)
    costliest = rows.groupby(["system", "collection"])["seconds"].median().max()
    minutes = f"{costliest / 60:.0f}" if costliest >= 30 else "< 1"
    hours = f"{together / 3600:.1f}" if together >= 180 else "< 0.1" if together else ""
    return *counts, minutes, hours


def _together(rows: pd.DataFrame) -> float:
    """The seconds of all trainings, where what several begin with is trained once.

    What they share and no row has by itself counts as the quickest of those that begin with it. A model that reads
    pairs is one more stage of its start, whichever list it reads. Rows without their stages do not count, and a chain
    that is trained for several collections counts once.
    """
    quickest: dict[tuple[str, ...], float] = {}
    known = rows.reindex(columns=["parameters", "seed", "seconds"]).dropna().query("seconds > 0")
    for told, seed, seconds in known.itertuples(index=False):
        settings = json.loads(told)
        settings = settings.get("reader", settings)
        begun_with = settings.get("start", settings)
        if "stages" not in begun_with:  # several lists in one
            continue
        encoder, stages = {name: begun_with.get(name) for name in ENCODER}, begun_with["stages"]
        stages = [*stages, settings] if "start" in settings else stages
        parts = [json.dumps(part, sort_keys=True) for part in ([encoder, seed], *stages)]
        for begun in (tuple(parts[:count]) for count in range(min(2, len(parts)), len(parts) + 1)):
            quickest[begun] = min(seconds, quickest.get(begun, seconds))
    return sum(seconds - quickest.get(begun[:-1], 0) for begun, seconds in quickest.items())


class Costs(SphinxDirective):
    """The table of a profile."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, in Markdown."""
        rows = [HEAD, ("---",) * len(HEAD), *costs(self.arguments[0])]
        place = nodes.container()
        text = StringList([f"| {' | '.join(row)} |" for row in rows], source=self.env.docname)
        self.state.nested_parse(text, self.content_offset, place)
        return place.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("costs", Costs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
