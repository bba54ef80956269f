"""Systems: chains of stages, trained once, resumed, saved and searched."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from words import PAGES, SMALL, UNITS, make_collection

from retlib.core.errors import DataError, SettingError
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.tokenized import texts
from retlib.models.retriever import Architecture, Retriever
from retlib.retrieval.lexical import BM25, RM3
from retlib.studies import part1  # noqa: F401 - which registers skip-thought
from retlib.systems import ranking as rankings
from retlib.systems import system as systems
from retlib.systems import training_data
from retlib.systems.compose import Fused, Lexical, Reordered
from retlib.systems.ranking import bm25_lists, encode_corpus, indexed
from retlib.systems.system import Stage, StageSetup, System, Target, fit
from retlib.systems.training_data import LabelledPairs, Labels, MaskedTokens, Pretraining
from retlib.training import trainer
from retlib.training.tasks import RetrievalTask

BARE = System(SMALL, UNITS)
SHORT = {"steps": 8, "batch_size": 16, "learning_rate": 0.01, "precision": "float32"}
LABELS = Stage(data=Labels(), **SHORT)
WARM = BARE + LABELS
LTRE = Stage(
    data=Labels(), negatives="retrieved", options={"n": 5}, loss="lambdarank-mrr", trains="query", keep="last", **SHORT
)


def weights(retriever):
    return {name: value.clone() for name, value in retriever.model.state_dict().items()}


def same(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_equal_beginnings_are_trained_once(collection, own_build, trainings):
    one = fit(WARM + LTRE, collection, 0)
    assert len(trainings) == 2
    again = fit(WARM + LTRE, collection, 0)
    fit(WARM + replace(LTRE, steps=4), collection, 0)
    assert len(trainings) == 3 and same(one, again) and one.name == again.name
    assert str(again.history) == str(one.history)  # a loss that is NaN is not equal to itself


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 4}, {"batch_size": 8}, {"learning_rate": 0.02}, {"loss": "ranknet"},
        {"negatives": "random", "options": {}},
        {"options": {"corrected": True}}, {"trains": "query"}, {"data": Labels(share=0.5)}, {"keep": "last"},
        {"chunk": 5},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_setting_takes_part_in_the_address(collection, change):
    assert replace(LABELS, **change).address(collection) != LABELS.address(collection)


def test_seeds_collections_and_architectures_are_other_trainings(collection, own_build):
    name = fit(WARM, collection, 0).name
    other = replace(collection, queries=collection.queries.assign(text=collection.queries["text"] + " more"))
    found = {name, fit(WARM, collection, 1).name, fit(WARM, other, 0).name}
    for change in ({"dimension": 8}, {"query_length": 3}):
        found.add(fit(replace(WARM, architecture=replace(SMALL, **change)), collection, 0).name)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("stage", "wrong", "named"),
    [
        (LABELS, {"loss": "sofmax"}, "Did you mean 'softmax'"),
        (LABELS, {"negatives": "bm52"}, "bm25"),
        (LABELS, {"negatives": "bm25", "options": {"k": 1}}, "Valid: depth, n"),
        (LABELS, {"data": []}, "data is empty"),
        (LTRE, {"trains": "both"}, "query encoder alone"),
        (LTRE, {"loss": "softmax"}, "several positives"),
        (LTRE, {"layers": 2}, "both encoders"),
        (LABELS, {"data": LabelledPairs(), "trains": "query"}, "labelled pairs"),
    ],
)
def test_names_and_options_that_do_not_fit_are_named(stage, wrong, named):
    with pytest.raises(SettingError, match=named):
        replace(stage, **wrong)


APART = Articles("pydocs-smoke", 300)
ICT = Pretraining(("ict",), APART)


@pytest.mark.parametrize(
    ("system", "changes", "named"),
    [
        (System(SMALL, APART), {"data": ICT, "negatives": "random", "options": {}}, "collection's documents"),
        (BARE, {"data": ICT}, "own vocabulary"),
        (System(replace(SMALL, encoder="bag-of-words"), UNITS), {"layers": 1}, "Transformers"),
        (System(replace(SMALL, encoder="skip-thought"), UNITS), {"token_dropout": 0.2}, "token_dropout"),
    ],
    ids=["negatives", "pages", "layers", "dropout"],
)  # fmt: skip
def test_what_does_not_fit_the_system_is_refused(system, changes, named, collection, own_build):
    with pytest.raises(SettingError, match=named):
        fit(system + replace(LABELS, **changes), collection, 0)


def test_training_helps_and_leaves_its_start(collection, own_build):
    start = fit(BARE, collection, 0)
    before = weights(start)
    long = replace(LABELS, steps=60, batch_size=32)
    trained = fit(BARE + long, collection, 0)
    assert all(torch.equal(value, before[name]) for name, value in weights(start).items())
    losses = [row["loss"] for row in trained.history.evaluations[1:]]
    assert losses == sorted(losses, reverse=True)
    assert trained.history.best_score > 1.5 * trained.history.evaluations[0]["score"]


@pytest.mark.parametrize(
    "stage", [LABELS, replace(LABELS, chunk=5), replace(LABELS, negatives="ann", options={"interval": 3}), LTRE]
)
def test_a_killed_training_resumes_to_the_same_weights(collection, stage, monkeypatch, own_build, tmp_path):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    expected = fit(BARE + stage, collection, 0)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    steps, batch = [], RetrievalTask.batch

    def noting(self, step):
        steps.append(step)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return batch(self, step)

    monkeypatch.setattr(RetrievalTask, "batch", noting)
    with pytest.raises(KeyboardInterrupt):
        fit(BARE + stage, collection, 0)
    assert same(fit(BARE + stage, collection, 0), expected)
    assert steps == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7]


def test_a_share_of_the_labels_is_a_part_of_its_queries(collection, monkeypatch):
    monkeypatch.setattr(training_data, "FEWEST", 2)
    part = Labels(share=0.25).collection(collection)
    for split, count in {"train": 20, "dev": 5}.items():
        assert len(part.split(split)) == count
    assert part.split("test").equals(collection.split("test"))
    assert set(part.qrels["query_id"]) <= set(part.queries.index)


def test_a_collection_without_validation_queries_lends_some(collection):
    whole = collection.part(queries=collection.queries["split"] != "dev")
    found = Labels().collection(whole)
    assert 0 < len(found.split("dev")) < len(found.split("train")) < 80
    none = replace(whole, qrels=whole.qrels.iloc[:0])
    with pytest.raises(DataError, match="0 labelled queries"):
        Labels().collection(none)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_labels_train_and_validate_whatever_their_hashes_are(collection, count):
    """Queries without a relevant document do not count for either."""
    relevant = collection.relevant("train")["query_id"].unique()
    for start in range(0, 60, count):
        kept = {"q2", *relevant[start : start + count]}
        few = collection.part(queries=collection.queries.index.isin(kept))
        found = Labels().collection(few)
        assert set(found.queries["split"][relevant[start : start + count]]) == {"train", "dev"}


def scripted(collection, score):
    """A training whose student gives the documents of a pool encodings that are written beforehand."""
    training = StageSetup(LABELS, Retriever.fresh(SMALL, UNITS, 0), collection, 0)
    training.student.encode_queries = lambda table: np.ones((len(table), 1), dtype=np.float32)
    training.student.encode_documents = lambda table: score(len(table))[:, None].astype(np.float32)
    return training


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_model_that_tells_nothing_apart_is_not_the_best(collection, value):
    training = scripted(collection, lambda count: np.full(count, value))
    assert training.validation(collection)() <= 1 / PAGES + 1e-9


def test_validation_is_the_reciprocal_rank_of_the_first_relevant_document(collection):
    training = scripted(collection, lambda count: -np.arange(count, dtype=float))
    _, relevant = training.start.reads(collection).relevant("dev")
    own = np.unique(relevant.ids)
    # The pool begins with the queries' own documents, in the order of their rows, and scores fall.
    expected = [1 / (1 + min(np.searchsorted(own, relevant.row(i)))) for i in range(len(relevant))]
    assert training.validation(collection)() == pytest.approx(np.mean(expected))


def test_other_pre_training_than_pairs(own_build):
    pages = Articles("pydocs-smoke", 300)
    small = Architecture(layers=1, width=64, dimension=16, query_length=12, document_length=24, towers="two")
    masked = System(small, pages) + Stage(data=MaskedTokens(pages), **SHORT | {"learning_rate": 0.003})
    found = fit(masked, make_collection(), 0)
    left, right = found.model.query_encoder, found.model.document_encoder
    assert all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))
    assert found.history.evaluations[-1]["score"] > found.history.evaluations[0]["score"]
    for other in (SMALL, replace(small, layers=0)):
        with pytest.raises(SettingError, match="a Transformer with layers"):
            fit(System(other, pages) + Stage(data=MaskedTokens(pages), **SHORT), make_collection(), 0)


def test_a_killed_encoding_goes_on_from_its_blocks(collection, own_build, monkeypatch):
    retriever, real, encoded = Retriever.fresh(SMALL, UNITS, 0), Retriever.encode_documents, []
    read = retriever.reads(collection)
    whole = real(retriever, read.documents)
    monkeypatch.setattr(rankings, "BLOCK", 16)

    def killed(self, table):
        encoded.append(len(table))
        if len(encoded) == 3:
            raise KeyboardInterrupt
        return real(self, table)

    monkeypatch.setattr(Retriever, "encode_documents", killed)
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(retriever, read)
    found = encode_corpus(retriever, read)
    assert encoded == [16, 16, 8, 8]  # of 40 documents
    np.testing.assert_array_equal(found, whole)
    cheap = Retriever.fresh(replace(SMALL, encoder="bag-of-words"), UNITS, 0)
    np.testing.assert_array_equal(encode_corpus(cheap, read), real(cheap, read.documents))
    assert encoded[4:] == [16, 16, 8]  # what is cheap is not kept


def test_a_run_is_that_of_all_documents_by_inner_product_and_made_once(collection, own_build, monkeypatch):
    trained, run = fit(WARM, collection, 0), WARM.run(Target(collection), depth=5)
    read, queries = trained.reads(collection), collection.split("test").index
    scores = trained.encode_queries(read.query_rows(queries)) @ trained.encode_documents(read.documents).T
    best = dict(zip(queries, collection.documents.index[scores.argmax(axis=1)], strict=True))
    assert run.groupby("query_id")["doc_id"].first().to_dict() == best
    np.testing.assert_allclose(run["score"].to_numpy().reshape(-1, 5)[:, 0], scores.max(axis=1), rtol=1e-5)
    monkeypatch.setattr(Retriever, "encode_documents", lambda *_: pytest.fail("encoded twice"))
    pd.testing.assert_frame_equal(WARM.run(Target(collection), depth=5), run)
    words = Lexical(BM25())
    listed = words.run(Target(collection))
    monkeypatch.setattr(BM25, "fit", lambda *_: pytest.fail("fitted twice"))
    pd.testing.assert_frame_equal(Lexical(BM25()).run(Target(collection)), listed)

    class Louder(BM25):
        def _terms(self, text):
            return [*super()._terms(text), "loud"]

    assert Lexical(Louder()).address(Target(collection), 0)["source"] != words.address(Target(collection), 0)["source"]
    before = Lexical(RM3()).address(Target(collection), 0)
    monkeypatch.setattr(BM25, "_terms", Louder._terms)
    assert Lexical(RM3()).address(Target(collection), 0) != before  # whose terms are BM25's


def test_what_is_not_trained_is_asked_as_well(collection, own_build):
    first, other = (BARE.run(Target(collection), seed, depth=5) for seed in (0, 1))
    assert not first["score"].equals(other["score"])
    pd.testing.assert_frame_equal(BARE.run(Target(collection), 0, depth=5), first)
    assert BARE.cost(Target(collection), 0) == (0, 0.0, ()) and BARE.trained


def test_a_compressed_index_is_another_search_of_the_same_training(collection, own_build, trainings, monkeypatch):
    exact, coarse = WARM.run(Target(collection), 0), WARM.with_index("PQ2x4").run(Target(collection), 0)
    assert len(trainings) == 1 and not exact.equals(coarse)
    read = fit(WARM, collection, 0).reads(collection)
    trained = fit(WARM, collection, 0)
    assert indexed(trained, read, "PQ2x4").size_bytes < indexed(trained, read).size_bytes
    # Indexes of another version are searched anew; the exact one has none.
    asked: list[str] = []
    monkeypatch.setattr(systems, "INDEX", -1)
    monkeypatch.setattr(rankings, "indexed", lambda *given: asked.append(given[2]) or indexed(*given))
    again = [system.run(Target(collection), 0) for system in (WARM, WARM.with_index("PQ2x4"))]
    assert asked == ["PQ2x4"] and again[0].equals(exact) and again[1].equals(coarse)


def test_lists_of_bm25_are_those_of_its_run_and_made_once(collection, ranking, own_build, monkeypatch):
    lists, (ids, _) = bm25_lists(ranking, "train", 4), ranking.relevant("train")
    run = BM25().rank(texts(collection), collection.queries["text"][ids], 4)
    for row, name in zip(lists, ids, strict=True):
        found = collection.documents.index[row[row >= 0]].tolist()
        assert sorted(found) == sorted(run[run["query_id"] == name]["doc_id"])
    monkeypatch.setattr(BM25, "fit", lambda *_: pytest.fail("made twice"))
    np.testing.assert_array_equal(bm25_lists(ranking, "train", 4), lists)


def test_a_question_that_is_a_document_is_in_no_list_of_its_own(collection, own_build):
    """As in ArguAna: each document is a question, and the next one is relevant to it."""
    documents = collection.documents.assign(title="")
    queries = pd.DataFrame({"text": documents["text"], "split": ["train", "dev", "test", "test"] * 10})
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": np.roll(queries.index, -1), "relevance": 1})
    asked = Collection("asked", documents, queries.rename_axis("query_id"), qrels)
    bm25, target = Lexical(BM25()), Target(asked)
    for system in (bm25, WARM, Fused((WARM, bm25), (0.5, 0.5)), Reordered(bm25, WARM)):
        run = system.run(target, 0, depth=3)
        assert not (run["query_id"] == run["doc_id"]).any()
        assert run.groupby("query_id").size().isin((2, 3)).all()  # at the ends BM25 has no more
    training = StageSetup(LABELS, fit(BARE, asked, 0), asked, 0)
    ranks = BARE.run(target, 0, "dev").groupby("query_id", sort=False)["doc_id"].agg(list)
    expected = [1 / (1 + found.index(f"d{(int(name[1:]) + 1) % 40}")) for name, found in ranks.items()]
    assert training.validation(asked)() == pytest.approx(np.mean(expected))
    judged = replace(asked, qrels=pd.concat([qrels, qrels.assign(doc_id=qrels["query_id"])]))
    run = bm25.run(Target(judged))
    assert (run.groupby("query_id", sort=False)["doc_id"].first() == run["query_id"].unique()).all()
    assert LABELS.address(judged) != LABELS.address(asked)


def test_a_list_in_another_s_order_has_the_same_documents(collection, own_build):
    target, bm25 = Target(collection), Lexical(BM25())
    first, found = bm25.run(target), Reordered(bm25, WARM, depth=3).run(target, 0)
    head = first.groupby("query_id", sort=False).head(3)
    sets = [run.groupby("query_id")["doc_id"].agg(set).to_dict() for run in (found, head)]
    assert sets[0] == sets[1]
    assert not found["doc_id"].equals(head["doc_id"])


def test_a_fused_list_adds_what_both_say(collection, own_build):
    target, bm25 = Target(collection), Lexical(BM25())
    both = Fused((WARM, bm25), (0.25, 0.75))
    run, dense, words = both.run(target, 0), WARM.run(target, 0), bm25.run(target)

    def share(run, name):
        mine = run[run["query_id"] == name].set_index("doc_id")["score"]
        return (mine - mine.min()) / (mine.max() - mine.min())

    name = words["query_id"].iloc[0]
    expected = (0.25 * share(dense, name)).add(0.75 * share(words, name), fill_value=0)
    found = run[run["query_id"] == name].set_index("doc_id")["score"]
    assert set(found.index) == set(expected.index) and found.is_monotonic_decreasing
    np.testing.assert_allclose(found, expected[found.index], atol=1e-5)
    assert both.trained and both.cost(target, 0) == WARM.cost(target, 0)
    scores, rows = both.searcher(target, 0)(collection.queries.loc[[name]], 3)
    assert collection.documents.index[rows[0]].tolist() == found.index[:3].tolist()
    np.testing.assert_allclose(scores[0], found[:3], atol=1e-5)


def test_costs_are_those_of_all_stages(collection, own_build):
    steps, seconds, curve = (WARM + LTRE).cost(Target(collection), 0)
    assert steps == 8  # of the last stage, whose last weights are kept
    last = fit(WARM + LTRE, collection, 0).history.frame()
    assert list(curve) == [*zip(last["step"], last["score"], strict=True)] and curve[0][0] == 0
    parts = [fit(each, collection, 0).history.seconds for each in (WARM, WARM + LTRE)]
    assert seconds == pytest.approx(sum(parts))


def test_a_sentence_encoder_brings_its_words_and_is_the_same_for_every_seed(collection, own_build, tmp_path):
    made = replace(SMALL, encoder="transformer", width=64, layers=1)
    for name in ("here", "there"):
        Retriever.fresh(made, UNITS, 77).model.query_encoder.bert.save_pretrained(tmp_path / name)
        UNITS.save(tmp_path / name / "vocab.txt")
    here, there = (
        System(Architecture.of_checkpoint(str(tmp_path / name), query_length=8, document_length=16))
        for name in ("here", "there")
    )
    assert here.tokenizer(collection) == UNITS and not here.trained and here.cost(Target(collection), 0).steps is None
    target = Target(collection)
    pd.testing.assert_frame_equal(here.run(target, 0, depth=5), here.run(target, 1, depth=5))
    ltre = replace(LABELS, negatives="retrieved", loss="lambdarank-mrr", trains="query", options={"n": 5})
    assert (here + ltre).trained and fit(here + ltre, collection, 0).name == fit(there + ltre, collection, 0).name
    assert not Reordered(Lexical(BM25()), here).trained and Reordered(Lexical(BM25()), here + ltre).trained


def test_no_two_stages_of_a_chain_see_their_pairs_in_the_same_order(collection, own_build, monkeypatch):
    orders, real = [], trainer.train

    def noting(task, *given):
        orders.append([task.batch(step).rows.tolist() for step in range(3)])
        return real(task, *given)

    monkeypatch.setattr(trainer, "train", noting)
    fit(WARM + LABELS + LABELS, collection, 0)
    assert len({str(order) for order in orders}) == 3


def test_layers_grow_on_a_chain_and_are_read_as_they_were_written(collection, own_build):
    start = System(replace(SMALL, encoder="transformer", layers=0, width=64), UNITS) + LABELS
    grown = start + replace(LABELS, steps=1, layers=2, learning_rate=1e-9, warmup=0.0, keep="last")
    before, after = (fit(system, collection, 0) for system in (start, grown))
    tokenized = before.reads(collection)
    encoded = [each.encode_documents(tokenized.documents) for each in (after, before)]
    np.testing.assert_allclose(*encoded, atol=1e-5)
    assert after.architecture.layers == 2 and before.architecture.layers == 0
    with pytest.raises(SettingError, match="layers = 1"):
        fit(grown + replace(LABELS, layers=1), collection, 0)


def test_towers_that_grow_begin_alike(collection):
    made = replace(SMALL, encoder="transformer", layers=0, width=64, towers="two")
    training = StageSetup(replace(LABELS, layers=1), Retriever.fresh(made, UNITS, 0), collection, 0)
    left, right = training.module.query_encoder, training.module.document_encoder
    assert left is not right
    assert all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))


def test_tokens_that_training_leaves_out_are_there_when_it_searches(collection, monkeypatch):
    start = Retriever.fresh(replace(SMALL, encoder="transformer", layers=0, width=64), UNITS, 0)
    training = StageSetup(replace(LTRE, token_dropout=0.9), start, collection, 0)
    inputs = training.inputs(collection)
    task, asked, index = training.task(training.module, inputs), [], inputs.index()
    real = index.search
    monkeypatch.setattr(index, "search", lambda encoded, k: asked.append(encoded) or real(encoded, k))
    task.module.train()
    batch = task.batch(0)
    task.loss(batch)
    np.testing.assert_allclose(asked[0], start.encode_queries(batch.queries), atol=2e-2)  # which may be in bfloat16
    assert task.module.training
