"""Runs: their order, what a question's own document does to them, their files; fusion."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from letters import listed as written

from retlib.core.errors import DataError
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.retrieval.runs import combined, make_run, places, question_search, result_list, write_qrels, write_trec


def test_a_run_orders_ties_by_document_and_leaves_empty_places_out():
    scores = np.array([[0.5, 0.5, 0.5, 0.2], [0.9, 0.1, -np.inf, -np.inf]], dtype=np.float32)
    rows = np.array([[2, 0, 1, 3], [1, 3, -1, -1]])
    run = make_run(["q1", "q0"], ["c", "b", "a", "q1"], scores, rows)
    assert run["query_id"].tolist() == ["q1"] * 4 + ["q0"] * 2
    assert run["doc_id"].tolist() == ["a", "b", "c", "q1", "b", "q1"]
    assert run["score"].tolist() == pytest.approx([0.5, 0.5, 0.5, 0.2, 0.9, 0.1])


def documents(*rows):
    return pd.DataFrame(rows, columns=["id", "title", "text"]).set_index("id")


# Questions under an id and with the text of a document: as it is, behind its title, decomposed; judged relevant to
# itself; and two by accident, of which one has the other's text.
PAIRS = [*zip("abcdef", ["", "B", "", "", "", ""], ["one", "two", "caf\u00e9 ", "four", "five", "x"], strict=True)]
ASKED = {"a": "one", "b": "B two", "c": "cafe\u0301", "d": "four", "e": "x", "g": "one"}
QUESTIONS = pd.DataFrame({"text": ASKED, "split": "test"})
QRELS = pd.DataFrame([("d", "d", 1), ("a", "a", 0), ("b", "a", 1)], columns=["query_id", "doc_id", "relevance"])


def test_a_question_s_own_document_leaves_its_list_unless_it_is_judged_relevant(capsys):
    collection = Collection("mine", documents(*PAIRS), QUESTIONS, QRELS)
    assert collection.own_documents.tolist() == ["a", "b", "c"]
    assert "3 questions of mine are documents of it" in capsys.readouterr().err
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 3], [3, 1, 0], [4, 5, 0], [0, 1, 2]])

    def run_of(collection, orders):
        scores = np.tile([3.0, 2.0, 1.0], (len(orders), 1))
        search = question_search(collection, lambda _, k: (scores[:, :k], orders[:, :k]))
        return make_run(collection.queries.index, collection.documents.index, *search(collection.queries, 2))

    found = run_of(collection, orders).groupby("query_id", sort=False)["doc_id"].agg("".join).to_dict()
    assert found == {"a": "bc", "b": "ac", "c": "ba", "d": "db", "e": "ef", "g": "ab"}
    judged = Collection("judged", documents(*PAIRS), QUESTIONS[3:], QRELS[:1])
    lists = run_of(judged, orders[3:]).groupby("query_id")["doc_id"].agg("".join)
    assert lists.to_dict() == {"d": "db", "e": "ef", "g": "ab"}


def test_a_list_on_screen_is_the_head_of_the_run():
    """Of equal scores the first by id come first, however the search has them; other forms of letters are one."""
    names = [f"d{number:02}" for number in range(12)][::-1]
    collection = Collection("mine", documents(*((name, "", "one") for name in [*names, "a"])), QUESTIONS, QRELS[2:])
    asked = []

    def search(texts, k):
        asked.extend(texts)
        return np.array([[*[1.0] * 12, 0.5]])[:, :k], np.arange(13)[None, :k]

    answer = question_search(collection, search)

    shown = result_list(collection, "cafe\u0301", 3, answer)
    assert shown["doc_id"].tolist() == ["d00", "d01", "d02"] and shown["rank"].tolist() == [1, 2, 3]
    assert result_list(collection, "B two", 99, answer).query("relevant")["doc_id"].tolist() == ["a"]
    assert result_list(collection, "one", 99, answer)["doc_id"].tolist() == [*names[::-1]]  # the question is document a
    assert result_list(collection, "e\u0301", 1, answer)["title"].tolist() == [""]
    assert asked == ["cafe\u0301", "B two", "one", "\u00e9"]  # a question of the collection as it stands there
    assert answer(pd.DataFrame({"text": ["new"]}, index=["new"]), 3)[1].tolist() == [[2, 1, 0]]  # by id


# --- files -----------------------------------------------------------------------------------------


@given(
    scores=st.lists(st.lists(st.sampled_from([-1.5, -1e-45, 0.0, 1e-45, 0.5, 0.5 + 2**-24]), max_size=9), max_size=4),
    seed=st.integers(0, 99),
)
@settings(max_examples=50)
def test_others_measure_the_files_as_the_run_is_measured_here(tmp_path_factory, scores, seed):
    """Equal scores, and those next to one another, have here the order of ids, and elsewhere another."""
    import ir_measures

    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("trec")
    documents = pd.Index([f'd"{number}' for number in range(12)])
    table, rows = np.full((len(scores), 9), -np.inf), np.full((len(scores), 9), -1)
    for place, found in enumerate(scores):
        table[place, : len(found)], rows[place, : len(found)] = sorted(found)[::-1], rng.permutation(12)[: len(found)]
    run = make_run([f"q{number}" for number in range(len(scores))], documents, table, rows)
    qrels = pd.DataFrame([(f"q{q}", name, int(rng.integers(3))) for q in range(4) for name in documents[::2]])
    qrels = qrels.set_axis(["query_id", "doc_id", "relevance"], axis=1)
    names = ["AP@5", "nDCG@5", "RR@10", "P@3", "R@4"]
    ours = measures.evaluate(run, qrels, names)
    write_trec(run, folder / "a.run", "mine")
    write_qrels(qrels, folder / "a.qrels")
    judged = list(ir_measures.read_trec_qrels(str(folder / "a.qrels")))
    listed = list(ir_measures.read_trec_run(str(folder / "a.run")))
    found = ir_measures.iter_calc([ir_measures.parse_measure(name) for name in names], judged, listed)
    theirs = {(value.query_id, str(value.measure)): value.value for value in found}
    for row in ours.itertuples():
        assert theirs.get((row.query_id, row.measure), 0.0) == pytest.approx(row.value, abs=1e-9)
    assert [(each.query_id, each.doc_id) for each in listed] == list(zip(run["query_id"], run["doc_id"], strict=True))
    np.testing.assert_allclose([each.score for each in listed], run["score"], rtol=1e-6, atol=1e-43)


def test_a_run_in_a_file_by_hand(tmp_path):
    assert places(written({"p": "ab", "q": "cab"}).iloc[[2, 0, 3, 1, 4]]).tolist() == [0, 0, 1, 1, 2]
    run = written({"q1": "ba"}).assign(score=[0.5, 0.5])
    write_trec(run, tmp_path / "a.run", "mine")
    assert (tmp_path / "a.run").read_text() == "q1 Q0 b 1 0.5 mine\nq1 Q0 a 2 0.49999997 mine\n"


@pytest.mark.parametrize("changes", [{"query_id": "q 1"}, {"doc_id": ""}, {"doc_id": "a\u2003b"}, {}])
def test_ids_and_tags_that_a_file_would_part_are_refused(tmp_path, changes):
    with pytest.raises(DataError, match=next(iter(changes), "tag")):
        write_trec(written({"q1": "b"}).assign(**changes), tmp_path / "a.run", "mine" if changes else "my tag")


# --- fusion -------------------------------------------------------------------------------------------

# Of each list, documents with their scores.
RANKED = st.lists(st.dictionaries(st.integers(0, 9), st.integers(-4, 4), max_size=6), min_size=1, max_size=4)


def padded(ranked, width=6):
    """A list of one query, best first, as `combined` takes it."""
    order, missing = sorted(ranked, key=lambda row: -ranked[row]), width - len(ranked)
    scores = [float(ranked[row]) for row in order] + [-np.inf] * missing
    return np.array([scores]), np.array([order + [-1] * missing], dtype=np.int64)


def slow(several, weights):
    scores = Counter()
    for ranked, weight in zip(several, weights, strict=True):
        low, high = min(ranked.values(), default=0), max(ranked.values(), default=0)
        for row, score in ranked.items():
            scores[row] += weight * ((score - low) / (high - low) if high > low else 1.0)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def test_lists_are_combined_by_hand():
    # Of the first list the scores are 1, 1/2 and 0 of its range, of the second 1, 3/4 and 0.
    several = [padded({5: 9.0, 7: 8.0, 2: 7.0}), padded({7: 4.0, 9: 3.0, 5: 0.0})]
    scores, rows = combined(several, [1.0, 2.0])
    assert rows.tolist() == [[7, 9, 5, 2, *[-1] * 8]]
    assert scores[0, :4].tolist() == [0.5 + 2.0, 1.5, 1.0, 0.0]


@given(RANKED, st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=4, max_size=4))
def test_as_a_slow_loop(several, weights):
    weights = weights[: len(several)]
    scores, rows = combined([padded(each) for each in several], weights)
    expected, width = slow(several, weights), 6 * len(several)
    count = len(expected)
    assert rows.shape == (1, width) and (rows[0, count:] == -1).all() and np.isneginf(scores[0, count:]).all()
    np.testing.assert_allclose(scores[0, :count], [score for _, score in expected], atol=1e-12)
    # Sums of the same terms in another order may differ in the last bit, and so may the order of ties.
    assert sorted(rows[0, :count]) == sorted(row for row, _ in expected)
    assert (np.diff(scores[0, :count]) <= 0).all()
