"""How fast queries are generated: queries a second on one thread, beside transformers' own `generate`.

``python benchmarks/generation_throughput.py`` makes a small BART of random weights, writes it as a
checkpoint, and lets two contenders write queries for the same passages with it: `retlib.models.decoding` in
batches of like length, and a plain loop of ``model.generate()``, one passage at a time. Greedy queries
are the same, which is checked. The contenders take turns. Wall-clock time depends on what else
the machine does, so the ratio is that of processor time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pandas as pd
import torch
from transformers import BartForConditionalGeneration

from retlib.core import runtime
from retlib.data.text import TokenTable, WordPiece
from retlib.models.decoding import Beam, Decoding, Greedy, Nucleus, passage_keys
from retlib.models.seq2seq import Bart
from retlib.systems.query_generation import BATCH

UNITS, LAYERS, WIDTH, LONGEST = 8000, 2, 192, 16
PASSAGES, ROUNDS = 128, 3
WAYS = {
    Greedy(): {"do_sample": False},
    Beam(): {"num_beams": 5, "num_return_sequences": 5, "do_sample": False},
    Nucleus(): {"do_sample": True, "top_p": 0.95, "top_k": 0, "num_return_sequences": 10},
}


def make(units: WordPiece, folder: str) -> Bart:
    """A BART of random weights, as a checkpoint in a folder and as this book reads it."""
    torch.manual_seed(0)
    model = Bart.from_scratch(units, LAYERS, WIDTH, 128).eval()
    for weight in model.parameters():  # so that the passages make a difference
        weight.data += 0.05 * torch.randn_like(weight)
    model.bart.save_pretrained(folder)
    return Bart.from_checkpoint(folder, units).eval()


def ours(how: Decoding, model: Bart, passages: TokenTable) -> list[list[int]]:
    """The queries of all passages, sorted by length as `retlib.systems.query_generation.generate` does it."""
    order, written = np.argsort(passages.lengths, kind="stable"), {}
    keys = passage_keys(pd.RangeIndex(len(passages)), 0)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        found = how.decode(model, passages.take(rows), keys[rows], LONGEST)
        for i, row in enumerate(found.passages):
            written.setdefault(rows[row], []).append(found.queries.row(i).tolist())
    return [query for row in range(len(passages)) for query in written[row]]


@torch.inference_mode()
def plain(settings: dict, model: BartForConditionalGeneration, passages: TokenTable, never: list[int]) -> list[list]:
    """The same of a loop as one writes it first; of ten samples it gives all ten."""
    torch.manual_seed(0)
    config, found = model.config, []
    for row in range(len(passages)):
        inputs = torch.tensor([[config.bos_token_id, *passages.row(row), config.eos_token_id]])
        written = model.generate(
            inputs, max_new_tokens=LONGEST, suppress_tokens=never, begin_suppress_tokens=[config.eos_token_id],
            **settings,
        )  # fmt: skip
        found += [[unit for unit in query[1:].tolist() if unit not in (config.eos_token_id, config.pad_token_id)]
                  for query in written]  # fmt: skip
    return found


def timed(contend: Callable[[], list]) -> tuple[float, float, list]:
    """Wall-clock and processor seconds, and what was written."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = contend()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def main() -> None:
    """Time both contenders in turn, and print passages a second and their ratio for every decoding."""
    runtime.set_threads(1)
    units = WordPiece((*WordPiece.SPECIAL, *(f"unit{i}" for i in range(UNITS - len(WordPiece.SPECIAL)))))
    rng = np.random.default_rng(0)
    passages = TokenTable.from_rows([rng.integers(5, UNITS, rng.integers(20, 127)) for _ in range(PASSAGES)])
    with tempfile.TemporaryDirectory() as folder:
        model = make(units, folder)
        theirs = BartForConditionalGeneration.from_pretrained(folder).eval()
    where = runtime.environment()
    print(f"{LAYERS}+{LAYERS} layers of {WIDTH}, {UNITS:,} units, {PASSAGES} passages, queries of {LONGEST} units")
    print(f"{where['device']}, 1 thread, load {where['load']}, torch {torch.__version__}, median of {ROUNDS} rounds")
    print(f"{'decoding':10}{'passages/s':>12}{'per processor s':>17}{'generate(): /s':>16}{'per processor s':>17}"
          f"{'ratio':>8}")  # fmt: skip
    for how, settings in WAYS.items():
        own, other = [], []
        for number in range(ROUNDS + 1):
            left = timed(lambda how=how: ours(how, model, passages))
            right = timed(lambda settings=settings: plain(settings, theirs, passages, model.never))
            if number > 0:  # the first round warms up
                own.append(left), other.append(right)
        if how == Greedy():
            same = np.mean([one == two for one, two in zip(own[0][2], other[0][2], strict=True)])
            print(f"{same:.1%} of the greedy queries are the same, unit by unit")
        (wall, cpu), (their_wall, their_cpu) = (
            [median(column) for column in list(zip(*times, strict=True))[:2]] for times in (own, other)
        )
        speeds = [PASSAGES / seconds for seconds in (wall, cpu, their_wall, their_cpu)]
        print(f"{how.name:10}{speeds[0]:12,.1f}{speeds[1]:17,.1f}{speeds[2]:16,.1f}{speeds[3]:17,.1f}"
              f"{their_cpu / cpu:8.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
