"""Corpora damaged anywhere: an error that names the file, or every entry is read or counted; nothing else is raised."""

import csv
import io
import json
import os
import re
import shutil
import zipfile
from unicodedata import normalize

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from releases import of_json, put, zipped

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.datasets.own import BLANK, NOTHING, REPEATED

# Hand-run with more: RETLIB_EXAMPLES=5000 pytest tests/data/test_malformed.py
fuzzed = settings(
    max_examples=int(os.environ.get("RETLIB_EXAMPLES", 120)),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
BEIR = {
    "corpus.jsonl": of_json(*({"_id": n, "title": f"Title {n}", "text": f"Text {n}, grün."} for n in ("d1", "d2", 3))),
    "queries.jsonl": of_json(*({"_id": f"q{n}", "text": f"question {n}"} for n in range(4))),
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq0\td1\t1\nq1\td2\t2\nq2\t3\t0\n",
}
TABLE = (
    'id,title,text,question\n1,One,"First, text",What is one?\n2,,"Second\ntext",\n3,Three,Third text,What is three?\n'
)
PAGES = {
    "a.txt": "A first paragraph.\n\nA second one.\n",
    "deep/b.md": "# Title\n\nSome [words](../a.txt) here.\n\n## Head\n\nMore `words` there.\n",
    "c.html": "<html><title>T</title><body><h1>H</h1><p>Words &amp; <a href='a.txt'>links</a>.</p></body></html>",
    "d.jsonl": '{"title": "First", "text": "A line."}\n{"text": "Another line."}\n',
}
PIECES = [
    "\ufeff", "\r\n", "\r", "\n", "\n\n", "\t", " ", "\0", "\x1c", "\u2028", '"', '""', "\\", "{", "}", "null", "true",
    "-1", "1e999", "NaN", "9" * 30, "9" * 5000, "[" * 100_000, '\\ud800', '"_id"', '"id": 5, ', '"text": [], ', "\\t",
    "://[", "](http://[x)", "<![x", "<!--", "<?", "&#xD800;", "<title>", "x" * 20_000, "q0\td1\t1\n", "text,", ",",
]  # fmt: skip


def damage(draw, content):
    """Bytes with something cut out, put in, or both; now and then in another encoding."""
    raw = content.encode(draw(st.sampled_from(["utf-8"] * 8 + ["utf-16", "latin-1"])))
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(len(raw), start + draw(st.sampled_from([0, 1, 40, 1000])))))
        put = draw(st.one_of(st.sampled_from(PIECES).map(str.encode), st.binary(max_size=6)))
        raw = raw[:start] + put + raw[end:]
    return raw


@st.composite
def damaged(draw, files):
    """The files, one of them damaged, left out or empty, and its name."""
    name = draw(st.sampled_from(sorted(files)))
    whole = {each: content.encode() for each, content in files.items()}
    raw = draw(st.sampled_from([None, b"", b"\n"])) if draw(st.integers(0, 9)) == 0 else damage(draw, files[name])
    return {**whole, name: raw}, name


def write(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return put(folder, files)


def loaded(name, said):
    """The collection, or None of an error that says where it is, once, and is no longer than a page."""
    datasets._load.cache_clear()
    try:
        return datasets.load(name)
    except DataError as error:
        assert said in str(error) and len(str(error)) < 2000 and str(error).count("/mine") == 1


def lines_of(raw):
    """The lines of a file that are not blank; none of one that is not there."""
    text = (raw or b"").decode("utf-16" if raw and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    return [line for line in re.split("\r\n|\r|\n", text) if line.strip("\ufeff \t")]


def composed(value):
    return normalize("NFC", (value or "").strip())


@fuzzed
@given(made=damaged(BEIR), packed=st.booleans())
def test_beir(tmp_path, made, packed):
    """Lines are documents, questions and judgments, or are counted as what is left out."""
    files, _ = made
    place = write(tmp_path / "mine", files)
    if packed:
        place = tmp_path / "mine.zip"
        place.write_bytes(zipped({f"x/{name}": raw for name, raw in files.items() if raw is not None}))
    collection = loaded(f"beir:{place}", f"beir:{place}")
    if collection is None:
        return
    entries = [json.loads(line.strip("\ufeff")) for line in lines_of(files["corpus.jsonl"])]
    names = ("title", "text")
    texts = {(str(each.get("_id", each.get("id"))), *(composed(each.get(name)) for name in names)) for each in entries}
    assert {*collection.documents[["title", "text"]].itertuples(name=None)} == {each for each in texts if any(each[1:])}
    if files["qrels/test.tsv"]:
        judged = lines_of(files["qrels/test.tsv"])
        is_named = not re.fullmatch(r"[-+]?[\d.]+", judged[0].split("\t" if "\t" in judged[0] else None)[-1].strip())
        given = len(entries) + len(lines_of(files["queries.jsonl"])) + len(judged) - is_named
        dropped = {BLANK, REPEATED, NOTHING, "questions without an answer"}
        left_out = sum(collection.facts[each] for each in collection.facts if each in dropped or " guarded " in each)
        assert given == sum(map(len, (collection.documents, collection.queries, collection.qrels))) + left_out
    else:
        assert collection.queries.empty


@fuzzed
@given(data=st.data())
def test_an_archive_whose_bytes_are_damaged(tmp_path, data):
    raw = bytearray(zipped(BEIR, kind=data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    place = tmp_path / "mine.zip"
    place.write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) // 2, len(raw) - 1]))])
    loaded(f"beir:{place}", str(place))


@fuzzed
@given(made=damaged({"t.csv": TABLE}))
def test_a_table(tmp_path, made):
    files, name = made
    if files[name] is None:
        return
    place = write(tmp_path / "mine", files) / name
    collection = loaded(f"csv:{place}", f"csv: {place}")
    if collection is not None:
        text = files[name].decode("utf-16" if files[name][:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        head = re.match(r"[^\r\n]*(\r\n?|\n)?", text)[0]
        names = [each.strip().lower() for each in next(csv.reader([head]))]
        reader = csv.DictReader(io.StringIO(text.removeprefix(head), newline=""), names)
        rows = [row for row in reader if any((each or "").strip() for each in row.values())]
        told = [tuple(composed(row.get(each)) for each in ("id", "title", "text", "question")) for row in rows]
        read = {each for each in told if each[1] or each[2]}
        texts = {*collection.documents[["title", "text"]].itertuples(index=False, name=None)}
        assert texts == {each[1:3] for each in read}
        assert len(collection.queries) == len({each[3] for each in read} - {""})
        assert len(told) == len(read) + collection.facts[BLANK] + collection.facts[REPEATED]


@fuzzed
@given(made=damaged(PAGES))
def test_pages(tmp_path, made):
    files, name = made
    place = write(tmp_path / "mine", files)
    collection = loaded(f"folder:{place}", f"folder:{place}: ")
    if collection is not None:
        lines = [json.loads(line.strip("\ufeff")) for line in lines_of(files["d.jsonl"])]
        pages = len(lines) + sum(files[each] is not None for each in ("a.txt", "deep/b.md", "c.html"))
        assert pages == collection.documents["article"].nunique() + collection.facts[BLANK]
        if name == "a.txt" and files[name]:
            read = " ".join(collection.documents["text"][collection.documents["article"] == name]).split()
            assert read == composed("\n".join(lines_of(files[name]))).split()
