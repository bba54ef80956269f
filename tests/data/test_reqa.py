"""ReQA collections: gold sentences, what is left out, splits; on small files and on real copies."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from releases import DEE, paragraph, relevant, squad

from retlib.core.errors import SettingError
from retlib.data import datasets
from retlib.data.collection import SPLITS, Collection, low_resource
from retlib.data.datasets import released


def gold(collection, text):
    """The relevant document of the query with that text."""
    assert [*relevant(collection, text).values()] == [1]
    return collection.documents.loc[collection.queries.set_index("text")["cluster"][text]]


def check(collection):
    """What holds of every ReQA collection."""
    documents, queries = collection.documents, collection.queries
    assert all(s in c for s, c in zip(documents["sentence"], documents["context"], strict=True))
    assert (documents["text"] == documents["sentence"] + " " + documents["context"]).all()
    assert (documents.index == documents["passage"] + "#" + documents["position"].astype(str)).all()
    assert not queries["text"].duplicated().any()
    assert queries["position"].between(0, 1).all() and queries["ambiguous"].dtype == bool
    assert dict(zip(collection.qrels["query_id"], collection.qrels["doc_id"], strict=True)) == dict(queries["cluster"])
    assert (queries["article"] == documents.loc[queries["cluster"], "article"].array).all()
    assert (queries["split"] == "test").equals(queries["position"] >= 0.8)
    assert (queries["split"] == "train").equals(queries["position"] < 0.72)


@given(st.text(st.sampled_from("aB1 .!?\n\"')(U.S"), max_size=80))
def test_sentence_spans_hold_everything_but_white_space(text):
    spans = list(released.sentence_spans(text))
    bounds = [0, *(place for span in spans for place in span), len(text)]
    assert bounds == sorted(bounds)
    gaps = [text[bounds[i] : bounds[i + 1]] for i in range(0, len(bounds), 2)]
    assert "".join(gaps).strip() == ""
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


def test_squad_gold_is_the_sentence_that_holds_the_answer(release):
    release("squad")
    collection = datasets.load("squad")
    check(collection)
    assert len(collection.documents) == 6  # the abbreviations end no sentence, the passage that comes again is one
    assert gold(collection, "Where does the Dee rise?")["sentence"] == "The Dee rises in Wales."
    end = gold(collection, "Where does it end?")
    assert end[["sentence", "context", "position"]].tolist() == ["It ends in the Irish Sea.", DEE, 1]
    assert end[["title", "article"]].tolist() == ["River Dee", "River_Dee"]
    assert gold(collection, "Which is cold?")["position"] == 2
    assert gold(collection, "Which rises?")["sentence"] == "The Dee rises in Wales."  # the first of two
    assert gold(collection, "Whom did Smith meet?")["sentence"] == "Dr. J. Smith met the king."
    assert len(collection.queries) == 6  # one of two equal ones, and none whose answer is in no sentence
    ambiguous = collection.queries.set_index("text")["ambiguous"]
    assert ambiguous["What is it called?"] and not ambiguous["Where does the Dee rise?"]


def numbered(count):
    """Articles of one passage of four sentences and one question each."""
    text = "Number {0} is here. Something follows it. Another one follows. And one ends {0}."
    return squad(**{f"T{n}": [paragraph(text.format(n), (f"Where is {n}?", f"Number {n}"))] for n in range(count)})


def test_a_part_is_whole_articles_with_the_ids_and_positions_of_the_whole(release, monkeypatch):
    release("squad", numbered(60))
    whole = datasets.load("squad")
    for size, left in ((38, 40), (1000, 240)):
        datasets._load.cache_clear()
        monkeypatch.setattr(released, "SMALL", size)
        small = datasets.load("squad-small")
        check(small)
        assert len(small.documents) == left and (small.documents.groupby("article").size() == 4).all()
        assert small.queries.equals(whole.queries.loc[small.queries.index])
    release("squad", numbered(25))
    part = datasets.load("squad").queries
    assert len(part) == 25 and part.equals(whole.queries.loc[part.index])


def test_natural_questions_takes_the_sentences_of_the_files(release):
    release("natural-questions")
    collection = datasets.load("natural-questions")
    check(collection)
    # What stands above the first start belongs to the first sentence.
    first = "Wild card Name Place . The first is Oakland ."
    assert collection.documents["sentence"].tolist() == [first, "The last is Denver .", "One two ."]
    for question, number in (("who is first", 0), ("who is last", 1), ("what is named", 0), ("what is wild", 0)):
        assert gold(collection, question)["position"] == number
    assert gold(collection, "no starts")["sentence"] == "One two ."
    assert len(collection.queries) == 5  # two have no answer in a sentence


def test_pydocs_reqa_asks_for_the_sentence_that_opens_the_target():
    collection, passages = datasets.load("pydocs-reqa-smoke"), datasets.load("pydocs-passages-smoke").queries
    check(collection)
    gold = collection.documents.loc[collection.queries["cluster"]]
    assert (gold["position"] == 0).all() and (gold["article"] == collection.queries["article"].array).all()
    assert not collection.documents.drop_duplicates("passage")["context"].duplicated().any()
    # The same descriptions test the search for passages.
    assert {*collection.split("test").index} == {*passages.index[passages["split"] == "test"]}


def spread(count):
    """A collection of `count` queries at even positions."""
    ids = [f"q{n}" for n in range(count)]
    positions = [(n + 0.5) / count for n in range(count)]
    queries = pd.DataFrame({"text": ids, "split": "test", "position": positions}, index=ids)
    qrels = pd.DataFrame({"query_id": ids, "doc_id": "d", "relevance": 1})
    return Collection("even", pd.DataFrame({"text": ["x"]}, index=["d"]), queries, qrels)


@given(st.floats(0.02, 0.4), st.floats(0.0, 0.4), st.floats(0.01, 0.2))
def test_shares_are_nested_and_tested_on_the_same_queries(share, more, test):
    small, large = (low_resource(spread(1000), part, test) for part in (share, share + more))
    labelled = [{*part.split("train").index, *part.split("dev").index} for part in (small, large)]
    assert {*small.split("train").index} <= {*large.split("train").index} and labelled[0] <= labelled[1]
    assert small.split("test").equals(large.split("test")) and {*small.qrels["query_id"]} == {*small.queries.index}
    others = low_resource(spread(1000), 0.1)  # without a test share it tests on all others
    assert [len(others.split(split)) for split in SPLITS] == [90, 10, 900] and others.name == "even-0.1"


@pytest.mark.parametrize(("share", "test"), [(0.0, None), (1.0, None), (0.5, 0.0), (0.06, None)])
def test_impossible_shares(share, test):
    """The last of them leaves a split of ten queries empty."""
    with pytest.raises(SettingError, match=f"share = {share}"):
        low_resource(spread(10), share, test)
