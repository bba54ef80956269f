r"""Losses, in all chapters that train: pure functions of a score matrix and a target mask.

Every loss takes `scores`, shape (B, N): the similarity, as a logit, of each of B queries to each of N documents; and
`targets`, int8 of the same shape: `POSITIVE`, `NEGATIVE` or `IGNORE` (a cell that takes no part, such as another
relevant document). It returns a scalar. A new loss is one decorated function, here or anywhere
(`retlib.core.registry`)::

    @register("margin", scaled=False)
    def margin(scores, targets): ...

With ``encodings=True`` it is called as ``loss(scores, targets, queries, documents)``, with the float32 encodings of
both sides, shapes (B, d) and (N, d), or (B * n, d) where each query has documents of its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from retlib.core.registry import Registry

POSITIVE, NEGATIVE, IGNORE = 1, 0, -1

# What a loss says of itself: whether it takes logits, with the learned scale, or similarities; one positive a row; the
# encodings of both sides, too; or scores for probabilities, so that the learned shift must start at a fitting one.
LOSSES = Registry("loss", scaled=True, one_positive=False, encodings=False, absolute=False)
register, get, names = LOSSES.register, LOSSES.get, LOSSES.names


@register("softmax", one_positive=True)
def softmax(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Sampled softmax over each row (Gillick 2018, section 2.1; Henderson et al. 2017).

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{s_{i,+}}}{\sum_j e^{s_{ij}}}

    Each row has exactly one positive. In-batch negatives are the documents of the batch: its size sets the difficulty.
    """
    ignored = targets == IGNORE
    if ignored.any():  # a pass over the scores that most batches need not pay for
        scores = scores.masked_fill(ignored, -torch.inf)
    return F.cross_entropy(scores, targets.argmax(dim=1))


@register("cross_entropy", absolute=True)
def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Logistic loss on every cell, averaged (Gillick 2018, section 2.1).

    .. math:: L = -\frac{1}{|C|} \sum_{(i,j) \in C} y_{ij} \log \sigma(s_{ij})
              + (1 - y_{ij}) \log (1 - \sigma(s_{ij}))

    where C are the cells that are not ignored. On in-batch negatives this is the paper's in-batch cross-entropy; on
    labelled pairs (one document a row, positive or negative) its standard pairwise cross-entropy.
    """
    each = F.binary_cross_entropy_with_logits(scores, (targets == POSITIVE).to(scores.dtype), reduction="none")
    counted = targets != IGNORE
    return (each * counted).sum() / counted.sum()


@register("triplet", scaled=False, one_positive=True)
def triplet(scores: Tensor, targets: Tensor, margin: float = 0.5) -> Tensor:
    r"""Hinge between the positive and the highest-scoring negative of the row.

    .. math:: L = \frac{1}{B} \sum_i \max(0,\; \delta - s_{i,+} + \max_{j \in -} s_{ij})

    with margin :math:`\delta = 0.5` (Gillick 2018, section 2.1; Wieting et al. 2015). Each row has one positive. The
    margin is in units of the cosine, so this loss is given similarities without the learned affine scale.
    """
    positive = scores.gather(1, targets.argmax(dim=1, keepdim=True)).squeeze(1)
    hardest = scores.masked_fill(targets != NEGATIVE, -torch.inf).amax(dim=1)
    return F.relu(margin - positive + hardest).mean()


@register("ranknet")
def ranknet(scores: Tensor, targets: Tensor) -> Tensor:
    r"""Logistic loss on the difference of each positive to each negative of its row (Zhan 2020, equation 1).

    .. math:: L = \frac{1}{B} \sum_i \frac{1}{|P_i|} \sum_{(j,k) \in P_i} \log (1 + e^{s_{ik} - s_{ij}})

    where :math:`P_i` are the pairs of a positive j and a negative k of row i. The paper does not state how pairs are
    averaged. A row without a pair contributes 0.
    """
    _, _, each = _pair_losses(scores, targets)
    return each.sum() / len(scores)


@register("lambdarank-mrr")
def lambdarank_mrr(scores: Tensor, targets: Tensor) -> Tensor:
    """LambdaRank whose measure M is the reciprocal rank of the row's first positive; see `lambdarank_ndcg`."""
    ranks, targets, own, each = _ranked_pairs(scores, targets)
    others = ranks.masked_fill((targets != POSITIVE) | (ranks == own), torch.inf)
    first = others.amin(dim=1, keepdim=True)  # of the row's other positives
    changes = (1 / torch.minimum(own, first) - 1 / torch.minimum(ranks, first)).abs()
    return (each * changes).sum() / len(scores)


@register("lambdarank-ndcg")
def lambdarank_ndcg(scores: Tensor, targets: Tensor) -> Tensor:
    r"""RankNet's pairs, each weighted by what swapping its two documents changes (Zhan 2020, equation 2).

    .. math:: L = \frac{1}{B} \sum_i \frac{1}{|P_i|} \sum_{(j,k) \in P_i}
              |\Delta M_i(j, k)| \log (1 + e^{s_{ik} - s_{ij}})

    where :math:`\Delta M_i(j, k)` is the change of a measure of row i, ranked by score, when j and k swap places. Here
    M is NDCG: a positive has gain 1, and rank r the discount :math:`1 / \log_2 (1 + r)`. The weights are constants for
    the gradient. Ignored cells are not ranked, and of equal scores the one further left comes first. The paper names no
    cut.
    """
    ranks, targets, own, each = _ranked_pairs(scores, targets)
    places = torch.arange(1, ranks.shape[1] + 1, device=ranks.device, dtype=ranks.dtype)
    own, ranks, places = (1 / torch.log2(1 + part) for part in (own, ranks, places))
    ideal = places.cumsum(dim=0)[(targets == POSITIVE).sum(dim=1) - 1][:, None]
    return (each * ((own - ranks).abs() / ideal)).sum() / len(scores)


def _pair_losses(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # Row and column of each of P positives, and its share of RankNet beside each cell: 0 unless that is a negative.
    # Only rows of positives are spread out: the B * N * N pairs of in-batch negatives would not fit.
    rows, columns = (targets == POSITIVE).nonzero(as_tuple=True)
    each = F.softplus(scores[rows] - scores[rows, columns][:, None])
    pairs = (targets == POSITIVE).sum(dim=1) * (targets == NEGATIVE).sum(dim=1)  # (B,)
    each = each / pairs[rows].clamp(min=1)[:, None]
    return rows, columns, torch.where(targets[rows] == NEGATIVE, each, 0.0)


def _ranked_pairs(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Of each of P positives the ranks of its row's cells, from 1, ignored ones last, their targets, (P, N), its own
    # rank, (P, 1), and its losses of `_pair_losses`.
    rows, columns, each = _pair_losses(scores, targets)
    order = scores.masked_fill(targets == IGNORE, -torch.inf).argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(dim=1).to(scores.dtype) + 1
    return ranks[rows], targets[rows], ranks[rows, columns][:, None], each
