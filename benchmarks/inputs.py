"""What the contenders are given: made-up vectors, texts and articles, and the pairs of collections that are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Scale
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.collection import Article, Collection
from retlib.data.text import TokenTable, WordPiece, offsets_of
from retlib.data.tokenized import texts
from retlib.evaluation.measures import held_out, rows_reciprocal_rank

DIMENSION, TOKENS = 128, 8000
# Of each direction of a made-up vector, as in those of encoders: all alike, no list of an index would hold neighbours.
SPREAD = (1 / (1 + np.arange(DIMENSION) / 8)).astype(np.float32)
# Collections with questions and passages: the papers' where their files are at hand, else the embedded ones.
COLLECTIONS = ("natural-questions-passages", "squad-passages", "pydocs-source", "pydocs-target")
TRIED = "pydocs-passages-smoke"
# Whose passages are of many lengths, unlike those of the papers, most of which are cut.
VARIED = "pydocs-source"


def vectors(count: int, seed: int = 0) -> np.ndarray:
    """Unit vectors around a centre for twenty of them, most of their spread in few directions: (count, DIMENSION)."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(1, count // 20), DIMENSION), dtype=np.float32)
    found = centres[generator.integers(len(centres), size=count)]
    found += 0.7 * generator.standard_normal(found.shape, dtype=np.float32)
    return _unit(found * SPREAD)


def asked(documents: np.ndarray, count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Queries near some of the documents, (count, DIMENSION), and the rows of these documents."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(len(documents), size=count)
    noise = _unit(SPREAD * generator.standard_normal((count, documents.shape[1]), dtype=np.float32))
    return _unit(documents[rows] + noise), rows  # as far as a document is long, so that not all are found


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def wordpiece() -> WordPiece:
    """A vocabulary of made-up tokens."""
    return WordPiece((*WordPiece.SPECIAL, *(f"token{i}" for i in range(TOKENS - len(WordPiece.SPECIAL)))))


def token_rows(count: int, mean: int, seed: int = 0) -> TokenTable:
    """Rows of random tokens, whose lengths differ as those of texts do."""
    generator = np.random.default_rng(seed)
    offsets = offsets_of(generator.poisson(mean - 1, count) + 1)
    return TokenTable(generator.integers(5, TOKENS, offsets[-1]).astype(np.int32), offsets)


def made_up_words(words: int = 50_000, seed: int = 0) -> Iterator[np.ndarray]:
    """Arrays of words without end, with the frequencies of Zipf's law."""
    generator = np.random.default_rng(seed)
    letters = generator.integers(ord("a"), ord("z") + 1, size=(words, 12)).astype(np.uint8)
    lengths = generator.integers(2, 12, size=words)
    vocabulary = np.array([row[:n].tobytes().decode() for row, n in zip(letters, lengths, strict=True)], dtype=object)
    chances = 1 / np.arange(1, words + 1)
    while True:
        yield vocabulary[generator.choice(words, size=20_000, p=chances / chances.sum())]


def made_up_texts(count: int, words: int = 20, seed: int = 0) -> list[str]:
    """So many texts of so many words."""
    found: list[str] = []
    for drawn in made_up_words(seed=seed):
        found += [" ".join(text) for text in drawn.reshape(-1, words)]
        if len(found) >= count:
            return found[:count]


def made_up_articles(seed: int = 0) -> Iterator[Article]:
    """Articles without end, of eight passages of five sentences, with five links each."""
    generator, number = np.random.default_rng(seed), 0
    for drawn in made_up_words(seed=seed):
        for chosen in drawn.reshape(-1, 8, 5, 20):
            passages = tuple(" ".join(" ".join(said).capitalize() + "." for said in passage) for passage in chosen)
            links = tuple(str(target) for target in generator.integers(number + 1, size=5))
            yield Article(str(number), chosen[0, 0, 0], passages, 2, links)
            number += 1


def collections(scale: Scale, count: int) -> list[Collection]:
    """The first so many collections whose data are here, or a tiny one."""
    if scale.quick:
        return [datasets.load(TRIED)]
    found: list[Collection] = []
    for name in COLLECTIONS:
        try:
            found += [datasets.load(name)] if len(found) < count else []
        except DataError:
            continue
    return found


def training_pairs(collection: Collection) -> tuple[list[str], list[str]]:
    """The training questions, and a text that is relevant to each, in an order without any order."""
    qrels = collection.judgments("train")
    qrels = qrels[qrels["relevance"] > 0].sample(frac=1, random_state=0)
    documents = texts(collection)[qrels["doc_id"]]
    return collection.queries["text"][qrels["query_id"]].tolist(), documents.tolist()


@dataclass(frozen=True, eq=False)
class Exam:
    """Test questions, documents among which theirs are, and which are relevant: bool, shape (Q, D)."""

    queries: Sequence[str]
    documents: Sequence[str]
    hits: np.ndarray

    @classmethod
    def of(cls, collection: Collection, queries: int, documents: int) -> Exam:
        """So many questions, and at least so many documents."""
        asked, qrels = held_out(collection, "test")
        asked = asked[:queries]
        qrels = qrels[qrels["query_id"].isin(asked.index) & (qrels["relevance"] > 0)]
        read = texts(collection)
        own = read.index.isin(qrels["doc_id"])
        others = np.flatnonzero(~own)[: max(0, documents - own.sum())]
        read = read.iloc[np.concatenate([np.flatnonzero(own), others])]
        hits = np.zeros((len(asked), len(read)), dtype=bool)
        hits[asked.index.get_indexer(qrels["query_id"]), read.index.get_indexer(qrels["doc_id"])] = True
        require(bool(hits.any(axis=1).all()), f"{collection.name}: a question without a relevant document", DataError)
        return cls(asked["text"].tolist(), read.tolist(), hits)

    def mark(self, queries: np.ndarray, documents: np.ndarray) -> float:
        """The mean reciprocal rank by the cosines of encodings, in points of 100."""
        return 100 * rows_reciprocal_rank(_unit(queries) @ _unit(documents).T, self.hits)
