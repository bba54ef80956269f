"""Pseudo-relevance feedback: BM25 with queries that its own best documents expand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array

from retlib.core.errors import require
from retlib.retrieval.lexical import BM25, best_products

# What Anserini takes for a term that can expand a query.
_TERM = re.compile(r"[a-z0-9]{2,20}")


@dataclass
class RM3(BM25):
    r"""BM25 whose query is mixed with a relevance model (Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004).

    .. math:: P(w) = \lambda \frac{c(w, q)}{|q|} + (1 - \lambda) P(w \mid R), \qquad
              P(w \mid R) \propto \sum_{d \in F} s(q, d) \frac{c(w, d)}{|d|}

    F are the best documents of the query by BM25 and s their scores. Of :math:`P(w \mid R)` only the
    most probable terms stay. A document's score is the sum of its BM25 weights of terms, each
    times :math:`P(w)`.

    Parameters
    ----------
    k1, b, method, stop_words, stemmer
        As for `retlib.retrieval.lexical.BM25`, of both searches.
    fb_docs : int
        Documents in F, at most. The defaults are Anserini's.
    fb_terms : int
        Terms that expand a query, at most.
    original_weight : float
        :math:`\lambda`, from 0 to 1.
    common : float
        Terms in more than this share of all documents expand no query: stop words otherwise win.

    Notes
    -----
    As in Anserini, only terms of 2 to 20 letters a to z and digits expand a query, and lengths
    :math:`|d|` count these alone. Anserini also prunes each document to its most frequent terms
    first; here all count. Equally probable terms are taken in the order in which the documents
    bring them up.
    """

    fb_docs: int = 10
    fb_terms: int = 10
    original_weight: float = 0.5
    common: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fb_docs", "fb_terms"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: at least 1 is needed")
        for name in ("original_weight", "common"):
            require(0 <= getattr(self, name) <= 1, f"{name} = {getattr(self, name)} is not between 0 and 1")

    def _index(self, documents: Sequence[str]) -> None:
        super()._index(documents)
        counts = self._counts(documents)
        counts.sum_duplicates()
        frequency = np.bincount(counts.indices, minlength=len(self._ids))
        useful = np.array([bool(_TERM.fullmatch(term)) for term in self._ids])
        useful &= frequency <= self.common * len(documents)
        counts.data *= useful[counts.indices]
        counts.eliminate_zeros()
        self._shares = _to_one(counts)  # (documents, terms): c(w, d) / |d|

    def _search(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        return best_products(self._expanded(queries), self._weights, k)

    def _expanded(self, queries: Sequence[str]) -> csr_array:
        """P(w) of each query: sparse float32, shape (queries, terms)."""
        counts = self._counts(queries)
        scores, rows = best_products(counts, self._weights, self.fb_docs)
        query, place = np.nonzero(rows >= 0)
        shape = len(queries), self._shares.shape[0]
        feedback = csr_array((scores[query, place], (query, rows[query, place])), shape=shape)
        model = _to_one(_largest(csr_array(feedback @ self._shares), self.fb_terms))
        mixed = self.original_weight * _to_one(counts) + (1 - self.original_weight) * model
        return csr_array(mixed, dtype=np.float32)


def _to_one(matrix: csr_array) -> csr_array:
    """Rows divided by their sums; a row of zeros stays one."""
    sums = matrix.sum(axis=1)
    return csr_array(diags_array(np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)) @ matrix)


def _largest(matrix: csr_array, count: int) -> csr_array:
    """The largest entries of each row, at most `count`; equal ones by column."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    rank = np.arange(len(order)) - matrix.indptr[rows]  # the order is row by row, as the entries are
    kept = order[rank < count]
    return csr_array((matrix.data[kept], (rows[kept], matrix.indices[kept])), shape=matrix.shape)
