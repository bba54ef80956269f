r"""Skip-Thought vectors: a sentence encoder that learns by guessing the sentences around it.

Kiros et al. 2015; a baseline of Gillick 2018 (section 3.4), at a small scale: one GRU
encodes a sentence, two more generate the sentence before and the one after from its state.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retlib.data.text import Tokenizer, TokenTable
from retlib.models.encoders import padded
from retlib.models.retriever import ENCODERS, Architecture


class SkipThoughtEncoder(nn.Module):
    """A GRU whose last state is the sentence's vector."""

    def __init__(self, vocabulary_size: int, dimension: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimension)
        self.gru = nn.GRU(dimension, dimension, batch_first=True)

    def forward(self, table: TokenTable) -> Tensor:
        """Sentence vectors, shape (rows, dimension)."""
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
        words, dimension = encoder.embedding.weight.shape
        self.before = nn.GRU(dimension, dimension, batch_first=True)
        self.after = nn.GRU(dimension, dimension, batch_first=True)
        self.output = nn.Embedding(words, dimension)

    def forward(self, sentence: TokenTable, previous: TokenTable, following: TokenTable) -> Tensor:
        """The mean cross-entropy of the words of both neighbours, a scalar."""
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
