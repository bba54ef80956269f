"""Training by ranking, on a task of written words: every method, its artefacts, and that it resumes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from retlib import dense, evaluation, ltre, training
from retlib.collection import Collection
from retlib.dense import Architecture, Retriever
from retlib.dynamics import Watching
from retlib.errors import DataError, SettingError
from retlib.evaluation import evaluate
from retlib.ltre import NEGATIVES, Method, Ranking, encode_corpus, fit, indexed, rank, reorder, standing, union
from retlib.text import WordPiece

PAGES = 40
WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "uvwxyz"]
UNITS = WordPiece((*WordPiece.SPECIAL, *WORDS))
SMALL = Architecture(encoder="bow-mlp", width=32, dimension=16, query_length=4, document_length=12)
LOOK = Watching(every=2, interval=4, depth=10, followed=("q1", "q0"), pace=3)


class Killed(Exception):
    """Stands for a kill."""


def make_collection(name="words"):
    """Pages of neighbouring words; each query has words that stand near those of its page."""
    rng = np.random.default_rng(1)
    texts = [" ".join(WORDS[(page + step) % 48] for step in (0, 1, 2)) for page in range(PAGES)]
    documents = pd.DataFrame({"title": [text[:2] for text in texts], "text": texts})
    documents.index = pd.Index([f"d{page}" for page in range(PAGES)], name="doc_id")
    target = rng.integers(0, PAGES, 120)
    near = (target[:, None] + rng.integers(-2, 4, (120, 2))) % 48
    queries = pd.DataFrame({"text": [" ".join(WORDS[word] for word in row) for row in near]})
    queries["split"] = ["train"] * 80 + ["dev"] * 20 + ["test"] * 20
    queries.index = pd.Index([f"q{query}" for query in range(120)], name="query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": documents.index[target], "relevance": 1})
    # Query 0 has a second relevant document and one that is judged not to be; query 2 has none.
    qrels.loc[2, "relevance"] = 0
    other = [name for name in documents.index if name != qrels.loc[0, "doc_id"]][:2]
    more = pd.DataFrame({"query_id": "q0", "doc_id": other, "relevance": [2, 0]})
    return Collection(name, documents, queries, pd.concat([qrels, more], ignore_index=True), provenance={"a": "b"})


@pytest.fixture(scope="module")
def collection():
    return make_collection()


@pytest.fixture(scope="module")
def start():
    return Retriever.fresh(SMALL, UNITS, seed=0)


@pytest.fixture(scope="module")
def ranking(collection, start):
    return Ranking.of(collection, start)


def method(negatives="LTRe", **changes):
    given = {"steps": 6, "batch_size": 16, "n": 6, "depth": 10, "interval": 4, "evaluations": 2, "learning_rate": 1e-2}
    return Method(negatives, **{**given, **changes})


def weights(side):
    return {name: value.clone() for name, value in side.state_dict().items()}


def same(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def relevant_of(collection, query):
    chosen = collection.qrels[(collection.qrels["query_id"] == query) & (collection.qrels["relevance"] > 0)]
    return sorted(collection.documents.index.get_indexer(chosen["doc_id"]).tolist())


# --- data ------------------------------------------------------------------------------------------


def test_queries_without_a_relevant_document_are_left_out(collection, ranking):
    ids, relevant = ranking.relevant("train")
    assert ids.tolist() == [f"q{query}" for query in range(80) if query != 2]
    for query, name in enumerate(ids):
        assert relevant.row(query).tolist() == relevant_of(collection, name)
    assert len(relevant.row(0)) == 2
    judged = ranking.judged("train")
    assert judged.queries.row(1).tolist() == UNITS.encode([collection.queries["text"]["q1"]]).ids.tolist()


def test_a_split_without_a_relevant_document_is_an_error(collection, start):
    none = replace(collection, qrels=collection.qrels.assign(relevance=0))
    with pytest.raises(DataError, match="'words' has no dev queries with a relevant"):
        Ranking.of(none, start).judged("dev")


def test_an_unknown_query_is_an_error(ranking):
    with pytest.raises(DataError, match=r"no queries \['nobody'\]"):
        ranking.queries(["q0", "nobody"])


def test_a_union_holds_all_under_prefixed_ids():
    first, second = make_collection("one"), make_collection("two")
    second = replace(second, documents=second.documents.drop(columns="title"))
    whole = union([first, second], "both")
    assert whole.name == "both" and len(whole.documents) == 2 * PAGES and len(whole.queries) == 240
    assert whole.documents["text"]["two/d3"] == second.documents["text"]["d3"]
    assert "title" not in whole.documents  # the second has none
    assert whole.queries.loc["one/q90"].tolist() == [*first.queries.loc["q90"], "one"]
    mine = whole.qrels[whole.qrels["query_id"] == "two/q0"]
    assert mine["doc_id"].tolist() == ("two/" + second.qrels[second.qrels["query_id"] == "q0"]["doc_id"]).tolist()
    assert whole.provenance == {"one/a": "b", "two/a": "b"}


def test_a_ranking_says_which_collections_it_is_of(start, ranking):
    whole = union([make_collection("one"), make_collection("two")], "both")
    assert Ranking.of(whole, start).parts == ["one", "two"]
    assert ranking.parts == ["words"]


@pytest.mark.parametrize("names", [[], ["one", "one"]])
def test_a_union_of_nothing_or_of_equal_names_is_an_error(names):
    with pytest.raises(DataError, match="union"):
        union([make_collection(name) for name in names], "both")


def test_texts_are_title_and_text(collection, ranking, start):
    assert ranking.texts["d1"] == f"{WORDS[1]} {collection.documents['text']['d1']}"
    untitled = Ranking.of(replace(collection, documents=collection.documents.drop(columns="title")), start)
    assert untitled.texts["d1"] == collection.documents["text"]["d1"]


def test_lists_of_bm25_are_those_of_its_run_and_made_once(collection, ranking, monkeypatch):
    lists, (ids, _) = ranking.bm25("train", 4), ranking.relevant("train")
    run = ranking.lexical.rank(ranking.texts, collection.queries["text"][ids], 4)
    for row, name in zip(lists, ids, strict=True):
        found = collection.documents.index[row[row >= 0]].tolist()
        assert sorted(found) == sorted(run[run["query_id"] == name]["doc_id"])
    assert (ranking.bm25("train", 30) == -1).any()  # few pages share a word with a query
    monkeypatch.setattr(type(ranking.lexical), "fit", lambda *_: pytest.fail("made twice"))
    np.testing.assert_array_equal(ranking.bm25("train", 4), lists)


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


@pytest.mark.parametrize("name", ["LTRe", "Async ANN", "BM25 + Rand Neg"])
def test_the_same_comes_of_the_same_in_another_folder(name, start, ranking, tmp_path, monkeypatch):
    first = fit(start, ranking, method(name), seed=0, watch=LOOK)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path))
    again = fit(start, ranking, method(name), seed=0, watch=LOOK)
    assert same(first.model, again.model) and first.history.watched == again.history.watched


@pytest.mark.parametrize(("name", "trained"), [("LTRe", "query"), ("Async ANN", "query"), ("Async ANN", "both")])
def test_a_killed_training_resumes_to_the_same_end(name, trained, start, ranking, own_build, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    how = method(name, trained=trained, steps=10, evaluations=4), 0, LOOK if trained == "query" else None
    whole = fit(start, ranking, *how)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    looks, real = iter(range(100)), training._Loop._look

    def killing(*given):
        if next(looks) == 8:  # after the checkpoint of step 6, in the middle of an interval of four
            raise Killed
        return real(*given)

    monkeypatch.setattr(training._Loop, "_look", killing)
    with pytest.raises(Killed):
        fit(start, ranking, *how)
    monkeypatch.setattr(training._Loop, "_look", real)
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
    chosen = ids[training.__dict__["np"].sort(ltre.ranked_negatives.rows_of_step(len(ids), 16, 0, 0))]
    vectors, encoded = (
        start.encode_documents(ranking.benchmark.documents),
        start.encode_queries(ranking.queries(chosen)),
    )
    scores, rows = ltre.indexes.build("Exact", vectors).search(encoded, 10)
    run = evaluation.make_run(chosen, collection.documents.index, scores, rows)
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


def test_a_normed_head_is_kept(tmp_path, ranking):
    architecture = Architecture(layers=1, width=64, dimension=16, query_length=4, document_length=12, normed=True)
    retriever = Retriever.fresh(architecture, UNITS, seed=0)
    table = ranking.benchmark.queries
    encoded = retriever.encode_queries(table)
    np.testing.assert_allclose(encoded.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.std(axis=1), 1, atol=1e-3)
    with torch.no_grad():
        retriever.model.query_encoder.norm.weight.mul_(3)
    retriever.save(tmp_path)
    loaded = dense.Retriever.load(tmp_path)
    np.testing.assert_allclose(loaded.encode_queries(table).std(axis=1), 3, atol=1e-2)
