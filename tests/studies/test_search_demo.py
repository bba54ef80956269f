"""The explorer: what is listed, marked and shown, on a slice of the embedded documentation."""

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from words import SMALL, UNITS, WORDS

from retlib.core.errors import SettingError
from retlib.data.text import TokenTable, words
from retlib.retrieval.lexical import BM25
from retlib.systems.compose import Lexical
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels

import search_demo
from search_demo import SearchDemo, marked, shaded, side_by_side

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


def run_of(demo, system, question, depth=1):
    run = demo.systems[system].run(demo.target, 1, depth=depth)
    return run[run["query_id"].map(demo.collection.queries["text"]) == question]


def test_questions_on_which_systems_differ_come_first(demo):
    asked = demo.questions(50)
    assert demo.questions(3) == asked[:3] and set(asked) <= set(demo.collection.split("test")["text"])
    firsts = {each: demo.lists(each, 1)["doc_id"].nunique() for each in asked}
    disputed = search_demo.disputed(demo, list(demo.systems), 5)
    assert set(firsts.values()) == {1, 2} and [firsts[each] for each in disputed] == sorted(firsts.values())[:-6:-1]


def test_lists_are_those_of_the_systems_runs(demo, question, lists):
    neural = lists[lists["system"] == NEURAL]
    assert neural["doc_id"].tolist() == run_of(demo, NEURAL, question, 4)["doc_id"].tolist()
    assert neural["rank"].tolist() == [1, 2, 3, 4]
    found = lists[lists["system"] == "BM25"]
    assert all(set(words(text)) & set(words(question)) for text in found["title"] + " " + found["text"])
    for wrong, depth in (("?!", 5), (WORDS[3], 0)):
        with pytest.raises(SettingError):
            demo.lists(wrong, depth)


def test_a_system_that_finds_nothing_has_no_rows(demo):
    found = demo.lists("zzzz", 3)
    assert set(found["system"]) == {NEURAL}
    page = BeautifulSoup(side_by_side("zzzz", found, ["BM25", NEURAL]).data, "html.parser")
    first, *rest = (row.select("td") for row in page.select("tbody tr"))
    assert first[1].text == "no match" != first[2].text != "" and not any(row[1].text for row in rest)
    none = BeautifulSoup(side_by_side("zzzz", found.iloc[:0], ["BM25"]).data, "html.parser")
    assert [cell.text for cell in none.select("tbody td")] == ["1", "no match"]


def test_bm25s_score_is_the_sum_of_what_the_words_of_the_question_add(demo, question, lists):
    doc_id = lists["doc_id"][lists["system"] == "BM25"].iloc[0]
    score, asked, read = demo.why("BM25", question, doc_id)
    assert [score, sum(lost for _, lost in asked)] == pytest.approx([*run_of(demo, "BM25", question)["score"]] * 2)
    assert [word for word, _ in asked] == words(question)
    inside = {word for word, lost in asked if lost > 0}
    assert inside == set(words(question)) & set(words(" ".join(word for word, _ in read)))
    assert {word for text, lost in read if lost for word in words(text)} == inside


def test_an_encoders_score_is_asked_again_without_each_token(demo, question, lists):
    doc_id = lists["doc_id"][lists["system"] == NEURAL].iloc[0]
    score, asked, read = demo.why(NEURAL, question, doc_id)  # tokens of the question and of the document
    assert score == pytest.approx(run_of(demo, NEURAL, question)["score"].iloc[0], abs=0.02)
    retriever = fit(demo.systems[NEURAL], demo.collection, 1)
    names = [token for token, _ in asked]
    assert names == [retriever.tokenizer.tokens[i] for i in retriever.tokenize([question]).row(0)]
    row = demo.collection.documents.index.get_loc(doc_id)
    document = retriever.encode_documents(retriever.reads(demo.collection).documents.take([row]))[0]
    for place, (_, lost) in enumerate(asked):
        rest = names[:place] + names[place + 1 :]
        table = TokenTable.from_rows([[retriever.tokenizer.ids[name] for name in rest]])
        assert score - lost == pytest.approx(float(retriever.encode_queries(table)[0] @ document), abs=0.02)
    assert len(read) == retriever.reads(demo.collection).documents.lengths[row]


def test_the_first_documents_of_two_systems_are_explained_for_both(demo, question, lists):
    found = demo.first(question, ["BM25", NEURAL])
    assert len(found) == 2 * lists["doc_id"][lists["rank"] == 1].nunique() and {*found["system"]} == {"BM25", NEURAL}
    assert (found["rank"] == "1").sum() >= 2 and "rgba" in search_demo.explained(found).data
    shades = BeautifulSoup(shaded([("in", 0.5), ("##dex", -1.0), ("<b>", 0.0), ("##", 0.1)]), "html.parser")
    assert shades.text == "index <b> ##"
    assert [part["style"].split(", ")[-1] for part in shades.select("span")[:3]] == ["0.38)", "0.75)", "0.00)"]
    assert demo.first("zzzz", ["BM25", NEURAL])["rank"].tolist() == ["no match", "1"]
    assert demo.first("zzzz", ["BM25"]).empty


def test_words_are_marked_and_markup_is_shown_as_text():
    assert marked("Sum of sums, sum.", {"sum"}) == "<mark>Sum</mark> of sums, <mark>sum</mark>."
    assert marked("a <b> & it's", {"b", "it's"}) == "a &lt;<mark>b</mark>&gt; &amp; <mark>it&#x27;s</mark>"
    assert (marked("", {"a"}), marked("no word", set())) == ("", "no word")


def listed(*rows):
    return pd.DataFrame(rows, columns=["system", "rank", "doc_id", "title", "text", "relevant"])


def test_systems_stand_side_by_side_in_their_order():
    rows = [("Z", 1, "d1", "<i>", "the sum", True), ("Z", 2, "d2", "", "word " * 100, False)]
    lists = listed(*rows, ("A", 1, "d2", "", "sum", False))
    page = BeautifulSoup(side_by_side("<sum>", lists, ["Z", "A"]).data, "html.parser")
    assert page.p.text == "<sum>" and len(page.select("mark")) == 2
    assert [cell.text for cell in page.select("thead th")] == ["rank", "Z", "A"]
    first, second = ([cell.text for cell in row.select("td")] for row in page.select("tbody tr"))
    assert first == ["1", "✓ <i> the sum", "sum"] and second[2] == ""
    assert second[1].endswith("word …") and len(second[1]) <= search_demo.LETTERS + 2


def test_agreement_is_the_share_that_bm25_lists_for_the_same_question():
    rows = [("BM25", 1, "d1"), ("BM25", 2, "d2"), ("A", 1, "d2"), ("A", 2, "d3")]
    one = listed(*((*row, "", "", False) for row in rows)).assign(question="one")
    two = listed(("A", 1, "d1", "", "", False)).assign(question="two")
    assert search_demo.agreement(one, "BM25").to_dict() == {"A": 0.5}
    assert search_demo.agreement(pd.concat([one, two]), "BM25").to_dict() == {"A": pytest.approx(1 / 3)}
    assert search_demo.agreement(two, "BM25").empty


def test_the_explorer_answers_what_is_typed(demo):
    top, page, pair, why = search_demo.explorer(demo, 2, ["BM25", NEURAL]).children
    (field, chosen), (first, second) = top.children, pair.children
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
    assert page.value
