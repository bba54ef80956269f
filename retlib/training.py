"""The one training loop, its optimizers, its checkpoints and its history."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from retlib import losses, runtime
from retlib.encoders import DualEncoder
from retlib.errors import require, require_one_of
from retlib.negatives import Batch
from retlib.text import TokenTable

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


@dataclass(eq=False)
class RetrievalTask(Task):
    """A dual encoder, its negatives and its loss.

    Parameters
    ----------
    module : DualEncoder
    negatives : object
        With a method ``batch(step) -> Batch``; see `retlib.negatives`.
    loss_name : str
        One of `retlib.losses.names()`.
    chunk : int, optional
        Encode so many texts at a time, keeping no more than their activations: a large batch
        in little memory, for one forward pass more (Gao et al. 2021, GradCache). The
        gradients are those of the whole batch.
    """

    module: DualEncoder
    negatives: Any
    loss_name: str
    chunk: int | None = None

    def batch(self, step: int) -> Batch:
        """The batch of a step."""
        return self.negatives.batch(step)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return self._loss(batch, self.module.queries(batch.queries), self.module.documents(batch.documents))

    def _loss(self, batch: Batch, queries: Tensor, documents: Tensor) -> Tensor:
        # The triplet's margin is stated in units of the cosine; the other losses want logits.
        scores = self.module.score(queries, documents, batch.shared, scaled=self.loss_name != "triplet").float()
        if batch.log_shares is not None:
            scores = scores - batch.log_shares.to(scores.device)
        return losses.get(self.loss_name)(scores, batch.targets.to(scores.device))

    def backward(self, batch: Batch, autocast: Autocast) -> float:
        """Add the gradient of a batch's loss to the parameters; returns the loss."""
        if self.chunk is None:
            return super().backward(batch, autocast)
        queries = _Cached(self.module.queries, batch.queries, self.chunk, autocast)
        documents = _Cached(self.module.documents, batch.documents, self.chunk, autocast)
        with autocast():
            loss = self._loss(batch, queries.encoded, documents.encoded)
        loss.backward()
        queries.backward()
        documents.backward()
        return loss.item()


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
        One of `OPTIMIZERS`.
    learning_rate : float
        Its highest value.
    precision : {"float32", "bfloat16"}
        Of matrix products.
    warmup : float
        Share of the steps over which the learning rate rises from 0, linearly.
    decay : bool
        Whether it then falls, linearly, to reach 0 after the last step; else it stays.
    """

    steps: int
    evaluate_every: int
    patience: int
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    precision: str = "float32"
    warmup: float = 0.0
    decay: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.warmup <= 1, f"warmup = {self.warmup} is not a share, between 0 and 1")
        for name in ("steps", "evaluate_every", "patience", "learning_rate"):
            value = getattr(self, name)
            require(value > 0, f"{name} = {value} must be positive")
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
        The step of the best score, whose weights the module has after training.
    """

    evaluations: list[dict] = field(default_factory=list)
    best_step: int = 0

    @property
    def best_score(self) -> float:
        """The best score on validation data."""
        return max(row["score"] for row in self.evaluations)

    @property
    def seconds(self) -> float:
        """Seconds of training, evaluation left out."""
        return self.evaluations[-1]["seconds"]

    def frame(self) -> pd.DataFrame:
        """The evaluations as a table."""
        return pd.DataFrame(self.evaluations)


def _adam(module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    # Fused: several times faster where the embedding table is most of the weights.
    return [torch.optim.Adam(module.parameters(), lr=learning_rate, fused=True)]


def _momentum(module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    # Gillick 2018 does not state the coefficient; 0.9 is the usual one.
    return [torch.optim.SGD(module.parameters(), lr=learning_rate, momentum=0.9)]


def _sparse_adam(module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Adam that updates only the embeddings of a batch's words; dense Adam for the rest."""
    tables = {id(part.weight): part.weight for part in module.modules() if getattr(part, "sparse", False)}
    rest = [parameter for parameter in module.parameters() if id(parameter) not in tables]
    require(len(tables) > 0, "sparse_adam needs an encoder with sparse gradients")
    sparse = torch.optim.SparseAdam(list(tables.values()), lr=learning_rate)
    return [sparse, *([torch.optim.Adam(rest, lr=learning_rate)] if rest else [])]


OPTIMIZERS: dict[str, Callable[[nn.Module, float], list[torch.optim.Optimizer]]] = {
    "adam": _adam,
    "momentum": _momentum,
    "sparse_adam": _sparse_adam,
}


def train(
    task: Task,
    settings: TrainingSettings,
    validate: Callable[[], float],
    seed: int,
    folder: Path | None = None,
    label: str = "training",
) -> History:
    """Train a task's module in place, and leave it with its best weights.

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
    """
    loop = _Loop(task, settings, seed)
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
    loop.restore_best()
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

    def __init__(self, task: Task, settings: TrainingSettings, seed: int) -> None:
        self.task, self.settings, self.seed = task, settings, seed
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
            total += self.task.backward(self.task.batch(self.step), autocast)
            self._set_rate()
            for optimizer in self.optimizers:
                optimizer.step()
            self.step += 1
        self.seconds += time.perf_counter() - start
        return total / (self.step - first)

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
            "evaluations": loop.history.evaluations,
            "best_step": loop.history.best_step,
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
        pick = lambda prefix: {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}  # noqa: E731
        _set_weights(loop.task.module, pick("module/"))
        loop.best = pick("best/")
        for i, optimizer in enumerate(loop.optimizers):
            states: dict[int, dict] = {}
            values = pick(f"optimizer/{i}/")
            values |= {k.split("/", 2)[2]: v for k, v in meta["numbers"].items() if k.startswith(f"optimizer/{i}/")}
            for name, value in values.items():
                parameter, field_name = name.split("/")
                states.setdefault(int(parameter), {})[field_name] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        loop.step, loop.seconds = meta["step"], meta["seconds"]
        loop.history = History(meta["evaluations"], meta["best_step"])
        return True

    def remove(self) -> None:
        """Delete the checkpoint of a finished training."""
        self._tensors.unlink(missing_ok=True)
