"""The gate: a verdict needs systems that work and a measure that tells them apart.

Training curves tell which systems work. Recall at k says little where k is a good part of the candidates.

Beside the rows of an experiment, its table ``learning`` has what validation saw of the last stage of each trained
system, by collection and seed: `step`, `score` in points of a hundred, and whether the weights of the step were `kept`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from retlib.report.evidence import Evidence
from retlib.report.records import Records, named, used

# The end of a training, in which it must have come to rest: the last fifth of its steps.
END = 0.2
# Points within which two validation scores are alike: 500 queries have an error of one or two points, most of which
# is that of the queries, and so of both scores.
NOISE = 1.0
# Recall at k tells little where k is a larger part of the candidates than this.
DEEPEST = 1 / 20
# What is said of the quality that a training ends with. The other tests are of its course, of times and of sizes.
GATED = ("greater", "equivalent", "trend", "linear", "fewer", "above_at_end", "above_throughout")


def gated(records: Records, spec: Mapping, each: Evidence, condition: bool) -> Evidence:
    """A comparison, closed where its measure is too deep, or a trained system still learns or is below its own start.

    A system still learns if, on average over seeds, its best score of the last fifth of the training is above the best
    before by more than what the comparison is about, its effect or its margin, and by more than a point: that is
    within the noise of 500 validation questions. Of a comparison that is not in points the point alone counts.

    Parameters
    ----------
    spec : mapping
        The comparison as the bindings have it. `floor` opens the gate, for claims on trainings that go wrong, or
        closes it for tests that do not have one.
    each : Evidence
        What its test found.
    condition : bool
        Of a condition of a claim, which is no estimate of an effect: its systems may still learn.
    """
    each = replace(each, closed=each.closed or too_deep(records, spec))
    if not spec.get("floor", spec["test"] in GATED) or each.closed:
        return each
    effect = 0.0 if each.ratio else abs(each.effect)
    large, found = max(effect, abs(spec.get("margin", spec.get("within", 0.0))), NOISE), []
    large = float("inf") if condition else large
    for system, data_set in used(spec):
        if end := ending(records, system, data_set):
            found.append(failing(named(system)[1], records.on(data_set), end, large))
        elif len(records.by_seed(system, data_set, "steps")):  # it was trained by the loop that watches validation
            each = replace(each, no_curve=True)
    return replace(each, closed=next(filter(None, found), ""))


def too_deep(records: Records, spec: Mapping) -> str:
    """Why recall at this k, if that is the measure, is near its ceiling whatever the systems do; "" where it is not."""
    if not (recall := re.fullmatch(r"R@(\d+)", records.measure)):
        return ""
    few = min(records.candidates(*place) for place in used(spec))
    said = f"{records.measure} among {few:g} candidates is near its ceiling: k is more than a twentieth of them"
    return said if int(recall[1]) > DEEPEST * few else ""


class Ending(NamedTuple):
    """How the trainings of a system ended, on validation, in points; means over seeds.

    Parameters
    ----------
    steps : int
        Of the longest.
    rise : float
        By how much the best score of the last fifth of the steps is above the best before.
    start, kept : float
        The score before the first step, and of the weights that were kept; NaN where none was taken at the start.
    """

    steps: int
    rise: float
    start: float
    kept: float


def endings(curves: pd.DataFrame) -> dict[tuple[str, str], Ending]:
    """How all trainings of a table ``learning`` ended: system and collection to that."""
    keys = ["system", "collection", "seed"]
    last = curves["step"] > (1 - END) * curves.groupby(keys)["step"].transform("max")
    parts = {"last": last, "before": ~last, "start": curves["step"] == 0, "kept": curves["kept"]}
    best = pd.DataFrame({name: curves[part].groupby(keys)["score"].max() for name, part in parts.items()})
    best["kept"] = best["kept"].where(best["start"].notna())
    best.insert(0, "rise", best.pop("last") - best.pop("before"))
    means, steps = best.groupby(keys[:2]).mean(), curves.groupby(keys[:2])["step"].max()
    return {
        place: Ending(int(steps[place]), *scores) for place, scores in zip(means.index, means.to_numpy(), strict=True)
    }


def ending(records: Records, system: str, data_set: str) -> Ending | None:
    """How the trainings of a system ended on the collection of a data set; None where no learning curve is recorded."""
    found, name = records.of(system)
    curves = found.tables.get("learning")
    known = {} if curves is None else found.once("endings", curves, endings)
    return known.get((name, records.collection(data_set)))


def failing(name: str, where: str, end: Ending, large: float) -> str:
    """What is wrong with a system whose trainings ended so, given what is a large rise; "" if nothing is."""
    if end.rise > large:
        rose = f"{name} rose by {end.rise:.1f} points in the last fifth of {end.steps} steps"
        return f"still learning on {where}: {rose}; more than {end.steps} steps are needed"
    below = f"{name} has {end.kept:.1f} points on validation, and began with {end.start:.1f}"
    return f"below its own start on {where}: {below}" if end.kept < end.start - NOISE else ""
