"""What a training saw, and what it cost (all chapters that train)."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd


class Cost(NamedTuple):
    """The cost of a system's training; without values, there was none.

    `steps` lead to the weights that are kept, and `curve` has steps and validation scores from step 0: both of the last
    stage. `seconds` are of all stages, and of making their data.
    """

    steps: int | None = None
    seconds: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass
class History:
    """The record of a training loop.

    `evaluations` have `step`, `loss` (mean since the last), `score` (on validation data) and `seconds` (of training
    alone). The module has the weights of `best_step`, unless the settings keep the last. `watched` is what a callback
    returned, with its `step`; `parts` the seconds of the parts that the task tells apart: the rest is the optimizer's.
    `upstream_costs` are the seconds of each model that came before: earlier stages, and what made the data.
    """

    evaluations: list[dict] = field(default_factory=list)
    best_step: int = 0
    watched: list[dict] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    upstream_costs: dict[str, float] = field(default_factory=dict)

    @property
    def best_score(self) -> float:
        return max(row["score"] for row in self.evaluations)

    @property
    def seconds(self) -> float:
        return self.evaluations[-1]["seconds"]

    def cost(self, keep: str) -> Cost:
        """Return the cost of a training that keeps its `best` or `last` weights, and of what came before."""
        step = self.best_step if keep == "best" else self.evaluations[-1]["step"]
        curve = tuple((row["step"], row["score"]) for row in self.evaluations)
        return Cost(step, self.seconds + sum(self.upstream_costs.values()), curve)

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(self.evaluations)
