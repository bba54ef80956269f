"""What recorded numbers, one a seed, say of a claim: steps and times, on the logarithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import pandas as pd
from scipy.stats import gmean

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, is_score
from retlib.report.evidence import Evidence, above
from retlib.report.records import Records, named


def _fewer(records: Records, spec: Mapping) -> list[Evidence]:
    """Over seeds, on the logarithm of the training steps to the best weights: B / A is what a reader asks for."""
    a, b = (records.by_seed(system, spec["data"], "steps", records.measure) for system in spec["pair"])
    shared = a.index.intersection(b.index)
    require(len(shared) > 1, "a comparison of training steps needs at least two seeds", DataError)
    a, b = a[shared], b[shared]
    require(bool((a > 0).all() and (b > 0).all()), "a training never got better than its start", DataError)
    found = _over_seeds(np.log(b) - np.log(a))
    less, more = (named(system)[1] for system in spec["pair"])
    # Rows of the seconds to something have the steps to it, too; others those to the best weights.
    until = records.measure.removeprefix("seconds") if records.measure.startswith("seconds ") else ""
    label = f"steps{until}: {more} / {less} (geometric means), on {records.on(spec['data'])}"
    sides = gmean(a), gmean(b)
    return [Evidence.of(label, found, sides, above(found), ratio=True, values=sides[::-1], counted="")]


def _limit(records: Records, spec: Mapping) -> list[Evidence]:
    """A recorded number (a time, a size), or A's over B's, is below or above a limit, on the logarithm."""
    systems, measure = spec.get("pair") or [spec["system"]], spec["measure"]
    logs, names = [], [named(system)[1] for system in systems]
    for system, name in zip(systems, names, strict=True):
        values = records.by_seed(system, spec["data"], "value", measure)
        require(len(values) > 1, f"{name!r} has fewer than two recorded values of {measure!r}", DataError)
        require(bool((values > 0).all()), f"{name!r} has no logarithm of {measure!r}", DataError)
        logs.append(np.log(values))
    ratio, name = reduce(lambda a, b: (a - b).dropna(), logs), " / ".join(names)
    require(len(ratio) > 1, f"{name}: fewer than two shared repetitions of {measure!r}", DataError)
    side = "below" if "below" in spec else "above"
    limit, value = float(spec[side]), float(np.exp(ratio.mean()))
    beyond = ratio - np.log(limit)
    found = _over_seeds(beyond if side == "above" else -beyond)
    rival = " x ".join([f"{limit:g}"] * (limit != 1 or len(names) == 1) + names[1:])
    label = f"{names[0]} / {rival}" if side == "above" else f"{rival} / {names[0]}"
    more = {"ratio": True, "counted": ""}
    if len(logs) == 1:
        more |= {"values": (value, limit), "says": f"{measure} of {names[0]} is {{}}, asked {side} {{}}"}
    else:
        points = 100 if is_score(measure.split()[0]) else 1
        shown = [points * float(np.exp(each[ratio.index].mean())) for each in logs]
        more["values"] = shown if side == "above" else shown[::-1]
    return [Evidence.of(f"{measure}: {label}", found, (value, limit), above(found), **more)]


def _over_seeds(values: pd.Series) -> Comparison:
    """The mean of a value by seed, with its error; `DataError` where the seeds are equal, as steps may be."""
    count = len(values)
    require(values.nunique() > 1, f"all {count} seeds have one value: there is no error to compare it with", DataError)
    return Comparison(float(values.mean()), values.std(ddof=1) / count**0.5, count - 1, 0, count)


TESTS: dict[str, Callable[[Records, Mapping], list[Evidence]]] = {
    "fewer": _fewer,
    "limit": _limit,
    "quotient": _limit,
}
