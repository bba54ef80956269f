"""BART's noise: what is kept, what is hidden, and how much."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import SettingError
from retlib.data.collection import Article
from retlib.data.corpus import Corpus
from retlib.data.text import WordPiece
from retlib.training.denoising import SHARE, NoisedPassages, infilled, permuted

LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl"))
MASK = LETTERS.mask


@pytest.fixture(scope="module")
def corpus():
    passages = "a b. c d e. f", "g h i j k l a b c d. e f", "k"
    return Corpus.build([Article("one", "", passages, 1)], LETTERS, lambda text: text.split("."))


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_what_is_left_keeps_its_order_and_a_mask_fills_each_hole(length, seed):
    units = np.arange(100, 100 + length)
    found = infilled(units, MASK, np.random.default_rng(seed))
    kept = found[found != MASK]
    assert np.array_equal(kept, np.sort(kept)) and set(kept) <= set(units)
    assert MASK in found and len(kept) >= length - max(1, round(SHARE * length))
    # Between two units that stand side by side nothing is missing.
    places = np.flatnonzero(found != MASK)
    beside = np.diff(places) == 1
    assert (np.diff(found[places])[beside] == 1).all()
    edges = [found[0] == MASK or found[0] == 100, found[-1] == MASK or found[-1] == 99 + length]
    assert all(edges)


def test_so_much_is_hidden_in_runs_of_the_mean_length():
    rng = np.random.default_rng(0)
    found = [infilled(np.arange(100, 200), MASK, rng) for _ in range(300)]
    hidden = np.mean([100 - (row != MASK).sum() for row in found])
    masks = np.mean([(row == MASK).sum() for row in found])
    assert 22 < hidden <= 30
    # Runs of three on average, those of none among them; the last of a passage is cut.
    assert 2.3 < hidden / masks < 3.3


def test_sentences_are_permuted_whole():
    sentences = [np.array([1, 2]), np.array([3]), np.array([4, 5, 6])]
    found = {tuple(permuted(sentences, np.random.default_rng(seed))) for seed in range(60)}
    assert len(found) == 6 and (4, 5, 6, 3, 1, 2) in found


def test_what_is_to_be_written_is_the_passage(corpus):
    source = NoisedPassages(corpus, MASK, length=8)
    batch = source.draw(3, 50, seed=0)
    assert len(source) == len(batch) == 3  # never more than there are
    found = {LETTERS.decode(batch.queries.row(i)) for i in range(3)}
    assert found <= {"a b c d e f", "g h i j k l a b", "k"}
    for i in range(3):
        assert set(batch.documents.row(i)) - {MASK} <= set(batch.queries.row(i))
        assert MASK in batch.documents.row(i) and len(batch.documents.row(i)) <= 8


def test_a_step_has_its_own_noise(corpus):
    source = NoisedPassages(corpus, MASK, length=8)
    one, again, other = (source.draw(step, 3, seed=0) for step in (1, 1, 2))
    assert np.array_equal(one.documents.ids, again.documents.ids)
    assert not np.array_equal(one.documents.ids, other.documents.ids)


def test_a_length_of_nothing_is_named(corpus):
    with pytest.raises(SettingError, match="length = 0"):
        NoisedPassages(corpus, MASK, 0)
