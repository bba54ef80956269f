"""Tests of claims on weighted sums and on limits, against numbers by hand; the others are in test_claims.py."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retlib.core.errors import DataError
from retlib.evaluation.results import Results
from retlib.report.claims import TESTS
from retlib.report.evidence import LEVEL, Evidence, _paired, _sum, _summed, printed
from retlib.report.records import Records

PLACES = {name: {"quick": {"collection": f"{name.lower()}-0.1"}} for name in "DEF"}


def queries(count, first=0):
    return [f"q{i}" for i in range(first, first + count)]


def put(made, system, by_seed, index=None, data="D", measure="R@1", clusters=None):
    """Record per-query values, in points of a hundred, of a system."""
    for seed, values in by_seed.items():
        asked = pd.Index(queries(len(values)) if index is None else index)
        frame = pd.DataFrame({"query_id": asked, "measure": measure, "value": np.asarray(values) / 100})
        grouped = pd.Series(asked if clusters is None else clusters, index=asked)
        made.add_queries(f"{data.lower()}-0.1", "test", system, seed, frame, grouped)


def judge(test, spec, measure="R@1", **experiments):
    """The one piece of evidence that a test finds in the results of experiments."""
    (found,) = TESTS[test](Records("quick", PLACES, measure, experiments.get), spec)
    return found


def linear(made, *terms, measure="R@1", **more):
    return judge("linear", {"terms": [list(term) for term in terms], **more}, measure, x=made)


# Weighted sums of values paired by query


def test_terms_on_two_collections_are_paired_over_the_queries_that_they_share():
    made = Results()
    put(made, "A", {0: [20, 30, 40, 50]})
    put(made, "B", {0: [25, 15, 5, 5]}, index=queries(4)[::-1], data="E")  # in another order
    found = linear(made, (1, "x:A", "D"), (-2, "x:B", "E"))
    # By query: 10, 20, 10, 0. Their variance is 200 / 3, and that of the mean a fourth of it.
    error = (200 / 3 / 4) ** 0.5
    assert found.effect == pytest.approx(10, abs=1e-4)
    assert found.p_for == pytest.approx(stats.t.sf(10 / error, 3), abs=1e-5)
    assert found.p_against == pytest.approx(1 - found.p_for)
    half = stats.t.ppf(0.975, 3) * error
    assert (found.low, found.high) == pytest.approx((10 - half, 10 + half), abs=1e-3)
    assert (found.a, found.b) == pytest.approx((35, 25), abs=1e-4)  # what is added, and what is taken away
    assert (found.queries, found.seeds) == (4, 1)
    assert found.label == "R@1: +1 × (A on d, 10 % of the labels) -2 × (B on e, 10 % of the labels)"
    assert found.note == ""


def test_a_value_beside_a_printed_number_is_told_as_their_difference():
    made = Results()
    put(made, "A", {0: [20, 30, 40, 50]})
    found = linear(made, (1, "x:A", "D"), margin=25)
    error = (500 / 3 / 4) ** 0.5
    assert (found.a, found.b, found.effect) == pytest.approx((35, 25, 10), abs=1e-4)
    assert found.p_for == pytest.approx(stats.t.sf(10 / error, 3), abs=1e-5)
    assert found.text.startswith("35.0 against 25.0, +10.00 [")
    alike = linear(made, (1, "x:A", "D"), within=40)
    assert (alike.effect, alike.note) == (pytest.approx(35, abs=1e-4), "within 40 points")


def test_queries_that_a_term_lacks_do_not_count():
    made = Results()
    put(made, "A", {0: [20, 30, 40, 50]})
    put(made, "B", {0: [5, 15, 25, 90]}, index=["q1", "q2", "q3", "q9"], data="E")
    found = linear(made, (1, "x:A", "D"), (-2, "x:B", "E"))
    assert (found.effect, found.queries) == (pytest.approx((20 + 10 + 0) / 3, abs=1e-4), 3)


def test_terms_that_share_no_queries_are_no_comparison():
    made = Results()
    put(made, "A", {0: [20, 30]})
    put(made, "B", {0: [20, 30]}, index=queries(2, first=1), data="E")
    with pytest.raises(DataError, match="share no queries"):
        linear(made, (1, "x:A", "D"), (-1, "x:B", "E"))
    put(made, "C", {0: [10, 25]}, data="F")
    assert linear(made, (1, "x:A", "D"), (-1, "x:C", "F")).queries == 2  # as many as it takes


def test_a_system_without_seeds_goes_with_every_seed():
    made, a, b = Results(), np.array([[30, 50], [40, 80], [20, 20], [60, 40]]), np.array([10, 30, 10, 20])
    put(made, "A", {3: a[:, 0], 7: a[:, 1]})
    put(made, "B", {0: b})
    found = linear(made, (0.5, "x:A", "D"), (-1, "x:B", "D"))
    differences = a / 2 - b[:, None]
    by_query, by_seed = differences.mean(axis=1).var(ddof=1) / 4, differences.mean(axis=0).var(ddof=1) / 2
    freedom = (by_query + by_seed) ** 2 / (by_query**2 / 3 + by_seed**2 / 1)
    assert found.effect == pytest.approx(differences.mean(), abs=1e-4)
    assert found.seeds == 2
    assert found.p_for == pytest.approx(stats.t.sf(differences.mean() / (by_query + by_seed) ** 0.5, freedom), abs=1e-5)


def test_terms_are_compared_over_the_seeds_that_all_have():
    made, rng = Results(), np.random.default_rng(0)
    values = {name: rng.integers(0, 101, (5, 3)) for name in "ABC"}
    for name, seeds in (("A", (0, 1, 2)), ("B", (1, 2, 3)), ("C", (2, 1, 5))):
        put(made, name, dict(zip(seeds, values[name].T, strict=True)))
    put(made, "D", {8: rng.integers(0, 101, 5), 9: rng.integers(0, 101, 5)})
    found = linear(made, (1, "x:A", "D"), (1, "x:B", "D"), (-2, "x:C", "D"))
    shared = values["A"][:, [1, 2]] + values["B"][:, [0, 1]] - 2 * values["C"][:, [1, 0]]
    assert (found.effect, found.seeds) == (pytest.approx(shared.mean(), abs=1e-3), 2)
    with pytest.raises(DataError, match="no seed in common"):
        linear(made, (1, "x:A", "D"), (-1, "x:D", "D"))


def test_queries_of_a_cluster_count_as_one():
    made = Results()
    for name, values in (("A", [30, 30, 50, 50]), ("B", [20, 20, 20, 20])):
        put(made, name, {0: values}, clusters=["c", "c", "d", "d"])
    found = linear(made, (1, "x:A", "D"), (-1, "x:B", "D"))
    # Sums over two clusters: 20 below the mean and 20 above it.
    error = (2 / 1 * (20**2 + 20**2) / 4**2) ** 0.5
    assert found.p_for == pytest.approx(stats.t.sf(20 / error, 1), abs=1e-5)


points = st.lists(st.integers(0, 100), min_size=5, max_size=5)


@settings(max_examples=25)
@given(points, points, st.sampled_from([0.25, 1, 8]))
def test_a_difference_is_the_test_that_one_is_greater_whatever_its_unit(a, b, unit):
    made = Results()
    put(made, "A", {0: a})
    put(made, "B", {0: b})
    greater = judge("greater", {"pair": ["x:A", "x:B"], "data": "D"}, x=made)
    found = linear(made, (unit, "x:A", "D"), (-unit, "x:B", "D"))
    assert (found.effect / unit, found.p_for) == pytest.approx((greater.effect, greater.p_for), abs=1e-4)
    assert (found.a / unit, found.b / unit) == pytest.approx((greater.a, greater.b), abs=1e-4)
    turned = linear(made, (unit, "x:B", "D"), (-unit, "x:A", "D"))
    assert (turned.effect, turned.p_for) == pytest.approx((-found.effect, found.p_against), abs=1e-4)


def test_a_sum_can_join_experiments():
    here, there = Results(), Results()
    put(here, "A", {0: [20, 30, 40]})
    put(there, "A", {0: [10, 30, 20]}, data="E")
    found = judge("linear", {"terms": [[1, "x:A", "D"], [-1, "y:A", "E"]]}, x=here, y=there)
    assert found.effect == pytest.approx(10, abs=1e-4)


def test_an_interaction_of_four_systems():
    made = Results()
    values = {"A": [90, 80, 70], "B": [20, 10, 30], "C": [60, 60, 60], "D": [40, 50, 60]}
    for name, each in values.items():
        put(made, name, {0: each})
    found = linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), (-1, "x:C", "D"), (1, "x:D", "D"))
    expected = stats.ttest_1samp([50, 60, 40], 0, alternative="greater")
    assert (found.effect, found.p_for) == pytest.approx((50, expected.pvalue), abs=1e-5)
    assert (found.a, found.b) == pytest.approx((80 + 50, 20 + 60), abs=1e-4)


# Samples of their own


A, B = [20, 30, 40, 70], [10, 30, 50]


@pytest.fixture
def apart():
    """Two systems over different queries."""
    made = Results()
    put(made, "A", {0: A})
    put(made, "B", {0: B}, index=queries(3, first=10), data="E")
    return made


def test_the_variances_of_independent_samples_add(apart):
    found = linear(apart, (1, "x:A", "D"), (-1, "x:B", "E"), independent=True)
    welch = stats.ttest_ind(A, B, equal_var=False, alternative="greater")
    assert (found.effect, found.p_for) == pytest.approx((10, welch.pvalue), abs=1e-5)
    interval = stats.ttest_ind(A, B, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(interval), abs=1e-3)
    assert found.queries == 7


def test_weights_of_independent_samples_scale_their_errors(apart):
    found = linear(apart, (1, "x:A", "D"), (-8, "x:B", "E"), independent=True)
    parts = np.var(A, ddof=1) / 4, 64 * np.var(B, ddof=1) / 3
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 2)
    effect = 40 - 8 * 30
    assert (found.a, found.b, found.effect) == pytest.approx((40, 240, effect), abs=1e-3)
    assert found.p_for == pytest.approx(stats.t.sf(effect / sum(parts) ** 0.5, freedom), abs=1e-6)


def test_of_independent_samples_those_of_one_data_set_stay_paired():
    made, rng = Results(), np.random.default_rng(1)
    differences = []
    for data, count, first in (("D", 20, 0), ("E", 15, 500)):
        common, more = rng.integers(0, 80, count), rng.integers(5, 9, count)
        put(made, "A", {0: common + more}, index=queries(count, first), data=data)
        put(made, "B", {0: common}, index=queries(count, first), data=data)
        differences.append(more)
    terms = [
        (sign * way, f"x:{name}", data) for sign, data in ((1, "D"), (-1, "E")) for way, name in ((1, "A"), (-1, "B"))
    ]
    found = linear(made, *terms, independent=True)
    welch = stats.ttest_ind(*differences, equal_var=False)
    assert found.effect == pytest.approx(differences[0].mean() - differences[1].mean(), abs=1e-3)
    assert (found.low, found.high) == pytest.approx(tuple(welch.confidence_interval(0.95)), abs=1e-3)
    assert found.queries == 35


# Margins


def test_a_margin_must_be_exceeded():
    made = Results()
    put(made, "A", {0: [20, 30, 40, 50]})
    put(made, "B", {0: [10, 20, 10, 40]})
    found = linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), margin=15)
    expected = stats.ttest_1samp([10, 10, 30, 10], 15, alternative="greater")
    assert (found.effect, found.p_for) == pytest.approx((15, expected.pvalue), abs=1e-5)  # the effect stays whole
    assert found.p_for == pytest.approx(0.5, abs=1e-5) and found.p_against == pytest.approx(1 - found.p_for)
    assert found.note == "more than 15 points"
    assert linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), margin=-40).p_for < 0.01
    assert linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), margin=0.5).note == "more than 0.5 points"


DIFFERENCES = np.array([0.3, -0.1, 0.1, 0.2, 0.0])


@pytest.mark.parametrize("shift", [0.0, -0.6, 0.4, 0.5, 1.2, -3.0])
def test_within_is_two_one_sided_tests(shift):
    made = Results()
    put(made, "A", {0: 50 + DIFFERENCES + shift})
    put(made, "B", {0: [50] * 5})
    found = linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), within=0.5)
    above, below = (
        stats.ttest_1samp(DIFFERENCES + shift, at, alternative=side).pvalue
        for at, side in ((-0.5, "greater"), (0.5, "less"))
    )
    assert found.p_for == pytest.approx(max(above, below), abs=1e-3)
    assert found.p_against == pytest.approx(min(1, 2 * min(1 - above, 1 - below)), abs=1e-3)
    assert (found.p_for < 0.05, found.p_against < 0.05) == (shift == 0, abs(shift) > 1)
    assert found.note == "within 0.5 points"
    assert found.p_none == 1 and found.alike  # what has a margin of its own is not asked for an effect
    assert (found.names, found.place) == (["A on d, 10 % of the labels", "B on d, 10 % of the labels"], "R@1")
    for weight in (-2, 1):
        assert linear(made, (1, "x:A", "D"), (weight, "x:B", "D")).names == ()


def test_within_works_on_independent_samples_too():
    made = Results()
    put(made, "A", {0: [40, 60] * 50})
    put(made, "B", {0: [40, 60] * 60}, index=queries(120, first=500), data="E")
    terms = (1, "x:A", "D"), (-1, "x:B", "E")
    assert linear(made, *terms, independent=True, within=5).p_for < 0.001
    assert linear(made, *terms, independent=True, within=0.1).p_for > 0.4


# Limits of recorded numbers


def timed(values, system="product", measure="seconds"):
    made = Results()
    for seed, value in enumerate(values):
        made.add_row(experiment="x", system=system, collection="d-0.1", split="test", measure=measure,
                     value=float(value), seed=seed, profile="quick")  # fmt: skip
    return made


def test_a_limit_from_below_by_hand():
    # Logarithms -1, -2, -3: mean -2, standard error 1 / sqrt(3).
    made = timed(np.exp([-1, -2, -3]))
    spec = {"system": "x:product", "measure": "seconds", "below": 1, "data": "D"}
    found = judge("limit", spec, x=made)
    p = 0.5 - 12**0.5 / (2 * (2 + 12) ** 0.5)  # Student's t with two degrees of freedom at -sqrt(12)
    assert (found.effect, found.p_for, found.p_against) == pytest.approx((2, p, 1 - p))  # for the claim
    half = stats.t.ppf(0.975, 2) / 3**0.5
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half))
    interval = f"x{np.exp(2):.2f} [x{np.exp(2 - half):.2f}, x{np.exp(2 + half):.2f}]"
    assert found.told == f"seconds of product is 0.135, asked below 1: {interval}"
    assert (found.a, found.b) == pytest.approx((np.exp(-2), 1))  # the geometric mean, and the limit
    assert (found.seeds, found.queries) == (3, 0)
    assert found.label == "seconds: 1 / product"
    above = judge("limit", {**{k: v for k, v in spec.items() if k != "below"}, "above": 1}, x=made)
    assert (above.p_for, above.p_against) == pytest.approx((1 - p, p)) and above.label == "seconds: product / 1"


def test_a_limit_from_above():
    values = 3600 * np.exp([0.5, 0.75, 1.0, 0.75])
    found = judge("limit", {"system": "x:product", "measure": "seconds", "above": 3600, "data": "D"}, x=timed(values))
    expected = stats.ttest_1samp(np.log(values), np.log(3600), alternative="greater")
    assert (found.effect, found.p_for) == pytest.approx((0.75, expected.pvalue))
    assert found.p_for < 0.05 and found.b == 3600


@pytest.mark.parametrize(
    "change",
    [
        {"values": [0.5]},
        {"values": []},
        {"values": [0.5, 0.6], "system": "another"},
        {"values": [0.5, 0.6], "measure": "hours"},
    ],
)
def test_a_limit_needs_two_values_of_its_own(change):
    made = timed([0.1, 0.2, 0.3], system="noise")
    for row in timed(**change).rows.to_dict("records"):
        made.add_row(**row)
    with pytest.raises(DataError, match="'product' has fewer than two recorded values of 'seconds'"):
        judge("limit", {"system": "x:product", "measure": "seconds", "below": 1, "data": "D"}, x=made)


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({"test": "greater"}, -1.5),
        ({"test": "linear", "margin": 40}, -1.5),
        ({"test": "quotient", "above": 1}, -1.5),
        ({"test": "quotient", "above": 3}, -0.5),
        ({"test": "quotient", "below": 1}, -1 / 1.5),
        ({"test": "limit", "below": 3}, -2),
        ({"test": "fewer"}, -1 / 1.5),
    ],
)
def test_what_a_paper_prints_is_turned_as_our_effect_is(spec, shown):
    assert printed({**spec, "paper": -1.5}) == pytest.approx(shown)
    assert printed(spec) is None and printed({"test": "greater", "paper": 0}) == 0


def test_steps_are_those_of_the_measure_that_is_asked_for():
    made = Results()
    for measure, steps in (("R@1", {"A": 400, "B": 100}), ("to best", {"A": 100, "B": 400})):
        for name, seed in ((name, seed) for name in steps for seed in range(3)):
            made.add_row(experiment="x", system=name, collection="d-0.1", split="dev", measure=measure, value=1.0,
                         seed=seed, profile="quick", steps=steps[name] + seed)  # fmt: skip
    spec = {"pair": ["x:A", "x:B"], "data": "D"}
    assert judge("fewer", spec, "to best", x=made).effect > 1 > -1 > judge("fewer", spec, "R@1", x=made).effect


# What is missing


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (("y:A", "D"), "not run yet at profile quick: chapter y would"),
        (("x:Z", "D"), "would record R@1 of Z on d, 10 %"),
        (("x:A", "E"), "would record R@1 of A on e, 10 %"),
        (("x:A", "G"), "no collection stands for G at profile quick"),
    ],
)
def test_what_is_missing_is_named(term, message):
    made = Results()
    put(made, "A", {0: [20, 30, 40]})
    with pytest.raises(DataError, match=message):
        linear(made, (1, "x:A", "D"), (-1, *term))
    with pytest.raises(DataError, match="record R@5 of A"):
        linear(made, (1, "x:A", "D"), (-1, "x:A", "D"), measure="R@5")


def test_a_limit_without_its_experiment_is_named():
    with pytest.raises(DataError, match="not run yet at profile quick: chapter x"):
        judge("limit", {"system": "x:product", "measure": "seconds", "below": 1, "data": "D"})


def test_values_of_one_measure_are_not_those_of_another():
    made = Results()
    put(made, "A", {0: [20, 30, 40]})
    put(made, "A", {0: [60, 70, 90]}, measure="R@5")
    put(made, "B", {0: [10, 10, 10]}, measure="R@5")
    assert linear(made, (1, "x:A", "D"), (-1, "x:B", "D"), measure="R@5").effect == pytest.approx(190 / 3, abs=1e-4)


def test_a_weighted_sum_is_said_in_words_where_it_has_some():
    assert _sum([1], ["A"]) == "A"
    assert _sum([1, -1], ["A", "B"]) == "A minus B"
    assert _sum([1.5, -1], ["A", "B"]) == "+1.5 × (A) -1 × (B)"


def test_a_sum_is_shown_by_a_sentence_with_its_values():
    made = Results()
    for name, values in {"A": [90, 80, 70], "B": [20, 10, 30], "C": [60, 60, 60]}.items():
        put(made, name, {0: values})
    more = {"says": "A gains {} over B, C {} over A", "sides": [[1, -1, 0], [-1, 0, 1]]}
    found = linear(made, (2, "x:A", "D"), (-1, "x:B", "D"), (-1, "x:C", "D"), **more)
    assert found.told.startswith("R@1: A gains 60.0 over B, C -20.0 over A, on d, 10 % of the labels: +80.00 [")
    assert found.label == "R@1: A gains … over B, C … over A, on d, 10 % of the labels"
    put(made, "C", {0: [60, 60, 60]}, data="E")
    found = linear(made, (2, "x:A", "D"), (-1, "x:B", "D"), (-1, "x:C", "E"), **more)
    assert found.label == "R@1: A gains … over B, C … over A"  # which are on two


def test_what_queries_alone_contribute_to_a_sum_over_data_sets():
    """With one seed they are all of the error of a sum of independent means: variances add, times squared weights."""
    draw = np.random.default_rng(0)
    weights = 1, -2, 0.5
    values = [pd.DataFrame({0: draw.random(size)}, [f"{size}-{i}" for i in range(size)]) for size in (8, 5, 6)]
    clusters = [pd.Series(value.index, value.index) for value in values]
    parts = [_paired([w], [value], c) for w, value, c in zip(weights, values, clusters, strict=True)]
    found = _summed(parts, ())
    by_hand = sum(w**2 * value[0].var() / len(value) for w, value in zip(weights, values, strict=True))
    assert found.effect == pytest.approx(sum(w * value[0].mean() for w, value in zip(weights, values, strict=True)))
    assert found.error**2 == pytest.approx(by_hand) and found.by_query[0] == pytest.approx(by_hand)
    pooled = _summed(parts, [(9.0, 4)])  # what seeds change is added as it is
    assert pooled.error**2 == pytest.approx(by_hand + 9) and pooled.by_query[0] == pytest.approx(by_hand)


def test_what_a_ratio_takes_goes_by_its_logarithm():
    found = Evidence("", 0, 0, math.log(2), 0, 1, 0.2, 0.8, 3, 9, smallest=math.log(8), ratio=True, counted="")
    assert found.decides(LEVEL) == "effects show from x8.00 on; one as large as here takes about 9 times as many seeds"
    paper = replace(found, paper=4.0)
    assert paper.decides(LEVEL).endswith("; one as large as the paper's takes about 3 times as many seeds")
    assert paper.told == ": 0 against 0, x2.00 [x1.00, x2.72], paper x4"
    assert (found.shown(math.log(5000)), found.shown(math.log(0.025))) == ("x5e+03", "x0.025")
    points = replace(found, ratio=False, smallest=10, effect=1)
    assert points.decides(LEVEL).endswith(" takes about 100 times as many seeds")


def test_what_is_to_be_alike_is_seen_by_both_tests_in_four_of_five():
    """An error of 1 and 59 degrees of freedom: the least of a true effect's two powers is not enough."""
    smallest = stats.t.ppf(0.95, 59) + stats.t.ppf(0.8, 59)
    found = Evidence("", 0, 0, 0, -2, 2, 0.2, 0.8, 3, 60, smallest=smallest, alike=True, margin=3.0, freedom=59)
    told = float(found.decides(0.05).split()[2])
    powers = [stats.t.cdf(3.0 + sign * told - stats.t.ppf(0.95, 59), 59) for sign in (1, -1)]
    assert sum(powers) - 1 == pytest.approx(0.8, abs=2e-3)
    assert replace(found, margin=2.9).decides(0.05) == "none can show"
    # At an effect of 0 both tests are alike, and each may fail in half of the fifth.
    assert found.power == 0.9 and found.times(3.0, 0.05, found.power) == 1 and found.times(2.9, 0.05, found.power) == 2
