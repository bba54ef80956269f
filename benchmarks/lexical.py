"""BM25 as the book has it, beside bm25s with the same words, bm25s as it comes, and rank_bm25."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from benchmarks import inputs
from benchmarks.harness import CASES, Duel, Scale
from retlib.core import runtime
from retlib.data.text import words
from retlib.data.tokenized import texts
from retlib.retrieval.lexical import BM25

DEPTH = 10
# Of scores, with the same words and settings; of documents, with others: stop words, k1, another idf.
SAME, ALIKE = 1e-3, 0.6
# rank_bm25 scores every document for every query, in Python.
FEW = 50


def same_words(documents: list[str]) -> Callable[[list[str]], tuple]:
    """bm25s over the book's words, with its formula, by its fastest search."""
    import bm25s

    model = bm25s.BM25(k1=1.2, b=0.75, method="lucene", backend="numba")
    model.index([words(text) for text in documents], show_progress=False)
    return lambda queries: _retrieved(model, [words(text) for text in queries])


def as_it_comes(documents: list[str]) -> Callable[[list[str]], tuple]:
    """bm25s as its documentation begins: its own words, less English stop words."""
    import bm25s

    model = bm25s.BM25()
    model.index(bm25s.tokenize(documents, stopwords="en", show_progress=False), show_progress=False)
    return lambda queries: _retrieved(model, bm25s.tokenize(queries, stopwords="en", show_progress=False))


def _retrieved(model, tokens) -> tuple[np.ndarray, np.ndarray]:
    found = model.retrieve(tokens, k=DEPTH, show_progress=False, n_threads=runtime.threads())
    return found.scores, found.documents


def rank_bm25(documents: list[str]) -> Callable[[list[str]], tuple]:
    """BM25Okapi over the book's words."""
    from rank_bm25 import BM25Okapi

    model = BM25Okapi([words(text) for text in documents])

    def search(queries: list[str]) -> tuple[np.ndarray, np.ndarray]:
        scores = np.array([model.get_scores(words(text)) for text in queries])
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
        return np.take_along_axis(scores, rows, axis=1), rows

    return search


def ours(documents: list[str]) -> Callable[[list[str]], tuple]:
    """The book's."""
    model = BM25().fit(documents)
    return lambda queries: model.search(queries, DEPTH)


def scores_apart(mine: tuple, other: tuple) -> float:
    """The largest difference of two scores at one rank; what was not retrieved scores nothing."""
    left, right = (np.maximum(scores, 0) for scores, _ in (mine, other))
    return float(np.abs(left - right).max())


def documents_apart(mine: tuple, other: tuple) -> float:
    """The share of documents that only one of them retrieves."""
    return 1 - float(np.mean([np.isin(*pair).mean() for pair in zip(mine[1], other[1], strict=True)]))


@CASES.register("05-bm25")
def bm25(scale: Scale) -> Iterator[Duel]:
    """Words, index and search, from texts."""
    collection = inputs.collections(scale, 1)[0]
    documents = texts(collection).tolist()[: scale(4000, 300)]
    asked = collection.queries["text"].tolist()[: scale(1000, 20)]
    for name, make, some, apart, tolerance in (
        ("bm25s, the same words", same_words, asked, scores_apart, SAME),
        ("bm25s, as it comes", as_it_comes, asked, documents_apart, ALIKE),
        ("rank_bm25", rank_bm25, asked[:FEW], documents_apart, ALIKE),
    ):
        if name == "rank_bm25" and not find_spec("rank_bm25"):
            runtime.note("rank_bm25 is not installed, and left out; `make bench` installs the peers.")
            continue
        mine, other = ours(documents), make(documents)
        yield Duel(
            f"BM25, {len(documents):,} documents and {len(some)} queries", "documents/s", len(documents),
            lambda some=some: ours(documents)(some), {name: lambda make=make, some=some: make(documents)(some)},
            apart, tolerance,
        )  # fmt: skip
        yield Duel(
            f"BM25, {len(some)} queries", "queries/s", len(some), lambda mine=mine, some=some: mine(some),
            {name: lambda other=other, some=some: other(some)}, apart, tolerance,
        )  # fmt: skip
