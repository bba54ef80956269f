"""The losses against numbers worked by hand, a slow reference, and numerical gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib.training import losses
from retlib.training.losses import IGNORE, NEGATIVE, POSITIVE

# Two queries, three documents; the third cell of the first row takes no part where it is ignored.
SCORES = torch.tensor([[1.0, 0.0, 2.0], [0.5, -1.0, 0.25]], dtype=torch.float64)
TARGETS = torch.tensor([[POSITIVE, NEGATIVE, NEGATIVE], [NEGATIVE, POSITIVE, NEGATIVE]], dtype=torch.int8)
MASKED = torch.tensor([[POSITIVE, NEGATIVE, IGNORE], [NEGATIVE, POSITIVE, NEGATIVE]], dtype=torch.int8)


def test_what_each_loss_is_called_with():
    every = {name: losses.get(name) for name in SLOW}
    facts = {"scaled": set(SLOW) - {"triplet"}, "one_positive": {"softmax", "triplet"}, "encodings": set()}
    for fact, names in {**facts, "absolute": {"cross_entropy"}}.items():
        assert {name for name, loss in every.items() if getattr(loss, fact)} == names


def slow_softmax(scores, targets):
    """Row by row and cell by cell, in Python floats."""
    total = 0.0
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        counted = [score for score, mark in zip(row, marks, strict=True) if mark != IGNORE]
        total -= row[marks.index(POSITIVE)] - math.log(sum(math.exp(score) for score in counted))
    return total / len(scores)


def slow_cross_entropy(scores, targets):
    """The mean over the cells that count."""
    each = []
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        for score, mark in zip(row, marks, strict=True):
            chance = 1 / (1 + math.exp(-score))
            if mark != IGNORE:
                each.append(-math.log(chance if mark == POSITIVE else 1 - chance))
    return sum(each) / len(each)


def slow_triplet(scores, targets, margin=0.5):
    """The hinge against every negative; the hardest one is the largest."""
    total = 0.0
    for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
        positive = row[marks.index(POSITIVE)]
        hinges = [margin - positive + s for s, mark in zip(row, marks, strict=True) if mark == NEGATIVE]
        total += max([0.0, *hinges])
    return total / len(scores)


def reciprocal_rank(marks):
    return max((1 / rank for rank, mark in enumerate(marks, start=1) if mark == POSITIVE), default=0.0)


def ndcg(marks):
    def dcg(row):
        return sum(1 / math.log2(1 + rank) for rank, mark in enumerate(row, start=1) if mark == POSITIVE)

    return dcg(marks) / dcg(sorted(marks, reverse=True))


def change(measure, row, marks, positive, negative):
    """What a measure of the ranked row changes when two documents swap places, measured before and after."""
    order = sorted((j for j, mark in enumerate(marks) if mark != IGNORE), key=lambda j: -row[j])
    swap = {positive: negative, negative: positive}
    before, after = ([marks[j] for j in found] for found in (order, [swap.get(j, j) for j in order]))
    return abs(measure(after) - measure(before))


def slow_pairwise(measure=None):
    """The mean over rows of the mean over pairs of the RankNet loss, weighted where there is a measure."""

    def loss(scores, targets):
        total = 0.0
        for row, marks in zip(scores.tolist(), targets.tolist(), strict=True):
            pairs = [(j, k) for j, p in enumerate(marks) for k, n in enumerate(marks) if (p, n) == (POSITIVE, NEGATIVE)]
            for j, k in pairs:
                weight = change(measure, row, marks, j, k) if measure else 1.0
                total += weight * math.log(1 + math.exp(row[k] - row[j])) / len(pairs)
        return total / len(scores)

    return loss


SLOW = {
    "softmax": slow_softmax,
    "cross_entropy": slow_cross_entropy,
    "triplet": slow_triplet,
    "ranknet": slow_pairwise(),
    "lambdarank-mrr": slow_pairwise(reciprocal_rank),
    "lambdarank-ndcg": slow_pairwise(ndcg),
}
PAIRWISE = ("ranknet", "lambdarank-mrr", "lambdarank-ndcg")


def plus(x):
    return math.log1p(math.exp(x))


def test_softmax_by_hand():
    first = math.log(math.e + 1 + math.e**2) - 1
    second = math.log(math.e**0.5 + math.e**-1 + math.e**0.25) + 1
    assert losses.softmax(SCORES, TARGETS).item() == pytest.approx((first + second) / 2, abs=1e-12)
    first = math.log(math.e + 1) - 1  # without the ignored cell
    assert losses.softmax(SCORES, MASKED).item() == pytest.approx((first + second) / 2, abs=1e-12)


def test_cross_entropy_by_hand():
    cells = [plus(-1.0), plus(0.0), plus(2.0), plus(0.5), plus(1.0), plus(0.25)]
    assert losses.cross_entropy(SCORES, TARGETS).item() == pytest.approx(sum(cells) / 6, abs=1e-12)
    del cells[2]
    assert losses.cross_entropy(SCORES, MASKED).item() == pytest.approx(sum(cells) / 5, abs=1e-12)


def test_triplet_takes_the_hardest_negative_and_the_margin():
    # Row 1: 0.5 - 1 + 2; row 2: 0.5 + 1 + 0.5.
    assert losses.triplet(SCORES, TARGETS).item() == pytest.approx((1.5 + 2.0) / 2, abs=1e-12)
    # Without the ignored cell the hardest negative of row 1 is 0: its hinge is negative, so 0.
    assert losses.triplet(SCORES, MASKED).item() == pytest.approx((0.0 + 2.0) / 2, abs=1e-12)
    assert losses.triplet(SCORES, TARGETS, margin=0.1).item() == pytest.approx((1.1 + 1.6) / 2, abs=1e-12)


def test_ranknet_by_hand():
    # Row 1: its positive, 1, against 0 and 2; row 2: -1 against 0.5 and 0.25.
    expected = ((plus(-1.0) + plus(1.0)) / 2 + (plus(1.5) + plus(1.25)) / 2) / 2
    assert losses.ranknet(SCORES, TARGETS).item() == pytest.approx(expected, abs=1e-12)
    # Without the ignored cell row 1 has one pair, which alone counts as much as the two of row 2.
    expected = (plus(-1.0) + (plus(1.5) + plus(1.25)) / 2) / 2
    assert losses.ranknet(SCORES, MASKED).item() == pytest.approx(expected, abs=1e-12)


def test_lambdarank_by_hand():
    # Row 1: the positive is second; swapped with the first it gains 1/2, with the third it loses 1/2 - 1/3.
    # Row 2: it is third; swapped with the first it gains 2/3, with the second 1/2 - 1/3.
    first = (plus(1.0) * (1 - 1 / 2) + plus(-1.0) * (1 / 2 - 1 / 3)) / 2
    second = (plus(1.5) * (1 - 1 / 3) + plus(1.25) * (1 / 2 - 1 / 3)) / 2
    assert losses.lambdarank_mrr(SCORES, TARGETS).item() == pytest.approx((first + second) / 2, abs=1e-12)
    # The same with discounts 1, 1 / log2(3) and 1 / 2; the ideal gain of one positive is 1.
    two = 1 / math.log2(3)
    first = (plus(1.0) * (1 - two) + plus(-1.0) * (two - 1 / 2)) / 2
    second = (plus(1.5) * (1 - 1 / 2) + plus(1.25) * (two - 1 / 2)) / 2
    assert losses.lambdarank_ndcg(SCORES, TARGETS).item() == pytest.approx((first + second) / 2, abs=1e-12)


def test_of_equal_scores_the_one_further_left_comes_first():
    targets = torch.tensor([[NEGATIVE, POSITIVE, NEGATIVE]], dtype=torch.int8)
    expected = math.log(2) * ((1 - 1 / 2) + (1 / 2 - 1 / 3)) / 2
    assert losses.lambdarank_mrr(torch.zeros(1, 3), targets).item() == pytest.approx(expected)
    # The positive is 12th of 40: an order that need not be stable loses its place.
    targets = torch.tensor([[POSITIVE if j == 11 else NEGATIVE for j in range(40)]], dtype=torch.int8)
    expected = math.log(2) * sum(abs(1 / 12 - 1 / rank) for rank in range(1, 41)) / 39
    assert losses.lambdarank_mrr(torch.zeros(1, 40), targets).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("mark", [POSITIVE, NEGATIVE, IGNORE])
def test_a_row_without_a_pair_contributes_nothing(name, mark):
    scores = torch.cat([SCORES, torch.tensor([[3.0, 1.0, 2.0]])]).requires_grad_()
    targets = torch.cat([TARGETS, torch.full((1, 3), mark, dtype=torch.int8)])
    loss = losses.get(name)(scores, targets)
    loss.backward()
    assert loss.item() == pytest.approx(losses.get(name)(SCORES, TARGETS).item() * 2 / 3, abs=1e-12)
    assert (scores.grad[2] == 0).all() and (scores.grad[:2] != 0).any()
    alone = scores.detach()[2:].requires_grad_()
    nothing = losses.get(name)(alone, targets[2:])
    nothing.backward()
    assert nothing.item() == 0 and (alone.grad == 0).all()


marks = st.sampled_from([POSITIVE, NEGATIVE, IGNORE])
several = st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(marks, min_size=n, max_size=n), min_size=1, max_size=4))


def drawn(targets, seed):
    """Targets as a tensor, and scores without ties."""
    targets = torch.tensor(targets, dtype=torch.int8)
    return 3 * torch.randn(targets.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), targets


@pytest.mark.parametrize("name", PAIRWISE)
@given(targets=several, seed=st.integers(0, 10**6))
def test_pairwise_losses_of_any_targets_equal_a_slow_reference(name, targets, seed):
    scores, targets = drawn(targets, seed)
    assert losses.get(name)(scores, targets).item() == pytest.approx(SLOW[name](scores, targets), abs=1e-10)


@pytest.mark.parametrize("name", losses.names())
def test_a_row_without_negatives_gives_a_finite_loss_and_gradient(name):
    scores = torch.tensor([[0.3, 0.9]], requires_grad=True)
    loss = losses.get(name)(scores, torch.tensor([[POSITIVE, IGNORE]], dtype=torch.int8))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(scores.grad).all()
    assert scores.grad[0, 1] == 0


@pytest.mark.parametrize("name", losses.names())
@given(positives=st.lists(st.integers(0, 3), min_size=1, max_size=5), seed=st.integers(0, 10**6))
def test_losses_of_one_positive_equal_a_slow_reference(name, positives, seed):
    marks = torch.randint(IGNORE, POSITIVE, (len(positives), 4), generator=torch.Generator().manual_seed(seed))
    marks[range(len(positives)), positives] = POSITIVE
    scores, targets = drawn(marks.tolist(), seed)
    assert losses.get(name)(scores, targets).item() == pytest.approx(SLOW[name](scores, targets), abs=1e-10)


@pytest.mark.parametrize("name", losses.names())
@pytest.mark.parametrize("targets", [TARGETS, MASKED], ids=["all", "masked"])
def test_gradients_equal_numerical_ones(name, targets):
    scores = SCORES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: losses.get(name)(s, targets), (scores,))


@pytest.mark.parametrize("name", losses.names())
def test_large_logits_do_not_overflow(name):
    scores = torch.tensor([[-500.0, 500.0], [500.0, -500.0]])
    targets = torch.tensor([[POSITIVE, NEGATIVE], [POSITIVE, NEGATIVE]], dtype=torch.int8)
    assert torch.isfinite(losses.get(name)(scores, targets))
