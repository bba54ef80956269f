"""Chains of trainings: what each link starts from and trains on; on NumPy's docstrings."""

from types import SimpleNamespace

import board_slice
import pytest

from retlib.core.errors import SettingError
from retlib.retrieval.lexical import BM25
from retlib.studies import board as boards
from retlib.studies.board import LABELS, LINKS, PRETRAINING, QUERIES, READS_FROM, name_of
from retlib.systems import dense, ltre, reranking, zero_shot


@pytest.fixture(scope="module")
def board():
    return board_slice.board()


@pytest.fixture
def told(monkeypatch):
    """Trainings tell what they were asked for; each takes ten seconds."""

    def made(*what):
        return SimpleNamespace(what=what, history=SimpleNamespace(seconds=10.0))

    def before(start):
        return start and start.what

    monkeypatch.setattr(dense, "pretrain", lambda _, __, tasks, schedule, seed: made(tasks, schedule.steps, seed))
    fit = lambda start, _, __, part, schedule, seed: made(before(start), part.name, schedule.steps, seed)  # noqa: E731
    monkeypatch.setattr(zero_shot, "fit", fit)
    ranked = lambda start, ranking, method, seed: made(  # noqa: E731
        before(start), ranking.collection.name, method.negatives, method.trained, seed
    )
    monkeypatch.setattr(ltre, "fit", ranked)


def test_a_chain_starts_with_what_the_one_before_it_made(board, told):
    name = board.target.name
    found = board.trained((PRETRAINING, QUERIES, LABELS, ltre.LTRE), seed=7)
    pretrained = (boards.TASKS, 3, 7)
    generated = (pretrained, f"{name}, nucleus", 3, 7)
    labelled = (generated, f"{name}, labels", 3, 7)
    assert found.retriever.what == (labelled, name, "LTRe", "query", 7)


def test_rivals_of_ltre_train_both_sides(board, told):
    first = board.trained((LABELS, "BM25 Neg"), seed=1).retriever.what
    assert first == ((None, f"{board.target.name}, labels", 3, 1), board.target.name, "BM25 Neg", "both", 1)
    assert board.trained((LABELS, "BM25 Neg", "Async ANN"), seed=1).retriever.what[0] == first


def test_the_seconds_of_a_chain_are_those_of_its_links_and_of_the_generator(board, told):
    generator = board.study.generator.history.seconds
    assert generator > 0
    assert board.trained((LABELS, ltre.LTRE), 0).seconds == 20
    assert board.trained((PRETRAINING, QUERIES, LABELS), 0).seconds == pytest.approx(30 + generator)


def test_settings_name_nothing_that_a_leaderboard_does_not_make(board):
    assert not {"later", "separate passages"} & set(board.settings((LABELS,)))


def test_unknown_links_and_late_pretraining_are_refused(board, told):
    with pytest.raises(SettingError, match=r"link = 'label' is not known.*Valid: .*labels"):
        board.trained(("label",), 0)
    with pytest.raises(SettingError, match="comes first in a chain"):
        board.trained((LABELS, PRETRAINING), 0)
    assert name_of((LABELS, ltre.LTRE)) == "labels > LTRe" and set(READS_FROM) < set(LINKS)


def test_labels_become_pairs_of_items(board):
    task, target = board.task, board.target
    asked = target.queries[target.queries["split"] != "test"]
    judged = target.qrels[(target.qrels["relevance"] > 0) & target.qrels["query_id"].isin(asked.index)]
    pairs = task.pairs
    assert len(pairs) == len(judged) and (pairs["label"] == 1).all()
    left = task.documents["text"][pairs["left"]].to_numpy()
    assert left.tolist() == asked["text"][judged["query_id"]].tolist()
    assert pairs["right"].tolist() == judged["doc_id"].tolist()
    assert (
        set(pairs["split"]) == {"train", "dev"} and (asked["split"][judged["query_id"]].array == pairs["split"]).all()
    )
    # A bag of words sees what BM25 sees.
    assert task.documents["text"][target.documents.index].equals(board.ranking.texts.rename_axis("doc_id"))
    # No test question is among the items.
    assert len(task.documents) == len(target.documents) + len(judged)


def test_a_bag_of_words_answers_with_documents_alone(board):
    run = board.by_bags(board.bag_of_words("in_batch_softmax", 0))
    assert set(run["query_id"]) == set(board.target.split("test").index)
    assert set(run["doc_id"]) <= set(board.target.documents.index)
    assert (run.groupby("query_id").size() == len(board.target.documents)).all()


def test_fused_is_of_both_lists(board):
    run = board.by_words(BM25())
    last = run.groupby("query_id", sort=False).tail(1)  # of a list that holds it alone, it is first in the other
    found = board.fused(last)
    assert found.groupby("query_id", sort=False).head(1)["doc_id"].tolist() == last["doc_id"].tolist()
    assert len(found) == len(run)
    # Fused with itself, a list keeps its order.
    same = board.fused(run)
    assert same[["query_id", "doc_id"]].equals(run[["query_id", "doc_id"]])


def test_the_reader_learns_from_bm25_and_starts_from_a_chain_with_labels(board, told, monkeypatch):
    seen = {}

    def fit(start, collection, run, lesson, seed):
        seen.update(start=start.what, collection=collection, queries=set(run["query_id"]), lesson=lesson, seed=seed)

    monkeypatch.setattr(reranking, "fit", fit)
    board.reader(4)
    assert seen["start"] == board.trained(READS_FROM, 4).retriever.what and seen["seed"] == 4
    splits = board.target.queries["split"][list(seen["queries"])]
    assert "test" not in set(splits) and seen["lesson"].negatives == 2


def test_settings_name_the_chain_and_the_rates_of_its_links(board):
    found = board.settings((LABELS, "BM25 Neg", ltre.LTRE))
    assert found["chain"] == "labels > BM25 Neg > LTRe" and found["towers"] == "siamese"
    assert found["LTRe, rate"] == board.query.learning_rate
    assert found["BM25 Neg, rate"] == board.both.learning_rate
    assert found["labels"]["learning_rate"] == board.labels.learning_rate
