"""InsuranceQA and BioASQ, on small files in their formats and on the real parts."""

import csv
import io
import json

import pytest
from realdata import real

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.datasets import bioasq, catalogue, insuranceqa
from retlib.data.splits import hash_position


def relevant(collection, text):
    """Ids of the documents relevant to the query with that text."""
    (query,) = collection.queries.index[collection.queries["text"] == text]
    return set(collection.qrels["doc_id"][collection.qrels["query_id"] == query])


# InsuranceQA, the pairs of version 1.


def pairs(*rows, columns=("question", "answer", "label")):
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    return buffer.getvalue()


def texts(collection, text):
    return set(collection.documents["text"][list(relevant(collection, text))])


def test_insuranceqa_joins_its_files(write):
    write(
        insuranceqa.FILES[0],
        pairs(
            ("what be a premium", "a premium be, as they say, a price", 1),
            ("what be a premium", "no", 0),
            ("who pay", "x y", 0),
        ),
    )
    write(insuranceqa.FILES[1], pairs((" what be a premium ", "the price\nof it", 1), ("who insure", "x y", 1)))
    collection = datasets.load("insuranceqa")
    assert texts(collection, "what be a premium") == {"a premium be, as they say, a price", "the price\nof it"}
    assert texts(collection, "who insure") == {"x y"}
    # A question without a right answer is no query; a wrong answer is a candidate.
    assert len(collection.queries) == 2 and len(collection.documents) == 4
    assert set(collection.qrels["relevance"]) == {1} and set(collection.documents["title"]) == {""}
    assert set(collection.provenance) == set(insuranceqa.FILES)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (pairs(("q", "a", 1), columns=("question", "answer", "right")), 1, "the columns are not"),
        ("", 1, "the columns are not"),
        (pairs(("q", "a", 1), ("q", "a", 2)), 3, "a label that is 0 or 1"),
        (pairs(("q", "two\nlines", 1), (" ", "a", 1)), 4, "not a question"),
        (pairs(("q", "a", 1), ("q", "a")), 3, "not 3 columns .2 columns"),
        (pairs(("q", "a", 1)) + 'q,"a,1\n', 3, "not 3 columns"),
        (pairs(("q", "a", 1)).encode() + b"q,\xff,1\n", 3, "not UTF-8"),
    ],
)
def test_a_damaged_file_of_insuranceqa_is_named_with_its_line(write, content, line, problem):
    path = write(insuranceqa.FILES[0], content)
    write(insuranceqa.FILES[1], pairs(("q", "a", 1)))
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("insuranceqa")
    assert f"{path}, line {line}:" in str(error.value)


@real(*insuranceqa.FILES)
def test_real_insuranceqa():
    collection = datasets.load("insuranceqa")
    assert (len(collection.documents), len(collection.queries), len(collection.qrels)) == (8_690, 4_533, 5_040)
    assert collection.queries["split"].value_counts(normalize=True)["test"] == pytest.approx(0.2, abs=0.02)
    assert "a quarter of v1" in " ".join(collection.provenance.values())


# BioASQ.


def quote(document, text, start=0, section="abstract"):
    address = f"http://www.ncbi.nlm.nih.gov/pubmed/{document}"
    return {"document": address, "text": text, "offsetInBeginSection": start, "beginSection": section}


def question(name, body, *snippets, documents=()):
    addresses = [f"http://www.ncbi.nlm.nih.gov/pubmed/{document}" for document in documents]
    return {"id": name, "body": body, "documents": addresses, "snippets": list(snippets), "type": "factoid"}


def golden(write, **files):
    """All of the catalogue's files, without a question but for those given by challenge and batch."""
    paths = {}
    for file in catalogue.catalogue()["bioasq"].files:
        part = file.name.removeprefix("bioasq/").removesuffix("_golden.json")
        content = files.get(f"b{part}", [])
        paths[part] = write(file.name, content if isinstance(content, str) else json.dumps({"questions": content}))
    return paths


def test_bioasq_documents_are_their_snippets(write):
    golden(
        write,
        b7B1=[
            question("q1", "What is it? ", quote("11", "It is this.", 50), quote("11", "Its title.", 0, "title")),
            question(
                "q2", "What else?", quote("11", "First\nof all.", 7), quote("11", "is this", 53), documents=(12, 13)
            ),
        ],
        b8B2=[question("q3", "Only a title?", quote("12", "Twelve.", 0, "title"), documents=(11,))],
    )
    collection = datasets.load("bioasq")
    assert collection.documents.loc["11"].to_dict() == {"text": "First of all. It is this.", "title": "Its title."}
    assert collection.documents.loc["12"].to_dict() == {"text": "Twelve.", "title": "Twelve."}
    assert relevant(collection, "What is it?") == {"11"}
    # Document 13 is listed, and nobody quotes it.
    assert relevant(collection, "What else?") == {"11", "12"}
    assert relevant(collection, "Only a title?") == {"11", "12"}
    assert set(collection.documents.index) == {"11", "12"}


def test_bioasq_tests_on_the_questions_of_7b(write):
    held = [f"Is it {number}?" for number in range(40)]
    golden(
        write,
        b7B3=[question("seven", "Asked twice?", quote("1", "One."))],
        b10B1=[question(f"ten{number}", text, quote("2", "Two.")) for number, text in enumerate(held)],
        b12B4=[question("again", "Asked twice?", quote("3", "Three.")), question("more", held[0], quote("4", "Four."))],
    )
    collection = datasets.load("bioasq")
    sides = dict(zip(collection.queries["text"], collection.queries["split"], strict=True))
    assert sides == {text: "dev" if hash_position(text) < 0.1 else "train" for text in held} | {"Asked twice?": "test"}
    assert {"train", "dev"} <= set(sides.values())
    assert collection.queries.index[collection.queries["text"] == "Asked twice?"].tolist() == ["seven"]
    assert relevant(collection, "Asked twice?") == {"1", "3"} and relevant(collection, held[0]) == {"2", "4"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"questions": [', "line 1: Expecting value"),
        ("[]", "not `questions`"),
        ('{"question": []}', "not `questions`"),
        ('{"questions": [{"id": "a", "body": "B", "documents": []}]}', "question 0: not `id`"),
        (json.dumps({"questions": [question("a", "B"), question("b", "C", {"text": "D"})]}), "question 1: not `id`"),
        (json.dumps({"questions": [question("a", "B", quote("PMC1", "D"))]}), "PMC1' is no address of PubMed"),
    ],
)
def test_a_damaged_file_of_bioasq_is_named(write, content, problem):
    paths = golden(write, b9B2=content)
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("bioasq")
    assert str(paths["9B2"]) in str(error.value) and "participants-area.bioasq.org" in str(error.value)


@real(*(file.name for file in catalogue.catalogue()["bioasq"].files))
def test_real_bioasq():
    collection = datasets.load("bioasq")
    counts = collection.queries["split"].value_counts()
    assert counts["test"] == 500 and counts.sum() == 2_647 and len(collection.documents) == 18_687
    assert not collection.queries["text"].duplicated().any() and (collection.documents["text"] != "").all()
    judged = collection.judgments("test").groupby("query_id").size()
    assert len(judged) == 500 and judged.min() >= 1
    # The title is no snippet of an abstract, except where there is no other.
    shares = (collection.documents["title"] != "").mean()
    assert 0.05 < shares < 0.25 and bioasq.TEST == "7B"
