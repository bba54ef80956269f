import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.data.text import words
from retlib.retrieval.lexical import BM25, BM25_METHODS, Identity, TfIdf

DOCUMENTS = ["The cat sat.", "A dog sat on the cat", "birds sing", "the cat sat", ""]


def bm25_scores(system, documents, query):
    """The formula, read aloud: one document and one query word after the other."""
    counts = [Counter(words(text)) for text in documents]
    lengths = [sum(count.values()) for count in counts]
    total, mean = len(documents), sum(lengths) / len(documents)
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        score = 0.0
        for word in words(query):
            df = sum(word in other for other in counts)
            if not count[word]:
                continue
            idf = {
                "lucene": math.log(1 + (total - df + 0.5) / (df + 0.5)),
                "robertson": max(0.0, math.log((total - df + 0.5) / (df + 0.5))),
                "atire": math.log(total / df) * (system.k1 + 1),
            }[system.method]
            score += idf * count[word] / (count[word] + system.k1 * (1 - system.b + system.b * length / mean))
        scores.append(score)
    return np.array(scores)


texts = st.lists(st.sampled_from("ABCDefgh"), max_size=6).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(texts, min_size=1, max_size=12).filter(lambda documents: any(documents)),
    texts,
    st.integers(1, 15),
    st.sampled_from(BM25_METHODS),
    st.sampled_from([0.0, 0.9, 2.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_bm25_is_its_formula(documents, query, k, method, k1, b):
    system = BM25(k1=k1, b=b, method=method).fit(documents)
    scores, rows = system.search([query], k)
    expected = bm25_scores(system, documents, query)
    count = min(k, int((expected > 1e-9).sum()))
    assert (rows[0, count:] == -1).all() and (scores[0, count:] == -np.inf).all()
    assert len(set(rows[0, :count])) == count
    np.testing.assert_allclose(scores[0, :count], np.sort(expected)[::-1][:count], rtol=1e-4)
    np.testing.assert_allclose(scores[0, :count], expected[rows[0, :count]], rtol=1e-4)


def test_bm25_by_hand():
    # Three documents of mean length 2; "cat" stands in two of them, twice in the first.
    scores, rows = BM25(k1=1.0, b=0.5).fit(["cat cat dog", "cat", "dog bird"]).search(["CAT!"], 3)
    idf = math.log(1 + 1.5 / 2.5)
    assert rows.tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(scores[0, :2], [idf * 2 / (2 + 1.25), idf * 1 / (1 + 0.75)], rtol=1e-6)


def test_tfidf_by_hand():
    scores, rows = TfIdf().fit(["cat dog", "cat cat", "bird"]).search(["dog"], 2)
    cat, dog = math.log(4 / 3) + 1, math.log(4 / 2) + 1
    assert rows.tolist() == [[0, -1]]
    assert scores[0, 0] == pytest.approx(dog / math.hypot(cat, dog), rel=1e-6)


def test_tfidf_sublinear_damps_repetition():
    documents = ["cat cat cat dog", "dog"]
    (plain,), (damped,) = (TfIdf(sublinear=s).fit(documents).search(["cat"], 1)[0] for s in (False, True))
    assert damped[0] < plain[0]


@pytest.mark.parametrize("system", [BM25(), TfIdf()])
def test_equal_scores_come_in_the_order_of_rows(system):
    system.fit(["x", "cat", "y cat", "cat"] + ["cat"] * 500)
    scores, rows = system.search(["cat"] * 2, 300)
    assert rows[0].tolist() == [1, *range(3, 302)]
    assert (rows[1] == rows[0]).all() and len(set(scores[0])) == 1


@pytest.mark.parametrize("system", [BM25(), TfIdf()])
def test_more_results_than_documents(system):
    scores, rows = system.fit(DOCUMENTS).search(["cat sat", "", "unheard of", "of birds"], 9)
    assert scores.shape == rows.shape == (4, 9)
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    assert set(rows[0]) == {0, 1, 3, -1} and rows[0, :2].tolist() == [0, 3]
    assert (rows[1:3] == -1).all() and rows[3].tolist() == [2] + [-1] * 8
    assert np.isneginf(scores[rows == -1]).all() and (scores[rows >= 0] > 0).all()


@pytest.mark.parametrize("system", [BM25(), TfIdf()])
def test_a_search_leaves_nothing_behind(system):
    system.fit(DOCUMENTS)
    together = system.search(["cat", "dog", "sat birds"], 3)
    apart = [system.search([query], 3) for query in ("cat", "dog", "sat birds")]
    for part, name in enumerate(("scores", "rows")):
        np.testing.assert_array_equal(together[part], np.concatenate([one[part] for one in apart]), name)


def test_a_word_that_the_query_repeats_counts_twice():
    system = BM25().fit(DOCUMENTS)
    once, twice = system.search(["birds"], 1)[0], system.search(["birds birds"], 1)[0]
    assert twice[0, 0] == pytest.approx(2 * once[0, 0])


@pytest.mark.parametrize("kind", [BM25, TfIdf])
def test_stop_words_and_stems(kind):
    documents = ["the running of horses", "what the"]
    assert kind().fit(documents).search(["horse"], 1)[1].tolist() == [[-1]]
    assert kind(stemmer="english").fit(documents).search(["horse runs"], 1)[1].tolist() == [[0]]
    assert kind(stop_words="english").fit(documents).search(["the"], 1)[1].tolist() == [[-1]]


def test_identity_returns_the_first_equal_text():
    system = Identity().fit(["b", "a", "a", "A"])
    scores, rows = system.search(["a", "A", "c"], 2)
    assert rows.tolist() == [[1, -1], [3, -1], [-1, -1]]
    assert scores.tolist() == [[1.0, -np.inf], [1.0, -np.inf], [-np.inf, -np.inf]]


@pytest.mark.parametrize("system", [Identity(), TfIdf(), BM25(method="atire", stemmer="english")])
def test_settings_are_json(system):
    recorded = json.loads(json.dumps(system.settings))
    assert recorded["system"] == type(system).__name__
    assert recorded.get("method", "atire") == "atire"


def test_settings_stay_the_same_after_fitting():
    before = BM25().settings
    assert BM25().fit(DOCUMENTS).settings == before


@pytest.mark.parametrize("system", [Identity(), TfIdf(), BM25()])
def test_no_queries(system):
    scores, rows = system.fit(DOCUMENTS).search([], 4)
    assert scores.shape == rows.shape == (0, 4)


@pytest.mark.parametrize("kind", [Identity, TfIdf, BM25])
def test_what_cannot_be_done_is_said(kind):
    with pytest.raises(DataError, match="no documents"):
        kind().fit([])
    with pytest.raises(RetlibError, match="fitted before"):
        kind().search(["cat"], 1)
    with pytest.raises(SettingError, match="k = 0"):
        kind().fit(DOCUMENTS).search(["cat"], 0)


@pytest.mark.parametrize("system", [TfIdf(), BM25(), BM25(stop_words="english")])
def test_documents_without_words(system):
    empty = ["", "...", "the"] if system.settings["stop_words"] else ["", "..."]
    with pytest.raises(DataError, match=f"no word to index in any of the {len(empty)} documents"):
        system.fit(empty)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"method": "bm26"}, "Valid: atire, lucene, robertson"),
        ({"k1": -0.1}, "k1 = -0.1"),
        ({"b": 1.5}, "b = 1.5"),
        ({"stop_words": "french"}, "Valid: english"),
        ({"stemmer": "englsh"}, "Did you mean 'english'"),
    ],
)
def test_impossible_settings(setting, message):
    with pytest.raises(SettingError, match=message):
        BM25(**setting)
