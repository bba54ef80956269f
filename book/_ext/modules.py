"""Sphinx extension: the directive `rooms`, a section for each public module of the rooms of the package that it lists.

A section holds what autodoc and numpydoc make of the module; viewcode links each name to its source::

    ```{rooms}
    training
    ```
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

SECTION = """
## {name}

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :member-order: bysource
```
"""


def modules(package: str) -> Iterator[str]:
    """The dotted names of a package's public modules, those of its sub-packages behind their own."""
    for found in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if not found.name.rpartition(".")[2].startswith("_"):
            yield found.name
            if found.ispkg:
                yield from modules(found.name)


class Rooms(SphinxDirective):
    """A section for each module of each room."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The sections, right below the page's title."""
        place = nodes.container()
        named = ((name, name.split(".", 2)[2]) for room in self.content for name in modules(f"retlib.{room}"))
        text = "".join(SECTION.format(module=module, name=name) for module, name in named)
        lines = StringList(text.splitlines(), source=self.env.docname)
        self.state.nested_parse(lines, self.content_offset, place, match_titles=True)
        return place.children


def _unsaid(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Take out what Python writes of a field that nobody described."""
    if any(line.startswith("Alias for field number") for line in lines):  # behind numpydoc, which frames it
        lines.clear()


def _no_addresses(app: Sphinx, tree: nodes.document) -> None:
    """Take out the links that docutils makes of measures, such as nDCG@10."""
    for link in [link for link in tree.findall(nodes.reference) if link.get("refuri", "").startswith("mailto:")]:
        link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.setup_extension("numpydoc")
    app.setup_extension("sphinx.ext.viewcode")
    app.add_directive("rooms", Rooms)
    # A default that a field makes is no Python; without it the types of the signature would not be shortened.
    app.connect("autodoc-process-signature", lambda *told: (told[5] and re.sub("<.*?>", "...", told[5]), told[6]))
    app.connect("autodoc-process-docstring", _unsaid)
    app.connect("doctree-read", _no_addresses)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
