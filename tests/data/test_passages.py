"""Collections whose candidates are passages: what is merged, split, judged and left out; on written and real files."""

import io
import json
import zipfile

import pandas as pd
import pytest
from realdata import real

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.datasets import natural_questions, nfcorpus, pydocs, squad, trec_dl_2019
from retlib.data.datasets.pydocs.lines import key
from retlib.data.splits import split_by_cluster
from retlib.evaluation.measures import evaluate
from retlib.retrieval.runs import RUN_COLUMNS


def relevant(collection, text):
    """The texts of the documents relevant to the query with that text, by their grades."""
    (query,) = collection.queries.index[collection.queries["text"] == text]
    judged = collection.qrels[collection.qrels["query_id"] == query]
    return dict(zip(collection.documents["text"][judged["doc_id"]], judged["relevance"], strict=True))


def check_asked(collection):
    """What holds of every collection of questions about passages."""
    documents, queries = collection.documents, collection.queries
    assert not documents["text"].duplicated().any() and not queries["text"].duplicated().any()
    assert set(queries["split"]) <= {"train", "dev", "test"}
    assert (queries["split"] == "test").equals(queries["position"] >= 0.8)
    first = collection.qrels.drop_duplicates("query_id").set_index("query_id")["doc_id"]
    assert first.loc[queries.index].tolist() == queries["cluster"].tolist()


# Questions about passages.

DEE = "The Dee rises in Wales. It ends in the Irish Sea."
KING = "The king met the smith. He went home."


def squad_file(*paragraphs):
    """SQuAD's format: (title, context, questions with their answers)."""
    data = []
    for title, context, questions in paragraphs:
        qas = [
            {"id": str(number), "question": text, "answers": [{"text": answer, "answer_start": context.index(answer)}]}
            for number, (text, answer) in enumerate(questions.items())
        ]
        data.append({"title": title, "paragraphs": [{"context": context, "qas": qas}]})
    return json.dumps({"version": "1.1", "data": data})


def test_a_question_asks_for_its_passage(write):
    write(
        squad.FILE,
        squad_file(
            ("River_Dee", DEE, {"Where does it rise?": "Wales", "What of both?": "Wales. It ends", "Who?": "The Dee"}),
            ("Kings", KING, {"Who?": "The king", "Where did he go? ": "home"}),
            ("Dee", DEE, {"Where does it end?": "the Irish Sea"}),
            ("Nobody asks", "A passage alone.", {}),
        ),
    )
    collection = datasets.load("squad-passages")
    check_asked(collection)
    # A passage that stands twice is one, under its first title; one that nobody asked about is a candidate too.
    assert collection.documents["title"].tolist() == ["River Dee", "Kings", "Nobody asks"]
    for text in ("Where does it rise?", "Where does it end?", "What of both?"):
        assert relevant(collection, text) == {DEE: 1}
    assert relevant(collection, "Where did he go?") == {KING: 1}
    assert relevant(collection, "Who?") == {DEE: 1, KING: 1}
    assert len(collection.queries) == 5 and set(collection.provenance) == {squad.FILE}


def test_natural_questions_keep_those_without_an_answer_span(write):
    entry = {"title_text": "Dee", "paragraph_text": DEE, "sentence_starts": [0]}
    lines = [entry | {"question_text": "where is it ", "answer_spans": [[17, 22]]}]
    lines += [entry | {"question_text": "is it nowhere", "answer_spans": [[-1, -1]]}]
    for file in natural_questions.FILES:
        write(file, "\n".join(map(json.dumps, lines)))
    collection = datasets.load("natural-questions-passages")
    check_asked(collection)
    assert collection.documents[["text", "title"]].to_numpy().tolist() == [[DEE, "Dee"]]
    assert relevant(collection, "where is it") == relevant(collection, "is it nowhere") == {DEE: 1}


@real(squad.FILE)
def test_real_squad_passages():
    collection = datasets.load("squad-passages")
    check_asked(collection)
    assert len(collection.documents) == 18_891 and 87_000 < len(collection.queries) < 87_599
    shares = collection.queries["split"].value_counts(normalize=True)
    assert [shares[split] for split in ("train", "dev", "test")] == pytest.approx([0.72, 0.08, 0.2], abs=0.005)
    # The same question, wherever both collections have it, asks for the passage that holds its sentence.
    answered = datasets.load("squad").queries["cluster"].str.partition("#")[0]
    assert set(answered.index) <= set(collection.queries.index)
    pairs = set(zip(collection.qrels["query_id"], collection.qrels["doc_id"], strict=True))
    assert set(zip(answered.index, answered, strict=True)) <= pairs


@real(*natural_questions.FILES)
def test_real_natural_questions_passages():
    collection = datasets.load("natural-questions-passages")
    check_asked(collection)
    assert 8_400 < len(collection.queries) <= 8_522 and len(collection.documents) > 7_500
    assert (collection.documents["title"] != "").all()


# NFCorpus.

ABSTRACTS = {"M1": ("Statins", "They lower it."), "M2": ("Asthma", "It is treated. "), "M3": ("Salt", "Eat less.")}
ASKED = {"P1": "Heart", "P2": "Lungs", "P3": "heart", "P4": "Kidneys", "P5": "Unjudged", "P6": "Lungs"}
JUDGED = {
    "train": [("P1", "M1", 1), ("P2", "M2", 1), ("P6", "M1", 1)],
    "dev": [("P3", "M1", 2), ("P3", "M2", 1)],
    "test": [("P4", "M3", 2)],
}


def nfcorpus_zip(**changes):
    """The layout of BEIR; a file by its name is replaced by what is given for it, or left out for None."""
    files = {
        "corpus.jsonl": [{"_id": i, "title": title, "text": text} for i, (title, text) in ABSTRACTS.items()],
        "queries.jsonl": [{"_id": i, "text": text, "metadata": {}} for i, text in ASKED.items()],
    }
    files = {name: "\n".join(map(json.dumps, entries)) for name, entries in files.items()}
    for split, rows in JUDGED.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        files[f"qrels/{split}.tsv"] = "\n".join(lines)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in (files | changes).items():
            if text is not None:
                archive.writestr(f"nfcorpus/{name}", text)
    return buffer.getvalue()


def test_nfcorpus_has_its_own_splits_and_grades(write):
    write(nfcorpus.FILE, nfcorpus_zip())
    collection = datasets.load("nfcorpus")
    # P1 asks what P3 asks in dev; P2 and P6 stand in one split.
    assert collection.queries["split"].to_dict() == {"P4": "test", "P3": "dev", "P2": "train", "P6": "train"}
    assert relevant(collection, "heart") == {"They lower it.": 2, "It is treated.": 1}
    assert collection.documents["title"].to_dict() == {"M1": "Statins", "M2": "Asthma", "M3": "Salt"}
    assert set(collection.qrels["query_id"]) == set(collection.queries.index)
    assert set(collection.provenance) == {nfcorpus.FILE, "left out"}


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"corpus.jsonl": '{"_id": "M1", "text": "y"}\n{"_id": "M2"}'}, "qrels/test.tsv, line 2", "1 of 1 judgments"),
        ({"queries.jsonl": "{"}, "queries.jsonl, line 1", "JSON"),
        ({"queries.jsonl": "[]"}, "queries.jsonl, line 1", "`_id` and text"),
        ({"queries.jsonl": b"\xff\n"}, "queries.jsonl, line 1", "not UTF-8"),
        ({"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nP3\tM1"}, "qrels/dev.tsv, line 2", "grade"),
        ({"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nP3\tM1\thigh"}, "qrels/dev.tsv, line 2", "grade"),
        ({"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nP9\tM1\t1"}, "qrels/dev.tsv, line 2", "1 no query"),
        ({"qrels/test.tsv": None}, "nfcorpus.zip", "holds no nfcorpus/qrels/test.tsv"),
    ],
)
def test_a_damaged_nfcorpus_is_named_with_its_line(write, changes, place, problem):
    write(nfcorpus.FILE, nfcorpus_zip(**changes))
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("nfcorpus")
    assert place in str(error.value) and "fetch beir" in str(error.value)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_a_truncated_or_changed_archive_is_never_taken_for_a_whole_one(write, share):
    content = nfcorpus_zip()
    write(nfcorpus.FILE, content[: int(share * len(content))])
    with pytest.raises(DataError, match="cannot be unpacked"):
        datasets.load("nfcorpus")
    write(nfcorpus.FILE, content.replace(b"They lower it.", b"They raise it."))
    with pytest.raises(DataError, match="cannot be unpacked.*CRC"):
        datasets._load.cache_clear()
        datasets.load("nfcorpus")


@real(nfcorpus.FILE)
def test_real_nfcorpus():
    collection = datasets.load("nfcorpus")
    assert len(collection.documents) == 3_633
    counts = collection.queries["split"].value_counts()
    assert (counts["test"], counts["dev"]) == (323, 324 - 1) and 2_580 <= counts["train"] < 2_590
    assert len(collection.judgments("test")) == 12_334 and set(collection.qrels["relevance"]) == {1, 2}
    assert (collection.queries.groupby(collection.queries["text"].str.casefold())["split"].nunique() == 1).all()


# TREC Deep Learning 2019.


def pool(write, **changes):
    files = {
        "collection.tsv": "1\tone passage\n2\tanother passage\n",
        "queries.tsv": "7\twhat is one\n8\twhat is two\n9\twhat is nobody's\n",
        "qrels.txt": "7 Q0 1 3\n7 Q0 2 0\n7 Q0 99 2\n8 Q0 2 1\n",
        "run.bm25.trec": "8 Q0 99 1 3.5 tag\n8 Q0 2 2 3.5 tag\n7 Q0 1 1 -2e-1 tag\n",
    }
    return {name: write(f"trec-dl-2019/{name}", text) for name, text in (files | changes).items()}


def test_the_pool_keeps_what_it_holds(write):
    pool(write)
    collection = datasets.load("trec-dl-2019")
    assert relevant(collection, "what is one") == {"one passage": 3, "another passage": 0}
    # Passage 99 is judged, and is not in the pool; nobody judged for the last query.
    assert collection.queries["split"].to_dict() == {"7": "test", "8": "test"}
    assert collection.documents["title"].tolist() == ["", ""]
    assert trec_dl_2019.judgments()["doc_id"].tolist() == ["1", "2", "99", "2"]


def test_the_public_run_is_read_in_its_order_with_what_is_outside_the_pool(write):
    pool(write)
    run = trec_dl_2019.public_run()
    assert run.columns.tolist() == RUN_COLUMNS
    assert run.to_numpy().tolist() == [["8", "99", 3.5], ["8", "2", 3.5], ["7", "1", -0.2]]
    assert trec_dl_2019.RUN in datasets.load("trec-dl-2019").provenance


@pytest.mark.parametrize(
    ("file", "content", "line", "problem"),
    [
        ("collection.tsv", "1\tone\n2 two\n", 2, "not 2 fields between tabs"),
        ("queries.tsv", "7\twhat\tis\n", 1, "not 2 fields"),
        ("qrels.txt", "7 Q0 1 3\n7 Q0 1\n", 2, "not query, Q0, document and relevance"),
        ("qrels.txt", "7 Q0 1 x\n", 1, "not query, Q0, document and relevance"),
        ("run.bm25.trec", "7 Q0 1 1 2.5 tag\n7 Q0 2 2 tag\n", 2, "not query, Q0, document, rank, score and tag"),
    ],
)
def test_a_damaged_pool_is_named_with_its_line(write, file, content, line, problem):
    path = pool(write, **{file: content})[file]
    with pytest.raises(DataError, match=problem) as error:
        datasets.load("trec-dl-2019")
        trec_dl_2019.public_run()
    assert f"{path}, line {line}:" in str(error.value)


POOL = [f"trec-dl-2019/{name}" for name in ("collection.tsv", "queries.tsv", "qrels.txt")]


@real(*POOL)
def test_real_trec_dl_2019():
    collection = datasets.load("trec-dl-2019")
    assert len(collection.split("test")) == len(collection.queries) == 43
    assert (len(trec_dl_2019.judgments()), len(collection.qrels)) == (9_260, 4_337)
    assert len(collection.documents) == 14_581 and set(collection.qrels["relevance"]) == {0, 1, 2, 3}


@real(*POOL, trec_dl_2019.RUN)
def test_the_public_run_of_bm25_has_its_published_quality():
    run, collection = trec_dl_2019.public_run(), datasets.load("trec-dl-2019")
    assert (run.groupby("query_id").size() == 100).all()
    assert set(run["doc_id"]) <= set(collection.documents.index)
    values = evaluate(run, trec_dl_2019.judgments(), ["nDCG@10"])["value"]
    assert len(values) == 43 and round(values.mean(), 4) == 0.5058
    # Without the judged passages outside the pool the ideal list is a little worse.
    assert round(evaluate(run, collection.qrels, ["nDCG@10"])["value"].mean(), 4) == 0.5071


# pydocs.

REST = "It does so in one pass over all of them."


def pages_on(side, count):
    """Names of pages whose clusters of one are on a side of the split."""
    names = pd.Index([f"pkg.page{number}" for number in range(200)])
    split = split_by_cluster(names, pd.Series(dtype=object), pydocs.SHARES)
    return names[split == side][:count].tolist()


TRAIN, (TEST,) = pages_on("train", 9), pages_on("test", 1)
GOOD, DESCRIBED, TWIN, OTHER_TWIN, SHORT, REPEATED, TAKEN, SAME_REST, OTHER_REST = TRAIN
SUMMARIES = {
    GOOD: ("Add the numbers.", REST),
    DESCRIBED: ("Multiply the numbers.", "It is slower than one might have thought."),
    TWIN: ("Divide the numbers.", "It is of use to nobody at all."),
    OTHER_TWIN: ("divide the numbers", "It is of use to everybody at once."),
    SHORT: ("Negate the numbers.", "Quite so."),
    REPEATED: ("Square the numbers.", "To square the numbers, one may also multiply."),
    TAKEN: ("Tell what is larger.", "It is the opposite of telling what is smaller."),
    SAME_REST: ("Round to the left.", "It rounds as nobody else has rounded."),
    OTHER_REST: ("Round to the right.", "It rounds as nobody else has rounded."),
    TEST: ("Sort the numbers.", "It sorts in place whatever it is given."),
}


@pytest.fixture
def written(monkeypatch):
    """Tables of pages, each of which would be asked for by its summary but for one thing."""
    rows = [(name, "pkg", summary, name) for name, (summary, _) in SUMMARIES.items()]
    passages = [(name, 0, "Summary", f"{summary} {rest}") for name, (summary, rest) in SUMMARIES.items()]
    passages.append((GOOD, 1, "Notes", "Adding is what it does."))
    told = [
        (DESCRIBED, "Take the product.", "see_also", GOOD),
        (TEST, "Tell what is LARGER", "see_also", GOOD),
    ]
    tables = {
        "pages": pd.DataFrame(rows, columns=["article", "package", "summary", "cluster"]),
        "passages": pd.DataFrame(passages, columns=["article", "position", "section", "text"]),
        "descriptions": pd.DataFrame(told, columns=["target", "text", "source", "origin"]),
        "links": pd.DataFrame(columns=["source", "target"]),
    }
    monkeypatch.setattr(pydocs, "tables", lambda name: tables)
    return pydocs.with_summaries("written", "smoke")


def test_a_summary_is_a_query_where_it_says_which_page_is_meant(written):
    summaries = written.queries[written.queries["source"] == "summary"]
    assert summaries.index.tolist() == [f"{GOOD}?summary"] and summaries["split"].tolist() == ["train"]
    assert relevant(written, "Add the numbers.") == {REST: 1}


def test_only_a_summary_that_is_a_query_is_taken_out(written):
    opening = written.documents.loc[[f"{name}#0" for name in SUMMARIES], "text"]
    whole = {f"{name}#0": f"{summary} {rest}" for name, (summary, rest) in SUMMARIES.items()}
    assert opening.to_dict() == whole | {f"{GOOD}#0": REST}
    assert written.documents["text"][f"{GOOD}#1"] == "Adding is what it does."


def test_descriptions_are_those_of_pydocs(written):
    before = pydocs.described("before", "smoke")
    after = written.queries[written.queries["source"] != "summary"]
    pd.testing.assert_frame_equal(after, before.queries)
    assert after["split"].to_dict() == {f"{DESCRIBED}?0": "train", f"{TEST}?0": "test"}


def test_the_smoke_slice_leaks_nothing():
    collection = datasets.load("pydocs-passages-smoke")
    queries, documents = collection.queries, collection.documents
    assert documents.index.equals(pydocs.described("p", "smoke").documents.index)
    summaries = queries[queries["source"] == "summary"]
    assert len(summaries) > 50 and set(summaries["split"]) == {"train"}
    assert {"train", "dev", "test"} == set(queries["split"][queries["source"] != "summary"])
    assert (queries.groupby("cluster")["split"].nunique() == 1).all()
    assert not queries["text"].map(key).duplicated().any()
    whole = documents["text"].map(key).groupby(documents["article"]).agg(" ".join)
    leaked = [t for t, page in zip(summaries["text"], summaries["cluster"], strict=True) if key(t) in whole[page]]
    assert leaked == []
    assert collection.qrels.set_index("query_id")["doc_id"].eq(queries["cluster"] + "#0").all()
