"""Tables, forests and tiles of claims from contrasts that are made by hand."""

import math

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from recorded import claims_table, outcome, write_claims

from retlib.core import runtime
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import figures, ledger, tables

RATIO = {"unit": "ratio", "rows": "", "effect": math.log(2), "low": math.log(1.5), "high": math.log(3), "paper": 4.0,
         "label": "B / A", "margin": math.log(1.25)}  # fmt: skip
LINES = [
    outcome("a", 0.00001, label="<A> − B", paper=3.5, margin=0.5, encoder="bow; Transformer, 1 layer"),
    outcome("a", 0.0001, label="C − D"),
    outcome("a", 0.01, label="E − F", role="condition"),
    outcome("b", 0.9, 0.0001, effect=-4.0, low=-5.0, high=-3.0),
    outcome("c", 0.4, margin=3.0, alike=True),
    outcome("d", 0.0001, **RATIO),
    outcome("e", 0.0001, closed="still learning"),
    outcome("e", 0.2, label="G − H", role="condition"),
    {"claim": "f", "role": "test", "reason": "no <data>"},
]


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """A function of lines that gives the verdicts on them."""
    write_claims(tmp_path, {name: {"statement": f"It is <{name}>"} for name in "abcdef"}, "b,quick,scale,too small\n")
    path = tmp_path / "data" / "papers" / "papers.yaml"
    path.write_text(path.read_text().replace("pages: {}", "pages: {verdicts: 15_verdicts}"))
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)

    def judge(*lines):
        monkeypatch.setattr(results, "load", lambda *_: Results(tables={"claims": claims_table(*lines)}))
        return ledger.verdicts("paper", "quick")

    return judge


@pytest.fixture
def book(judged):
    return judged(*LINES)


@pytest.fixture
def points(judged):
    """Of a holds, b goes against, c is open, d is a ratio, e is not tested, and f on a stand-in has two contrasts."""
    untested = {"claim": "e", "role": "test", "reason": "no data"}
    two = outcome("f", 0.0001, effect=9.0), outcome("f", 0.002, data_sets='["E"]')
    found = judged(outcome("a", 0.0001, paper=3.5), LINES[3], outcome("c"), LINES[5], untested, *two)
    return found.set_index("id", drop=False).rename_axis(None)


def cells(html):
    """The texts of a table's cells, row by row."""
    page = BeautifulSoup(html.data.replace("<wbr>", ""), "html.parser")
    return [[cell.get_text(" ") for cell in row.select("td")] for row in page.select("tbody tr")], page


def test_a_chapters_table_has_each_contrast_before_correction_and_each_claim_once(book):
    rows, page = cells(tables.chapter_claims(claims_table(*LINES)))
    assert len(rows) == len(LINES) and [bool(row[0]) for row in rows] == [1, 0, 0, 1, 1, 1, 1, 0, 1]
    assert "It is <a>" in rows[0][0] and "<A> − B" in rows[0][1] and "+0.5" in rows[0][1]
    assert "given" in rows[2][1] and "still learning" in rows[6][1] and "no <data>" in rows[8][1]
    assert rows[5][2].startswith("x2.00 [x1.50") and "x1.25" in rows[5][1] and rows[5][-1] == "x4"
    assert rows[0][-1] == "+3.5" and rows[1][-1] == "" and rows[8][2:] == ["", "", ""]
    assert "within 3" in rows[4][1] and page.find("data") is None


def test_a_papers_table_has_a_row_for_each_claim_with_what_decides_it(book):
    rows, page = cells(tables.by_claim(book))
    assert [row[0] for row in rows] == [f"{ledger.SIGNS[verdict]} {verdict}" for verdict in book["verdict"]]
    assert [page.find(id=name) is not None for name in "abcdef"] == [True] * 6
    decides = [row[3] for row in rows]
    assert decides[0].startswith("C − D") and "✓ 2 of 2" in decides[0]
    assert "-4.00 [-5.00, -3.00]" in decides[1] and "too small" in rows[1][2]
    assert "x2.00" in decides[3] and "x4" in decides[3]
    assert decides[4].startswith("still learning")
    assert decides[5] == "no <data>" and rows[5][4] == ""
    assert rows[0][4].startswith("bow, Transformer, 1 layer 500 candidates 60 questions 3 seeds")
    assert [link["href"] for link in page.select("a")[:2]] == ["15_verdicts.html#a", "11_a.html#the-paper-s-claims"]


def test_a_papers_card_leads_to_the_rows_of_its_claims(book):
    signs = BeautifulSoup(tables.cards({}, book).data, "html.parser").select("a.sign")
    assert [sign["href"] for sign in signs] == [f"15_verdicts.html#{name}" for name in "abcdef"]
    assert [sign.text for sign in signs] == [ledger.SIGNS[verdict] for verdict in book["verdict"]]


def test_a_ledger_is_printed_with_a_line_for_each_contrast(book):
    flat = tables.flat(book)
    assert flat["claim"].value_counts().to_dict() == {"a": 3, "b": 1, "c": 1, "d": 1, "e": 3, "f": 1}
    told = flat.groupby("claim")["evidence"].agg("\n".join)
    assert flat["verdict"].iloc[0] == "holds" and told["a"].count(" on d") == 3
    assert ", within 3 of 0: " in told["c"] and ", above x1.25: x2.00" in told["d"] and "the paper's x4" in told["d"]
    assert "closed: still learning" in told["e"] and told["f"] == "no <data>"


def texts(artist):
    return [text.get_text() for text in artist.texts]


def test_a_forest_has_a_line_for_each_claim_that_is_tested_in_points(points):
    figure = figures.forest(points)
    (axis,), verdicts = figure.axes, points["verdict"][list("abcf")]
    assert texts(axis) == [f"{ledger.SIGNS[verdict]}  It is <{name}>" for name, verdict in verdicts.items()]
    lines, half = [tuple(line.get_xdata()) for line in axis.get_lines()], 2 - points["tests"].iloc[0][0].low
    # An interval, our effect and the paper's; of several contrasts the one that the verdict hangs on.
    assert lines[:3] == [pytest.approx((2 - half, 2 + half)), (2.0,), (3.5,)]
    assert lines[3:5] == [(-5.0, -3.0), (-4.0,)]
    assert [line[0] for line in lines if len(line) == 1] == [2.0, 3.5, -4.0, 2.0, 2.0]  # not f's 9, which is clearer
    tops = [text.xy[1] for text in axis.texts]
    assert tops == sorted(tops, reverse=True)
    heights = [line.get_ydata()[0] for line in axis.get_lines() if len(line.get_xdata()) == 2][:4]
    assert all(top > height for top, height in zip(tops, heights, strict=True))  # each above its own bar
    colours = {line.get_color() for line in axis.get_lines()[:2]}
    assert colours == {figures.VERDICT_COLOURS[ledger.HOLDS]}
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {f"{ledger.SIGNS[verdict]} {verdict}" for verdict in verdicts} < legend and "· not tested" not in legend


def test_a_forest_of_some_claims_is_in_their_order_with_words_of_its_own(points):
    (axis,) = figures.forest(points, {"c": "first " * 30, "a": "second", "e": "none"}).axes
    first, second = texts(axis)
    assert "\n" in first and second == "✓  second"


def test_tiles_have_a_sign_for_each_claim_hatched_on_a_stand_in(points):
    many = pd.concat([points] * 4, ignore_index=True)
    (axis,) = figures.tiles(many).axes
    signs = [text for text in texts(axis) if text in ledger.SIGNS.values()]
    assert signs == [ledger.SIGNS[verdict] for verdict in many["verdict"]]
    assert [bool(patch.get_hatch()) for patch in axis.patches] == (many["fidelity"] == "stand-in").tolist()
    columns, rows = zip(*((patch.get_x(), patch.get_y()) for patch in axis.patches), strict=True)
    assert len({*columns}) == figures.ABREAST and len({*rows}) == 2
