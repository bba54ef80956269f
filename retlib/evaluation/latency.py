"""How long one query takes, once everything is warm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from retlib.core.errors import DataError, require

Query = TypeVar("Query")

# Queries that are answered before the clock counts: caches fill, and what compiles at its first call has compiled.
WARM_UP = 10


def milliseconds(answer: Callable[[Query], object], queries: Iterable[Query]) -> np.ndarray:
    """Answer queries one by one, and time each.

    Parameters
    ----------
    answer : callable
        Of one query. Its answer must be there when it returns: a tensor on a GPU is not, an array is.
    queries : iterable
        The first `WARM_UP` are answered once more, beforehand.

    Returns
    -------
    float64 array, shape (queries,)
        Wall-clock milliseconds.

    Raises
    ------
    DataError
        If there is no query.
    """
    queries = list(queries)
    require(len(queries) > 0, "there is no query to time", DataError)
    for query in queries[:WARM_UP]:
        answer(query)
    marks = [time.perf_counter()]
    for query in queries:
        answer(query)
        marks.append(time.perf_counter())
    return np.diff(marks) * 1000


def summary(times: np.ndarray) -> dict[str, float]:
    """Median and 95th percentile of milliseconds, under the names by which they are recorded."""
    return {"latency ms": float(np.median(times)), "latency p95 ms": float(np.percentile(times, 95))}
