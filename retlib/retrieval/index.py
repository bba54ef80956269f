"""Exact and approximate search for the largest inner products (Gillick 2018, section 3.2); chapters 14, 43-45, 62."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError, require, require_one_of
from retlib.retrieval.runs import Lists, best

EXACT = "Exact"

# Queries of one matrix product, and scores of it that are kept at once: 64 MiB.
QUERY_BLOCK, MOST_SCORES = 256, 2**24
# Groups of scores for each result that is asked for; more make a closer bar, and take longer.
GROUPS = 8
# Of late interaction: queries that are searched together, and tokens of documents in one matrix product. Those of a
# block stay in the cache, which halves the time of 65,536.
LATE_QUERIES, LATE_TOKENS = 16, 8_192
# Of the sample that faiss trains on, and of k-means; rows of that sample, and rows that are added at once.
SEED, ROWS = 0, 65_536
# Iterations of k-means, for lists and codes, and of OPQ and of codes within: faiss's take three times as long.
LISTS, CODES, ROTATION, ROTATED_CODES = 10, 20, 10, 4


class Index:
    """Vectors that can be searched for those with the largest inner product.

    >>> scores, rows = build("Exact", np.eye(3)).search(np.array([[0, 2, 1]]), k=2)
    >>> scores.tolist(), rows.tolist()
    ([[2.0, 1.0]], [[1, 2]])
    """

    def __init__(self, dimension: int, rows: int) -> None:
        self.dimension, self.rows = dimension, rows
        self.vector_bytes = 4 * dimension  # of one vector's code, without its number, centroids and links

    def __len__(self) -> int:
        return self.rows

    def search(self, queries: np.ndarray, k: int) -> Lists:
        """Return scores and rows of the k vectors with the largest inner product with each query, best first.

        Scores, float32, and rows, int64, are (Q, min(k, N)). Equal scores are in the order of rows. Where an
        approximate search found fewer, the rest has row -1 and score -inf.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        require(bool(np.isfinite(queries).all()), "the queries hold NaN or infinity", DataError)
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        fits = queries.shape[1] == self.dimension
        require(fits, f"queries have {queries.shape[1]} dimensions; the index has {self.dimension}")
        return self._search(queries, min(k, len(self)))


def build(factory: str, vectors: np.ndarray, search: Mapping[str, float] | None = None) -> Index:
    """Return an index of vectors, float32 of shape (N, d).

    `factory` is "Exact", which keeps no copy of the vectors, or a string of faiss's `index_factory`, such as
    "PCAR224,PQ32x4fs_64,RFlat" or "HNSW32". faiss trains on one thread, so that the same vectors give the same bytes.
    `search` sets `nprobe` (IVF: lists that are searched), `efSearch` (HNSW: width of the search), `k_factor` (RFlat,
    Refine: this many times k results are scored again).
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    require(len(vectors) > 0, "there are no vectors to index", DataError)
    require(np.isfinite(vectors.sum(dtype=np.float64)), "the vectors hold NaN or infinity", DataError)
    require(factory != EXACT or not search, f"search = {search}: {EXACT!r} has no search parameters")
    return Exact(vectors) if factory == EXACT else Faiss(_trained(factory, vectors), search)


def restored(content: np.ndarray, search: Mapping[str, float] | None = None) -> Index:
    """Return an index of faiss as `build` made it, from its `content`."""
    return Faiss(faiss.deserialize_index(content), search)


def export(index: Index, folder: Path, doc_ids: Sequence[str]) -> None:
    """Write an index for others: ``index.faiss``, which `faiss.read_index` opens, and ``documents.txt``.

    The latter has an id of each row on a line: `DataError` if one has several. Exact becomes faiss's flat index.
    """
    broken = [name for name in doc_ids if name.splitlines() != [name]]
    require(not broken, f"the ids {broken[:3]} are no single lines", DataError)
    folder.mkdir(parents=True, exist_ok=True)
    made = build("Flat", index.vectors) if isinstance(index, Exact) else index
    (folder / "index.faiss").write_bytes(made.content.tobytes())
    (folder / "documents.txt").write_text("\n".join(doc_ids) + "\n", encoding="utf-8")


def inner_products(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the inner product of each vector with one query, (n,), the same wherever a vector stands.

    BLAS sums in another order at the ragged end of a matrix, for another number of queries, and on another processor.
    Here products are exact in 64 bits, and their sum, whose order depends on d alone, is rounded once.
    """
    return np.einsum("nd,d->n", vectors, query, dtype=np.float64).astype(np.float32)


class Exact(Index):
    """Every query against every vector.

    A matrix product in 32 bits is off by at most e = d 2⁻²⁴ ‖q‖ ‖v‖, whatever the order of its sums. If k of its scores
    reach b, the k-th best true score is at least b - e, and each of the k best has a score of at least b - 2 e: only
    those few are scored again by `inner_products`, and no result is lost. faiss's flat index keeps no ties.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__(vectors.shape[1], len(vectors))
        self.vectors, self.size_bytes = vectors, vectors.nbytes
        longest = math.sqrt(np.einsum("nd,nd->n", vectors, vectors).max())
        # Twice e for a query of length 1, and a little more for the rounding of lengths and of the bar.
        self._slack = 2 * (self.dimension + 4) * 2.0**-24 * longest

    def _search(self, queries: np.ndarray, k: int) -> Lists:
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), k), -1, dtype=np.int64)
        for first in range(0, len(queries), QUERY_BLOCK):
            block = queries[first : first + QUERY_BLOCK]
            slack, size = self._slack * np.linalg.norm(block, axis=1), MOST_SCORES // len(block)
            for start in range(0, len(self), size):
                coarse = _products(block, self.vectors[start : start + size])
                bars = np.maximum(_bar(coarse, k), scores[first : first + QUERY_BLOCK, -1]) - slack
                for query, bar in enumerate(bars):
                    # "Not below" rather than "reaches": a sum that overflowed to NaN is scored again, too.
                    found, place = start + np.flatnonzero(~(coarse[query] < bar)), first + query
                    again = np.append(scores[place], inner_products(self.vectors[found], block[query]))
                    # Rows come in order, so an equal score that was found before stays before.
                    order = np.argsort(-again, kind="stable")[:k]
                    scores[place], rows[place] = again[order], np.append(rows[place], found)[order]
        return scores, rows


def _products(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    # With several threads by torch: those of numpy's library keep their cores busy for a while after a product, so that
    # the step of a training that follows takes up to four times as long.
    if runtime.threads() == 1:
        return queries @ vectors.T
    import torch  # here, so that an index is read without it

    with torch.autocast("cpu", enabled=False):
        return (torch.from_numpy(queries) @ torch.from_numpy(vectors).T).numpy()


def _bar(scores: np.ndarray, k: int) -> np.ndarray:
    # What at least k of each query's scores, (queries, rows), reach, and few more do: shape (queries,).
    queries, rows = scores.shape
    if rows <= k:
        return np.full(queries, -np.inf, dtype=np.float32)
    # The k-th best of the best of groups, found in a fifteenth of the time that the k-th best of all takes.
    size = max(1, rows // (GROUPS * k))
    groups = rows // size
    tops = scores[:, : groups * size].reshape(queries, size, groups).max(axis=1)
    return np.partition(tops, groups - k, axis=1)[:, groups - k]


class Faiss(Index):
    """An index that faiss's `index_factory` makes, on inner products."""

    def __init__(self, index: Any, search: Mapping[str, float] | None) -> None:
        super().__init__(index.d, index.ntotal)
        self._index = index
        with suppress(RuntimeError):  # of a graph, over whole vectors
            self.vector_bytes = index.sa_code_size()
        parts = [getattr(part, "hnsw", part) for part in _parts(index)]
        names = "nprobe", "efSearch", "k_factor"
        holders = {name: part for part in parts for name in names if hasattr(part, name)}
        for name, value in (search or {}).items():
            require_one_of("search parameter", name, holders)
            require(value >= 1, f"{name} = {value}: at least 1 is needed")
            setattr(holders[name], name, value)

    @property
    def content(self) -> np.ndarray:
        """What `faiss.write_index` writes, uint8."""
        return faiss.serialize_index(self._index)

    @property
    def size_bytes(self) -> int:
        """What the index takes, in memory as on disk."""
        return self.content.nbytes

    def _search(self, queries: np.ndarray, k: int) -> Lists:
        scores, rows = self._index.search(queries, k)
        return best(np.where(rows < 0, -np.inf, scores), rows, k)


def _trained(factory: str, vectors: np.ndarray) -> Any:
    sample = vectors
    if len(vectors) > ROWS:
        sample = vectors[np.sort(np.random.default_rng(SEED).choice(len(vectors), ROWS, replace=False))]
    try:
        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        _quantizers = _set_training(index)  # which live as long as the training, which points to them
        with threadpool_limits(1):
            for chain in (part.chain for part in _parts(index) if isinstance(part, faiss.IndexPreTransform)):
                # A PCA that stands first is trained without the mean that faiss subtracts: a shift changes products.
                if isinstance(first := faiss.downcast_VectorTransform(chain.at(0)), faiss.PCAMatrix):
                    first.train(sample)
                    faiss.copy_array_to_vector(np.zeros(first.d_out, dtype=np.float32), first.b)
            index.train(sample)
            for start in range(0, len(vectors), ROWS):
                index.add(vectors[start : start + ROWS])
    except RuntimeError as error:
        # Without the C++ function and the place in its source that faiss's message begins with.
        reason = re.sub(r"^Error in .*? at \S+:\d+: (Error: )?", "", str(error), flags=re.DOTALL).strip()
        raise SettingError(
            f"factory = {factory!r} cannot index {len(vectors)} vectors of {vectors.shape[1]} dimensions: {reason}. "
            f"Valid: {EXACT!r}, or a string of faiss's index_factory, whose PQm and OPQm need an m that divides these."
        ) from error
    return index


def _parts(index: Any) -> Iterator[Any]:
    # A faiss index and everything it is made of, outermost first.
    index = faiss.downcast_index(index)
    yield index
    if isinstance(index, faiss.IndexPreTransform):
        yield from (faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size()))
    for name in ("index", "base_index", "quantizer", "storage"):
        if getattr(index, name, None) is not None:
            yield from _parts(getattr(index, name))


def _set_training(index: Any) -> list[Any]:
    # Sets what is trained of an index, and how long; returns the quantizers that OPQ learns its rotation for.
    parts, quantizers = list(_parts(index)), []
    bits = [part.pq.nbits for part in parts if hasattr(part, "pq") and hasattr(part, "code_size")] or [8]
    for part in parts:
        if hasattr(part, "niter_pq"):  # for codes of the index's bits; faiss takes 8 for all, 5 times as slow as 4
            quantizers.append(faiss.ProductQuantizer(part.d_out, part.M, bits[0]))
            part.pq, part.niter, part.niter_pq = quantizers[-1], ROTATION, ROTATED_CODES
    for part in [*parts, *quantizers]:
        if hasattr(part, "do_polysemous_training"):
            # It orders centroids for a search by Hamming distance, which we do not do, and takes a minute.
            part.do_polysemous_training = False
        # An IVF index and a product quantizer both call their settings `cp`.
        own = LISTS if hasattr(part, "nlist") else CODES
        for holder, iterations in ((part, own), (getattr(part, "pq", None), CODES)):
            if hasattr(holder, "cp"):
                holder.cp.niter, holder.cp.seed = iterations, SEED
                # Below 39 rows a centroid faiss warns on the standard error; below 1 it raises.
                holder.cp.min_points_per_centroid = 1
    return quantizers


class TokenIndex:
    """Late interaction (Khattab and Zaharia 2020): the vectors of all tokens, searched exhaustively.

    Document i has the rows from ``offsets[i]`` to ``offsets[i + 1]``, at least one.
    """

    def __init__(self, vectors: np.ndarray, offsets: np.ndarray) -> None:
        require(bool((np.diff(offsets) > 0).all()), "a document has no token", DataError)
        self.vectors, self.offsets = vectors, offsets
        # BLAS may give equal documents scores that differ in their last bits: all take that of the first of them.
        contents = (blake2b(vectors[start:end], digest_size=16).digest() for start, end in pairwise(offsets))
        first: dict[bytes, int] = {}
        self._first = np.array([first.setdefault(content, row) for row, content in enumerate(contents)])

    def search(self, tokens: np.ndarray, offsets: np.ndarray, k: int) -> Lists:
        """Return, as `Index.search`, scores and rows of the k documents with the highest MaxSim with each query.

        Tokens are float32, (tokens, d), of all Q queries, one after the other; `offsets`, (Q + 1,), where each begins.
        """
        results, rows = [], np.arange(len(self._first))
        for start in range(0, len(offsets) - 1, LATE_QUERIES):
            block = offsets[start : start + LATE_QUERIES + 1]
            queries, first = tokens[block[0] : block[-1]], 0
            scores = np.empty((len(block) - 1, len(rows)), dtype=np.float32)
            while first < len(rows):  # documents of a block: one, or as many as have at most `LATE_TOKENS`
                last = int(np.searchsorted(self.offsets, self.offsets[first] + LATE_TOKENS, side="right")) - 1
                last = max(last, first + 1)
                starts = self.offsets[first:last]
                products = self.vectors[starts[0] : self.offsets[last]] @ queries.T  # (tokens of documents, of queries)
                highest = np.maximum.reduceat(products, starts - starts[0], axis=0)  # (documents, tokens of queries)
                scores[:, first:last] = np.add.reduceat(highest, block[:-1] - block[0], axis=1).T
                first = last
            results.append(best(scores[:, self._first], np.broadcast_to(rows, scores.shape), k))
        return tuple(map(np.concatenate, zip(*results, strict=True)))
