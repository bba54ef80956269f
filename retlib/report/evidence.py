"""From recorded values to the evidence on a claim: comparisons of systems, each with two one-sided p-values.

A test is a function of the recorded values and a comparison, as ``data/papers/bindings.yaml`` writes it
for itself or for all comparisons of its claim; it knows no result. A new one is a function here and a name in `TESTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation import results
from retlib.evaluation.measures import Comparison, average, compare, same_seeds


@dataclass(frozen=True)
class Evidence:
    """One comparison of a claim.

    Parameters
    ----------
    label : str
        What is compared, on which collection.
    a, b : float
        The two systems' values, in points of a hundred (or steps).
    effect, low, high : float
        A - B (or the trend, or log A - log B) and its 95 % interval.
    p_for, p_against : float
        One-sided p-values for the claim and against it.
    seeds, queries : int
    note : str
        What a reader must know of it.
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

    @property
    def text(self) -> str:
        """The effect with its interval, as pages show it: ``+2.10 [+1.20, +3.00]``."""
        return f"{self.effect:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class Records:
    """The per-query values of a paper's experiments at one profile, for one measure.

    Parameters
    ----------
    load : callable
        Experiment to its results, or to None where it has none; called again and again.
    """

    def __init__(self, profile: str, places: Mapping[str, Mapping[str, str]], measure: str, load: Callable) -> None:
        self.profile, self.places, self.measure, self._load = profile, places, measure, load

    def results(self, experiment: str) -> results.Results:
        """An experiment's results; `DataError` if it has none."""
        found = self._load(experiment)
        if found is None:
            raise DataError(f"experiment {experiment} has no results at profile {self.profile}")
        return found

    def collection(self, data_set: str) -> str:
        """The collection that plays a paper's data set."""
        place = self.places.get(data_set, {}).get(self.profile)
        if place is None:
            raise DataError(f"no collection plays {data_set} at profile {self.profile}")
        return place["collection"]

    def values(self, system: str, data_set: str) -> pd.DataFrame:
        """Per-query values in points of a hundred, a column for each seed."""
        experiment, name = system.split(":", 1)
        return self.results(experiment).per_query(self.collection(data_set), "test", self.measure, name) * 100

    def clusters(self, system: str, data_set: str) -> pd.Series:
        """Query to cluster."""
        experiment, _ = system.split(":", 1)
        return self.results(experiment).clusters(self.collection(data_set), "test", self.measure)

    def steps(self, system: str, data_set: str) -> pd.Series:
        """Training steps to the best weights, by seed."""
        experiment, name = system.split(":", 1)
        rows = self.results(experiment).rows
        mine = rows[(rows["system"] == name) & (rows["collection"] == self.collection(data_set))]
        # Rows of costs and of systems that are not trained have no steps.
        steps = mine.reindex(columns=["seed", "steps"]).dropna().drop_duplicates("seed")
        return steps.set_index("seed")["steps"].sort_index().astype(float)


def _pair(records: Records, spec: Mapping, factor: float = 1.0) -> tuple[Comparison, float, float]:
    """A - factor * B averaged over the data sets, and the two systems' values."""
    parts, left, right = [], [], []
    for data_set in _places(records, spec).values():
        a, b = same_seeds(*(records.values(system, data_set) for system in spec["pair"]))
        parts.append(compare(a, b * factor, records.clusters(spec["pair"][0], data_set)))
        left.append(a.to_numpy().mean())
        right.append(b.to_numpy().mean())
    return average(parts), float(np.mean(left)), float(np.mean(right))


def _places(records: Records, spec: Mapping) -> dict[str, str]:
    """The collections of a comparison, each once, with a data set that it plays: one counts once in an average."""
    return {records.collection(data_set): data_set for data_set in spec["data"].split("+")}


def _measured(records: Records) -> str:
    """The measure, where it is not that of most claims."""
    return "" if records.measure == "AP@100" else f"{records.measure}: "


def _label(records: Records, spec: Mapping) -> str:
    names = " vs ".join(system.split(":", 1)[1] for system in spec["pair"])
    places = " and ".join(_places(records, spec))
    return f"{_measured(records)}{names}, on {places}"


def _evidence(
    records: Records,
    spec: Mapping,
    found: tuple[Comparison, float, float],
    p_for: float,
    p_against: float,
    note: str = "",
) -> Evidence:
    comparison, a, b = found
    low, high = comparison.interval()
    return Evidence(
        _label(records, spec), a, b, comparison.effect, low, high, p_for, p_against,
        comparison.seeds, comparison.queries, note,
    )  # fmt: skip


def _greater(records: Records, spec: Mapping) -> list[Evidence]:
    found, margin = _pair(records, spec), spec.get("margin", 0.0)
    p_for = found[0].p_greater(margin)
    return [_evidence(records, spec, found, p_for, 1 - p_for, f"more than {margin} points" if margin else "")]


def _at_most(records: Records, spec: Mapping) -> list[Evidence]:
    found = _pair(records, spec)
    p_against = found[0].p_greater(spec["margin"])
    return [_evidence(records, spec, found, 1 - p_against, p_against, f"margin {spec['margin']} points")]


def _equivalent(records: Records, spec: Mapping) -> list[Evidence]:
    found = _pair(records, spec)
    comparison, margin = found[0], spec["margin"]
    # Against: the difference lies beyond the margin on one side (two sides, hence the doubling).
    beyond = min(comparison.p_greater(margin), 1 - comparison.p_greater(-margin))
    return [
        _evidence(
            records, spec, found, comparison.p_equivalent(margin), min(1.0, 2 * beyond), f"margin {margin} points"
        )
    ]


def _ratio(records: Records, spec: Mapping) -> list[Evidence]:
    factor = spec["factor"]
    found = _pair(records, spec, factor)
    p_for = found[0].p_greater()
    note = f"effect is A - {factor} B"
    if found[2] * factor > 100:
        note += f"; beyond the ceiling: B leaves no room for a factor of {factor}"
    return [_evidence(records, spec, found, p_for, 1 - p_for, note)]


def _trend(records: Records, spec: Mapping) -> list[Evidence]:
    """The linear trend over the systems in order must rise, and no single step may fall."""
    values = [records.values(system, spec["data"]) for system in spec["systems"]]
    shared = reduce(pd.Index.intersection, (value.columns for value in values))
    require(len(shared) > 0, "the systems of a trend have no seed in common", DataError)
    values = [value[shared] for value in values]
    found, p_for, p_against = rising(values, records.clusters(spec["systems"][0], spec["data"]))
    means = ", ".join(f"{value.to_numpy().mean():.1f}" for value in values)
    low, high = found.interval()
    label = f"{_measured(records)}{len(values)} systems in order, on {records.collection(spec['data'])}"
    first, last = (float(value.to_numpy().mean()) for value in (values[0], values[-1]))
    note = f"values {means}; the effect is the rise from one system to the next"
    return [Evidence(label, last, first, found.effect, low, high, p_for, p_against, found.seeds, found.queries, note)]


def rising(values: Sequence[pd.DataFrame], clusters: pd.Series | None = None) -> tuple[Comparison, float, float]:
    """The slope of a line through values in order, and the two p-values of a rise in which no step falls.

    Parameters
    ----------
    values : sequence of DataFrame
        In order; each as `compare` takes them, all with the same index and columns.
    clusters : Series, optional
        As in `compare`.
    """
    weights = np.arange(len(values)) - (len(values) - 1) / 2
    weights /= (weights**2).sum()
    slope = reduce(lambda x, y: x + y, (value * weight for value, weight in zip(values, weights, strict=True)))
    found = compare(slope, slope * 0, clusters)
    steps = [compare(after, before, clusters) for before, after in zip(values, values[1:], strict=False)]
    p_for = found.p_greater()
    # Two tests speak against a rise, the line and the steps, of which there are several: each is paid for.
    against = min(len(steps) * min(1 - step.p_greater() for step in steps), 1 - p_for)
    return found, p_for, min(1.0, 2 * against)


def _fewer(records: Records, spec: Mapping) -> list[Evidence]:
    """Over seeds, on the logarithm of the steps: B / A is what a reader asks for."""
    a, b = (records.steps(system, spec["data"]) for system in spec["pair"])
    shared = a.index.intersection(b.index)
    require(len(shared) > 1, "a comparison of training steps needs at least two seeds", DataError)
    a, b = a[shared], b[shared]
    require(bool((a > 0).all() and (b > 0).all()), "a training never got better than its start", DataError)
    logs = np.log(a.to_numpy()) - np.log(b.to_numpy())
    effect, error = float(logs.mean()), float(logs.std(ddof=1) / len(logs) ** 0.5)
    comparison = Comparison(effect, error, len(logs) - 1, 0, len(logs))
    p_against = comparison.p_greater()
    found = comparison, float(a.mean()), float(b.mean())
    return [_evidence(records, spec, found, 1 - p_against, p_against, "steps; the effect is log A - log B")]


def _linear(records: Records, spec: Mapping) -> list[Evidence]:
    """A weighted sum of systems' values is above a margin, or (`within`) no further from 0 than a margin.

    Terms are [weight, system, data set]. Their values are paired by query, or (`independent`)
    taken for samples of their own.
    """
    weights, values, clusters = [], [], []
    for weight, system, data_set in spec["terms"]:
        weights.append(weight)
        values.append(records.values(system, data_set))
        clusters.append(records.clusters(system, data_set))
    if spec.get("independent"):
        comparison = _independent(weights, values, clusters)
    else:
        values = _shared(values)
        comparison = _paired(weights, values, clusters[0])
    parts = [weight * float(value.to_numpy().mean()) for weight, value in zip(weights, values, strict=True)]
    sides = sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)
    low, high = comparison.interval()
    label = _measured(records) + " ".join(
        f"{weight:+g}·({system.split(':', 1)[1]} on {records.collection(data_set)})"
        for weight, system, data_set in spec["terms"]
    )
    if "within" in spec:
        within = spec["within"]
        p_for = comparison.p_equivalent(within)
        beyond = min(comparison.p_greater(within), 1 - comparison.p_greater(-within))
        p_against, note = min(1.0, 2 * beyond), f"within {within} points"
    else:
        margin = spec.get("margin", 0.0)
        p_for = comparison.p_greater(margin)
        p_against, note = 1 - p_for, f"more than {margin} points" if margin else ""
    seeds, queries = comparison.seeds, comparison.queries
    return [Evidence(label, *sides, comparison.effect, low, high, p_for, p_against, seeds, queries, note)]


def _shared(values: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """The values of the queries and seeds that all terms share."""
    shared = reduce(pd.Index.intersection, (value.index for value in values))
    require(len(shared) > 1, "the terms of a comparison share no queries", DataError)
    return same_seeds(*(value.loc[shared] for value in values))


def _paired(weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: pd.Series) -> Comparison:
    """The weighted sum query by query, over shared queries and seeds."""
    several = [value.columns for value in values if value.shape[1] > 1]
    columns = several[0] if several else [0]
    # A system without seeds goes with every seed of the others.
    wide = (value if value.shape[1] == len(columns) else value.iloc[:, [0] * len(columns)] for value in values)
    total = sum(weight * value.to_numpy(dtype=float) for weight, value in zip(weights, wide, strict=True))
    total = pd.DataFrame(total, index=values[0].index, columns=columns)
    return compare(total, total * 0, clusters)


def _independent(weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: Sequence[pd.Series]) -> Comparison:
    """The weighted sum of means over queries of their own; seeds may be those of one training, see `average`."""
    parts = [compare(value * w, value * 0, c) for w, value, c in zip(weights, values, clusters, strict=True)]
    mean = average(parts)
    count = len(parts)
    return Comparison(count * mean.effect, count * mean.error, mean.freedom, mean.queries, mean.seeds)


def _limit(records: Records, spec: Mapping) -> list[Evidence]:
    """A recorded number (a time, a size) is below or above a limit, over repetitions, on the logarithm."""
    return _beside_limit(spec, spec["system"].split(":", 1)[1], _logs(records, spec, spec["system"]))


def _quotient(records: Records, spec: Mapping) -> list[Evidence]:
    """A recorded number of A over that of B is below or above a limit, over repetitions, on the logarithm."""
    a, b = (_logs(records, spec, system) for system in spec["pair"])
    shared = a.index.intersection(b.index)
    names = " / ".join(system.split(":", 1)[1] for system in spec["pair"])
    require(len(shared) > 1, f"{names}: fewer than two shared repetitions of {spec['measure']!r}", DataError)
    return _beside_limit(spec, names, a[shared] - b[shared])


def _logs(records: Records, spec: Mapping, system: str) -> pd.Series:
    """The logarithm of a recorded number, by seed."""
    experiment, name = system.split(":", 1)
    rows = records.results(experiment).rows
    mine = rows[(rows["system"] == name) & (rows["measure"] == spec["measure"])]
    mine = mine[mine["collection"] == records.collection(spec["data"])]
    require(len(mine) > 1, f"{name!r} has fewer than two recorded values of {spec['measure']!r}", DataError)
    require(bool((mine["value"] > 0).all()), f"{name!r} has no logarithm of {spec['measure']!r}", DataError)
    return np.log(mine.set_index("seed")["value"].astype(float)).sort_index()


def _beside_limit(spec: Mapping, name: str, logs: pd.Series) -> list[Evidence]:
    is_below = "below" in spec
    limit = float(spec["below" if is_below else "above"])
    effects = logs - np.log(limit)
    comparison = Comparison(effects.mean(), effects.std(ddof=1) / len(logs) ** 0.5, len(logs) - 1, 0, len(logs))
    p_above = comparison.p_greater()
    p_for = 1 - p_above if is_below else p_above
    note = f"{spec['measure']}; the effect is the logarithm of the value over {limit:g}"
    label = f"{name} {'below' if is_below else 'above'} {limit:g} {spec['measure']}"
    value, effect = float(np.exp(logs.mean())), float(comparison.effect)
    return [Evidence(label, value, limit, effect, *comparison.interval(), p_for, 1 - p_for, len(logs), 0, note)]


TESTS: dict[str, Callable[[Records, Mapping], list[Evidence]]] = {
    "greater": _greater,
    "at_most": _at_most,
    "equivalent": _equivalent,
    "ratio": _ratio,
    "trend": _trend,
    "fewer": _fewer,
    "linear": _linear,
    "limit": _limit,
    "quotient": _quotient,
}
