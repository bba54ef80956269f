"""Quality, speed and memory of an index as candidates grow, measured alike for all (chapter 14)."""

import timeit
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.evaluation.measures import evaluate
from retlib.models.retriever import Retriever
from retlib.retrieval import index
from retlib.retrieval.runs import make_run


class Pool(NamedTuple):
    """A task's test queries and candidates, encoded, its test candidates first."""

    task: Collection
    queries: np.ndarray
    doc_ids: np.ndarray
    vectors: np.ndarray


def gather(task: Collection, retriever: Retriever, distractors: Iterable[str], most: int) -> Pool:
    """Return a pool of a task's candidates and, up to `most` in all, of distractors, encoded as they stream by."""
    documents = task.documents.sort_values("split", key=lambda split: split != "test", kind="stable")[:most]
    texts = islice(chain(documents["text"], distractors), most)
    blocks = iter(lambda: list(islice(texts, 20_000)), [])
    blocks = runtime.progress(blocks, total=-(-most // 20_000), desc="encoding candidates", unit="block")
    vectors = np.concatenate([retriever.encode_texts(block) for block in blocks])
    others = (f"distractor-{number}" for number in range(len(vectors) - len(documents)))
    queries = retriever.encode_queries(retriever.tokenize(task.split("test")["text"].tolist()))
    return Pool(task, queries, np.array([*documents.index, *others], dtype=object), vectors)


def measure(pool: Pool, size: int, factory: str, search: Mapping[str, float], batch: int) -> tuple[pd.DataFrame, dict]:
    """Return the run of the top 100 of an index over the first `size` candidates, and its quality, speed and size.

    Quality is in points of a hundred; times are medians of three, over the first `batch` queries at once, warm.
    """
    own, most = int((pool.task.documents["split"] == "test").sum()), len(pool.doc_ids)
    wrong = f"size = {size} is not between {own}, the task's test candidates, and {most}, all there are"
    require(own <= size <= most, wrong, DataError)
    with runtime.Stopwatch() as building:
        built = index.build(factory, pool.vectors[:size], search=search)
    run = make_run(pool.task.split("test").index, pool.doc_ids[:size], *built.search(pool.queries, 100))
    timed = pool.queries[:batch]
    seconds = np.median(timeit.repeat(lambda: built.search(timed, 100), number=1, repeat=3))
    return run, {
        "AP@100": 100 * float(evaluate(run, pool.task.judgments("test"), ["AP@100"])["value"].mean()),
        "queries/s": len(timed) / float(seconds),
        "MB": built.size_bytes / 1e6,
        "build seconds": building.seconds,
    }


def against_exact(points: pd.DataFrame) -> pd.DataFrame:
    """Return points (`seed`, `candidates`, `index`, numbers of `measure`) with loss and gain against exact search."""
    exact = points[points["index"] == "exact"].set_index(["seed", "candidates"])[["AP@100", "queries/s"]]
    exact = points[["seed", "candidates"]].join(exact, on=["seed", "candidates"])
    gained = {"loss": exact["AP@100"] - points["AP@100"], "speed-up": points["queries/s"] / exact["queries/s"]}
    return points.assign(**gained)
