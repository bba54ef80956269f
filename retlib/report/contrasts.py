"""Contrasts: weighted sums of recorded systems, and what they say of a claim (chapters with claims).

A chapter writes ``softmax - pairwise`` or ``bm25 - 41.86``. Every claim is tested by such a sum: of values by question,
of training curves (`retlib.report.curves`), or of logarithms of times and steps, whose difference is a ratio.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation.measures import Comparison, average, compare, same_seeds
from retlib.evaluation.results import Results

LEVEL = 0.05  # of every test
CEILING = 99.0  # points at which sides cannot be told apart any more
EQUIVALENCE_MARGIN = 1.0  # points within which a difference is no effect


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
    require(len(values) > 1, f"{system!r} needs two seeds with recorded {column} of {measure!r}", DataError)
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
    rises: tuple[Contrast, ...] = ()  # none of which may be a fall, where the sum is a slope
    label: str = ""
    paper: float | None = None  # the effect that the paper prints: a difference in points, or a ratio
    margin: float | None = None  # the effect is claimed to be above it, None for 0; where `alike`, on no side beyond it
    alike: bool = False
    gated: bool = True  # whether trainings must have come to rest, and be above their start

    def __add__(self, other: Contrast) -> Contrast:
        return replace(self, terms=self.terms + other.terms, constant=self.constant + other.constant)

    def __mul__(self, factor: float) -> Contrast:
        terms = tuple(term._replace(weight=factor * term.weight) for term in self.terms)
        return replace(self, terms=terms, constant=factor * self.constant)

    __rmul__ = __mul__

    def __sub__(self, other: Contrast | float) -> Contrast:
        return self + -1.0 * other if isinstance(other, Contrast) else replace(self, constant=self.constant - other)

    def above(self, margin: float) -> Contrast:
        """Return the contrast, claimed to be above a margin: of 0, too, it is not asked whether there is no effect."""
        return replace(self, margin=margin)

    def within(self, margin: float) -> Contrast:
        """Return the contrast, claimed to be within so many points of 0."""
        return replace(self, margin=margin, alike=True)

    def printed(self, effect: float | None) -> Contrast:
        """Return the contrast with the effect that the paper prints."""
        return replace(self, paper=effect)

    def called(self, label: str) -> Contrast:
        """Return the contrast with words of its own, where its systems and weights say too little."""
        return replace(self, label=label)

    def may_still_learn(self) -> Contrast:
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
    trained = [each for term, each in values if not kind.by_question or term.rows.trained(term.system, term.measure)]
    counts, closed = [compared.seeds] if kind.ratio else [each.shape[1] for each in trained], ""
    if kind.by_question and min(each.mean() for _, each in values) >= CEILING:
        closed = f"no comparison: all sides are at the measure's ceiling ({CEILING:g} points and more)"
    elif kind.by_question and compared.effect == 0 and compared.by_query[0] == 0:
        closed = "no comparison: all differences are 0"
    means = [np.mean([each.mean() for other, each in values if other is term]) for term in contrast.terms]
    return {
        "effect": compared.effect, "low": low, "high": high, "freedom": float(compared.freedom), "p_for": p_for,
        "p_against": p_against, "p_none": p_none, "seeds": float(min(counts, default=1)), "one_seed": 1 in counts,
        "questions": float(compared.queries), "closed": closed, "means": np.exp(means) if kind.ratio else means,
    }  # fmt: skip


def _compared(contrast: Contrast) -> tuple[Comparison, list[tuple[Term, np.ndarray]]]:
    # The effect with its error, and the values of each term on each collection. They are paired by row and seed. Terms
    # with other questions, such as two data sets, are samples of their own; seeds are the same in all.
    parts = [(t, *t.kind.read(t.rows, t.system, on, t.measure)) for t in contrast.terms for on in t.collections]
    samples, compared, values, together = defaultdict(list), [], [], defaultdict(list)
    for part in parts:
        first = next((i for i, each in enumerate(parts) if len(each[1].index.intersection(part[1].index))), 0)
        samples[first].append(part)
    for terms, frames, clusters in (zip(*sample, strict=True) for sample in samples.values()):
        shared = reduce(pd.Index.intersection, (each.index for each in frames))
        require(len(shared) > 1, "the terms of a comparison share no questions, or no seeds", DataError)
        matched = same_seeds(*(each.loc[shared] for each in frames))
        values += [(term, each.to_numpy(float)) for term, each in zip(terms, matched, strict=True)]
        weights = [term.weight * len(samples) / len(term.collections) for term in terms]  # `average` divides
        total = sum(weight * each for weight, (_, each) in zip(weights, values[-len(terms) :], strict=True))
        total = pd.DataFrame(total, shared, max((each.columns for each in matched), key=len))
        compared.append(compare(total, 0 * total, clusters[0]))
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
