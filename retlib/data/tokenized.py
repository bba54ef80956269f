"""A collection as retrievers and trainings read it: token rows, what is relevant, positive pairs (all chapters)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.text import Tokenizer, TokenTable, WordPiece, concatenate, offsets_of

TWO_PARTS = (("sentence", "context"), ("title", "text"))  # columns that are read with a separator between
ROWS, VERSION = "rows.safetensors", 1  # of token rows on disk: who reads a document otherwise raises it
KEPT = 100_000  # of more documents, token rows are not kept where only blocks of them are asked for
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


def texts(collection: Collection, rows: slice | np.ndarray = slice(None)) -> pd.Series:
    """Return what a lexical system reads of some documents: title and text, or text where there is no title."""
    documents = collection.documents.iloc[rows]
    if "title" not in documents or "sentence" in documents:
        return documents["text"]
    return (documents["title"] + " " + documents["text"]).rename("text")


@lru_cache(maxsize=32)
def tokens_key(tokenizer: Tokenizer) -> str:
    """Return what a vocabulary makes different, in short."""
    return cache.key([type(tokenizer).__name__, *tokenizer.tokens, *tokenizer.rules])


@dataclass(frozen=True, eq=False)
class TokenizedCollection:
    """A collection, tokenized when it is asked for, queries and documents cut off beyond their lengths.

    A candidate of ReQA (`sentence` and `context`) is sentence, separator and passage; another document is title,
    separator and text, or its text where it has no title. Words have no separator.
    """

    collection: Collection
    tokenizer: Tokenizer
    query_length: int | None
    document_length: int | None

    @classmethod
    @lru_cache(maxsize=12)  # a study asks for the same one for every system and seed
    def of(cls, *fields: Any) -> Self:
        """Return that of these fields; the last few are kept."""
        return cls(*fields)

    @cached_property
    def queries(self) -> TokenTable:
        """A row for each query."""
        return self.tokenizer.encode(self.collection.queries["text"], self.query_length)

    @cached_property
    def documents(self) -> TokenTable:
        """A row for each document, made once, whichever chapter asks."""

        def make(folder: Path) -> None:
            save_file(vars(self.fresh(slice(None))), folder / ROWS)

        tokens = [tokens_key(self.tokenizer), self.document_length]  # however long queries are
        settings = {"documents": self.collection.documents_fingerprint, "tokens": tokens}
        return TokenTable(**load_file(cache.artefact("token-rows", VERSION, settings, make) / ROWS))

    def block(self, rows: slice | np.ndarray) -> TokenTable:
        """Return token rows of some documents; those of all are kept, unless there are more than `KEPT`."""
        count = len(self.collection.documents)
        return self.documents.take(np.arange(count)[rows]) if count <= KEPT else self.fresh(rows)

    def fresh(self, rows: slice | np.ndarray) -> TokenTable:
        """Return token rows of some documents, from their texts."""
        frame = self.collection.documents
        parts = next((pair for pair in TWO_PARTS if set(pair) <= set(frame.columns)), None)
        if parts is None or not isinstance(self.tokenizer, WordPiece):
            return self.tokenizer.encode(texts(self.collection, rows), self.document_length)
        first, second = (frame[part].iloc[rows] for part in parts)
        # A passage stands behind each of its sentences, and is tokenized once.
        places, distinct = pd.factorize(np.asarray(second, dtype=object))
        both = self.tokenizer.encode(first), self.tokenizer.encode(distinct).take(places)
        return concatenate([both[0], self.tokenizer.sep, both[1]], self.document_length)

    @cached_property
    def address(self) -> dict[str, str]:
        """What of it takes part in the address of an artefact: the collection, and vocabulary with lengths."""
        tokens = cache.key([tokens_key(self.tokenizer), self.query_length, self.document_length])
        return {"collection": self.collection.fingerprint, "tokens": tokens}

    def relevant(self, split: str) -> tuple[pd.Index, TokenTable]:
        """Return the ids of a split's queries with relevant documents, and the rows of these."""
        queries, qrels = self.collection.split(split).index, self.collection.relevant(split)
        query = queries.get_indexer(qrels["query_id"])
        row = self.collection.documents.index.get_indexer(qrels["doc_id"])
        counts = np.bincount(query, minlength=len(queries))
        rows = row[np.lexsort((row, query))].astype(np.int32)
        return queries[counts > 0], TokenTable(rows, offsets_of(counts[counts > 0]))

    def labelled(self, split: str, documents: np.ndarray | None = None) -> LabelledQueries:
        """Return the queries of `relevant`, `DataError` if none, with their documents as texts or given encodings."""
        (ids, relevant), whole = self.relevant(split), self.collection
        require(len(ids) > 0, f"collection {whole.name!r} has no {split} queries with a relevant document", DataError)
        documents = self.documents if documents is None else documents
        return LabelledQueries(self.query_rows(ids), relevant, documents, whole.own_rows(ids), whole.text_numbers)

    def query_rows(self, ids: Sequence[str]) -> TokenTable:
        """Return token rows of queries; `KeyError` names an id that is not there."""
        return self.queries.take(pd.Series(range(len(self.queries)), self.collection.queries.index)[list(ids)])

    def document_rows(self, ids: Sequence[str]) -> TokenTable:
        """Return token rows of documents; `KeyError` names an id that is not there."""
        return self.documents.take(pd.Series(range(len(self.documents)), self.collection.documents.index)[list(ids)])
