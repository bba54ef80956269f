"""Figures of Part III, from made-up tables."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from retlib.report import zero_shot_figures


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_gains_show_every_difference_and_mark_those_beyond_chance():
    table = pd.DataFrame(
        [("a", "X", 3.25, 0.01), ("b", "X", -1.0, 0.2), ("b", "Y", 0.5, 0.04)],
        columns=["collection", "system", "effect", "p"],
    )
    figure = zero_shot_figures.gains(table, "R@10")
    axis = figure.axes[0]
    assert {text.get_text(): text.get_weight() for text in axis.texts} == {
        "+3.2": "bold", "-1.0": "normal", "+0.5": "bold"
    }  # fmt: skip
    assert [label.get_text() for label in axis.get_yticklabels()] == ["X", "Y"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "b"]
    assert figure.axes[1].get_ylabel() == "points of R@10 above BM25"


def test_statistics_are_drawn_for_each_kind_of_queries_and_averaged_over_seeds():
    rows = [
        ("t", "Real", 0, 0.9, 1.0),
        ("t", "Beam", 0, 0.4, 5.0),
        ("t", "Beam", 1, 0.6, 5.0),
        ("u", "Real", 0, 0.7, 2),
    ]
    table = pd.DataFrame(rows, columns=["target", "by", "seed", "round trip", "pairs"])
    figure = zero_shot_figures.statistics(table, {"round trip": "Round", "pairs": "Pairs"})
    assert [axis.get_title() for axis in figure.axes] == ["Round", "Pairs"]
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(lines["Beam"].get_xdata(), [0.5, np.nan])
    np.testing.assert_allclose(lines["Real"].get_xdata(), [0.9, 0.7])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["t", "u"]
    # They stand apart where they are equal.
    assert (lines["Beam"].get_ydata() != lines["Real"].get_ydata()).all()


def test_sizes_are_the_ticks_of_a_logarithmic_axis():
    table = pd.DataFrame({"size": [16, 128, 4000], "kind": "k", "seed": 0, "value": [1.0, 2.0, 3.0]})
    axis = zero_shot_figures.over(table, "size", "kind", "sizes", "R@10").axes[0]
    assert axis.get_xscale() == "log" and (axis.get_xlabel(), axis.get_ylabel()) == ("sizes", "R@10")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["16", "128", "4,000"]
    np.testing.assert_allclose(axis.get_lines()[0].get_ydata(), [1, 2, 3])
