"""A collection as retrievers and BM25 see it: what is asked, what is relevant, and the lists that BM25 has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache
from retlib.core.errors import DataError, require
from retlib.data import collection, text
from retlib.data.collection import Collection
from retlib.data.pairs import LabelledQueries
from retlib.data.text import TokenTable, WordPiece, offsets_of
from retlib.retrieval import lexical
from retlib.retrieval.lexical import BM25
from retlib.systems.dense import Benchmark, Retriever


def union(collections: Sequence[Collection], name: str) -> Collection:
    """Several collections as one: all documents are candidates of all queries.

    Ids are prefixed with the name of their collection ("nfcorpus/MED-10"), which stands in the column
    `collection` too. Of the other columns, those stay that all collections have.

    Raises
    ------
    DataError
        If two have one name.
    """
    names = [part.name for part in collections]
    require(len(names) > 0, "a union needs at least one collection", DataError)
    require(len(set(names)) == len(names), f"two collections of a union have one name: {', '.join(names)}", DataError)
    parts = [_prefixed(part) for part in collections]
    documents, queries, qrels = (
        pd.concat([getattr(part, frame) for part in parts], join="inner") for frame in ("documents", "queries", "qrels")
    )
    provenance = {key: value for part in parts for key, value in part.provenance.items()}
    return Collection(name, documents, queries, qrels.reset_index(drop=True), provenance=provenance)


def _prefixed(part: Collection) -> Collection:
    prefix = f"{part.name}/"
    documents = part.documents.assign(collection=part.name).rename(index=prefix.__add__)
    queries = part.queries.assign(collection=part.name).rename(index=prefix.__add__)
    if "cluster" in queries:
        queries["cluster"] = prefix + queries["cluster"].astype(str)
    qrels = part.qrels.assign(query_id=prefix + part.qrels["query_id"], doc_id=prefix + part.qrels["doc_id"])
    provenance = {prefix + key: value for key, value in part.provenance.items()}
    return Collection(part.name, documents, queries, qrels, provenance=provenance)


@dataclass(frozen=True, eq=False)
class Ranking:
    """A collection, tokenized, with the lists that BM25 has for its queries.

    Parameters
    ----------
    benchmark : Benchmark
    units : str
        What a vocabulary and the lengths of rows make different, in short.
    lexical : BM25
    """

    benchmark: Benchmark
    units: str
    lexical: BM25 = field(default_factory=BM25)

    @classmethod
    def tokenize(cls, collection: Collection, wordpiece: WordPiece, query_length: int, document_length: int) -> Ranking:
        """Tokenize a collection; see `retlib.systems.dense.Benchmark`."""
        units = cache.key([wordpiece.tokens, query_length, document_length])
        return cls(Benchmark.tokenize(collection, wordpiece, query_length, document_length), units)

    @classmethod
    def of(cls, collection: Collection, retriever: Retriever) -> Ranking:
        """A collection as a retriever reads it."""
        lengths = retriever.architecture.query_length, retriever.architecture.document_length
        return cls.tokenize(collection, retriever.wordpiece, *lengths)

    @property
    def collection(self) -> Collection:
        """What is ranked."""
        return self.benchmark.collection

    @property
    def parts(self) -> list[str]:
        """The names of the collections that it is the union of; its own, if of none."""
        documents = self.collection.documents
        return documents["collection"].unique().tolist() if "collection" in documents else [self.collection.name]

    @cached_property
    def address(self) -> dict[str, str]:
        """What of it takes part in the address of an artefact."""
        return {"collection": self.collection.fingerprint, "units": self.units}

    @property
    def texts(self) -> pd.Series:
        """What BM25 sees of the documents: title and text, or text where there is no title."""
        documents = self.collection.documents
        if "title" not in documents or "sentence" in documents:
            return documents["text"]
        return (documents["title"] + " " + documents["text"]).rename("text")

    def relevant(self, split: str) -> tuple[pd.Index, TokenTable]:
        """The ids of a split's queries, and rows of their relevant documents; queries without any are left out."""
        queries, qrels = self.collection.split(split).index, self.collection.judgments(split)
        qrels = qrels[qrels["relevance"] > 0]
        query = queries.get_indexer(qrels["query_id"])
        row = self.collection.documents.index.get_indexer(qrels["doc_id"])
        counts = np.bincount(query, minlength=len(queries))
        rows = row[np.lexsort((row, query))].astype(np.int32)
        return queries[counts > 0], TokenTable(rows, offsets_of(counts[counts > 0]))

    def judged(self, split: str, documents: np.ndarray | None = None) -> LabelledQueries:
        """The queries of `relevant`, with their documents as texts, or as the given encodings.

        Raises
        ------
        DataError
            If the split has no query with a relevant document.
        """
        ids, relevant = self.relevant(split)
        wrong = f"collection {self.collection.name!r} has no {split} queries with a relevant document"
        require(len(ids) > 0, wrong, DataError)
        return LabelledQueries(
            self.queries(ids), relevant, self.benchmark.documents if documents is None else documents
        )

    def queries(self, ids: Sequence[str]) -> TokenTable:
        """Token rows of queries; `DataError` names an id that is not there."""
        return self._rows("queries", ids)

    def documents(self, ids: Sequence[str]) -> TokenTable:
        """Token rows of documents; `DataError` names an id that is not there."""
        return self._rows("documents", ids)

    def _rows(self, kind: str, ids: Sequence[str]) -> TokenTable:
        index = getattr(self.collection, kind).index
        rows = index.get_indexer(pd.Index(ids, dtype=object))
        unknown = [name for name, row in zip(ids, rows, strict=True) if row < 0]
        require(not unknown, f"collection {self.collection.name!r} has no {kind} {unknown[:3]}", DataError)
        return getattr(self.benchmark, kind).take(rows)

    def bm25(self, split: str, depth: int) -> np.ndarray:
        """BM25's lists for the queries of `judged`, made once: rows, shape (Q, depth), -1 where a list is shorter."""
        settings = {"split": split, "depth": depth, **self.address, "lexical": self.lexical.settings}

        def make(folder: Path) -> None:
            ids, _ = self.relevant(split)
            queries = self.collection.queries["text"][ids].tolist()
            found = self.lexical.fit(self.texts.tolist()).search(queries, depth)[1]
            save_file({"rows": found.astype(np.int32)}, folder / "lists.safetensors")

        folder = cache.artefact("bm25", settings, (collection, lexical, text, sys.modules[__name__]), make)
        return load_file(folder / "lists.safetensors")["rows"]
