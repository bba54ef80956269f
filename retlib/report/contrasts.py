"""Contrasts: weighted sums of recorded systems, and what they say of a claim (chapters with claims).

A chapter writes ``softmax - pairwise`` or ``bm25 - 41.86``. Every claim is tested by such a sum: of values by question,
of logarithms of times and steps, whose difference is a ratio, or of training curves (chapter 41).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, compare, in_pairs
from retlib.evaluation.results import Results

LEVEL = 0.05  # of every test
CEILING = 99.0  # points at which sides cannot be told apart any more
EQUIVALENCE_MARGIN = 1.0  # points within which a difference is no effect
END = 0.2  # of a training's steps, in which it must have come to rest
WINDOWS = 10  # of equal length, in a curve
BLOCKS = 10  # as which the steps of a curve count
PHASES = 5  # parts of a refresh cycle; odd, so that a moving average over a cycle has a middle


class Kind(NamedTuple):
    """How recorded values become a frame (a column for each seed), with the clusters of its rows, if any."""

    read: Callable[[Results, str, str, str], tuple[pd.DataFrame, pd.Series | None]]
    rows: str  # what they are; "" of a ratio
    gate: bool = True  # whether trainings must have come to rest
    by_question: bool = False  # whether they are the recorded values of ranked lists
    ratio: bool = False  # whether they are logarithms in one column, and rows are seeds


def _scores(rows: Results, system: str, collection: str, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    return 100 * rows.per_query(collection, "test", measure, system), rows.clusters(collection, "test", measure)


def _logarithm(column: str, rows: Results, system: str, collection: str, measure: str) -> tuple[pd.DataFrame, None]:
    lines = rows.lines(system, collection).query("measure == @measure").reindex(columns=["seed", column])
    values = lines.dropna().drop_duplicates("seed").set_index("seed").sort_index().astype(float)
    require(len(values) > 1, f"a ratio takes two seeds with {column}: {system!r} has {len(values)}", DataError)
    require(bool((values > 0).all(axis=None)), f"{system!r} has no logarithm of {measure!r}", DataError)
    return np.log(values), None


QUESTIONS = Kind(_scores, "questions", by_question=True)
LOG_VALUE = Kind(partial(_logarithm, "value"), "", gate=False, ratio=True)
LOG_STEPS = Kind(partial(_logarithm, "steps"), "", ratio=True)  # training steps to the weights that were kept


class Term(NamedTuple):
    """A recorded system, by its mean over the collections that stand for data sets of a paper, and its weight."""

    weight: float
    system: str
    collections: tuple[str, ...]
    measure: str
    kind: Kind = QUESTIONS
    rows: Results | None = None  # of the chapter
    chapter: str = ""
    data_sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of terms, less a constant: `+`, `-` and `*` build it.

    >>> one, other = (Contrast((Term(1.0, name, ("quora",), "AP@100"),)) for name in "ab")
    >>> [term.weight for term in (one - 0.5 * other).terms]
    [1.0, -0.5]
    """

    terms: tuple[Term, ...]
    constant: float = 0.0
    rises: tuple[Self, ...] = ()  # none of which may be a fall, where the sum is a slope
    label: str = ""
    paper: float | None = None  # the effect that the paper prints: a difference in points, or a ratio
    margin: float | None = None  # the effect is claimed to be above it, None for 0; where `alike`, on no side beyond it
    alike: bool = False
    gated: bool = True  # whether trainings must have come to rest, and be above their start

    def __add__(self, other: Self) -> Self:
        return replace(self, terms=self.terms + other.terms, constant=self.constant + other.constant)

    def __mul__(self, factor: float) -> Self:
        terms = tuple(term._replace(weight=factor * term.weight) for term in self.terms)
        return replace(self, terms=terms, constant=factor * self.constant)

    __rmul__ = __mul__

    def __sub__(self, other: Self | float) -> Self:
        return self + -1.0 * other if isinstance(other, Contrast) else replace(self, constant=self.constant - other)

    def above(self, margin: float) -> Self:
        """Return the contrast, claimed to be above a margin: of 0, too, it is not asked whether there is no effect."""
        return replace(self, margin=margin)

    def within(self, margin: float) -> Self:
        """Return the contrast, claimed to be within so many points of 0."""
        return replace(self, margin=margin, alike=True)

    def printed(self, effect: float | None) -> Self:
        """Return the contrast with the effect that the paper prints."""
        return replace(self, paper=effect)

    def called(self, label: str) -> Self:
        """Return the contrast with words of its own, where its systems and weights say too little."""
        return replace(self, label=label)

    def may_still_learn(self) -> Self:
        """Return the contrast for trainings that need not have come to rest, nor be above their start."""
        return replace(self, gated=False)


def slope(contrasts: Sequence[Contrast], label: str = "") -> Contrast:
    """Return the slope of a line through contrasts in order; that it falls between two speaks against it, too."""
    places = np.arange(len(contrasts)) - (len(contrasts) - 1) / 2
    weights = (places / (places**2).sum()).tolist()
    total = reduce(Contrast.__add__, [weight * each for weight, each in zip(weights, contrasts, strict=True)])
    return replace(total, rises=rises(contrasts), label=label)


def rises(contrasts: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Return each contrast less the one before it."""
    return tuple(after - before for before, after in zip(contrasts, contrasts[1:], strict=False))


def test(contrast: Contrast) -> dict[str, Any]:
    """Return effect, 95 % interval and one-sided p-values of a contrast, in columns of a chapter's table `claims`.

    Besides, `means` of each term. `DataError` if one is not recorded, or if no question or seed is common to all.
    """
    compared, values = _compared(contrast)
    kind, margin = contrast.terms[0].kind, contrast.margin or 0.0
    p_for, p_against, p_none = compared.p_greater(margin), compared.p_less(margin), 1.0
    if contrast.alike:  # against: it lies beyond the margin on one of two sides
        p_against = min(1.0, 2 * min(p_for, compared.p_less(-margin)))
        p_for = compared.p_equivalent(margin)
    if contrast.rises:  # the line and each step of it speak against a rise: each is paid for
        falls = [test(each)["p_against"] for each in contrast.rises]
        p_against = min(1.0, 2 * min(len(falls) * min(falls), p_against))
    # No effect is one within a point of 0, or within the paper's where that is smaller. It is not asked for where the
    # interval leaves out 0, which is an effect, nor of what asks for more or less than a direction.
    low, high = compared.interval()
    if contrast.margin is None and not (contrast.constant or contrast.rises or kind.ratio) and low <= 0 <= high:
        paper = EQUIVALENCE_MARGIN if contrast.paper is None else abs(contrast.paper)
        p_none = compared.p_equivalent(min(EQUIVALENCE_MARGIN, paper))
    trained = [n for term, n, _ in values if not kind.by_question or term.rows.trained(term.system, term.measure)]
    counts, closed = [compared.seeds] if kind.ratio else trained, ""
    if kind.by_question and min(mean for *_, mean in values) >= CEILING:
        closed = f"no comparison: all sides are at the measure's ceiling ({CEILING:g} points and more)"
    elif kind.by_question and compared.effect == 0 and compared.by_query[0] == 0:
        closed = "no comparison: all differences are 0"
    means = [np.mean([mean for other, _, mean in values if other is term]) for term in contrast.terms]
    return {
        "effect": compared.effect, "low": low, "high": high, "freedom": float(compared.freedom), "p_for": p_for,
        "p_against": p_against, "p_none": p_none, "seeds": float(min(counts, default=1)), "one_seed": 1 in counts,
        "questions": float(compared.queries), "closed": closed, "means": np.exp(means) if kind.ratio else means,
    }  # fmt: skip


def _compared(contrast: Contrast) -> tuple[Comparison, list[tuple[Term, int, float]]]:
    # The effect with its error, and the seeds and the mean of each term on each collection. They are paired by row and
    # seed. Terms with other questions, such as two data sets, are samples of their own; seeds are the same in all.
    parts = [(t, *t.kind.read(t.rows, t.system, on, t.measure)) for t in contrast.terms for on in t.collections]
    samples, compared, values, together = defaultdict(list), [], [], defaultdict(list)
    for part in parts:
        first = next((i for i, each in enumerate(parts) if len(each[1].index.intersection(part[1].index))), 0)
        samples[first].append(part)
    for terms, frames, clusters in (zip(*sample, strict=True) for sample in samples.values()):
        pairs = [*zip(terms, frames, in_pairs(*frames), strict=True)]
        values += [(term, min(own.shape[1], each.shape[1]), each.to_numpy().mean()) for term, own, each in pairs]
        total = sum(term.weight * len(samples) / len(term.collections) * each for term, _, each in pairs)
        compared.append(compare(total, clusters[0]))  # `average` divides by the number of samples
    # The variance over seeds is from all systems of each chapter; one model answers all collections of a term.
    for term in contrast.terms:
        if term.kind.by_question:
            together[term.rows, term.collections, term.measure].append((term.weight, term.system))
    seeds = max(part.seeds for part in compared)
    pooled = (rows.pooled(each, on, measure, seeds) for (rows, on, measure), each in together.items())
    mean = average(compared, [*chain.from_iterable(pooled)])
    if contrast.terms[0].kind.ratio:
        require(mean.error > 1e-12, "all seeds have one value: there is no error to compare it with", DataError)
        mean = replace(mean, seeds=mean.queries, queries=0)
    return replace(mean, effect=mean.effect + contrast.constant), values


# --- training curves (chapter 41; Zhan 2020, section 6.1) --------------------------------------------
# The table ``curves`` of a chapter has a value for each system, seed, step and measure, and ``intervals`` the steps
# between the refreshes of a system's lists. At a step all systems are measured on the same training questions, so that
# a step is what a question is to ranked lists. Steps depend on those before, and count by blocks of consecutive ones.


def curve(rows: Results, system: str, collection: str, measure: str) -> pd.DataFrame:
    """Return a system's curve in points of 100: index step, a column for each seed."""
    lines = rows.tables["curves"].query("system == @system and measure == @measure")
    require(len(lines) > 0, f"no curve of {measure} of {system!r} is recorded", DataError)
    return lines.pivot(index="step", columns="seed", values="value").dropna() * 100


def _cycles(of: str, rows: Results, *place: str) -> tuple[pd.DataFrame, int]:
    # A curve, and the steps between two refreshes of a system's lists.
    intervals = rows.tables["intervals"].set_index("system")["interval"]
    require(of in intervals, f"no refresh interval of {of!r} is recorded", DataError)
    return curve(rows, *place), int(intervals[of])


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


def _quarter(which: str, *place: Any) -> tuple[pd.DataFrame, None]:
    # The mean over the first or the last quarter of each refresh cycle but an unfinished one; or over the first of all
    # but the first cycle, under the number of the cycle before.
    values, every = _cycles(place[1], *place)
    cycle, phase = np.divmod(values.index.to_numpy(), every)
    early, late = (values[at].groupby(cycle[at]).mean() for at in (phase < every / 4, phase >= 0.75 * every))
    whole = early.index.intersection(late.index)
    require(len(whole) > 2, f"a sawtooth needs three whole cycles of {every} steps", DataError)
    after = early.loc[whole[1:]].set_axis(whole[:-1])
    return {"early": early.loc[whole], "late": late.loc[whole], "after": after}[which], None


def _swing(of: str, *place: Any) -> tuple[pd.DataFrame, None]:
    # What repeats from cycle to cycle is the product of a cycle's profile with the mean profile of the other cycles:
    # its expectation is the squared swing, and 0 for noise, however large. A cycle is in the products of all others,
    # too; so these are the jackknife's values of their mean.
    values, every = _cycles(of, *place)
    part = values.index.to_numpy() * PHASES // every
    parts = values.groupby(part).mean().reindex(range(part.min(), part.max() + 1))
    # Less the mean over the cycle around each part: neither a trend nor the level is a swing.
    profile = parts - parts.rolling(PHASES, center=True).mean()
    profile.index = pd.MultiIndex.from_arrays([profile.index // PHASES, profile.index % PHASES])
    profile = profile.unstack().dropna()  # whole cycles but the first and the last, by seed and part
    count = len(profile)
    require(count > 2, f"a swing needs five whole cycles of {every} steps", DataError)
    products = (profile * (profile.sum() - profile) / (count - 1)).T.groupby(level=0).mean().T
    return (2 * (count - 1) * products - count * products.mean()) / (count - 2), None


AT_END, THROUGHOUT = (Kind(partial(_in_blocks, None, share), "steps") for share in (END, 1.0))
WINDOW = [Kind(partial(_in_blocks, n, 1.0), "steps of a window", gate=False) for n in range(WINDOWS)]
EARLY, LATE, AFTER_REFRESH = (Kind(partial(_quarter, of), "cycles", gate=False) for of in ("early", "late", "after"))


def swing(of: str) -> Kind:
    """Return the kind of squared swings in step with the refreshes of a system's lists."""
    return Kind(partial(_swing, of), "cycles", gate=False)
