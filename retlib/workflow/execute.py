"""One notebook through papermill, so that what is left behind says what happened."""

from __future__ import annotations

import json
import linecache
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

from retlib.core import cache, notebook_files, runtime
from retlib.core.errors import RetlibError, require, require_one_of
from retlib.workflow import notebooks


class NotebookError(RetlibError):
    """A notebook failed; the message says how, and where its executed copy is."""


def execute(
    notebook: Path,
    folder: Path,
    parameters: Mapping[str, Any],
    name: str | None = None,
    words: Mapping[str, str] | None = None,
) -> Path:
    """Run a notebook in `folder/running`; return the path of its executed copy in `folder/notebooks`.

    The copy has another `name` if given. `words` take the place of each ``{{ name }}`` in a template's Markdown cells.
    Raises `NotebookError` if a cell fails or the kernel dies; the copy is then in `folder/failed`, the error on top.
    """
    name = name or notebook.stem
    running, done, failed = (folder / state / f"{name}.ipynb" for state in ("running", "notebooks", "failed"))
    for path in (running, done, failed):
        path.parent.mkdir(parents=True, exist_ok=True)
    failed.unlink(missing_ok=True)
    try:
        try:
            _papermill(notebook, running, parameters, words or {})
        except RuntimeError as error:
            # Two kernels that begin at once may choose one port, and one of them never answers.
            if type(error) is not RuntimeError:
                raise
            _papermill(notebook, running, parameters, words or {})
    except Exception as error:
        _explain(running, error)
        os.replace(running, failed)
        raise NotebookError(f"{summary(failed)}\nIts executed copy is {failed}") from error
    except BaseException:  # interrupted by hand: neither done nor failed
        running.unlink(missing_ok=True)
        raise
    done.with_suffix(".sha256").write_text(cache.checksum(running))
    running.replace(done)
    return done


def record(names: Iterable[str], profile: str) -> None:
    """Run notebooks of a profile one after another, and keep the rows of each as published ones, in `data/reference`.

    Those that they come after are not run: the first that needs a training makes it. Raises `SettingError` for an
    unknown name or profile, or data that are not on this machine.
    """
    from retlib.evaluation import results

    for name, plan in _to_run(names, profile).items():
        execute(plan.page.notebook, runtime.build_dir() / profile, plan.parameters, name, plan.page.words)
        if found := results.load(name, profile, "run"):
            found.save(results.reference_folder(profile, name))


def draw(names: Iterable[str], profile: str) -> None:
    """Run the cells of notebooks in this process on their published rows, and write what they say of their claims.

    The answer on top is left out: it may be for other verdicts. Raises `SettingError` for an unknown name, `DataError`
    if nothing of it is published at the profile.
    """
    from retlib.evaluation import results

    plans = notebooks.plan(runtime.root(), profile)
    for name in names:
        require_one_of("CHAPTER", name, plans)
        space = _cells(plans[name], {"profile": profile, "source": "reference"}, {"parameters", "answer"})
        if (table := space["experiment"].results.tables.get("claims")) is not None:
            results.publish_table(profile, name, "claims", table)
            print(f"{name}: {len(table)} contrasts", flush=True)


def train(names: Iterable[str], profile: str) -> None:
    """Run the cells of notebooks in this process, for what they train; no page is made. Errors are those of `record`.

    It says of each notebook how long it took.
    """
    for name, plan in _to_run(names, profile).items():
        with runtime.Stopwatch() as watch:
            _cells(plan, plan.parameters)
        print(f"{name}: done after {watch.seconds:.0f} s", flush=True)


def run_cells(name: str, **parameters: Any) -> dict[str, Any]:
    """Run a notebook of the book in this process with parameters of one's own, and return its globals."""
    page = notebook_files.pages(runtime.root())[name]
    plan = notebooks.Plan(page, notebook_files.declared(page.notebook))
    return _cells(plan, parameters, {"parameters", "answer"})


def _cells(
    plan: notebooks.Plan, parameters: Mapping[str, Any], without: Collection[str] = ("parameters",)
) -> dict[str, Any]:
    """Run a notebook's cells in this process, which displays nothing, but those with some tags; return its globals."""
    space = {"__name__": "__main__", **plan.parameters, **parameters}
    with mock.patch("IPython.display.display", lambda *_, **__: None) as space["display"]:
        for cell in notebook_files.cells(plan.page.notebook):
            if cell["cell_type"] == "code" and not {*without} & {*cell["metadata"].get("tags", ())}:
                text, file = notebook_files.source(cell), f"<{plan.page.notebook.stem}, {cell['id']}>"
                # What a cell registers is asked for its source.
                linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
                exec(compile(text, file, "exec"), space)
    return space


def _to_run(names: Iterable[str], profile: str) -> dict[str, notebooks.Plan]:
    """The plans of some notebooks, in their order in the book; all of them run."""
    plans = notebooks.plan(runtime.root(), profile)
    for name in names:
        require_one_of("CHAPTER", name, plans)
        shown = f"{name} shows recorded rows at {profile!r}: its data are not here (python -m retlib datasets)"
        require(plans[name].parameters["source"] == "run", shown)
    return {name: plan for name, plan in plans.items() if name in names}


def _papermill(notebook: Path, running: Path, parameters: Mapping[str, Any], words: Mapping[str, str]) -> None:
    # A grammar of web addresses, which is compiled when it is imported: 1.6 seconds, to check none in a notebook.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill

    book = papermill.iorw.load_notebook_node(str(notebook))
    fill(book.cells, words)
    # Figures go into the notebook, even where the environment asks matplotlib for something else.
    with mock.patch.dict(os.environ, MPLBACKEND="module://matplotlib_inline.backend_inline"):
        papermill.execute_notebook(
            book,
            running,
            parameters=dict(parameters),
            # The same folder as in JupyterLab.
            cwd=notebook.parent,
            # A kernel starts in a second, but on a busy machine it may take minutes.
            start_timeout=180,
            # On a busy machine, what a cell said last takes minutes, too; it would end the notebook after 4 seconds.
            iopub_timeout=600,
            progress_bar={"desc": running.stem, "mininterval": 0.5},
            stdout_file=sys.stderr,
            stderr_file=sys.stderr,
        )


def fill(cells: Iterable[dict], words: Mapping[str, str]) -> None:
    """Put words in the place of each ``{{ name }}`` in the Markdown among a notebook's cells."""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = "".join(cell["source"])
            cell["source"] = re.sub(r"{{ (\w+) }}", lambda found: words.get(found[1], found[0]), text)


def summary(executed: Path) -> str:
    """What went wrong in a failed notebook, in one line."""
    book = json.loads(executed.read_text(encoding="utf-8"))
    for output in chain.from_iterable(cell.get("outputs", []) for cell in book["cells"]):
        if output["output_type"] == "error":
            return f"{output['ename']}: {output['evalue']}"
    return book["metadata"]["papermill"].get("stopped", "unknown error")


def _explain(running: Path, error: Exception) -> None:
    """Put an error on top of the executed copy where papermill did not: a dead kernel, a time-out."""
    import nbformat
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, PapermillExecutionError):
        return
    message = f"{type(error).__name__}: {error}"
    if running.exists():
        book = nbformat.read(running, as_version=4)
    else:
        book = nbformat.v4.new_notebook(metadata={"papermill": {}})
    book.metadata.papermill["stopped"] = message
    started = [i for i, cell in enumerate(book.cells, 1) if cell.metadata.get("papermill", {}).get("start_time")]
    where = f" in cell {started[-1]}" if started else ""
    text = f"**The run stopped{where}.**\n\n```\n{message}\n```"
    book.cells.insert(0, nbformat.v4.new_markdown_cell(text))
    nbformat.write(book, running)
