"""A collection as retrievers read it: token rows of its queries and documents, and which document is relevant."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.pairs import LabelledQueries
from retlib.data.text import Tokenizer, TokenTable, WordPiece, concatenate, offsets_of

TWO_PARTS = (("sentence", "context"), ("title", "text"))  # columns that are read with a separator between
ROWS, VERSION = "rows.safetensors", 1  # of token rows on disk: who reads a document otherwise raises it
KEPT = 100_000  # of more documents, token rows are not kept where only blocks of them are asked for


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
