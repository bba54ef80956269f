"""Processes that end with the one that started them."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import psutil

# Set in the environment of every process of a run, kernels included, to the run's folder.
MARK = "RETLIB_RUN"


def end_with_parent() -> None:
    """End this process and its children soon after its parent is gone.

    A killed process cannot end its children, so each child watches. Asking for the parent works on every Unix, from any
    thread; Linux's death signal is tied to a *thread*, and Snakemake forks from short-lived ones.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        _exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_after(seconds: float) -> None:
    """End this process and its children after so many seconds, with the exit code of an interrupted one."""
    timer = threading.Timer(seconds, _exit, [130])
    timer.daemon = True
    timer.start()


def _exit(code: int) -> None:
    # Nobody waits for them: the main thread would take a child that another waited for as one that ended well.
    kill(psutil.Process().children(recursive=True))
    os._exit(code)


def kill(processes: list[psutil.Process]) -> None:
    """Kill processes, of which some may be gone."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def end(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they are gone."""
    kill(processes)
    psutil.wait_procs(processes, timeout=10)


def marked(mark: str) -> list[psutil.Process]:
    """This user's processes, other than this one, whose environment bears the mark."""
    found = psutil.process_iter(["environ"])
    return [one for one in found if one.pid != os.getpid() and (one.info["environ"] or {}).get(MARK) == mark]
