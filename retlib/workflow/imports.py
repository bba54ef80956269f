"""Which modules of this package a notebook or a module depends on, read from its source.

The batch run reruns a notebook when one of these files changes, and leaves it alone when
another one does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from retlib.core.errors import DataError
from retlib.core.notebook_files import cells, source

PACKAGE = "retlib"


def closure(path: Path, root: Path) -> list[Path]:
    """The package's files that `path` imports, directly or through one another.

    Parameters
    ----------
    path : Path
        A notebook (`.ipynb`) or a module (`.py`).
    root : Path
        The folder that holds the package.

    Returns
    -------
    list of Path
        Sorted, `path` itself not among them.

    Notes
    -----
    Imports inside functions count. A sub-package counts as a whole, because its
    `__init__` may import its members in a loop, as `retlib.data.datasets` does.
    """
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        for name in _imported(waiting.pop(), root):
            for file in _files(name, root):
                if file not in found:
                    found.add(file)
                    waiting.append(file)
    return sorted(found - {path})


def _trees(path: Path) -> Iterator[ast.AST]:
    if path.suffix != ".ipynb":
        yield ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        return
    for number, cell in enumerate(cells(path), start=1):
        if cell["cell_type"] == "code":
            try:
                yield ast.parse(source(cell))
            except SyntaxError as error:
                raise DataError(f"{path}, cell {number}, line {error.lineno}: {error.msg}") from error


def _imported(path: Path, root: Path) -> Iterator[str]:
    """Dotted names of everything of the package that a file imports, modules or not."""
    for tree in _trees(path):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, path, root)
                names = [f"{base}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from (name for name in names if name.split(".")[0] == PACKAGE)


def _absolute(node: ast.ImportFrom, path: Path, root: Path) -> str:
    """The module that a `from … import` names, with the dots of a relative one resolved."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(root).parent.parts
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *(node.module or "").split(".")]).rstrip(".")


def _files(name: str, root: Path) -> Iterator[Path]:
    """The files behind a dotted name: each package's `__init__` on the way, and the module."""
    folder = root
    for part in name.split("."):
        if (folder / f"{part}.py").is_file():
            yield folder / f"{part}.py"
            return
        folder /= part
        if not (folder / "__init__.py").is_file():
            return
        if folder.parent == root:
            yield folder / "__init__.py"
        else:
            yield from folder.rglob("*.py")
