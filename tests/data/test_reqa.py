"""ReQA collections: gold sentences, what is left out, splits; on written files and on real copies."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from realdata import real

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.datasets import natural_questions, squad
from retlib.data.datasets._tasks import sentence_spans
from retlib.data.splits import low_resource


def gold(collection, text):
    """The relevant document of the query with that text."""
    query = collection.queries.index[collection.queries["text"] == text]
    assert len(query) == 1
    judged = collection.qrels[collection.qrels["query_id"] == query[0]]
    assert judged["relevance"].tolist() == [1]
    return collection.documents.loc[judged["doc_id"].iloc[0]]


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


# Sentences.


@given(st.text(st.sampled_from("aB1 .!?\n\"')(U.S"), max_size=80))
def test_sentence_spans_hold_everything_but_white_space(text):
    spans = list(sentence_spans(text))
    bounds = [0, *(place for span in spans for place in span), len(text)]
    assert bounds == sorted(bounds)
    gaps = [text[bounds[i] : bounds[i + 1]] for i in range(0, len(bounds), 2)]
    assert "".join(gaps).strip() == ""
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


# SQuAD.

RIVER = "The Dee rises in Wales. It ends in the Irish Sea. The sea is cold. "
KING = "Dr. J. Smith met the king. Then he went home."


def asked(context, *questions):
    """A paragraph with questions: (text, answer) or (text, answer, start)."""
    entries = []
    for number, (text, answer, *start) in enumerate(questions):
        place = start[0] if start else context.index(answer)
        entries.append({"id": f"q{number}", "question": text, "answers": [{"text": answer, "answer_start": place}]})
    return {"context": context, "qas": entries}


def articles(**paragraphs):
    return {"version": "1.1", "data": [{"title": name, "paragraphs": list(p)} for name, p in paragraphs.items()]}


def test_squad_gold_is_the_sentence_that_holds_the_answer(write):
    river = asked(
        RIVER,
        (" Where does the Dee rise? ", "Wales"),
        ("Where does it end?", "the Irish Sea"),
        ("Which is cold?", "sea", RIVER.rindex("sea")),
        ("Which rises?", "Dee"),
        ("What is over the end?", "Sea. The sea"),
    )
    king = asked(KING, ("Whom did Smith meet?", "the king"), ("Which rises?", "Then"))
    again = asked(RIVER, ("What is it called?", "The"))
    write(squad.FILE, json.dumps(articles(River_Dee=[river], A_King=[king, again])))
    collection = datasets.load("squad")
    check(collection)
    assert len(collection.documents) == 5  # the abbreviations end no sentence, the passage that comes again is one
    assert gold(collection, "Where does the Dee rise?")["sentence"] == "The Dee rises in Wales."
    end = gold(collection, "Where does it end?")
    assert end[["sentence", "context", "position"]].tolist() == ["It ends in the Irish Sea.", RIVER, 1]
    assert end[["title", "article"]].tolist() == ["River Dee", "River_Dee"]
    assert gold(collection, "Which is cold?")["position"] == 2
    assert gold(collection, "Which rises?")["sentence"] == "The Dee rises in Wales."  # the first of two
    assert gold(collection, "Whom did Smith meet?")["sentence"] == "Dr. J. Smith met the king."
    assert len(collection.queries) == 6  # one of two equal ones, and none whose answer is in no sentence
    ambiguous = collection.queries.set_index("text")["ambiguous"]
    assert ambiguous["What is it called?"] and not ambiguous["Where does the Dee rise?"]
    assert list(collection.provenance) == [squad.FILE]


def numbered(count, title="T{}"):
    """Articles of one passage of four sentences and one question each."""
    text = "Number {0} is here. Something follows it. Another one follows. And one ends {0}."
    return articles(
        **{title.format(n): [asked(text.format(n), (f"Where is {n}?", f"Number {n}"))] for n in range(count)}
    )


def test_positions_and_ids_do_not_depend_on_the_questions_around_them(write):
    write(squad.FILE, json.dumps(numbered(60)))
    whole = datasets.load("squad").queries
    datasets._load.cache_clear()
    write(squad.FILE, json.dumps(numbered(25)))
    part = datasets.load("squad").queries
    assert len(part) == 25 and part.equals(whole.loc[part.index])


def test_squad_small_is_whole_articles(write, monkeypatch):
    monkeypatch.setattr(squad, "SMALL", 38)
    write(squad.FILE, json.dumps(numbered(60)))
    whole, small = datasets.load("squad"), datasets.load("squad-small")
    check(small)
    assert len(small.documents) == 40 and (small.documents.groupby("article").size() == 4).all()
    assert small.queries.equals(whole.queries.loc[small.queries.index])
    datasets._load.cache_clear()
    monkeypatch.setattr(squad, "SMALL", 1000)
    assert len(datasets.load("squad-small").documents) == 240


def without_title(content):
    del content["data"][1]["title"]


def with_other_answer(content):
    content["data"][1]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1


def without_answer(content):
    content["data"][1]["paragraphs"][0]["qas"][0]["answers"] = []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without_title, "article 1: not `title`.*KeyError"),
        (with_other_answer, "article 1: .*the answer of question q0 is not where it is said to be"),
        (without_answer, "article 1: .*IndexError"),
        (lambda content: content.pop("data"), "not `data` with articles"),
    ],
)
def test_a_damaged_squad_file_is_named(write, change, problem):
    content = numbered(3)
    change(content)
    path = write(squad.FILE, json.dumps(content))
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("squad")
    assert str(path) in str(error.value) and "python -m retlib fetch squad" in str(error.value)


def test_broken_json_is_named_with_its_line(write):
    path = write(squad.FILE, '{"data":\n[}')
    with pytest.raises(DataError) as error:
        datasets.load("squad")
    assert f"{path}, line 2:" in str(error.value)


@real(squad.FILE)
def test_real_squad():
    whole = datasets.load("squad")
    check(whole)
    assert len(whole.documents) == pytest.approx(91_000, rel=0.02) and len(whole.queries) > 87_000
    assert 0.05 < whole.queries["ambiguous"].mean() < 0.15
    small = datasets.load("squad-small")
    assert 20_000 <= len(small.documents) < 21_000
    assert set(small.documents.index) <= set(whole.documents.index)
    # One string a passage, however many candidates hold it.
    contexts = whole.documents["context"]
    assert len({id(context) for context in contexts}) == contexts.nunique() == 18_891


# Natural Questions.

TRAIN, DEV = natural_questions.FILES
TABLE = "Wild card Name Place . The first is Oakland . The last is Denver . "


def qed(text, question, span, starts, **fields):
    entry = {"title_text": "Wild card", "paragraph_text": text, "question_text": question, "sentence_starts": starts}
    return json.dumps({**entry, "answer_spans": [list(span)], **fields}) + "\n"


def place(text, answer):
    return text.index(answer), text.index(answer) + len(answer)


def test_natural_questions_takes_the_sentences_of_the_files(write):
    starts = [TABLE.index("The first"), TABLE.index("The last")]
    train = qed(TABLE, "who is first", place(TABLE, "Oakland"), starts)
    train += qed(TABLE, "who is last", place(TABLE, "Denver"), starts)
    train += qed(TABLE, "what is named", place(TABLE, "Name"), starts)
    train += qed(TABLE, "who is nowhere", (-1, -1), starts)
    train += qed(TABLE, "who are both", place(TABLE, "Oakland . The last"), starts)
    train += qed("One two .", "no starts", (0, 3), [])
    answers = [[{"start": 0, "end": 4, "string": "Wild"}], [{"start": 5, "end": 9, "string": "card"}]]
    dev = json.loads(qed(TABLE, "what is wild", (0, 1), [0]))
    del dev["answer_spans"]
    write(TRAIN, train)
    write(DEV, json.dumps({**dev, "original_nq_answers": answers}) + "\n")
    collection = datasets.load("natural-questions")
    check(collection)
    # What stands above the first start belongs to the first sentence.
    first = "Wild card Name Place . The first is Oakland ."
    assert collection.documents["sentence"].tolist() == [first, "The last is Denver .", "One two ."]
    for question, number in (("who is first", 0), ("who is last", 1), ("what is named", 0), ("what is wild", 0)):
        assert gold(collection, question)["position"] == number
    assert gold(collection, "no starts")["sentence"] == "One two ."
    assert len(collection.queries) == 5  # two have no answer in a sentence
    assert set(collection.provenance) == {TRAIN, DEV}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{", "JSONDecodeError"),
        (qed("One two .", "q", (4, 40), [0]), "the answer at 4 to 40 is not in the paragraph"),
        (qed("One two .", "q", (3, 3), [0]), "the answer at 3 to 3 is not in the paragraph"),
        (qed("One two .", "q", (0, 3), [0, 50]), "sentence_starts do not rise"),
        (qed("One two .", "q", (0, 3), [0, 4, 4]), "sentence_starts do not rise"),
        (qed("One two .", "q", (0, 3), [0], answer_spans=[]), "IndexError"),
        ('{"title_text": "x"}', "KeyError"),
        ("[1]", "TypeError"),
    ],
)
def test_a_damaged_natural_questions_file_is_named_with_its_line(write, bad, problem):
    good = qed("One two .", "q", (0, 3), [0])
    write(TRAIN, good)
    path = write(DEV, good + bad)
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("natural-questions")
    assert f"{path}, line 2: not a question of QED" in str(error.value)


@real(TRAIN, DEV)
def test_real_natural_questions():
    collection = datasets.load("natural-questions")
    check(collection)
    assert len(collection.queries) >= 8000
    assert collection.documents["passage"].nunique() > 7500


# pydocs.


def test_pydocs_reqa_asks_for_the_sentence_that_opens_the_target():
    collection = datasets.load("pydocs-reqa-smoke")
    check(collection)
    gold = collection.documents.loc[collection.queries["cluster"]]
    assert (gold["position"] == 0).all() and (gold["article"] == collection.queries["article"].array).all()
    assert not collection.documents.drop_duplicates("passage")["context"].duplicated().any()
    later = collection.documents["sentence"][collection.documents["position"] > 0]
    assert (later.str.split().str.len() >= 4).all()


def test_pydocs_reqa_splits_as_pydocs_does():
    from retlib.data.datasets import pydocs

    passages, answers = pydocs.described("p", "smoke").queries, datasets.load("pydocs-reqa-smoke").queries
    assert passages.index.equals(answers.index)
    assert (passages["split"] == "test").equals(answers["split"] == "test")
    clusters = pydocs.tables("smoke")["pages"].set_index("article")["cluster"]
    assert (answers.groupby(answers["article"].map(clusters))["position"].nunique() == 1).all()


# Shares.


def spread(count):
    """A collection of `count` queries at even positions."""
    ids = [f"q{n}" for n in range(count)]
    positions = [(n + 0.5) / count for n in range(count)]
    queries = pd.DataFrame({"text": ids, "split": "test", "position": positions}, index=ids)
    qrels = pd.DataFrame({"query_id": ids, "doc_id": "d", "relevance": 1})
    return Collection("even", pd.DataFrame({"text": ["x"]}, index=["d"]), queries, qrels)


@pytest.mark.parametrize(("share", "counts"), [(0.05, (45, 5, 950)), (0.1, (90, 10, 900)), (0.8, (720, 80, 200))])
def test_a_low_resource_split_without_a_test_share_tests_on_all_others(share, counts):
    collection = low_resource(spread(1000), share)
    assert collection.name == f"even-{share}"
    assert tuple(len(collection.split(split)) for split in ("train", "dev", "test")) == counts
    assert len(collection.qrels) == 1000


@given(st.floats(0.02, 0.4), st.floats(0.0, 0.4), st.floats(0.01, 0.2))
def test_shares_are_nested_and_tested_on_the_same_queries(share, more, test):
    small, large = (low_resource(spread(1000), part, test) for part in (share, share + more))
    assert set(small.split("train").index) <= set(large.split("train").index)
    labelled = [set(part.split("train").index) | set(part.split("dev").index) for part in (small, large)]
    assert labelled[0] <= labelled[1]
    assert small.split("test").equals(large.split("test"))
    assert set(small.qrels["query_id"]) == set(small.queries.index)


@pytest.mark.parametrize(("share", "test"), [(0.0, None), (1.0, None), (0.9, 0.2), (0.5, 0.0), (0.5, -1.0)])
def test_impossible_shares(share, test):
    with pytest.raises(SettingError, match="above 0, and together at most 1"):
        low_resource(spread(10), share, test)


def test_a_split_without_queries_is_an_error():
    with pytest.raises(SettingError, match="share = 0.06 of 10 queries in 'even' leaves none for dev"):
        low_resource(spread(10), 0.06)


def test_a_collection_without_positions_has_no_shares(toy):
    with pytest.raises(DataError, match="collection 'toy': queries have no `position`"):
        low_resource(toy, 0.1)
