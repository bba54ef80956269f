"""How queries are read off a sequence-to-sequence model: greedily, by beam search, or by nucleus sampling.

All passages of a batch are decoded together. A passage's queries do not depend on what else is in
its batch, but for the rounding of floating-point sums: random numbers come from a key of the passage,
so that the same seed gives the same queries in parts and batches of any size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from retlib.core.errors import require
from retlib.data.text import TokenTable
from retlib.models.seq2seq import Memory, Seq2Seq, State


class Found(NamedTuple):
    """Queries of several passages.

    `passages` (N,) are rows of the passages; `queries` is a TokenTable of N rows, without the unit that
    ends them; `log_likelihoods` (N,), float64, are those of the whole queries, their ends included. A
    query that was cut at the greatest length has no end. Of one passage the likeliest comes first.
    """

    passages: np.ndarray
    queries: TokenTable
    log_likelihoods: np.ndarray


@dataclass(frozen=True)
class Decoding(ABC):
    """A way of decoding and its settings."""

    @property
    def name(self) -> str:
        """Its name in records."""
        return type(self).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """Name and value of every setting, as recorded beside results."""
        return {"decoding": self.name, **asdict(self)}

    @torch.inference_mode()
    def decode(self, model: Seq2Seq, passages: TokenTable, keys: np.ndarray, longest: int) -> Found:
        """Write queries for passages.

        Parameters
        ----------
        model : Seq2Seq
            In evaluation mode.
        passages : TokenTable of B rows
        keys : uint64 array, shape (B,)
            What the random numbers of each passage come from; see `passage_keys`.
        longest : int
            A query is cut at so many units. None is empty.
        """
        require(longest >= 1, f"queries of at most {longest} units: at least 1 is needed")
        memory = model.encode(passages)
        state = model.start(memory)
        for unit in model.begin:
            last = torch.full((len(passages), 1), unit, device=model.device)
            log_p, state = model.step(memory, state, last)
        log_p[:, model.end] = -torch.inf
        units, scores = self._write(model, memory, state, log_p, keys, longest)
        return _found(units.cpu().numpy(), scores.cpu().numpy(), model.end)

    @abstractmethod
    def _write(
        self, model: Seq2Seq, memory: Memory, state: State, log_p: Tensor, keys: np.ndarray, longest: int
    ) -> tuple[Tensor, Tensor]:
        """Units (B, k, longest) and log-likelihoods (B, k) of k queries to a passage.

        `log_p` (B, V) are the log-probabilities of their first units. A query is filled up with the unit
        that ends it; one that is not there is at minus infinity.
        """


@dataclass(frozen=True)
class Greedy(Decoding):
    """The likeliest unit at every place: one query to a passage."""

    def _write(self, model, memory, state, log_p, keys, longest):
        """See `Decoding`."""
        return _one_by_one(model, memory, state, log_p, keys[:, None], longest, lambda found, *_: found.argmax(dim=1))


@dataclass(frozen=True)
class Nucleus(Decoding):
    """Independent samples from the likeliest units, of which the likeliest queries are kept (Holtzman et al. 2020).

    A unit is drawn, in proportion to their probabilities, among the smallest set of likeliest units
    whose probabilities add up to `p` at least.

    Parameters
    ----------
    p : float
        0.95 in Liang 2020, section 4.
    samples : int
        Queries that are drawn for a passage: 10.
    keep : int
        Of these the so many likeliest: 5. One that was drawn twice may be kept twice.
    """

    p: float = 0.95
    samples: int = 10
    keep: int = 5

    def __post_init__(self) -> None:
        require(0 < self.p <= 1, f"p = {self.p} must be above 0 and at most 1")
        require(1 <= self.keep <= self.samples, f"keep = {self.keep} must be from 1 to samples = {self.samples}")

    def _write(self, model, memory, state, log_p, keys, longest):
        """See `Decoding`."""
        with np.errstate(over="ignore"):
            keys = mixed(keys[:, None] + np.arange(1, self.samples + 1, dtype=np.uint64))  # (B, samples)

        def choose(log_p: Tensor, keys: np.ndarray, place: int) -> Tensor:
            return nucleus_sample(log_p, self.p, keys, place)

        units, scores = _one_by_one(model, memory, state, log_p, keys, longest, choose)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.keep]
        return units.take_along_dim(best[:, :, None], dim=1), scores.take_along_dim(best, dim=1)


@dataclass(frozen=True)
class Beam(Decoding):
    """Beam search: the queries that are found likeliest when only so many beginnings are followed at a time.

    Likelihoods are those of whole queries, without a correction for their length. The search ends
    when no beginning is likelier than the least likely of `width` whole queries.

    Parameters
    ----------
    width : int
        Beginnings that are followed, and queries to a passage: 5 in Liang 2020, section 6.
    """

    width: int = 5

    def __post_init__(self) -> None:
        require(self.width >= 1, f"width = {self.width}: at least 1 is needed")

    def _write(self, model, memory, state, log_p, keys, longest):
        """See `Decoding`."""
        beams = _Beams(model.end, self.width, len(keys), longest, log_p.device)
        log_p = log_p[:, None]  # (B, 1, V)
        for place in range(longest):
            parents, last = beams.extend(log_p, place)
            going = beams.going()
            if place == longest - 1 or not going.any():
                break
            if not going.all():
                beams.drop(~going)
                parents, last = parents[going], last[going]
                memory, state = memory.take(going), state.take(going)
            found, state = model.step(memory, state.reorder(parents), last)
            log_p = found.view(*last.shape, -1)
        return beams.close()


class _Beams:
    """Beginnings and whole queries of each passage; those that are through are put aside."""

    def __init__(self, end: int, width: int, passages: int, longest: int, on: torch.device) -> None:
        self.end, self.width = end, width
        self.rows = torch.arange(passages, device=on)  # passages that are not through
        self.units = torch.full((passages, 1, longest), end, device=on)  # of the beginnings
        self.scores = torch.zeros((passages, 1), dtype=torch.float64, device=on)
        self.whole = torch.full((passages, width, longest), end, device=on)
        self.whole_scores = torch.full((passages, width), -torch.inf, dtype=torch.float64, device=on)
        self.out, self.out_scores = self.whole.clone(), self.whole_scores.clone()

    def extend(self, log_p: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """Go on by one unit: the beginnings that are followed, (B, width), as parents and last units."""
        size = log_p.shape[-1]
        total = (self.scores[:, :, None] + log_p).flatten(1)  # (B, n * V)
        # Of twice as many at most half end here.
        scores, best = total.topk(min(2 * self.width, total.shape[1]), dim=1)
        parents, last = best // size, best % size
        units = self.units.take_along_dim(parents[:, :, None], dim=1)
        units[:, :, place] = last
        ends = last == self.end
        self._keep_whole(units, scores.masked_fill(~ends, -torch.inf))
        scores = scores.masked_fill(ends, -torch.inf)
        self.scores, order = scores.topk(min(self.width, scores.shape[1]), dim=1)
        self.units = units.take_along_dim(order[:, :, None], dim=1)
        return parents.take_along_dim(order, dim=1), last.take_along_dim(order, dim=1)

    def _keep_whole(self, units: Tensor, scores: Tensor) -> None:
        self.whole_scores, order = torch.cat([self.whole_scores, scores], dim=1).topk(self.width, dim=1)
        self.whole = torch.cat([self.whole, units], dim=1).take_along_dim(order[:, :, None], dim=1)

    def going(self) -> Tensor:
        """Which passages have a beginning that is likelier than the least likely whole query, (B,)."""
        return self.scores[:, 0] > self.whole_scores[:, -1]

    def drop(self, through: Tensor) -> None:
        """Put passages aside that are through."""
        rows, stay = self.rows[through], ~through
        self.out[rows], self.out_scores[rows] = self.whole[through], self.whole_scores[through]
        self.rows, self.units, self.scores = self.rows[stay], self.units[stay], self.scores[stay]
        self.whole, self.whole_scores = self.whole[stay], self.whole_scores[stay]

    def close(self) -> tuple[Tensor, Tensor]:
        """All queries; beginnings count as they stand."""
        self._keep_whole(self.units, self.scores)
        self.drop(torch.ones_like(self.rows, dtype=torch.bool))
        return self.out, self.out_scores


def _one_by_one(
    model: Seq2Seq,
    memory: Memory,
    state: State,
    log_p: Tensor,
    keys: np.ndarray,
    longest: int,
    choose: Callable[[Tensor, np.ndarray, int], Tensor],
) -> tuple[Tensor, Tensor]:
    """Continuations that know nothing of each other: units (B, n, longest) and log-likelihoods (B, n).

    `keys` are (B, n); `choose` takes log-probabilities (rows, V), the rows' keys and the place.
    """
    passages, samples = keys.shape
    on = log_p.device
    units = torch.full((passages, samples, longest), model.end, device=on)
    scores = torch.zeros((passages, samples), dtype=torch.float64, device=on)
    rows = torch.arange(passages, device=on)  # passages of which a continuation goes on
    going = torch.ones((passages, samples), dtype=torch.bool, device=on)
    log_p = log_p.repeat_interleave(samples, dim=0)
    state = state.reorder(torch.zeros_like(going, dtype=torch.int64))
    for place in range(longest):
        chosen = choose(log_p, keys[going.cpu().numpy()], place)  # (going,)
        passage, sample = going.nonzero(as_tuple=True)
        units[rows[passage], sample, place] = chosen
        scores[rows[passage], sample] += log_p.gather(1, chosen[:, None])[:, 0]
        going = going.masked_scatter(going, chosen != model.end)
        stay = going.any(dim=1)
        if place == longest - 1 or not stay.any():
            break
        if not stay.all():
            rows, going, keys = rows[stay], going[stay], keys[stay.cpu().numpy()]
            memory, state = memory.take(stay), state.take(stay)
        log_p, state = model.step(memory, state, units[rows, :, place], going)
    return units, scores


def nucleus_sample(log_p: Tensor, p: float, keys: np.ndarray, place: int) -> Tensor:
    """One unit of each row, drawn from its nucleus: int64, shape (rows,).

    A unit is drawn from all and taken if it is in the nucleus, which is to say if the probabilities of
    all units that come before it, by probability and then by id, add up to less than `p`; else another
    is drawn. That gives the distribution of the nucleus without sorting the vocabulary, which would
    take most of the time.

    Parameters
    ----------
    log_p : float tensor, shape (rows, V)
        Need not add up to 1: units at minus infinity are never drawn.
    keys : uint64 array, shape (rows,)
    place : int
        Takes part in the random numbers, as the keys do.
    """
    chosen = torch.empty(len(log_p), dtype=torch.int64, device=log_p.device)
    waiting = torch.arange(len(log_p), device=log_p.device)
    probabilities = log_p.exp()
    sums = probabilities.cumsum(dim=1)
    attempt = 0
    while len(waiting):
        drawn = torch.from_numpy(uniforms(keys, place, attempt)).to(log_p.device, log_p.dtype)[:, None]
        total = sums[:, -1:]
        unit = torch.searchsorted(sums, (drawn * total).clamp_max(total * (1 - 1e-6)), right=True)  # (waiting, 1)
        own = probabilities.gather(1, unit)
        first = torch.arange(log_p.shape[1], device=log_p.device) < unit
        before = (probabilities > own) | ((probabilities == own) & first)
        inside = (probabilities * before).sum(dim=1) < p * total[:, 0]
        chosen[waiting[inside]] = unit[inside, 0]
        outside = ~inside
        waiting, keys = waiting[outside], keys[outside.cpu().numpy()]
        probabilities, sums = probabilities[outside], sums[outside]
        attempt += 1
    return chosen


def passage_keys(ids: pd.Index, seed: int) -> np.ndarray:
    """A key of each passage, from its id and the seed: uint64, shape (passages,)."""
    hashed = (blake2b(f"{seed}\x1f{name}".encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(b"".join(hashed), dtype=np.uint64)


def uniforms(keys: np.ndarray, place: int, attempt: int) -> np.ndarray:
    """Random numbers in [0, 1) that depend on the arguments alone: float64, in the shape of the keys."""
    with np.errstate(over="ignore"):
        counted = mixed(keys + np.uint64(place + 1) * np.uint64(0xD1B54A32D192ED03) + np.uint64(attempt))
    return (counted >> np.uint64(11)) * 2.0**-53


def mixed(values: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): uint64 to uint64, one to one."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def _found(units: np.ndarray, scores: np.ndarray, end: int) -> Found:
    """Ragged queries out of padded ones, (B, k, longest), best first; what is at minus infinity is left out."""
    order = np.argsort(-scores, axis=1, kind="stable")
    scores = np.take_along_axis(scores, order, axis=1)
    units = np.take_along_axis(units, order[:, :, None], axis=1)
    passages, places = np.nonzero(scores > -np.inf)
    rows = units[passages, places]  # (N, longest)
    table = TokenTable.from_rows([row[row != end] for row in rows])
    return Found(passages, table, scores[passages, places])
