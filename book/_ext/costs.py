"""Sphinx extension: the directive `costs`, a table of what it takes to run each chapter of a profile anew.

The data sets are those that the profile names, their sizes the catalogue's, the minutes those of the published rows::

    ```{costs} laptop
    ```
"""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from retlib.core import notebook_files, runtime
from retlib.data.datasets import catalogue
from retlib.evaluation import results

HEAD = ("chapter", "data to fetch", "MB", "systems", "seeds", "minutes of the costliest")


def costs(profile: str) -> list[tuple[str, ...]]:
    """A row for each chapter that needs data: as `HEAD` has it; what no published row tells stays empty."""
    root, found = runtime.root(), []
    sizes = catalogue.table().set_index("name")["size"].str.removesuffix(" MB")
    for name, entry in notebook_files.read_yaml(root / "notebooks" / "profiles" / f"{profile}.yaml").items():
        if isinstance(entry, dict) and (needs := entry.get("needs")):
            megabytes = sum(float(sizes[each]) for each in needs)
            recorded = results.load(name, profile, "reference")
            found.append((f"{{doc}}`../notebooks/{name}`", ", ".join(needs), f"{megabytes:.0f}", *_trained(recorded)))
    return found


def _trained(recorded: results.Results | None) -> tuple[str, str, str]:
    """How many systems were trained, with how many seeds, and the minutes of the longest training with one seed."""
    rows = recorded.rows if recorded else None
    if rows is None or "seconds" not in rows or not (rows["seconds"].fillna(0) > 0).any():
        return "", "", ""
    rows = rows[rows["seconds"].fillna(0) > 0]
    return str(rows["system"].nunique()), str(rows["seed"].nunique()), f"{rows['seconds'].max() / 60:.0f}"


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
