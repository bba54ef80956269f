"""The notebooks' files: names, cells, parameters, and what the profiles set (all chapters)."""

from __future__ import annotations

import ast
import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from retlib.core.errors import DataError, require

EXPLORE = "explore"  # the profile of what is run by hand


def cells(notebook: Path) -> list[dict]:
    """Return the cells of a notebook file."""
    try:
        return json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{notebook} is not a notebook: {error}") from error


def source(cell: dict) -> str:
    """Return a cell's source as one string, with IPython's magic lines left blank."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def names(root: Path) -> list[str]:
    """Return the notebooks of the book, in order: those whose name starts with a number."""
    return sorted(path.stem for path in (root / "notebooks").glob("[0-9]*.ipynb"))


def profiles(root: Path) -> list[str]:
    """Return the names of the profiles."""
    return sorted(path.stem for path in (root / "notebooks" / "profiles").glob("*.yaml"))


def settings(root: Path, profile: str) -> dict[str, Any]:
    """Return what the file of a profile says of each notebook that it names, and its line `others`."""
    path = root / "notebooks" / "profiles" / f"{profile}.yaml"
    entries = read_yaml(path)
    require(isinstance(entries, dict | None), f"{path} must map notebooks to their settings", DataError)
    return entries or {}


def declared(notebook: Path) -> dict[str, Any]:
    """Return the parameters of a notebook and their defaults: the literals of its `parameters` cell.

    Raises `DataError` if there is no such cell, or it holds anything but assignments of literals.
    """
    tagged = [cell for cell in cells(notebook) if "parameters" in cell["metadata"].get("tags", [])]
    require(len(tagged) == 1, f"{notebook} has {len(tagged)} cells tagged `parameters`; it needs one", DataError)
    try:
        lines = ast.parse(source(tagged[0])).body
        return {line.targets[0].id: ast.literal_eval(line.value) for line in lines}
    except (SyntaxError, AttributeError, ValueError) as error:
        raise DataError(f"the parameters cell of {notebook} must give names literal values: {error}") from error


def at_profile(root: Path, profile: str, name: str) -> dict[str, Any]:
    """Return the parameters of a notebook: as the file of a profile gives them, whole, else its defaults."""
    entry = settings(root, profile).get(name) or {}
    return declared(root / "notebooks" / f"{name}.ipynb") | entry.get("parameters", {})


class _Loader(yaml.SafeLoader):
    # Of a key that stands twice the library keeps the last, silently.
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key, _ in node.value if keys.count(key.value) > 1]:
            raise yaml.MarkedYAMLError(problem=f"{twice[0].value!r} stands twice", problem_mark=twice[1].start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return what a YAML file says; `DataError` if it cannot be read, or holds what JSON does not, as a date."""
    try:
        return deepcopy(_parsed(path, path.stat().st_mtime_ns))
    # The last three are what the library itself stumbles over: a thousand brackets, `!!bool x`, `!!timestamp x`.
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError, LookupError, AttributeError) as error:
        raise DataError(f"{path} cannot be read as YAML in UTF-8 that JSON could hold: {error}") from error


@cache  # parsing takes up to a second
def _parsed(path: Path, changed: int) -> Any:
    content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    json.dumps(content, sort_keys=True, allow_nan=False, ensure_ascii=False).encode()
    return content
