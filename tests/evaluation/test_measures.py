"""Measures and comparisons against slow references, numbers by hand, and simulation."""

import math
from collections import defaultdict
from dataclasses import astuple, replace
from itertools import product

import ir_measures
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from retlib.core.errors import DataError, SettingError
from retlib.evaluation.measures import (
    Comparison,
    average,
    compare,
    evaluate,
    held_out,
    holm,
    in_pairs,
    rows_precision,
    rows_reciprocal_rank,
)

QRELS = pd.DataFrame(
    [("q1", "a", 1), ("q1", "c", 2), ("q1", "x", 1), ("q1", "b", 0), ("q2", "b", 1), ("q3", "a", 1)],
    columns=["query_id", "doc_id", "relevance"],
)
RUN = pd.DataFrame(
    [("q1", "a", 9.0), ("q1", "b", 8.0), ("q1", "c", 8.0), ("q1", "d", 1.0), ("q2", "a", 0.5), ("q2", "b", 0.5)],
    columns=["query_id", "doc_id", "score"],
)


def value(frame, measure, query):
    return frame.set_index(["measure", "query_id"])["value"][measure, query]


def test_measures_by_hand():
    found = evaluate(RUN, QRELS, ["AP@100", "R@1", "R@10", "P@1", "nDCG@10"])
    assert value(found, "AP@100", "q1") == pytest.approx((1 / 1 + 2 / 3) / 3)
    assert value(found, "AP@100", "q2") == pytest.approx(1 / 2)
    assert value(found, "R@1", "q1") == pytest.approx(1 / 3)
    assert value(found, "R@10", "q1") == pytest.approx(2 / 3)
    assert value(found, "P@1", "q1") == 1 and value(found, "P@1", "q2") == 0
    gain, ideal = 1 + 2 / math.log2(4), 2 + 1 / math.log2(3) + 1 / math.log2(4)
    assert value(found, "nDCG@10", "q1") == pytest.approx(gain / ideal)


RECALLS = ["R@1", "R@2", "R@5", "R@100"]
ASKED = [f"q{i}" for i in range(4)]
FOUND = [f"d{i}" for i in range(7)]
ranked_lists = st.fixed_dictionaries(
    {query: st.lists(st.tuples(st.sampled_from(FOUND), st.integers(0, 2)), unique_by=lambda x: x[0]) for query in ASKED}
)
judged = st.dictionaries(st.tuples(st.sampled_from(ASKED[1:]), st.sampled_from(FOUND)), st.integers(0, 2), min_size=1)


def check_measures(run, qrels, measures):
    """Rows as asked for, queries in the order of the judgments, values those of ir-measures, 0 where it gives none."""
    ranked = run.assign(score=-run.groupby("query_id").cumcount().astype(float))  # in its own order
    theirs = ir_measures.iter_calc(list(map(ir_measures.parse_measure, measures)), qrels, ranked)
    expected = defaultdict(float, {(str(each.measure), each.query_id): each.value for each in theirs})
    found = evaluate(run, qrels, measures)
    keys = list(zip(found["measure"], found["query_id"], strict=True))
    assert keys == list(product(measures, qrels["query_id"].unique()))
    assert found["value"].tolist() == pytest.approx([expected[key] for key in keys], abs=1e-9)
    assert found.columns.tolist() == ["query_id", "measure", "value"] and found["value"].dtype == float
    assert found.index.equals(pd.RangeIndex(len(keys)))
    return found


# Recall, which has a way of its own, and measures that look at the first few results alone; those that look at all.
CUT, WHOLE = ["R@1", "R@5", "RR@2", "nDCG@3", "Judged@2", "P@1", "Success@3", "R(rel=2)@4"], ["AP", "RR", "nDCG"]
asked_for = (st.lists(st.sampled_from(names), min_size=3, unique=True) for names in (RECALLS, CUT, CUT + WHOLE))
asked_for = st.one_of(*asked_for)


@settings(max_examples=80)
@given(ranked_lists, judged, st.randoms(use_true_random=False), asked_for)
def test_measures_equal_those_of_ir_measures(ranked, grades, random, measures):
    """A run with ties; queries without results, without judgments, with no relevant document or several."""
    rows = [(query, doc, float(score)) for query, found in ranked.items() for doc, score in found]
    run = pd.DataFrame(rows, columns=RUN.columns).astype({"query_id": object, "doc_id": object, "score": float})
    qrels = [(query, doc, grade) for (query, doc), grade in grades.items()]
    random.shuffle(qrels)
    check_measures(run, pd.DataFrame(qrels, columns=QRELS.columns), measures)


def test_a_run_counts_in_its_own_order_and_an_empty_one_as_nothing():
    assert check_measures(RUN.iloc[:0], QRELS, RECALLS)["value"].tolist() == [0] * 12
    swapped = check_measures(RUN.iloc[[1, 0]], QRELS, [*RECALLS, "AP@100"])
    assert swapped["value"].sum() == pytest.approx(0 + 3 * 1 / 3 + 1 / 6)


@pytest.mark.parametrize("name", ["nope", "AP@", "AP@x", "", 5])
def test_an_unknown_measure_is_named(name):
    with pytest.raises(SettingError) as caught:
        evaluate(RUN, QRELS, [name])
    assert repr(name) in str(caught.value)
    with pytest.raises(DataError):
        evaluate(RUN, QRELS.iloc[:0], ["AP@100"])


# Comparisons


def frames(seed=0, queries=40, seeds=1):
    a, b = np.random.default_rng(seed).random((2, queries, seeds))
    a, b = (pd.DataFrame(each, index=[f"q{i}" for i in range(queries)]) for each in (a, b))
    return a + 0.1, b


def test_one_seed_without_clusters_is_the_paired_t_test():
    a, b = frames()
    found, expected = compare(a - b), stats.ttest_rel(a[0], b[0])
    assert found.effect == pytest.approx((a[0] - b[0]).mean())
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.p_greater() == pytest.approx(stats.ttest_rel(a[0], b[0], alternative="greater").pvalue)
    assert found.p_greater(0.2) == pytest.approx(stats.ttest_rel(a[0] - 0.2, b[0], alternative="greater").pvalue)
    assert compare(b - a).p_value() == pytest.approx(expected.pvalue)
    assert (found.freedom, found.queries, found.seeds, found.by_seed) == (39, 40, 1, {})
    two = compare(a[:2] - b[:2])
    assert (two.freedom, two.p_value()) == (1, pytest.approx(stats.ttest_rel(a[0][:2], b[0][:2]).pvalue))


def test_the_error_of_clusters_equals_a_slow_reference():
    a, b = frames(queries=30, seeds=3)
    clusters = pd.Series([f"c{i * i % 11}" for i in range(30)], index=a.index)
    d, count = (a - b).to_numpy(), clusters.nunique()
    sums = [sum(d[i].mean() - d.mean() for i in range(30) if clusters.iloc[i] == name) for name in set(clusters)]
    by_query = sum(each**2 for each in sums) * count / (count - 1) / 30**2
    by_seed = np.var(d.mean(axis=0), ddof=1) / 3
    found = compare(a - b, clusters.sample(frac=1, random_state=0))  # whatever their order
    assert found.error == pytest.approx(math.sqrt(by_query + by_seed))
    freedom = (by_query + by_seed) ** 2 / (by_query**2 / (count - 1) + by_seed**2 / 2)
    assert (found.freedom, found.queries, found.seeds) == (pytest.approx(freedom), 30, 3)


def test_a_system_without_seeds_is_compared_with_every_seed():
    a, b = frames(seeds=3)
    every, one = in_pairs(a, b[[0]])
    assert every.equals(a) and one.equals(b[[0, 0, 0]].set_axis([0, 1, 2], axis=1))
    found, turned = compare(every - one), compare(one - every)
    assert found.effect == pytest.approx(a.to_numpy().mean() - b[0].mean())
    assert (turned.effect, turned.error, turned.seeds) == pytest.approx((-found.effect, found.error, 3))


def simulated(rng, queries=80, seeds=3, query=1.0, seed=0.2, both=1.0, size=2, cluster=0.5):
    """Differences with an effect of 0.3 and random effects of queries, their clusters, seeds and both."""
    groups = np.arange(queries) // size
    shared = cluster * rng.normal(size=groups.max() + 1)[groups]
    d = 0.3 + (shared + query * rng.normal(size=queries))[:, None] + seed * rng.normal(size=seeds)
    d = pd.DataFrame(d + both * rng.normal(size=(queries, seeds)))
    return compare(d, pd.Series(groups))


@pytest.mark.parametrize("model", [{}, {"seed": 0.0}, {"seed": 1.0, "seeds": 5}, {"cluster": 2.0, "size": 4}], ids=str)
def test_intervals_hold_the_truth_as_often_as_they_say(model):
    rng = np.random.default_rng(1)
    found = [simulated(rng, **model) for _ in range(400)]
    covered = np.mean([low <= 0.3 <= high for low, high in (each.interval() for each in found)])
    # Conservative by design (the interaction counts twice); a half-wide interval would fail by far.
    assert 0.92 <= covered
    if model.get("seed", 0.2) > 0:
        assert covered < 0.99


def test_comparisons_of_what_does_not_fit_are_errors():
    a, b = frames(seeds=3)
    clusters = [pd.Series("one", index=a.index), pd.Series(range(39), index=a.index[1:])]
    for wrong in [(a.iloc[:1],), (a.iloc[:0],), *((a - b, each) for each in clusters)]:
        with pytest.raises(DataError):
            compare(*wrong)


def test_pairs_are_over_the_questions_and_seeds_that_all_share():
    a, b = frames(seeds=3)
    for right, seeds in (([1, 2, 3], [1, 2]), ([2, 3, 4], [2])):
        theirs = b.set_axis(right, axis=1)
        for found, values in zip(in_pairs(a, theirs.iloc[:1:-1]), (a, theirs), strict=True):
            assert found.equals(values.loc[a.index[2:], seeds])
    with pytest.raises(DataError):
        in_pairs(a, b.set_axis([5, 6, 7], axis=1))


def test_equivalence_is_two_one_sided_tests():
    found = Comparison(effect=0.2, error=0.3, freedom=20, queries=21, seeds=1)
    upper = pytest.approx(stats.t.cdf((0.2 - 1) / 0.3, 20))
    assert found.p_equivalent(1) == upper and replace(found, effect=-0.2).p_equivalent(1) == upper
    assert found.p_equivalent(0.1) > 0.5  # the effect itself is beyond the margin
    # A 95 % interval within the margin is the same decision at 2.5 %.
    low, high = found.interval()
    assert found.p_equivalent(max(-low, high)) == pytest.approx(0.025)


def test_a_difference_without_spread_is_decided():
    a = pd.DataFrame({0: [0.5, 0.25, 0.125]})
    same, more = compare(a - a), compare(a + 0.5 - a)
    assert (same.effect, same.error, same.p_value(), same.p_greater()) == (0, 0, 1, 0.5)
    assert same.p_equivalent(0.1) == 0 and same.interval() == (0, 0)
    assert (more.p_value(), more.p_greater(), more.p_equivalent(0.1)) == (0, 0, 1)


def test_holm_by_hand():
    # 0.005 * 4, 0.01 * 3, 0.03 * 2, and 0.04 * 1, which may not be below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [holm(each).tolist() for each in ([0.6, 0.7], [0.03], [])] == [[1, 1], [0.03], []]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_no_correction_and_bonferroni(p_values):
    corrected = holm(p_values)
    raw = np.array(p_values)
    assert (corrected >= raw).all() and (corrected <= np.minimum(1, raw * len(raw)) + 1e-12).all()
    order = np.argsort(raw, kind="stable")
    assert (np.diff(corrected[order]) >= 0).all()


# Validation by precision@1


def test_rows_precision_looks_within_blocks_of_rows_for_one_of_the_group():
    scores = np.array([[0.9, 0.1, 0.2], [0.3, 0.1, 0.8], [0.1, 0.7, 0.6]])
    for groups, hits in (([0, 1, 2], 1), ([0, 1, 1], 3)):  # columns 1 and 2 are as good as each other
        assert rows_precision(scores, np.eye(3), np.array(groups)) == pytest.approx(hits / 3)
    # Query 0 points at document 2, which is outside its block of two; query 3 at document 2 in its own.
    queries, documents, groups = np.eye(4)[[2, 1, 2, 2]], np.eye(4), np.arange(4)
    documents[0] = [0.1, 0, 0.1, 0]
    for size, hits in ((4, 2), (2, 3), (3, 2 + 1), (1000, 2)):
        assert rows_precision(queries, documents, groups, size) == pytest.approx(hits / 4)
    # Of equal scores the first wins: one hit in the thousand rows of a block, and the last row by itself.
    assert rows_precision(np.ones((1001, 1)), np.ones((1001, 1)), np.arange(1001)) == pytest.approx(2 / 1001)


def test_held_out_names_an_empty_split(toy):
    queries, qrels = held_out(toy, "test")
    assert set(qrels["query_id"]) == set(queries.index) and len(queries) > 10
    with pytest.raises(DataError, match="toy-dev"):
        held_out(toy.candidates("dev"), "test")


# --- averages over data sets -----------------------------------------------------------------------


def _drawn(rng, seeds, shift, queries=30):
    """A comparison of two systems that are equal but for what a seed changes."""
    values = pd.DataFrame(rng.normal(size=(queries, len(seeds))) + shift, columns=seeds)
    return compare(values)


def test_the_average_of_one_comparison_is_itself():
    found = _drawn(np.random.default_rng(0), [3, 4, 5], np.array([0.1, -0.2, 0.4]))
    (mean, by_seed), (its, own) = ((astuple(each)[:-1], each.by_seed) for each in (average([found]), found))
    assert np.hstack(mean) == pytest.approx(np.hstack(its)) and by_seed == pytest.approx(own)


def test_what_a_seed_changes_on_all_data_sets_does_not_average_out():
    """By hand: two data sets with the same two seeds, whose queries do not differ at all."""
    values = pd.DataFrame([[1.0, 3.0]] * 4, columns=[0, 1])
    other = pd.DataFrame([[2.0, 6.0]] * 5, columns=[0, 1])
    mean = average([compare(values), compare(other)])
    # Means by seed are 1.5 and 4.5: a variance of 4.5 over two seeds.
    assert (mean.effect, mean.error, mean.freedom) == pytest.approx((3.0, 1.5, 1.0))
    assert (mean.queries, mean.seeds, mean.by_seed) == (9, 2, {0: 1.5, 1: 4.5})
    # A third data set, on which nothing was trained, adds no seeds; each counts for a third.
    still = pd.DataFrame({0: [1.5] * 6})
    mean = average([compare(each) for each in (values, other, still)])
    assert (mean.effect, mean.error, mean.freedom) == pytest.approx((2.5, 1.0, 1.0))
    assert (mean.queries, mean.seeds) == (15, 1)


@pytest.mark.parametrize("seeds", [[2, 3], [1, 2]])
def test_other_seeds_are_other_trainings(seeds):
    """One that they share says nothing of how another would change them all."""
    a, b = (pd.DataFrame([[1.0, 3.0]] * 4, columns=columns) for columns in ([0, 1], seeds))
    mean = average([compare(a), compare(b)])
    assert (mean.error, mean.freedom, mean.by_seed) == (pytest.approx((1 + 1) ** 0.5 / 2), 2.0, {})


def test_an_average_over_data_sets_errs_as_often_as_it_says():
    """One training answers all data sets; without an effect a tenth of the one-sided p-values is below 0.1, at most."""
    rng, wrong, tried = np.random.default_rng(1), 0, 300
    for _ in range(tried):
        shift = rng.normal(size=3)
        wrong += average([_drawn(rng, [0, 1, 2], shift) for _ in range(6)]).p_greater() < 0.1
    assert wrong / tried < 0.1 + 3 * (0.09 / tried) ** 0.5


def test_the_reciprocal_rank_of_rows_by_hand():
    """The first hit of each row: second, tied for the first place, none, no number, and the better of two."""
    scores = np.array([[3.0, 2, 1], [1, 1, 0], [3, 2, -np.inf], [np.nan] * 3, [1, 2, 3]])
    hits = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 1]], dtype=bool)
    assert rows_reciprocal_rank(scores, hits) == pytest.approx((1 / 2 + 1 / 2 + 0 + 1 / 3 + 1) / 5)


def test_the_error_of_a_mean_over_data_sets_by_hand():
    """One seed: variances of queries, 0.3² and 0.4², are those of independent means; Welch-Satterthwaite's freedom."""
    parts = [Comparison(mean, error, 20.0, 10, 1, (error**2, 20.0)) for mean, error in ((1.0, 0.3), (3.0, 0.4))]
    found = average(parts)
    assert (found.effect, found.error) == pytest.approx((2.0, 0.5 / 2))
    assert found.freedom == pytest.approx((0.09 + 0.16) ** 2 / ((0.09**2 + 0.16**2) / 20))
