"""Corpora as people have them: what can be read is read, what cannot is left out, and facts say how many of what."""

import gzip
import json
import re
import zipfile
from unicodedata import normalize

import pytest
from click.testing import CliRunner
from releases import put

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.workflow.cli import main

BIKES = {
    "chain": ("Chain wear", "A chain that has stretched wears the cassette.", "when to change a chain"),
    "brake": ("Brake pads", "Pads squeal when oil has reached them.", "why do brakes make noise"),
    "tyre": ("Tubeless tyres", "Sealant dries within a few months.", "wheel flat every morning"),
    "café": ("", "In the café riders meet on Fridays.", "where do riders meet"),
}
CORPUS = "".join(json.dumps({"_id": each, "title": b[0], "text": b[1]}) + "\n" for each, b in BIKES.items())
QUERIES = "".join(json.dumps({"_id": f"q-{each}", "text": b[2]}) + "\n" for each, b in BIKES.items())
PAIRS = [(f"q-{query}", document) for query in BIKES for document in BIKES if query == document or document > "c"]
HEAD = "query-id\tcorpus-id\tscore\n"
QRELS = "".join(f"{query}\t{document}\t1\n" for query, document in PAIRS)
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": HEAD + QRELS}
OPEN = "---\n" + 60 * "# No end\n"  # a pattern that takes comments in many ways would not come to an end
TABLE = "ID,Title,Text,Question\r\n" + "".join('"{}","{}","{}","{}"\r\n'.format(each, *b) for each, b in BIKES.items())


def encoded(files, encoding):
    return {name: content.encode(encoding) for name, content in files.items()}


def zipped(files):
    return {name + ".gz": gzip.compress(content.encode()) for name, content in files.items()}


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        ({"corpus.jsonl": CORPUS + '{"_id": "x", "text": ""}\n{"_id": "y", "text": null}\n'}, {"blanks left out": 2}),
        ({"queries.jsonl": QUERIES + '{"_id": "x", "text": "  "}\n'}, {"blanks left out": 1}),
        ({each: BEIR[each] + BEIR[each].splitlines()[1] + "\n" for each in BEIR}, {"repeated lines": 3}),
        ({"corpus.jsonl": CORPUS + CORPUS.splitlines()[3].replace("00e9 r", "0065\\u0301 r")}, {"repeated lines": 1}),
        ({"qrels/test.tsv": f"{HEAD}{QRELS}q-gone\tchain\t1\n"}, {"judgments that name nothing": 1, "judgments": 14}),
        (
            {"corpus.jsonl": CORPUS + '{"_id": "x", "text": " "}', "qrels/test.tsv": f"{HEAD}{QRELS}q-tyre\tx\t1\n"},
            {"judgments that name nothing": 1, "blanks left out": 1},
        ),
        ({"queries.jsonl": QUERIES + '{"_id": "x", "text": "who asks"}\n'}, {"questions without an answer": 1}),
        ({"qrels/test.tsv": "".join(f"{query} 0 {document} 1\n" for query, document in PAIRS)}, {"judgments": 13}),
        ({"qrels/test.tsv": "".join(f"{query}\tQ0\t{document}\t1\n" for query, document in PAIRS)}, {}),
        ({"qrels/test.tsv": "corpus-id\tquery-id\tscore\n" + "".join(f"{d}\t{q}\t1\n" for q, d in PAIRS)}, {}),
        ({"qrels/test.tsv": (HEAD + QRELS).replace("\t1\n", "\t1.0\r\n") + "\r\n \n"}, {"judgments": 13}),
        ({each: content.replace("\n", "\r") for each, content in BEIR.items()}, {}),
        (encoded(BEIR, "utf-16"), {}),
        (encoded(BEIR, "utf-8-sig"), {}),
    ],
)
def test_what_stands_beside_the_corpus_does_not_change_it(tmp_path, files, facts):
    whole = datasets.load(f"beir:{put(tmp_path / 'whole', BEIR)}")
    found = datasets.load(f"beir:{put(tmp_path / 'found', BEIR | files)}")
    assert found.fingerprint == whole.fingerprint and facts.items() <= found.facts.items()


def test_archives_of_a_desktop_and_packed_files_are_read(tmp_path):
    whole = datasets.load(f"beir:{put(tmp_path / 'whole', BEIR)}")
    packed = put(tmp_path / "packed", {**zipped(BEIR), "README.md": "x", "more/a.pdf": "x", ".git/corpus.jsonl": "x"})
    found = datasets.load(f"beir:{packed}")
    assert found.fingerprint == whole.fingerprint
    assert (found.facts["files read"], found.facts["files passed over"]) == (3, "1 .md, 1 .pdf")
    for files in (BEIR, zipped(BEIR)):
        with zipfile.ZipFile(tmp_path / "desk.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"bikes/bikes/{name}", content)
                archive.writestr(f"__MACOSX/bikes/bikes/{name.replace('qrels/', 'qrels/._')}", "x")
            archive.writestr("bikes/.DS_Store", "x")
        assert datasets.load(f"beir:{tmp_path / 'desk.zip'}").fingerprint == whole.fingerprint
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "corpus.jsonl.gz").write_bytes(zipped(BEIR)["corpus.jsonl.gz"][:-9])
    with pytest.raises(DataError, match=r"cut: corpus.jsonl.gz: .*ended before"):
        datasets.load(f"beir:{tmp_path / 'cut'}")


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ("q-tyre\thorn\t1\nq-gone\tbell\t1\n", r"line 15: 2 of 15 .*1 no query and 2 no document"),
        ("q-tyre\tchain\t1.5\n", "line 15: not query, document and grade.*1.5"),
        ("q-tyre\tchain\t2\n", "line 15: .*q-tyre.* stands before with another content"),
    ],
)
def test_judgments_that_would_give_a_wrong_number_are_refused(tmp_path, lines, wrong):
    with pytest.raises(DataError, match=f"qrels/test.tsv, {wrong}"):
        datasets.load(f"beir:{put(tmp_path, BEIR | {'qrels/test.tsv': HEAD + QRELS + lines})}")


def test_copies_of_a_relevant_text_are_relevant_and_counted(tmp_path, monkeypatch):
    copies = "".join(CORPUS.splitlines(True)[0].replace('"chain"', f'"copy-{n}"') for n in range(12))
    files = BEIR | {"corpus.jsonl": CORPUS + copies, "qrels/test.tsv": f"{HEAD}{QRELS}q-chain\tcopy-3\t0\n"}
    found = datasets.load(f"beir:{put(tmp_path / 'a', files)}")
    # Of four questions, each has the chain's text for a relevant one; the grade that is given stays.
    facts = {"documents": 16, "copies of a text": 13, "questions that are documents": 0, "shortest text (words)": 6}
    facts |= {"longest text (words)": 8, "judgments": 14, "judgments of copies": 11 + 3 * 12}
    assert facts.items() <= found.facts.items()
    assert len(found.qrels) == 14 + 47 and found.qrels.query("doc_id == 'copy-3'")["relevance"].tolist() == [0, 1, 1, 1]
    # A release stays as it is, and says how much a mean could move; so does what would be judged too often.
    monkeypatch.setattr("retlib.data.collection.MOST_COPIES", 46)
    bound = datasets.load(f"beir:{put(tmp_path / 'b', files)}")
    assert len(bound.qrels) == 14 and bound.facts["points that unjudged copies can move a mean by"] == 100.0
    assert bound.statistics().iloc[0]["copies move a mean by at most"] == 100.0


def test_questions_that_are_documents_are_counted(tmp_path):
    asked = {each: content.replace("q-", "") for each, content in BEIR.items()}
    queries = "".join(json.dumps({"_id": each, "text": f"{b[0]} {b[1]}"}) + "\n" for each, b in BIKES.items())
    itself = "chain\tbrake\t1\ntyre\ttyre\t1\nbrake\ttyre\t1\n"
    files = asked | {"queries.jsonl": queries, "qrels/test.tsv": HEAD + itself}
    found = datasets.load(f"beir:{put(tmp_path, files)}")
    assert found.facts["questions that are documents"] == 2 and [*found.own_documents] == ["chain", "brake"]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("a.csv", TABLE.encode("utf-8-sig"), {}),
        ("b.csv", TABLE.replace('","', '";"').replace(",", ";", 3).encode("utf-8-sig"), {}),
        ("c.txt", TABLE.replace('","', '"\t"').replace(",", "\t", 3).encode("utf-16"), {}),
        ("d.csv", TABLE.replace('","', '";"').replace(",", ";", 3).replace("\r", ";;\r") + ";;;;;\r\n", {}),
        ("e.csv", TABLE + TABLE.split("\r\n")[1] + '\r\nx,,," who?"\r\n', {"repeated lines": 1, "blanks left out": 1}),
    ],
)
def test_tables_of_a_spreadsheet_are_read(tmp_path, name, content, facts):
    put(tmp_path, {"whole.csv": TABLE, name: content})
    whole, found = (datasets.load(f"csv:{tmp_path / each}") for each in ("whole.csv", name))
    assert found.fingerprint == whole.fingerprint and len(found.documents) == 4 and len(found.qrels) == 4
    assert facts.items() <= found.facts.items() and found.facts["files read"] == 1


def test_rows_without_an_id_are_one_where_title_and_text_are(tmp_path):
    put(tmp_path, {"t.csv": "title,text\nA,See below.\nB,See below.\nB,See below.\n"})
    found = datasets.load(f"csv:{tmp_path / 't.csv'}")
    assert found.documents["title"].tolist() == ["A", "B"] and found.facts["repeated lines"] == 1


def test_settings_above_a_note_are_no_text_and_title_it_unless_a_heading_does(tmp_path):
    notes = {
        "yaml.md": '---\ntitle: "Chain wear"\ntags: [draft]\n---\n\nText.\n',
        "heading.md": "---\ntitle: draft\n---\n# Chain wear\n\nText.\n",
        "hugo.markdown": '\ufeff+++\r\n# settings\r\ntitle = "Chain wear"\r\ndraft = true\r\n+++\r\nText.\r\n',
        "broken.MD": "---\ntitle: Chain wear\nkind: {{draft}}: it\n...\nText.\n",
        "folded.md": "---\ntags: draft\nTitle: >-\n  Chain wear\n---\nText.\n",
        "page.html": "---\ntitle: Chain wear\nlayout: draft\n---\n<p>Text.</p>",
        "page.rst": "==========\nChain wear\n==========\n\nText.\n",
    }
    for each in datasets.articles(f"folder:{put(tmp_path / 'a', notes)}"):
        assert (each.title, each.passages) == ("Chain wear", ("Text.",)), each.name
    (found,) = datasets.articles(f"folder:{put(tmp_path / 'c', {'open.md': OPEN})}")
    assert found.title == "No end"
    ruled = "---\n\nA text between two rules.\n\n---\n\nMore.\n"
    (found,) = datasets.articles(f"folder:{put(tmp_path / 'b', {'rules.md': ruled})}")
    assert found.passages == ("A text between two rules.", "More.")


def test_markdown_is_read_as_it_is_shown(tmp_path):
    note = (
        "Chain wear\n==========\n\n- One [link][r] &amp; more.\n- Two `List<int>`.\n\n| a | b |\n|---|---|\n| c | d |\n"
        "\n<details><b>Bold</b></details>\n<!-- hidden -->\n\nSub\n---\n\n    code\n\n[r]: caf%C3%A9.md 'hidden'\n"
    )
    place = put(tmp_path, {"a.md": note, normalize("NFD", "café.md"): "x"})
    found = next(iter(datasets.articles(f"folder:{place}")))
    assert found.title == "Chain wear" and found.links == (normalize("NFD", "café.md"),)
    assert found.passages == ("One link & more.", "Two List<int>.", "a", "b", "c", "d", "Bold", "Sub", "code")


def test_a_page_is_read_in_the_encoding_that_it_declares(tmp_path):
    pages = {
        "a.html": b'<meta charset="iso-8859-1"><title>Caf\xe9</title><p>\x93Caf\xe9\x94, c\x9cur</p>',
        "b.htm": "<?xml version='1.0' encoding='koi8-r'?><p>Ключ</p>".encode("koi8-r"),
        "c.html": '<meta charset="utf-16"><p>grün<script>hidden</script><style>hidden</style>'.encode(),
        "d.html": '<meta charset="no-such"><p>gr&uuml;n gru&#776;n ü</p>'.encode(),
        "e.txt": "grün".encode("utf-16"),
    }
    found = [" ".join(each.passages) for each in datasets.articles(f"folder:{put(tmp_path, pages)}")]
    assert found == ["“Café”, cœur", "Ключ", "grün", "grün grün ü", "grün"]


def test_all_files_that_cannot_be_read_are_named_at_once(tmp_path):
    files = {
        "a.md": "# Fine",
        "quotes.txt": b"The mechanic said \x93never oil a disc\x94 \x97 and meant it.\n",
        "key.txt": "Ключ к замку лежит под ковром".encode("cp1251"),
        "zero.txt": "plain text".encode("utf-16-le"),
        "false.html": '<meta charset="utf-8"><p>Schläuche für Räder hält länger, wer pünktlich prüft.'.encode("cp1252"),
        "cut.jsonl.gz": gzip.compress(b'{"text": "a"}')[:-9],
    }
    with pytest.raises(DataError) as error:
        datasets.load(f"folder:{put(tmp_path, files)}")
    message = str(error.value)
    found = dict(re.findall(r"([\w.]+): it cannot be read \((?:byte (\d+) )?", message))
    assert found == {"quotes.txt": "18", "key.txt": "0", "zero.txt": "1", "false.html": "29", "cut.jsonl.gz": ""}
    assert message.count("likely cp1252") == 2 and "likely cp1251" in message and "likely utf_16_le" in message
    assert message.count(str(tmp_path)) == 1 and "a.md" not in message


def test_other_files_of_a_folder_are_counted_by_their_endings(tmp_path):
    texts = {"a.rst": "A\n=\n\nOne.", "b.markdown": "Two.", "c.TXT": "Three.", "d.txt.gz": gzip.compress(b"Four.")}
    others = {"e.pdf": "x", "f.PDF": "x", "g.docx": "x", "h.csv": "x", "LICENSE": "x", "empty.md": " \n", "._x.md": "x"}
    found = datasets.load(f"folder:{put(tmp_path / 'a', texts | others)}")
    assert found.documents["text"].tolist() == ["One.", "Two.", "Three.", "Four."]
    assert found.facts["files passed over"] == "1 .csv, 1 .docx, 2 .pdf, 1 without ending"
    assert (found.facts["files read"], found.facts["blanks left out"]) == (5, 1)
    with pytest.raises(DataError, match=r"1 .docx, 1 .pdf"):
        datasets.load(f"folder:{put(tmp_path / 'b', {'e.pdf': 'x', 'g.docx': 'x'})}")


def test_a_search_finds_composed_words_and_says_what_was_read_in_one_line(tmp_path, own_build):
    notes = {"a.txt": normalize("NFD", "Ein Schlauch hält länger."), "b.txt": "Pads squeal.", "c.pdf": "x", "d.md": ""}
    for form in ("NFC", "NFD"):
        asked = ["search", f"folder:{put(tmp_path / 'a', notes)}", normalize(form, "hält länger")]
        lines = CliRunner().invoke(main, asked).output.splitlines()
        assert "a.txt#0" in lines[2] and "b.txt" not in "".join(lines)
        assert lines[-1].startswith("documents: 2, ") and lines[-1].endswith("files read: 3, files passed over: 1 .pdf")
        assert "blanks left out: 1" in lines[-1]
