r"""Losses: pure functions of a score matrix and a target mask.

Every loss takes `scores`, shape (B, N): the similarity, as a logit, of each of B queries
to each of N documents; and `targets`, int8 of the same shape: `POSITIVE`, `NEGATIVE` or
`IGNORE` (a cell that takes no part, for instance a document that is relevant as well).
It returns a scalar. A new loss is one decorated function.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from retlib.errors import require, require_one_of

POSITIVE, NEGATIVE, IGNORE = 1, 0, -1

Loss = Callable[[Tensor, Tensor], Tensor]
_LOSSES: dict[str, Loss] = {}


def register(name: str) -> Callable[[Loss], Loss]:
    """Make a loss available under `name`."""

    def add(loss: Loss) -> Loss:
        _LOSSES[name] = loss
        return loss

    return add


def names() -> list[str]:
    """The names of all losses."""
    return sorted(_LOSSES)


def get(name: str) -> Loss:
    """The loss of that name; `SettingError` lists the valid ones."""
    require_one_of("loss", name, _LOSSES)
    return _LOSSES[name]


def _check(scores: Tensor, targets: Tensor) -> None:
    require(
        scores.shape == targets.shape and scores.dim() == 2,
        f"scores {tuple(scores.shape)} and targets {tuple(targets.shape)} must both have shape (B, N)",
    )


@register("softmax")
def softmax(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Sampled softmax over each row (Gillick 2018, section 2.1; Henderson et al. 2017).

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{s_{i,+}}}{\sum_j e^{s_{ij}}}

    Each row has exactly one positive. With in-batch negatives the sum runs over the
    documents of the batch, so the batch size sets the difficulty.
    """
    _check(scores, targets)
    ignored = targets == IGNORE
    if ignored.any():  # a pass over the scores that most batches need not pay for
        scores = scores.masked_fill(ignored, -torch.inf)
    return F.cross_entropy(scores, targets.argmax(dim=1))


@register("cross_entropy")
def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Logistic loss on every cell, averaged (Gillick 2018, section 2.1).

    .. math:: L = -\frac{1}{|C|} \sum_{(i,j) \in C} y_{ij} \log \sigma(s_{ij})
              + (1 - y_{ij}) \log (1 - \sigma(s_{ij}))

    where C are the cells that are not ignored. On in-batch negatives this is the paper's
    in-batch cross-entropy; on labelled pairs (one document a row, positive or negative)
    its standard pairwise cross-entropy.
    """
    _check(scores, targets)
    each = F.binary_cross_entropy_with_logits(scores, (targets == POSITIVE).to(scores.dtype), reduction="none")
    counted = targets != IGNORE
    return (each * counted).sum() / counted.sum()


@register("triplet")
def triplet(scores: Tensor, targets: Tensor, margin: float = 0.5) -> Tensor:
    r"""Hinge between the positive and the highest-scoring negative of the row.

    .. math:: L = \frac{1}{B} \sum_i \max(0,\; \delta - s_{i,+} + \max_{j \in -} s_{ij})

    with margin :math:`\delta = 0.5` (Gillick 2018, section 2.1; Wieting et al. 2015). Each
    row has exactly one positive. The margin is in units of the cosine, so this loss is
    given similarities without the learned affine scale.
    """
    _check(scores, targets)
    positive = scores.gather(1, targets.argmax(dim=1, keepdim=True)).squeeze(1)
    hardest = scores.masked_fill(targets != NEGATIVE, -torch.inf).amax(dim=1)
    return F.relu(margin - positive + hardest).mean()
