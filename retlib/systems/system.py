"""Systems: an encoder and the stages that train it; one fit for all of them.

::

    start = System(architecture, articles) + Stage(data=Pretraining(("ict", "bfs", "wlp"), articles), steps=300)
    warm = start + Stage(data=Labels(), steps=200)
    ltre = warm + Stage(data=Labels(), negatives="retrieved", loss="lambdarank-mrr", trains="query", steps=300)

Equal beginnings of two systems are trained once, whichever notebook asks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import require
from retlib.core.history import Cost
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.text import Tokenizer, Vocabulary
from retlib.data.tokenized import tokens_key
from retlib.models import checkpoints
from retlib.models.encoders import BagOfWords, DualEncoder
from retlib.models.retriever import ENCODERS, Architecture, Retriever, saved_history
from retlib.retrieval.index import EXACT
from retlib.retrieval.runs import Answer, first_row
from retlib.systems.ranking import indexed, rank
from retlib.systems.stages import Stage, Training, making_seconds
from retlib.training import trainer
from retlib.training.dynamics import Watching
from retlib.training.inputs import Inputs
from retlib.training.tasks import Multitask

VERSION = 2  # of what trains retrievers: who changes a loss curve raises it (tests/systems/test_golden.py)
KIND = "retriever"


@dataclass(frozen=True)
class Target:
    """What systems are tested on, and whose labels or passages train them: `train`, or else `test` as well."""

    test: Collection
    train: Collection | None = None

    @property
    def trains(self) -> Collection:
        """The collection that trains."""
        return self.train or self.test


@dataclass(frozen=True)
class System:
    """An encoder, what trains it, and how it is searched.

    Its vocabulary is that of `tokens` (anything with a `tokenizer`), or of its checkpoint, or else of the words of all
    candidates of the collections that train its first stage: candidates are indexed before any query comes, and no
    label is used. `index` and `search` are those of `retlib.retrieval.index.build`.
    """

    architecture: Architecture
    tokens: Articles | Tokenizer | None = None
    stages: tuple[Stage, ...] = ()
    index: str = EXACT
    search: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, stage: Stage) -> System:
        return replace(self, stages=(*self.stages, stage))

    def with_last(self, **changes: Any) -> System:
        """The same system with changes to its last stage."""
        *before, last = self.stages
        return replace(self, stages=(*before, replace(last, **changes)))

    def searching(self, index: str, **search: float) -> System:
        """The same system, searched through another index."""
        return replace(self, index=index, search=search)

    @property
    def trained(self) -> bool:
        """Whether seeds make a difference."""
        start, head = self.architecture.checkpoint, self.architecture.head
        drawn = not start or (head != "none" and checkpoints.head(checkpoints.sides(start)[0]) is None)
        return bool(self.stages) or drawn

    @property
    def settings(self) -> dict[str, Any]:
        """The system as recorded beside its results: JSON values."""
        # Asked of the class: the vocabulary itself is only learned when it is needed.
        told = {"tokens": asdict(self.tokens)} if hasattr(type(self.tokens), "tokenizer") else {}
        told |= {} if self.index == EXACT else {"index": self.index, "search": dict(self.search)}
        return {**asdict(self.architecture), **told, "stages": [stage.settings for stage in self.stages]}

    def tokenizer(self, target: Collection) -> Tokenizer:
        """Its vocabulary."""
        if self.tokens is not None:
            return getattr(self.tokens, "tokenizer", self.tokens)
        if self.architecture.checkpoint:
            return checkpoints.tokenizer(self.architecture.checkpoint)
        found = [each for part in self.stages[0].parts for each in part.collections(target)] if self.stages else []
        return words(*(found or [target]))

    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        """The run of a split's queries over the documents of the target's test."""
        return rank(fit(self, target.trains, seed), target.test, split, depth, self.index, self.search)

    def cost(self, target: Target, seed: int) -> Cost:
        """See `retlib.systems.compose.Ranks`."""
        if not self.stages:
            return Cost(0, 0.0) if self.trained else Cost()
        made, stages = (self.architecture, self.tokenizer(target.trains)), self._seeded(seed)
        chains = [stages[:length] for length in range(1, len(stages) + 1)]
        histories = [saved_history(_made(*made, chain, target.trains, seed)) for chain in chains]
        making = making_seconds(stages)
        return histories[-1].cost(self.stages[-1].keep, making + sum(history.seconds for history in histories[:-1]))

    def _seeded(self, seed: int) -> tuple[Stage, ...]:
        return tuple(stage.seeded(seed) for stage in self.stages)

    def answer(self, target: Target, seed: int) -> Answer:
        """What answers any question."""
        retriever = fit(self, target.trains, seed)
        found = indexed(retriever, retriever.reads(target.test), self.index, self.search)
        return lambda text, k: first_row(found.search(retriever.encode_queries(retriever.tokenize([text])), k))


@lru_cache(maxsize=8)
def words(*collections: Collection) -> Vocabulary:
    """The words of all candidates; one without a training pair keeps its random embedding, and still matches itself."""
    return Vocabulary.build(text for each in collections for text in each.documents["text"])


# --- training --------------------------------------------------------------------------------------


def fit(system: System, target: Collection, seed: int, watching: Watching | None = None) -> Retriever:
    """Train a system, or find it trained; its weights are those that the last stage keeps, and so is its history.

    Without stages the weights are random, or those of the checkpoint. If only the query encoder was trained, there are
    two towers. With the stage's place in the chain, `seed` orders the pairs. `watching` looks at the last stage, or at
    another one with its `address`, `begin` and `end`.
    """
    tokenizer = system.tokenizer(target)
    if not system.stages:
        return Retriever.fresh(system.architecture, tokenizer, seed)
    return Retriever.load(_made(system.architecture, tokenizer, system._seeded(seed), target, seed, watching))


def _made(
    architecture: Architecture,
    tokenizer: Tokenizer,
    stages: tuple[Stage, ...],
    target: Collection,
    seed: int,
    watching: Watching | None = None,
) -> Path:
    """The folder of a chain's retriever, trained if it is not there."""
    *before, stage = stages
    start = _made(architecture, tokenizer, tuple(before), target, seed) if before else None
    settings = {
        "start": start.name if start else _fresh(architecture, tokenizer, seed),
        "stage": stage.address(target), "seed": stage_seed(seed, len(before)),
        "watching": dict(watching.address()) if watching else {}, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        given = Retriever.load(start) if start else Retriever.fresh(architecture, tokenizer, seed)
        training = Training(stage, given, target, settings["seed"])
        train_stage(training, folder, f"{stage}, seed {seed}", watching)
        training.student.save(folder)

    return cache.artefact(KIND, VERSION, settings, make)


def stage_seed(seed: int, place: int) -> int:
    """The seed of a stage of a chain: no two see their pairs in the same order."""
    return seed + 10_007 * place


def _fresh(architecture: Architecture, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """What weights before any training are made of."""
    told = {"architecture": asdict(architecture), "tokens": tokens_key(tokenizer), "seed": seed}
    told["source"] = ENCODERS.source(architecture.encoder)
    if architecture.checkpoint:  # wherever it is, its weights tell it
        told["weights"] = checkpoints.digest(architecture.checkpoint)
        told["architecture"]["checkpoint"] = ""
    return told


def train_stage(training: Training, folder: Path, label: str, watching: Watching | None = None) -> None:
    """Train a stage's student in place, and give it its history."""
    stage, module = training.stage, training.module
    for part in module.modules():
        if isinstance(part, BagOfWords):
            part.sparse = stage.optimizer == "sparse_adam"
    prepared = [
        data.prepare(training, _likewise(module) if place else module) for place, data in enumerate(stage.parts)
    ]
    tasks, scores = [task for task, _ in prepared], [validate for _, validate in prepared]
    # With several tasks, an epoch is one pass over the largest; the smaller ones come round more often.
    pairs = max(task.pairs for task in tasks)
    callback = watching.begin(*_watched(training)) if watching else None
    history = trainer.train(
        tasks[0] if len(tasks) == 1 else Multitask(tasks),
        stage,
        lambda: float(np.mean([score() for score in scores])),
        training.seed,
        folder,
        label,
        callback,
        pairs,
    )
    for data in stage.parts:
        data.finish(training.student)
    if watching:
        watching.end(callback, folder, history)
    training.student.history = history


def _likewise(module: DualEncoder) -> DualEncoder:
    """The same encoders with a scale of their own (Gillick 2018, section 2)."""
    other = DualEncoder(module.query_encoder, module.document_encoder, module.similarity)
    other.alpha, other.beta = copy.deepcopy(module.alpha), copy.deepcopy(module.beta)
    return other


def _watched(training: Training) -> tuple[Inputs, Callable]:
    found = training.stage.parts[0].collections(training.target)
    alone = training.stage.trains == "query" and len(found) == 1
    require(alone, "only a training of the query encoder, on one collection's labels, can be watched")
    return training.inputs(found[0]), training.student.reads(found[0]).query_rows


def observe(system: System, stage: Stage, target: Collection, seed: int, watching: Watching) -> list[dict]:
    """What a callback sees of a system that is not trained on, on the batches that a stage would train on."""
    training = Training(stage, fit(system, target, seed), target, stage_seed(seed, len(system.stages)))
    inputs, query_rows = _watched(training)
    callback, sampler = watching.begin(inputs, query_rows), training.sampler(inputs)
    seen = ((step, callback(step, sampler.batch(step))) for step in range(stage.steps))
    return [{"step": step, **found} for step, found in seen if found is not None]
