"""`make book`: Snakemake decides what is stale and runs it; this module starts it, shows how far it is, and sums up."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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

    `seeds` take the place of the profile's. `jobs` notebooks run side by side. With `only`, these and those that they
    come after run, and the pages are left. `options` go to Snakemake.
    """
    plans = notebooks.plan(runtime.root(), profile, seeds)
    for name in only or plans:
        if (plans[name].parameters["profile"], plans[name].parameters["source"]) == (profile, "reference"):
            print(f"{name}: its data are not here; the page shows the recorded results.")
    settings = {"profile": profile} if seeds is None else {"profile": profile, "seeds": " ".join(map(str, seeds))}
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
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another run is at work in {folder}; waiting for it.", flush=True)
        lock.acquire()
    _end_processes(folder)  # those of a killed run
    for name in ("running", "failed"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not (folder / "html" / "index.html").exists():
        shutil.rmtree(folder / "pages", ignore_errors=True)  # so that Snakemake builds and publishes them
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "pages.log").unlink(missing_ok=True)
    start = time.time()
    code = _snakemake(command, folder)
    ran = sum(path.stat().st_mtime >= start for path in (folder / "notebooks").glob("*.ipynb"))
    print(f"{ran} notebook{'' if ran == 1 else 's'} ran in {time.time() - start:.0f} s.")
    if code:
        print(*_troubles(folder), "Mend it and run again: what is done is not repeated.", sep="\n")
    elif not only:
        print(f"The book is at {folder / 'html' / 'index.html'}")
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
    progress = Progress(folder)
    with (folder / "logs" / "snakemake.log").open("w") as log:
        snakemake = subprocess.Popen(command, cwd=folder, env=os.environ | marks, stdout=log, stderr=log)
        try:
            while snakemake.poll() is None:
                progress.show()
                time.sleep(0.5)
        finally:
            _end_processes(folder)
            progress.show()
            progress.bar.close()
    return snakemake.returncode


class Progress:
    """One bar that says how far each notebook is that runs, and a line for each that has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, float] = {}
        shape = {"bar_format": "{desc}: {n_fmt}/{total_fmt} [{elapsed}]{postfix}", "miniters": 0, "dynamic_ncols": True}
        self.bar = runtime.progress(desc=folder.name, file=sys.stdout, disable=None, **shape)  # None: in a terminal

    def show(self) -> None:
        """Look at the folder and show what has changed."""
        running = {path.stem for path in (self.folder / "running").glob("*.ipynb")}
        for name in self.started.keys() - running:
            seconds = time.time() - self.started.pop(name)
            end = "FAILED" if (self.folder / "failed" / f"{name}.ipynb").exists() else "done"
            self.bar.write(f"{name}: {end} after {seconds:.0f} s", file=sys.stdout)
        self.started = {name: self.started.get(name, time.time()) for name in sorted(running)}
        shares = [f"{name} {_last('[0-9]+%(?=[|])', self.folder, name) or 'starting'}" for name in self.started]
        steps = _last("[0-9]+ of [0-9]+(?= steps)", self.folder, "snakemake") or f"0 of {len(running)}"
        done, self.bar.total = map(int, steps.split(" of "))
        self.bar.set_postfix_str(", ".join(shares), refresh=False)
        self.bar.update(done - self.bar.n)


def _text(folder: Path, name: str) -> str:
    log = folder / "logs" / f"{name}.log"
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _last(pattern: str, folder: Path, name: str) -> str:
    return "".join(re.findall(pattern, _text(folder, name), re.MULTILINE)[-1:])


def _troubles(folder: Path) -> list[str]:
    lines = [f"The disk is full: {folder} has no room left."] if cache.is_full(folder) else []
    failed = sorted(path.stem for path in (folder / "failed").glob("*.ipynb"))
    for name in failed:
        lines.append(f"{name} FAILED: {_last('(?<=^error: ).*', folder, name)}; what comes after it did not run.")
        lines += [f"  its executed copy: {folder / 'failed' / name}.ipynb", f"  its log: {folder / 'logs' / name}.log"]
    if not failed:
        name = "pages" if (folder / "logs" / "pages.log").exists() else "snakemake"
        # Behind a colon, what the trouble is stands on the line below.
        wrong = re.findall(r"^.*(?:WARNING|ERROR|Error|Exception).*(?:(?<=:)\n.*)?", _text(folder, name), re.MULTILINE)
        lines += wrong[:20] or _text(folder, name).splitlines()[-20:]
        lines.append(f"The whole log is {folder / 'logs' / name}.log")
    return lines
