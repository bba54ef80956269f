"""From recorded values to the evidence on a claim: comparisons of systems, each with two one-sided p-values.

A test is a function of the recorded values and a comparison, as ``data/papers/bindings.yaml`` writes it
for itself or for all comparisons of its claim; it knows no result. A new one is a function here and a name in `TESTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, compare, same_seeds
from retlib.evaluation.results import Results


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

    @classmethod
    def of(
        cls, label: str, found: Comparison, sides: Sequence[float], p: tuple[float, float], note: str = ""
    ) -> Evidence:
        """A comparison with the two sides' values, and the p-values for and against."""
        return cls(label, *sides, found.effect, *found.interval(), *p, found.seeds, found.queries, note)

    @property
    def text(self) -> str:
        """The effect with its interval, as pages show it: ``+2.10 [+1.20, +3.00]``."""
        return f"{self.effect:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def named(system: str) -> tuple[str, str]:
    """The experiment and the name within it, of a system as the bindings write it: ``experiment:name``."""
    experiment, _, name = system.partition(":")
    return experiment, name


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
        rows = found.rows[(found.rows["system"] == name) & (found.rows["collection"] == self.collection(data_set))]
        rows = rows if measure is None else rows[rows["measure"] == measure]
        # Rows of costs, and of systems that are not trained, have no steps.
        values = rows.reindex(columns=["seed", column]).dropna().drop_duplicates("seed")
        return values.set_index("seed")[column].sort_index().astype(float)

    def table(self, kind: str, system: str) -> pd.DataFrame:
        """A system's lines of one of its experiment's tables; none where there is no such table."""
        found, name = self.of(system)
        table = found.tables.get(kind, pd.DataFrame(columns=["system", "measure"]))
        return table[table["system"] == name]


# --- what speaks for a claim and against it: pairs of one-sided p-values -------------------------------


def above(found: Comparison, margin: float = 0.0) -> tuple[float, float]:
    """The effect is above a margin."""
    p = found.p_greater(margin)
    return p, 1 - p


def below(found: Comparison, margin: float = 0.0) -> tuple[float, float]:
    """The effect is below a margin."""
    return above(found, margin)[::-1]


def within(found: Comparison, margin: float) -> tuple[float, float]:
    """The effect is within a margin on both sides of 0."""
    # Against: it lies beyond the margin on one side (two sides, hence the doubling).
    beyond = min(found.p_greater(margin), 1 - found.p_greater(-margin))
    return found.p_equivalent(margin), min(1.0, 2 * beyond)


# --- the tests -----------------------------------------------------------------------------------------


def versus(spec: Mapping) -> str:
    """The names of a pair."""
    return " vs ".join(named(system)[1] for system in spec["pair"])


def _pair(records: Records, spec: Mapping, holds: Callable = above, note: str = "margin {} points") -> list[Evidence]:
    """A less B, or less so many times B, averaged over the data sets."""
    parts, sides, factor, margin = [], [], spec.get("factor"), spec.get("margin", 0.0)
    for data_set in records.collections(spec["data"]).values():
        a, b = same_seeds(*(records.values(system, data_set) for system in spec["pair"]))
        parts.append(compare(a, b * (factor or 1.0), records.clusters(spec["pair"][0], data_set)))
        sides.append((a.to_numpy().mean(), b.to_numpy().mean()))
    found, (a, b) = average(parts), np.mean(sides, axis=0).tolist()
    said = note.format(margin) if margin else ""
    if factor:
        said = f"effect is A - {factor} B"
        said += f"; beyond the ceiling: B leaves no room for a factor of {factor}" if b * factor > 100 else ""
    return [Evidence.of(records.label(versus(spec), spec["data"]), found, (a, b), holds(found, margin), said)]


def _trend(records: Records, spec: Mapping) -> list[Evidence]:
    """The linear trend over the systems in order must rise, and no single step may fall."""
    values = [records.values(system, spec["data"]) for system in spec["systems"]]
    shared = reduce(pd.Index.intersection, (value.columns for value in values))
    require(len(shared) > 0, "the systems of a trend have no seed in common", DataError)
    found, p = rising([value[shared] for value in values], records.clusters(spec["systems"][0], spec["data"]))
    means = [float(value[shared].to_numpy().mean()) for value in values]
    note = f"values {', '.join(f'{mean:.1f}' for mean in means)}; the effect is the rise from one system to the next"
    label = records.label(f"{len(values)} systems in order", spec["data"])
    return [Evidence.of(label, found, (means[-1], means[0]), p, note)]


def rising(values: Sequence[pd.DataFrame], clusters: pd.Series | None = None) -> tuple[Comparison, tuple[float, float]]:
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
    weights = [weight for weight, *_ in terms]
    values = [records.values(*place) for _, *place in terms]
    clusters = [records.clusters(*place) for _, *place in terms]
    if spec.get("independent"):
        found = _independent(weights, values, clusters)
    else:
        shared = reduce(pd.Index.intersection, (value.index for value in values))
        require(len(shared) > 1, "the terms of a comparison share no queries", DataError)
        values = same_seeds(*(value.loc[shared] for value in values))
        found = _paired(weights, values, clusters[0])
    parts = [weight * float(value.to_numpy().mean()) for weight, value in zip(weights, values, strict=True)]
    sides = sum(part for part in parts if part > 0), -sum(part for part in parts if part < 0)
    label = " ".join(f"{weight:+g}·({named(system)[1]} on {records.collection(on)})" for weight, system, on in terms)
    if "within" in spec:
        p, note = within(found, spec["within"]), f"within {spec['within']} points"
    else:
        margin = spec.get("margin", 0.0)
        p, note = above(found, margin), f"more than {margin} points" if margin else ""
    return [Evidence.of(records.label(label), found, sides, p, note)]


def _paired(weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: pd.Series) -> Comparison:
    """The weighted sum query by query, over shared queries and seeds; a system without seeds goes with every seed."""
    total = sum(weight * value.to_numpy(dtype=float) for weight, value in zip(weights, values, strict=True))  # (Q, S)
    widest = max(values, key=lambda value: value.shape[1])
    total = pd.DataFrame(total, index=widest.index, columns=widest.columns)
    return compare(total, total * 0, clusters)


def _independent(weights: Sequence[float], values: Sequence[pd.DataFrame], clusters: Sequence[pd.Series]) -> Comparison:
    """The weighted sum of means over queries of their own; seeds may be those of one training, see `average`."""
    parts = [compare(value * w, value * 0, c) for w, value, c in zip(weights, values, clusters, strict=True)]
    mean, count = average(parts), len(parts)
    return Comparison(count * mean.effect, count * mean.error, mean.freedom, mean.queries, mean.seeds)


def _fewer(records: Records, spec: Mapping) -> list[Evidence]:
    """Over seeds, on the logarithm of the training steps to the best weights: B / A is what a reader asks for."""
    a, b = (records.by_seed(system, spec["data"], "steps") for system in spec["pair"])
    shared = a.index.intersection(b.index)
    require(len(shared) > 1, "a comparison of training steps needs at least two seeds", DataError)
    a, b = a[shared], b[shared]
    require(bool((a > 0).all() and (b > 0).all()), "a training never got better than its start", DataError)
    found, label = _over_seeds(np.log(a) - np.log(b)), records.label(versus(spec), spec["data"])
    return [Evidence.of(label, found, (a.mean(), b.mean()), below(found), "steps; the effect is log A - log B")]


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
    side, holds = ("below", below) if "below" in spec else ("above", above)
    limit = float(spec[side])
    found = _over_seeds(ratio - np.log(limit))
    note = f"{measure}; the effect is the logarithm of the value over {limit:g}"
    sides = float(np.exp(ratio.mean())), limit
    return [Evidence.of(f"{name} {side} {limit:g} {measure}", found, sides, holds(found), note)]


def _over_seeds(values: pd.Series) -> Comparison:
    """The mean of a value by seed, with its error."""
    count = len(values)
    return Comparison(float(values.mean()), values.std(ddof=1) / count**0.5, count - 1, 0, count)


TESTS: dict[str, Callable[[Records, Mapping], list[Evidence]]] = {
    "greater": partial(_pair, note="more than {} points"),
    "at_most": partial(_pair, holds=below),
    "equivalent": partial(_pair, holds=within),
    "ratio": _pair,
    "trend": _trend,
    "fewer": _fewer,
    "linear": _linear,
    "limit": _limit,
    "quotient": _limit,
}
