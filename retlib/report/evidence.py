"""From recorded values to the evidence on a claim: comparisons of systems, each with two one-sided p-values.

A test is a function of the recorded values and a comparison, as ``data/papers/bindings.yaml`` writes it
for itself or for all comparisons of its claim; it knows no result. A new one is a function here and a name in `TESTS`.
Every effect points the claim's way: positive, or as a ratio above 1, it speaks for the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.optimize import brentq

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, compare, same_seeds
from retlib.report.records import Records, called, named

# A measure ends at 100 points: sides that are both this near cannot be told apart.
CEILING = 99.0
# At which what a comparison says counts.
LEVEL = 0.05
# Beyond so many times as many questions and seeds it does not matter how many.
FAR = 100
# Points below which a difference is no effect: the margin of those claims, too, that say that two are alike.
WORTH = 1.0


@dataclass(frozen=True)
class Evidence:
    """One comparison of a claim.

    Parameters
    ----------
    label : str
        What is compared (of what is subtracted, or divided by what), on which collection.
    a, b : float
        The two sides' values, in points of a hundred (or steps, or a recorded number and its limit).
    effect, low, high : float
        What speaks for the claim where it is positive, and its 95 % interval: a difference, a trend, or the logarithm
        of a ratio.
    p_for, p_against : float
        One-sided p-values for the claim and against it.
    note : str
        What a reader must know of it.
    smallest : float
        The smallest effect that would have been seen, before any correction; see
        `retlib.evaluation.measures.Comparison.smallest`.
    one_seed : bool
        Whether a trained system has one seed alone: an indication, no verdict.
    ratio : bool
        Whether the effect is the logarithm of a ratio.
    closed : str
        Why it is no comparison; "" where it is one.
    paper : float, optional
        The effect that the paper prints, as a difference in points or as a ratio.
    p_none : float
        p-value for there being no effect; see `none`.
    margin : float
        What the effect must be above; of two that are to be alike, within.
    names : sequence of str
        The two sides, where one is to be ahead of the other.
    place : str
        The measure and the collection.
    values : sequence of float
        What is shown of the sides, in the order of the label; without it `a` and `b`.
    says : str
        A sentence with a ``{}`` for each of the values, in the place of label and values.
    step : str
        What the effect is for each of, where the values are in order.
    counted : str
        What `queries` counts.
    no_curve : bool
        Whether a trained system has no learning curve.
    freedom : float
        Degrees of freedom of its t distribution.
    alike : bool
        Whether it is claimed that the two are alike.
    levels : (float, float)
        What the p-values for the claim and against it must be below, where others are corrected for.
    """

    label: str
    a: float
    b: float
    effect: float
    low: float
    high: float
    p_for: float
    p_against: float
    seeds: int
    queries: int
    note: str = ""
    smallest: float = float("nan")
    one_seed: bool = False
    ratio: bool = False
    closed: str = ""
    paper: float | None = None
    p_none: float = 1.0
    margin: float = 0.0
    names: Sequence[str] = ()
    place: str = ""
    values: Sequence[float] = ()
    says: str = ""
    step: str = ""
    counted: str = "questions"
    no_curve: bool = False
    freedom: float = float("inf")
    alike: bool = False
    levels: tuple[float, float] = (LEVEL, LEVEL)

    @classmethod
    def of(
        cls, label: str, found: Comparison, sides: Sequence[float], p: tuple[float, float], note: str = "", **more: Any
    ) -> Evidence:
        """A comparison with the two sides' values, and the p-values for and against."""
        numbers = (found.effect, *found.interval(), *p, found.seeds, found.queries)
        return cls(label, *sides, *numbers, note, found.smallest(), freedom=found.freedom, **more)

    @property
    def printed(self) -> float:
        """The effect that the paper prints, as `effect` has it; NaN where it prints none."""
        if self.paper is None:
            return float("nan")
        return math.log(self.paper) if self.ratio else self.paper

    def smallest_at(self, level: float, power: float = 0.8) -> float:
        """The smallest effect that would have been seen at another level than 5 %, or with another power."""
        unit = Comparison(0.0, 1.0, self.freedom, 0, 0)
        return self.smallest * unit.smallest(level, power) / unit.smallest()

    @property
    def power(self) -> float:
        """Of one test: 0.8; or 0.9 each, where two must pass for two to be alike, so that both do in 0.8 at least."""
        return 0.9 if self.alike else 0.8

    def _within(self, level: float) -> float:
        """How far from 0 a true effect may be that both tests of two that are to be alike see in four of five."""
        error, bar = self.smallest / Comparison(0.0, 1.0, self.freedom, 0, 0).smallest(), 1 - level

        def unseen(effect: float) -> float:
            ends = ((self.margin + each) / error - special.stdtrit(self.freedom, bar) for each in (effect, -effect))
            return 0.8 - (sum(special.stdtr(self.freedom, end) for end in ends) - 1)

        return brentq(unseen, 0.0, self.margin) if unseen(0.0) < 0 else 0.0

    def times(self, beyond: float, level: float, power: float = 0.8) -> float:
        """How many times as much data shows, at a level, an effect that is so far beyond the margin; else infinity."""
        return max(1, math.ceil((self.smallest_at(level, power) / beyond) ** 2)) if beyond > 0 else math.inf

    def takes(self, beyond: float, level: float) -> str:
        """What it takes to see, at a level, an effect that is so far beyond the margin; "" of one that is not."""
        times = self.times(beyond, level)
        if times in (1, math.inf):
            return "would be seen" * (times == 1)
        more = f"about {times} times" if times <= FAR else f"more than {FAR} times"
        return f"takes {' and '.join(f'{more} as many {each}' for each in (self.counted, 'seeds') if each)}"

    @property
    def wanted(self) -> float:
        """How far the effect that is to be seen is beyond the margin: the paper's; ours, where it prints none.

        Of what is to be alike the margin itself: how far a true effect of 0 is within it.
        """
        if self.alike:
            return self.margin
        effect = self.effect if self.paper is None else self.printed
        return effect - self.margin

    def decides(self, level: float) -> str:
        """How small an effect shows at a level, and what it takes to see the one that is `wanted`."""
        small = self.smallest_at(level)
        if self.alike:
            return f"effects within {least:.2f} of 0 show" if (least := self._within(level)) > 0 else "none can show"
        takes, whose = self.takes(self.wanted, level), "here" if self.paper is None else "the paper's"
        beyond = "is within the margin" if self.wanted + self.margin > 0 else "points the other way"
        beyond = "is just the margin" if self.margin and not self.wanted else beyond
        more = (
            f"one as large as {whose} {takes}"
            if takes
            else f"that {'here' * (self.paper is None) or 'of the paper'} {beyond}"
        )
        return f"effects show from {self.shown(self.margin + small)} on; {more}"

    @property
    def text(self) -> str:
        """The two values and the effect: ``57.1 against 55.0, +2.10 [+1.20, +3.00]``, or ``310 against 1000, x3.23 …``.

        Of values in order all: ``68.7 → 80.4 → 85.0, +5.30 [+4.95, +5.64] a step``.
        """
        sides = (" → " if self.step else " against ").join(self._sides())
        return self._effect() if self.says else f"{sides}, {self._effect()}"

    @property
    def told(self) -> str:
        """What is compared, and what comes of it."""
        return f"{self.compared}: {self.text}"

    @property
    def compared(self) -> str:
        """What is compared, with the values where its words have a place for them."""
        return self.says.format(*self._sides()) if self.says else self.label

    def _sides(self) -> list[str]:
        return [f"{value:.3g}" if self.ratio else f"{value:.1f}" for value in self.values or (self.a, self.b)]

    def _effect(self) -> str:
        """The effect with its interval, and the paper's: ``+2.10 [+1.20, +3.00], paper +1.5``."""
        paper = "" if self.paper is None else f", paper {f'x{self.paper:.3g}' if self.ratio else f'{self.paper:+.4g}'}"
        each = f" a {self.step}" if self.step else ""
        return f"{self.shown(self.effect)} [{self.shown(self.low)}, {self.shown(self.high)}]{each}{paper}"

    def shown(self, effect: float) -> str:
        """An effect in the unit of this comparison."""
        if not self.ratio:
            return f"{effect:+.2f}"
        ratio = float(np.exp(effect))
        return f"x{ratio:.2f}" if 0.1 <= ratio < 1000 else f"x{ratio:.2g}"


def printed(spec: Mapping) -> float | None:
    """The effect that the paper prints for a comparison, turned as ours: above 1 a ratio speaks for the claim."""
    paper = spec.get("paper")
    if paper is None or spec["test"] not in ("fewer", "limit", "quotient"):
        return paper
    # Of these a binding has A over B, or the number itself.
    return paper / spec["above"] if "above" in spec else spec.get("below", 1) / paper


# --- what speaks for a claim and against it: pairs of one-sided p-values -------------------------------


def above(found: Comparison, margin: float = 0.0) -> tuple[float, float]:
    """The effect is above a margin."""
    p = found.p_greater(margin)
    return p, 1 - p


def tested(found: Comparison, margin: float, alike: bool) -> tuple[tuple[float, float], str]:
    """The effect is above a margin or, of what is to be alike, within it on both sides of 0; and that in words."""
    if not alike:
        return above(found, margin), stated(margin)
    # Against: it lies beyond the margin on one side (two sides, hence the doubling).
    beyond = min(found.p_greater(margin), 1 - found.p_greater(-margin))
    return (found.p_equivalent(margin), min(1.0, 2 * beyond)), f"within {in_points(margin)}"


def none(found: Comparison, spec: Mapping) -> float:
    """p-value for no effect: it is within a point of 0, or within the paper's own effect where that is smaller.

    Two one-sided tests, as of two that are to be alike. It is 1 where the 95 % interval leaves out 0, which is an
    effect, if a small one; and of what has a margin, and so asks for more, or for less, than a direction.
    """
    low, high = found.interval()
    if "margin" in spec or "within" in spec or not low <= 0 <= high:
        return 1.0
    paper = spec.get("paper")
    return found.p_equivalent(WORTH if paper is None else min(WORTH, abs(paper)))


def in_points(size: float) -> str:
    """A size in words: "1 point"."""
    return f"{size:g} point{'s' * (size != 1)}"


def stated(margin: float) -> str:
    """What a comparison with a margin asks for."""
    return f"more than {in_points(margin)}" if margin > 0 else f"not worse by {in_points(-margin)}" if margin else ""


def closed(found: Comparison, values: Iterable[pd.DataFrame]) -> str:
    """Why sides cannot be told apart, whatever the systems do; "" where they can."""
    if all(value.to_numpy().mean() >= CEILING for value in values):
        return f"no comparison: all sides are at the measure's ceiling ({CEILING:g} points and more)"
    same = found.effect == 0 and found.by_query is not None and found.by_query[0] == 0
    return "no comparison: all differences are 0" if same else ""


# --- the tests -----------------------------------------------------------------------------------------


def versus(spec: Mapping) -> str:
    """The names of a pair, what is subtracted last."""
    return " minus ".join(named(system)[1] for system in spec["pair"])


def both_of(records: Records, spec: Mapping) -> dict[str, Any]:
    """The names of a pair, and where it is compared."""
    return {"names": [named(system)[1] for system in spec["pair"]],
            "place": f"{records.measure} on {records.on(spec['data'])}"}  # fmt: skip


def _pair(records: Records, spec: Mapping, equal: bool = False) -> list[Evidence]:
    """A less B, averaged over the data sets: above a margin, or within one."""
    systems, margin, parts, every, most = spec["pair"], spec.get("margin", 0.0), [], [], 0
    for data_set in records.collections(spec["data"]).values():
        values = [records.values(system, data_set) for system in systems]
        most = max(most, *(each.shape[1] for each in values))
        a, b = same_seeds(*values)
        parts.append(compare(a, b, records.clusters(systems[0], data_set)))
        every.append((a, b))
    seeds = min(part.seeds for part in parts)
    found = average(parts, records.pooled([(1, systems[0], spec["data"]), (-1, systems[1], spec["data"])], seeds))
    sides = [float(np.mean([value.to_numpy().mean() for value in side])) for side in zip(*every, strict=True)]
    p, note = tested(found, margin, equal)
    note = "; ".join(filter(None, (note, f"over the {seeds} seeds that both have" if most > seeds else "")))
    alone = any(records.one_seed(systems, both) for both in every)
    shut = closed(found, [value for both in every for value in both])
    more = {"one_seed": alone, "closed": shut, "p_none": none(found, spec), "margin": margin, "alike": equal}
    more |= both_of(records, spec)
    return [Evidence.of(records.label(versus(spec), spec["data"]), found, sides, p, note, **more)]


def _trend(records: Records, spec: Mapping) -> list[Evidence]:
    """The linear trend over the systems in order must rise, and no single step may fall."""
    systems, data = spec["systems"], spec["data"]
    values = [records.values(system, data) for system in systems]
    shared = reduce(pd.Index.intersection, (value.columns for value in values))
    require(len(shared) > 0, "the systems of a trend have no seed in common", DataError)
    values = [value[shared] for value in values]

    def pooled(weights: Iterable[float]) -> list[tuple[float, float]]:
        return records.pooled([(w, system, data) for w, system in zip(weights, systems, strict=True)], len(shared))

    found, p = rising(values, records.clusters(systems[0], data), pooled)
    means = [float(value.to_numpy().mean()) for value in values]
    label = records.label(f"from {named(systems[0])[1]} to {named(systems[-1])[1]}", data)
    more = {"one_seed": records.one_seed(systems, values), "closed": closed(found, values)}
    return [Evidence.of(label, found, (means[-1], means[0]), p, values=means, step="step", **more)]


def rising(
    values: Sequence[pd.DataFrame], clusters: pd.Series | None = None, pooled: Callable = lambda weights: ()
) -> tuple[Comparison, tuple[float, float]]:
    """The slope of a line through values in order, and the two p-values of a rise in which no step falls.

    Parameters
    ----------
    values : sequence of DataFrame
        In order; each as `compare` takes them, all with the same index and columns.
    clusters : Series, optional
        As in `compare`.
    pooled : callable, optional
        From weights of the values to what `average` takes of their sum.
    """
    weights = np.arange(len(values)) - (len(values) - 1) / 2
    steps = np.diff(np.eye(len(values)), axis=0)  # each value less the one before
    found, *steps = (
        average([_paired(each, values, clusters)], pooled(each)) for each in (weights / (weights**2).sum(), *steps)
    )
    p_for, p_falls = above(found)
    # Two tests speak against a rise, the line and the steps, of which there are several: each is paid for.
    against = min(len(steps) * min(1 - step.p_greater() for step in steps), p_falls)
    return found, (p_for, min(1.0, 2 * against))


def _linear(records: Records, spec: Mapping) -> list[Evidence]:
    """A weighted sum of systems' values is above a margin, or within so many points of 0.

    The values are paired by query and seed; with `independent` those of one data set are, and the data sets are taken
    for samples of their own.
    """
    terms, apart = spec["terms"], spec.get("independent", False)
    weights, systems = [weight for weight, *_ in terms], [system for _, system, _ in terms]
    values = [records.values(*place) for _, *place in terms]
    together: dict[str, list[int]] = {}
    for number, (*_, on) in enumerate(terms):
        together.setdefault(on if apart else "", []).append(number)
    parts = []
    for mine in together.values():
        shared = reduce(pd.Index.intersection, (values[each].index for each in mine))
        require(len(shared) > 1, "the terms of a comparison share no queries", DataError)
        for each, value in zip(mine, same_seeds(*(values[each].loc[shared] for each in mine)), strict=True):
            values[each] = value
        clusters = records.clusters(*terms[mine[0]][1:])
        parts.append(_paired([weights[each] for each in mine], [values[each] for each in mine], clusters))
    found = _summed(parts, records.pooled(terms, max(value.shape[1] for value in values)))
    if apart:  # each term has its own seeds, and what is not trained one for all
        trained = (value.shape[1] for name, value in zip(systems, values, strict=True) if records.trained(name))
        found = replace(found, seeds=min(trained, default=1))
    means, where = [float(value.to_numpy().mean()) for value in values], {on for *_, on in terms}
    parts = [weight * mean for weight, mean in zip(weights, means, strict=True)]
    sides = sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)
    names = [f"{named(system)[1]} on {called(records.collection(on))}" for _, system, on in terms]
    alike, margin = "within" in spec, spec.get("within", spec.get("margin", 0.0))
    if len(terms) == 1 and not alike:  # beside a printed number
        found, sides, margin = replace(found, effect=found.effect - margin), (parts[0], margin), 0.0
    p, note = tested(found, margin, alike)
    more = {
        "one_seed": records.one_seed(systems, values), "closed": closed(found, values), "p_none": none(found, spec),
        "margin": margin, "names": names if weights == [1, -1] else (), "place": records.measure, "alike": alike,
    }  # fmt: skip
    if "says" not in spec:
        return [Evidence.of(records.label(_sum(weights, names)), found, sides, p, note, **more)]
    shown = [float(np.dot(each, means)) for each in spec["sides"]]
    says = records.label(spec["says"], *(where if len(where) == 1 else ()))
    label = says.format(*["…"] * len(shown))
    return [Evidence.of(label, found, sides, p, note, values=shown, says=says, **more)]


def _sum(weights: Sequence[float], names: Sequence[str]) -> str:
    """A weighted sum in words where it is a value or a difference."""
    if tuple(weights) in ((1,), (1, -1)):
        return " minus ".join(names)
    return " ".join(f"{weight:+g} × ({name})" for weight, name in zip(weights, names, strict=True))


def _paired(weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: pd.Series | None) -> Comparison:
    """The weighted sum query by query, over shared queries and seeds; a system without seeds goes with every seed."""
    total = sum(weight * value.to_numpy(dtype=float) for weight, value in zip(weights, values, strict=True))  # (Q, S)
    widest = max(values, key=lambda value: value.shape[1])
    total = pd.DataFrame(total, index=widest.index, columns=widest.columns)
    return compare(total, total * 0, clusters)


def _summed(parts: Sequence[Comparison], pooled: Sequence[tuple[float, float]]) -> Comparison:
    """The sum of comparisons over queries of their own; seeds may be those of one training, see `average`."""
    count = len(parts)
    mean = average(parts, [(variance / count**2, freedom) for variance, freedom in pooled])
    by_query = mean.by_query[0] * count**2, mean.by_query[1]
    return Comparison(count * mean.effect, count * mean.error, mean.freedom, mean.queries, mean.seeds, by_query)


TESTS: dict[str, Callable[[Records, Mapping], list[Evidence]]] = {
    "greater": _pair,
    "equivalent": partial(_pair, equal=True),
    "trend": _trend,
    "linear": _linear,
}
