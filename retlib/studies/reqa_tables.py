"""Tables of the pages on ReQA: its collections, its systems' sizes, BM25's settings (Chang 2020, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import NamedTuple

import pandas as pd

from retlib.core import runtime
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.report import claims
from retlib.retrieval.lexical import BM25
from retlib.studies.reqa import MEASURES, Study, System
from retlib.systems.dense import Retriever


def sizes(studies: Iterable[Study], shares: Iterable[float]) -> pd.DataFrame:
    """Sizes of every collection at every share, as Chang 2020, Table 2 gives them."""
    rows = []
    for study, share in product(studies, shares):
        part = study.part(share)
        counts = {f"{split} queries": len(part.split(split)) for split in ("train", "dev", "test")}
        documents = part.documents
        lengths = {
            "words/query": part.queries["text"].str.split().str.len().mean(),
            "words/sentence": documents["sentence"].str.split().str.len().mean(),
            "words/passage": documents.drop_duplicates("passage")["context"].str.split().str.len().mean(),
        }
        rows.append(
            {
                "collection": part.name, **counts, "candidates": len(documents),
                **{name: round(float(value), 1) for name, value in lengths.items()},
                "ambiguous %": round(100 * float(part.queries["ambiguous"].mean()), 1),
                "fingerprint": study.collection.fingerprint[:12],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def weights(study: Study, systems: Mapping[str, System]) -> pd.DataFrame:
    """How many weights each system has, embeddings included."""
    fresh = {name: Retriever.fresh(system.architecture, study.prepared[0], 0) for name, system in systems.items()}
    return pd.DataFrame({"system": fresh.keys(), "weights": [retriever.parameters for retriever in fresh.values()]})


STEMMED = {"stop_words": "english", "stemmer": "english"}
SAMPLE = 10_000


class Setting(NamedTuple):
    """A setting of BM25: the column that it indexes, and whether only the first `SAMPLE` queries are asked."""

    indexed: str
    system: BM25
    sampled: bool = True


# Lucene's defaults; then what others use (Anserini's defaults, a high k1), and a candidate's parts alone.
BM25_SETTINGS = {
    "k1 1.2, b 0.75": Setting("text", BM25(), sampled=False),
    "k1 1.2, b 0.75, stop words, stemmed": Setting("text", BM25(**STEMMED), sampled=False),
    "k1 0.9, b 0.4": Setting("text", BM25(k1=0.9, b=0.4)),
    "k1 2, b 0.75, stop words, stemmed": Setting("text", BM25(k1=2.0, **STEMMED)),
    "k1 1.2, b 0.75, passage alone": Setting("context", BM25()),
    "k1 1.2, b 0.75, sentence alone": Setting("sentence", BM25()),
}


def bm25_table(collections: Iterable[Collection]) -> pd.DataFrame:
    """Recall of BM25 at several settings, all queries against all candidates.

    Returns
    -------
    DataFrame
        Columns `collection`, `settings`, `queries`, `candidates`, the recalls in points of 100,
        and `seconds`. With the passage alone its sentences are equal, and the first one wins.
    """
    rows = []
    for collection in collections:
        jobs = runtime.progress(BM25_SETTINGS.items(), desc=f"{collection.name}: BM25", unit="setting")
        for name, setting in jobs:
            queries = collection.queries.nsmallest(SAMPLE if setting.sampled else len(collection.queries), "position")
            with runtime.Stopwatch() as watch:
                run = setting.system.rank(collection.documents[setting.indexed], queries["text"])
            qrels = collection.qrels[collection.qrels["query_id"].isin(queries.index)]
            values = measures.evaluate(run, qrels, MEASURES).groupby("measure")["value"].mean() * 100
            found = {measure: float(values[measure]) for measure in MEASURES}
            size = {"queries": len(queries), "candidates": len(collection.documents)}
            rows.append({"collection": collection.name, "settings": name, **size, **found, "seconds": watch.seconds})
    return pd.DataFrame(rows)


def closest(table: pd.DataFrame, printed: Mapping[str, float], measure: str = "R@1") -> pd.DataFrame:
    """For each printed number, the settings of `bm25_table` that come closest on its first collection."""
    mine = table[table["collection"] == table["collection"].iloc[0]]
    rows = []
    for source, value in printed.items():
        best = mine.loc[(mine[measure] - value).abs().idxmin()]
        gives = round(float(best[measure]), 2)
        rows.append({"printed in": source, measure: value, "closest here": best["settings"], "gives": gives})
    return pd.DataFrame(rows)


def reported(artefact: str, data_set: str, share: float, rows: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """What the paper reports for a share of labels: (our system, measure) to its number, if any."""
    table = claims.reported("chang2020", artefact)
    percent = f"{100 * share:g}%"
    mine = table[(table["dataset"] == data_set) & table["split"].str.startswith(f"{percent}/")]
    named = {theirs: our for our, theirs in rows.items()}
    return {
        (named[row.row], row.metric): float(row.value) for row in mine.itertuples() if row.row in named and row.value
    }
