"""The notebooks' files: names, cells, parameters, and what the profiles set (all chapters)."""

import ast
import json
from pathlib import Path
from typing import Any

import yaml

from retlib.core.errors import DataError

EXPLORE = "explore"  # the profile of what is run by hand


def cells(notebook: Path) -> list[dict]:
    """Return the cells of a notebook file."""
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


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
    return read_yaml(root / "notebooks" / "profiles" / f"{profile}.yaml")


def default_parameters(notebook: Path) -> dict[str, Any]:
    """Return the parameters of a notebook and their defaults: the literals of its `parameters` cell."""
    try:
        (cell,) = [cell for cell in cells(notebook) if "parameters" in cell["metadata"].get("tags", ())]
        return {line.targets[0].id: ast.literal_eval(line.value) for line in ast.parse(source(cell)).body}
    except (SyntaxError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{notebook} needs one cell `parameters`, of names and literal values: {error}") from error


def at_profile(root: Path, profile: str, name: str) -> dict[str, Any]:
    """Return a notebook's parameters: whole, as the file of a profile gives them, else its defaults."""
    entry = settings(root, profile).get(name) or {}
    return default_parameters(root / "notebooks" / f"{name}.ipynb") | entry.get("parameters", {})


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; `DataError` if JSON could not hold it, as a date."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        return dict(json.loads(json.dumps(content or {}, allow_nan=False, ensure_ascii=False).encode()))
    except Exception as error:  # the library itself stumbles over `!!bool x`, `!!timestamp x`
        raise DataError(f"{path} is no mapping in YAML and UTF-8 that JSON could hold: {error}") from error
