"""Rankers made of others, from Part II on: words instead of vectors, two lists fused, a list in another's order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from retlib.core.errors import require
from retlib.core.history import Cost
from retlib.core.registry import source
from retlib.data.tokenized import texts
from retlib.retrieval import index, runs
from retlib.retrieval.lexical import LexicalSystem
from retlib.retrieval.runs import DEPTH, Lists, Search
from retlib.systems.query_generation import QueryGenerator, expand
from retlib.systems.ranking import Ranker, Target, encode_corpus
from retlib.systems.system import System, fit


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
            documents = expand(documents, self.expansion.seeded(seed).queries(target.test.documents))
        return runs.question_search(target.test, _fitted(self, tuple(documents)).search)


@lru_cache(maxsize=8)  # every seed, split and share of the labels asks for the same documents
def _fitted(lexical: Lexical, documents: tuple[str, ...]) -> LexicalSystem:
    return replace(lexical.system).fit(documents)


@dataclass(frozen=True, eq=False)
class Fused(Ranker):
    """Several systems' lists as one, by their weighted scores; see `retlib.retrieval.runs.combined`."""

    systems: tuple[Ranker, ...]
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

    What lies deeper is left out, unlike in `retlib.systems.reranking.Reranked`.
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
