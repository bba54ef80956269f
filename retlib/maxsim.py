"""The similarity of two texts as sets of units, each with a vector of its own (Khattab and Zaharia 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from retlib.text import TokenTable
from retlib.transformer import Transformer


def vectors(encoder: Transformer, states: Tensor) -> Tensor:
    """What the linear layer of an encoder makes of hidden states, of unit length: (..., width) to (..., d), float32."""
    # Scores are made of these: they stay exact where the layers ran in bfloat16.
    with torch.autocast(states.device.type, enabled=False):
        return F.normalize(encoder.head(states.float()), dim=-1)


def score(queries: Tensor, asked: TokenTable, documents: Tensor, found: TokenTable) -> Tensor:
    r"""Score B queries against B * n documents, n to each: shape (B, n).

    .. math:: s(q, d) = \sum_i \max_j \; \hat{q}_i \cdot \hat{d}_j

    over the units i of the query and j of the document.

    Parameters
    ----------
    queries, documents : tensors, shape (units, d)
        Vectors of unit length of all units, one text after the other.
    asked, found : TokenTable
        B and B * n rows: which units are whose. A document without any is as unlike as can be: every unit of
        the query counts -1.
    """
    left, is_asked = _padded(queries, asked)  # (B, S, d), (B, S)
    right, is_found = _padded(documents, found)  # (B * n, T, d), (B * n, T)
    right, is_found = (part.view(len(asked), -1, *part.shape[1:]) for part in (right, is_found))
    with torch.autocast(right.device.type, enabled=False):
        products = torch.einsum("bsd,bntd->bnst", left, right)
    best = products.masked_fill(~is_found[:, :, None], -1.0).amax(dim=-1)  # (B, n, S)
    return (best * is_asked[:, None]).sum(dim=-1)


def _padded(units: Tensor, table: TokenTable) -> tuple[Tensor, Tensor]:
    """The vectors of each row, filled up with zeros, (rows, longest, d); and where there are some, (rows, longest)."""
    lengths = torch.from_numpy(table.lengths).to(units.device)
    longest = max(1, int(table.lengths.max(initial=0)))
    mask = torch.arange(longest, device=units.device) < lengths[:, None]
    padded = units.new_zeros(*mask.shape, units.shape[-1])
    padded[mask] = units
    return padded, mask
