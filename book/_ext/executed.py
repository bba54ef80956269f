"""Sphinx extension: a notebook's page shows its executed copy.

The copy is that of the profile named by `$RETLIB_PROFILE`, else the latest there is. Where there is none, the notebook
is first run on the recorded results, which needs no data; where nothing is recorded, the page shows the notebook as it
is. Pages that are made of a template have no notebook of their own: to Sphinx their source is the template.

It shows the code that declares systems and claims, and hides the rest. Below the answer, which is of the published run,
it says of which run the page is, if of another; at the foot it folds how to run or change the chapter. It also serves
MathJax from the book itself, so that formulas show without a network.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from functools import partial
from importlib.metadata import files
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.project import Project
from sphinx.util import logging
from sphinx.util.fileutil import copy_asset_file

from retlib.core import runtime
from retlib.report.answers import PUBLISHED
from retlib.workflow import imports, notebooks
from retlib.workflow.execute import NotebookError, execute, fill

FOLDER = "notebooks/"
NOTE = re.compile(r'<p class="note"><strong>(.*?)</strong></p>')
LINK = re.compile(r"\[([^]]*)\]\((\w+)\.ipynb\)")
WIDGET, MARKDOWN = "application/vnd.jupyter.widget-view+json", "text/markdown"
REFERENCE = "reference"  # the folder, beside those of the profiles, of pages drawn from recorded results
# Cells whose code a page shows; those with the parameters, and those with how to change it, go to its foot.
SHOWN, PARAMETERS, CHANGE = {"systems", "claims"}, ("parameters", "injected-parameters"), "change"
log = logging.getLogger(__name__)


class Templates(Project):
    """A project in which several documents may have one source: the pages of a template, which is no page itself."""

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
    app.executed_copies = {}
    for name in notebooks.pages(root):
        if copy := _latest(root, name) or _from_reference(root, name):
            app.executed_copies[FOLDER + name] = copy


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
    recorded = sorted([*(root / "data/reference").rglob("*.parquet"), *(root / "data/papers").glob("*.*")])
    made_of = [notebook, *imports.closure(notebook, root, plan.parameters), *recorded]
    stamp = _digest(made_of, json.dumps(dict(plan.parameters)))
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
    return hashlib.sha256(b"".join([text.encode(), *map(Path.read_bytes, files)])).hexdigest()


def find_changed(app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """The pages whose executed copy is another one than at the last build."""
    before = getattr(env, "executed_digests", {})
    env.executed_digests = {page: _digest([copy]) for page, copy in app.executed_copies.items()}
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
    _drop_widgets(executed)
    cells, foot = [], []
    for cell in executed["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(partial(_to_template, app), "".join(cell["source"]))
        if {CHANGE, *PARAMETERS} & {*tags}:
            foot.append(cell)
            continue
        if cell["cell_type"] == "code" and not SHOWN & {*tags}:
            tags.append("remove-input")
        cells.append(cell)
    answers = [place for place, cell in enumerate(cells) if "answer" in cell["metadata"]["tags"]]
    if told := _whose_run(executed, bool(answers)):
        cells.insert([0, *answers][-1] + 1, _markdown("whose-run", told))
    hidden = any("remove-cell" in cell["metadata"]["tags"] for cell in foot)
    given = executed["metadata"].get("papermill", {}).get("parameters", {})
    executed["cells"] = cells if hidden or not foot else [*cells, _markdown("foot", _fold(foot, given))]
    content[0] = json.dumps(executed)


def _to_template(app: Sphinx, link: re.Match) -> str:
    """A link to a page that is made of a template as a role: MyST looks for a file of its name."""
    return f"{{doc}}`{link[1]} <{link[2]}>`" if FOLDER + link[2] in app.project.made else link[0]


def _markdown(name: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def _whose_run(executed: dict, answered: bool) -> str:
    """One line on a page of another run than the published one, with what the page warns of; "" of that one."""
    given = executed["metadata"].get("papermill", {}).get("parameters", {})
    told = _notes(executed)
    if given.get("profile", PUBLISHED) != PUBLISHED:
        seeds = len(given.get("seeds", [0]))
        said = f"This page shows a run at profile `{given['profile']}`, with {seeds} seed{'s' * (seeds > 1)}"
        told.insert(0, said + ("; the answer above is of the published run." if answered else "."))
    return ":::{note}\n" + "\n\n".join(told) + "\n:::" if told else ""


def _fold(foot: list[dict], given: dict) -> str:
    """What the cells at the foot hold, in one fold: its parameters have the values of this run."""
    texts = ["::::{dropdown} Run or change this chapter"]
    own = [cell for cell in foot if "injected-parameters" not in cell["metadata"]["tags"]]
    for cell in sorted(own, key=lambda cell: CHANGE not in cell["metadata"]["tags"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            for statement in ast.parse(text).body:
                name, code = statement.targets[0].id, ast.get_source_segment("".join(cell["source"]), statement)
                if name in given:
                    text = f"\n{text}".replace(f"\n{code}", f"\n{name} = {given[name]!r}")
            text = f"```python\n{text.strip()}\n```"
        texts.append(text)
    return "\n\n".join([*texts, "::::"])


def _notes(executed: dict) -> list[str]:
    outputs = (each for cell in executed["cells"] for each in cell.get("outputs", []))
    html = "".join("".join(each.get("data", {}).get("text/html", "")) for each in outputs)
    return list(dict.fromkeys(NOTE.findall(html)))


def _drop_widgets(executed: dict) -> None:
    """Leave out progress bars, whose scripts come from the network, and let links of outputs lead to pages."""
    executed["metadata"].pop("widgets", None)
    for cell in (cell for cell in executed["cells"] if "outputs" in cell):
        cell["outputs"] = [each for each in cell["outputs"] if WIDGET not in each.get("data", {})]
        for text in (each["data"] for each in cell["outputs"] if MARKDOWN in each.get("data", {})):
            text[MARKDOWN] = re.sub(r"(?<=\]\()([\w./]+)\.(?:ipynb|md)(?=[)#])", r"\1.html", "".join(text[MARKDOWN]))


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
