"""An index of late interaction: the vectors of all tokens of a corpus (Khattab and Zaharia 2020, ColBERT)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import load_file, save_file

from retlib.core.errors import DataError, require

# Queries that are searched together.
QUERY_BLOCK = 16
# Tokens of documents in one matrix product: those of a block stay in the cache, which halves the time of 65,536.
TOKEN_BLOCK = 8_192


class TokenIndex:
    """The vectors of all tokens of a corpus, (tokens, d), searched exhaustively.

    Document i has the rows from ``offsets[i]`` to ``offsets[i + 1]``, at least one.
    """

    def __init__(self, vectors: np.ndarray, offsets: np.ndarray) -> None:
        require(len(offsets) > 1, "there are no documents to index", DataError)
        require(bool((np.diff(offsets) > 0).all()), "a document has no token", DataError)
        self.vectors, self.offsets = vectors, offsets
        # BLAS may give equal documents scores that differ in their last bits: all take that of the first of them.
        contents = (blake2b(vectors[start:end], digest_size=16).digest() for start, end in pairwise(offsets))
        first: dict[bytes, int] = {}
        self._first = np.array([first.setdefault(content, row) for row, content in enumerate(contents)])

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        return cls(**load_file(path))

    def save(self, path: Path) -> None:
        """Write the vectors into a file of safetensors."""
        save_file({"vectors": self.vectors, "offsets": self.offsets}, path)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def search(self, tokens: np.ndarray, offsets: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and rows of the k documents with the highest MaxSim with each query, best first.

        Tokens are float32, (tokens, d), of all Q queries, one after the other; `offsets` (Q + 1,) are where queries
        begin. Both results, float32 and int64, are (Q, min(k, N)). Equal scores are in the order of rows.
        """
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        require(len(offsets) > 1, "there are no queries to search for", DataError)
        found = []
        for start in range(0, len(offsets) - 1, QUERY_BLOCK):
            block = offsets[start : start + QUERY_BLOCK + 1]
            scores = self._scores(tokens[block[0] : block[-1]], block - block[0])[:, self._first]
            rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found.append((np.take_along_axis(scores, rows, axis=1), rows))
        scores, rows = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(rows)

    def _scores(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        # MaxSim of some queries with all documents: shape (queries, documents).
        scores = np.empty((len(offsets) - 1, len(self)), dtype=np.float32)
        for first, last in self._blocks():
            starts = self.offsets[first:last]
            products = self.vectors[starts[0] : self.offsets[last]] @ tokens.T  # (tokens of documents, of queries)
            best = np.maximum.reduceat(products, starts - starts[0], axis=0)  # (documents, tokens of queries)
            scores[:, first:last] = np.add.reduceat(best, offsets[:-1], axis=1).T
        return scores

    def _blocks(self) -> Iterator[tuple[int, int]]:
        # First and last document of each block, which has at most `TOKEN_BLOCK` tokens, or one document.
        first = 0
        while first < len(self):
            last = int(np.searchsorted(self.offsets, self.offsets[first] + TOKEN_BLOCK, side="right")) - 1
            last = max(last, first + 1)
            yield first, last
            first = last
