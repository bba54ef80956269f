"""A small book in a folder of its own: this project's machinery around toy notebooks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nbformat
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from retlib.core import runtime

PARAMETERS = 'profile = "explore"\nseeds = [0]\nsource = "run"\nwait = 0.0\nfail = False'
BODY = """
import time, os
from pathlib import Path

waited = [time.sleep(0.05) for _ in range(int(wait * 20))]
if fail == "die":
    os._exit(9)
if fail:
    raise ValueError("told to fail")
print(profile, seeds, source)
"""
TABLE = """
class Table:
    def _repr_html_(self):
        return "<table class='dataframe'><tr><th>x</th></tr><tr><td>1</td></tr></table>"

Table()
"""
FILES = {
    "data/papers/papers.yaml": "{}",
    "data/papers/claims.csv": "chapter,also\n",
    "book/references.bib": "",
    "book/index.md": "# Toy\n\nSee {doc}`../notebooks/1_a`: $x^2$.\n",
    "_toc.yml": "format: jb-book\nroot: book/index\nchapters:\n"
    + "".join(f"- file: notebooks/{name}\n" for name in ("1_a", "2_b", "3_c")),
}


def make(root: Path) -> None:
    """Three notebooks: b comes after a, and c names a data set."""
    original = runtime.root()
    for name in ("retlib", "book/_ext", "book/_static"):
        shutil.copytree(original / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "data" / "papers").mkdir(parents=True)
    for name in ("Snakefile", "_config.yml", "constraints.txt", "data/catalogue.yaml"):
        shutil.copy(original / name, root / name)
    for name, text in FILES.items():
        (root / name).write_text(text)
    for name, more in (("1_a", ""), ("2_b", ""), ("3_c", '\ndata = "quora"')):
        write_notebook(root / "notebooks" / f"{name}.ipynb", BODY, more)
    set_profile(root, "toy", {"2_b": {"after": ["1_a"]}})


def add_paper(root: Path) -> None:
    """A paper whose page `4_p` is made of the template `page`."""
    template = root / "notebooks" / "page.ipynb"
    write_notebook(template, 'print("of", paper)', '\npaper = ""')
    title = "# Part {{ part }}\n\n{{ note }} {doc}`{{ page }}`, {{ paper }}: {{ title }}"
    template.write_text(template.read_text().replace("# Chapter page", json.dumps(title)[1:-1]))
    paper = {"part": "I", "name": "Some 2020", "authors": "Some 2020", "title": '"T"', "link": "https://example.org"}
    paper |= {"chapters": ["1_a"], "pages": {"page": "4_p"}, "notes": {"note": "Well."}}
    (root / "data" / "papers" / "papers.yaml").write_text(yaml.safe_dump({"some2020": paper}))


def write_notebook(path: Path, body: str, more: str = "") -> None:
    cells = [
        new_markdown_cell(f"# Chapter {path.stem}"),
        new_code_cell(PARAMETERS + more, metadata={"tags": ["parameters"]}),
        new_code_cell(body.strip()),
        new_code_cell(TABLE.strip()),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)


def set_profile(root: Path, profile: str, entries: Mapping) -> None:
    path = root / "notebooks" / "profiles" / f"{profile}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(dict(entries)))


def environment(root: Path) -> dict[str, str]:
    """Its own copy of the package comes first."""
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path, "RETLIB_BUILD": str(root / "_build")}


def start(root: Path, *arguments: str) -> subprocess.Popen:
    """Start a command of the package."""
    return subprocess.Popen(
        [sys.executable, "-m", "retlib", *arguments],
        cwd=root,
        env=environment(root),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def call(root: Path, *arguments: str) -> tuple[int, str]:
    """A command's exit code, and what it said."""
    process = start(root, *arguments)
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


def build(root: Path, *arguments: str) -> tuple[int, str]:
    return call(root, "build", "--profile", "toy", *arguments)


def python(root: Path, *arguments: object) -> subprocess.CompletedProcess:
    """Run Python, or a program of its environment, at the root."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=root, env=environment(root), text=True, capture_output=True, timeout=300)


def copies(root: Path, state: str = "notebooks") -> dict[str, tuple[int, int]]:
    """The executed copies by name: what identifies this very run of each."""
    stats = {path.stem: path.stat() for path in (root / "_build" / "toy" / state).glob("*.ipynb")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def rerun(before: Mapping, after: Mapping) -> set[str]:
    """The notebooks that were run between two calls of `copies`."""
    return {name for name in after if before.get(name) != after[name]}


def printed(copy: Path) -> str:
    """All that an executed notebook wrote to its standard output."""
    outputs = [out for cell in json.loads(copy.read_text())["cells"] for out in cell.get("outputs", [])]
    return "".join("".join(out["text"]) for out in outputs if out.get("name") == "stdout")
