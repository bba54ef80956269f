"""`make book` on a toy book: what is rerun and what is not, failures, and kills."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
import toybook

from retlib.core import cache
from retlib.workflow import processes
from retlib.workflow.build import Progress

pytestmark = pytest.mark.slow

A, B, C = "1_a", "2_b", "3_c"
NO_PAGES = ("--omit-from", "pages")
BUILD = ["build", "--profile", "toy"]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A toy book that has been built once; the tests below go on from one another's state."""
    root = tmp_path_factory.mktemp("toy")
    toybook.make(root)
    code, said = toybook.build(root)
    assert code == 0, said
    return root


def index(root):
    """What leads to the first page."""
    return root / "_build" / "toy" / "html" / "index.html"


def first(root):
    """The first page."""
    return root / "_build" / "toy" / "html" / "book" / "index.html"


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def add_a_line(path):
    path.write_text(path.read_text() + "# Another line.\n")


def run(root, *arguments):
    """Run the notebooks without building pages; returns those that were run, and what was said."""
    before = toybook.copies(root)
    code, said = toybook.build(root, *NO_PAGES, *arguments)
    assert code == 0, said
    return toybook.rerun(before, toybook.copies(root)), said


def test_the_first_run_made_everything(book):
    assert set(toybook.copies(book)) == {A, B, C}
    copy = book / "_build" / "toy" / "notebooks" / f"{A}.ipynb"
    assert toybook.printed(copy) == "toy [0] run\n"
    assert "https://" not in first(book).read_text()  # nothing is loaded from elsewhere
    assert "launch-buttons" not in (first(book).parents[1] / "notebooks" / f"{A}.html").read_text()
    assert (book / "_build" / "toy" / "html" / "_static" / "tex-svg.js").stat().st_size > 1e6
    log = (book / "_build" / "toy" / "logs" / f"{A}.log").read_text()
    assert f"{A}: 100%" in log  # papermill's progress bar


def test_what_a_notebook_does_not_use_reruns_nothing(book):
    """Nothing, then a touched file, a changed module, a reader that it does not name, a new one."""
    before, page = toybook.copies(book), index(book).stat()
    code, said = toybook.build(book)
    assert code == 0 and "0 notebooks ran, 3 were up to date" in said and str(index(book)) in said
    assert toybook.copies(book) == before and index(book).stat().st_mtime_ns == page.st_mtime_ns
    os.utime(book / "notebooks" / f"{A}.ipynb")
    (book / "retlib" / "unused.py").write_text("VALUE = 2\n")
    readers = book / "retlib" / "data" / "datasets"
    add_a_line(readers / "nfcorpus.py")
    (readers / "mine.py").write_text("VALUE = 1\n")
    assert run(book)[0] == set()


def test_a_change_reruns_what_depends_on_it(book):
    """On a module what imports it, on a reader what names its data set, on a parameter what comes after, too."""
    (book / "retlib" / "only_b.py").write_text("VALUE = 2\n")
    assert run(book)[0] == {B}
    add_a_line(book / "retlib" / "data" / "datasets" / "quora.py")
    assert run(book)[0] == {C}
    toybook.set_profile(book, "toy", {A: {"parameters": {"wait": 0.1}}, B: {"after": [A]}})
    assert run(book)[0] == {A, B}


def test_lost_copies_are_made_again_some_of_them_if_asked_for_with_those_that_they_need(book):
    """And the pages stay as they are."""
    before, page = toybook.copies(book), index(book).stat()
    for name in (A, B, C):
        (book / "_build" / "toy" / "notebooks" / f"{name}.ipynb").unlink()
    code = f"from retlib.workflow.build import build; raise SystemExit(build('toy', 2, only=['{B}']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=book, env=toybook.environment(book), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 notebooks ran, 0 were up to date" in done.stdout and "The book is at" not in done.stdout
    assert toybook.rerun(before, toybook.copies(book)) == {A, B} == set(toybook.copies(book))
    assert index(book).stat().st_mtime_ns == page.st_mtime_ns
    assert run(book)[0] == {C}


def test_a_damaged_copy_is_made_again(book):
    copy = book / "_build" / "toy" / "notebooks" / f"{C}.ipynb"
    change(copy, "run", "rum")
    ran, said = run(book)
    assert ran == {C} and f"{copy} changed since it was run" in said
    assert toybook.printed(copy) == "toy [0] run\n"


def test_a_page_whose_rows_another_run_has_replaced_is_made_again(book):
    rows = book / "_build" / "toy" / "results" / C
    rows.mkdir(parents=True)
    cache.write_checksums(rows)
    ran, said = run(book)
    assert ran == {C} and f"The rows of {C} were recorded by another run" in said
    assert run(book)[0] == set()


def test_a_corpus_of_one_s_own_reruns_what_names_it(book):
    """Braces in a name, which are wildcards elsewhere, are like other letters."""
    (book / "mine").mkdir()
    document = book / "mine" / "{name}.md"
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"data": "folder:mine"}}})
    for text in ("first", "second"):
        document.write_text(text)
        assert C in run(book)[0]
    (book / "mine" / "more.md").write_text("new")
    assert run(book)[0] == {C}
    assert run(book)[0] == set()


def test_a_failure_stops_its_dependants_only_and_is_named(book):
    """With other seeds, so that all three are stale."""
    toybook.set_profile(book, "toy", {A: {"parameters": {"fail": True}}, B: {"after": [A]}})
    before, page = toybook.copies(book), first(book).read_text()
    code, said = toybook.build(book, "--seeds", "1 2")
    assert code == 1
    assert f"{A} FAILED: ValueError: told to fail" in said and f"{B} was not run: it comes after {A}" in said
    assert str(book / "_build" / "toy" / "failed" / f"{A}.ipynb") in said
    assert toybook.rerun(before, toybook.copies(book)) == {C}
    assert toybook.printed(book / "_build" / "toy" / "notebooks" / f"{C}.ipynb") == "toy [1, 2] run\n"
    assert first(book).read_text() == page  # the last good book stays

    toybook.set_profile(book, "toy", {B: {"after": [A]}})
    assert run(book, "--seeds", "1 2")[0] == {A, B}
    assert toybook.copies(book, "failed") == {}


def test_a_warning_is_an_error_and_a_mended_page_is_published(book):
    change(book / "book" / "index.md", "See", "See {doc}`nowhere` and")
    page = first(book).read_text()
    code, said = toybook.build(book, "--seeds", "1 2")
    assert code == 1 and "nowhere" in said and "index.md:3" in said
    assert first(book).read_text() == page
    change(book / "book" / "index.md", "See {doc}`nowhere` and", "Now see")
    assert toybook.build(book, "--seeds", "1 2")[0] == 0
    assert "Now see" in first(book).read_text()


@pytest.mark.parametrize("arguments", [["--profile", "quik"], ["--seeds", "1,2"], ["--seeds", "0 -1"]])
def test_wrong_settings_are_refused(book, arguments):
    code, said = toybook.build(book, *arguments)
    assert code == 2 and repr(arguments[1]) in said and "Traceback" not in said


def test_progress_says_how_far_each_notebook_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for folder in ("logs", "running", "notebooks", "failed"):
        (tmp_path / folder).mkdir()
    progress, names = Progress(tmp_path), {"12_x": "notebooks", "13_y": "failed"}
    for name in names:
        (tmp_path / "running" / f"{name}.ipynb").touch()
    (tmp_path / "logs" / "12_x.log").write_text("12_x:   0%| | 0/9\rA warning\n12_x:  22%|## | 2/9 [00:01<00:03]")
    progress.show()
    assert progress.bar.postfix.startswith("12_x 22%, 13_y")
    (tmp_path / "logs" / "snakemake.log").write_text("1 of 7 steps (14%) done\n...\n2 of 7 steps (29%) done\n")
    for name, folder in names.items():
        (tmp_path / "running" / f"{name}.ipynb").rename(tmp_path / folder / f"{name}.ipynb")
    progress.show()
    progress.bar.close()
    assert (progress.bar.n, progress.bar.total, progress.bar.postfix) == (2, 7, "")
    said = capsys.readouterr().out
    assert "12_x: done" in said and "13_y: FAILED" in said


def running(root):
    return set(processes.marked(str(root / "_build" / "toy")))


def wait_for(condition, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "waited in vain"
        time.sleep(0.1)


def start_long(root):
    """Start a run whose last notebook waits for minutes; returns once that one's kernel is at work."""
    toybook.set_profile(root, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 120.0}}})
    process = toybook.start(root, *BUILD, "--jobs", "1", *NO_PAGES)
    wait_for(lambda: bool(kernels(root)))
    time.sleep(0.3)
    return process


def kernels(root):
    return {p for p in running(root) if "ipykernel_launcher" in " ".join(command(p))}


def command(process):
    try:
        return process.cmdline()
    except psutil.Error:  # gone meanwhile
        return []


@pytest.mark.parametrize("victim", ["papermill", "driver", "snakemake", "everything"])
def test_a_kill_leaves_no_process_and_the_next_run_needs_no_help(book, victim):
    """Whichever process is killed, those that it started go too: of papermill its kernel."""
    process = start_long(book)
    driver, kernel = psutil.Process(process.pid), kernels(book).pop()
    snakemake = next(p for p in running(book) if p.ppid() == process.pid)
    victims = {"papermill": [kernel.parent()], "driver": [driver], "snakemake": [snakemake]}
    for one in victims.get(victim, [driver, *running(book)]):
        with suppress(psutil.NoSuchProcess):  # it may have gone with the one before
            one.kill()
    assert psutil.wait_procs([kernel], timeout=20)[1] == []
    process.kill()
    process.communicate(timeout=300)
    wait_for(lambda: not running(book), 20)
    if victim == "everything":  # a half-run notebook is left
        toybook.set_profile(book, "toy", {B: {"after": [A]}})
        assert C in run(book)[0]
        assert set(toybook.copies(book)) == {A, B, C} and toybook.copies(book, "running") == {}


def test_an_interrupted_run_says_how_to_go_on(book):
    process = start_long(book)
    for one in (psutil.Process(process.pid), *running(book) - kernels(book)):  # as a terminal does
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130 and "Stopped" in said and "FAILED" not in said
    assert not running(book)


def test_a_second_run_waits_for_the_first(book):
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 2.0}}})
    first = toybook.start(book, *BUILD, *NO_PAGES)
    wait_for(lambda: bool(running(book)))
    said = run(book)[1]
    assert first.wait(300) == 0
    assert "Another run is at work" in said and "0 notebooks ran" in said
    first.communicate()


def test_the_bare_build_shows_the_latest_copies_and_looks_nowhere_else(book):
    """Copies of the two profiles differ; pages that are no pages lie where nobody should look."""
    for folder in (".venv/lib", "_build/toy/junk", "venv", "data"):
        (book / folder).mkdir(parents=True, exist_ok=True)
        (book / folder / "broken.md").write_text("# x\n\n{nope}`y`\n")
        (book / folder / "broken.ipynb").write_text("not a notebook")
    copy = book / "_build" / "toy" / "notebooks" / f"{A}.ipynb"
    other = book / "_build" / "other" / "notebooks" / f"{A}.ipynb"
    other.parent.mkdir(parents=True, exist_ok=True)
    toybook.set_profile(book, "other", {})
    other.write_text(copy.read_text().replace("toy [0] run", "a later run"))
    built = toybook.jupyter_book(book)
    assert built.returncode == 0, built.stderr
    page = book / "_build" / "html" / "notebooks" / f"{A}.html"
    assert "a later run" in page.read_text()
    assert not list((book / "_build" / "html").rglob("broken*"))
    # A profile can be asked for, and the page notices that its copy is another one.
    built = toybook.jupyter_book(book, RETLIB_PROFILE="toy")
    assert built.returncode == 0, built.stderr
    assert "toy [0] run" in page.read_text()


def test_the_bare_build_of_a_fresh_clone_draws_from_recorded_results(tmp_path):
    toybook.make(tmp_path)
    recorded = tmp_path / "data" / "reference" / "laptop" / B
    recorded.mkdir(parents=True)
    (recorded / "rows.parquet").write_bytes(b"anything")
    toybook.set_profile(tmp_path, "laptop", {B: {"needs": ["quora"]}})
    built = toybook.jupyter_book(tmp_path)
    assert built.returncode == 0, built.stderr
    pages = tmp_path / "_build" / "html" / "notebooks"
    assert "laptop [0] reference" in (pages / f"{B}.html").read_text()
    assert "cell_output" not in (pages / f"{C}.html").read_text()  # nothing recorded: the notebook as it is
    drawn = tmp_path / "_build" / "reference" / "notebooks" / f"{B}.ipynb"
    stamp = drawn.stat().st_mtime_ns
    assert toybook.jupyter_book(tmp_path).returncode == 0
    assert drawn.stat().st_mtime_ns == stamp
    (recorded / "rows.parquet").write_bytes(b"something else")
    assert toybook.jupyter_book(tmp_path).returncode == 0
    assert drawn.stat().st_mtime_ns != stamp
