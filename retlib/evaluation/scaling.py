"""How search behaves as candidates grow: quality, speed and memory of an index, measured alike for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.retrieval import index
from retlib.retrieval.runs import make_run

Encode = Callable[[Sequence[str]], np.ndarray]


def index_rule(name: str, value: object) -> None:
    """A notebook's rule: [faiss factory, search parameters, most candidates]."""
    valid = isinstance(value, list) and [type(part) for part in value] == [str, dict, int]
    require(valid, f"{name} = {value!r} must be a list: faiss factory, search parameters, most candidates")


@dataclass(frozen=True, eq=False)
class Pool:
    """A task's queries and a growing set of candidates.

    Parameters
    ----------
    task : Collection
    queries : float32 array, shape (Q, d)
        Encodings of the test queries, in the order of `task.split("test")`.
    doc_ids : object array, shape (N,)
        The first ones are the task's test candidates, so that every relevant document is in
        every pool; then its other documents; then distractors.
    vectors : float32 array, shape (N, d)
    """

    task: Collection
    queries: np.ndarray
    doc_ids: np.ndarray
    vectors: np.ndarray

    @property
    def smallest(self) -> int:
        """How many candidates there must be at least: the task's own test candidates."""
        return int((self.task.documents["split"] == "test").sum())


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, size)):
        yield chunk


def gather(task: Collection, encode: Encode, distractors: Iterable[str], most: int) -> Pool:
    """Encode a task's candidates and as many distractors as make `most` candidates in all.

    The distractors are encoded as they stream by; only their vectors are kept.
    """
    documents = task.documents.sort_values("split", key=lambda split: split != "test", kind="stable")
    own = documents.index.to_numpy(dtype=object)[:most]
    parts = [encode(documents["text"].tolist()[:most])]
    wanted = most - len(own)
    with runtime.progress(total=wanted, desc="encoding distractors", unit="text") as bar:
        for chunk in _chunks(islice(distractors, wanted), 20_000):
            parts.append(encode(chunk))
            bar.update(len(chunk))
    vectors = np.concatenate(parts)
    others = np.array([f"distractor-{i}" for i in range(len(vectors) - len(own))], dtype=object)
    queries = encode(task.split("test")["text"].tolist())
    return Pool(task, queries, np.concatenate([own, others]), vectors)


@dataclass(frozen=True, eq=False)
class Measured:
    """What one index does on one pool.

    Parameters
    ----------
    run : DataFrame
        The top 100 of every test query.
    build_seconds : float
    seconds : float
        Of a search for the timed queries, the median of its repetitions.
    queries : int
        How many queries were timed.
    size_bytes : int
        Of the index.
    ap : float
        Mean AP@100 over the test queries.
    """

    run: pd.DataFrame
    build_seconds: float
    seconds: float
    queries: int
    size_bytes: int

    ap: float

    def numbers(self) -> dict[str, float]:
        """What a table shows: quality in points of a hundred, speed, size."""
        return {
            "AP@100": 100 * self.ap,
            "queries/s": self.queries / self.seconds,
            "MB": self.size_bytes / 1e6,
            "build seconds": self.build_seconds,
        }


def measure(
    pool: Pool,
    size: int,
    factory: str,
    search: Mapping[str, float],
    batch: int = 1000,
    repeats: int = 3,
    depth: int = 100,
) -> Measured:
    """Build an index over the first `size` candidates, search it for all test queries, and time it.

    Parameters
    ----------
    factory, search
        See `retlib.retrieval.index.build`.
    batch : int
        Queries that are searched for at once when time is taken: the first of the task, one
        batch, warm.
    repeats : int
        How often; the median counts.
    """
    own, most = pool.smallest, len(pool.doc_ids)
    wrong = f"size = {size} is not between {own}, the task's test candidates, and {most}, all there are"
    require(own <= size <= most, wrong, DataError)
    with runtime.Stopwatch() as building:
        built = index.build(factory, pool.vectors[:size], search=search)
    scores, rows = built.search(pool.queries, depth)
    timed = pool.queries[:batch]
    seconds = []
    for _ in range(repeats):
        with runtime.Stopwatch() as searching:
            built.search(timed, depth)
        seconds.append(searching.seconds)
    task, ids = pool.task, pool.doc_ids[:size]
    run = make_run(task.split("test").index, ids, scores, rows)
    ap = measures.evaluate(run, task.judgments("test"), ["AP@100"])["value"].mean()
    return Measured(run, building.seconds, float(np.median(seconds)), len(timed), built.size_bytes, float(ap))


def against_exact(points: pd.DataFrame) -> pd.DataFrame:
    """Points with what each index loses and gains against exhaustive search on the same pool.

    Parameters
    ----------
    points : DataFrame
        Columns `seed`, `candidates`, `index` and what `Measured.numbers` gives.
    """
    exact = points[points["index"] == "exact"].set_index(["seed", "candidates"])
    same = pd.MultiIndex.from_frame(points[["seed", "candidates"]])
    return points.assign(
        **{
            "loss": exact["AP@100"].reindex(same).to_numpy() - points["AP@100"],
            "speed-up": points["queries/s"] / exact["queries/s"].reindex(same).to_numpy(),
        }
    )
