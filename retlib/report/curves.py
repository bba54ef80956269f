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
    mine = table.query("system == @system and measure == @measure")
    require(len(mine) > 0, f"no curve of {measure} of {system!r} is recorded", DataError)
    return mine.pivot(index="step", columns="seed", values="value").dropna() * 100


def interval(rows: Results, system: str) -> int:
    """Return the steps between two refreshes of a system's lists."""
    table = rows.tables.get("intervals", pd.DataFrame(columns=["system"])).query("system == @system")
    require(len(table) == 1, f"no refresh interval of {system!r} is recorded", DataError)
    return int(table["interval"].iloc[0])


def _in_blocks(values: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    count = len(values)
    return values, pd.Series(np.arange(count) * min(BLOCKS, count) // count, values.index)


def _last(share: float, *place: object) -> tuple[pd.DataFrame, pd.Series]:
    values = curve(*place)
    return _in_blocks(values.iloc[len(values) - round(share * len(values)) :])


def _window(number: int, *place: object) -> tuple[pd.DataFrame, pd.Series]:
    values = curve(*place)
    size = len(values) // WINDOWS
    require(size > 1, f"{len(values)} recorded steps are too few for {WINDOWS} windows", DataError)
    return _in_blocks(values.iloc[number * size : (number + 1) * size].set_axis(range(size)))


def _quarter(late: bool, before: bool, rows: Results, system: str, *place: str) -> tuple[pd.DataFrame, None]:
    # The mean over the first or the last quarter of each refresh cycle but an unfinished one; of all but the first
    # cycle under the number of the one before, or of all but the last.
    values, every = curve(rows, system, *place), interval(rows, system)
    cycle, phase = np.divmod(values.index.to_numpy(), every)
    early, end = (values[at].groupby(cycle[at]).mean() for at in (phase < every / 4, phase >= 0.75 * every))
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
    total, cycles = profile.groupby(level=1).transform("sum"), profile.index.get_level_values(0).nunique()
    return (profile * (total - profile) / max(1, cycles - 1)).groupby(level=0).mean()


AT_END, THROUGHOUT = (Kind(partial(_last, share), "steps") for share in (END, 1.0))
WINDOW = [Kind(partial(_window, number), "steps of a window", gate=False) for number in range(WINDOWS)]
EARLY, LATE, AFTER_REFRESH = (
    Kind(partial(_quarter, late, before), "cycles", gate=False)
    for late, before in ((False, False), (True, False), (False, True))
)


def swing(of: str) -> Kind:
    """Return the kind of squared swings in step with the refreshes of a system's lists."""
    return Kind(partial(_swing, of), "cycles", gate=False)
