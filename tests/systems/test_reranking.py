"""Models of pairs as systems: trained on lists, they re-rank another's results or search by themselves."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from letters import LESSON, LETTERS, READER, SMALL, make_collection, tokens

from retlib.core.errors import SettingError
from retlib.core.registry import Registry
from retlib.data.collection import Collection
from retlib.models import pair_models
from retlib.models.pair_models import LateInteraction, PairArchitecture, PairModel
from retlib.retrieval.lexical import BM25
from retlib.systems import compose
from retlib.systems.compose import Lexical, MaxSimSearch, PairSetup, PairSystem, Reranked
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels

LATE = replace(READER, model="late-interaction")


@pytest.fixture(scope="module")
def collection():
    return make_collection()


@pytest.fixture(scope="module")
def target(collection):
    return Target(collection)


@pytest.fixture(scope="module")
def words():
    return Lexical(BM25())


GOLDEN = {"cross-encoder": [1.352454, 1.269539], "late-interaction": [1.404525, 1.360388]}


@pytest.mark.parametrize("reader", [READER, LATE], ids=lambda reader: reader.model)
def test_the_loss_curve_is_the_recorded_one(reader, collection, exact, own_build):
    """Who changes it raises `compose.VERSION`."""
    found = [row["loss"] for row in reader.fit(collection, 0).history.evaluations[1:]]
    assert found == pytest.approx(GOLDEN[reader.model], abs=1e-4)


def test_a_model_is_trained_once_and_found_again(collection, trainings, own_build):
    found, again = (READER.fit(collection, seed=0) for _ in range(2))
    assert len(trainings) == 1 and again.name == found.name != ""
    assert [row["step"] for row in again.history.evaluations] == [0, 3, 6]
    assert again.architecture == PairArchitecture(**asdict(SMALL), kind="cross-encoder")
    for name, weight in found.model.named_parameters():
        assert weight.equal(again.model.get_parameter(name))


@pytest.mark.parametrize(
    "changes",
    [{"start": System(replace(SMALL, layers=2), LETTERS)}, {"model": "late-interaction"}]
    + [{"stage": replace(LESSON, **each)} for each in ({"loss": "ranknet"}, {"options": {"n": 2}}, {"steps": 5})],
    ids=["start", "model", "loss", "negatives", "steps"],
)
def test_every_setting_makes_another_model(changes, collection):
    assert replace(READER, **changes).fit(collection, 0).name != READER.fit(collection, 0).name


def test_negatives_may_be_searched_for_by_the_start(collection, own_build):
    stage = replace(LESSON, negatives="ann", options={"n": 2})
    assert len(replace(READER, stage=stage).fit(collection, 0).history.evaluations) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"stage": {"scale": 2.0}}, {"stage": {"chunk": 2}}, {"stage": {"trains": "query"}}, {"model": "crossencoder"},
        {"start": System(replace(SMALL, encoder="bow-mlp"), LETTERS)}, 
        {"stage": {"negatives": "in-batch", "options": {}}},
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(wrong, collection, own_build):
    with pytest.raises(SettingError):
        changed = {name: replace(LESSON, **value) if name == "stage" else value for name, value in wrong.items()}
        replace(READER, **changed).fit(collection, 0)


def test_a_model_of_ones_own_is_trained_and_found(collection, own_build, monkeypatch):
    monkeypatch.setattr(pair_models, "PAIR_MODELS", Registry("pair model"))
    monkeypatch.setattr(compose, "PAIR_MODELS", pair_models.PAIR_MODELS)

    @pair_models.PAIR_MODELS.register("halved")
    class Halved(LateInteraction):
        def forward(self, queries, documents):
            return super().forward(queries, documents) / 2

    assert isinstance(PairSystem(READER.start, LESSON, "halved").fit(collection, 0).model, Halved)


def validated(script, found, most=100):
    """The validation score of three queries, "e", "f" and "g", with "b", "a" and "d" relevant, over given lists."""
    documents = pd.DataFrame({"text": list("abcd")}, index=pd.Index(list("abcd"), name="doc_id"))
    queries = pd.DataFrame({"text": list("efg"), "split": "dev"}, index=pd.Index(["q0", "q1", "q2"], name="query_id"))
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": list("bad"), "relevance": 1})
    collection = Collection("small", documents, queries, qrels)
    start, lesson = fit(READER.start, collection, 3), replace(LESSON, steps=most, batch_size=1)
    training = PairSetup(replace(READER, stage=lesson), start, collection, 0)
    training.student.scores = lambda queries, documents: np.array(
        [script[LETTERS.tokens[row[0]]] for row in tokens(documents)], np.float32
    )
    lists = np.array([["abcd".index(name) for name in row] + [-1] * (4 - len(row)) for row in found])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "bm25_lists", lambda *_: lists)
        return training.validation(collection)()


def test_validation_is_the_reciprocal_rank_in_the_re_ordered_list():
    script = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
    # "b" is second, "a" first, and "d" not in the list: 1/2, 1 and 0.
    assert validated(script, ["cab", "dca", "abc"]) == pytest.approx((1 / 2 + 1 + 0) / 3)
    for value in (0.0, float("nan")):  # a model that tells nothing apart is last
        assert validated(dict.fromkeys("abcd", value), ["abcd", "ad", "d"]) <= (1 / 4 + 1 / 2 + 1) / 3


def test_validation_reads_no_more_queries_and_candidates_than_its_limits(monkeypatch):
    even, lists = dict.fromkeys("abcd", 0.0), ["ba", "ab", "da"]
    assert validated(even, lists) == 1 / 2
    monkeypatch.setattr(compose, "CANDIDATES", 1)
    assert validated(even, lists) == 1  # in lists of one, a relevant document is first
    # A short training is validated on no more queries than it sees; here it is that with a list.
    assert {validated(even, [found, found, found], most=1) for found in ("b", "a", "d")} == {0, 1}


def test_a_run_is_re_ranked_by_the_models_scores_once(target, collection, words, own_build, monkeypatch):
    """What lies deeper keeps its order."""
    system = Reranked(words, READER, depth=5)
    found, before, model = system.run(target, 0), words.run(target), READER.fit(collection, 0)
    tokenized, place = model.reads(collection), before.groupby("query_id").cumcount()
    assert len(found) == len(before) and found["doc_id"].tolist() != before["doc_id"].tolist()
    for name, first in before[place < 5].groupby("query_id"):
        scores = model.scores(tokenized.query_rows(first["query_id"]), tokenized.document_rows(first["doc_id"]))
        own = found[found["query_id"] == name]
        np.testing.assert_allclose(own["score"][:5], np.sort(scores)[::-1], atol=1e-5)
        rest = before[(before["query_id"] == name) & (place >= 5)]
        assert own["doc_id"].tolist()[5:] == rest["doc_id"].tolist()
        assert own["score"].is_monotonic_decreasing
    empty = pd.DataFrame({"text": ["zzzz"]}, index=[""])
    assert (system.searcher(target, 0)(empty, 10)[1] < 0).all()
    monkeypatch.setattr(PairModel, "scores", lambda *_: pytest.fail("read twice"))
    pd.testing.assert_frame_equal(system.run(target, 0), found)
    replace(system, weight=0.5).run(target, 0)  # whose lists are the same


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_model_s_score_may_count_in_part(weight, target, collection, words):
    system = Reranked(words, READER, depth=5)
    first, read, found = words.run(target), system.run(target, 0), replace(system, weight=weight).run(target, 0)

    def shares(run, name):
        mine = run[run["query_id"] == name].head(5).set_index("doc_id")["score"]
        return (mine - mine.min()) / (mine.max() - mine.min()) if mine.max() > mine.min() else mine * 0 + 1

    for name in collection.split("test").index:
        ours, theirs = (run[run["query_id"] == name]["doc_id"].tolist() for run in (found, first))
        order = (1 - weight) * shares(first, name) + weight * shares(read, name)
        assert order[ours[:5]].tolist() == pytest.approx(sorted(order, reverse=True), abs=1e-5)
        assert ours[5:] == theirs[5:]


def test_a_late_interaction_model_searches_all_documents_by_its_scores(target, collection, monkeypatch):
    run, model = MaxSimSearch(LATE).run(target, 0), LATE.fit(collection, 0)
    tokenized, test = model.reads(collection), collection.split("test").index
    assert len(run) == len(test) * 40
    for query_id in test:
        repeated = tokenized.query_rows([query_id] * 40)
        expected = pd.Series(model.scores(repeated, tokenized.documents), index=collection.documents.index)
        own = run[run["query_id"] == query_id].set_index("doc_id")["score"]
        np.testing.assert_allclose(own, expected[own.index], atol=1e-4)
        assert own.is_monotonic_decreasing
    monkeypatch.setattr(PairModel, "encode_tokens", lambda *_: pytest.fail("made twice"))
    pd.testing.assert_frame_equal(MaxSimSearch(LATE).run(target, 0), run)


def test_what_is_recorded_beside_the_results(target, collection, words):
    system = Reranked(words, READER, depth=5)
    assert system.trained and system.settings["depth"] == 5 and system.settings["first"] == words.settings
    assert MaxSimSearch(LATE).settings["model"] == "late-interaction"
    warm = System(SMALL, LETTERS) + Stage(data=Labels(), steps=3, batch_size=8)
    steps, seconds, curve = Reranked(words, replace(READER, start=warm), depth=5).cost(target, 0)
    history = replace(READER, start=warm).fit(collection, 0).history
    assert steps == history.best_step and dict(curve)[steps] == history.best_score
    assert seconds == pytest.approx(history.seconds + fit(warm, collection, 0).history.seconds)
