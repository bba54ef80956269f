"""How a model writes queries, in Part III: greedily, by beam search, or by nucleus sampling.

Passages of a batch are decoded together, by transformers' ``generate``. Random numbers come from a key of the passage:
its queries do not depend on what else is in the batch, but for the rounding of sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from retlib.core.errors import require
from retlib.data.text import TokenTable
from retlib.models.generator import Bart, Passages

# What transformers gives beams that there are none of scores less.
IMPOSSIBLE = -1e8


class Found(NamedTuple):
    """Queries of several passages; of one passage the likeliest comes first."""

    passages: np.ndarray  # (N,), rows
    queries: TokenTable  # N rows, without the token that ends them; a query of the greatest length has none
    log_likelihoods: np.ndarray  # (N,), float64, of the whole queries, their ends included


@dataclass(frozen=True)
class Decoding(ABC):
    """A way of decoding and its settings."""

    @property
    def name(self) -> str:
        """Its name in records."""
        return type(self).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """Its name and settings, as recorded beside results."""
        return {"decoding": self.name, **asdict(self)}

    @torch.inference_mode()
    def decode(self, model: Bart, passages: TokenTable, keys: np.ndarray, longest: int) -> Found:
        """Write queries for passages, with a model in evaluation mode.

        The random numbers of each passage come from `keys`, uint64 of shape (B,); see `passage_keys`. A query is cut at
        `longest` tokens; none is empty.
        """
        require(longest >= 1, f"queries of at most {longest} tokens: at least 1 is needed")
        tokens, scores = (part.cpu().numpy() for part in self._write(model, model.encode(passages), keys, longest))
        rows, places = np.nonzero(scores > IMPOSSIBLE)
        order = np.lexsort((-scores[rows, places], rows))
        rows, places = rows[order], places[order]
        queries = TokenTable.from_rows(row[~np.isin(row, (model.end, model.pad))] for row in tokens[rows, places])
        return Found(rows, queries, scores[rows, places].astype(np.float64))

    @abstractmethod
    def _write(self, model: Bart, encoded: Passages, keys: np.ndarray, longest: int) -> tuple[Tensor, Tensor]:
        """Tokens (B, k, t) and log-likelihoods (B, k) of k queries to a passage."""


@dataclass(frozen=True)
class Greedy(Decoding):
    """The likeliest token at every place: one query to a passage."""

    def _write(self, model, encoded, keys, longest):
        return _one_by_one(model, encoded, keys[:, None], longest, lambda log_p, *_: log_p.argmax(dim=1))


@dataclass(frozen=True)
class Nucleus(Decoding):
    """Independent samples from the likeliest tokens, of which the likeliest queries are kept (Holtzman et al. 2020).

    A token is drawn, in proportion to their probabilities, among the smallest set of likeliest tokens whose
    probabilities add up to `p` at least. One query that was drawn twice may be kept twice.
    """

    p: float = 0.95  # as in Liang 2020, section 4
    samples: int = 10  # queries of a passage
    keep: int = 5  # the likeliest of them

    def __post_init__(self) -> None:
        require(0 < self.p <= 1, f"p = {self.p} must be above 0 and at most 1")
        require(1 <= self.keep <= self.samples, f"keep = {self.keep} must be from 1 to samples = {self.samples}")

    def _write(self, model, encoded, keys, longest):
        keys = mixed(keys[:, None] + np.arange(1, self.samples + 1, dtype=np.uint64))  # (B, samples)
        tokens, scores = _one_by_one(model, encoded, keys, longest, partial(nucleus_sample, self.p))
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.keep]
        return tokens.take_along_dim(best[:, :, None], dim=1), scores.take_along_dim(best, dim=1)


@dataclass(frozen=True)
class Beam(Decoding):
    """Beam search: the queries that are found likeliest when only `width` beginnings are followed at a time.

    Likelihoods are not corrected for length. The search ends when no beginning is likelier than the least likely of
    `width` whole queries; 5 in Liang 2020, section 6.
    """

    width: int = 5

    def __post_init__(self) -> None:
        require(self.width >= 2, f"width = {self.width}: at least 2 are needed; one beam is `Greedy`")

    def _write(self, model, encoded, keys, longest):
        how = {"num_beams": self.width, "num_return_sequences": self.width, "length_penalty": 0.0}
        how |= {"early_stopping": "never", "do_sample": False, "output_scores": True}
        tokens, scores = model.generate(encoded, longest, **how)
        return tokens.view(len(keys), self.width, -1), scores.view(len(keys), self.width)


def _one_by_one(model: Bart, encoded: Passages, keys: np.ndarray, longest: int, choose: Callable) -> tuple:
    # Queries that know nothing of each other: tokens (B, n, t) and log-likelihoods (B, n). `keys` are (B, n).
    # `choose` takes log-probabilities (rows, V), the rows' keys and the place.
    keys, shape = keys.ravel(), keys.shape
    total = torch.zeros(len(keys), dtype=torch.float64, device=model.device)

    def only(log_p: Tensor, tokens: Tensor) -> Tensor:
        going = (tokens != model.end).all(dim=1)
        own = log_p[going]
        chosen = choose(own, keys[going.cpu().numpy()], tokens.shape[1])
        total[going] += own.gather(1, chosen[:, None])[:, 0]
        every = torch.full_like(going, model.end, dtype=torch.int64).masked_scatter(going, chosen)
        return log_p.fill_(-torch.inf).scatter_(1, every[:, None], 0.0)

    tokens, _ = model.generate(encoded, longest, only, copies=shape[1], do_sample=False)
    return tokens.view(*shape, -1), total.view(shape)


def nucleus_sample(p: float, log_p: Tensor, keys: np.ndarray, place: int) -> Tensor:
    """Return one token of each row, drawn from its nucleus: int64, shape (rows,).

    A token is drawn from all and taken if the probabilities of those before it, by probability and then by id, add up
    to less than `p`; else another is drawn: sorting the vocabulary would take most of the time. Log-probabilities,
    (rows, V), need not add up to 1. Random numbers come from `keys`, uint64, (rows,), and `place`.
    """
    chosen = torch.empty(len(log_p), dtype=torch.int64, device=log_p.device)
    waiting, attempt = torch.arange(len(log_p), device=log_p.device), 0
    probabilities = log_p.exp()
    sums = probabilities.cumsum(dim=1)
    while len(waiting):
        drawn = torch.from_numpy(uniforms(keys, place, attempt)).to(log_p.device, log_p.dtype)[:, None]
        total = sums[:, -1:]
        token = torch.searchsorted(sums, (drawn * total).clamp_max(total * (1 - 1e-6)), right=True)  # (waiting, 1)
        own = probabilities.gather(1, token)
        first = torch.arange(log_p.shape[1], device=log_p.device) < token
        before = (probabilities > own) | ((probabilities == own) & first)
        inside = (probabilities * before).sum(dim=1) < p * total[:, 0]
        chosen[waiting[inside]] = token[inside, 0]
        waiting, keys = waiting[~inside], keys[(~inside).cpu().numpy()]
        probabilities, sums, attempt = probabilities[~inside], sums[~inside], attempt + 1
    return chosen


def passage_keys(ids: pd.Index, seed: int) -> np.ndarray:
    """Return a key of each passage, from its id and the seed: uint64, shape (passages,)."""
    hashed = (blake2b(f"{seed}\x1f{name}".encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64)


def uniforms(keys: np.ndarray, place: int, attempt: int) -> np.ndarray:
    """Return random numbers in [0, 1) that depend on the arguments alone: float64, in the shape of the keys."""
    step = np.uint64((place + 1) * 0xD1B54A32D192ED03 % 2**64)
    return (mixed(keys + step + np.uint64(attempt)) >> np.uint64(11)) * 2.0**-53


def mixed(values: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finalizer of values (Steele, Lea and Flood 2014): uint64 to uint64, one to one."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
