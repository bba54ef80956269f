"""Several processes at one training, under ``torchrun`` or ``accelerate launch``; alone, nothing happens here.

All take the same steps on the same batches. Each encodes a part of a batch and gets the others' encodings, so that
losses see all negatives; gradients are averaged. A corpus is encoded likewise. All else is computed by each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retlib.core import runtime
from retlib.core.errors import require

if TYPE_CHECKING:
    from torch import Tensor, nn


def size() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """The number of this one, from 0."""
    return int(os.environ.get("RANK") or 0)


@cache
def _group() -> Any:
    """torch's module of distributed computing, its processes joined."""
    import torch
    from torch import distributed

    on = runtime.device()
    if on.type == "cuda":
        torch.cuda.set_device(on)
    # What one process waits for, such as another training of the same, all wait for.
    distributed.init_process_group("nccl" if on.type == "cuda" else "gloo", timeout=timedelta(days=7))
    return distributed


def agreed(value: Any) -> Any:
    """The value that the first process gave."""
    if size() == 1:
        return value
    values = [value]
    _group().broadcast_object_list(values)
    return values[0]


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill, which all leave together: the first process the given one, each other one of its own."""
    own = folder if rank() == 0 else folder.with_name(f"{folder.name}.{rank()}")
    own.mkdir(exist_ok=True)
    yield own
    if own != folder:
        shutil.rmtree(own)
    agreed(None)


def shared(folder: Path) -> Path:
    """The first process's folder, of one that `scratch` gave."""
    return folder if rank() == 0 else folder.with_name(folder.name.removesuffix(f".{rank()}"))


def sharded(encode: Callable[[Any], Tensor], table: Any) -> Tensor:
    """What `encode` makes of the rows of a table, (rows, d): a part by each process, and all of it for each."""
    if size() == 1 or len(table) == 0:
        return encode(table)
    bounds = np.linspace(0, len(table), size() + 1).astype(int)
    # At least one row each, so that every encoder gives something: a few are encoded twice where there are fewer.
    start = min(bounds[rank()], len(table) - 1)
    part = encode(table.take(np.arange(start, max(bounds[rank() + 1], start + 1))))
    return _gathered(part, np.diff(bounds))


def _gathered(part: Tensor, counts: np.ndarray) -> Tensor:
    """All parts, one after the other; a part's gradient goes back to who made it."""
    import torch

    own = part[: counts[rank()]]
    padded = part.new_zeros(counts.max(), part.shape[1])
    padded[: len(own)] = own.detach()
    parts = [padded.new_empty(padded.shape) for _ in counts]
    _group().all_gather(parts, padded)
    if own.requires_grad:  # as many times as there are processes, for the mean is taken over all
        own.register_hook(lambda gradient: size() * gradient)
    parts = [each[:count] for each, count in zip(parts, counts, strict=True)]
    parts[rank()] = own
    return torch.cat(parts)


def average(parameters: Iterable[nn.Parameter]) -> None:
    """Give every parameter the mean of its gradients over the processes."""
    if size() == 1:
        return
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None:
            wrong = "sparse gradients are for one process: choose another optimizer than sparse_adam"
            require(not gradient.is_sparse, wrong)
            _group().all_reduce(gradient)
            gradient /= size()
