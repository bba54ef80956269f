"""What the notebooks' files say: their names, their cells, the parameters that they declare."""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from retlib.core import rules
from retlib.core.errors import DataError, require, require_one_of

EXPLORE = "explore"  # the profile of what is run by hand

MAPPING = rules.mapping_of(None, lambda *_: None)
# What ``papers.yaml`` says.
_PAPER = dict.fromkeys(("part", "name", "authors", "title", "link"), rules.text)
_PAPER |= {"chapters": rules.some_of(rules.text), "pages": rules.mapping_of(None, rules.text)}
PAPERS = rules.mapping_of(None, rules.form(_PAPER, {"notes": rules.mapping_of(None, rules.text)}))


@dataclass(frozen=True)
class Page:
    """A page of the book, and what makes it.

    A template makes a page for each paper, with `parameters`, and `words` for each ``{{ name }}`` in its Markdown
    cells. The page reads the rows of the pages `after` which it comes.
    """

    notebook: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)


def cells(notebook: Path) -> list[dict]:
    """The cells of a notebook file."""
    try:
        return json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{notebook} is not a notebook: {error}") from error


def source(cell: dict) -> str:
    """A cell's source as one string, with IPython's magic lines left blank."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def names(root: Path) -> list[str]:
    """The notebooks of the book, in order: those whose name starts with a number."""
    return sorted(path.stem for path in (root / "notebooks").glob("[0-9]*.ipynb"))


def pages(root: Path) -> dict[str, Page]:
    """The book's pages by name, in order: a notebook's, and those that ``papers.yaml`` asks of templates."""
    found = {name: Page(root / "notebooks" / f"{name}.ipynb") for name in names(root)}
    for key, paper in papers(root).items():
        for chapter in paper["chapters"]:
            require_one_of(f"a chapter of {key} in papers.yaml", chapter, names(root))
        plain = {"paper": key, **paper["pages"]} | {k: v for k, v in paper.items() if isinstance(v, str)}
        for template, name in paper["pages"].items():
            notebook = root / "notebooks" / f"{template}.ipynb"
            wrong = f"papers.yaml: {key} has a page made of {template!r}, which is no notebook"
            require(notebook.is_file(), wrong, DataError)
            words = {"note": "", "tables_note": ""} | paper.get("notes", {}) | plain
            found[name] = Page(notebook, {"paper": key}, tuple(paper["chapters"]), words)
    return dict(sorted(found.items()))


def papers(root: Path) -> dict[str, dict]:
    """What ``data/papers/papers.yaml`` says of each paper, in its order; nothing where there is no such file."""
    path = root / "data" / "papers" / "papers.yaml"
    return parsed(path, PAPERS) if path.is_file() else {}


def also(root: Path, name: str) -> list[str]:
    """Return the notebooks whose rows the claims of another read, by the column `also` of ``claims.csv``."""
    path = root / "data" / "papers" / "claims.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        found = (line["also"].split() for line in csv.DictReader(file) if line["chapter"] == name)
        return list(dict.fromkeys(chain.from_iterable(found)))


def parsed(path: Path, rule: rules.Rule = MAPPING) -> dict:
    """What a YAML file says, parsed and checked by a rule once, as long as it does not change: that takes a second."""
    return _parsed(path, path.stat().st_mtime_ns, rule)


@cache
def _parsed(path: Path, written: int, rule: rules.Rule) -> dict:
    found = read_yaml(path)
    rule(path.name, found)
    return found


class _Loader(yaml.SafeLoader):
    """What reads YAML; of a key that stands twice it would silently keep the last."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node, known = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            if (name := str(key.value)) in known:
                raise yaml.MarkedYAMLError(problem=f"the key {name!r} stands twice", problem_mark=key.start_mark)
            known.add(name)
        return node


def read_yaml(path: Path) -> Any:
    """What a YAML file says; `DataError` if it cannot be read, or holds what JSON does not, as a date."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        json.dumps(found, sort_keys=True, allow_nan=False, ensure_ascii=False).encode()
        return found
    # The last three are what the library itself stumbles over: a thousand brackets, `!!bool x`, `!!timestamp x`.
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, LookupError, AttributeError) as error:
        raise DataError(f"{path} cannot be read as YAML in UTF-8: {error}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} holds what JSON does not: {error}") from error


def profiles(root: Path) -> list[str]:
    """The profiles there are."""
    return sorted(path.stem for path in (root / "notebooks" / "profiles").glob("*.yaml"))


def settings(root: Path, profile: str) -> dict[str, Any]:
    """What the file of a profile says of each notebook that it names, and its line `others`."""
    path = root / "notebooks" / "profiles" / f"{profile}.yaml"
    found = read_yaml(path)
    require(isinstance(found, dict | None), f"{path} must map notebooks to their settings", DataError)
    return found or {}


def declared(notebook: Path) -> dict[str, Any]:
    """Return the parameters of a notebook and their defaults: the literals of its `parameters` cell.

    Raises `DataError` if there is no such cell, or it holds anything but assignments of literals.
    """
    tagged = [cell for cell in cells(notebook) if "parameters" in cell["metadata"].get("tags", [])]
    require(len(tagged) == 1, f"{notebook} has {len(tagged)} cells tagged `parameters`; it needs one", DataError)
    found = {}
    for line in ast.parse(source(tagged[0])).body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        try:
            found[target.id] = ast.literal_eval(line.value)
        except (AttributeError, ValueError) as error:
            said = f"`{ast.unparse(line)}` in the parameters cell of {notebook} does not give a name a literal value"
            raise DataError(said) from error
    return found


def at_profile(root: Path, profile: str, name: str) -> dict[str, Any]:
    """The parameters of a notebook as the file of a profile sets them: its defaults, where that sets none."""
    entry = settings(root, profile).get(name) or {}
    return declared(root / "notebooks" / f"{name}.ipynb") | entry.get("parameters", {})
