"""`make book` on a toy book: what is stale, failures, a kill, and the pages that it builds."""

import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import toybook
from bs4 import BeautifulSoup
from filelock import FileLock

from retlib.core import cache, runtime
from retlib.workflow import build, notebooks

pytestmark = pytest.mark.slow

A, B, C, D = "1_a", "2_b", "3_c", "4_p"
KERNEL = "ipykernel_launcher"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A toy book with a paper, built once; the tests below go on from one another's state."""
    root = tmp_path_factory.mktemp("toy")
    toybook.make(root)
    toybook.add_paper(root)
    with (root / "_toc.yml").open("a") as toc:
        toc.write("- file: notebooks/4_p\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETLIB_REPOSITORY", "https://github.com/someone/something")
        code, said = toybook.build(root)
        assert code == 0, said
        yield root


def page(root, name="book/index"):
    return root / "_build" / "toy" / "html" / f"{name}.html"


def change(path, *changes):
    for old, new in changes:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


def stale(root, *arguments):
    """The notebooks that a build would run."""
    code, said = toybook.build(root, *arguments, "--dry-run")
    assert code == 0, said
    return set(re.findall(r"output: \S+/notebooks/(\w+).ipynb", said))


def test_the_first_run_made_everything_and_the_second_nothing(book):
    assert set(toybook.copies(book)) == {A, B, C, D}
    assert toybook.printed(book / "_build" / "toy" / "notebooks" / f"{A}.ipynb") == "toy [0] run\n"
    text = page(book).read_text()
    assert "https://" not in re.sub("https://(github.com|mybinder|colab)", "", text)  # nothing comes from elsewhere
    assert (page(book).parents[1] / "_static" / "tex-svg.js").stat().st_size > 1e6
    before, written = toybook.copies(book), page(book).stat().st_mtime_ns
    code, said = toybook.build(book)
    assert code == 0 and "0 notebooks ran" in said and str(page(book, "index")) in said
    assert toybook.copies(book) == before and page(book).stat().st_mtime_ns == written


@pytest.mark.parametrize(("name", "opened"), [(A, A), (D, "page")], ids=["its own", "its template"])
def test_a_notebook_opens_elsewhere_where_the_repository_is_known(book, name, opened):
    shown = BeautifulSoup(page(book, f"notebooks/{name}").read_text(), "html.parser")
    assert [link["href"] for link in shown.select(".dropdown-launch-buttons a[href]")] == [
        f"https://mybinder.org/v2/gh/someone/something/main?urlpath=lab/tree/notebooks/{opened}.ipynb",
        f"https://colab.research.google.com/github/someone/something/blob/main/notebooks/{opened}.ipynb",
    ]


def test_what_snakemake_would_run(book):
    """What comes after a stale page is stale, too, as is a page whose rows another run has replaced."""
    os.utime(book / "notebooks" / f"{A}.ipynb")
    assert stale(book) == set()
    toybook.set_profile(book, "toy", {A: {"parameters": {"wait": 0.1}}, B: {"after": [A]}})
    assert stale(book) == {A, B, D}
    toybook.set_profile(book, "toy", {B: {"after": [A]}})
    rows = book / "_build" / "toy" / "results" / C
    rows.mkdir(parents=True)
    cache.write_checksums(rows)
    assert stale(book) == {C}
    (rows / cache.CHECKSUMS).unlink()
    (book / "_build" / "toy" / "notebooks" / f"{D}.ipynb").unlink()
    assert stale(book) == {D}


def test_a_failure_stops_its_dependants_only_and_is_named(book):
    """With other seeds, so that all are stale."""
    toybook.set_profile(book, "toy", {A: {"parameters": {"fail": True}}, B: {"after": [A]}})
    before, text = toybook.copies(book), page(book).read_text()
    code, said = toybook.build(book, "--seeds", "1 2")
    assert code == 1
    assert f"{A} FAILED" in said and f"{C} done" in said and "ValueError: told to fail" in said
    assert str(book / "_build" / "toy" / "failed" / f"{A}.ipynb") in said
    assert toybook.rerun(before, toybook.copies(book)) == {C}
    assert toybook.printed(book / "_build" / "toy" / "notebooks" / f"{C}.ipynb") == "toy [1, 2] run\n"
    assert page(book).read_text() == text  # the last good book stays


def test_a_warning_is_an_error_and_so_is_a_page_that_is_not_there(book):
    toybook.set_profile(book, "toy", {B: {"after": [A]}})
    change(book / "book" / "index.md", ("See", "See {doc}`nowhere` and"))
    text = page(book).read_text()
    code, said = toybook.build(book, "--seeds", "1 2")
    assert code == 1 and "3 notebooks ran" in said and "nowhere" in said and "index.md:3" in said
    assert set(toybook.copies(book)) == {A, B, C, D} and toybook.copies(book, "failed") == {}
    assert page(book).read_text() == text
    change(book / "book" / "index.md", ("See {doc}`nowhere` and", "Now see"))
    config, names = (book / "_config.yml").read_text(), "    add_module_names"
    without = ("notebooks/62_speed.ipynb", f"notebooks/{C}.ipynb")
    change(book / "_config.yml", (names, f"    suppress_warnings: [etoc, toc]\n{names}"), without)
    code, said = toybook.build(book, "--seeds", "1 2")
    assert code == 1 and f"no page notebooks/{C}" in said and page(book).read_text() == text
    (book / "_config.yml").write_text(config)
    assert toybook.build(book, "--seeds", "1 2")[0] == 0
    assert "Now see" in page(book).read_text() and page(book, f"notebooks/{C}").exists()


def processes(root, kind=""):
    """The processes that a run in a folder started, such as its kernels."""
    every = [each.info | {"process": each} for each in psutil.process_iter(["environ", "cmdline"])]
    own = [each for each in every if (each["environ"] or {}).get(build.MARK) == str(root / "_build" / "toy")]
    return [each["process"] for each in own if kind in " ".join(each["cmdline"] or ())]


@pytest.fixture
def long_run(book):
    """A run whose last notebook waits for minutes, once that one's kernel is at work."""
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 120.0}}})
    process = toybook.start(book, "build", "--profile", "toy", "--jobs", "1", "--seeds", "1 2")
    while not processes(book, KERNEL):
        assert process.poll() is None
        time.sleep(0.3)
    yield process
    toybook.set_profile(book, "toy", {B: {"after": [A]}})


def test_an_interrupted_run_leaves_no_process_and_says_how_to_go_on(book, long_run):
    for each in (psutil.Process(long_run.pid), *{*processes(book)} - {*processes(book, KERNEL)}):  # as a terminal does
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGINT)
    said, _ = long_run.communicate(timeout=300)
    assert long_run.returncode == 130 and "Stopped" in said and "FAILED" not in said
    assert not processes(book)


def test_after_a_kill_the_next_run_ends_what_is_left_and_needs_no_help(book, long_run):
    """It makes some pages if these are asked for, and what they come after."""
    (orphan,) = processes(book, KERNEL)
    long_run.kill()
    long_run.wait()
    assert orphan.is_running()
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 0.05}}})
    before, text = toybook.copies(book), page(book).read_text()
    code = f"from retlib.workflow.build import build; raise SystemExit(build('toy', 2, [1, 2], only=['{C}']))"
    done = toybook.python(book, "-c", code)
    assert done.returncode == 0 and "1 notebook ran" in done.stdout, done.stdout + done.stderr
    assert not orphan.is_running() and not processes(book) and toybook.copies(book, "running") == {}
    assert toybook.rerun(before, toybook.copies(book)) == {C} and page(book).read_text() == text


def test_the_bare_build_looks_nowhere_else(book, monkeypatch):
    """Pages that are no pages lie where nobody should look."""
    monkeypatch.delenv("RETLIB_REPOSITORY")
    for folder in (".venv/lib", "_build/toy/junk", "venv", "data"):
        (book / folder).mkdir(parents=True, exist_ok=True)
        (book / folder / "broken.md").write_text("# x\n\n{nope}`y`\n")
        (book / folder / "broken.ipynb").write_text("not a notebook")
    done = toybook.python(book, Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = (book / "_build" / "html" / "notebooks" / f"{A}.html").read_text()
    assert "toy [1, 2] run" in shown and "launch-buttons" not in shown
    assert not list((book / "_build" / "html").rglob("broken*"))


# --- in this process -------------------------------------------------------------------------------


@pytest.fixture
def executed(monkeypatch):
    monkeypatch.syspath_prepend(runtime.root() / "book" / "_ext")
    import executed

    return executed


def test_pages_show_the_latest_copies_or_those_of_a_profile(tmp_path, monkeypatch, own_build, executed):
    toybook.make(tmp_path)
    for profile in ("toy", "other"):
        toybook.set_profile(tmp_path, profile, {})
        copy = own_build / profile / "notebooks" / f"{A}.ipynb"
        copy.parent.mkdir(parents=True)
        copy.write_text((tmp_path / "notebooks" / f"{A}.ipynb").read_text().replace("Chapter", f"Of {profile},"))
        os.utime(copy, (1e9, 1e9 + (profile == "other")))
    assert f"Of other, {A}" in (executed.assemble(tmp_path) / "notebooks" / f"{A}.ipynb").read_text()
    monkeypatch.setenv("RETLIB_PROFILE", "toy")
    made = executed.assemble(tmp_path) / "notebooks"
    assert made == own_build / "toy" / "source" / "notebooks" and f"Of toy, {A}" in (made / f"{A}.ipynb").read_text()
    assert f"Chapter {C}" in (made / f"{C}.ipynb").read_text()  # nothing recorded: the notebook as it is


def test_pages_without_a_copy_are_drawn_from_recorded_results(tmp_path, own_build, executed):
    toybook.make(tmp_path)
    recorded = tmp_path / "data" / "reference" / "laptop" / A
    recorded.mkdir(parents=True)
    cache.write_checksums(recorded)
    toybook.set_profile(tmp_path, "laptop", {A: {"needs": ["quora"]}})
    stamps = []
    for text in ("", "", "something else"):
        (recorded / "rows.parquet").write_text(text)
        cache.write_checksums(recorded)
        assert "laptop [0] reference" in (executed.assemble(tmp_path) / "notebooks" / f"{A}.ipynb").read_text()
        stamps.append((own_build / "reference" / "notebooks" / f"{A}.ipynb").stat().st_mtime_ns)
    assert stamps[0] == stamps[1] != stamps[2]


def stamps(root):
    return {name: notebooks.stamp(root, each) for name, each in notebooks.plan(root, "toy").items()}


def test_whatever_a_page_is_made_of_makes_it_stale(tmp_path, monkeypatch):
    """Any file of the package all pages, as do papers, versions and plug-ins; the rest those that name it."""
    toybook.make(tmp_path)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    everything, before = {A, B, C}, stamps(tmp_path)

    def changed():
        nonlocal before
        then, before = before, stamps(tmp_path)
        return {name for name in before if before[name] != then[name]}

    assert changed() == set()
    (tmp_path / "mine").mkdir()
    corpus, plugin = tmp_path / "mine" / "{name}.md", tmp_path / "plugin.py"
    for path, text, expected in (
        (tmp_path / "retlib" / "__init__.py", "VALUE = 2", everything),
        (tmp_path / "retlib" / "data" / "new.py", "", everything),
        (tmp_path / "data" / "papers" / "tables.csv", "paper", everything),
        (tmp_path / "constraints.txt", "numpy==1", everything),
        (plugin, "VALUE = 1", set()),
        (corpus, "# Text\n\nfirst", set()),
        (tmp_path / "data" / "catalogue.yaml", (tmp_path / "data" / "catalogue.yaml").read_text(), set()),
    ):
        path.write_text(text)
        assert changed() == expected, path
    monkeypatch.setenv("RETLIB_PLUGINS", "plugin.py")
    assert changed() == everything
    toybook.set_profile(tmp_path, "toy", {B: {"after": [A]}, C: {"parameters": {"data": ["folder:mine", {"x": 1}]}}})
    assert changed() == {C}
    for path in (corpus, corpus.with_name("more.md")):
        path.write_text("# Text\n\nsecond one")
        assert changed() == {C}
    toybook.set_profile(tmp_path, "toy", {C: {"parameters": {"data": "folder:nowhere"}}})
    assert changed() == {B, C}  # whose order has changed; what is wrong with the corpus the notebook says


def test_a_second_run_waits_for_the_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(build, "_snakemake", lambda *_: 0)
    at_work, said = threading.Event(), threading.Event()

    def first():
        with FileLock(tmp_path / ".lock"):
            at_work.set()
            said.wait(60)

    monkeypatch.setattr("builtins.print", lambda *words, real=print, **how: (real(*words, **how), said.set()))
    threading.Thread(target=first).start()
    assert at_work.wait(60) and build.run(tmp_path, 1, {}) == 0
    assert "Another run is at work" in capsys.readouterr().out


def test_a_page_says_of_which_run_it_is_and_folds_how_to_change_it(executed):
    def cell(source, *tags, kind="code", **data):
        made = {"cell_type": kind, "source": source, "metadata": {"tags": [*tags]}, "id": "x"}
        return made | ({"outputs": [{"data": data}], "execution_count": 1} if kind == "code" else {})

    cells = [cell("# Title", kind="markdown"), cell("answer()", "answer"), cell("seeds = [0]\nsize = 1", "parameters")]
    cells += [cell("seeds = [0, 1]", "injected-parameters"), cell("systems = 1", "systems")]
    cells += [cell("run()", **{"text/html": ['<p class="note"><strong>Mind.</strong></p>']})]
    metadata = {"papermill": {"parameters": {"profile": "toy", "seeds": [0, 1]}}, "widgets": {}}
    executed.arrange(copy := {"cells": cells, "metadata": metadata})
    shown = ["".join(each["source"]) for each in copy["cells"]]
    assert [text.partition("\n")[0] for text in shown] == [
        "# Title", "answer()", ":::{note}", "systems = 1", "run()", "::::{dropdown} Run or change this chapter",
    ]  # fmt: skip
    assert "profile `toy`, with 2 seeds; the answer above" in shown[2] and "Mind." in shown[2]
    assert "seeds = [0, 1]\nsize = 1" in shown[-1] and "widgets" not in copy["metadata"]
    hidden = ["remove-input" in each["metadata"].get("tags", ()) for each in copy["cells"]]
    assert hidden == [False, True, False, False, True, False]
