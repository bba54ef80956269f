"""`make book` and sweeps: Snakemake decides what is stale and runs it; this starts it, and ends what it leaves."""

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
import pandas as pd
import psutil
from filelock import FileLock, Timeout

from retlib.core import runtime
from retlib.core.errors import require_one_of
from retlib.evaluation import results
from retlib.workflow import notebooks

# Set in the environment of every process of a run, kernels included, to the run's folder.
MARK = "RETLIB_RUN"
VARIED = "varied "  # before the names of parameters: some are called as a recorded column is


def build(profile: str, jobs: int, seeds: Sequence = (), options: Sequence = (), only: Sequence = ()) -> int:
    """Bring the book of a profile up to date; return 0, or 1 when a notebook or the pages failed.

    With `only`, these and those that they come after run, and the pages are left. `options` go to Snakemake.
    """
    plans = notebooks.plan(runtime.root(), profile, seeds)
    for name in only or plans:
        if (plans[name].parameters["profile"], plans[name].parameters["source"]) == (profile, "reference"):
            print(f"{name}: its data are not here; the page shows the recorded results.")
    settings = {"profile": profile} | ({"seeds": " ".join(map(str, seeds))} if seeds else {})
    return run(runtime.build_dir() / profile, jobs, settings, options, only)


def sweep(path: Path, jobs: int) -> tuple[pd.DataFrame, int]:
    """Run what of a sweep is not up to date; return its `summary`, and 1 when a notebook failed.

    All rows, with a column for each varied parameter, are in `results.csv` beside the executed copies.
    """
    settings, pages = notebooks.read_sweep(runtime.root(), path)
    folder, frames = runtime.build_dir() / "sweeps" / path.stem, []
    code = run(folder, jobs, {"sweep": path.resolve()}, only=[*pages])
    for (name, page), point in zip(pages.items(), settings.points, strict=True):
        if (folder / "notebooks" / f"{name}.ipynb").exists():
            own = results.own_folder(page.parameters["profile"], settings.notebook, page.parameters)
            varied = {VARIED + each: str(value) for each, value in point.items()}
            frames.append(results.Results.read(own).rows.assign(**varied))
    if not frames:
        return pd.DataFrame(), code
    rows = pd.concat(frames, ignore_index=True)
    rows.to_csv(folder / "results.csv", index=False)
    print(f"Every row: {folder / 'results.csv'}")
    return summary(rows, settings.measure), code


def summary(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the test split's mean of a measure for each combination, its spread and number of seeds."""
    rows = rows[rows["split"] == "test"]
    require_one_of("measure", measure, rows["measure"].unique())
    columns = [*(name for name in rows if name.startswith(VARIED)), "system", "collection"]
    groups = rows[rows["measure"] == measure].groupby(columns, sort=False)["value"]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    return table.rename(columns={"mean": measure, "std": "deviation over seeds", "count": "seeds"})


def run(folder: Path, jobs: int, settings: Mapping, options: Sequence = (), only: Sequence = ()) -> int:
    """Make what the Snakefile has of these settings, or `only` some copies; return 0, or 1 when one failed."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(runtime.root() / "Snakefile"), "--cores", str(jobs),
        "--keep-going", "--rerun-incomplete", "--rerun-triggers", "mtime", "params",
        "--nolock",  # a killed Snakemake leaves its lock; ours goes with the process
        *(str(folder / "notebooks" / f"{name}.ipynb") for name in only),
        *options, "--config", *(f"{name}={value}" for name, value in settings.items()),
    ]  # fmt: skip
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another run is at work in {folder}; waiting for it.", flush=True)
        lock.acquire()
    _end_processes(folder)  # those of a killed run
    for name in ("running", "failed", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if not (folder / "html" / "index.html").exists():
        shutil.rmtree(folder / "pages", ignore_errors=True)  # so that Snakemake builds and publishes them
    (folder / "logs").mkdir()
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
    marked = [one for one in psutil.process_iter(["environ"]) if (one.info["environ"] or {}).get(MARK) == str(folder)]
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
    if shutil.disk_usage(folder).free < 2**20:
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
