"""The Transformer as an encoder: transformers' BERT over ragged token tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from retlib.core.errors import DataError, require, require_one_of
from retlib.data.text import TokenTable, WordPiece
from retlib.models import attention

POOLINGS = ("mean", "cls")
# What follows the linear layer of a head: nothing, a layer norm (Zhan 2020, section 5.2.2) or tanh (Liang 2020, 2.2).
HEADS = {"linear": lambda dimension: nn.Identity(), "normed": nn.LayerNorm, "tanh": lambda dimension: nn.Tanh()}

# Rows that are padded to one length together: smaller groups waste less padding, larger ones
# make fewer calls. For two layers of 128 on one core, 16 to 64 are equally fast.
GROUP = 32

# Places of the special units among the embeddings of a table.
PAD, CLS, SEP = 0, 1, 2


class Transformer(nn.Module):
    """BERT, a pooling and a linear head (Chang 2020, section 4.1).

    Parameters
    ----------
    bert : BertModel
        Without its pooler.
    wordpiece : WordPiece
        Of the token tables; gives the special units.
    dimension : int
        Size of an encoding.
    pooling : {"mean", "cls"}
        Mean of all hidden states of a row, or the state of [CLS], as in the paper. From
        scratch the mean learns several times faster.
    head : {"linear", "normed", "tanh"}
        The linear layer alone, or what follows it; see `HEADS`.

    Notes
    -----
    A row is encoded as [CLS] units [SEP]. Rows are encoded in groups of like length, each
    padded to its own longest row: the result is that of one padded batch, for about half of
    the work.
    """

    def __init__(
        self, bert: nn.Module, wordpiece: WordPiece, dimension: int, pooling: str = "mean", head: str = "linear"
    ) -> None:
        super().__init__()
        require_one_of("pooling", pooling, POOLINGS)
        require_one_of("head", head, HEADS)
        require(dimension > 0, f"dimension = {dimension} must be positive")
        size = bert.config.vocab_size
        wrong = f"the model has {size} units, its vocabulary {len(wordpiece)}: they do not belong together"
        require(size == len(wordpiece), wrong, DataError)
        attention.join(bert)
        self.bert, self.pooling = bert, pooling
        self.head = nn.Linear(bert.config.hidden_size, dimension)
        self.finish = HEADS[head](dimension)
        self._special = np.array([wordpiece.pad, wordpiece.cls, wordpiece.sep], dtype=np.int32)

    @classmethod
    def from_scratch(
        cls,
        wordpiece: WordPiece,
        layers: int,
        width: int,
        dimension: int,
        pooling: str = "mean",
        dropout: float = 0.0,
        head: str = "linear",
    ) -> Transformer:
        """A randomly initialized BERT with heads of 64 dimensions and a feed-forward layer of four times its width."""
        from transformers import BertConfig, BertModel

        require(layers > 0, f"layers = {layers} must be positive")
        require(width > 0 and width % 64 == 0, f"width = {width} must be a multiple of 64, the size of a head")
        config = BertConfig(
            vocab_size=len(wordpiece),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            pad_token_id=wordpiece.pad,
            # On a processor plain products are a fifth faster in training than the fused ones.
            attn_implementation="eager",
        )
        return cls(BertModel(config, add_pooling_layer=False), wordpiece, dimension, pooling, head)

    @classmethod
    def from_checkpoint(
        cls, name: str, wordpiece: WordPiece, dimension: int, pooling: str = "cls", head: str = "linear"
    ) -> Transformer:
        """A pre-trained BERT from a folder or by its hub name; only the head is new.

        Raises
        ------
        DataError
            If there is no such checkpoint, no network to fetch it, or if its vocabulary is of another size.
        """
        from transformers import BertModel

        try:
            bert = BertModel.from_pretrained(name, add_pooling_layer=False, attn_implementation="eager")
        except (OSError, ValueError, SafetensorError) as error:
            raise DataError(f"no BERT checkpoint {name!r}: no folder and no hub name of one ({error})") from error
        return cls(bert, wordpiece, dimension, pooling, head)

    @classmethod
    def from_config(
        cls, path: Path, wordpiece: WordPiece, dimension: int, pooling: str, head: str = "linear"
    ) -> Transformer:
        """A BERT as a file describes it, its weights to be loaded."""
        from transformers import BertConfig, BertModel

        config = BertConfig.from_json_file(path)
        config._attn_implementation = "eager"
        return cls(BertModel(config, add_pooling_layer=False), wordpiece, dimension, pooling, head)

    @property
    def dimension(self) -> int:
        """Size of an encoding."""
        return self.head.out_features

    @property
    def longest(self) -> int:
        """Most units of a row, [CLS] and [SEP] not counted."""
        return self.bert.config.max_position_embeddings - 2

    def forward(self, table: TokenTable) -> Tensor:
        """Encode the rows of a token table: shape (rows, dimension)."""
        if len(table) == 0:
            return self.head.weight.new_zeros((0, self.dimension))
        embedded = self._embedded(table)
        order, groups = _groups(table)
        pooled = torch.cat([self._pooled(*self._run(table, embedded, rows)) for rows in groups])  # (rows, width)
        return self.project(pooled)[self._back(order)]

    def project(self, pooled: Tensor) -> Tensor:
        """What the head makes of states that are pooled in some way: (..., width) to (..., dimension), float32."""
        # Scores are made of these: they stay exact where the layers ran in bfloat16.
        with torch.autocast(pooled.device.type, enabled=False):
            return self.finish(self.head(pooled.float()))

    def states(self, table: TokenTable) -> Tensor:
        """The hidden state of every unit of the table, in the order of its flat ids: shape (units, width)."""
        embedded = self._embedded(table)
        order, groups = _groups(table)
        parts = []
        for rows in groups:
            states, mask = self._run(table, embedded, rows)
            # The mask holds [CLS] and [SEP] too, the first and the last of each row.
            inner = mask.clone()
            inner[:, 0] = False
            inner[:, :-1] &= mask[:, 1:]
            inner[:, -1] = False
            parts.append(states[inner])
        places = TokenTable(np.arange(len(table.ids), dtype=np.int32), table.offsets).take(order).ids
        return torch.cat(parts)[self._back(places)]

    def _back(self, order: np.ndarray) -> Tensor:
        """The index that undoes an order."""
        return torch.from_numpy(np.argsort(order, kind="stable")).to(self.head.weight.device)

    def _embedded(self, table: TokenTable) -> Tensor:
        """Embeddings of the special units, then of all units of the table: shape (3 + units, width).

        Looked up once for all groups: the gradient of a look-up is as large as the vocabulary.
        """
        longest = int(table.lengths.max())
        require(longest <= self.longest, f"a text of {longest} units; the model takes {self.longest}", DataError)
        ids = torch.from_numpy(np.concatenate([self._special, table.ids]))
        embeddings = self.bert.get_input_embeddings()
        return embeddings(ids.to(self.head.weight.device))

    def _run(self, table: TokenTable, embedded: Tensor, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Hidden states of some rows, padded to the longest of them, and the mask of what is not padding."""
        lengths = table.lengths[rows][:, None]
        places = np.arange(lengths.max() + 2)[None, :]
        # [CLS] units [SEP] padding, as rows of `embedded`.
        units = table.offsets[rows][:, None] + places - 1 + len(self._special)
        units = np.where(places == lengths + 1, SEP, np.where(places > lengths, PAD, units))
        units[:, 0] = CLS
        on = embedded.device
        mask = torch.from_numpy(places < lengths + 2).to(on)
        inputs = embedded[torch.from_numpy(units).to(on)]  # (rows, T, width)
        # Rows of one length need no mask, which lets attention take its fastest path.
        whole = bool((lengths == lengths[0]).all())
        found = self.bert(inputs_embeds=inputs, attention_mask=None if whole else mask.long())
        return found.last_hidden_state, mask

    def _pooled(self, states: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "cls":
            return states[:, 0]
        weights = mask.to(states.dtype)[:, :, None]  # (rows, T, 1)
        return (states * weights).sum(1) / weights.sum(1)


class MaskedLanguageModel(nn.Module):
    """A Transformer with BERT's head for masked units, whose output weights are the embeddings (Devlin 2019).

    Parameters
    ----------
    encoder : Transformer
        Trained in place.
    """

    def __init__(self, encoder: Transformer) -> None:
        super().__init__()
        from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

        self.encoder = encoder
        self.transform = BertPredictionHeadTransform(encoder.bert.config)
        self.bias = nn.Parameter(torch.zeros(encoder.bert.config.vocab_size))

    def forward(self, table: TokenTable, places: np.ndarray) -> Tensor:
        """Logits of the units at some places of the table's flat ids: shape (places, vocabulary)."""
        states = self.encoder.states(table)
        chosen = states[torch.from_numpy(places).to(states.device)]  # (places, width)
        embeddings = self.encoder.bert.get_input_embeddings().weight
        return self.transform(chosen) @ embeddings.T + self.bias


def _groups(table: TokenTable) -> tuple[np.ndarray, list[np.ndarray]]:
    """The rows in the order of their lengths, and the same in groups."""
    order = np.argsort(table.lengths, kind="stable")
    return order, [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
