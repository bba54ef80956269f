"""Stages: one training each, of data x negatives x loss x what it trains x how long.

A stage's data are a `TrainingData`: pre-training tasks over articles, a collection's own labels, or queries that a
generator wrote (`retlib.systems.generated.Generated`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from retlib.core import runtime
from retlib.core.errors import require, require_one_of, require_positive
from retlib.data.collection import Collection
from retlib.data.pairs import LabelledQueries, take
from retlib.data.text import TokenTable
from retlib.data.tokenized import TokenizedCollection
from retlib.evaluation import measures
from retlib.models.encoders import DualEncoder
from retlib.models.retriever import Retriever, Trained
from retlib.models.transformer import Transformer
from retlib.retrieval import index as indexes
from retlib.retrieval.index import EXACT, Index
from retlib.systems.ranking import bm25_lists, encode_corpus, indexed
from retlib.training import losses, negatives
from retlib.training.inputs import Inputs
from retlib.training.negatives import NEGATIVES, Sampler
from retlib.training.tasks import RetrievalTask, Task
from retlib.training.trainer import Schedule

TRAINS = ("both", "query")
# Validation queries that are looked at, and candidates beside their own documents that they are ranked against.
DEV, POOL = 500, 500
Validate = Callable[[], float]


class TrainingData(ABC):
    """What a stage trains on."""

    @property
    def settings(self) -> Any:
        """What is recorded of it beside results: a JSON value."""
        return repr(self)

    @abstractmethod
    def address(self, target: Collection) -> dict[str, Any]:
        """What of it takes part in the address of a training; JSON values."""

    @abstractmethod
    def prepare(self, training: Training, module: nn.Module) -> tuple[Task, Validate]:
        """What the loop trains, and the score of the student on validation data as a function of its weights."""

    def collections(self, target: Collection) -> list[Collection]:
        """The collections whose queries train."""
        return []

    def seeded(self, seed: int) -> TrainingData:
        """The data of a chain of this seed: what a model makes, a model of the same seed makes."""
        return self

    def made_by(self) -> dict[str, float]:
        """What a model makes it with: the model's name to the seconds of its training."""
        return {}

    def finish(self, student: Trained) -> None:  # noqa: B027 - most trainings train what they are to train
        """Called when training has ended."""


@dataclass(frozen=True, kw_only=True)
class Stage(Schedule):
    """One training of a chain: a `Schedule`, on what, against what and of what.

    Each of several data has its own scale; a step takes a batch of each, and losses and validation scores are averaged
    (Gillick 2018, section 2). It raises `SettingError` without data, for an unknown name or option, or for negatives or
    a loss that do not fit.
    """

    data: TrainingData | Sequence[TrainingData]
    negatives: str = "in-batch"  # a name in `NEGATIVES`, and its options
    options: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "softmax"  # a name in `retlib.training.losses.LOSSES`
    trains: str = "both"  # encoders; or "query" alone, over the documents as the start encodes them
    index: str = EXACT  # what is searched in training, as in `retlib.retrieval.index.build`
    search: Mapping[str, float] = field(default_factory=dict)
    layers: int | None = None  # that a Transformer gets on top; see `retlib.models.transformer.Transformer.grow`
    token_dropout: float = 0.0  # share of tokens that an encoder does not see in training; it always sees the first
    # Where the learned scale starts, its shift at 0; else as the start ended, or as in `models.encoders.SIMILARITIES`.
    # An `absolute` loss has its shift centred in any case.
    scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            require_positive(self, "scale")
            object.__setattr__(self, "scale", float(self.scale))  # so that 15 and 15.0 have one address
        require(len(self.parts) > 0, "data is empty: a stage trains on labels, generated queries or text")
        require_one_of("trains", self.trains, TRAINS)
        wrong = f"token_dropout = {self.token_dropout} is a share, from 0 to below 1"
        require(0 <= self.token_dropout < 1, wrong)
        grows = "layers are put on both encoders: trains = 'both'"
        require(self.layers is None or self.trains == "both", grows)
        object.__setattr__(self, "options", negatives.options(self.negatives, self.options))
        kind, loss = NEGATIVES.get(self.negatives), losses.get(self.loss)
        if kind.fixed_documents:
            alone = f"{self.negatives!r} negatives train the query encoder alone: documents are indexed before"
            require(self.trains == "query", alone)
            several = f"loss = {self.loss!r} takes one positive of a query; {self.negatives!r} may find several"
            require(not loss.one_positive, several)

    @property
    def parts(self) -> tuple[TrainingData, ...]:
        """The data, one or several."""
        return (self.data,) if isinstance(self.data, TrainingData) else tuple(self.data)

    def seeded(self, seed: int) -> Stage:
        """The stage of a chain of this seed; see `TrainingData.seeded`."""
        return replace(self, data=[part.seeded(seed) for part in self.parts])

    def __str__(self) -> str:
        return f"{' and '.join(map(repr, self.parts))}, {self.negatives}"

    @property
    def how(self) -> dict[str, Any]:
        """All of the stage but its data: JSON values."""
        told = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "data"}
        return {name: value for name, value in told.items() if value not in (None, {})}

    @property
    def settings(self) -> dict[str, Any]:
        """The stage as recorded beside results: JSON values."""
        return {"data": [part.settings for part in self.parts], **self.how}

    def address(self, target: Collection) -> dict[str, Any]:
        """What of it takes part in the address of a training, the sources of loss and negatives included."""
        kind = NEGATIVES.get(self.negatives)
        unused = () if self.trains == "query" or kind.indexed else ("index", "search")
        told = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("data", *unused)}
        sources = {"loss": losses.LOSSES.source(self.loss), "negatives": NEGATIVES.source(self.negatives)}
        # Of `RetrievalTask.centre`, which came later than the addresses of other losses.
        shift = {"shift": "centred"} if losses.get(self.loss).absolute else {}
        return {**told, **shift, "sources": sources, "data": [part.address(target) for part in self.parts]}


class Training:
    """A stage under way: what it starts from, what it trains, and on which collection.

    The weights of the `student` are its own, but for what is not trained; of them `module` is trained. The stage may
    train on the labels or passages of the `target`.
    """

    def __init__(self, stage: Stage, start: Retriever, target: Collection, seed: int) -> None:
        self.stage, self.start, self.target, self.seed = stage, start, target, seed
        self.student, self.module = self.begin()
        self._inputs: dict[str, Inputs] = {}

    def begin(self) -> tuple[Trained, nn.Module]:
        """A model with weights of its own, and what of it is trained."""
        student, module = _student(self.start, self.stage.trains)
        if self.stage.scale is not None:
            nn.init.constant_(module.alpha, self.stage.scale)
            nn.init.zeros_(module.beta)
        self.grow(student, module)
        return student, module

    def grow(self, student: Trained, module: nn.Module) -> None:
        """Give the module's Transformers the layers and the dropout of the stage."""
        if self.stage.layers is not None:
            transformers = [part for part in module.modules() if isinstance(part, Transformer)]
            require(len(transformers) > 0, "layers are those of Transformers: encoder = 'transformer'")
            for encoder in transformers:
                runtime.set_seeds(self.seed)  # two towers begin alike
                encoder.grow(self.stage.layers)
            student.architecture = replace(student.architecture, layers=self.stage.layers)
        encoders = [part for part in module.modules() if hasattr(part, "token_dropout")]
        wrong = "token_dropout is that of Transformers and bags of words"
        require(len(encoders) > 0 or not self.stage.token_dropout, wrong)
        for encoder in encoders:
            encoder.token_dropout = self.stage.token_dropout

    @property
    def searching(self) -> Retriever:
        """What encodes where negatives are searched for."""
        return self.student

    def labelled(self, tokenized: TokenizedCollection, split: str) -> LabelledQueries:
        """A split's queries with texts of the documents, or with their encodings, where these stay as they are."""
        return tokenized.labelled(split, encode_corpus(self.start, tokenized) if self.stage.trains == "query" else None)

    def inputs(self, collection: Collection) -> Inputs:
        """What a sampler is made of, over a collection's training queries."""
        if collection.fingerprint not in self._inputs:
            tokenized = self.student.reads(collection)
            self._inputs[collection.fingerprint] = Inputs(
                self.labelled(tokenized, "train"),
                self.stage.batch_size,
                self.seed,
                self.searching.encode_queries,
                self.index(tokenized),
                lambda depth: bm25_lists(tokenized, "train", depth),
            )
        return self._inputs[collection.fingerprint]

    def index(self, tokenized: TokenizedCollection) -> Callable[[], Index]:
        """Gives the index of the documents: that of the start, or one made with the weights of the moment."""
        if self.stage.trains == "query" or self.searching is self.start:  # what needs no index does not wait for one
            return cache(lambda: indexed(self.start, tokenized, self.stage.index, self.stage.search))
        encode = self.student.encode_documents
        return lambda: indexes.build(self.stage.index, encode(tokenized.documents), self.stage.search)

    def sampler(self, inputs: Inputs) -> Sampler:
        """The stage's negatives, drawn from these inputs."""
        return NEGATIVES.get(self.stage.negatives)(inputs, **self.stage.options)

    def task(self, module: nn.Module, inputs: Inputs) -> Task:
        """The task over what the sampler draws from these inputs."""
        task = RetrievalTask(module, self.sampler(inputs), self.stage.loss, self.stage.chunk)
        if losses.get(self.stage.loss).absolute:
            task.centre()
        return task

    def validation(self, collection: Collection) -> Validate:
        """Return the score of the student on a collection's validation queries.

        The reciprocal rank of the first relevant document among those of all validation queries and `POOL` others. Ties
        and scores that are no numbers count against the model.
        """
        student = self.student
        labelled = self.labelled(student.reads(collection), "dev")
        chosen = np.sort(np.random.default_rng(0).permutation(len(labelled))[:DEV])
        own = np.unique(labelled.relevant.take(chosen).ids)
        others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(labelled.documents)), own))
        rows = np.concatenate([own, others[:POOL]])
        queries, pool = labelled.queries.take(chosen), take(labelled.documents, rows)
        rows = np.broadcast_to(rows, (len(chosen), len(rows)))
        hits, non_negatives = labelled.hits(chosen, rows), labelled.non_negatives(chosen, rows)  # (B, P)

        def validate() -> float:
            encoded = student.encode_documents(pool) if isinstance(pool, TokenTable) else pool
            scores = [indexes.inner_products(encoded, query) for query in student.encode_queries(queries)]
            return measures.rows_reciprocal_rank(np.where(non_negatives & ~hits, -np.inf, scores), hits)

        return validate


def making_seconds(stages: Iterable[Stage]) -> float:
    """What the models took that make the stages' data: a model that makes several counts once."""
    makers = [data.made_by() for stage in stages for data in stage.parts]
    return sum({name: seconds for each in makers for name, seconds in each.items()}.values())


def _student(start: Retriever, trains: str) -> tuple[Retriever, DualEncoder]:
    """A retriever with weights of its own, and what of it is trained."""
    if trains == "both":
        student = Retriever(start.architecture, start.tokenizer, copy.deepcopy(start.model))
        return student, student.model
    given = start.model
    module = DualEncoder(copy.deepcopy(given.query_encoder), similarity=given.similarity).to(runtime.device())
    module.alpha, module.beta = copy.deepcopy(given.alpha), copy.deepcopy(given.beta)
    towers = DualEncoder(module.query_encoder, given.document_encoder, given.similarity)
    towers.alpha, towers.beta = module.alpha, module.beta
    return Retriever(replace(start.architecture, towers="two"), start.tokenizer, towers), module
