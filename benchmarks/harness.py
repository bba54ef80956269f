"""Ours beside a peer's: the same inputs, in turn, on a machine that nobody else uses.

A case is a generator function under `CASES.register`, in this folder or in a file that ``RETLIB_PLUGINS`` names. It is
given a `Scale`, and yields duels, whose contenders take turns here, and lines, which it has measured itself::

    @CASES.register("11-sorting")
    def sorting(scale):
        numbers = np.random.default_rng(0).random(scale(1_000_000, 1_000))
        yield Duel("sort", "numbers/s", len(numbers), lambda: np.sort(numbers), {"Python": lambda: sorted(numbers)},
                   apart=lambda ours, peer: np.abs(ours - peer).max(), tolerance=0.0, goal=2.0)
"""

from __future__ import annotations

import os
import pkgutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil

from retlib.core import runtime
from retlib.core.errors import RetlibError, require
from retlib.core.registry import Registry
from retlib.evaluation import results
from retlib.evaluation.results import Results

OURS = "ours"  # what the contender of this book is called
# Rounds of a duel, and the fewest of one that takes more than so many seconds.
ROUNDS, FEWEST, LONG = 5, 3, 15.0
# Cores that other processes may keep busy beside those that are measured: what a machine does that rests.
SLACK = 0.2
# Seconds over which that is counted, at least: the machine counts hundredths.
TOLD = 0.5

CASES = Registry("benchmark")


class Busy(RetlibError):
    """Other processes take cores that the measurement needs."""


class Missing(RetlibError):
    """A peer is not installed."""


class Timed(NamedTuple):
    """What a contender returns that has taken its own time: only a part of what it does counts."""

    seconds: float
    output: Any


class Line(NamedTuple):
    """A line of a table that a case has measured itself."""

    table: str
    values: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Duel:
    """One thing that ours and its peers do with the same inputs.

    Parameters
    ----------
    what, unit : str
        Its name, and what `work` counts, a second: "pairs/s".
    work : float
        Of one call.
    ours : callable
        Returns its output, or `Timed`.
    peers : mapping of str to callable
    apart : callable
        How far a peer's output, the second argument, is from ours, a number from 0.
    tolerance : float or mapping
        How far they may be apart; of each peer its own.
    goal : float or mapping, optional
        How many times as fast as each ours is to be; of each peer its own.
    """

    what: str
    unit: str
    work: float
    ours: Callable[[], Any]
    peers: Mapping[str, Callable[[], Any]]
    apart: Callable[[Any, Any], float]
    tolerance: float | Mapping[str, float]
    goal: float | Mapping[str, float] | None = None

    def rule(self, name: str, peer: str) -> float | None:
        """The `tolerance` or the `goal` of a peer."""
        given = getattr(self, name)
        return given.get(peer) if isinstance(given, Mapping) else given


@dataclass(frozen=True)
class Scale:
    """Whether a case is measured, or only tried."""

    quick: bool = False

    def __call__(self, whole: Any, quick: Any) -> Any:
        """The one or the other."""
        return quick if self.quick else whole


def profile() -> str:
    """Under which rows are recorded: those of a GPU beside those of the processor."""
    return "benchmarks" if runtime.device().type == "cpu" else f"benchmarks-{runtime.device().type}"


def precisions() -> tuple[str, ...]:
    """Those that the device is fast with: bfloat16 on a GPU, and on a processor that multiplies it."""
    return ("float32", "bfloat16")[: 1 + (runtime.device().type != "cpu" or runtime.has_bfloat16())]


def installed(*packages: str) -> None:
    """Raise `Missing` where a peer, or what it needs, is not installed."""
    missing = [name for name in packages if not find_spec(name)]
    require(not missing, f"{', '.join(missing)}: not installed; `make bench` installs the peers", Missing)


class Others:
    """Cores that other processes keep busy."""

    def __init__(self) -> None:
        self._before, self._last = self._now(), 0.0

    @staticmethod
    def _now() -> np.ndarray:
        """Seconds that passed, that all cores worked, and that this process and its children did."""
        cores = psutil.cpu_times()
        idle = cores.idle + getattr(cores, "iowait", 0.0)
        return np.array([time.monotonic(), sum(cores[:8]) - idle, sum(os.times()[:4])])

    def busy(self) -> float:
        """How many were, on the average, since this was last asked; the same as then where that was just now."""
        now = self._now()
        passed, worked, own = now - self._before
        if passed >= TOLD:
            self._before, self._last = now, max(0.0, float((worked - own) / passed))
        return self._last


def require_room(others: float, anyway: bool) -> None:
    """Raise `Busy` where other processes leave fewer cores than are measured."""
    cores, threads = os.cpu_count() or 1, runtime.threads()
    told = (
        f"other processes keep {others:.1f} of {cores} cores busy, and {threads} are to be measured; wait, give fewer "
        "--threads, or measure --anyway, which the rows then say"
    )
    require(anyway or others + threads <= cores + SLACK, told, Busy)


def timed(call: Callable[[], Any]) -> Timed:
    """Call once."""
    with runtime.Stopwatch() as watch:
        output = call()
    return output if isinstance(output, Timed) else Timed(watch.seconds, output)


def fight(duel: Duel) -> Iterator[dict[str, Any]]:
    """Let the contenders of a duel take turns; a row for each peer.

    All are called once before any time counts, and what they return then is compared.
    """
    contenders = {OURS: duel.ours, **duel.peers}
    outputs = {name: timed(call).output for name, call in contenders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    while (done := len(seconds[OURS])) < (FEWEST if sum(map(sum, seconds.values())) > LONG else ROUNDS):
        for name, call in contenders.items():
            seconds[name].append(timed(call).seconds)
    for name in duel.peers:
        ratios = [theirs / mine for theirs, mine in zip(seconds[name], seconds[OURS], strict=True)]
        apart, tolerance = float(duel.apart(outputs[OURS], outputs[name])), duel.rule("tolerance", name)
        yield {
            "system": name, "collection": duel.what, "measure": duel.unit, "value": duel.work / median(seconds[name]),
            "ours": duel.work / median(seconds[OURS]), "ratio": median(ratios), "low": min(ratios), "high": max(ratios),
            "goal": duel.rule("goal", name), "rounds": done,
            "apart": apart, "tolerance": tolerance, "agree": apart <= tolerance,
        }  # fmt: skip


def measure(name: str, quick: bool = False, anyway: bool = False) -> Results:
    """Measure a case.

    Raises
    ------
    Busy
        If other processes took cores that it needed, unless `anyway`; nothing of it is kept then.
    Missing
        If a peer is not installed.
    """
    runtime.set_threads()
    made, others = Results(), Others()
    time.sleep(2 * TOLD)
    require_room(others.busy(), anyway)
    where = {"anyway": anyway, "quick": quick, **runtime.environment()}
    for found in runtime.progress(CASES.get(name)(Scale(quick)), desc=name, unit="measured"):
        rows = list(fight(found)) if isinstance(found, Duel) else []
        load = others.busy()
        require_room(load, anyway)
        where |= {"others": round(load, 2), "peak_memory": runtime.peak_memory()}
        for row in rows:
            made.add_row(experiment=name, split="", seed=0, profile=profile(), **row, **where)
        if isinstance(found, Line):
            noted = {name: where[name] for name in ("others", "threads", "quick", "anyway")}
            line = pd.DataFrame([{**found.values, **noted}])
            made.add_lines(found.table, line, list(line.columns))
    return made


def folder(name: str, record: bool = False) -> Path:
    """Where a case is kept: among what this folder's builds made, or, to be published, among the reference."""
    return (results.reference_folder if record else results.own_folder)(profile(), name)


def keep(name: str, quick: bool = False, anyway: bool = False, record: bool = False) -> Results:
    """Measure a case, and write what was measured in the place of what was there."""
    made = measure(name, quick, anyway)
    made.save(folder(name, record))
    return made


def load_cases() -> list[str]:
    """Import every file of this folder; the names of all cases."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)], "benchmarks."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return CASES.names()


def work(name: str, quick: bool, anyway: bool, record: bool) -> Results:
    """Measure one case, in a process of its own."""
    load_cases()
    return keep(name, quick, anyway, record)


def known(name: str, quick: bool, record: bool) -> Results | None:
    """What was measured of a case before, at this scale and with as many threads."""
    place = folder(name, record)
    found = Results.read(place) if place.is_dir() else None
    frames = [each for each in (found.rows, *found.tables.values()) if len(each)] if found else []
    how = {(threads, tried) for each in frames for threads, tried in zip(each["threads"], each["quick"], strict=True)}
    return found if how == {(runtime.threads(), quick)} else None


def alone(name: str, *how: bool) -> Results | str:
    """The results of a case, or why there are none; its own process gives back memory, threads and settings."""
    os.environ["TQDM_DISABLE"] = "1"  # there; the bars of trainings take time, and hide the one over the cases
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(work, name, *how).result()
        except RetlibError as error:
            return f"{name}: {error}"
        except Exception:  # the other cases go on
            return f"{name}: {traceback.format_exc()}"


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as they are printed: ratio, spread, goal, whether outputs agree, threads and load."""
    return pd.DataFrame({
        "what": rows["collection"], "peer": rows["system"], "unit": rows["measure"],
        "ours": rows["ours"].map("{:,.0f}".format), "peer's": rows["value"].map("{:,.0f}".format),
        "ratio": rows["ratio"].map("{:.2f}".format),
        "spread": [f"{low:.2f} to {high:.2f}" for low, high in zip(rows["low"], rows["high"], strict=True)],
        "goal": rows["goal"].astype(float).map("{:g}".format).replace("nan", ""),
        "apart": [f"{apart:.2g} of {most:g}" for apart, most in zip(rows["apart"], rows["tolerance"], strict=True)],
        "outputs": np.where(rows["agree"].astype(bool), "agree", "DIFFER"),
        **{name: rows[name] for name in ("rounds", "threads", "others")},
    })  # fmt: skip
