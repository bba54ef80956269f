"""`make book` on a toy book: what is rerun and what is not, failures, and kills."""

import json
import os
import signal
import time

import psutil
import pytest
import toybook

from retlib import processes, runtime

A, B, C = "1_a", "2_b", "3_c"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A toy book that has been built once; the tests below go on from one another's state."""
    root = tmp_path_factory.mktemp("toy")
    toybook.make(root)
    code, said = toybook.build(root)
    assert code == 0, said
    return root


def index(root):
    return root / "_build" / "toy" / "html" / "index.html"


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def build(root, *arguments):
    """Build; returns the notebooks that were run, and what was said."""
    before = toybook.copies(root)
    code, said = toybook.build(root, *arguments)
    assert code == 0, said
    return toybook.rerun(before, toybook.copies(root)), said


def test_the_first_run_made_everything(book):
    assert set(toybook.copies(book)) == {A, B, C}
    copy = book / "_build" / "toy" / "notebooks" / f"{A}.ipynb"
    assert toybook.printed(copy) == "toy [0] run\n"
    assert "MathJax" not in index(book).read_text() and "tex-svg.js" in index(book).read_text()
    assert (book / "_build" / "toy" / "html" / "_static" / "tex-svg.js").stat().st_size > 1e6
    log = (book / "_build" / "toy" / "logs" / f"{A}.log").read_text()
    assert f"{A}: 100%" in log  # papermill's progress bar


def test_nothing_changed_nothing_is_run(book):
    page = index(book).stat()
    ran, said = build(book)
    assert ran == set()
    assert "0 notebooks ran, 3 were up to date" in said and str(index(book)) in said
    assert index(book).stat().st_mtime_ns == page.st_mtime_ns


def test_a_touched_file_or_an_unrelated_module_reruns_nothing(book):
    os.utime(book / "notebooks" / f"{A}.ipynb")
    (book / "retlib" / "unused.py").write_text("VALUE = 2\n")
    assert build(book)[0] == set()


def test_a_module_reruns_what_imports_it(book):
    (book / "retlib" / "only_b.py").write_text("VALUE = 2\n")
    assert build(book)[0] == {B}


def test_a_parameter_reruns_what_depends_on_it(book):
    entries = {A: {"parameters": {"wait": 0.1}}, B: {"after": [A]}}
    toybook.set_profile(book, "toy", entries)
    assert build(book)[0] == {A, B}
    toybook.set_profile(book, "toy", entries | {C: {"parameters": {"wait": 0.1}}})
    assert build(book)[0] == {C}


def test_seeds_from_the_command_line(book):
    assert build(book, "--seeds", "1 2")[0] == {A, B, C}
    assert toybook.printed(book / "_build" / "toy" / "notebooks" / f"{C}.ipynb") == "toy [1, 2] run\n"
    assert build(book)[0] == {A, B, C}


def test_a_page_changed_by_hand_is_published_anew(book):
    change(book / "index.md", "# Toy", "# Another title")
    assert build(book)[0] == set()
    assert "Another title" in index(book).read_text()


def test_a_failure_stops_its_dependants_only_and_is_named(book):
    entries = {A: {"parameters": {"fail": True}}, B: {"after": [A]}, C: {"parameters": {"wait": 0.2}}}
    toybook.set_profile(book, "toy", entries)
    before, page = toybook.copies(book), index(book).read_text()
    code, said = toybook.build(book)
    assert code == 1
    assert f"{A} FAILED: ValueError: told to fail" in said
    assert str(book / "_build" / "toy" / "failed" / f"{A}.ipynb") in said
    assert toybook.rerun(before, toybook.copies(book)) == {C}
    assert index(book).read_text() == page  # the last good book stays

    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 0.2}}})
    assert build(book)[0] == {A, B}
    assert toybook.copies(book, "failed") == {}


def test_a_warning_is_an_error(book):
    change(book / "index.md", "See", "See {doc}`nowhere` and")
    page = index(book).read_text()
    code, said = toybook.build(book)
    assert code == 1 and "nowhere" in said and "index.md:3" in said
    assert index(book).read_text() == page
    change(book / "index.md", "See {doc}`nowhere` and", "See")
    assert toybook.build(book)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "quik"], "PROFILE = 'quik' is not known"),
        (["--jobs", "many"], "JOBS = 'many' must be a positive whole number"),
        (["--seeds", "1,2"], "SEEDS = '1,2' must be whole numbers with spaces between"),
    ],
)
def test_wrong_settings_are_refused(book, arguments, message):
    code, said = toybook.build(book, *arguments)
    assert code == 2 and message in said and "Traceback" not in said


def running(root):
    return set(processes.marked(str(root / "_build" / "toy")))


def wait_for(condition, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "waited in vain"
        time.sleep(0.1)


@pytest.mark.parametrize("victim", ["driver", "snakemake", "everything"])
def test_a_kill_leaves_no_process_and_no_lock(book, victim):
    """Killed while a notebook runs; its kernel must go too, and the next run must need no help."""
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 120.0}}})
    process = toybook.start(book, "--jobs", "1")
    wait_for(lambda: any("ipykernel_launcher" in " ".join(p.cmdline()) for p in running(book)))
    time.sleep(0.5)
    everything = running(book)
    if victim == "snakemake":
        next(p for p in everything if p.ppid() == process.pid).kill()
    else:
        for one in [psutil.Process(process.pid), *(everything if victim == "everything" else [])]:
            one.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: not running(book), 20)
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 0.2}}})
    build(book)
    assert set(toybook.copies(book)) == {A, B, C}


def test_a_second_run_waits_for_the_first(book):
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 3.0}}})
    first = toybook.start(book)
    wait_for(lambda: bool(running(book)))
    code, said = toybook.build(book)
    assert first.wait(60) == 0 and code == 0
    assert "Another run is at work" in said and "0 notebooks ran" in said
    first.communicate()


def test_an_interrupted_run_says_how_to_go_on(book):
    toybook.set_profile(book, "toy", {B: {"after": [A]}, C: {"parameters": {"wait": 120.0}}})
    process = toybook.start(book, "--jobs", "1")
    wait_for(lambda: any("ipykernel_launcher" in " ".join(p.cmdline()) for p in running(book)))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "Stopped" in said
    assert not running(book)


def test_the_bare_build_shows_the_latest_copies_and_looks_nowhere_else(book):
    """Copies of the two profiles differ; pages that are no pages lie where nobody should look."""
    for folder in (".venv/lib", "_build/toy/junk", "venv", "data"):
        (book / folder).mkdir(parents=True, exist_ok=True)
        (book / folder / "broken.md").write_text("# x\n\n{nope}`y`\n")
        (book / folder / "broken.ipynb").write_text("not a notebook")
    copy = book / "_build" / "toy" / "notebooks" / f"{A}.ipynb"
    other = book / "_build" / "other" / "notebooks" / f"{A}.ipynb"
    other.parent.mkdir(parents=True, exist_ok=True)
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
    first = toybook.copies(tmp_path)
    drawn = tmp_path / "_build" / "reference" / "notebooks" / f"{B}.ipynb"
    stamp = drawn.stat().st_mtime_ns
    assert toybook.jupyter_book(tmp_path).returncode == 0
    assert drawn.stat().st_mtime_ns == stamp and toybook.copies(tmp_path) == first
    (recorded / "rows.parquet").write_bytes(b"something else")
    assert toybook.jupyter_book(tmp_path).returncode == 0
    assert drawn.stat().st_mtime_ns != stamp


def test_snakemake_by_itself_knows_the_same_graph(book):
    import subprocess
    import sys

    command = [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "2", "--config", "profile=toy"]
    done = subprocess.run(command, cwd=book, env=toybook.environment(book), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.dumps("toy")[1:-1] in done.stdout + done.stderr


def test_the_mark_is_seen_only_on_our_own(monkeypatch):
    assert processes.marked(str(runtime.build_dir() / "nobody")) == []
