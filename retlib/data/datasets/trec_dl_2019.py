"""TREC Deep Learning 2019, the passage task: 43 queries with graded judgments (Craswell 2020)."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._reading import fields, lines
from retlib.data.datasets.catalogue import damaged, locate, provenance

NAME = "trec-dl-2019"
# A public run of BM25, to test against: nDCG@10 0.5058 with all of `judgments`.
RUN = "trec-dl-2019/run.bm25.trec"


@register(NAME)
def load_trec_dl_2019() -> Collection:
    """The judged queries, all of them test queries, over the passages of `collection.tsv`.

    Relevance is 0 to 3; the track takes 2 and above for relevant where a measure is binary
    (``RR(rel=2)@10``). Passages have no title (it is empty). The copy that the catalogue
    knows is a pool: what six systems ranked in their top 100. Judged passages outside it (1,357
    of 4,102 with a grade above 0) are left out, since no list over the pool can hold them; with
    all of `judgments`, the nDCG@10 of BM25 is 0.1 points lower.
    """
    documents = _texts("collection.tsv").assign(title="")
    qrels = judgments()
    queries = _texts("queries.tsv").assign(split="test")
    queries = queries[queries.index.isin(qrels["query_id"])]
    qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(documents.index)]
    return Collection(NAME, documents, queries, qrels.reset_index(drop=True), provenance=provenance(NAME))


def _texts(file: str) -> pd.DataFrame:
    rows = dict(row for _, row in fields(NAME, locate(NAME, f"{NAME}/{file}"), 2))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["text"])


def judgments() -> pd.DataFrame:
    """All official judgments, also of passages outside the pool: query_id, doc_id, relevance.

    Raises
    ------
    DataError
        If the file is absent or is not in TREC form.
    """
    path, rows = locate(NAME, f"{NAME}/qrels.txt"), []
    for number, line in lines(NAME, path):
        try:
            query_id, _, doc_id, relevance = line.split()
            rows.append((query_id, doc_id, int(relevance)))
        except ValueError as error:
            raise damaged(NAME, path, number, f"not query, Q0, document and relevance ({error})") from error
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])
