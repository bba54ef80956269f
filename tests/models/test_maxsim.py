"""MaxSim by hand, against loops, and where a text has no unit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from letters import LETTERS, SMALL

from retlib.data.text import offsets_of
from retlib.models import maxsim
from retlib.systems.dense import Retriever

ACROSS, UP = [1.0, 0.0], [0.0, 1.0]


def score(queries, asked, documents, found):
    return maxsim.score(torch.tensor(queries), np.array(asked), torch.tensor(documents), np.array(found))


def test_the_best_of_each_unit_of_the_query_counts():
    # The first two units are one document, the third another: 1 + 0.8 with the first, 0 - 0.8 with the second.
    found = score([ACROSS, [0.6, 0.8]], [2], [UP, ACROSS, [0.0, -1.0]], [2, 1])
    assert found.tolist() == [[pytest.approx(1.8), pytest.approx(-0.8)]]


def test_a_document_without_units_counts_minus_one_for_each_unit_of_the_query():
    assert score([ACROSS, UP, UP], [2, 1], [UP], [1, 0]).tolist() == [[1.0], [-1.0]]
    assert score([ACROSS, UP], [2], [UP], [1, 0]).tolist() == [[1.0, -2.0]]


@given(
    st.integers(1, 3).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 3), min_size=n, max_size=n),
            st.lists(st.integers(0, 4), min_size=2 * n, max_size=2 * n),
            st.integers(0, 5),
        )
    )
)
def test_scores_are_those_of_loops(drawn):
    asked, found, seed = drawn
    generator = np.random.default_rng(seed)

    def texts(lengths):
        units = generator.normal(size=(sum(lengths), 3))
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        return units, np.split(units, offsets_of(np.array(lengths))[1:-1])

    (left, queries), (right, documents) = texts(asked), texts(found)
    scores = maxsim.score(torch.from_numpy(left), np.array(asked), torch.from_numpy(right), np.array(found))
    for row, query in enumerate(queries):
        for place, document in enumerate(documents[2 * row : 2 * row + 2]):
            expected = sum(max((unit @ other for other in document), default=-1.0) for unit in query)
            assert scores[row, place].item() == pytest.approx(expected)


def test_vectors_are_of_unit_length_and_all_is_exact_where_the_layers_are_not():
    encoder = Retriever.fresh(SMALL, LETTERS, seed=0).model.query_encoder
    states = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = maxsim.vectors(encoder, states.bfloat16())
        scores = maxsim.score(found[:2], np.array([2]), found[2:], np.array([3]))
    exact = encoder.head(states.bfloat16().float())
    exact = exact / exact.norm(dim=1, keepdim=True)
    assert found.dtype == scores.dtype == torch.float32
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(scores, (exact[:2] @ exact[2:].T).amax(dim=1).sum()[None, None])
