import gzip
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


def test_a_word_in_every_text_weighs_nothing():
    encoded = AveragedVectors(THREE, idf_texts=["cat dog", "cat bird"]).encode(["cat", "cat dog"])
    np.testing.assert_allclose(encoded, [[0, 0], [0, 1]], atol=1e-7)


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


def test_settings_change_what_is_learned():
    base = wordvectors.train(SENTENCES).matrix
    for change in ({"seed": 1}, {"epochs": 6}):
        other = wordvectors.train(SENTENCES, **change).matrix
        assert other.shape == base.shape and not np.array_equal(other, base), change


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


def test_passes_must_be_positive():
    with pytest.raises(SettingError, match="epochs = 0"):
        wordvectors.train(SENTENCES, epochs=0)


@pytest.mark.parametrize("texts", [[], ["", "..."], ["every word once"]])
def test_training_needs_words(texts):
    with pytest.raises(DataError, match="no word occurs 2 times"):
        wordvectors.train(texts)


def test_saved_vectors_come_back(tmp_path):
    vectors = wordvectors.train(["naïve cats", "naïve dogs"])
    vectors.save(tmp_path / "vectors")
    back = wordvectors.load(tmp_path / "vectors")
    assert back.vocabulary == vectors.vocabulary
    np.testing.assert_array_equal(back.matrix, vectors.matrix)


GLOVE = "cat 3 4\n. . 0.5 -1\nDog 0 2e0\ncat 9 9\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", GLOVE),
        ("glove.vec", "4 2\n" + GLOVE),
        ("spaced.txt", GLOVE.replace("\n", " \n")),
        ("windows.txt", GLOVE.replace("\n", "\r\n")),
        ("glove.txt.gz", GLOVE),
    ],
)
def test_text_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    vectors = wordvectors.load(path)
    assert entries(vectors) == {"cat": [3, 4], ". .": [0.5, -1], "Dog": [0, 2]}
    assert vectors.matrix.dtype == np.float32 and not vectors.matrix[0].any()


def binary(separator=b"", header=b"2 2\n", compress=False):
    rows = [(b"caf\xc3\xa9", CAT), (b"dog", DOG)]
    content = header + b"".join(word + b" " + np.array(v, "<f4").tobytes() + separator for word, v in rows)
    return gzip.compress(content, mtime=0) if compress else content


@pytest.mark.parametrize(
    ("name", "content"),
    [("w.bin", binary()), ("w.bin", binary(separator=b"\n")), ("w.bin.gz", binary(compress=True))],
)
def test_binary_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert entries(wordvectors.load(tmp_path / name)) == {"café": CAT, "dog": DOG}


@pytest.mark.parametrize("suffix", ["bin", "txt"])
def test_files_that_gensim_writes(tmp_path, suffix):
    from gensim.models import KeyedVectors

    theirs = KeyedVectors(2)
    theirs.add_vectors(["cat", "dog"], np.array([CAT, DOG], dtype=np.float32))
    theirs.save_word2vec_format(tmp_path / f"w.{suffix}", binary=suffix == "bin")
    assert entries(wordvectors.load(tmp_path / f"w.{suffix}")) == {"cat": CAT, "dog": DOG}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("short.txt", b"cat 3 4\ndog 1\n", "short.txt, line 2: expected a word and 2 numbers; found 'dog 1"),
        ("short.txt", b"2 2\ncat 3 4\ndog 1\n", "line 3: expected a word and 2 numbers"),
        ("letters.txt", b"cat 3 4\ndog 1 two\n", "line 2: expected a word and 2 numbers"),
        ("nan.txt", b"cat 3 4\ndog 1 nan\n", "line 2: expected a word and 2 numbers"),
        ("blank.txt", b"cat 3 4\n\ndog 1 2\n", "line 2: expected a word and 2 numbers"),
        ("cut.txt", b"3 2\ncat 3 4\ndog 1 2\n", "line 1 promises 3 words, but 2 follow"),
        ("empty.txt", b"", "line 1: expected a word and its numbers"),
        ("prose.txt", b"hello\n", "line 1: expected a word and its numbers"),
        ("text.bin", GLOVE.encode(), "text.bin is damaged, or no file of word vectors"),
        ("cut.bin", binary()[:-3], "cut.bin is damaged"),
        ("cut.bin", binary(header=b"3 2\n"), "cut.bin is damaged"),
        ("plain.txt.gz", GLOVE.encode(), "plain.txt.gz is damaged"),
        ("cut.txt.gz", gzip.compress(GLOVE.encode() * 99, mtime=0)[:-20], "cut.txt.gz is damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        wordvectors.load(tmp_path / name)


def test_an_absent_file(tmp_path):
    with pytest.raises(DataError, match="no word vectors at .*nowhere.txt"):
        wordvectors.load(tmp_path / "nowhere.txt")
