"""Maps of encodings: which points stand on them, where the projection puts points; on NumPy's docstrings."""

import ltre_slice
import numpy as np
import pandas as pd
import pytest

from retlib.data.collection import hash_position
from retlib.studies import ltre_maps
from retlib.systems import ltre
from retlib.training.dynamics import Watching

RATE = 0.01


@pytest.fixture(scope="module")
def study():
    return ltre_slice.study()


@pytest.fixture(scope="module")
def watching(study):
    return Watching(every=5, interval=4, followed=tuple(ltre_maps.chosen(study, 2)), pace=4)


@pytest.fixture
def flat(monkeypatch):
    """Maps show the first two dimensions as they are, so that a point tells whose it is."""
    monkeypatch.setattr(ltre_maps, "_project", lambda vectors: vectors[:, :2])


@pytest.fixture
def trained(study, watching):
    return study.watched("LTRe", "adamw", RATE, 0, watching)


def points(frame):
    return set(frame[["x", "y"]].itertuples(index=False, name=None))


def of(vectors):
    return {tuple(row[:2]) for row in vectors}


def test_the_same_questions_are_chosen_whenever_asked(study):
    ids, _ = study.ranking.relevant("train")
    found = ltre_maps.chosen(study, 5)
    assert found[:3] == ltre_maps.chosen(study, 3) and set(found) <= set(ids)
    assert max(map(hash_position, found)) < min(map(hash_position, set(ids) - set(found)))


def test_questions_are_named_as_on_the_maps(study, watching):
    found = ltre_maps.questions(study, watching)
    assert found["question"].tolist() == ["question 1", "question 2"]
    texts = study.ranking.collection.queries["text"]
    assert found["text"].tolist() == [texts[name] for name in watching.followed]


def test_a_neighbourhood_holds_what_is_retrieved_before_or_after(study, watching, trained, flat, monkeypatch):
    monkeypatch.setattr(ltre_maps, "NEAREST", 5)
    found = ltre_maps.neighbourhoods(study, RATE, watching, 0)
    documents = ltre.encode_corpus(trained, study.ranking)
    table, rows = study.ranking.queries(watching.followed), study.ranking.collection.documents.index
    ends = [each.encode_queries(table) for each in (study.retriever("BM25 Neg", 0), trained)]
    assert found["query"].unique().tolist() == ["question 1", "question 2"]
    for place, (name, part) in enumerate(found.groupby("query")):
        shown = {what: points(own) for what, own in part.groupby("what")}
        assert [shown["before"], shown["after"]] == [of(end[[place]]) for end in ends], name
        qrels = study.ranking.collection.qrels.query("query_id == @watching.followed[@place]")
        relevant = rows.get_indexer(qrels["doc_id"])
        nearest = {int(row) for end in ends for row in np.argsort(-(documents @ end[place]))[:5]}
        assert shown["relevant"] == of(documents[relevant])
        assert shown["document"] == of(documents[sorted(nearest - set(relevant))])
        assert len(part) == len(nearest | set(relevant)) + 2


def test_the_map_of_the_corpus_has_a_sample_and_every_path(study, watching, trained, flat, monkeypatch):
    monkeypatch.setattr(ltre_maps, "MOST", 50)
    found = ltre_maps.corpus(study, RATE, watching, 0)
    documents, queries, relevant = ltre_maps.layers(found)
    vectors, (steps, paths) = ltre.encode_corpus(trained, study.ranking), ltre.paths(trained)
    assert len(documents) == 50 and points(documents) <= of(vectors)
    assert steps.tolist() == [0, 4, 8, 10]
    for place, name in enumerate(["question 1", "question 2"]):
        mine = queries[queries["query"] == name]
        assert mine["step"].tolist() == steps.tolist()
        np.testing.assert_array_equal(mine[["x", "y"]], paths[:, place, :2])
        qrels = study.ranking.collection.qrels.query("query_id == @watching.followed[@place]")
        rows = study.ranking.collection.documents.index.get_indexer(qrels["doc_id"])
        assert points(relevant[relevant["query"] == name]) == of(vectors[rows])
    assert len(documents) + len(queries) + len(relevant) == len(found)


def test_layers_are_documents_queries_and_relevant_documents():
    places = pd.DataFrame({"what": ["relevant", "query", "document", "query"], "x": range(4)})
    assert [part["x"].tolist() for part in ltre_maps.layers(places)] == [[2], [1, 3], [0]]


def test_the_projection_looks_at_directions_and_keeps_groups_together():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(8)[:3], 20, axis=0)
    vectors = (centres + 0.1 * rng.normal(size=centres.shape)).astype(np.float32)
    found = ltre_maps._project(vectors)
    assert found.shape == (60, 2) and found.dtype == np.float32
    # Lengths do not count (powers of two change no digit), and the same input gives the same map.
    lengths = np.exp2(rng.integers(-3, 4, (60, 1))).astype(np.float32)
    np.testing.assert_array_equal(ltre_maps._project(vectors * lengths), found)
    distances = np.linalg.norm(found[:, None] - found[None], axis=2) + np.diag(np.full(60, np.inf))
    assert (distances.argmin(axis=1) // 20 == np.arange(60) // 20).all()


def test_a_handful_of_points_can_be_projected():
    assert np.isfinite(ltre_maps._project(np.random.default_rng(0).normal(size=(4, 6)))).all()
