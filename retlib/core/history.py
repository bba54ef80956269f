"""What a training saw, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd


class Cost(NamedTuple):
    """What the training of a system took; without values, there was none.

    `steps` lead to the weights that are kept, and `curve` has steps and validation scores from step 0: both of the last
    stage. `seconds` are of all stages, and of making their data.
    """

    steps: int | None = None
    seconds: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass
class History:
    """What the training loop saw.

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

    @property
    def timed(self) -> pd.Series:
        """Seconds by part, the optimizer's among them."""
        optimizer = self.seconds - sum(self.parts.values())
        return pd.Series({**self.parts, "optimizer": optimizer}, name="seconds")

    def cost(self, keep: str) -> Cost:
        """Return the cost of a training that keeps its `best` weights, or its `last`, and of what came before."""
        step = self.best_step if keep == "best" else self.evaluations[-1]["step"]
        seconds = self.seconds + sum(self.upstream_costs.values())
        return Cost(step, seconds, tuple((row["step"], row["score"]) for row in self.evaluations))

    def frame(self) -> pd.DataFrame:
        """Return the evaluations as a table."""
        return pd.DataFrame(self.evaluations)
