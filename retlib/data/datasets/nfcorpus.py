"""NFCorpus, as BEIR packs it: questions of laymen, and medical abstracts with graded judgments (Boteva 2016)."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import register
from retlib.data.datasets._reading import zipped
from retlib.data.datasets.catalogue import damaged, locate, provenance

FILE = "beir/nfcorpus.zip"


@register("nfcorpus")
def load_nfcorpus() -> Collection:
    """The official release with its own splits: 3,633 documents, 2,590, 324 and 323 judged queries.

    Relevance is 2 for what a page cites itself and 1 for what a page that it links to cites.
    Nine texts stand in the queries of two or three splits; each is left to the most guarded of
    them: test before dev before train.
    """
    path = locate("beir", FILE)
    documents, texts = _texts(path, "corpus", ["text", "title"]), _texts(path, "queries", ["text"])
    parts = [_judgments(path, split).assign(split=split) for split in reversed(SPLITS)]
    judged = pd.concat(parts, ignore_index=True)
    split = judged.drop_duplicates("query_id").set_index("query_id")["split"]
    queries = texts.loc[split.index.intersection(texts.index, sort=False)].assign(split=split)
    # Splits stand in guarding order, so that the first one of a text is its own.
    is_guarded = queries["split"] == queries.groupby(queries["text"].str.casefold())["split"].transform("first")
    qrels = judged.loc[~judged["query_id"].isin(queries.index[~is_guarded]), ["query_id", "doc_id", "relevance"]]
    queries = queries[is_guarded].rename_axis("query_id")
    return Collection(
        "nfcorpus",
        documents.rename_axis("doc_id"),
        queries,
        qrels.reset_index(drop=True),
        provenance=provenance("beir"),
    )


def _texts(path: Path, part: str, columns: list[str]) -> pd.DataFrame:
    """The entries of a file of JSON lines, by their ids."""
    member, rows = f"nfcorpus/{part}.jsonl", {}
    for number, line in zipped("beir", path, member):
        try:
            entry = json.loads(line)
            rows[entry["_id"]] = [entry[column].strip() for column in columns]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"not an entry with `_id` and {' and '.join(f'`{column}`' for column in columns)} ({error!r})"
            raise damaged("beir", f"{path}: {member}", number, problem) from error
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def _judgments(path: Path, split: str) -> pd.DataFrame:
    """The judgments of a split: tab-separated with a line of names."""
    member, rows = f"nfcorpus/qrels/{split}.tsv", []
    for number, line in zipped("beir", path, member):
        if number == 1:
            continue
        try:
            query_id, doc_id, relevance = line.rstrip("\r\n").split("\t")
            rows.append((query_id, doc_id, int(relevance)))
        except ValueError as error:
            raise damaged(
                "beir", f"{path}: {member}", number, f"not query, document and relevance ({error})"
            ) from error
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])
