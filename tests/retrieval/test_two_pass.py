"""Exact search in two passes: nothing is lost, whatever bfloat16 cannot tell apart."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from oracles import slow_search

from retlib.core import runtime
from retlib.retrieval import index, two_pass

small = st.integers(-2, 2).map(float)  # whole numbers: products are exact and ties are many
# Few rows, too, are searched in two passes.
always = mock.patch.object(two_pass, "LEAST", 0)


def made(vectors):
    return two_pass.Screened(index.build("Exact", vectors).settings, vectors)


def indistinct(rows, queries, dimension=24, seed=0):
    """Vectors so close to one another that bfloat16 does not tell them apart, of many lengths."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal(dimension) + 0.002 * rng.standard_normal((rows, dimension))
    asked = rng.standard_normal((queries, dimension)) * 10.0 ** rng.integers(-2, 3, (queries, 1))
    return vectors.astype(np.float32), asked.astype(np.float32)


@given(st.data(), st.integers(1, 60), st.integers(1, 9), st.integers(1, 4), st.integers(1, 70), st.integers(1, 99))
def test_it_is_a_full_sort(data, rows, queries, dimension, k, most):
    vectors = data.draw(arrays.arrays(np.float32, (rows, dimension), elements=small))
    asked = data.draw(arrays.arrays(np.float32, (queries, dimension), elements=small))
    with always, mock.patch.object(two_pass, "MOST_SCORES", most):
        scores, found = made(vectors).search(asked, k)
    expected = slow_search(vectors, asked, min(k, rows))
    np.testing.assert_array_equal(found, expected[1])
    np.testing.assert_array_equal(scores, expected[0].astype(np.float32))


@pytest.mark.parametrize("k", [1, 10, 100])
def test_what_bfloat16_cannot_tell_apart(k):
    vectors, queries = indistinct(3001, 20)
    found = made(vectors).search(queries, k)
    expected = slow_search(vectors, queries, k)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4 * np.abs(expected[0]).max())
    same = found[1] == expected[1]
    # Where 32-bit floats see a tie, rows may change places.
    apart = np.abs(np.diff(expected[0], axis=1, prepend=np.inf)) > 1e-5 * np.abs(expected[0])
    assert same[apart & np.roll(apart, -1, axis=1)].all()
    with mock.patch.object(two_pass, "ERROR", 0):
        assert not (made(vectors).search(queries, k)[1] == expected[1]).all()


def test_it_finds_what_exact_search_finds_and_fewer_rows_are_scored_again():
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((20_003, 64)).astype(np.float32)
    queries = rng.standard_normal((70, 64)).astype(np.float32)
    mine = made(vectors)
    scores, rows = index.build("Exact", vectors).search(queries, 20)
    found = mine.search(queries, 20)
    np.testing.assert_array_equal(found[1], rows)
    np.testing.assert_allclose(found[0], scores, rtol=1e-5)
    assert len(mine._candidates(queries, 20)[0]) < 70 * 200


def test_coarse_scores_are_off_by_no_more_than_the_bound():
    vectors, queries = indistinct(500, 50, seed=2)
    coarse, _ = made(vectors)._first_pass(queries)
    exact = vectors.astype(np.float64) @ queries.T.astype(np.float64)
    bound = two_pass.ERROR * np.linalg.norm(vectors, axis=1).max() * np.linalg.norm(queries, axis=1)
    off = np.abs(two_pass._float32(coarse[:500]) - exact)
    assert (off <= bound).all() and off.max() > 0


@pytest.mark.parametrize("has", [False, True])
def test_who_has_no_bfloat16_searches_in_one_pass(monkeypatch, has):
    monkeypatch.setattr(runtime, "has_bfloat16", lambda: has)
    assert type(two_pass.build(np.ones((5, 2), np.float32))) is (two_pass.Screened if has else index.Exact)


def test_a_saved_one_comes_back_as_an_exact_index(tmp_path):
    vectors, queries = indistinct(100, 3)
    with always:
        mine = made(vectors)
        mine.save(tmp_path)
        np.testing.assert_array_equal(index.load(tmp_path).search(queries, 5)[1], mine.search(queries, 5)[1])


@always
def test_the_error_bound_is_that_of_bfloat16():
    """The worst case: every product is rounded the same way, by nearly a share of 2^-8 on either side."""
    count, less = 257, 1e-6
    query = np.full((1, count + 1), 2**-8, dtype=np.float32)
    query[0, -2] = 255 * 2**-16
    vectors = np.zeros((400, count + 1), dtype=np.float32)
    for row, sign, rest in ((10, -1, 4 * less * 256), (100, 1, 0.0)):
        vectors[row], vectors[row, -1] = 1 + 2**-8 + sign * less, rest
    # Row 10 is the best one, and rounding puts it far behind row 100.
    assert slow_search(vectors, query, 1)[1] == made(vectors).search(query, 1)[1] == 10
    with mock.patch.object(two_pass, "ERROR", (2**-8 + 2**-9) * (1 + 2**-6)):
        assert made(vectors).search(query, 1)[1] == 100
