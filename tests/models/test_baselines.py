"""Averaged word vectors and Skip-Thought: by hand, and against slow references."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from retlib.core.errors import DataError
from retlib.data.text import TokenTable, Vocabulary
from retlib.models import baselines
from retlib.models.baselines import SkipThought, SkipThoughtEncoder, WordVectors

CAT, DOG, BIRD = [3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]
THREE = WordVectors(Vocabulary.of(("cat", "dog", "bird")), np.array([[0, 0], CAT, DOG, BIRD], dtype=np.float32))
SENTENCES = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog sat"] * 5


def test_the_mean_of_known_words_at_length_one():
    encoded = THREE.encode(["Cat", "cat, unheard of!", "dog bird dog", "nothing", ""])
    expected = np.array([[0.6, 0.8], [0.6, 0.8], [-1 / 17**0.5, 4 / 17**0.5], [0, 0], [0, 0]])
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)
    opposite = WordVectors(Vocabulary.of(("up", "down")), np.array([[0, 0], [1, 2], [-1, -2]], dtype=np.float32))
    assert opposite.encode(["up down"]).tolist() == [[0, 0]]


def test_idf_by_hand():
    # Of 3 texts, 2 have "cat" (one of them twice) and 1 has "dog"; none has "bird".
    weighted = THREE.by_idf(["cat cat dog", "cat", "fish"])
    idf = np.log([4 / 3, 4 / 2, 4 / 1])
    np.testing.assert_allclose(weighted.matrix[1:], THREE.matrix[1:] * idf[:, None], rtol=1e-6)
    mean = idf[0] * np.array(CAT) + idf[1] * np.array(DOG)
    encoded = weighted.encode(["cat dog fish"])
    np.testing.assert_allclose(encoded[0], mean / np.linalg.norm(mean), rtol=1e-6)


def test_training_learns_which_words_are_alike(monkeypatch):
    monkeypatch.setattr(baselines, "DIMENSION", 16)  # which so few words need
    # "red" and "blue" stand in the same places, "runs" in another.
    texts = [f"the {color} {thing} is {color}" for color in ("red", "blue") for thing in ("car", "hat", "door", "cup")]
    vectors = baselines.train([*texts, "he runs home", "she runs away", "runs runs"] * 30, epochs=10)
    red, blue, runs = vectors.encode(["red", "blue", "runs"])
    assert vectors.matrix.shape == (len(vectors.vocabulary), 16) and not vectors.matrix[0].any()
    assert red @ blue > red @ runs + 0.1


def test_training_is_the_same_bit_for_bit_in_every_process():
    code = f"""
import hashlib
from retlib.models import baselines
vectors = baselines.train(iter({SENTENCES!r}), seed=5)
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
    with pytest.raises(DataError):
        baselines.train(texts)


def test_saved_vectors_come_back(tmp_path):
    vectors = baselines.train(["naïve cats", "naïve dogs"])
    vectors.save(tmp_path / "vectors")
    back = WordVectors.load(tmp_path / "vectors")
    assert back.vocabulary == vectors.vocabulary
    np.testing.assert_array_equal(back.matrix, vectors.matrix)


ROWS = [[3, 1, 4], [2], [5, 5, 1, 2, 3]]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return SkipThoughtEncoder(6, 8)


def test_a_sentence_s_vector_is_the_state_after_its_own_last_word(encoder):
    together = encoder(TokenTable.from_rows(ROWS))
    assert together.shape == (3, 8)
    for row, vector in zip(ROWS, together, strict=True):
        states, _ = encoder.gru(encoder.embedding(torch.tensor([row])))
        torch.testing.assert_close(vector, states[0, -1])


def test_the_loss_is_that_of_the_words_of_both_neighbours(encoder):
    model = SkipThought(encoder)
    sentence, previous, following = (TokenTable.from_rows([row]) for row in ROWS)

    def by_hand(decoder, row):
        given = torch.cat([torch.zeros(1, 8), encoder.embedding(torch.tensor(row[:-1], dtype=torch.long))])
        hidden, _ = decoder(given[None], encoder(sentence)[None])
        classes = sorted(set(row))
        scores = hidden[0] @ model.output(torch.tensor(classes)).T
        chosen = torch.log_softmax(scores, dim=1)[range(len(row)), [classes.index(word) for word in row]]
        return -chosen.mean()

    expected = (by_hand(model.before, ROWS[1]) + by_hand(model.after, ROWS[2])) / 2
    torch.testing.assert_close(model(sentence, previous, following), expected)
    assert model(sentence, following, previous) != expected
