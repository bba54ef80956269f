"""The Transformer as an encoder, in Parts II to V: transformers' BERT over ragged token tables."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, WordPiece
from retlib.models import checkpoints
from retlib.models.encoders import mean_of_tokens, thinned

# The mean of the text's own states; of all of them, those of [CLS] and [SEP] too; or the state of [CLS].
POOLINGS = ("mean", "all", "cls")
# Linear layers behind the pooling: one, or none.
HEADS = ("linear", "none")

# Rows that are padded to one length together: smaller groups waste less padding, larger ones
# make fewer calls. For two layers of 128 on one core, 16 to 64 are equally fast.
GROUP = 32


class Framed(NamedTuple):
    """Rows of a token table as BERT and BART read them: three tensors of shape (rows, T).

    `tokens`, int64, have each row between the tokens that open and end it; then padding. `mask` is True where there is
    no padding, `inner` at the tokens of the table alone.
    """

    tokens: Tensor
    mask: Tensor
    inner: Tensor


def frame(table: TokenTable, pad: int, opening: int, end: int, on: torch.device) -> Framed:
    """Return the rows of a table between two tokens, padded to the longest of them."""
    lengths = table.lengths[:, None]
    places = np.arange(int(lengths.max(initial=0)) + 2)
    inner = (places > 0) & (places <= lengths)
    tokens = np.full(inner.shape, pad, dtype=np.int64)
    tokens[:, 0], tokens[places == lengths + 1], tokens[inner] = opening, end, table.ids
    return Framed(*(torch.from_numpy(part).to(on) for part in (tokens, places < lengths + 2, inner)))


class Transformer(nn.Module):
    """BERT, a pooling and a linear head (Chang 2020, section 4.1); a row is encoded as [CLS] tokens [SEP].

    `bert` comes without its pooler. From scratch the mean learns several times faster than [CLS], which is the paper's.
    With the head "none", hidden states are encodings. Without layers it is a bag of words: the mean of layer-normed
    embeddings, on which `grow` puts layers.
    """

    def __init__(
        self, bert: nn.Module, wordpiece: WordPiece, dimension: int, pooling: str = "mean", head: str = "linear"
    ) -> None:
        super().__init__()
        size, width = bert.config.vocab_size, bert.config.hidden_size
        wrong = f"dimension = {dimension}: without a head it is that of the hidden states, {width}"
        require(head != "none" or dimension == width, wrong)
        wrong = f"the model has {size} tokens, its vocabulary {len(wordpiece)}: they do not belong together"
        require(size == len(wordpiece), wrong, DataError)
        wrong = "without layers only the mean says anything of a text: pooling = 'mean'"
        require(bert.config.num_hidden_layers > 0 or pooling == "mean", wrong)
        self.bert, self.pooling = bert, pooling
        self.token_dropout = 0.0
        self.head = nn.Identity() if head == "none" else nn.Linear(width, dimension)
        self._special = (wordpiece.pad, wordpiece.cls, wordpiece.sep)

    @classmethod
    def from_scratch(cls, wordpiece: WordPiece, layers: int, width: int, *given: Any, **options: Any) -> Self:
        """Return a randomly initialized BERT; heads have 64 dimensions, feed-forward layers four times its width."""
        from transformers import BertConfig

        require(width > 0 and width % 64 == 0, f"width = {width} must be a multiple of 64, the size of a head")
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64}
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        tokens = {"vocab_size": len(wordpiece), "pad_token_id": wordpiece.pad}
        config = BertConfig(**sizes, intermediate_size=4 * width, **dropout, **tokens)
        encoder = cls.from_config(config, wordpiece, *given, **options)
        if layers == 0:  # what only layers can use begins where it adds nothing
            nn.init.zeros_(encoder.bert.embeddings.position_embeddings.weight)
            nn.init.zeros_(encoder.bert.embeddings.token_type_embeddings.weight)
        return encoder

    @classmethod
    def from_config(cls, config: Any, *given: Any, **options: Any) -> Self:
        """Return a randomly initialized BERT as its configuration describes it; else the arguments of the class."""
        from transformers import BertModel

        # On a processor plain products are a fifth faster in training than the fused ones.
        config._attn_implementation = "eager"
        return cls(BertModel(config, add_pooling_layer=False), *given, **options)

    @classmethod
    def from_checkpoint(cls, name: str, wordpiece: WordPiece, dimension: int, pooling: str, head: str) -> Self:
        """Return a pre-trained BERT, found by `retlib.models.checkpoints.folder`; a head that it lacks is new."""
        from transformers import BertModel, logging

        place, verbosity = checkpoints.folder(name), logging.get_verbosity()
        how = {"add_pooling_layer": False, "attn_implementation": "eager", "output_loading_info": True}
        logging.set_verbosity_error()  # of weights that are not used here, such as its pooler's
        try:
            bert, report = BertModel.from_pretrained(place, **how)
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"no checkpoint {name!r}: {place} has none ({error})") from error
        finally:
            logging.set_verbosity(verbosity)
        missing = sorted(report["missing_keys"])
        require(not missing, f"no checkpoint {name!r}: {place} lacks {missing[:3]}", DataError)
        encoder, own = cls(bert, wordpiece, dimension, pooling, head), checkpoints.head(place)
        if head == "linear" and own:
            weights = {part.removeprefix("linear."): weight for part, weight in load_file(own).items()}
            wrong = f"dimension = {dimension}: the head of checkpoint {name!r} gives {len(weights['weight'])}"
            require(len(weights["weight"]) == dimension, wrong, DataError)
            encoder.head.load_state_dict(weights)
        return encoder

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.bert.get_input_embeddings().weight.device

    @property
    def longest(self) -> int:
        """The most tokens of a row, [CLS] and [SEP] not counted."""
        return self.bert.config.max_position_embeddings - 2

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return self.bert.config.num_hidden_layers

    def grow(self, layers: int) -> None:
        """Put layers on top, up to so many, that change nothing until they train (stacking: Gong et al. 2019).

        Both products that end in the stream of states begin at zero, and the last norm has the gain and shift that the
        one before had. It raises `SettingError` if there are more layers already.
        """
        from transformers.models.bert.modeling_bert import BertLayer

        require(layers >= self.layers, f"layers = {layers}: the encoder has {self.layers} already")
        for place in range(self.layers, layers):
            layer = BertLayer(self.bert.config, layer_idx=place)
            layer.apply(self.bert._init_weights)
            for product in (layer.attention.output.dense, layer.output.dense):
                nn.init.zeros_(product.weight)
            if place > 0:
                last = self.bert.encoder.layer[-1].output.LayerNorm
                layer.output.LayerNorm.load_state_dict(last.state_dict())
                last.reset_parameters()
            self.bert.encoder.layer.append(layer)
        self.bert.config.num_hidden_layers = layers
        self.bert.to(self.device)

    def forward(self, table: TokenTable) -> Tensor:
        """Encode the rows of a token table: shape (rows, dimension)."""
        table = thinned(self, table)
        if self.layers == 0:
            embeddings = self.bert.get_input_embeddings()
            # Without its own gain and shift: the linear head has them, and layers that grow need them away.
            norm = nn.LayerNorm(embeddings.embedding_dim, self.bert.config.layer_norm_eps, elementwise_affine=False)
            return self.project(mean_of_tokens(table, lambda ids: norm(embeddings(ids)), self.device))
        groups, back = by_length(table)
        pooled = torch.cat([self._pooled(*group) for group in self._run(table, groups)])  # (rows, width)
        return self.project(pooled)[back]

    def project(self, pooled: Tensor) -> Tensor:
        """Return the head's float32 encodings of pooled states: (..., width) to (..., dimension)."""
        # Scores are made of these: they stay exact where the layers ran in bfloat16.
        with torch.autocast(pooled.device.type, enabled=False):
            return self.head(pooled.float())

    def states(self, table: TokenTable) -> Tensor:
        """Return the hidden state of every token of the table, in the order of its flat ids: (tokens, width)."""
        groups, _ = by_length(table)
        states = torch.cat([hidden[text.inner] for hidden, text in self._run(table, groups)])
        every = TokenTable(np.arange(len(table.ids), dtype=np.int32), table.offsets)
        places = every.take(np.concatenate(groups)).ids
        return states[torch.from_numpy(np.argsort(places)).to(states.device)]

    def _run(self, table: TokenTable, groups: list[np.ndarray]) -> Iterator[tuple[Tensor, Framed]]:
        # Hidden states of each group of rows, padded to the longest of them: (rows, T, width).
        longest = int(table.lengths.max())
        require(longest <= self.longest, f"a text of {longest} tokens; the model takes {self.longest}", DataError)
        texts = [frame(table.take(rows), *self._special, self.device) for rows in groups]
        # Looked up once for all groups: the gradient of a look-up is as large as the vocabulary.
        embedded = self.bert.get_input_embeddings()(torch.cat([text.tokens.flatten() for text in texts]))
        parts = embedded.split([text.tokens.numel() for text in texts])
        for text, rows, inputs in zip(texts, groups, parts, strict=True):
            # Rows of one length need no mask, which lets attention take its fastest path.
            mask = None if np.ptp(table.lengths[rows]) == 0 else text.mask.long()
            inputs = inputs.view(*text.tokens.shape, -1)
            yield self.bert(inputs_embeds=inputs, attention_mask=mask).last_hidden_state, text

    def _pooled(self, states: Tensor, text: Framed) -> Tensor:
        if self.pooling == "cls":
            return states[:, 0]
        # The tokens of the text alone; of an empty text nothing, as an empty bag has.
        weights = (text.mask if self.pooling == "all" else text.inner).to(states.dtype)[:, :, None]  # (rows, T, 1)
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class MaskedLanguageModel(nn.Module):
    """A Transformer, trained in place, with BERT's head for masked tokens (Devlin 2019).

    Its output weights begin as the embeddings and are others once it trains: Adam would move those of rare tokens,
    which are never asked for, in one direction, until their embeddings are one (Gao et al. 2019).
    """

    def __init__(self, encoder: Transformer) -> None:
        super().__init__()
        from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

        self.encoder = encoder
        self.transform = BertPredictionHeadTransform(encoder.bert.config)
        embeddings = encoder.bert.get_input_embeddings().weight
        self.output = nn.Linear(embeddings.shape[1], embeddings.shape[0])
        self.output.weight.data.copy_(embeddings.detach())
        nn.init.zeros_(self.output.bias)

    def forward(self, table: TokenTable, places: np.ndarray) -> Tensor:
        """Return logits of the tokens at some places of the table's flat ids: shape (places, vocabulary)."""
        states = self.encoder.states(table)
        chosen = states[torch.from_numpy(places).to(states.device)]  # (places, width)
        return self.output(self.transform(chosen))


def by_length(table: TokenTable) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the rows of a table in groups of like length, and the index that undoes their order."""
    order = np.argsort(table.lengths, kind="stable")
    groups = [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
    return groups, np.argsort(order)
