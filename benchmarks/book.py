"""The book itself: what a process, an import and a notebook take to start, and where the minutes of `make book` go."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from statistics import median

from benchmarks.harness import CASES, Line, Scale, timed
from retlib.core import notebook_files, runtime

STARTED = {
    "Python alone": "pass",
    "import retlib": "import retlib",
    "the command line": "import retlib.workflow.cli",
    "torch": "import torch",
    "what a chapter imports": "import retlib.studies.study",
    "sentence-transformers": "import sentence_transformers",
}


def notebook() -> None:
    """Run the imports of a chapter in a notebook, its kernel started for it."""
    import nbformat
    import papermill

    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(STARTED["what a chapter imports"])])
    page.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(page, given := f"{folder}/given.ipynb")
        papermill.execute_notebook(given, f"{folder}/run.ipynb", progress_bar=False, cwd=str(runtime.root()))


@CASES.register("10-starting")
def starting(scale: Scale) -> Iterator[Line]:
    """Seconds until each is there, in a process of its own that has run before."""
    for what, code in list(STARTED.items())[: scale(None, 2)]:
        start = partial(subprocess.run, [sys.executable, "-c", code], check=True, cwd=runtime.root())
        rounds = [timed(start) for _ in range(scale(3, 2))]
        yield Line("starting", {"what": what, "seconds": median(each.seconds for each in rounds[1:])})
    if not scale.quick:
        rounds = [timed(notebook) for _ in range(3)]
        yield Line("starting", {"what": "a notebook with them", "seconds": median(each.seconds for each in rounds[1:])})


@CASES.register("10-the-book")
def the_book(scale: Scale) -> Iterator[Line]:
    """Seconds of each page of the books that were built here, as papermill noted them; nothing is run."""
    for profile in scale(notebook_files.profiles(runtime.root()), []):
        for page in sorted((runtime.build_dir() / profile / "notebooks").glob("*.ipynb")):
            noted = json.loads(page.read_text(encoding="utf-8"))["metadata"].get("papermill", {}).get("duration")
            if noted:
                yield Line("book", {"profile": profile, "page": page.stem, "seconds": noted})
