"""The gate on learning curves whose truth is known: still rising, below their start, at rest, or not recorded."""

import numpy as np
import pandas as pd
import pytest

from retlib.evaluation.results import Results
from retlib.report.claims import TESTS
from retlib.report.evidence import Evidence
from retlib.report.gate import GATED, endings, failing, gated, too_deep
from retlib.report.records import Records

PLACES = {name: {"quick": {"collection": name.lower()}} for name in "DE"}
REST = [40, 60, 64, 65, 65, 65]  # at steps 0, 20, 40, 60, 80, 100: nothing in the last fifth
FOUND = {"label": "A minus B", "a": 52, "b": 50, "effect": 2.0, "low": 1, "high": 3, "p_for": 0.01, "p_against": 0.99}
SPEC = {"test": "greater", "pair": ["x:A", "x:B"], "data": "D"}


def lines(system, *curves, collection="d", kept=None):
    """A learning curve for each seed, in steps of 20; its best weights are kept, unless a place is given."""
    rows = []
    for seed, scores in enumerate(curves):
        place = int(np.argmax(scores)) if kept is None else kept
        rows += [(system, collection, seed, 20 * i, float(s), i == place) for i, s in enumerate(scores)]
    return pd.DataFrame(rows, columns=["system", "collection", "seed", "step", "score", "kept"])


def through(*learning, trained=("A", "B"), ratio=False, effect=2.0, condition=False, **changes):
    """What the gate makes of a comparison of A and B whose effect is 2 points."""
    made = Results(tables={"learning": pd.concat(learning)} if learning else {})
    for system in "AB":
        made.add_row(experiment="x", system=system, collection="d", split="test", measure="AP@100", value=0.5, seed=0,
                     profile="quick", steps=80 if system in trained else None)  # fmt: skip
    each = Evidence(**FOUND | {"effect": effect}, seeds=2, queries=9, ratio=ratio)
    return gated(Records("quick", PLACES, "AP@100", {"x": made}.get), SPEC | changes, each, condition)


def test_the_rise_of_the_last_fifth_is_over_all_that_was_before():
    ended = lines("A", [10, 50, 70, 60, 65, 71])  # step 80 of 100 ends the first four fifths
    assert endings(ended)["A", "d"] == (100, 71 - 70, 10, 71)
    assert endings(ended[:5])["A", "d"] == (80, 65 - 70, 10, pytest.approx(np.nan, nan_ok=True))  # stopped at step 80
    later = ended.assign(step=[0, 50, 60, 70, 90, 100], score=[10, 50, 40, 30, 71, 68])
    assert endings(later)["A", "d"].rise == 71 - 50  # the best, which need not be the last
    stopped = lines("A", [10, 50, 70, 60, 65]).assign(seed=1)
    both = endings(pd.concat([ended, stopped, lines("B", REST), lines("A", REST, collection="e")]))
    assert both["A", "d"].rise == (1 - 5) / 2  # of each seed by its own last step
    assert both["B", "d"] == both["A", "e"] == (100, 0, 40, 65)


def test_systems_at_rest_pass():
    found = through(lines("A", REST, REST), lines("B", REST, REST))
    assert (found.closed, found.no_curve) == ("", False)


def test_a_system_that_still_learns_closes_a_comparison_of_a_smaller_effect():
    rising = [40, 60, 64, 65, 66, 69]  # 3 points in the last fifth
    found = through(lines("A", rising, rising), lines("B", REST, REST))
    said = "still learning on d: A rose by 3.0 points in the last fifth of 100 steps; more than 100 steps are needed"
    assert found.closed == said
    assert through(lines("A", rising, rising)[::-1], lines("B", REST, REST)).closed == said
    # Of trainings of 100 and 80 steps the mean of 3 and 10.
    shorter = through(lines("A", rising, [40, 60, 64, 65, 75]), lines("B", REST)).closed
    assert shorter == said.replace("3.0", "6.5")
    assert through(lines("A", REST), lines("B", rising)).closed.startswith("still learning on d: B rose")
    # Seeds are averaged: 3 and 0 are 1.5, less than the effect of 2.
    assert through(lines("A", rising, REST), lines("B", REST, REST)).closed == ""


@pytest.mark.parametrize(
    ("changes", "shut"),
    [
        ({}, True),
        ({"margin": 4.0}, False),
        ({"margin": -4.0}, False),
        ({"within": 2.5}, True),
        ({"within": 4.0}, False),
        ({"effect": -4.0}, False),
        ({"floor": False}, False),
    ],
)
def test_what_counts_is_the_larger_of_effect_and_margin(changes, shut):
    rising = [40, 60, 64, 65, 66, 69]
    assert bool(through(lines("A", rising), lines("B", REST), **changes).closed) == shut


@pytest.mark.parametrize(("last", "shut"), [(66.0, False), (66.1, True)])
def test_a_rise_of_a_point_is_the_noise_of_validation(last, shut):
    rising = lines("A", [40, 60, 64, 65, 65, last]), lines("B", REST)
    assert bool(through(*rising, effect=0.1).closed) == shut
    assert bool(through(*rising, effect=0.1, margin=-0.5).closed) == shut


def test_the_systems_of_a_condition_may_still_learn_but_not_fall():
    rising, falls = [40, 60, 64, 65, 66, 90], [60, 50, 50, 50, 50, 50]
    assert through(lines("A", rising), lines("B", REST), condition=True).closed == ""
    assert "below its own start" in through(lines("A", falls, kept=5), lines("B", REST), condition=True).closed


@pytest.mark.parametrize(("measure", "few", "shut"), [
    ("R@100", 1999, True), ("R@100", 2000, False), ("R@5", 99, True), ("R@5", None, False), ("AP@100", 150, False),
])  # fmt: skip
def test_recall_among_few_candidates_is_no_comparison(measure, few, shut):
    made = Results()
    for system, candidates in (("A", 5000), ("B", few)):
        for other in (measure, "R@7"):  # of which there are few
            made.add_row(experiment="x", system=system, collection="d", split="test", measure=other, value=0.5, seed=0,
                         profile="quick", candidates=candidates if other == measure else 20)  # fmt: skip
    records = Records("quick", PLACES, measure, {"x": made}.get)
    said = f"{measure} among {few} candidates is near its ceiling: k is more than a twentieth of them"
    assert too_deep(records, SPEC) == (said if shut else "")
    each = Evidence(**FOUND, seeds=2, queries=9)
    assert gated(records, SPEC | {"floor": False}, each, condition=False).closed == (said if shut else "")
    assert gated(records, SPEC, each, condition=True).closed == (said if shut else "")


def test_a_comparison_that_is_not_in_points_goes_by_the_noise_of_validation():
    two, little = [40, 60, 64, 65, 66, 68], [40, 60, 64, 65, 66, 66.5]
    assert through(lines("A", two), lines("B", REST), ratio=True, test="fewer").closed != ""
    assert through(lines("A", little), lines("B", REST), ratio=True, test="fewer").closed == ""


@pytest.mark.parametrize("test", sorted(TESTS))
def test_tests_of_courses_times_and_sizes_ask_for_the_gate_themselves(test):
    rising = lines("A", [40, 60, 64, 65, 66, 90]), lines("B", REST)
    assert bool(through(*rising, test=test).closed) == (test in GATED)
    assert (
        through(*rising, test=test, floor=True).closed != "" and through(*rising, test=test, floor=False).closed == ""
    )


def test_a_system_below_its_own_start_is_no_system():
    falls, dips = [60, 50, 50, 50, 50, 50], [60, 59, 59, 59, 59, 59]
    found = through(lines("A", falls, falls, kept=5), lines("B", REST))  # the last weights are kept
    assert found.closed == "below its own start on d: A has 50.0 points on validation, and began with 60.0"
    assert through(lines("A", falls), lines("B", REST)).closed == ""  # the best are the start's
    assert through(lines("A", dips, kept=5), lines("B", REST)).closed == ""  # within the noise
    without_start = lines("A", falls, kept=5).query("step > 0")
    assert failing("A", "d", endings(without_start)["A", "d"], 2.0) == ""


def test_a_curve_on_another_collection_is_not_this_one():
    there = lines("A", [40, 60, 64, 65, 66, 90], collection="e")
    found = through(there, lines("A", REST), lines("B", REST))
    assert (found.closed, found.no_curve) == ("", False)


def test_a_curve_that_was_not_recorded_is_said_of_what_is_trained():
    assert (through().no_curve, through().closed) == (True, "")
    assert through(lines("A", REST)).no_curve
    assert not through(lines("A", REST), trained=("A",)).no_curve and not through(trained=()).no_curve
