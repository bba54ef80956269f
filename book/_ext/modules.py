"""Sphinx extension: the directive `modules`, a section for each module of the package that it lists.

A section holds what autodoc makes of the module and napoleon of its docstrings::

    ```{modules}
    losses
    datasets.catalogue
    ```
"""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.util.docutils import SphinxDirective

SECTION = """
### {name}

```{{eval-rst}}
.. automodule:: retlib.{name}
   :members:
   :member-order: bysource
```
"""
# Types stand as they are written: "float32 array, shape (B, d)" is for a reader, and no name to look up.
NUMPYDOC = Config(napoleon_use_param=False, napoleon_use_rtype=False)


class Modules(SphinxDirective):
    """A section for each line."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The sections, one level below that of the page's own."""
        place = nodes.container()
        text = "".join(SECTION.format(name=name) for name in self.content)
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
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
