"""One notebook: through papermill, which leaves an executed copy, or its cells in this process (all chapters)."""

import json
import linecache
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from retlib.core import notebook_files
from retlib.core.errors import RetlibError


@dataclass(frozen=True)
class Page:
    """A page of the book: the notebook that makes it, its parameters, and the pages whose rows it reads.

    A template makes a page for each paper, with `words` for each ``{{ name }}`` in its Markdown cells.
    """

    notebook: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict)


def execute(page: Page, folder: Path, name: str) -> Path:
    """Run a page's notebook in `folder/running`; return the path of its executed copy in `folder/notebooks`.

    Raises `RetlibError` if a cell fails or the kernel dies; the copy is then in `folder/failed`.
    """
    # A grammar of web addresses, of which no notebook has any: its import takes 1.6 seconds.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill

    running, done, failed = (folder / state / f"{name}.ipynb" for state in ("running", "notebooks", "failed"))
    for path in (running, done, failed):
        path.parent.mkdir(parents=True, exist_ok=True)
    book = papermill.iorw.load_notebook_node(str(page.notebook))
    fill(book.cells, page.words)
    run = partial(
        papermill.execute_notebook,
        book,
        running,
        parameters=dict(page.parameters),
        cwd=page.notebook.parent,  # the same as in JupyterLab
        start_timeout=180,  # a kernel starts in a second, but on a busy machine it may take minutes
        iopub_timeout=600,  # so may what a cell said last, for which it would wait 4 seconds
        progress_bar={"desc": name, "mininterval": 0.5},
        stdout_file=sys.stderr,
        stderr_file=sys.stderr,
    )
    try:
        # Figures go into the notebook, even where the environment asks matplotlib for something else.
        with mock.patch.dict(os.environ, MPLBACKEND="module://matplotlib_inline.backend_inline"):
            try:
                run()
            except RuntimeError:  # a kernel died, or did not answer: two may have chosen one port
                run()
    except Exception as error:
        if running.exists():
            running.replace(failed)
        why = f"{getattr(error, 'ename', type(error).__name__)}: {getattr(error, 'evalue', error)}"
        raise RetlibError(f"{why}\nIts executed copy is {failed}") from error
    return running.replace(done)


def fill(cells: Iterable[dict], words: Mapping[str, Any]) -> None:
    """Put words in the place of each ``{{ name }}`` in the Markdown among a notebook's cells."""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = notebook_files.source(cell)
            cell["source"] = re.sub(r"{{ (\w+) }}", lambda match: words.get(match[1], match[0]), text)


def run_cells(notebook: Path, without: Collection[str] = ("parameters", "answer"), **parameters: Any) -> dict[str, Any]:
    """Run a notebook's cells here, but those with some tags, and display nothing; return its globals."""
    names = {"__name__": "__main__", **notebook_files.default_parameters(notebook), **parameters}
    with mock.patch("IPython.display.display", lambda *_, **__: None) as names["display"]:
        for cell in notebook_files.cells(notebook):
            if cell["cell_type"] == "code" and not {*without} & {*cell["metadata"].get("tags", ())}:
                text, file = notebook_files.source(cell), f"<{notebook.stem}, {cell['id']}>"
                # What a cell registers is asked for its source.
                linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
                exec(compile(text, file, "exec"), names)
    return names


if __name__ == "__main__":  # as the Snakefile calls it: a page as JSON, the run's folder, the copy's name
    given, folder, name = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    start = time.time()
    print(f"{name} begins", flush=True)
    try:
        execute(Page(**{**given, "notebook": Path(given["notebook"])}), folder, name)
    except RetlibError as failure:
        print(f"{name} FAILED after {time.time() - start:.0f} s")
        sys.exit(f"error: {failure}")
    print(f"{name} done after {time.time() - start:.0f} s")
