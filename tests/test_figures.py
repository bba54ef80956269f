"""Figures say what they show: labelled axes, a line or a point for what is given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from retlib import figures
from retlib.claims import Evidence


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def scores(paper):
    return pd.DataFrame(
        {"AP@100": [50.0, 60.0], "low": [49.0, 58.0], "high": [51.0, 62.0], "paper": paper}, index=["BM25", "DE"]
    )


def texts(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def test_intervals_have_a_panel_for_each_collection():
    found = figures.intervals({"quora": scores([83.7, None]), "toy": scores([None, None])})
    assert isinstance(found, Figure)
    left, right = found.axes
    assert [axis.get_title() for axis in found.axes] == ["quora", "toy"]
    assert all(axis.get_xlabel() == "AP@100 (points of 100)" and texts(axis) == ["BM25", "DE"] for axis in found.axes)
    # Ours and the paper's on the left, ours alone on the right.
    assert {text.get_text() for text in found.legends[0].get_texts()} == {
        "ours, 95 % interval",
        "paper (its own data)",
    }
    assert (len(left.get_lines()), len(right.get_lines())) == (4, 3)  # three for the points and the ends of the bars
    (segments,) = (c.get_segments() for c in right.collections)
    assert sorted(tuple(segment[:, 0]) for segment in segments) == [(49, 51), (58, 62)]
    # The first system stands on top.
    assert right.get_lines()[0].get_ydata()[0] > right.get_lines()[0].get_ydata()[1]


def curve():
    rows = [(step, seed, name, step + seed) for step in (1, 10) for seed in (0, 2) for name in ("a", "b")]
    return pd.DataFrame(rows, columns=["step", "seed", "loss", "score"])


def test_curves_are_the_mean_over_seeds_with_a_band():
    found = figures.curves(curve(), "step", "score", "loss", "steps", "precision@1", "x", ["b", "a"], (5.0, "BM25"))
    (axis,) = found.axes
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_xscale(), axis.get_yscale()) == (
        "steps", "precision@1", "log", "linear",
    )  # fmt: skip
    assert [line.get_label() for line in axis.get_lines()] == ["b", "a", "BM25"]
    assert axis.get_lines()[0].get_ydata().tolist() == [2, 11]  # the mean of seeds 0 and 2
    band = axis.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 12)
    assert len({line.get_marker() for line in axis.get_lines()[:2]}) == 2  # told apart without colour


def test_one_seed_has_a_curve_too():
    found = figures.curves(curve().query("seed == 0"), "step", "score", "loss", "steps", "P@1")
    assert [line.get_label() for line in found.axes[0].get_lines()] == ["a", "b"]


def test_more_curves_than_colours_are_drawn():
    rows = pd.concat([curve().assign(loss=f"{i}") for i in range(len(figures.COLOURS) + 2)])
    found = figures.curves(rows, "step", "score", "loss", "steps", "P@1")
    assert len(found.axes[0].get_lines()) == len(figures.COLOURS) + 2


def test_a_pair_matrix_shows_both_directions_and_what_is_significant():
    pairs = pd.DataFrame({"a": ["A", "A", "B"], "b": ["B", "C", "C"], "effect": [1.0, -2.0, 0.5], "p": [0.01, 0.2, 1]})
    found = figures.pair_matrix(pairs)
    axis, bar = found.axes
    assert texts(axis) == [label.get_text() for label in axis.get_xticklabels()] == ["A", "B", "C"]
    assert bar.get_ylabel().startswith("row minus column")
    cells = {(round(t.get_position()[1]), round(t.get_position()[0])): t for t in axis.texts}
    assert {place: t.get_text() for place, t in cells.items()} == {
        (0, 1): "+1.0", (1, 0): "-1.0", (0, 2): "-2.0", (2, 0): "+2.0", (1, 2): "+0.5", (2, 1): "-0.5",
    }  # fmt: skip
    assert {place for place, t in cells.items() if t.get_weight() == "bold"} == {(0, 1), (1, 0)}
    shown = axis.images[0].get_array()
    assert np.ma.getmaskarray(shown).diagonal().all() or np.isnan(np.ma.getdata(shown).diagonal()).all()


def test_a_histogram_has_a_marker_for_each_collection_on_logarithmic_axes():
    table = pd.DataFrame({"name": ["a", "a", "b"], "relevant": [1, 10, 5], "queries": [100, 1, 7]})
    (axis,) = figures.histogram(table, "relevant", "queries", "name", "relevant documents", "test queries").axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("relevant documents", "test queries")
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    drawn = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axis.get_lines()}
    assert drawn == {"a": [(1, 100), (10, 1)], "b": [(5, 7)]}


def test_the_ledger_shows_every_claim_with_its_sign_and_effects():
    evidence = [Evidence("A vs B", 55, 50, effect, effect - 1, effect + 1, 0.1, 0.9, 3, 30) for effect in (5, -2)]
    verdicts = pd.DataFrame(
        [
            {"claim": "gillick2018-a-over-b", "verdict": "holds", "evidence": evidence},
            {"claim": "gillick2018-b-over-c", "verdict": "not tested", "evidence": []},
            {"claim": "gillick2018-c-over-d", "verdict": "contradicted", "evidence": evidence[1:]},
            {"claim": "gillick2018-d-over-e", "verdict": "inconclusive", "evidence": evidence[:1]},
        ]
    )
    found = figures.ledger(verdicts)
    (axis,) = found.axes
    assert texts(axis) == ["✓  a over b", "·  b over c", "✗  c over d", "~  d over e"]
    assert "95 % interval" in axis.get_xlabel()
    bars = [tuple(line.get_xdata()) for line in axis.get_lines() if len(line.get_xdata()) == 2]
    assert sorted(bars[:4]) == [(-3, -1), (-3, -1), (4, 6), (4, 6)]
    (legend,) = found.legends
    assert {text.get_text() for text in legend.get_texts()} == {
        "✓ holds",
        "✗ contradicted",
        "~ inconclusive",
        "· not tested",
    }


def test_figures_can_be_written(tmp_path):
    found = figures.intervals({"toy": scores([1.0, 2.0])})
    found.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
