"""The catalogue, registering, and fetching from a server on this machine; no test leaves it."""

import doctest
import hashlib
import linecache
import re
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

import pandas as pd
import pytest
from releases import put

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.articles import Articles
from retlib.data.collection import Article, Collection
from retlib.data.datasets import catalogue
from retlib.data.datasets.own import no_questions

CONTENT = b"id\ttext\n1\tone\n" * 5000
CARD = {"title": "A toy", "source": "https://example.org/toy", "licence": "CC0", "citation": "Nobody 2020"}
ADDRESS = "http://example.org/a.tsv"


def checksum(content):
    return hashlib.sha256(content).hexdigest()


def release(url=ADDRESS, content=CONTENT, name="a.tsv", **more):
    return {"name": f"toy/{name}", "url": url, "bytes": len(content), "sha256": checksum(content)} | more


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty folders for $RETLIB_DATA and the build; nothing of this machine shows through."""
    data, build = tmp_path / "data", tmp_path / "build"
    data.mkdir()
    monkeypatch.setenv("RETLIB_DATA", str(data))
    monkeypatch.setenv("RETLIB_BUILD", str(build))
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(variable, "127.0.0.1")
    return data, build / "cache" / "data"


@pytest.fixture
def known(monkeypatch):
    """Let the catalogue hold one data set, "toy", with the given files."""

    def make(*files, **more):
        card = catalogue.Card(name="toy", **CARD, files=files, **more)
        monkeypatch.setattr(catalogue, "catalogue", lambda: {"toy": card})

    return make


@contextmanager
def server(body, status=200, missing=0):
    """A server that answers every GET alike, and may claim a Content-Length of which some is missing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + missing))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/toy.tsv"
        httpd.shutdown()


def left_behind(*roots):
    return [path for root in roots for path in root.rglob("*.*") if path.is_file()]


def test_every_card_is_complete():
    for card in catalogue.catalogue().values():
        assert re.match("https?://", card.source) and (card.how or all(file.url for file in card.files))
        for file in card.files:
            sums = [file.sha256, *(variant.sha256 for variant in file.variants)]
            assert all(re.fullmatch("[0-9a-f]{64}", value) for value in sums if value)
            assert file.name.startswith(f"{card.name}/") and (file.sha256 is None) == (file.bytes is None)


def test_unknown_names_list_the_valid_ones():
    for ask in (datasets.load, datasets.text, datasets.articles, catalogue.fetch):
        with pytest.raises(SettingError, match="Did you mean 'wikispeedia'|Valid: .*quora"):
            ask("wikispedia")


@pytest.fixture
def registries(monkeypatch):
    """Registries that forget what a test registers."""
    for registry in (datasets.COLLECTIONS, datasets.TEXTS, datasets.ARTICLES):
        monkeypatch.setattr(registry, "_things", dict(registry._things))


def toy(text="one", name="mine"):
    """A collection of one text."""
    return Collection(name, pd.DataFrame({"text": [text]}, index=["d1"]), *no_questions())


def cell(source):
    """Run a cell as a notebook's kernel does."""
    names = {"register": datasets.register, "articles": datasets.register_articles, "toy": toy, "Article": Article}
    exec(source, names | {"__name__": "__main__"})


def test_the_example_of_a_data_set_runs_as_it_stands(registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents.csv").write_text("doc_id,text\n1,a text\n")
    (tmp_path / "queries.csv").write_text("query_id,text,split\n1,a question,test\n")
    (tmp_path / "qrels.csv").write_text("query_id,doc_id,relevance\n1,1,1\n")
    lines = doctest.DocTestParser().get_examples(datasets.__doc__)
    exec("".join(line.source for line in lines), {"__name__": "__main__"})
    found = datasets.load("my-corpus")
    assert len(found.relevant("test")) == 1 and datasets.load("my-corpus") is found  # made once


@pytest.mark.parametrize(
    ("name", "made", "error"),
    [
        ("mine", "toy(name='other')", DataError),
        ("mine", "None", DataError),
        ("mine", "{}['mine']", KeyError),  # what a user's reader raises is as it was
        ("quora", "None", SettingError),
    ],
)
def test_a_data_set_has_the_name_it_is_registered_under(registries, name, made, error):
    with pytest.raises(error, match=f"'{name}'"):
        cell(f"@register('{name}')\ndef load():\n    return {made}")
        datasets.load(name)


def test_articles_of_a_cell_are_known_by_their_source_and_can_be_tokenized(registries, own_build, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # of a kernel, which is no file
    found = []
    for text in ("one two three", "four five six"):
        source = f"@articles('mine')\ndef pages():\n    yield Article('a', 'A', ('{text}',), 1)\n"
        monkeypatch.setitem(linecache.cache, text, (len(source), None, source.splitlines(keepends=True), text))
        cell(compile(source, text, "exec"))
        assert [article.passages for article in datasets.articles("mine")] == [(text,)]
        found.append(datasets.provenance("mine"))
    assert found[0] != found[1] and Articles("mine", 60).corpus.names == ["a"]


def test_a_named_folder_that_is_not_there_is_an_error(folders, known, monkeypatch):
    """A relative one begins in the project's folder; none is named by an empty string."""
    known(release())
    data, cache = folders
    monkeypatch.setattr(catalogue.runtime, "root", lambda: data.parent)
    monkeypatch.setenv("RETLIB_DATA", "data")
    assert catalogue.data_folders() == folders
    monkeypatch.setenv("RETLIB_DATA", "date")
    with pytest.raises(SettingError, match=f"{data.parent}/date"):
        catalogue.locate("toy/a.tsv")
    (data.parent / "mine.csv").write_text("text\nx\n")
    assert len(datasets.load(f"csv:{data.parent / 'mine.csv'}").documents) == 1  # which needs no card
    monkeypatch.setenv("RETLIB_DATA", "")
    assert catalogue.data_folders() == (cache,)


def test_a_file_is_found_in_the_named_folder_before_the_cache_or_how_to_get_it_is_said(folders, known):
    known(release())
    with pytest.raises(DataError) as error:
        catalogue.locate("toy/a.tsv")
    for part in ("toy/a.tsv", *map(str, folders), "python -m retlib fetch toy"):
        assert part in str(error.value)
    for folder in reversed(folders):
        put(folder, {"toy/a.tsv": "x"})
        assert catalogue.locate("toy/a.tsv") == folder / "toy" / "a.tsv"


def test_provenance_notes_and_errors_tell_release_variant_and_unknown_apart(folders, known, capsys):
    copy = {"sha256": checksum(b"v"), "bytes": 1, "note": "half of it"}
    known(release(), *(release(name=f"{name}.tsv", variants=[copy]) for name in "bcd"))
    put(folders[0], {"toy/a.tsv": CONTENT, "toy/b.tsv": "v", "toy/c.tsv": "u"})  # d is absent
    assert catalogue.provenance("toy") == {
        "toy/a.tsv": f"{checksum(CONTENT)} (release)",
        "toy/b.tsv": f"{checksum(b'v')} (variant: half of it)",
        "toy/c.tsv": f"{checksum(b'u')} (unknown)",
    }
    for content, places in ((b"u", "toy/c.tsv"), (b"v", "toy/a.tsv, toy/b.tsv, toy/c.tsv")):
        put(folders[0], {"toy/c.tsv": content})
        with pytest.raises(DataError, match=f"^toy: {places} cannot .*odd.*python -m retlib fetch toy"):
            with catalogue.reading("toy"):
                raise ValueError("odd")
    with pytest.raises(DataError, match="^plain$"), catalogue.reading("toy"):
        raise DataError("plain")
    assert capsys.readouterr().err.startswith("toy/c.tsv: neither ")


def test_the_table_says_what_is_here(folders, known):
    copy = {"sha256": checksum(b"x"), "bytes": 2_500_000, "note": "a copy"}
    known(release(bytes=1_000_000), {"name": "toy/b.tsv", "url": ADDRESS, "variants": [copy]})
    for files, here in (({}, "no"), ({"toy/a.tsv": "x"}, "part"), ({"toy/b.tsv": "x"}, "yes")):
        put(folders[1], files)
        assert catalogue.table()[["size", "here"]].to_numpy().tolist() == [["3.5 MB", here]]


@pytest.mark.parametrize(
    ("facts", "kind", "check"),
    [({}, "release", "fetched, verified"), ({"bytes": None, "sha256": None}, "unknown", "NOT verified")],
)
def test_fetch_downloads_verifies_and_moves_into_place(folders, known, facts, kind, check):
    with server(CONTENT) as url:
        known(release(url, **facts))
        (line,) = catalogue.fetch("toy")
    assert check in line and checksum(CONTENT) in line
    assert left_behind(*folders) == [folders[0] / "toy" / "a.tsv"] == [catalogue.locate("toy/a.tsv")]
    # The server is gone: a second call must not need it.
    assert f"already here ({kind})" in catalogue.fetch("toy")[0]


def test_fetch_fills_the_cache_when_the_folder_cannot_be_written(folders, known, monkeypatch):
    monkeypatch.setattr(catalogue.os, "access", lambda *_: False)
    with server(CONTENT) as url:
        known(release(url))
        catalogue.fetch("toy")
    assert left_behind(*folders) == [folders[1] / "toy" / "a.tsv"]


@pytest.mark.parametrize(
    ("body", "status", "missing", "message"),
    [
        (b"another file", 200, 0, checksum(CONTENT)),
        (CONTENT[:100], 200, 100, "Incomplete|Connection"),
        (b"<html>gone</html>", 404, 0, "404"),
    ],
    ids=["wrong file", "truncated", "gone"],
)
def test_a_failed_download_says_why_and_leaves_nothing(folders, known, body, status, missing, message):
    with server(body, status, missing) as url:
        known(release(url))
        with pytest.raises(DataError, match=message) as error:
            catalogue.fetch("toy")
    for part in ("toy/a.tsv", url, "python -m retlib fetch toy", "https://example.org/toy"):
        assert part in str(error.value)
    assert left_behind(*folders) == []


def test_a_known_copy_is_kept_and_an_unknown_one_refused_and_the_rest_fetched_by_hand(folders, known):
    copy = release("http://127.0.0.1:9/a", variants=[{"sha256": checksum(b"v"), "bytes": 1, "note": "half of it"}])
    for content, card, more, problem in (
        (b"v", [copy, {"name": "toy/b.tsv"}], {"how": "Ask the authors."}, "put toy/b.tsv below .*Ask the authors"),
        (b"u", [copy], {}, f"neither the official release .*{copy['sha256']}.*Move it away"),
    ):
        put(folders[0], {"toy/a.tsv": content})
        known(*card, **more)
        with pytest.raises(DataError, match=problem):
            catalogue.fetch("toy")
        assert catalogue.locate("toy/a.tsv").read_bytes() == content
    put(folders[0], {"toy/a.tsv": "v"})
    assert "already here (variant: half of it)" in catalogue.fetch("toy")[0]


def test_what_has_no_files_needs_no_fetching(known):
    known()
    assert len(catalogue.fetch("toy")) == 1
    assert catalogue.table()[["here", "size"]].to_numpy().tolist() == [["yes", "embedded"]]
