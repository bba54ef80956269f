"""The notebooks' files: names, cells, parameters, and what the profiles set (all chapters)."""

from __future__ import annotations

import ast
import json
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
    """Return a cell's source as one string."""
    return "".join(cell["source"])


def names(root: Path) -> list[str]:
    """Return the notebooks of the book, in order: those whose name starts with a number."""
    return sorted(path.stem for path in root.glob("notebooks/[0-9]*.ipynb"))


def profiles(root: Path) -> list[str]:
    """Return the names of the profiles."""
    return sorted(path.stem for path in root.glob("notebooks/profiles/*.yaml"))


def settings(root: Path, profile: str) -> dict[str, Any]:
    """Return what the file of a profile says of each notebook that it names, and its line `others`."""
    path = root / "notebooks" / "profiles" / f"{profile}.yaml"
    entries = read_yaml(path) or {}
    require(isinstance(entries, dict), f"{path} must map notebooks to their settings", DataError)
    return entries


def default_parameters(notebook: Path) -> dict[str, Any]:
    """Return the parameters of a notebook and their defaults: the literals of its `parameters` cell."""
    try:
        (cell,) = [cell for cell in cells(notebook) if "parameters" in cell["metadata"].get("tags", ())]
        return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(source(cell)).body}
    except (SyntaxError, AttributeError, ValueError) as error:
        raise DataError(f"{notebook} needs one cell `parameters`, of names and literal values: {error}") from error


def at_profile(root: Path, profile: str, name: str) -> dict[str, Any]:
    """Return the parameters of a notebook: as the file of a profile gives them, whole, else its defaults."""
    entry = settings(root, profile).get(name) or {}
    return default_parameters(root / "notebooks" / f"{name}.ipynb") | entry.get("parameters", {})


def read_yaml(path: Path) -> Any:
    """Return what a YAML file says; `DataError` if it cannot be read, or holds what JSON does not, as a date."""
    try:
        return json.loads(_as_json(path, path.stat().st_mtime_ns))
    except Exception as error:  # the library itself stumbles over a thousand brackets, `!!bool x`, `!!timestamp x`
        raise DataError(f"{path} cannot be read as YAML in UTF-8 that JSON could hold: {error}") from error


@cache  # parsing takes up to a second
def _as_json(path: Path, changed: int) -> bytes:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
