"""Times by a clock that the tests move."""

import numpy as np
import pytest

from retlib.core.errors import DataError
from retlib.evaluation import latency


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test adds them."""
    seconds = [0.0]
    monkeypatch.setattr(latency.time, "perf_counter", lambda: seconds[0])
    return seconds


def test_each_query_is_timed_alone_and_the_first_ones_are_answered_before(clock, monkeypatch):
    monkeypatch.setattr(latency, "WARM_UP", 2)
    answered = []

    def answer(query):
        # What comes first is slow: it must not be seen.
        clock[0] += 100 if len(answered) < 2 else query
        answered.append(query)

    times = latency.milliseconds(answer, iter([0.25, 0.5, 0.125]))
    assert answered == [0.25, 0.5, 0.25, 0.5, 0.125]
    assert times.dtype == np.float64 and times.tolist() == [250, 500, 125]


def test_no_query_is_an_error():
    with pytest.raises(DataError, match="no query"):
        latency.milliseconds(len, [])


def test_the_summary_by_hand():
    assert latency.summary(np.arange(101.0)) == {"latency ms": 50, "latency p95 ms": 95}
