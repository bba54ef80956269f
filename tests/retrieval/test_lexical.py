import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retlib.core.errors import DataError, SettingError
from retlib.data.text import words
from retlib.retrieval.lexical import BM25, RM3, STEMMED, Identity, TfIdf

DOCUMENTS = ["The cat sat.", "A dog sat on the cat", "birds sing", "the cat sat", ""]


def bm25_scores(system, documents, query):
    """The formula, read aloud: one document and one query word after the other."""
    counts = [Counter(words(text)) for text in documents]
    total, mean = len(documents), sum(map(Counter.total, counts)) / len(documents)
    scores = np.zeros(total)
    for word in words(query):
        df = sum(word in count for count in counts)
        idf = math.log(1 + (total - df + 0.5) / (df + 0.5))
        for row, count in enumerate(counts):
            saturation = system.k1 * (1 - system.b + system.b * count.total() / mean)
            scores[row] += idf * count[word] / (count[word] + saturation) if count[word] else 0
    return scores


texts = st.lists(st.sampled_from("ABCDefgh"), max_size=6).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(texts, min_size=1, max_size=12).filter(lambda documents: any(documents)),
    texts,
    st.integers(1, 15),
    st.sampled_from([0.0, 0.9, 2.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_bm25_is_its_formula(documents, query, k, k1, b):
    system = BM25(k1=k1, b=b).fit(documents)
    scores, rows = system.search([query], k)
    expected = bm25_scores(system, documents, query)
    count = min(k, int((expected > 1e-9).sum()))
    assert (rows[0, count:] == -1).all() and (scores[0, count:] == -np.inf).all()
    assert len(set(rows[0, :count])) == count
    np.testing.assert_allclose(scores[0, :count], np.sort(expected)[::-1][:count], rtol=1e-4)
    np.testing.assert_allclose(scores[0, :count], expected[rows[0, :count]], rtol=1e-4)


def test_bm25_and_tfidf_by_hand():
    # Three documents of mean length 2; "cat" stands in two of them, twice in the first.
    scores, rows = BM25(k1=1.0, b=0.5).fit(["cat cat dog", "cat", "dog bird"]).search(["CAT!"], 3)
    idf = math.log(1 + 1.5 / 2.5)
    assert rows.tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(scores[0, :2], [idf * 2 / (2 + 1.25), idf * 1 / (1 + 0.75)], rtol=1e-6)
    scores, rows = TfIdf().fit(["cat dog", "cat cat", "bird"]).search(["dog"], 2)
    cat, dog = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    assert rows.tolist() == [[0, -1]]
    assert scores[0, 0] == pytest.approx(dog / math.hypot(cat, dog), rel=1e-6)


@pytest.mark.parametrize("system", [BM25(), TfIdf()])
def test_equal_scores_come_in_the_order_of_rows_and_more_results_than_documents_are_none(system):
    system.fit(["x", "cat", "y cat", "cat"] + ["cat"] * 500)
    scores, rows = system.search(["cat", "cat", "", "unheard of"], 300)
    assert rows[0].tolist() == [1, *range(3, 302)]
    assert (rows[1] == rows[0]).all() and len(set(scores[0])) == 1
    scores, rows = system.search(["x", "", "unheard of"], 600)
    assert rows.tolist() == [[0] + [-1] * 599, *[[-1] * 600] * 2]
    assert scores.dtype == np.float32 and rows.dtype == np.int64 and np.isneginf(scores[rows == -1]).all()


def test_stop_words_and_stems():
    documents = ["the running of horses", "what the"]
    assert BM25().fit(documents).search(["horse"], 1)[1].tolist() == [[-1]]
    assert BM25(stemmer="english").fit(documents).search(["horse runs"], 1)[1].tolist() == [[0]]
    assert BM25(stop_words="english").fit(documents).search(["the"], 1)[1].tolist() == [[-1]]


def test_identity_returns_the_first_equal_text():
    system = Identity().fit(["b", "a", "a", "A"])
    scores, rows = system.search(["a", "A", "c"], 2)
    assert rows.tolist() == [[1, -1], [3, -1], [-1, -1]]
    assert scores.tolist() == [[1.0, -np.inf], [1.0, -np.inf], [-np.inf, -np.inf]]


@pytest.mark.parametrize("system", [Identity(), TfIdf(), BM25(**STEMMED), RM3()], ids=lambda each: type(each).__name__)
def test_what_all_have_in_common(system):
    kind, name = type(system), type(system).__name__
    assert json.loads(json.dumps(system.settings))["system"] == name
    assert system.fit(DOCUMENTS).search([], 4)[1].shape == (0, 4)
    together, queries = system.search(["cat", "dog", "sat birds"], 3), ("cat", "dog", "sat birds")
    apart = [np.concatenate(part) for part in zip(*(system.search([each], 3) for each in queries), strict=True)]
    assert all(np.array_equal(one, other) for one, other in zip(together, apart, strict=True))
    with pytest.raises(SettingError):
        system.search(["cat"], 0)
    for empty in ([], ["", "..."], ["", "...", "the"])[: {"Identity": 1, "TfIdf": 2}.get(name, 3)]:
        with pytest.raises(DataError, match=name):
            (replace(system, **STEMMED) if len(empty) == 3 else kind()).fit(empty)


@pytest.mark.parametrize(
    ("name", "value"),
    [("k1", -0.1), ("b", 1.5), ("stop_words", "french"), ("stemmer", "englsh"), ("fb_docs", 0), ("fb_terms", 0)]
    + [("original_weight", 1.5), ("common", -0.1)],
)
def test_settings_that_cannot_be_are_named(name, value):
    with pytest.raises(SettingError, match=name):
        RM3(**{name: value})


# --- RM3, against a slow reference that reads its formula aloud, and by hand -----------------------

PLAIN = {"fb_docs": 2, "fb_terms": 3, "common": 1.0}


def slow_scores(documents, query, system):
    """The score of every document, from dictionaries."""
    bm25 = BM25().fit(documents)
    order, frequency = list(bm25._ids), Counter(word for text in documents for word in set(words(text)))
    useful = {w for w in frequency if len(w) >= 2 and frequency[w] <= system.common * len(documents)}
    model, weights = Counter(), Counter()
    for score, row in zip(*(part[0] for part in bm25.search([query], system.fb_docs)), strict=True):
        terms = [word for word in words(documents[row]) if word in useful] if row >= 0 else []
        for word in terms:
            model[word] += score / len(terms)
    best = sorted(model, key=lambda word: (-round(model[word], 4), order.index(word)))[: system.fb_terms]
    own = [word for word in words(query) if word in frequency]
    for word in own:
        weights[word] += system.original_weight / len(own)
    for word in best:
        weights[word] += (1 - system.original_weight) * model[word] / sum(model[w] for w in best)
    table = bm25._weights.toarray()  # BM25's weight of each word in each document
    return sum((weight * table[order.index(word)] for word, weight in weights.items()), np.zeros(len(documents)))


feedback_texts = st.lists(st.sampled_from("aa bb cc dd ee ff gg h".split()), max_size=7).map(" ".join)


@settings(max_examples=40)
@given(
    st.lists(feedback_texts, min_size=1, max_size=9).filter(any),
    feedback_texts,
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
MILK = ["cat purr", "cat milk milk purr", "purr milk", "bird"]


def test_the_expanded_query_by_hand():
    system = RM3(**{**PLAIN, "fb_terms": 2}).fit(MILK)
    first, second = BM25().fit(MILK).search(["cat"], 2)[0][0]
    # P(w|R) before it sums to one: cat and purr half of the first and a quarter of the second, milk half of the second.
    model = np.array([first / 2 + second / 4, first / 2 + second / 4])
    assert model[0] > second / 2
    expected = 0.5 * np.array([1, 0]) + 0.5 * model / model.sum()
    found = dict(zip(system._ids, system._queries(["cat"]).toarray()[0], strict=True))
    assert found == pytest.approx({"cat": expected[0], "purr": expected[1], "milk": 0, "bird": 0}, rel=1e-5)


def test_common_terms_short_ones_and_signs_expand_no_query():
    documents = ["cat the x don't köln aa", "the bird", "the dog", "the end", "the fish"]
    system = RM3(common=0.2).fit(documents)
    expanded = dict(zip(system._ids, system._queries(["cat"]).toarray()[0] > 0, strict=True))
    assert {term for term, chosen in expanded.items() if chosen} == {"cat", "aa"}


def test_no_more_terms_and_documents_than_asked_for():
    documents = ["cat aa bb cc cc", "cat dd dd ee ee ff gg hh"]
    for terms, expected in ((1, ["cat", "cc"]), (2, ["cat", "cc"]), (3, ["cat", "aa", "cc"])):
        system = RM3(fb_docs=1, fb_terms=terms, common=1.0).fit(documents)
        chosen = np.array(list(system._ids))[system._queries(["cat"]).toarray()[0] > 0]
        assert chosen.tolist() == expected  # the most probable, and of equally probable ones the first


def test_a_run_of_texts_under_their_ids():
    texts, queries = pd.Series(MILK, index=[*"abcd"]), pd.Series(["cat", "bird", "unheard of", ""], index=[*"pqrs"])
    run = RM3(**PLAIN).rank(texts, queries, depth=3)  # of which the third document has no word of the query
    assert run.groupby("query_id")["doc_id"].agg("".join).to_dict() == {"p": "abc", "q": "d"}
