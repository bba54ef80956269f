"""TREC Deep Learning 2019, the passage task: 43 queries with graded judgments (Craswell 2020)."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields, lines
from retlib.data.datasets.catalogue import provenance

NAME = "trec-dl-2019"
# A run of others, beside the pool: the first hundred that BM25 finds for a query among all passages of MS MARCO.
RUN, PASSAGES = f"{NAME}/run.bm25.trec", 8_841_823


@register(NAME)
def load_trec_dl_2019() -> Collection:
    """The judged queries, all of them test queries, over the passages of `collection.tsv`.

    Relevance is 0 to 3; the track takes 2 and above for relevant where a measure is binary (``RR(rel=2)@10``). Titles
    are empty. The copy that the catalogue knows is a pool: what six systems ranked in their top 100. Judged passages
    outside it (1,357 of 4,102 with a grade above 0) are left out, since no list over the pool can hold them; with all
    of `judgments`, the nDCG@10 of BM25 is 0.1 points lower.
    """
    documents, queries = (_texts(f"{NAME}/{part}.tsv") for part in ("collection", "queries"))
    qrels = judgments()
    queries = queries[queries.index.isin(qrels["query_id"])].assign(split="test")
    qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(documents.index)]
    qrels = qrels.reset_index(drop=True)
    return Collection(NAME, documents.assign(title=""), queries, qrels, provenance=provenance(NAME))


def _texts(file: str) -> pd.DataFrame:
    return pd.DataFrame.from_dict(dict(fields(NAME, file, 2)), orient="index", columns=["text"])


def judgments() -> pd.DataFrame:
    """Return all official judgments, also of passages outside the pool: query_id, doc_id, relevance.

    Raises `DataError` if the file is absent or is not in TREC form.
    """

    def judge(line: str) -> tuple[str, str, int]:
        query_id, _, doc_id, relevance = line.split()
        return query_id, doc_id, int(relevance)

    rows = lines(NAME, f"{NAME}/qrels.txt").parsed(judge, "query, Q0, document and relevance")
    return pd.DataFrame(list(rows), columns=["query_id", "doc_id", "relevance"])


def public_run() -> pd.DataFrame:
    """What `RUN` has: query_id, doc_id, score, in its order; errors as those of `judgments`."""

    def found(line: str) -> tuple[str, str, float]:
        query_id, _, doc_id, _, score, _ = line.split()
        return query_id, doc_id, float(score)

    rows = lines(NAME, RUN).parsed(found, "query, Q0, document, rank, score and tag")
    return pd.DataFrame(list(rows), columns=["query_id", "doc_id", "score"])
