"""The loop: its optimizers by hand, its early stopping, and that a killed training resumes exactly."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from retlib import training
from retlib.encoders import BagOfWords, DualEncoder
from retlib.errors import SettingError
from retlib.losses import POSITIVE
from retlib.negatives import Batch, InBatch, Labelled, Pairs
from retlib.text import TokenTable
from retlib.training import Multitask, RetrievalTask, TrainingSettings, train

WORDS, PAIRS = 40, 24


class Killed(Exception):
    """Stands for a kill."""


class Line:
    """A task worked by hand: one weight w, and the loss w * g of a step with gradient g."""

    def __init__(self, gradients, start=1.0):
        self.module = nn.Module()
        self.module.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))
        self.gradients = gradients

    def batch(self, step):
        return self.gradients[step]

    def loss(self, batch):
        return (self.module.w * batch).sum()

    def __float__(self):
        return self.module.w.item()


class Dropping(BagOfWords):
    """An encoder that draws random numbers of its own while it is trained."""

    def forward(self, table):
        return F.dropout(super().forward(table), 0.2, self.training)


def make_pairs(seed=5):
    rng = np.random.default_rng(seed)
    queries = [rng.integers(0, WORDS, rng.integers(1, 6)).tolist() for _ in range(PAIRS)]
    documents = [[*row, int(rng.integers(0, WORDS))] for row in queries]
    labels = rng.integers(0, 2, PAIRS).astype(np.int8)
    return Pairs(TokenTable.from_rows(queries), TokenTable.from_rows(documents), labels, np.arange(PAIRS) // 2)


def make_task(loss="softmax", sparse=False, seed=0, encoder=None, mask=False):
    torch.manual_seed(seed)
    module = DualEncoder(encoder or Dropping(WORDS, 6, sparse=sparse), scale=5.0)
    return RetrievalTask(module, InBatch(make_pairs(), 6, seed, mask), loss)


def make_multitask():
    first = make_task(sparse=True)
    second = make_task("triplet", encoder=first.module.query_encoder, seed=1)
    return Multitask([first, second])


def scorer(task):
    """A validation score that goes up and down with the weights."""
    parameters = list(task.module.parameters())
    return lambda: float(torch.sin(1000 * parameters[-1].detach().double().sum()))


def settings(**changes):
    return TrainingSettings(**{"steps": 20, "evaluate_every": 3, "patience": 99, "learning_rate": 0.05, **changes})


def weights(task):
    return {name: value.clone() for name, value in task.module.state_dict().items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def without_seconds(history):
    """The history with its losses as text, for NaN is not NaN."""
    return history.best_step, [(row["step"], repr(row["loss"]), row["score"]) for row in history.evaluations]


TASKS = {
    "adam": (make_task, {"optimizer": "adam"}),
    "momentum": (make_task, {"optimizer": "momentum"}),
    "sparse_adam": (lambda: make_task(sparse=True), {"optimizer": "sparse_adam"}),
    "bfloat16": (lambda: make_task(sparse=True, mask=True), {"optimizer": "sparse_adam", "precision": "bfloat16"}),
    "multitask": (make_multitask, {"optimizer": "sparse_adam"}),
}


def run(name, folder=None, wrap=lambda task, validate: validate):
    """One training of `TASKS`: its history and its final weights."""
    make, changes = TASKS[name]
    task = make()
    validate = wrap(task, scorer(task))
    history = train(task, settings(**changes), validate, seed=7, folder=folder)
    return history, weights(task)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_seed_gives_the_same_weights_and_history(name):
    (one, first), (two, second) = run(name), run(name)
    assert same(first, second)
    assert without_seconds(one) == without_seconds(two)


def test_another_seed_gives_other_weights():
    results = []
    for seed in (0, 1):
        task = make_task(seed=0)
        train(task, settings(), scorer(task), seed=seed)
        results.append(weights(task))
    assert not same(*results)


def kill_in_validate(call):
    """Raise in that call of the validation."""

    def wrap(task, validate):
        calls = iter(range(100))

        def killing():
            if next(calls) == call:
                raise Killed
            return validate()

        return killing

    return wrap


def kill_in_loss(step):
    """Raise in that step's loss."""

    def wrap(task, validate):
        inner, steps = task.loss, iter(range(100))

        def killing(batch):
            if next(steps) == step:
                raise Killed
            return inner(batch)

        task.loss = killing
        return validate

    return wrap


KILLS = {
    "first validation": kill_in_validate(0),
    "second validation": kill_in_validate(1),
    "fifth validation": kill_in_validate(4),
    "last validation": kill_in_validate(7),
    "first step": kill_in_loss(0),
    "middle of an interval": kill_in_loss(10),
    "last step": kill_in_loss(19),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
def test_a_killed_training_resumes_to_the_same_end(name, kill, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    expected, final = run(name)
    with pytest.raises(Killed):
        run(name, tmp_path, kill)
    history, resumed = run(name, tmp_path)
    assert same(resumed, final)
    assert without_seconds(history) == without_seconds(expected)
    assert list(tmp_path.iterdir()) == []


def test_what_a_module_draws_depends_on_the_seed_and_the_step():
    def draws(seed):
        task, found = Line([1.0] * 4), []
        task.loss = lambda batch: found.append(torch.rand(1).item()) or task.module.w.sum()
        train_line(task, [0.0] * 5, seed=seed, steps=4)
        return found

    assert len(set(draws(0) + draws(1))) == 8
    assert draws(0) == draws(0)


def test_resuming_repeats_no_finished_interval(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(Killed):
        run("adam", tmp_path, kill_in_loss(10))
    task, steps = make_task(), []
    inner = task.batch
    task.batch = lambda step: steps.append(step) or inner(step)
    train(task, settings(optimizer="adam"), scorer(task), seed=7, folder=tmp_path)
    assert steps == list(range(9, 20))  # checkpoints are written after evaluations, here at step 9


def test_a_training_killed_twice_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    for call in (2, 3):
        with pytest.raises(Killed):
            run("sparse_adam", tmp_path, kill_in_validate(call))
    history, resumed = run("sparse_adam", tmp_path)
    expected, final = run("sparse_adam")
    assert same(resumed, final) and without_seconds(history) == without_seconds(expected)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    real, calls = training.save_file, iter(range(100))

    def dying(tensors, path, metadata):
        if next(calls) == 3:
            Path(path).write_bytes(b"half")
            raise Killed
        real(tensors, path, metadata)

    monkeypatch.setattr(training, "save_file", dying)
    with pytest.raises(Killed):
        run("adam", tmp_path)
    _, resumed = run("adam", tmp_path)
    assert same(resumed, run("adam")[1])


def test_a_checkpoint_holds_shared_weights_once(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(Killed):
        run("multitask", tmp_path, kill_in_loss(19))
    size = (tmp_path / "checkpoint.safetensors").stat().st_size
    # The table, its best copy, and two moments of Adam; the rest is small.
    assert size < 4 * WORDS * 6 * 4 + 4000


SCRIPT = """
import os, signal, sys
sys.path[:0] = [{tests!r}]
from test_training import run, training
from pathlib import Path

training.CHECKPOINT_SECONDS = 0

def wrap(task, validate):
    calls = iter(range(100))
    return lambda: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == 4 else validate()

run("bfloat16", Path({folder!r}), wrap)
"""


def test_a_process_killed_for_good_is_resumed_by_another(tmp_path):
    script = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent.parent, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert os.listdir(tmp_path) == ["checkpoint.safetensors"]
    history, resumed = run("bfloat16", tmp_path)
    expected, final = run("bfloat16")
    assert same(resumed, final) and without_seconds(history) == without_seconds(expected)


def train_line(task, scores, seed=0, **changes):
    """Train a line with validation scores written beforehand; also the weight at each evaluation."""
    seen, script = [], iter(scores)

    def validate():
        seen.append(float(task))
        return next(script)

    chosen = settings(**{"evaluate_every": 1, "optimizer": "momentum", "learning_rate": 0.5, **changes})
    return train(task, chosen, validate, seed=seed), seen


def test_momentum_by_hand():
    task = Line([1.0, -2.0, 3.0])
    _, seen = train_line(task, [0, 1, 2, 3], steps=3)
    # v = 0.9 v + g: 1, -1.1, 2.01; w falls by half of it.
    assert seen == pytest.approx([1.0, 0.5, 1.05, 0.045])
    assert float(task) == seen[-1]


def test_adam_by_hand():
    task = Line([1.0, -2.0])
    _, seen = train_line(task, [0, 1, 2], steps=2, optimizer="adam", learning_rate=0.1)
    first, second = (0.1 * 1 + 0, 0.001 * 1), (0.9 * 0.1 - 0.1 * 2, 0.999 * 0.001 + 0.001 * 4)
    after = 1 - 0.1 * (first[0] / 0.1) / (math.sqrt(first[1] / 0.001) + 1e-8)
    last = after - 0.1 * (second[0] / (1 - 0.81)) / (math.sqrt(second[1] / (1 - 0.999**2)) + 1e-8)
    assert seen == pytest.approx([1.0, after, last], abs=1e-12)


def test_the_best_weights_are_kept_and_patience_ends_the_training():
    task = Line([1.0] * 20)
    history, seen = train_line(task, [0.1, 0.3, 0.5, 0.4, 0.5, 0.2, 9.9], steps=20, patience=3)
    # Three evaluations after the best one bring nothing better; an equal score is not better.
    assert [row["step"] for row in history.evaluations] == [0, 1, 2, 3, 4, 5]
    assert (history.best_step, history.best_score) == (2, 0.5)
    assert float(task) == seen[2]


def test_patience_starts_again_at_each_better_score():
    scores = [0.1, 0.0, 0.2, 0.1, 0.3, 0.0, 0.0, 0.0]
    history, _ = train_line(Line([1.0] * 20), scores, steps=20, patience=2)
    assert [row["step"] for row in history.evaluations] == [0, 1, 2, 3, 4, 5, 6]
    assert history.best_step == 4


def test_a_training_that_never_helps_keeps_the_first_weights():
    task = Line([1.0] * 20)
    history, _ = train_line(task, [0.5, 0.4, 0.3], steps=20, patience=2)
    assert history.best_step == 0 and float(task) == 1.0


def test_history_says_steps_and_mean_losses():
    task = Line([1.0, 2.0, 3.0, 4.0, 5.0])
    history, seen = train_line(task, [0, 1, 2, 3], steps=5, evaluate_every=2, learning_rate=1e-9)
    frame = history.frame()
    assert frame["step"].tolist() == [0, 2, 4, 5]  # the last interval is as long as what is left
    assert math.isnan(frame["loss"][0])
    assert frame["loss"][1:].tolist() == pytest.approx([1.5, 3.5, 5.0])
    assert frame["seconds"].is_monotonic_increasing and history.seconds == frame["seconds"].iloc[-1]


def test_sparse_adam_is_torchs_sparse_adam():
    task = make_task(encoder=BagOfWords(WORDS, 6, sparse=True))
    start = task.module.query_encoder.weight.detach().clone()
    train(task, settings(steps=8, evaluate_every=8, optimizer="sparse_adam"), iter([0, 1]).__next__, seed=0)

    bag = nn.EmbeddingBag(WORDS, 6, mode="mean", sparse=True, _weight=start)
    alpha, beta = (torch.tensor(value, requires_grad=True) for value in (5.0, 0.0))
    optimizers = [torch.optim.SparseAdam(bag.parameters(), lr=0.05), torch.optim.Adam([alpha, beta], lr=0.05)]
    for step in range(8):
        batch = task.batch(step)
        left, right = (
            F.normalize(bag(torch.from_numpy(table.ids), torch.from_numpy(table.offsets[:-1])))
            for table in (batch.queries, batch.documents)
        )
        loss = F.cross_entropy(alpha * left @ right.T + beta, torch.arange(len(left)))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(task.module.query_encoder.weight.detach(), bag.weight.detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(task.module.alpha.detach(), alpha.detach())


def test_sparse_adam_leaves_words_outside_the_batch_alone():
    task = make_task(encoder=BagOfWords(WORDS + 1, 6, sparse=True))
    before = weights(task)["query_encoder.weight"]
    train(task, settings(optimizer="sparse_adam"), scorer(task), seed=0)
    train(task, settings(steps=1, evaluate_every=1, optimizer="sparse_adam"), iter([0, 1]).__next__, seed=0)
    after = task.module.query_encoder.weight.detach()
    assert torch.equal(after[WORDS], before[WORDS])  # no pair has the last word
    batch = task.batch(0)
    seen = np.union1d(batch.queries.ids, batch.documents.ids)
    assert not torch.equal(after[seen], before[seen])


def test_sparse_adam_without_sparse_gradients_is_refused():
    with pytest.raises(SettingError, match="sparse gradients"):
        train(make_task(sparse=False), settings(optimizer="sparse_adam"), lambda: 0.0, seed=0)


def test_the_triplet_sees_cosines_and_the_others_logits():
    batch = make_task().batch(0)
    for loss, changes in (("triplet", False), ("softmax", True), ("cross_entropy", True)):
        task = make_task(loss, encoder=BagOfWords(WORDS, 6))
        before = task.loss(batch).item()
        task.module.alpha.data.fill_(50.0)
        assert (task.loss(batch).item() != before) == changes


def test_the_triplet_of_one_pair_by_hand():
    encoder = BagOfWords(3, 2)
    encoder.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    task = RetrievalTask(DualEncoder(encoder, scale=9.0), None, "triplet")
    table = TokenTable.from_rows([[0], [1]])
    documents = TokenTable.from_rows([[2], [2]])
    eye = torch.eye(2, dtype=torch.int8)
    # Both documents score 0.6 and 0.8: no row separates them, so each pays the margin.
    assert task.loss(Batch(table, documents, eye, shared=True)).item() == pytest.approx(0.5)
    # The second document moves to query 0's word: hinges 0.5 - 0.6 + 1 and 0.5 - 0 + 0.8.
    moved = Batch(table, TokenTable.from_rows([[2], [0]]), eye, shared=True)
    assert task.loss(moved).item() == pytest.approx((0.9 + 1.3) / 2)


def test_the_pairwise_loss_sees_one_document_a_row():
    torch.manual_seed(0)
    module = DualEncoder(BagOfWords(WORDS, 6), scale=5.0)
    task = RetrievalTask(module, Labelled(make_pairs(), 6, seed=0), "cross_entropy")
    batch = task.batch(0)
    cosines = (module.queries(batch.queries) * module.documents(batch.documents)).sum(dim=1)
    expected = F.binary_cross_entropy_with_logits(5 * cosines, (batch.targets[:, 0] == POSITIVE).float())
    torch.testing.assert_close(task.loss(batch), expected)


def test_a_multitask_loss_is_the_mean_and_reaches_every_task():
    multitask = make_multitask()
    multitask.module.eval()
    batch = multitask.batch(3)
    parts = [task.loss(part) for task, part in zip(multitask.tasks, batch, strict=True)]
    loss = multitask.loss(batch)
    torch.testing.assert_close(loss, sum(parts) / 2)
    loss.backward()
    assert multitask.tasks[0].module.alpha.grad is not None  # each task has its own scale; the triplet has none
    assert multitask.tasks[1].module.alpha.grad is None
    names = [name for name, _ in multitask.module.named_parameters()]
    assert len(names) == 5  # one table, two scales and two shifts


def test_a_multitask_without_tasks_is_refused():
    with pytest.raises(SettingError, match="at least one task"):
        Multitask([])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "adm"}, "optimizer = 'adm'.*Did you mean 'adam'.*adam, momentum, sparse_adam"),
        ({"precision": "float16"}, "precision = 'float16'.*bfloat16, float32"),
        ({"steps": 0}, "steps = 0 must be positive"),
        ({"evaluate_every": -1}, "evaluate_every = -1 must be positive"),
        ({"patience": 0}, "patience = 0 must be positive"),
        ({"learning_rate": -0.1}, "learning_rate = -0.1 must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate = nan must be positive"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        settings(**changes)


def test_an_unknown_loss_fails_at_the_first_batch():
    with pytest.raises(SettingError, match="'sofmax'.*softmax"):
        train(make_task("sofmax"), settings(), lambda: 0.0, seed=0)
