"""Figures of trainings say what they show: labels, units, legends, and the numbers that they were given."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from retlib.report import training_figures as figures


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def training(systems=("BM25 Neg", "LTRe", "LTRe, AdamW"), steps=40):
    rows = [
        (system, seed, step, measure, (step + seed) / 100)
        for system in systems
        for seed in (0, 2)
        for step in range(steps)
        for measure in figures.DYNAMICS
    ]
    return pd.DataFrame(rows, columns=["system", "seed", "step", "measure", "value"])


def test_dynamics_has_the_four_panels_of_figure_3():
    found = figures.dynamics(training())
    assert [axis.get_title()[:3] for axis in found.axes] == ["(a)", "(b)", "(c)", "(d)"]
    assert all(axis.get_ylabel() == "points of 100" for axis in found.axes)
    assert found.axes[2].get_xlabel() == found.axes[3].get_xlabel() == "training step"
    assert legend(found) == ["BM25 Neg", "LTRe", "LTRe, AdamW"]


def test_dynamics_draws_the_mean_over_seeds_in_points_and_its_standard_error():
    found = figures.dynamics(training(steps=10))  # of which each is a window
    (line, *_), (band, *_) = found.axes[0].get_lines(), found.axes[0].collections
    assert line.get_ydata() == pytest.approx(np.arange(10) + 1.0)  # of seeds 0 and 2
    edges = band.get_paths()[0].vertices
    assert sorted({round(float(y), 6) for x, y in edges if x == 7}) == [
        7,
        9,
    ]  # values 7 and 9, apart by twice the error of their mean


def test_dynamics_averages_parts_of_a_training_but_not_what_a_refresh_makes_jump():
    curves = training(systems=["LTRe"])
    curves["value"] = np.where(curves["step"] == 20, 0.4, 0.0)
    (line,), *_, (refreshed,) = (axis.get_lines() for axis in figures.dynamics(curves).axes)
    assert line.get_xdata().tolist() == [1.5 + 4 * part for part in range(10)]
    assert line.get_ydata() == pytest.approx([10.0 if part == 5 else 0.0 for part in range(10)])
    assert len(refreshed.get_ydata()) == 40 and refreshed.get_ydata().max() == pytest.approx(40)


def test_the_end_of_every_pass_over_the_questions_is_marked():
    found = figures.dynamics(training(systems=["LTRe"]), epoch=15.5)
    assert [line.get_xdata()[0] for line in found.axes[0].get_lines()[1:]] == [15.5, 31.0]
    assert legend(found) == ["LTRe", "a pass over the questions ends"]
    assert len(figures.dynamics(training(systems=["LTRe"]), epoch=41).axes[3].get_lines()) == 1


def test_one_seed_has_no_band():
    found = figures.dynamics(training(steps=10).query("seed == 0"))
    (line, *_), (band, *_) = found.axes[0].get_lines(), found.axes[0].collections
    assert len(line.get_ydata()) == 10 and not band.get_paths()


def test_what_a_training_changed_is_the_difference_to_what_stands_still():
    """On the same questions, of which some are harder than others."""
    curves = training(systems=["Warm-up", "LTRe"], steps=10)
    curves.loc[curves["system"] == "LTRe", "value"] += 0.05
    found = figures.dynamics(curves, "Warm-up")
    lines = [line for axis in found.axes for line in axis.get_lines()]
    assert [line.get_label() for line in lines] == ["LTRe"] * 4
    assert all(line.get_ydata() == pytest.approx(np.full(10, 5.0)) for line in lines[:3])
    # What is left of a list is 100 where nothing is trained.
    assert lines[3].get_ydata() == pytest.approx(np.arange(10) + 6.0)
    assert [axis.get_ylabel() for axis in found.axes] == ["points of 100 above Warm-up"] * 3 + ["points of 100"]


def test_an_optimizer_changes_the_dashes_alone_and_methods_differ_without_colour():
    methods = {"BM25 Neg": "BM25 Neg", "LTRe": "LTRe", "LTRe, AdamW": "LTRe"}
    bm25, lamb, adamw = figures.dynamics(training(), methods=methods).axes[0].get_lines()
    assert (lamb.get_color(), lamb.get_marker()) == (adamw.get_color(), adamw.get_marker())
    assert (lamb.get_linestyle(), adamw.get_linestyle()) == ("-", "--")
    assert bm25.get_marker() != lamb.get_marker() and bm25.get_color() != lamb.get_color()
    # Unless it is said, every system is a method of its own, whatever its name.
    _, lamb, adamw = figures.dynamics(training()).axes[0].get_lines()
    assert lamb.get_color() != adamw.get_color() and adamw.get_linestyle() == "-"


def test_a_measure_that_a_system_lacks_leaves_its_panel_without_it():
    curves = training()
    curves = curves[(curves["system"] != "LTRe") | (curves["measure"] != "overlap stale")]
    found = figures.dynamics(curves)
    assert [len(axis.get_lines()) for axis in found.axes] == [3, 3, 3, 2]


def neighbourhood(*queries):
    rows = [(query, "document", x, -x) for query in queries for x in range(5)]
    rows += [
        (query, what, x, 1.0)
        for query in queries
        for what, x in (("relevant", 7), ("relevant", 8), ("before", -2.0), ("after", 6.0))
    ]
    return pd.DataFrame(rows, columns=["query", "what", "x", "y"])


def test_a_map_shows_a_query_before_and_after_among_its_documents():
    found = figures.tsne_map(neighbourhood("one", "two"))
    assert [axis.get_title() for axis in found.axes] == ["one", "two"]
    assert legend(found) == ["document", "relevant document", "query before training", "query after training"]
    documents, relevant, before, after = found.axes[0].get_lines()
    assert [len(line.get_xdata()) for line in (documents, relevant, before, after)] == [5, 2, 1, 1]
    assert before.get_markerfacecolor() == "white" != after.get_markerfacecolor()
    assert relevant.get_marker() not in (before.get_marker(), documents.get_marker())
    low, high = found.axes[0].get_xlim()
    assert low < -2 and high > 7  # what is relevant is in sight
    (near,) = found.axes[0].child_axes
    assert near.get_lines()[0].get_xdata().tolist() == [-2, 6]  # its way, from before to after


@pytest.mark.parametrize("corner", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_the_enlargement_takes_the_corner_that_is_free(corner):
    others = [(x, y) for x in (0, 1) for y in (0, 1) if (x, y) != corner]
    places = pd.DataFrame(others, columns=["x", "y"]).assign(query="q", what=["before", "after", "relevant"])
    (axis,) = figures.tsne_map(places).axes
    left, bottom, width, height = figures._free_corner(axis, places[["x", "y"]].to_numpy())
    assert (left + width / 2 > 0.5, bottom + height / 2 > 0.5) == corner


def moving():
    documents = pd.DataFrame({"query": "", "x": range(100), "y": range(100)})
    queries = pd.DataFrame({"query": ["q"] * 3 + ["r"] * 2, "step": [20, 0, 10, 0, 10], "x": [3.0, 1, 2, 5, 6], "y": 0})
    relevant = pd.DataFrame({"query": ["q", "q"], "x": [4.0, 90], "y": [1.0, 1]})
    parts = {"document": documents, "query": queries, "relevant": relevant}
    return pd.concat([part.assign(what=what) for what, part in parts.items()])


def test_paths_begin_open_end_full_and_bear_their_numbers_on_the_map():
    whole, first, second = (found := figures.paths(moving())).axes
    path, start, end, goals = first.get_lines()[1:]
    assert path.get_xdata().tolist() == [1, 2, 3]  # in the order of steps
    assert list(start.get_xdata()) == [1] and start.get_markerfacecolor() == "white"
    assert list(end.get_xdata()) == [3] and goals.get_xdata().tolist() == [4, 90]
    assert {text.get_text(): text.get_position() for text in whole.texts} == {"1": (3, 0), "2": (6, 0)}
    assert [axis.get_title() for axis in (first, second)] == ["1: q", "2: r"]
    assert legend(found) == ["document", "query at the start", "query at the end", "relevant document"]


def test_a_path_is_enlarged_with_the_nearest_relevant_document():
    whole, first, second = figures.paths(moving()).axes
    low, high = first.get_xlim()
    assert low < 1 and 4 < high < 10 and whole.get_xlim()[1] > 99
    # What is far away would make the path a dot: an arrow points at it, and not where nothing is relevant.
    panels = figures.paths(moving().replace({"x": {4.0: 80.0}})).axes[1:]
    assert all(axis.get_xlim()[1] - axis.get_xlim()[0] < 20 for axis in panels)
    (arrow,) = panels[0].texts
    assert 3 < arrow.xyann[0] < arrow.xy[0] < panels[0].get_xlim()[1] and not panels[1].texts and not first.texts
    assert second.get_xlim()[0] < 5 and second.get_xlim()[1] > 6


def test_a_long_question_is_cut_above_its_path():
    title = figures.paths(moving().replace({"query": "q"}, "a word and " * 20)).axes[1].get_title()
    assert title.endswith("…") and len(title.splitlines()) == 3


def test_an_index_matrix_marks_the_best_of_each_column_and_the_diagonal():
    rows = [("PQ6", "PQ6", 52.0), ("PQ6", "Exact", 62.0), ("Exact", "PQ6", 53.0), ("Exact", "Exact", 66.0)]
    axis, bar = figures.index_matrix(pd.DataFrame(rows, columns=["trained", "searched", "value"])).axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("index in search", "index in training")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["PQ6", "Exact"]
    weights = {text.get_text(): text.get_weight() for text in axis.texts}
    assert weights == {"52.0": "normal", "62.0": "normal", "53.0": "bold", "66.0": "bold"}
    frames = {tuple(np.round(patch.get_xy(), 2)) for patch in axis.patches}
    assert frames == {(-0.47, -0.47), (0.53, 0.53)}
    assert bar.get_ylabel() == "nDCG@10 (points of 100)"


def test_cells_that_print_alike_are_both_bold():
    rows = [("PQ6", "PQ6", 52.02), ("PQ6", "Exact", 62.0), ("Exact", "PQ6", 51.98), ("Exact", "Exact", 66.0)]
    axis, _ = figures.index_matrix(pd.DataFrame(rows, columns=["trained", "searched", "value"])).axes
    assert [text.get_weight() for text in axis.texts if text.get_text() == "52.0"] == ["bold", "bold"]


def test_a_cell_that_was_not_measured_stays_empty():
    rows = [("PQ6", "PQ6", 52.0), ("Exact", "PQ6", 53.0), ("Exact", "Exact", 66.0)]
    axis, _ = figures.index_matrix(pd.DataFrame(rows, columns=["trained", "searched", "value"])).axes
    assert len(axis.texts) == 3


def times(outcome="reached"):
    return pd.DataFrame(
        {"documents": [100, 100, 1000], "seed": [0, 1, 0], "outcome": ["reached", "reached", outcome],
         "ANCE": [10.0, 30.0, 200.0], "LTRe": [5.0, 5.0, 40.0], "ratio": [2.0, 6.0, 5.0]}
    )  # fmt: skip


def beyond(outcome="reached"):
    rows = [("steps as measured", 10**6, 4e4, 1e4, 4.0), ("the paper's steps", 10**6, 9e9, 9e8, 10.0)]
    return pd.DataFrame(rows, columns=["steps", "documents", "ANCE", "LTRe", "ratio"]).assign(outcome=outcome)


STACKS = pd.DataFrame(
    [(100, "ANCE", 15.0, 5.0), (100, "LTRe", 1.0, 4.0), (1000, "ANCE", 180.0, 20.0), (1000, "LTRe", 10.0, 30.0)],
    columns=["documents", "system", "encoding the corpus", "search"],
)


def test_training_time_marks_what_is_measured_and_dashes_what_is_not():
    left = figures.training_time(times(), beyond(), STACKS).axes[0]
    assert (left.get_xscale(), left.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line for line in left.get_lines()}
    assert lines["ANCE, measured"].get_ydata().tolist() == [10, 30, 200]
    assert lines["ANCE, measured"].get_linestyle() == "None" and lines["ANCE, extrapolated"].get_linestyle() == "--"
    # From the mean over the largest corpus that is measured, with the steps of that training alone.
    assert lines["LTRe, extrapolated"].get_xdata().tolist() == [1000, 10**6]
    assert lines["LTRe, extrapolated"].get_ydata().tolist() == [40, 1e4]
    assert [text.get_text() for text in left.texts] == ["4.0 times"]


def test_training_time_says_what_is_but_a_bound():
    left = figures.training_time(times("never reached"), beyond("never reached"), STACKS).axes[0]
    lines = {line.get_label(): line for line in left.get_lines()}
    bound = lines["LTRe, whole training: never as good"]
    assert bound.get_ydata().tolist() == [40] and bound.get_markerfacecolor() == "white"
    assert lines["LTRe, measured"].get_ydata().tolist() == [5, 5]
    assert lines["ANCE, measured"].get_ydata().tolist() == [10, 30, 200]  # ANCE's time is what it is
    assert [text.get_text() for text in left.texts] == ["< 4.0 times"]


def test_training_time_stacks_the_parts_of_each_training():
    found = figures.training_time(times(), beyond(), STACKS)
    right = found.axes[1]
    heights = [[bar.get_height() for bar in part] for part in right.containers]
    assert heights == [[15, 1, 180, 10], [5, 4, 20, 30]]
    assert [bar.get_y() for bar in right.containers[1]] == [15, 1, 180, 10]
    assert [label.get_text() for label in right.get_xticklabels()][:2] == ["ANCE\n100", "LTRe\n100"]
    assert [text.get_text() for text in found.legends[1].get_texts()] == ["encoding the corpus", "search"]


def test_training_time_is_drawn_where_ance_never_improves():
    nothing = times().assign(ratio=np.nan)
    assert not figures.training_time(nothing, beyond().iloc[:0], STACKS).axes[0].texts
