"""Fusion by reciprocal rank: by hand, against a slow loop, and what must hold whatever the lists."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.retrieval import fusion
from retlib.retrieval.runs import make_run

LISTS = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=4)


def padded(rows, width=6):
    return np.array([[*rows, *[-1] * (width - len(rows))]])


def slow(lists, constant):
    scores = {}
    for each in lists:
        for rank, row in enumerate(each, start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (constant + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def test_by_hand():
    # 5 is first and third, 7 second and first, 2 third alone, 9 second alone.
    scores, rows = fusion.reciprocal_ranks([np.array([[5, 7, 2]]), np.array([[7, 9, 5]])], constant=1)
    assert rows.tolist() == [[7, 5, 9, 2, -1, -1]]
    expected = [1 / 3 + 1 / 2, 1 / 2 + 1 / 4, 1 / 3, 1 / 4, -np.inf, -np.inf]
    np.testing.assert_allclose(scores, [expected])


def test_the_constant_is_the_paper_s():
    scores, _ = fusion.reciprocal_ranks([np.array([[3]]), np.array([[3]])])
    np.testing.assert_allclose(scores, [[2 / 61, -np.inf]])


@given(LISTS, st.integers(0, 80))
def test_as_a_slow_loop(lists, constant):
    scores, rows = fusion.reciprocal_ranks([padded(each) for each in lists], constant)
    expected = slow(lists, constant)
    count = len(expected)
    assert rows.shape == (1, 6 * len(lists)) and (rows[0, count:] == -1).all() and np.isneginf(scores[0, count:]).all()
    np.testing.assert_allclose(scores[0, :count], [score for _, score in expected])
    # Sums of the same terms in another order may differ in the last bit, and so may the order of ties.
    assert sorted(rows[0, :count]) == sorted(row for row, _ in expected)
    assert (np.diff(scores[0, :count]) <= 0).all()


@given(LISTS)
def test_one_list_alone_keeps_its_order(lists):
    _, rows = fusion.reciprocal_ranks([padded(lists[0])])
    assert rows.tolist() == padded(lists[0]).tolist()


def test_lists_of_other_queries_are_refused():
    with pytest.raises(DataError, match=r"these are of \[1, 2\] queries"):
        fusion.reciprocal_ranks([np.zeros((1, 2), dtype=int), np.zeros((2, 2), dtype=int)])
    with pytest.raises(DataError, match="query by query"):
        fusion.reciprocal_ranks([])


def test_runs():
    queries, documents = pd.Index(["q", "r"]), pd.Index(list("abcd"))
    left = make_run(queries, documents, np.array([[3.0, 2.0], [1.0, -np.inf]]), np.array([[0, 1], [2, -1]]))
    right = make_run(queries[:1], documents, np.array([[9.0, 8.0, 7.0]]), np.array([[1, 3, 0]]))
    found = fusion.fuse([left, right], queries, documents, depth=3)
    # q: b is second and first, a first and third, d second; r has one list.
    assert found[["query_id", "doc_id"]].to_numpy().tolist() == [["q", "b"], ["q", "a"], ["q", "d"], ["r", "c"]]
    np.testing.assert_allclose(found["score"], [1 / 62 + 1 / 61, 1 / 61 + 1 / 63, 1 / 62, 1 / 61], rtol=1e-6)


def test_a_run_of_unknown_documents_is_refused():
    run = pd.DataFrame({"query_id": ["q"], "doc_id": ["z"], "score": [1.0]})
    with pytest.raises(DataError, match=r"\['z'\]"):
        fusion.fuse([run], pd.Index(["q"]), pd.Index(["a"]))
