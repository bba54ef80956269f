"""Contrasts against numbers by hand, scipy's tests and a slow reference of the two-factor formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import slow_sum
from recorded import judge as judged
from recorded import number, put
from scipy import stats

from retlib.core.errors import DataError
from retlib.evaluation.results import Results
from retlib.report.contrasts import LOG_STEPS, LOG_VALUE, QUESTIONS, Contrast, Term, slope

POINTS = st.lists(st.integers(0, 100), min_size=5, max_size=5)
COUNT = 60
# Mean 0 and standard error 1, so that the p-value of a difference can be set.
NOISE = np.random.default_rng(0).normal(size=COUNT)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1) * COUNT**0.5


def of(system, *on, chapter="x", measure="R@1", kind=QUESTIONS):
    return Contrast((Term(1.0, system, on or ("d",), measure, kind, chapter=chapter),))


def judge(contrast, made):
    """What a contrast of chapters with these results says, with half of its interval and its standard error."""
    found = judged(contrast, made, y=Results(made.rows, made.queries))
    found.half = (found.high - found.low) / 2
    found.error = found.half / stats.t.ppf(0.975, found.freedom)
    return found


def recorded(**systems):
    made = Results()
    for name, values in systems.items():
        put(made, name, values if isinstance(values, dict) else {0: values})
    return made


def level(mean, error=0.0):
    return {0: mean + error * NOISE}


def seeded(mean, shifts, error=0.0):
    return {seed: mean + shift + error * NOISE for seed, shift in enumerate(shifts)}


def test_sums_differences_and_multiples_of_contrasts():
    a, b = of("a"), of("b")
    both = 2 * (a - 0.5 * b - 3) - (b - 1)
    assert [(term.system, term.weight) for term in both.terms] == [("a", 2), ("b", -1), ("b", -1)]
    assert both.constant == 2 * -3 + 1
    assert (a.printed(2.1) - b).paper == 2.1 and (a - b).above(-1).margin == -1 and (a * 3).terms == (3 * a).terms


@settings(max_examples=30)
@given(POINTS, POINTS, st.sampled_from([0.25, 1, 8]))
def test_a_difference_of_two_systems_is_the_paired_t_test(a, b, unit):
    made, differences = recorded(A=a, B=b), np.subtract(a, b).astype(float)
    found = judge(unit * (of("A") - of("B")), made)
    if differences.std():
        expected = stats.ttest_rel(a, b)
        interval = unit * np.array(expected.confidence_interval())
        assert (found.low, found.high) == pytest.approx(tuple(interval), abs=1e-3 * unit)
        assert found.p_for == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue, abs=1e-5)
        assert found.p_against == pytest.approx(stats.ttest_rel(a, b, alternative="less").pvalue, abs=1e-5)
    assert found.effect == pytest.approx(unit * differences.mean(), abs=1e-4)
    assert (found.questions, found.seeds, found.means) == (5, 1, pytest.approx([np.mean(a), np.mean(b)]))
    turned = judge(unit * (of("B") - of("A")), made)
    assert (turned.p_for, turned.p_against) == pytest.approx((found.p_against, found.p_for), abs=1e-6)
    assert turned.effect == pytest.approx(-found.effect, abs=1e-4)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 4), st.booleans())
def test_seeds_and_clusters_are_two_factors(draw, seeds, grouped):
    rng, made = np.random.default_rng(draw), Results()
    a, b = rng.integers(0, 101, (2, 8, seeds)).astype(float)
    clusters = [f"c{i // 2}" if grouped else f"c{i}" for i in range(8)]
    for name, values in (("A", a), ("B", b)):
        put(made, name, dict(enumerate(values.T)), clusters=clusters)
    effect, error, freedom = slow_sum([a.tolist(), b.tolist()], [1.5, -1], clusters)
    pooled = sum(variance for variance, _ in made.pooled([(1.5, "A"), (-1.0, "B")], ["d"], "R@1", seeds))
    found = judge(1.5 * of("A") - of("B"), made)
    own = (1.5 * a - b).mean(axis=0).var(ddof=1) / seeds
    assert found.effect == pytest.approx(effect, abs=1e-4) and found.seeds == seeds
    if pooled <= own:
        assert (found.error, found.freedom) == pytest.approx((error, freedom), rel=1e-4)
    else:
        assert found.error**2 - pooled == pytest.approx(error**2 - own, rel=1e-3, abs=1e-4)


def test_a_system_without_seeds_goes_with_every_seed():
    a, b = np.array([[30, 50], [40, 80], [20, 20], [60, 40]]), np.array([10, 30, 10, 20])
    found = judge(0.5 * of("A") - of("B"), recorded(A={3: a[:, 0], 7: a[:, 1]}, B={0: b}))
    effect, error, freedom = slow_sum([a.tolist(), np.repeat(b[:, None], 2, axis=1).tolist()], [0.5, -1], list("abcd"))
    assert (found.effect, found.error, found.freedom) == pytest.approx((effect, error, freedom), rel=1e-3)
    assert (found.seeds, found.one_seed) == (2, False)


def test_one_seed_is_that_of_what_is_trained():
    made = recorded(BM25=level(50, 1), A=dict.fromkeys(range(3), level(60)[0]))
    put(made, "B", level(55), steps=80)
    assert not judge(of("BM25") - 3, made).one_seed  # what is not trained has no seeds
    assert judge(of("B") - of("BM25"), made).one_seed and judge(of("A") - of("B"), made).one_seed
    assert (judge(of("A") - of("BM25"), made).one_seed, judge(of("B") - 1, made).seeds) == (False, 1)
    put(put(made, "A", level(60), "e"), "BM25", level(50), "e")
    assert judge(of("A", "d", "e") - of("BM25", "d", "e"), made).one_seed  # on one of two collections


def test_the_variance_between_seeds_is_pooled_over_a_chapters_systems_where_it_is_larger():
    """By hand: the seeds' means are -0.5, 0 and 0.5, and leave squares of 0.5, 4.5, 4.5 and 0.5."""
    shifts = {"A": (-1, 0, 1), "B": (1, 0, -1), "C": (-2, 0, 2), "D": (0, 0, 0)}
    made = recorded(**{name: seeded(60, each) for name, each in shifts.items()}, BM25=level(50))
    pooled = (0.5 + 4.5 + 4.5 + 0.5) / 6  # (4 - 1)(3 - 1) degrees of freedom; nothing is shared
    for contrast, variance, freedom in (
        (of("D") - of("A"), 2 * pooled / 3, 6),
        (of("D") - of("BM25"), pooled / 3, 6),  # which is not trained, and takes no seeds away
        (of("C") - of("BM25"), 4 / 3, 2),  # noisier than most: its own
        (of("D") - 0.5 * (of("A") + of("B")), 1.5 * pooled / 3, 6),
        (of("D") - of("A", chapter="y"), 2 * pooled / 3, 12),  # of two chapters with as much: Satterthwaite
    ):
        assert judge(contrast, made).half == pytest.approx(stats.t.ppf(0.975, freedom) * variance**0.5, rel=1e-3)


def test_questions_of_other_data_are_samples_of_their_own():
    made, rng, on = Results(), np.random.default_rng(1), {}
    for name, count in (("d", 20), ("e", 15)):
        common, on[name] = rng.integers(0, 80, count), rng.integers(5, 9, count).astype(float)
        index = [f"{name}{i}" for i in range(count)]
        put(put(made, "A", {0: common + on[name]}, name, index=index), "B", {0: common}, name, index=index)
    gap = {data: of("A", data) - of("B", data) for data in "de"}
    found = judge(gap["d"] - gap["e"], made)
    welch = stats.ttest_ind(on["d"], on["e"], equal_var=False)
    assert (found.low, found.high) == pytest.approx(tuple(welch.confidence_interval()), abs=1e-3)
    assert found.questions == 35
    mean = judge(of("A", "d", "e") - of("B", "d", "e"), made)
    assert mean.effect == pytest.approx((on["d"].mean() + on["e"].mean()) / 2, abs=1e-4)
    assert 2 * mean.error == pytest.approx(found.error, rel=1e-4)
    weighted = judge(of("B", "d") - 8 * of("B", "e"), made)
    values = [100 * made.per_query(name, "test", "R@1", "B")[0] for name in "de"]
    assert weighted.error**2 == pytest.approx(values[0].var() / 20 + 64 * values[1].var() / 15, rel=1e-4)


def test_the_same_questions_on_two_collections_are_paired():
    made = recorded(A=[20, 30, 40, 50])
    put(made, "B", {0: [25, 15, 5, 5]}, "e", index=["q3", "q2", "q1", "q0"])  # in another order
    found = judge(of("A") - 2 * of("B", "e"), made)
    # By question: 10, 20, 10, 0. Their variance is 200 / 3, and that of the mean a fourth of it.
    assert (found.p_for, found.questions) == (pytest.approx(stats.t.sf(10 / (200 / 3 / 4) ** 0.5, 3), abs=1e-4), 4)
    put(made, "C", {0: [5, 15, 25, 90]}, "f", index=["q1", "q2", "q3", "q9"])
    found = judge(of("A") - 2 * of("C", "f"), made)
    assert (found.effect, found.questions) == (pytest.approx((20 + 10 + 0) / 3, abs=1e-4), 3)
    put(made, "G", {0: [1, 2]}, "g", index=["q3", "q4"])
    with pytest.raises(DataError):
        judge(of("A") - of("G", "g"), made)  # one question is no comparison
    put(made, "H", {0: [10, 25]}, "h")
    assert judge(of("A") - of("H", "h"), made).questions == 2  # as many as it takes


@pytest.mark.parametrize(("margin", "least"), [(None, 0), (15.0, 15), (0.5, 0.5), (-40.0, -40)])
def test_an_effect_must_be_above_the_margin_or_a_number_that_is_taken_off(margin, least):
    gap, made = of("A") - of("B"), recorded(A=[20, 30, 40, 50], B=[10, 20, 10, 40])
    found, less = judge(gap.above(margin), made), judge(gap - least, made)
    tails = [stats.ttest_1samp([10, 10, 30, 10], least, alternative=side).pvalue for side in ("greater", "less")]
    assert (found.p_for, found.p_against) == (less.p_for, less.p_against) == pytest.approx(tails, abs=1e-5)
    assert (found.effect, less.effect) == pytest.approx((15, 15 - least), abs=1e-4)
    assert less.p_none == 1 or not least


@pytest.mark.parametrize("shift", [0.0, -0.6, 0.4, 0.5, 1.2, -3.0])
def test_to_be_alike_is_two_one_sided_tests(shift):
    differences = np.array([0.3, -0.1, 0.1, 0.2, 0.0]) + shift
    found = judge((of("A") - of("B")).within(0.5), recorded(A=50 + differences, B=[50] * 5))
    above = stats.ttest_1samp(differences, -0.5, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, 0.5, alternative="less").pvalue
    assert found.p_for == pytest.approx(max(above, below), abs=1e-3)
    assert found.p_against == pytest.approx(min(1, 2 * min(1 - above, 1 - below)), abs=1e-3)
    assert (found.p_for < 0.05, found.p_against < 0.05, found.p_none) == (shift == 0, abs(shift) > 1, 1)


@pytest.mark.parametrize(
    ("effect", "error", "paper", "beyond"),
    [
        (0.0, 0.25, None, 1), (-0.4, 0.25, None, 1), (0.0, 0.7, None, 1), (0.0, 0.25, 3.0, 1), (0.0, 0.25, -3.0, 1),
        (0.0, 0.1, -0.3, 0.3), (0.1, 0.1, 0.3, 0.3), (0.4, 0.1, None, 0), (-0.4, 0.1, None, 0),
    ],
)  # fmt: skip
def test_no_effect_is_within_a_point_or_the_papers_effect_and_never_beside_an_interval(effect, error, paper, beyond):
    contrast, made = (of("A") - of("B")).printed(paper), recorded(A=level(50 + effect, error), B=level(50))
    tails = [stats.t.sf((beyond + side * effect) / error, COUNT - 1) for side in (1, -1)]
    assert judge(contrast, made).p_none == pytest.approx(max(tails) if beyond else 1, rel=1e-2)
    if beyond:  # what asks for more than a direction is not asked for no effect
        assert judge(contrast.above(0.0), made).p_none == 1


@settings(max_examples=20)
@given(st.lists(POINTS, min_size=2, max_size=5))
def test_a_line_is_that_of_least_squares(values):
    made = recorded(**{f"s{i}": each for i, each in enumerate(values)})
    found = judge(slope([of(f"s{i}") for i in range(len(values))], "words"), made)
    slopes = [np.polyfit(range(len(values)), each, 1)[0] for each in np.transpose(values).astype(float)]
    assert found.effect == pytest.approx(np.mean(slopes), abs=1e-3) and found.p_none == 1
    if np.std(slopes) > 1e-6:
        assert found.p_for == pytest.approx(stats.ttest_1samp(slopes, 0, alternative="greater").pvalue, abs=1e-4)


@pytest.mark.parametrize(
    ("systems", "expected"),
    [
        # The line falls by 1 with an error of 0.5, and no step is as sure as twice that.
        (lambda: (level(50), level(49, 2), level(48, 1)), 2 * stats.t.cdf(-2, COUNT - 1)),
        # One of two steps falls, by 2 with an error of 1: of what a seed changes in both systems alike nothing is left.
        (lambda: [seeded(mean, (-3, 0, 3), mean == 60) for mean in (50, 62, 60)], 4 * stats.t.cdf(-2, COUNT - 1)),
        (lambda: (level(50), level(52, 1), level(54)), 1),
    ],
)
def test_what_speaks_against_a_rise_is_paid_for(systems, expected):
    made = recorded(**{f"s{i}": by_seed for i, by_seed in enumerate(systems())})
    assert judge(slope([of("s0"), of("s1"), of("s2")]), made).p_against == pytest.approx(expected, abs=1e-3)


def timed(kind=LOG_VALUE, **systems):
    made = Results()
    for name, values in systems.items():
        for seed, value in values.items() if isinstance(values, dict) else enumerate(values):
            row = {"steps": value} if kind is LOG_STEPS else {}
            number(made, name, {seed: 0.5 if row else value}, measure="ms", **row)
    return made


@pytest.mark.parametrize("kind", [LOG_VALUE, LOG_STEPS])
def test_a_ratio_is_a_difference_of_logarithms_over_seeds(kind):
    made = timed(kind, A=[100, 110, 90], B=[400, 420, 380, 5])
    cost = {name: of(name, measure="ms", kind=kind) for name in "AB"}
    found = judge(cost["B"] - cost["A"], made)
    logs = np.log([400, 420, 380]) - np.log([100, 110, 90])
    assert found.effect == pytest.approx(logs.mean())
    assert found.p_for == pytest.approx(stats.ttest_1samp(logs, 0, alternative="greater").pvalue)
    assert found.p_against == pytest.approx(1 - found.p_for) and found.p_none == 1
    assert (found.low, found.high) == pytest.approx(tuple(stats.ttest_1samp(logs, 0).confidence_interval()))
    assert found.means == pytest.approx([stats.gmean([400, 420, 380]), stats.gmean([100, 110, 90])])
    assert (found.seeds, found.questions, found.one_seed, found.closed) == (3, 0, False, "")
    more, limit = judge((cost["B"] - cost["A"]).above(np.log(3)), made), judge(cost["A"] - np.log(50), made)
    for tested, values, least in ((more, logs, 3), (limit, np.log([100, 110, 90]), 50)):
        expected = stats.ttest_1samp(values, np.log(least), alternative="greater").pvalue
        assert tested.p_for == pytest.approx(expected)


@pytest.mark.parametrize(
    "systems",
    [
        {"A": [10, 20], "B": [5]},
        {"A": [10, 20]},  # fewer than two seeds
        {"A": [0, 100], "B": [400, 300]},  # no logarithm
        {"A": [8, 8, 8], "B": [1.1, 1.1, 1.1]},  # equal seeds leave no error
        {"A": [8, 9], "B": {1: 1, 2: 2}},  # one seed in common
    ],
)
def test_a_ratio_needs_two_seeds_that_differ_and_have_logarithms(systems):
    cost = {name: of(name, measure="ms", kind=LOG_VALUE) for name in "AB"}
    with pytest.raises(DataError):
        judge(cost["A"] - cost["B"], timed(**systems))
    assert judge(cost["A"] - cost["B"], timed(A=[8, 8, 9, 99], B=[1, 1, 1.1])).seeds == 3


@pytest.mark.parametrize(
    ("a", "b", "closed"),
    [
        (level(99.5, 0.01), level(99.2), True), (level(100), level(99), True), (level(99.5), level(98.9), False),
        (level(50, 1), level(50, 1), True), (level(50, 1), level(50, -1), False),  # alike on average alone
    ],
)  # fmt: skip
def test_sides_at_the_ceiling_or_without_a_difference_cannot_be_told_apart(a, b, closed):
    made = recorded(A=a, B=b)
    for contrast in (of("A") - of("B"), (of("A") - of("B")).within(1.0)):
        assert bool(judge(contrast, made).closed) == closed
    assert bool(judge(of("A") - of("B") - 1, made).closed) == (closed and a[0].mean() > 99)


@pytest.mark.parametrize(
    "absent", [of("Z"), of("A", "e"), of("A", measure="R@5"), of("A", "d", "e"), of("Z", measure="ms", kind=LOG_VALUE)]
)
def test_what_is_not_recorded_is_refused(absent):
    with pytest.raises(DataError):
        judge(of("A") - absent if absent.terms[0].kind is QUESTIONS else absent, recorded(A=[20, 30, 40]))


def test_terms_are_compared_over_the_seeds_that_all_have():
    made, rng = Results(), np.random.default_rng(0)
    values = {name: rng.integers(0, 101, (5, 3)) for name in "ABC"}
    for name, seeds in (("A", (0, 1, 2)), ("B", (1, 2, 3)), ("C", (2, 1, 5))):
        put(made, name, dict(zip(seeds, values[name].T, strict=True)))
    put(made, "D", {8: rng.integers(0, 101, 5), 9: rng.integers(0, 101, 5)})
    found = judge(of("A") + of("B") - 2 * of("C"), made)
    shared = values["A"][:, [1, 2]] + values["B"][:, [0, 1]] - 2 * values["C"][:, [1, 0]]
    assert (found.effect, found.seeds) == (pytest.approx(shared.mean(), abs=1e-3), 2)
    with pytest.raises(DataError):
        judge(of("A") - of("D"), made)
