"""What Part I brings: training on labelled pairs, settings to try, averaged word vectors, Skip-Thought (and ch. 51)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.core.history import Cost
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.text import TokenTable, Vocabulary
from retlib.data.tokenized import rows_of_step, texts
from retlib.models import baselines
from retlib.models.retriever import Architecture
from retlib.retrieval import index as indexes
from retlib.retrieval.runs import Search, question_search
from retlib.systems.ranking import Ranker
from retlib.systems.system import Stage, StageSetup, System, Target, TrainingData, Validate
from retlib.systems.training_data import LabelledPairs
from retlib.training import losses
from retlib.training.tasks import DrawingTask

WORD2VEC = 2  # version of what trains it
# Tokens of a sentence that Skip-Thought reads, and sentences that it is validated on.
LENGTH, HELD_OUT = 20, 500


def bag_of_words(dimension: int = 300) -> Architecture:
    """Return the paper's encoder: the mean of a question's word embeddings, on both sides, by cosine (section 2)."""
    whole = {"query_length": None, "document_length": None}
    return Architecture(encoder="bag-of-words", dimension=dimension, similarity="cosine", **whole)


def pair_stage(**changes: Any) -> Stage:
    """Return the training on labelled pairs as every chapter of this part does it, with changes.

    As in the paper, other pairs' documents are negatives even where they are known to be duplicates. An epoch is
    validated twice; after twelve evaluations without a better score training stops.
    """
    given = {"data": LabelledPairs(), "batch_size": 1000, "learning_rate": 0.01, "scale": 20.0}
    given |= {"optimizer": "sparse_adam", "warmup": 0.0, "decay": False, "evaluations": 2, "patience": 12}
    if "negatives" not in changes:
        changes = {**changes, "options": {"mask_known": False, **changes.get("options", {})}}
    return Stage(**{**given, **changes})


def grid(system: System, learning_rates: Sequence[float], scales: Sequence[float]) -> list[System]:
    """Return what a system may try: every learning rate with every scale, in its last stage.

    A loss in plain similarities has no scale. So that it has no smaller tuning budget than the others,
    it tries as many learning rates as they have settings, over the same range.
    """
    if losses.get(system.stages[-1].loss).scaled:
        return [system.with_last(learning_rate=rate, scale=scale) for rate in learning_rates for scale in scales]
    finer = np.geomspace(min(learning_rates), max(learning_rates), len(learning_rates) * len(scales))
    return [system.with_last(learning_rate=float(f"{rate:.2g}")) for rate in finer]


def candidate_pools(task: Collection | None) -> list[Target]:
    """Return a task with all its items as candidates, and with those of its test alone, as the paper; none of None."""
    return [] if task is None else [Target(task), Target(task.candidates("test"), task)]


@dataclass(frozen=True)
class Sentences:
    """The first `limit` sentences of a bulk text, and a vocabulary of so many of their most frequent words."""

    name: str
    limit: int
    words: int = 20_000

    def __iter__(self) -> Iterator[str]:
        return islice(datasets.text(self.name), self.limit)

    @cached_property
    def fingerprint(self) -> str:
        return cache.key([*self])

    @cached_property
    def tokenizer(self) -> Vocabulary:
        return Vocabulary.build(self, max_size=self.words)


@dataclass(frozen=True, eq=False)
class AveragedWords(Ranker):
    """Ranks by the cosine of averaged word vectors (section 3.4).

    word2vec is trained on sentences, or on a collection's training documents: by default the target's. With `idf` each
    word is weighted by its inverse document frequency among the candidates.
    """

    text: Sentences | Collection | None = None
    epochs: int = 5
    idf: bool = True
    trained = True

    @property
    def settings(self) -> dict[str, Any]:
        text = self.text.name if self.text else "the task's"
        return {"system": type(self).__name__, "text": text, "epochs": self.epochs, "idf": self.idf}

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        return {**self.settings, "texts": (self.text or target.trains).fingerprint, "seed": seed}

    def cost(self, target: Target, seed: int) -> Cost:
        """Of steps word2vec's passes over the text, of which no time is kept."""
        return Cost(steps=self.epochs)

    def searcher(self, target: Target, seed: int) -> Search:
        model, candidates = word2vec(self.text or target.trains, self.epochs, seed), texts(target.test).tolist()
        model = model.by_idf(candidates) if self.idf else model
        index = indexes.build(indexes.EXACT, model.encode(candidates))
        return question_search(target.test, lambda questions, k: index.search(model.encode(questions), k))


def word2vec(text: Sentences | Collection, epochs: int, seed: int) -> baselines.WordVectors:
    """Train word2vec on sentences or on a collection's training documents, or find it trained."""

    def make(folder: Path) -> None:
        own = text.documents["text"][text.documents["split"] == "train"] if isinstance(text, Collection) else text
        baselines.train(own, seed, epochs=epochs).save(folder)

    settings = {"texts": text.fingerprint, "epochs": epochs, "seed": seed}
    return baselines.WordVectors.load(cache.artefact("word2vec", WORD2VEC, settings, make))


def skip_thought(text: Sentences, dimension: int, steps: int, batch_size: int, words: int) -> System:
    """Return Skip-Thought, trained on a text's sentences in its most frequent words (section 3.4)."""
    text, lengths = replace(text, words=words), {"query_length": LENGTH, "document_length": LENGTH}
    made = Architecture(encoder="skip-thought", dimension=dimension, similarity="cosine", **lengths)
    long = {"steps": steps, "batch_size": batch_size, "evaluations": 10, "patience": 3}
    return System(made, text) + Stage(data=Neighbours(text), warmup=0.0, decay=False, precision="float32", **long)


class NeighbourTask(DrawingTask):
    """Skip-Thought as a task of the training loop: sentence i of a table with its neighbours i - 1 and i + 1."""

    def batch(self, step: int) -> tuple[TokenTable, ...]:
        middle = 1 + rows_of_step(len(self.source) - 2, self.batch_size, self.seed, step)
        return tuple(self.source.take(middle + shift) for shift in (0, -1, 1))

    def loss(self, batch: tuple[TokenTable, ...]) -> Tensor:
        return self.module(*batch)


@dataclass(frozen=True)
class Neighbours(TrainingData):
    """Sentences, each with the one before and the one after it, to be generated from it."""

    text: Sentences

    def address(self, target: Collection) -> dict[str, Any]:
        return {"neighbours": self.text.fingerprint}

    def prepare(self, training: StageSetup, module: nn.Module) -> tuple[NeighbourTask, Validate]:
        """Of one encoder; validated by the likelihood of the neighbours of the last sentences."""
        stage, student = training.stage, training.student
        model = baselines.SkipThought(module.query_encoder).to(runtime.device())
        table = student.tokenizer.encode(self.text, student.architecture.document_length)
        seen = len(table) - min(HELD_OUT, len(table) // 10 + 3)
        require(seen >= 3, "Skip-Thought needs at least three neighbouring sentences", DataError)
        rows, seed = np.arange(len(table)), training.seed
        dev = NeighbourTask(model, table.take(rows[seen:]), len(table) - seen, seed)
        task = NeighbourTask(model, table.take(rows[:seen]), stage.batch_size, seed)
        return task, lambda: -dev.loss(dev.batch(0)).item()
