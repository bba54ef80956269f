"""Models that write a query for a passage (Liang 2020), in Part III: BART, with a pointer or without, and its decoding.

Training asks for `log_likelihoods`, a `Decoding` for queries, which transformers' ``generate`` writes. What else is in
the batch changes them by rounding alone: random numbers come from a key of the passage.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.data.text import TokenTable, WordPiece
from retlib.data.tokenized import tokens_key
from retlib.models import checkpoints
from retlib.models.checkpoints import BartTokenizer
from retlib.models.retriever import CONFIG, Retriever, Trained
from retlib.models.transformer import Framed, by_length, frame

# A probability below which a token counts as not in the passage: keeps the logarithm's gradient finite.
TINY = 1e-20
# What transformers gives beams that there are none of scores less.
IMPOSSIBLE = -1e8


class Passages(NamedTuple):
    """Encoded passages: their tokens, and hidden states, float, shape (B, S, width)."""

    text: Framed
    states: Tensor


class Bart(nn.Module):
    """BART (Lewis et al. 2019): the next token comes from the vocabulary."""

    def __init__(self, bart: nn.Module, tokenizer: WordPiece | BartTokenizer) -> None:
        from transformers import GenerationConfig

        super().__init__()
        size = bart.config.vocab_size
        wrong = f"the model has {size} tokens, its vocabulary {len(tokenizer)}: they do not belong together"
        require(size >= len(tokenizer), wrong, DataError)
        self.bart = bart
        self.end, self.pad, self._open = tokenizer.sep, tokenizer.pad, tokenizer.cls
        # A released BART starts its decoder with the token that ends texts, and then with the one that opens them.
        start = bart.config.decoder_start_token_id
        self.begin = (start,) if start == tokenizer.cls else (start, tokenizer.cls)
        # No query holds a special token but the one that ends it, nor what stands for no token at all.
        special = {tokenizer.ids[token] for token in tokenizer.SPECIAL} - {self.end}
        self.never = [*sorted(special), *range(len(tokenizer), size)]
        # A checkpoint's own asks for four beams, no repeated trigrams and more.
        tokens = {"eos_token_id": self.end, "pad_token_id": self.pad, "decoder_start_token_id": start}
        bart.generation_config = GenerationConfig(**tokens)

    @classmethod
    def from_scratch(cls, tokenizer: WordPiece | BartTokenizer, layers: int, width: int, longest: int) -> Self:
        """Return a randomly initialized model whose encoder and decoder have `layers` each.

        `longest` is the most tokens of a passage or query.
        """
        from transformers import BartConfig

        require(width > 0 and width % 64 == 0, f"width = {width} must be a multiple of 64, the size of a head")
        sizes = {"layers": layers, "attention_heads": width // 64, "ffn_dim": 4 * width}
        special = {"pad": tokenizer.pad, "bos": tokenizer.cls, "eos": tokenizer.sep, "decoder_start": tokenizer.cls}
        special |= {"forced_eos": None}
        sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
        tokens = {f"{name}_token_id": value for name, value in special.items()}
        whole = {"vocab_size": len(tokenizer), "d_model": width, "dropout": 0.0, "max_position_embeddings": longest + 2}
        return cls.from_config(BartConfig(**whole, **sides, **tokens), tokenizer)

    @classmethod
    def from_config(cls, config: Any, tokenizer: WordPiece | BartTokenizer) -> Self:
        """Return a randomly initialized BART as its configuration describes it."""
        from transformers import BartForConditionalGeneration

        config._attn_implementation = "eager"  # faster than the fused products on a processor, for small models
        return cls(BartForConditionalGeneration(config), tokenizer)

    @classmethod
    def from_checkpoint(cls, name: str, tokenizer: WordPiece | BartTokenizer) -> Self:
        """Return a pre-trained BART from a folder or by its hub name; `DataError` if there is none that fits."""
        from transformers import BartForConditionalGeneration

        try:
            bart = BartForConditionalGeneration.from_pretrained(name, attn_implementation="eager", use_safetensors=True)
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"no BART checkpoint {name!r}: no folder and no hub name of one ({error})") from error
        return cls(bart, tokenizer)

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.bart.model.shared.weight.device

    def encode(self, passages: TokenTable) -> Passages:
        text = frame(passages, self.pad, self._open, self.end, self.device)
        encoded = self.bart.model.encoder(input_ids=text.tokens, attention_mask=text.mask.long())
        return Passages(text, encoded.last_hidden_state)

    def log_likelihoods(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        r"""Return each query's log-likelihood, :math:`\sum_t \log p(w_t \mid w_{<t}, passage)`, its end included.

        Its shape is (B,). It is computed in groups of like length, each padded to its own longest row.
        """
        groups, back = by_length(passages)
        return torch.cat([self._group(passages.take(rows), queries.take(rows)) for rows in groups])[back]

    def _group(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        encoded = self.encode(passages)
        written = frame(queries, self.pad, self._open, self.end, self.device)
        targets, mask = written.tokens[:, 1:], written.mask[:, 1:]  # (B, T)
        first = torch.tensor(self.begin[:-1], dtype=torch.int64, device=self.device).expand(len(targets), -1)
        embedded = self.bart.model.decoder.embed_tokens(torch.cat([first, written.tokens[:, :-1]], dim=1))
        read = {"encoder_hidden_states": encoded.states, "encoder_attention_mask": encoded.text.mask.long()}
        hidden = self.bart.model.decoder(inputs_embeds=embedded, **read, use_cache=False).last_hidden_state
        own = slice(len(self.begin) - 1, None)  # from the token on after which the query begins
        # The vocabulary is the dearest part: padding has none of it.
        each = self._log_likelihoods(hidden[:, own], embedded[:, own], encoded, mask, targets[mask])  # (tokens,)
        return each.new_zeros(len(targets)).index_add(0, mask.nonzero()[:, 0], each)

    def _log_likelihoods(self, hidden, inputs, encoded: Passages, wanted, targets) -> Tensor:
        # Of each target, (n,), at the n `wanted` places (B, T), after hidden states and input embeddings (B, T, width).
        return -F.cross_entropy(self._logits(hidden[wanted]), targets, reduction="none")

    def _logits(self, hidden: Tensor) -> Tensor:
        return (self.bart.lm_head(hidden) + self.bart.final_logits_bias[0]).float()

    @torch.inference_mode()
    def generate(
        self, encoded: Passages, longest: int, choose: Callable | None = None, copies: int = 1, **settings: object
    ) -> tuple[Tensor, Tensor | None]:
        """Let transformers write queries, none of them empty; return their tokens, and the scores of beams, (rows,).

        Tokens are int64, (rows, at most longest), `copies` of each passage, padded behind the end of a query. `choose`
        makes other log-probabilities of those of the next token, (rows, V), and the tokens so far, (rows, t).
        """
        from transformers.modeling_outputs import BaseModelOutput

        hidden: list[Tensor] = []

        def process(tokens: Tensor, scores: Tensor) -> Tensor:
            log_p = self._next(scores.float().log_softmax(dim=-1), hidden.pop(), tokens[:, -1:], encoded)
            log_p[:, self.never] = -torch.inf
            tokens = tokens[:, len(self.begin) :]
            if tokens.shape[1] == 0:
                log_p[:, self.end] = -torch.inf
            return choose(log_p, tokens) if choose else log_p

        states, mask = (part.repeat_interleave(copies, dim=0) for part in (encoded.states, encoded.text.mask))
        hook = self.bart.model.register_forward_hook(lambda *given: hidden.append(given[-1].last_hidden_state[:, -1:]))
        try:
            settings |= {"encoder_outputs": BaseModelOutput(states), "attention_mask": mask.long()}
            begin = torch.tensor(self.begin, device=self.device).expand(len(mask), -1)
            settings |= {"decoder_input_ids": begin, "max_new_tokens": longest, "logits_processor": [process]}
            written = self.bart.generate(**settings, return_dict_in_generate=True)
        finally:
            hook.remove()
        return written.sequences[:, len(self.begin) :], written.get("sequences_scores")

    def _next(self, log_p: Tensor, hidden: Tensor, inputs: Tensor, encoded: Passages) -> Tensor:
        # Log-probabilities of the next token (rows, V), from those of BART, its decoder's states (rows, 1, width) and
        # the tokens before (rows, 1); there are as many rows to a passage as to another.
        return log_p


class PointerGenerator(Bart):
    r"""BART whose next token is written from the vocabulary or copied from the passage (See et al. 2017, section 2.2).

    .. math:: p(w) &= g \, p_{vocab}(w) + (1 - g) \sum_{i : w_i = w} a_i \\
              a &= \mathrm{softmax}_i \left( h_i^\top W s / \sqrt{d} \right), \qquad
              g = \sigma \left( v^\top [s; \textstyle\sum_i a_i h_i; x] + b \right)

    with the decoder's state :math:`s`, the embedding :math:`x` of the token before, and the encoder's states
    :math:`h_i` of the passage's tokens :math:`w_i`; d is the width. The paper's attention is additive and is that of
    its decoder; here it is bilinear, beside the decoder's own heads. Trained in minutes, BART itself does not learn to
    copy.
    """

    def __init__(self, bart: nn.Module, tokenizer: WordPiece | BartTokenizer) -> None:
        super().__init__(bart, tokenizer)
        width = bart.config.d_model
        self.copy = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(3 * width, 1)

    def _pointed(self, hidden: Tensor, inputs: Tensor, encoded: Passages) -> tuple[Tensor, Tensor]:
        # Attention on the passages' tokens, (B, T, S), and the logit of g, (B, T).
        scores = self.copy(hidden) @ encoded.states.transpose(1, 2) * hidden.shape[-1] ** -0.5
        attention = scores.float().masked_fill(~encoded.text.inner[:, None, :], -torch.inf).softmax(dim=-1)
        context = attention.to(encoded.states.dtype) @ encoded.states
        return attention, self.gate(torch.cat([hidden, context, inputs], dim=-1))[..., 0].float()

    def _log_likelihoods(self, hidden, inputs, encoded, wanted, targets) -> Tensor:
        attention, gate = (part[wanted] for part in self._pointed(hidden, inputs, encoded))
        tokens = encoded.text.tokens[wanted.nonzero()[:, 0]]
        written = super()._log_likelihoods(hidden, inputs, encoded, wanted, targets)
        copied = (attention * (tokens == targets[:, None])).sum(dim=1).clamp_min(TINY).log()
        return torch.logaddexp(F.logsigmoid(gate) + written, F.logsigmoid(-gate) + copied)

    def _next(self, log_p, hidden, inputs, encoded) -> Tensor:
        shape = len(encoded.text.tokens), -1, hidden.shape[-1]  # the rows of a passage are its T places
        inputs = self.bart.model.decoder.embed_tokens(inputs)
        attention, gate = self._pointed(hidden.reshape(shape), inputs.reshape(shape), encoded)
        copied = (1 - gate.sigmoid())[..., None] * attention  # (B, T, S)
        tokens = encoded.text.tokens[:, None].expand_as(copied).flatten(0, 1)
        return log_p.exp().mul_(gate.sigmoid().view(-1, 1)).scatter_add_(1, tokens, copied.flatten(0, 1)).log_()


HEADS: dict[str, type[Bart]] = {"bart": Bart, "pointer": PointerGenerator}


@dataclass(frozen=True)
class GeneratorArchitecture:
    """What a generator is made of; no longer query than `query_length` is written."""

    head: str = "pointer"  # or "bart"
    layers: int = 2  # of the encoder, and of the decoder
    width: int = 192
    passage_length: int = 128  # tokens beyond it are cut off; the paper does not state it
    query_length: int = 32
    checkpoint: str = ""  # a folder or hub name of a BART to start from; BART-large in the paper, whose head is "bart"

    def __post_init__(self) -> None:
        require_one_of("head", self.head, HEADS)
        require_positive(self, "layers", "width", "passage_length", "query_length")

    def build(self, tokenizer: WordPiece | BartTokenizer, folder: Path | None = None) -> Bart:
        """Return the model, what is new of its weights drawn from torch's generator; `folder` is of a saved one."""
        from transformers import BartConfig

        kind, longest = HEADS[self.head], max(self.passage_length, self.query_length)
        if folder:
            model = kind.from_config(BartConfig.from_json_file(folder / CONFIG), tokenizer)
        elif self.checkpoint:
            model = kind.from_checkpoint(self.checkpoint, tokenizer)
        else:
            model = kind.from_scratch(tokenizer, self.layers, self.width, longest)
        most = model.bart.config.max_position_embeddings - 2
        require(longest <= most, f"texts of {longest} tokens are asked for; the model takes {most}")
        return model


class Generator(Trained):
    """A model that writes queries; the scores of its history are held-out log-likelihoods, the mean of a token."""

    architecture_class = GeneratorArchitecture
    model: Bart

    @classmethod
    def fresh(cls, architecture: GeneratorArchitecture, tokenizer: WordPiece | None, seed: int) -> Self:
        """Return a randomly initialized one, or a checkpoint as it is; `SettingError` if neither or both are given."""
        both = "a generator has the vocabulary that it is given or that of its checkpoint: give one of them"
        require((tokenizer is None) == bool(architecture.checkpoint), both)
        if tokenizer is None:
            tokenizer = BartTokenizer.load(checkpoints.folder(architecture.checkpoint) / "tokenizer.json")
        return super().fresh(architecture, tokenizer, seed)

    def take_embeddings(self, retriever: Retriever) -> None:
        """Begin with the token embeddings of a retriever, as long on the average as its own were."""
        wrong = "a generator begins with the embeddings of a Transformer, with layers or without"
        require(retriever.architecture.encoder == "transformer", wrong)
        own = self.model.bart.model.shared.weight
        given = retriever.model.query_encoder.bert.embeddings.word_embeddings.weight
        same = own.shape == given.shape and tokens_key(self.tokenizer) == tokens_key(retriever.tokenizer)
        sizes = f"{tuple(own.shape)} embeddings, the retriever {tuple(given.shape)}"
        require(same, f"a generator begins with embeddings of its own vocabulary and width: it has {sizes}")
        with torch.no_grad():
            own.copy_(given * (own.square().mean() / given.square().mean()).sqrt())

    def passages(self, texts: Iterable[str]) -> TokenTable:
        """Return passages as the model reads them."""
        return self.tokenizer.encode(texts, self.architecture.passage_length)


class Found(NamedTuple):
    """Queries of several passages; of one passage the likeliest comes first."""

    passages: np.ndarray  # (N,), rows
    queries: TokenTable  # N rows, without the token that ends them; a query of the greatest length has none
    log_likelihoods: np.ndarray  # (N,), float64, of the whole queries, their ends included


@dataclass(frozen=True)
class Decoding:
    """A way of decoding; `_write` of a subclass gives tokens of k queries to a passage and log-likelihoods, (B, k)."""

    @property
    def name(self) -> str:
        """Its name in records."""
        return type(self).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        return {"decoding": self.name, **asdict(self)}

    @torch.inference_mode()
    def decode(self, model: Bart, passages: TokenTable, keys: np.ndarray, longest: int) -> Found:
        """Write queries for passages, with a model in evaluation mode.

        The random numbers of each passage come from `keys`, uint64 of shape (B,); see `passage_keys`. A query is cut at
        `longest` tokens; none is empty.
        """
        tokens, scores = (part.cpu().numpy() for part in self._write(model, model.encode(passages), keys, longest))
        rows, places = np.nonzero(scores > IMPOSSIBLE)
        order = np.lexsort((-scores[rows, places], rows))
        rows, places = rows[order], places[order]
        queries = TokenTable.from_rows(row[~np.isin(row, (model.end, model.pad))] for row in tokens[rows, places])
        return Found(rows, queries, scores[rows, places].astype(np.float64))


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
