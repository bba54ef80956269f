"""Systems that match words: identity, TF-IDF, BM25 (Gillick 2018, section 3.4) and RM3; from Part I on.

A word is for them what it is for the dense systems (`retlib.data.text.words`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, diags_array, eye_array

from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.data.text import TokenTable, stop_words, words
from retlib.retrieval.runs import Lists, make_run

# What Anserini takes for a term that can expand a query.
_EXPANDS = re.compile(r"[a-z0-9]{2,20}")


class LexicalSystem:
    """What is fitted to documents and then searched; scores are products of sparse vectors of terms.

    A subclass gives weights of terms, float32: `_index` of documents, (terms, N), and `_queries` of texts, (Q, terms).

    >>> scores, rows = BM25().fit(["a cat", "a dog", "cat and dog"]).search(["cat"], 2)
    >>> rows.tolist()
    [[0, 2]]
    """

    @property
    def settings(self) -> dict[str, Any]:
        """What is recorded beside results."""
        return {"system": type(self).__name__, **asdict(self)}

    def fit(self, documents: Sequence[str]) -> Self:
        """Index the documents, in the order of rows; `DataError` if there is no term in any of them."""
        wrong = f"{type(self).__name__}: there is no word to index in {len(documents)} documents"
        require(any(map(self._terms, documents)), wrong, DataError)
        self._weights = self._index(documents)
        return self

    def search(self, queries: Sequence[str], k: int) -> Lists:
        """Return scores and rows of the k best documents of each query, best first: float32 and int64, (Q, k).

        Equal scores are in the order of rows. Only scores above 0 count; where fewer are, the rest is -1 and -inf.
        """
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        return _products(self._queries(queries), self._weights, k)

    def rank(self, documents: pd.Series, queries: pd.Series, depth: int = 100) -> pd.DataFrame:
        """Fit to documents, and return the run of the queries; both are texts under their ids."""
        self.fit(documents.tolist())
        return make_run(queries.index, documents.index, *self.search(queries.tolist(), depth))

    def _terms(self, text: str) -> list[str]:
        return words(text)


@dataclass
class Identity(LexicalSystem):
    """Retrieves the document that is the query, letter by letter: the first one, if several are."""

    def _terms(self, text: str) -> list[str]:
        return [text]

    def _index(self, documents: Sequence[str]) -> csr_array:
        self._rows = {document: row for row, document in reversed([*enumerate(documents)])}
        return csr_array(eye_array(len(documents), dtype=np.float32))

    def _queries(self, texts: Sequence[str]) -> csr_array:
        return _ones(([self._rows[text]] if text in self._rows else [] for text in texts), self._weights.shape[0])


@dataclass
class TfIdf(LexicalSystem):
    """Cosine of TF-IDF vectors, as scikit-learn weights them: tf · (ln((1 + N) / (1 + df)) + 1)."""

    def _index(self, documents: Sequence[str]) -> csr_array:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(analyzer=words, dtype=np.float32)
        return csr_array(self._vectorizer.fit_transform(documents).T)

    def _queries(self, texts: Sequence[str]) -> csr_array:
        return csr_array(self._vectorizer.transform(texts) if len(texts) else (0, self._weights.shape[0]))


# BM25 of stems, without stop words.
STEMMED = {"stop_words": "english", "stemmer": "english"}


@dataclass
class BM25(LexicalSystem):
    r"""Okapi BM25 as Lucene has it. A word that the query repeats counts as often as it stands there.

    With tf the word's count in a document, df the number of documents that have it, N that of all, and lengths counted
    in terms, without stop words, a word adds

    .. math:: \ln\left(1 + \frac{N - df + 0.5}{df + 0.5}\right) \cdot
              \frac{tf}{tf + k_1 (1 - b + b \cdot \text{length} / \text{mean length})}

    `k1` is how slowly repetitions of a word in a document saturate, `b`, from 0 to 1, how much a document's length
    counts. The stop words of "english" are Lucene's 33, its stemmer is Snowball's. bm25s computes the weights; its own
    search breaks ties at random, returns documents without any word in common, and refuses k above N.
    """

    k1: float = 1.2
    b: float = 0.75
    stop_words: str | None = None
    stemmer: str | None = None

    def __post_init__(self) -> None:
        require(self.k1 >= 0, f"k1 = {self.k1} is negative")
        require(0 <= self.b <= 1, f"b = {self.b} is not between 0 and 1")
        for name in ("stop_words", "stemmer"):
            require_one_of(name, getattr(self, name) or "english", ["english"])

    def _terms(self, text: str) -> list[str]:
        stopped, stem = stop_words() if self.stop_words else (), _stem() if self.stemmer else str
        return [stem(word) for word in words(text) if word not in stopped]

    def _index(self, documents: Sequence[str]) -> csr_array:
        import bm25s

        self._ids: dict[str, int] = {}
        rows = [[self._ids.setdefault(term, len(self._ids)) for term in self._terms(text)] for text in documents]
        model = bm25s.BM25(k1=self.k1, b=self.b, method="lucene", backend="numpy", csc_backend="numpy")
        weights = model.build_index_from_ids(list(range(len(self._ids))), rows, show_progress=False)
        shape = len(self._ids), len(documents)
        return csr_array((weights["data"], weights["indices"], weights["indptr"]), shape)

    def _queries(self, texts: Sequence[str]) -> csr_array:
        return _ones(([self._ids[term] for term in self._terms(t) if term in self._ids] for t in texts), len(self._ids))


@dataclass
class RM3(BM25):
    r"""BM25 whose query is mixed with a relevance model (Lavrenko and Croft 2001; Abdul-Jaleel et al. 2004).

    .. math:: P(w) = \lambda \frac{c(w, q)}{|q|} + (1 - \lambda) P(w \mid R), \qquad
              P(w \mid R) \propto \sum_{d \in F} s(q, d) \frac{c(w, d)}{|d|}

    F are the best `fb_docs` documents of the query by BM25, and s their scores. Of :math:`P(w \mid R)` the `fb_terms`
    most probable terms stay. A document's score is the sum of its BM25 weights of terms, each times :math:`P(w)`.
    :math:`\lambda`, from 0 to 1, is `original_weight`. The defaults are Anserini's, and so is that only terms of 2 to
    20 letters a to z and digits expand a query, and lengths :math:`|d|` count these alone. Terms in more than the share
    `common` of all documents expand none: stop words otherwise win. Anserini prunes documents to frequent terms, too.
    """

    fb_docs: int = 10
    fb_terms: int = 10
    original_weight: float = 0.5
    common: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "fb_docs", "fb_terms")
        for name in ("original_weight", "common"):
            require(0 <= getattr(self, name) <= 1, f"{name} = {getattr(self, name)} is not between 0 and 1")

    def _index(self, documents: Sequence[str]) -> csr_array:
        weights, counts = super()._index(documents), super()._queries(documents)
        counts.sum_duplicates()
        frequency = np.bincount(counts.indices, minlength=len(self._ids))
        useful = np.array([bool(_EXPANDS.fullmatch(term)) for term in self._ids])
        counts.data *= (useful & (frequency <= self.common * len(documents)))[counts.indices]
        counts.eliminate_zeros()
        self._shares = _to_one(counts)  # (documents, terms): c(w, d) / |d|
        return weights

    def _queries(self, texts: Sequence[str]) -> csr_array:
        counts = super()._queries(texts)
        feedback = _sparse(*_products(counts, self._weights, self.fb_docs), self._shares.shape[0])
        model = _sparse(*_products(feedback, self._shares, self.fb_terms), len(self._ids))
        return csr_array(self.original_weight * _to_one(counts) + (1 - self.original_weight) * _to_one(model))


@cache
def _stem() -> Callable[[str], str]:
    import Stemmer

    return cache(Stemmer.Stemmer("english").stemWord)


def _ones(terms: Iterable[list[int]], width: int) -> csr_array:
    # A row for each list, with an entry of 1 for each time that a term stands there.
    table = TokenTable.from_rows(terms)
    return csr_array((np.ones(len(table.ids), np.float32), table.ids, table.offsets), shape=(len(table), width))


def _to_one(matrix: csr_array) -> csr_array:
    # Rows divided by their sums; a row of zeros stays one.
    sums = matrix.sum(axis=1)
    return csr_array(diags_array(1 / np.where(sums > 0, sums, 1)) @ matrix)


def _sparse(scores: np.ndarray, rows: np.ndarray, width: int) -> csr_array:
    query, place = np.nonzero(rows >= 0)
    return csr_array((scores[query, place], (query, rows[query, place])), shape=(len(rows), width))


def _products(queries: csr_array, weights: csr_array, k: int) -> Lists:
    # The k highest entries of each row of a sparse product, among the positive ones; equal ones by column.
    scores = np.full((queries.shape[0], k), -np.inf, dtype=np.float32)
    rows, total = np.full(scores.shape, -1, dtype=np.int64), np.empty(weights.shape[1], dtype=np.float32)
    # Always of the same types: the search is compiled once.
    parts = [(m.indptr.astype(np.int64), m.indices.astype(np.int32, copy=False), m.data) for m in (queries, weights)]
    _compiled()(*parts[0], *parts[1], total, scores, rows)
    return scores, rows


@cache
def _compiled() -> Callable:
    # 2 to 10 times as fast as scipy's product and a partial sort among 100,000 documents.
    import numba

    return numba.njit(cache=True)(_best_products)


def _best_products(q_starts, q_terms, q_weights, starts, documents, weights, total, out_scores, out_rows):
    # Of 2 k places the better half stays whenever all are taken. A document is taken only if it beats the k-th best so
    # far; as documents come in order, the first of equals wins.
    k = out_scores.shape[1]
    scores, rows = np.empty(2 * k, np.float32), np.empty(2 * k, np.int64)
    for query in range(len(q_starts) - 1):
        total[:] = 0
        for i in range(q_starts[query], q_starts[query + 1]):
            term, weight = q_terms[i], q_weights[i]
            for j in range(starts[term], starts[term + 1]):
                total[documents[j]] += weight * weights[j]
        count, bar = 0, np.float32(0)
        for document, score in enumerate(total):
            if score > bar:
                scores[count], rows[count] = score, document
                count += 1
                if count == 2 * k:
                    best = np.argsort(-scores, kind="mergesort")[:k]
                    scores[:k], rows[:k] = scores[best], rows[best]
                    count, bar = k, scores[k - 1]
        best = np.argsort(-scores[:count], kind="mergesort")[:k]
        out_scores[query, : len(best)], out_rows[query, : len(best)] = scores[best], rows[best]
