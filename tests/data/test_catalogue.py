"""The catalogue, and fetching from a server on this machine; no test leaves it."""

import doctest
import hashlib
import linecache
import re
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace

import pytest

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.articles import Articles
from retlib.data.collection import Article
from retlib.data.datasets import catalogue
from retlib.data.datasets.catalogue import Entry, File, Variant

CONTENT = b"id\ttext\n1\tone\n" * 5000


def file(name, *facts, **more):
    return File(name=name, **dict(zip(("url", "bytes", "sha256", "variants"), facts, strict=False)), **more)


def variant(sha256, count, note):
    return Variant(sha256=sha256, bytes=count, note=note)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


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
    """Make `catalogue()` hold one data set, "toy", with the given files."""

    def make(*files, how=None):
        entry = Entry(
            name="toy",
            title="A toy",
            source="https://example.org/toy",
            licence="CC0",
            citation="Nobody 2020",
            files=files,
            how=how,
        )
        monkeypatch.setattr(catalogue, "catalogue", lambda: {"toy": entry})
        return entry

    return make


@contextmanager
def server(body, status=200, length=None):
    """A server that answers every GET alike; `length` is the Content-Length it claims (0: none)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            if length != 0:
                self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}/toy.tsv"
        finally:
            httpd.shutdown()
            thread.join()


def left_behind(*roots):
    return [path for root in roots for path in root.rglob("*") if path.is_file()]


# The catalogue itself.


def test_every_entry_is_complete_and_can_be_got():
    entries = catalogue.catalogue()
    assert len(entries) >= 15
    for entry in entries.values():
        assert entry.title and entry.licence and entry.citation
        assert entry.source.startswith(("http://", "https://"))
        for file in entry.files:
            assert file.name.startswith(f"{entry.name}/") and ".." not in file.name
            assert file.url or entry.how
            sums = [file.sha256, *(variant.sha256 for variant in file.variants)]
            assert all(re.fullmatch("[0-9a-f]{64}", value) for value in sums if value)
            assert len(set(sums)) == len(sums)
            assert (file.sha256 is None) == (file.bytes is None)


def test_unknown_names_list_the_valid_ones():
    for ask in (datasets.load, datasets.text, datasets.articles, catalogue.provenance, catalogue.fetch):
        with pytest.raises(SettingError, match="Did you mean 'wikispeedia'|Valid: .*quora"):
            ask("wikispedia")
    with pytest.raises(SettingError, match="quora/quora_duplicate_questions.tsv"):
        catalogue.locate("quora", "quora/other.tsv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "catalogue.yaml") for text in ("- toy", "toy: 3", "toy: {files: [name]}", "toy: {files: 3}")),
        ("toy: {title: T, source: S, licence: L, citation: C, color: red}", "color"),
        ("toy: {title: T, source: S, licence: L}", "citation"),
        ("toy: {title: T, source: S, licence: L, citation: C, files: [{name: toy/a}]}", "toy/a.*neither a url"),
        ("toy: {title: T, source: S, licence: L, citation: C, files: [{url: http://a}]}", "name"),
        ("toy: {title: T, source: S, licence: [L], citation: C}", "'toy': licence"),
        ("toy: {title: T, source: S, licence: L, citation: C, ids: {test: beir}}", "ids.test"),
        ("toy: {title: T, source: S, licence: L, citation: C, files: [{name: [a], url: u}]}", "files.0.name"),
        (
            "toy: {title: T, source: S, licence: L, citation: C, files: [{name: a, url: u, bytes: 1.5}]}",
            "files.0.bytes",
        ),
    ],
)
def test_a_bad_catalogue_is_refused(tmp_path, content, message):
    path = tmp_path / "catalogue.yaml"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        catalogue.read_catalogue(path)


# Registering.


@pytest.fixture
def registries(monkeypatch):
    """Registries that forget what a test registers."""
    for registry in (datasets.COLLECTIONS, datasets.TEXTS, datasets.ARTICLES):
        monkeypatch.setattr(registry, "_things", dict(registry._things))


def cell(source, **names):
    """Run a cell as a notebook's kernel does."""
    exec(source, names | {"__name__": "__main__", "register": datasets.register, "SimpleNamespace": SimpleNamespace})


def test_a_new_data_set_is_registered_by_a_decorator(registries):
    @datasets.register("mine")
    def load_mine():
        return SimpleNamespace(name="mine")

    @datasets.register_text("my-text")
    def sentences():
        yield "One sentence."

    assert "mine" in datasets.COLLECTIONS.names() and "my-text" in datasets.TEXTS.names()
    assert datasets.load("mine") is datasets.load("mine")  # kept, so made once
    assert list(datasets.text("my-text")) == ["One sentence."]


def test_the_example_of_a_data_set_runs_as_it_stands(registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents.csv").write_text("doc_id,text\n1,a text\n")
    (tmp_path / "queries.csv").write_text("query_id,text,split\n1,a question,test\n")
    (tmp_path / "qrels.csv").write_text("query_id,doc_id,relevance\n1,1,1\n")
    lines = doctest.DocTestParser().get_examples(datasets.__doc__)
    exec("".join(line.source for line in lines), {"__name__": "__main__"})
    assert len(datasets.load("my-corpus").relevant("test")) == 1


def test_a_cell_that_runs_again_replaces_its_data_set(registries):
    for made in ("first", "second"):
        cell(f"@register('mine')\ndef load():\n    return SimpleNamespace(name='mine', made='{made}')")
        assert datasets.load("mine").made == made
    cell("@register('mine')\ndef renamed():\n    return SimpleNamespace(name='mine', made='third')")
    assert datasets.load("mine").made == "third"


@pytest.mark.parametrize(("made", "said"), [("SimpleNamespace(name='other')", "'other'"), ("None", "None")])
def test_a_data_set_has_the_name_it_is_registered_under(registries, made, said):
    cell(f"@register('mine')\ndef load():\n    return {made}")
    with pytest.raises(DataError, match=f"registered as 'mine' must return a Collection of that name, not {said}"):
        datasets.load("mine")


def test_a_name_that_is_taken_says_by_what(registries):
    with pytest.raises(SettingError, match="collection 'quora' is there already: .*quora.load_quora"):
        cell("@register('quora')\ndef load():\n    return None")


def test_articles_of_a_cell_are_known_by_their_source(registries, tmp_path):
    found = []
    for text in ("One.", "Two."):
        path = tmp_path / f"plugin_{text[:3]}.py"
        path.write_text(
            "from retlib.data.collection import Article\nfrom retlib.data.datasets import register_articles\n"
            f"@register_articles('mine')\ndef pages():\n    yield Article('a', 'A', ('{text}',), 1)\n"
        )
        spec = spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = module = module_from_spec(spec)
        datasets.ARTICLES._things.pop("mine", None)
        spec.loader.exec_module(module)
        assert [article.passages for article in datasets.articles("mine")] == [(text,)]
        found.append(datasets.provenance("mine"))
        del sys.modules[path.stem]
    assert found[0] != found[1]


def test_articles_of_a_cell_can_be_tokenized(registries, own_build, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # of a kernel, which is no file
    text = "@articles('mine')\ndef pages():\n    yield Article('a', 'A', ('one two three',), 1)\n"
    monkeypatch.setitem(linecache.cache, "<cell>", (len(text), None, text.splitlines(keepends=True), "<cell>"))
    cell(compile(text, "<cell>", "exec"), articles=datasets.register_articles, Article=Article)
    assert Articles("mine", 60).corpus.names == ["a"]


# Finding files and saying what they are.


def test_locate_prefers_the_named_folder_to_the_cache(folders, known):
    known(file("toy/a.tsv", "http://example.org/a.tsv"))
    for folder in reversed(folders):
        (folder / "toy").mkdir(parents=True)
        (folder / "toy" / "a.tsv").write_bytes(b"x")
        assert catalogue.locate("toy", "toy/a.tsv") == folder / "toy" / "a.tsv"


def test_a_named_folder_that_is_not_there_is_an_error(folders, known, monkeypatch):
    """A relative one begins in the project's folder; none is named by an empty string."""
    known(file("toy/a.tsv", "http://example.org/a.tsv"))
    data, cache = folders
    monkeypatch.setattr(catalogue.runtime, "root", lambda: data.parent)
    (data.parent / "mine.csv").write_text("text\nx\n")
    own = f"csv:{data.parent / 'mine.csv'}"
    monkeypatch.setenv("RETLIB_DATA", "data")
    assert catalogue.data_folders() == folders
    monkeypatch.setenv("RETLIB_DATA", "date")
    with pytest.raises(SettingError, match=f"RETLIB_DATA names {data.parent}/date, which is no folder"):
        catalogue.locate("toy", "toy/a.tsv")
    assert len(datasets.load(own).documents) == 1  # which needs no file of the catalogue
    monkeypatch.setenv("RETLIB_DATA", "")
    assert catalogue.data_folders() == (cache,)


def test_a_missing_file_names_folders_address_and_command(folders, known):
    known(file("toy/a.tsv", "http://example.org/a.tsv"), file("toy/b.tsv"), how="Ask the authors.")
    with pytest.raises(DataError) as error:
        catalogue.locate("toy", "toy/a.tsv")
    for part in ("toy/a.tsv", *map(str, folders), "http://example.org/a.tsv", "python -m retlib fetch toy"):
        assert part in str(error.value)
    with pytest.raises(DataError, match="by hand: Ask the authors"):
        catalogue.locate("toy", "toy/b.tsv")


def test_provenance_tells_release_variant_and_unknown_apart(folders, known):
    contents = {"toy/release": b"r", "toy/variant": b"v", "toy/unknown": b"u"}
    known(
        file("toy/release", "http://a", 1, sha256(b"r")),
        file("toy/variant", "http://a", 1, sha256(b"r"), (variant(sha256(b"v"), 1, "half of it"),)),
        file("toy/unknown", "http://a", 1, sha256(b"r")),
        file("toy/absent", "http://a"),
    )
    (folders[0] / "toy").mkdir()
    for name, content in contents.items():
        (folders[0] / name).write_bytes(content)
    assert catalogue.provenance("toy") == {
        "toy/release": f"{sha256(b'r')} (release)",
        "toy/variant": f"{sha256(b'v')} (variant: half of it)",
        "toy/unknown": f"{sha256(b'u')} (unknown)",
    }


def test_a_checksum_is_computed_once_and_again_when_the_file_changes(folders, monkeypatch):
    path = folders[0] / "big"
    path.write_bytes(b"first")
    assert catalogue.checksum(path) == sha256(b"first")
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", None)  # a second computation would fail
        assert catalogue.checksum(path) == sha256(b"first")
    path.write_bytes(b"second")
    assert catalogue.checksum(path) == sha256(b"second")


def test_the_table_says_what_is_here(folders, known):
    release = variant(sha256(b"x"), 2_500_000, "a copy")
    known(file("toy/a", "http://a", 1_000_000), file("toy/b", "http://a", variants=(release,)))
    assert catalogue.table().set_index("name").loc["toy", ["size", "here", "loader"]].tolist() == ["3.5 MB", "no", "no"]
    (folders[1] / "toy").mkdir(parents=True)
    for name, here in (("a", "part"), ("b", "yes")):
        (folders[1] / "toy" / name).write_bytes(b"x")
        assert catalogue.table()["here"].tolist() == [here]


# Fetching.


def test_fetch_downloads_verifies_and_moves_into_place(folders, known):
    with server(CONTENT) as url:
        known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)))
        (line,) = catalogue.fetch("toy")
    assert "fetched and verified" in line
    assert left_behind(*folders) == [folders[0] / "toy" / "a.tsv"]
    assert catalogue.locate("toy", "toy/a.tsv").read_bytes() == CONTENT
    # The server is gone: a second call must not need it.
    assert "already here (release)" in catalogue.fetch("toy")[0]


def test_fetch_fills_the_cache_when_no_folder_is_named_or_it_cannot_be_written(folders, known, monkeypatch):
    with server(CONTENT) as url:
        known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)))
        monkeypatch.setattr(catalogue.os, "access", lambda *_: False)
        catalogue.fetch("toy")
        assert left_behind(folders[1]) == [folders[1] / "toy" / "a.tsv"]
        (folders[1] / "toy" / "a.tsv").unlink()
        monkeypatch.undo()
        monkeypatch.setenv("RETLIB_BUILD", str(folders[1].parent.parent))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("RETLIB_DATA", raising=False)
        known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)))
        catalogue.fetch("toy")
        assert left_behind(folders[1]) == [folders[1] / "toy" / "a.tsv"]


@pytest.mark.parametrize(
    ("body", "status", "length", "message"),
    [
        (b"another file", 200, None, "expected [0-9a-f]{64} but got"),
        (CONTENT[:100], 200, len(CONTENT), "IncompleteRead|Incomplete|Connection"),
        (CONTENT[:100], 200, 0, "expected [0-9a-f]{64} but got"),
        (b"<html>gone</html>", 404, None, "404"),
        (b"oops", 500, None, "500"),
    ],
    ids=["wrong file", "truncated", "truncated without length", "gone", "server error"],
)
def test_a_failed_download_says_why_and_leaves_nothing(folders, known, body, status, length, message):
    with server(body, status, length) as url:
        known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)))
        with pytest.raises(DataError, match=message) as error:
            catalogue.fetch("toy")
    for part in ("toy/a.tsv", url, "python -m retlib fetch toy", "https://example.org/toy"):
        assert part in str(error.value)
    assert left_behind(*folders) == []


def test_without_a_server_fetch_says_so_and_leaves_nothing(folders, known):
    with server(b"") as url:
        pass  # closed again: nobody listens on its port now
    known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)))
    with pytest.raises(DataError, match=f"{url}.*Connection.*Check the network"):
        catalogue.fetch("toy")
    assert left_behind(*folders) == []


def test_without_a_known_checksum_the_download_is_not_called_verified(folders, known):
    with server(CONTENT) as url:
        known(file("toy/a.tsv", url))
        (line,) = catalogue.fetch("toy")
    assert "NOT verified" in line and sha256(CONTENT) in line
    assert catalogue.provenance("toy")["toy/a.tsv"] == f"{sha256(CONTENT)} (unknown)"
    assert left_behind(*folders) == [folders[0] / "toy" / "a.tsv"]


def test_a_known_copy_is_kept_and_an_unknown_one_is_refused(folders, known):
    release = file("toy/a.tsv", "http://127.0.0.1:9/a", 1, sha256(b"r"), (variant(sha256(b"v"), 1, "half of it"),))
    known(release)
    path = folders[0] / "toy" / "a.tsv"
    path.parent.mkdir()
    path.write_bytes(b"v")
    assert "already here (variant: half of it)" in catalogue.fetch("toy")[0]
    path.write_bytes(b"u")
    with pytest.raises(DataError, match=f"neither the official release .*{sha256(b'u')}.*Move it away"):
        catalogue.fetch("toy")
    assert path.read_bytes() == b"u"


def test_what_must_be_fetched_by_hand_is_said_after_the_rest_was_fetched(folders, known):
    with server(CONTENT) as url:
        known(file("toy/a.tsv", url, len(CONTENT), sha256(CONTENT)), file("toy/b.tsv"), how="Ask the authors.")
        with pytest.raises(DataError, match="put toy/b.tsv below .*Ask the authors"):
            catalogue.fetch("toy")
    assert left_behind(*folders) == [folders[0] / "toy" / "a.tsv"]


def test_embedded_data_need_no_fetching(known):
    known()
    assert "nothing to fetch" in catalogue.fetch("toy")[0]
    assert catalogue.table()[["here", "size"]].to_numpy().tolist() == [["yes", "embedded"]]
