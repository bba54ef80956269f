"""Exhaustive search by MaxSim, against loops over tokens."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError, SettingError
from retlib.data.text import offsets_of
from retlib.retrieval import late_index
from retlib.retrieval.late_index import TokenIndex


def slow_search(documents, document_offsets, queries, query_offsets):
    """MaxSim of all queries with all documents, one product at a time."""
    scores = np.zeros((len(query_offsets) - 1, len(document_offsets) - 1))
    for i, j in np.ndindex(scores.shape):
        own = documents[document_offsets[j] : document_offsets[j + 1]].astype(float)
        for token in queries[query_offsets[i] : query_offsets[i + 1]].astype(float):
            scores[i, j] += (own @ token).max()
    return scores


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=9)


@given(
    of_documents=lengths,
    of_queries=lengths,
    k=st.integers(1, 12),
    blocks=st.sampled_from([(1, 1), (7, 2), (100, 16)]),
    seed=st.integers(0, 10**6),
)
def test_search_equals_a_slow_reference(of_documents, of_queries, k, blocks, seed):
    rng = np.random.default_rng(seed)
    offsets, query_offsets = offsets_of(np.array(of_documents)), offsets_of(np.array(of_queries))
    documents = rng.normal(size=(offsets[-1], 3)).astype(np.float32)
    queries = rng.normal(size=(query_offsets[-1], 3)).astype(np.float32)
    with mock.patch.multiple(late_index, TOKEN_BLOCK=blocks[0], QUERY_BLOCK=blocks[1]):
        scores, rows = TokenIndex(documents, offsets).search(queries, query_offsets, k)
    expected = slow_search(documents, offsets, queries, query_offsets)
    assert scores.shape == rows.shape == (len(of_queries), min(k, len(of_documents)))
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=1e-4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, rows, axis=1), atol=1e-4)


def test_equal_scores_are_in_the_order_of_rows():
    vectors, eye = np.array([[0.0, 1], [1, 0], [1, 0], [0, 1], [1, 0]], dtype=np.float32), np.eye(2, dtype=np.float32)
    scores, rows = TokenIndex(vectors, np.array([0, 1, 2, 4, 5])).search(eye, np.array([0, 1, 2]), 4)
    assert rows.tolist() == [[1, 2, 3, 0], [0, 2, 1, 3]] and scores.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    many = TokenIndex(np.repeat(vectors[:2], 50, axis=0), np.arange(101))
    assert many.search(vectors[1:2], np.array([0, 1]), 60)[1].tolist() == [[*range(50, 100), *range(10)]]


@pytest.mark.parametrize("queries", [1, 16])
def test_equal_documents_tie_wherever_they_stand(queries):
    rng = np.random.default_rng(0)
    documents = np.concatenate([rng.normal(size=(74, 128))] * 200).astype(np.float32)  # two, a hundred times
    tokens, offsets = rng.normal(size=(20 * queries, 128)).astype(np.float32), np.arange(queries + 1) * 20
    scores, rows = TokenIndex(documents, np.arange(401) * 37).search(tokens, offsets, 400)
    for half in (slice(200), slice(200, None)):
        assert (scores[:, half] == scores[:, half][:, :1]).all()
        assert (rows[:, half] == rows[:, half][:, :1] + np.arange(0, 400, 2)).all()


def test_what_cannot_be_searched_is_refused():
    vectors, none = np.eye(2, dtype=np.float32), np.empty((0, 2), dtype=np.float32)
    index = TokenIndex(vectors, np.array([0, 1, 2]))
    for error, tokens, offsets, k in ((SettingError, vectors, [0, 2], 0), (DataError, none, [0], 1)):
        with pytest.raises(error):
            index.search(tokens, np.array(offsets), k)
    for tokens, offsets in ((none, [0]), (vectors, [0, 2, 2])):
        with pytest.raises(DataError):
            TokenIndex(tokens, np.array(offsets))
