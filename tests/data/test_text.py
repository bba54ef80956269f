"""Words, sentences, token tables, vocabularies and sub-word tokens."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.data.text import Segment, TokenTable, Vocabulary, WordPiece, concatenate, constant, words

tables = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop; it’s 3.5 km", ["don't", "stop", "it’s", "3", "5", "km"]),
        ("the 'quoted' word", ["the", "quoted", "word"]),
        ("Élan vital, naïve ÜBER", ["élan", "vital", "naïve", "über"]),
        ("np.array(foo_bar)", ["np", "array", "foo_bar"]),
        ("C++?!…", ["c"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(tables)
def test_a_table_gives_back_its_rows(rows):
    table = TokenTable.from_rows(rows)
    assert len(table) == len(rows)
    assert [table.row(i).tolist() for i in range(len(rows))] == rows
    assert table.lengths.tolist() == [len(row) for row in rows]
    assert table.ids.dtype == np.int32 and table.offsets.dtype == np.int64


@given(tables.filter(len), st.data())
def test_take_is_the_table_of_the_rows_taken(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    taken = TokenTable.from_rows(rows).take(np.array(chosen, dtype=int))
    expected = TokenTable.from_rows([rows[i] for i in chosen])
    assert taken.ids.tolist() == expected.ids.tolist()
    assert taken.offsets.tolist() == expected.offsets.tolist()
    assert taken.ids.dtype == np.int32


def test_a_vocabulary_orders_by_count_then_word():
    built = Vocabulary.build(["b a d", "a B c", "a"])
    assert built.tokens == ("[UNK]", "a", "b", "c", "d") and len(built) == 5
    assert Vocabulary.build(["b a d", "a B c", "a"], max_size=3) == Vocabulary.of("abc")
    with pytest.raises(DataError, match="word"):
        Vocabulary.build(["?!", ""])


def test_encode_knows_its_words_and_gives_zero_to_others():
    table = Vocabulary.of(("a", "b")).encode(["B a zzz", "?!", ""])
    assert [table.row(i).tolist() for i in range(3)] == [[2, 1, 0], [0], [0]]


@given(tables, st.integers(0, 12), st.data())
def test_segments_side_by_side_are_the_rows_one_after_the_other_cut(rows, limit, data):
    others = st.lists(st.lists(st.integers(100, 199), max_size=5), min_size=len(rows), max_size=len(rows))
    parts = [rows, *data.draw(st.lists(others, max_size=3))]
    joined = concatenate([TokenTable.from_rows(part).segment for part in parts], limit)
    expected = [sum(found, [])[:limit] for found in zip(*parts, strict=True)]
    assert [joined.row(i).tolist() for i in range(len(joined))] == expected
    assert joined.ids.dtype == np.int32 and joined.offsets.dtype == np.int64


def test_segments_are_runs_of_rows_and_constants():
    table = TokenTable.from_rows([[1, 2, 3], [4, 5], [6]])
    middle = Segment(table.ids, np.array([1, 3, 0]), np.array([2, 0, 1]))
    joined = concatenate([middle, constant(9, 3), table.segment], 5)
    assert [joined.row(i).tolist() for i in range(3)] == [[2, 3, 9, 1, 2], [9, 4, 5], [1, 9, 6]]


# --- sub-word tokens --------------------------------------------------------------------------------

PROSE = [
    "Return the sum of the array elements over the given axis.",
    "The returned array has the same shape as the given one, élan and naïveté aside.",
    "Compute the discrete Fourier transform; see also the inverse transform (ifft2).",
    "An array-like object: 3.5 elements, 日本 and Ünïcode.",
    "summing, summed, sums; transformed, transforming and transforms",
]

TRAIN = """
import hashlib
from retlib.data.text import WordPiece
tokens = WordPiece.train({texts!r}, 160).tokens
print(hashlib.sha256("\\n".join(tokens).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece.train(PROSE, 160)


def rows(table):
    return [table.row(i).tolist() for i in range(len(table))]


def test_the_same_texts_give_the_same_tokens_in_every_process(wordpiece):
    # The words of the texts in another order are other texts; ties among pairs of tokens abound in so few.
    digests = {hashlib.sha256("\n".join(wordpiece.tokens).encode()).hexdigest()}
    for seed, parallel in (("1", "false"), ("2", "true")):
        environment = {"PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": parallel}
        script = [sys.executable, "-c", TRAIN.format(texts=PROSE)]
        environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(script, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        digests.add(ended.stdout.strip())
    assert len(digests) == 1


def test_tokens_are_the_special_ones_letters_and_what_was_learned(wordpiece):
    assert wordpiece.tokens[:5] == WordPiece.SPECIAL
    assert len(wordpiece) == len(set(wordpiece.tokens)) == 160
    assert (wordpiece.pad, wordpiece.cls, wordpiece.sep, wordpiece.mask) == (0, 2, 3, 4)
    # Every letter of the texts, at the beginning of a word and within one; longer ones were learned.
    letters = {letter for text in PROSE for letter in text.lower() if letter.isascii() and not letter.isspace()}
    assert all(letter in wordpiece.ids and f"##{letter}" in wordpiece.ids for letter in letters)
    assert max(len(token.removeprefix("##")) for token in wordpiece.tokens[5:]) > 3


def test_tokens_give_back_the_text_lowercased_and_without_accents(wordpiece):
    table = wordpiece.encode(["Summing ARRAYS transformed", "élan"])
    assert [wordpiece.decode(table.row(i)) for i in range(2)] == ["summing arrays transformed", "elan"]
    assert wordpiece.ids["[UNK]"] not in table.ids
    assert table.ids.dtype == np.int32 and table.offsets.dtype == np.int64


def test_a_vocabulary_of_tokens_is_read_as_it_was_written(wordpiece, tmp_path):
    wordpiece.save(tmp_path / "vocab.txt")
    again = WordPiece.load(tmp_path / "vocab.txt")
    assert again == wordpiece
    assert rows(again.encode(PROSE)) == rows(wordpiece.encode(PROSE))
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:5] == list(WordPiece.SPECIAL)


@pytest.fixture(scope="module")
def bert(wordpiece, tmp_path_factory):
    """BERT's own tokenizer over the same tokens."""
    from transformers import BertTokenizerFast

    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    wordpiece.save(path)
    found = BertTokenizerFast(vocab=str(path), do_lower_case=True)
    assert found.get_vocab() == wordpiece.ids
    return found


def expected_rows(bert, texts):
    return [bert(text, add_special_tokens=False)["input_ids"] or [bert.unk_token_id] for text in texts]


def test_tokens_are_those_of_berts_tokenizer(wordpiece, bert):
    texts = [*PROSE, *(" ".join(text.split()[::-1]) for text in PROSE), "a" * 99, "s" * 101, "日本語", "don't\tstop\n"]
    assert rows(wordpiece.encode(texts)) == expected_rows(bert, texts)


@given(st.lists(st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_tokens_are_those_of_berts_tokenizer_for_any_text(wordpiece, bert, texts):
    assert rows(wordpiece.encode(texts)) == expected_rows(bert, texts)


def test_a_marker_that_is_written_out_is_text_and_no_marker(wordpiece):
    found = wordpiece.encode(["[SEP] [MASK] [PAD]"]).ids
    assert not {wordpiece.sep, wordpiece.mask, wordpiece.pad} & set(found.tolist())


def test_a_text_without_tokens_becomes_one_unknown_token(wordpiece):
    unknown = wordpiece.ids["[UNK]"]
    assert rows(wordpiece.encode(["", " \n", "☃", "\x00"])) == [[unknown]] * 4
    assert len(wordpiece.encode([])) == 0


def test_more_texts_than_are_tokenized_at_once(wordpiece):
    many = PROSE * 900
    table = wordpiece.encode(iter(many))
    assert len(table) == 4500
    assert rows(table) == rows(wordpiece.encode(PROSE)) * 900


@pytest.mark.parametrize("missing", WordPiece.SPECIAL)
def test_a_missing_special_token_is_named(missing, tmp_path):
    left = [token for token in WordPiece.SPECIAL if token != missing]
    (tmp_path / "vocab.txt").write_text("\n".join([*left, "a"]) + "\n")
    with pytest.raises(DataError, match=rf"\['\[{missing[1:-1]}\]'\]"):
        WordPiece.load(tmp_path / "vocab.txt")
    with pytest.raises(DataError, match="gone.txt"):
        WordPiece.load(tmp_path / "gone.txt")


def test_rare_letters_become_unknown(monkeypatch):
    monkeypatch.setattr("retlib.data.text.LETTERS", 3)
    found = WordPiece.train(["aaaa bbb cc d", "ab ca"], 100)
    assert {"a", "b", "c"} <= set(found.tokens) and "d" not in found.ids
    assert rows(found.encode(["d"])) == [[found.ids["[UNK]"]]]


@given(rows=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6), seed=st.integers(0, 99))
def test_a_table_of_what_is_kept_has_a_token_of_every_text(rows, seed):
    table = TokenTable.from_rows(rows)
    kept = np.random.default_rng(seed).random(len(table.ids)) < 0.5
    marks = np.split(kept, table.offsets[1:-1]) if rows else []
    expected = [
        [token for place, token in enumerate(row) if place == 0 or marks[number][place]]
        for number, row in enumerate(rows)
    ]
    found = table.where(kept)
    assert [found.row(i).tolist() for i in range(len(rows))] == expected
