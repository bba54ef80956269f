"""Ranking: documents are encoded, indexed and searched once, whichever chapter asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache, runtime
from retlib.data.collection import Collection
from retlib.data.tokenized import TokenizedCollection, texts
from retlib.evaluation import measures
from retlib.models.retriever import ENCODERS, Retriever
from retlib.retrieval import index as indexes
from retlib.retrieval import runs
from retlib.retrieval.index import EXACT, Index
from retlib.retrieval.lexical import BM25

VECTORS, INDEX, RUN, LISTS = 3, 4, 2, 1  # versions of what is made here
# Documents that are tokenized and encoded at once: what a kill can cost. In batches with others a Transformer rounds
# otherwise, by 1e-5 of a number, and what collections in this book train on is encoded in one.
BLOCK = 32_768


def encode_corpus(retriever: Retriever, tokenized: TokenizedCollection) -> np.ndarray:
    """Encodings of all documents, made once for each document encoder that is not cheap: float32, shape (D, d)."""
    rows = len(tokenized.collection.documents)
    if ENCODERS.get(retriever.architecture.encoder).cheap:
        blocks = runtime.progress(range(0, rows, BLOCK), desc="documents encoded", unit="block")
        encoded = (retriever.encode_documents(tokenized.block(slice(start, start + BLOCK))) for start in blocks)
        return _stacked(encoded, rows)
    return _stacked((load_file(part)["vectors"] for part in _encoded(retriever, tokenized)), rows)


def _stacked(blocks: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """Blocks one below the other; unlike `np.concatenate`, at no time in memory twice."""
    found, start = np.empty((rows, 0), dtype=np.float32), 0
    for block in blocks:
        found = found if start else np.empty((rows, block.shape[1]), dtype=block.dtype)
        found[start : start + len(block)] = block
        start += len(block)
    return found


def encoding_seconds(retriever: Retriever, tokenized: TokenizedCollection) -> float:
    """The seconds that `encode_corpus` took."""
    return float(sum(load_file(part)["seconds"][0] for part in _encoded(retriever, tokenized)))


def _encoded(retriever: Retriever, tokenized: TokenizedCollection) -> list[Path]:
    """The files of the documents' encodings, block by block."""
    settings = {"encoder": retriever.document_fingerprint, **tokenized.address, "threads": runtime.threads()}

    def write(rows: slice) -> Callable[[Path], None]:
        table = tokenized.block(rows)
        with runtime.Stopwatch() as watch:
            vectors = retriever.encode_documents(table)
        return lambda path: save_file({"vectors": vectors, "seconds": np.array([watch.seconds])}, path)

    def make(folder: Path) -> None:
        told = {"desc": "documents encoded", "unit": "document"}
        list(cache.parts(folder, len(tokenized.collection.documents), BLOCK, "vectors.safetensors", write, **told))

    return sorted(cache.artefact("vectors", VECTORS, settings, make).glob("vectors*.safetensors"))


def indexed(
    retriever: Retriever,
    tokenized: TokenizedCollection,
    factory: str = EXACT,
    search: Mapping[str, float] | None = None,
) -> Index:
    """The index of all documents, made once; see `retlib.retrieval.index.build`."""
    search = dict(search or {})
    if factory == EXACT:
        return indexes.build(EXACT, encode_corpus(retriever, tokenized), search)
    settings = {"encoder": retriever.document_fingerprint, **tokenized.address, "factory": factory}

    def make(folder: Path) -> None:
        indexes.build(factory, encode_corpus(retriever, tokenized)).save(folder)

    found = indexes.load(cache.artefact("index", INDEX, settings, make))
    found.set(**search)
    return found


def rank(
    retriever: Retriever,
    collection: Collection,
    split: str = "test",
    depth: int = 1000,
    index: str = EXACT,
    search: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return the run of a split's queries against all documents of a collection, made once (index: see `indexed`)."""
    tokenized = retriever.reads(collection)
    settings = {
        "retriever": retriever.name or retriever.fingerprint, **tokenized.address, "split": split,
        "index": index, "search": dict(search or {}), "depth": depth, "threads": runtime.threads(),
    } | ({} if index == EXACT else {"index version": INDEX})  # fmt: skip

    def make(folder: Path) -> None:
        queries, _ = measures.held_out(collection, split)
        encoded = retriever.encode_queries(tokenized.query_rows(queries.index))
        found = indexed(retriever, tokenized, index, search)
        run = runs.search_run(collection, queries, depth, lambda _, k: found.search(encoded, k))
        run.to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", RUN, settings, make) / "run.parquet")


def bm25_lists(tokenized: TokenizedCollection, split: str, depth: int) -> np.ndarray:
    """Return BM25's lists for the queries of `TokenizedCollection.labelled`, made once.

    Rows of documents, int32 of shape (Q, depth), -1 where a list is shorter.
    """
    bm25, collection = BM25(), tokenized.collection
    settings = {"split": split, "depth": depth, "collection": collection.fingerprint, "lexical": bm25.settings}

    def make(folder: Path) -> None:
        queries = collection.queries["text"][tokenized.relevant(split)[0]].tolist()
        found = bm25.fit(texts(collection).tolist()).search(queries, depth)[1]
        save_file({"rows": found.astype(np.int32)}, folder / "lists.safetensors")

    return load_file(cache.artefact("bm25", LISTS, settings, make) / "lists.safetensors")["rows"]
