"""Which pairs a step sees, and which documents they are held against."""

import numpy as np
import pytest
import samplers
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError, SettingError
from retlib.data.text import TokenTable
from retlib.data.tokenized import Pairs, rows_of_step
from retlib.models.encoders import BagOfWords, DualEncoder
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.training.tasks import RetrievalTask


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


def test_what_a_sampler_cannot_be_made_of_is_an_error():
    for size in (0, -5):
        with pytest.raises(SettingError, match=f"batch_size = {size}"):
            samplers.in_batch(pairs_of(10), size, seed=0)
    with pytest.raises(DataError):
        samplers.in_batch(pairs_of(0), 4, seed=0)
    with pytest.raises(DataError, match="labelled"):
        samplers.labelled(pairs_of(4), 2, seed=0).batch(0)
    for option, needs in (("mask_known", "groups"), ("corrected", "log_shares")):
        with pytest.raises(SettingError, match=needs):
            samplers.in_batch(pairs_of(4), 2, seed=0, **{option: True}).batch(0)


def test_in_batch_puts_each_query_against_the_documents_of_all():
    batch = samplers.in_batch(pairs_of(9), 4, seed=1).batch(step=1)
    rows = rows_of_step(9, 4, 1, 1)
    assert batch.shared
    assert [batch.queries.row(i).tolist() for i in range(4)] == [[row] for row in rows]
    assert [batch.documents.row(i).tolist() for i in range(4)] == [[100 + row, 7] for row in rows]
    assert batch.targets.tolist() == np.where(np.eye(4), POSITIVE, NEGATIVE).tolist()


def test_mask_known_changes_with_the_rows_of_each_batch():
    groups, texts = np.arange(6) // 2, np.array([0, 1, 2, 0, 1, 5])  # copies of a text are in other groups, too
    sampler = samplers.in_batch(pairs_of(6, groups=groups, texts=texts), 3, seed=0, mask_known=True)
    for step in range(6):
        rows = rows_of_step(6, 3, 0, step)
        known = (groups[rows][:, None] == groups[rows]) | (texts[rows][:, None] == texts[rows])
        expected = torch.from_numpy(np.where(np.eye(3), POSITIVE, np.where(known, IGNORE, NEGATIVE)))
        assert (sampler.batch(step).targets == expected).all()


def test_labelled_gives_each_query_its_own_document_and_label():
    labels = np.array([1, 0, 0, 1, 1])
    batch = samplers.labelled(pairs_of(5, labels=labels), 3, seed=4).batch(1)
    rows = rows_of_step(5, 3, 4, 1)
    assert not batch.shared
    assert batch.targets.dtype == torch.int8
    assert batch.targets.tolist() == [[label] for label in labels[rows]]
    assert [row for i in range(3) for row in batch.queries.row(i)] == rows.tolist()
    assert [batch.documents.row(i)[0] - 100 for i in range(3)] == rows.tolist()


def test_a_corrected_batch_has_the_shares_of_its_documents():
    pairs = pairs_of(9, log_shares=np.log(np.arange(1, 10) / 45).astype(np.float32))
    batch = samplers.in_batch(pairs, 4, seed=1, corrected=True).batch(1)
    assert batch.log_shares.dtype == torch.float32
    assert batch.log_shares.tolist() == pairs.log_shares[rows_of_step(9, 4, 1, 1)].tolist()
    assert samplers.in_batch(pairs, 4, seed=1).batch(1).log_shares is None


def test_a_corrected_loss_by_hand():
    encoder = BagOfWords(4, 1)
    encoder.weight.data = torch.tensor([[1.0], [2.0], [3.0], [0.5]])
    queries, documents = TokenTable.from_rows([[0], [1]]), TokenTable.from_rows([[2], [3]])
    pairs = Pairs(queries, documents, log_shares=np.log([0.9, 0.1]).astype(np.float32))
    sampler = samplers.in_batch(pairs, 2, seed=0, corrected=True)
    task = RetrievalTask(DualEncoder(encoder, similarity="dot"), sampler, "softmax")
    # Scores are 3 and 0.5 of the first query, 6 and 1 of the second; each document's log share is taken away.
    scores = np.array([[3, 0.5], [6, 1]]) - np.log([0.9, 0.1])
    expected = np.mean([np.log(np.exp(row).sum()) - row[own] for own, row in enumerate(scores)])
    assert task.loss(sampler.batch(0)).item() == pytest.approx(expected, abs=1e-6)


DOCUMENTS = 40


def bias(batch_size, corrected, mask_known, batches=250):
    """How far the mean gradient of many batches is from that of the softmax over all documents, relatively."""
    counts = np.maximum(1, np.round(100 / np.arange(1, DOCUMENTS + 1))).astype(int)  # from 100 pairs to 2
    own = np.repeat(np.arange(DOCUMENTS), counts)
    asked = np.random.default_rng(0).integers(DOCUMENTS, DOCUMENTS + 12, len(own))
    queries, documents = (TokenTable.from_rows(values[:, None].tolist()) for values in (asked, own))
    pairs = Pairs(queries, documents, groups=own, log_shares=np.log(counts[own] / len(own)).astype(np.float32))
    torch.manual_seed(0)
    encoder = BagOfWords(DOCUMENTS + 12, 8)
    model = DualEncoder(encoder, similarity="dot")
    model.alpha.data.fill_(3.0)

    every = TokenTable.from_rows(np.arange(DOCUMENTS)[:, None].tolist())
    F.cross_entropy(model.score(model.queries(queries), model.documents(every)), torch.from_numpy(own)).backward()
    full, encoder.weight.grad = encoder.weight.grad, None

    sampler = samplers.in_batch(pairs, batch_size, 0, mask_known, corrected)
    task = RetrievalTask(model, sampler, "softmax")
    for step in range(batches):
        (task.loss(sampler.batch(step)) / batches).backward()
    return ((encoder.weight.grad - full).norm() / full.norm()).item()


@pytest.mark.parametrize("mask_known", [True, False])
def test_the_correction_takes_most_of_the_bias_of_in_batch_sampling(mask_known):
    # Documents come into a batch as often as into the pairs, the first fifty times as often as the last.
    plain = bias(64, corrected=False, mask_known=mask_known)
    assert plain > 0.4
    assert bias(64, corrected=True, mask_known=mask_known) < plain / 4
