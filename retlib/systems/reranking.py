"""Models of pairs as systems: trained on a first stage's lists, they re-rank another's, or search; chapters 43 and 51.

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
from torch import nn

from retlib.core import cache
from retlib.core.errors import require, require_one_of
from retlib.core.history import Cost
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.models.pair_models import PAIR_MODELS, PairModel
from retlib.models.retriever import Retriever
from retlib.retrieval import runs
from retlib.retrieval.late_index import TokenIndex
from retlib.retrieval.runs import Lists, Search
from retlib.systems.ranking import Ranker, Target, arrays, bm25_lists
from retlib.systems.system import Stage, StageSetup, System, Validate, stage_seed, train_or_find, weights_of
from retlib.training.tasks import PairTask

# Versions of what trains models of pairs (who changes a loss curve raises it: tests/systems/test_reranking.py), and of
# what is read and encoded with them.
VERSION, READINGS, TOKENS = 3, 1, 2
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
        given = self.stage.chunk, self.stage.scale, self.stage.token_dropout, len(self.stage.data), self.stage.trains
        wrong = "models of pairs are trained on one kind of data, without chunks, scale or token_dropout"
        require(given == (None, None, 0, 1, "both"), f"{wrong}, and as a whole: trains = 'both'")

    @property
    def settings(self) -> dict[str, Any]:
        return {"model": self.model, "start": self.start.settings, "stage": self.stage.settings}

    def fit(self, target: Collection, seed: int) -> PairModel:
        return PairModel.load(self.folder(target, seed))

    def folder(self, target: Collection, seed: int) -> Path:
        """Return where it lies: trained, with what it starts from, on the labels of the target, or found trained."""
        system, (start, load) = replace(self, stage=self.stage.seeded(seed)), weights_of(self.start, target, seed)
        own_seed, label = stage_seed(seed, len(self.start.stages)), f"{self.model}, {self.stage}, seed {seed}"
        address = {"start": start, "stage": system.stage.address(target), "seed": own_seed}
        address["model"] = [self.model, PAIR_MODELS.source(self.model)]
        return train_or_find(KIND, VERSION, address, lambda: PairSetup(system, load(), target, own_seed), label)

    def cost(self, target: Target, seed: int) -> Cost:
        return self.fit(target.trains, seed).history.cost(self.stage.keep)


class PairSetup(StageSetup):
    """The training of a model of pairs; see `retlib.systems.system.StageSetup`."""

    _task_class = PairTask

    def __init__(self, system: PairSystem, start: Retriever, target: Collection, seed: int) -> None:
        self.model = system.model
        super().__init__(system.stage, start, target, seed)

    def make_student(self) -> tuple[PairModel, nn.Module, Retriever]:
        student = PairModel.fresh(self.model, self.start, self.seed)
        return student, student.model, self.start

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


@dataclass(frozen=True, eq=False)
class Reranked(Ranker):
    """The first `depth` results of one system, in the order of a model that reads them with the query.

    What lies deeper keeps its order (Nogueira and Cho 2019; Zhan 2020, section 6.3). With a `weight` of the model's
    score below 1, they are ordered by both scores, as `retlib.retrieval.runs.combined` adds them.
    """

    first: Ranker
    reader: PairSystem
    depth: int
    weight: float = 1.0
    trained = True

    def __post_init__(self) -> None:
        require(0 <= self.weight <= 1, f"weight = {self.weight} is a share, from 0 to 1")

    @property
    def settings(self) -> dict[str, Any]:
        how = {"depth": self.depth, "weight": self.weight}
        return {"reader": self.reader.settings, "first": self.first.settings, **how}

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        reader = self.reader.folder(target.trains, seed).name
        return {"reader": reader, "first": self.first.address(target, seed), "how": [self.depth, self.weight]}

    def cost(self, target: Target, seed: int) -> Cost:
        """Of the reader alone."""
        return self.reader.cost(target, seed)

    def searcher(self, target: Target, seed: int) -> Search:
        model, first = self.reader.fit(target.trains, seed), self.first.searcher(target, seed)

        def search(queries: pd.DataFrame, k: int) -> Lists:
            before, rows = first(queries, max(k, self.depth))
            head, deeper = rows[:, : self.depth], rows[:, self.depth :]
            scores = _pair_scores(model, target.test, queries, head)
            if self.weight < 1:
                lists = (before[:, : self.depth], head), (scores, head)
                scores, head = runs.combined(lists, (1 - self.weight, self.weight))
            scores, head = runs.ordered(target.test, scores, head, rows.shape[1] - deeper.shape[1])
            # What lies deeper comes one by one below the lowest of these.
            lowest = np.where(head < 0, np.inf, scores).min(axis=1, keepdims=True, initial=0)
            rest = np.where(deeper < 0, -np.inf, lowest - 1 - np.arange(deeper.shape[1]))
            return np.column_stack([scores, rest])[:, :k], np.column_stack([head, deeper])[:, :k]

        return search


def _pair_scores(model: PairModel, collection: Collection, queries: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    # Of lists of documents, (Q, depth). Those of a run are made once, whatever their weight; where
    # one question is answered, to tokenize its documents is a part of the time.
    read, (query, place) = model.reads(collection), np.nonzero(rows >= 0)

    def make() -> dict[str, np.ndarray]:
        scores, texts = np.full(rows.shape, -np.inf, dtype=np.float32), model.tokenize(queries["text"])
        documents = (read.fresh if len(queries) == 1 else read.block)(rows[query, place])
        scores[query, place] = model.scores(texts.take(query), documents) if len(query) else 0.0
        return {"scores": scores}

    lists = cache.key([queries["text"].tolist(), rows.tolist()])
    settings = {"model": model.name, "collection": collection.fingerprint, "lists": lists}
    return (make() if len(queries) == 1 else arrays("readings", READINGS, settings, make))["scores"]


@dataclass(frozen=True, eq=False)
class MaxSimSearch(Ranker):
    """A late-interaction model that searches all documents by itself, exhaustively (Khattab and Zaharia 2020).

    It gives the tokens of query and document vectors of their own, read apart.
    """

    reader: PairSystem
    trained = True

    @property
    def settings(self) -> dict[str, Any]:
        return self.reader.settings

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        return {"searches": self.reader.folder(target.trains, seed).name}

    def cost(self, target: Target, seed: int) -> Cost:
        return self.reader.cost(target, seed)

    def searcher(self, target: Target, seed: int) -> Search:
        model = self.reader.fit(target.trains, seed)
        settings = {"model": model.name, "collection": target.test.fingerprint}

        def make() -> dict[str, np.ndarray]:
            documents = model.reads(target.test).documents
            return {"vectors": model.encode_tokens(documents), "offsets": documents.offsets}

        index = TokenIndex(**arrays("tokens", TOKENS, settings, make))

        def search(queries: list[str], k: int) -> Lists:
            table = model.tokenize(queries)
            return index.search(model.encode_tokens(table), table.offsets, k)

        return runs.question_search(target.test, search)
