"""Negatives among all documents: against hand-made rankings, and slow references."""

from types import SimpleNamespace

import numpy as np
import pytest
import samplers
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.data.text import TokenTable
from retlib.data.tokenized import LabelledQueries, rows_of_step
from retlib.retrieval import index
from retlib.training import negatives
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.training.negatives import only_hardest

DOCUMENTS, BATCH, SEED, N = 9, 4, 3, 2
RELEVANT = [[0], [1, 2], [3], [4, 5, 6], [0], [8], [7]]
QUERIES = TokenTable.from_rows([[10 + query] for query in range(len(RELEVANT))])
VECTORS = np.random.default_rng(0).normal(size=(DOCUMENTS, 3)).astype(np.float32)
# A list of each query: full, short, empty, and one of relevant documents alone.
LISTS = np.array(
    [[1, 2, 3, 4], [5, 1, 6, 7], [8, -1, -1, -1], [4, 5, 6, -1], [-1] * 4, [0, 1, 2, 3], [7, 8, 0, 1]], dtype=np.int32
)
COMMON = BATCH, SEED


def judged(texts=False, relevant=RELEVANT, *others):
    """With documents whose only unit is their row, or whose encodings are `VECTORS`."""
    documents = TokenTable.from_rows([[row] for row in range(DOCUMENTS)]) if texts else VECTORS
    return LabelledQueries(QUERIES, TokenTable.from_rows(relevant), documents, *others)


def encode(table):
    """Encodings that say which query it is."""
    return np.eye(3, dtype=np.float32)[table.ids % 3]


def make_stale(judged, seed=SEED):
    return samplers.ann(judged, BATCH, seed, N, encode, lambda: index.build("Exact", VECTORS), 3, 4)


SAMPLERS = {
    "in batch": lambda j, seed=SEED: samplers.in_batch(j, BATCH, seed, mask_known=True),
    "hardest": lambda j, seed=SEED: samplers.hardest(j, BATCH, seed),
    "random": lambda j, seed=SEED: samplers.random(j, BATCH, seed, N),
    "lists": lambda j, seed=SEED: samplers.bm25(j, BATCH, seed, N, LISTS),
    "mixed": lambda j, seed=SEED: samplers.bm25_and_random(j, BATCH, seed, 2, LISTS),
    "stale": make_stale,
    "retrieved": lambda j, seed=SEED: samplers.retrieved(j, BATCH, seed, index.build("Exact", VECTORS), 4),
}


def closed(sampler, step):
    batch = sampler.batch(step)
    return batch if hasattr(batch, "targets") else batch.close(encode(batch.queries))


def documents_of(batch):
    """Rows of a batch's documents, shape (B, n)."""
    rows = batch.documents.ids
    return np.broadcast_to(rows, batch.targets.shape) if batch.shared else rows.reshape(batch.targets.shape)


# Queries 0 and 4 are document 3, query 5 is 1; documents 2 and 8, and 7 and 0 have one text.
OWN, NUMBERS = np.array([3, -1, -1, -1, 3, 1, -1]), np.array([0, 1, 2, 3, 4, 5, 6, 0, 2])
SPARED = [{0, 7, 3}, {1, 2, 8}, {3}, {4, 5, 6}, {0, 7, 3}, {8, 2, 1}, {7, 0}]


@pytest.mark.parametrize("given", [(), (OWN, NUMBERS)])
@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_positives_are_relevant_and_negatives_are_neither_that_nor_copies_nor_the_query(make, given):
    sampler, spared = make(judged(True, RELEVANT, *given)), SPARED if given else [*map(set, RELEVANT)]
    for step in range(20):
        batch = closed(sampler, step)
        assert batch.rows.tolist() == rows_of_step(len(RELEVANT), BATCH, SEED, step).tolist()
        assert (batch.queries.ids - 10).tolist() == batch.rows.tolist()
        rows, targets = documents_of(batch), batch.targets.numpy()
        for query, row, target in zip(batch.rows, rows, targets, strict=True):
            assert POSITIVE in target
            assert set(row[target == POSITIVE]) <= set(RELEVANT[query])
            assert not set(row[target == NEGATIVE]) & spared[query]
            assert set(row[target == IGNORE]) <= spared[query]


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_a_batch_depends_on_seed_and_step_alone(make):
    def seen(seed, steps):
        sampler = make(judged(texts=True), seed)
        batches = {step: closed(sampler, step) for step in steps}
        return {step: (batch.documents.ids.tolist(), batch.targets.tolist()) for step, batch in batches.items()}

    forward = seen(SEED, range(9))
    assert seen(SEED, [5]) == {5: forward[5]}
    assert seen(SEED + 1, range(9)) != forward


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_encoded_documents_are_those_of_the_texts(make):
    texts, vectors = (closed(make(judged(kind)), 2) for kind in (True, False))
    np.testing.assert_array_equal(vectors.documents.numpy(), VECTORS[texts.documents.ids])
    assert torch.equal(vectors.targets, texts.targets)
    assert vectors.targets.dtype == torch.int8 and vectors.exact == (not vectors.shared)


def test_random_negatives_are_all_others_equally_often():
    sampler = samplers.random(judged(), *COMMON, 50)  # more than there are documents
    counts = np.zeros((len(RELEVANT), DOCUMENTS))
    for step in range(300):
        queries = sampler._queries(step)
        np.add.at(counts, (queries[:, None], sampler.negatives(queries, step)), 1)
    for query, relevant in enumerate(RELEVANT):
        others = np.delete(counts[query], relevant)
        assert counts[query][relevant].sum() == 0
        np.testing.assert_allclose(others / others.mean(), 1, atol=0.1)


def test_one_of_several_relevant_documents_is_drawn_anew():
    sampler = samplers.random(judged(texts=True), *COMMON, 1)
    drawn = {step: documents_of(closed(sampler, step))[sampler._queries(step) == 3, 0].tolist() for step in range(60)}
    assert {row for rows in drawn.values() for row in rows} == {4, 5, 6}


def test_lists_are_drawn_without_replacement_and_random_documents_fill_the_rest():
    sampler = samplers.bm25(judged(), *COMMON, 3, LISTS)
    every = np.arange(len(RELEVANT))
    found = [sampler.negatives(every, step) for step in range(200)]
    usable = [{1, 2, 3, 4}, {5, 6, 7}, {8}, set(), set(), {0, 1, 2, 3}, {8, 0, 1}]
    for query, listed in enumerate(usable):
        rows = np.array([rows[query] for rows in found])
        fill = max(0, 3 - len(listed))
        assert all(len(set(row[: 3 - fill])) == 3 - fill and set(row[: 3 - fill]) <= listed for row in rows)
        if fill:
            assert set(rows[:, 3 - fill :].ravel()) == set(range(DOCUMENTS)) - set(RELEVANT[query])
    assert len({tuple(rows[0]) for rows in found}) == 24  # every ordered choice of three of four


def test_more_negatives_than_a_list_is_long_and_lists_without_any_column():
    rows = samplers.bm25(judged(), *COMMON, 20, LISTS).negatives(np.array([0]), 0)
    assert rows.shape == (1, 20) and set(rows[0, :4]) == {1, 2, 3, 4}
    task, queries = judged(), np.array([0, 3])
    rows = samplers.bm25(task, *COMMON, 2, np.empty((7, 0), dtype=int)).negatives(queries, 0)
    assert rows.shape == (2, 2) and not task.hits(queries, rows).any()


def test_a_mixture_has_the_negatives_of_both():
    task = judged()
    listed, free = samplers.bm25(task, *COMMON, 2, LISTS), samplers.random(task, *COMMON, 2)
    mixed, queries = samplers.bm25_and_random(task, *COMMON, 4, LISTS), np.array([0, 5])
    rows = mixed.negatives(queries, 4)
    assert rows[:, :2].tolist() == listed.negatives(queries, 4).tolist()
    assert rows[:, 2:].tolist() == free.negatives(queries, 4).tolist()
    assert mixed.batch(0).targets.tolist() == [[POSITIVE] + [NEGATIVE] * 4] * BATCH
    with pytest.raises(SettingError, match="even"):
        samplers.bm25_and_random(task, *COMMON, 3, LISTS)


def test_what_fills_a_list_is_not_the_mixture_s_other_half():
    """Without any list both halves are random, and drawn apart."""
    task = judged()
    mixed = samplers.bm25_and_random(task, BATCH, SEED, 4, np.full((len(task), 3), -1))
    halves = [mixed.negatives(np.arange(BATCH), step) for step in range(20)]
    assert not all((rows[:, :2] == rows[:, 2:]).all() for rows in halves)


def test_in_batch_targets_by_hand():
    task = LabelledQueries(
        TokenTable.from_rows([[0], [1], [2]]), TokenTable.from_rows([[0], [0], [1]]), TokenTable.from_rows([[7], [8]])
    )
    batch = samplers.in_batch(task, 3, 0, mask_known=True).batch(0)
    order = batch.rows.tolist()
    assert batch.documents.ids.tolist() == [[7, 7, 8][query] for query in order]
    for i, left in enumerate(order):
        for j, right in enumerate(order):
            known = {left, right} <= {0, 1}
            assert batch.targets[i, j] == (POSITIVE if i == j else IGNORE if known else NEGATIVE)
    assert not batch.hardest and samplers.hardest(task, 3, 0).batch(0).hardest


def test_only_the_hardest_negative_stays():
    scores = torch.tensor([[5.0, 1.0, 3.0, 2.0], [9.0, 8.0, 7.0, 7.0], [1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 0.0]])
    targets = torch.tensor([[1, 0, 0, 0], [-1, 1, 0, 0], [1, -1, -1, -1], [0, 0, 1, 0]], dtype=torch.int8)
    expected = [[1, -1, 0, -1], [-1, 1, 0, -1], [1, -1, -1, -1], [0, -1, 1, -1]]
    assert only_hardest(scores, targets).tolist() == expected


class Drifting:
    """An encoder whose weights are the step that it is asked at."""

    def __init__(self):
        self.now, self.calls, self.builds = 0, [], 0

    def encode(self, table):
        self.calls.append((self.now, sorted(set((table.ids - 10).tolist()))))
        return np.eye(3, dtype=np.float32)[(table.ids + self.now) % 3]

    def index(self):
        self.builds += 1
        return index.build("Exact", VECTORS)

    def lists(self, **changes):
        return samplers.stale_lists(
            judged(), BATCH, SEED, self.encode, self.index, **{"interval": 3, "depth": 4, **changes}
        )


def steps_of(lists, drifting, steps):
    found = []
    for drifting.now in steps:
        found.append(lists.at(drifting.now))
    return found


def queries_of(step):
    return rows_of_step(len(RELEVANT), BATCH, SEED, step)


def expected_lists(step, since):
    """What a search with the weights of step `since` finds for the queries of a step."""
    scores = np.eye(3)[(queries_of(step) + 10 + since) % 3] @ VECTORS.T
    return np.argsort(-scores, axis=1, kind="stable")[:, :4]


def test_stale_lists_are_those_of_the_last_refresh():
    drifting = Drifting()
    found = steps_of(drifting.lists(), drifting, range(8))
    for step, lists in enumerate(found):
        np.testing.assert_array_equal(lists, expected_lists(step, step - step % 3))
    coming = [sorted({query for step in range(since, since + 3) for query in queries_of(step)}) for since in (0, 3, 6)]
    assert drifting.calls == list(zip((0, 3, 6), coming, strict=True))
    assert drifting.builds == 3


def test_stale_lists_resume_in_the_middle_of_an_interval():
    drifting, resumed = Drifting(), Drifting()
    lists = drifting.lists()
    expected = steps_of(lists, drifting, range(5))
    state = {name: tensor.clone() for name, tensor in lists.state().items()}
    again = resumed.lists()
    again.set_state(state)
    np.testing.assert_array_equal(steps_of(again, resumed, [4])[0], expected[4])
    assert resumed.calls == [] and drifting.calls[-1][0] == 3
    assert steps_of(again, resumed, [6]) and resumed.calls[0][0] == 6


def test_lists_that_are_seldom_asked_for_are_fetched_for_those_steps_alone():
    drifting = Drifting()
    found = steps_of(drifting.lists(every=2), drifting, [0, 2, 4])
    np.testing.assert_array_equal(found[1], expected_lists(2, 0))
    assert drifting.calls[0][1] == sorted({*queries_of(0), *queries_of(2)})
    assert drifting.calls[1] == (4, sorted(queries_of(4)))


def test_stale_negatives_have_the_lists_for_their_state_and_count_their_seconds():
    sampler, resumed = make_stale(judged()), make_stale(judged())
    expected = [sampler.batch(step).documents.tolist() for step in range(3)]
    resumed.set_state(sampler.state())
    resumed._stale.inputs = None
    assert resumed.batch(2).documents.tolist() == expected[2]
    assert set(sampler.clock.seconds) == {"sampling", "encoding corpus", "encoding queries", "search"}


def retrieved(scores, relevant, n, skip=0):
    """The batch of one query whose documents have these scores: rows and targets."""
    vectors = np.array(scores, dtype=np.float32)[:, None]
    queries = TokenTable.from_rows([[0]])
    task = LabelledQueries(queries, TokenTable.from_rows([relevant]), vectors)
    opened = samplers.retrieved(task, 1, 0, index.build("Exact", vectors), n, skip).batch(0)
    batch = opened.close(np.ones((1, 1), dtype=np.float32))
    return batch.documents[:, 0].tolist(), batch.targets[0].tolist()


def test_the_best_n_are_retrieved_and_all_relevant_ones_among_them_are_positives():
    assert retrieved([1, 5, 3, 4, 2], [3, 2, 0], n=4) == ([5, 4, 3, 2], [0, 1, 1, 0])
    assert retrieved([1, 5, 3, 4, 2], [0], n=3) == ([5, 4, 1], [0, 0, 1])  # none: the last is replaced
    assert retrieved([1, 5, 3], [0], n=50) == ([5, 3, 1], [0, 0, 1])  # n is cut to the number of documents


def test_what_is_skipped_is_ignored_unless_it_is_relevant():
    assert retrieved([1, 5, 3, 4, 2], [3, 2], n=5, skip=2) == ([5, 4, 3, 2, 1], [-1, 1, 1, 0, 0])
    assert retrieved([1, 5, 3, 4, 2], [0], n=4, skip=2) == ([5, 4, 3, 1], [-1, -1, 0, 1])
    for skip in (-1, 3):
        with pytest.raises(SettingError, match=f"skip = {skip} of n = 4"):
            retrieved([1, 5, 3, 4, 2], [0], n=4, skip=skip)


@pytest.mark.parametrize(
    ("rows", "expected"), [([8, -1, -1], [0, -1, 1]), ([-1, -1, -1], [-1, -1, 1]), ([3, -1, -1], [1, -1, -1])]
)
def test_places_that_a_search_leaves_empty_are_ignored(rows, expected):
    few = SimpleNamespace(search=lambda queries, k: (None, np.tile(rows, (len(queries), 1))))
    for texts in (False, True):
        task = judged(texts, relevant=[[3]] * len(RELEVANT))
        batch = closed(samplers.retrieved(task, *COMMON, few, 3), 0)
        assert batch.targets.tolist() == [expected] * BATCH


def test_encodings_that_are_no_numbers_are_an_error():
    batch = SAMPLERS["retrieved"](judged()).batch(7)
    with pytest.raises(RetlibError, match="step 7.*learning rate"):
        batch.close(np.array([[np.nan, 1, 1]] + [[1] * 3] * (BATCH - 1), dtype=np.float32))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: samplers.random(judged(), *COMMON, 0), "n = 0"),
        (lambda: samplers.stale_lists(judged(), *COMMON, encode, None, 0, 4), "interval"),
        (lambda: samplers.retrieved(judged(), *COMMON, index.build("Exact", VECTORS), 1), "n = 1 .*at least 2"),
        (lambda: samplers.bm25(judged(), *COMMON, 1, LISTS + 1).batch(0), "from -1 to 8"),
    ],
)
def test_what_cannot_be_is_an_error(make, match):
    with pytest.raises(RetlibError, match=match):
        make()


ROWS = st.lists(st.integers(-1, 7), min_size=3, max_size=3)
RELEVANTS = st.lists(st.integers(0, 7), min_size=1, max_size=7, unique=True)


@given(
    st.lists(RELEVANTS, min_size=6, max_size=6), st.lists(st.tuples(st.integers(0, 5), ROWS), min_size=1),
    st.lists(st.integers(-1, 7), min_size=6, max_size=6), st.lists(st.integers(0, 7), min_size=8, max_size=8),
)  # fmt: skip
def test_hits_and_what_is_no_negative_are_those_of_a_look_at_every_pair(relevant, looks, own, texts):
    def spares(query, row):
        return row >= 0 and texts[row] in {texts[other] for other in (*relevant[query], own[query]) if other >= 0}

    given = TokenTable.from_rows([[0]] * 6), TokenTable.from_rows(relevant), np.zeros((8, 1), dtype=np.float32)
    if any(all(spares(query, row) for row in range(8)) for query in range(6)):
        with pytest.raises(DataError, match="has no negative"):
            LabelledQueries(*given, np.array(own), np.array(texts))
        return
    task = LabelledQueries(*given, np.array(own), np.array(texts))
    queries, rows = np.array([query for query, _ in looks]), np.array([rows for _, rows in looks])
    assert task.hits(queries, rows).tolist() == [[row in relevant[query] for row in rows] for query, rows in looks]
    assert task.non_negatives(queries, rows).tolist() == [[spares(query, row) for row in rows] for query, rows in looks]
    for (query, given), listed in zip(looks, task.candidates(queries, rows).tolist(), strict=True):
        kept = [row for row in given if row in relevant[query] or not spares(query, row)]
        assert listed == kept + [-1] * (3 - len(kept))


def test_options_have_defaults_and_are_checked(monkeypatch):
    assert negatives.options("bm25", {"n": 3}) == {"n": 3, "depth": 200}
    with pytest.raises(SettingError, match="depth, n"):
        negatives.options("bm25", {"width": 3})
    monkeypatch.setattr(negatives.NEGATIVES, "get", lambda name: lambda inputs, n, depth=3: None)
    assert negatives.options("mine", {"n": 2}) == {"n": 2, "depth": 3}
    with pytest.raises(SettingError, match="'mine'.* n"):
        negatives.options("mine", {"depth": 4})


def test_options_that_are_not_told_are_the_papers():
    """Zhan 2020, section 4.2; ANCE."""
    names = negatives.NEGATIVES.names()
    assert {name: given for name in names if (given := negatives.options(name, {}))} == {
        "ann": {"n": 1, "depth": 200, "interval": 200}, "bm25": {"n": 1, "depth": 200}, "random": {"n": 1},
        "bm25+random": {"n": 2, "depth": 200}, "retrieved": {"n": 50, "skip": 0},
        "in-batch": {"mask_known": True, "corrected": False},
    }  # fmt: skip
