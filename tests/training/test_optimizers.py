"""The optimizers by hand and against slow references."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from retlib.core.errors import SettingError
from retlib.training.trainer import OPTIMIZERS, Lamb

WORDS = 40


class Line(nn.Module):
    """One weight w; the loss of a step is w * g, so that its gradient is g."""

    def __init__(self, start=1.0):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))


def walk(name, gradients, learning_rate, start=1.0):
    """The weight of a line after each step of an optimizer."""
    module, seen = Line(start), []
    (optimizer,) = OPTIMIZERS[name](module, learning_rate)
    for gradient in gradients:
        optimizer.zero_grad()
        (module.w * gradient).sum().backward()
        optimizer.step()
        seen.append(module.w.item())
    return seen


def test_torchs_own_have_the_settings_that_are_meant():
    momentum, adam, adamw = (OPTIMIZERS[name](Line(), 0.1)[0] for name in ("momentum", "adam", "adamw"))
    assert (type(momentum), momentum.defaults["momentum"]) == (torch.optim.SGD, 0.9)
    for optimizer, kind, decay in ((adam, torch.optim.Adam, 0), (adamw, torch.optim.AdamW, 0.01)):
        assert type(optimizer) is kind and optimizer.defaults["weight_decay"] == decay
        assert optimizer.defaults["betas"] == (0.9, 0.999) and optimizer.defaults["lr"] == 0.1


def test_lamb_by_hand():
    # Of one weight, the move is as long as the weight: w falls or rises by a tenth of itself.
    assert walk("lamb", [1.0, -2.0], 0.1) == pytest.approx([0.9, 0.99], abs=1e-12)
    # From 0 the ratio is 1, and the move that of Adam: g / (|g| + 1e-6).
    assert walk("lamb", [4.0], 0.1, start=0.0) == pytest.approx([-0.1 * 4 / (4 + 1e-6)], abs=1e-12)


def slow_lamb(start, gradients, rate, betas, eps, decay):
    """Algorithm 2 of You et al. 2020, line by line, one tensor after the other."""
    ends = []
    for x, steps in zip(start, gradients, strict=True):
        m, v, x = np.zeros_like(x), np.zeros_like(x), x.copy()
        for t, g in enumerate(steps, start=1):
            m = betas[0] * m + (1 - betas[0]) * g
            v = betas[1] * v + (1 - betas[1]) * g**2
            r = (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
            update = r + decay * x
            norms = np.sqrt((x**2).sum()), np.sqrt((update**2).sum())
            ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
            x = x - rate * ratio * update
        ends.append(x)
    return ends


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 6),
    rate=st.sampled_from([1e-3, 0.1, 0.7]),  # at 1 a lone weight ends at 0, where the ratio jumps
    betas=st.sampled_from([(0.9, 0.999), (0.0, 0.5)]),
    eps=st.sampled_from([1e-6, 0.1]),
    decay=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_lamb_is_its_algorithm(seed, steps, rate, betas, eps, decay):
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (5,), (), (2, 2)]
    start = [rng.normal(size=shape) for shape in shapes]
    start[1][:] = 0  # as biases begin
    gradients = [[rng.normal(size=shape) for _ in range(steps)] for shape in shapes]
    gradients[3] = [np.zeros((2, 2))] * steps
    weights = [nn.Parameter(torch.tensor(value)) for value in start]
    optimizer = Lamb(weights, lr=rate, betas=betas, eps=eps, weight_decay=decay)
    for step in range(steps):
        for weight, own in zip(weights, gradients, strict=True):
            weight.grad = torch.tensor(own[step])
        optimizer.step()
    for weight, expected in zip(weights, slow_lamb(start, gradients, rate, betas, eps, decay), strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_lamb_leaves_weights_without_gradient_alone():
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = Lamb([used, unused], lr=0.1)
    used.sum().backward()
    optimizer.step()
    assert unused.tolist() == [1, 1] and used.tolist() != [1, 1]
    assert unused not in optimizer.state


def test_sparse_adam_without_sparse_gradients_is_refused():
    with pytest.raises(SettingError, match="sparse gradients"):
        OPTIMIZERS["sparse_adam"](Line(), 0.05)
