"""Training by ranking, on a task of written words: every method, its artefacts, and that it resumes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from words import SMALL

from retlib.core.errors import DataError, SettingError
from retlib.evaluation.measures import evaluate
from retlib.retrieval.lexical import BM25
from retlib.retrieval.runs import make_run
from retlib.systems import ltre
from retlib.systems.dense import Retriever
from retlib.systems.ltre import NEGATIVES, Method, Setting, encode_corpus, fit, indexed, rank, reorder, standing
from retlib.systems.ranking import Ranking
from retlib.training import trainer
from retlib.training.dynamics import Watching

LOOK = Watching(every=2, interval=4, depth=10, followed=("q1", "q0"), pace=3)


class Killed(Exception):
    """Stands for a kill."""


def method(negatives="LTRe", **changes):
    given = {"steps": 6, "batch_size": 16, "n": 6, "depth": 10, "interval": 4, "evaluations": 2, "learning_rate": 1e-2}
    return Method(negatives, **{**given, **changes})


def weights(side):
    return {name: value.clone() for name, value in side.state_dict().items()}


def same(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# --- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEGATIVES)
def test_every_method_trains_the_query_encoder_alone(name, start, ranking):
    before = weights(start.model)
    found = fit(start, ranking, method(name, learning_rate=1e-3), seed=0, watch=LOOK)
    assert found.architecture.towers == "two" and found.name
    assert same(found.model.document_encoder, start.model.document_encoder)
    assert not same(found.model.query_encoder, start.model.query_encoder)
    assert all(torch.equal(before[key], value) for key, value in weights(start.model).items())


@pytest.mark.parametrize("name", [name for name in NEGATIVES if name != "LTRe"])
def test_every_method_but_ltre_trains_both_encoders(name, start, ranking):
    found = fit(start, ranking, method(name, trained="both", steps=40, n=2), seed=0)
    assert found.architecture == SMALL and found.history.best_step > 0
    assert not same(found.model.document_encoder, start.model.document_encoder)
    assert found.history.best_score > found.history.evaluations[0]["score"]
    part = "encoding corpus" if name == "Async ANN" else "encoding documents"
    assert found.history.parts[part] > 0


def test_ltre_learns_to_retrieve(start, ranking, collection):
    trained = fit(start, ranking, method(steps=150, n=20, evaluations=3), seed=0)
    scores = []
    for retriever in (fit(start, ranking, method(steps=1, learning_rate=1e-9), seed=0), trained):
        run = rank(retriever, ranking, depth=10)
        scores.append(evaluate(run, collection.judgments("test"), ["RR@10"])["value"].mean())
    assert scores[1] > 1.5 * scores[0]


def test_it_is_trained_once(start, ranking, monkeypatch):
    first = fit(start, ranking, method(), seed=0)
    monkeypatch.setattr(ltre, "train", lambda *_: pytest.fail("trained twice"))
    again = fit(start, ranking, method(), seed=0)
    assert same(first.model, again.model) and again.name == first.name and again.history == first.history


@pytest.mark.parametrize(
    "changes", [{"n": 7}, {"loss": "lambdarank-mrr"}, {"index": "SQ8"}, {"seed": 1}, {"watch": LOOK}]
)
def test_what_makes_a_difference_is_in_the_address(changes, start, ranking):
    first = fit(start, ranking, method(), seed=0)
    asked = {"seed": changes.pop("seed", 0), "watch": changes.pop("watch", None)}
    assert fit(start, ranking, method(**changes), **asked).name != first.name


OTHER = {"n": 8, "depth": 9, "interval": 2, "index": "SQ8", "search": {"nprobe": 2}}


@pytest.mark.parametrize("name", NEGATIVES)
def test_negatives_use_what_they_declare(name, start, ranking, monkeypatch):
    read, real = set(), Ranking.bm25
    monkeypatch.setattr(Ranking, "bm25", lambda *given: read.add("lexical") or real(*given))

    class Reading:
        def __getattr__(self, field):
            read.add(field)
            return getattr(method(name), field)

    def index():
        read.update(ltre.INDEXED)
        return indexed(start, ranking)

    setting = Setting(ranking, ranking.judged("train"), Reading(), 0, start.encode_queries, index)
    NEGATIVES[name](setting).batch(0)
    assert read & {*ltre.OPTIONS, "lexical"} == set(NEGATIVES[name].uses)


@pytest.mark.parametrize("name", NEGATIVES)
def test_an_address_holds_what_a_method_uses(name):
    assert set(OTHER) == set(ltre.OPTIONS)
    for trained in ("query", "both") if name != "LTRe" else ("query",):
        found = {
            key
            for key, value in OTHER.items()
            if method(name, trained=trained, **{key: value}).address != method(name, trained=trained).address
        }
        indexed_anyway = set(ltre.INDEXED) if trained == "query" else set()  # for the dev queries
        assert found == (set(NEGATIVES[name].uses) - {"lexical"}) | indexed_anyway
    assert method(name, steps=7).address != method(name).address


def test_a_setting_that_is_not_used_trains_nothing_anew(start, ranking, monkeypatch):
    names = {fit(start, ranking, method("BM25 Neg"), seed=0).name, fit(start, ranking, method("NCE Neg"), seed=0).name}
    other = replace(ranking, lexical=BM25(b=0.5))
    assert fit(start, other, method("BM25 Neg"), seed=0).name not in names
    monkeypatch.setattr(ltre, "train", lambda *_: pytest.fail("trained twice"))
    assert fit(start, ranking, method("BM25 Neg", interval=2), seed=0).name in names
    assert fit(start, other, method("NCE Neg", interval=2, n=3, depth=5), seed=0).name in names


@pytest.mark.parametrize("name", ["LTRe", "Async ANN", "BM25 + Rand Neg"])
def test_the_same_comes_of_the_same_in_another_folder(name, start, ranking, tmp_path, monkeypatch):
    first = fit(start, ranking, method(name), seed=0, watch=LOOK)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path))
    again = fit(start, ranking, method(name), seed=0, watch=LOOK)
    assert same(first.model, again.model) and first.history.watched == again.history.watched


@pytest.mark.parametrize(("name", "trained"), [("LTRe", "query"), ("Async ANN", "query"), ("Async ANN", "both")])
def test_a_killed_training_resumes_to_the_same_end(name, trained, start, ranking, own_build, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    how = method(name, trained=trained, steps=10, evaluations=4), 0, LOOK if trained == "query" else None
    whole = fit(start, ranking, *how)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    looks, real = iter(range(100)), trainer._Loop._look

    def killing(*given):
        if next(looks) == 8:  # after the checkpoint of step 6, in the middle of an interval of four
            raise Killed
        return real(*given)

    monkeypatch.setattr(trainer._Loop, "_look", killing)
    with pytest.raises(Killed):
        fit(start, ranking, *how)
    monkeypatch.setattr(trainer._Loop, "_look", real)
    resumed = fit(start, ranking, *how)
    assert same(resumed.model, whole.model)
    assert resumed.history.watched == whole.history.watched
    assert resumed.history.parts.keys() == whole.history.parts.keys()
    if trained == "query":
        for left, right in zip(ltre.paths(resumed), ltre.paths(whole), strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_watched_training_keeps_the_last_weights_and_what_it_saw(start, ranking):
    found = fit(start, ranking, method(learning_rate=1e-2), seed=0, watch=LOOK)
    assert found.history.frame()["step"].tolist() == [0, 3, 6]
    assert [row["step"] for row in found.history.watched] == [0, 2, 4]
    assert list(found.history.watched[0]) == ["step", "RR@10", "R@10", "overlap BM25", "overlap stale"]
    assert found.history.watched[0]["overlap stale"] == 1
    steps, encodings = ltre.paths(found)
    assert steps.tolist() == [0, 3, 6]
    table = ranking.queries(LOOK.followed)
    np.testing.assert_array_equal(encodings[0], start.encode_queries(table))
    np.testing.assert_array_equal(encodings[-1], found.encode_queries(table))


def test_what_a_watch_sees_first_is_the_start(start, ranking, collection):
    seen = fit(start, ranking, method(), seed=0, watch=LOOK).history.watched[0]
    ids, _ = ranking.relevant("train")
    chosen = ids[trainer.__dict__["np"].sort(ltre.ranked_negatives.rows_of_step(len(ids), 16, 0, 0))]
    vectors, encoded = (
        start.encode_documents(ranking.benchmark.documents),
        start.encode_queries(ranking.queries(chosen)),
    )
    scores, rows = ltre.indexes.build("Exact", vectors).search(encoded, 10)
    run = make_run(chosen, collection.documents.index, scores, rows)
    values = evaluate(run, collection.qrels[collection.qrels["query_id"].isin(chosen)], ["RR@10", "R@10"])
    for measure, value in values.groupby("measure")["value"].mean().items():
        assert seen[measure] == pytest.approx(value)


def test_a_standing_retriever_is_seen_as_one_that_a_training_does_not_move(start, ranking):
    before = weights(start.model)
    how = method("Rand Neg", steps=10, learning_rate=1e-12)
    found = standing(start, ranking, how, 3, LOOK)
    still = fit(start, ranking, how, seed=3, watch=LOOK)
    assert same(still.model.query_encoder, start.model.query_encoder)  # such steps are lost in rounding
    assert found == still.history.watched
    assert [row["step"] for row in found] == [0, 2, 4, 6, 8] and len({row["RR@10"] for row in found}) > 1
    assert all(row["overlap stale"] == 1 for row in found)
    assert all(torch.equal(before[key], value) for key, value in weights(start.model).items())
    # What its sampler draws is not looked at, and "both" asks for the queries as well.
    assert found == standing(start, ranking, replace(how, negatives="BM25 Neg", trained="both"), 3, LOOK)


def test_an_unwatched_training_keeps_the_last_weights_as_well(start, ranking):
    alone = fit(start, ranking, method(), seed=0)
    watched = fit(start, ranking, method(), seed=0, watch=LOOK)
    assert alone.name != watched.name and same(alone.model, watched.model)
    with pytest.raises(DataError, match="no queries were followed"):
        ltre.paths(alone)


def test_the_parts_of_a_training_are_its_whole(start, ranking):
    history = fit(start, ranking, method(steps=20), seed=0).history
    parts = ltre.parts(history)
    assert set(parts.index) == {
        "sampling",
        "encoding queries",
        "encoding documents",
        "search",
        "loss and backward",
        "optimizer",
    }
    assert (parts >= 0).all() and parts.sum() == pytest.approx(history.seconds)


def test_a_training_through_a_compressed_index_retrieves_through_it(start, ranking):
    found = fit(start, ranking, method(index="IVF4,Flat", search={"nprobe": 4}), seed=0, watch=LOOK)
    exact = fit(start, ranking, method(), seed=0, watch=LOOK)
    # All lists are searched: it finds what exact search finds.
    for name, value in weights(found.model).items():
        torch.testing.assert_close(value, weights(exact.model)[name], rtol=1e-3, atol=1e-5)
    narrow = fit(start, ranking, method(index="IVF4,Flat", search={"nprobe": 1}), seed=0, watch=LOOK)
    assert not same(narrow.model, found.model)
    assert narrow.history.watched[0]["R@10"] < exact.history.watched[0]["R@10"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"trained": "both"}, "query encoder alone"),
        ({"loss": "softmax"}, "one positive"),
        ({"negatives": "LTR"}, "negatives = 'LTR'.*LTRe"),
        ({"trained": "documents"}, "trained = 'documents'"),
        ({"interval": 0}, "interval = 0"),
    ],
)
def test_what_cannot_be_trained_is_an_error(changes, match):
    with pytest.raises(SettingError, match=match):
        method(**changes)


def test_what_does_not_fit_together_is_an_error(start, ranking):
    with pytest.raises(SettingError, match="even number"):
        fit(start, ranking, method("BM25 + Rand Neg", n=3), seed=0)
    with pytest.raises(SettingError, match="can be watched"):
        fit(start, ranking, method("Rand Neg", trained="both"), seed=0, watch=LOOK)


# --- ranking ---------------------------------------------------------------------------------------


def test_documents_are_encoded_once_for_all_that_share_their_encoder(start, ranking, monkeypatch):
    vectors = encode_corpus(start, ranking)
    np.testing.assert_array_equal(vectors, start.encode_documents(ranking.benchmark.documents))
    trained = fit(start, ranking, method(), seed=0)
    monkeypatch.setattr(Retriever, "encode_documents", lambda *_: pytest.fail("encoded twice"))
    np.testing.assert_array_equal(encode_corpus(trained, ranking), vectors)


def test_a_run_is_that_of_a_slow_reference_and_made_once(start, ranking, collection, monkeypatch):
    retriever = fit(start, ranking, method(), seed=0)
    run = rank(retriever, ranking, split="dev", depth=7)
    ids = collection.split("dev").index
    scores = retriever.encode_queries(ranking.queries(ids)) @ encode_corpus(retriever, ranking).T
    for query, row in zip(ids, scores, strict=True):
        expected = collection.documents.index[np.argsort(-row, kind="stable")[:7]].tolist()
        assert sorted(run[run["query_id"] == query]["doc_id"]) == sorted(expected)
    monkeypatch.setattr(ltre, "indexed", lambda *_: pytest.fail("made twice"))
    assert rank(retriever, ranking, split="dev", depth=7).equals(run)


def test_a_run_through_a_compressed_index(start, ranking):
    retriever = fit(start, ranking, method(), seed=0)
    whole = rank(retriever, ranking, index="IVF4,Flat", depth=5, search={"nprobe": 4})
    pd.testing.assert_frame_equal(whole, rank(retriever, ranking, depth=5), rtol=1e-4)
    assert not rank(retriever, ranking, index="IVF4,Flat", depth=5).equals(whole)
    assert indexed(retriever, ranking, "SQ8").size_bytes < indexed(retriever, ranking).size_bytes


def test_only_a_trained_retriever_is_asked_for_a_run(start, ranking):
    with pytest.raises(DataError, match="trained"):
        rank(start, ranking)


def test_another_systems_run_is_reordered(start, ranking, collection):
    test = collection.split("test")
    run = ranking.lexical.rank(ranking.texts, test["text"], 9)
    found = reorder(start, ranking, run, depth=4)
    documents, vectors = collection.documents.index, encode_corpus(start, ranking)
    for query, part in run.groupby("query_id"):
        head = part["doc_id"][:4].tolist()
        scores = vectors[documents.get_indexer(head)] @ start.encode_queries(ranking.queries([query]))[0]
        mine = found[found["query_id"] == query]
        assert sorted(mine["doc_id"]) == sorted(head)
        np.testing.assert_allclose(mine["score"], np.sort(scores)[::-1], rtol=1e-5, atol=1e-6)
