"""What full retrieval shows of a training, step by step, in chapter 41 (Zhan 2020, figures 1 and 3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable
from retlib.training.negatives import Batch, DeferredBatch, Inputs, StaleLists

CUT = 10  # of the reciprocal rank
PATHS = "paths.safetensors"


@dataclass(frozen=True)
class Watching:
    """What to look at in a training of the query encoder, and how often, in steps; see `Dynamics`."""

    every: int = 1  # between two looks
    interval: int = 200  # between two refreshes of the lists that `overlap stale` compares with
    depth: int = 200  # of recall and overlaps; the paper's
    followed: tuple[str, ...] = ()  # ids of queries whose encodings are kept every `pace` steps, for maps
    pace: int = 20
    version: int = 1  # of what is seen: who changes it raises it


def paths(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return steps (T,) and encodings (T, F, d) of the queries that a training followed; `DataError` without any."""
    require((folder / PATHS).exists(), "no queries were followed in the training of this retriever", DataError)
    tensors = load_file(folder / PATHS)
    return tensors["steps"].numpy(), tensors["encodings"].numpy()


def reciprocal_rank(hits: np.ndarray) -> float:
    """Return the mean over the rows of 1 / rank of the first hit, 0 for a row without one; bool, shape (B, k)."""
    return float((hits.any(axis=1) / (1 + hits.argmax(axis=1))).mean())


def overlap(left: np.ndarray, right: np.ndarray) -> float:
    """Return the mean share of each row of `left`, (B, k), that is in the same row of `right`, (B, m); -1 is nothing.

    A row of `left` that holds nothing counts 0.
    """
    span = 1 + max(left.max(initial=-1), right.max(initial=-1))
    starts = np.arange(len(left))[:, None] * span
    shared = np.isin(left + starts, (right + starts)[right >= 0]) & (left >= 0)
    return float((shared.sum(axis=1) / np.maximum(1, (left >= 0).sum(axis=1))).mean())


class Dynamics:
    """A watch that retrieves for the queries of a step with the weights that the step begins with.

    It gives, as means over the batch: `RR@10` and `R@200`; `overlap BM25` and `overlap stale`, the shares of the 200
    retrieved that are in BM25's top 200, and in the list that was fetched at the first look since the last multiple of
    `interval`. `query_rows` gives token rows of queries by ids.
    """

    def __init__(self, inputs: Inputs, watching: Watching, query_rows: Callable[[Sequence[str]], TokenTable]) -> None:
        self.labelled, self.encode, self.index = inputs.source, inputs.encode, inputs.index()
        self.watching, self.followed = watching, query_rows(watching.followed)
        self.bm25 = inputs.bm25(watching.depth)
        self._stale = StaleLists(inputs, watching.interval, watching.depth, watching.every)
        self.paths: dict[str, Tensor] = {}  # `steps` (T,), and `encodings` of F followed queries at each, (T, F, d)

    def __call__(self, step: int, batch: Batch | DeferredBatch) -> dict[str, float] | None:
        """Return the four measures; None between two looks."""
        if step % self.watching.pace == 0:
            self.follow(step)
        if step % self.watching.every:
            return None
        # Fetched first: at a refresh both lists have the same weights.
        stale, bm25 = self._stale.at(step), self.bm25[batch.rows]
        rows = self.index.search(self.encode(batch.queries), self.watching.depth)[1]
        rows, bm25, stale = (self.labelled.candidates(batch.rows, each) for each in (rows, bm25, stale))
        hits = self.labelled.hits(batch.rows, rows)
        return {
            f"RR@{CUT}": reciprocal_rank(hits[:, :CUT]),
            f"R@{self.watching.depth}": float((hits.sum(axis=1) / self.labelled.relevant.lengths[batch.rows]).mean()),
            "overlap BM25": overlap(rows, bm25),
            "overlap stale": overlap(rows, stale),
        }

    def follow(self, step: int) -> None:
        if self.watching.followed:
            new = {"steps": torch.tensor([step]), "encodings": torch.from_numpy(self.encode(self.followed))[None]}
            self.paths = {name: torch.cat([self.paths.get(name, each[:0]), each]) for name, each in new.items()}

    def end(self, folder: Path, step: int) -> None:
        """Write the paths of the followed queries, which end at this step."""
        self.follow(step)
        if self.paths:
            save_file(self.paths, folder / PATHS)

    def state(self) -> dict[str, Tensor]:
        return {**self._stale.state(), **self.paths}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        self._stale.set_state(tensors)
        self.paths = {name: tensors[name] for name in ("steps", "encodings") if name in tensors}
