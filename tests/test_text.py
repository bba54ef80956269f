"""Words, sentences, token tables and vocabularies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.errors import DataError
from retlib.text import TokenTable, Vocabulary, sentences, words

tables = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do I learn C++, quickly?", ["how", "do", "i", "learn", "c", "quickly"]),
        ("Don't stop; it’s 3.5 km", ["don't", "stop", "it’s", "3", "5", "km"]),
        ("the 'quoted' word", ["the", "quoted", "word"]),
        ("Élan vital, naïve ÜBER", ["élan", "vital", "naïve", "über"]),
        ("np.array(foo_bar)", ["np", "array", "foo_bar"]),
        ("?!…", []),
        ("", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text())
def test_words_are_lowercase_without_space_or_punctuation(text):
    for word in words(text):
        assert word and not any(character.isspace() for character in word)
        assert words(word) == [word]


def test_sentences_are_exact():
    text = "I can't see Dr. Smith. Is well-known foo_bar 3.5 percent? See numpy.array.\n\nA new paragraph"
    assert sentences(text) == [
        "I can't see Dr. Smith.",
        "Is well-known foo_bar 3.5 percent?",
        "See numpy.array.",
        "A new paragraph",
    ]
    assert sentences("") == []


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
    assert built.words == ("a", "b", "c", "d")
    assert len(built) == 5  # and the unknown word


def test_a_vocabulary_can_be_cut_by_count_and_size():
    texts = ["b a d", "a B c", "a"]
    assert Vocabulary.build(texts, min_count=2).words == ("a", "b")
    assert Vocabulary.build(texts, max_size=3).words == ("a", "b", "c")


def test_encode_knows_its_words_and_gives_zero_to_others():
    table = Vocabulary(("a", "b")).encode(["B a zzz", "?!", ""])
    assert [table.row(i).tolist() for i in range(3)] == [[2, 1, 0], [0], [0]]


def test_a_vocabulary_of_nothing_is_an_error():
    with pytest.raises(DataError, match="no word"):
        Vocabulary.build(["?!", ""])
    with pytest.raises(DataError, match="no word"):
        Vocabulary.build(["once"], min_count=2)
