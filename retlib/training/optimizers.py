"""Optimizers by name: each is a function of a module and a learning rate.

Most modules need one optimizer; those with sparse gradients two. Their state is tensors, so
that a checkpoint of `retlib.training.trainer` holds all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from retlib.core.errors import require


class Lamb(torch.optim.Optimizer):
    r"""Adam whose step is made as long, in each weight tensor, as its weights call for (You et al. 2020, algorithm 2).

    .. math:: m &= \beta_1 m + (1 - \beta_1) g, \qquad v = \beta_2 v + (1 - \beta_2) g^2 \\
              r &= \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} + \lambda x \\
              x &\leftarrow x - \eta \frac{\lVert x \rVert}{\lVert r \rVert} r

    for each tensor of weights :math:`x` with gradient :math:`g`. Where a norm is 0 the ratio is 1. The paper passes
    :math:`\lVert x \rVert` through a function :math:`\phi`, which is the identity here. `lr` is :math:`\eta`,
    `weight_decay` :math:`\lambda`.
    """

    def __init__(
        self,
        parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        # `fused` tells torch to load `step` onto the device of the weights.
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": True}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self) -> None:
        """Move every weight that has a gradient."""
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._move(weights, group)

    def _move(self, weights: Tensor, group: dict) -> None:
        state = self.state[weights]
        if not state:
            state |= {name: torch.zeros_like(weights) for name in ("mean", "square")}
            state["step"] = torch.zeros((), device=weights.device)
        mean, square, step = ([state[name]] for name in ("mean", "square", "step"))
        settings = {"eps": group["eps"], "weight_decay": 0.0, "amsgrad": False, "maximize": False}
        settings |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
        # From 0, at a rate of 1, AdamW moves by Adam's part of -r, in a single pass over memory.
        move = torch.zeros_like(weights)
        adamw([move], [weights.grad], mean, square, [], step, lr=1.0, fused=True, **settings)
        move.sub_(weights, alpha=group["weight_decay"])
        length, size = weights.norm(), move.norm()
        # A tensor on the weights' device: to look at it here would make a GPU wait.
        ratio = torch.where((length > 0) & (size > 0), length / size, 1.0)
        weights.addcmul_(move, ratio, value=group["lr"])


def _sparse_adam(module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
    # It updates only the embeddings of a batch's words; dense Adam the rest.
    tables = {id(part.weight): part.weight for part in module.modules() if getattr(part, "sparse", False)}
    rest = [parameter for parameter in module.parameters() if id(parameter) not in tables]
    require(len(tables) > 0, "sparse_adam needs an encoder with sparse gradients")
    sparse = torch.optim.SparseAdam(list(tables.values()), lr=learning_rate)
    return [sparse, *([torch.optim.Adam(rest, lr=learning_rate)] if rest else [])]


OPTIMIZERS: dict[str, Callable[[nn.Module, float], list[torch.optim.Optimizer]]] = {
    # Fused: several times faster where the embedding table is most of the weights.
    "adam": lambda module, rate: [torch.optim.Adam(module.parameters(), lr=rate, fused=True)],
    # As Zhan 2020, section 5.3.
    "adamw": lambda module, rate: [
        torch.optim.AdamW(module.parameters(), lr=rate, fused=True, betas=(0.9, 0.999), weight_decay=0.01)
    ],
    # Zhan 2020 names it alone; the defaults are those of You et al. 2020.
    "lamb": lambda module, rate: [Lamb(module.parameters(), lr=rate)],
    # Gillick 2018 does not state the coefficient; 0.9 is the usual one.
    "momentum": lambda module, rate: [torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)],
    "sparse_adam": _sparse_adam,
}
