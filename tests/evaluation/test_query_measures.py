"""Measures of generated queries, by hand."""

import numpy as np
import pandas as pd
import pytest

from retlib.core.errors import DataError
from retlib.evaluation.measures import query_statistics as statistics
from retlib.evaluation.measures import round_trip

PASSAGES = pd.Series({
    "x": "the bicycle has a tyre and a chain",
    "y": "bread is made of flour, water and salt",
    "z": "a violin has four strings",
})  # fmt: skip


def frame(*rows):
    return pd.DataFrame(rows, columns=["passage_id", "query", "log_likelihood"])


GENERATED = frame(("x", "bicycle tyre", -1.0), ("x", "bicycle chain", -2.0), ("y", "bread flour salt", -3.0),
                  ("y", "violin strings", -4.0))  # fmt: skip


def test_round_trip_by_hand():
    assert round_trip(GENERATED, PASSAGES).tolist() == [True, True, True, False]
    others = frame(("x", "a bicycle", 0.0), ("z", "strings", 0.0), ("y", "nothing known", 0.0))
    found = round_trip(others.set_axis([5, 3, 9]), PASSAGES)
    assert found.index.tolist() == [5, 3, 9] and found.tolist() == [True, True, False]


def test_statistics_by_hand():
    found = statistics(GENERATED, PASSAGES)
    assert found["passages"] == 3 and found["pairs"] == 4 and found["queries"] == 4
    assert found["pairs per passage"] == pytest.approx(4 / 3)
    assert found["words per query"] == pytest.approx((2 + 2 + 3 + 2) / 4)
    # x: bicycle, tyre, chain of four words; y: five of five.
    assert found["distinct-1"] == pytest.approx((3 / 4 + 1) / 2)
    assert found["distinct-2"] == 1
    assert found["overlap"] == pytest.approx((1 + 1 + 1 + 0) / 4)
    assert found["round trip"] == pytest.approx(3 / 4)
    found = statistics(frame(("x", "tyre", 0.0), ("y", "?", 0.0)), PASSAGES)  # without pairs of words
    assert np.isnan(found["distinct-2"]) and found["distinct-1"] == 1 and found["overlap"] == 1


def test_what_cannot_be_measured_is_named():
    for measure in (round_trip, statistics):
        with pytest.raises(DataError, match="'q'"):
            measure(frame(("q", "tyre", 0.0)), PASSAGES)
    with pytest.raises(DataError):
        statistics(GENERATED[:0], PASSAGES)
