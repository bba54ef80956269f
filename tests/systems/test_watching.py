"""Trainings of the query encoder that are watched: what is seen, that it resumes, and what stands still."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from words import SMALL, UNITS

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.systems.system import KIND, Stage, System, fit
from retlib.systems.training_data import Labels
from retlib.training import trainer
from retlib.training.dynamics import Dynamics, Watching, paths
from retlib.training.negatives import NEGATIVES

LOOK = Watching(every=2, interval=4, depth=10, followed=("q1", "q0"), pace=3)
START = System(SMALL, UNITS) + Stage(data=Labels(), steps=1, batch_size=16, learning_rate=0.01)
SHORT = {"steps": 6, "batch_size": 16, "evaluations": 2, "learning_rate": 0.01, "trains": "query", "keep": "last"}
LTRE = Stage(data=Labels(), negatives="retrieved", options={"n": 6}, loss="ranknet", **SHORT)
ANN = Stage(data=Labels(), negatives="ann", options={"interval": 4, "depth": 10}, loss="ranknet", **SHORT)


def followed(retriever):
    return paths(runtime.build_dir() / "cache" / KIND / retriever.name)


def same(left, right):
    left, right = left.model.state_dict(), right.model.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", [name for name in NEGATIVES.names() if name != "labelled"])
def test_all_negatives_can_train_the_query_encoder_alone_and_be_watched(name, collection):
    loss = "ranknet" if name != "in-batch" else "softmax"
    stage = Stage(data=Labels(), negatives=name, loss=loss, **SHORT)
    start, found = fit(START, collection, 0), fit(START + replace(stage, watching=LOOK), collection, 0)
    assert found.architecture.towers == "two" and found.history.frame()["step"].tolist() == [0, 3, 6]
    for name, weight in start.model.document_encoder.named_parameters():
        assert torch.equal(found.model.document_encoder.get_parameter(name), weight)
        assert not torch.equal(found.model.query_encoder.get_parameter(name), weight)
    assert [row["step"] for row in found.history.watched] == [0, 2, 4]
    assert list(found.history.watched[0]) == ["step", "RR@10", "R@10", "overlap BM25", "overlap stale"]
    assert found.history.watched[0]["overlap stale"] == 1


def test_queries_are_followed_from_the_start_to_the_end(collection):
    start, found = fit(START, collection, 0), fit(START + replace(LTRE, watching=LOOK), collection, 0)
    steps, encodings = followed(found)
    assert steps.tolist() == [0, 3, 6]
    table = start.reads(collection).query_rows(LOOK.followed)
    np.testing.assert_array_equal(encodings[0], start.encode_queries(table))
    np.testing.assert_array_equal(encodings[-1], found.encode_queries(table))
    alone = fit(START + LTRE, collection, 0)
    assert alone.name != found.name and same(alone, found)
    with pytest.raises(DataError, match="no queries were followed"):
        followed(alone)


def test_a_system_stands_still_at_a_rate_whose_steps_are_lost_in_rounding(collection):
    slow = replace(ANN, negatives="random", options={}, steps=10, learning_rate=1e-12, watching=LOOK)
    still = fit(START + slow, collection, 3)
    for name, weight in fit(START, collection, 3).model.query_encoder.named_parameters():
        assert torch.equal(still.model.query_encoder.get_parameter(name), weight)
    found = still.history.watched
    assert [row["step"] for row in found] == [0, 2, 4, 6, 8] and len({row["RR@10"] for row in found}) > 1
    assert all(row["overlap stale"] == 1 for row in found)
    # What its sampler draws is not looked at.
    assert found == fit(START + replace(slow, negatives="bm25"), collection, 3).history.watched


@pytest.mark.parametrize("stage", [LTRE, ANN], ids=["retrieved", "ann"])
def test_a_killed_training_resumes_to_the_same_end(stage, collection, own_build, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    system = START + replace(stage, steps=10, evaluations=4, watching=LOOK)
    whole = fit(system, collection, 0)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    fit(START, collection, 0)
    looks, real = iter(range(100)), Dynamics.__call__

    def killing(*given):
        if next(looks) == 8:  # after the checkpoint of step 6, in the middle of an interval of four
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(Dynamics, "__call__", killing)
    with pytest.raises(KeyboardInterrupt):
        fit(system, collection, 0)
    monkeypatch.setattr(Dynamics, "__call__", real)
    resumed = fit(system, collection, 0)
    assert same(resumed, whole) and resumed.history.watched == whole.history.watched
    monkeypatch.setenv("RETLIB_BUILD", str(own_build))
    expected = followed(whole)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    for left, right in zip(followed(resumed), expected, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_parts_of_a_training_are_its_whole(collection):
    history = fit(START + replace(LTRE, steps=20), collection, 0).history
    parts = ["sampling", "encoding queries", "encoding documents", "search", "loss and backward"]
    assert set(history.parts) == set(parts) and min(history.parts.values()) >= 0
    assert sum(history.parts.values()) <= history.seconds  # the rest is the optimizer's


def test_a_training_of_both_encoders_cannot_be_watched(collection):
    with pytest.raises(SettingError, match="can be watched"):
        fit(START + replace(ANN, trains="both", watching=LOOK), collection, 0)
