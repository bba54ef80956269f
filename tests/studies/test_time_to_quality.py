"""The time to ANCE's best, and times beyond what is measured, from histories and rates of written numbers."""

from types import SimpleNamespace

import ltre_slice
import numpy as np
import pandas as pd
import pytest

from retlib.studies import time_to_quality
from retlib.studies.time_to_quality import NEVER, NO_GAIN, OURS, PAPERS, REACHED, SECONDS, Rates, Work
from retlib.studies.training_time import ANCE
from retlib.systems.ltre import LTRE


def history(system, scores, seconds, documents=100, seed=0, **columns):
    """Moments every ten steps."""
    frame = pd.DataFrame({"score": scores, "seconds": np.asarray(seconds, dtype=float), **columns})
    frame["step"] = 10 * np.arange(len(frame))
    return frame.assign(system=system, documents=documents, seed=seed)


def compared(ance, ltre):
    return time_to_quality.to_best(pd.concat([history(ANCE, *ance), history(LTRE, *ltre)])).iloc[0]


def test_the_time_to_anc_es_best_is_that_of_the_first_moments_that_have_it():
    row = compared(([0.1, 0.3, 0.4, 0.4, 0.2], [0, 30, 60, 90, 120]), ([0.1, 0.2, 0.5, 0.4], [5, 8, 12, 15]))
    assert (row["outcome"], row["target"], row[ANCE], row[LTRE], row["ratio"]) == (REACHED, 0.4, 60, 12, 5)
    assert (row["ANCE steps"], row["LTRe steps"]) == (20, 20)


def test_an_equal_score_is_as_good():
    assert compared(([0.1, 0.4], [0, 30]), ([0.1, 0.4, 0.5], [5, 10, 15]))[LTRE] == 10


def test_where_ltre_never_is_as_good_its_whole_training_bounds_the_ratio():
    row = compared(([0.1, 0.4], [0, 30]), ([0.1, 0.3, 0.2], [5, 10, 15]))
    assert (row["outcome"], row[LTRE], row["ratio"], row["LTRe steps"]) == (NEVER, 15, 2, 20)


def test_without_a_gain_there_is_no_ratio():
    row = compared(([0.4, 0.4, 0.3], [0, 30, 60]), ([0.4, 0.5], [5, 10]))
    assert row["outcome"] == NO_GAIN and np.isnan(row["ratio"])


def test_each_size_and_seed_has_its_own_target():
    parts = [history(ANCE, [0.1, 0.4], [0, 30]), history(LTRE, [0.1, 0.4], [5, 10])]
    parts += [history(ANCE, [0.1, 0.2], [0, 80], 300, 1), history(LTRE, [0.1, 0.3], [15, 20], 300, 1)]
    found = time_to_quality.to_best(pd.concat(parts))
    assert found[["documents", "seed", "target", "ratio"]].to_numpy().tolist() == [[100, 0, 0.4, 3], [300, 1, 0.2, 4]]


def test_parts_are_those_of_the_compared_moments_means_over_seeds():
    columns = {"encoding corpus": [0, 10, 20], "search": [0, 2, 4], "encoding queries": [0, 1, 2],
               "encoding documents": [0, 3, 6], "loss and backward": [0, 4, 8], "sampling": [0, 1, 1]}  # fmt: skip
    ance = [history(ANCE, [0.1, 0.4, 0.2], [0, 25, 50], seed=0, **columns)]
    ance += [history(ANCE, [0.1, 0.2, 0.4], [0, 25, 50], seed=1, **columns)]
    ltre = [history(LTRE, [0.1, 0.5], [5, 10], seed=seed, **{"encoding corpus": [5, 5]}) for seed in (0, 1)]
    found = time_to_quality.parts(pd.concat(ance + ltre).fillna(0.0)).set_index("system")
    assert found.loc[ANCE].to_dict() == {
        "documents": 100, "encoding the corpus": 15, "search": 3, "encoding the batch": 6, "loss and backward": 6,
        "sampling, optimizer": 7.5,
    }  # fmt: skip
    assert found["sampling, optimizer"][LTRE] == 5 and found["encoding the corpus"][LTRE] == 5


# --- beyond what is measured -----------------------------------------------------------------------


def written(outcome=REACHED):
    """Over 1000 documents: ANCE takes 2 s an encoding, 1 ms a search, 10 ms a query; LTRe 2 s, 2 ms and 5 ms."""
    work = {"queries": [0, 100, 200], "searches": [0, 50, 100]}
    ance = history(ANCE, [0.1, 0.4, 0.2], [0, 3.05, 6.1], 1000, encodings=[0, 1, 2], search=[0, 0.05, 0.1],
                   **{"encoding corpus": [0, 2, 4]}, **work)  # fmt: skip
    scores = [0.1, 0.2, 0.3] if outcome == NEVER else [0.1, 0.4, 0.4]
    work["searches"] = work["queries"]
    ltre = history(LTRE, scores, [2, 2.7, 3.4], 1000, encodings=[1, 1, 1], search=[0, 0.2, 0.4],
                   **{"encoding corpus": [2, 2, 2]}, **work)  # fmt: skip
    return pd.concat([ance, ltre])


def test_rates_give_back_the_measured_time():
    moment = written().query("system == 'ANCE'").iloc[-1]
    rates = Rates.of(moment)
    assert (rates.query, rates.document, rates.search) == pytest.approx((0.01, 0.002, 1e-6))
    assert rates.seconds(Work(200, 2, 100), 1000) == pytest.approx(moment["seconds"])


def test_only_what_touches_all_documents_grows_with_the_corpus():
    rates = Rates(query=0.5, document=0.01, search=1e-4)
    assert rates.seconds(Work(10, 0, 0), 10) == rates.seconds(Work(10, 0, 0), 10_000) == 5
    assert rates.seconds(Work(10, 3, 20), 100) == pytest.approx(5 + 3 * 1 + 20 * 0.01)
    assert rates.seconds(Work(10, 3, 20), 200) == pytest.approx(5 + 2 * (3 * 1 + 20 * 0.01))


def test_times_beyond_follow_from_the_steps_to_the_best():
    # ANCE's best is its second moment: one encoding, 50 searches, 100 queries; so is LTRe's, with 100 searches.
    found = time_to_quality.extrapolated(written(), [1000, 1_000_000]).set_index(["steps", "documents"])
    row = found.loc[OURS, 1000]
    assert (row[ANCE], row[LTRE], row["ratio"]) == pytest.approx((3.05, 2.7, 3.05 / 2.7))
    row = found.loc[OURS, 1_000_000]
    assert (row[ANCE], row[LTRE]) == pytest.approx((1 + 2000 + 50, 0.5 + 2000 + 200))
    assert row["ratio without LTRe's encoding"] == pytest.approx(2051 / 200.5)
    row = found.loc[PAPERS, 1000]
    assert row[ANCE] == pytest.approx(600_000 * 64 * 0.01 + 60 * 2 + 60 * 503_000 * 0.001)
    assert row[LTRE] == pytest.approx(60_000 * 32 * 0.005 + 2 + 60_000 * 32 * 0.002)
    assert set(found["outcome"]) == {REACHED}


def test_a_bound_stays_a_bound_beyond_what_is_measured():
    found = time_to_quality.extrapolated(written(NEVER), [1000]).set_index("steps")
    assert found["outcome"].to_dict() == {OURS: NEVER, PAPERS: REACHED}
    assert found[LTRE][OURS] == pytest.approx(3.4)  # its whole training


def test_where_ance_never_improves_nothing_is_extrapolated():
    flat = written().assign(score=0.2)
    assert time_to_quality.extrapolated(flat).empty and time_to_quality.projected(flat).empty


def test_the_largest_corpus_with_a_gain_tells_the_rates():
    larger = written().assign(documents=5000, score=0.2)
    pd.testing.assert_frame_equal(
        time_to_quality.extrapolated(pd.concat([written(), larger])), time_to_quality.extrapolated(written())
    )


# --- what is recorded ------------------------------------------------------------------------------


def test_the_largest_size_with_every_seed_is_recorded_where_ance_improved():
    parts = []
    for size, seed, best in [(100, 0, 0.4), (100, 1, 0.4), (200, 0, 0.4), (200, 1, 0.0), (400, 0, 0.4)]:
        parts.append(history(ANCE, [0.1, best], [0, size], size, seed))
        parts.append(history(LTRE, [0.1, 0.5], [size / 100, size / 50], size, seed))
    desk = ltre_slice.desk("45_training_time")
    tested_on = [SimpleNamespace(name="here"), SimpleNamespace(name="there")]
    time_to_quality.record(desk, SimpleNamespace(tested_on=tested_on), pd.concat(parts))
    rows = desk.results.rows
    assert set(rows["measure"]) == {SECONDS} and set(rows["candidates"]) == {200} and set(rows["seed"]) == {0}
    values = rows.set_index(["collection", "system"])["value"].to_dict()
    assert values == {(place, system): value for place in ("here", "there") for system, value in
                      ((ANCE, 200), (LTRE, 4))}  # fmt: skip


def test_what_notebook_45_records_is_what_is_said():
    desk = ltre_slice.desk("45_training_time")
    time_to_quality.record(desk, ltre_slice.study(), written())
    for _, part in desk.results.rows.groupby("collection"):
        assert ltre_slice.seen(part) == ltre_slice.recorded("45_training_time", {})


def test_a_reference_page_records_nothing(monkeypatch):
    time_to_quality.record(ltre_slice.closed("45_training_time", monkeypatch), None, written())


def test_tables_are_in_points_and_hours():
    (shown,) = time_to_quality.table(written()).to_dict("records")
    assert (shown["RR@10 of ANCE's best"], shown["ANCE seconds"], shown["LTRe seconds"]) == (40, 3.0, 2.7)
    hours = time_to_quality.projected(written()).set_index(["steps", "documents"])
    seconds = time_to_quality.extrapolated(written()).set_index(["steps", "documents"])
    assert hours["ANCE hours"].tolist() == pytest.approx((seconds[ANCE] / 3600).tolist(), abs=0.01)
    assert set(hours["outcome"][PAPERS]) == {""}
