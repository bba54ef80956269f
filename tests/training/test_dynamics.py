"""What a watch sees: measures by hand and against slow references, and that it resumes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import SettingError
from retlib.data.text import TokenTable
from retlib.data.tokenized import LabelledQueries, rows_of_step
from retlib.retrieval import index
from retlib.training.dynamics import Dynamics, Watching, overlap, reciprocal_rank
from retlib.training.negatives import DeferredBatch, Inputs

VECTORS = np.eye(6, dtype=np.float32)
QUERIES = TokenTable.from_rows([[0], [1], [2], [3]])
RELEVANT = TokenTable.from_rows([[0], [2, 3], [5], [1]])
BM25 = np.array([[0, 1, 2], [4, 5, -1], [-1, -1, -1], [3, 0, 1]])
JUDGED = LabelledQueries(QUERIES, RELEVANT, VECTORS)
WATCHING = Watching(interval=2, depth=2)


class Turning:
    """An encoder that ranks document q + turn first for query q, and the one after it second."""

    def __init__(self, turn=0):
        self.turn = turn

    def __call__(self, table):
        first = (table.ids + self.turn) % 6
        return 2 * VECTORS[first] + VECTORS[(first + 1) % 6]


def make(encode, watching=WATCHING, judged=JUDGED):
    found = index.build("Exact", VECTORS)
    inputs = Inputs(judged, 4, 0, encode, lambda: found, lambda depth: BM25[:, :depth])
    return Dynamics(inputs, watching, lambda ids: TokenTable.from_rows([[int(name)] for name in ids]))


def batch(step):
    rows = rows_of_step(4, 4, 0, step)
    return DeferredBatch(QUERIES.take(rows), None, rows)


def test_the_four_measures_by_hand():
    # Retrieved: 0 1, 1 2, 2 3, 3 4. Relevant first at ranks 1, 2, none, none; shares 1, 1/2, 0, 0.
    # BM25's first two: 0 1, 4 5, none, 3 0.
    seen = make(Turning())(0, batch(0))
    assert seen == {"RR@10": 1.5 / 4, "R@2": 1.5 / 4, "overlap BM25": (1 + 0 + 0 + 0.5) / 4, "overlap stale": 1.0}
    # Query 1 is document 1, and leaves its list: its relevant document, 2, is first.
    own = LabelledQueries(QUERIES, RELEVANT, VECTORS, np.array([-1, 1, -1, -1]))
    assert make(Turning(), judged=own)(0, batch(0)) == {**seen, "RR@10": 2 / 4}


def test_overlap_with_lists_that_have_grown_stale():
    encode = Turning()
    dynamics, overlaps = make(encode), []
    for step in range(4):
        encode.turn = step
        overlaps.append(dynamics(step, batch(step))["overlap stale"])
    assert overlaps == [1.0, 0.5, 1.0, 0.5]  # the lists of steps 0 and 2, which share one document with the next


def test_a_watch_resumes():
    def watch(steps, state=None):
        encode = Turning()
        dynamics, seen = make(encode, Watching(interval=3, depth=2, pace=2, followed=("0", "3"))), []
        if state:
            dynamics.set_state(state)
        for step in steps:
            encode.turn = step
            seen.append(dynamics(step, batch(step)))
        return dynamics, seen

    whole, expected = watch(range(6))
    half, _ = watch(range(5))
    again, rest = watch([5], {name: tensor.clone() for name, tensor in half.state().items()})
    assert rest == expected[5:] and expected[5]["overlap stale"] == 0
    for name, tensor in whole.paths.items():
        assert tensor.tolist() == again.paths[name].tolist()


@pytest.mark.parametrize("name", ["every", "interval", "depth"])
def test_a_watch_wants_positive_numbers(name):
    with pytest.raises(SettingError, match=f"{name} = 0"):
        make(Turning(), Watching(**{name: 0}))


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=5))
def test_reciprocal_rank_is_that_of_a_slow_reference(hits):
    expected = np.mean([next((1 / (1 + rank) for rank, hit in enumerate(row) if hit), 0.0) for row in hits])
    assert reciprocal_rank(np.array(hits)) == pytest.approx(expected)


ROW = st.lists(st.integers(0, 9), max_size=4, unique=True).map(lambda row: row + [-1] * (4 - len(row)))


@given(st.lists(st.tuples(ROW, ROW), min_size=1, max_size=5))
def test_overlap_is_that_of_a_slow_reference(rows):
    def share(left, right):
        left, right = set(left) - {-1}, set(right) - {-1}
        return len(left & right) / max(1, len(left))

    left, right = (np.array([pair[side] for pair in rows]) for side in (0, 1))
    assert overlap(left, right) == pytest.approx(np.mean([share(*pair) for pair in rows]))
