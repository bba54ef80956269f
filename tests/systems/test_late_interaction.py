"""MaxSim against loops over units, and its exhaustive search."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from letters import LESSON, LETTERS, SMALL, make_collection, table

from retlib.core.errors import DataError, SettingError
from retlib.data.text import TokenTable, offsets_of
from retlib.models import maxsim
from retlib.retrieval.lexical import BM25
from retlib.systems import late_interaction, reranking
from retlib.systems.dense import Retriever, Schedule
from retlib.systems.late_interaction import LateInteraction, UnitIndex, encode_units

pytestmark = pytest.mark.usefixtures("exact")

QUERIES, DOCUMENTS = table("a b", "c", "d e f g"), table("d", "e f g", "a", "h i j k", "b", "c c")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    made = LateInteraction(Retriever.fresh(SMALL, LETTERS, seed=1).model.query_encoder, LETTERS)
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return made.eval()


@pytest.fixture(scope="module")
def collection():
    return make_collection()


@pytest.fixture(scope="module")
def trained(collection):
    run = BM25().rank(collection.documents["text"], collection.queries["text"], depth=12)
    return late_interaction.fit(Retriever.fresh(SMALL, LETTERS, seed=3), collection, run, LESSON, seed=0)


def vectors(model, row):
    """The vectors of one text alone, by BERT itself: float64, shape (units, d)."""
    ids = torch.tensor([[LETTERS.cls, *row, LETTERS.sep]])
    with torch.no_grad():
        states = model.encoder.head(model.encoder.bert(ids).last_hidden_state[0, 1:-1]).double().numpy()
    return states / np.linalg.norm(states, axis=1, keepdims=True)


def slow_score(model, query, document):
    """For each unit of the query the closest of the document, in a loop."""
    asked, own = vectors(model, query), vectors(model, document)
    return sum(max(float(a @ b) for b in own) for a in asked)


def test_scores_are_sums_of_best_matches(model):
    with torch.no_grad():
        found = model(QUERIES, DOCUMENTS)
    assert found.shape == (3, 2)
    expected = [slow_score(model, QUERIES.row(i // 2), DOCUMENTS.row(i)) for i in range(6)]
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)


def test_scores_by_hand(model, monkeypatch):
    places = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0], "d": [0.6, 0.8]}
    vectors = {LETTERS.ids[letter]: place for letter, place in places.items()}
    monkeypatch.setattr(LateInteraction, "units", lambda self, table: torch.tensor([vectors[i] for i in table.ids]))
    found = model(table("a", "a b"), table("c", "b d c", "d", "c b"))
    # A query's unit may match nothing well: its best product is then negative, however long other documents are.
    assert found.tolist() == [[pytest.approx(-1), pytest.approx(0.6)], [pytest.approx(1.4), pytest.approx(1)]]


def test_units_are_in_the_order_of_their_ids_and_of_unit_length(model):
    with torch.no_grad():
        units = model.units(DOCUMENTS)
    assert units.shape == (len(DOCUMENTS.ids), 32)
    expected = np.concatenate([vectors(model, DOCUMENTS.row(i)) for i in range(len(DOCUMENTS))])
    np.testing.assert_allclose(units, expected, atol=1e-5)
    np.testing.assert_allclose(units.norm(dim=1), 1, atol=1e-5)


def test_a_text_scores_its_length_with_itself(model):
    with torch.no_grad():
        np.testing.assert_allclose(model(DOCUMENTS, DOCUMENTS)[:, 0], DOCUMENTS.lengths, atol=1e-5)


def test_the_gradient_is_that_of_the_score(model):
    weight = model.encoder.head.weight
    model.zero_grad()
    model(QUERIES, DOCUMENTS).sum().backward()
    gradient, step = weight.grad.clone(), 1e-3
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    around = []
    with torch.no_grad():
        for sign in (1, -1):
            weight += sign * step * direction
            around.append(model(QUERIES, DOCUMENTS).double().sum().item())
            weight -= sign * step * direction
    assert (around[0] - around[1]) / (2 * step) == pytest.approx((gradient * direction).sum().item(), rel=0.02)


def test_a_text_without_units_is_named(model):
    with pytest.raises(DataError, match="without any unit"):
        model(TokenTable.from_rows([[]]), table("a"))


# --- search ----------------------------------------------------------------------------------------


def slow_search(documents, document_offsets, queries, query_offsets):
    """MaxSim of all queries with all documents, one product at a time."""
    scores = np.zeros((len(query_offsets) - 1, len(document_offsets) - 1))
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            own = documents[document_offsets[j] : document_offsets[j + 1]].astype(float)
            for unit in queries[query_offsets[i] : query_offsets[i + 1]].astype(float):
                scores[i, j] += (own @ unit).max()
    return scores


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=9)


@given(
    of_documents=lengths,
    of_queries=lengths,
    k=st.integers(1, 12),
    blocks=st.sampled_from([(1, 1), (7, 2), (100, 16)]),
    seed=st.integers(0, 10**6),
)
def test_search_equals_a_slow_reference(of_documents, of_queries, k, blocks, seed):
    rng = np.random.default_rng(seed)
    offsets, query_offsets = offsets_of(np.array(of_documents)), offsets_of(np.array(of_queries))
    documents = rng.normal(size=(offsets[-1], 3)).astype(np.float32)
    queries = rng.normal(size=(query_offsets[-1], 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late_interaction, "UNIT_BLOCK", blocks[0])
        patch.setattr(late_interaction, "QUERY_BLOCK", blocks[1])
        scores, rows = UnitIndex(documents, offsets).search(queries, query_offsets, k)
    expected = slow_search(documents, offsets, queries, query_offsets)
    assert scores.shape == rows.shape == (len(of_queries), min(k, len(of_documents)))
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=1e-4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, rows, axis=1), atol=1e-4)


def test_equal_scores_are_in_the_order_of_rows():
    vectors = np.array([[0.0, 1], [1, 0], [1, 0], [0, 1], [1, 0]], dtype=np.float32)
    scores, rows = UnitIndex(vectors, np.array([0, 1, 2, 4, 5])).search(
        np.eye(2, dtype=np.float32), np.array([0, 1, 2]), 4
    )
    assert rows.tolist() == [[1, 2, 3, 0], [0, 2, 1, 3]] and scores.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    many = UnitIndex(np.repeat(vectors[:2], 50, axis=0), np.arange(101))
    assert many.search(vectors[1:2], np.array([0, 1]), 60)[1].tolist() == [[*range(50, 100), *range(10)]]


def test_what_cannot_be_searched_is_named():
    index = UnitIndex(np.eye(2, dtype=np.float32), np.array([0, 1, 2]))
    with pytest.raises(SettingError, match="k = 0"):
        index.search(np.eye(2, dtype=np.float32), np.array([0, 2]), 0)
    with pytest.raises(DataError, match="no queries"):
        index.search(np.empty((0, 2), dtype=np.float32), np.array([0]), 1)
    with pytest.raises(DataError, match="no documents"):
        UnitIndex(np.empty((0, 2), dtype=np.float32), np.array([0]))
    with pytest.raises(DataError, match="no unit"):
        UnitIndex(np.eye(2, dtype=np.float32), np.array([0, 2, 2]))


def test_an_index_is_saved_and_loaded(tmp_path, model):
    index = UnitIndex.build(model, DOCUMENTS)
    index.save(tmp_path / "units.safetensors")
    again = UnitIndex.load(tmp_path / "units.safetensors")
    assert len(again) == 6 and again.size_bytes == len(DOCUMENTS.ids) * maxsim.DIMENSION * 4
    np.testing.assert_array_equal(again.vectors, index.vectors)
    np.testing.assert_array_equal(again.offsets, DOCUMENTS.offsets)


@pytest.mark.parametrize("block", [1, 4, 512])
def test_a_corpus_is_encoded_in_blocks(block, model, monkeypatch):
    monkeypatch.setattr(late_interaction, "DOCUMENT_BLOCK", block)
    with torch.no_grad():
        np.testing.assert_allclose(encode_units(model, DOCUMENTS), model.units(DOCUMENTS), atol=1e-5)


# --- as a system -----------------------------------------------------------------------------------


def test_a_run_is_that_of_the_models_scores_of_all_pairs(trained, collection):
    run = late_interaction.rank(trained, collection, "test", depth=40)
    benchmark, test = trained.tokenize(collection).benchmark, collection.split("test").index
    assert len(run) == len(test) * 40
    for query_id in test:
        row = collection.queries.index.get_loc(query_id)
        repeated = benchmark.queries.take(np.full(40, row))
        expected = pd.Series(trained.scores(repeated, benchmark.documents), index=collection.documents.index)
        own = run[run["query_id"] == query_id].set_index("doc_id")["score"]
        np.testing.assert_allclose(own, expected[own.index], atol=1e-4)
        assert own.is_monotonic_decreasing


def test_a_run_and_its_index_are_made_once(trained, collection, monkeypatch):
    run = late_interaction.rank(trained, collection, "test", depth=5)
    monkeypatch.setattr(late_interaction, "encode_units", lambda *_: pytest.fail("made twice"))
    pd.testing.assert_frame_equal(late_interaction.rank(trained, collection, "test", depth=5), run)
    assert len(late_interaction.build(trained, collection)) == 40


def test_it_is_trained_once_as_the_cross_encoder_is_but_is_another_model(collection, monkeypatch):
    run = BM25().rank(collection.documents["text"], collection.queries["text"], depth=12)
    start = Retriever.fresh(SMALL, LETTERS, seed=3)
    trained = late_interaction.fit(start, collection, run, LESSON, seed=0)
    assert reranking.fit(start, collection, run, LESSON, seed=0).name != trained.name
    monkeypatch.setattr(reranking, "train", lambda *_: pytest.fail("made twice"))
    again = late_interaction.fit(start, collection, run, LESSON, seed=0)
    assert isinstance(again.model, LateInteraction) and again.name == trained.name


def test_training_lowers_the_loss_on_its_lists(collection, own_build):
    run = BM25().rank(collection.documents["text"], collection.queries["text"], depth=12)
    lesson = replace(LESSON, schedule=Schedule(steps=40, batch_size=18, evaluations=2, learning_rate=3e-3))
    found = late_interaction.fit(Retriever.fresh(SMALL, LETTERS, seed=3), collection, run, lesson, seed=0)
    first, last = (row["loss"] for row in found.history.evaluations[1:])
    assert last < 0.9 * first
