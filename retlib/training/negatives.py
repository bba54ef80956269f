"""Negatives: each sampler answers one question, "which documents does this batch see?".

All samplers draw the queries of a step and all else from (seed, step), so that they differ in their negatives alone. A
new one is one decorated class, here or anywhere (`retlib.core.registry`), made from `Inputs` and from options of its
own, the keyword arguments of its constructor::

    @register("near-positive")
    class NearPositive(FromLists):
        def __init__(self, inputs, n=1, width=5): ...
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import DataError, RetlibError, require, require_one_of
from retlib.core.registry import Registry
from retlib.core.runtime import Clock
from retlib.data.pairs import RELEVANT, LabelledQueries, Pairs, pairs_in_batch, rows_of_step, take
from retlib.data.text import TokenTable
from retlib.training.batches import Batch, DeferredBatch, check_rows
from retlib.training.inputs import Inputs, StaleLists, fits
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE

# Purposes that random numbers are drawn for beside RELEVANT, each with a stream of its own.
LISTED, ANY, FILLED = range(RELEVANT + 1, RELEVANT + 4)

# What negatives say of themselves: whether they depend on an index of the documents, and whether the documents must
# stay as they are encoded, so that the query encoder alone is trained.
NEGATIVES = Registry("negatives", indexed=False, fixed_documents=False)
register, names = NEGATIVES.register, NEGATIVES.names


def options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the negatives of that name, with their defaults.

    It raises `SettingError` if one is given that they do not have, or one is missing that has no default.
    """
    own = list(inspect.signature(NEGATIVES.get(name)).parameters.values())[1:]
    for option in given:
        require_one_of(f"an option of {name!r} negatives", option, [parameter.name for parameter in own])
    found = {parameter.name: given.get(parameter.name, parameter.default) for parameter in own}
    missing = [option for option, value in found.items() if value is inspect.Parameter.empty]
    require(not missing, f"{name!r} negatives need a value for {', '.join(missing)}")
    return found


class Sampler(ABC):
    """What the samplers have in common; `clock` has the seconds of the parts of its work.

    One whose batches depend on more than the step has `state` and `set_state`, as a task has; one that wants to see
    what a step encoded has ``after(batch, queries, documents)``, called with both sides' encodings, detached.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.source, self.seed, self.clock = inputs.source, inputs.seed, Clock()
        self.batch_size = pairs_in_batch(len(inputs.source), inputs.batch_size)

    @property
    def labelled(self) -> LabelledQueries:
        """The source, where it is a collection's queries; `SettingError` where it is none."""
        found = isinstance(self.source, LabelledQueries)
        require(found, f"{type(self).__name__} chooses among a collection's documents; these pairs have none")
        return self.source

    @abstractmethod
    def batch(self, step: int) -> Batch | DeferredBatch:
        """The batch of a step."""

    def _queries(self, step: int) -> np.ndarray:
        return rows_of_step(len(self.source), self.batch_size, self.seed, step)

    def _random(self, step: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, step, purpose))

    def _relevant(self, queries: np.ndarray, step: int) -> np.ndarray:
        return self.labelled.one_relevant(queries, self._random(step, RELEVANT))

    def _batch(self, queries: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> Batch:
        # With documents of (B, n) rows, of which some are no negatives.
        documents = _tensor(take(self.labelled.documents, rows.ravel()))
        targets = np.where((targets == NEGATIVE) & self.labelled.non_negatives(queries, rows), IGNORE, targets)
        kinds = torch.from_numpy(targets.astype(np.int8))
        return Batch(self.labelled.queries.take(queries), documents, kinds, shared=False, rows=queries, exact=True)


def _tensor(documents: TokenTable | np.ndarray) -> TokenTable | Tensor:
    return documents if isinstance(documents, TokenTable) else torch.from_numpy(documents)


@register("in-batch")
class InBatch(Sampler):
    """Each query sees the documents of the whole batch; its own is the positive (Gillick 2018, section 2.1).

    All pairs of the source are positive. With `mask_known`, documents of other pairs that are known to be relevant, or
    have the text of one that is, are no negatives; in Gillick 2018 they are. With `corrected`, the loss subtracts the
    `log_shares` of the pairs from their scores, for documents that are drawn more often than others: the batch then
    stands for all documents (Bengio and Senécal 2008; Chang 2020, section 2).
    """

    def __init__(self, inputs: Inputs, mask_known: bool = True, corrected: bool = False) -> None:
        super().__init__(inputs)
        self.mask_known, self.corrected = mask_known, corrected
        self._eye = torch.full((self.batch_size,) * 2, NEGATIVE, dtype=torch.int8).fill_diagonal_(POSITIVE)

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, B)."""
        with self.clock("sampling"):
            drawn = self.source.draw(step, self.batch_size, self.seed)
            targets = self._eye
            if self.mask_known:
                known = torch.from_numpy(_known(drawn)) & (targets == NEGATIVE)
                targets = targets.masked_fill(known, IGNORE)
            log_shares = None
            if self.corrected:
                require(drawn.log_shares is not None, "the correction needs pairs with log_shares")
                log_shares = torch.from_numpy(drawn.log_shares)
            return Batch(drawn.queries, _tensor(drawn.documents), targets, True, log_shares, drawn.rows)


def _known(drawn: Pairs) -> np.ndarray:
    if drawn.known is not None:
        return drawn.known
    require(drawn.groups is not None, "mask_known needs pairs with groups")
    known = drawn.groups[:, None] == drawn.groups[None, :]
    return known if drawn.texts is None else known | (drawn.texts[:, None] == drawn.texts[None, :])


@register("hardest-in-batch")
class HardestInBatch(InBatch):
    """As `InBatch`, but only the document that scores highest is a negative (NCE Neg: Zhan 2020, section 5.2.2)."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)

    def batch(self, step: int) -> Batch:
        return replace(super().batch(step), hardest=True)


@register("labelled")
class Labelled(Sampler):
    """Each query sees its own document alone, which is labelled positive or negative (Gillick 2018, section 2.1)."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        labels = getattr(inputs.source, "labels", None)
        require(labels is not None, "the pairwise loss needs labelled pairs", DataError)

    def batch(self, step: int) -> Batch:
        """The batch of a step: targets of shape (B, 1)."""
        drawn = self.source.draw(step, self.batch_size, self.seed)
        targets = torch.from_numpy(drawn.labels.astype(np.int8))[:, None]
        return Batch(drawn.queries, drawn.documents, targets, shared=False)


class HardNegatives(Sampler):
    """Each query sees one relevant document, drawn anew at every step, and n negatives of its own.

    A negative is never a document that is known to be relevant, a copy of one, or the query itself.
    """

    def __init__(self, inputs: Inputs, n: int) -> None:
        super().__init__(inputs)
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
        # As `negatives`, drawn from all documents.
        rng, count = self._random(step, purpose), len(self.labelled.documents)
        rows = rng.integers(0, count, (len(queries), self.n))
        while (wrong := self.labelled.non_negatives(queries, rows)).any():
            rows[wrong] = rng.integers(0, count, wrong.sum())
        return rows


@register("random")
class RandomNegatives(HardNegatives):
    """Drawn from all documents (Rand Neg), with replacement: n may exceed their number."""

    def __init__(self, inputs: Inputs, n: int = 1) -> None:
        super().__init__(inputs, n)

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        return self._any(queries, step)


class FromLists(HardNegatives):
    """Drawn from a ranked list of each query, without replacement.

    Where a list holds fewer than n documents that are not relevant, or none at all, random
    documents take the free places.
    """

    @abstractmethod
    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Rows of documents, shape (B, k), -1 where a list is shorter."""

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        lists = self.lists(queries, step)
        check_rows(f"{type(self).__name__}.lists", lists, (len(queries), None), -1, len(self.labelled.documents))
        usable = (lists >= 0) & ~self.labelled.non_negatives(queries, lists)
        # The first n of a random order in which what cannot be used comes last.
        order = np.where(usable, self._random(step, LISTED).random(lists.shape), 1).argsort(axis=1)[:, : self.n]
        usable = np.take_along_axis(usable, order, axis=1)
        rows = self._any(queries, step, FILLED)
        rows[:, : order.shape[1]][usable] = np.take_along_axis(lists, order, axis=1)[usable]
        return rows


@register("bm25")
class BM25Negatives(FromLists):
    """Drawn from BM25's lists, which do not change (BM25 Neg); their depth is 200 in the paper."""

    def __init__(self, inputs: Inputs, n: int = 1, depth: int = 200) -> None:
        super().__init__(inputs, n)
        lists, count = inputs.bm25(depth), len(self.labelled.documents)
        require(len(lists) == len(self.source), f"{len(lists)} lists for {len(self.source)} queries", DataError)
        inside = lists.size == 0 or (lists.min() >= -1 and lists.max() < count)
        require(inside, f"a list names a document that is none of the {count}", DataError)
        self._lists = lists

    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        return self._lists[queries]


@register("bm25+random")
class BM25AndRandom(HardNegatives):
    """Half of the n negatives of a query from BM25's lists, half from all documents (BM25 + Rand Neg); n is even."""

    def __init__(self, inputs: Inputs, n: int = 2, depth: int = 200) -> None:
        super().__init__(inputs, n)
        require(n % 2 == 0, f"n = {n}: a mixture of equal parts needs an even number")
        self._halves = BM25Negatives(inputs, n // 2, depth), RandomNegatives(inputs, n // 2)

    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        return np.column_stack([half.negatives(queries, step) for half in self._halves])


@register("ann", indexed=True)
class AsynchronousNegatives(FromLists):
    """Drawn from lists that the model itself retrieved up to `interval` steps ago (ANCE: Xiong et al. 2021)."""

    def __init__(self, inputs: Inputs, n: int = 1, depth: int = 200, interval: int = 200) -> None:
        super().__init__(inputs, n)
        self._stale = StaleLists(inputs, interval, depth, clock=self.clock)
        self.state, self.set_state = self._stale.state, self._stale.set_state

    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        return self._stale.at(step)


@register("retrieved", indexed=True, fixed_documents=True)
class Retrieved(Sampler):
    """The n documents that the query encoder of this very step retrieves from all (LTRe; section 4.2, algorithm 1).

    All relevant ones among them are positives. Where none is, one that is drawn takes the last place. n is cut to the
    number of documents, and places that an approximate search leaves empty are ignored. So are `skip` documents at the
    head of the list, unless they are relevant: where few were judged, relevant ones are among them.

    It raises `DataError` if the index is of other documents, or of vectors of another size.
    """

    def __init__(self, inputs: Inputs, n: int = 50, skip: int = 0) -> None:
        super().__init__(inputs)
        index = inputs.index()
        require(n >= 2, f"n = {n} retrieved documents: at least 2 are needed, a positive and a negative")
        require(0 <= skip < n - 1, f"skip = {skip} of n = {n} retrieved documents leaves no negative and a positive")
        fits(index, self.labelled)
        self.index, self.n, self.skip = index, n, skip

    def batch(self, step: int) -> DeferredBatch:
        """The queries of a step; closing it retrieves, and gives targets of shape (B, n)."""
        with self.clock("sampling"):
            queries = self._queries(step)
            return DeferredBatch(self.labelled.queries.take(queries), partial(self._close, queries, step), queries)

    def _close(self, queries: np.ndarray, step: int, encodings: np.ndarray) -> Batch:
        with self.clock("search"):
            wrong = f"step {step}: the queries' encodings are no numbers; lower the learning rate"
            require(bool(np.isfinite(encodings).all()), wrong, RetlibError)
            rows = self.index.search(encodings, self.n)[1]
        with self.clock("sampling"):
            hits = self.labelled.hits(queries, rows)
            none = ~hits.any(axis=1)
            rows[none, -1], hits[none, -1] = self._relevant(queries, step)[none], True
            ignored = (rows < 0) | (np.arange(rows.shape[1]) < self.skip)
            targets = np.where(hits, POSITIVE, np.where(ignored, IGNORE, NEGATIVE))
            return self._batch(queries, np.maximum(rows, 0), targets)
