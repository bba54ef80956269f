"""`make book`: Snakemake decides what is stale and runs it; this module starts it, ends what it leaves, and sums up."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click
import psutil
from filelock import FileLock, Timeout

from retlib.core import cache, runtime
from retlib.workflow import notebooks

# Set in the environment of every process of a run, kernels included, to the run's folder.
MARK = "RETLIB_RUN"


def build(
    profile: str, jobs: int, seeds: Sequence[int] | None = None, options: Sequence[str] = (), only: Sequence[str] = ()
) -> int:
    """Bring the book of a profile up to date; return 0, or 1 when a notebook or the pages failed.

    With `only`, these and those that they come after run, and the pages are left. `options` go to Snakemake.
    """
    plans = notebooks.plan(runtime.root(), profile, seeds)
    for name in only or plans:
        if (plans[name].parameters["profile"], plans[name].parameters["source"]) == (profile, "reference"):
            print(f"{name}: its data are not here; the page shows the recorded results.")
    settings = {"profile": profile} | ({"seeds": " ".join(map(str, seeds))} if seeds else {})
    return run(runtime.build_dir() / profile, jobs, settings, options, only)


def run(
    folder: Path, jobs: int, settings: Mapping[str, object], options: Sequence[str] = (), only: Sequence[str] = ()
) -> int:
    """Bring what the Snakefile makes with these settings up to date, or `only` some copies; 0, or 1 when one failed."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(runtime.root() / "Snakefile"), "--cores", str(jobs),
        "--keep-going", "--rerun-incomplete", "--rerun-triggers", "mtime", "params",
        "--nolock",  # a killed Snakemake leaves its lock; ours goes with the process
        *(str(folder / "notebooks" / f"{name}.ipynb") for name in only),
        *options, "--config", *(f"{name}={value}" for name, value in settings.items()),
    ]  # fmt: skip
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    with suppress(Timeout):
        lock.acquire(timeout=0)
    if not lock.is_locked:
        print(f"Another run is at work in {folder}; waiting for it.", flush=True)
        lock.acquire()
    _end_processes(folder)  # those of a killed run
    for name in ("running", "failed"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not (folder / "html" / "index.html").exists():
        shutil.rmtree(folder / "pages", ignore_errors=True)  # so that Snakemake builds and publishes them
    (folder / "logs" / "pages.log").unlink(missing_ok=True)
    start = time.time()
    code = _snakemake(command, folder)
    ran = sum(path.stat().st_mtime >= start for path in (folder / "notebooks").glob("*.ipynb"))
    print(f"{ran} notebook{'' if ran == 1 else 's'} ran in {time.time() - start:.0f} s.")
    if code:
        print(*_troubles(folder), "Mend it and run again: what is done is not repeated.", sep="\n")
    elif not only and (book := folder / "html" / "index.html").is_file():
        print(f"The book is at {book}")
    return 1 if code else 0


def _end_processes(folder: Path) -> None:
    every = psutil.process_iter(["environ"])
    marked = [one for one in every if (one.info["environ"] or {}).get(MARK) == str(folder) and one.pid != os.getpid()]
    for one in marked:
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(marked, timeout=10)


def _snakemake(command: list[str], folder: Path) -> int:
    # Whatever ends it, or this process, ends all that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    marks = {MARK: str(folder), "RETLIB_BUILD": str(runtime.build_dir())}
    with (folder / "logs" / "snakemake.log").open("w") as log:
        try:  # what the jobs print of their progress is no output of a command
            return subprocess.run(command, cwd=folder, env=os.environ | marks, stdout=2, stderr=log).returncode
        finally:
            _end_processes(folder)


def _troubles(folder: Path) -> Iterator[str]:
    if cache.is_full(folder):
        yield f"The disk is full: {folder} has no room left."
    failed = sorted((folder / "failed").glob("*.ipynb"))
    for copy in failed:
        errors = re.findall("^error: .*", _log(folder, copy.stem), re.MULTILINE)
        yield f"{copy.stem} FAILED, and what comes after it did not run.\n  {errors[-1]}\n  its executed copy: {copy}"
    if not failed:
        name = "pages" if (folder / "logs" / "pages.log").exists() else "snakemake"
        # Behind a colon, what the trouble is stands on the line below.
        wrong = re.findall(r"^.*(?:WARNING|ERROR|Error|Exception).*(?:(?<=:)\n.*)?", _log(folder, name), re.MULTILINE)
        yield from wrong[:20] or _log(folder, name).splitlines()[-20:]
    yield f"The logs are in {folder / 'logs'}."


def _log(folder: Path, name: str) -> str:
    return click.unstyle((folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace"))
