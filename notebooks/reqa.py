"""Sizes, BM25's settings and what labels buy after pre-training; chapter 22."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.data.collection import SPLITS, Collection, low_resource
from retlib.evaluation import measures
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL
from retlib.retrieval.lexical import BM25, STEMMED
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.part2 import MEASURES
from retlib.systems.compose import Lexical
from retlib.systems.system import Target

SAMPLE = 10_000  # queries that most of BM25's settings are tried on
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


def sizes(targets: Iterable[Target]) -> pd.DataFrame:
    """Return the sizes of every collection at every share, as Chang 2020, Table 2 gives them."""
    rows = []
    for part in (each.test for each in targets):
        documents, queries = part.documents, part.queries
        texts = {"query": queries["text"], "sentence": documents["sentence"]}
        texts["passage"] = documents.drop_duplicates("passage")["context"]
        row = {"collection": part.name, **{f"{split} queries": len(part.split(split)) for split in SPLITS}}
        row["candidates"] = len(documents)
        row |= {f"words/{name}": round(float(each.str.split().str.len().mean()), 1) for name, each in texts.items()}
        ambiguous = round(100 * float(queries["ambiguous"].mean()), 1)
        rows.append({**row, "ambiguous %": ambiguous, "fingerprint": part.fingerprint[:12]})
    return pd.DataFrame(rows)


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
            values = 100 * measures.evaluate(run, qrels, MEASURES).groupby("measure")["value"].mean()[MEASURES]
            size = {"queries": len(queries), "candidates": len(collection.documents)}
            rows.append({"collection": collection.name, "settings": name, **size, **values, "seconds": watch.seconds})
    return pd.DataFrame(rows)


def record_others(experiment: Experiment, collections: Iterable[Collection], name: str, system: Lexical) -> None:
    """Record a lexical system over all candidates, on all queries but the share that would train: the paper's tests."""
    for collection in collections:
        everything = replace(collection, queries=collection.queries.assign(split="test"))
        run = system.run(Target(everything), depth=100)
        for share in experiment.parameters["shares"]:
            part = low_resource(collection, share)
            lists = run[run["query_id"].isin(part.split("test").index)]
            part = replace(part, name=f"{part.name}-others")
            experiment.measure(name, part, 0, Outcome(lists, system.settings), measures=["R@1"])


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
                test_of_gain = (gain.effect, gain.p_value()) if gain else (np.nan, np.nan)
                rows.append((collection, system, share, value, *test_of_gain))
                before = test, name
    table = pd.DataFrame(rows, columns=["collection", "system", "labels", "value", "gain", "p"])
    p = table["p"].dropna()
    return table.assign(p=pd.Series(measures.holm(p), p.index))


def bought_in_columns(bought: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `labels_bought`, a column for each share: the value, its gain, a star where p < `LEVEL`."""
    gains = bought["gain"].map(" ({:+.1f}".format) + np.where(bought["p"] < LEVEL, "*)", ")")
    text = bought["value"].map("{:.1f}".format) + gains.where(bought["gain"].notna(), "")
    rows, columns = ["collection", "system"], dict.fromkeys(["no labels", *bought["labels"]])
    table = bought.assign(text=text).set_index([*rows, "labels"])["text"].unstack(fill_value="")
    return table.loc[bought.set_index(rows).index.unique(), [each for each in columns if each in table]]
