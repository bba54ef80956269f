"""A first stage, and a model that reads its best results: quality against latency (Zhan 2020, section 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pandas as pd

from retlib.data.collection import Collection
from retlib.data.text import TokenTable
from retlib.retrieval.lexical import BM25
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.ltre_study import WARM, Study
from retlib.systems import dense, late_interaction, ltre, reranking
from retlib.systems.ranking import Ranking
from retlib.systems.reranking import Lesson, Ranker

MEASURE = "RR@10"
FIRST = "LTRe (ANCE)"  # the system of Table 1 whose results are re-ranked, as the paper's


@dataclass(frozen=True, eq=False)
class Stages:
    """Everything that answers the test queries of one collection, for one seed.

    Parameters
    ----------
    study : Study
    collection : Collection
        Its training queries train the models that read pairs.
    layers : mapping of str to int
        Name of a re-ranker to the layers of its BERT.
    lesson : Lesson
        How these are trained, and the late-interaction model.
    seed : int
    """

    study: Study
    collection: Collection
    layers: Mapping[str, int]
    lesson: Lesson
    seed: int

    @cached_property
    def bm25(self) -> BM25:
        """BM25 over the documents."""
        return BM25().fit(self.ranking.texts.tolist())

    @property
    def ranking(self) -> Ranking:
        """The collection as LTRe and BM25 see it."""
        return self.study.part(self.collection)

    @cached_property
    def listed(self) -> pd.DataFrame:
        """BM25's best results for the training and validation queries."""
        return reranking.listed(BM25(), self.ranking)

    @cached_property
    def retriever(self) -> dense.Retriever:
        """LTRe."""
        return self.study.retriever(FIRST, self.seed)

    @cached_property
    def readers(self) -> dict[str, Ranker]:
        """The re-rankers by name."""
        return {name: self._trained(layers, reranking.fit) for name, layers in self.layers.items()}

    @cached_property
    def colbert(self) -> Ranker:
        """The late-interaction model, of as many layers as the first stage."""
        return self._trained(self.study.architecture.layers, late_interaction.fit)

    def _trained(self, layers: int, fit: Callable[..., Ranker]) -> Ranker:
        # Not from the pre-trained model, which has never compared a question and a document; see the diary, Part IV.
        study = replace(self.study, architecture=replace(self.study.architecture, layers=layers))
        return fit(study.retriever(WARM, self.seed), self.collection, self.listed, self.lesson, self.seed)

    @cached_property
    def firsts(self) -> dict[str, pd.DataFrame]:
        """The runs of the two first stages over the test queries."""
        queries = self.collection.split("test")["text"]
        return {"BM25": BM25().rank(self.ranking.texts, queries, 1000), "LTRe": ltre.rank(self.retriever, self.ranking)}

    def runs(self, depths: Sequence[int]) -> dict[str, pd.DataFrame]:
        """The runs of all systems by name: one stage, and two at each depth."""
        found = {**self.firsts, "ColBERT": late_interaction.rank(self.colbert, self.collection)}
        for first, run in self.firsts.items():
            for name, reader in self.readers.items():
                for depth in depths:
                    found[f"{first} -> {name}, {depth}"] = reranking.rerank(run, depth, reader, self.collection)
        return found

    def answers(self, depths: Sequence[int]) -> dict[str, Callable[[int], object]]:
        """What answers the test query of that number, by the names of `runs`; each begins with the text."""
        units = self._units
        firsts = {"BM25": self._by_words, "LTRe": self._by_vectors}
        found: dict[str, Callable] = {name: partial(first, k=100) for name, first in firsts.items()}
        found["ColBERT"] = lambda number: units.search(*self._question_units(number), 100)
        for name, first in firsts.items():
            for reader in self.readers:
                for depth in depths:
                    found[f"{name} -> {reader}, {depth}"] = partial(self._two, first, self.readers[reader], depth)
        return found

    @cached_property
    def _questions(self) -> list[str]:
        return self.collection.split("test")["text"].tolist()

    @cached_property
    def _answer(self) -> Callable[[str, int], np.ndarray]:
        return ltre.answering(self.retriever, self.ranking)

    @cached_property
    def _units(self) -> late_interaction.UnitIndex:
        return late_interaction.build(self.colbert, self.collection)

    def _tokens(self, number: int) -> TokenTable:
        return self.retriever.tokenize([self._questions[number]])

    def _question_units(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        table = self._tokens(number)
        return late_interaction.encode_units(self.colbert.model, table), table.offsets

    def _by_words(self, number: int, k: int) -> np.ndarray:
        return self.bm25.search([self._questions[number]], k)[1][0]

    def _by_vectors(self, number: int, k: int) -> np.ndarray:
        return self._answer(self._questions[number], k)

    def _two(self, first: Callable, reader: Ranker, depth: int, number: int) -> np.ndarray:
        rows = first(number, depth)
        return reader.order(self._tokens(number), self.ranking.benchmark.documents, rows[rows >= 0])


def record(experiment: Experiment, stages: Stages, depths: Sequence[int], timed: int) -> None:
    """Record the quality of every system, and the milliseconds of each of `timed` questions, asked one by one, warm."""
    parameters = {"layers": dict(stages.layers), "loss": stages.lesson.loss}
    for system, run in stages.runs(depths).items():
        seed = 0 if system == "BM25" else stages.seed
        experiment.measure(system, stages.collection, seed, Outcome(run, parameters), measures=[MEASURE, "R@1000"])
    experiment.record_latency(stages.collection, stages.answers(depths), timed, stages.seed)
