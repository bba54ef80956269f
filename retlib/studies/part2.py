"""What only Part II needs: ReQA with shares of its labels, further candidates, BM25's settings, the cost of a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, product
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.collection import Article, Collection
from retlib.data.corpus import Builder, Split
from retlib.data.splits import low_resource, subsample, with_distractors
from retlib.data.text import concatenate, constant, quick_sentences
from retlib.evaluation import measures
from retlib.evaluation.results import Results
from retlib.models.retriever import Retriever
from retlib.report.contrasts import LEVEL
from retlib.retrieval import index
from retlib.retrieval.lexical import BM25, STEMMED
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.parameters import Many
from retlib.systems.compose import Lexical
from retlib.systems.ranking import rank
from retlib.systems.system import System, Target, fit
from retlib.training.pretraining import KEPT, PretrainingPairs, task_over

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100"]
TEST = 0.2  # the share of the queries that every system is tested on
SAMPLE = 10_000  # queries that most of BM25's settings are tried on; pairs that a pre-training task's averages are of


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


# --- further candidates ----------------------------------------------------------------------------


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
    run = rank(replace(trained, architecture=half), target.test, depth=100)
    outcome = Outcome(run, system.settings, system.cost(target, seed))
    experiment.measure(name, target.test, seed, outcome, measures=MEASURES)


# --- BM25 ------------------------------------------------------------------------------------------

# Lucene's defaults; then what others use (Anserini's defaults, a high k1), and a candidate's parts alone. Settings,
# column that is indexed, and whether only the first `SAMPLE` queries are asked.
BM25_SETTINGS: dict[str, tuple[BM25, str, bool]] = {
    "k1 1.2, b 0.75": (BM25(), "text", False),
    "k1 1.2, b 0.75, stop words, stemmed": (BM25(**STEMMED), "text", False),
    "k1 0.9, b 0.4": (BM25(k1=0.9, b=0.4), "text", True),
    "k1 2, b 0.75, stop words, stemmed": (BM25(k1=2.0, **STEMMED), "text", True),
    "k1 1.2, b 0.75, passage alone": (BM25(), "context", True),
    "k1 1.2, b 0.75, sentence alone": (BM25(), "sentence", True),
}


def bm25_table(collections: Iterable[Collection]) -> pd.DataFrame:
    """Return recall of BM25 at several settings in points of 100, all queries against all candidates, and `seconds`.

    With the passage alone its sentences are equal, and the first one wins.
    """
    rows = []
    for collection in collections:
        jobs = runtime.progress(BM25_SETTINGS.items(), desc=f"{collection.name}: BM25", unit="setting")
        for name, (system, column, sampled) in jobs:
            queries = collection.queries.nsmallest(SAMPLE if sampled else len(collection.queries), "position")
            with runtime.Stopwatch() as watch:
                run = system.rank(collection.documents[column], queries["text"])
            qrels = collection.qrels[collection.qrels["query_id"].isin(queries.index)]
            values = measures.evaluate(run, qrels, MEASURES).groupby("measure")["value"].mean() * 100
            found = {measure: float(values[measure]) for measure in MEASURES}
            size = {"queries": len(queries), "candidates": len(collection.documents)}
            rows.append({"collection": collection.name, "settings": name, **size, **found, "seconds": watch.seconds})
    return pd.DataFrame(rows)


def record_others(experiment: Experiment, collections: Iterable[Collection], name: str, system: Lexical) -> None:
    """A lexical system over all candidates, on all queries but the share that would train: the paper's test sets."""
    for collection in collections:
        everything = replace(collection, queries=collection.queries.assign(split="test"))
        run = system.run(Target(everything), depth=100)
        for share in experiment.parameters["shares"]:
            part = low_resource(collection, share)
            part = replace(part, name=f"{part.name}-others")
            mine = run[run["query_id"].isin(part.split("test").index)]
            experiment.measure(name, part, 0, Outcome(mine, system.settings), measures=["R@1"])


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
    builder, sentences, titles = Builder(split), [], []
    for article in articles:
        if found := builder.add(article):
            sentences += found
            titles.append(article.title)
    structure = builder.structure()
    query, passage = task_over(task, structure).draw(np.random.default_rng(seed), count)
    removed, bounds = np.where(structure.passage_of(query) == passage, query, KEPT), structure.passages
    pairs = pd.DataFrame({"task": task}, index=range(count))
    pairs["query_title"] = [titles[a] for a in structure.article_of(structure.passage_of(query))]
    pairs["query"] = [sentences[s] for s in query]
    pairs["document_title"] = [titles[a] for a in structure.article_of(passage)]
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


# --- what labels buy after pre-training ------------------------------------------------------------


def labels_bought(
    results: Results, collections: Sequence[str], shares: Sequence[float], systems: Iterable[str], measure: str
) -> pd.DataFrame:
    """Return what each further share of the labels adds to a system, paired over the same test questions.

    Columns `collection`, `system`, `labels` (their share as text; "no labels" of a pre-trained system), `value` (points
    of 100), `gain` over the row before and its `p`, Holm-corrected over all; NaN in a first row.
    """
    rows = []
    for collection, system in product(collections, systems):
        tests = [(f"{100 * share:g} %", f"{collection}-{share:g}", system) for share in sorted(shares)]
        before = None
        for share, test, name in [("no labels", tests[0][1], f"{system}, no labels"), *tests]:
            if name in results.systems(test, "test", measure):
                value = 100 * results.per_query(test, "test", measure, name).to_numpy().mean()
                gain = results.compared(test, measure, name, before[1], on=before[0]) if before else None
                tested = (gain.effect, gain.p_value()) if gain else (np.nan, np.nan)
                rows.append((collection, system, share, value, *tested))
                before = test, name
    table = pd.DataFrame(rows, columns=["collection", "system", "labels", "value", "gain", "p"])
    p = table["p"].dropna()
    return table.assign(p=pd.Series(measures.holm(p), p.index))


def bought_in_columns(bought: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `labels_bought`, a column for each share: the value, its gain, a star where p < `LEVEL`."""
    star = (bought["p"] < LEVEL).map({True: "*)", False: ")"})
    gains = (bought["gain"].map(" ({:+.1f}".format) + star).where(bought["gain"].notna(), "")
    table = bought.assign(text=bought["value"].map("{:.1f}".format) + gains)
    rows, columns = ["collection", "system"], ["no labels", *bought["labels"]]
    found = table.set_index([*rows, "labels"])["text"].unstack(fill_value="")
    return found.loc[bought.set_index(rows).index.unique(), [each for each in dict.fromkeys(columns) if each in found]]


# --- cost ------------------------------------------------------------------------------------------

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
    both = [table.take(rows % len(table)).segment for table in (read.queries, read.documents)]
    separator = constant(system.tokens.tokenizer.sep, pairs)
    together = concatenate([both[0], separator, both[1]], made.query_length + made.document_length)
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
