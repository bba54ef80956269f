"""What a training saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd


class Cost(NamedTuple):
    """What the training of a system took, and how it went; without values, there was none.

    Parameters
    ----------
    steps : int, optional
        Of the last stage, up to the weights that are kept.
    seconds : float, optional
        Of all stages, and of making their data.
    curve : tuple of (int, float)
        Steps and validation scores of the last stage, from step 0: its start.
    """

    steps: int | None = None
    seconds: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass
class History:
    """What the loop saw.

    Parameters
    ----------
    evaluations : list of dict
        One for each evaluation: `step`, `loss` (mean since the last), `score` (on validation
        data), `seconds` (of training alone, evaluation left out).
    best_step : int
        The step of the best score, whose weights the module has after training, unless the
        settings keep the last.
    watched : list of dict
        What a `Callback` returned, with its `step`.
    parts : dict
        Seconds of training in the parts that the task tells apart; the rest is the optimizer's.
    """

    evaluations: list[dict] = field(default_factory=list)
    best_step: int = 0
    watched: list[dict] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def best_score(self) -> float:
        """The best score on validation data."""
        return max(row["score"] for row in self.evaluations)

    @property
    def seconds(self) -> float:
        """Seconds of training, evaluation and callback left out."""
        return self.evaluations[-1]["seconds"]

    def cost(self, keep: str, before: float = 0.0) -> Cost:
        """What the training took that keeps its `best` weights, or its `last`; and so many seconds before it."""
        kept = self.best_step if keep == "best" else self.evaluations[-1]["step"]
        return Cost(kept, before + self.seconds, tuple((row["step"], row["score"]) for row in self.evaluations))

    @property
    def timed(self) -> pd.Series:
        """Seconds of training in its parts; the last is what the others leave: the optimizer's step."""
        rest = self.seconds - sum(self.parts.values())
        return pd.Series({**self.parts, "optimizer": rest}, name="seconds")

    def frame(self) -> pd.DataFrame:
        """The evaluations as a table."""
        return pd.DataFrame(self.evaluations)
