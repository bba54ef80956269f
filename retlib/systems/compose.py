"""Rankers made of others, from Part II on: words instead of vectors, two lists fused, a list in another's order.

Models of pairs are trained on a first stage's lists; they re-rank another's, or search (chapters 43 and 51)::

    reader = PairSystem(warm, Stage(data=Labels(), negatives="bm25", options={"n": 7, "depth": 50}, steps=200))
    Reranked(Lexical(BM25()), reader, 30)
    MaxSimSearch(replace(reader, model="late-interaction"))
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from retlib.core import cache
from retlib.core.errors import require
from retlib.core.history import Cost
from retlib.core.registry import source
from retlib.data.collection import Collection
from retlib.data.tokenized import texts
from retlib.evaluation import measures
from retlib.models.pair_models import PAIR_MODELS, PairModel
from retlib.models.retriever import Retriever
from retlib.retrieval import index, runs
from retlib.retrieval.index import TokenIndex
from retlib.retrieval.lexical import LexicalSystem
from retlib.retrieval.runs import DEPTH, Lists, Search
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.ranking import Ranker, Target, arrays, bm25_lists, encode_corpus
from retlib.systems.system import Stage, StageSetup, System, Validate, fit, stage_seed, train_or_find, weights_of
from retlib.training.tasks import PairTask

# Versions of what trains models of pairs (who changes a loss curve raises it: tests/systems/test_reranking.py), and of
# what is read and encoded with them.
VERSION, READINGS, TOKENS = 4, 1, 2
# Validation queries of these, BM25's lists that they are validated on, and how much of each list: reading is slow.
QUERIES, LISTED, CANDIDATES = 100, 50, 10


@dataclass(frozen=True, eq=False)
class Lexical(Ranker):
    """A system that compares words of titles and texts.

    With a generator as `expansion`, its queries stand behind the documents (docT5query: Nogueira and Lin 2019).
    """

    system: LexicalSystem
    expansion: QueryGenerator | None = None

    @property
    def trained(self) -> bool:
        return self.expansion is not None

    @property
    def settings(self) -> dict[str, Any]:
        return self.system.settings

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        writer = self.expansion and self.expansion.seeded(seed)
        expansion = {"expansion": [writer.fit().name, writer.decoding.settings, seed]} if writer else {}
        kinds, names = type(self.system).__mro__, ("search", "_terms", "_index", "_queries")
        methods = [vars(kind)[name] for kind in kinds for name in names if name in vars(kind)]  # of bases, too
        return {**self.settings, "source": [*map(source, methods)], **expansion}

    def searcher(self, target: Target, seed: int = 0) -> Search:
        documents = texts(target.test)
        if self.expansion:
            written = self.expansion.seeded(seed).queries(target.test.documents).groupby("passage_id")["query"]
            behind = written.agg(" ".join).reindex(documents.index, fill_value="")
            documents = (documents + " " + behind).str.rstrip()
        return runs.question_search(target.test, _fitted(self, tuple(documents)).search)


@lru_cache(maxsize=8)  # every seed, split and share of the labels asks for the same documents
def _fitted(lexical: Lexical, documents: tuple[str, ...]) -> LexicalSystem:
    return replace(lexical.system).fit(documents)


@dataclass(frozen=True, eq=False)
class Fused(Ranker):
    """Several systems' lists as one, by their weighted scores; see `retlib.retrieval.runs.combined`."""

    systems: tuple[Ranker, ...]
    weights: tuple[float, ...]  # one a system

    @property
    def trained(self) -> bool:
        return any(system.trained for system in self.systems)

    @property
    def settings(self) -> dict[str, Any]:
        return {"fused": [system.settings for system in self.systems], "weights": list(self.weights)}

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        return {"fused": [system.address(target, seed) for system in self.systems], "weights": list(self.weights)}

    def cost(self, target: Target, seed: int) -> Cost:
        """The seconds of all, what they share as often; steps and curve of the first that is trained."""
        costs = [cost for system in self.systems if (cost := system.cost(target, seed)).steps is not None]
        return costs[0]._replace(seconds=sum(cost.seconds or 0.0 for cost in costs)) if costs else Cost()

    def searcher(self, target: Target, seed: int) -> Search:
        searchers = [system.searcher(target, seed) for system in self.systems]

        def search(queries: pd.DataFrame, k: int) -> Lists:
            lists = runs.combined([each(queries, max(k, DEPTH)) for each in searchers], self.weights)
            return runs.ordered(target.test, *lists, k)

        return search


@dataclass(frozen=True, eq=False)
class Reordered(Ranker):
    """The first `depth` results of one system, in the order of a trained one (Zhan 2020, Table 1, "Rerank").

    What lies deeper is left out, unlike in `Reranked`.
    """

    first: Ranker
    system: System
    depth: int = 100

    @property
    def trained(self) -> bool:
        return self.first.trained or self.system.trained

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.system.settings, "first": self.first.settings, "depth": self.depth}

    def address(self, target: Target, seed: int) -> dict[str, Any]:
        return {"reordered": [self.first.address(target, seed), self.system.address(target, seed)], "depth": self.depth}

    def cost(self, target: Target, seed: int) -> Cost:
        return self.system.cost(target, seed)

    def searcher(self, target: Target, seed: int) -> Search:
        retriever, first = fit(self.system, target.trains, seed), self.first.searcher(target, seed)
        vectors = encode_corpus(retriever, retriever.reads(target.test))

        def search(queries: pd.DataFrame, k: int) -> Lists:
            rows = first(queries, max(k, self.depth))[1][:, : self.depth]
            encoded = retriever.encode_queries(retriever.tokenize(queries["text"]))
            # Query by query: all vectors at once would be as many as the run is long.
            scores = [index.inner_products(vectors[row], query) for row, query in zip(rows, encoded, strict=True)]
            return runs.ordered(target.test, np.where(rows < 0, -np.inf, scores), rows, k)

        return search


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
        return train_or_find("pair-model", VERSION, address, lambda: PairSetup(system, load(), target, own_seed), label)

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
        scores[query, place] = model.scores(texts.take(query), documents)
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
