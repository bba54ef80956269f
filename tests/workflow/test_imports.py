"""The static import closure, on a small package written here and on the real one."""

import json
from pathlib import Path

import pytest

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.workflow.imports import closure, corpora

MODULES = {
    "__init__.py": '"""A package."""',
    "plain.py": "import os",
    "uses_plain.py": "from retlib import plain",
    "late.py": "def f():\n    import retlib.uses_plain as u\n    return u",
    "circle_a.py": "from retlib.circle_b import x",
    "circle_b.py": "from retlib import circle_a",
    "many/__init__.py": "import pkgutil  # imports its members in a loop",
    "bare/__init__.py": "# nothing",
    "bare/one.py": "",
    "many/one.py": "from retlib.plain import y",
    "many/two.py": "from retlib.many import one",
}


@pytest.fixture
def root(tmp_path):
    for name, text in MODULES.items():
        path = tmp_path / "retlib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def imported_by(root: Path, *cells: str) -> set[str]:
    notebook = root / "n.ipynb"
    code = [{"cell_type": "code", "source": cell, "metadata": {}} for cell in cells]
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "import retlib.plain"}, *code]}))
    return {path.relative_to(root / "retlib").as_posix() for path in closure(notebook, root)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os, retlibrary", set()),
        ("import retlib.plain", {"plain.py"}),
        ("import retlib.plain as p, json", {"plain.py"}),
        ("from retlib import plain", {"plain.py"}),
        ("from retlib.plain import something", {"plain.py"}),
        ("from retlib import late", {"late.py", "uses_plain.py", "plain.py"}),
        ("from retlib import circle_a", {"circle_a.py", "circle_b.py"}),
        ("from retlib import many", {"many/__init__.py"}),
        ("from retlib.many import one", {"many/__init__.py", "many/one.py", "plain.py"}),
        ("from retlib.many.two import x", {"many/__init__.py", "many/one.py", "many/two.py", "plain.py"}),
        ("from retlib.bare import one", {"bare/one.py"}),
        ("if True:\n    from retlib.plain import *", {"plain.py"}),
        ("%matplotlib inline\nimport retlib.plain\n!ls", {"plain.py"}),
    ],
)
def test_forms_of_import(root, code, expected):
    """An `__init__` without code is nothing to depend on, and Markdown is no code."""
    assert imported_by(root, "x = 1", code) == expected


def test_a_syntax_error_names_notebook_cell_and_line(root):
    with pytest.raises(DataError, match=r"n\.ipynb, cell 3, line 2"):
        imported_by(root, "x = 1", "y = 2\nz = = 3")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, set()),
        ({"loss": "softmax", "steps": 3}, set()),
        ({"collection": "quora"}, {"quora"}),
        ({"tasks": {"P": "quora", "N": ["nfcorpus"]}}, {"quora", "nfcorpus"}),
        ({"generators": {"nfcorpus": {}}}, {"nfcorpus"}),
        ({"articles": "wikispeedia"}, {"wikispeedia"}),
        ({"collections": ["squad-small"]}, {"squad", "_tasks"}),  # what a reader imports comes along
    ],
)
def test_a_data_set_counts_where_parameters_name_it(parameters, expected):
    root = runtime.root()
    knows_all = root / "retlib" / "studies" / "experiment.py"
    readers = {path.stem for path in closure(knows_all, root, parameters) if path.parent.name == "datasets"}
    assert readers >= expected
    assert not readers & ({"quora", "nfcorpus", "wikispeedia", "squad", "irds", "pydocs"} - expected)


def test_corpora_count_where_parameters_name_them(tmp_path):
    for name in ("a.md", "{name}.md", "é.csv"):
        (tmp_path / name).write_text("text\nx\n")
    (tmp_path / "beir").mkdir()
    (tmp_path / "beir" / "corpus.jsonl").write_text("")
    folder, table, beir = f"folder:{tmp_path}", f"csv:{tmp_path / 'é.csv'}", f"beir:{tmp_path / 'beir'}"
    found = corpora({"steps": 3, "corpora": [folder], "of": {table: beir}})
    assert {*found} == {folder, table, beir} and len({*found.values()}) == 3 and all(found.values())
    # What is no corpus, or none that is there, is the notebook's to refuse.
    wrong = {"a": "csv: one of these", "b": "csv", "c": [f"beir:{tmp_path / 'none'}", "csv:", "x:y"]}
    assert not any(corpora(wrong).values())
