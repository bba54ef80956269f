"""Corpora of one's own: what each form reads, and that what is broken is said with file and line, never lost."""

import gzip
import json
import os
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.data import datasets
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.datasets import _beir, own
from retlib.studies.experiment import articles_name, collection_name, text_name

CORPUS = [
    {"_id": "d1", "title": "Sorting", "text": "Lists are sorted in place."},
    {"_id": "d2", "title": "", "text": "Trees grow."},
    {"_id": 3, "text": "Zahlen können Namen sein. Ключ 鍵"},
]
QUERIES = [{"_id": f"q{number}", "text": f"question {number}"} for number in range(60)]
HEAD = "query-id\tcorpus-id\tscore\n"


def in_lines(entries):
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def beir_files(**changes):
    judged = {"train": range(50), "test": range(50, 60)}
    files = {"corpus.jsonl": in_lines(CORPUS), "queries.jsonl": in_lines(QUERIES)}
    for split, numbers in judged.items():
        files[f"qrels/{split}.tsv"] = HEAD + "".join(f"q{n}\t{CORPUS[n % 3]['_id']}\t{1 + n % 2}\n" for n in numbers)
    return {name: content for name, content in (files | changes).items() if content is not None}


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def beir(tmp_path):
    def make(**changes):
        shutil.rmtree(tmp_path / "mine", ignore_errors=True)
        return f"beir:{write(tmp_path / 'mine', beir_files(**changes))}"

    return make


def packed(path, files, inside=""):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(inside + name, content)
    return f"beir:{path}"


def test_a_folder_and_its_zip_are_the_same_collection(beir, tmp_path):
    folder = datasets.load(beir())
    for inside in ("", "mine/"):
        zipped = datasets.load(packed(tmp_path / f"{len(inside)}.zip", beir_files(), inside))
        assert zipped.fingerprint == folder.fingerprint
    assert folder.documents["text"].to_dict() == {str(each["_id"]): each["text"] for each in CORPUS}
    assert folder.documents["title"].tolist() == ["Sorting", "", ""]
    assert set(folder.qrels["relevance"]) == {1, 2} and len(folder.split("test")) == 10


def test_a_split_that_is_missing_is_made_by_hash_and_said(beir):
    both = datasets.load(beir())
    assert len(both.split("dev")) + len(both.split("train")) == 50 and 0 < len(both.split("dev")) < 20
    assert both.provenance["splits"] == "dev is 10% of what was train, by a hash of the text"
    alone = datasets.load(beir(**{"qrels/test.tsv": None}))
    assert (
        set(alone.queries["split"]) == {"train", "dev", "test"}
        and "test is 20% of what was train" in alone.provenance["splits"]
    )
    tested = datasets.load(beir(**{"qrels/train.tsv": None}))
    assert set(tested.queries["split"]) == {"test"} and "splits" not in tested.provenance
    dev = datasets.load(
        beir(**{"qrels/train.tsv": None, "qrels/test.tsv": None, "qrels/dev.tsv": f"{HEAD}q1\td1\t1\n"})
    )
    assert set(dev.queries["split"]) == {"test"} and dev.provenance["splits"] == "test is what was dev"


@pytest.mark.parametrize("count", range(1, 9))
def test_few_questions_test_and_train_and_no_more_than_is_said(count):
    """Whatever their hashes are: one question is in each split that is said to be made, and one trains."""
    for number in range(40):
        texts = [f"Question {each} of {number}?" for each in range(count)]
        queries = pd.DataFrame({"text": texts, "split": "train"})
        split, said = _beir.with_splits(queries)
        made = {name for name in ("test", "dev") if f"{name} is" in said.get("splits", "")}
        left = (split["split"] == "train").sum()
        assert {*split["split"]} == {"train", *made} and ("test" in made or count == 1) and ("dev" in made or left == 1)
        for name, told, of in re.findall(r"(\w+) is (\d+) of the (\d+)", said.get("splits", "")):
            assert (split["split"] == name).sum() == int(told) < int(of) <= count
        twice = pd.concat([queries, queries.assign(text=queries["text"].str.upper())], ignore_index=True)
        asked = _beir.with_splits(twice)[0]["split"]
        assert [*asked[:count]] == [*asked[count:]] == [*split["split"]]


def test_queries_that_are_left_out_are_counted(beir):
    more = [*QUERIES, {"_id": "none", "text": "not judged"}, {"_id": "twice", "text": "Question 50"}]
    judged = beir_files()["qrels/train.tsv"] + "twice\td1\t1\n"
    found = datasets.load(beir(**{"queries.jsonl": in_lines(more), "qrels/train.tsv": judged}))
    lost = {"questions without an answer": 1, "queries whose text a more guarded split has": 1}
    lost["judgments of queries that a more guarded split has"] = 1
    assert lost.items() <= found.facts.items() and not {"none", "twice"} & {*found.queries.index}
    assert found.provenance["left out"] == ", ".join(f"{name}: {count}" for name, count in lost.items())


def test_a_query_of_two_splits_has_the_judgments_of_one(beir):
    """Those of the split that keeps it, whatever the other says of the same document or of others."""
    own = beir_files()["qrels/test.tsv"]
    other = beir_files()["qrels/train.tsv"] + f"q50\t{CORPUS[50 % 3]['_id']}\t7\nq50\td1\t1\n"
    found, alone = datasets.load(beir(**{"qrels/train.tsv": other})), datasets.load(beir(**{"qrels/test.tsv": own}))
    assert found.fingerprint == alone.fingerprint
    assert found.provenance["left out"] == "judgments of queries that a more guarded split has: 2"


@pytest.mark.parametrize("misplaced", ["test.tsv", "qrels.tsv", "Qrels/test.tsv", "other.txt"])
def test_queries_whose_judgments_lie_elsewhere_are_refused(beir, misplaced):
    files = {"qrels/train.tsv": None, "qrels/test.tsv": None, misplaced: beir_files()["qrels/test.tsv"]}
    with pytest.raises(DataError, match=r"without judgments; judgments are qrels/train.tsv, dev.tsv, test.tsv"):
        datasets.load(beir(**files))


def test_documents_that_nobody_asked_for_are_a_collection_too(beir):
    alone = {"queries.jsonl": None, "qrels/train.tsv": None, "qrels/test.tsv": None}
    for files in (alone, {**alone, "queries.jsonl": ""}):
        collection = datasets.load(beir(**files))
        assert len(collection.documents) == 3 and collection.queries.empty and collection.qrels.empty


def test_questions_that_differ_by_case_alone_are_in_one_split(tmp_path):
    rows = "".join(f"Answer {n},What is {n}\nAnswer {n},what IS {n}\n" for n in range(120))
    (tmp_path / "t.csv").write_text(f"text,question\n{rows}")
    queries = datasets.load(f"csv:{tmp_path / 't.csv'}").queries
    assert (queries.groupby(queries["text"].str.casefold())["split"].nunique() == 1).all()


def test_what_is_written_is_read_again(beir, tmp_path):
    """Of three splits all is as it was, judgments by their splits; of documents alone no judgment is written."""
    first = datasets.load(beir())
    _beir.write(first, tmp_path / "again")
    second = datasets.load(f"beir:{tmp_path / 'again'}")
    assert set(first.queries["split"]) == {"train", "dev", "test"} and second.documents.equals(first.documents)
    assert second.queries.to_dict() == first.queries.to_dict()
    assert {*second.qrels.itertuples(index=False)} == {*first.qrels.itertuples(index=False)}
    _beir.write(second, tmp_path / "third")
    assert datasets.load(f"beir:{tmp_path / 'third'}").fingerprint == second.fingerprint
    unjudged = replace(first, qrels=first.qrels[:0], queries=first.queries[:0], documents=first.documents[["text"]])
    _beir.write(unjudged, tmp_path / "texts")
    assert datasets.load(f"beir:{tmp_path / 'texts'}").documents["text"].equals(first.documents["text"])
    tested = replace(first, qrels=first.judgments("test"), queries=first.split("test"))
    _beir.write(tested, tmp_path / "again")  # of what was there nothing is left
    assert set(datasets.load(f"beir:{tmp_path / 'again'}").queries["split"]) == {"test"}
    _beir.write(unjudged, tmp_path / "again")
    assert datasets.load(f"beir:{tmp_path / 'again'}").queries.empty
    parted = first.documents.rename({first.documents.index[0]: "a b"})
    with pytest.raises(DataError, match=r"corpus: the ids \['a b'\] are empty or have white space"):
        _beir.write(replace(unjudged, documents=parted), tmp_path / "parted")


def test_blank_lines_and_long_fields_are_read(beir, tmp_path):
    assert len(datasets.load(beir(**{"corpus.jsonl": in_lines(CORPUS) + "\n\n"})).documents) == 3
    (tmp_path / "long.csv").write_text(f"text\n{'word ' * 60_000}\n")
    assert len(datasets.load(f"csv:{tmp_path / 'long.csv'}").documents["text"].iloc[0]) > 200_000


def test_a_folder_that_is_renamed_inside_is_another(tmp_path):
    before = datasets.provenance(f"folder:{write(tmp_path / 'p', {'one/a.md': 'x', 'b.md': 'y'})}")
    (tmp_path / "p" / "one").rename(tmp_path / "p" / "two")
    assert datasets.provenance(f"folder:{tmp_path / 'p'}") != before


def test_what_is_registered_comes_before_a_place():
    @datasets.register("my:corpus")
    def mine():
        return SimpleNamespace(name="my:corpus")

    assert datasets.load("my:corpus").name == "my:corpus"
    del datasets.COLLECTIONS._things["my:corpus"]


def test_windows_files_are_read(beir):
    mark = "\ufeff"
    files = {name: mark + content.replace("\n", "\r\n") for name, content in beir_files().items()}
    assert datasets.load(beir(**files)).fingerprint == datasets.load(beir(**beir_files())).fingerprint


def test_a_file_that_changes_is_read_again(beir):
    before = datasets.load(beir())
    assert datasets.load(beir()) is not None
    after = datasets.load(beir(**{"corpus.jsonl": in_lines([*CORPUS, {"_id": "d4", "text": "one more"}])}))
    assert len(after.documents) == len(before.documents) + 1
    assert after.provenance != before.provenance


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        (
            {"corpus.jsonl": '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n'},
            "corpus.jsonl, line 2",
            "another content: keep one",
        ),
        ({"corpus.jsonl": '{"_id": "a", "text": "x"}\n{"_id": "b"\n'}, "corpus.jsonl, line 2", "not JSON"),
        ({"corpus.jsonl": '{"text": "x"}\n'}, "corpus.jsonl, line 1", "'id'"),
        ({"corpus.jsonl": '{"_id": "a b", "text": "x"}\n'}, "corpus.jsonl, line 1", "white space"),
        ({"corpus.jsonl": '{"_id": "a\\tb", "text": "x"}\n'}, "corpus.jsonl, line 1", "white space"),
        ({"corpus.jsonl": '{"_id": true, "text": "x"}\n'}, "corpus.jsonl, line 1", "no number and no text"),
        ({"corpus.jsonl": '{"_id": "a", "text": " "}\n'}, "corpus.jsonl, line 1", "no entry with a text"),
        ({"corpus.jsonl": '{"_id": "a", "text": 5}\n'}, "corpus.jsonl, line 1", "is no text"),
        ({"corpus.jsonl": ""}, "corpus.jsonl, line 1", "no entry"),
        ({"corpus.jsonl": b'{"_id": "a", "text": "x\xff"}\n'}, "corpus.jsonl: ", "byte 23 is not UTF-8"),
        ({"qrels/test.tsv": f"{HEAD}q50\td1\t1\nq50\td1\t0\n"}, "qrels/test.tsv, line 3", "another content"),
        ({"qrels/test.tsv": f"{HEAD}q50\td1\n"}, "qrels/test.tsv, line 2", "not query, document and grade"),
        ({"qrels/test.tsv": HEAD}, "qrels/test.tsv, line 2", "no judgment"),
        ({"qrels/test.tsv": f"{HEAD}q50\td1\t{9**30}\n"}, "qrels/test.tsv, line 2", "too large"),
        ({"corpus.jsonl": '{"_id": "a", "text": "x"}\n' + "[" * 100_000}, "corpus.jsonl, line 2", "recursion"),
        ({"corpus.jsonl": r'{"_id": "a", "text": "\ud800"}'}, "corpus.jsonl, line 1", "surrogates not allowed"),
        ({"corpus.jsonl": '{"_id": "a", "text": "x", "title": 0}'}, "corpus.jsonl, line 1", "0 is no text"),
        ({"corpus.jsonl": b"x" * 10_000_000 + b"\xff"}, "corpus.jsonl: ", "byte 10000000 is not UTF-8"),
        ({"queries.jsonl": None}, "mine", "has no queries.jsonl"),
        ({"qrels/valid.tsv": HEAD}, "mine", "has qrels/valid.tsv; judgments are qrels/train.tsv, dev.tsv, test.tsv"),
    ],
)
def test_what_is_broken_is_said_with_file_and_line(beir, changes, place, problem):
    with pytest.raises(DataError, match=problem) as error:
        datasets.load(beir(**changes))
    assert place in str(error.value) and "official" not in str(error.value) and str(error.value).count("mine") == 1


def test_what_is_no_archive_or_holds_several_is_refused(tmp_path):
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="neither a folder nor a zip"):
        datasets.load(f"beir:{broken}")
    two = {"a/corpus.jsonl": in_lines(CORPUS), "b/corpus.jsonl": in_lines(CORPUS)}
    with pytest.raises(DataError, match="holds 2 corpus.jsonl"):
        datasets.load(packed(tmp_path / "two.zip", two))
    raw = Path(packed(tmp_path / "locked.zip", beir_files()).removeprefix("beir:")).read_bytes()
    # The bit that says so, where the archive lists its files and where each begins.
    raw = re.sub(rb"(PK\x01\x02....|PK\x03\x04..)\0\0", lambda found: found[1] + b"\x01\0", raw, flags=re.DOTALL)
    (tmp_path / "locked.zip").write_bytes(raw)
    with pytest.raises(DataError, match="locked.zip: corpus.jsonl: it cannot be read .*password required"):
        datasets.load(f"beir:{tmp_path / 'locked.zip'}")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name, content in [*beir_files().items(), ("qrels/test.tsv", HEAD)]:
            archive.writestr(name, content)
    with pytest.raises(DataError, match="it holds a file several times"):
        datasets.load(f"beir:{tmp_path / 'two.zip'}")


def test_an_archive_that_climbs_out_of_its_folder_writes_nothing(tmp_path):
    name = packed(tmp_path / "climbs.zip", {**beir_files(), "../../escaped.txt": "x"})
    assert len(datasets.load(name).documents) == 3
    assert not (tmp_path.parent / "escaped.txt").exists() and not (tmp_path / "escaped.txt").exists()


# --- folders ---------------------------------------------------------------------------------------

PAGES = {
    "start.md": "# The start\n\nWe begin here with [the end](deep/end.html#there). It is far away.\n\n"
    "## Later\n\nThen comes [nothing](missing.md) and [elsewhere](https://example.org). All is well.\n",
    "deep/end.html": "<html><head><title>The end</title><style>p {}</style></head><body><h1>End</h1>"
    "<p>All <b>ends</b> here, as it must.</p><h2>Back</h2><p>Go <a href='../start.md'>back</a> now.</p></body></html>",
    "deep/notes.txt": "# no heading\nOne paragraph of a note.\n\nAnother paragraph.",
    "more.jsonl": in_lines([{"title": "First", "text": "A line of its own."}, {"text": "Another line."}]),
    "ignored.png": b"\x89PNG",
}


@pytest.fixture
def folder(tmp_path):
    return f"folder:{write(tmp_path / 'pages', PAGES)}"


def test_headings_become_sections_and_links_links(folder):
    found = {each.name: each for each in datasets.articles(folder)}
    assert list(found) == ["deep/end.html", "deep/notes.txt", "more.jsonl:1", "more.jsonl:2", "start.md"]
    start, end = found["start.md"], found["deep/end.html"]
    assert start.title == "The start" and start.links == ("deep/end.html",) and end.links == ("start.md",)
    assert start.passages[0] == "We begin here with the end. It is far away." and start.opening == 1
    assert start.passages[1] == "Later" and "and elsewhere. All" in start.passages[2]
    assert end.title == "The end" and end.opening == 2
    assert end.passages == ("End", "All ends here, as it must.", "Back", "Go back now.")
    assert found["deep/notes.txt"].passages == ("# no heading One paragraph of a note.", "Another paragraph.")
    assert found["more.jsonl:1"].title == "First"


def test_marks_that_are_no_link_and_no_heading_stay_text(tmp_path):
    long = "x" * 300_000  # a pattern that is tried from every letter on would not come to an end
    pages = {
        "a.md": "# About C# #\n\nSee array[0](see also Smith, page 5) and [b](b.md 'its title').\n",
        "b.md": f"# {long}{' ' * 100_000}y\n\n[a](b{long}\n",
    }
    about, other = datasets.articles(f"folder:{write(tmp_path, pages)}")
    assert about.title == "About C#" and about.links == ("b.md",)
    assert about.passages == ("See array[0](see also Smith, page 5) and b.",)
    assert other.passages == (f"[a](b{long}",) and len(other.title) > 300_000


def test_what_pages_leave_open_is_not_lost(tmp_path):
    pages = {
        "open.html": "<html><head><title>T</title><style>p {}</style><body><nav>Home<p>The quick brown fox runs.</p>",
        "code.md": "# Guide\n\nRead this.\n\n```bash\n# install the thing now\n```\n\n"
        "## Negatives\n\n![A plot](a.png) Take them.\n",
        ".hidden/secret.txt": "nobody reads this",
        "name.md": "# Only a title\n",
        "odd.html": "<![x y]><title>Only this</title><a href='http://[x'>",
        "lines.jsonl": '\ufeff{"text": "One line."}\r\n\r\n \n{"text": "Another line."}\n\n',
    }
    found = {each.name: each for each in datasets.articles(f"folder:{write(tmp_path / 'p', pages)}")}
    assert list(found) == ["code.md", "lines.jsonl:1", "lines.jsonl:4", "name.md", "odd.html", "open.html"]
    assert found["odd.html"].passages == ("Only this",) and "The quick brown fox runs." in found["open.html"].passages
    text = " ".join(found["code.md"].passages)
    assert "# install the thing now" in text and "Negatives" in text and "A plot Take them." in text
    assert found["code.md"].opening == 2 and found["code.md"].title == "Guide"


def test_code_ends_where_its_own_mark_stands_alone(tmp_path):
    pages = {
        "line.md": "# A\n\n```pip install x```\n\n## Behind\n\nText.\n",
        "other.md": "# B\n\n~~~ `code`\n```\n# no heading\n~~~ no end\n~~~~\n\n## Behind\n\nText.\n",
        "long.md": "# C\n\n````\n```\n# no heading\n````\n\n## Behind\n\nText.\n",
    }
    for each in datasets.articles(f"folder:{write(tmp_path, pages)}"):
        assert each.passages[-2:] == ("Behind", "Text."), each.name
        assert not any(part.startswith(("no heading", "# no heading")) for part in each.passages)


def test_links_to_folders_are_followed_and_never_in_circles(tmp_path, beir):
    pages = write(tmp_path / "pages", {"deep/a.md": "One.", ".hidden/b.md": "Two."})
    other = write(tmp_path / "other", {"c.md": "Three.", "in/d.md": "Four."})
    links = {"to": other, "again": other, "b": pages / "deep", "up": tmp_path, "c": pages / ".hidden"}
    for link, leads in links.items():
        (pages / link).symlink_to(leads)
    (other / "in" / "back").symlink_to(pages)
    (other / "round").symlink_to(other / "in")
    (pages / "nowhere").symlink_to(tmp_path / "nothing")
    found = [each.name for each in datasets.articles(f"folder:{pages}")]
    assert found == ["again/c.md", "again/in/d.md", "c/b.md", "deep/a.md"]  # each folder once
    mine = Path(beir().removeprefix("beir:"))
    whole = datasets.load(f"beir:{mine}").fingerprint
    (mine / "qrels").rename(tmp_path / "judged")
    (mine / "qrels").symlink_to(tmp_path / "judged")
    assert datasets.load(f"beir:{mine}").fingerprint == whole


def test_a_folder_is_a_collection_of_passages(folder):
    collection = datasets.load(folder)
    words = " ".join(collection.documents["text"])
    assert collection.queries.empty and all(text in words for text in ("All ends here", "Another line.", "Then comes"))
    assert not collection.documents.index.str.contains(r"\s").any()
    assert "A line of its own." in words


def test_a_vocabulary_is_learned_from_a_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    corpus = Articles(folder, 200).corpus
    assert len(corpus.names) == 5 and len(corpus.link_targets) == 2


def test_a_folder_of_empty_files_is_named(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match=rf"folder:{tmp_path}: none of its 1 files has any text"):
        own.find(f"folder:{tmp_path}").collection()


def test_names_of_files_part_no_run_and_none_is_taken_for_another(tmp_path):
    place = write(tmp_path / "p", {"a b.txt": "Some text here.", "a_b.txt": "Other text here."})
    assert list(datasets.load(f"folder:{place}").documents.index) == ["a%20b.txt#0", "a_b.txt#0"]
    Path(os.fsdecode(bytes(place) + b"/gr\xfcn.txt")).write_text("x")
    with pytest.raises(DataError, match=r"the names 'gr\\udcfcn.txt' are not UTF-8: rename"):
        datasets.load(f"folder:{place}")


# --- tables ----------------------------------------------------------------------------------------


def test_a_table_with_questions_trains_and_tests(tmp_path):
    rows = "".join(f'{n},"Title {n}","Answer, number {n}",Question {n}?\n' for n in range(80))
    path = tmp_path / "table.csv"
    path.write_text(f"\ufeffid,title,text,question\n{rows}")
    collection = datasets.load(f"csv:{path}")
    assert collection.documents.loc["7", ["title", "text"]].tolist() == ["Title 7", "Answer, number 7"]
    assert set(collection.queries["split"]) == {"train", "dev", "test"} and len(collection.qrels) == 80
    (tmp_path / "alone.tsv").write_text("text\none text\nanother\n")
    alone = datasets.load(f"csv:{tmp_path / 'alone.tsv'}")
    assert alone.documents["text"].tolist() == ["one text", "another"] and alone.queries.empty


def test_columns_are_named_in_capitals_and_with_blanks_too(tmp_path):
    (tmp_path / "t.csv").write_text("ID, Title ,TEXT,Question,note\n7,One,A text.,Why?,x\n")
    collection = datasets.load(f"csv:{tmp_path / 't.csv'}")
    assert collection.documents.loc["7"].to_dict() == {"text": "A text.", "title": "One"}
    assert collection.queries["text"].tolist() == ["Why?"]


@pytest.mark.parametrize("name", ["tab.tsv", "TAB.TSV", "tab.tsv.gz"])
def test_tabs_part_a_table_that_says_so(tmp_path, name):
    (gzip.open if name.endswith(".gz") else open)(tmp_path / name, "wb").write(b"id\ttext\n7\tOne, two.\n")
    assert datasets.load(f"csv:{tmp_path / name}").documents["text"].to_dict() == {"7": "One, two."}


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ('id\ttext\n\n1\t"Quoted\n2\tb\n3\tc"\n', 5, "not a row of 2 columns .a quote runs on: double it"),
        ('id\ttext\n1\ta\n2\t"Quoted\n3\tc\n', 4, "it is no table .unexpected end of data"),
    ],
)
def test_a_quote_that_takes_in_further_lines_is_named(tmp_path, content, line, problem):
    (tmp_path / "t.tsv").write_text(content)
    with pytest.raises(DataError, match=f"t.tsv, line {line}: {problem}"):
        datasets.load(f"csv:{tmp_path / 't.tsv'}")


def test_a_field_may_have_lines_and_a_column_a_name_of_its_own(tmp_path):
    table = pd.DataFrame({"uid": ["1"], "question_id": ["2"], "text": ['One\n\n"two" three']})
    table.to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    (text,) = datasets.load(f"csv:{tmp_path / 't.tsv'}").documents["text"]
    assert text == table["text"].item()


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("title\nx\n", 1, "the columns are title: one must be `text`"),
        ("text,text\nx,y\n", 1, "the columns are text, text: one must be `text`, and none twice"),
        ("id|text\n1|x\n", 1, "the columns are id|text: one must be `text`"),
        ("", 1, "the columns are unnamed: one must be `text`"),
        ("Text,text\nx,y\n", 1, "the columns are text, text: one must be"),
        ("text,questions\nx,y\n", 1, "the column `questions` is not read: call it `question`"),
        ("text,context,titles\nx,y,z\n", 1, "the column `titles` is not read: call it `title`"),
        ('id,text\n1,one\n2,two\n3,"three" 3\n', 4, "it is no table"),
        ("id,text\n1,one\n1,two\n", 3, "another content: keep one"),
        ("id,text,question\n1,one,why\n1,two,how\n", 3, "another content: keep one"),
        ("id,text\n1,one\n2\n", 3, "not a row of 2 columns .1 columns"),
        ("id,text\n1,one,two\n", 2, "not a row of 2 columns .3 columns"),
        ("id,text\n1 1,one\n", 2, "white space"),
        ("id,text\n1,\n", 1, "no entry with a text"),
        ("id,text\n", 1, "no entry with a text"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path, content, line, problem):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=problem) as error:
        datasets.load(f"csv:{path}")
    assert f"{path}, line {line}" in str(error.value)


def test_a_collection_without_titles_is_articles_named_by_their_ids():
    untitled = Collection("x", pd.DataFrame({"text": ["One.\n\nTwo."]}, index=["d1"]), *_beir.unasked())
    (found,) = own.Own("x", (), lambda _: untitled).articles()
    assert (found.name, found.title, found.passages) == ("d1", "d1", ("One.", "Two."))


# --- names -----------------------------------------------------------------------------------------


def test_such_a_name_is_valid_where_a_name_is_taken(folder, beir):
    collection_name("collection", beir())
    articles_name("articles", folder)
    text_name("other_text", folder)
    assert next(iter(datasets.text(folder)), "").count(" ") >= 3
    assert own.find("pydocs") is None
    for rule in (collection_name, articles_name, text_name):
        with pytest.raises(SettingError, match=r"folder:<path>"):
            rule("collection", "no-such-name")
    with pytest.raises(SettingError, match="folder:<path>"):
        datasets.load("no-such-name")


@pytest.mark.parametrize(
    "name",
    [
        "beir:",
        "flder:x",
        "csv:/no/such/file",
        "folder:/no/such/folder",
        "csv:tests",
        f"csv:{'x' * 999}",
        "csv:~nobody-/x",
    ],
)
def test_a_name_that_leads_nowhere_is_an_error(name):
    with pytest.raises(RetlibError):
        datasets.load(name)
