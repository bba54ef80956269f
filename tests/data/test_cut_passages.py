"""Passages of whole sentences: their length, order and boundaries, and which of them are no target's."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.data import passages
from retlib.data.collection import Article, Collection
from retlib.data.text import quick_sentences, words


def sentence(count, mark="."):
    """A sentence of so many words that is told from others by its length."""
    return " ".join(["Word", *(f"w{count}x{place}" for place in range(1, count))]) + mark


def article(name, *paragraphs):
    return Article(name, name.title(), paragraphs, min(1, len(paragraphs)))


def holding(*texts):
    """A collection of these documents."""
    documents = pd.DataFrame({"text": texts}, index=[f"d{place}" for place in range(len(texts))])
    others = (pd.DataFrame(columns=names) for names in (["text", "split"], ["query_id", "doc_id", "relevance"]))
    return Collection("held", documents, *others)


def cut(text, most=100):
    """The passages of one text, of so many words at most."""
    with mock.patch.object(passages, "MOST_WORDS", most):
        return passages.passages([article("a", text)])["text"].tolist()


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [
        ([60, 41, 59], 100, [60, 100]),
        ([3, 250, 3], 100, [3, 100, 100, 53]),
        ([2, 2], 1, [1, 1, 1, 1]),
    ],
)
def test_as_many_sentences_as_fit(lengths, most, expected):
    assert [len(piece.split()) for piece in cut(" ".join(map(sentence, lengths)), most)] == expected


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.integers(1, 40))
def test_no_word_is_lost_and_passages_end_where_sentences_do(lengths, most):
    text = " ".join(map(sentence, lengths))
    found = cut(text, most)
    assert " ".join(found).split() == text.split()
    assert all(1 <= len(piece.split()) <= most for piece in found)
    ends = set(np.cumsum(lengths))
    for before, piece, at in zip(found, found[1:], np.cumsum([len(piece.split()) for piece in found]), strict=False):
        inside = at not in ends
        # Inside a sentence only where the sentence is too long; elsewhere what follows had no place.
        following = quick_sentences(piece)[0].split()
        assert inside <= (max(lengths) > most)
        assert inside or len(before.split()) + len(following) > most


def test_articles_are_cut_across_paragraphs_but_not_across_articles():
    first = article("first", f"{sentence(30)} {sentence(31)}", sentence(32), sentence(33))
    found = passages.passages([first, article("empty"), article("second", sentence(5))])
    assert found.reset_index().to_numpy().tolist() == [
        ["first#0", f"{sentence(30)} {sentence(31)} {sentence(32)}", "First", "first"],
        ["first#1", sentence(33), "First", "first"],
        ["second#0", sentence(5), "Second", "second"],
    ]


@pytest.mark.parametrize("texts", [[[]], [[""]], [[" \n "]], [["One."], ["Two."]]])
def test_articles_without_text_and_articles_of_one_name_are_errors(texts):
    with pytest.raises(DataError):
        passages.passages([article("a", *each) for each in texts])


THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"


@pytest.mark.parametrize(
    ("text", "is_unseen"),
    [
        (THIRTEEN, False),
        (f"Before it {THIRTEEN.title()}; and after.", False),
        (THIRTEEN.removesuffix(" thirteen"), True),
        ("short", True),
    ],
)
def test_a_run_of_thirteen_words_is_a_copy(text, is_unseen):
    found = pd.DataFrame({"text": ["Quite another text.", text]}, index=["a", "b"])
    left = passages.unseen(found, holding("nothing"), holding(f"It begins so: {THIRTEEN}.", "short"))
    assert left.index.tolist() == ["a", "b"][: 1 + is_unseen]


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=40).map(" ".join), min_size=1, max_size=8),
    st.lists(st.lists(st.sampled_from("abc"), max_size=40).map(" ".join), min_size=1, max_size=4),
)
def test_unseen_agrees_with_sets_of_runs(texts, held):
    def runs(text):
        tokens = words(text)
        return {tuple(tokens[i : i + passages.RUN]) for i in range(len(tokens) - passages.RUN + 1)}

    known = set().union(*map(runs, held))
    found = pd.DataFrame({"text": texts}, index=[str(place) for place in range(len(texts))])
    expected = [place for place, text in found["text"].drop_duplicates().items() if not runs(text) & known]
    assert passages.unseen(found, holding(*held)).index.tolist() == expected


def test_a_smaller_sample_is_part_of_a_larger_one():
    found = pd.DataFrame({"text": map(str, range(50))}, index=[f"a#{place}" for place in range(50)])
    small, large = passages.sample(found, 10), passages.sample(found, 30)
    assert len(small) == 10 and len(large) == 30 and set(small.index) < set(large.index)
    assert large.equals(found[found.index.isin(large.index)]) and passages.sample(found, 99).equals(found)
    assert passages.sample(found[::-1], 10)[::-1].equals(small)


def test_no_more_than_three_sentences_of_a_passage_none_short_and_not_always_the_first():
    seven, six = "Here is a sentence of seven words.", "And here is another one."
    found = passages.sentences(pd.Series({"a": f"Short one. {seven} {six}", "b": "I . You ."}))
    # The last one whole on purpose: see the diary, Part III.
    assert found.to_dict() == {"a|1": seven, "a|2": six, "b|0": "I . You ."}
    texts = pd.Series({f"p{i}": " ".join(f"Sentence number {j} has six words." for j in range(9)) for i in range(20)})
    places = passages.sentences(texts).index.str.rpartition("|")
    assert (places.get_level_values(0).value_counts() == 3).all()
    assert set(places.get_level_values(2)) == {str(j) for j in range(9)}


def test_queries_of_sentences_are_their_passage_s_once():
    rows = [("p|0", "who?", -2.0), ("p|0", "what?", -3.0), ("p|2", "who?", -1.0), ("q|r|1", "who?", -4.0)]
    found = passages.of_passages(pd.DataFrame(rows, columns=["passage_id", "query", "log_likelihood"]))
    assert found.to_numpy().tolist() == [["p", "who?", -1.0], ["p", "what?", -3.0], ["q|r", "who?", -4.0]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("He is a musician . It rained . Why ? No !", ["He is a musician.", "It rained.", "Why?", "No!"]),
        ("The U.S. states , by area , are many .", ["The U.S. states , by area , are many."]),
        ("Born in 3.5 months .5 apart", ["Born in 3.5 months .5 apart"]),
    ],
)
def test_sentences_end_at_marks_that_stand_apart_too(text, found):
    assert passages.sentences_of(text) == found
