"""Answers: sentences that stand only while the published rows bear them out, and those of the book."""

from unittest import mock

import pandas as pd
import pytest
from IPython.display import Markdown
from matplotlib.figure import Figure

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, RetlibError
from retlib.report import answers
from retlib.report.answers import Answer

CHAPTER, CLAIM = "12_dual_encoder_losses", "gillick2018-softmax-over-pairwise-ce"
ROOT = runtime.root()


@pytest.fixture
def here(monkeypatch):
    ledger = pd.DataFrame({"id": [CLAIM, "other"], "verdict": ["holds", "no effect"], "chapter": [CHAPTER, "13"]})
    monkeypatch.setattr(answers, "_verdicts", lambda paper, profile: ledger)
    return Answer(CHAPTER)


@pytest.mark.parametrize(
    ("verdicts", "relies"),
    [
        ({CLAIM: "no effect"}, {}),
        ({"gillick2018-nothing": "holds"}, {}),
        ({}, {"it is ahead": False}),
        ({CLAIM: "holds"}, {"it is ahead": True, "it is behind": 1 > 2}),
    ],
)
def test_a_sentence_is_refused_where_a_verdict_or_a_row_is_another(here, verdicts, relies):
    assert here.says("So it is.") == here.says("So it is.", {CLAIM: "holds"}, {"it is ahead": True}) == "So it is."
    with pytest.raises(RetlibError):
        here.says("So it is.", verdicts, relies)


def test_an_answer_reads_published_rows(here):
    rows = here.rows
    points = here.means("quora", "AP@100")
    assert points["BM25"] == pytest.approx(100 * rows.means("quora")["AP@100"]["BM25"]) and points.notna().all()
    assert here.verdicts["id"].tolist() == [CLAIM] and here.rows_of(CHAPTER).rows.equals(rows.rows)
    with pytest.raises(DataError):
        here.rows_of(CHAPTER, "nowhere")


def shown(run):
    """What is displayed while something runs."""
    found = []
    with mock.patch.object(answers, "display", found.append), mock.patch("IPython.display.display", found.append):
        run()
    return found


def test_an_answer_shows_a_figure_its_caption_and_its_sentences(here):
    figure = Figure()
    first, caption, text = shown(lambda: here.show(figure, "One.", {CLAIM: "holds"}, caption="A <b>b</b>"))
    assert first is figure and "A <b>b</b>" in caption.data and text.data == "One."
    (text,) = shown(lambda: here.show(None, "One."))
    assert isinstance(text, Markdown)
    with pytest.raises(DataError):
        shown(lambda: here.show(figure, "One.", {CLAIM: "no effect"}))


CELLS = [
    pytest.param(notebook_files.source(cell), id=f"{name}-{cell['id']}")
    for name in notebook_files.names(ROOT)
    for cell in notebook_files.cells(ROOT / "notebooks" / f"{name}.ipynb")
    if "answer" in cell["metadata"].get("tags", ())
]


@pytest.mark.parametrize("source", CELLS)
def test_the_published_rows_bear_out_an_answer_of_the_book(source):
    names = {"__name__": "answer"}
    found = shown(lambda: exec(compile(source, "answer", "exec"), names))
    figures = [each for each in found if isinstance(each, Figure)]
    assert len(figures) == 1 and any(isinstance(each, Markdown) for each in found)
    assert all(name.startswith("__") for name in names)  # it leaves none behind
