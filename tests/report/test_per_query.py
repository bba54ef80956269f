"""Systems query by query: numbers worked out by hand, wrong input, the figures, and the page itself."""

import hypothesis.strategies as st
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from recorded import put
from scipy import stats

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.data.collection import Collection
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import figures, tables
from retlib.workflow.execute import run_cells

NOTEBOOK = runtime.root() / "notebooks" / "52_query_by_query.ipynb"
BOARD = "51_one_leaderboard"
QUERIES = [f"q{i}" for i in range(10)]
# Values of q0 to q9: of BM25, which has no seeds, and of two seeds of GQ, whose mean at q7 is BM25's.
BM25 = [1, 0.5, 0, 0, 1, 0, 1, 1 / 3, 0.25, 0]
GQ = {0: [1, 1, 1, 0, 0, 0, 0.5, 1 / 2, 1, 0], 1: [1, 1, 0, 0, 0, 0, 0.5, 1 / 6, 0, 0.5]}
OVERLAPS = [1, 1, 1, 0.5, 0.5, 0.2, 0.2, 0.2, 0, np.nan]
# Seed 0: 1 1 1 0 1 0 1 1/2 1 0; seed 1: 1 1 0 0 1 0 1 1/3 1/4 1/2.
BEST_OF_BOTH = 100 * (6.5 + 4 + 1 / 3 + 3 / 4) / 20


def add(found, system, values, collection="c", clusters=None, overlaps=OVERLAPS):
    """Add values by seed, and the collection's overlaps."""
    points = {seed: 100 * np.array(each) for seed, each in values.items()}
    put(found, system, points, collection, "RR@10", clusters=clusters)
    names = [f"q{i}" for i in range(len(overlaps))]
    table = pd.DataFrame({"collection": collection, "query_id": names, "overlap": overlaps, "words": 4})
    found.add_lines("overlap", table, ["collection"])


@pytest.fixture
def recorded():
    found = Results()
    add(found, "BM25", {0: BM25})
    add(found, "GQ", GQ)
    return found


@pytest.mark.parametrize(("title", "one"), [(True, 1), (False, 0.5)])
def test_overlap_is_the_largest_share_of_a_query_s_words_over_its_relevant_documents(title, one):
    columns = {"title": ["Red house", "", "x"], "text": ["The door of a barn.", "Green DOOR, red", "nothing"]}
    documents = pd.DataFrame(columns, index=["a", "b", "c"])
    texts = {"one": "the red red door", "two": "Doors of a green house", "stop": "of the", "none": "red"}
    queries = pd.DataFrame({"text": texts, "split": "test"})
    queries.loc["train"] = "barn", "train"
    rows = [("one", "a", 1), ("two", "a", 1), ("two", "b", 2), ("two", "c", 1), ("stop", "a", 1), ("none", "a", 0)]
    qrels = pd.DataFrame([*rows, ("train", "a", 1)], columns=["query_id", "doc_id", "relevance"])
    documents = documents if title else documents.drop(columns="title")
    found = tables.overlap(Collection("toy", documents, queries, qrels))
    assert found["collection"].unique().tolist() == ["toy"] and found["words"].tolist() == [4, 5, 2, 1]
    found = found.set_index("query_id")["overlap"]
    # red and door; house of doors, green, house (and green of them in another document).
    assert found["one"] == one and found["two"] == pytest.approx(1 / 3)
    # Of stop words alone, and without a relevant document.
    assert found[["stop", "none"]].isna().all() and found.index.tolist() == ["one", "two", "stop", "none"]


def test_slices_by_hand(recorded):
    found = tables.slices(recorded, "c", "RR@10", [], 3)
    assert found["part"].unique().tolist() == ["0-20 % (n = 4)", "50 % (n = 2)", "100 % (n = 3)"]
    assert found["edge"].tolist() == [0, 0, 0.5, 0.5, 1, 1] and found["queries"].tolist() == [4, 4, 2, 2, 3, 3]
    assert found["system"].tolist() == ["BM25", "GQ"] * 3
    lowest = [100 * (0 + 1 + 1 / 3 + 0.25) / 4, 100 * (0 + 0.5 + 1 / 3 + 0.5) / 4]  # q5 to q8; q9 has no overlap
    assert found["value"].tolist() == pytest.approx([*lowest, 50, 0, 50, 500 / 6], abs=1e-3)
    low, high = stats.ttest_1samp(100 * np.array(BM25[5:9]), 0).confidence_interval(0.95)
    assert found.loc[0, ["low", "high"]].tolist() == pytest.approx([low, high], abs=1e-3)
    # Seeds count: those of GQ differ by 500 / 6 in the third part.
    third = Results(queries={key: frame.loc[QUERIES[:3]] for key, frame in recorded.queries.items()})
    estimate = third.compared("c", "RR@10", "GQ")
    assert found.loc[5, ["low", "high"]].tolist() == pytest.approx(list(estimate.interval()), abs=1e-3)
    # Queries are taken by their ids, of which each has to be there once.
    recorded.tables["overlap"] = table = recorded.tables["overlap"].iloc[::-1]
    pd.testing.assert_frame_equal(tables.slices(recorded, "c", "RR@10", [], 3), found)
    for wrong in (table.iloc[:9], pd.concat([table, table])):
        recorded.tables["overlap"] = wrong
        with pytest.raises(DataError, match="'c'"):
            tables.slices(recorded, "c", "RR@10", [], 3)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 6) | st.none(), min_size=1, max_size=30), st.integers(1, 8))
def test_parts_hold_every_query_once_in_order_and_equals_together(ranks, parts):
    overlaps = np.array([np.nan if rank is None else rank / 6 for rank in ranks])
    found = Results()
    add(found, "a", {0: overlaps}, overlaps=overlaps)
    table, known = tables.slices(found, "c", "RR@10", [], parts), np.sort(overlaps[~np.isnan(overlaps)])
    assert len(table) <= parts and table["queries"].sum() == len(known) and table["edge"].is_monotonic_increasing
    ends = table["queries"].cumsum()
    for (start, end), value in zip(zip([0, *ends], ends, strict=False), table["value"], strict=True):
        assert value == pytest.approx(100 * known[start:end].mean(), abs=1e-3)
        assert end == len(known) or known[end - 1] < known[end]
    if len(set(known)) == len(known) > 0:  # parts are equal where no queries are
        assert len(table) == min(parts, len(known)) and np.ptp(table["queries"]) <= 1


@pytest.mark.parametrize(("overlaps", "sizes"), [("1011", [1, 3]), ("0001", [3, 1]), ("0000", [4]), ("0123", [2, 2])])
def test_equal_queries_go_where_the_middle_of_them_falls(overlaps, sizes):
    found = Results()
    add(found, "a", {0: [0.0] * 4}, overlaps=[*map(float, overlaps)], clusters=["same"] * 4)
    table = tables.slices(found, "c", "RR@10", [], 2)
    assert table["queries"].tolist() == sizes and table["low"].isna().all()  # of one cluster there is no interval


def test_outcomes_by_hand(recorded):
    add(recorded, "twin", {0: BM25})
    add(recorded, "worse", {0: [value / 2 for value in BM25]})
    found = tables.outcomes(recorded, "c", "RR@10", "BM25")
    assert found["system"].tolist() == ["GQ", "twin", "worse"]  # by effect, not as they were recorded
    counts = found.set_index("system")[["wins", "ties", "losses"]]
    # GQ over its seeds: 1, 1, .5, 0, 0, 0, .5, 1/3, .5, .25; q7 is the mean of a half and a sixth.
    assert counts.loc["GQ"].tolist() == [4, 4, 2] and counts.loc["twin"].tolist() == [0, 10, 0]
    assert counts.loc["worse"].tolist() == [0, 4, 6]
    assert found["effect"].tolist() == pytest.approx([0, 0, -100 * sum(BM25) / 20], abs=1e-3)
    alone = stats.ttest_rel(np.array(BM25) / 2, BM25)
    low, high = alone.confidence_interval(0.95)
    assert found.loc[2, ["low", "high"]].tolist() == pytest.approx([100 * low, 100 * high], abs=1e-3)
    assert found["p"].tolist() == pytest.approx([1, 1, 3 * alone.pvalue], abs=1e-3)  # the smallest of three
    rival = 10 * sum(BM25)
    assert found["alone"].tolist() == pytest.approx([5 * sum(map(sum, GQ.values())), rival, rival / 2], abs=1e-3)
    assert found["rival"].tolist() == pytest.approx([rival] * 3, abs=1e-3)
    assert found["best of both"].tolist() == pytest.approx([BEST_OF_BOTH, rival, rival], abs=1e-3)


def test_rounding_makes_no_winner_and_only_common_seeds_count():
    # A third as recorded, to five digits, and the mean of what three seeds recorded.
    found = Results()
    add(found, "another", {0: [1 / 3] * 10})
    add(found, "a third", {seed: [value] * 10 for seed, value in enumerate((1 / 2, 1 / 3, 1 / 6))})
    # The smallest real difference of RR@10 counts.
    add(found, "near", {0: [1 / 3] * 9 + [1 / 3 + 1 / 90]})
    table = tables.outcomes(found, "c", "RR@10", "another").set_index("system")
    assert table.loc["a third", ["wins", "ties", "losses"]].tolist() == [0, 10, 0] and table["wins"]["near"] == 1
    add(found, "shares a seed", {2: [1 / 6] * 10, 3: [1.0] * 10})
    row = tables.outcomes(found, "c", "RR@10", "a third").set_index("system").loc["shares a seed"]
    assert row["ties"] == 10 and row["alone"] == row["rival"] == row["best of both"]


def test_the_page_from_what_a_leaderboard_recorded(recorded, own_build):
    add(recorded, "BM25", {0: BM25}, "d")
    add(recorded, "labels", GQ, "d")
    recorded.save(results.own_folder("smoke", BOARD))
    plt.close("all")
    assert run_cells(NOTEBOOK, profile="smoke", rival="BM25", systems=[])["names"] == ["c", "d"]
    assert len(plt.get_fignums()) == 1
    rows = results.load("52_query_by_query", "explore", "run").rows  # the profile has another rival
    found = rows.set_index(["collection", "system", "measure"])["value"]
    assert found["c", "GQ", "wins"] == 4 and found["d", "labels", "losses"] == 2 and len(found) == 8
    assert found["c", "GQ", "best of both"] == pytest.approx(BEST_OF_BOTH / 100, abs=1e-5)
    # Counts are no measures of retrieval, which `retlib.report.tables.reproduction` would compare with those of others.
    assert not rows["measure"].str.fullmatch(r"\S+@\d+").any()
    assert run_cells(NOTEBOOK, profile="smoke", rival="GQ", parts=1, systems=["GQ"])["names"] == ["c"]
    for name, wrong in {"measure": "R@2", "rival": "BM52", "systems": ["BM26"], "profile": "explore"}.items():
        with pytest.raises((SettingError, DataError), match=f"{name} = '{wrong}'|'BM26'|'{BOARD}'.*'explore'"):
            run_cells(NOTEBOOK, **{"profile": "smoke", "rival": "BM25"} | {name: wrong})


def test_slices_are_drawn_side_by_side_with_their_intervals(recorded):
    add(recorded, "BM25", {0: BM25}, "d")
    other, found = (tables.slices(recorded, name, "RR@10", [], parts) for name, parts in (("d", 2), ("c", 3)))
    first, second = figures.slices({"d": other, "c": found}, "RR@10").axes
    assert [text.get_text() for text in second.texts] == ["0-20 % (n = 4)", "50 % (n = 2)", "100 % (n = 3)"]
    bm25, gq = (bars.lines[0] for bars in second.containers)
    assert bm25.get_xdata() == pytest.approx(found["value"][::2])
    assert gq.get_xdata() == pytest.approx(found["value"][1::2])
    assert (np.abs(bm25.get_ydata() - gq.get_ydata()) > 0.05).all() and bm25.get_marker() != gq.get_marker()
    # A system looks the same in every panel.
    assert first.containers[0].lines[0].get_color() == bm25.get_color() != gq.get_color()
    ends = [[x for x, _ in path] for path in second.containers[0].lines[2][0].get_segments()]
    assert np.array(ends) == pytest.approx(found[["low", "high"]].to_numpy()[::2])
