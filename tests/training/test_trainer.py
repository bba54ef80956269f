"""The loop: its early stopping, and that a killed training resumes exactly."""

import math
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import samplers
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from retlib.core import runtime
from retlib.core.errors import RetlibError, SettingError
from retlib.data.text import TokenTable, WordPiece
from retlib.data.tokenized import LabelledQueries, Pairs
from retlib.models.encoders import BagOfWords, BagOfWordsMLP, DualEncoder, encode
from retlib.retrieval import index
from retlib.training import losses, trainer
from retlib.training.losses import IGNORE, POSITIVE
from retlib.training.tasks import Multitask, RetrievalTask, Task
from retlib.training.trainer import OPTIMIZERS, Schedule, train

WORDS, PAIRS = 40, 24


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch):
    """One is written after every evaluation."""
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)


class Line(Task):
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
    module = DualEncoder(encoder or Dropping(WORDS, 6))
    if sparse:
        module.query_encoder.sparse = True
    return RetrievalTask(module, samplers.in_batch(make_pairs(), 6, seed, mask), loss)


def make_multitask():
    first = make_task(sparse=True)
    second = make_task("triplet", encoder=first.module.query_encoder, seed=1)
    return Multitask([first, second])


def make_transformer():
    """One layer of BERT over as many units as there are words."""
    from retlib.models.transformer import Transformer

    torch.manual_seed(0)
    units = WordPiece((*WordPiece.SPECIAL, *(f"u{i}" for i in range(5, WORDS))))
    model = Transformer.from_scratch(units, layers=1, width=64, dimension=6)
    for part in (each for each in model.modules() if isinstance(each, nn.Dropout)):
        part.p = 0.1
    return make_task(encoder=model)


RELEVANT = [[row % 9, 9 + row % 3] for row in range(PAIRS)]


def make_judged(vectors=None):
    """The queries of the pairs, and twelve documents or their encodings."""
    pairs = make_pairs()
    documents = pairs.documents.take(np.arange(12)) if vectors is None else vectors
    return LabelledQueries(pairs.queries, TokenTable.from_rows(RELEVANT), documents)


def make_ranked(make_sampler, loss="ranknet", vectors=None, chunk=None):
    """A task over judged queries, whose sampler is made of them and of what encodes queries and indexes documents."""
    torch.manual_seed(0)
    module = DualEncoder(Dropping(WORDS, 6))

    def encoded(side, table):
        training = module.training
        module.eval()
        found = encode(side, table)
        module.train(training)
        return found

    def documents():
        return index.build("Exact", encoded(module.documents, make_judged().documents) if vectors is None else vectors)

    sampler = make_sampler(make_judged(vectors), lambda table: encoded(module.queries, table), documents)
    return RetrievalTask(module, sampler, loss, chunk)


def make_stale():
    """Both encoders are trained; lists are fetched every four steps."""
    return make_ranked(lambda j, encode, found: samplers.ann(j, 6, 0, 2, encode, found, 4, 5))


VECTORS = np.random.default_rng(8).normal(size=(12, 6)).astype(np.float32)


def make_retrieved(chunk=None):
    """The query encoder is trained over documents that stay as they are."""
    return make_ranked(lambda j, _, found: samplers.retrieved(j, 6, 0, found(), 5), vectors=VECTORS, chunk=chunk)


def scorer(task):
    """A validation score that goes up and down with the weights."""
    parameters = list(task.module.parameters())
    return lambda: float(torch.sin(1000 * parameters[-1].detach().double().sum()))


def settings(evaluate_every=3, **changes):
    plain = {"steps": 20, "learning_rate": 0.05, "warmup": 0.0, "decay": False, "precision": "float32", **changes}
    return Schedule(**{"evaluations": -(-plain["steps"] // evaluate_every), **plain})


def weights(task):
    return {name: value.clone() for name, value in task.module.state_dict().items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def without_seconds(history):
    """The history with its losses as text, for NaN is not NaN."""
    return history.best_step, [(row["step"], repr(row["loss"]), row["score"]) for row in history.evaluations]


TASKS = {
    "adam": (make_task, {"optimizer": "adam"}),
    "adamw": (make_task, {"optimizer": "adamw"}),
    "lamb": (make_task, {"optimizer": "lamb"}),
    "momentum": (make_task, {"optimizer": "momentum"}),
    "sparse_adam": (lambda: make_task(sparse=True), {"optimizer": "sparse_adam"}),
    "bfloat16": (lambda: make_task(sparse=True, mask=True), {"optimizer": "sparse_adam", "precision": "bfloat16"}),
    "multitask": (make_multitask, {"optimizer": "sparse_adam"}),
    "schedule": (lambda: make_task(sparse=True), {"optimizer": "sparse_adam", "warmup": 0.3, "decay": True}),
    "stale": (make_stale, {"learning_rate": 0.3}),
    "retrieved": (make_retrieved, {"precision": "bfloat16"}),
    "retrieved, chunks": (lambda: make_retrieved(chunk=4), {}),
    "last": (make_task, {"keep": "last"}),
    "chunks": (lambda: replace(make_task(), chunk=4), {"optimizer": "momentum", "decay": True}),
    "transformer": (make_transformer, {"warmup": 0.1, "decay": True, "precision": "bfloat16", "learning_rate": 3e-3}),
}


@cache
def uninterrupted(name):
    """One training of `TASKS` that nothing kills."""
    return run(name)


def run(name, folder=None, wrap=lambda task, validate: validate):
    """One training of `TASKS`: its history and its final weights."""
    make, changes = TASKS[name]
    task = make()
    validate = wrap(task, scorer(task))
    history = train(task, settings(**changes), validate, seed=7, folder=folder)
    return history, weights(task)


def killing(inner, call):
    """A function that raises when it is called for that time, from 0."""
    calls = iter(range(100))

    def wrapped(*given):
        if next(calls) == call:
            raise KeyboardInterrupt
        return inner(*given)

    return wrapped


def kill_in_validate(call):
    return lambda task, validate: killing(validate, call)


def kill_in_loss(step):
    def wrap(task, validate):
        task.loss = killing(task.loss, step)
        return validate

    return wrap


KILLS = {
    "second validation": kill_in_validate(1),
    "last validation": kill_in_validate(7),
    "first step": kill_in_loss(0),
    "middle of an interval": kill_in_loss(10),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
def test_a_killed_training_resumes_to_the_same_end(name, kill, tmp_path):
    expected, final = uninterrupted(name)
    with pytest.raises(KeyboardInterrupt):
        run(name, tmp_path, kill)
    history, resumed = run(name, tmp_path)
    assert same(resumed, final)
    assert without_seconds(history) == without_seconds(expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flips", [False, True])
def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(flips, tmp_path, monkeypatch):
    """A later bit that flips is noticed, and training begins anew."""
    real, calls = np.savez, iter(range(100))

    def dying(file, **arrays):
        if next(calls) == 3:
            file.write(b"half")
            raise KeyboardInterrupt
        real(file, **arrays)

    monkeypatch.setattr(trainer.np, "savez", dying)
    with pytest.raises(KeyboardInterrupt):
        run("adam", tmp_path)
    if flips:
        (content := bytearray((path := tmp_path / "checkpoint.npz").read_bytes()))[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert same(run("adam", tmp_path)[1], uninterrupted("adam")[1])


@pytest.mark.parametrize(("bad", "named"), [(math.nan, "loss"), (math.inf, "loss"), (None, "weights")])
def test_what_is_not_finite_stops_training_and_leaves_the_last_good_checkpoint(bad, named, tmp_path):
    """A loss of a step, or, for None, a gradient of a finite loss."""
    kept = {}

    def spoil(task, validate):
        inner, steps = task.backward, iter(range(100))

        def backward(*given):
            loss = inner(*given)
            if next(steps) == 11:  # the last of an interval
                kept.update({path: path.read_bytes() for path in tmp_path.iterdir()})
                next(task.module.parameters()).grad.fill_(math.nan)
                return loss if bad is None else bad
            return loss

        task.backward = backward
        return validate

    with pytest.raises(RetlibError, match=f"step 1[12].* {named}"):
        run("adam", tmp_path, spoil)
    assert len(kept) == 1 and {path: path.read_bytes() for path in tmp_path.iterdir()} == kept
    assert same(run("adam", tmp_path)[1], uninterrupted("adam")[1])  # and is resumed


SCRIPT = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {here!r}]
from test_trainer import run, trainer
from pathlib import Path

trainer.CHECKPOINT_SECONDS, calls = 0, iter(range(100))
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
run("bfloat16", Path({folder!r}), lambda _, validate: lambda: kill() if next(calls) == 4 else validate())
"""


def test_a_process_killed_for_good_is_resumed_by_another(tmp_path):
    script = SCRIPT.format(tests=f"{Path(__file__).parents[1]}", here=f"{Path(__file__).parent}", folder=str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert len(os.listdir(tmp_path)) == 1
    history, resumed = run("bfloat16", tmp_path)
    expected, final = uninterrupted("bfloat16")
    assert same(resumed, final) and without_seconds(history) == without_seconds(expected)


def train_line(task, scores, seed=0, **changes):
    """Train a line with validation scores written beforehand; also the weight at each evaluation."""
    seen, script = [], iter(scores)

    def validate():
        seen.append(float(task))
        return next(script)

    chosen = settings(**{"evaluate_every": 1, "optimizer": "momentum", "learning_rate": 0.5, **changes})
    return train(task, chosen, validate, seed=seed), seen


@pytest.mark.parametrize(
    ("scores", "patience", "best", "last"),
    [
        ([0.1, 0.3, 0.5, 0.4, 0.5, 0.2, 9.9], 3, 2, 5),  # an equal score is not better
        ([0.1, 0.0, 0.2, 0.1, 0.3, 0.0, 0.0, 0.0], 2, 4, 6),  # patience starts again at each better one
        ([0.5, 0.4, 0.3], 2, 0, 2),
    ],
)
def test_the_best_weights_are_kept_and_patience_ends_the_training(scores, patience, best, last):
    task = Line([1.0] * 20)
    history, seen = train_line(task, scores, steps=20, patience=patience)
    assert [row["step"] for row in history.evaluations] == list(range(last + 1))
    assert (history.best_step, history.best_score) == (best, scores[best])
    assert float(task) == seen[best]


def test_history_says_steps_and_mean_losses():
    task = Line([1.0, 2.0, 3.0, 4.0, 5.0])
    history, seen = train_line(task, [0, 1, 2, 3], steps=5, evaluate_every=2, learning_rate=1e-9)
    frame = history.frame()
    assert frame["step"].tolist() == [0, 2, 4, 5]  # the last interval is as long as what is left
    assert math.isnan(frame["loss"][0])
    assert frame["loss"][1:].tolist() == pytest.approx([1.5, 3.5, 5.0])
    assert frame["seconds"].is_monotonic_increasing and history.seconds == frame["seconds"].iloc[-1]


@pytest.mark.parametrize(
    ("negatives", "chunk"),
    [
        (samplers.in_batch(make_pairs(), 6), None),
        (samplers.in_batch(make_pairs(), 6), 4),
        (samplers.in_batch(make_pairs(), PAIRS, mask_known=True), None),
        (samplers.labelled(make_pairs(), 6), None),
    ],
)
def test_a_centred_shift_expects_as_many_positives_as_there_are_and_has_no_gradient(negatives, chunk):
    torch.manual_seed(0)
    module = DualEncoder(BagOfWords(WORDS, 6))
    task = RetrievalTask(module, negatives, "cross_entropy", chunk)
    module.beta.data.fill_(3.0)  # wherever it was
    task.centre()
    batch = task.batch(0)
    counted = batch.targets != IGNORE
    scores = module.score(module.queries(batch.queries), module.documents(batch.documents), batch.shared)
    share = (batch.targets == POSITIVE).sum() / counted.sum()
    torch.testing.assert_close(torch.sigmoid(scores)[counted].mean(), share)
    task.loss(batch).backward()
    assert module.beta.grad.abs() < 1e-6
    assert any(weight.grad.abs().max() > 1e-4 for name, weight in module.named_parameters() if name != "beta")


def test_a_shift_can_be_centred_where_no_pair_is_negative():
    pairs = make_pairs()
    task = RetrievalTask(DualEncoder(BagOfWords(WORDS, 6)), samplers.in_batch(pairs, 1, seed=0), "cross_entropy")
    task.centre()
    assert torch.isfinite(task.module.beta)


@pytest.mark.parametrize(
    ("name", "value"),
    [("optimizer", "adm"), ("precision", "float16"), ("keep", "first"), ("steps", 0), ("evaluations", -1)]
    + [("patience", 0), ("chunk", -3), ("learning_rate", -0.1), ("learning_rate", math.nan)]
    + [("warmup", -0.1), ("warmup", math.nan)],
)
def test_settings_that_cannot_be_are_named(name, value):
    with pytest.raises(SettingError, match=f"{name} = .?{value}"):
        settings(**{name: value})


NEGATIVES = {
    "in batch": lambda: samplers.in_batch(make_pairs(), 10, seed=0),
    "masked and corrected": lambda: samplers.in_batch(shared_out(), 10, seed=0, mask_known=True, corrected=True),
    "own document": lambda: samplers.labelled(make_pairs(), 10, seed=0),
}
LOSSES = {"in batch": "softmax", "masked and corrected": "softmax", "own document": "cross_entropy"}
ENCODERS = {
    "siamese": lambda: (BagOfWords(WORDS, 6), None),
    "two towers": lambda: (BagOfWords(WORDS, 6), BagOfWordsMLP(WORDS, 5, 6)),
}


def shared_out():
    """The pairs with some shares."""
    return replace(make_pairs(), log_shares=np.log(np.arange(1, PAIRS + 1) / 300).astype(np.float32))


def chunked(chunk, encoders="siamese", similarity="cosine", negatives="in batch"):
    torch.manual_seed(1)
    module = DualEncoder(*ENCODERS[encoders](), similarity=similarity).double()
    return RetrievalTask(module, NEGATIVES[negatives](), LOSSES[negatives], chunk)


def test_a_multitask_loss_is_the_mean_and_each_task_has_its_own_scale():
    multitask = make_multitask()
    multitask.module.eval()
    batch = multitask.batch(3)
    parts = [task.loss(part) for task, part in zip(multitask.tasks, batch, strict=True)]
    torch.testing.assert_close(multitask.loss(batch), sum(parts) / 2)
    assert len([*multitask.module.parameters()]) == 5  # one table, two scales and two shifts


def gradients(task, seed=0, autocast=nullcontext):
    """The loss of a batch, and its gradients."""
    task.module.zero_grad()
    torch.manual_seed(seed)
    loss = task.backward(task.batch(2), autocast)
    return loss, {name: weight.grad.clone() for name, weight in task.module.named_parameters()}


@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("encoders", ENCODERS)
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_give_the_gradients_of_the_whole_batch(chunk, encoders, similarity, negatives):
    expected, whole = gradients(chunked(None, encoders, similarity, negatives))
    loss, found = gradients(chunked(chunk, encoders, similarity, negatives))
    assert loss == pytest.approx(expected, abs=1e-6)
    assert found.keys() == whole.keys()
    assert all(weight.any() for name, weight in whole.items() if name != "beta")  # a shift changes no softmax
    torch.testing.assert_close(found, whole, rtol=1e-6, atol=1e-8)


def rates(**changes):
    chosen = settings(**{"learning_rate": 0.8, **changes})
    return [chosen.rate(step, chosen.steps) for step in range(chosen.steps)]


def test_rates_by_hand():
    # Two steps of rising, a third and two thirds; then from the whole in eight equal parts.
    found = rates(steps=10, warmup=0.2, decay=True)
    assert found == pytest.approx([0.8 / 3, 1.6 / 3, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    found = rates(steps=7, warmup=0.25, decay=True)  # one and three quarters of rising
    assert found == pytest.approx([0.8 / 2.75, 1.6 / 2.75, *(0.8 * left / 5.25 for left in (5, 4, 3, 2, 1))])
    assert rates(steps=4, warmup=0.5) == pytest.approx([0.8 / 3, 1.6 / 3, 0.8, 0.8])
    assert rates(steps=4, decay=True) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert rates(steps=3, warmup=1.0, decay=True) == pytest.approx([0.2, 0.4, 0.6])
    assert rates(steps=3) == [0.8] * 3
    assert rates(steps=1, warmup=0.1, decay=True)[0] <= 0.8


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizers_step_at_the_rates_of_the_schedule(optimizer):
    found, is_sparse = [], optimizer == "sparse_adam"
    hook = register_optimizer_step_pre_hook(lambda each, *_: found.append(each.param_groups[0]["lr"]))
    changes = {"steps": 10, "warmup": 0.2, "decay": True, "learning_rate": 0.8, "optimizer": optimizer}
    try:
        train(make_task(sparse=is_sparse), settings(**changes), lambda: 0.0, seed=0)
    finally:
        hook.remove()
    expected = rates(steps=10, warmup=0.2, decay=True)
    assert found == [rate for rate in expected for _ in range(2 if is_sparse else 1)]


def test_an_open_batch_is_retrieved_with_the_encodings_that_are_trained():
    task, calls = make_retrieved(), []
    inner = task.module.query_encoder.forward
    task.module.query_encoder.forward = lambda table: calls.append(inner(table)) or calls[-1]
    task.module.train()
    torch.manual_seed(3)
    task.backward(task.batch(0), nullcontext)
    assert len(calls) == 1  # the dropped units are those of the search
    found = [weight.grad.clone() for weight in task.module.parameters()]

    task.module.zero_grad()
    opened, queries = task.batch(0), F.normalize(calls[0].detach(), dim=-1)
    best = np.argsort(-queries.numpy() @ VECTORS.T, axis=1)[:, :5]
    batch = opened.close(queries.numpy())
    kept = batch.documents.reshape(6, 5, 6)[:, :4].numpy()
    np.testing.assert_array_equal(kept, VECTORS[best[:, :4]])
    torch.manual_seed(3)
    scores = task.module.score(task.module.queries(opened.queries), batch.documents, shared=False)
    losses.get("ranknet")(scores, batch.targets).backward()
    torch.testing.assert_close(found, [weight.grad for weight in task.module.parameters()])


@pytest.mark.parametrize("exact", [True, False])
def test_lists_are_scored_exactly_where_they_ask_for_it(exact, monkeypatch):
    task, seen = make_retrieved(), []
    batch = replace(task.batch(0).close(np.ones((6, 6), dtype=np.float32)), exact=exact)
    inner = task.module.score
    monkeypatch.setattr(task.module, "score", lambda *given: seen.append(inner(*given)) or seen[-1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        task.loss(batch)
    assert seen[0].dtype == (torch.float32 if exact else torch.bfloat16)


def test_the_seconds_of_the_parts_go_on_after_a_kill(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run("stale", tmp_path, kill_in_loss(19))
    (path,) = tmp_path.iterdir()
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: 0.0)  # what is left takes no time
    monkeypatch.setattr(runtime.time, "perf_counter", lambda: 0.0)
    parts = run("stale", tmp_path)[0].parts
    assert parts["encoding corpus"] > 0 and parts["loss and backward"] > 0


def test_targets_of_another_shape_than_the_scores_are_named():
    task = make_task()
    batch = task.batch(0)
    with pytest.raises(SettingError, match=r"\(6, 6\).*\(6, 1\)"):
        task.loss(replace(batch, targets=batch.targets[:, :1]))


def test_a_watch_is_called_before_each_step():
    task = Line([1.0, 2.0, 3.0, 4.0])

    def looking(step, batch):
        return None if step == 1 else {"batch": batch, "weight": float(task)}

    chosen = settings(steps=4, evaluate_every=1, optimizer="momentum", learning_rate=0.5)
    assert train(task, chosen, lambda: float(task), 0, callback=looking).watched == [
        {"step": 0, "batch": 1.0, "weight": 1.0},
        {"step": 2, "batch": 3.0, "weight": pytest.approx(0.5 - 0.5 * 2.9)},
        {"step": 3, "batch": 4.0, "weight": pytest.approx(-0.95 - 0.5 * 5.61)},
    ]


def test_the_time_of_a_watch_is_left_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: now[0])
    task = Line([1.0] * 4)
    inner = task.loss
    task.loss = lambda batch: now.__setitem__(0, now[0] + 1) or inner(batch)
    chosen = settings(steps=4, evaluate_every=2, optimizer="momentum", learning_rate=0.5)
    looking = lambda step, batch: now.__setitem__(0, now[0] + 1000)  # noqa: E731
    assert train(task, chosen, lambda: 0.0, 0, callback=looking).seconds == 4
