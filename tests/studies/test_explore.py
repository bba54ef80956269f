"""The explorer: what is listed, marked and shown, on a slice of the embedded documentation."""

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from words import SMALL, UNITS, WORDS

from retlib.core.errors import SettingError
from retlib.data.text import TokenTable, words
from retlib.retrieval.lexical import BM25
from retlib.studies import explore
from retlib.studies.explore import SearchDemo, marked, shaded, side_by_side
from retlib.systems.compose import Fused, Lexical
from retlib.systems.stages import Stage
from retlib.systems.system import System, Target, fit
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


def test_questions_on_which_systems_differ_come_first(demo):
    asked = demo.questions(50)
    firsts = [demo.lists(each, 1)["doc_id"].nunique() for each in asked]
    found = explore.disputed(demo, list(demo.systems), 5)
    assert len(found) == 5 and set(found) <= set(asked) and set(firsts) == {1, 2}
    assert [firsts[asked.index(each)] for each in found] == sorted(firsts, reverse=True)[:5]


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


def test_what_is_fused_and_asked_by_itself_is_made_once(demo, question, monkeypatch):
    both = Fused(tuple(demo.systems[name] for name in ("BM25", NEURAL)), (0.5, 0.5))
    made, real = [], Lexical.answer
    monkeypatch.setattr(Lexical, "answer", lambda *given: made.append(given) or real(*given))
    asked = SearchDemo({**demo.systems, "both": both}, demo.target, 1)
    found = asked.lists(question, 4, ["BM25", "both"])
    assert len(made) == 1
    _, rows = both.answer(demo.target, 1)(question, 4)
    assert found["doc_id"][found["system"] == "both"].tolist() == demo.collection.documents.index[rows].tolist()


def test_a_system_that_finds_nothing_has_no_rows(demo):
    found = demo.lists("zzzz", 3)
    assert set(found["system"]) == {NEURAL}
    page = BeautifulSoup(side_by_side("zzzz", found, ["BM25", NEURAL]).data, "html.parser")
    first, *rest = (row.select("td") for row in page.select("tbody tr"))
    assert (
        first[1].text == "no match" and first[2].text not in ("", "no match") and not any(row[1].text for row in rest)
    )
    none = BeautifulSoup(side_by_side("zzzz", found.iloc[:0], ["BM25"]).data, "html.parser")
    assert [cell.text for cell in none.select("tbody td")] == ["1", "no match"]


def test_bm25s_score_is_the_sum_of_what_the_words_of_the_question_add(demo, question, lists):
    doc_id = lists["doc_id"][lists["system"] == "BM25"].iloc[0]
    score, asked, read = demo.why("BM25", question, doc_id)
    run = demo.systems["BM25"].run(demo.target, 1, depth=1)
    mine = run[run["query_id"].map(demo.collection.queries["text"]) == question]
    assert score == pytest.approx(mine["score"].iloc[0]) == pytest.approx(sum(lost for _, lost in asked))
    assert [word for word, _ in asked] == words(question)
    inside = {word for word, lost in asked if lost > 0}
    assert inside == set(words(question)) & set(words(" ".join(word for word, _ in read)))
    assert {word for text, lost in read if lost for word in words(text)} == inside


def test_an_encoders_score_is_asked_again_without_each_token(demo, question, lists):
    doc_id = lists["doc_id"][lists["system"] == NEURAL].iloc[0]
    score, asked, read = demo.why(NEURAL, question, doc_id)
    run = demo.systems[NEURAL].run(demo.target, 1, depth=1)
    mine = run[run["query_id"].map(demo.collection.queries["text"]) == question]
    assert score == pytest.approx(mine["score"].iloc[0], abs=0.02)
    retriever = fit(demo.systems[NEURAL], demo.collection, 1)
    names = [token for token, _ in asked]
    assert names == [retriever.tokenizer.tokens[i] for i in retriever.tokenize([question]).row(0)]
    row = demo.collection.documents.index.get_loc(doc_id)
    document = retriever.encode_documents(retriever.reads(demo.collection).documents.take([row]))[0]
    for place, (_, lost) in enumerate(asked):
        rest = retriever.tokenizer.ids
        table = TokenTable.from_rows([[rest[name] for at, name in enumerate(names) if at != place]])
        assert score - lost == pytest.approx(float(retriever.encode_queries(table)[0] @ document), abs=0.02)
    assert len(read) == retriever.reads(demo.collection).documents.lengths[row]


def test_the_first_documents_of_two_systems_are_explained_for_both(demo, question, lists):
    found = demo.first(question, ["BM25", NEURAL])
    best = lists[lists["rank"] == 1].drop_duplicates("doc_id")
    assert len(found) == 2 * len(best) and set(found["system"]) == {"BM25", NEURAL}
    assert (found["rank"] == "1").sum() >= 2
    page = explore.explained(found).data
    assert "rgba" in page and "<script" not in page
    assert demo.first("zzzz", ["BM25", NEURAL])["rank"].tolist() == ["no match", "1"]
    assert demo.first("zzzz", ["BM25"]).empty


def test_what_raises_a_score_is_shaded_by_how_much():
    page = BeautifulSoup(shaded([("in", 0.5), ("##dex", -1.0), ("<b>", 0.0), ("##", 0.1)]), "html.parser")
    assert page.text == "index <b> ##"
    colours = [part["style"] for part in page.select("span")]
    assert colours[0].endswith("0.38)") and colours[1].endswith("0.75)") and colours[2].endswith("0.00)")
    assert colours[0].split("(")[1][:6] != colours[1].split("(")[1][:6] and page.span["title"] == "+0.5"
    assert shaded([]) == ""


def test_a_chapter_gives_the_systems_that_it_declares():
    names = explore.chapter("42_first_stage", "smoke", {"query_steps": 7})
    assert names["systems"]["LTRe (ANCE)"].stages[-1].steps == 7 and names["targets"][0].test.documents.size
    with pytest.raises(SettingError, match="query_stepz"):
        explore.chapter("42_first_stage", "smoke", {"query_stepz": 7})


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
    page = BeautifulSoup(side_by_side("<sum>", lists, ["Z", "A"]).data, "html.parser")
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
    box = explore.explorer(demo, 2, ["BM25", NEURAL])
    top, page, pair, why = box.children
    (field, chosen), (first, second) = top.children, pair.children
    assert [first.value, second.value] == ["BM25", NEURAL]
    assert why.value.count(f">{NEURAL}</td>") == why.value.count(">BM25</td>") > 0
    assert NEURAL in page.value and ">BM25</th>" in page.value
    chosen.value = (NEURAL,)
    field.value = f"{WORDS[3]} {WORDS[4]}"
    assert f"<strong>{WORDS[3]} {WORDS[4]}</strong>" in page.value and ">BM25</th>" not in page.value
    field.value = "..."
    assert "of one word at least" in page.value
    chosen.value, field.value = ("BM25",), "zzzz"
    assert "no match" in page.value and NEURAL in why.value
    first.value = second.value = "BM25"
    assert why.value == ""
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
