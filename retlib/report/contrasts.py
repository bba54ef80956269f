"""Contrasts: weighted sums of recorded systems, and what they say of a claim (chapters with claims).

A chapter writes ``softmax - pairwise`` or ``bm25 - 41.86``. Every claim is tested by such a sum: of values by question,
of training curves (`retlib.report.curves`), or of logarithms of times and steps, whose difference is a ratio. One
function, `test`, gives its effect, its interval and three p-values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, compare, same_seeds
from retlib.evaluation.results import Results

LEVEL = 0.05  # of every test
CEILING = 99.0  # points at which sides cannot be told apart any more
EQUIVALENCE_MARGIN = 1.0  # points within which a difference is no effect


class Kind(NamedTuple):
    """How recorded values become a matrix.

    `read` takes results, system, collection and measure, and returns a frame (a column for each seed) and the clusters
    of its rows, if any. `rows` says what its rows are; "" where they are one, of logarithms.
    """

    read: Callable[[Results, str, str, str], tuple[pd.DataFrame, pd.Series | None]]
    rows: str = "questions"
    gate: bool = True  # whether trainings must have come to rest


def _by_question(rows: Results, system: str, collection: str, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    return 100 * rows.per_query(collection, "test", measure, system), rows.clusters(collection, "test", measure)


def _logarithm(column: str) -> Callable:
    def read(rows: Results, system: str, collection: str, measure: str) -> tuple[pd.DataFrame, None]:
        lines = rows.lines(system, collection).query("measure == @measure").reindex(columns=["seed", column])
        values = lines.dropna().drop_duplicates("seed").set_index("seed")[column].sort_index().astype(float)
        require(len(values) > 1, f"{system!r} has fewer than two recorded values of {measure!r}", DataError)
        require(bool((values > 0).all()), f"{system!r} has no logarithm of {measure!r}", DataError)
        return np.log(values).to_frame().T, None

    return read


QUESTIONS = Kind(_by_question)
LOG_VALUE = Kind(_logarithm("value"), "", gate=False)
LOG_STEPS = Kind(_logarithm("steps"), "")  # training steps to the weights that were kept


class Term(NamedTuple):
    """A system, by the mean over the collections that stand for a paper's data sets, and its weight."""

    weight: float
    chapter: str
    system: str
    data_sets: tuple[str, ...]
    measure: str
    kind: Kind = QUESTIONS

    def collections(self, stand: Stand) -> tuple[str, ...]:
        """Return the collections that stand for the data sets, each once."""
        return tuple(dict.fromkeys(map(stand, self.data_sets)))


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of terms, less a constant. `+`, `-` and `*` build it.

    >>> one, other = (Contrast((Term(1.0, "12", name, ("Quora",), "AP@100"),)) for name in "ab")
    >>> [term.weight for term in (one - 0.5 * other).terms]
    [1.0, -0.5]
    """

    terms: tuple[Term, ...]
    constant: float = 0.0
    steps: tuple[Contrast, ...] = ()  # none of which may fall, where the sum is a line
    label: str = ""
    paper: float | None = None  # the effect that the paper prints: a difference in points, or a ratio
    margin: float | None = None  # the effect is claimed to be above it, None for 0; where `alike`, on no side beyond it
    alike: bool = False
    gated: bool = True

    def __add__(self, other: Contrast) -> Contrast:
        return replace(self, terms=self.terms + other.terms, constant=self.constant + other.constant)

    def __mul__(self, factor: float) -> Contrast:
        terms = tuple(term._replace(weight=factor * term.weight) for term in self.terms)
        return replace(self, terms=terms, constant=factor * self.constant)

    __rmul__ = __mul__

    def __sub__(self, other: Contrast | float) -> Contrast:
        return self + -1.0 * other if isinstance(other, Contrast) else replace(self, constant=self.constant - other)

    def above(self, margin: float) -> Contrast:
        """Return the contrast, claimed to be above a margin."""
        return replace(self, margin=margin)

    def within(self, margin: float) -> Contrast:
        """Return the contrast, claimed to be within so many points of 0."""
        return replace(self, margin=margin, alike=True)

    def printed(self, effect: float) -> Contrast:
        """Return the contrast with the effect that the paper prints."""
        return replace(self, paper=effect)

    def called(self, label: str) -> Contrast:
        """Return the contrast with words of its own, where its systems and weights say too little."""
        return replace(self, label=label)

    def ungated(self) -> Contrast:
        """Return the contrast for trainings that need not have come to rest, nor be above their start."""
        return replace(self, gated=False)


def line(contrasts: Sequence[Contrast], label: str = "") -> Contrast:
    """Return the slope of a line through contrasts in order; that one of its steps falls speaks against it, too."""
    places = np.arange(len(contrasts)) - (len(contrasts) - 1) / 2
    weights = (places / (places**2).sum()).tolist()
    slope = reduce(Contrast.__add__, [weight * each for weight, each in zip(weights, contrasts, strict=True)])
    return replace(slope, steps=rises(contrasts), label=label)


def rises(contrasts: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """Return each contrast less the one before it."""
    return tuple(after - before for before, after in zip(contrasts, contrasts[1:], strict=False))


class Outcome(NamedTuple):
    """What a contrast says; p-values before correction."""

    comparison: Comparison
    means: list[float]  # of each term
    one_seed: bool
    closed: str  # why the sides cannot be told apart; "" where they can
    p_for: float = 1.0
    p_against: float = 1.0
    p_none: float = 1.0


Load = Callable[[str], Results]  # a chapter to its results
Stand = Callable[[str], str]  # a paper's data set to the collection that stands for it


def test(contrast: Contrast, load: Load, stand: Stand) -> Outcome:
    """Return effect, interval and one-sided p-values of a contrast.

    Raises `DataError` if a term is not recorded, or terms have no question or no seed in common.
    """
    outcome, margin = estimate(contrast, load, stand), contrast.margin or 0.0
    compared = outcome.comparison
    p_for, p_against, p_none = compared.p_greater(margin), compared.p_less(margin), 1.0
    if contrast.alike:  # against: it lies beyond the margin on one of two sides
        p_for = compared.p_equivalent(margin)
        p_against = min(1.0, 2 * min(compared.p_greater(margin), compared.p_less(-margin)))
    if contrast.steps:  # the line and the steps speak against a rise: each is paid for
        falls = [estimate(step, load, stand).comparison.p_less() for step in contrast.steps]
        p_against = min(1.0, 2 * min(len(falls) * min(falls), p_against))
    # No effect is one within a point of 0, or within the paper's where that is smaller. It is not asked for where the
    # interval leaves out 0, which is an effect, nor of what asks for more or less than a direction.
    more = contrast.margin is not None or contrast.constant or contrast.steps or not contrast.terms[0].kind.rows
    low, high = compared.interval()
    if not more and low <= 0 <= high:
        paper = EQUIVALENCE_MARGIN if contrast.paper is None else abs(contrast.paper)
        p_none = compared.p_equivalent(min(EQUIVALENCE_MARGIN, paper))
    return outcome._replace(p_for=p_for, p_against=p_against, p_none=p_none)


def estimate(contrast: Contrast, load: Load, stand: Stand) -> Outcome:
    """Return the effect of a contrast with its error: values are paired by question and seed.

    Terms with other questions, such as two data sets, are samples of their own; seeds are the same in all (`average`).
    """
    terms, kind = contrast.terms, contrast.terms[0].kind
    places = [(term, on) for term in terms for on in term.collections(stand)]
    read = [term.kind.read(load(term.chapter), term.system, on, term.measure) for term, on in places]
    weights = [term.weight / len(term.collections(stand)) for term, _ in places]
    if not kind.rows:
        return _ratio(weights, [values for values, _ in read], contrast.constant)
    samples: list[list[int]] = []  # places that share questions
    for i, (values, _) in enumerate(read):
        sample = next((each for each in samples if len(read[each[0]][0].index.intersection(values.index))), None)
        samples.append([i]) if sample is None else sample.append(i)
    compared, matched = [], {}
    for sample in samples:
        shared = reduce(pd.Index.intersection, (read[i][0].index for i in sample))
        require(len(shared) > 1, "the terms of a comparison share no questions", DataError)
        matched |= zip(sample, same_seeds(*(read[i][0].loc[shared] for i in sample)), strict=True)
        widest = max((matched[i] for i in sample), key=lambda each: each.shape[1])
        total = sum(weights[i] * matched[i].to_numpy(float) for i in sample) * len(samples)  # (Q, S); `average` divides
        total = pd.DataFrame(np.broadcast_to(total, widest.shape), widest.index, widest.columns)
        compared.append(compare(total, 0 * total, read[sample[0]][1]))
    # The variance over seeds is from all systems of each chapter; one model answers all collections of a term.
    together = defaultdict(list)
    for term in terms:
        if term.kind is QUESTIONS:
            together[term.chapter, term.collections(stand), term.measure].append((term.weight, term.system))
    seeds = max(part.seeds for part in compared)
    pooled = (load(name).pooled(each, on, measure, seeds) for (name, on, measure), each in together.items())
    found = average(compared, [*chain.from_iterable(pooled)])
    values = [(term, matched[i].to_numpy(float)) for i, (term, _) in enumerate(places)]

    def is_trained(term: Term) -> bool:
        return term.kind is not QUESTIONS or load(term.chapter).trained(term.system, term.measure)

    counts = [each.shape[1] for term, each in values if is_trained(term)]
    found = replace(found, effect=found.effect + contrast.constant, seeds=min(counts, default=1))
    means = [float(np.mean([each.mean() for other, each in values if other is term])) for term in terms]
    closed = ""
    if kind is QUESTIONS and all(each.mean() >= CEILING for _, each in values):
        closed = f"no comparison: all sides are at the measure's ceiling ({CEILING:g} points and more)"
    elif kind is QUESTIONS and found.effect == 0 and found.by_query[0] == 0:
        closed = "no comparison: all differences are 0"
    return Outcome(found, means, 1 in counts, closed)


def _ratio(weights: Sequence[float], read: Sequence[pd.DataFrame], constant: float) -> Outcome:
    shared = reduce(pd.Index.intersection, (values.columns for values in read))
    require(len(shared) > 1, "a comparison of steps or times needs at least two seeds", DataError)
    logs = [values[shared].iloc[0] for values in read]
    total = constant + sum(weight * each for weight, each in zip(weights, logs, strict=True))
    count = len(total)
    require(total.nunique() > 1, f"all {count} seeds have one value: there is no error to compare it with", DataError)
    found = Comparison(float(total.mean()), total.std(ddof=1) / count**0.5, count - 1, 0, count)
    return Outcome(found, [float(np.exp(each.mean())) for each in logs], False, "")
