"""What only Part I needs: training on labelled pairs, the settings it may try, averaged word vectors, Skip-Thought."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from torch import Tensor

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.core.history import Cost
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.pairs import rows_of_step
from retlib.data.text import TokenTable, Vocabulary
from retlib.data.tokenized import texts
from retlib.models import baselines
from retlib.models.baselines import SkipThought, WordVectors
from retlib.models.encoders import DualEncoder
from retlib.models.retriever import Architecture
from retlib.retrieval import index as indexes
from retlib.retrieval.index import EXACT
from retlib.retrieval.runs import Search, question_search
from retlib.systems.ranking import Ranker
from retlib.systems.system import Stage, StageSetup, System, Target, TrainingData, Validate
from retlib.systems.training_data import LabelledPairs
from retlib.training import losses
from retlib.training.tasks import Task

WORD2VEC = 2  # version of what trains it
# Tokens of a sentence that Skip-Thought reads, and sentences that it is validated on.
LENGTH, HELD_OUT = 20, 500

# --- the dual encoder ------------------------------------------------------------------------------


def bag_of_words(dimension: int = 300) -> Architecture:
    """The paper's encoder: the mean of a question's word embeddings, for both sides, compared by cosine (section 2)."""
    whole = {"query_length": None, "document_length": None}
    return Architecture(encoder="bag-of-words", dimension=dimension, similarity="cosine", **whole)


def pairs(**changes: Any) -> Stage:
    """Training on labelled pairs as every chapter of this part does it, with changes.

    As in the paper, other pairs' documents are negatives even where they are known to be duplicates. An epoch is
    validated twice; after twelve evaluations without a better score training stops.
    """
    given = {"data": LabelledPairs(), "batch_size": 1000, "learning_rate": 0.01, "scale": 20.0}
    given |= {"optimizer": "sparse_adam", "warmup": 0.0, "decay": False, "evaluations": 2, "patience": 12}
    given |= {} if "steps" in changes else {"epochs": 15}
    if "negatives" not in changes:
        changes = {**changes, "options": {"mask_known": False, **changes.get("options", {})}}
    return Stage(**{**given, **changes})


def grid(system: System, learning_rates: Sequence[float], scales: Sequence[float]) -> list[System]:
    """What a system may try: every learning rate with every scale, in its last stage.

    A loss in plain similarities has no scale. So that it has no smaller tuning budget than the others,
    it tries as many learning rates as they have settings, over the same range.
    """
    if losses.get(system.stages[-1].loss).scaled:
        return [system.with_last(learning_rate=rate, scale=scale) for rate in learning_rates for scale in scales]
    finer = np.geomspace(min(learning_rates), max(learning_rates), len(learning_rates) * len(scales))
    return [system.with_last(learning_rate=float(f"{rate:.2g}")) for rate in finer]


# --- the tasks -------------------------------------------------------------------------------------


def pools(task: Collection | None) -> list[Target]:
    """A task with all its items as candidates, and with those of its test alone (as the paper has it).

    None on a page of recorded results, which has no data.
    """
    return [] if task is None else [Target(task), Target(task.candidates("test"), task)]


def cluster_sizes(task: Collection) -> pd.DataFrame:
    """How many test queries have how many relevant documents: `collection`, `relevant`, `queries`."""
    relevant = task.relevant("test").groupby("query_id").size()
    counts = relevant.value_counts().sort_index()
    return pd.DataFrame({"collection": task.name, "relevant": counts.index, "queries": counts.to_numpy()})


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
        digest = hashlib.sha256()
        for sentence in self:
            digest.update(f"{sentence}\n".encode())
        return digest.hexdigest()

    @cached_property
    def tokenizer(self) -> Vocabulary:
        return Vocabulary.build(self, max_size=self.words)


# --- averaged word vectors -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AveragedWords(Ranker):
    """Ranks by the cosine of averaged word vectors (section 3.4); see `retlib.systems.ranking.Ranker`.

    word2vec is trained on sentences, or on a collection's training documents: by default the target's. With `idf` each
    word is weighted by its inverse document frequency among the candidates.
    """

    text: Sentences | Collection | None = None
    epochs: int = 5
    idf: bool = True
    trained: ClassVar[bool] = True

    @property
    def settings(self) -> dict[str, Any]:
        text = self.text.name if self.text else "the task's"
        return {"system": type(self).__name__, "text": text, "epochs": self.epochs, "idf": self.idf}

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        return {**self.settings, "texts": (self.text or target.trains).fingerprint, "seed": seed}

    def cost(self, target: Target, seed: int) -> Cost:
        """See `Ranker`; its steps are word2vec's passes over the text, of which no time is kept."""
        return Cost(steps=self.epochs)

    def searcher(self, target: Target, seed: int) -> Search:
        vectors, candidates = word2vec(self.text or target.trains, self.epochs, seed), texts(target.test).tolist()
        model = vectors.by_idf(candidates) if self.idf else vectors
        index = indexes.build(EXACT, model.encode(candidates))
        return question_search(target.test, lambda asked, k: index.search(model.encode(asked), k))


def word2vec(text: Sentences | Collection, epochs: int, seed: int) -> WordVectors:
    """Train word2vec on sentences or on a collection's training documents, or find it trained."""
    described = {"texts": text.fingerprint, "epochs": epochs, "seed": seed}

    def make(folder: Path) -> None:
        own = text.documents["text"][text.documents["split"] == "train"] if isinstance(text, Collection) else text
        baselines.train(own, seed, epochs=epochs).save(folder)

    return WordVectors.load(cache.artefact("word2vec", WORD2VEC, described, make))


# --- Skip-Thought ----------------------------------------------------------------------------------


def skip_thought(text: Sentences, dimension: int, steps: int, batch_size: int, words: int) -> System:
    """Skip-Thought, trained on a text's sentences in its most frequent words (section 3.4)."""
    text = replace(text, words=words)
    lengths = {"query_length": LENGTH, "document_length": LENGTH}
    made = Architecture(encoder="skip-thought", dimension=dimension, similarity="cosine", **lengths)
    long = {"steps": steps, "batch_size": batch_size, "evaluations": 10, "patience": 3}
    return System(made, text) + Stage(data=Neighbours(text), warmup=0.0, decay=False, precision="float32", **long)


@dataclass(frozen=True)
class Neighbours(TrainingData):
    """Sentences, each with the one before and the one after it, to be generated from it."""

    text: Sentences

    def address(self, target: Collection) -> dict[str, Any]:
        return {"neighbours": self.text.fingerprint}

    def prepare(self, training: StageSetup, module: DualEncoder) -> tuple[Task, Validate]:
        """Of one encoder; validated by the likelihood of the neighbours of the last sentences."""
        stage, student = training.stage, training.student
        model = SkipThought(module.query_encoder).to(runtime.device())
        table = student.tokenizer.encode(self.text, student.architecture.document_length)
        rows, unseen = np.arange(len(table)), min(HELD_OUT, len(table) // 10 + 3)
        task = NeighbourTask(model, table.take(rows[:-unseen]), stage.batch_size, training.seed)
        dev = NeighbourTask(model, table.take(rows[-unseen:]), unseen, training.seed)
        return task, lambda: -dev.loss(dev.batch(0)).item()


class NeighbourTask(Task):
    """Skip-Thought as a task of the training loop: sentence i with its neighbours i - 1 and i + 1."""

    def __init__(self, module: SkipThought, sentences: TokenTable, batch_size: int, seed: int) -> None:
        require(len(sentences) >= 3, "Skip-Thought needs at least three neighbouring sentences", DataError)
        self.module, self.sentences, self.batch_size, self.seed = module, sentences, batch_size, seed

    def batch(self, step: int) -> tuple[TokenTable, TokenTable, TokenTable]:
        middle = 1 + rows_of_step(len(self.sentences) - 2, self.batch_size, self.seed, step)
        return self.sentences.take(middle), self.sentences.take(middle - 1), self.sentences.take(middle + 1)

    def loss(self, batch: tuple[TokenTable, TokenTable, TokenTable]) -> Tensor:
        return self.module(*batch)
