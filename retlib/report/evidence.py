"""From recorded values to the evidence on a claim: comparisons of systems, each with two one-sided p-values.

A test is a function of the recorded values and a comparison, as ``data/papers/bindings.yaml`` writes it
for itself or for all comparisons of its claim; it knows no result. A new one is a function here and a name in `TESTS`.
Every effect points the claim's way: positive, or as a ratio above 1, it speaks for the claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, between_seeds, compare, same_seeds
from retlib.evaluation.results import Results

# A measure ends at 100 points: sides that are both this near cannot be told apart.
CEILING = 99.0
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
    seeds, queries : int
    note : str
        What a reader must know of it.
    smallest : float
        The smallest effect that would have been seen; see `retlib.evaluation.measures.Comparison.smallest`.
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

    @classmethod
    def of(
        cls,
        label: str,
        found: Comparison,
        sides: Sequence[float],
        p: tuple[float, float],
        note: str = "",
        **more: bool | str | float,
    ) -> Evidence:
        """A comparison with the two sides' values, and the p-values for and against."""
        numbers = (found.effect, *found.interval(), *p, found.seeds, found.queries)
        return cls(label, *sides, *numbers, note, found.smallest(), **more)

    @property
    def text(self) -> str:
        """The effect with its interval, as pages show it: ``+2.10 [+1.20, +3.00]``, or ``x0.31 [x0.25, x0.40]``."""
        paper = "" if self.paper is None else f", paper {f'x{self.paper:.3g}' if self.ratio else f'{self.paper:+g}'}"
        return f"{self.shown(self.effect)} [{self.shown(self.low)}, {self.shown(self.high)}]{paper}"

    def shown(self, effect: float) -> str:
        """An effect in the unit of this comparison."""
        if not self.ratio:
            return f"{effect:+.2f}"
        ratio = float(np.exp(effect))
        return f"x{ratio:.2f}" if 0.1 <= ratio < 1000 else f"x{ratio:.2g}"


def named(system: str) -> tuple[str, str]:
    """The experiment and the name within it, of a system as the bindings write it: ``experiment:name``."""
    experiment, _, name = system.partition(":")
    return experiment, name


def used(spec: Mapping) -> list[tuple[str, str]]:
    """The systems (``experiment:name``) that a comparison needs, each with the paper's data set."""
    if "terms" in spec:
        return [(system, data_set) for _, system, data_set in spec["terms"]]
    return [*product(spec.get("pair") or spec.get("systems") or [spec["system"]], spec["data"].split("+"))]


def printed(spec: Mapping) -> float | None:
    """The effect that the paper prints for a comparison, turned as ours: above 1 a ratio speaks for the claim."""
    paper = spec.get("paper")
    if paper is None or spec["test"] not in ("fewer", "limit", "quotient"):
        return paper
    # Of these a binding has A over B, or the number itself.
    return paper / spec["above"] if "above" in spec else spec.get("below", 1) / paper


class Records:
    """The recorded values of a paper's experiments at one profile, for one measure.

    Parameters
    ----------
    profile : str
    places : mapping
        The paper's data set to profile to its collection, as the bindings have it.
    measure : str
    load : callable
        Experiment to its results, or to None where it has none; called again and again.
    """

    def __init__(self, profile: str, places: Mapping[str, Mapping], measure: str, load: Callable) -> None:
        self.profile, self.places, self.measure, self._load = profile, places, measure, load
        self._variances: dict[tuple, tuple[tuple[float, int], ...]] = {}

    def of(self, system: str) -> tuple[Results, str]:
        """The results of a system's experiment, and its name in them; `DataError` if there are none."""
        experiment, name = named(system)
        found = self._load(experiment)
        require(found is not None, f"experiment {experiment} has no results at profile {self.profile}", DataError)
        return found, name

    def collection(self, data_set: str) -> str:
        """The collection that stands for a paper's data set."""
        place = self.places.get(data_set, {}).get(self.profile)
        require(place is not None, f"no collection stands for {data_set} at profile {self.profile}", DataError)
        return place["collection"]

    def collections(self, data_sets: str) -> dict[str, str]:
        """Those of several data sets, joined by +, each once: collection to one data set that it stands for."""
        return {self.collection(data_set): data_set for data_set in data_sets.split("+")}

    def label(self, what: str, data_sets: str = "") -> str:
        """What is compared, and where; with the measure, where it is not that of most claims."""
        measure = "" if self.measure == "AP@100" else f"{self.measure}: "
        return measure + what + (f", on {' and '.join(self.collections(data_sets))}" if data_sets else "")

    def values(self, system: str, data_set: str) -> pd.DataFrame:
        """Per-query values in points of a hundred: index query, a column for each seed."""
        found, name = self.of(system)
        return found.per_query(self.collection(data_set), "test", self.measure, name) * 100

    def clusters(self, system: str, data_set: str) -> pd.Series:
        """Query to cluster."""
        return self.of(system)[0].clusters(self.collection(data_set), "test", self.measure)

    def by_seed(self, system: str, data_set: str, column: str, measure: str | None = None) -> pd.Series:
        """What is in a column of a system's rows, of those of a measure or of all, by seed."""
        found, name = self.of(system)
        rows = found.of_system(name)
        rows = rows[rows["collection"] == self.collection(data_set)]
        rows = rows if measure is None else rows[rows["measure"] == measure]
        # Rows of costs, and of systems that are not trained, have no steps.
        values = rows.reindex(columns=["seed", column]).dropna().drop_duplicates("seed")
        return values.set_index("seed")[column].sort_index().astype(float)

    def candidates(self, system: str, data_set: str) -> float:
        """Among how many candidates a system was measured; infinite where it is unknown."""
        found, name = self.of(system)
        rows = found.of_system(name)
        rows = rows[rows["collection"] == self.collection(data_set)]
        mine = rows[rows["measure"] == self.measure]  # of curves there are no rows, but of their ends
        rows = (mine if len(mine) else rows).reindex(columns=["candidates"])
        return float(rows["candidates"].dropna().astype(float).min()) if rows["candidates"].notna().any() else np.inf

    def trained(self, system: str) -> bool:
        """Whether a system was trained, so that another seed would give another one."""
        found, name = self.of(system)
        rows = found.of_system(name).reindex(columns=["seed", "steps", "measure"])
        # Times are recorded with every seed, of what is not trained, too.
        return bool(rows["steps"].notna().any()) or rows["seed"][rows["measure"] == self.measure].nunique() > 1

    def one_seed(self, systems: Iterable[str], values: Iterable[pd.DataFrame]) -> bool:
        """Whether the values of a trained system are of one seed alone."""
        return any(value.shape[1] == 1 and self.trained(name) for name, value in zip(systems, values, strict=True))

    def pooled(self, terms: Iterable[tuple[float, str, str]], seeds: int) -> list[tuple[float, float]]:
        """The variance over seeds of a weighted sum of systems, from all trained systems of their chapters.

        For `retlib.evaluation.measures.average`: of each chapter the two parts that
        `retlib.evaluation.measures.between_seeds` finds, each with its weight, over the number of seeds.

        Parameters
        ----------
        terms : iterable of (float, str, str)
            Weight, system, and data sets joined by +, over which its values are averaged first: one model answers all.
        seeds : int
            Over which the sum is taken.
        """
        weights: dict[tuple, list[float]] = defaultdict(list)
        for weight, system, data_sets in terms:
            if self.trained(system):
                weights[named(system)[0], tuple(self.collections(data_sets))].append(weight)
        found: list[tuple[float, float]] = []
        for where, mine in weights.items() if seeds > 1 else ():
            squares, total = sum(weight**2 for weight in mine), sum(mine)
            for factor, (variance, freedom) in zip((squares, total**2), self._between_seeds(*where), strict=False):
                found += [(factor * variance / seeds, freedom)] if factor * variance > 0 else []
        return found

    def _between_seeds(self, experiment: str, collections: tuple[str, ...]) -> tuple[tuple[float, int], ...]:
        """`between_seeds` of a chapter's systems that have the same seeds; empty where there are no two."""
        where = experiment, collections
        if where not in self._variances:
            found, means = self._load(experiment), {}
            first, *others = ([*found.systems(name, "test", self.measure)] for name in collections)
            for system in (each for each in first if all(each in other for other in others)):
                values = [found.per_query(name, "test", self.measure, system) for name in collections]
                means[system] = pd.concat([each.mean() for each in values], axis=1, join="inner").mean(axis=1) * 100
            most = max((len(each) for each in means.values()), default=0)
            together = pd.DataFrame({name: each for name, each in means.items() if len(each) == most}).T.dropna(axis=1)
            several = most > 1 and min(together.shape) > 1
            self._variances[where] = between_seeds(together) if several else ()
        return self._variances[where]

    def table(self, kind: str, system: str) -> pd.DataFrame:
        """A system's lines of one of its experiment's tables; none where there is no such table."""
        found, name = self.of(system)
        table = found.tables.get(kind, pd.DataFrame(columns=["system", "measure", "collection"]))
        return table[table["system"] == name]


# --- what speaks for a claim and against it: pairs of one-sided p-values -------------------------------


def above(found: Comparison, margin: float = 0.0) -> tuple[float, float]:
    """The effect is above a margin."""
    p = found.p_greater(margin)
    return p, 1 - p


def within(found: Comparison, margin: float) -> tuple[float, float]:
    """The effect is within a margin on both sides of 0."""
    # Against: it lies beyond the margin on one side (two sides, hence the doubling).
    beyond = min(found.p_greater(margin), 1 - found.p_greater(-margin))
    return found.p_equivalent(margin), min(1.0, 2 * beyond)


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


def stated(margin: float) -> str:
    """What a comparison with a margin asks for."""
    return f"more than {margin:g} points" if margin > 0 else f"not worse by {-margin:g} points" if margin else ""


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


def _pair(records: Records, spec: Mapping, equal: bool = False) -> list[Evidence]:
    """A less B, averaged over the data sets: above a margin, or within one."""
    systems, margin, parts, every = spec["pair"], spec.get("margin", 0.0), [], []
    for data_set in records.collections(spec["data"]).values():
        a, b = same_seeds(*(records.values(system, data_set) for system in systems))
        parts.append(compare(a, b, records.clusters(systems[0], data_set)))
        every.append((a, b))
    seeds = min(part.seeds for part in parts)
    found = average(parts, records.pooled([(1, systems[0], spec["data"]), (-1, systems[1], spec["data"])], seeds))
    sides = [float(np.mean([value.to_numpy().mean() for value in side])) for side in zip(*every, strict=True)]
    p, note = (within(found, margin), f"within {margin:g} points") if equal else (above(found, margin), stated(margin))
    alone = any(records.one_seed(systems, both) for both in every)
    shut = closed(found, [value for both in every for value in both])
    more = {"one_seed": alone, "closed": shut, "p_none": none(found, spec)}
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
    note = f"values {', '.join(f'{mean:.1f}' for mean in means)}; the effect is the rise from one system to the next"
    label = records.label(f"{len(values)} systems in order, {named(systems[0])[1]} to {named(systems[-1])[1]}", data)
    sides, alone, shut = (means[-1], means[0]), records.one_seed(systems, values), closed(found, values)
    return [Evidence.of(label, found, sides, p, note, one_seed=alone, closed=shut)]


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
    weights /= (weights**2).sum()
    slope = reduce(lambda x, y: x + y, (value * weight for value, weight in zip(values, weights, strict=True)))
    found, steps = average([compare(slope, slope * 0, clusters)], pooled(weights)), []
    for place, (before, after) in enumerate(zip(values, values[1:], strict=False)):
        step = np.eye(len(values))[place + 1] - np.eye(len(values))[place]
        steps.append(average([compare(after, before, clusters)], pooled(step)))
    p_for, p_falls = above(found)
    # Two tests speak against a rise, the line and the steps, of which there are several: each is paid for.
    against = min(len(steps) * min(1 - step.p_greater() for step in steps), p_falls)
    return found, (p_for, min(1.0, 2 * against))


def _linear(records: Records, spec: Mapping) -> list[Evidence]:
    """A weighted sum of systems' values is above a margin, or within so many points of 0.

    The values are paired by query and seed where the systems share them; with `independent`, those of each term are
    taken for samples of their own.
    """
    terms = spec["terms"]
    weights, systems = [weight for weight, *_ in terms], [system for _, system, _ in terms]
    values = [records.values(*place) for _, *place in terms]
    clusters = [records.clusters(*place) for _, *place in terms]
    if not spec.get("independent"):
        shared = reduce(pd.Index.intersection, (value.index for value in values))
        require(len(shared) > 1, "the terms of a comparison share no queries", DataError)
        values = same_seeds(*(value.loc[shared] for value in values))
    sums = _independent if spec.get("independent") else _paired
    found = sums(weights, values, clusters, records.pooled(terms, max(value.shape[1] for value in values)))
    parts = [weight * float(value.to_numpy().mean()) for weight, value in zip(weights, values, strict=True)]
    sides = sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)
    label = _sum([(weight, f"{named(system)[1]} on {records.collection(on)}") for weight, system, on in terms])
    if "within" in spec:
        p, note = within(found, spec["within"]), f"within {spec['within']} points"
    else:
        p, note = above(found, spec.get("margin", 0.0)), stated(spec.get("margin", 0.0))
    more = {"one_seed": records.one_seed(systems, values), "closed": closed(found, values), "p_none": none(found, spec)}
    return [Evidence.of(records.label(label), found, sides, p, note, **more)]


def _sum(terms: Sequence[tuple[float, str]]) -> str:
    """A weighted sum in words where it is a value, a difference or a difference of two differences."""
    signs, names = tuple(weight for weight, _ in terms), [name for _, name in terms]
    if signs == (1,):
        return names[0]
    if signs == (1, -1):
        return f"{names[0]} minus {names[1]}"
    if signs in ((1, -1, -1, 1), (-1, 1, 1, -1)):
        a, b, c, d = names if signs[0] == 1 else (names[1], names[0], names[3], names[2])
        return f"({a} minus {b}) minus ({c} minus {d})"
    return " ".join(f"{weight:+g} × ({name})" for weight, name in terms)


def _paired(
    weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: Sequence[pd.Series], pooled: Sequence
) -> Comparison:
    """The weighted sum query by query, over shared queries and seeds; a system without seeds goes with every seed."""
    total = sum(weight * value.to_numpy(dtype=float) for weight, value in zip(weights, values, strict=True))  # (Q, S)
    widest = max(values, key=lambda value: value.shape[1])
    total = pd.DataFrame(total, index=widest.index, columns=widest.columns)
    return average([compare(total, total * 0, clusters[0])], pooled)


def _independent(
    weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: Sequence[pd.Series], pooled: Sequence
) -> Comparison:
    """The weighted sum of means over queries of their own; seeds may be those of one training, see `average`."""
    parts = [compare(value * w, value * 0, c) for w, value, c in zip(weights, values, clusters, strict=True)]
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
