"""`make book`: run the notebooks of a profile, build the pages, and say how it went.

Snakemake decides what is stale and runs it; this module starts it, shows how far it is, and sums up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from retlib.core import cache, runtime
from retlib.evaluation.results import own_folder
from retlib.workflow import notebooks, processes
from retlib.workflow.execute import summary


def build(
    profile: str,
    jobs: int,
    seeds: Sequence[int] | None = None,
    options: Sequence[str] = (),
    only: Sequence[str] = (),
) -> int:
    """Bring the book of a profile up to date; return 0, or 1 when a notebook or the pages failed.

    The profile is a file in `notebooks/profiles`; `seeds` take the place of its own. `jobs` notebooks run side by side.
    With `only`, these and those that they come after run, and the pages are left. `options` go to Snakemake.
    """
    plans = notebooks.plan(runtime.root(), profile, seeds)
    plans = notebooks.needed(plans, only or plans)
    for name, plan in plans.items():
        if plan.parameters["source"] == "reference" and plan.parameters["profile"] == profile:
            print(f"{name}: its data are not here; the page shows the recorded results.")
    settings = {"profile": profile} if seeds is None else {"profile": profile, "seeds": " ".join(map(str, seeds))}
    return run(plans, runtime.build_dir() / profile, jobs, settings, options, pages=not only)


def run(
    plans: Mapping[str, notebooks.Plan],
    folder: Path,
    jobs: int,
    settings: Mapping[str, object],
    options: Sequence[str] = (),
    pages: bool = False,
) -> int:
    """Bring executed copies in a folder up to date, and the pages if they are wanted; 0, or 1 when one failed.

    The plans are those that are wanted, of the ones that the Snakefile finds with these settings.
    """
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(runtime.root() / "Snakefile"), "--cores", str(jobs),
        "--keep-going", "--rerun-incomplete", "--rerun-triggers", "mtime", "params", "input",
        "--nolock",  # a killed Snakemake leaves its lock; ours goes with the process
        *([] if pages else [str(folder / "notebooks" / f"{name}.ipynb") for name in plans]),
        *options, "--config", *(f"{name}={value}" for name, value in settings.items()),
    ]  # fmt: skip
    with _sole(folder):
        _clear(folder, plans)
        start = time.time()
        code = _snakemake(command, folder)
        print(_report(folder, plans, code, start, pages))
    return 1 if code else 0


def _sole(folder: Path) -> AcquireReturnProxy:
    """Wait for the folder's lock, which the operating system takes back from a killed process."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        print(f"Another run is at work in {folder}; waiting for it.", flush=True)
        return lock.acquire()


def _clear(folder: Path, plans: Mapping[str, notebooks.Plan]) -> None:
    """Remove what an earlier run left: processes, half-run copies, failed and damaged ones, and those of other rows."""
    processes.end(processes.marked(str(folder)))
    shutil.rmtree(folder / "running", ignore_errors=True)
    for name, plan in plans.items():
        (folder / "failed" / f"{name}.ipynb").unlink(missing_ok=True)
        copy = folder / "notebooks" / f"{name}.ipynb"
        known = copy.with_suffix(".sha256")
        if copy.exists() and known.exists() and known.read_text() != cache.checksum(copy):
            print(f"{copy} changed since it was run; {name} is run again.")
            copy.unlink()
        rows = own_folder(plan.parameters["profile"], name) / cache.CHECKSUMS
        # Of a page of another profile, which `others` names, that profile's own copy goes with the rows.
        own = (plan.parameters["profile"], plan.parameters["source"]) == (folder.name, "run")
        if own and copy.exists() and rows.exists() and rows.stat().st_mtime > copy.stat().st_mtime:
            print(f"The rows of {name} were recorded by another run than its page; {name} is run again.")
            copy.unlink()
    if not (folder / "html" / "index.html").exists():
        shutil.rmtree(folder / "pages", ignore_errors=True)  # so that Snakemake builds and publishes them
    (folder / "logs").mkdir(exist_ok=True)


def _snakemake(command: list[str], folder: Path) -> int:
    """Run Snakemake and show how far it is; returns its exit code."""
    marks = {processes.MARK: str(folder), "RETLIB_BUILD": str(runtime.build_dir())}
    progress = Progress(folder)
    with (folder / "logs" / "snakemake.log").open("w") as log:
        snakemake = subprocess.Popen(command, cwd=folder, env=os.environ | marks, stdout=log, stderr=log)
        try:
            while snakemake.poll() is None:
                progress.show()
                time.sleep(0.5)
        except KeyboardInterrupt:
            processes.end(processes.marked(str(folder)))
            raise
        finally:
            progress.show()
            progress.bar.close()
    return snakemake.returncode


class Progress:
    """One bar that says how far each notebook is that runs, and a line for each that has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, float] = {}
        self.bar = runtime.progress(
            desc=folder.name,
            bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}]{postfix}",
            file=sys.stdout,
            disable=None,  # but in a terminal
            miniters=0,
            dynamic_ncols=True,
        )

    def show(self) -> None:
        """Look at the folder and show what has changed."""
        running = sorted(path.stem for path in (self.folder / "running").glob("*.ipynb"))
        for name in [name for name in self.started if name not in running]:
            # One that an interrupt has ended lies in neither.
            ends = {"notebooks": "done", "failed": "FAILED"}.items()
            end = next((said for state, said in ends if (self.folder / state / f"{name}.ipynb").exists()), "stopped")
            seconds = time.time() - self.started.pop(name)
            self.bar.write(f"{name}: {end} after {seconds:.0f} s", file=sys.stdout)
        self.started = {name: self.started.get(name, time.time()) for name in running}
        how_far = [f"{name} {self._last('[0-9]+%(?=[|])', name) or 'starting'}" for name in running]
        done, total = (self._last("[0-9]+ of [0-9]+(?= steps)", "snakemake") or f"0 of {len(running)}").split(" of ")
        self.bar.total = int(total)
        self.bar.set_postfix_str(", ".join(how_far), refresh=False)
        self.bar.update(int(done) - self.bar.n)

    def _last(self, pattern: str, name: str) -> str:
        """What matches a pattern near the end of a log, the last of it; nothing where nothing does."""
        log = self.folder / "logs" / f"{name}.log"
        if not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 2**16))
            return "".join(re.findall(pattern, file.read().decode("utf-8", "replace"))[-1:])


def _report(folder: Path, plans: Mapping[str, notebooks.Plan], code: int, start: float, pages: bool) -> str:
    copies = {name: folder / "notebooks" / f"{name}.ipynb" for name in plans}
    if not code:
        ran = sum(path.stat().st_mtime >= start for path in copies.values())
        said = f"{ran} notebook{'s' * (ran != 1)} ran, {len(plans) - ran} were up to date"
        said += f" ({time.time() - start:.0f} s)."
        return said + (f"\nThe book is at {folder / 'html' / 'index.html'}" if pages else "")
    lines = [f"The disk is full: {folder} has no room left."] if cache.is_full(folder) else []
    failed = {path.stem for path in (folder / "failed").glob("*.ipynb")} & plans.keys()
    for name in plans:
        copy, causes = folder / "failed" / f"{name}.ipynb", failed & notebooks.needed(plans, [name]).keys()
        if name in failed:
            lines += [f"{name} FAILED: {summary(copy)}", f"  its executed copy, the error on top: {copy}"]
            lines += [f"  its log: {folder / 'logs' / name}.log"]
        elif causes:
            lines += [f"{name} was not run: it comes after {', '.join(sorted(causes))}."]
    if not failed:
        log = folder / "logs" / "pages.log"
        if not log.exists() or log.stat().st_mtime < start:  # it came to none of the pages
            log = log.with_name("snakemake.log")
        lines += [*_troubles(log), f"The whole log is {log}"]
    lines += ["The book was not built anew."] if pages else []
    return "\n".join([*lines, "Mend it and run again: what is done is not repeated."])


def _troubles(log: Path) -> list[str]:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # Behind a colon, what the trouble is stands on the line below.
    found = re.findall(r"^.*(?:WARNING|ERROR|Error|Exception).*(?:(?<=:)\n.*)?", text, re.MULTILINE)
    return found[:20] or text.splitlines()[-20:]
