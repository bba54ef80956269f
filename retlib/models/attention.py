"""BERT's self-attention with one matrix product for queries, keys and values."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def joint(self: nn.Module, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: object):
    """Attend, with the weights of transformers' ``BertSelfAttention``: (rows, T, width) to (rows, T, width).

    Three thin products are one wide one, the scale is applied to the queries, which are smaller than
    the scores, and the mask is added in place: about a tenth less of a small model's time on a
    processor. The attention weights are not given back.
    """
    rows, length, width = hidden_states.shape
    parts = self.query, self.key, self.value
    weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    together = F.linear(hidden_states, weight, bias).view(rows, length, 3, self.num_attention_heads, -1)
    query, key, value = together.permute(2, 0, 3, 1, 4)  # (rows, heads, T, head) each
    scores = (query * self.scaling) @ key.transpose(2, 3)
    if attention_mask is not None:
        scores += attention_mask
    attention = F.dropout(scores.softmax(dim=-1), self.dropout.p, self.training)
    return (attention @ value).transpose(1, 2).reshape(rows, length, width), None


@cache
def _class() -> type[nn.Module]:
    # Made when it is needed: transformers takes seconds to import.
    from transformers.models.bert.modeling_bert import BertSelfAttention

    return type("JointSelfAttention", (BertSelfAttention,), {"forward": joint})


def join(bert: nn.Module) -> None:
    """Give every layer of a BERT this attention, in place."""
    for layer in bert.encoder.layer:
        layer.attention.self.__class__ = _class()
