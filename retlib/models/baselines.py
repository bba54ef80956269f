"""Sentence encoders that Gillick 2018 compares with (section 3.4), in chapter 11: averaged word vectors, Skip-Thought.

Skip-Thought (Kiros et al. 2015) learns by guessing the sentences around one, here at a small scale: one GRU encodes a
sentence, two more generate the sentence before and the one after from its state.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array
from torch import Tensor, nn

from retlib.core.errors import DataError, require
from retlib.data.text import Tokenizer, TokenTable, Vocabulary, words
from retlib.models.encoders import padded
from retlib.models.retriever import ENCODERS, Architecture

# Of word2vec: numbers of a vector (as in the paper), and how often a word must occur.
DIMENSION, MIN_COUNT = 300, 2


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors, float32, a row for each id of the vocabulary; row 0, of unknown words, is zero.

    A text is the mean of its words' vectors; words without a vector do not count.
    """

    vocabulary: Vocabulary
    matrix: np.ndarray

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(folder / "vocab.txt")
        save_file({"matrix": self.matrix}, folder / "vectors.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote."""
        return cls(Vocabulary.load(folder / "vocab.txt"), load_file(folder / "vectors.safetensors")["matrix"])

    def _counts(self, texts: Sequence[str]) -> csr_array:
        table = self.vocabulary.encode(texts)
        ones = np.ones(len(table.ids), dtype=np.float32)
        return csr_array((ones, table.ids, table.offsets), shape=(len(table), len(self.vocabulary)))

    def by_idf(self, texts: Sequence[str]) -> Self:
        """Return vectors times ln((N + 1) / (df + 1)), with words' document frequencies df among N texts."""
        counts = self._counts(texts)
        counts.sum_duplicates()
        frequency = np.bincount(counts.indices, minlength=len(self.vocabulary))
        weights = np.log((counts.shape[0] + 1) / (frequency + 1)).astype(np.float32)
        return replace(self, matrix=self.matrix * weights[:, None])

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return sentence vectors of length 1, float32, shape (n, d); zero for a text without a known word."""
        sums = self._counts(texts) @ self.matrix
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.divide(sums, lengths, out=sums, where=lengths > 0)


def train(texts: Iterable[str], seed: int = 0, *, epochs: int = 5) -> WordVectors:
    """Return word2vec (Mikolov et al. 2013), trained with gensim on one thread: equal input, equal bits.

    Texts are read once; a context does not cross from one to the next, and of a text the first 10,000 words count.
    """
    from gensim.models import Word2Vec

    # Interned, a word takes the memory of one, however often it occurs.
    corpus = [[sys.intern(word) for word in words(text)] for text in texts]
    # The paper does not say whether the context is predicted from the word (skip-gram) or the word from its context.
    # Skip-gram retrieved questions far better at equal epochs.
    model = Word2Vec(vector_size=DIMENSION, sg=1, min_count=MIN_COUNT, workers=1, seed=seed)
    model.build_vocab(corpus)
    require(len(model.wv) > 0, f"word2vec: no word occurs {MIN_COUNT} times in {len(corpus)} texts", DataError)
    model.train(corpus, total_examples=model.corpus_count, epochs=epochs)
    # A row of zeros for unknown words stands before what gensim holds.
    matrix = np.concatenate([np.zeros((1, DIMENSION), dtype=np.float32), model.wv.vectors])
    return WordVectors(Vocabulary.of(model.wv.index_to_key), matrix)


class SkipThoughtEncoder(nn.Module):
    """A GRU whose last state is the sentence's vector."""

    def __init__(self, vocabulary_size: int, dimension: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimension)
        self.gru = nn.GRU(dimension, dimension, batch_first=True)

    def forward(self, table: TokenTable) -> Tensor:
        ids, inside = padded(torch.from_numpy(table.ids).long().to(self.embedding.weight.device), table.lengths)
        states, _ = self.gru(self.embedding(ids))  # (rows, longest, dimension)
        return states[torch.arange(len(ids), device=ids.device), inside.sum(dim=1) - 1]


@ENCODERS.register("skip-thought")
def skip_thought(architecture: Architecture, tokenizer: Tokenizer, folder: Path | None = None) -> nn.Module:
    """A GRU (Kiros et al. 2015)."""
    return SkipThoughtEncoder(len(tokenizer), architecture.dimension)


class SkipThought(nn.Module):
    """The encoder and the two decoders, which share the encoder's word embeddings."""

    def __init__(self, encoder: SkipThoughtEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        size, dimension = encoder.embedding.weight.shape
        self.before = nn.GRU(dimension, dimension, batch_first=True)
        self.after = nn.GRU(dimension, dimension, batch_first=True)
        self.output = nn.Embedding(size, dimension)

    def forward(self, sentence: TokenTable, previous: TokenTable, following: TokenTable) -> Tensor:
        """Return the mean cross-entropy of the words of both neighbours, a scalar."""
        state = self.encoder(sentence)
        return (self._decode(self.before, state, previous) + self._decode(self.after, state, following)) / 2

    def _decode(self, decoder: nn.GRU, state: Tensor, target: TokenTable) -> Tensor:
        ids, inside = padded(torch.from_numpy(target.ids).long().to(state.device), target.lengths)
        # The first word is guessed from the state alone, each other from the words before it.
        given = F.pad(self.encoder.embedding(ids[:, :-1]), (0, 0, 1, 0))
        hidden, _ = decoder(given, state[None].contiguous())  # (rows, longest, dimension)
        # Sampled softmax: the words of the batch are the classes, a small part of the vocabulary.
        classes, labels = torch.unique(ids[inside], return_inverse=True)
        return F.cross_entropy(hidden[inside] @ self.output(classes).T, labels)
