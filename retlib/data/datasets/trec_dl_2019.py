"""TREC Deep Learning 2019, the passage task: 43 queries with graded judgments (Craswell 2020)."""

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields, lines
from retlib.data.datasets.catalogue import reading

NAME = "trec-dl-2019"
# A run of others, beside the pool: the first hundred that BM25 finds for a query among all passages of MS MARCO.
RUN, PASSAGES = f"{NAME}/run.bm25.trec", 8_841_823


@register(NAME)
def load_trec_dl_2019() -> Collection:
    """Return the judged queries, all of them test queries, over the passages of `collection.tsv`.

    Relevance is 0 to 3; the track takes 2 and above for relevant where a measure is binary (``RR(rel=2)@10``). Titles
    are empty. The copy that the catalogue knows is a pool: what six systems ranked in their top 100. Judged passages
    outside it (1,357 of 4,102 with a grade above 0) are left out, since no list over the pool can hold them; with all
    of `judgments`, the nDCG@10 of BM25 is 0.1 points lower.
    """
    texts = (dict(fields(NAME, f"{NAME}/{part}.tsv", 2)) for part in ("collection", "queries"))
    documents, queries = (pd.DataFrame.from_dict(part, orient="index", columns=["text"]) for part in texts)
    qrels = judgments()
    queries = queries[queries.index.isin(qrels["query_id"])].assign(split="test")
    qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(documents.index)]
    return Collection(NAME, documents.assign(title=""), queries, qrels.reset_index(drop=True))


def judgments() -> pd.DataFrame:
    """Return all official judgments, also of passages outside the pool: query_id, doc_id, relevance."""
    return _table(f"{NAME}/qrels.txt", ["query_id", "Q0", "doc_id", "relevance"], {"relevance": int})


def public_run() -> pd.DataFrame:
    """Return the public run of BM25 in its order: query_id, doc_id, score."""
    return _table(RUN, ["query_id", "Q0", "doc_id", "rank", "score", "tag"], {"score": float})


@reading(NAME)
def _table(file: str, columns: list[str], numbers: dict[str, type]) -> pd.DataFrame:
    rows = pd.DataFrame([line.split() for line in lines(NAME, file)], columns=columns).astype(numbers)
    return rows[["query_id", "doc_id", *numbers]]
