"""Exact and approximate search for the nearest vectors, behind one face (Gillick 2018, section 3.2)."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from threadpoolctl import ThreadpoolController

from retlib.core import runtime
from retlib.core.errors import DataError, RetlibError, SettingError, require, require_one_of

EXACT = "Exact"

# Queries and rows of one matrix product: larger blocks were not faster (1 million vectors of 300, one core).
QUERY_BLOCK, ROW_BLOCK = 256, 16_384
# BLAS sums in another order at the ragged end of a matrix, and in a small matrix: two equal vectors would
# score differently there. So all blocks have one size, a multiple of this.
ROW_MULTIPLE = 16
# Groups of scores for each result that is asked for; more make a closer bar, and take longer.
GROUPS = 8
# Iterations of k-means: faiss's defaults take three times as long to train, for equal recall.
ITERATIONS = {"coarse": 10, "product": 20, "rotation": 10, "product in rotation": 4}
ADD_BLOCK = 65_536


class Index(ABC):
    """Vectors that can be searched for those with the largest inner product.

    Attributes
    ----------
    settings : dict
        What made it: factory, search parameters, training rows, seed, threads.
    dimension : int
    """

    def __init__(self, settings: Mapping[str, Any], dimension: int) -> None:
        self.settings = dict(settings)
        self.dimension = dimension
        # Made once, after the libraries it is to hold were loaded: looking for them takes longer than a search.
        self._pools = ThreadpoolController()

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """What the index takes, in memory as on disk."""

    def set(self, **parameters: float) -> None:
        """Set search parameters: those of `build`'s `search`.

        Raises
        ------
        SettingError
            If this kind of index has no such parameter, or the value is below 1.
        """
        for name, value in parameters.items():
            factory, holders = self.settings["factory"], self._parameters()
            require(bool(holders), f"{name} = {value}: an index {factory!r} has no search parameters")
            require_one_of(f"search parameter of {factory!r}", name, holders)
            require(value >= 1, f"{name} = {value}: at least 1 is needed")
            setattr(holders[name], name, value)
        self.settings["search"] = {**self.settings["search"], **parameters}

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k vectors with the largest inner product with each query, best first.

        Parameters
        ----------
        queries : float32 array, shape (Q, d)
        k : int
            Cut to the number of vectors.

        Returns
        -------
        scores : float32 array, shape (Q, min(k, N))
        rows : int64 array, shape (Q, min(k, N))
            Equal scores are in the order of rows. Where an approximate search found fewer,
            the rest has row -1 and score -inf.
        """
        queries = _matrix(queries, "queries")
        require(bool(np.isfinite(queries).all()), "the queries hold NaN or infinity", DataError)
        require(k >= 1, f"k = {k} results: at least 1 is needed")
        fits = queries.shape[1] == self.dimension
        require(fits, f"queries have {queries.shape[1]} dimensions; the index has {self.dimension}")
        with self._threads():
            return self._search(queries, min(k, len(self)))

    def _threads(self) -> AbstractContextManager:
        wanted = self.settings["threads"]
        # Setting even the same number takes time, as much as a search of a few thousand vectors.
        if all(pool.num_threads == wanted for pool in self._pools.lib_controllers):
            return nullcontext()
        return self._pools.limit(limits=wanted)

    def save(self, folder: Path) -> None:
        """Write the index into a folder, from which `load` reads it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save(folder)
        (folder / "index.json").write_text(json.dumps(self.settings, indent=1), encoding="utf-8")

    def _parameters(self) -> dict[str, Any]:
        """Each search parameter that this kind of index has, with the object that holds it."""
        return {}

    @abstractmethod
    def _search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]: ...

    @abstractmethod
    def _save(self, folder: Path) -> None: ...


def build(
    factory: str,
    vectors: np.ndarray,
    search: Mapping[str, float] | None = None,
    *,
    train_rows: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Index:
    """Index vectors.

    Parameters
    ----------
    factory : str
        "Exact", or what faiss's `index_factory` understands, for instance
        "PCAR224,PQ32x4fs_64,RFlat", "IVF1024,PQ50x4fs,RFlat", "OPQ64_256,IVF1024,PQ64" or
        "HNSW32".
    vectors : float32 array, shape (N, d)
        "Exact" keeps a reference to it, not a copy.
    search : mapping, optional
        `nprobe` (IVF: lists that are searched), `efSearch` (HNSW: width of the search),
        `k_factor` (RFlat, Refine: this many times k results are scored again).
    train_rows : int, optional
        Train on this many rows, drawn with the seed; by default on 65,536.
    seed : int
        Of the sample and of k-means. On one thread, the same input and seed give the same bytes.
    threads : int, optional
        Of training, adding and searching, the process's own (`runtime.threads`) by default.

    Raises
    ------
    SettingError
        If the factory is not known or cannot index such vectors, or has no such search parameter.
    DataError
        If there are no vectors, or one is not finite.
    """
    vectors = _matrix(vectors, "vectors")
    require(len(vectors) > 0, "there are no vectors to index", DataError)
    require(np.isfinite(vectors.sum(dtype=np.float64)), "the vectors hold NaN or infinity", DataError)
    require(train_rows is None or train_rows >= 1, f"train_rows = {train_rows}: at least 1 is needed")
    settings = {"factory": factory, "search": {}, "train_rows": train_rows, "seed": seed}
    settings["threads"] = threads or runtime.threads()
    index = Exact(settings, vectors) if factory == EXACT else Faiss.train(settings, vectors)
    index.set(**(search or {}))
    return index


def load(folder: Path) -> Index:
    """Read an index that `Index.save` wrote."""
    folder = Path(folder)
    try:
        settings = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        index = (Exact if settings["factory"] == EXACT else Faiss).read(settings, folder)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder} holds no index that can be read: {error}") from error
    index.set(**settings["search"])
    return index


def _matrix(values: np.ndarray, name: str) -> np.ndarray:
    require(np.ndim(values) == 2, f"{name} have {np.ndim(values)} axes; a matrix has 2: rows and dimensions")
    return np.ascontiguousarray(values, dtype=np.float32)


class Exact(Index):
    """Every query against every vector, in 32-bit floats.

    Notes
    -----
    A block of scores is compared with the k-th best so far, and few pass: the search takes hardly
    longer than the matrix product. On one core at 1 million vectors of 300, in blocks of 256
    queries, that was 8 ms a query; torch's product and top-k took 12, faiss's flat index 11.
    """

    def __init__(self, settings: Mapping[str, Any], vectors: np.ndarray) -> None:
        super().__init__(settings, vectors.shape[1])
        self.vectors = vectors
        blocks = math.ceil(len(vectors) / ROW_BLOCK)
        size = math.ceil(len(vectors) / blocks / ROW_MULTIPLE) * ROW_MULTIPLE
        self._starts = range(0, len(vectors), size)
        last = vectors[self._starts[-1] :]
        self._last = np.pad(last, ((0, size - len(last)), (0, 0)))

    @classmethod
    def read(cls, settings: Mapping[str, Any], folder: Path) -> Exact:
        """Read what `save` wrote."""
        return cls(settings, load_file(folder / "vectors.safetensors")["vectors"])

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def size_bytes(self) -> int:
        return self.vectors.nbytes

    def _save(self, folder: Path) -> None:
        save_file({"vectors": self.vectors}, folder / "vectors.safetensors")

    def _search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores = np.empty((len(queries), k), dtype=np.float32)
        rows = np.empty((len(queries), k), dtype=np.int64)
        for start in range(0, len(queries), QUERY_BLOCK):
            block = slice(start, start + QUERY_BLOCK)
            scores[block], rows[block] = self._search_block(queries[block], k)
        return scores, rows

    def _search_block(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        best = np.empty((len(queries), 0), dtype=np.float32), np.empty((len(queries), 0), dtype=np.int64)
        for start in self._starts:
            block = self._last if start == self._starts[-1] else self.vectors[start : start + self._starts.step]
            # (rows, queries): for few queries up to 1.6 times as fast as its transpose.
            scores = (block @ queries.T)[: len(self) - start]
            # Rows come in order, so the k-th best so far wins against an equal score.
            found = _above(scores, best[0][:, -1] if best[0].shape[1] == k else bar(scores, k))
            best = _merge(best, (found[0], found[1] + start), k)
        return best


def bar(scores: np.ndarray, k: int) -> np.ndarray:
    """What each query's scores must exceed to be among its k best; little more than k of them do.

    Parameters
    ----------
    scores : float32 array, shape (rows, queries)
    k : int

    Returns
    -------
    float32 array, shape (queries,)
    """
    if len(scores) <= k:
        return np.full(scores.shape[1], -np.inf, dtype=np.float32)
    # The k-th best of the best of groups: few scores beside the k best exceed it, and it is found in a
    # fifteenth of the time that the k-th best of all takes.
    size = max(1, len(scores) // (GROUPS * k))
    groups = len(scores) // size
    tops = scores[: groups * size].reshape(groups, size, -1).max(axis=1)
    return np.nextafter(np.partition(tops, groups - k, axis=0)[-k], np.float32(-np.inf))


def _above(scores: np.ndarray, bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each query's scores above its bar, and their rows in order, filled up with -inf at the right."""
    row, query = np.divmod(np.flatnonzero(scores > bar), len(bar))
    order = np.argsort(query, kind="stable")
    row, query = row[order], query[order]
    counts = np.bincount(query, minlength=len(bar))
    place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = len(bar), counts.max(initial=0)
    found, rows = np.full(shape, -np.inf, dtype=np.float32), np.zeros(shape, dtype=np.int64)
    found[query, place], rows[query, place] = scores[row, query], row
    return found, rows


def _merge(best: tuple[np.ndarray, ...], more: tuple[np.ndarray, ...], k: int) -> tuple[np.ndarray, np.ndarray]:
    scores, rows = (np.concatenate(parts, axis=1) for parts in zip(best, more, strict=True))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


class Faiss(Index):
    """An index that faiss's `index_factory` makes, on inner products."""

    def __init__(self, settings: Mapping[str, Any], index: Any) -> None:
        super().__init__(settings, index.d)
        self._index = index

    @classmethod
    def train(cls, settings: Mapping[str, Any], vectors: np.ndarray) -> Faiss:
        """Make, train and fill the index that `settings["factory"]` names."""
        made = cls(settings, _make(settings["factory"], vectors.shape[1]))
        made._kept = _set_training(made._index, settings["seed"])
        rows = _sample(vectors, settings["train_rows"] or ADD_BLOCK, settings["seed"])
        with made._pools.limit(limits=settings["threads"]):
            try:
                made._index.train(rows)
            except RuntimeError as error:
                raise SettingError(
                    f"factory = {settings['factory']!r} cannot be trained on {len(rows)} vectors: {_reason(error)}"
                ) from error
            for start in range(0, len(vectors), ADD_BLOCK):
                made._index.add(vectors[start : start + ADD_BLOCK])
        return made

    @classmethod
    def read(cls, settings: Mapping[str, Any], folder: Path) -> Faiss:
        """Read what `save` wrote."""
        return cls(settings, _faiss().read_index(str(folder / "index.faiss")))

    def __len__(self) -> int:
        return self._index.ntotal

    @property
    def size_bytes(self) -> int:
        sizes = [0]

        def count(part: bytes) -> int:
            sizes[0] += len(part)
            return len(part)

        _faiss().write_index(self._index, _faiss().PyCallbackIOWriter(count))
        return sizes[0]

    def _save(self, folder: Path) -> None:
        _faiss().write_index(self._index, str(folder / "index.faiss"))

    def _parameters(self) -> dict[str, Any]:
        found = {}
        for part in _parts(self._index):
            part = getattr(part, "hnsw", part)
            found.update({name: part for name in ("nprobe", "efSearch", "k_factor") if hasattr(part, name)})
        return found

    def _search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self._index.search(queries, k)
        scores[rows < 0] = -np.inf
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


def _faiss():
    try:
        import faiss
    except ImportError as error:
        raise RetlibError(f"faiss is not installed here: of the indexes, {EXACT!r} works without it") from error
    return faiss


def _make(factory: str, dimension: int) -> Any:
    faiss = _faiss()
    try:
        return faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise SettingError(
            f"factory = {factory!r} cannot index vectors of {dimension} dimensions: {_reason(error)}. Valid: "
            f"{EXACT!r}, or a string of faiss's index_factory; its PQm and OPQm need an m that divides the dimension."
        ) from error


def _reason(error: RuntimeError) -> str:
    """faiss's message without the C++ function and the place in its source that it begins with."""
    return re.sub(r"^Error in .*? at \S+:\d+: (Error: )?", "", str(error), flags=re.DOTALL).strip()


def _sample(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    if count >= len(vectors):
        return vectors
    return vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))]


def _parts(index: Any) -> Iterator[Any]:
    """A faiss index and everything it is made of, outermost first."""
    faiss = _faiss()
    index = faiss.downcast_index(index)
    yield index
    if isinstance(index, faiss.IndexPreTransform):
        yield from (faiss.downcast_VectorTransform(index.chain.at(i)) for i in range(index.chain.size()))
    for name in ("index", "base_index", "quantizer", "storage"):
        if getattr(index, name, None) is not None:
            yield from _parts(getattr(index, name))


def _set_training(index: Any, seed: int) -> list[Any]:
    """Set seeds and iterations; what comes back must live as long as the index, which points to it."""
    parts = list(_parts(index))
    bits = [part.pq.nbits for part in parts if hasattr(part, "pq") and hasattr(part, "code_size")]
    quantizers = [_rotate_for(part, bits[0] if bits else 8) for part in parts if hasattr(part, "niter_pq")]
    for part in [*parts, *quantizers]:
        if hasattr(part, "do_polysemous_training"):
            # It orders centroids for a search by Hamming distance, which we do not do, and takes a minute.
            part.do_polysemous_training = False
        for clustering, iterations in _clusterings(part):
            clustering.niter, clustering.seed = iterations, seed
            # Below 39 rows a centroid faiss warns on the standard error; below 1 it raises.
            clustering.min_points_per_centroid = 1
    return quantizers


def _rotate_for(rotation: Any, bits: int) -> Any:
    """Let OPQ learn its rotation for codes of the index's bits; faiss takes 8 for all, 5 times as slow as 4."""
    quantizer = _faiss().ProductQuantizer(rotation.d_out, rotation.M, bits)
    rotation.pq = quantizer
    rotation.niter, rotation.niter_pq = ITERATIONS["rotation"], ITERATIONS["product in rotation"]
    return quantizer


def _clusterings(part: Any) -> Iterator[tuple[Any, int]]:
    if hasattr(part, "cp"):
        # An IVF index and a product quantizer both call their settings so.
        yield part.cp, ITERATIONS["coarse" if hasattr(part, "nlist") else "product"]
    if hasattr(part, "pq") and hasattr(part.pq, "cp"):
        yield part.pq.cp, ITERATIONS["product"]
