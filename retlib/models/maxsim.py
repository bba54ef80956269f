"""The similarity of two texts as sets of units, each with a vector of its own (Khattab and Zaharia 2020)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from retlib.models.transformer import Transformer

# Of a unit's vector; 128 in the paper, which tries 24 to 128.
DIMENSION = 32


def vectors(encoder: Transformer, states: Tensor) -> Tensor:
    """Vectors of unit length: what an encoder's head makes of hidden states, (..., width) to (..., d), float32."""
    return F.normalize(encoder.project(states), dim=-1)


def score(query_units: Tensor, asked: np.ndarray, document_units: Tensor, found: np.ndarray) -> Tensor:
    r"""Score B queries against B * n documents, n to each: shape (B, n).

    .. math:: s(q, d) = \sum_i \max_j \; \hat{q}_i \cdot \hat{d}_j

    over the units i of the query and j of the document.

    Parameters
    ----------
    query_units, document_units : tensors, shape (units, d)
        Vectors of unit length of all units, one text after the other.
    asked, found : integer arrays, shapes (B,) and (B * n,)
        How many units each text has. A document without any is as unlike as can be: every unit of the query
        counts -1.
    """
    left, is_asked = _padded(query_units, asked)  # (B, S, d), (B, S)
    right, is_found = _padded(document_units, found)  # (B * n, T, d), (B * n, T)
    right, is_found = (part.view(len(asked), -1, *part.shape[1:]) for part in (right, is_found))
    # What ranks stays exact where the layers ran in bfloat16.
    with torch.autocast(right.device.type, enabled=False):
        products = torch.einsum("bsd,bntd->bnst", left, right)
    best = products.masked_fill(~is_found[:, :, None], -1.0).amax(dim=-1)  # (B, n, S)
    return (best * is_asked[:, None]).sum(dim=-1)


def _padded(units: Tensor, lengths: np.ndarray) -> tuple[Tensor, Tensor]:
    """The vectors of each text, filled up with zeros, (rows, longest, d); and where there are some, (rows, longest)."""
    places = torch.arange(max(1, int(lengths.max(initial=0))), device=units.device)
    mask = places < torch.from_numpy(lengths).to(units.device)[:, None]
    padded = units.new_zeros(*mask.shape, units.shape[-1])
    padded[mask] = units
    return padded, mask
