"""RM3 against a slow reference that reads its formula aloud, and by hand."""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.data.text import words
from retlib.retrieval.feedback import RM3
from retlib.retrieval.lexical import BM25

PLAIN = {"fb_docs": 2, "fb_terms": 3, "common": 1.0}


def bm25_weights(documents, word):
    """BM25's weight of one word in each document."""
    scores, rows = BM25().fit(documents).search([word], len(documents))
    weights = np.zeros(len(documents))
    weights[rows[rows >= 0]] = scores[rows >= 0]
    return weights


def slow_scores(documents, query, system):
    """The score of every document, from dictionaries."""
    frequency = Counter(word for text in documents for word in set(words(text)))
    order = list(dict.fromkeys(word for text in documents for word in words(text)))
    useful = {w for w in frequency if len(w) >= 2 and frequency[w] <= system.common * len(documents)}
    scores, rows = BM25().fit(documents).search([query], system.fb_docs)
    model = Counter()
    for score, row in zip(scores[0], rows[0], strict=True):
        kept = [word for word in words(documents[row]) if word in useful] if row >= 0 else []
        for word in kept:
            model[word] += score / len(kept)
    best = sorted(model, key=lambda word: (-round(model[word], 4), order.index(word)))[: system.fb_terms]
    known = [word for word in words(query) if word in frequency]
    weights = Counter()
    for word in known:
        weights[word] += system.original_weight / len(known)
    for word in best:
        weights[word] += (1 - system.original_weight) * model[word] / sum(model[w] for w in best)
    return sum((weight * bm25_weights(documents, word) for word, weight in weights.items()), np.zeros(len(documents)))


texts = st.lists(st.sampled_from("aa bb cc dd ee ff gg h".split()), max_size=7).map(" ".join)


@settings(max_examples=40)
@given(
    st.lists(texts, min_size=1, max_size=9).filter(any),
    texts,
    st.builds(
        RM3,
        fb_docs=st.integers(1, 4),
        fb_terms=st.just(20),  # all, so that no tie decides which
        original_weight=st.sampled_from([0.0, 0.5, 1.0]),
        common=st.sampled_from([0.3, 1.0]),
    ),
)
def test_rm3_is_its_formula(documents, query, system):
    scores, rows = system.fit(documents).search([query], len(documents))
    found = np.zeros(len(documents))
    found[rows[rows >= 0]] = scores[rows >= 0]
    np.testing.assert_allclose(found, slow_scores(documents, query, system), rtol=1e-4, atol=1e-6)


# "cat" finds the first two alone, of which the first, shorter one scores higher.
DOCUMENTS = ["cat purr", "cat milk milk purr", "purr milk", "bird"]


def test_a_document_without_the_querys_words_is_found():
    assert BM25().fit(DOCUMENTS).search(["cat"], 4)[1].tolist() == [[0, 1, -1, -1]]
    assert RM3(**PLAIN).fit(DOCUMENTS).search(["cat"], 4)[1].tolist() == [[0, 1, 2, -1]]


def test_the_expanded_query_by_hand():
    system = RM3(**{**PLAIN, "fb_terms": 2}).fit(DOCUMENTS)
    first, second = BM25().fit(DOCUMENTS).search(["cat"], 2)[0][0]
    # P(w|R) before it sums to one: cat and purr half of the first and a quarter of the second, milk half of the second.
    model = np.array([first / 2 + second / 4, first / 2 + second / 4])
    assert model[0] > second / 2
    expected = 0.5 * np.array([1, 0]) + 0.5 * model / model.sum()
    found = dict(zip(system._ids, system._expanded(["cat"]).toarray()[0], strict=True))
    assert found == pytest.approx({"cat": expected[0], "purr": expected[1], "milk": 0, "bird": 0}, rel=1e-5)


def test_the_original_query_alone_ranks_as_bm25_does():
    system, plain = RM3(original_weight=1.0).fit(DOCUMENTS), BM25().fit(DOCUMENTS)
    queries = ["cat milk", "bird bird purr", "cat"]
    (scores, rows), (expected, expected_rows) = (one.search(queries, 4) for one in (system, plain))
    assert (rows == expected_rows).all()
    lengths = np.array([[2], [3], [1]])
    np.testing.assert_allclose(scores, expected / lengths, rtol=1e-5)


def test_common_terms_short_ones_and_signs_expand_no_query():
    documents = ["cat the x don't köln aa", "the bird", "the dog", "the end", "the fish"]
    system = RM3(common=0.2).fit(documents)
    expanded = dict(zip(system._ids, system._expanded(["cat"]).toarray()[0] > 0, strict=True))
    assert {term for term, chosen in expanded.items() if chosen} == {"cat", "aa"}


def test_no_more_terms_and_documents_than_asked_for():
    documents = ["cat aa bb cc cc", "cat dd dd ee ee ff gg hh"]
    for terms, expected in ((1, ["cat", "cc"]), (2, ["cat", "cc"]), (3, ["cat", "aa", "cc"])):
        system = RM3(fb_docs=1, fb_terms=terms, common=1.0).fit(documents)
        chosen = np.array(list(system._ids))[system._expanded(["cat"]).toarray()[0] > 0]
        assert chosen.tolist() == expected  # the most probable, and of equally probable ones the first


def test_a_query_that_finds_nothing_finds_nothing():
    scores, rows = RM3(**PLAIN).fit(DOCUMENTS).search(["unheard of", "", "cat"], 2)
    assert (rows[:2] == -1).all() and np.isneginf(scores[:2]).all() and rows[2].tolist() == [0, 1]


def test_documents_with_nothing_to_expand_by_leave_bm25s_ranking():
    system = RM3(common=0.0).fit(DOCUMENTS)
    assert system.search(["cat milk"], 4)[1].tolist() == BM25().fit(DOCUMENTS).search(["cat milk"], 4)[1].tolist()


def test_it_is_a_lexical_system():
    run = RM3(**PLAIN).rank(
        pd.Series(DOCUMENTS, index=["a", "b", "c", "d"]), pd.Series(["cat", "bird"], index=["p", "q"]), depth=3
    )
    assert run.groupby("query_id")["doc_id"].apply(list).to_dict() == {"p": ["a", "b", "c"], "q": ["d"]}
    recorded = json.loads(json.dumps(RM3(stemmer="english").settings))
    assert recorded["system"] == "RM3" and recorded["fb_terms"] == 10 and recorded["stemmer"] == "english"
    with pytest.raises(RetlibError, match="RM3 must be fitted"):
        RM3().search(["cat"], 1)
    with pytest.raises(DataError, match="RM3: there is no word"):
        RM3().fit(["", "!"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fb_docs": 0}, "fb_docs = 0"),
        ({"fb_terms": 0}, "fb_terms = 0"),
        ({"original_weight": 1.5}, "original_weight = 1.5 is not between"),
        ({"common": -0.1}, "common = -0.1 is not between"),
        ({"b": 2.0}, "b = 2.0"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        RM3(**changes)
