"""Queries that are written for passages, beside transformers' ``generate`` by its own settings.

Both have the same random weights and the same batches of like length, and run transformers' loop. Greedily they write
the same. For samples transformers sorts the vocabulary in every step, which the book's nucleus sampling does not; what
is drawn is not the same, and the lengths are compared.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks import inputs
from benchmarks.harness import CASES, Duel, Scale
from retlib.core import runtime
from retlib.data.text import TokenTable
from retlib.models.generator import Bart, Decoding, Greedy, Nucleus, passage_keys
from retlib.systems.query_generation import BATCH

LAYERS, WIDTH, LONGEST = 2, 192, 16
Written = dict[int, list[list[int]]]


def batches(passages: TokenTable) -> list[np.ndarray]:
    """Rows of like length, as `retlib.systems.query_generation.generate` takes them."""
    order = np.argsort(passages.lengths, kind="stable")
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def ours(how: Decoding, model: Bart, passages: TokenTable) -> Written:
    """The queries of each passage, by the book's decodings."""
    written, keys = defaultdict(list), passage_keys(pd.RangeIndex(len(passages)), 0)
    for rows in batches(passages):
        found = how.decode(model, passages.take(rows), keys[rows], LONGEST)
        for i, row in enumerate(found.passages):
            written[int(rows[row])].append(found.queries.row(i).tolist())
    return written


@torch.inference_mode()
def theirs(settings: dict, model: torch.nn.Module, passages: TokenTable, never: list[int]) -> Written:
    """The same by the library's settings alone."""
    torch.manual_seed(0)
    config, written = model.config, defaultdict(list)
    special = {config.bos_token_id, config.eos_token_id, config.pad_token_id}
    for rows in batches(passages):
        texts = [torch.tensor([config.bos_token_id, *passages.row(row), config.eos_token_id]) for row in rows]
        read = pad_sequence(texts, batch_first=True, padding_value=config.pad_token_id).to(model.device)
        found = model.generate(
            read, attention_mask=(read != config.pad_token_id).long(), max_new_tokens=LONGEST,
            suppress_tokens=never, begin_suppress_tokens=[config.eos_token_id], **settings,
        )  # fmt: skip
        for i, query in enumerate(found.tolist()):
            row = int(rows[i * len(rows) // len(found)])
            written[row].append([token for token in query if token not in special])
    return written


def others(mine: Written, other: Written) -> float:
    """The share of passages with other queries."""
    return float(np.mean([other[row] != queries for row, queries in mine.items()]))


def lengths_apart(mine: Written, other: Written) -> float:
    """The difference of two mean lengths, as a part of ours."""
    left, right = (np.mean([len(each) for some in written.values() for each in some]) for written in (mine, other))
    return float(abs(left - right) / left)


@CASES.register("07-generation")
def generation(scale: Scale) -> Iterator[Duel]:
    """Passages a second."""
    from transformers import BartForConditionalGeneration

    words, passages = inputs.wordpiece(), inputs.token_rows(scale(48, 8), 64)
    torch.manual_seed(0)
    model = Bart.from_scratch(words, LAYERS, WIDTH, 128).eval()
    for weight in model.parameters():  # so that the passages make a difference
        weight.data += 0.05 * torch.randn_like(weight)
    with tempfile.TemporaryDirectory() as folder:
        model.bart.save_pretrained(folder)
        mine = Bart.from_checkpoint(folder, words).eval().to(runtime.device())
        peer = BartForConditionalGeneration.from_pretrained(folder).eval().to(runtime.device())
    samples = scale(10, 2)
    nucleus = {"do_sample": True, "top_p": 0.95, "top_k": 0, "num_return_sequences": samples}
    for how, settings, apart in (
        (Greedy(), {"do_sample": False}, others),
        (Nucleus(samples=samples, keep=samples), nucleus, lengths_apart),
    ):
        yield Duel(
            f"queries, {how.name}", "passages/s", len(passages), lambda how=how: ours(how, mine, passages),
            {"generate()": lambda settings=settings: theirs(settings, peer, passages, mine.never)},
            apart, 0.1, goal=2.0,
        )  # fmt: skip
