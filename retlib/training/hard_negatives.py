"""Negatives that are chosen among all documents: at random, from ranked lists, or by retrieval (Zhan 2020).

All samplers draw the queries of a step and all else from (seed, step), so that they differ in their
negatives alone; a negative is never a document that is known to be relevant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import DataError, RetlibError, require
from retlib.core.runtime import Clock
from retlib.data.pairs import LabelledQueries, pairs_in_batch, rows_of_step
from retlib.data.text import TokenTable
from retlib.retrieval.index import Index
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.training.negatives import Batch, OpenBatch

# Encodes the queries of a table: float32, shape (rows, d).
Encode = Callable[[TokenTable], np.ndarray]

# Purposes that random numbers are drawn for, each with a stream of its own.
RELEVANT, LISTED, ANY, FILLED = range(4)


class Sampler(ABC):
    """What the samplers have in common.

    Parameters
    ----------
    judged : LabelledQueries
    batch_size : int
        B; a batch is never larger than the number of queries.
    seed : int
        Of the order of the queries and of what is drawn for them.

    Attributes
    ----------
    clock : Clock
        Seconds of the parts of its work.
    """

    def __init__(self, judged: LabelledQueries, batch_size: int, seed: int) -> None:
        self.judged, self.seed, self.clock = judged, seed, Clock()
        self.batch_size = pairs_in_batch(len(judged), batch_size)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each part: sampling, search, encoding."""
        return dict(self.clock.seconds)

    @abstractmethod
    def batch(self, step: int) -> Batch | OpenBatch:
        """The batch of a step."""

    def _queries(self, step: int) -> np.ndarray:
        return rows_of_step(len(self.judged), self.batch_size, self.seed, step)

    def _random(self, step: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, step, purpose))

    def _relevant(self, queries: np.ndarray, step: int) -> np.ndarray:
        return self.judged.one_relevant(queries, self._random(step, RELEVANT))

    def _batch(self, queries: np.ndarray, rows: np.ndarray, targets: np.ndarray, shared: bool = False) -> Batch:
        """The batch of some queries, with documents of (B, n) or, shared, (N,) rows."""
        documents, rows = self.judged.documents, rows.ravel()
        chosen = documents.take(rows) if isinstance(documents, TokenTable) else torch.from_numpy(documents[rows])
        kinds = torch.from_numpy(targets.astype(np.int8))
        return Batch(self.judged.queries.take(queries), chosen, kinds, shared, rows=queries, exact=not shared)


class InBatchJudged(Sampler):
    """Each query sees one relevant document of every query of the batch; another that is relevant to it is ignored."""

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, B)."""
        with self.clock("sampling"):
            queries = self._queries(step)
            rows = self._relevant(queries, step)
            known = self.judged.hits(queries, np.broadcast_to(rows, (len(rows), len(rows))))
            targets = np.where(known, IGNORE, NEGATIVE)
            np.fill_diagonal(targets, POSITIVE)
            return self._batch(queries, rows, targets, shared=True)


class HardestInBatch(InBatchJudged):
    """As `InBatchJudged`, but only the document that scores highest is a negative (NCE Neg: section 5.2.2)."""

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, B)."""
        return replace(super().batch(step), hardest=True)


class Listed(Sampler):
    """Each query sees one relevant document, drawn anew at every step, and n negatives of its own.

    Parameters
    ----------
    judged, batch_size, seed
        As for `Sampler`.
    n : int
        Negatives of a query.
    """

    def __init__(self, judged: LabelledQueries, batch_size: int, seed: int, n: int) -> None:
        super().__init__(judged, batch_size, seed)
        require(n >= 1, f"n = {n} negatives: at least 1 is needed")
        self.n = n

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, 1 + n), the positive first."""
        with self.clock("sampling"):
            queries = self._queries(step)
            rows = np.column_stack([self._relevant(queries, step), self.negatives(queries, step)])
            targets = np.full(rows.shape, NEGATIVE)
            targets[:, 0] = POSITIVE
            return self._batch(queries, rows, targets)

    @abstractmethod
    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows of documents that are not relevant to the queries, shape (B, n)."""

    def _any(self, queries: np.ndarray, step: int, purpose: int = ANY) -> np.ndarray:
        """As `negatives`, drawn from all documents."""
        rng, count = self._random(step, purpose), len(self.judged.documents)
        rows = rng.integers(0, count, (len(queries), self.n))
        while (wrong := self.judged.hits(queries, rows)).any():
            rows[wrong] = rng.integers(0, count, wrong.sum())
        return rows


class RandomNegatives(Listed):
    """Drawn from all documents (Rand Neg), with replacement: n may exceed their number."""

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows, shape (B, n)."""
        return self._any(queries, step)


class FromLists(Listed):
    """Drawn from a ranked list of each query, without replacement.

    Where a list holds fewer than n documents that are not relevant, or none at all, random
    documents take the free places.
    """

    @abstractmethod
    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows of documents, shape (B, k), -1 where a list is shorter."""

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows, shape (B, n)."""
        lists = self.lists(queries, step)
        usable = (lists >= 0) & ~self.judged.hits(queries, lists)
        # The first n of a random order in which what cannot be used comes last.
        order = np.where(usable, self._random(step, LISTED).random(lists.shape), 1).argsort(axis=1)[:, : self.n]
        usable = np.take_along_axis(usable, order, axis=1)
        rows = self._any(queries, step, FILLED)
        rows[:, : order.shape[1]][usable] = np.take_along_axis(lists, order, axis=1)[usable]
        return rows


class TopNegatives(FromLists):
    """Drawn from lists that do not change (BM25 Neg, with those of BM25).

    Parameters
    ----------
    judged, batch_size, seed, n
        As for `Listed`.
    lists : int array, shape (Q, k)
        Rows of documents, -1 where a list is shorter.
    """

    def __init__(self, judged: LabelledQueries, batch_size: int, seed: int, n: int, lists: np.ndarray) -> None:
        super().__init__(judged, batch_size, seed, n)
        require(len(lists) == len(judged), f"{len(lists)} lists for {len(judged)} queries", DataError)
        inside = lists.size == 0 or (lists.min() >= -1 and lists.max() < len(judged.documents))
        require(inside, f"a list names a document that is none of the {len(judged.documents)}", DataError)
        self._lists = lists

    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows, shape (B, k)."""
        return self._lists[queries]


class MixedNegatives(Listed):
    """The negatives of two samplers side by side (BM25 + Rand Neg), in the proportion of their numbers.

    Parameters
    ----------
    a, b : Listed
        Over the same queries, with one batch size and seed.
    """

    def __init__(self, a: Listed, b: Listed) -> None:
        same = all(getattr(a, name) == getattr(b, name) for name in ("judged", "batch_size", "seed"))
        require(same, "two samplers are mixed over the same queries, with one batch size and seed")
        super().__init__(a.judged, a.batch_size, a.seed, a.n + b.n)
        self.a, self.b = a, b

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows, shape (B, a.n + b.n)."""
        return np.column_stack([self.a.negatives(queries, step), self.b.negatives(queries, step)])


class StaleLists:
    """Lists that are fetched every so many steps, with the weights of that moment, for the steps up to the next time.

    Parameters
    ----------
    judged, batch_size, seed
        As for `Sampler`: they say which queries a step has.
    encode : callable
        Of the queries, with the current weights.
    index : callable
        The index to search, asked for at each refresh: where documents are trained too, it
        encodes them and builds the index anew.
    interval : int
        Steps between two refreshes.
    depth : int
        Of the lists; cut to the number of documents.
    every : int
        Lists are asked for every so many steps only.
    clock : Clock
    """

    def __init__(
        self,
        judged: LabelledQueries,
        batch_size: int,
        seed: int,
        encode: Encode,
        index: Callable[[], Index],
        interval: int,
        depth: int,
        every: int = 1,
        clock: Clock | None = None,
    ) -> None:
        for name, value in {"interval": interval, "depth": depth, "every": every}.items():
            require(value >= 1, f"{name} = {value}: at least 1 is needed")
        self.judged, self.encode, self.index, self.depth = judged, encode, index, depth
        self.interval, self.every, self.clock = interval, every, clock or Clock()
        self._rows_of_step = partial(rows_of_step, len(judged), batch_size, seed)
        self._since = -1
        self._queries = self._lists = np.empty(0, dtype=np.int64)

    def at(self, step: int) -> np.ndarray:
        """The lists of a step's queries as the last refresh found them: rows, shape (B, depth), -1 for none."""
        since = step - step % self.interval
        if since != self._since:
            self._refresh(since)
        return self._lists[np.searchsorted(self._queries, self._rows_of_step(step))]

    def _refresh(self, since: int) -> None:
        coming = [step for step in range(since, since + self.interval) if step % self.every == 0]
        self._since, self._queries = since, np.unique([self._rows_of_step(step) for step in coming])
        with self.clock("encoding corpus"):
            index = self.index()
        _fits(index, self.judged)
        with self.clock("encoding queries"):
            encoded = self.encode(self.judged.queries.take(self._queries))
        with self.clock("search"):
            self._lists = index.search(encoded, self.depth)[1]

    def state(self) -> dict[str, Tensor]:
        """The lists, those of the queries to come among them."""
        parts = {"since": np.array([self._since]), "queries": self._queries, "lists": self._lists}
        return {f"stale/{name}": torch.from_numpy(values) for name, values in parts.items()}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""
        self._since = int(tensors["stale/since"])
        self._queries, self._lists = (tensors[f"stale/{name}"].numpy() for name in ("queries", "lists"))


class StaleNegatives(FromLists):
    """Drawn from lists that the model itself retrieved up to `interval` steps ago (asynchronous ANN; ANCE).

    Parameters
    ----------
    judged, batch_size, seed, n
        As for `Listed`.
    encode, index, interval, depth
        As for `StaleLists`.
    """

    def __init__(
        self,
        judged: LabelledQueries,
        batch_size: int,
        seed: int,
        n: int,
        encode: Encode,
        index: Callable[[], Index],
        interval: int,
        depth: int,
    ) -> None:
        super().__init__(judged, batch_size, seed, n)
        size = self.batch_size
        self._stale = StaleLists(judged, size, seed, encode, index, interval, depth, clock=self.clock)
        self.state, self.set_state = self._stale.state, self._stale.set_state

    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows, shape (B, depth)."""
        return self._stale.at(step)


class Retrieved(Sampler):
    """The n documents that the query encoder of this very step retrieves from all (LTRe; section 4.2, algorithm 1).

    All relevant ones among them are positives. Where none is, one that is drawn takes the last place.

    Parameters
    ----------
    judged, batch_size, seed
        As for `Sampler`.
    index : Index
        Of the documents, row by row.
    n : int
        Cut to the number of documents. Places that an approximate search leaves empty are ignored.

    Raises
    ------
    DataError
        If the index is of other documents, or of vectors of another size.
    """

    def __init__(self, judged: LabelledQueries, batch_size: int, seed: int, index: Index, n: int) -> None:
        super().__init__(judged, batch_size, seed)
        require(n >= 2, f"n = {n} retrieved documents: at least 2 are needed, a positive and a negative")
        _fits(index, judged)
        self.index, self.n = index, n

    def batch(self, step: int) -> OpenBatch:
        """The queries of a step; closing it retrieves, and gives targets of shape (B, n)."""
        with self.clock("sampling"):
            queries = self._queries(step)
            return OpenBatch(self.judged.queries.take(queries), partial(self._close, queries, step), queries)

    def _close(self, queries: np.ndarray, step: int, encodings: np.ndarray) -> Batch:
        with self.clock("search"):
            wrong = f"step {step}: the queries' encodings are no numbers; lower the learning rate"
            require(bool(np.isfinite(encodings).all()), wrong, RetlibError)
            rows = self.index.search(encodings, self.n)[1]
        with self.clock("sampling"):
            hits = self.judged.hits(queries, rows)
            none = ~hits.any(axis=1)
            rows[none, -1], hits[none, -1] = self._relevant(queries, step)[none], True
            targets = np.where(hits, POSITIVE, np.where(rows < 0, IGNORE, NEGATIVE))
            return self._batch(queries, np.maximum(rows, 0), targets)


def _fits(index: Index, judged: LabelledQueries) -> None:
    """Whether an index is of these documents; raises `DataError`."""
    count = len(judged.documents)
    require(len(index) == count, f"the index has {len(index)} vectors; there are {count} documents", DataError)
    if not isinstance(judged.documents, TokenTable):
        size = judged.documents.shape[1]
        wrong = f"the index has vectors of {index.dimension} dimensions; the documents' encodings have {size}"
        require(index.dimension == size, wrong, DataError)
