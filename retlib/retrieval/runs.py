"""Ranked lists: searches, runs (frames of `query_id`, `doc_id`, `score`), files and fusion; in every chapter."""

import csv
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.text import words

# Results of a list, however few are shown or fused.
DEPTH = 1000
# Scores of results and rows of documents, (Q, any): the best first, row -1 and score -inf for none.
Lists = tuple[np.ndarray, np.ndarray]
# From questions, a frame with `text`, and a number k, to the k best documents of each.
Search = Callable[[pd.DataFrame, int], Lists]


def best(scores: np.ndarray, rows: np.ndarray, k: int, places: np.ndarray | None = None) -> Lists:
    """Return the k best of each list; equal scores in the order of rows, or of what has a place for each."""
    order = np.lexsort((rows if places is None else places, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def make_run(query_ids: Sequence[str], doc_ids: Sequence[str], scores: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
    """Return the run of lists of documents, whose ids are `doc_ids`; equal scores are ordered by document id."""
    listed = rows >= 0
    query, row, score = np.nonzero(listed)[0], rows[listed], scores[listed].astype(np.float32)
    documents, queries = (pd.array(ids, dtype="str") for ids in (doc_ids, query_ids))
    # By numbers: to sort a million ids, or to make them of objects, takes as long as the search.
    distinct, place = np.unique(row, return_inverse=True)
    alphabetic = documents.take(distinct).argsort().argsort()[place]
    order = np.lexsort((alphabetic, -score, query))
    ids = {"query_id": queries.take(query[order]), "doc_id": documents.take(row[order])}
    return pd.DataFrame({**ids, "score": score[order]})


def question_search(collection: Collection, search: Callable[[list[str], int], Lists]) -> Search:
    """Return a search of texts as one of questions, whose `own_documents` are left out, in the order of a run."""

    def searcher(queries: pd.DataFrame, k: int) -> Lists:
        own = collection.own_rows(queries.index)[:, None]
        scores, rows = search(queries["text"].tolist(), k + bool((own >= 0).any()))
        is_own = (rows == own) & (own >= 0)
        return ordered(collection, np.where(is_own, -np.inf, scores), np.where(is_own, -1, rows), k)

    return searcher


def ordered(collection: Collection, scores: np.ndarray, rows: np.ndarray, k: int) -> Lists:
    """Return the k best of each list of a collection's documents, in 32 bits; equal scores by document id."""
    return best(scores.astype(np.float32), rows, k, _alphabetic(collection)[rows])


@lru_cache(maxsize=4)
def _alphabetic(collection: Collection) -> np.ndarray:
    return pd.array(collection.documents.index, dtype="str").argsort().argsort()


def check_question(question: str) -> None:
    """Raise `SettingError` for a question that has no word."""
    require(words(question) != [], f"a question needs a word; {question!r} has none")


def result_list(collection: Collection, question: str, depth: int, search: Search) -> pd.DataFrame:
    """Return the head of one question's run with `rank`, title ("" of none), text, and `relevant` of own questions."""
    check_question(question := normalize("NFC", question))
    require(depth >= 1, f"depth = {depth}: at least 1 is needed")
    same = collection.queries[collection.queries["text"].str.normalize("NFC") == question][["text"]]
    own, new = same[same.index.isin(collection.own_documents)], pd.DataFrame({"text": [question]}, index=[""])
    query = pd.concat([own, same, new])[:1]
    run = make_run(query.index, collection.documents.index, *search(query, max(depth, DEPTH)))[:depth]
    results = collection.documents.reindex(run["doc_id"]).reindex(columns=["title", "text"], fill_value="")
    results, judged = results.rename_axis("doc_id").reset_index(), collection.relevant()
    relevant = judged["doc_id"][judged["query_id"].isin(same.index)]
    return results.assign(rank=results.index + 1, relevant=results["doc_id"].isin(relevant))


def places(run: pd.DataFrame) -> np.ndarray:
    """Return the place of each result in its query's list, from 0; the order of the run is taken as it stands."""
    return run.groupby("query_id", sort=False).cumcount().to_numpy()


def write_trec(run: pd.DataFrame, path: Path, tag: str) -> None:
    """Write a run in TREC's form: query, ``Q0``, document, rank from 1, score and the tag of the system.

    So that all evaluators find its order, a score that is not below the one before is written as the next smaller
    number of 32 bits. `DataError` if an id or the tag is empty or has white space.
    """
    place = places(run)
    # The numbers of 32 bits in their order: those below zero count down from the sign.
    bits = run["score"].to_numpy(np.float32).view(np.int32).astype(np.int64)
    order = pd.Series(np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + place)
    bits = order.groupby(run["query_id"].to_numpy()).cummin().to_numpy() - place
    scores = np.where(bits < 0, -bits | 0x80000000, bits).astype(np.uint32).view(np.float32)
    _write(run[["query_id"]].assign(q0="Q0", doc_id=run["doc_id"], rank=place + 1, score=scores, tag=tag), path)


def write_qrels(qrels: pd.DataFrame, path: Path) -> None:
    """Write judgments in TREC's form: query, ``0``, document and relevance; errors as those of `write_trec`."""
    _write(qrels.assign(zero=0)[["query_id", "zero", "doc_id", "relevance"]], path)


def _write(frame: pd.DataFrame, path: Path) -> None:
    for name in frame.columns.intersection(["query_id", "doc_id", "tag"]):
        wrong = [each for each in frame[name].unique() if each.split() != [each]]
        require(not wrong, f"{name} {wrong[:3]} cannot be written to {path}: empty, or with white space", DataError)
    frame.to_csv(path, sep=" ", header=False, index=False, quoting=csv.QUOTE_NONE, float_format="%.9g")


def combined(several: Sequence[Lists], weights: Sequence[float]) -> Lists:
    r"""Fuse lists by their scores, each scaled to its own range (Bruch, Gai and Ingber 2023, section 4).

    .. math:: s(d) = \sum_{r \in \text{lists}} w_r \; \frac{s_r(d) - \min s_r}{\max s_r - \min s_r}

    A list that lacks a document adds nothing, as it does to its own last; one whose scores are equal adds its weight.
    The results, float64 and int64, are as wide as the lists together.
    """
    together = np.concatenate([rows for _, rows in several], axis=1)
    shares = np.concatenate([w * _scaled(*each) for w, each in zip(weights, several, strict=True)], axis=1)
    scores, rows = np.full(together.shape, -np.inf), np.full(together.shape, -1, dtype=np.int64)
    for query, listed in enumerate(together):
        ids, place = np.unique(listed[listed >= 0], return_inverse=True)
        rows[query, : len(ids)] = ids
        scores[query, : len(ids)] = np.bincount(place, shares[query, listed >= 0], len(ids))
    return best(scores, rows, rows.shape[1])


def _scaled(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # Each list's scores from 0, its lowest, to 1, its highest; all 1 where they are equal.
    listed, scores = rows >= 0, scores.astype(np.float64)
    low = scores.min(axis=1, keepdims=True, where=listed, initial=np.inf)
    high = scores.max(axis=1, keepdims=True, where=listed, initial=-np.inf)
    differ = listed & (high > low)
    return np.divide(scores - np.where(listed, low, 0), high - low, out=listed.astype(np.float64), where=differ)
