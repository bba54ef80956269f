import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from oracles import slow_search
from threadpoolctl import threadpool_info, threadpool_limits

from retlib.core.errors import DataError, SettingError
from retlib.data.text import offsets_of
from retlib.retrieval import index
from retlib.retrieval.index import TokenIndex

ROWS, DIMENSION = 600, 32

APPROXIMATE = {
    "Flat": {},
    "SQ8": {},
    "PQ8x4fs_64,RFlat": {"k_factor": 30},
    "PCAR24,PQ8x4fs_64,RFlat": {"k_factor": 30},
    "IVF8,Flat": {"nprobe": 7},
    "IVF8,SQ8": {"nprobe": 7},
    "IVF8,PQ16x4fs,RFlat": {"nprobe": 7, "k_factor": 30},
    "OPQ8_16,IVF8,PQ8x4fs,Refine(SQ8)": {"nprobe": 7, "k_factor": 30},
    "OPQ8,PQ8x4fs": {},
    "HNSW16": {"efSearch": 100},
    "IVF8_HNSW8,Flat": {"nprobe": 7, "efSearch": 20},
}


def spheres(rows, dimension=DIMENSION, seed=0):
    """Vectors of length 1 around a few centers, as sentence vectors are."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((rows, dimension)) + 2 * rng.standard_normal((12, dimension))[np.arange(rows) % 12]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


VECTORS = spheres(ROWS)
QUERIES = VECTORS[:40] + 0.02 * spheres(40, seed=1)


def recall(rows, expected):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(rows, expected, strict=True)])


small = st.integers(-2, 2).map(float)  # whole numbers: products are exact and ties are many


@given(st.data(), st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.integers(1, 50), st.integers(1, 12))
def test_exact_search_is_a_full_sort(data, rows, queries, dimension, k, block):
    vectors = data.draw(arrays.arrays(np.float32, (rows, dimension), elements=small))
    asked = data.draw(arrays.arrays(np.float32, (queries, dimension), elements=small))
    with mock.patch.multiple(index, MOST_SCORES=3 * block, QUERY_BLOCK=3, GROUPS=1):
        scores, found = index.build("Exact", vectors).search(asked, k)
    expected_scores, expected = slow_search(vectors, asked, k)
    assert scores.dtype == np.float32 and found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(scores, expected_scores)


def test_exact_search_finds_the_same_on_several_threads(monkeypatch):
    alone = index.build("Exact", VECTORS).search(QUERIES, 20)
    monkeypatch.setenv("RETLIB_THREADS", "2")
    with torch.autocast("cpu", dtype=torch.bfloat16):  # as where a training searches between two steps
        found = index.build("Exact", VECTORS).search(QUERIES, 20)
    assert all(np.array_equal(one, other) for one, other in zip(found, alone, strict=True))


# --- one score for one query and one vector -------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 2, 3, 7, 300])
@pytest.mark.parametrize("rows", [3, 17, 1001, 16_391])
def test_equal_vectors_tie_wherever_they_stand(rows, queries):
    same = np.tile(spheres(1, 300), (rows, 1))
    scores, found = index.build("Exact", same).search(spheres(queries, 300, seed=3), 50)
    assert (found == np.arange(min(rows, 50))).all()
    assert (scores == scores[:, :1]).all()


@given(st.integers(1, 40), st.integers(1, 300) | st.sampled_from([768, 4097, 8191, 8193]), st.integers(0, 9))
def test_a_product_does_not_depend_on_what_stands_beside_it(rows, dimension, seed):
    vectors, query = spheres(rows, dimension, seed), spheres(1, dimension, seed + 1)[0]
    products = index.inner_products(vectors, query)
    assert products.dtype == np.float32
    assert [index.inner_products(vectors[row : row + 1], query)[0] for row in range(rows)] == products.tolist()
    some = np.random.default_rng(seed).integers(rows, size=50)
    np.testing.assert_array_equal(index.inner_products(vectors[some], query), products[some])


def test_scores_depend_neither_on_other_queries_nor_on_the_place():
    built = index.build("Exact", VECTORS)
    scores, rows = built.search(QUERIES, 10)
    order = np.random.default_rng(4).permutation(ROWS)
    mixed, places = index.build("Exact", VECTORS[order]).search(QUERIES, 10)
    apart = [np.concatenate(each) for each in zip(*(built.search(query[None], 10) for query in QUERIES), strict=True)]
    for other, its_rows in (apart, (mixed, order[places])):
        np.testing.assert_array_equal(scores, other)
        np.testing.assert_array_equal(rows, its_rows)


# Prints what a search finds among vectors of which many are equal, and what it multiplies with.
SEARCH = """
import hashlib
import numpy as np
from threadpoolctl import threadpool_info
from retlib.retrieval import index
rng = np.random.default_rng(0)
found = hashlib.sha256()
for rows, dimension, queries in ((17, 300, 300), (1001, 300, 300), (5003, 96, 64), (5003, 96, 1)):
    vectors = rng.standard_normal((rows // 3 + 1, dimension), dtype=np.float32)[rng.integers(rows // 3 + 1, size=rows)]
    for part in index.build("Exact", vectors).search(rng.standard_normal((queries, dimension), dtype=np.float32), 20):
        found.update(part.tobytes())
print(found.hexdigest(), *(pool.get("architecture") for pool in threadpool_info()))
"""


def test_results_are_the_same_with_every_kernel_that_runs_here():
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    needed = {"Prescott": "", "Haswell": "avx2", "SkylakeX": "avx512vl"}  # Zen's are Haswell's
    kernels, found = [kernel for kernel, flag in needed.items() if flag in flags], {}
    for kernel in kernels:
        environment = {**os.environ, "OPENBLAS_CORETYPE": kernel}
        command = [sys.executable, "-c", SEARCH]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found[kernel], *used = done.stdout.split()
        # Elsewhere numpy multiplies with another library, which has no such choice.
        assert kernel in used or not set(used) & set(kernels)
    assert len(set(found.values())) == 1, found


def close_together(rows, queries, dimension=24, seed=0):
    """Vectors that differ by little more than what a product in 32 bits is off by, of whole numbers; and queries."""
    rng = np.random.default_rng(seed)
    vectors = 2**20 * rng.integers(1, 8, dimension) + rng.integers(-9, 10, (rows, dimension))
    asked = rng.integers(-9, 10, (queries, dimension)) * 2 ** rng.integers(-9, 9, (queries, 1)).astype(float)
    return vectors.astype(np.float32), asked.astype(np.float32)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_what_a_product_in_32_bits_cannot_tell_apart(k):
    vectors, queries = close_together(3001, 20)
    exact = (queries.astype(np.float64) @ vectors.T.astype(np.float64)).astype(np.float32)  # whole numbers, no rounding
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    built = index.build("Exact", vectors)
    scores, rows = built.search(queries, k)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, expected, axis=1))
    built._slack = 0.0
    assert not (built.search(queries, k)[1] == expected).all()


@pytest.mark.filterwarnings("ignore:overflow")
def test_few_rows_are_scored_again_but_sums_beyond_32_bits_all(monkeypatch):
    counts, real = [], index.inner_products
    monkeypatch.setattr(index, "inner_products", lambda rows, query: counts.append(len(rows)) or real(rows, query))
    index.build("Exact", spheres(20_000, 64)).search(spheres(30, 64, seed=1), 20)
    assert len(counts) == 30 and max(counts) < 60
    vectors = np.array([[1e20, 0], [3e38, -3e38], [0, 1e20]], dtype=np.float32)
    assert index.build("Exact", vectors).search(np.array([[1, 2]], dtype=np.float32), 2)[1].tolist() == [[2, 0]]


# --- indexes of faiss -----------------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "PQ8x4fs_64,RFlat"])
def test_equal_scores_of_faiss_come_in_the_order_of_rows(factory):
    _, rows = index.build(factory, np.tile(VECTORS[:12], (3, 1))).search(VECTORS[:12], 3)
    assert (rows == np.arange(12)[:, None] + [0, 12, 24]).all()


@pytest.mark.parametrize("factory", ["Exact", *APPROXIMATE])
def test_an_index_finds_nearly_all_restored_and_opened_by_faiss_too(factory, tmp_path):
    built = index.build(factory, VECTORS, APPROXIMATE.get(factory))
    scores, rows = built.search(QUERIES, 10)
    _, expected = slow_search(VECTORS, QUERIES, 10)
    assert recall(rows, expected) > (0.4 if "PQ" in factory and "R" not in factory else 0.9)
    assert scores.shape == rows.shape == (40, 10) and rows.dtype == np.int64 and scores.dtype == np.float32
    assert (np.diff(scores, axis=1) <= 0).all() and len(built) == ROWS
    index.export(built, tmp_path / "mine", [f"d{row}" for row in range(ROWS)])
    assert (tmp_path / "mine" / "documents.txt").read_text().splitlines() == [f"d{row}" for row in range(ROWS)]
    theirs, their_rows = faiss.read_index(str(tmp_path / "mine" / "index.faiss")).search(QUERIES, 10)
    their_rows = np.take_along_axis(their_rows, np.lexsort((their_rows, -theirs), axis=1), axis=1)  # ties
    np.testing.assert_allclose(theirs, scores, atol=1e-5)
    np.testing.assert_array_equal(their_rows, rows)
    with pytest.raises(DataError):
        index.export(built, tmp_path, ["a", "b\nc"])
    if factory in APPROXIMATE:
        back = index.restored(built.content, APPROXIMATE[factory])
        assert built.size_bytes == len(built.content) and (len(back), back.dimension) == (ROWS, DIMENSION)
        for ours, theirs in zip((scores, rows), back.search(QUERIES, 10), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_bytes_of_a_vector_are_those_of_its_code():
    sizes = {"Exact": 128, "PQ4": 4, "OPQ4,IVF1,PQ4": 4, "SQ8": 32, "HNSW4": 128}
    assert {factory: index.build(factory, VECTORS).vector_bytes for factory in sizes} == sizes


@pytest.mark.parametrize("factory", ["Exact", *APPROXIMATE])
def test_more_results_than_vectors_or_than_are_found(factory):
    scores, rows = index.build(factory, VECTORS[:300]).search(QUERIES, 1000)
    assert scores.shape == rows.shape == (40, 300)
    counts = (rows >= 0).sum(axis=1)
    assert all(len(set(row[:count])) == count for row, count in zip(rows, counts, strict=True))
    assert (np.isneginf(scores) == (rows == -1)).all() and (rows[:, 0] >= 0).all()
    assert ((np.arange(300) < counts[:, None]) == (rows >= 0)).all()
    assert (counts < 300).all() == ("IVF8" in factory or "HNSW" in factory)  # which search a part


@pytest.mark.parametrize(
    ("factory", "name", "low", "high"),
    [
        ("IVF32,Flat", "nprobe", 1, 32),
        ("HNSW4", "efSearch", 1, 200),
        ("PQ4x4fs,RFlat", "k_factor", 1, 20),
        ("PCA16,IVF32,PQ8x4fs,RFlat", "nprobe", 1, 32),
    ],
)
def test_search_parameters_buy_recall(factory, name, low, high):
    _, expected = slow_search(VECTORS, QUERIES, 20)
    content = index.build(factory, VECTORS).content
    less, more = (index.restored(content, {name: value}).search(QUERIES, 20)[1] for value in (low, high))
    assert recall(more, expected) > recall(less, expected) + 0.05


@pytest.mark.parametrize("factory", [f"PCA{DIMENSION},Flat", f"PCAR{DIMENSION},Flat", f"PCA{DIMENSION},Flat,RFlat"])
def test_what_pca_turns_has_the_same_inner_products(factory):
    """All dimensions are kept, so that nothing is lost: vectors that lie far from 0 tell a shift."""
    far = VECTORS + 1
    found, expected = (index.build(each, far).search(QUERIES, 10) for each in (factory, index.EXACT))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("factory", ["IVF8,SQ8", "PCAR16,PQ8x4fs_64,RFlat", "OPQ8,IVF8,PQ8x4fs", "PQ4", "HNSW8"])
def test_the_same_vectors_give_the_same_bytes_of_a_sample(factory, monkeypatch):
    whole = index.build(factory, VECTORS).content
    monkeypatch.setattr(index, "ROWS", 400)
    with threadpool_limits(2):
        first, second = (index.build(factory, VECTORS) for _ in range(2))
        assert {pool["num_threads"] for pool in threadpool_info()} == {2}
    assert first.content.tobytes() == second.content.tobytes() and len(first) == ROWS
    assert first.content.tobytes() != whole.tobytes()


def test_training_few_vectors_is_silent(capfd):
    for factory in ("IVF8,PQ8x4fs", "OPQ8,PQ8x4fs"):
        index.build(factory, VECTORS[:100])
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.parametrize(
    ("factory", "search", "named"),
    [
        ("exact", {}, "'Exact'"),
        ("IVF8,XY3", {}, "IVF8,XY3"),
        ("OPQ5,PQ5x4fs", {}, "32 dimensions"),
        ("IVF601,Flat", {}, "600 vectors"),
        ("IVF8,Flat", {"nprob": 3}, "'nprobe'"),
        ("IVF8,Flat", {"efSearch": 3}, "nprobe"),
        ("IVF8,Flat", {"nprobe": 0}, "nprobe"),
        ("Exact", {"nprobe": 3}, "'Exact'"),
    ],
)
def test_factories_and_parameters_that_cannot_be_are_named(factory, search, named):
    with pytest.raises(SettingError, match=named):
        index.build(factory, VECTORS, search)


@pytest.mark.parametrize("factory", ["Exact", "Flat"])
def test_searches_and_vectors_that_cannot_be_are_refused(factory):
    built = index.build(factory, VECTORS)
    for queries, k in ((QUERIES[:, :31], 5), (QUERIES, 0)):
        with pytest.raises(SettingError):
            built.search(queries, k)
    assert built.search(QUERIES[:0], 5)[1].shape == (0, 5)
    nan, infinite = (np.where(np.arange(DIMENSION) == 3, value, VECTORS) for value in (np.nan, np.inf))
    for wrong in (nan, infinite, VECTORS[:0]):
        with pytest.raises(DataError):
            index.build(factory, wrong)
    for wrong in (nan, infinite):
        with pytest.raises(DataError):
            built.search(wrong, 2)


# --- late interaction, against loops over tokens ---------------------------------------------------


def slow_maxsim(documents, document_offsets, queries, query_offsets):
    """MaxSim of all queries with all documents, one product at a time."""
    scores = np.zeros((len(query_offsets) - 1, len(document_offsets) - 1))
    for i, j in np.ndindex(scores.shape):
        own = documents[document_offsets[j] : document_offsets[j + 1]].astype(float)
        for token in queries[query_offsets[i] : query_offsets[i + 1]].astype(float):
            scores[i, j] += (own @ token).max()
    return scores


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=9)


@given(
    of_documents=lengths,
    of_queries=lengths,
    k=st.integers(1, 12),
    blocks=st.sampled_from([(1, 1), (7, 2), (100, 16)]),
    seed=st.integers(0, 10**6),
)
def test_maxsim_search_equals_a_slow_reference(of_documents, of_queries, k, blocks, seed):
    rng = np.random.default_rng(seed)
    offsets, query_offsets = offsets_of(np.array(of_documents)), offsets_of(np.array(of_queries))
    documents = rng.normal(size=(offsets[-1], 3)).astype(np.float32)
    queries = rng.normal(size=(query_offsets[-1], 3)).astype(np.float32)
    with mock.patch.multiple(index, LATE_TOKENS=blocks[0], LATE_QUERIES=blocks[1]):
        scores, rows = TokenIndex(documents, offsets).search(queries, query_offsets, k)
    expected = slow_maxsim(documents, offsets, queries, query_offsets)
    assert scores.shape == rows.shape == (len(of_queries), min(k, len(of_documents)))
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=1e-4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, rows, axis=1), atol=1e-4)


def test_equal_maxsims_are_in_the_order_of_rows():
    vectors, eye = np.array([[0.0, 1], [1, 0], [1, 0], [0, 1], [1, 0]], dtype=np.float32), np.eye(2, dtype=np.float32)
    scores, rows = TokenIndex(vectors, np.array([0, 1, 2, 4, 5])).search(eye, np.array([0, 1, 2]), 4)
    assert rows.tolist() == [[1, 2, 3, 0], [0, 2, 1, 3]] and scores.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    many = TokenIndex(np.repeat(vectors[:2], 50, axis=0), np.arange(101))
    assert many.search(vectors[1:2], np.array([0, 1]), 60)[1].tolist() == [[*range(50, 100), *range(10)]]


@pytest.mark.parametrize("queries", [1, 16])
def test_equal_documents_tie_wherever_they_stand(queries):
    rng = np.random.default_rng(0)
    documents = np.concatenate([rng.normal(size=(74, 128))] * 200).astype(np.float32)  # two, a hundred times
    tokens, offsets = rng.normal(size=(20 * queries, 128)).astype(np.float32), np.arange(queries + 1) * 20
    scores, rows = TokenIndex(documents, np.arange(401) * 37).search(tokens, offsets, 400)
    for half in (slice(200), slice(200, None)):
        assert (scores[:, half] == scores[:, half][:, :1]).all()
        assert (rows[:, half] == rows[:, half][:, :1] + np.arange(0, 400, 2)).all()


def test_a_document_without_tokens_is_refused():
    with pytest.raises(DataError):
        TokenIndex(np.eye(2, dtype=np.float32), np.array([0, 2, 2]))
