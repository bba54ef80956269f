"""Exact search in two passes: a coarse one over all vectors, and a fine one over the few that may be among the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from retlib.core import runtime
from retlib.retrieval import index
from retlib.retrieval.index import EXACT, QUERY_BLOCK, Exact, Index

# Rows that the first pass looks at together: fewer are more maxima to compare, more are more rows to look at singly.
GROUP = 8
# The first pass is worth its while where groups are many times the results that are asked for.
LEAST = 16
# Of the first pass that are kept at once: 64 MiB.
MOST_SCORES = 2**25
# A number of bfloat16 has eight significant bits, the first of which is not written: vectors and queries are off by
# at most a share of 2^-8 each, and so is the score, whose sum is in 32 bits.
ERROR = 3 * 2**-8 * (1 + 2**-6)


def build(vectors: np.ndarray) -> Index:
    """The exact index that is fastest on this processor: `Screened` where it multiplies bfloat16 itself.

    Parameters
    ----------
    vectors : float32 array, shape (N, d)
    """
    plain = index.build(EXACT, vectors)
    return Screened(plain.settings, plain.vectors) if runtime.has_bfloat16() else plain


class Screened(Exact):
    """Every query against every vector in bfloat16, then in 32-bit floats against those that may be among the best.

    Notes
    -----
    With q and d rounded to bfloat16, a score is off by at most e = `ERROR` ‖q‖ max ‖d‖ (Cauchy and Schwarz). If k
    rows reach b in the first pass, the k-th best score is at least b - e, so that each of the k best reaches
    b - 2 e in the first pass: only rows that do so are scored again, and no result is lost.
    """

    def __init__(self, settings: Mapping[str, Any], vectors: np.ndarray) -> None:
        super().__init__(settings, vectors)
        # The last group is filled up with its own last row, which changes no maximum.
        filled = np.pad(vectors, ((0, -len(vectors) % GROUP), (0, 0)), mode="edge")
        self._coarse = torch.from_numpy(filled).bfloat16()
        # Where the first pass writes: taking as much memory anew for each search takes as long as the search.
        self._scores = torch.empty(0, dtype=torch.bfloat16)
        self._length = float(np.sqrt(np.einsum("nd,nd->n", vectors, vectors).max()))

    def _search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        if len(self) < LEAST * GROUP * k:
            return super()._search(queries, k)
        size = max(1, min(QUERY_BLOCK, MOST_SCORES // len(self)))
        blocks = [self._search_block(queries[start : start + size], k) for start in range(0, len(queries), size)]
        scores, rows = zip(*blocks, strict=True)
        return np.concatenate(scores), np.concatenate(rows)

    def _search_block(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        query, rows = self._candidates(queries, k)
        # Row by row, so that equal vectors have equal scores.
        scores = np.einsum("nd,nd->n", self.vectors[rows], queries[query])
        order = np.lexsort((rows, -scores, query))
        ends = np.cumsum(np.bincount(query, minlength=len(queries)))
        first = np.concatenate([[0], ends[:-1]])
        best = order[first[:, None] + np.arange(k)]
        return scores[best], rows[best]

    def _candidates(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of a query and a row that may be among its k best, in any order."""
        scores, tops = self._first_pass(queries)
        error = ERROR * self._length * np.linalg.norm(queries, axis=1)
        bar = index.bar(tops, k) - 2 * error
        group, query = np.divmod(np.flatnonzero(tops >= bar), len(queries))
        query, rows = np.repeat(query, GROUP), (group[:, None] * GROUP + np.arange(GROUP)).ravel()
        within = (_float32(scores[rows, query]) >= bar[query]) & (rows < len(self))
        return query[within], rows[within]

    def _first_pass(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coarse scores and the best of each group.

        Returns
        -------
        scores : uint16 array, shape (rows, queries)
            Of bfloat16, see `_float32`; overwritten by the next call.
        tops : float32 array, shape (groups, queries)
        """
        count, coarse = len(queries), torch.from_numpy(queries).bfloat16().T
        if self._scores.shape[1:] != (count,):
            self._scores = torch.empty((len(self._coarse), count), dtype=torch.bfloat16)
        torch.mm(self._coarse, coarse, out=self._scores)
        tops = self._scores.view(-1, GROUP, count).amax(1)
        return self._scores.view(torch.uint16).numpy(), tops.float().numpy()


def _float32(halves: np.ndarray) -> np.ndarray:
    """Numbers of bfloat16, given as their bits, in 32 bits, of which they are the first half."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
