"""Positive pairs, and the order in which training sees them.

A source of pairs is an object with ``draw(step, batch_size, seed)`` that returns `Pairs`, and a
length. `Pairs` is one, over labelled pairs in shuffled epochs; `retlib.pretraining.PretrainingPairs`
is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from retlib.errors import DataError, require
from retlib.text import TokenTable


class PairSource(Protocol):
    """Where positive pairs come from."""

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs:
        """The pairs of a training step; depends on the arguments alone, so that training can resume."""

    def __len__(self) -> int:
        """How many different pairs there are, at most."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Training pairs, tokenized.

    Parameters
    ----------
    queries, documents : TokenTable
        Row i of one belongs to row i of the other.
    labels : int8 array, shape (pairs,), optional
        1 for a positive pair, 0 for a labelled negative; all positive without it.
    groups : int array, shape (pairs,), optional
        Pairs of one group have documents that are relevant to each other's queries.
    log_shares : float32 array, shape (pairs,), optional
        Logarithm of each document's share of the pairs from which it is drawn.
    """

    queries: TokenTable
    documents: TokenTable
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None
    log_shares: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: np.ndarray) -> Pairs:
        """The given pairs, in the given order."""
        labels, groups, log_shares = (
            None if values is None else values[rows] for values in (self.labels, self.groups, self.log_shares)
        )
        return Pairs(self.queries.take(rows), self.documents.take(rows), labels, groups, log_shares)

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs:
        """The pairs of a training step: shuffled epochs, see `rows_of_step`."""
        return self.take(rows_of_step(len(self), batch_size, seed, step))


@lru_cache(maxsize=8)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    order = np.random.default_rng((seed, epoch)).permutation(count)
    order.flags.writeable = False  # callers get views of what is kept here
    return order


def pairs_in_batch(count: int, batch_size: int) -> int:
    """Pairs in a batch: never more than there are."""
    require(batch_size >= 1, f"batch_size = {batch_size} must be at least 1")
    require(count >= 1, "there are no training pairs", DataError)
    return min(batch_size, count)


def rows_of_step(count: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """The pairs of training step `step` (from 0): shuffled epochs, the short last batch left out.

    The answer depends on the arguments alone, so that a resumed training sees what an
    uninterrupted one would have seen.
    """
    batch_size = pairs_in_batch(count, batch_size)
    epoch, place = divmod(step, count // batch_size)
    return _order(count, seed, epoch)[place * batch_size : (place + 1) * batch_size]
