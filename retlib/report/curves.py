"""Training curves as matrices for `retlib.report.contrasts` (chapter 41; Zhan 2020, section 6.1).

The table ``curves`` of a chapter has a value for each system, seed, step and measure, and ``intervals`` the steps
between the refreshes of a system's lists. At a step all systems are measured on the same training questions, so that a
step is what a question is to ranked lists. Steps depend on those before, and count by blocks of consecutive ones.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.results import Results
from retlib.report.contrasts import Kind
from retlib.report.gate import END

WINDOWS = 10  # of equal length, in a curve
BLOCKS = 10  # as which steps count
PHASES = 5  # parts of a refresh cycle; odd, so that a moving average over a cycle has a middle


def curve(rows: Results, system: str, collection: str, measure: str) -> pd.DataFrame:
    """Return a system's curve in points of 100: index step, a column for each seed."""
    table = rows.tables.get("curves", pd.DataFrame(columns=["system", "measure"]))
    mine = table[(table["system"] == system) & (table["measure"] == measure)]
    require(len(mine) > 0, f"no curve of {measure} of {system!r} is recorded", DataError)
    return mine.pivot(index="step", columns="seed", values="value").dropna() * 100


def interval(rows: Results, system: str) -> int:
    """Return the steps between two refreshes of a system's lists."""
    table = rows.tables.get("intervals", pd.DataFrame(columns=["system"]))
    mine = table[table["system"] == system]
    require(len(mine) == 1, f"no refresh interval of {system!r} is recorded", DataError)
    return int(mine["interval"].iloc[0])


def _blocks(steps: pd.Index) -> pd.Series:
    return pd.Series(np.arange(len(steps)) * min(BLOCKS, len(steps)) // len(steps), index=steps)


def _last(share: float, *place: object) -> tuple[pd.DataFrame, pd.Series]:
    values = curve(*place)
    values = values.iloc[len(values) - round(share * len(values)) :]
    return values, _blocks(values.index)


def _window(number: int, *place: object) -> tuple[pd.DataFrame, pd.Series]:
    values = curve(*place)
    size = len(values) // WINDOWS
    require(size > 1, f"{len(values)} recorded steps are too few for {WINDOWS} windows", DataError)
    values = values.iloc[number * size : (number + 1) * size].set_axis(range(size))
    return values, _blocks(values.index)


def _quarter(late: bool, before: bool, rows: Results, system: str, *place: str) -> tuple[pd.DataFrame, None]:
    # The mean over the first or the last quarter of each refresh cycle but an unfinished one; of all but the first
    # cycle under the number of the one before, or of all but the last.
    values, every = curve(rows, system, *place), interval(rows, system)
    phase, cycle = values.index.to_numpy() % every / every, values.index.to_numpy() // every
    early, end = (values[at].groupby(cycle[at]).mean() for at in (phase < 0.25, phase >= 0.75))
    whole = early.index.intersection(end.index)
    require(len(whole) > 2, f"a sawtooth needs three whole cycles of {every} steps", DataError)
    found = (end if late else early).loc[whole]
    return (found.iloc[1:].set_axis(whole[:-1]) if before else found), None


def _swing(of: str, rows: Results, system: str, *place: str) -> tuple[pd.DataFrame, None]:
    # What repeats from cycle to cycle is the product of a cycle's profile with the mean profile of the other cycles:
    # its expectation is the squared swing, and 0 for noise, however large. A cycle is in the products of all others,
    # too; so these are the jackknife's values of their mean.
    every = interval(rows, of)
    products = repetition(curve(rows, system, *place), every)
    count = len(products)
    require(count > 2, f"a swing needs five whole cycles of {every} steps", DataError)
    return (2 * (count - 1) * products - count * products.mean()) / (count - 2), None


def repetition(values: pd.DataFrame, every: int) -> pd.DataFrame:
    """Return, for each whole cycle but the first and the last, how far its profile is that of the others."""
    place = values.index.to_numpy() * PHASES // every
    parts = values.groupby(place).mean().reindex(range(place.min(), place.max() + 1))
    # Less the mean over the cycle around each part: neither a trend nor the level is a swing.
    profile = parts - parts.rolling(PHASES, center=True).mean()
    profile.index = pd.MultiIndex.from_arrays([profile.index // PHASES, profile.index % PHASES])
    profile = profile.groupby(level=0).filter(lambda cycle: len(cycle) == PHASES and cycle.notna().all(axis=None))
    cycles = profile.index.get_level_values(0).nunique()
    total = profile.groupby(level=1).transform("sum")
    others = (total - profile) / max(1, cycles - 1)
    return (profile * others).groupby(level=0).mean()


AT_END = Kind(partial(_last, END), "steps")
THROUGHOUT = Kind(partial(_last, 1.0), "steps")
WINDOW = [Kind(partial(_window, number), "steps of a window", gate=False) for number in range(WINDOWS)]
EARLY, LATE = (Kind(partial(_quarter, late, False), "cycles", gate=False) for late in (False, True))
AFTER_REFRESH = Kind(partial(_quarter, False, True), "cycles", gate=False)


def swing(of: str) -> Kind:
    """Return the kind of squared swings in step with the refreshes of a system's lists."""
    return Kind(partial(_swing, of), "cycles", gate=False)
