"""The gate on learning curves whose truth is known: still rising, below their start, at rest, or not recorded."""

import json

import numpy as np
import pandas as pd
import pytest
from recorded import learned, number

from retlib.evaluation.results import Results
from retlib.report.ledger import NOISE, endings, gate, too_deep

ENDING = ["steps", "rise", "start", "kept"]

REST = [40, 60, 64, 65, 65, 65]  # at steps 0, 20, 40, 60, 80, 100: nothing in the last fifth
RISING = [40, 60, 64, 65, 66, 69]  # 3 points in the last fifth


def judged(curves, large=NOISE):
    return gate(Results(tables={"learning": curves}), "A", "d", large)[0]


def blind(made, system):
    return gate(made, system, "d", NOISE)[1]


def ends(curves, system="A", collection="d"):
    """Steps, rise, score at the start and of the kept weights."""
    return endings(Results(tables={"learning": curves})).loc[(system, collection), ENDING].tolist()


def test_the_rise_of_the_last_fifth_is_over_all_that_was_before():
    ended = learned("A", [10, 50, 70, 60, 65, 71])  # step 80 of 100 ends the first four fifths
    assert ends(ended) == ends(ended[::-1]) == [100, 71 - 70, 10, 71]
    assert ends(ended[:5]) == pytest.approx([80, 65 - 70, 10, np.nan], nan_ok=True)  # stopped at step 80
    later = ended.assign(step=[0, 50, 60, 70, 90, 100], score=[10, 50, 40, 30, 71, 68])
    assert ends(later)[1] == 71 - 50  # the best, which need not be the last


def test_each_seed_ends_at_its_own_last_step_and_each_system_and_collection_by_itself():
    ended, stopped = learned("A", [10, 50, 70, 60, 65, 71]), learned("A", [10, 50, 70, 60, 65]).assign(seed=1)
    every = pd.concat([ended, stopped, learned("B", REST), learned("A", REST, collection="e")])
    assert ends(every)[:2] == [100, (1 - 5) / 2] and ends(every, "B") == ends(every, "A", "e") == [100, 0, 40, 65]


@pytest.mark.parametrize(
    ("curves", "large", "shut"),
    [
        ((REST, REST), 1.0, False),
        ((RISING, RISING), 2.0, True),
        ((RISING, RISING), 4.0, False),  # less than what is asked about
        ((RISING, REST), 2.0, False),  # seeds are averaged: 1.5
        ((RISING, [40, 60, 64, 65, 75]), 6.4, True),  # of trainings of 100 and 80 steps the mean of 3 and 10
        ((RISING, [40, 60, 64, 65, 75]), 6.5, False),
        (([40, 60, 64, 65, 65, 66.0],), NOISE, False),
        (([40, 60, 64, 65, 65, 66.1],), NOISE, True),
        (([40, 60, 64, 65, 66, 90],), np.inf, False),  # as of a condition
    ],
)
def test_what_rises_by_more_than_is_asked_about_still_learns(curves, large, shut):
    found = judged(learned("A", *curves), large)
    assert ("still learning" in found) == bool(found) == shut


@pytest.mark.parametrize(
    ("curve", "kept", "shut"),
    [
        ([60, 50, 50, 50, 50, 50], 5, True),  # the last weights are kept
        ([60, 50, 50, 50, 50, 50], None, False),  # the best are the start's
        ([60, 59, 59, 59, 59, 59], 5, False),  # within the noise
        ([60, 58.9, 58.9, 58.9, 58.9, 58.9], 5, True),
    ],
)
def test_a_system_below_its_own_start_is_no_system(curve, kept, shut):
    curves = learned("A", curve, kept=kept)
    found = judged(curves, np.inf)
    assert ("below its own start" in found) == bool(found) == shut
    assert judged(curves.query("step > 0"), np.inf) == ""  # where it began is not known


def test_recall_among_few_candidates_tells_little():
    places = ("R@100", 1999), ("R@100", 2000), ("R@5", 99), ("R@5", np.inf), ("AP@100", 150), ("RR@10", 20)
    assert [bool(too_deep(*place)) for place in places] == [True, False, True, False, False, False]


@pytest.mark.parametrize(
    ("settings", "is_blind"),
    [
        ({"stages": [{"decay": True}, {"decay": False}]}, False),
        ({"stages": [{"decay": False}, {"decay": True}]}, True),
        ({"stages": []}, False),
        ({}, False),
    ],
)
def test_the_gate_is_blind_where_the_rate_has_decayed(settings, is_blind):
    made = number(Results(), "A", {0: 0.5}, steps=80, parameters=json.dumps(settings))
    made.tables["learning"] = learned("A", REST)
    assert bool(blind(made, "A")) == is_blind


def test_the_gate_is_blind_where_what_is_trained_has_no_curve():
    made = number(number(Results(), "A", {0: 0.5}, steps=80), "BM25", {0: 0.5})
    assert blind(made, "A") and blind(made, "BM25") == ""
    made.tables["learning"] = learned("A", REST, collection="e")
    assert blind(made, "A") and not judged(made.tables["learning"])
