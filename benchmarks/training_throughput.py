"""How fast the bag-of-words dual encoder trains: pairs a second at batch 1000 on one thread.

``python benchmarks/training_throughput.py`` compares, on the same pairs and in one run,
the book's training loop (sparse Adam in float32 and bfloat16, and the paper's dense
momentum) with a bare PyTorch loop around dense Adam. The contenders take turns. Wall-clock
time depends on what else the machine does, so the ratio is that of processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.pairs import Pairs
from retlib.models.encoders import BagOfWords, DualEncoder
from retlib.systems.system import words
from retlib.training.negatives import InBatch, Inputs
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

BATCH, DIMENSION, STEPS, ROUNDS = 1000, 300, 20, 5
BARE = "bare loop, dense Adam, float32"


def load() -> Collection:
    """Quora where its files are at hand, else the embedded data."""
    try:
        return datasets.load("quora")
    except DataError:
        return datasets.load("pydocs-similar")


def now() -> tuple[float, float]:
    """Wall-clock and processor seconds."""
    return time.perf_counter(), time.process_time()


def ours(negatives: InBatch, count: int, optimizer: str, precision: str) -> list[tuple[float, float]]:
    """The times at the start and at the end of the book's loop."""
    runtime.set_seeds(0)
    model = DualEncoder(BagOfWords(count, DIMENSION, sparse=optimizer == "sparse_adam"), scale=20.0)
    how = {"optimizer": optimizer, "precision": precision, "warmup": 0.0, "decay": False, "evaluations": 1}
    schedule = Schedule(steps=STEPS, learning_rate=0.01, **how)
    times: list[tuple[float, float]] = []

    def validate() -> float:  # called before the first step and after the last one
        times.append(now())
        return -float(len(times))  # never better, so that no weights are copied in between

    train(RetrievalTask(model, negatives, "softmax"), schedule, validate, seed=0)
    return times


def bare(negatives: InBatch, count: int) -> list[tuple[float, float]]:
    """The same of a loop as one writes it first: dense gradients, and all of Adam's moments in every step."""
    runtime.set_seeds(0)
    bag, scale = nn.EmbeddingBag(count, DIMENSION, mode="mean"), nn.Parameter(torch.tensor(20.0))
    optimizer = torch.optim.Adam([*bag.parameters(), scale], lr=0.01)
    times = [now()]
    for step in range(STEPS):
        batch = negatives.batch(step)
        left, right = (
            F.normalize(bag(torch.from_numpy(table.ids), torch.from_numpy(table.offsets[:-1])))
            for table in (batch.queries, batch.documents)
        )
        loss = F.cross_entropy(scale * left @ right.T, torch.arange(len(left)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*times, now()]


def main() -> None:
    """Time every contender in turn, and print pairs a second and the ratio to the bare loop."""
    runtime.set_threads(1)
    task = load()
    vocabulary, chosen = words(task), task.labelled("train")
    pairs = Pairs(*(vocabulary.encode(task.documents["text"][chosen[side]]) for side in ("left", "right")))
    negatives = InBatch(Inputs(pairs, BATCH, seed=0), mask_known=False)
    count, size = len(vocabulary), len(negatives.batch(0).queries)
    contenders: dict[str, Callable[[], list[tuple[float, float]]]] = {
        BARE: lambda: bare(negatives, count),
        "dense momentum (paper), float32": lambda: ours(negatives, count, "momentum", "float32"),
        "sparse Adam, float32": lambda: ours(negatives, count, "sparse_adam", "float32"),
        "sparse Adam, bfloat16": lambda: ours(negatives, count, "sparse_adam", "bfloat16"),
    }
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, contend in contenders.items():
            start, end = contend()
            if number > 0:  # the first round warms up
                rounds[name].append((end[0] - start[0], end[1] - start[1]))
    where = runtime.environment()
    print(f"{task.name}: {len(pairs):,} pairs, {count:,} words, batch {size}, {DIMENSION} dimensions")
    print(f"{where['device']}, 1 thread, load {where['load']}, torch {torch.__version__}, median of {ROUNDS} rounds")
    print(f"{'':34}{'pairs/s':>10}{'pairs per processor second':>30}{'ratio':>8}")
    first = median(cpu for _, cpu in rounds[BARE])
    for name, times in rounds.items():
        wall, cpu = (median(column) for column in zip(*times, strict=True))
        print(f"{name:34}{STEPS * size / wall:10,.0f}{STEPS * size / cpu:30,.0f}{first / cpu:8.1f}")


if __name__ == "__main__":
    main()
