"""`make book`: run the notebooks of a profile, build the pages, and say how it went.

Snakemake decides what is stale and runs it; this module starts it on clean ground, shows
how far each notebook is, and sums up.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from retlib.core import runtime
from retlib.core.errors import RetlibError, SettingError
from retlib.workflow import notebooks, processes
from retlib.workflow.execute import summary

# A kernel can miss a message and then waits for ever, seldom: a run whose processes do next to nothing for so many
# seconds is ended and begun again, so many times.
PATIENCE, RESTARTS = 300, 2


def build(
    profile: str,
    jobs: int,
    seeds: Sequence[int] | None = None,
    options: Sequence[str] = (),
    only: Sequence[str] = (),
) -> int:
    """Bring the book of a profile up to date, or some of its notebooks.

    Parameters
    ----------
    profile : str
        The name of a file in `notebooks/profiles`.
    jobs : int
        Notebooks that run side by side.
    seeds : sequence of int, optional
        Takes the place of the profile's seeds.
    options : sequence of str
        Further options for Snakemake.
    only : sequence of str, optional
        Notebooks that are wanted, with those that they come after; the pages are left as they are.

    Returns
    -------
    int
        0, or 1 when a notebook or the pages failed.
    """
    root, folder = runtime.root(), runtime.build_dir() / profile
    plans = notebooks.plan(root, profile, seeds)
    if only:
        plans = notebooks.needed(plans, only)
        options = [*(str(folder / "notebooks" / f"{name}.ipynb") for name in plans), *options]
    with _sole(folder):
        _clear(folder, plans)
        for name, plan in plans.items():
            if plan.parameters.get("source") == "reference":
                print(f"{name}: its data are not here; the page shows the recorded results.")
        start = time.time()
        code = _run(_command(root, profile, jobs, seeds, options), folder, plans)
        print(_report(folder, plans, code, start, pages=not only))
    return 1 if code else 0


def _command(root: Path, profile: str, jobs: int, seeds: Sequence[int] | None, options: Sequence[str]) -> list[str]:
    settings = [f"profile={profile}"]
    if seeds is not None:
        settings.append("seeds=" + " ".join(map(str, seeds)))
    return [
        sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--cores", str(jobs),
        "--keep-going", "--rerun-incomplete", "--rerun-triggers", "mtime", "params", "input",
        "--nolock",  # a killed Snakemake leaves its lock; ours goes with the process
        *options, "--config", *settings,
    ]  # fmt: skip


@contextmanager
def _sole(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the operating system takes back from a killed process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another run is at work in {folder}; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clear(folder: Path, names: Iterable[str]) -> None:
    """Remove what an earlier run left: processes first, then half-run copies, and failed ones of these notebooks."""
    processes.end(processes.marked(str(folder)))
    shutil.rmtree(folder / "running", ignore_errors=True)
    for name in names:
        (folder / "failed" / f"{name}.ipynb").unlink(missing_ok=True)
    if not (folder / "html" / "index.html").exists():
        shutil.rmtree(folder / "pages", ignore_errors=True)  # so that Snakemake builds and publishes them
    (folder / "logs").mkdir(exist_ok=True)


def _run(command: list[str], folder: Path, names: Iterable[str], patience: float = PATIENCE) -> int:
    """Run Snakemake; when all its processes stand still, which a kernel that lost a message does, begin again."""
    for _ in range(RESTARTS):
        code = _snakemake(command, folder, patience)
        if code is not None:
            return code
        _clear(folder, names)
    return _snakemake(command, folder, math.inf)


def _snakemake(command: list[str], folder: Path, patience: float) -> int | None:
    """Snakemake's exit code; None where it was ended because nothing had happened for so many seconds."""
    screen, idleness = Screen(folder), processes.Idleness(str(folder), interval=min(5.0, patience / 10))
    marks = {processes.MARK: str(folder), "RETLIB_BUILD": str(folder.parent), "PYTHONFAULTHANDLER": "1"}
    with (folder / "logs" / "snakemake.log").open("w") as log:
        snakemake = subprocess.Popen(command, cwd=folder, env=os.environ | marks, stdout=log, stderr=log)
        try:
            while snakemake.poll() is None:
                screen.show()
                time.sleep(0.2)
                if idleness.seconds() > patience:
                    processes.end_with_stacks(processes.marked(str(folder)))
                    snakemake.wait()
                    print(_stuck(folder, patience, list(screen.started)), flush=True)
                    return None
        except KeyboardInterrupt:
            processes.end(processes.marked(str(folder)))
            raise
        finally:
            screen.show()
            screen.clear()
    return snakemake.returncode


def _stuck(folder: Path, patience: float, names: list[str]) -> str:
    """What to say of a run that stood still; the logs, which the next run writes anew, are kept aside."""
    kept = folder / "logs" / "stuck"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for name in [*names, "snakemake", "pages"]:
        if (log := folder / "logs" / f"{name}.log").exists():
            shutil.copy(log, kept)
    where = ", ".join(names) or "no notebook was running"
    return (
        f"Nothing has happened for {patience:.0f} s ({where}), so the run begins again; what is done is not repeated.\n"
        f"Where each process stood is in {kept}"
    )


class Screen:
    """The progress of the notebooks that run: one line each, rewritten in a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminal = sys.stdout.isatty()
        self.started: dict[str, float] = {}
        self.lines = 0
        self.printed = time.time()

    def show(self) -> None:
        """Look at the folder and show what has changed."""
        now = time.time()
        running = sorted(path.stem for path in (self.folder / "running").glob("*.ipynb"))
        ended = [name for name in self.started if name not in running]
        for name in ended:
            self._say(f"{name}: {self._outcome(name)} after {now - self.started.pop(name):.0f} s")
        for name in running:
            self.started.setdefault(name, now)
        bars = [progress_line(name, self.folder / "logs" / f"{name}.log") for name in running]
        if self.terminal:
            self._draw(bars)
        elif now - self.printed >= 30:
            self._say(*bars)

    def clear(self) -> None:
        """Take the progress lines off the terminal."""
        if self.terminal:
            self._draw([])

    def _outcome(self, name: str) -> str:
        return "done" if (self.folder / "notebooks" / f"{name}.ipynb").exists() else "FAILED"

    def _say(self, *lines: str) -> None:
        self.clear()
        for line in lines:
            print(line, flush=True)
        self.printed = time.time()

    def _draw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        up = f"\x1b[{self.lines}A" if self.lines else ""
        sys.stdout.write(up + "\x1b[J" + "".join(line[:width] + "\n" for line in lines))
        sys.stdout.flush()
        self.lines = len(lines)


def progress_line(name: str, log: Path) -> str:
    """The last state of papermill's progress bar in a log, and of the bar inside the notebook."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            tail = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        tail = ""
    pieces = [piece.strip() for piece in re.split(r"[\r\n]", tail) if "%|" in piece]
    outer = [piece for piece in pieces if piece.startswith(f"{name}:")]
    inner = [] if not pieces or pieces[-1].startswith(f"{name}:") else pieces[-1:]
    return "  ".join((outer[-1:] or [f"{name}: starting"]) + inner)


def _report(folder: Path, plans: Mapping[str, notebooks.Plan], code: int, start: float, pages: bool) -> str:
    copies = {name: folder / "notebooks" / f"{name}.ipynb" for name in plans}
    failed = [name for name in plans if (folder / "failed" / f"{name}.ipynb").exists()]
    if not code:
        ran = sum(path.stat().st_mtime >= start for path in copies.values())
        said = (
            f"{ran} notebook{'s' * (ran != 1)} ran, {len(plans) - ran} were up to date ({time.time() - start:.0f} s)."
        )
        return said + (f"\nThe book is at {folder / 'html' / 'index.html'}" if pages else "")
    lines = [line for name in failed for line in _how_to_see(folder, name)]
    lines += _left_out(plans, failed)
    if not failed:
        by_pages = pages and all(path.exists() for path in copies.values())
        log = folder / "logs" / ("pages.log" if by_pages else "snakemake.log")
        lines += [*_troubles(log), f"The whole log is {log}"]
    lines += ["The book was not built anew."] if pages else []
    return "\n".join([*lines, "Mend it and run again: what is done is not repeated."])


def _left_out(plans: Mapping[str, notebooks.Plan], failed: list[str]) -> list[str]:
    """What was not run because of a failure; a notebook comes after its plan's `after`, and theirs."""
    lines, lost, before = [], list(failed), 0
    while len(lost) > before:
        before = len(lost)
        for name, plan in plans.items():
            needed = [other for other in plan.after if other in lost]
            if needed and name not in lost:
                lost.append(name)
                lines.append(f"{name} was not run: it comes after {', '.join(needed)}.")
    return lines


def _how_to_see(folder: Path, name: str) -> list[str]:
    copy = folder / "failed" / f"{name}.ipynb"
    return [
        f"{name} FAILED: {summary(copy)}",
        f"  its executed copy, the error on top: {copy}",
        f"  its log: {folder / 'logs' / name}.log",
    ]


def _troubles(log: Path) -> list[str]:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    return [line for line in lines if re.search("WARNING|ERROR|Error|Exception", line)][:20] or lines[-20:]


def seeds_of(text: str) -> list[int] | None:
    """Seeds as the command line gives them; None if it gives none."""
    try:
        return [int(seed) for seed in text.split()] or None
    except ValueError:
        raise SettingError(
            f'SEEDS = {text!r} must be whole numbers with spaces between, as in SEEDS="0 1 2".'
        ) from None


def _jobs(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise SettingError(f"JOBS = {text!r} must be a positive whole number.")
    return int(text)


def main() -> int:
    """The command line; options that it does not know go to Snakemake."""
    parser = argparse.ArgumentParser(prog="python -m retlib.workflow.build", description=__doc__.split("\n")[0])
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--jobs", default="2", help="notebooks that run side by side")
    parser.add_argument("--seeds", default="", help='in place of the profile\'s, as in "0 1 2"')
    given, options = parser.parse_known_args()
    if "MAKELEVEL" in os.environ:
        processes.end_with_parent()
    try:
        return build(given.profile, _jobs(given.jobs), seeds_of(given.seeds), options)
    except RetlibError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped. Run again to go on: what is done is not repeated.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
