"""Sphinx extension: a book's pages are made of executed copies, and load nothing from elsewhere.

What Sphinx reads is a folder of its own, `source` in the build folder: the book's files and, of each page, the copy of
the profile named by `$RETLIB_PROFILE`, else the latest there is. Where there is none, the notebook is first run on the
recorded results, which needs no data; where nothing is recorded, the page shows the notebook as it is.

A page shows the code that declares systems and claims, and hides the rest. Below the answer, which is of the published
run, it says of which run it is, if of another; at the foot it folds how to run or change the chapter.
"""

from __future__ import annotations

import ast
import json
import os
import re
from importlib.metadata import files
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.fileutil import copy_asset_file

from retlib.core import runtime
from retlib.report.answers import PUBLISHED
from retlib.workflow import notebooks
from retlib.workflow.execute import execute, fill

NOTE = re.compile(r'<p class="note"><strong>(.*?)</strong></p>')
LINK = re.compile(r"(?<=\]\()([\w./]+)\.(?:ipynb|md)(?=[)#])")
WIDGET, MARKDOWN = "application/vnd.jupyter.widget-view+json", "text/markdown"
# Cells whose code a page shows; those with the parameters, and those with how to change it, go to its foot.
SHOWN, PARAMETERS, CHANGE = {"systems", "claims"}, {"parameters", "injected-parameters"}, "change"


def assemble(root: Path) -> Path:
    """Return the folder that Sphinx reads, brought up to date."""
    source = runtime.build_dir() / os.environ.get("RETLIB_PROFILE", "") / "source"
    (source / "notebooks").mkdir(parents=True, exist_ok=True)
    for name in ("book", "_toc.yml"):
        (source / name).unlink(missing_ok=True)
        (source / name).symlink_to(root / name)
    for name, page in notebooks.pages(root).items():
        copy = _latest(root, name) or _from_reference(root, name)
        content = json.loads((copy or page.notebook).read_text(encoding="utf-8"))
        if copy:
            arrange(content)
        else:
            fill(content["cells"], page.words)
        path, text = source / "notebooks" / f"{name}.ipynb", json.dumps(content)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # else Sphinx would read it anew
            path.write_text(text, encoding="utf-8")
    return source


def _latest(root: Path, name: str) -> Path | None:
    profile = os.environ.get("RETLIB_PROFILE")
    profiles = [profile] if profile else notebooks.profiles(root)
    copies = [runtime.build_dir() / profile / "notebooks" / f"{name}.ipynb" for profile in profiles]
    return max(filter(Path.exists, copies), key=lambda copy: copy.stat().st_mtime, default=None)


def _from_reference(root: Path, name: str) -> Path | None:
    folder, page = runtime.build_dir() / "reference", notebooks.reference_plan(root, name)
    if page is None:
        return None
    copy, mark, stamp = folder / "notebooks" / f"{name}.ipynb", folder / name, notebooks.stamp(root, page)
    if not copy.exists() or not mark.exists() or mark.read_text() != stamp:
        execute(page, folder, name)
        mark.write_text(stamp)
    return copy


def arrange(executed: dict) -> None:
    """Turn an executed copy into its page: what is hidden, what stands at its foot, and of which run it is."""
    executed["metadata"].pop("widgets", None)  # progress bars, whose scripts come from the network
    given = executed["metadata"].get("papermill", {}).get("parameters", {})
    cells, foot, notes, place = [], [], [], 0
    for cell in executed["cells"]:
        tags = cell["metadata"].setdefault("tags", [])
        if {CHANGE, *PARAMETERS} & {*tags}:
            foot.append(cell)
            continue
        cells.append(cell)
        if cell["cell_type"] == "code":
            cell["outputs"] = [each for each in cell["outputs"] if WIDGET not in each.get("data", {})]
            for data in (each.get("data", {}) for each in cell["outputs"]):
                notes += NOTE.findall("".join(data.get("text/html", "")))
                if MARKDOWN in data:  # whose links lead to files
                    data[MARKDOWN] = re.sub(
                        r"(?<=\]\()([\w./]+)\.(?:ipynb|md)(?=[)#])", r"\1.html", "".join(data[MARKDOWN])
                    )
            if not SHOWN & {*tags}:
                tags.append("remove-input")
        place = len(cells) if "answer" in tags else place
    if given.get("profile", PUBLISHED) != PUBLISHED:
        seeds = len(given.get("seeds", [0]))
        run = f"This page shows a run at profile `{given['profile']}`, with {seeds} seed{'s' * (seeds > 1)}"
        notes.insert(0, run + ("; the answer above is of the published run." if place else "."))
    if notes:
        text = "\n\n".join(dict.fromkeys(notes))
        cells.insert(place or 1, _markdown("whose-run", f":::{{note}}\n{text}\n:::"))
    if foot and not any("remove-cell" in cell["metadata"]["tags"] for cell in foot):
        cells.append(_markdown("foot", _fold(foot, given)))
    executed["cells"] = cells


def _markdown(name: str, text: str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def _fold(foot: list[dict], given: dict) -> str:
    # What the cells at the foot hold, in one fold: the parameters have the values of this run.
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


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax's one self-contained file (glyphs as SVG, no fonts to load) among the book's static files."""
    if error is None and app.builder.format == "html":
        name = Path(app.config.mathjax_path).name
        script = next(file for file in files("sphinx-mathjax-offline") or () if file.name == name)
        copy_asset_file(script.locate(), Path(app.outdir) / "_static")


def read_side_by_side(app: Sphinx, *_: object) -> None:
    """Let as many processes read pages as were asked for."""
    # They do not say that pages may be. One numbers sections when all are read, the other is of LaTeX.
    for name in app.extensions.keys() & {"sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"}:
        app.extensions[name].parallel_read_safe = True


def show_own_code(app: Sphinx, env: BuildEnvironment) -> None:
    """Leave out the sources of other packages, which a build by several processes would show."""
    sources = getattr(env, "_viewcode_modules", {})
    for name in [name for name in sources if not name.startswith("retlib")]:
        del sources[name]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.srcdir = type(app.srcdir)(assemble(Path(app.confdir)))
    app.parallel = int(os.environ.get("RETLIB_PAGE_PROCESSES", app.parallel))  # jupyter-book has no option for it
    app.connect("env-before-read-docs", read_side_by_side)
    app.connect("env-updated", show_own_code)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
