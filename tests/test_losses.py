"""The losses against numbers worked by hand, a slow reference, and numerical gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib import losses
from retlib.errors import SettingError
from retlib.losses import IGNORE, NEGATIVE, POSITIVE

# Two queries, three documents; the third cell of the first row takes no part where it is ignored.
SCORES = torch.tensor([[1.0, 0.0, 2.0], [0.5, -1.0, 0.25]], dtype=torch.float64)
TARGETS = torch.tensor([[POSITIVE, NEGATIVE, NEGATIVE], [NEGATIVE, POSITIVE, NEGATIVE]], dtype=torch.int8)
MASKED = torch.tensor([[POSITIVE, NEGATIVE, IGNORE], [NEGATIVE, POSITIVE, NEGATIVE]], dtype=torch.int8)


def one_positive(draw_cells):
    """Rows of targets with exactly one positive."""
    return [[POSITIVE if j == place else cell for j, cell in enumerate(cells)] for place, cells in draw_cells]


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


SLOW = {"softmax": slow_softmax, "cross_entropy": slow_cross_entropy, "triplet": slow_triplet}


def test_softmax_by_hand():
    first = math.log(math.e + 1 + math.e**2) - 1
    second = math.log(math.e**0.5 + math.e**-1 + math.e**0.25) + 1
    assert losses.softmax(SCORES, TARGETS).item() == pytest.approx((first + second) / 2, abs=1e-12)


def test_softmax_leaves_ignored_cells_out():
    first = math.log(math.e + 1) - 1
    second = math.log(math.e**0.5 + math.e**-1 + math.e**0.25) + 1
    assert losses.softmax(SCORES, MASKED).item() == pytest.approx((first + second) / 2, abs=1e-12)


def test_cross_entropy_by_hand():
    def plus(x):  # -log sigmoid(-x)
        return math.log1p(math.exp(x))

    cells = [plus(-1.0), plus(0.0), plus(2.0), plus(0.5), plus(1.0), plus(0.25)]
    assert losses.cross_entropy(SCORES, TARGETS).item() == pytest.approx(sum(cells) / 6, abs=1e-12)
    del cells[2]
    assert losses.cross_entropy(SCORES, MASKED).item() == pytest.approx(sum(cells) / 5, abs=1e-12)


def test_cross_entropy_of_labelled_pairs_is_the_logistic_loss():
    scores, labels = torch.tensor([[2.0], [-1.0], [0.0]]), torch.tensor([[1], [0], [1]], dtype=torch.int8)
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1)) + math.log(2)) / 3
    assert losses.cross_entropy(scores, labels).item() == pytest.approx(expected, abs=1e-6)


def test_triplet_takes_the_hardest_negative_and_the_margin():
    # Row 1: 0.5 - 1 + 2; row 2: 0.5 + 1 + 0.5.
    assert losses.triplet(SCORES, TARGETS).item() == pytest.approx((1.5 + 2.0) / 2, abs=1e-12)
    # Without the ignored cell the hardest negative of row 1 is 0: its hinge is negative, so 0.
    assert losses.triplet(SCORES, MASKED).item() == pytest.approx((0.0 + 2.0) / 2, abs=1e-12)
    assert losses.triplet(SCORES, TARGETS, margin=0.1).item() == pytest.approx((1.1 + 1.6) / 2, abs=1e-12)


def test_triplet_gradient_is_on_the_positive_and_the_hardest_negative_alone():
    scores = SCORES.clone().requires_grad_()
    losses.triplet(scores, MASKED).backward()
    assert scores.grad.tolist() == [[0, 0, 0], [0.5, -0.5, 0]]


@pytest.mark.parametrize("name", losses.names())
def test_a_row_without_negatives_gives_a_finite_loss_and_gradient(name):
    scores = torch.tensor([[0.3, 0.9]], requires_grad=True)
    loss = losses.get(name)(scores, torch.tensor([[POSITIVE, IGNORE]], dtype=torch.int8))
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(scores.grad).all()
    assert scores.grad[0, 1] == 0


@pytest.mark.parametrize("name", losses.names())
@given(
    cells=st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.sampled_from([NEGATIVE, IGNORE]), min_size=4, max_size=4)),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 10**6),
)
def test_losses_equal_a_slow_reference(name, cells, seed):
    targets = torch.tensor(one_positive(cells), dtype=torch.int8)
    scores = 3 * torch.randn(targets.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
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


@pytest.mark.parametrize("name", losses.names())
@pytest.mark.parametrize(("scores", "targets"), [((2, 3), (2, 2)), ((3,), (3,)), ((1, 2, 2), (1, 2, 2))])
def test_shapes_that_do_not_fit_are_named(name, scores, targets):
    with pytest.raises(SettingError) as caught:
        losses.get(name)(torch.zeros(scores), torch.ones(targets, dtype=torch.int8))
    assert str(scores) in str(caught.value) and str(targets) in str(caught.value)


def test_an_unknown_loss_lists_the_valid_ones():
    with pytest.raises(SettingError, match="'sofmax'.*Did you mean 'softmax'.*cross_entropy, softmax, triplet"):
        losses.get("sofmax")
