"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import psutil

# Set in the environment of every process of a run, kernels included, to the run's folder.
MARK = "RETLIB_RUN"


def end_with_parent(interval: float = 0.5) -> None:
    """End this process and its children soon after its parent is gone.

    Notes
    -----
    A killed process cannot end its children, so each child watches. Asking for the parent
    works on every Unix, from any thread; Linux's death signal is tied to the *thread* that
    forked, and Snakemake forks from short-lived ones.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        # Nobody waits for them: the main thread would take a child that another waited for as one that ended well.
        for child in psutil.Process().children(recursive=True):
            _quietly(child.kill)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they are gone."""
    for process in processes:
        _quietly(process.kill)
    psutil.wait_procs(processes, timeout=10)


def end_with_stacks(processes: list[psutil.Process]) -> None:
    """End processes; those of Python that have a fault handler write where each thread was to their standard error."""
    for process in processes:
        _quietly(lambda process=process: process.send_signal(signal.SIGABRT))
    psutil.wait_procs(processes, timeout=5)
    end(processes)


def marked(mark: str) -> list[psutil.Process]:
    """This user's processes, other than this one, whose environment bears the mark."""
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and (_quietly(process.environ) or {}).get(MARK) == mark
    ]


class Idleness:
    """How long the processes of a run have done next to nothing.

    Parameters
    ----------
    mark : str
        The run's folder.
    interval : float
        Seconds between two looks at them, at least.
    share : float
        What is next to nothing: less than this share of one core, by all of them together.
    """

    def __init__(self, mark: str, interval: float = 5.0, share: float = 0.05) -> None:
        self.mark, self.interval, self.share = mark, interval, share
        self.looked, self.spent, self.total = time.monotonic(), {}, 0.0

    def seconds(self) -> float:
        """Seconds of idleness up to the last look."""
        passed = time.monotonic() - self.looked
        if passed >= self.interval:
            spent = {process.pid: sum(times[:2]) for process in marked(self.mark) if (times := _times(process))}
            used = sum(spent[pid] - self.spent.get(pid, 0.0) for pid in spent)
            # A machine that slept is not idle, so that a look never counts for much more than the interval.
            self.total = 0.0 if used > self.share * passed else self.total + min(passed, 2 * self.interval)
            self.looked, self.spent = time.monotonic(), spent
        return self.total


def _times(process: psutil.Process) -> tuple | None:
    return _quietly(process.cpu_times)


def _quietly(call: Callable):
    try:
        return call()
    except (psutil.Error, OSError):  # gone meanwhile, or somebody else's
        return None
