"""Words, token tables, vocabularies and sub-word tokens."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.data.text import TokenTable, Vocabulary, WordPiece, concatenate, words

tables = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


def rows(table):
    assert table.ids.dtype == np.int32 and table.offsets.dtype == np.int64
    return [table.row(i).tolist() for i in range(len(table))]


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


@given(tables, st.data())
def test_a_table_gives_back_its_rows_and_runs_of_them(lists, data):
    table = TokenTable.from_rows(lists)
    assert rows(table) == lists and table.lengths.tolist() == [len(row) for row in lists]
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=10)) if lists else []
    assert rows(table.take(chosen)) == [lists[i] for i in chosen]
    stops = [data.draw(st.integers(i, len(lists))) for i in chosen]
    taken = table.take(chosen, np.array(stops, dtype=int))
    assert rows(taken) == [sum(lists[i:stop], []) for i, stop in zip(chosen, stops, strict=True)]


@given(tables, st.integers(0, 99))
def test_a_table_of_what_is_kept_has_a_token_of_every_text(lists, seed):
    table = TokenTable.from_rows(lists)
    kept = np.random.default_rng(seed).random(len(table.ids)) < 0.5
    marks = np.split(kept, table.offsets[1:-1])
    expected = [[row[i] for i in range(len(row)) if i == 0 or mark[i]] for row, mark in zip(lists, marks, strict=False)]
    assert rows(table.where(kept)) == expected


@given(tables, st.none() | st.integers(0, 12), st.data())
def test_tables_side_by_side_are_the_rows_one_after_the_other_cut(lists, limit, data):
    other = st.lists(st.lists(st.integers(100, 199), max_size=5), min_size=len(lists), max_size=len(lists))
    parts = data.draw(st.lists(st.integers(0, 9) | other, max_size=3))
    columns = [[[part]] * len(lists) if isinstance(part, int) else part for part in parts]
    tables = [part if isinstance(part, int) else TokenTable.from_rows(part) for part in parts]
    expected = [sum(each, [])[:limit] for each in zip(lists, *columns, strict=True)]
    assert rows(concatenate([TokenTable.from_rows(lists), *tables], limit)) == expected


def test_a_vocabulary_orders_by_count_then_word_and_gives_zero_to_others():
    built = Vocabulary.build(["b a d", "a B c", "a"])
    assert built.tokens == ("[UNK]", "a", "b", "c", "d") and len(built) == 5
    assert Vocabulary.build(["b a d", "a B c", "a"], max_size=3) == Vocabulary.of("abc")
    with pytest.raises(DataError):
        Vocabulary.build(["?!", ""])
    texts = ["B a zzz", "?!", ""]
    assert rows(built.encode(texts)) == [[2, 1, 0], [0], [0]] and rows(built.encode(texts, 2))[0] == [2, 1]


# --- sub-word tokens --------------------------------------------------------------------------------

PROSE = [
    "Return the sum of the array elements over the given axis.",
    "The returned array has the same shape as the given one, élan and naïveté aside.",
    "Compute the discrete Fourier transform; see also the inverse transform (ifft2).",
    "An array-like object: 3.5 elements, 日本 and Ünïcode.",
    "summing, summed, sums; transformed, transforming and transforms",
]
TRAIN = "from retlib.data.text import WordPiece; print(ascii(WordPiece.train({texts!a}, 160).tokens))"


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece.train(PROSE, 160)


@pytest.mark.parametrize(("seed", "parallel"), [("1", "false"), ("2", "true")])
def test_the_same_texts_give_the_same_tokens_in_every_process(wordpiece, seed, parallel):
    # Ties among pairs of tokens abound in so few texts.
    environment = {"PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": parallel, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = [sys.executable, "-c", TRAIN.format(texts=PROSE)]
    ended = subprocess.run(script, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ascii(wordpiece.tokens)


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
    assert [wordpiece.decode(row) for row in rows(table)] == ["summing arrays transformed", "elan"]
    assert wordpiece.ids["[UNK]"] not in table.ids


def test_a_vocabulary_of_tokens_is_read_as_it_was_written(wordpiece, tmp_path):
    wordpiece.save(tmp_path / "vocab.txt")
    assert WordPiece.load(tmp_path / "vocab.txt") == wordpiece
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:5] == list(WordPiece.SPECIAL)


@pytest.fixture(scope="module")
def bert(wordpiece):
    """BERT's own tokenizer over the same tokens."""
    from transformers import BertTokenizerFast

    found = BertTokenizerFast(vocab=wordpiece.ids, do_lower_case=True)
    return lambda text: found(text, add_special_tokens=False)["input_ids"] or [found.unk_token_id]


def test_tokens_are_those_of_berts_tokenizer(wordpiece, bert):
    texts = [*PROSE, *(" ".join(text.split()[::-1]) for text in PROSE), "a" * 99, "s" * 101, "日本語", "don't\tstop\n"]
    assert rows(wordpiece.encode(texts)) == list(map(bert, texts))


@given(st.lists(st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_tokens_are_those_of_berts_tokenizer_for_any_text(wordpiece, bert, texts):
    assert rows(wordpiece.encode(texts)) == list(map(bert, texts))


def test_a_marker_that_is_written_out_is_text_and_a_text_without_tokens_one_unknown_token(wordpiece):
    found = wordpiece.encode(["[SEP] [MASK] [PAD]"]).ids
    assert not {wordpiece.sep, wordpiece.mask, wordpiece.pad} & set(found.tolist())
    assert rows(wordpiece.encode(["", " \n", "☃", "\x00"])) == [[wordpiece.ids["[UNK]"]]] * 4
    assert len(wordpiece.encode([])) == 0


def test_more_texts_than_are_tokenized_at_once(wordpiece):
    assert rows(wordpiece.encode(iter(PROSE * 900))) == rows(wordpiece.encode(PROSE)) * 900


@pytest.mark.parametrize("missing", WordPiece.SPECIAL)
def test_a_missing_special_token_is_named(missing, tmp_path):
    left = [token for token in WordPiece.SPECIAL if token != missing]
    (tmp_path / "vocab.txt").write_text("\n".join([*left, "a"]) + "\n")
    for file, named in (("vocab.txt", missing[1:-1]), ("gone.txt", "gone.txt")):
        with pytest.raises(DataError, match=named):
            WordPiece.load(tmp_path / file)


def test_rare_letters_become_unknown(monkeypatch):
    monkeypatch.setattr("retlib.data.text.LETTERS", 3)
    found = WordPiece.train(["aaaa bbb cc d", "ab ca"], 100)
    assert {"a", "b", "c"} <= set(found.tokens) and "d" not in found.ids
    assert rows(found.encode(["d"])) == [[found.ids["[UNK]"]]]
