"""Models of pairs as systems: trained on a first stage's results, they re-rank another's, or search by themselves.

::

    reader = PairSystem(warm, Stage(data=Labels(), negatives="bm25", options={"n": 7, "depth": 50}, steps=200))
    Reranked(Lexical(BM25()), reader, 30)
    MaxSimSearch(replace(reader, model="late-interaction"))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.history import Cost
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.models.pair_models import PAIR_MODELS, PairModel
from retlib.models.retriever import Retriever
from retlib.retrieval import runs
from retlib.retrieval.late_index import TokenIndex
from retlib.retrieval.runs import Answer
from retlib.systems.compose import Ranks
from retlib.systems.ranking import bm25_lists
from retlib.systems.stages import Stage, Training, Validate, making_seconds
from retlib.systems.system import System, Target, fit, stage_seed, train_stage
from retlib.training.inputs import Inputs
from retlib.training.tasks import PairTask

VERSION = 2  # of what trains models of pairs: who changes a loss curve raises it (tests/systems/test_reranking.py)
RUN, TOKENS = 2, 1  # versions of what is made with them
KIND = "pair-model"
# Validation queries, BM25's lists that they are validated on, and how much of each list: reading is slow.
QUERIES, LISTED, CANDIDATES = 100, 50, 10


@dataclass(frozen=True)
class PairSystem:
    """A model that scores a query with a document: what it starts from, and how it is trained.

    The start has a Transformer as query encoder, whose lengths apply; it searches for the negatives where these are
    searched for. Each query has negatives of its own, and the loss is over its documents. `model` is a name in
    `PAIR_MODELS`. Raises `SettingError` for a stage that asks for more.
    """

    start: System
    stage: Stage
    model: str = "cross-encoder"

    def __post_init__(self) -> None:
        require_one_of("model", self.model, PAIR_MODELS.names())
        whole = self.stage.chunk is None and self.stage.trains == "both" and not self.stage.token_dropout
        require(whole, "models of pairs are trained without chunks or token_dropout, and as a whole: trains = 'both'")

    @property
    def settings(self) -> dict[str, Any]:
        """The model as recorded beside its results: JSON values."""
        return {"model": self.model, "start": self.start.settings, "stage": self.stage.settings}

    def fit(self, target: Collection, seed: int) -> PairModel:
        """Train it, and what it starts from, on the labels of the target, or find both trained."""
        start, stage = fit(self.start, target, seed), self.stage.seeded(seed)
        settings = {
            "start": start.name or start.fingerprint,
            "model": [self.model, PAIR_MODELS.source(self.model)],
            "stage": stage.address(target), "seed": stage_seed(seed, len(self.start.stages)),
            "threads": runtime.threads(),
        }  # fmt: skip

        def make(folder: Path) -> None:
            training = PairTraining(replace(self, stage=stage), start, target, settings["seed"])
            train_stage(training, folder, f"{self.model}, {self.stage}, seed {seed}")
            training.student.save(folder)

        return PairModel.load(cache.artefact(KIND, VERSION, settings, make))

    def cost(self, target: Target, seed: int) -> Cost:
        """What its training took, its start's included; see `retlib.systems.compose.Ranks`."""
        before, stages = self.start.cost(target, seed).seconds or 0.0, self.start.stages
        before += making_seconds(each.seeded(seed) for each in (*stages, self.stage))
        before -= making_seconds(each.seeded(seed) for each in stages)  # which the start's cost has
        return self.fit(target.trains, seed).history.cost(self.stage.keep, before)


class PairTraining(Training):
    """The training of a model of pairs; see `retlib.systems.stages.Training`."""

    def __init__(self, system: PairSystem, start: Retriever, target: Collection, seed: int) -> None:
        self.system = system
        super().__init__(system.stage, start, target, seed)

    def begin(self) -> tuple[PairModel, Any]:
        """A model made from the start, all of which is trained."""
        student = PairModel.fresh(self.system.model, self.start, self.seed)
        self.grow(student, student.model)
        return student, student.model

    @property
    def searching(self) -> Retriever:
        """The start, which stays as it is."""
        return self.start

    def task(self, module: Any, inputs: Inputs) -> PairTask:
        return PairTask(module, self.sampler(inputs), self.stage.loss)

    def validation(self, collection: Collection) -> Validate:
        """The mean reciprocal rank of the first relevant document in re-ranked lists of BM25, as far as these go.

        Of at most `QUERIES` validation queries, no more than training sees.
        """
        tokenized, most = self.student.reads(collection), self.stage.seen or QUERIES
        labelled, lists = tokenized.labelled("dev"), bm25_lists(tokenized, "dev", LISTED)
        chosen = np.sort(np.random.default_rng(0).permutation(len(labelled))[: min(QUERIES, most)])
        lists = labelled.candidates(chosen, lists[chosen])[:, :CANDIDATES]
        place, column = np.nonzero(lists >= 0)
        queries, documents = labelled.queries.take(chosen[place]), labelled.documents.take(lists[place, column])
        hits = labelled.hits(chosen, lists)

        def validate() -> float:
            scores = np.full(lists.shape, -np.inf, dtype=np.float32)
            scores[place, column] = self.student.scores(queries, documents)
            return measures.rows_reciprocal_rank(scores, hits)

        return validate


# --- systems ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reranked(Ranks):
    """The first `depth` results of one system, in the order of a model that reads them with the query.

    What lies deeper keeps its order (Nogueira and Cho 2019; Zhan 2020, section 6.3). With a `weight` of the model's
    score below 1, they are ordered by both scores, as `retlib.retrieval.runs.combined` adds them.
    """

    first: Ranks
    reader: PairSystem
    depth: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.weight <= 1, f"weight = {self.weight} is a share, from 0 to 1")

    @property
    def trained(self) -> bool:
        return True

    @property
    def settings(self) -> dict[str, Any]:
        told = {"reader": self.reader.settings, "first": self.first.settings}
        return {**told, "depth": self.depth, "weight": self.weight}

    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        run = self.first.run(target, seed, split, depth)
        ordered = rerank(run, self.depth, self.reader.fit(target.trains, seed), target.test)
        if self.weight == 1:
            return ordered
        ids = measures.held_out(target.test, split)[0].index, target.test.documents.index
        heads = [each[runs.places(each) < self.depth] for each in (run, ordered)]
        mixed = runs.fuse(heads, *ids, self._weights, self.depth)
        scores = heads[0][["query_id", "doc_id"]].merge(mixed, how="left", on=["query_id", "doc_id"])["score"]
        return runs.reordered(run, self.depth, scores.to_numpy())

    @property
    def _weights(self) -> tuple[float, float]:
        return 1 - self.weight, self.weight

    def cost(self, target: Target, seed: int) -> Cost:
        """See `Ranks`; of the reader alone."""
        return self.reader.cost(target, seed)

    def answer(self, target: Target, seed: int) -> Answer:
        model, first = self.reader.fit(target.trains, seed), self.first.answer(target, seed)
        read = model.reads(target.test)

        def find(text: str, k: int) -> tuple[np.ndarray, np.ndarray]:
            before, rows = first(text, max(k, self.depth))
            before, rows = before[rows >= 0], rows[rows >= 0]
            head = rows[: self.depth]
            again = model.read(model.tokenize([text]), read.fresh(head))  # the time of that is part of an answer's
            both = [(part[None, : self.depth], head[None]) for part in (before, again)]
            scores, best = (part[0, : len(head)] for part in runs.combined(both, self._weights))
            # What lies deeper is worse than all of these, by scores between 0 and 1.
            deeper = before[self.depth :] - before[self.depth :].max(initial=-np.inf) - 1
            return np.concatenate([scores, deeper])[:k], np.concatenate([best, rows[self.depth :]])[:k]

        return find


@dataclass(frozen=True, eq=False)
class MaxSimSearch(Ranks):
    """A late-interaction model that searches all documents by itself, exhaustively (Khattab and Zaharia 2020).

    It gives the tokens of query and document vectors of their own, read apart.
    """

    reader: PairSystem

    @property
    def trained(self) -> bool:
        return True

    @property
    def settings(self) -> dict[str, Any]:
        return self.reader.settings

    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        return _search(self.reader.fit(target.trains, seed), target.test, split, depth)

    def cost(self, target: Target, seed: int) -> Cost:
        return self.reader.cost(target, seed)

    def answer(self, target: Target, seed: int) -> Answer:
        model = self.reader.fit(target.trains, seed)
        index = token_index(model, target.test)

        def find(text: str, k: int) -> tuple[np.ndarray, np.ndarray]:
            table = model.tokenize([text])
            return runs.first_row(index.search(model.encode_tokens(table), table.offsets, k))

        return find


def rerank(run: pd.DataFrame, depth: int, model: PairModel, collection: Collection) -> pd.DataFrame:
    """Return a run whose first `depth` results a query are in the order of a trained model of pairs; made once."""
    require(model.name != "", "only a trained model can be asked for a run", DataError)
    settings = {
        "model": model.name, "collection": collection.fingerprint, "run": runs.digest(run), "depth": depth,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        tokenized, first = model.reads(collection), run[runs.places(run) < depth]
        queries, documents = tokenized.query_rows(first["query_id"]), tokenized.document_rows(first["doc_id"])
        runs.reordered(run, depth, model.scores(queries, documents)).to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", RUN, settings, make) / "run.parquet")


def token_index(model: PairModel, collection: Collection) -> TokenIndex:
    """The vectors of all tokens of a collection's documents; made once."""
    settings = {"model": model.name, "collection": collection.fingerprint, "threads": runtime.threads()}

    def make(folder: Path) -> None:
        documents = model.reads(collection).documents
        TokenIndex(model.encode_tokens(documents), documents.offsets).save(folder / "tokens.safetensors")

    return TokenIndex.load(cache.artefact("tokens", TOKENS, settings, make) / "tokens.safetensors")


def _search(model: PairModel, collection: Collection, split: str, depth: int) -> pd.DataFrame:
    """The run of a split's queries against all documents; made once."""
    settings = {
        "model": model.name, "collection": collection.fingerprint, "split": split, "depth": depth,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        queries, _ = measures.held_out(collection, split)
        table, index = model.reads(collection).query_rows(queries.index), token_index(model, collection)
        encoded = model.encode_tokens(table)
        run = runs.search_run(collection, queries, depth, lambda _, k: index.search(encoded, table.offsets, k))
        run.to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", RUN, settings, make) / "run.parquet")
