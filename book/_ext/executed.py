"""Sphinx extension: a notebook's page shows its executed copy.

The notebooks in git have no outputs. When Sphinx reads one, this extension hands it the
executed copy instead: that of the profile named by `$RETLIB_PROFILE`, else the latest
there is. Where there is none, the notebook is first run on the recorded results
(`source="reference"`), which takes seconds and needs no data; where nothing is recorded
either, the page shows the notebook as it is. Pages that are made of a template have no
notebook of their own: to Sphinx their source is the template.

Above each chapter it puts what was found in short (`retlib.report.in_short`), of the rows that the copy was made
of: claims rest on rows of several chapters, which are complete only when all have run.

It also serves MathJax from the book itself, so that formulas show without a network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache, partial
from importlib.metadata import files
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.project import Project
from sphinx.util import logging
from sphinx.util.fileutil import copy_asset_file

from retlib.core import runtime
from retlib.evaluation import results
from retlib.report import claims, in_short
from retlib.workflow import imports, notebooks
from retlib.workflow.execute import NotebookError, execute, fill

FOLDER = "notebooks/"
NOTE = re.compile(r'<p class="note"><strong>(.*?)</strong></p>')
WIDGET = "application/vnd.jupyter.widget-view+json"
REFERENCE = "reference"  # the folder, beside those of the profiles, of pages drawn from recorded results
# Cells that are folded, and what they hold; those with the defaults too, where papermill has set others.
FOLDED = {"parameters": "the parameters", "injected-parameters": "the parameters of this run"}
log = logging.getLogger(__name__)


class Templates(Project):
    """A project in which several documents may have one source: the pages of a template, which is no page itself.

    Parameters
    ----------
    app : Sphinx
        Whose project's place it takes.
    """

    def __init__(self, app: Sphinx) -> None:
        super().__init__(app.srcdir, app.project.source_suffix)
        self.restore(app.project)
        pages = notebooks.pages(Path(app.srcdir))
        self.made = {FOLDER + name: page for name, page in pages.items() if page.words}

    def discover(self, *given: object, **named: object) -> set[str]:
        """Find the documents."""
        super().discover(*given, **named)
        self.docnames -= {FOLDER + page.notebook.stem for page in self.made.values()}
        self.docnames |= self.made.keys()
        return self.docnames

    def doc2path(self, docname: str, absolute: bool) -> str:
        """The file of a document."""
        source = FOLDER + self.made[docname].notebook.stem if docname in self.made else docname
        return super().doc2path(source, absolute)


def know_templates(app: Sphinx) -> None:
    """Let Sphinx know of pages that are made of templates."""
    app.project = app.env.project = Templates(app)


def find_copies(app: Sphinx) -> None:
    """Choose, and where needed make, the executed copy of each notebook."""
    root = Path(app.srcdir)
    app.executed_copies, app.boxes = {}, {}
    ledger = cache(claims.ledger)
    for name in notebooks.pages(root):
        copy = _latest(root, name) or _from_reference(root, name)
        if copy:
            app.executed_copies[FOLDER + name] = copy
            executed = json.loads(copy.read_text(encoding="utf-8"))
            given = executed["metadata"].get("papermill", {}).get("parameters", {})
            origin = REFERENCE if given.get("source") == REFERENCE else None
            app.boxes[FOLDER + name] = in_short.box(
                partial(ledger, given.get("profile"), origin),
                partial(results.load, profile=given.get("profile"), source=origin),
                name,
                _notes(executed),
            )
        else:
            log.info("[executed] %s has neither an executed copy nor recorded results", name)


def _latest(root: Path, name: str) -> Path | None:
    asked = os.environ.get("RETLIB_PROFILE")
    # By the profiles' names, because Sphinx keeps copies of its own in the build folder.
    profiles = [asked] if asked else notebooks.profiles(root)
    copies = [runtime.build_dir() / profile / "notebooks" / f"{name}.ipynb" for profile in profiles]
    return max(filter(Path.exists, copies), key=lambda copy: copy.stat().st_mtime, default=None)


def _from_reference(root: Path, name: str) -> Path | None:
    plan = notebooks.reference_plan(root, name)
    if plan is None:
        return None
    notebook, folder = plan.page.notebook, runtime.build_dir() / REFERENCE
    data = root / "data"
    recorded = sorted([*(data / "reference").rglob("*.parquet"), *(data / "papers").glob("*.*")])
    stamp = _digest(
        [notebook, *imports.closure(notebook, root, plan.parameters), *recorded], json.dumps(dict(plan.parameters))
    )
    mark, copy = folder / f"{name}.made-of", folder / "notebooks" / f"{name}.ipynb"
    if copy.exists() and mark.exists() and mark.read_text() == stamp:
        return copy
    log.info("[executed] drawing %s from recorded results", name)
    try:
        copy = execute(notebook, folder, plan.parameters, name, plan.page.words)
    except NotebookError as error:
        raise ExtensionError(f"{name} cannot be drawn from recorded results: {error}") from error
    mark.write_text(stamp)
    return copy


def _digest(files: list[Path], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def find_changed(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """The pages whose executed copy is another one than at the last build."""
    before = getattr(env, "executed_digests", {})
    env.executed_digests = {page: _digest([copy], app.boxes[page]) for page, copy in app.executed_copies.items()}
    pages = before.keys() | env.executed_digests.keys()
    return [page for page in pages if before.get(page) != env.executed_digests.get(page) and page in env.found_docs]


def read_copy(app: Sphinx, page: str, content: list[str]) -> None:
    """Put the executed copy in the place of the notebook, the cells with its parameters folded."""
    if page not in app.executed_copies:
        if page in app.project.made:
            template = json.loads(content[0])
            fill(template["cells"], app.project.made[page].words)
            content[0] = json.dumps(template)
        return
    executed = json.loads(app.executed_copies[page].read_text(encoding="utf-8"))
    metadata = [cell["metadata"] for cell in executed["cells"]]
    # A page that shows no parameters does not show those of its run either.
    if any({"parameters", "remove-cell"} <= set(given.get("tags", [])) for given in metadata):
        executed["cells"] = [
            cell for cell in executed["cells"] if "injected-parameters" not in cell["metadata"].get("tags", [])
        ]
    injected = any("injected-parameters" in given.get("tags", []) for given in metadata)
    for given in metadata:
        for tag, what in FOLDED.items():
            if tag in given.get("tags", []) and "remove-cell" not in given["tags"]:
                shown = "the defaults" if injected and tag == "parameters" else what
                given["tags"].append("hide-input")
                given["mystnb"] = {"code_prompt_show": f"Show {shown}", "code_prompt_hide": f"Hide {shown}"}
    _drop_widgets(executed)
    # Pages name chapters by the numbers of their files.
    if number := re.match(r"[1-9]\d(?=_)", Path(page).name):
        title = executed["cells"][0]
        title["source"] = "".join(title["source"]).replace("# ", f"# {number[0]} · ", 1)
    notes = "\n\n".join(_notes(executed))
    if notes or app.boxes[page]:
        top = app.boxes[page] + f"\n\n:::{{warning}}\n{notes}\n:::\n" * bool(notes)
        cell = {"cell_type": "markdown", "id": "in-short", "metadata": {}, "source": top}
        executed["cells"].insert(1, cell)
    content[0] = json.dumps(executed)


def _notes(executed: dict) -> list[str]:
    """What `retlib.core.runtime.note` said, which the page repeats below its answer."""
    outputs = (each for cell in executed["cells"] for each in cell.get("outputs", []))
    html = "".join("".join(each.get("data", {}).get("text/html", "")) for each in outputs)
    return list(dict.fromkeys(NOTE.findall(html)))


def _drop_widgets(executed: dict) -> None:
    """Leave out the progress bars: without a kernel they show nothing, and their scripts come from the network."""
    executed["metadata"].pop("widgets", None)
    for cell in executed["cells"]:
        outputs = cell.get("outputs", [])
        if outputs:
            cell["outputs"] = [each for each in outputs if WIDGET not in each.get("data", {})]


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax's one self-contained file (glyphs as SVG, no fonts to load) among the book's static files."""
    if error is None and app.builder.format == "html":
        name = Path(app.config.mathjax_path).name
        script = next(file for file in files("sphinx-mathjax-offline") or () if file.name == name)
        copy_asset_file(script.locate(), Path(app.outdir) / "_static")


# They do not say that pages may be read side by side. The one numbers sections when all are read, the other is of LaTeX
SILENT = ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex")


def read_side_by_side(app: Sphinx, *_: object) -> None:
    """Let as many processes read pages as were asked for."""
    for name in app.extensions.keys() & SILENT:
        app.extensions[name].parallel_read_safe = True


def show_own_code(app: Sphinx, env: BuildEnvironment) -> None:
    """Leave out the sources of other packages, which a build by several processes would show."""
    sources = getattr(env, "_viewcode_modules", {})
    for name in [name for name in sources if not name.startswith("retlib")]:
        del sources[name]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.parallel = int(os.environ.get("RETLIB_PAGE_PROCESSES", app.parallel))  # jupyter-book has no option for it
    app.connect("builder-inited", know_templates)
    app.connect("builder-inited", find_copies)
    app.connect("env-get-outdated", find_changed)
    app.connect("env-before-read-docs", read_side_by_side)
    app.connect("env-updated", show_own_code)
    app.connect("source-read", read_copy)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
