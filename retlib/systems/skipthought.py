r"""Skip-Thought vectors: a sentence encoder that learns by guessing the sentences around it.

Kiros et al. 2015; a baseline of Gillick 2018 (section 3.4), at a small scale: one GRU
encodes a sentence, two more generate the sentence before and the one after from its state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_positive
from retlib.data import text
from retlib.data.pairs import rows_of_step
from retlib.data.text import TokenTable, Vocabulary
from retlib.models import encoders
from retlib.models.encoders import encode
from retlib.training import negatives, trainer
from retlib.training.trainer import Task, TrainingSettings, train


@dataclass(frozen=True)
class SkipThoughtSettings:
    """Settings of a small Skip-Thought model.

    Parameters
    ----------
    dimension : int
        Of word embeddings and of the sentence vector; 300 in Gillick 2018.
    steps, batch_size : int
    learning_rate : float
        Of Adam.
    words : int
        The most frequent words are kept.
    length : int
        Sentences are cut after so many words.
    """

    dimension: int = 300
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    words: int = 20_000
    length: int = 20

    def __post_init__(self) -> None:
        require_positive(self, *asdict(self))


def _padded(table: TokenTable, length: int) -> tuple[Tensor, Tensor]:
    """Token ids (rows, longest) with zeros behind, and how many tokens of each row count."""
    counts = np.minimum(table.lengths, length)
    place = np.arange(max(1, counts.max(initial=0)))
    inside = place[None, :] < counts[:, None]
    ids = np.zeros(inside.shape, dtype=np.int64)
    starts = table.offsets[:-1, None] + place[None, :]
    ids[inside] = table.ids[starts[inside]]
    return torch.from_numpy(ids), torch.from_numpy(counts)


class SkipThoughtEncoder(nn.Module):
    """A GRU whose last state is the sentence's vector.

    Parameters
    ----------
    vocabulary_size, dimension : int
    length : int
        Sentences are cut after so many words.
    """

    def __init__(self, vocabulary_size: int, dimension: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimension)
        self.gru = nn.GRU(dimension, dimension, batch_first=True)
        self.length = length

    def forward(self, table: TokenTable) -> Tensor:
        """Sentence vectors, shape (rows, dimension)."""
        ids, counts = _padded(table, self.length)
        on = self.embedding.weight.device
        states, _ = self.gru(self.embedding(ids.to(on)))  # (rows, longest, dimension)
        return states[torch.arange(len(ids), device=on), (counts - 1).to(on)]


class SkipThought(nn.Module):
    """The encoder and the two decoders, which share the encoder's word embeddings."""

    def __init__(self, vocabulary_size: int, settings: SkipThoughtSettings) -> None:
        super().__init__()
        self.encoder = SkipThoughtEncoder(vocabulary_size, settings.dimension, settings.length)
        self.before = nn.GRU(settings.dimension, settings.dimension, batch_first=True)
        self.after = nn.GRU(settings.dimension, settings.dimension, batch_first=True)
        self.output = nn.Embedding(vocabulary_size, settings.dimension)

    def forward(self, sentence: TokenTable, previous: TokenTable, following: TokenTable) -> Tensor:
        """The mean cross-entropy of the words of both neighbours, a scalar."""
        state = self.encoder(sentence)
        return (self._decode(self.before, state, previous) + self._decode(self.after, state, following)) / 2

    def _decode(self, decoder: nn.GRU, state: Tensor, target: TokenTable) -> Tensor:
        ids, counts = _padded(target, self.encoder.length)
        ids, counts = ids.to(state.device), counts.to(state.device)
        # The first word is guessed from the state alone, each other from the words before it.
        given = F.pad(self.encoder.embedding(ids[:, :-1]), (0, 0, 1, 0))
        hidden, _ = decoder(given, state[None].contiguous())  # (rows, longest, dimension)
        inside = torch.arange(ids.shape[1], device=ids.device)[None, :] < counts[:, None]
        # Sampled softmax: the words of the batch are the classes, a small part of the vocabulary.
        classes, labels = torch.unique(ids[inside], return_inverse=True)
        return F.cross_entropy(hidden[inside] @ self.output(classes).T, labels)


class NeighbourTask(Task):
    """Skip-Thought as a task of the training loop: sentence i with its neighbours i - 1 and i + 1."""

    def __init__(self, module: SkipThought, sentences: TokenTable, batch_size: int, seed: int) -> None:
        require(len(sentences) >= 3, "Skip-Thought needs at least three neighbouring sentences", DataError)
        self.module, self.sentences, self.batch_size, self.seed = module, sentences, batch_size, seed

    def batch(self, step: int) -> tuple[TokenTable, TokenTable, TokenTable]:
        """Sentences, and those before and after them."""
        middle = 1 + rows_of_step(len(self.sentences) - 2, self.batch_size, self.seed, step)
        return self.sentences.take(middle), self.sentences.take(middle - 1), self.sentences.take(middle + 1)

    def loss(self, batch: tuple[TokenTable, TokenTable, TokenTable]) -> Tensor:
        """The loss of a batch."""
        return self.module(*batch)


@dataclass(eq=False)
class TrainedSkipThought:
    """A trained encoder and its vocabulary."""

    vocabulary: Vocabulary
    encoder: SkipThoughtEncoder

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit-length sentence vectors, float32, shape (texts, dimension)."""
        vectors = encode(self.encoder.eval(), self.vocabulary.encode(texts), batch_size=512)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def fit(sentences: Iterable[str], settings: SkipThoughtSettings, seed: int, fingerprint: str) -> TrainedSkipThought:
    """Train on neighbouring sentences, or find it trained.

    Parameters
    ----------
    sentences : iterable of str
        In the order of the text; read only if the model is not there yet.
    settings : SkipThoughtSettings
    seed : int
    fingerprint : str
        What names the sentences.
    """
    described = {
        **asdict(settings),
        "seed": seed,
        "sentences": fingerprint,
        "threads": runtime.threads(),
    }

    def make(folder: Path) -> None:
        _train(list(sentences), settings, seed, folder)

    modules = (encoders, negatives, text, trainer, sys.modules[__name__])
    folder = cache.artefact("skip-thought", described, modules, make)
    vocabulary = Vocabulary.load(folder / "vocabulary.txt")
    encoder = SkipThoughtEncoder(len(vocabulary), settings.dimension, settings.length)
    encoder.load_state_dict(load_file(folder / "encoder.safetensors"))
    return TrainedSkipThought(vocabulary, encoder)


def _train(sentences: list[str], settings: SkipThoughtSettings, seed: int, folder: Path) -> None:
    vocabulary = Vocabulary.build(sentences, max_size=settings.words)
    runtime.set_seeds(seed)
    model = SkipThought(len(vocabulary), settings).to(runtime.device())
    held_out = min(500, len(sentences) // 10 + 3)
    table = vocabulary.encode(sentences)
    rows = np.arange(len(table))
    task = NeighbourTask(model, table.take(rows[:-held_out]), settings.batch_size, seed)
    unseen = NeighbourTask(model, table.take(rows[-held_out:]), held_out, seed)
    every = max(1, settings.steps // 10)
    plan = TrainingSettings(settings.steps, every, patience=3, optimizer="adam", learning_rate=settings.learning_rate)
    train(task, plan, lambda: -unseen.loss(unseen.batch(0)).item(), seed, folder, f"Skip-Thought seed {seed}")
    vocabulary.save(folder / "vocabulary.txt")
    save_file({k: v.cpu().contiguous() for k, v in model.encoder.state_dict().items()}, folder / "encoder.safetensors")
