import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError, SettingError
from retlib.data.text import Vocabulary, words
from retlib.models import wordvectors
from retlib.models.wordvectors import AveragedVectors, WordVectors

CAT, DOG, BIRD = [3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]
THREE = WordVectors(Vocabulary.of(("cat", "dog", "bird")), np.array([[0, 0], CAT, DOG, BIRD], dtype=np.float32))
SENTENCES = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog sat"] * 5


def entries(vectors):
    return {word: vectors.matrix[i].tolist() for i, word in enumerate(vectors.vocabulary.tokens[1:], start=1)}


def test_the_mean_of_known_words_at_length_one():
    encoded = AveragedVectors(THREE).encode(["Cat", "cat, unheard of!", "dog bird dog", "nothing", ""])
    expected = np.array([[0.6, 0.8], [0.6, 0.8], [-1 / 17**0.5, 4 / 17**0.5], [0, 0], [0, 0]])
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)


def test_words_that_cancel_out_give_zero():
    opposite = WordVectors(Vocabulary.of(("up", "down")), np.array([[0, 0], [1, 2], [-1, -2]], dtype=np.float32))
    assert AveragedVectors(opposite).encode(["up down"]).tolist() == [[0, 0]]


def test_idf_by_hand():
    # Of 3 texts, 2 have "cat" (one of them twice) and 1 has "dog"; none has "bird".
    texts = ["cat cat dog", "cat", "fish"]
    idf = wordvectors.inverse_document_frequency(THREE.vocabulary, texts)
    np.testing.assert_allclose(idf[1:], np.log([4 / 3, 4 / 2, 4 / 1]), rtol=1e-6)
    mean = np.log(4 / 3) * np.array(CAT) + np.log(4 / 2) * np.array(DOG)
    encoded = AveragedVectors(THREE, idf_texts=texts).encode(["cat dog fish"])
    np.testing.assert_allclose(encoded[0], mean / np.linalg.norm(mean), rtol=1e-6)


some_words = st.lists(st.sampled_from(["cat", "dog", "bird", "fish", "?"]), max_size=7).map(" ".join)


@given(st.lists(some_words), st.booleans())
def test_encoding_is_the_slow_mean(texts, weighted):
    model = AveragedVectors(THREE, idf_texts=texts + ["cat"] if weighted else None)
    encoded = model.encode(texts)
    assert encoded.shape == (len(texts), 2)
    ids = THREE.vocabulary.ids
    for text, row in zip(texts, encoded, strict=True):
        total = np.zeros(2)
        for word in words(text):
            if word in ids:
                total += float(model.weights[ids[word]]) * THREE.matrix[ids[word]]
        length = np.linalg.norm(total)
        np.testing.assert_allclose(row, total / length if length > 1e-6 else total, atol=1e-5)


def test_training_learns_which_words_are_alike(monkeypatch):
    monkeypatch.setattr(wordvectors, "DIMENSION", 16)  # which so few words need
    # "red" and "blue" stand in the same places, "runs" in another.
    texts = [f"the {color} {thing} is {color}" for color in ("red", "blue") for thing in ("car", "hat", "door", "cup")]
    vectors = wordvectors.train([*texts, "he runs home", "she runs away", "runs runs"] * 30, epochs=10)
    red, blue, runs = AveragedVectors(vectors).encode(["red", "blue", "runs"])
    assert vectors.matrix.shape == (len(vectors.vocabulary), 16) and not vectors.matrix[0].any()
    assert red @ blue > red @ runs + 0.1


def test_training_is_the_same_bit_for_bit_in_every_process():
    code = f"""
import hashlib
from retlib.models import wordvectors
vectors = wordvectors.train(iter({SENTENCES!r}), seed=5)
print(hashlib.sha256(vectors.matrix.tobytes()).hexdigest(), *vectors.vocabulary.tokens[1:])
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }  # fmt: skip
    assert len(seen) == 1


@pytest.mark.parametrize("texts", [[], ["", "..."], ["every word once"]])
def test_training_needs_words(texts):
    with pytest.raises(DataError, match="no word occurs 2 times"):
        wordvectors.train(texts)
    with pytest.raises(SettingError, match="epochs = 0"):
        wordvectors.train(SENTENCES, epochs=0)


def test_saved_vectors_come_back(tmp_path):
    vectors = wordvectors.train(["naïve cats", "naïve dogs"])
    vectors.save(tmp_path / "vectors")
    back = WordVectors.load(tmp_path / "vectors")
    assert back.vocabulary == vectors.vocabulary
    np.testing.assert_array_equal(back.matrix, vectors.matrix)
