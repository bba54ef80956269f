"""What only Part II needs: ReQA with shares of its labels, further candidates, BM25's settings, the cost of a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from retlib.data.articles import Corpus, Split
from retlib.data.collection import Article, Collection
from retlib.data.splits import low_resource, subsample
from retlib.models.retriever import Retriever
from retlib.studies.experiment import Experiment
from retlib.studies.parameters import Many
from retlib.systems.system import System, Target
from retlib.training.pretraining import KEPT, PretrainingPairs, task_over

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100"]
SAMPLE = 10_000  # pairs that a pre-training task's averages are of
TEST = 0.2  # the share of the queries that every system is tested on


Shares = Many[Annotated[float, Field(ge=0.001, le=1 - TEST)]]


@lru_cache(maxsize=64)  # a chapter asks for the same one again and again
def target(collection: Collection, share: float, candidates: int | None) -> Target:
    """A share of the labels trains, among all candidates; the last fifth of the queries tests, among about so many.

    Without a number it tests among all, and the test's name ends in ``-all``.
    """
    whole = low_resource(collection, share, TEST)
    test = replace(whole, name=f"{whole.name}-all") if candidates is None else subsample(whole, candidates)
    return Target(test, whole)


def targets(experiment: Experiment, names: Iterable[str], share: float, whole: bool = False) -> list[Target]:
    """The targets of collections at a share of the labels; none on a page of recorded results.

    With `whole` their tests are among all candidates, not among the `candidates` of the notebook's parameters.
    """
    candidates = None if whole else experiment.parameters["candidates"]
    return [target(experiment.load(name), share, candidates) for name in names if experiment.live]


# --- tables ----------------------------------------------------------------------------------------


def sizes(targets: Iterable[Target]) -> pd.DataFrame:
    """Sizes of every collection at every share, as Chang 2020, Table 2 gives them."""
    rows = []
    for part in (each.test for each in targets):
        documents = part.documents
        lengths = {
            "words/query": part.queries["text"],
            "words/sentence": documents["sentence"],
            "words/passage": documents.drop_duplicates("passage")["context"],
        }
        rows.append(
            {
                "collection": part.name,
                **{f"{split} queries": len(part.split(split)) for split in ("train", "dev", "test")},
                "candidates": len(documents),
                **{name: round(float(texts.str.split().str.len().mean()), 1) for name, texts in lengths.items()},
                "ambiguous %": round(100 * float(part.queries["ambiguous"].mean()), 1),
                "fingerprint": part.fingerprint[:12],
            }
        )
    return pd.DataFrame(rows)


def weights(systems: Mapping[str, System]) -> pd.DataFrame:
    """How many weights each system has, embeddings and the layers that it grows included."""
    fresh = {}
    for name, each in systems.items():
        layers = [stage.layers for stage in each.stages if stage.layers is not None]
        whole = replace(each.architecture, layers=[each.architecture.layers, *layers][-1])
        fresh[name] = Retriever.fresh(whole, each.tokens.tokenizer, 0)
    return pd.DataFrame({"system": fresh.keys(), "weights": [retriever.parameters for retriever in fresh.values()]})


def examples(articles: Sequence[Article], split: Split, task: str, count: int, seed: int) -> pd.DataFrame:
    """Return pairs of a pre-training task as texts, with the titles of their articles (Chang 2020, Figure 2)."""
    corpus = Corpus.build(articles, list, split)
    sentences, titles, bounds = corpus.sentences, corpus.titles, corpus.passages
    query, passage = task_over(task, corpus).draw(np.random.default_rng(seed), count)
    removed = np.where(corpus.passage_of(query) == passage, query, KEPT)
    pairs = pd.DataFrame({"task": task}, index=range(count))
    pairs["query_title"] = [titles[a] for a in corpus.article_of(corpus.passage_of(query))]
    pairs["query"] = [sentences[s] for s in query]
    pairs["document_title"] = [titles[a] for a in corpus.article_of(passage)]
    pairs["document"] = [
        " ".join(sentences[s] for s in range(bounds[each], bounds[each + 1]) if s != gone)
        for each, gone in zip(passage, removed, strict=True)
    ]
    return pairs


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


# --- cost ------------------------------------------------------------------------------------------
