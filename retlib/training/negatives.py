"""Negatives, in all chapters that train: what a step sees, and samplers that choose which documents it sees.

All samplers draw the queries of a step and all else from (seed, step), so that they differ in their negatives alone. A
new one is one decorated class, here or anywhere (`retlib.core.registry`), made from `Inputs` and from options of its
own, the keyword arguments of its constructor::

    @register("near-positive")
    class NearPositive(FromLists):
        def __init__(self, inputs, n=1, width=5): ...
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import DataError, RetlibError, require, require_one_of, require_positive
from retlib.core.registry import Registry
from retlib.core.runtime import Clock
from retlib.data.text import TokenTable
from retlib.data.tokenized import RELEVANT, LabelledQueries, PairSource, pairs_in_batch, rows_of_step, take
from retlib.retrieval.index import Index
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE

# Purposes that random numbers are drawn for beside RELEVANT, each with a stream of its own.
LISTED, ANY, FILLED = range(RELEVANT + 1, RELEVANT + 4)

# What negatives say of themselves: whether they depend on an index of the documents, and whether the documents must
# stay as they are encoded, so that the query encoder alone is trained.
NEGATIVES = Registry("negatives", indexed=False, fixed_documents=False)
register, names = NEGATIVES.register, NEGATIVES.names


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a sampler is made of: the pairs of a step, and how queries are encoded and searched."""

    source: PairSource  # `retlib.data.tokenized.LabelledQueries` for samplers that choose among all documents
    batch_size: int  # at most; there are never more than queries
    seed: int  # of the order of the queries, and of what is drawn for them
    # Encodes queries with the current weights: float32, shape (rows, d).
    encode: Callable[[TokenTable], np.ndarray] | None = None
    index: Callable[[], Index] | None = None  # of the documents; made anew where these are trained, too
    bm25: Callable[[int], np.ndarray] | None = None  # from a depth to BM25's lists of the queries, -1 at their end


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees: B queries and their documents."""

    queries: TokenTable
    documents: TokenTable | Tensor  # N that all queries share, or B * n, n to each query; a tensor holds encodings
    targets: Tensor  # int8, (B, N) or (B, n); see `retlib.training.losses`
    shared: bool
    log_shares: Tensor | None = None  # float32, (N,): what a sampled softmax subtracts from a document's scores
    rows: np.ndarray | None = None  # (B,): the queries' in `LabelledQueries`, if they come from there
    hardest: bool = False  # of the negatives of a query only the highest-scoring one takes part
    exact: bool = False  # products in float32: what ranks side by side differs by less than bfloat16 tells apart
    vectors: Tensor | None = None  # float32, (M, d): a memory bank behind the shared documents; N + M targets then


@dataclass(frozen=True, eq=False)
class DeferredBatch:
    """A batch whose documents depend on how this very step encodes its queries."""

    queries: TokenTable
    close: Callable[[np.ndarray], Batch]  # from the queries' encodings, float32 of shape (B, d)
    rows: np.ndarray  # as of `Batch`


def check_rows(label: str, rows: Any, shape: tuple[int | None, ...], low: int, count: int) -> None:
    """Raise `SettingError` unless someone's own class gave whole numbers from `low` to `count` - 1, of that shape.

    None in it stands for any size.
    """
    wrong = f"{label} must give an array of rows from {low} to {count - 1}, of shape {shape}".replace("None", "any")
    whole = isinstance(rows, np.ndarray) and rows.dtype.kind in "iu" and rows.ndim == len(shape)
    require(whole and all(want in (None, size) for want, size in zip(shape, rows.shape, strict=True)), wrong)
    require(rows.size == 0 or (rows.min() >= low and rows.max() < count), wrong)


def only_hardest(scores: Tensor, targets: Tensor) -> Tensor:
    """Return targets whose negatives are ignored but for the highest-scoring one of each row; shapes (B, N)."""
    negative = targets == NEGATIVE
    best = scores.detach().masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
    return targets.masked_fill(negative.scatter(1, best, False), IGNORE)


class StaleLists:
    """Lists that are fetched every `interval` steps, with the weights of that moment, for each `every`-th step."""

    def __init__(self, inputs: Inputs, interval: int, depth: int, every: int = 1, clock: Clock | None = None) -> None:
        self.inputs, self.clock = inputs, clock or Clock()
        self.interval, self.depth, self.every = interval, depth, every
        require_positive(self, "interval", "depth", "every")
        self._rows_of_step = partial(rows_of_step, len(inputs.source), inputs.batch_size, inputs.seed)
        self._since = -1
        self._queries = self._lists = np.empty(0, dtype=np.int64)

    def at(self, step: int) -> np.ndarray:
        """Return the lists of a step's queries as of the last refresh: rows, shape (B, depth), -1 for none."""
        since = step - step % self.interval
        if since != self._since:
            coming = [each for each in range(since, since + self.interval) if each % self.every == 0]
            self._since, self._queries = since, np.unique([self._rows_of_step(each) for each in coming])
            with self.clock("encoding corpus"):
                index = self.inputs.index()
            with self.clock("encoding queries"):
                encoded = self.inputs.encode(self.inputs.source.queries.take(self._queries))
            with self.clock("search"):
                self._lists = index.search(encoded, self.depth)[1]
        return self._lists[np.searchsorted(self._queries, self._rows_of_step(step))]

    def state(self) -> dict[str, Tensor]:
        """Return the lists, those of the queries to come among them."""
        parts = {"since": np.array([self._since]), "queries": self._queries, "lists": self._lists}
        return {f"stale/{name}": torch.from_numpy(values) for name, values in parts.items()}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        self._since = int(tensors["stale/since"])
        self._queries, self._lists = (tensors[f"stale/{name}"].numpy() for name in ("queries", "lists"))


def options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the negatives of that name, with defaults; `SettingError` if one is unknown or missing."""
    _, *own = inspect.signature(NEGATIVES.get(name)).parameters.values()
    for option in given:
        require_one_of(f"an option of {name!r} negatives", option, [parameter.name for parameter in own])
    values = {parameter.name: given.get(parameter.name, parameter.default) for parameter in own}
    missing = [option for option, value in values.items() if value is inspect.Parameter.empty]
    require(not missing, f"{name!r} negatives need a value for {', '.join(missing)}")
    return values


class Sampler(ABC):
    """What the samplers have in common; `clock` has the seconds of the parts of its work.

    One that wants to see what a step encoded has ``after(batch, queries, documents)``, called with both sides'
    encodings, detached; the batch's own `vectors` are the last of the documents.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.source, self.seed, self.clock = inputs.source, inputs.seed, Clock()
        self.batch_size = pairs_in_batch(len(inputs.source), inputs.batch_size)

    @property
    def labelled(self) -> LabelledQueries:
        """The source, where it is a collection's queries; `SettingError` where it is none."""
        fits = isinstance(self.source, LabelledQueries)
        require(fits, f"{type(self).__name__} chooses among a collection's documents; these pairs have none")
        return self.source

    @abstractmethod
    def batch(self, step: int) -> Batch | DeferredBatch:
        """Return the batch of a step."""

    def state(self) -> dict[str, Tensor]:
        """Return what batches depend on beside the step, for `set_state`."""
        return {}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 - most have no state
        """Go back to what `state` gave."""

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

    With `mask_known`, documents of other pairs that are known to be relevant, or have the text of one that is, are no
    negatives; in Gillick 2018 they are. With `corrected`, the loss subtracts the `log_shares` of the pairs from their
    scores: the batch then stands for all documents (Bengio and Senécal 2008; Chang 2020, section 2).
    """

    hardest = False

    def __init__(self, inputs: Inputs, mask_known: bool = True, corrected: bool = False) -> None:
        super().__init__(inputs)
        self.mask_known, self.corrected = mask_known, corrected
        self._eye = torch.full((self.batch_size,) * 2, NEGATIVE, dtype=torch.int8).fill_diagonal_(POSITIVE)

    def batch(self, step: int) -> Batch:
        """Return the batch of a step: targets of shape (B, B)."""
        with self.clock("sampling"):
            drawn, targets = self.source.draw(step, self.batch_size, self.seed), self._eye
            if self.mask_known:
                mask, numbers = drawn.non_negatives, [drawn.groups, drawn.texts]
                require(mask is not None or drawn.groups is not None, "mask_known needs pairs with groups")
                if mask is None:
                    mask = np.any([each[:, None] == each for each in numbers if each is not None], axis=0)
                targets = targets.masked_fill(torch.from_numpy(mask) & (targets == NEGATIVE), IGNORE)
            require(not self.corrected or drawn.log_shares is not None, "the correction needs pairs with log_shares")
            log_shares = torch.from_numpy(drawn.log_shares) if self.corrected else None
            return Batch(drawn.queries, _tensor(drawn.documents), targets, True, log_shares, drawn.rows, self.hardest)


@register("hardest-in-batch")
class HardestInBatch(InBatch):
    """As `InBatch`, but only the document that scores highest is a negative (NCE Neg: Zhan 2020, section 5.2.2)."""

    hardest = True

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)


@register("labelled")
class Labelled(Sampler):
    """Each query sees its own document alone, which is labelled positive or negative (Gillick 2018, section 2.1)."""

    def batch(self, step: int) -> Batch:
        """Return the batch of a step: targets of shape (B, 1)."""
        drawn = self.source.draw(step, self.batch_size, self.seed)
        require(drawn.labels is not None, "the pairwise loss needs labelled pairs", DataError)
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
        """Return the batch of a step: targets of shape (B, 1 + n), the positive first."""
        with self.clock("sampling"):
            queries = self._queries(step)
            rows = np.column_stack([self._relevant(queries, step), self.negatives(queries, step)])
            return self._batch(queries, rows, np.where(np.arange(1 + self.n) == 0, POSITIVE, NEGATIVE))

    @abstractmethod
    def negatives(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Return rows of documents that are not relevant to the queries, shape (B, n)."""

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
    """Drawn from a ranked list of each query, without replacement; random documents take the places that stay free."""

    @abstractmethod
    def lists(self, queries: np.ndarray, step: int) -> np.ndarray:
        """Return rows of documents, shape (B, k), -1 where a list is shorter."""

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
        self._lists = inputs.bm25(depth)

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

    All relevant ones among them are positives. Where none is, one that is drawn takes the last place. Places that an
    approximate search leaves empty are ignored. So are `skip` documents at the head of the list, unless they are
    relevant: where few were judged, relevant ones are among them.
    """

    def __init__(self, inputs: Inputs, n: int = 50, skip: int = 0) -> None:
        super().__init__(inputs)
        require(n >= 2, f"n = {n} retrieved documents: at least 2 are needed, a positive and a negative")
        require(0 <= skip < n - 1, f"skip = {skip} of n = {n} retrieved documents leaves no negative and a positive")
        self.index, self.n, self.skip = inputs.index(), n, skip

    def batch(self, step: int) -> DeferredBatch:
        """Return the queries of a step; closing it retrieves, and gives targets of shape (B, n)."""
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
