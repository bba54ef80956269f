"""Models that write a query for a passage: BART, and BART with a pointer over the passage.

Training asks for `log_likelihoods`, `retlib.models.decoding` for queries, which transformers' ``generate`` writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, WordPiece
from retlib.models.transformer import Framed, by_length, frame

# A probability below which a token counts as not in the passage: keeps the logarithm's gradient finite.
TINY = 1e-20

# From log-probabilities of the next token (rows, V) and the tokens so far (rows, t) to other ones (rows, V).
Choice = Callable[[Tensor, Tensor], Tensor]


class BartTokenizer:
    """The byte-pair tokenizer of a BART checkpoint, a folder or a hub name; `DataError` if there is none."""

    def __init__(self, name: str | Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise DataError(f"no tokenizer of a BART checkpoint {str(name)!r} ({error})") from error
        self.cls, self.sep = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        self.pad, self.mask = self._tokenizer.pad_token_id, self._tokenizer.mask_token_id
        self.special = tuple(self._tokenizer.all_special_ids)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode(self, texts: Iterable[str]) -> TokenTable:
        """Token ids of each text, without special tokens; a text without any becomes one unknown token."""
        texts = list(texts)
        found = self._tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return TokenTable.from_rows([row or [self._tokenizer.unk_token_id] for row in found])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._tokenizer.decode([int(i) for i in ids]).strip()

    def save(self, folder: Path) -> None:
        """Write the files that the class reads."""
        self._tokenizer.save_pretrained(folder)


def never_written(tokenizer: WordPiece | BartTokenizer) -> list[int]:
    """Ids that stand in no query: all special tokens but the one that ends it."""
    wordpiece = isinstance(tokenizer, WordPiece)
    special = [tokenizer.ids[token] for token in tokenizer.SPECIAL] if wordpiece else tokenizer.special
    return sorted({*special} - {tokenizer.sep})


class Passages(NamedTuple):
    """Encoded passages: their tokens, and hidden states, float, shape (B, S, width)."""

    text: Framed
    states: Tensor


class Seq2Seq(nn.Module, ABC):
    """A sequence-to-sequence model over BART's layers; the subclass says how a token's probability is made.

    The tokenizer is that of the token tables. It raises `DataError` if the model has fewer tokens than its vocabulary.
    """

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
        self.never = [*never_written(tokenizer), *range(len(tokenizer), size)]
        # A checkpoint's own asks for four beams, no repeated trigrams and more.
        bart.generation_config = GenerationConfig(
            eos_token_id=self.end, pad_token_id=self.pad, decoder_start_token_id=start
        )

    @classmethod
    def from_scratch(cls, tokenizer: WordPiece | BartTokenizer, layers: int, width: int, longest: int) -> Self:
        """Return a randomly initialized model; encoder and decoder have `layers` each.

        Heads have 64 dimensions, feed-forward layers four times the width, and there is no dropout. `longest` is the
        most tokens of a passage or query.
        """
        from transformers import BartConfig

        require(layers > 0, f"layers = {layers} must be positive")
        require(width > 0 and width % 64 == 0, f"width = {width} must be a multiple of 64, the size of a head")
        sides = {f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (
            ("layers", layers), ("attention_heads", width // 64), ("ffn_dim", 4 * width))}  # fmt: skip
        special = {"pad": tokenizer.pad, "bos": tokenizer.cls, "eos": tokenizer.sep, "decoder_start": tokenizer.cls}
        config = BartConfig(
            vocab_size=len(tokenizer),
            d_model=width,
            dropout=0.0,
            max_position_embeddings=longest + 2,
            forced_eos_token_id=None,
            **sides,
            **{f"{name}_token_id": value for name, value in special.items()},
        )
        return cls(_made(config), tokenizer)

    @classmethod
    def from_checkpoint(cls, name: str, tokenizer: WordPiece | BartTokenizer) -> Self:
        """Return a pre-trained BART from a folder or by its hub name.

        It raises `DataError` if there is none, no network to fetch it, or if its vocabulary is larger than it.
        """
        from transformers import BartForConditionalGeneration

        try:
            bart = BartForConditionalGeneration.from_pretrained(name, attn_implementation="eager", use_safetensors=True)
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"no BART checkpoint {name!r}: no folder and no hub name of one ({error})") from error
        return cls(bart, tokenizer)

    @classmethod
    def from_config(cls, path: Path, tokenizer: WordPiece | BartTokenizer) -> Self:
        """A BART as a file describes it, its weights to be loaded."""
        from transformers import BartConfig

        return cls(_made(BartConfig.from_json_file(path)), tokenizer)

    @property
    def longest(self) -> int:
        """Most tokens of a passage or query, without those that open and end it."""
        return self.bart.config.max_position_embeddings - 2

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.bart.model.shared.weight.device

    def encode(self, passages: TokenTable) -> Passages:
        """Encode passages; `DataError` if one is longer than the model takes."""
        longest = int(passages.lengths.max(initial=0))
        require(longest <= self.longest, f"a passage of {longest} tokens; the model takes {self.longest}", DataError)
        text = frame(passages, self.pad, self._open, self.end, self.device)
        found = self.bart.model.encoder(input_ids=text.tokens, attention_mask=text.mask.long())
        return Passages(text, found.last_hidden_state)

    # --- training ----------------------------------------------------------------------------------

    def log_likelihoods(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        r"""Return each query's log-likelihood, :math:`\sum_t \log p(w_t \mid w_{<t}, passage)`, its end included.

        Its shape is (B,). It is computed in groups of like length, each padded to its own longest row.
        """
        groups, back = by_length(passages)
        return torch.cat([self._group(passages.take(rows), queries.take(rows)) for rows in groups])[back]

    def _group(self, passages: TokenTable, queries: TokenTable) -> Tensor:
        encoded, written = self.encode(passages), frame(queries, self.pad, self._open, self.end, self.device)
        targets, mask = written.tokens[:, 1:], written.mask[:, 1:]  # (B, T)
        first = torch.tensor(self.begin[:-1], dtype=torch.int64, device=self.device).expand(len(targets), -1)
        embedded = self.bart.model.decoder.embed_tokens(torch.cat([first, written.tokens[:, :-1]], dim=1))
        hidden = self.bart.model.decoder(
            inputs_embeds=embedded,
            encoder_hidden_states=encoded.states,
            encoder_attention_mask=encoded.text.mask.long(),
            use_cache=False,
        ).last_hidden_state
        own = slice(len(self.begin) - 1, None)  # from the token on after which the query begins
        # The vocabulary is the dearest part: padding has none of it.
        found = self._log_likelihoods(hidden[:, own], embedded[:, own], encoded, mask, targets[mask])  # (tokens,)
        return found.new_zeros(len(targets)).index_add(0, mask.nonzero()[:, 0], found)

    @abstractmethod
    def _log_likelihoods(
        self, hidden: Tensor, inputs: Tensor, encoded: Passages, wanted: Tensor, targets: Tensor
    ) -> Tensor:
        """Log-probability of each target, (wanted,), after hidden states and input embeddings (B, T, width).

        `wanted` (B, T) tells the places that have a target.
        """

    def _logits(self, hidden: Tensor) -> Tensor:
        return (self.bart.lm_head(hidden) + self.bart.final_logits_bias[0]).float()

    # --- generation --------------------------------------------------------------------------------

    @torch.inference_mode()
    def generate(
        self, encoded: Passages, longest: int, choose: Choice | None = None, copies: int = 1, **settings: object
    ) -> tuple[Tensor, Tensor | None]:
        """Let transformers write queries, none of them empty; return their tokens, and the scores of beams, (rows,).

        A query is cut at `longest` tokens. The `copies` queries of a passage know nothing of each other. Tokens are
        int64, (rows, at most longest), passage by passage; behind the token that ends a query there is padding.
        `settings` are those of transformers' ``generate``.
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
            found = self.bart.generate(
                encoder_outputs=BaseModelOutput(states),
                attention_mask=mask.long(),
                decoder_input_ids=torch.tensor(self.begin, device=self.device).expand(len(mask), -1),
                max_new_tokens=longest,
                logits_processor=[process],
                return_dict_in_generate=True,
                **settings,
            )
        finally:
            hook.remove()
        return found.sequences[:, len(self.begin) :], found.get("sequences_scores")

    def _next(self, log_p: Tensor, hidden: Tensor, inputs: Tensor, encoded: Passages) -> Tensor:
        """Log-probabilities of the next token (rows, V), from those of BART.

        `hidden` (rows, 1, width) are the decoder's states, `inputs` (rows, 1) the tokens before; there are as many
        rows to a passage as to another.
        """
        return log_p


class Bart(Seq2Seq):
    """BART as it is (Lewis et al. 2019): the next token comes from the vocabulary."""

    def _log_likelihoods(self, hidden, inputs, encoded, wanted, targets) -> Tensor:
        return -F.cross_entropy(self._logits(hidden[wanted]), targets, reduction="none")


class PointerGenerator(Seq2Seq):
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
        """Attention on the passages' tokens, (B, T, S), and the logit of g, (B, T)."""
        scores = self.copy(hidden) @ encoded.states.transpose(1, 2) * hidden.shape[-1] ** -0.5
        attention = scores.float().masked_fill(~encoded.text.inner[:, None, :], -torch.inf).softmax(dim=-1)
        context = attention.to(encoded.states.dtype) @ encoded.states
        return attention, self.gate(torch.cat([hidden, context, inputs], dim=-1))[..., 0].float()

    def _log_likelihoods(self, hidden, inputs, encoded, wanted, targets) -> Tensor:
        attention, gate = (part[wanted] for part in self._pointed(hidden, inputs, encoded))
        tokens = encoded.text.tokens[wanted.nonzero()[:, 0]]
        written = -F.cross_entropy(self._logits(hidden[wanted]), targets, reduction="none")
        copied = (attention * (tokens == targets[:, None])).sum(dim=1).clamp_min(TINY).log()
        return torch.logaddexp(F.logsigmoid(gate) + written, F.logsigmoid(-gate) + copied)

    def _next(self, log_p, hidden, inputs, encoded) -> Tensor:
        shape = len(encoded.text.tokens), -1, hidden.shape[-1]  # the rows of a passage are its T places
        inputs = self.bart.model.decoder.embed_tokens(inputs)
        attention, gate = self._pointed(hidden.reshape(shape), inputs.reshape(shape), encoded)
        copied = (1 - gate.sigmoid())[..., None] * attention  # (B, T, S)
        tokens = encoded.text.tokens[:, None].expand_as(copied).flatten(0, 1)
        return log_p.exp().mul_(gate.sigmoid().view(-1, 1)).scatter_add_(1, tokens, copied.flatten(0, 1)).log_()


HEADS: dict[str, type[Seq2Seq]] = {"bart": Bart, "pointer": PointerGenerator}


def _made(config) -> nn.Module:
    from transformers import BartForConditionalGeneration

    config._attn_implementation = "eager"  # faster than the fused products on a processor, for small models
    return BartForConditionalGeneration(config)
