"""From recorded training curves to the evidence on a claim (Zhan 2020, section 6.1).

The table ``curves`` of an experiment holds a value for each system, seed, step and measure, and
``intervals`` the steps between the refreshes of each system's lists. At one step and seed all
systems are measured on the same training queries, so that a step is to them what a query is to
ranked lists: curves are compared step by step with `retlib.evaluation.measures.compare`, steps and
seeds both as random effects. What one step learns the next one has, so steps of one training
are not independent of each other: they count by blocks of consecutive ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import compare, same_seeds
from retlib.report.evidence import Evidence, above, both_of, none, rising, stated, versus
from retlib.report.gate import END
from retlib.report.records import Records, named

# A curve is smoothed by its means over so many windows of equal length.
WINDOWS = 10
# Steps that are compared count as so many blocks.
BLOCKS = 10
# Parts of a refresh cycle; odd, so that a moving average over a whole cycle has a middle.
PHASES = 5


def curve(records: Records, system: str) -> pd.DataFrame:
    """A system's values of the records' measure, in points of a hundred: index step, a column for each seed.

    Raises
    ------
    DataError
        If the experiment has no such curve.
    """
    table, (experiment, name) = records.table("curves", system), named(system)
    mine = table[table["measure"] == records.measure]
    require(len(mine) > 0, f"no curve of {records.measure} of {name!r} is recorded in {experiment}", DataError)
    return mine.pivot(index="step", columns="seed", values="value").dropna() * 100


def interval(records: Records, system: str) -> int:
    """Steps between the refreshes of a system's lists; `DataError` if they are not recorded."""
    mine, (experiment, name) = records.table("intervals", system), named(system)
    require(len(mine) == 1, f"no refresh interval of {name!r} is recorded in {experiment}", DataError)
    return int(mine["interval"].iloc[0])


def _mean(values: pd.DataFrame) -> float:
    return float(values.to_numpy().mean())


def _blocks(steps: pd.Index) -> pd.Series:
    """Step to its block: neighbouring steps are alike, and count together."""
    return pd.Series(np.arange(len(steps)) * min(BLOCKS, len(steps)) // len(steps), index=steps)


def _rise(records: Records, spec: Mapping) -> list[Evidence]:
    """Over ten windows the linear trend rises, and from no window to the next does the curve fall."""
    values = curve(records, spec["system"])
    size = len(values) // WINDOWS
    require(size > 1, f"{len(values)} recorded steps are too few for {WINDOWS} windows", DataError)
    windows = [values.iloc[i * size : (i + 1) * size].set_axis(range(size)) for i in range(WINDOWS)]
    found, p = rising(windows, _blocks(windows[0].index))
    label, sides = records.label(named(spec["system"])[1], spec["data"]), (_mean(windows[-1]), _mean(windows[0]))
    note = f"the first and the last of {WINDOWS} windows"
    more = {"one_seed": found.seeds == 1, "values": sides[::-1], "step": "window", "counted": "steps of a window"}
    return [Evidence.of(label, found, sides, p, note, **more)]


def _pair(records: Records, spec: Mapping, share: float = END) -> list[Evidence]:
    """A less B over the last `share` of the steps is above a margin."""
    a, b = same_seeds(*(curve(records, system) for system in spec["pair"]))
    steps = a.index.intersection(b.index)
    steps = steps[len(steps) - round(share * len(steps)) :]
    require(len(steps) > 1, f"{' and '.join(spec['pair'])} share fewer than two recorded steps", DataError)
    a, b = a.loc[steps], b.loc[steps]
    found, margin = compare(a, b, _blocks(steps)), spec.get("margin", 0.0)
    note = "all steps" if share == 1 else f"the last {share:.0%} of the steps"
    note += f", {stated(margin)}" if margin else ""
    label, sides = records.label(versus(spec), spec["data"]), (_mean(a), _mean(b))
    more = {"one_seed": found.seeds == 1, "p_none": none(found, spec), "margin": margin, "counted": "steps"}
    return [Evidence.of(label, found, sides, above(found, margin), note, **more, **both_of(records, spec))]


def _sawtooth(records: Records, spec: Mapping) -> list[Evidence]:
    """Within a refresh cycle the curve falls from the first quarter to the last, and at the next refresh it jumps."""
    values, every = curve(records, spec["system"]), interval(records, spec["system"])
    phase = values.index.to_numpy() % every / every
    cycle = values.index.to_numpy() // every
    early, late = (values[at].groupby(cycle[at]).mean() for at in (phase < 0.25, phase >= 0.75))
    whole = early.index.intersection(late.index)
    require(len(whole) > 2, f"a sawtooth needs three whole cycles of {every} steps", DataError)
    early, late = early.loc[whole], late.loc[whole]
    after, evidence = early.iloc[1:].set_axis(whole[:-1]), []
    parts = (("after a refresh vs before the next", early, late), ("at a refresh", after, late.iloc[:-1]))
    for what, a, b in parts:
        found, differences = compare(a, b), (a - b).mean(axis=1)
        note = f"A above B in {int((differences > 0).sum())} of {len(differences)} cycles of {every} steps"
        label = records.label(f"{named(spec['system'])[1]}, {what}", spec["data"])
        sides, more = (_mean(a), _mean(b)), {"one_seed": found.seeds == 1, "counted": "cycles"}
        evidence.append(Evidence.of(label, found, sides, above(found), note, **more))
    return evidence


def _swing(records: Records, spec: Mapping) -> list[Evidence]:
    """A swings more than B in step with the refreshes of A.

    What repeats from cycle to cycle is the product of a cycle's profile with the mean profile of
    the other cycles: its expectation is the squared swing, and 0 for noise, however large.
    """
    every = interval(records, spec["pair"][0])
    a, b = same_seeds(*(_repeated(curve(records, system), every) for system in spec["pair"]))
    shared = a.index.intersection(b.index)
    require(len(shared) > 2, f"a swing needs five whole cycles of {every} steps", DataError)
    a, b = a.loc[shared], b.loc[shared]
    found, sides = compare(_pseudovalues(a), _pseudovalues(b)), (_mean(a), _mean(b))
    note = f"what repeats every {every} steps, squared: an estimate, which noise can put below 0"
    label = records.label(f"squared swings of {versus(spec)}", spec["data"])
    # Squared points: of a swing of a point, 1.
    more = {"one_seed": found.seeds == 1, "p_none": none(found, spec), "counted": "cycles"}
    return [Evidence.of(label, found, sides, above(found), note, **more)]


def _pseudovalues(products: pd.DataFrame) -> pd.DataFrame:
    """The jackknife's values of a mean over pairs of cycles, given each cycle's mean over its pairs.

    A cycle is in the products of all others, too: the products alone would show about half of the variance.
    """
    count = len(products)
    return (2 * (count - 1) * products - count * products.mean()) / (count - 2)


def _repeated(values: pd.DataFrame, every: int) -> pd.DataFrame:
    """For each whole cycle but the first and the last, how far its profile is that of the others."""
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


TESTS: dict[str, Callable[[Records, Mapping], list[Evidence]]] = {
    "rise": _rise,
    "above_at_end": _pair,
    "above_throughout": partial(_pair, share=1.0),
    "sawtooth": _sawtooth,
    "swing": _swing,
}
