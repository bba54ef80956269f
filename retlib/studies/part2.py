"""What Part II brings: ReQA with shares of its labels, its sizes, examples of its pre-training tasks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from retlib.data.articles import Corpus, Split
from retlib.data.collection import Article, Collection, low_resource, subsample
from retlib.models.retriever import Retriever
from retlib.studies.experiment import Experiment, NonEmpty
from retlib.systems.system import System, Target
from retlib.training.pretraining import PretrainingPairs, task_over

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100"]
SAMPLE = 10_000  # pairs that a pre-training task's averages are of
TEST = 0.2  # the share of the queries that every system is tested on
Shares = NonEmpty[Annotated[float, Field(ge=0.001, le=1 - TEST)]]


def targets(experiment: Experiment, names: Iterable[str], share: float, whole: bool = False) -> list[Target]:
    """Return collections of which a share of the labels trains and the last fifth of the queries tests.

    The test is among some `candidates`, as the notebook's parameters have it, or with `whole` among all; its name then
    ends in ``-all``. There is none on a page of recorded results.
    """
    candidates = None if whole else experiment.parameters["candidates"]
    return [_target(experiment.load(name), share, candidates) for name in names if experiment.live]


@lru_cache(maxsize=64)  # a chapter asks for the same one again and again
def _target(collection: Collection, share: float, candidates: int | None) -> Target:
    whole = low_resource(collection, share, TEST)
    test = replace(whole, name=f"{whole.name}-all") if candidates is None else subsample(whole, candidates)
    return Target(test, whole)


def weights(systems: Mapping[str, System]) -> pd.DataFrame:
    """Return how many weights each system has, embeddings and the layers that it grows included."""
    counts = []
    for each in systems.values():
        layers = [stage.layers for stage in each.stages if stage.layers is not None]
        whole = replace(each.architecture, layers=[each.architecture.layers, *layers][-1])
        counts.append(Retriever.fresh(whole, each.tokens.tokenizer, 0).parameters)
    return pd.DataFrame({"system": systems.keys(), "weights": counts})


def examples(articles: Sequence[Article], split: Split, task: str, count: int, seed: int) -> pd.DataFrame:
    """Return pairs of a pre-training task as texts, with the titles of their articles (Chang 2020, Figure 2)."""
    corpus, rows = Corpus.build(articles, list, split), []
    sentences, titles, bounds = corpus.sentences, corpus.titles, corpus.passages
    for query, passage in zip(*task_over(task, corpus).draw(np.random.default_rng(seed), count), strict=True):
        own, other = (titles[corpus.article_of(each)] for each in (corpus.passage_of(query), passage))
        # A query that stands in the passage is taken out of it.
        document = " ".join(sentences[row] for row in range(*bounds[passage : passage + 2]) if row != query)
        rows.append((task, own, sentences[query], other, document))
    return pd.DataFrame(rows, columns=["task", "query_title", "query", "document_title", "document"])


def statistics(pairs: PretrainingPairs) -> pd.DataFrame:
    """Return the sizes of the pre-training tasks, as Chang 2020, Table 1 gives them, a row for each.

    `#pairs` are all pairs that can be drawn, counted; `avg. #query tokens` and `#doc tokens` (an average too) are
    measured on `SAMPLE` pairs, or as many as a task has queries, after cutting, the document with its title; `#tokens`
    is their sum times `#pairs`, as in the paper's table.
    """
    rows = {}
    for name, task in zip(pairs.tasks, pairs.made, strict=True):
        drawn = replace(pairs, tasks=(name,)).draw(0, SAMPLE, seed=0)
        query, document = drawn.queries.lengths.mean(), drawn.documents.lengths.mean()
        rows[name] = (task.pairs * (query + document), task.pairs, query, document)
    columns = ["#tokens", "#pairs", "avg. #query tokens", "#doc tokens"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("task")
    return table.round(2).astype({"#tokens": np.int64})
