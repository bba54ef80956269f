"""The one training loop, its checkpoints and its history."""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from retlib.core import runtime
from retlib.core.errors import require, require_one_of, require_positive
from retlib.data import collection, pairs, text
from retlib.data.text import TokenTable
from retlib.models import encoders
from retlib.models.encoders import DualEncoder
from retlib.training import losses, negatives, optimizers
from retlib.training.negatives import Batch, OpenBatch, only_hardest
from retlib.training.optimizers import OPTIMIZERS

# The loop and what it trains with: whose source takes part in the address of all that it trains.
MODULES = (collection, encoders, losses, negatives, optimizers, pairs, runtime, text, sys.modules[__name__])

# Makes the context in which a forward pass runs.
Autocast = Callable[[], AbstractContextManager]

# Seconds of training after which a checkpoint is written: the most that a kill can cost.
CHECKPOINT_SECONDS = 30.0


class Task(ABC):
    """What the loop trains: a module, a batch for every step, and the loss of a batch."""

    module: nn.Module

    @abstractmethod
    def batch(self, step: int) -> Any:
        """The batch of a step; depends on the step alone, so that training can resume."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch, a scalar."""

    def backward(self, batch: Any, autocast: Autocast) -> float:
        """Add the gradient of a batch's loss to the parameters; returns the loss.

        Parameters
        ----------
        autocast : callable
            Makes the context in which the forward pass runs.
        """
        with autocast():
            loss = self.loss(batch)
        loss.backward()
        return loss.item()

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold beside the module, for `set_state`."""
        return {}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 - most tasks have no state
        """Go back to what `state` gave."""

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of the parts of training that the task tells apart."""
        return {}


@dataclass(eq=False)
class RetrievalTask(Task):
    """A dual encoder, its negatives and its loss.

    Parameters
    ----------
    module : DualEncoder
    negatives : object
        With a method ``batch(step)`` that gives a `Batch` or an `OpenBatch`; see `retlib.training.negatives`.
        Those with a state beside the step have `state` and `set_state`, as a task has; those that
        count the seconds of their parts do it with a `retlib.core.runtime.Clock`, `clock`.
    loss_name : str
        One of `retlib.training.losses.names()`.
    chunk : int, optional
        Encode so many texts at a time, keeping no more than their activations: a large batch
        in little memory, for one forward pass more (Gao et al. 2021, GradCache). The
        gradients are those of the whole batch.
    """

    module: DualEncoder
    negatives: Any
    loss_name: str
    chunk: int | None = None

    def __post_init__(self) -> None:
        self.clock: runtime.Clock = getattr(self.negatives, "clock", None) or runtime.Clock()

    def batch(self, step: int) -> Batch | OpenBatch:
        """The batch of a step."""
        return self.negatives.batch(step)

    def loss(self, batch: Batch | OpenBatch) -> Tensor:
        """The loss of a batch."""
        with self.clock("encoding queries"):
            queries = self.module.queries(batch.queries)
        batch = _closed(batch, queries)
        with self.clock("encoding documents"):
            encoded = isinstance(batch.documents, Tensor)
            documents = batch.documents.to(queries.device) if encoded else self.module.documents(batch.documents)
        return self._loss(batch, queries, documents)

    def _loss(self, batch: Batch, queries: Tensor, documents: Tensor) -> Tensor:
        # The triplet's margin is stated in units of the cosine; the other losses want logits.
        scaled = self.loss_name != "triplet"
        with torch.autocast(queries.device.type, enabled=False) if batch.exact else nullcontext():
            scores = self.module.score(queries, documents, batch.shared, scaled).float()
        if batch.log_shares is not None:
            scores = scores - batch.log_shares.to(scores.device)
        targets = batch.targets.to(scores.device)
        return losses.get(self.loss_name)(scores, only_hardest(scores, targets) if batch.hardest else targets)

    def backward(self, batch: Batch | OpenBatch, autocast: Autocast) -> float:
        """Add the gradient of a batch's loss to the parameters; returns the loss."""
        with self.clock("loss and backward"):
            return super().backward(batch, autocast) if self.chunk is None else self._in_chunks(batch, autocast)

    def _in_chunks(self, batch: Batch | OpenBatch, autocast: Autocast) -> float:
        sides = [_Cached(self.module.queries, batch.queries, self.chunk, autocast)]
        queries = sides[0].encoded
        batch = _closed(batch, queries)
        if isinstance(batch.documents, Tensor):
            documents = batch.documents.to(queries.device)
        else:
            sides.append(_Cached(self.module.documents, batch.documents, self.chunk, autocast))
            documents = sides[1].encoded
        with autocast():
            loss = self._loss(batch, queries, documents)
        loss.backward()
        for side in sides:
            side.backward()
        return loss.item()

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of encoding, of searching and of what else the negatives count, and of the loss."""
        return dict(self.clock.seconds)

    def state(self) -> dict[str, Tensor]:
        """The state of the negatives, and the seconds of the parts."""
        seconds = {f"seconds/{part}": torch.tensor(taken, dtype=torch.float64) for part, taken in self.parts.items()}
        return seconds | (self.negatives.state() if hasattr(self.negatives, "state") else {})

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""
        seconds = _below(tensors, "seconds/")
        self.clock.seconds.update({part: taken.item() for part, taken in seconds.items()})
        if hasattr(self.negatives, "set_state"):
            self.negatives.set_state({k: v for k, v in tensors.items() if not k.startswith("seconds/")})


def _closed(batch: Batch | OpenBatch, queries: Tensor) -> Batch:
    if isinstance(batch, Batch):
        return batch
    return batch.close(queries.detach().float().cpu().numpy())


def _below(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What is kept under names that begin with a prefix, under the rest of these names."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class _Cached:
    """Encodings of a batch, made chunk by chunk without their graphs, which are made again to go backward."""

    def __init__(self, encode: Callable, table: TokenTable, chunk: int, autocast: Autocast) -> None:
        require(chunk >= 1, f"chunk = {chunk} must be at least 1")
        rows = np.arange(len(table))
        self._chunks = [table.take(rows[start : start + chunk]) for start in rows[::chunk]]
        self._encode, self._autocast, self._states = encode, autocast, []
        with torch.no_grad():
            self.encoded = torch.cat([self._forward(part) for part in self._chunks]).requires_grad_()

    def _forward(self, part: TokenTable) -> Tensor:
        # The second pass must drop what the first one dropped.
        self._states.append(runtime.random_state())
        with self._autocast():
            return self._encode(part)

    def backward(self) -> None:
        """Carry the gradient of the encodings on to the parameters."""
        states, self._states = self._states, []
        gradients = self.encoded.grad.split([len(part) for part in self._chunks])
        for part, state, gradient in zip(self._chunks, states, gradients, strict=True):
            runtime.set_random_state(state)
            encoded = self._forward(part)
            encoded.backward(gradient.to(encoded.dtype))


class Multitask(Task):
    """Several tasks that share parameters; the loss is their mean (Gillick 2018, section 2: uniform weights)."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        require(len(tasks) > 0, "a multi-task needs at least one task")
        whole = all(getattr(task, "chunk", None) is None for task in tasks)
        require(whole, "the tasks of a multi-task cannot be trained in chunks")
        self.tasks = list(tasks)
        self.module = nn.ModuleList(task.module for task in tasks)

    def batch(self, step: int) -> list[Any]:
        """One batch of each task."""
        return [task.batch(step) for task in self.tasks]

    def loss(self, batch: list[Any]) -> Tensor:
        """The mean of the tasks' losses."""
        return torch.stack([task.loss(part) for task, part in zip(self.tasks, batch, strict=True)]).mean()

    def state(self) -> dict[str, Tensor]:
        """The states of the tasks."""
        return {f"{i}/{name}": tensor for i, task in enumerate(self.tasks) for name, tensor in task.state().items()}

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""
        for i, task in enumerate(self.tasks):
            task.set_state(_below(tensors, f"{i}/"))


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how fast to train.

    Parameters
    ----------
    steps : int
        The most steps to take.
    evaluate_every : int
        Steps between two evaluations on validation data.
    patience : int
        Stop after so many evaluations without a better score.
    optimizer : str
        One of `retlib.training.optimizers.OPTIMIZERS`.
    learning_rate : float
        Its highest value.
    precision : {"float32", "bfloat16"}
        Of matrix products.
    warmup : float
        Share of the steps over which the learning rate rises from 0, linearly.
    decay : bool
        Whether it then falls, linearly, to reach 0 after the last step; else it stays.
    keep : {"best", "last"}
        Which weights the module has in the end.
    """

    steps: int
    evaluate_every: int
    patience: int
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    precision: str = "float32"
    warmup: float = 0.0
    decay: bool = False
    keep: str = "best"

    def __post_init__(self) -> None:
        require_one_of("keep", self.keep, ("best", "last"))
        require(0 <= self.warmup <= 1, f"warmup = {self.warmup} is not a share, between 0 and 1")
        require_positive(self, "steps", "evaluate_every", "patience", "learning_rate")
        require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        require_one_of("precision", self.precision, runtime.PRECISIONS)

    def rate(self, step: int) -> float:
        """The learning rate of a step (from 0)."""
        rising = self.warmup * self.steps
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        return self.learning_rate * ((self.steps - step) / (self.steps - rising) if self.decay else 1.0)


@dataclass
class History:
    """What the loop saw.

    Parameters
    ----------
    evaluations : list of dict
        One for each evaluation: `step`, `loss` (mean since the last), `score` (on validation
        data), `seconds` (of training alone, evaluation left out).
    best_step : int
        The step of the best score, whose weights the module has after training, unless the
        settings keep the last.
    watched : list of dict
        What a `Watch` returned, with its `step`.
    parts : dict
        Seconds of training in the parts that the task tells apart; the rest is the optimizer's.
    """

    evaluations: list[dict] = field(default_factory=list)
    best_step: int = 0
    watched: list[dict] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def best_score(self) -> float:
        """The best score on validation data."""
        return max(row["score"] for row in self.evaluations)

    @property
    def seconds(self) -> float:
        """Seconds of training, evaluation and watch left out."""
        return self.evaluations[-1]["seconds"]

    def frame(self) -> pd.DataFrame:
        """The evaluations as a table."""
        return pd.DataFrame(self.evaluations)


class Watch(Protocol):
    """Looks at a training before each of its steps. It must leave the module as it is, and draw no random number."""

    def __call__(self, step: int, batch: Any) -> dict | None:
        """What is seen at a step, before its batch is trained on; JSON values."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of the watch, for `set_state`."""

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `state` gave."""


def train(
    task: Task,
    settings: TrainingSettings,
    validate: Callable[[], float],
    seed: int,
    folder: Path | None = None,
    label: str = "training",
    watch: Watch | None = None,
) -> History:
    """Train a task's module in place, and leave it with its best weights, or its last.

    Parameters
    ----------
    task : Task
    settings : TrainingSettings
    validate : callable
        The score of the module on validation data; higher is better. Called before the
        first step, and every `evaluate_every` steps.
    seed : int
        Of whatever the module itself draws (dropout); batches have their own.
    folder : Path, optional
        Where checkpoints go. A call that finds one resumes from it and ends with the
        same weights as an uninterrupted call.
    label : str
        Shown beside the progress bar.
    watch : Watch, optional
        Called before each step; its time is left out of that of training.
    """
    loop = _Loop(task, settings, seed, watch)
    checkpoint = Checkpoint(folder) if folder else None
    if checkpoint is None or not checkpoint.restore(loop):
        loop.evaluate(validate, loss=float("nan"))
    saved = time.perf_counter()
    with runtime.progress(total=settings.steps, initial=loop.step, desc=label, unit="step") as bar:
        while loop.step < settings.steps and not loop.exhausted:
            before = loop.step
            loss = loop.advance()
            loop.evaluate(validate, loss)
            bar.update(loop.step - before)
            bar.set_postfix(loss=f"{loss:.3f}", best=f"{loop.history.best_score:.3f}", refresh=False)
            if checkpoint and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                checkpoint.save(loop)
                saved = time.perf_counter()
    if settings.keep == "best":
        loop.restore_best()
    loop.history.parts = {part: round(taken, 3) for part, taken in task.parts.items()}
    if checkpoint:
        checkpoint.remove()
    return loop.history


def _weights(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer once, however many encoders and tasks share it; not copied."""
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def _set_weights(module: nn.Module, saved: dict[str, Tensor]) -> None:
    for name, tensor in _weights(module).items():
        tensor.copy_(saved[name])


class _Loop:
    """The state of a training: module, optimizers, step, history and the best weights so far."""

    def __init__(self, task: Task, settings: TrainingSettings, seed: int, watch: Watch | None = None) -> None:
        self.task, self.settings, self.seed, self.watch = task, settings, seed, watch
        self.optimizers = OPTIMIZERS[settings.optimizer](task.module, settings.learning_rate)
        self.step, self.seconds, self.history = 0, 0.0, History()
        self.best: dict[str, Tensor] = {}

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        since = sum(row["step"] > self.history.best_step for row in self.history.evaluations)
        return since >= self.settings.patience

    def advance(self) -> float:
        """Take the steps up to the next evaluation; returns their mean loss."""
        start, first, total = time.perf_counter(), self.step, 0.0
        self.task.module.train()
        stop = min(self.step + self.settings.evaluate_every, self.settings.steps)
        autocast = partial(runtime.autocast, self.settings.precision)
        while self.step < stop:
            # Seeded step by step, so that a resumed training draws what an uninterrupted one draws.
            runtime.seed_torch(self.seed * 1_000_003 + self.step)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            batch = self.task.batch(self.step)
            self._look(batch)
            total += self.task.backward(batch, autocast)
            self._set_rate()
            for optimizer in self.optimizers:
                optimizer.step()
            self.step += 1
        self.seconds += time.perf_counter() - start
        return total / (self.step - first)

    def _look(self, batch: Any) -> None:
        if self.watch is None:
            return
        start = time.perf_counter()
        if seen := self.watch(self.step, batch):
            self.history.watched.append({"step": self.step, **seen})
        self.seconds -= time.perf_counter() - start

    def _set_rate(self) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.rate(self.step)

    def evaluate(self, validate: Callable[[], float], loss: float) -> None:
        """Score the module, and keep its weights if they are the best so far."""
        self.task.module.eval()
        with torch.no_grad():
            score = validate()
        better = not self.history.evaluations or score > self.history.best_score
        self.history.evaluations.append(
            {"step": self.step, "loss": loss, "score": score, "seconds": round(self.seconds, 3)}
        )
        if better:
            self.history.best_step = self.step
            self.best = {name: tensor.clone() for name, tensor in _weights(self.task.module).items()}

    def restore_best(self) -> None:
        """Give the module its best weights."""
        _set_weights(self.task.module, self.best)


@dataclass(frozen=True)
class Checkpoint:
    """A training's state on disk: tensors as safetensors, the rest as JSON."""

    folder: Path

    @property
    def _tensors(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @staticmethod
    def _flat(loop: _Loop) -> tuple[dict[str, Tensor], dict]:
        tensors = {f"module/{k}": v for k, v in _weights(loop.task.module).items()}
        tensors |= {f"best/{k}": v for k, v in loop.best.items()}
        tensors |= {f"task/{k}": v for k, v in loop.task.state().items()}
        tensors |= {f"watch/{k}": v for k, v in (loop.watch.state() if loop.watch else {}).items()}
        numbers: dict[str, Any] = {}
        for i, optimizer in enumerate(loop.optimizers):
            for parameter, state in optimizer.state_dict()["state"].items():
                for name, value in state.items():
                    place = tensors if isinstance(value, Tensor) else numbers
                    place[f"optimizer/{i}/{parameter}/{name}"] = value
        return tensors, numbers

    def save(self, loop: _Loop) -> None:
        """Write the state; a kill while it is written leaves the one before."""
        tensors, numbers = self._flat(loop)
        # One file holds everything, so that no kill can pair new weights with an old step.
        meta = {
            "step": loop.step,
            "seconds": loop.seconds,
            "history": asdict(loop.history),
            "numbers": numbers,
        }
        partial = self._tensors.with_suffix(".partial")
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        save_file(on_cpu, partial, metadata={"state": json.dumps(meta)})
        os.replace(partial, self._tensors)

    def restore(self, loop: _Loop) -> bool:
        """Put a saved state into the loop; False if there is none."""
        if not self._tensors.exists():
            return False
        from safetensors import safe_open

        with safe_open(self._tensors, framework="pt") as opened:
            meta = json.loads(opened.metadata()["state"])
        tensors = load_file(self._tensors)
        _set_weights(loop.task.module, _below(tensors, "module/"))
        loop.best = _below(tensors, "best/")
        loop.task.set_state(_below(tensors, "task/"))
        if loop.watch:
            loop.watch.set_state(_below(tensors, "watch/"))
        for i, optimizer in enumerate(loop.optimizers):
            states: dict[int, dict] = {}
            values = {**_below(tensors, f"optimizer/{i}/"), **_below(meta["numbers"], f"optimizer/{i}/")}
            for name, value in values.items():
                parameter, field_name = name.split("/")
                states.setdefault(int(parameter), {})[field_name] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        loop.step, loop.seconds = meta["step"], meta["seconds"]
        loop.history = History(**meta["history"])
        return True

    def remove(self) -> None:
        """Delete the checkpoint of a finished training."""
        self._tensors.unlink(missing_ok=True)
