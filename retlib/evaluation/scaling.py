"""How search behaves as candidates grow: quality, speed and memory of an index, measured alike for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.evaluation.measures import evaluate
from retlib.models.retriever import Retriever
from retlib.retrieval import index
from retlib.retrieval.runs import make_run


@dataclass(frozen=True, eq=False)
class Pool:
    """A task's queries and a growing set of candidates."""

    task: Collection
    queries: np.ndarray  # encodings of its test queries, in their order
    doc_ids: np.ndarray  # its test candidates first, so that each pool has all relevant documents; then all others
    vectors: np.ndarray


def gather(task: Collection, retriever: Retriever, distractors: Iterable[str], most: int) -> Pool:
    """Return a pool of a task's candidates and, up to `most` in all, of distractors, encoded as they stream by."""
    documents = task.documents.sort_values("split", key=lambda split: split != "test", kind="stable")[:most]
    parts = [retriever.encode_texts(documents["text"].tolist())]
    wanted = most - len(documents)
    with runtime.progress(total=wanted, desc="encoding distractors", unit="text") as bar:
        added = islice(distractors, wanted)
        for chunk in iter(lambda: list(islice(added, 20_000)), []):
            parts.append(retriever.encode_texts(chunk))
            bar.update(len(chunk))
    vectors = np.concatenate(parts)
    others = np.array([f"distractor-{i}" for i in range(len(vectors) - len(documents))], dtype=object)
    queries = retriever.encode_queries(retriever.tokenize(task.split("test")["text"].tolist()))
    return Pool(task, queries, np.concatenate([documents.index.to_numpy(dtype=object), others]), vectors)


def measure(
    pool: Pool, size: int, factory: str, search: Mapping[str, float], batch: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Build an index over the first `size` candidates, search it for all test queries, and time it.

    Return the run of the top 100 and the numbers of a table: quality in points of a hundred, speed, size. Times are
    medians of three, over the first `batch` queries at once, warm.
    """
    own, most = int((pool.task.documents["split"] == "test").sum()), len(pool.doc_ids)
    wrong = f"size = {size} is not between {own}, the task's test candidates, and {most}, all there are"
    require(own <= size <= most, wrong, DataError)
    with runtime.Stopwatch() as building:
        built = index.build(factory, pool.vectors[:size], search=search)
    found = built.search(pool.queries, 100)
    timed, seconds = pool.queries[:batch], []
    for _ in range(3):
        with runtime.Stopwatch() as searching:
            built.search(timed, 100)
        seconds.append(searching.seconds)
    run = make_run(pool.task.split("test").index, pool.doc_ids[:size], *found)
    ap = evaluate(run, pool.task.judgments("test"), ["AP@100"])["value"].mean()
    numbers = {
        "AP@100": 100 * float(ap),
        "queries/s": len(timed) / float(np.median(seconds)),
        "MB": built.size_bytes / 1e6,
        "build seconds": building.seconds,
    }
    return run, numbers


def against_exact(points: pd.DataFrame) -> pd.DataFrame:
    """Return points with what each index loses and gains against exhaustive search on the same pool.

    They have columns `seed`, `candidates`, `index` and the numbers of `measure`.
    """
    exact = points[points["index"] == "exact"].set_index(["seed", "candidates"])
    same = pd.MultiIndex.from_frame(points[["seed", "candidates"]])
    return points.assign(
        **{
            "loss": exact["AP@100"].reindex(same).to_numpy() - points["AP@100"],
            "speed-up": points["queries/s"] / exact["queries/s"].reindex(same).to_numpy(),
        }
    )
