"""The explorer: what is listed, marked and shown, on a slice of the embedded documentation."""

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from words import SMALL, UNITS, WORDS

from retlib.core.errors import SettingError
from retlib.data.text import words
from retlib.retrieval.lexical import BM25
from retlib.studies import explore
from retlib.studies.explore import SearchDemo, marked, side_by_side
from retlib.systems.compose import Lexical
from retlib.systems.stages import Stage
from retlib.systems.system import System, Target
from retlib.systems.training_data import Labels

NEURAL = "BM25 Neg"


@pytest.fixture(scope="module")
def demo(collection):
    trained = System(SMALL, UNITS) + Stage(data=Labels(), steps=4, batch_size=8)
    return SearchDemo({"BM25": Lexical(BM25()), NEURAL: trained}, Target(collection), seed=1)


@pytest.fixture(scope="module")
def question(demo):
    return demo.questions(1)[0]


@pytest.fixture(scope="module")
def lists(demo, question):
    return demo.lists(question, 4)


def test_questions_are_test_questions_and_the_same_whenever_asked(demo):
    assert demo.questions(3) == demo.questions(5)[:3]
    assert set(demo.questions(3)) <= set(demo.collection.split("test")["text"])


def test_lists_are_those_of_the_systems_runs(demo, question, lists):
    run = demo.systems[NEURAL].run(demo.target, 1, depth=4)
    mine = run[run["query_id"].map(demo.collection.queries["text"]) == question]
    assert lists["doc_id"][lists["system"] == NEURAL].tolist() == mine["doc_id"].tolist()
    assert lists["rank"][lists["system"] == NEURAL].tolist() == [1, 2, 3, 4]
    found = lists[lists["system"] == "BM25"]
    assert all(set(words(text)) & set(words(question)) for text in found["title"] + " " + found["text"])


def test_relevant_documents_are_known_for_questions_of_the_collection(demo, question):
    query = demo.collection.queries.index[demo.collection.queries["text"] == question][0]
    qrels = demo.collection.qrels
    own = set(qrels["doc_id"][(qrels["query_id"] == query) & (qrels["relevance"] > 0)])
    whole = demo.lists(question, len(demo.collection.documents))
    assert set(whole["doc_id"][whole["relevant"]]) == own != set()
    assert not demo.lists(WORDS[3], 5)["relevant"].any()


def test_a_system_that_finds_nothing_has_no_rows(demo):
    found = demo.lists("zzzz", 3)
    assert set(found["system"]) == {NEURAL}
    assert "<th>BM25</th>" not in side_by_side("zzzz", found).data


@pytest.mark.parametrize("given", [("?!", 5), (WORDS[3], 0)])
def test_what_cannot_be_asked(demo, given):
    with pytest.raises(SettingError):
        demo.lists(*given)


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
    assert explore.agreement(one, "BM25").to_dict() == {"A": 0.5}
    assert explore.agreement(pd.concat([one, two]), "BM25").to_dict() == {"A": pytest.approx(1 / 3)}
    assert explore.agreement(two, "BM25").empty


def test_the_explorer_answers_what_is_typed(demo):
    box = explore.explorer(demo, depth=2)
    (field, chosen), page = box.children[0].children, box.children[1]
    assert NEURAL in page.value and "<th>BM25</th>" in page.value
    chosen.value = (NEURAL,)
    field.value = f"{WORDS[3]} {WORDS[4]}"
    assert f"<strong>{WORDS[3]} {WORDS[4]}</strong>" in page.value and "<th>BM25</th>" not in page.value
    field.value = "..."
    assert "of one word at least" in page.value
    chosen.value, field.value = ("BM25",), "zzzz"
    assert page.value == "Nothing was found."
    chosen.value = ()
    assert "choose a system" in page.value


def test_the_slider_goes_over_the_steps_of_the_map(monkeypatch):
    drawn = []
    monkeypatch.setattr(explore.training_figures, "paths", drawn.append)
    steps = np.repeat([0, 10, 20], 2)
    corpus = pd.DataFrame({"what": "query", "query": ["a", "b"] * 3, "step": steps, "x": 0.0, "y": 0.0})
    slider = explore.walk(corpus).children[0]
    assert slider.options == (0, 10, 20) and slider.value == 20
    slider.value = 10
    assert drawn[-1]["step"].max() == 10 and len(drawn[-1]) == 4
