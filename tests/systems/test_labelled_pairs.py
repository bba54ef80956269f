"""Bags of words trained on labelled pairs: which pairs train and validate, scales of their own, chunks, corrections."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_toy

from retlib.core.errors import DataError, SettingError
from retlib.data.text import words as words_of
from retlib.evaluation.measures import evaluate
from retlib.models.retriever import Architecture, Retriever
from retlib.systems.system import Stage, StageSetup, System, Target, fit, vocabulary_of
from retlib.systems.training_data import LabelledPairs
from retlib.training.tasks import Multitask

BAG = Architecture(encoder="bag-of-words", dimension=32, similarity="cosine", query_length=None, document_length=None)
START = System(BAG)
PAIRS = Stage(
    data=LabelledPairs(), options={"mask_known": False}, epochs=20, batch_size=24, learning_rate=0.01, scale=20,
    optimizer="sparse_adam", warmup=0.0, decay=False, evaluations=2,
)  # fmt: skip
# Negatives and loss (Gillick 2018, section 2.1).
METHODS = [
    ("labelled", "cross_entropy"),
    ("in-batch", "cross_entropy"),
    ("in-batch", "softmax"),
    ("in-batch", "triplet"),
]


def of(negatives, loss, **changes):
    return replace(PAIRS, negatives=negatives, loss=loss, options={}, **changes)


def task_of(stage, collection):
    """What the loop would train, and the retriever that it trains."""
    start = Retriever.fresh(BAG, vocabulary_of(collection), 0)
    training = StageSetup(stage, start, collection, 0)
    return stage.data[0].prepare(training, training.module)[0], training.student


def test_the_vocabulary_is_that_of_all_candidates(toy):
    found = set(vocabulary_of(toy).tokens[1:])
    assert found == {word for text in toy.documents["text"] for word in words_of(text)}
    halves = [make_toy("a", slice(0, 12)), make_toy("b", slice(12, None))]
    assert set(vocabulary_of(*halves).tokens[1:]) == found
    both = START + replace(PAIRS, data=[LabelledPairs(half) for half in halves])
    assert set(both.tokenizer(halves[0]).tokens[1:]) == found


def test_pairs_are_those_of_the_split_with_their_clusters(toy):
    source = task_of(PAIRS, toy)[0].negatives.source
    vocabulary, chosen = vocabulary_of(toy), toy.labelled("train")
    assert len(source) == len(chosen) > 10 and (source.labels == 1).all()
    clusters = toy.queries["cluster"][chosen["left"]].to_numpy()
    for side, table in {"left": source.queries, "right": source.documents}.items():
        for i, name in enumerate(chosen[side]):
            assert [vocabulary.tokens[j] for j in table.row(i)] == words_of(toy.documents["text"][name])
    same = source.groups[:, None] == source.groups[None, :]
    assert (same == (clusters[:, None] == clusters[None, :])).all()


def test_items_outside_every_cluster_are_groups_of_their_own(toy):
    loose = replace(toy, queries=toy.queries.iloc[:0], qrels=toy.qrels.iloc[:0])  # nobody has a cluster
    groups = task_of(of("labelled", "cross_entropy"), loose)[0].negatives.source.groups
    left = toy.labelled("train", None)["left"].to_numpy()
    assert ((groups[:, None] == groups) == (left[:, None] == left)).all()


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize(("negatives", "loss"), METHODS)
def test_a_collection_without_pairs_is_named_before_any_training(toy, split, negatives, loss, trainings):
    bare = replace(toy, name="bare", pairs=toy.pairs[toy.pairs["split"] != split])
    with pytest.raises(DataError, match=f"'bare' has no {split} pairs"):
        fit(START + of(negatives, loss), bare, 0)
    with pytest.raises(DataError, match="'none'.*no labelled pairs"):
        fit(START + of(negatives, loss), replace(toy, name="none", pairs=None), 0)
    assert trainings == []


def test_validation_is_precision_at_1_over_the_validation_pairs(toy):
    trained, pairs = fit(START + PAIRS, toy, 0), toy.labelled("dev")
    left, right = (trained.encode_texts(toy.documents["text"][pairs[side]].tolist()) for side in ("left", "right"))
    best, clusters = (left @ right.T).argmax(axis=1), toy.queries["cluster"]
    hits = clusters[pairs["right"].iloc[best]].to_numpy() == clusters[pairs["left"]].to_numpy()
    assert trained.history.best_score == pytest.approx(hits.mean())


def test_a_stage_says_where_the_scale_starts(toy):
    vocabulary = vocabulary_of(toy)
    start = Retriever.fresh(BAG, vocabulary, 0)
    assert start.model.alpha.item() == 20
    assert Retriever.fresh(replace(BAG, similarity="dot"), vocabulary, 0).model.alpha.item() == 1
    trained = fit(START + PAIRS, toy, 0)
    assert trained.model.alpha.item() != 20 and trained.model.beta.item() == pytest.approx(0, abs=0.5)
    for scale, expected in ((None, trained.model.alpha.item()), (5, 5.0)):
        training = StageSetup(replace(PAIRS, scale=scale), trained, toy, 0)
        assert training.module.alpha.item() == expected
        assert training.module.beta.item() == (trained.model.beta.item() if scale is None else 0)
    assert trained.model.alpha.item() != 5  # the start stays as it is
    with pytest.raises(SettingError, match="scale = 0"):
        replace(PAIRS, scale=0)
    assert replace(PAIRS, scale=5).address(toy) == replace(PAIRS, scale=5.0).address(toy)


def test_several_tasks_share_one_encoder_and_have_their_own_scales(trainings):
    tasks = [make_toy("a", slice(0, 12)), make_toy("b", slice(12, None))]
    stage = replace(PAIRS, data=[LabelledPairs(task) for task in tasks], batch_size=8, epochs=6)
    system = START + stage
    fit(system, tasks[0], 0)
    ((multitask, schedule, *_),) = trainings
    assert isinstance(multitask, Multitask) and schedule == stage
    first, second = (task.module for task in multitask.tasks)
    assert first.query_encoder is second.query_encoder
    assert len({first.alpha.item(), second.alpha.item(), 20.0}) == 3
    # An epoch is one pass over the larger task.
    assert multitask.pairs == max(len(task.labelled("train")) for task in tasks)
    for task in tasks:
        run = system.run(Target(task, tasks[0]), 0)
        assert evaluate(run, task.judgments("test"), ["AP@100"])["value"].mean() > 0.4


def test_a_document_s_share_is_how_often_it_is_drawn(toy):
    doubled = replace(toy, pairs=toy.pairs.replace({"right": {toy.pairs["right"].iloc[1]: toy.pairs["right"].iloc[0]}}))
    source = task_of(PAIRS, doubled)[0].negatives.source
    right = doubled.labelled("train")["right"]
    expected = [np.log((right == name).mean()) for name in right]
    np.testing.assert_allclose(source.log_shares, expected, rtol=1e-6)
    batch = task_of(replace(PAIRS, options={"corrected": True}), doubled)[0].batch(0)
    assert set(batch.log_shares.tolist()) <= set(source.log_shares.tolist())
