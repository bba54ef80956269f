"""Systems made of others: words instead of vectors, two lists fused, a list in another's order.

Whatever ranks has `run`, `cost`, `answer`, `settings` and `trained`, as `retlib.systems.system.System` has them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pandas as pd

from retlib.core.errors import require
from retlib.core.history import Cost
from retlib.data.collection import Collection
from retlib.data.tokenized import texts
from retlib.evaluation import measures
from retlib.retrieval import index, runs
from retlib.retrieval.lexical import LexicalSystem
from retlib.retrieval.runs import DEPTH, Answer
from retlib.systems.ranking import encode_corpus
from retlib.systems.system import System, Target, fit


class Ranks(Protocol):
    """What a study compares; not trained, unless a subclass says so."""

    @property
    def trained(self) -> bool:
        """Whether seeds make a difference."""
        return False

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The system as recorded beside its results: JSON values."""

    @abstractmethod
    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        """The run of a split's queries over the documents of the target's test."""

    def cost(self, target: Target, seed: int) -> Cost:
        """What its training took, where there is any, and how its last stage went."""
        return Cost()

    @abstractmethod
    def answer(self, target: Target, seed: int) -> Answer:
        """What answers any question."""


@dataclass(frozen=True, eq=False)
class Lexical(Ranks):
    """A system that compares words; it is not trained, though a model that its documents are read with may be.

    `read` is from a collection to its documents' texts, by default title and text; it may have a seed (`Expanded`).
    """

    system: LexicalSystem
    read: Callable[[Collection], pd.Series] = texts

    @property
    def trained(self) -> bool:
        return hasattr(self.read, "seeded")

    def _seeded(self, seed: int) -> Lexical:
        return replace(self, read=self.read.seeded(seed)) if self.trained else self

    @property
    def settings(self) -> dict[str, Any]:
        return self.system.settings

    def run(self, target: Target, seed: int = 0, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        return _lexical_run(self._seeded(seed), target.test, split, depth)

    def answer(self, target: Target, seed: int = 0) -> Answer:
        fitted = replace(self.system).fit(self._seeded(seed).read(target.test).tolist())
        return lambda text, k: runs.first_row(fitted.search([text], k))


@lru_cache(maxsize=16)  # every seed of a system that is fused with it asks for it
def _lexical_run(lexical: Lexical, collection: Collection, split: str, depth: int) -> pd.DataFrame:
    queries, _ = measures.held_out(collection, split)
    fitted = replace(lexical.system).fit(lexical.read(collection).tolist())
    return runs.search_run(collection, queries, depth, lambda asked, k: fitted.search(asked["text"].tolist(), k))


@dataclass(frozen=True, eq=False)
class Fused(Ranks):
    """Several systems' lists as one, by their weighted scores; see `retlib.retrieval.runs.combined`."""

    systems: tuple[Ranks, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        fits = len(self.weights) == len(self.systems) and all(weight >= 0 for weight in self.weights)
        require(fits, f"weights = {self.weights} must be one a system, none below 0; here are {len(self.systems)}")

    @property
    def trained(self) -> bool:
        return any(system.trained for system in self.systems)

    @property
    def settings(self) -> dict[str, Any]:
        return {"fused": [system.settings for system in self.systems], "weights": list(self.weights)}

    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        ids = measures.held_out(target.test, split)[0].index, target.test.documents.index
        deep = [system.run(target, seed, split, max(depth, DEPTH)) for system in self.systems]
        return runs.fuse(deep, *ids, self.weights, depth)

    def cost(self, target: Target, seed: int) -> Cost:
        """See `Ranks`: the seconds of all, what they share as often; steps and curve of the first that is trained."""
        costs = [cost for system in self.systems if (cost := system.cost(target, seed)).steps is not None]
        return costs[0]._replace(seconds=sum(cost.seconds or 0.0 for cost in costs)) if costs else Cost()

    def answer(self, target: Target, seed: int) -> Answer:
        return self.of(system.answer(target, seed) for system in self.systems)

    def of(self, answers: Iterable[Answer]) -> Answer:
        """What answers any question, made of what answers for the systems."""
        answers = list(answers)

        def fused(text: str, k: int) -> tuple[np.ndarray, np.ndarray]:
            deep = [tuple(part[None] for part in answer(text, max(k, DEPTH))) for answer in answers]
            scores, rows = runs.combined(deep, self.weights)
            return scores[0, :k], rows[0, :k]

        return fused


@dataclass(frozen=True, eq=False)
class Reordered(Ranks):
    """The first `depth` results of one system, in the order of a trained one (Zhan 2020, Table 1, "Rerank").

    What lies deeper is left out, unlike in `retlib.retrieval.runs.reordered`.
    """

    first: Ranks
    system: System
    depth: int = 100

    @property
    def trained(self) -> bool:
        return self.first.trained or self.system.trained

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.system.settings, "first": self.first.settings, "depth": self.depth}

    def run(self, target: Target, seed: int, split: str = "test", depth: int = 1000) -> pd.DataFrame:
        run = self.first.run(target, seed, split, depth)
        head = run[runs.places(run) < self.depth]
        ids, documents = pd.Index(head["query_id"].unique()), target.test.documents.index
        rows = runs.lists(head, ids, documents)[1]
        retriever = fit(self.system, target.trains, seed)
        tokenized = retriever.reads(target.test)
        encoded, vectors = retriever.encode_queries(tokenized.query_rows(ids)), encode_corpus(retriever, tokenized)
        # Query by query: all vectors at once would be as many as the run is long.
        scores = [index.inner_products(vectors[row], query) for row, query in zip(rows, encoded, strict=True)]
        return runs.make_run(ids, documents, np.array(scores), rows)

    def cost(self, target: Target, seed: int) -> Cost:
        return self.system.cost(target, seed)

    def answer(self, target: Target, seed: int) -> Answer:
        retriever, first = fit(self.system, target.trains, seed), self.first.answer(target, seed)
        vectors = encode_corpus(retriever, retriever.reads(target.test))

        def reordered(text: str, k: int) -> tuple[np.ndarray, np.ndarray]:
            _, rows = first(text, self.depth)
            rows = rows[rows >= 0]
            scores = index.inner_products(vectors[rows], retriever.encode_queries(retriever.tokenize([text]))[0])
            order = np.argsort(-scores, kind="stable")[:k]
            return scores[order], rows[order]

        return reordered
