"""What samplers and callbacks are made of: pairs or queries, and how these are encoded and searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import DataError, require
from retlib.core.runtime import Clock
from retlib.data.pairs import LabelledQueries, PairSource, rows_of_step
from retlib.data.text import TokenTable
from retlib.retrieval.index import Index

# Encodes the queries of a table: float32, shape (rows, d).
Encode = Callable[[TokenTable], np.ndarray]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a sampler is made of: the pairs of a step, and how queries are encoded and searched."""

    source: PairSource  # `retlib.data.pairs.LabelledQueries` for samplers that choose among all documents
    batch_size: int  # at most; there are never more than queries
    seed: int  # of the order of the queries, and of what is drawn for them
    encode: Encode | None = None  # queries, with the current weights
    index: Callable[[], Index] | None = None  # of the documents; made anew where these are trained, too
    bm25: Callable[[int], np.ndarray] | None = None  # from a depth to BM25's lists of the queries, -1 at their end


class StaleLists:
    """Lists that are fetched every `interval` steps, with the weights of that moment, for the steps before the next.

    The index is asked for at each refresh, the lists every `every` steps only. `depth` is cut to the number of
    documents.
    """

    def __init__(self, inputs: Inputs, interval: int, depth: int, every: int = 1, clock: Clock | None = None) -> None:
        for name, value in {"interval": interval, "depth": depth, "every": every}.items():
            require(value >= 1, f"{name} = {value}: at least 1 is needed")
        self.inputs, self.depth = inputs, depth
        self.interval, self.every, self.clock = interval, every, clock or Clock()
        self._rows_of_step = partial(rows_of_step, len(inputs.source), inputs.batch_size, inputs.seed)
        self._since = -1
        self._queries = self._lists = np.empty(0, dtype=np.int64)

    def at(self, step: int) -> np.ndarray:
        """The lists of a step's queries as the last refresh found them: rows, shape (B, depth), -1 for none."""
        since = step - step % self.interval
        if since != self._since:
            self._refresh(since)
        return self._lists[np.searchsorted(self._queries, self._rows_of_step(step))]

    def _refresh(self, since: int) -> None:
        coming = [step for step in range(since, since + self.interval) if step % self.every == 0]
        self._since, self._queries = since, np.unique([self._rows_of_step(step) for step in coming])
        with self.clock("encoding corpus"):
            index = self.inputs.index()
        fits(index, self.inputs.source)
        with self.clock("encoding queries"):
            encoded = self.inputs.encode(self.inputs.source.queries.take(self._queries))
        with self.clock("search"):
            self._lists = index.search(encoded, self.depth)[1]

    def state(self) -> dict[str, Tensor]:
        """The lists, those of the queries to come among them."""
        parts = {"since": np.array([self._since]), "queries": self._queries, "lists": self._lists}
        return {f"stale/{name}": torch.from_numpy(values) for name, values in parts.items()}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""
        self._since = int(tensors["stale/since"])
        self._queries, self._lists = (tensors[f"stale/{name}"].numpy() for name in ("queries", "lists"))


def fits(index: Index, labelled: LabelledQueries) -> None:
    """Whether an index is of these documents; raises `DataError`."""
    count = len(labelled.documents)
    require(len(index) == count, f"the index has {len(index)} vectors; there are {count} documents", DataError)
    if not isinstance(labelled.documents, TokenTable):
        size = labelled.documents.shape[1]
        wrong = f"the index has vectors of {index.dimension} dimensions; the documents' encodings have {size}"
        require(index.dimension == size, wrong, DataError)
