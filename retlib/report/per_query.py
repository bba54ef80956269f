"""Systems per query, from recorded values: which queries one answers and another does not (chapter 52)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.text import content_words, words
from retlib.data.tokenized import texts
from retlib.evaluation.measures import compare, held_out, same_seeds
from retlib.evaluation.results import Results
from retlib.report.tables import against

# Points of 100. Values are recorded to five digits, so that equal ones may differ by this much.
TIE = 2e-3


def overlap(collection: Collection) -> pd.DataFrame:
    """Return the lexical overlap of each test query with its relevant documents.

    That is the share of its different words, without stop words and not stemmed, in a relevant document; of several the
    largest; NaN where only stop words are left, or nothing is relevant. Columns `collection`, `query_id`, `overlap`,
    and `words`, the number of all words of the query.
    """
    queries, judged = held_out(collection, "test")
    judged = judged[judged["relevance"] > 0]
    rows = collection.documents.index.get_indexer(judged["doc_id"].unique())
    terms, inside = queries["text"].map(content_words), texts(collection, rows).map(content_words)
    pairs = zip(judged["query_id"], judged["doc_id"], strict=True)
    shares = [len(terms[q] & inside[d]) / len(terms[q]) if terms[q] else np.nan for q, d in pairs]
    best = pd.Series(shares, judged["query_id"], dtype=float).groupby(level=0).max().reindex(queries.index)
    table = pd.DataFrame({"overlap": best, "words": queries["text"].map(words).map(len)}).rename_axis("query_id")
    return table.reset_index().assign(collection=collection.name)[["collection", "query_id", "overlap", "words"]]


def slices(results: Results, collection: str, measure: str, systems: Sequence[str], parts: int) -> pd.DataFrame:
    """Return the mean of systems, of all if none is named, over the queries of little, more and most lexical overlap.

    Queries with a value, in the order of the table `overlap`, are cut into at most so many equal parts; equal overlaps
    stay together. Columns `part` (such as ``0-33 % (n = 210)``), `edge` (its lowest overlap, from 0 to 1), `system`,
    `value`, `low` and `high` of its 95 % interval (points of 100; NaN for one query or cluster), and `queries`.
    """
    clusters = results.clusters(collection, "test", measure)
    shares = results.tables["overlap"].query("collection == @collection").set_index("query_id")["overlap"]
    complete = shares.index.is_unique and clusters.index.isin(shares.index).all()
    require(complete, f"the overlaps of {collection!r} are not those of its questions", DataError)
    shares, rows = shares.reindex(clusters.index).dropna(), []
    # Equal values stay together, where their middle rank falls.
    for _, share in shares.groupby((2 * shares.rank(method="average") - 1) * parts // (2 * len(shares))):
        ends = dict.fromkeys(f"{100 * end:.0f}" for end in (share.min(), share.max()))
        part, several = f"{'-'.join(ends)} % (n = {len(share)})", clusters[share.index].nunique() > 1
        for system in systems or results.systems(collection, "test", measure):
            points = 100 * results.per_query(collection, "test", measure, system).loc[share.index].astype(float)
            interval = compare(points, 0 * points, clusters).interval() if several else (np.nan, np.nan)
            rows.append((part, share.min(), system, points.to_numpy().mean(), *interval, len(share)))
    return pd.DataFrame(rows, columns=["part", "edge", "system", "value", "low", "high", "queries"])


def outcomes(results: Results, collection: str, measure: str, rival: str) -> pd.DataFrame:
    """Return every system against a rival, query by query, the largest effect first.

    In points of 100, over common seeds. Beside the columns of `retlib.report.tables.against`: `wins`, `ties` and
    `losses`, numbers of queries, whose seeds are averaged first; and what they reach `alone`, the `rival`, and the
    `best of both`, chosen for each query and seed with hindsight: the upper bound of a choice, above both even if they
    differ by chance alone, and none of a fusion.
    """
    tests, rows = against(results, [collection], measure, rival).drop(columns="collection"), []
    for system in tests["system"]:
        pair = (results.per_query(collection, "test", measure, name).astype(float) for name in (system, rival))
        ours, theirs = (100 * values.to_numpy() for values in same_seeds(*pair))  # (Q, S), by broadcasting
        apart = ours.mean(axis=1) - theirs.mean(axis=1)
        counts = [int(each.sum()) for each in (apart > TIE, abs(apart) <= TIE, apart < -TIE)]
        rows.append((*counts, ours.mean(), theirs.mean(), np.maximum(ours, theirs).mean()))
    table = tests.join(pd.DataFrame(rows, columns=["wins", "ties", "losses", "alone", "rival", "best of both"]))
    columns = ["system", "wins", "ties", "losses", "effect", "low", "high", "p", "alone", "rival", "best of both"]
    return table[columns].sort_values("effect", ascending=False, kind="stable", ignore_index=True)
