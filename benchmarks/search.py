"""Vectors: exact search beside torch, faiss and numpy, compressed and approximate indexes, and the search in training.

The vectors lie around centres, a centre to twenty of them, and the queries near one vector each, which counts as the
relevant one. A graph (HNSW) is left out: to link a million vectors takes longer than all other cases together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks import inputs
from benchmarks.harness import CASES, Duel, Line, Scale, timed
from retlib.core import runtime
from retlib.data.text import TokenTable
from retlib.data.tokenized import LabelledQueries
from retlib.evaluation.measures import rows_reciprocal_rank
from retlib.models.encoders import DualEncoder, encode
from retlib.models.transformer import Transformer
from retlib.retrieval import index
from retlib.training.negatives import Inputs, Retrieved
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

DEPTH, BLOCK = 100, 256  # results of a query, and queries of one matrix product
APART = 1e-3  # share of results that another search does not have: near ties, in another order of sums
RETRIEVED, QUERY, DOCUMENT = 50, 12, 60  # documents of an LTRe step, tokens of a query and of a document

# Each with its search parameters, at one and at a million vectors: lists grow with the root of their number.
INDEXES = (
    ("Exact", {}),
    ("IVF{lists},Flat", {"nprobe": 16}),
    ("IVF{lists},SQ8", {"nprobe": 16}),
    ("IVF{lists},PQ64x4fs,RFlat", {"nprobe": 32, "k_factor": 4}),
    ("IVF{lists},PQ32", {"nprobe": 32}),
    ("PQ64x4fs,RFlat", {"k_factor": 4}),
    ("OPQ32,PQ32x4fs", {}),
)


def torch_search(documents: torch.Tensor, queries: np.ndarray, k: int) -> np.ndarray:
    """Product and top-k, block by block."""
    blocks = torch.from_numpy(queries).split(BLOCK)
    return torch.cat([(block @ documents.T).topk(k).indices for block in blocks]).numpy()


def numpy_search(documents: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """Product, partition, and a sort of what is left, block by block."""
    found = []
    for start in range(0, len(queries), BLOCK):
        scores = -(queries[start : start + BLOCK] @ documents.T)
        best = np.argpartition(scores, k - 1, axis=1)[:, :k]
        order = np.take_along_axis(scores, best, axis=1).argsort(axis=1)
        found.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(found)


def faiss_search(documents: np.ndarray) -> Callable[[np.ndarray, int], np.ndarray]:
    """faiss's flat index."""
    import faiss

    flat = faiss.IndexFlatIP(documents.shape[1])
    flat.add(documents)
    return lambda queries, k: flat.search(queries, k)[1]


def lost(mine: np.ndarray, other: np.ndarray) -> float:
    """The share of ours that another search did not find."""
    return 1 - recall(mine, other)


def recall(true: np.ndarray, found: np.ndarray) -> float:
    """The share of the true results that were found."""
    return float(np.mean([np.isin(left, right).mean() for left, right in zip(true, found, strict=True)]))


@CASES.register("04-exact-search")
def exact_search(scale: Scale) -> Iterator[Duel]:
    """Many queries at once, and as many as a training step asks."""
    for size in scale((50_000, 200_000, 1_000_000), (2_000,)):
        documents = inputs.vectors(size)
        mine, faiss = index.build(index.EXACT, documents), faiss_search(documents)
        for count, k in ((scale(256, 32), DEPTH), (64, RETRIEVED)):
            queries = inputs.asked(documents, count)[0]
            peers = {
                "torch": partial(torch_search, torch.from_numpy(documents), queries, k),
                "faiss Flat": partial(faiss, queries, k),
                "numpy": partial(numpy_search, documents, queries, k),
            }
            search = partial(mine.search, queries, k)
            what = f"{k} best of {size:,} for {count} queries"
            yield Duel(what, "queries/s", count, lambda search=search: search()[1], peers, lost, APART)


@CASES.register("08-indexes")
def indexes(scale: Scale) -> Iterator[Line]:
    """Bytes, time and quality of each index over a million vectors."""
    documents = inputs.vectors(scale(1_000_000, 4_000))
    queries, relevant = inputs.asked(documents, scale(256, 32))
    true = index.build(index.EXACT, documents).search(queries, DEPTH)[1]
    for pattern, search in INDEXES[: scale(None, 4)]:
        factory = pattern.format(lists=scale(1024, 16))
        with runtime.Stopwatch() as building:
            built = index.build(factory, documents, search)
        built.search(queries[:8], DEPTH)
        rounds = [timed(lambda built=built: built.search(queries, DEPTH)) for _ in range(3)]
        scores, rows = rounds[0].output
        yield Line("indexes", {
            "index": factory, **{name: search.get(name) for name in ("nprobe", "k_factor")}, "vectors": len(documents),
            "bytes a document": built.size_bytes / len(documents), "build seconds": building.seconds,
            "queries/s": len(queries) / float(np.median([each.seconds for each in rounds])),
            "recall@100": 100 * recall(true, rows),
            "RR@10": 100 * rows_reciprocal_rank(scores[:, :10], rows[:, :10] == relevant[:, None]),
        })  # fmt: skip


def query_encoder() -> DualEncoder:
    """Two layers over made-up tokens."""
    runtime.set_seeds(0)
    return DualEncoder(
        Transformer.from_scratch(inputs.wordpiece(), 2, inputs.DIMENSION, inputs.DIMENSION), similarity="dot"
    )


def ltre_steps(documents: np.ndarray, built: index.Index, steps: int, batch: int = 64) -> dict[str, float]:
    """Seconds of an LTRe step in its parts; what is learned means nothing, and the time does not depend on it."""
    table = inputs.token_rows(4096, QUERY)
    relevant = np.random.default_rng(2).integers(len(documents), size=(len(table), 1))
    judged = LabelledQueries(table, TokenTable.from_rows(relevant.tolist()), documents)
    sampler = Retrieved(Inputs(judged, batch, 0, index=lambda: built), RETRIEVED)
    schedule = Schedule(steps=steps, learning_rate=1e-4, optimizer="adamw", evaluations=1)
    history = train(RetrievalTask(query_encoder(), sampler, "lambdarank-mrr"), schedule, lambda: 0.0, seed=0)
    return (history.timed / steps).to_dict()


@CASES.register("06-ltre-step")
def ltre_step(scale: Scale) -> Iterator[Line]:
    """What the parts of a step of LTRe take, and what ANCE's refresh would, as the corpus grows."""
    model, some = query_encoder(), inputs.token_rows(scale(2048, 64), DOCUMENT)
    encode(model.documents, some.take(np.arange(32)))
    per_document = timed(lambda: encode(model.documents, some)).seconds / len(some)
    for size in scale((10_000, 100_000, 1_000_000), (1_000, 2_000)):
        documents = inputs.vectors(size)
        refresh = {"encoding the corpus, by the seconds of each document": per_document * size}
        for pattern, search in (INDEXES[0], INDEXES[3], INDEXES[6]):
            factory = pattern.format(lists=min(1024, size // 40))
            with runtime.Stopwatch() as building:
                built = index.build(factory, documents, search)
            ltre_steps(documents, built, 1)
            steps = scale(20 if size < 1_000_000 else 5, 2)
            parts = ltre_steps(documents, built, steps)
            told = {"documents": size, "index": factory.partition(",")[0].rstrip("0123456789"), "factory": factory}
            for part, seconds in parts.items():
                yield Line("ltre", told | {"of": "LTRe's step", "part": part, "seconds": seconds})
            for part, seconds in (refresh | {"building the index": building.seconds}).items():
                yield Line("ltre", told | {"of": "ANCE's refresh", "part": part, "seconds": seconds})
