"""Verdicts on recorded results whose truth is known, and the bindings of the real claims."""

import math
import re
from functools import cache
from itertools import product

import numpy as np
import pages
import pandas as pd
import part3_pages
import part4_pages
import pytest
import yaml
from scipy import stats

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.data import datasets
from retlib.evaluation import results
from retlib.evaluation.measures import compare
from retlib.evaluation.results import Results
from retlib.report import claims, curve_evidence, evidence, seed_evidence, verdict_text
from retlib.report.claims import CONTRADICTED, HOLDS, INCONCLUSIVE, INDICATION, NO_EFFECT, NOT_TESTED
from retlib.report.records import called
from retlib.studies import part2, part3, part4
from retlib.workflow import notebooks

COUNT = 60
QUERIES = [f"q{i:02d}" for i in range(COUNT)]
ALONE = pd.Series(QUERIES, index=QUERIES)
# Mean 0 and standard error 1, so that a difference's p-value can be set.
NOISE = np.random.default_rng(0).normal(size=COUNT)
NOISE = (NOISE - NOISE.mean()) / NOISE.std(ddof=1) * COUNT**0.5


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A project folder for claims and bindings, and no results."""
    (tmp_path / "data" / "papers").mkdir(parents=True)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    return tmp_path


def write_claims(book, bound, papers=None):
    """Claims of a paper, each bound to a test, on data set D, which is the collection `quora`."""
    papers = papers or dict.fromkeys(bound, "paper")
    lines = [f"{name},main,{paper},text,It is so,x,MAP@100,D,A=1,A > B" for name, paper in papers.items()]
    keys = ("part", "name", "authors", "title", "link")
    known = {key: {**dict.fromkeys(keys, "x"), "chapters": [], "pages": {}} for key in papers.values()}
    (book / "data" / "papers" / "papers.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    header = "id,tier,paper,where,statement,compares,metric,dataset,paper_values,direction"
    (book / "data" / "papers" / "claims.csv").write_text("\n".join([header, *lines]) + "\n")
    places = {
        "D": {"quick": {"collection": "quora", "fidelity": "subset"}},
        "E": {"quick": {"collection": "pydocs", "fidelity": "stand-in"}},
    }
    content = {"collections": {"paper": places}, "claims": {k: v for k, v in bound.items() if v}}
    (book / "data" / "papers" / "bindings.yaml").write_text(yaml.safe_dump(content))


def record(systems, experiment="11", collection="quora", steps=None, clusters=ALONE, measure="AP@100"):
    """Record per-query values, in points of a hundred, of each system and seed."""
    found = results.load(experiment, "quick") or Results()
    for system, by_seed in systems.items():
        for seed, values in by_seed.items():
            frame = pd.DataFrame({"query_id": QUERIES, "measure": measure, "value": np.asarray(values) / 100})
            found.add_queries(collection, "test", system, seed, frame, clusters)
            found.add_row(
                experiment=experiment, system=system, collection=collection, split="test", measure=measure,
                value=float(frame["value"].mean()), seed=seed, profile="quick",
                steps=(steps or {}).get(system, {}).get(seed),
            )  # fmt: skip
    found.save(results.own_folder("quick", experiment))


def level(mean, error=0.0, noise=NOISE):
    """Values of a system without seeds: their mean, and the standard error of what differs from another's."""
    return {0: mean + error * noise}


def verdict_on(book, bound):
    """The one claim's row of the ledger."""
    write_claims(book, {"c": bound})
    (row,) = claims.verdicts("paper", "quick").to_dict("records")
    return row


def pair(a="A", b="B", on="D", **more):
    return {"pair": [f"11:{a}", f"11:{b}"], "data": on, **more}


@pytest.mark.parametrize(
    ("effect", "expected"), [(3.0, HOLDS), (1.0, INCONCLUSIVE), (-1.0, INCONCLUSIVE), (-3.0, CONTRADICTED)]
)
def test_greater(book, effect, expected):
    record({"A": level(50 + effect, 1), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert found["verdict"] == expected
    (evidence,) = found["evidence"]
    assert (evidence.a, evidence.b, evidence.effect) == pytest.approx((50 + effect, 50, effect), abs=1e-3)
    assert evidence.p_for == pytest.approx(stats.t.sf(effect, COUNT - 1), abs=1e-3)
    assert evidence.p_against == pytest.approx(1 - evidence.p_for)
    half = stats.t.ppf(0.975, COUNT - 1)
    assert (evidence.low, evidence.high) == pytest.approx((effect - half, effect + half), abs=1e-2)
    assert (found["seeds"], evidence.queries, found["fidelity"]) == (1, COUNT, "subset")
    assert evidence.label == "A minus B, on quora"
    power = stats.t.ppf(0.95, COUNT - 1) + stats.t.ppf(0.8, COUNT - 1)
    assert evidence.smallest == pytest.approx(power, abs=1e-3)  # its error is 1


@pytest.mark.parametrize(
    ("effect", "error", "more", "expected"),
    [
        (0.0, 0.25, {}, NO_EFFECT),
        (-0.4, 0.25, {}, NO_EFFECT),
        (0.0, 0.7, {}, INCONCLUSIVE),  # as small, but not known so well
        (0.4, 0.1, {}, HOLDS),  # a small effect is one
        (-0.4, 0.1, {}, CONTRADICTED),
        (0.0, 0.25, {"paper": 3.0}, NO_EFFECT),
        (0.0, 0.25, {"paper": -3.0}, NO_EFFECT),
        (0.0, 0.25, {"paper": -0.3}, INCONCLUSIVE),  # the paper's is within a point itself
        (0.4, 0.25, {"margin": 0.5}, INCONCLUSIVE),  # more than a direction is asked for
    ],
)
def test_an_effect_of_less_than_a_point_is_none(book, effect, error, more, expected):
    record({"A": level(50 + effect, error), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair(**more)]})
    assert found["verdict"] == expected
    if expected == NO_EFFECT:
        both = [stats.t.sf((1 - side * effect) / error, COUNT - 1) for side in (1, -1)]
        assert found["p"] == pytest.approx(max(both), rel=1e-2)
        assert found["said"] == "0 of 1 comparison for, none against, 1 no effect"


def test_what_is_seen_elsewhere_is_more_than_no_effect(book):
    record({"A": level(50, 0.25), "B": level(50), "C": level(45), "D": level(55)})
    none, seen, against = pair(), pair("A", "C"), pair("A", "D")
    for each, expected in (([none, seen], INCONCLUSIVE), ([none, against], CONTRADICTED), ([none], NO_EFFECT)):
        assert verdict_on(book, {"test": "greater", "each": each})["verdict"] == expected


def test_a_point_is_seldom_taken_for_no_effect(book):
    """Of true effects of a point, on the border, at most one in twenty."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        found = compare(pd.DataFrame({0: rng.normal(1, 2, 60)}), pd.DataFrame({0: np.zeros(60)}))
        wrong += evidence.none(found, {}) < claims.LEVEL
    assert wrong <= 30  # of 400, 20 and their error


@pytest.mark.parametrize(("effect", "expected"), [(9, HOLDS), (0.0, HOLDS), (-1.2, INCONCLUSIVE), (-2, CONTRADICTED)])
def test_not_worse_by_more_than_a_margin(book, effect, expected):
    record({"A": level(50 + effect, 0.25), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "margin": -1.0, "each": [pair()]})
    assert found["verdict"] == expected
    assert found["evidence"][0].p_for == pytest.approx(stats.t.sf((effect + 1) / 0.25, COUNT - 1), abs=1e-2)
    assert found["evidence"][0].note == "not worse by 1 point"


@pytest.mark.parametrize(
    ("effect", "expected"),
    [(0.2, HOLDS), (-0.2, HOLDS), (0.9, INCONCLUSIVE), (-1.2, INCONCLUSIVE), (2.0, CONTRADICTED), (-2.0, CONTRADICTED)],
)
def test_equivalent(book, effect, expected):
    record({"A": level(50 + effect, 0.25), "B": level(50)})
    found = verdict_on(book, {"test": "equivalent", "margin": 1.0, "each": [pair()]})
    assert found["verdict"] == expected


@pytest.mark.parametrize(("effect", "expected"), [(5.0, HOLDS), (3.0, INCONCLUSIVE), (-1.0, CONTRADICTED)])
def test_greater_by_a_margin(book, effect, expected):
    record({"A": level(50 + effect, 1), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair(margin=2)]})
    assert found["verdict"] == expected
    (evidence,) = found["evidence"]
    assert evidence.effect == pytest.approx(effect, abs=1e-3) and evidence.note == "more than 2 points"
    assert evidence.p_for == pytest.approx(stats.t.sf(effect - 2, COUNT - 1), abs=1e-3)


def test_a_wide_interval_around_zero_is_not_equivalence(book):
    record({"A": level(50, 2), "B": level(50)})
    assert verdict_on(book, {"test": "equivalent", "margin": 1.0, "each": [pair()]})["verdict"] == INCONCLUSIVE


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ([40, 45, 47, 50], HOLDS),
        ([40, 48, 48, 50], HOLDS),  # a step that stays does not fall
        ([50, 47, 45, 40], CONTRADICTED),
        ([40, 55, 45, 60], CONTRADICTED),  # it rises on the whole, but one step falls
        ([45, 45.2, 44.9, 45.1], INCONCLUSIVE),
    ],
)
def test_trend(book, means, expected):
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(4, COUNT))
    noise = (noise - noise.mean(axis=1, keepdims=True)) * 5
    record({f"s{i}": {0: mean + noise[i]} for i, mean in enumerate(means)})
    found = verdict_on(book, {"test": "trend", "each": [{"systems": [f"11:s{i}" for i in range(4)], "data": "D"}]})
    assert found["verdict"] == expected
    (evidence,) = found["evidence"]
    assert evidence.effect == pytest.approx(np.polyfit(range(4), means, 1)[0], abs=1e-3)
    assert (evidence.a, evidence.b) == pytest.approx((means[-1], means[0]), abs=1e-3)
    assert evidence.label == "from s0 to s3, on quora" and evidence.note == ""
    assert evidence.text.startswith(" → ".join(f"{mean:.1f}" for mean in means)) and evidence.text.endswith("] a step")


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
def test_what_speaks_against_a_rise_is_paid_for_by_hand(book, systems, expected):
    record({f"s{i}": by_seed for i, by_seed in enumerate(systems())})
    each = {"systems": ["11:s0", "11:s1", "11:s2"], "data": "D"}
    (found,) = verdict_on(book, {"test": "trend", "each": [each]})["evidence"]
    assert found.p_against == pytest.approx(expected, abs=1e-3)


def test_a_trend_is_over_the_seeds_that_all_systems_have(book):
    systems = {"s0": {0: 40 + NOISE / 9, 1: 40 - NOISE / 9}, "s1": {0: 45 - NOISE / 9}, "s2": {0: 50 + NOISE, 2: NOISE}}
    record(systems)
    bound = {"test": "trend", "each": [{"systems": ["11:s0", "11:s1", "11:s2"], "data": "D"}]}
    found = verdict_on(book, bound)
    assert (found["verdict"], found["seeds"]) == (INDICATION, 1)  # one seed, that they share
    assert found["said"] == "one seed: for; 1 of 1 comparison for, none against"
    assert found["evidence"][0].effect == pytest.approx(5, abs=1e-3)
    record({"s1": {5: NOISE}, "s3": {9: NOISE}})
    bound["each"][0]["systems"].append("11:s3")
    found = verdict_on(book, bound)
    assert found["verdict"] == NOT_TESTED and "no seed in common" in found["reason"]


def steps_of(a, b):
    steps = {"A": dict(enumerate(a)), "B": dict(enumerate(b))}
    record({name: {seed: 50 + NOISE for seed in each} for name, each in steps.items()}, steps=steps)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([100, 110, 90], [400, 420, 380], HOLDS),
        ([400, 420, 380], [100, 110, 90], CONTRADICTED),
        ([100, 400, 90], [110, 380, 100], INCONCLUSIVE),
        ([100, 300], [200, 301], INCONCLUSIVE),
    ],
)
def test_fewer(book, a, b, expected):
    steps_of(a, b)
    found = verdict_on(book, {"test": "fewer", "each": [pair()]})
    assert found["verdict"] == expected
    (evidence,) = found["evidence"]
    means = stats.gmean(a), stats.gmean(b)
    assert (evidence.a, evidence.b) == pytest.approx(means)
    assert evidence.effect == pytest.approx(np.log(b).mean() - np.log(a).mean())  # above 0 for the claim
    assert evidence.label == "steps: B / A (geometric means), on quora"
    assert evidence.text.startswith(f"{means[1]:.3g} against {means[0]:.3g}, x{np.exp(evidence.effect):.2f} [x")
    assert evidence.p_for == pytest.approx(stats.ttest_rel(np.log(a), np.log(b), alternative="less").pvalue, abs=1e-9)
    assert found["seeds"] == len(a)


def test_fewer_looks_past_rows_without_steps(book):
    steps_of([100, 110, 90], [400, 420, 380])
    found = results.load("11", "quick")
    first = found.rows.iloc[[0]].assign(measure="seconds", value=9.0, steps=np.nan)
    found = results.Results(pd.concat([first, found.rows], ignore_index=True), found.queries, found.tables)
    found.save(results.own_folder("quick", "11"))
    assert verdict_on(book, {"test": "fewer", "each": [pair()]})["verdict"] == HOLDS


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [([100], [400], "at least two seeds"), ([0, 100], [400, 300], "never got better"), ([], [3, 4], "two seeds")],
)
def test_fewer_without_enough_to_go_by_is_not_tested(book, a, b, reason):
    steps_of(a, b)
    found = verdict_on(book, {"test": "fewer", "each": [pair()]})
    assert found["verdict"] == NOT_TESTED and reason in found["reason"]


def test_a_claim_holds_only_if_every_comparison_does(book):
    record({"A": level(55, 1), "B": level(50), "same": level(55.5, 1, -NOISE), "more": level(70)})
    each = [pair(), pair(b="same")]
    assert verdict_on(book, {"test": "greater", "each": each})["verdict"] == INCONCLUSIVE
    assert verdict_on(book, {"test": "greater", "each": [*each, pair(b="more")]})["verdict"] == CONTRADICTED


def test_holms_correction_is_made_within_the_paper(book):
    at = stats.t.ppf(0.97, COUNT - 1)  # p = 0.03
    record({"A": level(50 + at, 1), "B": level(50)})
    alone = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert alone["verdict"] == HOLDS and alone["p"] == pytest.approx(0.03, abs=1e-3)
    bound = {name: {"test": "greater", "each": [pair()]} for name in ("c1", "c2")}
    write_claims(book, bound)
    found = claims.verdicts("paper", "quick")
    assert found["verdict"].tolist() == [INCONCLUSIVE] * 2
    assert found["p"].tolist() == pytest.approx([0.06, 0.06], abs=2e-3)
    # Another paper's claims do not count.
    write_claims(book, bound, {"c1": "paper", "c2": "other"})
    assert claims.verdicts("paper", "quick")["verdict"].tolist() == [HOLDS]


def test_the_p_of_a_contradiction_is_the_one_it_rests_on(book):
    record({"A": level(47, 1), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert found["p"] == pytest.approx(stats.t.sf(3, COUNT - 1), abs=1e-4)


def test_seeds_widen_what_queries_alone_would_decide(book):
    seeds = {seed: 52 + shift + NOISE / 10 for seed, shift in enumerate((-3, 0, 3))}
    record({"A": seeds, "B": level(50), "one": {0: seeds[1]}})
    assert verdict_on(book, {"test": "greater", "each": [pair("one")]})["verdict"] == HOLDS
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert (found["verdict"], found["seeds"]) == (INCONCLUSIVE, 3)


def test_queries_of_a_cluster_count_as_one(book):
    pairs = pd.Series([f"c{i // 30}" for i in range(COUNT)], index=QUERIES)
    values = np.where(np.arange(COUNT) < 30, 50.0, 58.0)
    record({"A": {0: values}, "B": level(50)}, clusters=pairs)
    assert verdict_on(book, {"test": "greater", "each": [pair()]})["verdict"] == INCONCLUSIVE
    record({"A": {0: values}, "B": level(50)}, experiment="12")
    alone = {"test": "greater", "each": [{"pair": ["12:A", "12:B"], "data": "D"}]}
    assert verdict_on(book, alone)["verdict"] == HOLDS
    for experiment, expected in (("11", INCONCLUSIVE), ("12", HOLDS)):
        trend = {"systems": [f"{experiment}:B", f"{experiment}:A"], "data": "D"}
        assert verdict_on(book, {"test": "trend", "each": [trend]})["verdict"] == expected


def test_systems_are_compared_over_the_seeds_that_both_have(book):
    record({"A": {0: 60 + NOISE, 1: 60 + NOISE, 2: 0 * NOISE}, "B": {0: 50 + NOISE, 1: 50 - NOISE, 3: 99 + NOISE}})
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert found["evidence"][0].a == pytest.approx(60, abs=1e-3) and found["evidence"][0].b == pytest.approx(
        50, abs=1e-3
    )
    record({"C": {5: NOISE, 6: NOISE}})
    found = verdict_on(book, {"test": "greater", "each": [pair(b="C")]})
    assert found["verdict"] == NOT_TESTED and "no seed in common" in found["reason"]


def test_several_data_sets_are_averaged(book):
    record({"A": level(54, 1), "B": level(50)})
    record({"A": level(48, 1), "B": level(50)}, collection="pydocs")
    found = verdict_on(book, {"test": "greater", "each": [pair(on="D+E")]})
    (evidence,) = found["evidence"]
    assert (evidence.a, evidence.b, evidence.effect) == pytest.approx((51, 50, 1), abs=1e-3)
    half = stats.t.ppf(0.975, 2 * (COUNT - 1)) * 2**0.5 / 2  # two errors of 1, halved
    assert evidence.high - evidence.low == pytest.approx(2 * half, abs=1e-2)
    assert evidence.label == "A minus B, on quora and pydocs"
    assert (found["fidelity"], evidence.queries) == ("stand-in", 2 * COUNT)


def test_a_collection_that_plays_several_data_sets_counts_once_in_an_average(book):
    record({"A": level(54, 1), "B": level(50)})
    record({"A": level(48, 1), "B": level(50)}, collection="pydocs")
    bound = {"test": "greater", "each": [pair(on="D+E+F"), pair(on="E+F+D")]}
    write_claims(book, {"c": bound | {"one_is_enough": True}})
    path = book / "data" / "papers" / "bindings.yaml"
    bound = yaml.safe_load(path.read_text())
    bound["collections"]["paper"]["F"] = bound["collections"]["paper"]["D"]
    path.write_text(yaml.safe_dump(bound))
    ((evidence, _),) = claims.verdicts("paper", "quick")["evidence"]
    assert (evidence.effect, evidence.queries) == (pytest.approx(1, abs=1e-3), 2 * COUNT)
    assert evidence.label == "A minus B, on quora and pydocs"


def test_a_claim_and_each_of_its_comparisons_may_name_a_measure(book):
    record({"A": level(55, 1), "B": level(50)}, measure="R@1")
    record({"A": level(40, 1), "B": level(50)}, measure="R@5")
    record({"A": level(50, 1), "B": level(50)})
    bound = {"test": "greater", "measure": "R@1", "each": [pair(), pair(measure="R@5")]}
    found = verdict_on(book, bound)
    assert [each.effect for each in found["evidence"]] == pytest.approx([5, -10], abs=1e-3)
    assert found["verdict"] == CONTRADICTED
    assert verdict_on(book, {**bound, "each": [pair()]})["verdict"] == HOLDS
    without = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert without["evidence"][0].effect == pytest.approx(0, abs=1e-3)
    found = verdict_on(book, {**bound, "each": [pair(), pair(measure="R@100")]})
    assert found["verdict"] == NOT_TESTED and "would record R@100 of A on quora" in found["reason"]


def terms(*each, **more):
    return {"terms": [[weight, f"11:{name}", data_set] for weight, name, data_set in each], **more}


@pytest.mark.parametrize(
    ("a", "more", "expected"),
    [
        (56, {"margin": 2}, HOLDS), (53, {"margin": 2}, INCONCLUSIVE), (49, {"margin": 2}, CONTRADICTED),
        (50, {"within": 3}, HOLDS), (52, {"within": 3}, INCONCLUSIVE), (56, {"within": 3}, CONTRADICTED),
        (44, {"within": 3}, CONTRADICTED),
        (56, {"independent": True}, HOLDS), (44, {"independent": True}, CONTRADICTED),
    ],
)  # fmt: skip
def test_a_sum_over_two_collections(book, a, more, expected):
    record({"A": level(a, 1)})
    record({"B": level(50)}, collection="pydocs")
    found = verdict_on(book, {"test": "linear", "each": [terms((1, "A", "D"), (-1, "B", "E"), **more)]})
    assert (found["verdict"], found["fidelity"]) == (expected, "stand-in")  # that of both data sets
    assert found["evidence"][0].label == "A on quora minus B on pydocs"
    alone = verdict_on(book, {"test": "linear", "each": [terms((1, "A", "D"), (-0.5, "A", "D"))]})
    assert (alone["verdict"], alone["fidelity"]) == (HOLDS, "subset")


@pytest.mark.parametrize("each", [terms((1, "A", "D"), (-1, "B", "E")), terms((1, "A", "D"), (-1, "A", "F"))])
def test_a_sum_of_what_is_missing_is_not_tested(book, each):
    record({"A": level(55, 1)})
    found = verdict_on(book, {"test": "linear", "each": [each]})
    assert found["verdict"] == NOT_TESTED
    assert "B on pydocs" in found["reason"] or "no collection stands for F" in found["reason"]


def test_a_limit_on_what_was_recorded_without_queries(book):
    bound = {"system": "11:cost", "measure": "seconds", "below": 1, "data": "D"}
    record({"A": level(55, 1)})
    found = verdict_on(book, {"test": "limit", "each": [bound]})
    assert found["verdict"] == NOT_TESTED and "fewer than two recorded values of 'seconds'" in found["reason"]
    kept = results.load("11", "quick")
    for seed, value in enumerate((0.1, 0.11, 0.12)):
        kept.add_row(experiment="11", system="cost", collection="quora", split="test", measure="seconds",
                     value=value, seed=seed, profile="quick")  # fmt: skip
    kept.save(results.own_folder("quick", "11"))
    found = verdict_on(book, {"test": "limit", "each": [bound]})
    assert (found["verdict"], found["seeds"], found["fidelity"]) == (HOLDS, 3, "subset")
    assert verdict_on(book, {"test": "limit", "each": [bound | {"below": 0.05}]})["verdict"] == CONTRADICTED


# What is no verdict


def seeded(mean, shifts, error=0.1):
    """Values of a trained system, by seed."""
    return {seed: mean + shift + error * NOISE for seed, shift in enumerate(shifts)}


@pytest.mark.parametrize(("a", "points"), [(60, "for"), (50, "open"), (40, "against")])
def test_one_seed_of_what_is_trained_is_an_indication(book, a, points):
    record({"A": level(a, 1), "B": level(50)}, steps={"A": {0: 80}})
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert found["verdict"] == INDICATION and found["said"].startswith(f"one seed: {points}; ")
    assert not np.isnan(found["p"])
    printed = verdict_text.format_verdict(claims.verdicts("paper", "quick").iloc[0])
    assert "○ indication" in printed and f"one seed: {points}" in printed


def test_a_trained_rival_of_one_seed_leaves_an_indication_too(book):
    record({"A": seeded(60, (0, 1, -1)), "B": level(50)}, steps={"B": {0: 80}})
    assert verdict_on(book, {"test": "greater", "each": [pair()]})["verdict"] == INDICATION


def test_one_seed_on_one_of_several_data_sets_leaves_an_indication_too(book):
    record({"A": seeded(60, (0, 1, -1)), "B": level(50)})
    record({"A": level(60, 1), "B": level(50)}, collection="pydocs")
    assert verdict_on(book, {"test": "greater", "each": [pair(on="D+E")]})["verdict"] == INDICATION


def test_what_comparisons_say_is_counted(book):
    record({"A": level(55, 1), "B": level(50), "C": level(54.5), "D": level(70)})
    each = [pair(), pair(b="C"), pair(b="D")]
    assert verdict_on(book, {"test": "greater", "each": each})["said"] == "1 of 3 comparisons for, 1 against, 1 open"
    found = verdict_on(book, {"test": "greater", "each": each[:2]})
    assert (found["verdict"], found["said"]) == (INCONCLUSIVE, "1 of 2 comparisons for, none against, 1 open")
    assert verdict_on(book, {"test": "greater", "each": each[:1]})["said"] == "1 of 1 comparison for, none against"


def test_a_claim_holds_when_all_of_its_comparisons_speak_for_it_after_correction(book):
    at = stats.t.ppf(0.97, COUNT - 1)  # p = 0.03, twice that after correction for two claims
    record({"A": level(50 + at, 1), "B": level(50), "more": level(70, 1)})
    bound = {"c1": {"test": "greater", "each": [pair(), pair(a="more")]}, "c2": {"test": "greater", "each": [pair()]}}
    write_claims(book, bound)
    found = claims.verdicts("paper", "quick")
    alone = " (1 of these for, before correction)"
    assert found["said"][0] == f"1 of 2 comparisons for, none against, 1 open{alone}"
    assert found["verdict"].tolist() == [INCONCLUSIVE] * 2


@pytest.mark.parametrize("values", [(99.5, 99.2), (100, 99)])
def test_sides_at_the_ceiling_are_not_compared(book, values):
    record({"A": level(values[0], 0.01), "B": level(values[1])})
    found = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert found["verdict"] == NOT_TESTED and "ceiling" in found["reason"] and np.isnan(found["p"])
    assert len(found["evidence"]) == 1  # what was found is shown all the same
    record({"A": level(99.5, 0.01), "B": level(90)})
    assert verdict_on(book, {"test": "greater", "each": [pair()]})["verdict"] == HOLDS


@pytest.mark.parametrize("test", [{"test": "greater"}, {"test": "equivalent", "margin": 1.0}])
def test_sides_that_never_differ_are_not_compared(book, test):
    record({"A": {0: 50 + NOISE}, "B": {0: 50 + NOISE}})
    found = verdict_on(book, {**test, "each": [pair()]})
    assert found["verdict"] == NOT_TESTED and found["reason"] == "no comparison: all differences are 0"


def test_a_system_that_still_learns_leaves_a_claim_untested(book):
    record({"A": seeded(60, (0, 1, -1)), "B": level(50)}, steps={"A": dict.fromkeys(range(3), 80)})
    bound = {"test": "greater", "each": [pair()]}
    found = verdict_on(book, bound)
    assert found["verdict"] == HOLDS and found["evidence"][0].no_curve
    assert verdict_text.without_curve(pd.DataFrame([found])).endswith(
        "the gate does not know whether they still learned: It is so."
    )
    assert verdict_text.without_curve(pd.DataFrame([{**found, "evidence": []}])) == ""
    kept = results.load("11", "quick")
    curve = [("A", "quora", seed, 20 * i, 20.0 * i, i == 5) for seed in range(3) for i in range(6)]
    kept.tables["learning"] = pd.DataFrame(curve, columns=["system", "collection", "seed", "step", "score", "kept"])
    kept.save(results.own_folder("quick", "11"))
    found = verdict_on(book, bound)
    assert found["verdict"] == NOT_TESTED and found["said"] == ""
    assert found["reason"].startswith("still learning on quora: A rose by 20.0 points in the last fifth of 100 steps")
    assert verdict_on(book, bound | {"floor": False})["verdict"] == HOLDS


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({"each": [pair(), pair()]}, "names a value twice"),
        ({"each": [{"pair": ["11:A", "11:B"]}]}, "must have the key data"),
        ({"each": [{"data": "D"}]}, "must have one of the keys pair, systems, system, terms"),
        ({"each": [pair(system="11:A")]}, "must have one of the keys pair, systems, system, terms"),
        ({"each": [pair(margn=1)]}, "a key of .* = 'margn' is not known. Did you mean 'margin'"),
        ({"each": [pair(floor="no")]}, "floor.* = 'no' must be True or False"),
        ({"each": [{"terms": [[1, "11:A"]]}]}, "must be a list of 3"),
        ({"each": [pair(sides=3)]}, "sides"),
        ({"not_tested": 3}, "not_tested.* = 3 must be a string"),
    ],
)
def test_a_binding_of_another_form_is_refused(book, bound, message):
    write_claims(book, {"c": {"test": "greater", **bound}})
    with pytest.raises(SettingError, match=message):
        claims.bindings()


def test_bindings_of_nothing_are_refused(book):
    (book / "data" / "papers" / "bindings.yaml").write_text("{}")
    with pytest.raises(SettingError, match="must be a mapping with the keys collections, claims"):
        claims.bindings()


def test_data_sets_that_are_one_collection_are_no_sample_of_several(book):
    record({"A": level(55, 1), "B": level(50)})
    bound = {"test": "greater", "each": [pair(), pair(on="F")]}

    def judged(bound):
        write_claims(book, {"c": bound})
        path = book / "data" / "papers" / "bindings.yaml"
        written = yaml.safe_load(path.read_text())
        written["collections"]["paper"]["F"] = written["collections"]["paper"]["D"]
        path.write_text(yaml.safe_dump(written))
        return claims.verdicts("paper", "quick").iloc[0]

    found = judged(bound)
    assert (found["verdict"], found["reason"]) == (NOT_TESTED, "needs 2 collections, here are 1: quora")
    # Where one is enough, what is the same comparison twice counts once; another margin is another one.
    each = [*bound["each"], pair(on="F", margin=-1)]
    found = judged({**bound, "each": each, "one_is_enough": True})
    assert (found["verdict"], len(found["evidence"])) == (HOLDS, 2)


# Conditions, and claims that are not tested


def test_a_claim_is_not_tested_where_its_binding_says_so(book):
    record({"A": level(55, 1), "B": level(50)})
    bound = {"test": "greater", "each": [pair()]}
    found = verdict_on(book, bound | {"not_tested": "it cannot come out otherwise"})
    assert (found["verdict"], found["reason"]) == (NOT_TESTED, "it cannot come out otherwise")
    assert found["evidence"] == [] and np.isnan(found["p"])
    assert verdict_on(book, bound | {"not_tested": {"quick": "too small"}})["reason"] == "too small"
    assert verdict_on(book, bound | {"not_tested": {"laptop": "too large"}})["verdict"] == HOLDS


@pytest.mark.parametrize(("c", "expected"), [(47, HOLDS), (49, NOT_TESTED), (60, NOT_TESTED)])
def test_a_claim_is_tested_where_its_conditions_are_seen(book, c, expected):
    record({"A": level(55, 1), "B": level(50), "C": level(c), "D": level(50, 1)})
    found = verdict_on(book, {"test": "greater", "each": [pair()], "given": [pair("D", "C")]})
    assert found["verdict"] == expected
    (condition,) = found["given"]
    assert condition.effect == pytest.approx(50 - c, abs=1e-3) and len(found["evidence"]) == 1
    here = "+1.0 points, maybe by chance" if c == 49 else "10.0 points below"
    said = f"the claim presupposes that D is ahead of C (AP@100 on quora); here it is {here}" * (expected == NOT_TESTED)
    assert found["reason"] == said and (found["said"] == "") == (expected == NOT_TESTED)
    ledger = claims.verdicts("paper", "quick")
    line = f"given{', not seen' if said else ''}: D minus C, on quora: {condition.text}"
    assert verdict_text.format_verdict(ledger.iloc[0]).splitlines()[-1].strip() == line
    assert f"given D minus C, on quora: {condition.text}" in verdict_text.flat(ledger)["evidence"][0]


def test_conditions_are_as_the_claim_says_unless_they_say_otherwise(book):
    record({"A": level(55, 1), "B": level(50), "D": level(49.9, 0.1)}, measure="R@1")
    bound = {"test": "greater", "measure": "R@1", "margin": -1.0, "each": [pair()]}
    assert verdict_on(book, bound | {"given": [pair("D", "B")]})["verdict"] == HOLDS  # not worse by a point
    assert verdict_on(book, bound | {"given": [pair("D", "B", margin=0)]})["verdict"] == NOT_TESTED
    equal = {"test": "equivalent", "margin": 0.5}
    assert verdict_on(book, bound | {"given": [pair("D", "B", **equal)]})["verdict"] == HOLDS
    found = verdict_on(book, bound | {"given": [pair("D", "B", measure="R@5")]})
    assert found["verdict"] == NOT_TESTED and "would record R@5 of D" in found["reason"]


def test_conditions_are_no_part_of_the_correction_nor_of_the_seeds(book):
    at = stats.t.ppf(0.96, COUNT - 1)  # p = 0.04: seen, and not after any correction
    record({"A": level(60, 1), "B": level(50), "C": level(50 + at, 1)} | {"E": level(50, 1)})
    given = [pair("C"), pair("C", "B", margin=-0.1)]
    found = verdict_on(book, {"test": "greater", "each": [pair()], "given": given})
    alone = verdict_on(book, {"test": "greater", "each": [pair()]})
    assert (found["verdict"], found["p"], found["said"]) == (HOLDS, alone["p"], alone["said"])
    assert [each.p_for < 0.05 for each in found["given"]] == [True, True]


def test_a_condition_that_is_no_comparison_is_not_seen(book):
    record({"A": level(55, 1), "B": level(50), "C": level(99.8, 0.01), "D": level(99.2)})
    found = verdict_on(book, {"test": "greater", "each": [pair()], "given": [pair("C", "D")]})
    assert found["verdict"] == NOT_TESTED and "C is ahead of D (AP@100 on quora); no comparison" in found["reason"]


def test_one_seed_of_a_condition_counts_as_any_other(book):
    record({"A": level(55, 1), "B": level(50), "C": level(60, 1)}, steps={"A": {0: 80}, "C": {0: 80}})
    found = verdict_on(book, {"test": "greater", "each": [pair()], "given": [pair("C")]})
    assert found["verdict"] == INDICATION and found["said"].startswith("one seed: for")


def test_the_data_of_a_condition_are_data_of_the_claim(book):
    record({"A": level(55, 1), "B": level(50)})
    record({"A": level(55, 1), "B": level(50)}, collection="pydocs")
    bound = {"test": "greater", "each": [pair()], "given": [pair(on="E")]}
    assert claims.compared_on(bound) == ["D", "E"] and claims.tested_in(bound) == ["11"]
    assert verdict_on(book, bound)["fidelity"] == "stand-in"


def test_the_papers_effect_stands_beside_ours_and_decides_nothing(book):
    record({"A": level(55, 1), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair(paper=40.5)]})
    assert found["verdict"] == HOLDS and found["evidence"][0].text.endswith("], paper +40.5")


def test_the_variance_between_seeds_is_pooled_over_a_chapters_systems(book):
    """By hand: the seeds' means are -0.5, 0 and 0.5, and leave squares of 0.5, 4.5, 4.5 and 0.5."""
    shifts = {"A": (-1, 0, 1), "B": (1, 0, -1), "C": (-2, 0, 2), "D": (0, 0, 0)}
    record({name: seeded(60, each, 0) for name, each in shifts.items()} | {"BM25": level(50)})
    pooled = (0.5 + 4.5 + 4.5 + 0.5) / 6  # (4 - 1)(3 - 1) degrees of freedom; nothing is shared

    def squared_error(name, rival, freedom):
        (each,) = verdict_on(book, {"test": "greater", "each": [pair(name, rival)]})["evidence"]
        return ((each.high - each.low) / 2 / stats.t.ppf(0.975, freedom)) ** 2

    assert squared_error("D", "A", 6) == pytest.approx(2 * pooled / 3, rel=1e-3)
    assert squared_error("D", "BM25", 6) == pytest.approx(pooled / 3, rel=1e-3)  # it is not trained
    assert squared_error("C", "BM25", 2) == pytest.approx(4 / 3, rel=1e-3)  # noisier than most: its own
    each = terms((1, "D", "D"), (-0.5, "A", "D"), (-0.5, "B", "D"))
    (found,) = verdict_on(book, {"test": "linear", "each": [each]})["evidence"]
    half = stats.t.ppf(0.975, 6) * (1.5 * pooled / 3) ** 0.5
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-3)
    # A system that is not trained has one column, and takes no seeds away from the other.
    each = terms((1, "D", "D"), (-1, "BM25", "D"))
    (found,) = verdict_on(book, {"test": "linear", "each": [each]})["evidence"]
    half = stats.t.ppf(0.975, 6) * (pooled / 3) ** 0.5
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-3)


def test_what_a_seed_changes_in_all_systems_goes_out_of_their_difference(book):
    seeds = -3, 0, 3
    record({"A": seeded(60, seeds, 1), "B": seeded(50, seeds, 0), "BM25": level(50)})
    record({"one": level(55, 1)}, steps={"one": {0: 80}})
    of_queries = stats.t.ppf(0.975, COUNT - 1)  # their error of 1
    for each, half in (
        (terms((1, "A", "D"), (-1, "B", "D")), of_queries),
        (terms((2, "B", "D"), (-1, "BM25", "D")), stats.t.ppf(0.975, 2) * (4 * 9 / 3) ** 0.5),
        (terms((1, "one", "D"), (-1, "BM25", "D")), of_queries),  # of one seed nothing is said
    ):
        (found,) = verdict_on(book, {"test": "linear", "each": [each]})["evidence"]
        assert found.high - found.low == pytest.approx(2 * half, rel=1e-3)
    (found,) = verdict_on(book, {"test": "greater", "each": [pair()]})["evidence"]
    assert found.high - found.low == pytest.approx(2 * of_queries, rel=1e-3)


def test_seeds_that_not_all_systems_have_say_nothing_of_their_variance(book):
    """By hand: the means of the two shared seeds are -1 and 1, and leave squares of 1, 1, 1, 1, 4 and 4."""
    record({"A": seeded(60, (0, 0, 0), 0), "B": seeded(59, (0, 0, 0), 0), "C": {1: 57 + 0 * NOISE, 2: 63 + 0 * NOISE}})
    record({"C": {3: 90 + 0 * NOISE}})
    (found,) = verdict_on(book, {"test": "greater", "each": [pair()]})["evidence"]
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.975, 2) * (2 * 12 / 2 / 3) ** 0.5, rel=1e-3)


def test_the_variance_of_an_average_is_that_of_each_models_average(book):
    for collection, sign in (("quora", 1), ("pydocs", -1)):  # what a seed adds here it takes away there
        record({"A": seeded(60, (-sign, 0, sign), 0), "B": seeded(50, (0, 0, 0), 1)}, collection=collection)
    (found,) = verdict_on(book, {"test": "greater", "each": [pair(on="D+E")]})["evidence"]
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.975, 2 * COUNT - 2) * 0.5**0.5, rel=1e-2)


def test_an_average_is_over_as_many_seeds_as_the_data_set_with_the_fewest_has(book):
    """By hand: the seeds' means are -1 and 1, and leave squares of 1, 1, 1, 1, 4 and 4."""
    for collection, seeds in (("quora", 3), ("pydocs", 2)):
        shifts = {"A": (0, 0, 0), "B": (1, 1, 1), "C": (-3, 3, 0)}
        record({name: seeded(60, each[:seeds], 0) for name, each in shifts.items()}, collection=collection)
    record({"here alone": seeded(60, (-9, 9, 0), 0)})
    (found,) = verdict_on(book, {"test": "greater", "each": [pair(on="D+E")]})["evidence"]
    assert found.seeds == 2
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.975, 2) * (2 * 12 / 2 / 2) ** 0.5, rel=1e-3)


def test_experiments_are_compared_with_each_other(book):
    record({"A": level(55, 1)}, experiment="12")
    record({"B": level(50)}, experiment="11")
    bound = {"test": "greater", "each": [{"pair": ["12:A", "11:B"], "data": "D"}]}
    assert verdict_on(book, bound)["verdict"] == HOLDS


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (pair(b="nope"), "chapter 11 would record AP@100 of nope on quora"),
        (pair(on="E"), "of A on pydocs"),
        (pair(on="F"), "no collection stands for F at profile quick"),
        ({"pair": ["11:A", "99:B"], "data": "D"}, "not run yet at profile quick: chapter 99 would"),
    ],
)
def test_what_is_missing_is_the_reason_for_not_testing(book, spec, reason):
    record({"A": level(55, 1), "B": level(50)})
    found = verdict_on(book, {"test": "greater", "each": [pair(), spec]})
    assert found["verdict"] == NOT_TESTED and np.isnan(found["p"]) and found["evidence"] == []
    assert re.search(reason, found["reason"])


def test_systems_over_other_queries_are_not_compared(book):
    record({"B": level(50)}, experiment="11")
    record({"A": level(55, 1)}, experiment="12")
    found = results.load("12", "quick")
    found.queries = {key: frame.iloc[1:] for key, frame in found.queries.items()}
    found.save(results.own_folder("quick", "12"))
    found = verdict_on(book, {"test": "greater", "each": [{"pair": ["12:A", "11:B"], "data": "D"}]})
    assert found["verdict"] == NOT_TESTED and "same queries" in found["reason"]


def test_an_unknown_test_is_an_error_that_lists_the_valid_ones(book):
    with pytest.raises(SettingError, match="test of c = 'grater'.*Did you mean 'greater'.*above_throughout, equi"):
        verdict_on(book, {"test": "grater", "each": [pair()]})


def test_results_are_read_once_for_all_claims(book, monkeypatch):
    record({"A": level(55, 1), "B": level(50)})
    write_claims(book, {f"c{i}": {"test": "greater", "each": [pair()]} for i in range(5)})
    real, calls = results.load, []
    monkeypatch.setattr(results, "load", lambda *asked: calls.append(asked) or real(*asked))
    assert claims.verdicts("paper", "quick")["verdict"].tolist() == [HOLDS] * 5
    assert len(calls) == 1


def test_the_ledger_holds_every_claim_of_every_paper_in_order(book):
    record({"A": level(55, 1), "B": level(50)})
    bound = {"c1": {"test": "greater", "each": [pair()]}, "c2": None, "d1": None}
    write_claims(book, bound, {"c1": "paper", "c2": "paper", "d1": "unwritten"})
    found = claims.ledger("quick")
    assert found["claim"].tolist() == ["c1", "c2", "d1"]
    assert found["verdict"].tolist() == [HOLDS, NOT_TESTED, NOT_TESTED]
    assert "not written" in found["reason"][1] and "not written" in found["reason"][2]
    printed = verdict_text.flat(found)
    told = "1 of 1 comparison for, none against; A minus B, on quora: 55.0 against 50.0, +5.00 ["
    assert printed["evidence"][0].startswith(told)
    assert printed["evidence"][2] == found["reason"][2]


def test_of_many_texts_the_first_few_are_shown():
    assert claims.first_few(list("abc"), 1) == ["a", "2 more"]
    assert claims.first_few(list("abc"), 3) == claims.first_few(list("abc"), None) == list("abc")
    assert claims.first_few([], 1) == []


def test_the_source_can_be_chosen(book):
    record({"A": level(55, 1), "B": level(50)})
    write_claims(book, {"c": {"test": "greater", "each": [pair()]}})
    assert claims.verdicts("paper", "quick", source="reference")["verdict"].tolist() == [NOT_TESTED]
    results.load("11", "quick").save(results.reference_folder("quick", "11"))
    assert claims.verdicts("paper", "quick", source="reference")["verdict"].tolist() == [HOLDS]


# The real bindings

ROOT = runtime.root()
PAPERS = ROOT / "data" / "papers"
BOUND = yaml.safe_load((PAPERS / "bindings.yaml").read_text())
CLAIMS = pd.read_csv(PAPERS / "claims.csv").set_index("id")
EXPERIMENTS = {key: paper.chapters for key, paper in claims.papers().items()}
PROFILES = ("smoke", "quick", "laptop")
CHANG = [name for name in BOUND["claims"] if CLAIMS["paper"][name] == "chang2020"]
# Beside `measure`: what a comparison of each test must say, and what it may.
FORMS = {
    "greater": ({"pair", "data"}, {"margin"}),
    "fewer": ({"pair", "data"}, set()),
    "equivalent": ({"pair", "data", "margin"}, set()),
    "trend": ({"systems", "data"}, set()),
    "linear": ({"terms"}, {"independent", "within", "margin", "says", "sides"}),
    "limit": ({"system", "measure", "data"}, {"below", "above"}),
    "quotient": ({"pair", "measure", "data"}, {"below", "above"}),
    **dict.fromkeys(("rise", "sawtooth"), ({"system", "measure", "data"}, set())),
    **dict.fromkeys(("above_at_end", "above_throughout"), ({"pair", "measure", "data"}, {"margin"})),
    "swing": ({"pair", "measure", "data"}, set()),
}


def compared(spec):
    """(experiment, system, the paper's data set) of everything that a comparison reads."""
    if "terms" in spec:
        named = [(system, data_set) for _, system, data_set in spec["terms"]]
    else:
        names = spec.get("pair") or spec.get("systems") or [spec["system"]]
        named = [(system, data_set) for system in names for data_set in spec["data"].split("+")]
    return [(*system.split(":", 1), data_set) for system, data_set in named]


def test_every_test_has_a_form():
    assert set(FORMS) == set(claims.TESTS)
    each = (evidence.TESTS, curve_evidence.TESTS, seed_evidence.TESTS)
    assert sum(map(len, each)) == len(claims.TESTS)


@pytest.mark.parametrize("name", BOUND["claims"])
def test_a_binding_is_well_formed(name):
    claim = BOUND["claims"][name]
    assert name in CLAIMS.index
    assert set(claim) <= {"test", "measure", "margin", "floor", *claims.OF_THE_CLAIM}
    assert claim.get("margin") is None or claim["test"] in ("greater", "equivalent")
    reasons = claim.get("not_tested", "as each says")
    assert all(reasons.values()) and set(reasons) <= {*PROFILES, "checkpoint"} if isinstance(reasons, dict) else reasons
    paper = CLAIMS["paper"][name]
    for spec in asked(name):
        needed, allowed = FORMS[spec.pop("test")]
        assert needed <= set(spec) <= needed | allowed | {"measure", "floor", "paper"}
        read = compared(spec)
        assert len(set(read)) == len(read)
        assert len(spec.get("pair", "ab")) == 2 and len(spec.get("systems", "abc")) > 2
        assert not {"within", "margin"} <= set(spec)
        assert len({"below", "above"} & set(spec)) == len({"below", "above"} & allowed) / 2
        for experiment, system, data_set in read:
            assert experiment in EXPERIMENTS[paper] and system and system == system.strip()
            assert data_set in BOUND["collections"][paper]
        for weight, *_ in spec.get("terms", ()):
            assert weight != 0
    assert len({str(spec) for spec in asked(name)}) == len(asked(name))


def asked(name):
    """Every comparison of a claim and every condition, complete."""
    return [spec for part in ("each", "given") for spec in claims.asked(BOUND["claims"][name], part)]


@cache
def given(profile):
    """The parameters of each notebook at a profile."""
    return {notebook: chosen.parameters for notebook, chosen in notebooks.plan(ROOT, profile).items()}


@cache
def recorded_systems(notebook):
    """The names under which a notebook records, systems and measures: what it declares, and its reference has."""
    rows = pd.read_parquet(results.reference_folder("laptop", notebook) / "rows.parquet")
    studies = pages.declared(notebook, given("laptop")[notebook])[1]
    there = [product(study.systems, study.measures) for study, _ in studies]
    return set(zip(rows["system"], rows["measure"], strict=True)).union(*there)


@cache
def recorded_collections(notebook, profile):
    """The names of the collections that a notebook of part II records on at a profile."""
    given = notebooks.plan(ROOT, profile)[notebook].parameters
    kinds = {"22_reqa": ("", "-others"), "23_ablation": ("",), "24_open_domain": ("", "+added")}[notebook]
    names = given.get("collections") or [given["collection"]]
    return {f"{name}-{share:g}{kind}" for name in names for share in given["shares"] for kind in kinds}


@pytest.mark.parametrize("name", CHANG)
def test_a_claim_on_pretraining_names_systems_that_the_notebooks_record(name):
    for spec in asked(name):
        for notebook, system, data_set in compared(spec):
            assert (system, spec["measure"]) in recorded_systems(notebook)
            # All but the training queries are searched by BM25 alone.
            assert system == "BM25" or "others" not in data_set


@pytest.mark.parametrize("profile", ["smoke", "quick", "laptop"])
@pytest.mark.parametrize("name", CHANG)
def test_a_claim_on_pretraining_names_collections_that_the_notebooks_record_on(name, profile):
    if BOUND["claims"][name]["test"] == "limit":
        return  # a time, whatever the collection
    for spec in asked(name):
        for notebook, _, data_set in compared(spec):
            place = BOUND["collections"]["chang2020"][data_set][profile]
            assert place["collection"] in recorded_collections(notebook, profile)


@pytest.mark.parametrize("data_set", BOUND["collections"]["chang2020"])
def test_a_share_of_a_paper_stands_by_that_share(data_set):
    places = BOUND["collections"]["chang2020"][data_set]
    share = int(re.search(r"(\d+)%", data_set)[1]) / 100
    kind = {"": "", " and more": "+added", ", all others": "-others"}[data_set.split("%")[1]]
    squad = data_set.startswith("SQuAD")
    assert places["laptop"]["collection"] == f"{'squad-small' if squad else 'natural-questions'}-{share:g}{kind}"
    assert places["quick"]["collection"] == f"pydocs-reqa-{share:g}{kind}"
    assert places["smoke"]["collection"].endswith(kind) and re.search(r"-0\.(05|8)", places["smoke"]["collection"])


@pytest.mark.parametrize("name", CHANG)
def test_a_claim_on_pretraining_is_judged_by_the_measures_that_it_is_about(name):
    claim, about = BOUND["claims"][name], CLAIMS["metric"][name]
    if claim["test"] == "limit":
        return
    named = set()
    for spec in claim["each"]:
        measure = spec.get("measure", claim.get("measure"))
        named.add(measure)
        assert measure in part2.MEASURES and measure in re.findall(r"R@\d+", about)
        if about.count("R@") > 1:  # each at its own share
            assert f"{measure} {re.search(r'[0-9]+%', spec['data'])[0]}" in about
    assert named == set(re.findall(r"R@\d+", about))


# Part four

RANKING = [name for name in BOUND["claims"] if CLAIMS["paper"][name] == "zhan2020"]


@cache
def recorded_ranking(notebook, profile):
    """The pairs of system and measure that a notebook of part IV records at a profile."""
    return part4_pages.recorded(notebook, given(profile)[notebook])


def ranked_collections(notebook, profile):
    """The names of the collections that a notebook of part IV records on."""
    chosen = given(profile)[notebook]
    if notebook == "43_two_stage":  # one alone answers in two stages
        return [chosen["tested"]]
    if notebook in ("41_training_dynamics", "45_training_time"):  # on questions of all that trains, together
        return [", ".join(chosen["collections"])]
    return chosen["collections"] + chosen["zero_shot"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", RANKING)
def test_a_claim_on_ranking_names_what_the_notebooks_record(name, profile):
    for spec in asked(name):
        for notebook, system, data_set in compared(spec):
            assert (system, spec["measure"]) in recorded_ranking(notebook, profile)
            place = BOUND["collections"]["zhan2020"][data_set][profile]["collection"]
            assert place in ranked_collections(notebook, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_codes_divide_the_dimension_that_the_notebooks_of_part_four_share(profile):
    chosen = given(profile)["44_compressed_index"]
    codes = [int(n) for factory in chosen["factories"] for n in re.findall(r"PQ(\d+)", factory)]
    assert len(codes) == 10 and all(chosen["dimension"] % n == 0 for n in codes)
    assert set(chosen["matrix"]) <= set(chosen["factories"])
    # The shares of the uncompressed bytes that stand beside the bindings are those of 192 dimensions.
    assert chosen["dimension"] == (24 if profile == "smoke" else 192)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_notebooks_that_begin_where_pretraining_ends_share_what_they_train(profile):
    first, compressed, timed = (
        {name: given(profile)[page][name] for name in (*part4.RULES, "ann_rate")}
        for page in ("42_first_stage", "44_compressed_index", "45_training_time")
    )
    assert timed == first == compressed


# Part three

WRITTEN = [name for name in BOUND["claims"] if CLAIMS["paper"][name] == "liang2020"]


@cache
def recorded_zero_shot(notebook, profile):
    """The triples of system, collection and measure that a notebook of part III records at a profile."""
    return part3_pages.recorded(notebook, given(profile)[notebook])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_claim_on_generated_queries_names_what_the_notebooks_record(name, profile):
    for spec in asked(name):
        for notebook, system, data_set in compared(spec):
            place = BOUND["collections"]["liang2020"][data_set].get(profile)
            assert place or profile != "laptop"
            if place:
                assert (system, place["collection"], spec["measure"]) in recorded_zero_shot(notebook, profile)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_claim_on_generated_queries_is_judged_by_its_measures_on_its_data_sets(name):
    about = CLAIMS.loc[name]
    specs = claims.asked(BOUND["claims"][name])
    measures = {spec["measure"] for spec in specs}
    # Figures 2 and 3 do not say at which k.
    asked = {"recall": {"R@10"}, "# pairs": {"pairs"}}.get(about["metric"], set(re.findall(r"R@\d+", about["metric"])))
    assert measures == asked
    places = {data_set.partition(",")[0] for spec in specs for *_, where in compared(spec) for data_set in [where]}
    for place in places:
        average = "average of 6" in f"{about['dataset']}{about['metric']}"
        assert average or place in f"{about['dataset']}{about['metric']}"


@pytest.mark.parametrize("profile", PROFILES)
def test_the_notebooks_of_part_three_share_what_they_make(profile):
    chapters = EXPERIMENTS["liang2020"]
    for rules, sharing in (({**part3.GENERATOR, **part3.OUT_OF_TARGET}, chapters), (part3.RULES, chapters[1:])):
        first, *others = ({name: given(profile)[notebook][name] for name in rules} for notebook in sharing)
        assert all(other == first for other in others)
    tested = [{name: given(profile)[notebook][name] for name in ("added", "added_articles")}
              for notebook in EXPERIMENTS["liang2020"][1:]]  # fmt: skip
    assert tested[0] == tested[1]


def test_a_target_s_generator_has_not_seen_its_labels():
    """Neither those of the collection nor of another that has the same questions."""
    families = given("laptop")["32_zero_shot"]["generators"]
    for name, targets in families.items():
        assert not any(target.startswith(name.split("-")[0]) for target in targets)


def test_every_claim_of_a_written_paper_is_bound():
    for paper in BOUND["collections"]:
        assert set(CLAIMS.index[CLAIMS["paper"] == paper]) <= set(BOUND["claims"])


def test_what_is_tested_is_said_with_the_numbers_of_the_rows():
    rows = claims.ledger("laptop", "reference").set_index("claim")["as_tested"]
    assert rows["chang2020-depth-helps"].startswith("more layers are ahead of fewer at every split: 1 against 0")
    assert "112,000 candidates" in rows["chang2020-open-domain-over-bm25"]
    assert rows["zhan2020-asyncann-unstable"] == ""
    assert "{" not in "".join(rows) and "?" not in "".join(rows)
    unknown = claims.ledger("explore", "reference").set_index("claim")["as_tested"]
    assert "? against ?" in unknown["chang2020-depth-helps"]


@pytest.mark.parametrize("name", BOUND["claims"])
def test_what_is_said_of_a_claim_names_what_its_binding_has(name):
    claim = BOUND["claims"][name]
    assert not {"as_tested", "remark"} <= set(claim)
    named = re.findall(r"{(\w+)}", claim.get("as_tested", claim.get("remark", "")))
    assert set(named) == set(claim.get("numbers", {}))
    assert {tuple(place[1:]) for place in claim.get("numbers", {}).values()} <= set(claims.compared(claim))
    for spec in asked(name):
        assert ("says" in spec) == ("sides" in spec) == (len(spec.get("terms", "ab")) != 2 and "within" not in spec)
        assert spec.get("says", "").count("{}") == len(spec.get("sides", ()))
        assert all(len(side) == len(spec["terms"]) for side in spec.get("sides", ()))
        if len(spec.get("sides", ())) == 2:  # their difference is what is tested, up to a factor
            (first, second), weights = spec["sides"], [weight for weight, *_ in spec["terms"]]
            assert np.subtract(first, second).tolist() == weights


@pytest.mark.parametrize(
    ("effect", "more", "told"),
    [
        (1.0, {}, "one as large as here takes about 7 times as many questions and about 7 times as many seeds"),
        (1.0, {"paper": 5.0}, "one as large as the paper's would be seen"),
        (
            1.0,
            {"paper": 0.1},
            "one as large as the paper's takes more than 100 times as many questions and more than 100 times as many "
            "seeds",
        ),
        (-1.0, {}, "effects show from +2.52 on; that here points the other way"),
        (1.0, {"paper": -5.0}, "effects show from +2.52 on; that of the paper points the other way"),
        (1.0, {"paper": 0.0}, "effects show from +2.52 on; that of the paper points the other way"),
        (1.0, {"margin": 0.5}, "effects show from +3.02 on; one as large as here takes about 26 times"),
        (0.5, {"margin": 1.0}, "effects show from +3.52 on; that here is within the margin"),
        (1.0, {"margin": -0.5}, "effects show from +2.02 on"),
        (2.0, {"test": "equivalent", "margin": 3.0}, "effects within 0.23 of 0 show"),
        (1.0, {"test": "equivalent", "margin": 1.5}, "over the paper none can show"),
        (9.0, {}, None),
    ],
)
def test_what_would_decide_an_inconclusive_claim(book, effect, more, told):
    record({"A": level(50 + effect, 1), "B": level(50)})
    verdict_on(book, {"test": "greater", "each": [pair(**more)]})
    (row,) = claims.verdicts("paper", "quick").itertuples()
    said = "".join(verdict_text.to_decide(row))
    assert said == "" if told is None else told in said
    assert said in verdict_text.format_verdict(row)


def test_what_speaks_against_a_claim_but_for_the_correction_is_said(book):
    record({"A": level(48.3, 1), "B": level(50)})
    write_claims(book, {name: {"test": "greater", "each": [pair()]} for name in ("c", "d")})
    row, _ = claims.verdicts("paper", "quick").itertuples()
    assert row.verdict == INCONCLUSIVE and row.evidence[0].p_against < claims.LEVEL < 2 * row.evidence[0].p_against
    assert verdict_text.leans_against(row)
    # Half the level is left to the second of two, whose effect is 1.7 times the error.
    times = math.ceil(((stats.t.ppf(0.975, COUNT - 1) + stats.t.ppf(0.8, COUNT - 1)) / 1.7) ** 2)
    assert verdict_text.to_decide(row) == [
        "to decide: A minus B, on quora speaks against the claim before correction over the paper, and not after it; "
        f"for that, one as large as here takes about {times} times as many questions and about {times} times as many "
        "seeds"
    ]


def test_what_others_leave_of_the_level_shows_no_smaller_effect(book):
    record({"A": level(52, 1), "B": level(50), "C": level(60), "D": level(55, 1)})
    write_claims(book, {name: {"test": "greater", "each": [pair(*name)]} for name in ("AB", "CB", "DB")})
    row, _, _ = claims.verdicts("paper", "quick").itertuples()
    (each,) = row.evidence
    assert row.verdict == HOLDS and each.levels == (claims.LEVEL, claims.LEVEL / 3)  # the others hold, which leaves all
    assert each.smallest_at(claims.LEVEL) == pytest.approx(each.smallest)
    assert each.smallest_at(claims.LEVEL / 3) == pytest.approx(
        stats.t.ppf(1 - claims.LEVEL / 3, COUNT - 1) + stats.t.ppf(0.8, COUNT - 1), abs=1e-3
    )


def test_how_many_signs_are_of_an_effect_below_a_point(book):
    record({"A": level(50.5, 0.1), "B": level(50), "C": level(55, 1)})
    bound = {"small": [pair()], "large": [pair("C")], "against": [pair("B", "A")], "near": [pair(margin=-1.0)]}
    write_claims(book, {name: {"test": "greater", "each": each} for name, each in bound.items()})
    table = claims.verdicts("paper", "quick")
    assert table["verdict"].tolist() == [HOLDS, HOLDS, CONTRADICTED, HOLDS]
    assert verdict_text.small(table).endswith(": of 3 such verdicts 2 rest on an effect of less than a point.")
    assert verdict_text.small(table[1:2]).endswith(": of 1 such verdict none rests on an effect of less than a point.")
    assert verdict_text.small(table[:0]) == ""


def test_how_many_that_hold_are_of_another_size_than_printed(book):
    record({"A": level(52, 0.1), "B": level(50)})
    bound = {"smaller": 5.0, "larger": 0.5, "within": 2.0, "unknown": None}  # the effect is of 2.0
    each = {name: [pair(**({} if paper is None else {"paper": paper}))] for name, paper in bound.items()}
    write_claims(book, {name: {"test": "greater", "each": pairs} for name, pairs in each.items()})
    table = claims.verdicts("paper", "quick")
    assert set(table["verdict"]) == {HOLDS}
    said = verdict_text.sizes(table)
    assert "of 3 that are tested beside the paper's size" in said and said.endswith(
        "below that size in 1, and above it in 1."
    )
    assert verdict_text.sizes(table[table["claim"] == "unknown"]) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("natural-questions-0.01+added", "Natural Questions sentences, 1 % of the labels, more candidates"),
        ("squad, whole", "SQuAD sentences, all candidates and questions"),
        ("quora", "Quora"),
        ("squad-passages, nfcorpus", "SQuAD passages and NFCorpus together"),
        ("nfcorpus, generated questions", "NFCorpus, generated questions"),
        ("one-of-mine", "one-of-mine"),
    ],
)
def test_a_collection_is_called_by_words(name, words):
    assert called(name) == words


def test_a_data_set_stands_by_a_collection_that_can_be_loaded():
    for paper in BOUND["collections"].values():
        for places in paper.values():
            # What is compared with a printed number has no stand-in.
            assert set(places) - {"checkpoint"} in ({"smoke", "quick", "laptop"}, {"laptop"})
            for place in places.values():
                # A collection's name, its test candidates alone, all of its queries, a share of it, or more candidates.
                whole = re.sub(r"(-test|, whole|\+added|-0\.\d+(\+added|-others)?)$", "", place["collection"])
                assert set(whole.split(", ")) <= set(datasets.COLLECTIONS.names())  # of several, all train
                assert place["fidelity"] in ("subset", "stand-in")


# What a claim calls equal, near or better where the paper gives no number: the reason stands beside its binding.
CHOSEN = {
    "gillick2018-softmax-best-inbatch": {-0.5},
    "gillick2018-domain-of-word-vectors-not-the-cause": {1.0},
    "chang2020-bm25-insensitive-to-split": {1},
    "zhan2020-full-retrieval-cheap": {0.5},
}


def test_a_threshold_is_a_direction_or_what_makes_two_things_equal():
    said = CLAIMS["direction"] + " " + CLAIMS["paper_values"]
    for name in BOUND["claims"]:
        specs = claims.asked(BOUND["claims"][name])
        numbers = {spec.get(word) for spec in specs for word in ("margin", "within", "below", "above")} - {None, 0, 1}
        if CLAIMS["paper"][name] != "zhan2020":  # in other units: see test_curve_evidence.py
            numbers = {number for number in numbers if str(abs(number)) not in said[name]}
            assert numbers <= CHOSEN.get(name, set()), name
        else:
            assert {number for number in numbers if number > 0} <= CHOSEN.get(name, set()), name


SUMS = [
    (name, spec)
    for name in BOUND["claims"]
    for spec in asked(name)
    if spec["test"] == "linear" and len(spec["terms"]) > 1
]


@pytest.mark.parametrize(("name", "spec"), SUMS)
def test_the_weights_of_a_sum_cancel(name, spec):
    """So that nothing depends on the level of what is compared: no ratio of two systems is asked for."""
    assert sum(weight for weight, *_ in spec["terms"]) == pytest.approx(0)


def test_the_papers_numbers_are_at_hand():
    found = claims.reported("gillick2018", "table-2")
    assert len(found) > 10 and set(found["paper"]) == {"gillick2018"}
    ours = {"BM25": "Okapi BM25", "same": "Okapi BM25", "TF-IDF": "TFIDF"}
    found = claims.reported_values("gillick2018", "table-2", "AskUbuntu", ours)
    assert found == {"BM25": 36.5, "same": 36.5, "TF-IDF": 35.6}


@pytest.mark.parametrize(("data_set", "row"), [("AskUbuntu", "BM52"), ("Nowhere", "Okapi BM25")])
def test_a_number_that_a_paper_does_not_give_is_named(data_set, row):
    with pytest.raises(SettingError, match=f"row of gillick2018 table-2 for {data_set} = {row!r} is not known"):
        claims.reported_values("gillick2018", "table-2", data_set, {"BM25": row})


@pytest.mark.parametrize("verdict", claims.SIGNS)
def test_a_verdict_is_a_verb_of_one_claim_or_of_several(verdict):
    one, several = verdict_text.came_out(verdict, several=False), verdict_text.came_out(verdict, several=True)
    assert one.split()[0] in ("holds", "is", "shows", "has") and several.split()[0] in ("hold", "are", "show", "have")
    assert "is indication" not in one and "are indication" not in several


@pytest.mark.parametrize(
    ("verdict", "hangs_on"), [(CONTRADICTED, "b"), (NO_EFFECT, "c"), (INCONCLUSIVE, "d"), (HOLDS, "d")]
)
def test_a_verdict_hangs_on_what_speaks_most_against_it_or_least_for_it(verdict, hangs_on):
    ps = {
        "a": (0.5, 0.5, 0.5),
        "b": (0.8, 0.01, 0.6),
        "c": (0.7, 0.3, 0.02),
        "d": (0.9, 0.2, 0.4),
    }  # for, against, none
    each = [
        evidence.Evidence(label, 0, 0, 0, 0, 0, p_for, p_against, 3, 9, p_none=p_none)
        for label, (p_for, p_against, p_none) in ps.items()
    ]
    assert claims.decisive(pd.Series({"verdict": verdict, "evidence": each})).label == hangs_on
