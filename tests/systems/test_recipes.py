"""From a collection and settings to a trained model, a run and a choice of settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_toy

from retlib.core import cache, runtime
from retlib.core.errors import DataError, SettingError
from retlib.data.text import words
from retlib.evaluation.measures import evaluate
from retlib.systems import recipes
from retlib.systems.recipes import (
    METHODS,
    Recipe,
    Trained,
    build_vocabulary,
    chosen,
    fit,
    retrieve,
    tokenized_pairs,
    trials,
    tune,
)
from retlib.training.negatives import InBatch, Labelled

SMALL = Recipe(batch_size=24, epochs=8, patience=12, dimension=32)


def ap(encode, task, split="test"):
    return evaluate(retrieve(encode, task, split), task.judgments(split), ["AP@100"])["value"].mean()


def precision_on_test(model, task):
    """Share of the test pairs whose left side is nearest to the right side of one of its own cluster."""
    pairs, clusters = task.labelled("test"), task.queries["cluster"]
    left, right = (model.encode(task.documents["text"][pairs[side]].tolist()) for side in ("left", "right"))
    nearest = pairs["right"].iloc[(left @ right.T).argmax(axis=1)]
    return (clusters[nearest].to_numpy() == clusters[pairs["left"]].to_numpy()).mean()


@pytest.fixture(scope="module")
def trained(toy):
    return fit([toy], SMALL, seed=0)


@pytest.fixture
def trainings(trainings_of):
    """The trainings so far."""
    return trainings_of(recipes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "nope"}, "loss = 'nope' is not known.*Valid: in_batch_cross_entropy, in_batch_softmax, in_batch_t"),
        ({"method": "in_batch_sofmax"}, "Did you mean 'in_batch_softmax'"),
        ({"optimizer": "sgd"}, "optimizer = 'sgd'.*adam, adamw, lamb, momentum, sparse_adam"),
        ({"precision": "half"}, "precision = 'half'.*bfloat16, float32"),
        *(
            ({name: value}, f"{name} = {value} must be positive")
            for name in ("batch_size", "learning_rate", "epochs", "evaluations", "patience", "dimension", "scale")
            for value in (0, -1)
        ),
    ],
)
def test_a_wrong_setting_is_named_when_the_recipe_is_written(changes, message):
    with pytest.raises(SettingError, match=message):
        Recipe(**changes)


def test_steps_follow_from_epochs_and_pairs():
    recipe = Recipe(batch_size=100, epochs=3, evaluations=2, patience=5, optimizer="adam", learning_rate=0.5)
    found = recipe.training(1050)
    assert (found.steps, found.evaluate_every, found.patience) == (30, 5, 5)
    assert (found.optimizer, found.learning_rate, found.precision) == ("adam", 0.5, "bfloat16")
    # A batch is never larger than the data, and an epoch never shorter than a step.
    assert (recipe.training(7).steps, recipe.training(7).evaluate_every) == (3, 1)
    assert replace(recipe, epochs=0.01).training(1050).steps == 1


def test_the_vocabulary_is_that_of_all_candidates(toy):
    found = set(build_vocabulary([toy]).tokens[1:])
    assert found == {word for text in toy.documents["text"] for word in words(text)}
    halves = [make_toy("a", slice(0, 12)), make_toy("b", slice(12, None))]
    assert set(build_vocabulary(halves).tokens[1:]) == found


def test_pairs_are_those_of_the_split_with_their_clusters(toy):
    vocabulary = build_vocabulary([toy])
    for split in ("train", "dev", "test"):
        pairs, chosen = tokenized_pairs(toy, split, vocabulary), toy.labelled(split)
        assert len(pairs) == len(chosen) > 10
        assert (pairs.labels == 1).all()
        clusters = toy.queries["cluster"][chosen["left"]].to_numpy()
        assert (clusters == toy.queries["cluster"][chosen["right"]].to_numpy()).all()
        for i, name in enumerate(chosen["right"]):
            text = toy.documents["text"][name]
            assert [vocabulary.tokens[j] for j in pairs.documents.row(i)] == words(text)
        same = pairs.groups[:, None] == pairs.groups[None, :]
        assert (same == (clusters[:, None] == clusters[None, :])).all()


def test_labelled_pairs_of_items_outside_every_cluster_are_groups_of_their_own(toy):
    both = toy.labelled("train", None)
    pairs = tokenized_pairs(toy, "train", build_vocabulary([toy]), label=None)
    assert pairs.labels.tolist() == both["label"].tolist() and 0 in pairs.labels
    # Without its positive pairs, no item has a cluster.
    loose = replace(toy, queries=toy.queries.iloc[:0], qrels=toy.qrels.iloc[:0])
    groups = tokenized_pairs(loose, "train", build_vocabulary([toy]), label=None).groups
    left = both["left"].to_numpy()
    assert ((groups[:, None] == groups) == (left[:, None] == left)).all()


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("method", METHODS)
def test_a_collection_without_pairs_is_named_before_any_training(toy, split, method, trainings):
    bare = replace(toy, name="bare", pairs=toy.pairs[toy.pairs["split"] != split])
    with pytest.raises(DataError, match=f"'bare' has no {split} pairs"):
        fit([bare], replace(SMALL, method=method), seed=0)
    assert trainings == []
    with pytest.raises(DataError, match="'none' has no labelled pairs"):
        fit([replace(toy, name="none", pairs=None)], replace(SMALL, method=method), seed=0)


@pytest.mark.parametrize(
    ("method", "kind", "loss"),
    [
        ("pairwise_cross_entropy", Labelled, "cross_entropy"),
        ("in_batch_cross_entropy", InBatch, "cross_entropy"),
        ("in_batch_softmax", InBatch, "softmax"),
        ("in_batch_triplet", InBatch, "triplet"),
    ],
)
def test_each_method_has_its_negatives_and_its_loss(toy, method, kind, loss, trainings):
    fit([toy], replace(SMALL, method=method, epochs=1), seed=11)
    ((task, settings, *_),) = trainings
    assert type(task.negatives) is kind
    assert task.loss_name == loss
    labels = set(np.unique(task.negatives.pairs.labels))
    assert labels == ({0, 1} if kind is Labelled else {1})
    assert settings.optimizer == "sparse_adam"


@pytest.mark.parametrize("method", METHODS)
def test_training_learns_to_retrieve_unseen_questions(toy, method):
    recipe = replace(SMALL, method=method, epochs=20)
    vocabulary = build_vocabulary([toy])
    runtime.set_seeds(0)
    untrained = Trained(vocabulary, recipes.BagOfWords(len(vocabulary), 32), recipes.History())
    before, after = (precision_on_test(model, toy) for model in (untrained, fit([toy], recipe, seed=0)))
    assert after > before + 0.1


def test_a_model_is_trained_once_and_found_again(toy, trainings, monkeypatch, own_build):
    first, second = fit([toy], SMALL, seed=5), fit([toy], SMALL, seed=5)
    assert len(trainings) == 1
    assert torch.equal(first.encoder.weight, second.encoder.weight)
    assert first.history.evaluations[1:] == second.history.evaluations[1:]
    assert first.vocabulary == second.vocabulary
    fit([toy], SMALL, seed=6)
    fit([toy], replace(SMALL, scale=10.0), seed=5)
    fit([make_toy("toy", slice(0, 20))], SMALL, seed=5)
    monkeypatch.setenv("RETLIB_THREADS", "2")
    fit([toy], SMALL, seed=5)
    assert len(trainings) == 5


def test_a_model_on_disk_is_the_model(trained, tmp_path):
    trained.save(tmp_path)
    read = Trained.load(tmp_path)
    assert read.fingerprint == trained.fingerprint
    assert read.history.best_step == trained.history.best_step
    np.testing.assert_array_equal(read.encode(["a violin"]), trained.encode(["a violin"]))
    assert {path.suffix for path in tmp_path.iterdir()} == {".txt", ".json", ".safetensors"}  # nothing by pickle


def test_encodings_are_of_unit_length_and_known_words_count(trained):
    found = trained.encode(["the price of a violin", "price of violin", "zzz", ""])
    assert found.dtype == np.float32 and found.shape == (4, 32)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found[2], found[3])  # nothing known: the unknown word


def test_validation_is_precision_at_1_over_the_validation_pairs(trained, toy):
    pairs = toy.labelled("dev")
    left, right = (trained.encode(toy.documents["text"][pairs[side]].tolist()) for side in ("left", "right"))
    best = (left @ right.T).argmax(axis=1)
    clusters = toy.queries["cluster"]
    hits = clusters[pairs["right"].iloc[best]].to_numpy() == clusters[pairs["left"]].to_numpy()
    assert trained.history.best_score == pytest.approx(hits.mean())


def test_no_test_question_is_trained_on(toy, trainings):
    fit([toy], replace(SMALL, epochs=1), seed=12)
    ((task, *_),) = trainings
    vocabulary = build_vocabulary([toy])
    test = {tuple(vocabulary.encode([text]).ids) for text in toy.documents["text"][toy.documents["split"] == "test"]}
    seen = task.negatives.pairs
    rows = {tuple(table.row(i)) for table in (seen.queries, seen.documents) for i in range(len(seen))}
    assert rows and not rows & test


def test_a_start_is_taken_up(trained, toy, monkeypatch):
    again = fit([toy], replace(SMALL, learning_rate=1e-9, epochs=1), seed=1, start=trained)
    torch.testing.assert_close(again.encoder.weight, trained.encoder.weight, atol=1e-6, rtol=0)
    other = fit([make_toy("other", slice(0, 6))], replace(SMALL, epochs=1), seed=0)
    with pytest.raises(SettingError, match="vocabulary"):
        fit([toy], SMALL, seed=1, start=other)


def test_the_start_takes_part_in_the_address(trained, toy, trainings):
    one = replace(SMALL, epochs=1)
    starts = [None, trained, fit([toy], SMALL, seed=2)]
    ends = {fit([toy], one, seed=13, start=start).fingerprint for start in starts}
    assert len(ends) == 3 and len(trainings) >= 3


def test_several_tasks_share_one_encoder_and_have_their_own_scales(trainings):
    tasks = [make_toy("a", slice(0, 12)), make_toy("b", slice(12, None))]
    found = fit(tasks, replace(SMALL, batch_size=8, epochs=6), seed=0)
    ((multitask, settings, *_),) = trainings
    first, second = multitask.tasks
    assert first.module.query_encoder is second.module.query_encoder
    assert first.module.alpha is not second.module.alpha
    assert first.module.alpha.item() != second.module.alpha.item() != SMALL.scale
    # An epoch is one pass over the larger task.
    larger = max(len(task.labelled("train")) for task in tasks)
    assert settings.steps == 6 * (larger // 8)
    for task in tasks:
        assert ap(found.encode, task) > 0.4


def test_a_run_ranks_all_candidates_by_inner_product_itself_included(trained, toy):
    run = retrieve(trained.encode, toy, "test", depth=10)
    queries = toy.split("test")
    scores = trained.encode(queries["text"].tolist()) @ trained.encode(toy.documents["text"].tolist()).T
    assert run["query_id"].unique().tolist() == queries.index.tolist()
    for i, (name, part) in enumerate(run.groupby("query_id", sort=False)):
        np.testing.assert_allclose(part["score"], np.sort(scores[i])[::-1][:10], atol=1e-5)
        assert name == queries.index[i]
        assert part["score"].iloc[0] == pytest.approx(1, abs=1e-5)  # the question itself
    assert set(run["doc_id"]) - set(queries.index)  # candidates are not the test questions alone


def test_fewer_candidates_than_asked_for_are_no_error(trained, toy):
    run = retrieve(trained.encode, toy.candidates("test"), "test", depth=1000)
    count = len(toy.candidates("test").documents)
    assert (run.groupby("query_id").size() == count).all()


def test_every_system_gets_as_many_trials():
    rates, scales = (0.003, 0.01, 0.03), (10.0, 20.0)
    softmax, triplet = (
        trials(replace(SMALL, method=f"in_batch_{name}"), rates, scales) for name in ("softmax", "triplet")
    )
    assert len(set(softmax)) == len(set(triplet)) == 6
    assert {(each.learning_rate, each.scale) for each in softmax} == {
        (rate, scale) for rate in rates for scale in scales
    }
    # The triplet has no scale: it looks at more learning rates within the same range.
    assert {each.scale for each in triplet} == {SMALL.scale}
    found = sorted(each.learning_rate for each in triplet)
    assert (found[0], found[-1]) == (0.003, 0.03)
    assert {each.method for each in triplet} == {"in_batch_triplet"} and {each.batch_size for each in triplet} == {24}


def test_the_trial_with_the_best_validation_score_is_chosen_for_each_system(toy, trainings):
    weak, good, middling = (replace(SMALL, **c) for c in ({"learning_rate": 1e-6, "epochs": 1}, {}, {"epochs": 1}))
    pairwise = replace(SMALL, method="pairwise_cross_entropy")
    systems = {"softmax": [weak, good, middling], "pairwise": [replace(pairwise, epochs=0.5), pairwise]}
    table = tune(toy, systems, seed=0)
    assert table["system"].tolist() == ["softmax"] * 3 + ["pairwise"] * 2
    for system, asked in systems.items():
        part = table[table["system"] == system]
        assert part["chosen"].sum() == 1 and part["AP@100"][part["chosen"]].item() == part["AP@100"].max()
        assert part["epochs"].tolist() == [each.epochs for each in asked]
    assert table["AP@100"][1] == pytest.approx(ap(fit([toy], good, 0).encode, toy, "dev"))
    assert table["precision_at_1"].between(0, 1).all() and (table["seconds"] >= 0).all()
    # What is chosen is the trial itself: asking for it again trains nothing.
    trainings.clear()
    found = chosen(table)
    assert found == {"softmax": good, "pairwise": systems["pairwise"][int(table["chosen"][4])]}
    for recipe in found.values():
        fit([toy], recipe, seed=0)
    assert trainings == []
    assert chosen(table, batch_size=7)["softmax"] == replace(good, batch_size=7)


def test_the_first_of_equal_trials_is_chosen(toy):
    table = tune(toy, {"S": [replace(SMALL, patience=60), replace(SMALL, patience=61)]}, seed=0)
    assert table["AP@100"].nunique() == 1 and table["chosen"].tolist() == [True, False]


def test_a_changed_module_is_another_address(toy, trainings, monkeypatch):
    fit([toy], SMALL, seed=0)
    monkeypatch.setattr(cache, "code_hash", lambda *names: "other code")
    before = len(trainings)
    fit([toy], SMALL, seed=0)
    assert len(trainings) == before + 1
