"""Negatives: each sampler answers one question, "which documents does this batch see?".

A sampler takes its positive pairs from a source: an object with ``draw(step, batch_size, seed)``
that returns `Pairs`, and a length. `Pairs` is one, over labelled pairs in shuffled epochs;
`retlib.pretraining.PretrainingPairs` is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from retlib.errors import DataError, require
from retlib.losses import IGNORE, NEGATIVE, POSITIVE
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


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees.

    Parameters
    ----------
    queries : TokenTable of B rows
    documents : TokenTable
        N rows that all queries share, or B * n rows, n to each query.
    targets : int8 Tensor, shape (B, N) or (B, n)
        See `retlib.losses`.
    shared : bool
        Whether all queries see the same documents.
    log_shares : float32 Tensor, shape (N,), optional
        What a sampled softmax subtracts from the score of each document.
    """

    queries: TokenTable
    documents: TokenTable
    targets: Tensor
    shared: bool
    log_shares: Tensor | None = None


@lru_cache(maxsize=8)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    order = np.random.default_rng((seed, epoch)).permutation(count)
    order.flags.writeable = False  # callers get views of what is kept here
    return order


def _size(count: int, batch_size: int) -> int:
    """Pairs in a batch: never more than there are."""
    require(batch_size >= 1, f"batch_size = {batch_size} must be at least 1")
    require(count >= 1, "there are no training pairs", DataError)
    return min(batch_size, count)


def rows_of_step(count: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """The pairs of training step `step` (from 0): shuffled epochs, the short last batch left out.

    The answer depends on the arguments alone, so that a resumed training sees what an
    uninterrupted one would have seen.
    """
    batch_size = _size(count, batch_size)
    epoch, place = divmod(step, count // batch_size)
    return _order(count, seed, epoch)[place * batch_size : (place + 1) * batch_size]


class InBatch:
    """Each query sees the documents of the whole batch; its own is the positive (Gillick 2018, section 2.1).

    Parameters
    ----------
    pairs : PairSource
        All positive.
    batch_size : int
        B; a batch is never larger than the number of pairs.
    seed : int
        Of the order of the pairs.
    mask_known : bool
        Take known relevant documents of other pairs (`pairs.groups`) out of the negatives.
        The paper does not.
    corrected : bool
        Give the loss what corrects for documents that are drawn more often than others: the
        `log_shares` of the pairs, to be subtracted from their scores, so that the
        batch stands for all documents (Bengio and Senécal 2008; Chang 2020, section 2).
    """

    def __init__(
        self, pairs: PairSource, batch_size: int, seed: int, mask_known: bool = False, corrected: bool = False
    ) -> None:
        self.pairs, self.seed, self.mask_known, self.corrected = pairs, seed, mask_known, corrected
        self.batch_size = _size(len(pairs), batch_size)
        self._eye = torch.full((self.batch_size,) * 2, NEGATIVE, dtype=torch.int8).fill_diagonal_(POSITIVE)

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, B)."""
        drawn = self.pairs.draw(step, self.batch_size, self.seed)
        targets = self._eye
        if self.mask_known:
            require(drawn.groups is not None, "mask_known needs pairs with groups")
            groups = torch.from_numpy(drawn.groups)
            known = (groups[:, None] == groups[None, :]) & (targets == NEGATIVE)
            targets = targets.masked_fill(known, IGNORE)
        log_shares = None
        if self.corrected:
            require(drawn.log_shares is not None, "the correction needs pairs with log_shares")
            log_shares = torch.from_numpy(drawn.log_shares)
        return Batch(drawn.queries, drawn.documents, targets, True, log_shares)


class Labelled:
    """Each query sees its own document alone, which is labelled positive or negative.

    Parameters
    ----------
    pairs : Pairs
        With labels.
    batch_size, seed : int
        As for `InBatch`.
    """

    def __init__(self, pairs: Pairs, batch_size: int, seed: int) -> None:
        require(pairs.labels is not None, "the pairwise loss needs labelled pairs", DataError)
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, 1)."""
        drawn = self.pairs.draw(step, self.batch_size, self.seed)
        targets = torch.from_numpy(drawn.labels.astype(np.int8))[:, None]
        return Batch(drawn.queries, drawn.documents, targets, shared=False)
