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
    lines = rows.tables["curves"].query("system == @system and measure == @measure")
    require(len(lines) > 0, f"no curve of {measure} of {system!r} is recorded", DataError)
    return lines.pivot(index="step", columns="seed", values="value").dropna() * 100


def _refresh_every(rows: Results, system: str) -> int:
    # The steps between two refreshes of a system's lists.
    intervals = rows.tables["intervals"].set_index("system")["interval"]
    require(system in intervals, f"no refresh interval of {system!r} is recorded", DataError)
    return int(intervals[system])


def _in_blocks(window: int | None, share: float, *place: object) -> tuple[pd.DataFrame, pd.Series]:
    # A window of a curve, or its last share.
    values = curve(*place)
    if window is not None:
        size = len(values) // WINDOWS
        require(size > 1, f"{len(values)} recorded steps are too few for {WINDOWS} windows", DataError)
        values = values.iloc[window * size :][:size].set_axis(range(size))
    values = values.iloc[len(values) - round(share * len(values)) :]
    blocks = np.arange(len(values)) * min(BLOCKS, len(values)) // len(values)
    return values, pd.Series(blocks, values.index)


def _quarter(which: str, rows: Results, system: str, *place: str) -> tuple[pd.DataFrame, None]:
    # The mean over the first or the last quarter of each refresh cycle but an unfinished one; or over the first of all
    # but the first cycle, under the number of the cycle before.
    values, every = curve(rows, system, *place), _refresh_every(rows, system)
    cycle, phase = np.divmod(values.index.to_numpy(), every)
    early, late = (values[at].groupby(cycle[at]).mean() for at in (phase < every / 4, phase >= 0.75 * every))
    whole = early.index.intersection(late.index)
    require(len(whole) > 2, f"a sawtooth needs three whole cycles of {every} steps", DataError)
    after = early.loc[whole[1:]].set_axis(whole[:-1])
    return {"early": early.loc[whole], "late": late.loc[whole], "after": after}[which], None


def _swing(of: str, rows: Results, system: str, *place: str) -> tuple[pd.DataFrame, None]:
    # What repeats from cycle to cycle is the product of a cycle's profile with the mean profile of the other cycles:
    # its expectation is the squared swing, and 0 for noise, however large. A cycle is in the products of all others,
    # too; so these are the jackknife's values of their mean.
    every = _refresh_every(rows, of)
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
    profile = profile.unstack().dropna()  # whole cycles, by seed and part
    products = profile * (profile.sum() - profile) / max(1, len(profile) - 1)
    return products.T.groupby(level=0).mean().T


AT_END, THROUGHOUT = (Kind(partial(_in_blocks, None, share), "steps") for share in (END, 1.0))
WINDOW = [Kind(partial(_in_blocks, n, 1.0), "steps of a window", gate=False) for n in range(WINDOWS)]
EARLY, LATE, AFTER_REFRESH = (
    Kind(partial(_quarter, which), "cycles", gate=False) for which in ("early", "late", "after")
)


def swing(of: str) -> Kind:
    """Return the kind of squared swings in step with the refreshes of a system's lists."""
    return Kind(partial(_swing, of), "cycles", gate=False)
