"""The one training loop, its checkpoints and its history."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from retlib.core import cache, runtime
from retlib.core.errors import RetlibError, require, require_one_of, require_positive
from retlib.core.history import History
from retlib.training.optimizers import OPTIMIZERS
from retlib.training.tasks import Task, below

# Seconds of training after which a checkpoint is written: the most that a kill can cost.
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, how fast and how to train: at most `steps`, or `epochs` over the training pairs, one of which is given.

    A step sees `batch_size` pairs, or queries. The learning rate rises from 0, linearly, over the share `warmup` of the
    steps, to `learning_rate`. With `decay` it then falls, linearly, to reach 0 after the last step; else it stays.
    `optimizer` is one of `retlib.training.optimizers.OPTIMIZERS`.

    Validation data are looked at `evaluations` times in all, or in an epoch where there are epochs; five times, so that
    the last fifth of a training has an evaluation of its own. `patience` is the number of evaluations without a better
    score after which training stops; None never stops early. `keep` says which weights the module has in the end, the
    "best" or the "last". `precision`, "float32" or "bfloat16", is that of matrix products. For `chunk` see
    `retlib.training.tasks.RetrievalTask`.
    """

    steps: int = 0
    epochs: float = 0.0
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: str = "adam"
    warmup: float = 0.1
    decay: bool = True
    evaluations: int = 5
    patience: int | None = None
    keep: str = "best"
    precision: str = "bfloat16"
    chunk: int | None = None

    def __post_init__(self) -> None:
        require((self.steps > 0) != (self.epochs > 0), f"steps = {self.steps}, epochs = {self.epochs}: give one")
        require_positive(self, "batch_size", "learning_rate", "evaluations")
        require_one_of("keep", self.keep, ("best", "last"))
        require(0 <= self.warmup <= 1, f"warmup = {self.warmup} is not a share, between 0 and 1")
        require(self.patience is None or self.patience > 0, f"patience = {self.patience} must be positive, or None")
        require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        require_one_of("precision", self.precision, runtime.PRECISIONS)
        for name in ("learning_rate", "epochs"):  # so that 15 and 15.0 have one address
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def seen(self) -> int:
        """How many pairs training sees at the most, where `steps` are given."""
        return self.steps * self.batch_size

    def length(self, pairs: int) -> tuple[int, int]:
        """Steps at the most, and steps between two evaluations, with so many training pairs."""
        if self.steps:
            return self.steps, -(-self.steps // self.evaluations)
        per_epoch = max(1, pairs // min(self.batch_size, pairs))
        return max(1, round(self.epochs * per_epoch)), max(1, per_epoch // self.evaluations)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step (from 0) of so many."""
        rising = self.warmup * steps
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        return self.learning_rate * ((steps - step) / (steps - rising) if self.decay else 1.0)


def train(
    task: Task,
    schedule: Schedule,
    validate: Callable[[], float],
    seed: int,
    folder: Path | None = None,
    label: str = "training",
    callback: Any = None,
    pairs: int = 1,
) -> History:
    """Train a task's module in place, and leave it with its best weights, or its last.

    `validate` gives the score of the module on validation data; higher is better. It is called before the first step,
    and as often as the schedule says. `seed` is that of whatever the module itself draws (dropout); batches have their
    own. `callback` (such as `retlib.training.dynamics.Dynamics`) looks at each step before it is taken, leaves the
    module as it is and draws no random number; its time is left out of that of training. An epoch has `pairs` pairs.

    Checkpoints go to `folder`. A call that finds one resumes from it and ends with the same weights as an uninterrupted
    call. It raises `RetlibError` if the loss or a weight is NaN or infinite; the last checkpoint, of finite ones,
    stays.
    """
    loop = _Loop(task, schedule, seed, callback, pairs)
    saves = folder / "checkpoint.safetensors" if folder else None
    if saves is None or not loop.restore(saves):
        loop.evaluate(validate, loss=float("nan"))
    saved = time.perf_counter()
    with runtime.progress(total=loop.steps, initial=loop.step, desc=label, unit="step") as bar:
        while loop.step < loop.steps and not loop.exhausted:
            before = loop.step
            loss = loop.advance()
            loop.evaluate(validate, loss)
            bar.update(loop.step - before)
            bar.set_postfix(loss=f"{loss:.3f}", best=f"{loop.history.best_score:.3f}", refresh=False)
            if saves and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                loop.save(saves)
                saved = time.perf_counter()
    if schedule.keep == "best":
        _set_weights(task.module, loop.best)
    loop.history.parts = {part: round(taken, 3) for part, taken in task.parts.items()}
    if saves:
        for left in saves.parent.glob(f"{saves.stem}*"):
            left.unlink()
    return loop.history


def _weights(module: nn.Module) -> dict[str, Tensor]:
    # Every parameter and buffer once, however many encoders and tasks share it; not copied.
    return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def _set_weights(module: nn.Module, saved: dict[str, Tensor]) -> None:
    for name, tensor in _weights(module).items():
        tensor.copy_(saved[name])


class _Loop:
    """The state of a training: module, optimizers, step, history and the best weights so far."""

    def __init__(self, task: Task, schedule: Schedule, seed: int, callback: Any, pairs: int) -> None:
        self.task, self.schedule, self.seed, self.callback = task, schedule, seed, callback
        self.steps, self.every = schedule.length(pairs)
        self.optimizers = OPTIMIZERS[schedule.optimizer](task.module, schedule.learning_rate)
        self.step, self.seconds, self.history = 0, 0.0, History()
        self.best: dict[str, Tensor] = {}

    @property
    def exhausted(self) -> bool:
        since = sum(row["step"] > self.history.best_step for row in self.history.evaluations)
        return self.schedule.patience is not None and since >= self.schedule.patience

    def advance(self) -> float:
        # Takes the steps up to the next evaluation; returns their mean loss.
        start, first, total = time.perf_counter(), self.step, 0.0
        self.task.module.train()
        stop = min(self.step + self.every, self.steps)
        autocast = partial(runtime.autocast, self.schedule.precision)
        while self.step < stop:
            # Seeded step by step, so that a resumed training draws what an uninterrupted one draws.
            runtime.seed_torch(self.seed * 1_000_003 + self.step)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            batch = self.task.batch(self.step)
            self._look(batch)
            loss = self.task.backward(batch, autocast)
            self._require_finite("loss", math.isfinite(loss))
            total += loss
            self._set_rate()
            for optimizer in self.optimizers:
                optimizer.step()
            self.step += 1
        self._require_finite("weights", all(each.isfinite().all() for each in self.task.module.parameters()))
        self.seconds += time.perf_counter() - start
        return total / (self.step - first)

    def _require_finite(self, what: str, finite: bool) -> None:
        rate = f"learning_rate = {self.schedule.learning_rate}"
        told = f"step {self.step}: NaN or infinity in the {what}. Training stops; a lower {rate} may help."
        require(finite, told, RetlibError)

    def _look(self, batch: Any) -> None:
        if self.callback is None:
            return
        start = time.perf_counter()
        if seen := self.callback(self.step, batch):
            self.history.watched.append({"step": self.step, **seen})
        self.seconds -= time.perf_counter() - start

    def _set_rate(self) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.schedule.rate(self.step, self.steps)

    def evaluate(self, validate: Callable[[], float], loss: float) -> None:
        self.task.module.eval()
        with torch.no_grad():
            score = validate()
        better = not self.history.evaluations or score > self.history.best_score
        seen = {"step": self.step, "loss": loss, "score": score, "seconds": round(self.seconds, 3)}
        self.history.evaluations.append(seen)
        if better:
            self.history.best_step = self.step
            self.best = {name: tensor.clone() for name, tensor in _weights(self.task.module).items()}

    def save(self, path: Path) -> None:
        # A kill while it is written leaves the one before.
        tensors = {f"module/{k}": v for k, v in _weights(self.task.module).items()}
        tensors |= {f"best/{k}": v for k, v in self.best.items()}
        tensors |= {f"task/{k}": v for k, v in self.task.state().items()}
        tensors |= {f"callback/{k}": v for k, v in (self.callback.state() if self.callback else {}).items()}
        numbers: dict[str, Any] = {}
        for i, optimizer in enumerate(self.optimizers):
            for parameter, state in optimizer.state_dict()["state"].items():
                for name, value in state.items():
                    place = tensors if isinstance(value, Tensor) else numbers
                    place[f"optimizer/{i}/{parameter}/{name}"] = value
        # One file holds everything, so that no kill can pair new weights with an old step.
        meta = {"step": self.step, "seconds": self.seconds, "history": asdict(self.history), "numbers": numbers}
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        cache.put(path, lambda partial: save_file(on_cpu, partial, metadata={"state": json.dumps(meta)}))

    def restore(self, path: Path) -> bool:
        # False if there is none that is what was saved.
        saved = cache.last(path)
        if saved is None:
            return False
        with safe_open(saved, framework="pt") as opened:
            meta = json.loads(opened.metadata()["state"])
        tensors = load_file(saved)
        _set_weights(self.task.module, below(tensors, "module/"))
        self.best = below(tensors, "best/")
        self.task.set_state(below(tensors, "task/"))
        if self.callback:
            self.callback.set_state(below(tensors, "callback/"))
        for i, optimizer in enumerate(self.optimizers):
            states: dict[int, dict] = {}
            values = {**below(tensors, f"optimizer/{i}/"), **below(meta["numbers"], f"optimizer/{i}/")}
            for name, value in values.items():
                parameter, field_name = name.split("/")
                states.setdefault(int(parameter), {})[field_name] = value
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.history = History(**meta["history"])
        return True
