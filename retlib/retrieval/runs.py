"""Runs, ranked lists of documents for queries in a frame of `query_id`, `doc_id` and `score`; files and fusion."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.text import words

RUN_COLUMNS = ["query_id", "doc_id", "score"]
# Results of a list, however few are shown or fused.
DEPTH = 1000
# From questions, a frame, and a number k, to scores and rows of the k best documents of each.
Search = Callable[[pd.DataFrame, int], tuple[np.ndarray, np.ndarray]]
# What answers any question: from its text and k to the scores and rows of the k best documents, best first; row -1 for
# none.
Answer = Callable[[str, int], tuple[np.ndarray, np.ndarray]]


def make_run(query_ids: Sequence[str], doc_ids: Sequence[str], scores: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
    """Return a run from what an index or a lexical system returns: scores and document rows, (Q, k), best first.

    Row -1 means no result. `doc_ids` are those of the indexed documents. Within a query the best comes first. Equal
    scores are ordered by document id, ascending, so that a run does not depend on the order in which a system found
    them.
    """
    found = rows >= 0
    query, row, score = np.nonzero(found)[0], rows[found], scores[found].astype(np.float32)
    documents, queries = (pd.array(ids, dtype="str") for ids in (doc_ids, query_ids))
    # By numbers: to sort a million ids, or to make them of objects, takes as long as the search.
    distinct, place = np.unique(row, return_inverse=True)
    alphabetic = documents.take(distinct).argsort().argsort()[place]
    order = np.lexsort((alphabetic, -score, query))
    columns = queries.take(query[order]), documents.take(row[order]), score[order]
    return pd.DataFrame(dict(zip(RUN_COLUMNS, columns, strict=True)))


def search_run(collection: Collection, queries: pd.DataFrame, depth: int, search: Search) -> pd.DataFrame:
    """Return the run of some questions of a collection, or of others, without their own documents.

    Every list takes this way; see `retlib.data.collection.Collection.own_documents`.
    """
    own = collection.own_rows(queries.index)[:, None]
    scores, rows = search(queries, depth + bool((own >= 0).any()))
    run = make_run(queries.index, collection.documents.index, scores, np.where(rows == own, -1, rows))
    return run if rows.shape[1] <= depth else run[places(run) < depth].reset_index(drop=True)


def check_question(question: str) -> None:
    """Raise `SettingError` for a question that has no word."""
    require(words(question) != [], f"a question needs a word; {question!r} has none")


def result_list(collection: Collection, question: str, depth: int, answer: Answer) -> pd.DataFrame:
    """Return the first `depth` documents of the run of one question, ranked from 1, with title ("" of none) and text.

    Which are `relevant` is known of the collection's own questions.
    """
    check_question(question := normalize("NFC", question))
    require(depth >= 1, f"depth = {depth}: at least 1 is needed")
    same = collection.queries[collection.queries["text"].str.normalize("NFC") == question][["text"]]
    own = same[same.index.isin(collection.own_documents)]
    asked = pd.DataFrame({"text": [*own["text"], *same["text"], question]}, [*own.index, *same.index, ""])[:1]

    def search(_: pd.DataFrame, k: int) -> tuple[np.ndarray, ...]:
        return tuple(part[None] for part in answer(asked["text"].iloc[0], k))

    run, relevant = search_run(collection, asked, max(depth, DEPTH), search)[:depth], collection.relevant()
    found = collection.documents.reindex(run["doc_id"])
    found = found.reindex(columns=["title", "text"], fill_value="").rename_axis("doc_id").reset_index()
    ticked = relevant["doc_id"][relevant["query_id"].isin(same.index)]
    return found.assign(rank=found.index + 1, relevant=found["doc_id"].isin(ticked))


def first_row(found: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and rows of the first question of a search for several."""
    return found[0][0], found[1][0]


def digest(run: pd.DataFrame) -> str:
    """sha256 of a run's content, in its order."""
    hashed = pd.util.hash_pandas_object(run[RUN_COLUMNS], index=False)
    return hashlib.sha256(hashed.to_numpy().tobytes()).hexdigest()


def places(run: pd.DataFrame) -> np.ndarray:
    """The place of each result in its query's list, from 0; the order of the run is taken as it stands."""
    ids = run["query_id"]
    first = np.flatnonzero((ids != ids.shift()).to_numpy(bool, na_value=True))
    if not ids.iloc[first].is_unique:  # a query's results stand apart
        return run.groupby("query_id", sort=False).cumcount().to_numpy()
    # To compare neighbours takes a quarter of the time that hashing millions of ids does.
    return np.arange(len(run)) - np.repeat(first, np.diff(first, append=len(run)))


def write_trec(run: pd.DataFrame, path: Path, tag: str) -> None:
    """Write a run in TREC's form: query, ``Q0``, document, rank from 1, score and the tag of the system.

    Evaluators order equal scores each in their own way, and look at no rank. So that all of them find the order of the
    run, a score that is not below the one before it is written as the next smaller number of 32 bits. It raises
    `DataError` if an id or the tag is empty or has white space, which would part it.
    """
    place = places(run)
    # The numbers of 32 bits in their order: those below zero count down from the sign.
    bits = run["score"].to_numpy(np.float32).view(np.int32).astype(np.int64)
    order = pd.Series(np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + place)
    bits = order.groupby(run["query_id"].to_numpy()).cummin().to_numpy() - place
    scores = np.where(bits < 0, -bits | 0x80000000, bits).astype(np.uint32).view(np.float32)
    columns = {"query_id": run["query_id"], "q0": "Q0", "doc_id": run["doc_id"], "rank": place + 1}
    _write(run.assign(**columns, written=scores, tag=tag)[[*columns, "written", "tag"]], path)


def write_qrels(qrels: pd.DataFrame, path: Path) -> None:
    """Write judgments in TREC's form: query, ``0``, document and relevance; errors as those of `write_trec`."""
    _write(qrels.assign(zero=0)[["query_id", "zero", "doc_id", "relevance"]], path)


def _write(frame: pd.DataFrame, path: Path) -> None:
    for name in frame.columns.intersection(["query_id", "doc_id", "tag"]):
        parted = [each for each in frame[name].unique() if each.split() != [each]]
        require(not parted, f"{name} {parted[:3]} cannot be written to {path}: empty, or with white space", DataError)
    frame.to_csv(path, sep=" ", header=False, index=False, quoting=csv.QUOTE_NONE, float_format="%.9g")


def lists(run: pd.DataFrame, query_ids: pd.Index, doc_ids: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and document rows that a run has for each query, best first: float64 and int64, shape (Q, longest).

    Where there is none, the score is -inf and the row -1. It raises `DataError` if the run names a document that is not
    among `doc_ids`.
    """
    run = run[run["query_id"].isin(query_ids)]
    place, query = places(run), query_ids.get_indexer(run["query_id"])
    shape = len(query_ids), place.max(initial=-1) + 1
    scores, found = np.full(shape, -np.inf), np.full(shape, -1, dtype=np.int64)
    rows = doc_ids.get_indexer(run["doc_id"])
    unknown = run["doc_id"][rows < 0][:1].tolist()
    require(not unknown, f"the run names document {unknown}, which is not in the collection", DataError)
    scores[query, place], found[query, place] = run["score"], rows
    return scores, found


def reordered(run: pd.DataFrame, depth: int, scores: np.ndarray) -> pd.DataFrame:
    """Return a run whose first `depth` results of each query are ordered by new scores; the rest keeps its order.

    The order of the run is taken as it stands. `scores`, one for each result that is re-ordered, are in that order;
    equal ones are ordered by document id. The scores of the rest are moved as a whole, to one below the lowest new
    score of their query.
    """
    require(depth >= 1, f"depth = {depth}: at least 1 is needed")
    place = places(run)
    run = run.assign(query=pd.factorize(run["query_id"])[0])
    first, rest = run[place < depth].assign(score=scores), run[place >= depth]
    first = first.sort_values(["query", "score", "doc_id"], ascending=[True, False, True], kind="stable")
    lowest, highest = first.groupby("query")["score"].min(), rest.groupby("query")["score"].max()
    rest = rest.assign(score=rest["score"] + rest["query"].map(lowest - 1 - highest))
    whole = pd.concat([first, rest]).sort_values("query", kind="stable").astype({"score": np.float32})
    return whole[RUN_COLUMNS].reset_index(drop=True)


def combined(
    several: Sequence[tuple[np.ndarray, np.ndarray]], weights: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    r"""Fuse lists by their scores, each scaled to its own range (Bruch, Gai and Ingber 2023, section 4).

    .. math:: s(d) = \sum_{r \in \text{lists}} w_r \; \frac{s_r(d) - \min s_r}{\max s_r - \min s_r}

    A list that lacks a document adds nothing, as it does to its own last; one whose scores are equal adds its weight.
    Lists are scores and rows of documents, (Q, any), each row at most once in a list; row -1 for none. The results,
    float64 and int64, are as wide as the lists together, best first, equal scores in the order of rows; -inf and -1
    where there is no further document. It raises `DataError` if there is no list, or if they are of different numbers
    of queries.
    """
    counts = {len(rows) for _, rows in several}
    require(len(counts) == 1, f"lists are fused query by query; these are of {sorted(counts)} queries", DataError)
    together = np.concatenate([rows for _, rows in several], axis=1)
    parts = [weight * _scaled(*each) for weight, each in zip(weights, several, strict=True)]
    shares = np.concatenate(parts, axis=1)
    scores, rows = np.full(together.shape, -np.inf), np.full(together.shape, -1, dtype=np.int64)
    for query, found in enumerate(together):
        known = found >= 0
        ids, place = np.unique(found[known], return_inverse=True)
        sums = np.bincount(place, shares[query, known], len(ids))
        order = np.argsort(-sums, kind="stable")
        scores[query, : len(ids)], rows[query, : len(ids)] = sums[order], ids[order]
    return scores, rows


def _scaled(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # Each list's scores from 0, its lowest, to 1, its highest; all 1 where they are equal.
    known, scores = rows >= 0, scores.astype(np.float64)
    low = scores.min(axis=1, keepdims=True, where=known, initial=np.inf)
    high = scores.max(axis=1, keepdims=True, where=known, initial=-np.inf)
    differ = known & (high > low)
    return np.divide(scores - np.where(known, low, 0), high - low, out=known.astype(np.float64), where=differ)


def fuse(
    several: Sequence[pd.DataFrame], query_ids: pd.Index, doc_ids: pd.Index, weights: Sequence[float], depth: int
) -> pd.DataFrame:
    """The run that `combined` makes of several, cut at `depth` results a query."""
    scores, rows = combined([lists(run, query_ids, doc_ids) for run in several], weights)
    return make_run(query_ids, doc_ids, scores[:, :depth], rows[:, :depth])
