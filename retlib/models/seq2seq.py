"""Models that write a query for a passage: BART, and BART with a pointer over the passage.

Both have one face. Training asks for `log_likelihoods`; decoding encodes once, begins a `State` and
takes steps of one unit: all continuations of a passage read the same encoded passage, which is held once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from retlib.core.errors import DataError, require
from retlib.data.text import Segment, TokenTable, WordPiece, concatenate, constant

# Pairs that are padded to one length together, as in `retlib.models.transformer`.
GROUP = 32
# A probability below which a unit counts as not in the passage: keeps the logarithm's gradient finite.
TINY = 1e-20


class Units(Protocol):
    """The sub-word units that a model reads and writes; `WordPiece` is one, `BartUnits` another.

    `cls` opens every text, `sep` ends it, `pad` fills it up and `mask` stands for what is hidden.
    """

    cls: int
    sep: int
    pad: int
    mask: int

    def __len__(self) -> int: ...

    def encode(self, texts: Iterable[str]) -> TokenTable:
        """Ids of each text, without special units."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class BartUnits:
    """The byte-pair units of a BART checkpoint.

    Parameters
    ----------
    name : str
        A folder or a hub name.

    Raises
    ------
    DataError
        If there is no tokenizer of that name.
    """

    def __init__(self, name: str | Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise DataError(f"no tokenizer of a BART checkpoint {str(name)!r} ({error})") from error
        self.cls, self.sep = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        self.pad, self.mask = self._tokenizer.pad_token_id, self._tokenizer.mask_token_id

    def __len__(self) -> int:
        return len(self._tokenizer)

    @property
    def special(self) -> tuple[int, ...]:
        """Ids of all special units."""
        return tuple(self._tokenizer.all_special_ids)

    def encode(self, texts: Iterable[str]) -> TokenTable:
        """Ids of each text, without special units; a text without any becomes one unknown unit."""
        texts = list(texts)
        found = self._tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return TokenTable.from_rows([row or [self._tokenizer.unk_token_id] for row in found])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._tokenizer.decode([int(i) for i in ids]).strip()

    def save(self, folder: Path) -> None:
        """Write the files that the class reads."""
        self._tokenizer.save_pretrained(folder)


def never_written(units: Units) -> tuple[int, ...]:
    """Ids that stand in no query: all special units but the one that ends it."""
    special = [units.ids[unit] for unit in units.SPECIAL] if isinstance(units, WordPiece) else units.special
    return tuple(sorted({*special} - {units.sep}))


class Memory(NamedTuple):
    """Encoded passages.

    Parameters
    ----------
    units : int64 tensor, shape (B, S)
        The passages between the units that open and end them; then padding.
    mask : bool tensor, shape (B, S)
        What is not padding.
    inner : bool tensor, shape (B, S)
        The units of the passages alone.
    states : float tensor, shape (B, S, width)
    """

    units: Tensor
    mask: Tensor
    inner: Tensor
    states: Tensor

    def take(self, rows: Tensor) -> Memory:
        """Those of some passages."""
        return Memory(*(part[rows] for part in self))


Cached = list[tuple[Tensor, Tensor]]  # keys and values of each layer


@dataclass(frozen=True, eq=False)
class State:
    """What the decoder knows of n continuations of each of B passages, after t units.

    Parameters
    ----------
    passage : list of (Tensor, Tensor)
        Keys and values of the encoded passage in each layer, (B, heads, S, head): once for all continuations.
    bias : Tensor, shape (B, 1, 1, S)
        Added to the scores of the passage's units; minus infinity where there is padding.
    own : list of (Tensor, Tensor)
        Keys and values of the units so far in each layer, (B, n, heads, t, head).
    """

    passage: Cached
    bias: Tensor
    own: Cached

    @property
    def length(self) -> int:
        """Units so far, t."""
        return self.own[0][0].shape[3]

    def take(self, rows: Tensor) -> State:
        """That of some passages."""
        passage, own = ([(keys[rows], values[rows]) for keys, values in part] for part in (self.passage, self.own))
        return State(passage, self.bias[rows], own)

    def reorder(self, parents: Tensor) -> State:
        """Other continuations: the i-th of a passage goes on from its ``parents[:, i]``-th; parents are (B, n')."""
        row = torch.arange(len(parents), device=parents.device)[:, None]
        return State(self.passage, self.bias, [(keys[row, parents], values[row, parents]) for keys, values in self.own])


class Seq2Seq(nn.Module, ABC):
    """A sequence-to-sequence model over BART's layers; the subclass says how a unit's probability is made.

    Parameters
    ----------
    bart : BartForConditionalGeneration
    units : Units
        Of the token tables.

    Raises
    ------
    DataError
        If the model has fewer units than its vocabulary.
    """

    def __init__(self, bart: nn.Module, units: Units) -> None:
        super().__init__()
        size = bart.config.vocab_size
        wrong = f"the model has {size} units, its vocabulary {len(units)}: they do not belong together"
        require(size >= len(units), wrong, DataError)
        self.bart = bart
        self.end, self._pad, self._open = units.sep, units.pad, units.cls
        # A released BART starts its decoder with the end unit, and then with the one that opens every text.
        start = bart.config.decoder_start_token_id
        self.begin = (start,) if start == units.cls else (start, units.cls)
        self.never = [*never_written(units), *range(len(units), size)]

    @classmethod
    def from_scratch(cls, units: Units, layers: int, width: int, longest: int) -> Self:
        """Randomly initialized, with heads of 64 dimensions, feed-forward layers of four times the width and
        no dropout.

        Parameters
        ----------
        layers : int
            Of the encoder, and of the decoder.
        longest : int
            Most units of a passage or query.
        """
        from transformers import BartConfig

        require(layers > 0, f"layers = {layers} must be positive")
        require(width > 0 and width % 64 == 0, f"width = {width} must be a multiple of 64, the size of a head")
        sides = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (
            ("layers", layers), ("attention_heads", width // 64), ("ffn_dim", 4 * width))}  # fmt: skip
        special = {"pad": units.pad, "bos": units.cls, "eos": units.sep, "decoder_start": units.cls}
        config = BartConfig(
            vocab_size=len(units),
            d_model=width,
            dropout=0.0,
            max_position_embeddings=longest + 2,
            forced_eos_token_id=None,
            **sides,
            **{f"{name}_token_id": value for name, value in special.items()},
        )
        return cls(_made(config), units)

    @classmethod
    def from_checkpoint(cls, name: str, units: Units) -> Self:
        """A pre-trained BART from a folder or by its hub name.

        Raises
        ------
        DataError
            If there is no such checkpoint, no network to fetch it, or if its vocabulary is larger than it.
        """
        from transformers import BartForConditionalGeneration

        try:
            bart = BartForConditionalGeneration.from_pretrained(name, attn_implementation="eager")
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"no BART checkpoint {name!r}: no folder and no hub name of one ({error})") from error
        return cls(bart, units)

    @classmethod
    def from_config(cls, path: Path, units: Units) -> Self:
        """A BART as a file describes it, its weights to be loaded."""
        from transformers import BartConfig

        return cls(_made(BartConfig.from_json_file(path)), units)

    @property
    def longest(self) -> int:
        """Most units of a passage or query, without those that open and end it."""
        return self.bart.config.max_position_embeddings - 2

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.bart.model.shared.weight.device

    # --- training ----------------------------------------------------------------------------------

    def log_likelihoods(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        r"""The log-likelihood of each query, :math:`\sum_t \log p(w_t \mid w_{<t}, passage)`, its end included.

        Parameters
        ----------
        passages, queries : TokenTable of B rows

        Returns
        -------
        Tensor, shape (B,)
            Computed in groups of like length, each padded to its own longest row.
        """
        order = np.argsort(passages.lengths, kind="stable")
        groups = [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
        parts = [self._group(passages.take(rows), queries.take(rows)) for rows in groups]
        return torch.cat(parts)[torch.from_numpy(np.argsort(order, kind="stable")).to(self.device)]

    def _group(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        memory = self.encode(passages)
        targets, mask = _padded([queries.segment, constant(self.end, len(queries))], self._pad, self.device)  # (B, T)
        first = torch.tensor(self.begin, device=self.device).expand(len(targets), -1)
        inputs = torch.cat([first, targets[:, :-1]], dim=1)
        embedded = self.bart.model.decoder.embed_tokens(inputs)
        hidden = self.bart.model.decoder(
            inputs_embeds=embedded,
            encoder_hidden_states=memory.states,
            encoder_attention_mask=memory.mask.long(),
            use_cache=False,
        ).last_hidden_state
        own = slice(len(self.begin) - 1, None)  # from the unit on after which the query begins
        # The vocabulary is the dearest part: padding has none of it.
        found = self._log_likelihoods(hidden[:, own], embedded[:, own], memory, mask, targets[mask])  # (units,)
        return found.new_zeros(len(targets)).index_add(0, mask.nonzero()[:, 0], found)

    @abstractmethod
    def _log_likelihoods(
        self, hidden: Tensor, inputs: Tensor, memory: Memory, wanted: Tensor, targets: Tensor
    ) -> Tensor:
        """Log-probability of each target, (wanted,), after hidden states and input embeddings (B, T, width).

        `wanted` (B, T) tells the places that have a target.
        """

    # --- decoding ----------------------------------------------------------------------------------

    def encode(self, passages: TokenTable) -> Memory:
        """Encode passages.

        Raises
        ------
        DataError
            If one is longer than the model takes.
        """
        longest = int(passages.lengths.max(initial=0))
        require(longest <= self.longest, f"a passage of {longest} units; the model takes {self.longest}", DataError)
        opening, end = constant(self._open, len(passages)), constant(self.end, len(passages))
        units, mask = _padded([opening, passages.segment, end], self._pad, self.device)
        inner = mask.clone()
        inner[:, 0] = False
        inner[:, :-1] &= mask[:, 1:]
        inner[:, -1] = False
        states = self.bart.model.encoder(input_ids=units, attention_mask=mask.long()).last_hidden_state
        return Memory(units, mask, inner, states)

    def start(self, memory: Memory) -> State:
        """The state before any unit, of one continuation to each passage."""
        layers, rows = self.bart.model.decoder.layers, len(memory.units)
        heads, width = layers[0].self_attn.num_heads, layers[0].self_attn.head_dim
        passage = [tuple(_heads(layer.encoder_attn, side, memory.states).transpose(1, 2).contiguous()
                         for side in "kv") for layer in layers]  # fmt: skip
        bias = torch.zeros(memory.mask.shape, device=self.device).masked_fill(~memory.mask, -torch.inf)
        nothing = memory.states.new_zeros((rows, 1, heads, 0, width))
        return State(passage, bias[:, None, None, :], [(nothing, nothing) for _ in layers])

    def step(self, memory: Memory, state: State, last: Tensor, wanted: Tensor | None = None) -> tuple[Tensor, State]:
        """Read one unit more of every continuation.

        Parameters
        ----------
        memory : Memory of B passages
        state : State of B passages with n continuations each
        last : int64 tensor, shape (B, n)
            The units that are read.
        wanted : bool tensor, shape (B, n), optional
            The continuations that go on; all by default.

        Returns
        -------
        log_probabilities : float32 tensor, shape (wanted, V)
            Of the next unit, row by row; what no query may hold is at minus infinity.
        state : State
        """
        decoder = self.bart.model.decoder
        embedded = decoder.embed_tokens(last)  # (B, n, width)
        positions = decoder.embed_positions
        hidden = decoder.layernorm_embedding(embedded + positions.weight[state.length + positions.offset])
        own = []
        for layer, before, passage in zip(decoder.layers, state.own, state.passage, strict=True):
            hidden, now = _layer_step(layer, hidden, before, passage, state.bias)
            own.append(now)
        wanted = torch.ones_like(last, dtype=torch.bool) if wanted is None else wanted
        found = self._log_probabilities(hidden, embedded, memory, wanted)
        found[:, self.never] = -torch.inf
        return found, State(state.passage, state.bias, own)

    @abstractmethod
    def _log_probabilities(self, hidden: Tensor, inputs: Tensor, memory: Memory, wanted: Tensor) -> Tensor:
        """Log-probabilities of all units, (wanted, V), after hidden states and input embeddings (B, n, width)."""

    def _logits(self, hidden: Tensor) -> Tensor:
        return (self.bart.lm_head(hidden) + self.bart.final_logits_bias[0]).float()


class Bart(Seq2Seq):
    """BART as it is (Lewis et al. 2019): the next unit comes from the vocabulary."""

    def _log_likelihoods(self, hidden, inputs, memory, wanted, targets) -> Tensor:
        return -F.cross_entropy(self._logits(hidden[wanted]), targets, reduction="none")

    def _log_probabilities(self, hidden, inputs, memory, wanted) -> Tensor:
        return self._logits(hidden[wanted]).log_softmax(dim=-1)


class PointerGenerator(Seq2Seq):
    r"""BART whose next unit is written from the vocabulary or copied from the passage (See et al. 2017, section 2.2).

    .. math:: p(w) &= g \, p_{vocab}(w) + (1 - g) \sum_{i : w_i = w} a_i \\
              a &= \mathrm{softmax}_i \left( h_i^\top W s / \sqrt{d} \right), \qquad
              g = \sigma \left( v^\top [s; \textstyle\sum_i a_i h_i; x] + b \right)

    with the decoder's state :math:`s`, the embedding :math:`x` of the unit before, and the encoder's
    states :math:`h_i` of the passage's units :math:`w_i`; d is the width. The paper's attention is
    additive and is that of its decoder; here it is a bilinear one beside the decoder's own heads.

    Trained from scratch in minutes, BART itself does not learn to copy; with the pointer it does.
    """

    def __init__(self, bart: nn.Module, units: Units) -> None:
        super().__init__(bart, units)
        width = bart.config.d_model
        self.copy = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(3 * width, 1)

    def _pointed(self, hidden: Tensor, inputs: Tensor, memory: Memory, wanted: Tensor) -> tuple[Tensor, ...]:
        """Attention on the passage's units, (wanted, S), the logit of g, (wanted,), and these units."""
        scores = self.copy(hidden) @ memory.states.transpose(1, 2) * hidden.shape[-1] ** -0.5
        attention = scores.float().masked_fill(~memory.inner[:, None, :], -torch.inf).softmax(dim=-1)
        context = attention.to(memory.states.dtype) @ memory.states
        gate = self.gate(torch.cat([hidden, context, inputs], dim=-1))[..., 0].float()
        return attention[wanted], gate[wanted], memory.units[wanted.nonzero()[:, 0]]

    def _log_likelihoods(self, hidden, inputs, memory, wanted, targets) -> Tensor:
        attention, gate, units = self._pointed(hidden, inputs, memory, wanted)
        written = -F.cross_entropy(self._logits(hidden[wanted]), targets, reduction="none")
        copied = (attention * (units == targets[:, None])).sum(dim=1).clamp_min(TINY).log()
        return torch.logaddexp(F.logsigmoid(gate) + written, F.logsigmoid(-gate) + copied)

    def _log_probabilities(self, hidden, inputs, memory, wanted) -> Tensor:
        attention, gate, units = self._pointed(hidden, inputs, memory, wanted)
        generate = gate.sigmoid()[:, None]
        mixed = self._logits(hidden[wanted]).softmax(dim=-1).mul_(generate)
        return mixed.scatter_add_(1, units, (1 - generate) * attention).log_()


HEADS: dict[str, type[Seq2Seq]] = {"bart": Bart, "pointer": PointerGenerator}


def _made(config) -> nn.Module:
    from transformers import BartForConditionalGeneration

    config._attn_implementation = "eager"  # faster than the fused products on a processor, for small models
    return BartForConditionalGeneration(config)


def _padded(pieces: Sequence[Segment], pad: int, on: torch.device) -> tuple[Tensor, Tensor]:
    """Pieces side by side, padded to the longest row: ids (B, S), and what is not padding."""
    table = concatenate(pieces, limit=np.iinfo(np.int32).max)
    mask = np.arange(table.lengths.max(initial=0)) < table.lengths[:, None]
    units = np.full(mask.shape, pad, dtype=np.int64)
    units[mask] = table.ids
    return torch.from_numpy(units).to(on), torch.from_numpy(mask).to(on)


def _heads(attention: nn.Module, side: str, states: Tensor) -> Tensor:
    """Queries, keys or values of an attention, ("q", "k", "v"): (..., width) to (..., heads, head)."""
    projected = getattr(attention, f"{side}_proj")(states)
    return projected.view(*states.shape[:-1], attention.num_heads, attention.head_dim)


def _layer_step(
    layer: nn.Module, hidden: Tensor, own: tuple[Tensor, Tensor], passage: tuple[Tensor, Tensor], bias: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer of BART's decoder on one unit of each continuation: hidden (B, n, width) and the new keys and values.

    As transformers' ``BartDecoderLayer`` in evaluation, but that the passage's keys and values are
    read by all continuations of a passage in one product, where the library repeats them for each.
    """
    attention = layer.self_attn
    keys, values = (
        torch.cat([before, _heads(attention, side, hidden)[:, :, :, None]], dim=3)
        for before, side in zip(own, "kv", strict=True)
    )  # (B, n, heads, t + 1, head)
    query = _heads(attention, "q", hidden)[:, :, :, None] * attention.scaling
    found = (query @ keys.transpose(3, 4)).softmax(dim=-1) @ values  # (B, n, heads, 1, head)
    hidden = layer.self_attn_layer_norm(hidden + attention.out_proj(found.reshape(hidden.shape)))

    attention = layer.encoder_attn
    query = _heads(attention, "q", hidden).transpose(1, 2) * attention.scaling  # (B, heads, n, head)
    found = (query @ passage[0].transpose(2, 3) + bias).softmax(dim=-1) @ passage[1]
    hidden = layer.encoder_attn_layer_norm(hidden + attention.out_proj(found.transpose(1, 2).reshape(hidden.shape)))

    return layer.final_layer_norm(hidden + layer.fc2(layer.activation_fn(layer.fc1(hidden)))), (keys, values)
