"""The page that asks a corpus: what it shows, and what it does not."""

from threading import Thread
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from retlib.studies.explore import demo_of
from retlib.workflow import serve


@pytest.fixture
def address(tmp_path):
    (tmp_path / "lists.md").write_text("# Lists\n\nA list is sorted by its method. <script>alert(1)</script> is text.")
    (tmp_path / "files.md").write_text("# Files\n\nA file is opened and closed again. It has lines.")
    found = serve.server(demo_of(f"folder:{tmp_path}"), depth=3, port=0)
    Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def test_a_question_is_answered_and_nothing_on_the_page_is_markup_of_a_document(address):
    page = urlopen(f"{address}/?q={quote('how is a list <b>sorted</b>')}").read().decode()
    assert "method" in page and "BM25" in page
    assert "<script>" not in page and "<b>" not in page and "&lt;b&gt;" in page


@pytest.mark.parametrize(
    ("query", "said"), [("", "Ask"), ("?q=", "Ask"), ("?q=%3F%21", "needs a word"), ("?q=zzzz", "no match")]
)
def test_what_finds_nothing_is_said(address, query, said):
    assert said in urlopen(f"{address}/{query}").read().decode()


def test_nothing_else_is_served(address):
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{address}/etc/passwd")
