"""How search behaves as candidates grow: which candidates come first, what is measured, against exact search."""

import numpy as np
import pandas as pd
import pytest

from retlib.core.errors import DataError
from retlib.evaluation import scaling
from retlib.evaluation.measures import evaluate
from retlib.models.retriever import Architecture, Retriever
from retlib.systems.system import vocabulary_of

BAG = Architecture(encoder="bag-of-words", dimension=16, similarity="cosine", query_length=None, document_length=None)
DISTRACTORS = ["the price of tea", "how to row", "a stone", "unheard of things"]


@pytest.fixture(scope="module")
def retriever(toy):
    return Retriever.fresh(BAG, vocabulary_of(toy), 0)


@pytest.fixture(scope="module")
def pool(toy, retriever):
    return scaling.gather(toy, retriever, iter(DISTRACTORS), len(toy.documents) + 3)


def test_relevant_candidates_come_first_and_distractors_last(toy, pool, retriever):
    own = toy.documents.index
    test = own[toy.documents["split"] == "test"]
    assert set(pool.doc_ids[: len(test)]) == set(test)
    assert set(pool.doc_ids[: len(own)]) == set(own)
    assert pool.doc_ids[len(own) :].tolist() == ["distractor-0", "distractor-1", "distractor-2"]
    expected = retriever.encode_texts([*toy.documents["text"][pool.doc_ids[: len(own)]], *DISTRACTORS[:3]])
    np.testing.assert_allclose(pool.vectors, expected, atol=1e-6)
    few = scaling.gather(toy, retriever, iter(DISTRACTORS), 60)
    assert few.doc_ids.tolist() == pool.doc_ids[:60].tolist()


def test_quality_speed_and_size_are_measured(toy, pool):
    size = int((toy.documents["split"] == "test").sum()) + 5
    run, numbers = scaling.measure(pool, size, "Exact", {}, batch=4)
    assert set(run["doc_id"]) <= set(pool.doc_ids[:size])
    values = evaluate(run, toy.judgments("test"), ["AP@100"])["value"]
    assert numbers["AP@100"] == pytest.approx(100 * values.mean())
    assert numbers["MB"] == pytest.approx(size * 16 * 4 / 1e6)
    assert numbers["queries/s"] > 0 and numbers["build seconds"] >= 0
    first = run.groupby("query_id", sort=False)["score"].first()
    np.testing.assert_allclose(first, (pool.queries @ pool.vectors[:size].T).max(axis=1), atol=1e-5)


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_pool_that_is_too_small_or_too_large_is_refused(pool, size):
    with pytest.raises(DataError, match=f"size = {size}"):
        scaling.measure(pool, size, "Exact", {}, batch=4)


def test_losses_are_against_exact_search_of_the_same_seed_and_pool():
    rows = [(0, 10, "exact", 80, 5), (0, 10, "fast", 79, 50), (1, 10, "exact", 70, 4), (1, 10, "fast", 71, 2)]
    points = pd.DataFrame(rows, columns=["seed", "candidates", "index", "AP@100", "queries/s"])
    found = scaling.against_exact(points)
    assert found["loss"].tolist() == [0, 1, 0, -1] and found["speed-up"].tolist() == [1, 10, 1, 0.5]
