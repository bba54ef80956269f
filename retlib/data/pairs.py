"""Positive pairs, and the order in which training sees them, in all chapters that train."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, Self

import numpy as np

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable

RELEVANT = 0  # the purpose of random numbers that choose a relevant document; see `retlib.training.negatives`


@dataclass(frozen=True, eq=False)
class Pairs:
    """Training pairs, tokenized: row i of `queries` belongs to row i of `documents`; arrays of shape (pairs,)."""

    queries: TokenTable
    documents: TokenTable | np.ndarray
    labels: np.ndarray | None = None  # 1 for a positive pair, 0 for a labelled negative; all positive without it
    groups: np.ndarray | None = None  # pairs of one have documents that are relevant to each other's queries
    log_shares: np.ndarray | None = None  # logarithm of a document's share of the pairs from which it is drawn
    non_negatives: np.ndarray | None = None  # (pairs, pairs), bool, where groups do not tell
    rows: np.ndarray | None = None  # of the queries in `LabelledQueries`
    texts: np.ndarray | None = None  # a number for each document, which copies of a text share

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: np.ndarray) -> Self:
        """Return the given pairs, in the given order."""
        return Pairs(**{name: None if part is None else take(part, rows) for name, part in vars(self).items()})

    def draw(self, step: int, batch_size: int, seed: int) -> Self:
        """Return the pairs of a training step: shuffled epochs, see `rows_of_step`."""
        return self.take(rows_of_step(len(self), batch_size, seed, step))


@dataclass(frozen=True, eq=False)
class LabelledQueries:
    """Queries, the documents that are relevant to each, and all documents: texts, or encodings of shape (D, d).

    Row i of `relevant` has the rows of the documents that are relevant to query i, at least one, `own` (Q,) that of the
    document that the query is, or -1, and `texts` (D,) a number for each document, which copies of a text share. Raises
    `DataError` for a query without any negative: neither its own document nor a copy of a relevant one is one.
    """

    queries: TokenTable
    relevant: TokenTable
    documents: TokenTable | np.ndarray
    own: np.ndarray | None = None
    texts: np.ndarray | None = None

    def __post_init__(self) -> None:
        copies = np.bincount(self._texts)[self._non_negatives % len(self.documents)]
        counts = np.bincount(self._non_negatives // len(self.documents), copies)
        wrong = f"query {counts.argmax()} has no negative: each document is relevant to it, or a copy"
        require(counts.max() < len(self.documents), wrong, DataError)

    def __len__(self) -> int:
        return len(self.queries)

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs:
        """Return the queries of a training step, each with one of its relevant documents; see `rows_of_step`."""
        rows = rows_of_step(len(self), batch_size, seed, step)
        chosen = self.one_relevant(rows, np.random.default_rng((seed, step, RELEVANT)))
        non_negatives = self.non_negatives(rows, np.broadcast_to(chosen, (len(rows), len(rows))))
        queries, documents, shares = self.queries.take(rows), take(self.documents, chosen), self._log_shares[chosen]
        return Pairs(queries, documents, log_shares=shares, non_negatives=non_negatives, rows=rows)

    @cached_property
    def _log_shares(self) -> np.ndarray:
        # Of each document, the logarithm of its chance to be the one of a query that is drawn.
        each = np.repeat(1 / self.relevant.lengths, self.relevant.lengths)
        shares = np.bincount(self.relevant.ids, each, minlength=len(self.documents)) / len(self)
        return np.log(shares, out=np.full(len(shares), -np.inf), where=shares > 0).astype(np.float32)

    @cached_property
    def _texts(self) -> np.ndarray:
        return np.arange(len(self.documents)) if self.texts is None else self.texts

    # Of pairs of a query and a relevant document, or of a query and a text that is no negative of it, one number each.

    @cached_property
    def _keys(self) -> np.ndarray:
        queries = np.repeat(np.arange(len(self)), self.relevant.lengths)
        return np.sort(queries * len(self.documents) + self.relevant.ids)

    @cached_property
    def _non_negatives(self) -> np.ndarray:
        own = np.full(len(self), -1) if self.own is None else self.own
        queries = np.append(np.repeat(np.arange(len(self)), self.relevant.lengths), np.flatnonzero(own >= 0))
        return np.unique(queries * len(self.documents) + self._texts[np.append(self.relevant.ids, own[own >= 0])])

    def hits(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return which documents are relevant: bool, (B, n), of `queries` (B,) and `rows` (B, n); row -1 is not."""
        return self._among(self._keys, queries, rows) & (rows >= 0)

    def non_negatives(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return which documents are no negatives: relevant ones, the query's own, and copies of these; as `hits`."""
        return self._among(self._non_negatives, queries, self._texts[rows]) & (rows >= 0)

    def _among(self, keys: np.ndarray, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        looked = queries[:, None] * len(self.documents) + numbers  # np.isin would sort the keys each time
        return keys[np.minimum(np.searchsorted(keys, looked), len(keys) - 1)] == looked

    def candidates(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return lists, (B, n), without what is `non_negatives` and not relevant; -1 fills them at the end."""
        out = self.non_negatives(queries, rows) & ~self.hits(queries, rows)
        order = np.argsort(out, axis=1, kind="stable")
        return np.take_along_axis(np.where(out, -1, rows), order, axis=1)

    def one_relevant(self, queries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a relevant document of each query, drawn uniformly: rows, shape (B,)."""
        drawn = rng.random(len(queries)) * self.relevant.lengths[queries]
        return self.relevant.ids[self.relevant.offsets[queries] + drawn.astype(np.int64)].astype(np.int64)


class PairSource(Protocol):
    """Where positive pairs come from: `Pairs`, `LabelledQueries`, `retlib.training.pretraining.PretrainingPairs`.

    Its length is the number of different pairs, at most; a draw depends on its arguments alone: training can resume.
    """

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs: ...

    def __len__(self) -> int: ...


def take(values: TokenTable | np.ndarray, rows: np.ndarray) -> TokenTable | np.ndarray:
    """Return some rows of texts, or of their encodings."""
    return values.take(rows) if isinstance(values, TokenTable) else values[rows]


@lru_cache(maxsize=8)
def _order(count: int, seed: int, epoch: int) -> np.ndarray:
    order = np.random.default_rng((seed, epoch)).permutation(count)
    order.flags.writeable = False  # callers get views of what is kept here
    return order


def pairs_in_batch(count: int, batch_size: int) -> int:
    """Return the number of pairs in a batch: never more than there are."""
    require(batch_size >= 1, f"batch_size = {batch_size} must be at least 1")
    require(count >= 1, "there are no training pairs", DataError)
    return min(batch_size, count)


def rows_of_step(count: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Return the pairs of a training step, from 0: shuffled epochs, the short last batch left out."""
    batch_size = pairs_in_batch(count, batch_size)
    epoch, place = divmod(step, count // batch_size)
    return _order(count, seed, epoch)[place * batch_size : (place + 1) * batch_size]
