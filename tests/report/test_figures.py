"""Figures say what they show: labelled axes, a line or a point for what is given."""

from itertools import combinations

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.figure import Figure

from retlib.evaluation.measures import Comparison
from retlib.evaluation.results import Results
from retlib.report import figures


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def scores(paper):
    return pd.DataFrame(
        {
            "AP@100": [50.0, 60.0], "low": [49.0, 58.0], "high": [51.0, 62.0], "paper": paper,
            "each seed": [[50.0], [59.0, 61.0]],
        },
        index=["BM25", "DE"],
    )  # fmt: skip


def texts(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def rows(axis):
    return [text.get_text() for text in axis.texts]


def test_intervals_have_a_panel_for_each_collection():
    found = figures.intervals({"quora": scores([83.7, None]), "toy": scores([None, None])})
    assert isinstance(found, Figure)
    left, right = found.axes
    assert [axis.get_title() for axis in found.axes] == ["Quora", "toy"]
    assert all(axis.get_xlabel() == "AP@100 (points of 100)" for axis in found.axes) and rows(left) == ["BM25", "DE"]
    # Each name stands above its own points, and below those of the row before.
    names, points = [text.xy[1] for text in left.texts], left.get_lines()[0].get_ydata()
    assert names[0] > points[0] > names[1] > points[1] and not left.get_yticks().size
    # The longest that the book has is not cut, and does not reach the next panel.
    longest = scores([None, None]).rename({"DE": "ICT+BFS+WLP > GQ > labels > LTRe + BM25, read 10"})
    long = figures.intervals({"quora": longest, "toy": longest})
    long.canvas.draw()
    for axis in long.axes:
        assert all(text.get_window_extent().x1 < axis.bbox.x1 for text in axis.texts)
    # Ours and the paper's on the left, ours alone on the right.
    assert {text.get_text() for text in found.legends[0].get_texts()} == {
        "ours, 95 % interval",
        "each seed",
        "paper (its own data)",
    }
    # Three for the points and the ends of the bars, and one for the seeds of what has several.
    assert (len(left.get_lines()), len(right.get_lines())) == (5, 4)
    (seeds,) = (line for line in right.get_lines() if line.get_label() == "each seed")
    assert seeds.get_xdata().tolist() == [59, 61] and set(seeds.get_ydata()) == {points[1]}
    (segments,) = (c.get_segments() for c in right.collections)
    assert sorted(tuple(segment[:, 0]) for segment in segments) == [(49, 51), (58, 62)]
    # The first system stands on top.
    assert right.get_lines()[0].get_ydata()[0] > right.get_lines()[0].get_ydata()[1]


def test_panels_of_intervals_with_other_systems_have_their_own_names():
    found = figures.intervals({"quora": scores([1.0, 2.0]), "toy": scores([1.0, 2.0]).rename({"DE": "in_batch"})})
    assert [rows(axis) for axis in found.axes] == [["BM25", "DE"], ["BM25", "in batch"]]


def test_a_system_looks_the_same_in_every_figure():
    styles = figures.line_styles(["mine", "BM25", "LTRe"])
    assert styles["BM25"] == figures.line_styles(["a", "b", "LTRe", "BM25"])["BM25"]
    many = figures.line_styles([*(f"{i}" for i in range(12)), "BM25", "BM25, stemmed", "BM25, expanded", "ANCE"])
    assert len({tuple(style.values()) for style in many.values()}) == len(many)
    # In figures of every kind.
    rows = curve().replace({"loss": {"b": "BM25"}})
    drawn = figures.curves(rows, "step", "score", "loss", "steps", "P@1").axes[0].get_lines()[1]
    recall = figures.recalls(recorded("a", "b"), ["b"], RECALLS).axes[0].get_lines()[0]
    point = figures.tradeoff(timed()).axes[0].containers[0].lines[0]
    for line in (drawn, recall, point):
        assert (line.get_color(), line.get_marker()) == (styles["BM25"]["color"], styles["BM25"]["marker"])


def curve():
    rows = [(step, seed, name, step + seed) for step in (1, 10) for seed in (0, 2) for name in ("a", "b")]
    return pd.DataFrame(rows, columns=["step", "seed", "loss", "score"])


def test_curves_are_the_mean_over_seeds_with_a_band():
    found = figures.curves(curve(), "step", "score", "loss", "steps", "precision@1", "x", (5.0, "BM25"))
    (axis,) = found.axes
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_xscale(), axis.get_yscale()) == (
        "steps", "precision@1", "log", "linear",
    )  # fmt: skip
    assert [line.get_label() for line in axis.get_lines()] == ["a", "b", "BM25"]
    assert axis.get_lines()[0].get_ydata().tolist() == [2, 11]  # the mean of seeds 0 and 2
    band = axis.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 12)
    assert len({line.get_marker() for line in axis.get_lines()[:2]}) == 2  # told apart without colour


def test_one_seed_has_a_curve_too():
    found = figures.curves(curve().query("seed == 0"), "step", "score", "loss", "steps", "P@1")
    assert [line.get_label() for line in found.axes[0].get_lines()] == ["a", "b"]
    assert not found.axes[0].collections  # and no band


def test_more_curves_than_colours_are_drawn():
    rows = pd.concat([curve().assign(loss=f"{i}") for i in range(len(figures.COLOURS) + 2)])
    found = figures.curves(rows, "step", "score", "loss", "steps", "P@1")
    assert len(found.axes[0].get_lines()) == len(figures.COLOURS) + 2


def test_a_histogram_has_a_marker_for_each_collection_on_logarithmic_axes():
    table = pd.DataFrame({"name": ["a", "a", "b"], "relevant": [1, 10, 5], "queries": [100, 1, 7]})
    (axis,) = figures.histogram(table, "relevant", "queries", "name", "relevant documents", "test queries").axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("relevant documents", "test queries")
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    drawn = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axis.get_lines()}
    assert drawn == {"a": [(1, 100), (10, 1)], "b": [(5, 7)]}


RECALLS = ["R@1", "R@5", "R@100"]


def recorded(*names):
    """Recalls of two systems on collections; the second starts on the second one, and has two seeds."""
    made = Results()
    for collection in names:
        systems = {"BM25": (0,), "DE": (0, 1)} if collection != names[0] else {"BM25": (0,)}
        for system, seeds in systems.items():
            for seed in seeds:
                for measure, value in zip(RECALLS[::-1], (0.5, 0.3, 0.1), strict=True):
                    made.add_row(experiment="x", system=system, collection=collection, split="test", measure=measure,
                                 value=value + seed / 10, seed=seed, profile="quick")  # fmt: skip
    return made


def test_recalls_have_a_panel_for_each_collection_and_one_style_for_each_system():
    names = ["a", "b", "c"]
    found = figures.recalls(recorded(*names), names, RECALLS)
    panels = [axis for axis in found.axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == names and len(found.axes) == 4  # one is empty, and hidden
    (alone,) = panels[0].get_lines()
    first, second = panels[1].get_lines()
    assert alone.get_xdata().tolist() == [1, 5, 100] and alone.get_ydata().tolist() == pytest.approx([10, 30, 50])
    assert second.get_ydata().tolist() == pytest.approx([15, 35, 55])  # the mean of two seeds
    (band,) = (each.get_paths()[0].vertices[:, 1] for each in panels[1].collections)  # one seed has none
    assert (band.min(), band.max()) == pytest.approx((10, 60))
    for axis in panels[1:]:
        same, other = axis.get_lines()
        assert (same.get_color(), same.get_marker()) == (alone.get_color(), alone.get_marker())
        assert other.get_color() != same.get_color() and other.get_marker() != same.get_marker()
    assert panels[0].get_xscale() == "log"
    assert [label.get_text() for label in panels[-1].get_xticklabels()] == ["1", "5", "100"]
    assert [text.get_text() for text in found.legends[0].get_texts()] == ["BM25", "DE"]
    assert "points of 100" in found.get_supylabel()


def test_recalls_on_one_collection_have_one_panel():
    found = figures.recalls(recorded("x", "a"), ["a"], RECALLS)
    assert len(found.axes) == 1 and len(found.axes[0].get_lines()) == 2


def test_a_title_does_not_break_before_a_per_cent_sign():
    _, axes = figures.panels(["natural-questions-0.01-all", "squad-small-0.8"], 2.6, 2.4)
    assert not any(line.startswith("%") for axis in axes for line in axis.get_title().split("\n"))


def test_titles_are_no_wider_than_their_panels():
    figure, axes = figures.panels(["natural-questions-0.01"] * 3, 2.8, 2.4, sharey=True)
    figure.canvas.draw()
    assert all(axis.title.get_window_extent().width <= axis.get_window_extent().width for axis in axes)


def test_recalls_have_no_system_without_a_recall():
    made = recorded("a", "b")
    made.add_row(experiment="x", system="a cost", collection="b", split="test", measure="seconds", value=1.0, seed=0,
                 profile="quick")  # fmt: skip
    found = figures.recalls(made, ["a", "b"], RECALLS)
    assert [text.get_text() for text in found.legends[0].get_texts()] == ["BM25", "DE"]


def test_figures_can_be_written(tmp_path):
    found = figures.intervals({"toy": scores([1.0, 2.0])})
    found.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def timed():
    names = ["BM25", "LTRe -> small cross-encoder, 30", "LTRe -> small cross-encoder, 10"]
    columns = {"value": [19.0, 37, 36], "low": [18.0, 36, 34], "high": [20.0, 38, 37]}
    return pd.DataFrame({"system": names, **columns, "median": [60.0, 150, 80], "p95": [90.0, 200, 100]})


def test_a_tradeoff_joins_the_depths_of_a_family():
    family = "LTRe -> small cross-encoder"
    families = {f"{family}, {depth}": (family, str(depth)) for depth in (10, 30)}
    found = figures.tradeoff(timed(), families)
    (axis,) = found.axes
    assert axis.get_xscale() == "log" and "ms" in axis.get_xlabel() and "95th percentile" in axis.get_xlabel()
    assert axis.get_ylabel() == "RR@10 (points of 100), 95 % interval"
    # What stands alone is named beside its point.
    assert [text.get_text() for text in found.legends[0].get_texts()] == [family]
    assert [text.get_text() for text in axis.texts] == ["BM25", "10", "30"]
    bars = axis.containers[1]
    assert bars.lines[0].get_xdata().tolist() == [80, 150]  # from the faster to the slower
    across, upright = (lines.get_segments() for lines in bars.lines[2])
    assert [segment[:, 0].tolist() for segment in across] == [[80, 100], [150, 200]]
    assert [segment[:, 1].tolist() for segment in upright] == [[34, 37], [36, 38]]


def test_a_system_without_a_family_is_one_of_its_own():
    (axis,) = figures.tradeoff(timed()).axes
    assert [text.get_text() for text in axis.texts] == timed()["system"].tolist()


def test_names_of_points_that_lie_on_one_another_do_not():
    points = [timed().assign(system=timed()["system"] + f", {each}", median=60 + each) for each in range(3)]
    (axis,) = figures.tradeoff(pd.concat(points[:2])).axes
    places = [text.get_window_extent() for text in axis.texts]
    assert not any(one.overlaps(other) for one, other in combinations(places, 2))
    upward = [text.xyann[1] for text in axis.texts]
    assert min(upward) == 6 < max(upward)
    every = pd.concat(points)
    many = figures.tradeoff(every)  # nine, which the legend names
    assert not many.axes[0].texts and len(many.legends[0].get_texts()) == 9
    many = figures.tradeoff(every, {every["system"].iloc[0]: ("a family", "10")})
    assert [text.get_text() for text in many.axes[0].texts] == ["10"]


def test_no_two_names_of_a_figure_look_alike():
    styles = figures.line_styles([*figures.PLACES, "something", "else"])
    assert len({tuple(sorted(style.items())) for style in styles.values()}) == len(styles)
    assert figures.line_styles(["else", "LTRe"])["LTRe"] == figures.line_styles(["LTRe"])["LTRe"]


def test_effects_stand_in_rows_of_their_names_with_their_intervals():
    one, other = (Comparison(effect, 1.0, 9, 10, 2) for effect in (3.0, -2.0))
    axis = figures.effects({"a": {"x": one, "y": other}, "b": {"y": one}}, "points", order=["y", "x"]).axes[0]
    first, second = axis.containers
    assert [text.get_text() for text in axis.texts] == ["y", "x"] and first[0].get_xdata().tolist() == [3.0, -2.0]
    assert first[0].get_ydata()[1] > second[0].get_ydata()[0] > first[0].get_ydata()[0]  # y lies above x
    (bars,) = first[2]
    assert bars.get_segments()[0][:, 0] == pytest.approx(one.interval())
