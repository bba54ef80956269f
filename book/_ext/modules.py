"""Sphinx extension: the directive `rooms`, a section for each public module of the rooms of the package that it lists.

A section holds what autodoc makes of the module and numpydoc's sections of its docstrings::

    ```{rooms}
    training
    ```
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util.docutils import SphinxDirective

SECTION = """
### {name}

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :member-order: bysource
```
"""
# Types stand as they are written: "float32 array, shape (B, d)" is for a reader, and no name to look up.
NUMPYDOC = Config(napoleon_use_param=False, napoleon_use_rtype=False)


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
        """The sections, one level below that of the page's own."""
        place = nodes.container()
        named = ((name, name.split(".", 2)[2]) for room in self.content for name in modules(f"retlib.{room}"))
        text = "".join(SECTION.format(module=module, name=name) for module, name in named)
        lines = StringList(text.splitlines(), source=self.env.docname)
        self.state.nested_parse(lines, self.content_offset, place, match_titles=True)
        return place.children


def read_docstring(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn numpydoc's sections into rst.

    A property's docstring is one sentence, and napoleon would take what stands before a colon for its type.
    """
    if what != "property":
        lines[:] = NumpyDocstring(lines, NUMPYDOC, app, what, name, thing, options).lines()


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", read_docstring)
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
