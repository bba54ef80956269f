"""Corpora of one's own: what each form reads, and that what is broken is said with file and line, never lost."""

import gzip
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import ir_datasets
import pandas as pd
import pytest
from ir_datasets.datasets import antique
from ir_datasets.datasets import beir as public
from ir_datasets.util.registry import Registry
from realdata import REAL, real
from releases import lines, of_json, put, zipped

from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.data import datasets
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.datasets import own
from retlib.data.tokenized import texts
from retlib.evaluation import measures
from retlib.retrieval.lexical import BM25

CORPUS = [
    {"_id": "d1", "title": "Sorting", "text": "Lists are sorted in place."},
    {"_id": "d2", "title": "", "text": "Trees grow."},
    {"_id": 3, "text": "Zahlen können Namen sein. Ключ 鍵"},
]
QUERIES = [{"_id": f"q{number}", "text": f"question {number}"} for number in range(60)]
HEAD = "query-id\tcorpus-id\tscore\n"
JUDGED = [(f"q{n}", CORPUS[n % 3]["_id"], 1 + n % 2) for n in range(60)]
TRAIN, TEST = "qrels/train.tsv", "qrels/test.tsv"
FILES = {"corpus.jsonl": of_json(*CORPUS), "queries.jsonl": of_json(*QUERIES)}
FILES |= {TRAIN: HEAD + lines(*JUDGED[:50]), TEST: HEAD + lines(*JUDGED[50:])}


@pytest.fixture
def mine(tmp_path):
    """The name of a folder in BEIR's form, with some of its files changed, or left out for None."""

    def make(changes=None):
        shutil.rmtree(tmp_path / "mine", ignore_errors=True)
        return f"beir:{put(tmp_path / 'mine', FILES | (changes or {}))}"

    return make


@pytest.mark.parametrize(
    ("changes", "splits", "made"),
    [
        ({}, {"train", "dev", "test"}, "dev is "),
        ({TEST: None}, {"train", "dev", "test"}, "test is "),
        ({TRAIN: None}, {"test"}, ""),
        ({TRAIN: None, TEST: None, "qrels/dev.tsv": f"{HEAD}q1\td1\t1\n"}, {"test"}, "test is what was dev"),
    ],
)
def test_a_split_that_is_missing_is_made_by_hash_and_said(mine, changes, splits, made):
    found = datasets.load(mine(changes))
    assert {*found.queries["split"]} == splits and found.facts.get("splits", "").startswith(made)
    assert made or "splits" not in found.facts


@pytest.mark.parametrize("count", range(1, 9))
def test_few_questions_test_and_train_and_no_more_than_is_said(count):
    """Whatever their hashes are: one question is in each split that is said to be made, and one trains."""
    for number in range(40):
        queries = pd.DataFrame({"text": [f"Question {each} of {number}?" for each in range(count)], "split": "train"})
        split, facts = own.with_splits(queries)
        sizes = dict(re.findall(r"(\w+) is (\d+) of", facts.get("splits", "")))
        assert {*split["split"]} == {"train", *sizes} and ("test" in sizes or count == 1)
        assert "dev" in sizes or (split["split"] == "train").sum() == 1
        assert all((split["split"] == name).sum() == int(size) for name, size in sizes.items())
        twice = pd.concat([queries, queries.assign(text=queries["text"].str.upper())], ignore_index=True)
        assert [*own.with_splits(twice)[0]["split"]] == 2 * [*split["split"]]


def test_queries_that_are_left_out_are_counted(mine):
    """A query of two splits has the judgments of one, whatever the other says of the same document or of others."""
    more = [*QUERIES, {"_id": "none", "text": "not judged"}, {"_id": "twice", "text": "Question 50"}]
    judged = FILES[TRAIN] + lines(("twice", "d1", 1), ("q50", CORPUS[50 % 3]["_id"], 7), ("q50", "d1", 1))
    found, alone = datasets.load(mine({"queries.jsonl": of_json(*more), TRAIN: judged})), datasets.load(mine())
    lost = {"questions without an answer": 1, "queries whose text a more guarded split has": 1}
    lost["judgments of queries that a more guarded split has"] = 3
    assert lost.items() <= found.facts.items() and found.fingerprint == alone.fingerprint


@pytest.mark.parametrize("misplaced", ["test.tsv", "Qrels/test.tsv", "qrels/valid.tsv"])
def test_queries_whose_judgments_lie_elsewhere_are_refused(mine, misplaced):
    with pytest.raises(DataError, match=r"qrels/train.tsv, dev.tsv, test.tsv"):
        datasets.load(mine({TRAIN: None, TEST: None, misplaced: FILES[TEST]}))


def test_what_is_written_is_read_again(mine, tmp_path):
    """Of three splits all is as it was, judgments by their splits; of documents alone no judgment is written."""

    def again(collection, place="again"):
        own.write(collection, tmp_path / place)
        return datasets.load(f"beir:{tmp_path / place}")

    first = datasets.load(mine())
    second = again(first)
    assert second.documents.equals(first.documents) and second.queries.to_dict() == first.queries.to_dict()
    assert {*second.qrels.itertuples(index=False)} == {*first.qrels.itertuples(index=False)}
    assert again(second, "third").fingerprint == second.fingerprint
    tested = again(replace(first, qrels=first.judgments("test"), queries=first.split("test")))
    assert {*tested.queries["split"]} == {"test"}  # of what was there before nothing is left
    unjudged = replace(first, qrels=first.qrels[:0], queries=first.queries[:0], documents=first.documents[["text"]])
    texts = again(unjudged)
    assert texts.queries.empty and texts.documents["text"].equals(first.documents["text"])


def test_what_changes_is_read_again_and_has_another_provenance(mine, tmp_path):
    before, more = datasets.load(mine()), of_json(*CORPUS, {"_id": "d4", "text": "one more"})
    after = datasets.load(mine({"corpus.jsonl": more}))
    assert len(after.documents) == len(before.documents) + 1 and after.provenance != before.provenance
    folder = f"folder:{put(tmp_path / 'p', {'one/a.md': 'x', 'b.md': 'y'})}"
    before = datasets.provenance(folder)
    (tmp_path / "p" / "one").rename(tmp_path / "p" / "two")
    assert datasets.provenance(folder) != before


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("corpus.jsonl", '{"_id": "a\\tb", "text": "x"}\n', "line 1: .*white space"),
        ("corpus.jsonl", of_json({"_id": "a", "text": "x"}) + "[" * 100_000, "line 2: .*recursion"),
        ("corpus.jsonl", r'{"_id": "a", "text": "\ud800"}', "line 1: .*surrogates"),
        ("corpus.jsonl", b"x" * 10_000_000 + b"\xff", "byte 10000000 is not UTF-8"),
        (TEST, HEAD, "line 1: nothing stands there"),
        (TEST, f"{HEAD}q50\td1\t{9**30}\n", "line 2: .*too large"),
        ("queries.jsonl", None, "no queries.jsonl"),
    ],
)
def test_what_is_broken_is_said_with_file_and_line(mine, file, content, problem):
    with pytest.raises(DataError, match=problem) as error:
        datasets.load(mine({file: content}))
    message = str(error.value)
    assert file in message and message.count("mine") == 1 and "official" not in message


def test_what_is_no_archive_or_holds_several_is_refused(tmp_path):
    # The bit that says so, where the archive lists its files and where each begins.
    mark = re.compile(rb"(PK\x01\x02....|PK\x03\x04..)\0\0", flags=re.DOTALL)
    for archive, problem in (
        (b"PK nothing", "neither a folder nor a zip"),
        (zipped({f"{each}/corpus.jsonl": FILES["corpus.jsonl"] for each in "ab"}), "holds 2 corpus.jsonl"),
        (mark.sub(lambda found: found[1] + b"\x01\0", zipped(FILES)), "corpus.jsonl: .*password required"),
    ):
        with pytest.raises(DataError, match=f"a.zip: .*{problem}"):
            datasets.load(f"beir:{put(tmp_path, {'a.zip': archive}) / 'a.zip'}")


LONG = "x" * 300_000  # a pattern that is tried from every letter on would not come to an end
PAGES = {
    "start.md": "# The start\n\nWe begin here with [the end](deep/end.html#there). It is far away.\n\n"
    "## Later\n\nThen comes [nothing](missing.md) and [elsewhere](https://example.org). All is well.\n",
    "deep/end.html": "<html><head><title>The end</title><style>p {}</style></head><body><h1>End</h1>"
    "<p>All <b>ends</b> here, as it must.</p><h2>Back</h2><p>Go <a href='../start.md'>back</a> now.</p></body></html>",
    "deep/notes.txt": "# no heading\nOne paragraph of a note.\n\nAnother paragraph.",
    "more.jsonl": '\ufeff{"title": "First", "text": "A line of its own."}\r\n\r\n \n{"text": "Another line."}\n\n',
    "ignored.png": b"\x89PNG",
    ".hidden/secret.txt": "nobody reads this",
}
ODD = {
    "code.md": "# A\n\nRead this.\n\n~~~ `code`\n```\n# no heading\n~~~ no end\n~~~~\n\n## Behind\n\n![A plot](a) G.\n",
    "line.md": "# About C# #\n\nSee array[0](see also Smith, page 5) and [b](code.md 'its title').\n",
    "long.md": f"# {LONG}{' ' * 100_000}y\n\n[a](b{LONG}\n",
    "name.md": "# Only a title\n",
    "odd.html": "<![x y]><title>Only this</title><a href='http://[x'>",
    "open.html": "<html><head><title>T</title><style>p {}</style><body><nav>Home<p>The quick brown fox runs.</p>",
}


def test_headings_become_sections_and_links_links(tmp_path, own_build):
    folder = f"folder:{put(tmp_path / 'pages', PAGES)}"
    found = {each.name: each for each in datasets.articles(folder)}
    assert list(found) == ["deep/end.html", "deep/notes.txt", "more.jsonl:1", "more.jsonl:4", "start.md"]
    start, end = found["start.md"], found["deep/end.html"]
    assert start.title == "The start" and start.links == ("deep/end.html",) and end.links == ("start.md",)
    assert start.passages[0] == "We begin here with the end. It is far away." and start.opening == 1
    assert start.passages[1] == "Later" and "and elsewhere. All" in start.passages[2]
    assert end.title == "The end" and end.opening == 2
    assert end.passages == ("End", "All ends here, as it must.", "Back", "Go back now.")
    assert found["deep/notes.txt"].passages == ("# no heading One paragraph of a note.", "Another paragraph.")
    assert found["more.jsonl:1"].title == "First"
    collection = datasets.load(folder)
    words = " ".join(collection.documents["text"])
    assert collection.queries.empty and all(text in words for text in ("All ends here", "Another line.", "Then comes"))
    corpus = Articles(folder, 200).corpus
    assert len(corpus.names) == 5 and len(corpus.link_targets) == 2


def test_marks_that_are_odd_or_open_stay_text(tmp_path):
    code, line, long, name, odd, opened = datasets.articles(f"folder:{put(tmp_path, ODD)}")
    assert code.passages[0] == "Read this." and code.passages[-2:] == ("Behind", "A plot G.") and code.title == "A"
    assert line.title == "About C#" and line.links == ("code.md",)
    assert line.passages == ("See array[0](see also Smith, page 5) and b.",)
    assert long.passages == (f"[a](b{LONG}",) and len(long.title) > 300_000
    assert (name.title, odd.passages) == ("Only a title", ("Only this",))
    assert "The quick brown fox runs." in opened.passages


def test_links_to_folders_are_followed_and_never_in_circles(tmp_path, mine):
    pages = put(tmp_path / "pages", {"deep/a.md": "One.", ".hidden/b.md": "Two."})
    other = put(tmp_path / "other", {"c.md": "Three.", "in/d.md": "Four."})
    for link, target in {"to": other, "again": other, "up": tmp_path, "c": pages / ".hidden"}.items():
        (pages / link).symlink_to(target)
    (other / "in" / "back").symlink_to(pages)
    (other / "round").symlink_to(other / "in")
    (pages / "nowhere").symlink_to(tmp_path / "nothing")
    texts = [" ".join(each.passages) for each in datasets.articles(f"folder:{pages}")]
    assert sorted(texts) == ["Four.", "One.", "Three.", "Two."]  # each folder once
    folder = Path(mine().removeprefix("beir:"))
    whole = datasets.load(f"beir:{folder}").fingerprint
    (folder / "qrels").rename(tmp_path / "judged")
    (folder / "qrels").symlink_to(tmp_path / "judged")
    assert datasets.load(f"beir:{folder}").fingerprint == whole


def test_names_of_files_part_no_run_and_none_is_taken_for_another(tmp_path):
    place = put(tmp_path / "p", {"a b.txt": "Some text here.", "a_b.txt": "Other text here."})
    assert list(datasets.load(f"folder:{place}").documents.index) == ["a%20b.txt#0", "a_b.txt#0"]
    Path(os.fsdecode(bytes(place) + b"/gr\xfcn.txt")).write_text("x")
    with pytest.raises(DataError, match=r"gr\\udcfcn.txt: .*UTF-8"):
        datasets.load(f"folder:{place}")
    empty = put(tmp_path / "empty", {"a.txt": ""})
    with pytest.raises(DataError, match=rf"folder:{empty}: none of its 1 files"):
        datasets.load(f"folder:{empty}")


@pytest.mark.parametrize("name", ["TAB.TSV", "tab.tsv.gz"])
def test_tabs_part_a_table_that_says_so(tmp_path, name):
    """A field may have lines and be long, and what is no column of a corpus is counted."""
    text = "One, \n\n" + '"two" ' * 60_000 + "three"
    table = pd.DataFrame({"uid": ["1"], "id": ["7"], "titles": ["2"], "text": [text]}).to_csv(sep="\t", index=False)
    put(tmp_path, {name: gzip.compress(table.encode()) if name.endswith(".gz") else table})
    found = datasets.load(f"csv:{tmp_path / name}")
    assert found.documents["text"].to_dict() == {"7": text}
    assert found.facts["columns passed over"] == "uid, titles"


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("a.csv", "Text,text\nx,y\n", 1, "text, text"),
        ("a.csv", 'id,text\n1,one\n2,two\n3,"three" 3\n', 4, "no table"),
        ("a.csv", "id,text,question\n1,one,why\n1,two,how\n", 3, "another content"),
        ("a.csv", "id,text\n1,one\n2\n", 3, "1 columns, not 2"),
        ("a.tsv", 'id\ttext\n\n1\t"Quoted\n2\tb\n3\tc"\n', 5, "a quote runs on"),
        ("a.tsv", 'id\ttext\n1\ta\n2\t"Quoted\n3\tc\n', 4, "unexpected end of data"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path, name, content, line, problem):
    path = put(tmp_path, {name: content}) / name
    with pytest.raises(DataError, match=problem) as error:
        datasets.load(f"csv:{path}")
    assert f"{path}, line {line}" in str(error.value)


def test_such_a_name_is_valid_where_a_name_is_taken(tmp_path, mine, monkeypatch):
    folder = f"folder:{put(tmp_path / 'pages', PAGES)}"
    assert next(iter(datasets.text(folder)), "").count(" ") >= 3 and own.find("pydocs") is None
    for registry, name in ((datasets.COLLECTIONS, mine()), (datasets.ARTICLES, folder), (datasets.TEXTS, folder)):
        assert registry.get(name)
        with pytest.raises(SettingError, match=r"folder:<path>"):
            registry.get("no-such-name")
    # What is registered comes before a place.
    registered = Collection("my:corpus", pd.DataFrame({"text": ["one"]}, index=["d1"]), *own.no_questions())
    things = datasets.COLLECTIONS._things | {"my:corpus": lambda: registered}
    monkeypatch.setattr(datasets.COLLECTIONS, "_things", things)
    assert datasets.load("my:corpus") is not None


@pytest.mark.parametrize(
    "name", ["beir:", "flder:x", "csv:/no/file", "folder:/no/folder", "csv:tests", f"csv:{'x' * 999}", "csv:~nobody-/x"]
)
def test_a_name_that_leads_nowhere_is_an_error(name):
    with pytest.raises(RetlibError):
        datasets.load(name)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder for ir-datasets, whose data sets are defined on it anew."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")
    monkeypatch.setattr(ir_datasets, "registry", Registry())
    monkeypatch.setattr(ir_datasets.util.download.RequestsDownload, "stream", no_network)
    datasets._load.cache_clear()
    yield tmp_path
    datasets._load.cache_clear()


def no_network(download):
    raise ConnectionError(f"no network to {download.url}")


@pytest.fixture
def answers(home):
    """ANTIQUE in small."""
    files = {"collection.tsv": "a_1\tThe first.\na_2\tThe second.\na_3\tThe third.\n"}
    files |= {"train/queries.txt": "7\twhy is it\n8\tnobody judged\n9\twho is it\n"}
    files |= {"train/qrels": "7 U0 a_1 4\n7 U0 a_2 1\n9 U0 a_3 4\n", "test/queries.txt": "5\tWho is it\n"}
    put(home / "antique", files | {"test/qrels": "5 Q0 a_1 3\n5 Q0 a_3 -2\n5 Q0 a_2 4\n"})
    antique._init()
    return home


def test_the_parts_of_a_data_set_are_splits(answers):
    collection = datasets.load("irds:antique")
    # Question 9 of the training file is asked in the test file too; of the one that is left none can be held out.
    assert collection.queries["split"].to_dict() == {"5": "test", "7": "train"}
    assert collection.documents["text"].to_dict() == {"a_1": "The first.", "a_2": "The second.", "a_3": "The third."}
    assert set(collection.documents["title"]) == {""}
    judged = collection.qrels.set_index(["query_id", "doc_id"])["relevance"].to_dict()
    assert judged == {("5", "a_1"): 3, ("5", "a_3"): 0, ("5", "a_2"): 4, ("7", "a_1"): 4, ("7", "a_2"): 1}
    assert collection.provenance == {"irds:antique": f"ir-datasets {ir_datasets.__version__}"}
    assert collection.facts["queries whose text a more guarded split has"] == 1
    assert {*datasets.load("irds:antique/train").queries["split"]} == {"test"}  # which has no such parts


def test_an_unknown_id(answers):
    with pytest.raises(SettingError, match="'antique/tset'"):
        datasets.load("irds:antique/tset")


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("collection.tsv", "a_1 The first.\n", "expected 2 fields"),
        ("test/qrels", "5 Q0 a_1 good\n", "invalid literal"),
        ("test/queries.txt", b"5\t\xff\n", "UnicodeDecodeError"),
        ("test/qrels", "6 Q0 a_1 3\n", "no query of test"),
        ("test/qrels", "5 Q0 a_9 3\n", "a_9"),
    ],
)
def test_damaged_files(answers, file, content, problem):
    put(answers / "antique", {file: content})
    with pytest.raises(DataError, match=problem):
        datasets.load("irds:antique")


def test_without_network(home):
    antique._init()
    with pytest.raises(DataError, match="ConnectionError: no network to https://ciir"):
        datasets.load("irds:antique")


@real("beir/nfcorpus.zip")
def test_a_real_collection_is_the_same_through_ir_datasets_and_as_a_zip(home):
    archive = Path(REAL) / "beir" / "nfcorpus.zip"
    put(home / "beir" / "nfcorpus", {"source.zip": archive.read_bytes()})
    public._init()
    found = datasets.load("irds:beir/nfcorpus")
    assert found.fingerprint == datasets.load(f"beir:{archive}").fingerprint
    bm25 = BM25(stop_words="english", stemmer="english")
    run = bm25.rank(texts(found), found.split("test")["text"], 10)
    scores = measures.evaluate(run, found.judgments("test"), ["nDCG@10"])["value"]
    assert len(scores) == 323 and 0.322 <= scores.mean() <= 0.343  # as published, by implementation
