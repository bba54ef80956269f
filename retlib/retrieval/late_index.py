"""Late interaction: an index of the vectors of all tokens (Khattab and Zaharia 2020, ColBERT); chapter 43."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise

import numpy as np

from retlib.core.errors import DataError, require
from retlib.retrieval.runs import Lists, best

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

    def search(self, tokens: np.ndarray, offsets: np.ndarray, k: int) -> Lists:
        """Return scores and rows of the k documents with the highest MaxSim with each query, best first.

        Tokens are float32, (tokens, d), of all Q queries, one after the other; `offsets` (Q + 1,) are where queries
        begin. Both results, float32 and int64, are (Q, min(k, N)). Equal scores are in the order of rows.
        """
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        require(len(offsets) > 1, "there are no queries to search for", DataError)
        results, rows = [], np.arange(len(self._first))
        for start in range(0, len(offsets) - 1, QUERY_BLOCK):
            block = offsets[start : start + QUERY_BLOCK + 1]
            queries, scores, first = tokens[block[0] : block[-1]], np.empty((len(block) - 1, len(rows)), np.float32), 0
            while first < len(rows):  # documents of a block: one, or as many as have at most `TOKEN_BLOCK` tokens
                last = int(np.searchsorted(self.offsets, self.offsets[first] + TOKEN_BLOCK, side="right")) - 1
                last = max(last, first + 1)
                starts = self.offsets[first:last]
                products = self.vectors[starts[0] : self.offsets[last]] @ queries.T  # (tokens of documents, of queries)
                highest = np.maximum.reduceat(products, starts - starts[0], axis=0)  # (documents, tokens of queries)
                scores[:, first:last] = np.add.reduceat(highest, block[:-1] - block[0], axis=1).T
                first = last
            results.append(best(scores[:, self._first], np.broadcast_to(rows, scores.shape), k))
        return tuple(map(np.concatenate, zip(*results, strict=True)))
