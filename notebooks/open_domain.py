"""Further candidates, and the cost of a score; chapter 24."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice

import numpy as np
import pandas as pd
import torch

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.splits import with_distractors
from retlib.data.text import concatenate, quick_sentences
from retlib.evaluation import measures
from retlib.models.retriever import Retriever
from retlib.retrieval import index
from retlib.retrieval.runs import make_run
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.part2 import MEASURES
from retlib.systems.ranking import dense_searcher
from retlib.systems.system import System, Target, fit


@lru_cache(maxsize=2)
def further(sources: tuple[str, ...], count: int) -> pd.DataFrame:
    """The first `count` sentences of some articles with their passages, outside the first sections, as candidates.

    First sections are left out because the candidates of some collections are made of them (section 4.4).
    """
    articles = chain.from_iterable(map(datasets.articles, sources))
    passages = (passage for article in articles for passage in article.passages[article.opening :])
    sentences = ((sentence, passage) for passage in passages for sentence in quick_sentences(passage))
    found = pd.DataFrame(islice(sentences, count), columns=["sentence", "context"])
    require(len(found) == count, f"{', '.join(sources)} give {len(found)} candidates, not {count}", DataError)
    return found.assign(text=found["sentence"] + " " + found["context"])


def crowded(targets: Iterable[Target], distractors: pd.DataFrame, suffix: str = "added") -> list[Target]:
    """Targets whose tests have further candidates, none of which is relevant; their names end in the suffix."""
    named = [(each, f"{each.test.name}+{suffix}") for each in targets]
    return [Target(with_distractors(each.test, distractors, name), each.trains) for each, name in named]


def record_many(experiment: Experiment, name: str, system: System, target: Target) -> None:
    """A system among very many candidates, for the first seed alone.

    These are read to half of a document's length, to be encoded in half of the time.
    """
    seed = experiment.parameters["seeds"][0]
    trained = fit(system, target.trains, seed)
    half = replace(trained.architecture, document_length=trained.architecture.document_length // 2)
    queries, _ = measures.held_out(target.test, "test")
    found = dense_searcher(replace(trained, architecture=half), target.test)(queries, 100)
    run = make_run(queries.index, target.test.documents.index, *found)
    outcome = Outcome(run, system.settings, system.cost(target, seed))
    experiment.measure(name, target.test, seed, outcome, measures=MEASURES)


UNIT = "seconds for 1000 x 1 million"


def record_cost(
    experiment: Experiment, system: System, target: Target, queries: int, documents: int, pairs: int, repeats: int
) -> None:
    """Time inner products and cross-attention, scaled to 1000 queries and a million documents (section 2).

    So many random `queries` are searched for their top 100 `documents`; so many `pairs` of the target's queries and
    candidates are read together by the system's Transformer. Each repeat is recorded as a seed of its own.
    """
    generator, made = np.random.default_rng(0), system.architecture
    vectors = generator.standard_normal((documents, made.dimension), dtype=np.float32)
    asked = generator.standard_normal((queries, made.dimension), dtype=np.float32)
    exact = index.build("Exact", vectors)
    fresh = Retriever.fresh(made, system.tokens.tokenizer, 0)
    read, rows = fresh.reads(target.test), np.arange(pairs)
    both = [table.take(rows % len(table)) for table in (read.queries, read.documents)]
    parts = [both[0], system.tokens.tokenizer.sep, both[1]]
    together = concatenate(parts, made.query_length + made.document_length)
    for repeat in range(repeats):
        with runtime.Stopwatch() as products:
            exact.search(asked, 100)
        with runtime.Stopwatch() as attention, torch.no_grad(), runtime.autocast("bfloat16"):
            fresh.model.query_encoder(together)
        scaled = {
            "inner product": products.seconds * 1000 * 1_000_000 / (queries * documents),
            "cross-attention": attention.seconds * 1000 * 1_000_000 / pairs,
        }
        for name, seconds in scaled.items():
            experiment.record(name, target.test.name, UNIT, seconds, repeat)
