"""Models of pairs: the cross-encoder by itself, its training on lists, and what it does to a run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from letters import LESSON, LETTERS, SMALL, listed, make_collection, table, tokens

from retlib.core.errors import DataError, SettingError
from retlib.data.collection import Collection
from retlib.data.text import TokenTable
from retlib.models import maxsim
from retlib.retrieval.lexical import BM25
from retlib.retrieval.runs import reordered
from retlib.systems import reranking
from retlib.systems.dense import Retriever, Schedule
from retlib.systems.reranking import CrossEncoder, Lesson, PairTask, Ranker, fit
from retlib.training.losses import NEGATIVE, POSITIVE
from retlib.training.negatives import Batch
from retlib.training.trainer import History

SEP = LETTERS.sep


@pytest.fixture(scope="module")
def collection():
    return make_collection()


@pytest.fixture(scope="module")
def run(collection):
    return BM25().rank(collection.documents["text"], collection.queries["text"], depth=12)


@pytest.fixture(scope="module")
def start():
    return Retriever.fresh(SMALL, LETTERS, seed=3)


@pytest.fixture(scope="module")
def trained(start, collection, run):
    return fit(start, collection, run, LESSON, seed=0)


@pytest.fixture
def trainings(trainings_of):
    """The trainings so far."""
    return trainings_of(reranking)


def make_model(seed=1):
    torch.manual_seed(seed)
    model = CrossEncoder(Retriever.fresh(SMALL, LETTERS, seed).model.query_encoder, LETTERS)
    # As they start, layers hardly change what goes through them, and a mistake would hardly show.
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return model.eval()


# --- the cross-encoder -----------------------------------------------------------------------------


def unit_vectors(model, rows):
    """Vectors of unit length of the units of rows that are read by themselves: a list of (units, d)."""
    found = (model.encoder.head(model.encoder.states(TokenTable.from_rows([row]))) for row in rows)
    return [units / units.norm(dim=1, keepdim=True) for units in found]


def test_a_cross_encoder_reads_query_separator_and_document_of_each_pair():
    """And sums, over the query's units, the largest inner product with a unit of the document."""
    model = make_model()
    queries, documents = table("a b", "c"), table("d", "e f g", "a", "h i j k", "b", "c c")
    with torch.no_grad():
        found = model(queries, documents)
        expected = []
        for i, row in enumerate(tokens(documents)):
            asked = tokens(queries)[i // 3]
            (units,) = unit_vectors(model, [[*asked, SEP, *row]])
            own = units[len(asked) + 1 :]
            expected.append(sum(max(float(unit @ other) for other in own) for unit in units[: len(asked)]))
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)
    assert len({round(score, 4) for score in expected}) == 6


def test_what_is_too_long_is_cut_at_the_end_of_the_document(monkeypatch):
    model = make_model()
    monkeypatch.setattr(type(model.encoder), "longest", 5)
    with torch.no_grad():
        assert model(table("a b"), table("c d e f")).item() == model(table("a b"), table("c d")).item()
        assert model(table("a b"), table("c d e f")).item() != model(table("a b"), table("c e")).item()


def test_order_of_query_and_document_matters_to_it():
    model = make_model()
    with torch.no_grad():
        assert model(table("a b"), table("c")).item() != model(table("c"), table("a b")).item()


def test_query_and_document_are_read_together():
    """What stands in the document changes what the query's units become, unlike in late interaction."""
    model = make_model()
    queries, documents = table("a b"), table("c d e")
    with torch.no_grad():
        apart = [maxsim.vectors(model.encoder, model.encoder.states(side)) for side in (queries, documents)]
        expected = maxsim.score(apart[0], queries.lengths, apart[1], documents.lengths)
        assert not torch.allclose(model(queries, documents), expected, atol=1e-3)


def test_a_document_that_is_cut_away_is_as_unlike_as_can_be(monkeypatch):
    model = make_model()
    monkeypatch.setattr(type(model.encoder), "longest", 3)
    with torch.no_grad():  # the separator of the second is cut away, too
        assert model(table("a b", "a b c"), table("c d", "e")).tolist() == [[-2], [-3]]


class Scripted(torch.nn.Module):
    """Scores each pair by ten times the query's first unit, less the document's first."""

    def forward(self, queries, documents):
        first = [torch.tensor([float(row[0]) for row in tokens(side)]) for side in (queries, documents)]
        return 10 * first[0][:, None] - first[1].view(len(queries), -1)


@pytest.mark.parametrize("block", [1, 2, 512])
def test_scores_are_those_of_each_row_in_its_place(block, monkeypatch, exact):
    monkeypatch.setattr(reranking, "BLOCK", block)
    queries, documents = table("a b c", "d", "a", "b b"), table("a", "a b c d", "k", "j")
    a, b, d, j, k = (LETTERS.ids[letter] for letter in "abdjk")
    found = Ranker(Scripted(), LETTERS, SMALL).scores(queries, documents)
    assert found.dtype == np.float32 and found.tolist() == [10 * a - a, 10 * d - a, 10 * a - k, 10 * b - j]
    model = make_model()
    with torch.no_grad():
        expected = [model(queries.take([i]), documents.take([i])).item() for i in range(4)]
    np.testing.assert_allclose(Ranker(model, LETTERS, SMALL).scores(queries, documents), expected, atol=1e-5)


def test_the_loss_is_over_the_documents_of_a_query():
    targets = torch.tensor([[POSITIVE, NEGATIVE], [POSITIVE, NEGATIVE]], dtype=torch.int8)
    batch = Batch(table("a", "b"), table("c", "d", "f", "e"), targets, shared=False)
    # Scores differ by the ids of the documents: the positive is one above, then one below.
    expected = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(1))) / 2
    assert PairTask(Scripted(), None, "softmax").loss(batch).item() == pytest.approx(expected, abs=1e-5)
    assert PairTask(Scripted(), None, "ranknet").loss(batch).item() == pytest.approx(expected, abs=1e-5)


# --- lists and validation --------------------------------------------------------------------------


def small(queries, qrels):
    """A collection of four documents, "a" to "d"."""
    documents = pd.DataFrame({"text": list("abcd")}, index=pd.Index(list("abcd"), name="doc_id"))
    queries = pd.DataFrame(queries, columns=["query_id", "text", "split"]).set_index("query_id")
    return Collection("small", documents, queries, pd.DataFrame(qrels, columns=["query_id", "doc_id", "relevance"]))


def test_lists_by_hand():
    queries = [(f"q{i}", "e" * (i + 1), "train") for i in range(4)] + [("q9", "f", "dev")]
    qrels = [("q0", "b", 1), ("q0", "d", 2), ("q1", "a", 0), ("q2", "a", 1), ("q3", "c", 1), ("q9", "a", 1)]
    collection = small(queries, qrels)
    ranking = Ranker(None, LETTERS, SMALL).tokenize(collection)
    # q1 has no relevant document and q2 no list.
    judged, lists = reranking._listed(ranking, listed({"q3": "dab", "q9": "a", "q0": "c", "q1": "ab"}), "train")
    assert len(judged) == 2 and judged.documents is ranking.benchmark.documents
    assert tokens(judged.queries) == tokens(ranking.queries(["q0", "q3"]))
    assert tokens(judged.relevant) == [[1, 3], [2]]
    assert lists.tolist() == [[2, -1, -1], [3, 0, 1]]
    with pytest.raises(DataError, match="no test query of 'small'"):
        reranking._listed(ranking, listed({"q3": "dab"}), "test")
    with pytest.raises(DataError, match=r"document \['x'\], which is not in"):
        reranking._listed(ranking, listed({"q3": "dx"}), "train")


def validated(script, lists):
    """The validation score of three queries, "e", "f" and "g", with "b", "a" and "d" relevant."""
    queries = [("q0", "e", "dev"), ("q1", "f", "dev"), ("q2", "g", "dev")]
    collection = small(queries, [("q0", "b", 1), ("q1", "a", 1), ("q2", "d", 1)])
    ranker = Ranker(None, LETTERS, SMALL)
    ranker.scores = lambda queries, documents: np.array(
        [script[LETTERS.tokens[d[0]]] for q, d in zip(tokens(queries), tokens(documents), strict=True)], np.float32
    )
    judged, lists = reranking._listed(ranker.tokenize(collection), listed(lists), "dev")
    return reranking._validation(ranker, judged, lists, reranking.QUERIES)()


def test_validation_is_the_reciprocal_rank_in_the_re_ordered_list():
    script = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0}
    # "b" is second, "a" first, and "d" not in the list: 1/2, 1 and 0.
    assert validated(script, {"q0": "cab", "q1": "dca", "q2": "abc"}) == pytest.approx((1 / 2 + 1 + 0) / 3)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_model_that_tells_nothing_apart_is_last(value):
    assert validated(dict.fromkeys("abcd", value), {"q0": "abcd", "q1": "ad", "q2": "d"}) <= (1 / 4 + 1 / 2 + 1) / 3


def test_a_short_training_is_validated_on_no_more_queries_than_it_sees(start, collection, run, own_build, monkeypatch):
    asked, real = [], reranking._validation
    monkeypatch.setattr(reranking, "_validation", lambda *given: asked.append(given[3]) or real(*given))
    for steps in (1, 30):
        fit(start, collection, run, Lesson(Schedule(steps, 4, evaluations=1), negatives=1), seed=0)
    assert asked == [4, 100]


def test_validation_reads_no_more_queries_and_candidates_than_its_limits(monkeypatch):
    monkeypatch.setattr(reranking, "QUERIES", 2)
    monkeypatch.setattr(reranking, "CANDIDATES", 1)
    # In lists of one, a relevant document is first.
    assert validated(dict.fromkeys("abcd", 0.0), {"q0": "ba", "q1": "ab", "q2": "da"}) == 1


# --- training --------------------------------------------------------------------------------------


def test_a_model_is_trained_once_and_found_again(trained, start, collection, run, trainings):
    again = fit(start, collection, run, LESSON, seed=0)
    assert trainings == [] and again.name == trained.name != ""
    assert [row["step"] for row in again.history.evaluations] == [0, 3, 6]
    assert again.architecture == SMALL and again.wordpiece == LETTERS
    assert again.parameters == trained.parameters > 1000
    left, right = (dict(one.model.named_parameters()) for one in (trained, again))
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_what_makes_it_another_model(trained, start, collection, run, trainings):
    other = Retriever.fresh(SMALL, LETTERS, seed=4)
    names = {
        trained.name,
        fit(start, collection, run, LESSON, seed=1).name,
        fit(other, collection, run, LESSON, seed=0).name,
        fit(start, collection, run, replace(LESSON, loss="cross_entropy"), seed=0).name,
        fit(start, collection, run[run.groupby("query_id").cumcount() < 8], LESSON, seed=0).name,
    }
    assert len(names) == 5 and len(trainings) == 4


def test_a_model_starts_from_the_query_encoder_and_leaves_it_as_it_is(start, collection, run, trainings, own_build):
    before = start.fingerprint
    fit(start, collection, run, replace(LESSON, schedule=replace(LESSON.schedule, learning_rate=1e-12)), seed=0)
    (task, *_) = trainings[0]
    assert start.fingerprint == before
    for name, weight in start.model.query_encoder.bert.named_parameters():
        torch.testing.assert_close(task.module.encoder.bert.get_parameter(name), weight, rtol=0, atol=1e-8)


def test_training_lowers_the_loss_on_its_lists(start, collection, run, own_build):
    lesson = Lesson(Schedule(steps=60, batch_size=18, evaluations=3, learning_rate=3e-3), negatives=3)
    losses = [row["loss"] for row in fit(start, collection, run, lesson, seed=0).history.evaluations[1:]]
    assert losses[-1] < 0.8 * losses[0]


def test_what_cannot_be_trained_is_named(start, collection, run):
    bag = Retriever.fresh(replace(SMALL, encoder="bow-mlp"), LETTERS, seed=0)
    with pytest.raises(SettingError, match="starts from encoder = 'transformer'"):
        fit(bag, collection, run, LESSON, seed=0)
    for split in ("train", "dev"):
        left = run[~run["query_id"].isin(collection.split(split).index)]
        with pytest.raises(DataError, match=f"no {split} query"):
            fit(start, collection, left, LESSON, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"negatives": 0}, "negatives = 0"),
        ({"loss": "sofmax"}, "Did you mean 'softmax'"),
        ({"schedule": Schedule(steps=1, chunk=2)}, "without chunks"),
        ({"schedule": Schedule(steps=1, corrected=True)}, "without correction|without chunks and without correction"),
    ],
)
def test_lessons_that_cannot_be_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        replace(LESSON, **changes)


# --- re-ranking ------------------------------------------------------------------------------------


def test_a_run_is_re_ranked_by_the_models_scores_once(trained, collection, run, monkeypatch):
    test = run[run["query_id"].isin(collection.split("test").index)].reset_index(drop=True)
    found = reranking.rerank(test, 5, trained, collection)
    first = test[test.groupby("query_id").cumcount() < 5]
    benchmark = trained.tokenize(collection).benchmark
    queries = benchmark.queries.take(collection.queries.index.get_indexer(first["query_id"]))
    documents = benchmark.documents.take(collection.documents.index.get_indexer(first["doc_id"]))
    pd.testing.assert_frame_equal(found, reordered(test, 5, trained.scores(queries, documents)))
    assert len(found) == len(test) and found["doc_id"].tolist() != test["doc_id"].tolist()
    monkeypatch.setattr(Ranker, "scores", lambda *_: pytest.fail("made twice"))
    pd.testing.assert_frame_equal(reranking.rerank(test, 5, trained, collection), found)


def test_what_cannot_be_re_ranked_is_named(trained, collection, run):
    with pytest.raises(DataError, match="only a trained model"):
        reranking.rerank(run, 5, Ranker(None, LETTERS, SMALL), collection)
    with pytest.raises(DataError, match=r"no queries \['q77'"):
        reranking.rerank(run.assign(query_id="q77"), 5, trained, collection)
    with pytest.raises(DataError, match=r"no documents \['d77'"):
        reranking.rerank(run.assign(doc_id="d77"), 5, trained, collection)
    assert Ranker(None, LETTERS, SMALL).history == History()
