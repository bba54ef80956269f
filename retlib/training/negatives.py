"""Negatives: each sampler answers one question, "which documents does this batch see?".

A sampler takes its positive pairs from a source, see `retlib.data.pairs`. Those that choose among all
documents are in `retlib.training.hard_negatives`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import DataError, require
from retlib.data.pairs import Pairs, PairSource, pairs_in_batch
from retlib.data.text import TokenTable
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees.

    Parameters
    ----------
    queries : TokenTable of B rows
    documents : TokenTable or float32 Tensor
        N rows that all queries share, or B * n rows, n to each query; a tensor holds their encodings.
    targets : int8 Tensor, shape (B, N) or (B, n)
        See `retlib.training.losses`.
    shared : bool
        Whether all queries see the same documents.
    log_shares : float32 Tensor, shape (N,), optional
        What a sampled softmax subtracts from the score of each document.
    rows : int array, shape (B,), optional
        Of the queries, where they come from `retlib.data.pairs.LabelledQueries`.
    hardest : bool
        Of the negatives of a query only the highest-scoring one takes part.
    exact : bool
        Multiply in float32 whatever the precision of training: documents that rank side by
        side differ by less than bfloat16 tells apart.
    """

    queries: TokenTable
    documents: TokenTable | Tensor
    targets: Tensor
    shared: bool
    log_shares: Tensor | None = None
    rows: np.ndarray | None = None
    hardest: bool = False
    exact: bool = False


@dataclass(frozen=True, eq=False)
class OpenBatch:
    """A batch whose documents depend on how this very step encodes its queries.

    Parameters
    ----------
    queries : TokenTable of B rows
    close : callable
        From the queries' encodings, float32 of shape (B, d), to the `Batch`.
    rows : int array, shape (B,)
        As for `Batch`.
    """

    queries: TokenTable
    close: Callable[[np.ndarray], Batch]
    rows: np.ndarray


def only_hardest(scores: Tensor, targets: Tensor) -> Tensor:
    """Targets whose negatives are ignored but for the highest-scoring one of each row; shapes (B, N)."""
    negative = targets == NEGATIVE
    best = scores.detach().masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
    others = negative.scatter(1, best, False)
    return targets.masked_fill(others, IGNORE)


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
        self.batch_size = pairs_in_batch(len(pairs), batch_size)
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
