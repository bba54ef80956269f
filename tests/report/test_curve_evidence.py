"""Tests of claims on training curves whose truth is known, and the bindings of Zhan 2020."""

import re

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.evaluation.results import Results
from retlib.report import claims
from retlib.report.curve_evidence import BLOCKS, PHASES, TESTS, WINDOWS, _repeated, curve, interval
from retlib.report.records import Records, used
from retlib.report.seed_evidence import TESTS as SEED_TESTS

PLACES = {"D": {"quick": {"collection": "toy"}}}
EVERY = 20


def recorded(curves, measure="RR@10", intervals=None, first=0, by=1):
    """Results with a curve (steps x seeds, in points of a hundred) for each system."""
    rows = [
        (system, seed, first + by * step, measure, values[step][seed] / 100)
        for system, values in curves.items()
        for step in range(len(values))
        for seed in range(len(values[step]))
    ]
    made = Results()
    made.tables["curves"] = pd.DataFrame(rows, columns=["system", "seed", "step", "measure", "value"])
    if intervals:
        made.tables["intervals"] = pd.DataFrame(intervals.items(), columns=["system", "interval"])
    return made


def records(made, measure="RR@10"):
    return Records("quick", PLACES, measure, {"x": made}.get)


def judge(test, made, *systems, **more):
    named = {"system": f"x:{systems[0]}"} if len(systems) == 1 else {"pair": [f"x:{system}" for system in systems]}
    return TESTS[test](records(made), {**named, "data": "D", **more})


def wide(values, seeds=3, noise=0.0, seed=0):
    """The same curve for each seed, and noise of its own."""
    values = np.asarray(values, dtype=float)
    return values[:, None] + noise * np.random.default_rng(seed).normal(size=(len(values), seeds))


def test_a_curve_is_in_points_over_the_steps_that_all_seeds_have():
    made = recorded({"A": [[1, 2], [3, 4], [5, 6]], "B": [[9, 9]] * 3})
    made.tables["curves"] = made.tables["curves"].drop(index=1)  # step 0 of seed 1
    found = curve(records(made), "x:A")
    assert found.index.tolist() == [1, 2] and found.columns.tolist() == [0, 1]
    assert found.to_numpy() == pytest.approx(np.array([[3, 4], [5, 6]]))


def test_what_is_not_recorded_is_said():
    made = recorded({"A": [[1], [2]]}, intervals={"A": 5})
    assert interval(records(made), "x:A") == 5
    with pytest.raises(DataError, match="no curve of RR@10 of 'B' is recorded in x"):
        judge("above_at_end", made, "A", "B")
    with pytest.raises(DataError, match="no curve of R@200 of 'A'"):
        curve(records(made, "R@200"), "x:A")
    with pytest.raises(DataError, match="no refresh interval of 'B' is recorded in x"):
        interval(records(made), "x:B")
    for call in (lambda: curve(records(Results()), "x:A"), lambda: interval(records(Results()), "x:A")):
        with pytest.raises(DataError, match="is recorded in x"):
            call()


# One curve above another


def test_the_end_is_the_last_fifth_compared_step_by_step():
    a = [[0, 0]] * 8 + [[12, 14], [16, 22]]
    b = [[99, 99]] * 8 + [[10, 10], [10, 10]]
    (found,) = judge("above_at_end", recorded({"A": a, "B": b}), "A", "B")
    # Differences 2, 4 and 6, 12: by step 3 and 9, by seed 4 and 8; each variance of the mean over two.
    parts = [(18 / 2, 1), (8 / 2, 1)]
    error, freedom = sum(p for p, _ in parts) ** 0.5, sum(p for p, _ in parts) ** 2 / sum(p**2 / f for p, f in parts)
    assert (found.a, found.b, found.effect) == pytest.approx((16, 10, 6))
    assert found.p_for == pytest.approx(stats.t.sf(6 / error, freedom)) and found.p_against == 1 - found.p_for
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.low, found.high) == pytest.approx((6 - half, 6 + half))
    assert (found.seeds, found.queries) == (2, 2)
    assert found.label == "RR@10: A minus B, on toy" and found.note == "the last 20% of the steps"
    (found,) = judge("above_throughout", recorded({"A": a, "B": b}), "A", "B")
    assert found.effect == pytest.approx(0.2 * 6 + 0.8 * -99) and found.note == "all steps"


def test_steps_of_one_training_count_by_blocks():
    # Differences that stay the same within a block, as slowly drifting weights make them.
    drift = np.repeat(np.random.default_rng(0).normal(size=BLOCKS), 20)
    made = recorded({"A": wide(50 + drift, seeds=1), "B": wide(np.full(len(drift), 50.0), seeds=1)})
    (found,) = judge("above_throughout", made, "A", "B")
    blocks = drift[::20]
    assert found.p_for == pytest.approx(stats.ttest_1samp(blocks, 0, alternative="greater").pvalue)


def test_curves_are_compared_where_both_have_values():
    a, b = recorded({"A": wide([5] * 10)}, by=2), recorded({"B": wide([3] * 20)})
    a.tables["curves"] = pd.concat([a.tables["curves"], b.tables["curves"]])
    assert judge("above_throughout", a, "A", "B")[0].queries == 10
    b = recorded({"A": wide([5] * 10), "B": wide([5])})
    with pytest.raises(DataError, match="share fewer than two recorded steps"):
        judge("above_throughout", b, "A", "B")


@pytest.mark.parametrize(("gap", "holds", "against"), [(2, 1, 0), (0, 1, 0), (-0.5, 0, 0), (-1.5, 0, 1)])
def test_not_below_by_more_than_a_margin(gap, holds, against):
    noise = np.random.default_rng(1).normal(size=(100, 3)) * 0.2
    made = recorded({"A": 50 + gap + noise - noise.mean(), "B": wide([50] * 100)})
    (found,) = judge("above_at_end", made, "A", "B", margin=-0.5)
    assert (found.p_for < 0.05) == holds and (found.p_against < 0.05) == against
    assert found.p_for == pytest.approx(1 - found.p_against) and "not worse by 0.5 points" in found.note


# A steady rise


@pytest.mark.parametrize(
    ("shape", "holds", "against"),
    [
        (lambda x: 40 + 10 * x, 1, 0),
        (lambda x: 40 + 10 * (1 - np.exp(-9 * x)), 1, 0),  # fast, then level
        (lambda x: 40 + 10 * x - 12 * ((x > 0.5) & (x < 0.6)), 1, 1),  # one window falls out
        (lambda x: 40 - 10 * x, 0, 1),
        (lambda x: 40 + 0 * x, 0, 0),
    ],
)
def test_a_rise_is_a_trend_in_which_no_window_falls(shape, holds, against):
    made = recorded({"A": wide(shape(np.linspace(0, 1, 400)), noise=1.0)})
    (found,) = judge("rise", made, "A")
    assert (found.p_for < 0.05) == holds and (found.p_against < 0.05) == against
    assert found.seeds == 3 and found.label == "RR@10: A, on toy"


def test_a_rise_is_measured_from_window_to_window():
    (found,) = judge("rise", recorded({"A": wide(np.arange(200.0), noise=1e-6)}), "A")
    assert found.effect == pytest.approx(20, abs=1e-4)
    assert (found.a, found.b) == pytest.approx((189.5, 9.5), abs=1e-4)
    with pytest.raises(DataError, match="19 recorded steps are too few for 10 windows"):
        judge("rise", recorded({"A": wide(np.arange(19.0))}), "A")
    assert WINDOWS == 10


# What refreshes do


def teeth(cycles, fall=30.0, top=90.0):
    """Jumps to the top at each refresh, and falls until the next."""
    return np.tile(top - fall * np.arange(EVERY) / EVERY, cycles)


def test_a_sawtooth_falls_in_each_cycle_and_jumps_after_it():
    made = recorded({"A": wide(teeth(5), noise=1.0)}, intervals={"A": EVERY})
    fall, jump = judge("sawtooth", made, "A")
    # From the mean of places 0 to 4 of 20 to that of 15 to 19: three quarters of the fall.
    assert fall.effect == pytest.approx(22.5, abs=1) and jump.effect == pytest.approx(22.5, abs=1)
    assert fall.p_for < 1e-4 and jump.p_for < 1e-3
    assert fall.note == "A above B in 5 of 5 cycles of 20 steps" and jump.note.startswith("A above B in 4 of 4 cycles")
    assert fall.label == "RR@10: A, after a refresh vs before the next, on toy"
    assert jump.label == "RR@10: A, at a refresh, on toy"


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(90, 30, 5 * EVERY),  # falls, and never jumps
        np.full(5 * EVERY, 70.0),
        np.linspace(30, 90, 5 * EVERY),
        teeth(5)[::-1],  # rises, then drops
    ],
)
def test_other_curves_are_no_sawtooth(values):
    made = recorded({"A": wide(values, noise=1.0)}, intervals={"A": EVERY})
    assert max(each.p_for for each in judge("sawtooth", made, "A")) > 0.2


def test_a_cycle_that_is_not_whole_is_no_tooth():
    values = wide(teeth(4), noise=1.0)
    made = recorded({"A": values[: 3 * EVERY + 5]}, intervals={"A": EVERY})
    assert "3 of 3" in judge("sawtooth", made, "A")[0].note
    with pytest.raises(DataError, match="three whole cycles of 20 steps"):
        judge("sawtooth", recorded({"A": values[: 3 * EVERY - 6]}, intervals={"A": EVERY}), "A")


def test_where_a_curve_begins_does_not_move_its_cycles():
    made = recorded({"A": wide(np.roll(teeth(6), -7), noise=0.5)}, intervals={"A": EVERY}, first=7)
    fall, jump = judge("sawtooth", made, "A")
    assert fall.effect == pytest.approx(22.5, abs=1) and "5 of 5" in fall.note  # the first is not whole
    assert jump.p_for < 1e-3


def swing_of(a, b, noise=1.0, seed=0):
    made = recorded({"A": wide(a, noise=noise, seed=seed), "B": wide(b, noise=noise, seed=seed + 1)})
    made.tables["intervals"] = pd.DataFrame({"system": ["A"], "interval": [EVERY]})
    return judge("swing", made, "A", "B")[0]


def test_a_swing_is_the_mean_square_of_what_repeats():
    wave = 4 * np.sin(2 * np.pi * np.arange(12 * EVERY) / EVERY)
    found = swing_of(50 + wave, np.full(12 * EVERY, 50.0), noise=0.0)
    parts = wave[:EVERY].reshape(PHASES, -1).mean(axis=1)
    assert found.a == pytest.approx((parts**2).mean()) == found.effect and found.b == 0
    assert (found.seeds, found.queries) == (3, 10)
    assert found.p_for < 1e-6


@pytest.mark.parametrize(
    ("a", "b", "holds"),
    [
        (teeth(10, fall=8), np.linspace(50, 70, 10 * EVERY), 1),  # a steady rise is no swing
        (np.linspace(50, 70, 10 * EVERY), teeth(10, fall=8), 0),
        (np.linspace(20, 80, 10 * EVERY), np.full(10 * EVERY, 50.0), 0),
        (60 - 30 * np.exp(-np.arange(10 * EVERY) / 30), np.full(10 * EVERY, 50.0), 0),  # nor a bent one
        (50 + 5 * np.sin(np.arange(10 * EVERY) / 7.3), np.full(10 * EVERY, 50.0), 0),  # another period
    ],
)
def test_what_swings_with_the_refreshes(a, b, holds):
    assert (swing_of(a, b).p_for < 0.05) == holds


def test_noise_swings_in_no_step_however_large():
    level = np.full(12 * EVERY, 50.0)
    values = [swing_of(level, level, noise=5.0, seed=2 * seed).p_for for seed in range(60)]
    assert np.mean(np.array(values) < 0.05) <= 0.1
    # Larger noise in A alone is no swing either.
    made = recorded({"A": wide(level, noise=9.0), "B": wide(level, noise=0.1)}, intervals={"A": EVERY})
    assert judge("swing", made, "A", "B")[0].p_for > 0.05


def test_a_swing_of_less_than_a_point_is_no_effect():
    level, wave = np.full(12 * EVERY, 50.0), np.sin(2 * np.pi * np.arange(12 * EVERY) / EVERY)
    assert swing_of(level, level, noise=0.5).p_none < 0.05
    # Of a wave whose root mean square is a point, and of what much noise hides, it cannot be said.
    assert swing_of(level + 2**0.5 * wave, level, noise=0.5).p_none > 0.05
    assert swing_of(level, level, noise=9.0).p_none > 0.05


def test_a_swing_needs_cycles():
    with pytest.raises(DataError, match="five whole cycles of 20 steps"):
        swing_of(teeth(3), teeth(3))
    with pytest.raises(DataError, match="no refresh interval of 'A'"):
        judge("swing", recorded({"A": wide(teeth(5)), "B": wide(teeth(5))}), "A", "B")


@settings(max_examples=25)
@given(st.floats(-50, 50), st.floats(-1, 1), st.integers(0, 5))
def test_neither_level_nor_trend_is_a_swing(level, slope, seed):
    values = pd.DataFrame(wide(teeth(6), noise=1.0, seed=seed))
    moved = values + level + slope * np.arange(len(values))[:, None]
    pd.testing.assert_frame_equal(_repeated(moved, EVERY), _repeated(values, EVERY), atol=1e-6, check_names=False)


# Recorded numbers of two systems


def numbers(measure="ms", **systems):
    made = Results()
    for name, values in systems.items():
        for seed, value in enumerate(values):
            made.add_row(experiment="x", system=name, collection="toy", split="test", measure=measure, value=value,
                         seed=seed, profile="quick")  # fmt: skip
    return made


def quotient(made, **limit):
    spec = {"pair": ["x:A", "x:B"], "measure": made.rows["measure"].iloc[0], "data": "D", **limit}
    (found,) = SEED_TESTS["quotient"](records(made), spec)
    return found


def test_a_quotient_is_judged_on_the_logarithm():
    found = quotient(numbers(A=[10, 40, 20], B=[1, 2, 4]), above=2)
    logs = np.log([10, 20, 5]) - np.log(2)
    assert found.effect == pytest.approx(logs.mean())
    assert found.p_for == pytest.approx(stats.ttest_1samp(logs, 0, alternative="greater").pvalue)
    assert (found.a, found.b) == pytest.approx((10, 2)) and found.label == "ms: A / 2 x B"
    below = quotient(numbers(A=[10, 40, 20], B=[1, 2, 4]), below=2)
    assert below.p_for == pytest.approx(found.p_against) and below.label == "ms: 2 x B / A"
    assert below.effect == pytest.approx(-found.effect)
    assert quotient(numbers(A=[1, 2, 1], B=[3, 2, 2]), below=1).label == "ms: B / A"


def test_a_quotient_of_scores_shows_points():
    found = quotient(numbers("RR@10 at its best", A=[0.5, 0.4], B=[0.25, 0.25]), above=1)
    assert found.text.startswith("44.7 against 25, x1.79")
    assert quotient(numbers(A=[0.5, 0.4], B=[0.25, 0.25]), above=1).text.startswith("0.447 against 0.25")


def test_a_quotient_is_over_the_repetitions_that_both_have():
    assert quotient(numbers(A=[8, 8, 9, 99], B=[1, 1, 1.1]), above=4).seeds == 3
    made = numbers(A=[8, 8], B=[1, 1])
    made.rows.loc[made.rows["system"] == "B", "seed"] += 1
    with pytest.raises(DataError, match="A / B: fewer than two shared repetitions of 'ms'"):
        quotient(made, above=4)
    with pytest.raises(DataError, match="'B' has no logarithm of 'ms'"):
        quotient(numbers(A=[8, 8], B=[1, 0]), above=4)


# The bindings of Zhan 2020

ROOT = runtime.root()
BOUND = yaml.safe_load((ROOT / "data" / "papers" / "bindings.yaml").read_text())
CLAIMS = pd.read_csv(ROOT / "data" / "papers" / "claims.csv").set_index("id")
ZHAN = [name for name in BOUND["claims"] if CLAIMS["paper"][name] == "zhan2020"]
FACTORIES = [f"OPQ{n},IVF1,PQ{n}" for n in (2, 3, 6, 12, 24)] + ["Exact"]
METHODS = ["Rand Neg", "BM25 Neg", "NCE Neg", "BM25 + Rand Neg", "Async ANN (short)", "Async ANN (long)", "LTRe"]
DENSE = ["Rand Neg", "NCE Neg", "BM25 Neg", "BM25 + Rand Neg", "BM25 -> Rand", "BM25 -> NCE Neg", "BM25 -> BM25 + Rand"]
DENSE += ["ANCE", "LTRe (BM25 Neg)", "LTRe (ANCE)", "LTRe (In-batch)"]
READ = [f"{first} -> {size} cross-encoder, {depth}" for first in ("BM25", "LTRe") for size in ("small", "larger")
        for depth in (10, 30)]  # fmt: skip
SYSTEMS = {
    "41_training_dynamics": {"Warm-up", *METHODS, *(f"{name}, AdamW" for name in METHODS)},
    "42_first_stage": {"BM25", "BM25+RM3", "In-batch", *DENSE, *(f"{name}, rerank" for name in DENSE)},
    "43_two_stage": {"BM25", "LTRe", "late interaction", *READ},
    "44_compressed_index": {"ANCE", *(f"{kind}{factory}" for kind in ("LTRe, ", "Index ") for factory in FACTORIES)}
    | {f"trained {a} searched {b}" for a in FACTORIES for b in FACTORIES},
    "45_training_time": {"ANCE", "LTRe"},
}
MEASURES = {"RR@10", "R@100", "nDCG@10", "R@200", "overlap BM25", "overlap stale"}
MEASURES |= {
    "latency ms",
    "index bytes",
    "search share",
    "queries to best",
    "seconds to ANCE's best",
    "RR@10 at its best",
}


def comparisons(name):
    """Everything that a claim asks, each with its own test, measure and margin."""
    return claims.asked(BOUND["claims"][name])


def test_every_claim_is_bound():
    assert set(ZHAN) == set(CLAIMS.index[CLAIMS["paper"] == "zhan2020"])


@pytest.mark.parametrize("name", ZHAN)
def test_a_claim_names_what_the_notebooks_record(name):
    for spec in comparisons(name) + claims.asked(BOUND["claims"][name], "given"):
        places = {system.split(":", 1)[0] for system, _ in used(spec)}
        assert all(system.split(":", 1)[1] in SYSTEMS[system.split(":", 1)[0]] for system, _ in used(spec))
        assert spec["measure"] in MEASURES
        on_curves = spec["test"] in TESTS
        assert on_curves == (places == {"41_training_dynamics"})
        assert on_curves == ({data_set for _, data_set in used(spec)} == {"DL Document, training queries"})


@pytest.mark.parametrize("name", ZHAN)
def test_margins_are_the_papers_or_stand_beside_the_claim(name):
    said = CLAIMS["direction"][name] + CLAIMS["metric"][name]
    margins = {abs(spec["margin"]) for spec in comparisons(name) if "margin" in spec}
    # In points: 0.005 and 0.01 of the paper's fractions; where it gives none, its "very little" is taken.
    assert margins <= {0.5, 1.0}
    assert (margins == {1.0}) == ("<= 0.01" in said)
    if "<= 0.005" in said:
        assert margins == {0.5}


MEASURED = {"MRR@10": "RR@10", "Recall@200": "R@200", "Recall@1k": "R@100", "NDCG@10": "nDCG@10"}


@pytest.mark.parametrize("name", ZHAN)
def test_a_claim_is_judged_by_the_measures_that_it_is_about(name):
    about = CLAIMS["metric"][name] + CLAIMS["direction"][name]
    asked = {ours for theirs, ours in MEASURED.items() if theirs in about}
    assert asked == {spec["measure"] for spec in comparisons(name)} & set(MEASURED.values())
    assert ("overlap" in about) == any("overlap" in spec["measure"] for spec in comparisons(name))


def test_bindings_have_places_at_every_profile():
    for data_set, places in BOUND["collections"]["zhan2020"].items():
        assert places["quick"]["collection"] == "pydocs-passages"
        assert places["smoke"]["collection"] == "pydocs-passages-smoke"
        assert set(places["laptop"]["collection"].split(", ")) <= set(datasets.COLLECTIONS.names())
        is_part = [profile for profile, place in places.items() if place["fidelity"] == "subset"]
        assert is_part == (["laptop", "checkpoint"] if data_set == "DL Passage" else [])


def test_compressed_indexes_have_the_papers_shares_of_the_uncompressed_bytes():
    ours = [int(re.search(r"\d+", factory)[0]) / (4 * 192) for factory in FACTORIES[1:-1]]
    assert ours == pytest.approx([n / (4 * 768) for n in (12, 24, 48, 96)])
    (order,) = comparisons("zhan2020-index-quality-order")
    assert [system.split("Index ")[1] for system in order["systems"]] == FACTORIES
