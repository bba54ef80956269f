"""Figures draw the values of their rows with their intervals, in their order, and cut nothing off."""

import numpy as np
import pandas as pd
import pytest
from recorded import number

from retlib.evaluation.measures import Comparison
from retlib.evaluation.results import Results
from retlib.report import figures


def texts(artists):
    return [artist.get_text() for artist in artists]


def legend(figure):
    return texts(figure.legends[0].get_texts())


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def ends(bars, which=0):
    return [segment[:, which].tolist() for segment in bars[2][which].get_segments()]


def test_intervals_stand_in_a_panel_of_their_collection_under_their_names():
    columns = {"AP@100": [50.0, 60.0], "low": [49.0, 58.0], "high": [51.0, 63.0], "each seed": [[50.0], [59.0, 61.0]]}
    table = pd.DataFrame({**columns, "paper": None}, index=["BM25", "in_batch > GQ > labels > LTRe + BM25, read 10"])
    figure = figures.intervals({"quora": table.assign(paper=[83.7, None]), "toy": table}, "AP@100")
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == ("Quora", "toy")
    (bars,) = right.containers
    assert bars[0].get_xdata().tolist() == [50, 60] and ends(bars) == [[49, 51], [58, 63]]
    # Each name stands above its own point, and below that of the row before; the longest is not cut.
    assert texts(right.texts) == ["BM25", "in batch > GQ > labels > LTRe + BM25, read 10"]
    names, points = [text.xy[1] for text in right.texts], bars[0].get_ydata()
    assert names[0] > points[0] > names[1] > points[1]
    figure.canvas.draw()
    assert all(text.get_window_extent().x1 < axis.bbox.x1 for axis in figure.axes for text in axis.texts)
    assert lines_of(right)["each seed"].get_xdata().tolist() == [59, 61]  # of one seed the mean says it all
    assert lines_of(left)["paper (its own data)"].get_xdata()[0] == 83.7


def test_effects_stand_in_rows_of_their_names_with_their_intervals():
    one, other = (Comparison(effect, 1.0, 9, 10, 2) for effect in (3.0, -2.0))
    (axis,) = figures.effects({"a": {"x": one, "y": other}, "b": {"y": one}}, "points", order=["y", "x"]).axes
    first, second = axis.containers
    assert texts(axis.texts) == ["y", "x"] and first[0].get_xdata().tolist() == [3.0, -2.0]
    assert first[0].get_ydata()[1] > second[0].get_ydata()[0] > first[0].get_ydata()[0]  # y lies above x
    assert ends(first)[0] == pytest.approx(one.interval())


def test_no_two_names_of_a_figure_look_alike_and_titles_stay_within_their_panels():
    styles = figures.line_styles([*map(str, range(30)), "0"])
    assert len(styles) == len({tuple(style.values()) for style in styles.values()}) == 30
    figure, axes = figures.panels(["natural-questions-0.01-all", "squad-small-0.8", "a" * 30 + " bcdefg"], 3.2, 2.4)
    figure.canvas.draw()
    assert all(axis.title.get_window_extent().width <= axis.get_window_extent().width for axis in axes)


def test_lines_are_the_mean_over_seeds_with_a_band():
    rows = [(step, seed, name, step + seed) for step in (1, 4000) for seed in (0, 2) for name in ("b_b", "a")]
    table = pd.DataFrame(rows, columns=["step", "seed", "loss", "score"]).query("loss == 'a' or seed == 0")
    figure = figures.lines(table, "step", "score", "loss", "steps", "precision@1", "x")
    (axis,) = figure.axes
    assert axis.get_xscale() == "log" and texts(axis.get_xticklabels()) == ["1", "4,000"]
    assert legend(figure) == ["b b", "a"]
    assert [line.get_ydata().tolist() for line in axis.get_lines()] == [[1, 4000], [2, 4001]]
    band = axis.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1, 4002)


def test_recalls_have_a_panel_for_each_collection_and_one_style_for_each_system():
    results = Results()
    for measure, value in {"seconds": 9, "R@100": 0.5, "R@5": 0.3, "R@1": 0.1}.items():
        number(results, "DE", {0: value}, "b", measure)
        number(results, "BM25", {0: value}, "a", measure)
        number(results, "DE", {0: value, 1: value + 0.1}, "a", measure)
    left, right = figures.recalls(results, ["b", "a"], ["R@1", "R@5", "R@100"]).axes
    alone, lines = lines_of(left)["DE"], lines_of(right)
    assert (left.get_title(), right.get_title()) == ("b", "a") and texts(right.get_xticklabels()) == ["1", "5", "100"]
    assert alone.get_xdata().tolist() == [1, 5, 100] and alone.get_ydata() == pytest.approx([10, 30, 50])
    assert lines["DE"].get_ydata() == pytest.approx([15, 35, 55])  # the mean of two seeds
    assert lines["DE"].get_color() == alone.get_color() != lines["BM25"].get_color()


def test_a_tradeoff_joins_the_depths_of_a_family():
    columns = {"value": [19.0, 37, 36], "low": [18.0, 36, 34], "high": [20.0, 38, 37], "median": [60.0, 150, 80]}
    table = pd.DataFrame({"system": ["BM25", "read", "read"], **columns, "p95": [90.0, 200, 100]})
    figure = figures.tradeoff(table, "RR@10")
    assert legend(figure) == ["BM25", "read"]
    bars = figure.axes[0].containers[1]
    assert bars[0].get_xdata().tolist() == [80, 150]  # from the faster to the slower
    assert ends(bars) == [[80, 100], [150, 200]] and ends(bars, 1) == [[34, 37], [36, 38]]


def test_dynamics_draw_what_a_training_changed_and_average_but_what_refreshes_make_jump():
    gains, measures = {"Warm-up": 0, "LTRe": 5, "LTRe, AdamW": 2}, figures.DYNAMICS
    columns = [gains, (0, 2), range(40), measures]
    curves = pd.MultiIndex.from_product(columns, names=["system", "seed", "step", "measure"]).to_frame(index=False)
    gained = curves["system"].map(gains)
    curves["value"] = (curves["step"] + gained + curves["seed"] * (gained > 0)) / 100
    figure = figures.dynamics(curves, "Warm-up", 15.5)
    lamb, adamw, *passes = figure.axes[0].get_lines()
    assert lamb.get_xdata().tolist() == [1.5 + 4 * part for part in range(10)]
    assert lamb.get_ydata() == pytest.approx(np.full(10, 6.0)) and adamw.get_ydata() == pytest.approx(np.full(10, 3.0))
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((5, 7))
    assert figure.axes[3].get_lines()[0].get_ydata() == pytest.approx(np.arange(40) + 6.0)
    assert [line.get_xdata()[0] for line in passes] == [15.5, 31.0]


def test_paths_are_drawn_on_the_map_and_enlarged():
    rows = [("", "document", x, x) for x in range(100)] + [("q", "relevant", 4, 1), ("q", "relevant", 90, 1)]
    rows += [(query, "query", x, 0) for query, path in {"q": (1, 3, 2), "word " * 50: (5, 6)}.items() for x in path]
    places = pd.DataFrame(rows, columns=["query", "what", "x", "y"])
    whole, near, _, second = figures.paths(places).axes
    for axis in (whole, near):
        documents, goals, path, start, end = axis.get_lines()[:5]
        assert len(documents.get_xdata()) == 100 and goals.get_xdata().tolist() == [4, 90]
        assert path.get_xdata().tolist() == [1, 3, 2] and (*start.get_xdata(), *end.get_xdata()) == (1, 2)
    assert whole.get_xlim()[1] > 99 and near.get_xlim()[0] < 1 and 3 < near.get_xlim()[1] < 10
    assert near.get_lines()[5].get_xdata().tolist() == [2, 4]  # to the nearest
    assert second.get_xlim()[0] < 5 < 6 < second.get_xlim()[1]  # where nothing is relevant
