"""Systems, as chapters declare them: an encoder, the stages that train it, and how it is searched; one fit for all.

::

    start = System(architecture, articles) + Stage(data=Pretraining(("ict", "bfs", "wlp"), articles), steps=300)
    warm = start + Stage(data=Labels(), steps=200)
    ltre = warm + Stage(data=Labels(), negatives="retrieved", loss="lambdarank-mrr", trains="query", steps=300)

A stage is one training, of data x negatives x loss x what it trains x how long. Equal beginnings of two systems are
trained once, whichever notebook asks. What is new is another `TrainingData` (see `retlib.systems.training_data`), a
loss or negatives that are registered (see `retlib.training`), or for another model a `StageSetup` (see
`retlib.systems.compose`).
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from torch import nn

from retlib.core import cache, runtime
from retlib.core.errors import require, require_one_of
from retlib.core.history import Cost
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.text import Tokenizer, TokenTable, Vocabulary
from retlib.data.tokenized import LabelledQueries, TokenizedCollection, take, tokens_key
from retlib.evaluation import measures
from retlib.models import checkpoints
from retlib.models.encoders import BagOfWords, DualEncoder
from retlib.models.retriever import ENCODERS, Architecture, Retriever, Trained
from retlib.models.transformer import Transformer
from retlib.retrieval import index as indexes
from retlib.retrieval.runs import Search
from retlib.systems.ranking import INDEX, Ranker, Target, bm25_lists, dense_searcher, encode_corpus, indexed
from retlib.training import losses, negatives, trainer
from retlib.training.dynamics import Dynamics, Watching
from retlib.training.negatives import NEGATIVES, Inputs
from retlib.training.tasks import Multitask, RetrievalTask, Task
from retlib.training.trainer import Schedule

VERSION = 3  # of what trains retrievers: who changes a loss curve raises it (tests/systems/test_golden.py)
KIND = "retriever"
# Validation queries that are looked at, and candidates beside their own documents that they are ranked against.
DEV, POOL = 500, 500
Validate = Callable[[], float]


class TrainingData(ABC):
    """What a stage trains on."""

    fits_query_encoder = False  # whether it can train the query encoder alone, over documents that are encoded before

    @property
    def settings(self) -> Any:
        """What is recorded of it beside results: a JSON value."""
        return repr(self)

    @abstractmethod
    def address(self, target: Collection) -> dict[str, Any]:
        """What of it takes part in the address of a training; JSON values."""

    @abstractmethod
    def prepare(self, setup: "StageSetup", module: nn.Module) -> tuple[Task, Validate]:
        """What the loop trains, and the score of the student on validation data as a function of its weights."""

    def query_collections(self, target: Collection) -> list[Collection]:
        """The collections whose queries train, if any: whose words are the vocabulary, and which can be watched."""
        return []

    def seeded(self, seed: int) -> Self:
        """The data of a chain of this seed: what a model makes, a model of the same seed makes."""
        return self

    def finish(self, student: Trained) -> None:  # noqa: B027 - most trainings train what they are to train
        """Called when training has ended; what a model made adds its cost to the student's `upstream_costs`."""


@dataclass(frozen=True, kw_only=True)
class Stage(Schedule):
    """One training of a chain: a `Schedule`, on what, against what and of what; `SettingError` for what does not fit.

    Each of several data has its own scale; a step takes a batch of each, and losses and validation scores are averaged
    (Gillick 2018, section 2).
    """

    data: TrainingData | Sequence[TrainingData]  # a tuple once the stage is made
    negatives: str = "in-batch"  # a name in `NEGATIVES`, and its options
    options: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "softmax"  # a name in `retlib.training.losses.LOSSES`
    trains: str = "both"  # encoders; or "query" alone, over the documents as the start encodes them
    index: str = indexes.EXACT  # what is searched in training, as in `retlib.retrieval.index.build`
    search: Mapping[str, float] = field(default_factory=dict)
    layers: int | None = None  # that a Transformer gets on top; see `retlib.models.transformer.Transformer.grow`
    token_dropout: float = 0.0  # share of tokens that an encoder does not see in training; it always sees the first
    # Where the learned scale starts, its shift at 0; else as the start ended, or as in `models.encoders.SIMILARITIES`.
    # An `absolute` loss has its shift centred in any case.
    scale: float | None = None
    watching: Watching | None = None  # looks at a training of the query encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "data", (self.data,) if isinstance(self.data, TrainingData) else tuple(self.data))
        object.__setattr__(self, "options", negatives.options(self.negatives, self.options))
        require(len(self.data) > 0, "data is empty: a stage trains on labels, generated queries or text")
        require_one_of("trains", self.trains, ("both", "query"))
        require(0 <= self.token_dropout < 1, f"token_dropout = {self.token_dropout} is a share, from 0 to below 1")
        require(self.scale is None or self.scale > 0, f"scale = {self.scale} must be positive, or None")
        if self.trains == "query":
            require(self.layers is None, "layers are put on both encoders: trains = 'both'")
            fits = all(each.fits_query_encoder for each in self.data)
            require(fits, f"{self}: only a collection's queries can train the query encoder alone")
        one_positive = losses.get(self.loss).one_positive
        if NEGATIVES.get(self.negatives).fixed_documents:
            wrong = f"{self.negatives!r} negatives train the query encoder alone, by a loss of several positives"
            require(self.trains == "query" and not one_positive, f"{wrong}: not {self.trains!r} by {self.loss!r}")

    def seeded(self, seed: int) -> Self:
        return replace(self, data=[each.seeded(seed) for each in self.data])

    def __str__(self) -> str:
        return f"{' and '.join(map(repr, self.data))}, {self.negatives}"

    @property
    def training_settings(self) -> dict[str, Any]:
        """All of the stage but its data and who looks at it: JSON values."""
        values = {name: value for name, value in vars(self).items() if name not in ("data", "watching")}
        return {name: value for name, value in values.items() if value not in (None, {})}

    @property
    def settings(self) -> dict[str, Any]:
        """The stage as recorded beside results: JSON values."""
        return {"data": [each.settings for each in self.data], **self.training_settings}

    def address(self, target: Collection) -> dict[str, Any]:
        """What of it takes part in the address of a training, the sources of loss and negatives included."""
        sources = [losses.LOSSES.source(self.loss), NEGATIVES.source(self.negatives)]
        parts = {"sources": sources, "watching": self.watching and asdict(self.watching)}
        return {**self.training_settings, **parts, "data": [each.address(target) for each in self.data]}


class StageSetup:
    """What the training of a stage needs; of the `student`, a copy of the start, `module` is trained.

    `negatives_encoder` encodes queries where negatives are searched for.
    """

    _task_class: ClassVar[type[RetrievalTask]] = RetrievalTask

    def __init__(self, stage: Stage, start: Retriever, target: Collection, seed: int) -> None:
        self.stage, self.start, self.target, self.seed = stage, start, target, seed
        self.student, self.module, self.negatives_encoder = self.make_student()
        encoders = [part for part in self.module.modules() if hasattr(part, "token_dropout")]
        require(bool(encoders) or not stage.token_dropout, "token_dropout is that of Transformers and bags of words")
        if stage.layers is not None:
            grows = [part for part in encoders if isinstance(part, Transformer)]
            require(bool(grows), "layers are those of Transformers: encoder = 'transformer'")
            for encoder in grows:
                runtime.set_seeds(seed)  # two towers begin alike
                encoder.grow(stage.layers)
            self.student.architecture = replace(self.student.architecture, layers=stage.layers)
        for encoder in encoders:
            encoder.token_dropout = stage.token_dropout

    def make_student(self) -> tuple[Trained, nn.Module, Retriever]:
        start, module = self.start, copy.deepcopy(self.start.model)
        student = Retriever(start.architecture, start.tokenizer, module)
        if self.stage.scale is not None:
            nn.init.constant_(module.alpha, self.stage.scale)
            nn.init.zeros_(module.beta)
        if self.stage.trains == "query":
            module.document_encoder = module.query_encoder
            student.architecture = replace(start.architecture, towers="two")
            student.model = DualEncoder(module.query_encoder, start.model.document_encoder, module.similarity)
            student.model.alpha, student.model.beta = module.alpha, module.beta
        return student, module, student

    def labelled(self, tokenized: TokenizedCollection, split: str) -> LabelledQueries:
        # With texts of the documents, or with their encodings, where these stay as they are.
        return tokenized.labelled(split, encode_corpus(self.start, tokenized) if self.stage.trains == "query" else None)

    def inputs(self, collection: Collection) -> Inputs:
        """What a sampler is made of, over a collection's training queries."""
        stage, student, tokenized = self.stage, self.student, self.student.reads(collection)
        fixed = lru_cache(partial(indexed, self.start, tokenized, stage.index, stage.search))

        def current() -> indexes.Index:
            return indexes.build(stage.index, student.encode_documents(tokenized.documents), stage.search)

        index = fixed if stage.trains == "query" or self.negatives_encoder is self.start else current
        labelled, bm25 = self.labelled(tokenized, "train"), partial(bm25_lists, tokenized, "train")
        return Inputs(labelled, stage.batch_size, self.seed, self.negatives_encoder.encode_queries, index, bm25)

    def task(self, module: nn.Module, inputs: Inputs) -> RetrievalTask:
        sampler = NEGATIVES.get(self.stage.negatives)(inputs, **self.stage.options)
        task = self._task_class(module, sampler, self.stage.loss, self.stage.chunk)
        if losses.get(self.stage.loss).absolute and hasattr(module, "beta"):
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


@dataclass(frozen=True)
class System(Ranker):
    """An encoder, what trains it, and how it is searched.

    Its vocabulary is that of `tokens` (anything with a `tokenizer`), or of its checkpoint, or else of the words of all
    candidates of the collections that train its first stage; no label is used. `index` and `search` are those of
    `retlib.retrieval.index.build`.
    """

    architecture: Architecture
    tokens: Articles | Tokenizer | None = None
    stages: tuple[Stage, ...] = ()
    index: str = indexes.EXACT
    search: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, stage: Stage) -> Self:
        return replace(self, stages=(*self.stages, stage))

    def with_last(self, **changes: Any) -> Self:
        """Return the same system with changes to its last stage."""
        *before, last = self.stages
        return replace(self, stages=(*before, replace(last, **changes)))

    def with_index(self, index: str, **search: float) -> Self:
        """Return the same system, searched through another index."""
        return replace(self, index=index, search=search)

    @property
    def trained(self) -> bool:
        start, head = self.architecture.checkpoint, self.architecture.head
        drawn = not start or (head != "none" and checkpoints.head(checkpoints.sides(start)[0]) is None)
        return bool(self.stages) or drawn

    @property
    def settings(self) -> dict[str, Any]:
        # Asked of the class: the vocabulary itself is only learned when it is needed.
        tokens = {"tokens": asdict(self.tokens)} if hasattr(type(self.tokens), "tokenizer") else {}
        index = {} if self.index == indexes.EXACT else {"index": self.index, "search": dict(self.search)}
        return {**asdict(self.architecture), **tokens, **index, "stages": [stage.settings for stage in self.stages]}

    def tokenizer(self, target: Collection) -> Tokenizer:
        if self.tokens is not None:
            return getattr(self.tokens, "tokenizer", self.tokens)
        if self.architecture.checkpoint:
            return checkpoints.tokenizer(self.architecture.checkpoint)
        first = self.stages[0].data if self.stages else ()
        return vocabulary_of(*([each for data in first for each in data.query_collections(target)] or [target]))

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        lengths = self.architecture.query_length, self.architecture.document_length
        tokenized = TokenizedCollection.of(target.test, self.tokenizer(target.trains), *lengths)
        index = {} if self.index == indexes.EXACT else {"index": [INDEX, self.index, dict(self.search)]}
        return {"retriever": weights_of(self, target.trains, seed)[0], **tokenized.address, **index}

    def searcher(self, target: Target, seed: int) -> Search:
        return dense_searcher(fit(self, target.trains, seed), target.test, self.index, self.search)

    def cost(self, target: Target, seed: int) -> Cost:
        if not self.stages:
            return Cost(0, 0.0) if self.trained else Cost()
        return fit(self, target.trains, seed).history.cost(self.stages[-1].keep)


@lru_cache(maxsize=8)
def vocabulary_of(*collections: Collection) -> Vocabulary:
    """The words of all candidates; one without a training pair keeps its random embedding, and still matches itself."""
    return Vocabulary.build(text for each in collections for text in each.documents["text"])


def fit(system: System, target: Collection, seed: int) -> Retriever:
    """Train a system, or find it trained; weights and history are those of the last stage.

    Without stages the weights are random, or those of the checkpoint.
    """
    return weights_of(system, target, seed)[1]()


def weights_of(system: System, target: Collection, seed: int) -> tuple[Any, Callable[[], Retriever]]:
    """Return the address of a system's weights, which are trained if they are not there, and what loads them."""
    made, tokenizer = system.architecture, system.tokenizer(target)
    if not system.stages:  # a checkpoint's weights tell it, wherever it is
        weights = made.checkpoint and checkpoints.digest(made.checkpoint)
        fresh = {**asdict(made), "checkpoint": weights, "tokens": tokens_key(tokenizer), "seed": seed}
        return {**fresh, "source": ENCODERS.source(made.encoder)}, partial(Retriever.fresh, made, tokenizer, seed)
    *before, stage = system.stages
    start, load = weights_of(replace(system, tokens=tokenizer, stages=tuple(before)), target, seed)
    stage, own_seed, label = stage.seeded(seed), stage_seed(seed, len(before)), f"{stage}, seed {seed}"
    address = {"start": start, "stage": stage.address(target), "seed": own_seed}
    folder = train_or_find(KIND, VERSION, address, lambda: StageSetup(stage, load(), target, own_seed), label)
    return folder.name, partial(Retriever.load, folder)


def stage_seed(seed: int, place: int) -> int:
    """The seed of a stage of a chain: no two see their pairs in the same order."""
    return seed + 10_007 * place


def train_or_find(kind: str, version: int, address: dict, make_setup: Callable[[], StageSetup], label: str) -> Path:
    """Return the folder of a trained model, trained if it is not there; its history has what came before it cost."""

    def make(folder: Path) -> None:
        setup = make_setup()
        stage, module, student, before = setup.stage, setup.module, setup.student, setup.start
        for part in module.modules():
            if isinstance(part, BagOfWords):
                part.sparse = stage.optimizer == "sparse_adam"
        prepared = [data.prepare(setup, _with_own_scale(module) if i else module) for i, data in enumerate(stage.data)]
        tasks, scores = zip(*prepared, strict=True)
        task = tasks[0] if len(tasks) == 1 else Multitask(tasks)
        callback = None
        if stage.watching:
            collections = stage.data[0].query_collections(setup.target)
            alone = stage.trains == "query" and len(collections) == 1
            require(alone, "only a training of the query encoder, on one collection's labels, can be watched")
            callback = Dynamics(setup.inputs(*collections), stage.watching, student.reads(*collections).query_rows)

        def validate() -> float:
            return float(np.mean([score() for score in scores]))

        student.history = history = trainer.train(task, stage, validate, setup.seed, folder, label, callback)
        for data in stage.data:
            data.finish(student)
        if before.name:
            history.upstream_costs |= {**before.history.upstream_costs, before.name: before.history.seconds}
        if stage.watching:
            callback.end(folder, history.evaluations[-1]["step"])
        student.save(folder)

    return cache.artefact(kind, version, {**address, "threads": runtime.threads()}, make)


def _with_own_scale(module: DualEncoder) -> DualEncoder:
    # The same encoders with a scale of their own (Gillick 2018, section 2).
    other = DualEncoder(module.query_encoder, module.document_encoder, module.similarity)
    other.alpha, other.beta = copy.deepcopy(module.alpha), copy.deepcopy(module.beta)
    return other
