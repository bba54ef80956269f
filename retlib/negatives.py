"""Negatives: each sampler answers one question, "which documents does this batch see?"."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from retlib.errors import DataError, require
from retlib.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.text import TokenTable


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
    """

    queries: TokenTable
    documents: TokenTable
    labels: np.ndarray | None = None
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.queries)


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
    """

    queries: TokenTable
    documents: TokenTable
    targets: Tensor
    shared: bool


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
    pairs : Pairs
        All positive.
    batch_size : int
        B; a batch is never larger than the number of pairs.
    seed : int
        Of the order of the pairs.
    mask_known : bool
        Take known relevant documents of other pairs (`pairs.groups`) out of the negatives.
        The paper does not.
    """

    def __init__(self, pairs: Pairs, batch_size: int, seed: int, mask_known: bool = False) -> None:
        require(not mask_known or pairs.groups is not None, "mask_known needs pairs with groups")
        self.pairs, self.batch_size, self.seed, self.mask_known = pairs, batch_size, seed, mask_known
        size = _size(len(pairs), batch_size)
        self._eye = torch.full((size, size), NEGATIVE, dtype=torch.int8).fill_diagonal_(POSITIVE)

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, B)."""
        rows = rows_of_step(len(self.pairs), self.batch_size, self.seed, step)
        targets = self._eye
        if self.mask_known:
            groups = torch.from_numpy(self.pairs.groups[rows])
            known = (groups[:, None] == groups[None, :]) & (targets == NEGATIVE)
            targets = targets.masked_fill(known, IGNORE)
        return Batch(self.pairs.queries.take(rows), self.pairs.documents.take(rows), targets, shared=True)


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
        rows = rows_of_step(len(self.pairs), self.batch_size, self.seed, step)
        targets = torch.from_numpy(self.pairs.labels[rows].astype(np.int8))[:, None]
        return Batch(self.pairs.queries.take(rows), self.pairs.documents.take(rows), targets, shared=False)
