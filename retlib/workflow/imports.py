"""Which files a notebook or a module depends on: of this package, read from its source, and of a reader's own corpora.

The batch run reruns a notebook when one of them changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from retlib.core.errors import DataError, RetlibError
from retlib.core.notebook_files import cells, source
from retlib.data import datasets
from retlib.data.datasets import own

PACKAGE = "retlib"


def closure(path: Path, root: Path, parameters: Mapping[str, Any] | None = None) -> list[Path]:
    """Return the package's files that `path` imports, directly or through one another, sorted and without itself.

    `path` is a notebook or a module, `root` the folder that holds the package. A data set that the notebook's
    `parameters` name brings the file that reads it. Imports in functions count; an `__init__` without code does not.
    """
    found: set[Path] = set()
    readers = (module for name in _texts(parameters or {}) for module in datasets.readers(name))
    waiting = {path, *(Path(module.__file__) for module in readers)}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= _imported(file, root) - found
    return sorted(found - {path})


def corpora(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the state of the files of each own corpus that parameters name, at whatever depth.

    Snakemake takes braces in paths for wildcards, and asks for inputs often, so files are none. A corpus that cannot be
    found has no digest: the notebook says what is wrong, and others run.
    """
    names = {name for name in _texts(parameters) if name.partition(":")[0] in own.FORMS and ":" in name}
    return {name: _state(name) for name in sorted(names)}


@cache
def _state(name: str) -> str:
    with suppress(RetlibError):
        files = {path: path.stat() for path in own.find(name).files}
        states = sorted((str(path), status.st_size, status.st_mtime_ns) for path, status in files.items())
        return sha256(repr(states).encode()).hexdigest()
    return ""


def _texts(value: Any) -> Iterator[str]:
    """The strings in parameters, names of entries among them, at whatever depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.items() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _trees(path: Path) -> Iterator[ast.Module]:
    if path.suffix != ".ipynb":
        yield ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        return
    for number, cell in enumerate(cells(path), start=1):
        if cell["cell_type"] == "code":
            try:
                yield ast.parse(source(cell))
            except SyntaxError as error:
                raise DataError(f"{path}, cell {number}, line {error.lineno}: {error.msg}") from error


@cache
def _imported(path: Path, root: Path) -> frozenset[Path]:
    """The files of the package that a file imports."""
    return frozenset(file for name in _names(path) for file in _files(name, root))


def _names(path: Path) -> Iterator[str]:
    """Dotted names of everything of the package that a file imports, modules or not."""
    for tree in _trees(path):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                names = [before + alias.name for alias in node.names]
                yield from (name for name in names if name.split(".")[0] == PACKAGE)


def _files(name: str, root: Path) -> Iterator[Path]:
    """The files behind a dotted name: the module, and the `__init__` with code of each package on the way."""
    folder = root
    for part in name.split("."):
        if (folder / f"{part}.py").is_file():
            yield folder / f"{part}.py"
            return
        folder /= part
        init = folder / "__init__.py"
        if not init.is_file():
            return
        if any(not isinstance(line, ast.Expr) for line in next(_trees(init)).body):
            yield init
