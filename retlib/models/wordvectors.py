"""Sentence vectors from word vectors, uniform or weighted by IDF (Gillick 2018, section 3.4)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, Vocabulary, words

# Of word2vec: numbers of a vector (as in the paper), words to each side, random words for each observed one, and how
# often a word must occur.
DIMENSION, WINDOW, NEGATIVES, MIN_COUNT = 300, 5, 5, 2


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, float32, a row for each id of the vocabulary; row 0, of unknown words, is zero."""

    vocabulary: Vocabulary
    matrix: np.ndarray

    def save(self, folder: Path) -> None:
        """Write both into a folder, from which `load` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(folder / "vocab.txt")
        save_file({"matrix": self.matrix}, folder / "vectors.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote."""
        return cls(Vocabulary.load(folder / "vocab.txt"), load_file(folder / "vectors.safetensors")["matrix"])


def train(texts: Iterable[str], seed: int = 0, *, epochs: int = 5) -> WordVectors:
    """Return word2vec (Mikolov et al. 2013), trained with gensim on one thread: equal input, equal bits.

    Texts are read once; a context does not cross from one to the next, and of a text the first 10,000 words count.
    """
    from gensim.models import Word2Vec

    require(epochs >= 1, f"epochs = {epochs}: at least 1 is needed")
    # Interned, a word takes the memory of one, however often it occurs.
    corpus = [[sys.intern(word) for word in words(text)] for text in texts]
    # The paper does not say whether the context is predicted from the word (skip-gram) or the word from its context.
    # Skip-gram retrieved questions far better at equal epochs.
    algorithm = {"vector_size": DIMENSION, "sg": 1, "window": WINDOW, "negative": NEGATIVES, "min_count": MIN_COUNT}
    model = Word2Vec(workers=1, seed=seed, **algorithm)
    model.build_vocab(corpus)
    require(len(model.wv) > 0, f"word2vec: no word occurs {MIN_COUNT} times in {len(corpus)} texts", DataError)
    model.train(corpus, total_examples=model.corpus_count, epochs=epochs)
    # A row of zeros for unknown words stands before what gensim holds.
    matrix = np.concatenate([np.zeros((1, DIMENSION), dtype=np.float32), model.wv.vectors])
    return WordVectors(Vocabulary.of(model.wv.index_to_key), matrix)


class AveragedVectors:
    """A text as the mean of its words' vectors; words without a vector do not count.

    Words weigh the same, or as their inverse document frequency among `idf_texts`, the candidates.
    """

    def __init__(self, vectors: WordVectors, idf_texts: Sequence[str] | None = None) -> None:
        self.vectors = vectors
        self.weights = np.ones(len(vectors.vocabulary), dtype=np.float32)
        if idf_texts is not None:
            self.weights = inverse_document_frequency(vectors.vocabulary, idf_texts)
        self.weights[0] = 0  # the unknown word

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return sentence vectors of length 1, float32, shape (n, d); zero for a text without a known word."""
        table = self.vectors.vocabulary.encode(texts)
        sums = _rows(table, self.weights[table.ids], len(self.weights)) @ self.vectors.matrix
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.divide(sums, lengths, out=sums, where=lengths > 0)


def inverse_document_frequency(vocabulary: Vocabulary, texts: Sequence[str]) -> np.ndarray:
    """Return ln((N + 1) / (df + 1)) of each word id among N texts; float32, shape (len(vocabulary),)."""
    table = vocabulary.encode(texts)
    occurs = _rows(table, np.ones(len(table.ids), dtype=np.float32), len(vocabulary))
    occurs.sum_duplicates()
    frequency = np.bincount(occurs.indices, minlength=len(vocabulary))
    return np.log((len(table) + 1) / (frequency + 1)).astype(np.float32)


def _rows(table: TokenTable, values: np.ndarray, width: int) -> csr_array:
    return csr_array((values, table.ids, table.offsets), shape=(len(table), width))
