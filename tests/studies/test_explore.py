"""The explorer: what is listed, marked and shown, on a slice of the embedded documentation."""

import ltre_slice
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from retlib.core.errors import SettingError
from retlib.data.text import words
from retlib.studies import explore
from retlib.studies.explore import Desk, marked, side_by_side
from retlib.systems import ltre

NEURAL = "BM25 Neg"


@pytest.fixture(scope="module")
def desk():
    study = ltre_slice.study()
    return Desk(study, study.tested_on[0], ["BM25", NEURAL], seed=1)


@pytest.fixture(scope="module")
def question(desk):
    return desk.questions(1)[0]


@pytest.fixture(scope="module")
def lists(desk, question):
    return desk.lists(question, 4)


def test_questions_are_test_questions_and_the_same_whenever_asked(desk):
    assert desk.questions(3) == desk.questions(5)[:3]
    assert set(desk.questions(3)) <= set(desk.collection.split("test")["text"])


def test_lists_are_those_of_the_systems_runs(desk, question, lists):
    retriever, ranking = desk.study.retriever(NEURAL, 1), desk.study.part(desk.collection)
    run = ltre.rank(retriever, ranking, depth=4)
    mine = run[run["query_id"].map(desk.collection.queries["text"]) == question]
    assert lists["doc_id"][lists["system"] == NEURAL].tolist() == mine["doc_id"].tolist()
    assert lists["rank"][lists["system"] == NEURAL].tolist() == [1, 2, 3, 4]
    found = lists[lists["system"] == "BM25"]
    assert all(set(words(text)) & set(words(question)) for text in found["title"] + " " + found["text"])


def test_relevant_documents_are_known_for_questions_of_the_collection(desk, question):
    query = desk.collection.queries.index[desk.collection.queries["text"] == question][0]
    qrels = desk.collection.qrels
    own = set(qrels["doc_id"][(qrels["query_id"] == query) & (qrels["relevance"] > 0)])
    whole = desk.lists(question, len(desk.collection.documents))
    assert set(whole["doc_id"][whole["relevant"]]) == own != set()
    assert not desk.lists("array", 5)["relevant"].any()


def test_a_system_that_finds_nothing_has_no_rows(desk):
    found = desk.lists("zzzz", 3)
    assert set(found["system"]) == {NEURAL}
    assert "<th>BM25</th>" not in side_by_side("zzzz", found).data


@pytest.mark.parametrize("given", [("?!", 5), ("array", 0)])
def test_what_cannot_be_asked(desk, given):
    with pytest.raises(SettingError):
        desk.lists(*given)


def test_an_unknown_system_is_refused(desk):
    with pytest.raises(SettingError, match="'BM52'.*BM25"):
        Desk(desk.study, desk.collection, ["BM52"])


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("Sum of sums, sum.", {"sum"}, "<mark>Sum</mark> of sums, <mark>sum</mark>."),
        ("a <b> & it's", {"b", "it's"}, "a &lt;<mark>b</mark>&gt; &amp; <mark>it&#x27;s</mark>"),
        ("", {"a"}, ""),
        ("no word", set(), "no word"),
    ],
)
def test_words_are_marked_and_markup_is_shown_as_text(text, asked, expected):
    assert marked(text, asked) == expected


def listed(*rows):
    return pd.DataFrame(rows, columns=["system", "rank", "doc_id", "title", "text", "relevant"])


def test_systems_stand_side_by_side_in_their_order():
    long = "word " * 100
    lists = listed(
        ("Z", 1, "d1", "<i>", "the sum", True), ("Z", 2, "d2", "", long, False), ("A", 1, "d2", "", "sum", False)
    )
    page = BeautifulSoup(side_by_side("<sum>", lists).data, "html.parser")
    assert page.p.text == "<sum>"
    assert [cell.text for cell in page.select("thead th")] == ["rank", "Z", "A"]
    first, second = ([cell.text for cell in row.select("td")] for row in page.select("tbody tr"))
    assert first == ["1", "✓ <i> the sum", "sum"] and second[2] == ""
    assert second[1].endswith("word …") and len(second[1]) <= explore.LETTERS + 2
    assert len(page.select("mark")) == 2


def test_agreement_is_the_share_that_bm25_lists_for_the_same_question():
    rows = [("BM25", 1, "d1"), ("BM25", 2, "d2"), ("A", 1, "d2"), ("A", 2, "d3")]
    one = listed(*((*row, "", "", False) for row in rows)).assign(question="one")
    two = listed(("A", 1, "d1", "", "", False)).assign(question="two")
    assert explore.agreement(one).to_dict() == {"A": 0.5}
    assert explore.agreement(pd.concat([one, two])).to_dict() == {"A": pytest.approx(1 / 3)}
    assert explore.agreement(two).empty


def test_the_explorer_answers_what_is_typed(desk):
    box = explore.explorer(desk, depth=2)
    (field, chosen), page = box.children[0].children, box.children[1]
    assert NEURAL in page.value and "<th>BM25</th>" in page.value
    chosen.value = (NEURAL,)
    field.value = "mean of an array"
    assert "<strong>mean of an array</strong>" in page.value and "<th>BM25</th>" not in page.value
    field.value = "..."
    assert "of one word at least" in page.value
    chosen.value, field.value = ("BM25",), "zzzz"
    assert page.value == "Nothing was found."
    chosen.value = ()
    assert "choose a system" in page.value


def test_the_slider_goes_over_the_steps_of_the_map(monkeypatch):
    drawn = []
    monkeypatch.setattr(explore.ltre_figures, "paths", lambda documents, queries, relevant: drawn.append(queries))
    steps = np.repeat([0, 10, 20], 2)
    corpus = pd.DataFrame({"what": "query", "query": ["a", "b"] * 3, "step": steps, "x": 0.0, "y": 0.0})
    slider = explore.walk(corpus).children[0]
    assert slider.options == (0, 10, 20) and slider.value == 20
    slider.value = 10
    assert drawn[-1]["step"].max() == 10 and len(drawn[-1]) == 4
