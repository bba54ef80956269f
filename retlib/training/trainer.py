"""The one training loop of all chapters: its optimizers, its checkpoints and its history."""

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from retlib.core import runtime
from retlib.core.errors import RetlibError, require, require_one_of, require_positive
from retlib.core.history import History
from retlib.training.tasks import Task, below

# Seconds of training after which a checkpoint is written: the most that a kill can cost.
CHECKPOINT_SECONDS = 30.0


class Lamb(torch.optim.Optimizer):
    r"""Adam whose step is made as long, in each weight tensor, as its weights call for (You et al. 2020, algorithm 2).

    .. math:: m &= \beta_1 m + (1 - \beta_1) g, \qquad v = \beta_2 v + (1 - \beta_2) g^2 \\
              r &= \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + \lambda x \\
              x &\leftarrow x - \eta \frac{\lVert x \rVert}{\lVert r \rVert} r

    for each tensor of weights :math:`x` with gradient :math:`g`. Where a norm is 0 the ratio is 1. The paper's function
    :math:`\phi` is the identity. `lr` is :math:`\eta`, `weight_decay` :math:`\lambda`.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1e-3, **settings: Any) -> None:
        # `fused` tells torch to load `step` onto the device of the weights.
        defaults = {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "fused": True}
        super().__init__(parameters, defaults | settings)

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            # From 0, at a rate of 1, AdamW moves by Adam's part of -r, in a single pass over memory.
            how = {"lr": 1.0, "eps": group["eps"], "beta1": group["betas"][0], "beta2": group["betas"][1]}
            how |= {"weight_decay": 0.0, "amsgrad": False, "maximize": False, "fused": True}
            for weights in (each for each in group["params"] if each.grad is not None):
                state, move = self.state[weights], torch.zeros_like(weights)
                if not state:
                    state |= {"mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}
                    state["step"] = torch.zeros((), device=weights.device)
                mean, square, step = ([state[name]] for name in ("mean", "square", "step"))
                adamw([move], [weights.grad], mean, square, [], step, **how)
                move.sub_(weights, alpha=group["weight_decay"])
                length, size = weights.norm(), move.norm()
                # A tensor on the weights' device: to look at it here would make a GPU wait.
                ratio = torch.where((length > 0) & (size > 0), length / size, 1.0)
                weights.addcmul_(move, ratio, value=group["lr"])


def _sparse_adam(module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    # It updates only the embeddings of a batch's words; dense Adam the rest, of which there is always a scale.
    tables = {id(part.weight): part.weight for part in module.modules() if getattr(part, "sparse", False)}
    rest = [parameter for parameter in module.parameters() if id(parameter) not in tables]
    require(len(tables) > 0, "sparse_adam needs an encoder with sparse gradients")
    return [torch.optim.SparseAdam(list(tables.values()), lr=learning_rate), torch.optim.Adam(rest, lr=learning_rate)]


OPTIMIZERS: dict[str, Callable[[nn.Module, float], list[torch.optim.Optimizer]]] = {
    # Fused: several times faster where the embedding table is most of the weights.
    "adam": lambda module, rate: [torch.optim.Adam(module.parameters(), lr=rate, fused=True)],
    # torch's defaults are those of Zhan 2020, section 5.3.
    "adamw": lambda module, rate: [torch.optim.AdamW(module.parameters(), lr=rate, fused=True)],
    # Zhan 2020 names it alone; the defaults are those of You et al. 2020.
    "lamb": lambda module, rate: [Lamb(module.parameters(), lr=rate)],
    # Gillick 2018 does not state the coefficient; 0.9 is the usual one.
    "momentum": lambda module, rate: [torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)],
    "sparse_adam": _sparse_adam,
}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, how fast and how to train: at most `steps`, or `epochs` over the training pairs, one of which is given.

    The learning rate rises from 0, linearly, over the share `warmup` of the steps, to `learning_rate`. With `decay` it
    then falls, linearly, to reach 0 after the last step; else it stays.
    """

    steps: int = 0
    epochs: float = 0.0
    batch_size: int = 128  # pairs, or queries, of a step
    learning_rate: float = 1e-3
    optimizer: str = "adam"  # a name in `OPTIMIZERS`
    warmup: float = 0.1
    decay: bool = True
    evaluations: int = 5  # of the validation data in all, or in an epoch where there are epochs
    patience: int | None = None  # evaluations without a better score after which training stops; None for never
    keep: str = "best"  # weights that the module has in the end; or "last"
    precision: str = "bfloat16"  # of matrix products; or "float32"
    chunk: int | None = None  # see `retlib.training.tasks.RetrievalTask`

    def __post_init__(self) -> None:
        require((self.steps > 0) != (self.epochs > 0), f"steps = {self.steps}, epochs = {self.epochs}: give one")
        require_positive(self, "batch_size", "learning_rate", "evaluations")
        require_one_of("keep", self.keep, ("best", "last"))
        require(0 <= self.warmup <= 1, f"warmup = {self.warmup} is not a share, between 0 and 1")
        require_positive(self, *(name for name in ("patience", "chunk") if getattr(self, name) is not None))
        require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        require_one_of("precision", self.precision, ("float32", "bfloat16"))
        for name, kind in get_type_hints(type(self)).items():  # so that 15 and 15.0 have one address
            if kind in (float, float | None) and getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def seen(self) -> int:
        """The most pairs that training sees, where `steps` are given."""
        return self.steps * self.batch_size

    def length(self, pairs: int) -> tuple[int, int]:
        """Return the most steps, and steps between two evaluations, with so many training pairs."""
        if self.steps:
            return self.steps, -(-self.steps // self.evaluations)
        per_epoch = max(1, pairs // min(self.batch_size, pairs))
        return max(1, round(self.epochs * per_epoch)), max(1, per_epoch // self.evaluations)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) of so many."""
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
) -> History:
    """Train a task's module in place, and leave it with its best weights, or its last.

    `validate` gives the score of the module on validation data; higher is better. `seed` is that of whatever the module
    itself draws (dropout); batches have their own. `callback` (such as `retlib.training.dynamics.Dynamics`) looks at
    each step before it is taken, leaves the module as it is and draws no random number; its time is left out of that of
    training.

    A call that finds a checkpoint in `folder` resumes from it and ends with the same weights as an uninterrupted call.
    It raises `RetlibError` if the loss or a weight is NaN or infinite; the last checkpoint, of finite ones, stays.
    """
    loop = _Loop(task, schedule, seed, callback)
    path = folder / "checkpoint.npz" if folder else None
    if path is None or not loop.restore(path):
        loop.evaluate(validate, loss=float("nan"))
    saved = time.perf_counter()
    with runtime.progress(total=loop.steps, initial=loop.step, desc=label, unit="step") as bar:
        history, patience = loop.history, schedule.patience or math.inf
        while loop.step < loop.steps and sum(row["step"] > history.best_step for row in history.evaluations) < patience:
            before, loss = loop.step, loop.advance()
            loop.evaluate(validate, loss)
            bar.update(loop.step - before)
            bar.set_postfix(loss=f"{loss:.3f}", best=f"{history.best_score:.3f}", refresh=False)
            if path and time.perf_counter() - saved > CHECKPOINT_SECONDS:
                loop.save(path)
                saved = time.perf_counter()
    if schedule.keep == "best":
        task.module.load_state_dict(loop.best, strict=False)
    history.parts = {part: round(seconds, 3) for part, seconds in task.clock.seconds.items()}
    for file in folder.glob(f"{path.stem}*") if folder else ():
        file.unlink()
    return history


class _Loop:
    """The state of a training: module, optimizers, step, history and the best weights so far."""

    def __init__(self, task: Task, schedule: Schedule, seed: int, callback: Any) -> None:
        self.task, self.schedule, self.seed, self.callback = task, schedule, seed, callback
        self.steps, self.every = schedule.length(task.pairs)
        self.optimizers = OPTIMIZERS[schedule.optimizer](task.module, schedule.learning_rate)
        self.step, self.seconds, self.history, self.best = 0, 0.0, History(), dict[str, Tensor]()

    @property
    def weights(self) -> dict[str, Tensor]:
        # Every parameter and buffer once, however many encoders and tasks share it; not copied.
        module = self.task.module
        return {name: tensor.detach() for name, tensor in (*module.named_parameters(), *module.named_buffers())}

    def advance(self) -> float:
        # Takes the steps up to the next evaluation; returns their mean loss.
        start, first, total = time.perf_counter(), self.step, 0.0
        self.task.module.train()
        autocast = partial(runtime.autocast, self.schedule.precision)
        while self.step < min(first + self.every, self.steps):
            # Seeded step by step, so that a resumed training draws what an uninterrupted one draws.
            # Not by `torch.manual_seed`, which formats a stack trace at every call.
            torch.default_generator.manual_seed(seed := self.seed * 1_000_003 + self.step)
            if torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(seed)
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            batch = self.task.batch(self.step)
            if self.callback:
                looking = time.perf_counter()
                if seen := self.callback(self.step, batch):
                    self.history.watched.append({"step": self.step, **seen})
                start += time.perf_counter() - looking
            loss = self.task.backward(batch, autocast)
            self._require_finite("loss", math.isfinite(loss))
            total += loss
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = self.schedule.rate(self.step, self.steps)
                optimizer.step()
            self.step += 1
        self._require_finite("weights", all(each.isfinite().all() for each in self.task.module.parameters()))
        self.seconds += time.perf_counter() - start
        return total / (self.step - first)

    def _require_finite(self, what: str, finite: bool) -> None:
        rate = f"learning_rate = {self.schedule.learning_rate}"
        wrong = f"step {self.step}: NaN or infinity in the {what}. Training stops; a lower {rate} may help."
        require(finite, wrong, RetlibError)

    def evaluate(self, validate: Callable[[], float], loss: float) -> None:
        self.task.module.eval()
        with torch.no_grad():
            score = validate()
        if not self.history.evaluations or score > self.history.best_score:
            self.history.best_step = self.step
            self.best = {name: tensor.clone() for name, tensor in self.weights.items()}
        row = {"step": self.step, "loss": loss, "score": score, "seconds": round(self.seconds, 3)}
        self.history.evaluations.append(row)

    def save(self, path: Path) -> None:
        # One file holds everything, so that no kill can pair new weights with an old step.
        parts = {"module": self.weights, "best": self.best, "task": self.task.state()}
        parts["callback"] = self.callback.state() if self.callback else {}
        for i, optimizer in enumerate(self.optimizers):
            parts |= {f"optimizer/{i}/{place}": state for place, state in optimizer.state_dict()["state"].items()}
        flat = ((f"{part}/{name}", value) for part, values in parts.items() for name, value in values.items())
        arrays = {name: torch.as_tensor(value).cpu().numpy() for name, value in flat}
        meta = {"step": self.step, "seconds": self.seconds, "history": asdict(self.history)}
        meta["parts"] = self.task.clock.seconds
        with (partial := path.with_suffix(".partial")).open("wb") as file:
            np.savez(file, state=json.dumps(meta), **arrays)
        partial.replace(path)

    def restore(self, path: Path) -> bool:
        # False if there is none that is what was saved: its zip file has checksums.
        try:
            with np.load(path) as saved:
                tensors = {name: torch.from_numpy(saved[name]) for name in saved.files if name != "state"}
                meta = json.loads(saved["state"].item())
        except Exception:
            return False
        self.task.module.load_state_dict(below(tensors, "module/"), strict=False)
        self.best = below(tensors, "best/")
        self.task.set_state(below(tensors, "task/"))
        if self.callback:
            self.callback.set_state(below(tensors, "callback/"))
        for i, optimizer in enumerate(self.optimizers):
            state = optimizer.state_dict()
            for name, value in below(tensors, f"optimizer/{i}/").items():
                place, key = name.split("/")
                value = value.item() if value.dtype == torch.int64 else value  # sparse Adam's steps are a number
                state["state"].setdefault(int(place), {})[key] = value
            optimizer.load_state_dict(state)
        self.step, self.seconds, self.history = meta["step"], meta["seconds"], History(**meta["history"])
        self.task.clock.seconds.update(meta["parts"])
        return True
