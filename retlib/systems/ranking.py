"""Rankers, which chapters compare, and how documents are encoded, indexed and ranked, once for all chapters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache, runtime
from retlib.core.history import Cost
from retlib.data.collection import Collection
from retlib.data.tokenized import TokenizedCollection, texts
from retlib.evaluation import measures
from retlib.models.retriever import ENCODERS, Retriever
from retlib.retrieval import index as indexes
from retlib.retrieval.lexical import BM25
from retlib.retrieval.runs import Lists, Search, make_run, question_search

# Versions of what is made here; that of runs covers how all rankers rank.
VECTORS, INDEX, RUN, LISTS = 4, 5, 3, 2
# Documents that are tokenized and encoded at once: what a kill can cost. In batches with others a Transformer rounds
# otherwise, by 1e-5 of a number, and what collections in this book train on is encoded in one.
BLOCK = 32_768


@dataclass(frozen=True)
class Target:
    """What systems are tested on, and whose labels or passages train them: `train`, or else `test` as well."""

    test: Collection
    train: Collection | None = None

    @property
    def trains(self) -> Collection:
        """The collection that trains."""
        return self.train or self.test


class Ranker(ABC):
    """What a study compares; not trained, and without cost, unless a subclass says so."""

    trained = False  # whether seeds make a difference

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The system as recorded beside its results: JSON values."""

    @abstractmethod
    def address(self, target: Target, seed: int) -> dict[str, Any]:
        """What of it takes part in the address of a run: JSON values; what it needs is trained if it is not there."""

    @abstractmethod
    def searcher(self, target: Target, seed: int) -> Search:
        """Return what answers any question over the documents of the target's test, from lists without its own."""

    def cost(self, target: Target, seed: int) -> Cost:
        """What the training of its last part took, where there is any, and how that part's last stage went."""
        return Cost()

    def run(self, target: Target, seed: int = 0, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        """Return the run of a split's queries over the documents of the target's test, made once."""
        collection, address = target.test, {"ranker": self.address(target, seed), "split": split, "depth": depth}

        def make() -> pd.DataFrame:
            queries, _ = measures.held_out(collection, split)
            return make_run(queries.index, collection.documents.index, *self.searcher(target, seed)(queries, depth))

        return table("run", RUN, {**address, "collection": collection.fingerprint}, make)


def table(kind: str, version: int, settings: dict[str, Any], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return a table, made once; see `retlib.core.cache.artefact`."""
    settings = {**settings, "threads": runtime.threads()}
    folder = cache.artefact(kind, version, settings, lambda partial: make().to_parquet(partial / "table.parquet"))
    return pd.read_parquet(folder / "table.parquet")


def arrays(kind: str, version: int, settings: dict[str, Any], make: Callable[[], dict]) -> dict[str, np.ndarray]:
    """Return named arrays, made once; see `retlib.core.cache.artefact`."""
    settings = {**settings, "threads": runtime.threads()}
    folder = cache.artefact(kind, version, settings, lambda partial: save_file(make(), partial / "arrays.safetensors"))
    return load_file(folder / "arrays.safetensors")


def encode_corpus(retriever: Retriever, tokenized: TokenizedCollection) -> np.ndarray:
    """Return encodings of all documents, made once for each document encoder that is not cheap: float32, (D, d)."""
    is_cheap, blocks = ENCODERS.get(retriever.architecture.encoder).cheap, []
    encoder = "" if is_cheap else retriever.document_fingerprint
    for start in runtime.progress(range(0, len(tokenized.collection.documents), BLOCK), desc="encoding", unit="block"):

        def make(start: int = start) -> dict[str, np.ndarray]:
            return {"vectors": retriever.encode_documents(tokenized.block(slice(start, start + BLOCK)))}

        address = {"encoder": encoder, **tokenized.address, "from": start}
        blocks.append((make() if is_cheap else arrays("vectors", VECTORS, address, make))["vectors"])
    return np.concatenate(blocks)


def indexed(
    retriever: Retriever, tokenized: TokenizedCollection, factory: str = indexes.EXACT, search: Mapping | None = None
) -> indexes.Index:
    """The index of all documents, made once; see `retlib.retrieval.index.build`."""
    if factory == indexes.EXACT:
        return indexes.build(factory, encode_corpus(retriever, tokenized), search)
    settings = {"encoder": retriever.document_fingerprint, **tokenized.address, "factory": factory}

    def make() -> dict[str, np.ndarray]:
        return {"content": indexes.build(factory, encode_corpus(retriever, tokenized)).content}

    return indexes.restored(arrays("index", INDEX, settings, make)["content"], search)


def dense_searcher(retriever: Retriever, collection: Collection, *how: Any) -> Search:
    """Return what a retriever answers from the index of a collection's documents, made as `indexed` says."""
    index = indexed(retriever, retriever.reads(collection), *how)

    def search(texts: list[str], k: int) -> Lists:
        return index.search(retriever.encode_queries(retriever.tokenize(texts)), k)

    return question_search(collection, search)


def bm25_lists(tokenized: TokenizedCollection, split: str, depth: int) -> np.ndarray:
    """Return BM25's lists for the queries of `TokenizedCollection.labelled`, made once.

    Rows of documents, int32 of shape (Q, depth), -1 where a list is shorter.
    """
    bm25, collection = BM25(), tokenized.collection
    settings = {"split": split, "depth": depth, "collection": collection.fingerprint, "lexical": bm25.settings}

    def make() -> dict[str, np.ndarray]:
        queries = collection.queries["text"][tokenized.relevant(split)[0]].tolist()
        return {"rows": bm25.fit(texts(collection).tolist()).search(queries, depth)[1].astype(np.int32)}

    return arrays("bm25", LISTS, settings, make)["rows"]
