"""How fast queries are sampled: passages a second on one thread, beside transformers' own nucleus sampling.

``python benchmarks/generation_throughput.py`` makes a small BART of random weights, writes it as a checkpoint, and
lets two contenders write queries for the same passages with it, in the same batches of like length: the decodings of
`retlib.models.decoding`, and ``model.generate()`` by its own settings. Both run transformers' loop. For greedy
queries, which are compared, they do the same; for samples transformers sorts the vocabulary in every step, which
`retlib.models.decoding.nucleus_sample` does not. The contenders take turns. Wall-clock time depends on what else
the machine does, so the ratio is that of processor time.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BartForConditionalGeneration

from retlib.core import runtime
from retlib.data.text import TokenTable, WordPiece
from retlib.models.decoding import Decoding, Greedy, Nucleus, passage_keys
from retlib.models.seq2seq import Bart
from retlib.systems.query_generation import BATCH

TOKENS, LAYERS, WIDTH, LONGEST = 8000, 2, 192, 16
PASSAGES, ROUNDS = 128, 3
WAYS = {
    Greedy(): {"do_sample": False},
    Nucleus(): {"do_sample": True, "top_p": 0.95, "top_k": 0, "num_return_sequences": 10},
}


def make(wordpiece: WordPiece, folder: str) -> Bart:
    """A BART of random weights, as a checkpoint in a folder and as this book reads it."""
    torch.manual_seed(0)
    model = Bart.from_scratch(wordpiece, LAYERS, WIDTH, 128).eval()
    for weight in model.parameters():  # so that the passages make a difference
        weight.data += 0.05 * torch.randn_like(weight)
    model.bart.save_pretrained(folder)
    return Bart.from_checkpoint(folder, wordpiece).eval()


def batches(passages: TokenTable) -> list[np.ndarray]:
    """Rows of like length, as `retlib.systems.query_generation.generate` takes them."""
    order = np.argsort(passages.lengths, kind="stable")
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def ours(how: Decoding, model: Bart, passages: TokenTable) -> dict[int, list[list[int]]]:
    """The queries of each passage."""
    written, keys = defaultdict(list), passage_keys(pd.RangeIndex(len(passages)), 0)
    for rows in batches(passages):
        found = how.decode(model, passages.take(rows), keys[rows], LONGEST)
        for i, row in enumerate(found.passages):
            written[rows[row]].append(found.queries.row(i).tolist())
    return written


@torch.inference_mode()
def plain(
    settings: dict, model: BartForConditionalGeneration, passages: TokenTable, never: list[int]
) -> dict[int, list[list[int]]]:
    """The same by the library's settings alone."""
    torch.manual_seed(0)
    config, written = model.config, defaultdict(list)
    special = {config.bos_token_id, config.eos_token_id, config.pad_token_id}
    for rows in batches(passages):
        texts = [torch.tensor([config.bos_token_id, *passages.row(row), config.eos_token_id]) for row in rows]
        inputs = pad_sequence(texts, batch_first=True, padding_value=config.pad_token_id)
        found = model.generate(
            inputs, attention_mask=(inputs != config.pad_token_id).long(), max_new_tokens=LONGEST,
            suppress_tokens=never, begin_suppress_tokens=[config.eos_token_id], **settings,
        )  # fmt: skip
        for i, query in enumerate(found.tolist()):
            written[rows[i * len(rows) // len(found)]].append([token for token in query if token not in special])
    return written


def timed(contend: Callable[[], dict]) -> tuple[float, float, dict]:
    """Wall-clock and processor seconds, and what was written."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = contend()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def main() -> None:
    """Time both contenders in turn, and print passages a second and their ratio for every decoding."""
    runtime.set_threads(1)
    wordpiece = WordPiece((*WordPiece.SPECIAL, *(f"token{i}" for i in range(TOKENS - len(WordPiece.SPECIAL)))))
    rng = np.random.default_rng(0)
    passages = TokenTable.from_rows([rng.integers(5, TOKENS, rng.integers(20, 127)) for _ in range(PASSAGES)])
    with tempfile.TemporaryDirectory() as folder:
        model = make(wordpiece, folder)
        theirs = BartForConditionalGeneration.from_pretrained(folder).eval()
    where = runtime.environment()
    print(f"{LAYERS}+{LAYERS} layers of {WIDTH}, {TOKENS:,} tokens, {PASSAGES} passages, queries of {LONGEST} tokens")
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
            same = np.mean([other[0][2][row] == queries for row, queries in own[0][2].items()])
            print(f"{same:.1%} of the greedy queries are the same")
        (wall, cpu), (their_wall, their_cpu) = (
            [median(column) for column in list(zip(*times, strict=True))[:2]] for times in (own, other)
        )
        speeds = [PASSAGES / seconds for seconds in (wall, cpu, their_wall, their_cpu)]
        print(f"{how.name:10}{speeds[0]:12,.1f}{speeds[1]:17,.1f}{speeds[2]:16,.1f}{speeds[3]:17,.1f}"
              f"{their_cpu / cpu:8.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
