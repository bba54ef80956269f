"""How much of what the device can do a training step does: beside the products of two large matrices."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks import inputs
from benchmarks.growth import seconds
from benchmarks.harness import CASES, Line, Scale, precisions
from benchmarks.training import DOCUMENT_LENGTH, QUERY_LENGTH
from retlib.core import runtime
from retlib.data.pairs import Pairs
from retlib.models.encoders import DualEncoder
from retlib.models.transformer import Transformer
from retlib.studies.paper_scale import Work
from retlib.training.inputs import Inputs
from retlib.training.negatives import InBatch
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

# Layers and widths: of the book's chapters, of all-MiniLM-L6-v2, and of BERT-base, which the papers have.
SIZES = ((2, 128), (6, 384), (12, 768))
PRODUCTS = 10


def products(square: torch.Tensor) -> float:
    """Several products, one after another; to look at the last is to wait for it."""
    found = square
    for _ in range(PRODUCTS):
        found = square @ found
    return found[0, 0].item()


def step_seconds(layers: int, width: int, batch: int, precision: str, compiled: bool, steps: int) -> float:
    """Of one step; what comes before, a compilation say, does not count."""
    words = inputs.wordpiece()
    runtime.set_seeds(0)
    model = DualEncoder(Transformer.from_scratch(words, layers, width, width), scale=20.0).to(runtime.device())
    if compiled:
        model.query_encoder.bert.compile(dynamic=True)
    read = (inputs.token_rows(batch, mean, seed=mean) for mean in (QUERY_LENGTH, DOCUMENT_LENGTH))
    task = RetrievalTask(model, InBatch(Inputs(Pairs(*read), batch, 0), mask_known=False), "softmax")
    how = {"learning_rate": 1e-5, "precision": precision, "evaluations": 1, "batch_size": batch}
    for taken in (3, steps):
        found = train(task, Schedule(steps=taken, **how), lambda: 0.0, seed=0).seconds / taken
    return found


@CASES.register("11-peak")
def peak(scale: Scale) -> Iterator[Line]:
    """FLOP/s of products, and of steps of training: as they are, and after `torch.compile`."""
    on = runtime.device()
    side, batch = (8192, 256) if on.type == "cuda" else (2048, 32)
    for precision in precisions():
        kind = {"dtype": getattr(torch, precision), "device": on}
        square = torch.randn(scale(side, 64), scale(side, 64), **kind) / scale(side, 64) ** 0.5
        best = 2 * PRODUCTS * len(square) ** 3 / seconds(lambda square=square: products(square))
        told = {"device": runtime.environment()["device"], "precision": precision}
        yield Line("peak", {**told, "what": "products", "compiled": False, "pairs/s": float("nan"), "FLOP/s": best})
        pairs = scale(batch, 8)
        # The largest is for a GPU; to compile takes longer than to measure.
        for layers, width in SIZES[: scale(2 + (on.type == "cuda"), 1)]:
            work = Work("", "", layers, width, inputs.TOKENS, (QUERY_LENGTH, DOCUMENT_LENGTH), pairs, pairs)
            for compiled in (False, True) if precision == precisions()[-1] and layers == scale(6, 0) else (False,):
                taken = step_seconds(layers, width, pairs, precision, compiled, scale(10, 1))
                speed = {"compiled": compiled, "pairs/s": pairs / taken, "FLOP/s": work.flops / taken}
                yield Line("peak", {**told, "what": f"training, {layers} layers of {width}", **speed})
