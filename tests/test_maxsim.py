"""MaxSim by hand, against loops, and where a text has no unit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from letters import LETTERS, SMALL, table

from retlib import maxsim
from retlib.dense import Retriever
from retlib.text import TokenTable, offsets_of

ACROSS, UP = [1.0, 0.0], [0.0, 1.0]


def units(*rows):
    return torch.tensor(rows)


def test_the_best_of_each_unit_of_the_query_counts():
    queries = units(ACROSS, [0.6, 0.8])
    documents = units(UP, ACROSS, [0.0, -1.0])  # the first two are one document, the third another
    found = maxsim.score(queries, table("a b"), documents, table("c d", "e"))
    # 1 + 0.8 with the first; 0 - 0.8 with the second.
    assert found.tolist() == [[pytest.approx(1.8), pytest.approx(-0.8)]]


def test_a_document_without_units_counts_minus_one_for_each_unit_of_the_query():
    documents = TokenTable.from_rows([[1], []])
    queries = units(ACROSS, UP, UP)
    found = maxsim.score(queries, table("a b", "c"), units(UP), documents)
    assert found.tolist() == [[1.0], [-1.0]]
    assert maxsim.score(queries[:2], table("a b"), units(UP), documents).tolist() == [[1.0, -2.0]]


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

    def make(lengths):
        vectors = generator.normal(size=(sum(lengths), 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        offsets = offsets_of(np.array(lengths))
        return vectors, offsets, TokenTable(np.zeros(sum(lengths), dtype=np.int32), offsets)

    (left, left_at, left_table), (right, right_at, right_table) = make(asked), make(found)
    scores = maxsim.score(torch.from_numpy(left), left_table, torch.from_numpy(right), right_table)
    for row in range(len(asked)):
        for place in range(2):
            document = right[right_at[2 * row + place] : right_at[2 * row + place + 1]]
            query = left[left_at[row] : left_at[row + 1]]
            expected = sum(max((unit @ other for other in document), default=-1.0) for unit in query)
            assert scores[row, place].item() == pytest.approx(expected)


def test_vectors_are_of_unit_length_and_exact_where_the_layers_are_not():
    encoder = Retriever.fresh(SMALL, LETTERS, seed=0).model.query_encoder
    states = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = maxsim.vectors(encoder, states.bfloat16())
    exact = encoder.head(states.bfloat16().float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact / exact.norm(dim=1, keepdim=True))
