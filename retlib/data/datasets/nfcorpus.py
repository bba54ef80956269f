"""NFCorpus, as BEIR packs it: questions of laymen, and medical abstracts with graded judgments (Boteva 2016)."""

from __future__ import annotations

import json

import pandas as pd

from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import zipped
from retlib.data.datasets._tasks import guarded
from retlib.data.datasets.catalogue import provenance

FILE = "beir/nfcorpus.zip"


@register("nfcorpus")
def load_nfcorpus() -> Collection:
    """The official release with its own splits: 3,633 documents, 2,590, 324 and 323 judged queries.

    Relevance is 2 for what a page cites itself and 1 for what a page that it links to cites.
    Nine texts stand in the queries of two or three splits; each is left to the most guarded of
    them: test before dev before train.
    """
    documents, texts = _texts("corpus", "text", "title"), _texts("queries", "text")
    judged = pd.concat([_judgments(split).assign(split=split) for split in reversed(SPLITS)], ignore_index=True)
    split = judged.drop_duplicates("query_id").set_index("query_id")["split"]
    queries = texts.loc[split.index.intersection(texts.index, sort=False)].assign(split=split)
    kept = guarded(queries, queries["text"].str.casefold()).rename_axis("query_id")
    left_out = queries.index.difference(kept.index)
    qrels = judged.loc[~judged["query_id"].isin(left_out), ["query_id", "doc_id", "relevance"]]
    qrels = qrels.reset_index(drop=True)
    return Collection("nfcorpus", documents.rename_axis("doc_id"), kept, qrels, provenance=provenance("beir"))


def _texts(part: str, *columns: str) -> pd.DataFrame:
    """The entries of a file of JSON lines, by their ids."""

    def row(line: str) -> tuple[str, list[str]]:
        entry = json.loads(line)
        return entry["_id"], [entry[column].strip() for column in columns]

    expected = f"an entry with `_id` and {' and '.join(f'`{column}`' for column in columns)}"
    rows = dict(zipped("beir", FILE, f"nfcorpus/{part}.jsonl").parsed(row, expected))
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def _judgments(split: str) -> pd.DataFrame:
    """The judgments of a split: tab-separated with a line of names."""

    def judge(line: str) -> tuple[str, str, int]:
        query_id, doc_id, relevance = line.rstrip("\r\n").split("\t")
        return query_id, doc_id, int(relevance)

    rows = zipped("beir", FILE, f"nfcorpus/qrels/{split}.tsv")
    next(iter(rows), None)  # the names
    rows = rows.parsed(judge, "query, document and relevance")
    return pd.DataFrame(list(rows), columns=["query_id", "doc_id", "relevance"])
