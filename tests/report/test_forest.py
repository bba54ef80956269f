"""Forests and tiles of verdicts that are made by hand."""

import pandas as pd
import pytest
from recorded import claims_table, outcome, write_claims

from retlib.core import runtime
from retlib.evaluation import results
from retlib.report import forest, ledger


@pytest.fixture
def verdicts(tmp_path, monkeypatch):
    """Of a holds, b goes against, c is open, d is a ratio, e is not tested, and f on a stand-in has two contrasts."""
    lines = [
        outcome("a", 0.0001, paper=3.5), outcome("b", 0.9, 0.0001, effect=-4.0, low=-5.0, high=-3.0), outcome("c"),
        outcome("d", 0.0001, unit="ratio", rows=""), {"claim": "e", "role": "test", "reason": "no data"},
        outcome("f", 0.0001, effect=9.0), outcome("f", 0.002, data_sets='["E"]'),
    ]  # fmt: skip
    write_claims(tmp_path, {name: {"statement": f"It is {name}"} for name in "abcdef"})
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setattr(results, "load_table", lambda *_: claims_table(*lines))
    return ledger.verdicts("paper", "quick")


def texts(artist):
    return [text.get_text() for text in artist.texts]


def test_a_forest_has_a_line_for_each_claim_that_is_tested_in_points(verdicts):
    figure = forest.forest(verdicts)
    (axis,) = figure.axes
    assert texts(axis) == ["✓  It is a", "↓  It is b", "~  It is c", "✓  It is f"]
    lines = [tuple(line.get_xdata()) for line in axis.get_lines()]
    half = 2 - verdicts["tests"][0][0].low
    # An interval, our effect and the paper's; of several contrasts the one that the verdict hangs on.
    assert lines[:3] == [pytest.approx((2 - half, 2 + half)), (2.0,), (3.5,)]
    assert lines[3:5] == [(-5.0, -3.0), (-4.0,)]
    assert [line[0] for line in lines if len(line) == 1] == [2.0, 3.5, -4.0, 2.0, 2.0]  # not f's 9, which is clearer
    tops = [text.xy[1] for text in axis.texts]
    assert tops == sorted(tops, reverse=True)
    heights = [line.get_ydata()[0] for line in axis.get_lines() if len(line.get_xdata()) == 2][:4]
    assert all(top > height for top, height in zip(tops, heights, strict=True))  # each above its own bar
    colours = {line.get_color() for line in axis.get_lines()[:2]}
    assert colours == {forest.COLOURS[ledger.HOLDS]}
    legend = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"✓ holds", "↓ against, here", "~ inconclusive"} < legend and "· not tested" not in legend


def test_a_forest_of_some_claims_is_in_their_order_with_words_of_its_own(verdicts):
    (axis,) = forest.forest(verdicts, {"c": "first " * 30, "a": "second", "e": "none"}).axes
    first, second = texts(axis)
    assert "\n" in first and second == "✓  second"


def test_tiles_have_a_sign_for_each_claim_hatched_on_a_stand_in(verdicts):
    many = pd.concat([verdicts] * 4, ignore_index=True)
    figure = forest.tiles(many)
    (axis,) = figure.axes
    signs = [text for text in texts(axis) if text in ledger.SIGNS.values()]
    assert signs == [ledger.SIGNS[verdict] for verdict in many["verdict"]]
    assert [bool(patch.get_hatch()) for patch in axis.patches] == (many["fidelity"] == "stand-in").tolist()
    columns, rows = zip(*((patch.get_x(), patch.get_y()) for patch in axis.patches), strict=True)
    assert len({*columns}) == forest.ABREAST and len({*rows}) == 2
    assert {name for name in ledger.SIGNS if (many["verdict"] == name).any()} == {
        text.get_text()[2:] for text in figure.legends[0].get_texts()
    } - {" a stand-in"}


def test_verdicts_differ_in_colour_and_marker():
    assert set(forest.COLOURS) == set(forest.MARKERS) == set(ledger.SIGNS)
