"""Negatives of one's own: a few lines, chosen by name, with options, with state, and with vectors from steps before."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from words import SMALL, UNITS

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.systems.system import Stage, StageSetup, System, fit
from retlib.systems.training_data import Labels
from retlib.training import trainer
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE
from retlib.training.negatives import NEGATIVES, FromLists, InBatch

START = System(SMALL, UNITS)
SHORT = {"data": Labels(), "steps": 8, "batch_size": 16, "learning_rate": 0.01, "precision": "float32"}


class Middle(FromLists):
    """Drawn from BM25's lists behind their first places."""

    def __init__(self, inputs, n=1, skip=2):
        super().__init__(inputs, n)
        self.middle = inputs.bm25(9)[:, skip:]

    def lists(self, queries, step):
        return self.middle[queries]


class MemoryBank(InBatch):
    """The documents of the batch, and the encodings of the last `size` documents of the batches before."""

    def __init__(self, inputs, size=24):
        super().__init__(inputs)
        self.size, self.rows, self.vectors = size, np.empty(0, dtype=np.int64), torch.empty(0, SMALL.dimension)

    def batch(self, step):
        batch = super().batch(step)
        self.drawn = self._relevant(batch.rows, step)
        known = self.labelled.hits(batch.rows, np.broadcast_to(self.rows, (len(batch.rows), len(self.rows))))
        more = torch.where(torch.from_numpy(known), IGNORE, NEGATIVE).to(torch.int8)
        return replace(batch, targets=torch.cat([batch.targets, more], dim=1), vectors=self.vectors)

    def after(self, batch, queries, documents):
        self.vectors = torch.cat([documents[: len(self.drawn)], self.vectors])[: self.size]
        self.rows = np.concatenate([self.drawn, self.rows])[: self.size]

    def state(self):
        return {"bank/rows": torch.from_numpy(self.rows), "bank/vectors": self.vectors}

    def set_state(self, tensors):
        self.rows, self.vectors = tensors["bank/rows"].numpy(), tensors["bank/vectors"]


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(NEGATIVES, "_things", dict(NEGATIVES._things))  # for these tests alone
    NEGATIVES.register("middle")(Middle)
    NEGATIVES.register("bank")(MemoryBank)


def test_the_negatives_that_the_book_adds_are_from_the_middle_of_the_lists(collection):
    page = (runtime.root() / "book" / "at-a-glance.md").read_text()
    (code,) = (block for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "@register" in block)
    exec(code.replace("bm25(50)[:, 20:]", "bm25(9)[:, 2:]"), {})  # of lists as long as those here
    stage = Stage(negatives="bm25-middle", options={"n": 2}, **SHORT)
    training = StageSetup(stage, fit(START, collection, 0), collection, 0)
    inputs = training.inputs(collection)
    sampler, lists = training.task(training.module, inputs).negatives, inputs.bm25(9)
    queries = np.flatnonzero((lists[:, 2:] >= 0).sum(axis=1) > 2)
    assert len(queries) > 0
    for query, rows in zip(queries, sampler.negatives(queries, 0), strict=True):
        assert set(rows) <= set(lists[query, 2:])


@pytest.mark.parametrize(
    "wrong", [lambda rows: rows / 2, lambda rows: rows[0], lambda rows: rows - 9, np.ndarray.tolist]
)
def test_lists_of_ones_own_give_rows(collection, monkeypatch, wrong):
    training = StageSetup(Stage(negatives="middle", **SHORT), fit(START, collection, 0), collection, 0)
    sampler = training.task(training.module, training.inputs(collection)).negatives
    monkeypatch.setattr(sampler, "middle", sampler.middle.clip(0))
    sampler.batch(0)
    monkeypatch.setattr(sampler, "lists", lambda queries, step: wrong(sampler.middle[queries]))
    with pytest.raises(SettingError, match=r"Middle.lists must give an array of rows from -1 to .*, any\)"):
        sampler.batch(0)


def test_a_bank_holds_what_steps_before_have_encoded(collection):
    stage = Stage(negatives="bank", **SHORT)
    training = StageSetup(stage, fit(START, collection, 0), collection, 0)
    inputs = training.inputs(collection)
    task = training.task(training.module, inputs)
    first = task.batch(0)
    assert first.targets.shape == (16, 16)
    task.loss(first)
    second, bank = task.batch(1), task.negatives
    with torch.no_grad():
        torch.testing.assert_close(second.vectors, training.module.documents(first.documents))
    assert second.targets.shape == (16, 32) and (second.targets == POSITIVE).sum() == 16
    for query, own, targets in zip(second.rows, bank.drawn, second.targets.tolist(), strict=True):
        relevant = set(inputs.source.relevant.row(int(query)).tolist())
        expected = [IGNORE if row in relevant else NEGATIVE for row in bank.rows]
        assert own in relevant and targets[16:] == expected
    # The loss sees them: without them it is lower.
    fewer = replace(second, vectors=None, targets=second.targets[:, :16])
    assert task.loss(second).item() > task.loss(fewer).item()
    task.batch(2)
    assert len(bank.rows) == len(bank.vectors) == 24


def test_both_are_trained_beside_what_there_is(collection, own_build, trainings):
    warm = START + Stage(**SHORT)
    names = [fit(warm, collection, 0).name]
    for stage in (Stage(negatives="middle", loss="ranknet", **SHORT), Stage(negatives="bank", **SHORT)):
        names.append(fit(warm + stage, collection, 0).name)
        assert len(trainings) == len(names)  # nothing already trained is trained again
    fit(warm + replace(stage, options={"size": 8}), collection, 0)
    assert len(trainings) == 4 and len(set(names)) == 3


def test_a_killed_training_has_its_bank_back(collection, own_build, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    system = START + Stage(negatives="bank", keep="last", **SHORT)
    whole = fit(system, collection, 0)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "other"))
    batches, real = iter(range(100)), MemoryBank.batch

    def killing(self, step):
        if next(batches) == 5:
            raise KeyboardInterrupt
        return real(self, step)

    monkeypatch.setattr(MemoryBank, "batch", killing)
    with pytest.raises(KeyboardInterrupt):
        fit(system, collection, 0)
    monkeypatch.setattr(MemoryBank, "batch", real)
    resumed = fit(system, collection, 0)
    for name, weight in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), weight)
