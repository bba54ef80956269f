"""Every method of the four papers on one collection, and the combinations that none of them tried.

A dense system is a chain of trainings, each of which starts from what the one before it made; its name is
``link > link``. All chains have one encoder and one vocabulary, and a link is trained as long in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import pandas as pd

from retlib.core.errors import require, require_one_of
from retlib.data.collection import Collection
from retlib.retrieval import runs
from retlib.retrieval.lexical import BM25, LexicalSystem
from retlib.studies.zero_shot_study import TASKS, Study
from retlib.systems import dense, ltre, recipes, reranking, zero_shot
from retlib.systems.dense import Retriever, Schedule
from retlib.systems.ltre import Method
from retlib.systems.ranking import Ranking
from retlib.systems.recipes import Recipe
from retlib.systems.reranking import Lesson, Ranker

PRETRAINING, QUERIES, LABELS = "ICT+BFS+WLP", "GQ", "labels"
# Before the ids of queries that become items of a task.
ASKED = "question: "
# Results of a run, and of the lists that are fused.
DEPTH = 1000
# The chain that the model that reads pairs starts from.
READS_FROM = (PRETRAINING, QUERIES, LABELS)


def name_of(chain: Sequence[str]) -> str:
    """A chain's name."""
    return " > ".join(chain)


@dataclass(frozen=True)
class Trained:
    """What a chain made, with the seconds of its trainings and, where queries are generated, of the generator's."""

    retriever: Retriever
    seconds: float


@dataclass(frozen=True, eq=False)
class Board:
    """A collection, and how its systems are made.

    Parameters
    ----------
    study : Study
        The generator, the encoder, the vocabulary; `first` is the schedule of pre-training and of generated queries.
    target : Collection
        Whose training questions are the labels. The generator has not seen them.
    labels : Schedule
        Of training on these.
    both, query : Method
        Of LTRe's rivals, which train both sides, and of LTRe; their negatives are filled in.
    recipes : mapping of str to Recipe
        Of the bag-of-words encoders, by their method.
    lexical : BM25
        With its constants tuned.
    lesson : Lesson
        Of the model that reads pairs.
    """

    study: Study
    target: Collection
    labels: Schedule
    both: Method
    query: Method
    recipes: Mapping[str, Recipe]
    lesson: Lesson
    lexical: BM25 = field(default_factory=BM25)

    def trained(self, chain: tuple[str, ...], seed: int) -> Trained:
        """A chain, trained or found, with what it starts from."""
        *before, link = chain
        start = self.trained(tuple(before), seed) if before else None
        require_one_of("link", link, LINKS)
        retriever = LINKS[link](self, start and start.retriever, seed)
        seconds = retriever.history.seconds + (self.study.generator_seconds if link == QUERIES else 0.0)
        return Trained(retriever, seconds + (start.seconds if start else 0.0))

    def method(self, negatives: str) -> Method:
        """How LTRe is trained, or one of its rivals."""
        return replace(self.query if negatives == ltre.LTRE else self.both, negatives=negatives)

    @property
    def ranking(self) -> Ranking:
        """The target as all systems see it."""
        lengths = self.study.architecture.query_length, self.study.architecture.document_length
        return _ranking(self.target, self.study.prepared[0], *lengths)

    @cached_property
    def task(self) -> Collection:
        """The labels as pairs of items, as Gillick's encoders are trained: a question is an item as a document is."""
        labels = zero_shot.labelled(self.target)
        asked = labels.queries.rename(index=ASKED.__add__).rename_axis("query_id")
        items = pd.concat([self.ranking.texts, asked["text"]]).to_frame("text").rename_axis("doc_id")
        pairs = {"left": asked.index, "right": asked["cluster"].array, "label": 1, "split": asked["split"].array}
        qrels = pd.DataFrame({"query_id": asked.index, "doc_id": asked["cluster"].array, "relevance": 1})
        return Collection(f"{self.target.name}, items", items, asked, qrels, pairs=pd.DataFrame(pairs))

    def bag_of_words(self, method: str, seed: int) -> recipes.Trained:
        """A bag-of-words encoder, trained or found."""
        return recipes.fit([self.task], self.recipes[method], seed)

    def by_words(self, system: LexicalSystem, split: str = "test") -> pd.DataFrame:
        """The run of a lexical system."""
        return system.rank(self.ranking.texts, self.target.split(split)["text"], depth=DEPTH)

    def by_bags(self, trained: recipes.Trained, split: str = "test") -> pd.DataFrame:
        """The run of a bag-of-words encoder."""
        frame = self.target.documents.assign(text=self.ranking.texts)
        return recipes.retrieve(trained.encode, replace(self.target, documents=frame), split, depth=DEPTH)

    def fused(self, run: pd.DataFrame) -> pd.DataFrame:
        """A run over the test queries, fused with that of tuned BM25."""
        ids = self.target.split("test").index, self.target.documents.index
        return runs.fuse([run, self._tuned_run], *ids, depth=DEPTH)

    @cached_property
    def _tuned_run(self) -> pd.DataFrame:
        return self.by_words(self.lexical)

    def reader(self, seed: int) -> Ranker:
        """The model that reads pairs, trained or found: it learns from BM25's lists, and starts from a retriever."""
        return reranking.fit(self.trained(READS_FROM, seed).retriever, self.target, self._listed, self.lesson, seed)

    @cached_property
    def _listed(self) -> pd.DataFrame:
        return reranking.listed(self.lexical, self.ranking)

    def settings(self, chain: Sequence[str]) -> dict[str, Any]:
        """What made a chain, as recorded beside its results."""
        found = {**self.study.settings("Siamese | "), "chain": name_of(chain), "labels": asdict(self.labels)}
        methods = {link: self.method(link) for link in chain if link in ltre.NEGATIVES}
        return found | {f"{link}, rate": method.learning_rate for link, method in methods.items()}


_ranking = lru_cache(maxsize=4)(Ranking.tokenize)  # every trial is a board of its own


# --- links -----------------------------------------------------------------------------------------

Link = Callable[[Board, Retriever | None, int], Retriever]


def _pretrained(board: Board, start: Retriever | None, seed: int) -> Retriever:
    require(start is None, f"{PRETRAINING} comes first in a chain")
    return dense.pretrain(board.study.prepared, board.study.architecture, TASKS, board.study.first, seed)


def _fitted(board: Board, part: str, start: Retriever | None, schedule: Schedule, seed: int) -> Retriever:
    """Trained on one of the collections of Part III."""
    study = board.study
    return zero_shot.fit(start, study.architecture, study.prepared[0], study.part(part, board.target), schedule, seed)


def _ranked(negatives: str) -> Link:
    """Train by ranking, as in Part IV."""

    def link(board: Board, start: Retriever | None, seed: int) -> Retriever:
        require(start is not None, f"{negatives} cannot come first in a chain: it goes on from what a link has trained")
        return ltre.fit(start, board.ranking, board.method(negatives), seed)

    return link


LINKS: Mapping[str, Link] = {
    PRETRAINING: _pretrained,
    QUERIES: lambda board, start, seed: _fitted(board, "Nucleus", start, board.study.first, seed),
    LABELS: lambda board, start, seed: _fitted(board, "Official data", start, board.labels, seed),
    **{name: _ranked(name) for name in ("BM25 Neg", "Async ANN", ltre.LTRE)},
}
