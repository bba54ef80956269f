"""Which pairs a step sees, and which documents they are held against."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib.errors import DataError, SettingError
from retlib.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.negatives import InBatch, Labelled, Pairs, rows_of_step
from retlib.text import TokenTable


def pairs_of(count, **extra):
    """Pairs whose query is its number, and whose document is its number and 100 more."""
    queries = TokenTable.from_rows([[i] for i in range(count)])
    return Pairs(queries, TokenTable.from_rows([[100 + i, 7] for i in range(count)]), **extra)


@given(batches=st.integers(1, 6), size=st.integers(1, 7), seed=st.integers(0, 99), epoch=st.integers(0, 5))
def test_an_epoch_holds_each_pair_once(batches, size, seed, epoch):
    count = batches * size
    steps = range(epoch * batches, (epoch + 1) * batches)
    seen = np.concatenate([rows_of_step(count, size, seed, step) for step in steps])
    assert sorted(seen) == list(range(count))


@given(count=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 99), step=st.integers(0, 60))
def test_a_batch_is_full_without_repetition_and_within_the_pairs(count, size, seed, step):
    rows = rows_of_step(count, size, seed, step)
    assert len(rows) == min(size, count) == len(set(rows.tolist()))
    assert rows.min() >= 0 and rows.max() < count


def test_the_last_pairs_of_an_epoch_that_do_not_fill_a_batch_are_left_out():
    first = np.concatenate([rows_of_step(10, 4, 0, step) for step in (0, 1)])
    assert len(set(first.tolist())) == 8
    # The next epoch shuffles again, so that every pair comes round.
    seen = {int(row) for step in range(20) for row in rows_of_step(10, 4, 0, step)}
    assert seen == set(range(10))


def test_rows_depend_on_the_arguments_alone():
    forward = [rows_of_step(50, 8, 3, step).tolist() for step in range(20)]
    np.random.seed(1)  # noqa: NPY002 - the global state must not matter
    backward = [rows_of_step(50, 8, 3, step).tolist() for step in reversed(range(20))]
    assert forward == backward[::-1]
    assert forward != [rows_of_step(50, 8, 4, step).tolist() for step in range(20)]


def test_a_caller_cannot_change_the_order_of_later_steps():
    before = rows_of_step(20, 5, 11, 1).copy()
    with pytest.raises(ValueError, match="read-only"):
        rows_of_step(20, 5, 11, 1)[:] = 0
    assert (rows_of_step(20, 5, 11, 1) == before).all()


@pytest.mark.parametrize("size", [0, -5])
def test_a_batch_size_below_one_is_named(size):
    with pytest.raises(SettingError, match=f"batch_size = {size}"):
        rows_of_step(10, size, 0, 0)


@pytest.mark.parametrize("size", [0, -5])
def test_a_sampler_refuses_a_batch_size_below_one(size):
    with pytest.raises(SettingError, match=f"batch_size = {size}"):
        InBatch(pairs_of(10), size, seed=0).batch(0)


def test_no_pairs_is_an_error_of_the_data():
    with pytest.raises(DataError, match="no training pairs"):
        rows_of_step(0, 4, 0, 0)
    with pytest.raises(DataError, match="no training pairs"):
        InBatch(pairs_of(0), 4, seed=0).batch(0)


def test_in_batch_puts_each_query_against_the_documents_of_all():
    batch = InBatch(pairs_of(9), 4, seed=1).batch(step=1)
    rows = rows_of_step(9, 4, 1, 1)
    assert batch.shared
    assert [batch.queries.row(i).tolist() for i in range(4)] == [[row] for row in rows]
    assert [batch.documents.row(i).tolist() for i in range(4)] == [[100 + row, 7] for row in rows]
    assert batch.targets.tolist() == np.where(np.eye(4), POSITIVE, NEGATIVE).tolist()


def test_a_batch_larger_than_the_data_is_the_data():
    batch = InBatch(pairs_of(3), 1000, seed=0).batch(5)
    assert len(batch.queries) == len(batch.documents) == 3
    assert batch.targets.shape == (3, 3)


def test_mask_known_ignores_other_documents_of_the_group():
    sampler = InBatch(pairs_of(4, groups=np.array([5, 6, 5, 5])), 4, seed=2, mask_known=True)
    rows = rows_of_step(4, 4, 2, 0).tolist()
    targets = sampler.batch(0).targets
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            same = left != 1 and right != 1
            expected = POSITIVE if i == j else IGNORE if same else NEGATIVE
            assert targets[i, j] == expected
    # What one batch masks, the next one has again.
    plain = InBatch(pairs_of(4, groups=np.array([5, 6, 5, 5])), 4, seed=2)
    assert (plain.batch(0).targets == IGNORE).sum() == 0


def test_mask_known_changes_with_the_rows_of_each_batch():
    groups = np.arange(6) // 2
    sampler = InBatch(pairs_of(6, groups=groups), 3, seed=0, mask_known=True)
    for step in range(6):
        rows = rows_of_step(6, 3, 0, step)
        known = groups[rows][:, None] == groups[rows][None, :]
        expected = torch.from_numpy(np.where(np.eye(3), POSITIVE, np.where(known, IGNORE, NEGATIVE)))
        assert (sampler.batch(step).targets == expected).all()


def test_mask_known_without_groups_is_an_error():
    with pytest.raises(SettingError, match="groups"):
        InBatch(pairs_of(4), 2, seed=0, mask_known=True)


def test_labelled_gives_each_query_its_own_document_and_label():
    labels = np.array([1, 0, 0, 1, 1])
    batch = Labelled(pairs_of(5, labels=labels), 3, seed=4).batch(1)
    rows = rows_of_step(5, 3, 4, 1)
    assert not batch.shared
    assert batch.targets.dtype == torch.int8
    assert batch.targets.tolist() == [[label] for label in labels[rows]]
    assert [row for i in range(3) for row in batch.queries.row(i)] == rows.tolist()
    assert [batch.documents.row(i)[0] - 100 for i in range(3)] == rows.tolist()


def test_labelled_needs_labels():
    with pytest.raises(DataError, match="labelled pairs"):
        Labelled(pairs_of(4), 2, seed=0)
