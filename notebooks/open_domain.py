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
from retlib.data.collection import with_distractors
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
def article_sentences(sources: tuple[str, ...], count: int) -> pd.DataFrame:
    """Return the first sentences of some articles with their passages, outside the first sections, as candidates.

    First sections are left out because the candidates of some collections are made of them (section 4.4).
    """
    articles = chain.from_iterable(map(datasets.articles, sources))
    passages = (passage for article in articles for passage in article.passages[article.opening :])
    sentences = ((sentence, passage) for passage in passages for sentence in quick_sentences(passage))
    table = pd.DataFrame(islice(sentences, count), columns=["sentence", "context"])
    require(len(table) == count, f"{', '.join(sources)} give {len(table)} candidates, not {count}", DataError)
    return table.assign(text=table["sentence"] + " " + table["context"])


def with_candidates(targets: Iterable[Target], distractors: pd.DataFrame, suffix: str = "added") -> list[Target]:
    """Return targets whose tests have further candidates, none of them relevant; their names end in the suffix."""
    named = [(each, f"{each.test.name}+{suffix}") for each in targets]
    return [Target(with_distractors(each.test, distractors, name), each.trains) for each, name in named]


def record_one_seed(experiment: Experiment, name: str, system: System, target: Target) -> None:
    """Record a system among very many candidates, for the first seed alone.

    These are read to half of a document's length, to be encoded in half of the time.
    """
    seed = experiment.parameters["seeds"][0]
    trained = fit(system, target.trains, seed)
    half = replace(trained.architecture, document_length=trained.architecture.document_length // 2)
    queries, _ = measures.held_out(target.test, "test")
    lists = dense_searcher(replace(trained, architecture=half), target.test)(queries, 100)
    run = make_run(queries.index, target.test.documents.index, *lists)
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
    generator, architecture = np.random.default_rng(0), system.architecture
    products = index.build("Exact", generator.standard_normal((documents, architecture.dimension), dtype=np.float32))
    vectors = generator.standard_normal((queries, architecture.dimension), dtype=np.float32)
    reader = Retriever.fresh(architecture, system.tokens.tokenizer, 0)
    tokenized, rows = reader.reads(target.test), np.arange(pairs)
    first, second = (table.take(rows % len(table)) for table in (tokenized.queries, tokenized.documents))
    parts = [first, system.tokens.tokenizer.sep, second]
    together = concatenate(parts, architecture.query_length + architecture.document_length)
    for repeat in range(repeats):
        with runtime.Stopwatch() as search:
            products.search(vectors, 100)
        with runtime.Stopwatch() as attention, torch.no_grad(), runtime.autocast("bfloat16"):
            reader.model.query_encoder(together)
        each = {"inner product": search.seconds / (queries * documents), "cross-attention": attention.seconds / pairs}
        for name, seconds in each.items():
            experiment.record(name, target.test.name, UNIT, seconds * 1000 * 1_000_000, repeat)
