"""Late interaction: a vector for every unit of a text (Khattab and Zaharia 2020, ColBERT).

Slower than one vector a text and faster than reading query and document together: documents are
encoded beforehand, unit by unit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.text import TokenTable, WordPiece
from retlib.models import maxsim
from retlib.models.transformer import Transformer
from retlib.retrieval.runs import make_run
from retlib.systems import reranking
from retlib.systems.dense import Retriever
from retlib.systems.reranking import Lesson, Ranker

# Whose source takes part in the address of what is made here.
MODULES = (*reranking.MODULES, sys.modules[__name__])

# Documents that are encoded in one call, and queries that are searched in one.
DOCUMENT_BLOCK, QUERY_BLOCK = 512, 16
# Units of documents in one matrix product: those of a block stay in the cache, which halves the time of 65,536.
UNIT_BLOCK = 8_192


class LateInteraction(nn.Module):
    """ColBERT: the units of query and document, read apart, are compared.

    Scored by `retlib.models.maxsim.score`.

    Parameters
    ----------
    encoder : Transformer
        Whose BERT is trained in place; shared by queries and documents, as in the paper.
    wordpiece : WordPiece

    Notes
    -----
    Of the paper's smaller parts there are none: no marker before queries and documents, no queries
    filled up with [MASK], no punctuation left out. [CLS] and [SEP] have no vector.
    """

    def __init__(self, encoder: Transformer, wordpiece: WordPiece) -> None:
        super().__init__()
        self.encoder = Transformer(encoder.bert, wordpiece, maxsim.DIMENSION)

    def units(self, table: TokenTable) -> Tensor:
        """The vectors of all units of a table, in the order of its flat ids: shape (units, d), of unit length."""
        require(bool((table.lengths > 0).all()), "a text without any unit has no vector", DataError)
        return maxsim.vectors(self.encoder, self.encoder.states(table))

    def forward(self, queries: TokenTable, documents: TokenTable) -> Tensor:
        """Score B queries against B * n documents, n to each: shape (B, n)."""
        return maxsim.score(self.units(queries), queries.lengths, self.units(documents), documents.lengths)


class UnitIndex:
    """The vectors of all units of a corpus, searched exhaustively.

    Parameters
    ----------
    vectors : float32 array, shape (units, d)
    offsets : int64 array, shape (documents + 1,)
        Document i has the rows from ``offsets[i]`` to ``offsets[i + 1]``, at least one.
    """

    def __init__(self, vectors: np.ndarray, offsets: np.ndarray) -> None:
        require(len(offsets) > 1, "there are no documents to index", DataError)
        require(bool((np.diff(offsets) > 0).all()), "a document has no unit", DataError)
        self.vectors, self.offsets = vectors, offsets

    @classmethod
    def build(cls, model: LateInteraction, documents: TokenTable) -> Self:
        """Encode a corpus."""
        return cls(encode_units(model, documents), documents.offsets)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        return cls(**load_file(path))

    def save(self, path: Path) -> None:
        """Write the vectors into a file of safetensors."""
        save_file({"vectors": self.vectors, "offsets": self.offsets}, path)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def size_bytes(self) -> int:
        """What the vectors take in memory."""
        return self.vectors.nbytes

    def search(self, units: np.ndarray, offsets: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k documents with the highest MaxSim with each query, best first.

        Parameters
        ----------
        units : float32 array, shape (units, d)
            Of all queries, one query after the other.
        offsets : int64 array, shape (Q + 1,)
            Where queries begin.
        k : int
            Cut to the number of documents.

        Returns
        -------
        scores : float32 array, shape (Q, min(k, N))
        rows : int64 array, shape (Q, min(k, N))
            Equal scores are in the order of rows.
        """
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        require(len(offsets) > 1, "there are no queries to search for", DataError)
        found = []
        for start in range(0, len(offsets) - 1, QUERY_BLOCK):
            block = offsets[start : start + QUERY_BLOCK + 1]
            scores = self._scores(units[block[0] : block[-1]], block - block[0])
            rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.append((np.take_along_axis(scores, rows, axis=1), rows))
        scores, rows = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(rows)

    def _scores(self, units: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """MaxSim of some queries with all documents: shape (queries, documents)."""
        scores = np.empty((len(offsets) - 1, len(self)), dtype=np.float32)
        for first, last in self._blocks():
            starts = self.offsets[first:last]
            products = self.vectors[starts[0] : self.offsets[last]] @ units.T  # (units of documents, of queries)
            best = np.maximum.reduceat(products, starts - starts[0], axis=0)  # (documents, units of queries)
            scores[:, first:last] = np.add.reduceat(best, offsets[:-1], axis=1).T
        return scores

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """First and last document of each block, which has at most `UNIT_BLOCK` units, or one document."""
        first = 0
        while first < len(self):
            last = int(np.searchsorted(self.offsets, self.offsets[first] + UNIT_BLOCK, side="right")) - 1
            last = max(last, first + 1)
            yield first, last
            first = last


@torch.no_grad()
def encode_units(model: LateInteraction, table: TokenTable) -> np.ndarray:
    """The vectors of all units of a table: float32, shape (units, d)."""
    parts = []
    with runtime.autocast("bfloat16"):
        for start in range(0, len(table), DOCUMENT_BLOCK):
            rows = np.arange(start, min(start + DOCUMENT_BLOCK, len(table)))
            parts.append(model.units(table.take(rows)).float().cpu().numpy())
    return np.concatenate(parts)


def fit(start: Retriever, collection: Collection, run: pd.DataFrame, lesson: Lesson, seed: int) -> Ranker:
    """Train a late-interaction model, or find it trained; as `retlib.systems.reranking.fit`."""
    return reranking.fit(start, collection, run, lesson, seed, kind=LateInteraction)


def build(ranker: Ranker, collection: Collection) -> UnitIndex:
    """The index of a collection's documents; made once."""
    settings = {"ranker": ranker.name, "collection": collection.fingerprint, "threads": runtime.threads()}

    def make(folder: Path) -> None:
        documents = ranker.tokenize(collection).benchmark.documents
        UnitIndex.build(ranker.model, documents).save(folder / "units.safetensors")

    folder = cache.artefact("units", settings, MODULES, make)
    return UnitIndex.load(folder / "units.safetensors")


def rank(ranker: Ranker, collection: Collection, split: str = "test", depth: int = 1000) -> pd.DataFrame:
    """The run of a split's queries against all documents, exhaustively; made once.

    Parameters
    ----------
    ranker : Ranker
        As `fit` returns it.
    """
    settings = {
        "ranker": ranker.name, "collection": collection.fingerprint, "split": split, "depth": depth,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        queries = collection.split(split).index
        table = ranker.tokenize(collection).queries(queries)
        scores, rows = build(ranker, collection).search(encode_units(ranker.model, table), table.offsets, depth)
        make_run(queries, collection.documents.index, scores, rows).to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", settings, MODULES, make) / "run.parquet")
