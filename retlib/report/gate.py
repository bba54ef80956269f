"""The gate: a verdict needs systems that work and a measure that tells them apart (all chapters with claims).

The table ``learning`` of a chapter has what validation saw of each trained system's last stage, by collection and seed:
`step`, `score` in points of 100, and whether its weights were `kept`. The gate looks at the end of these curves. Where
the learning rate has decayed to zero it is blind: there only half again as many steps tell.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pandas as pd

from retlib.data.datasets.catalogue import called
from retlib.evaluation.results import Results

END = 0.2  # of a training's steps, in which it must have come to rest
NOISE = 1.0  # points; 500 validation questions have an error of one or two
DEEPEST = 1 / 20  # of the candidates; recall at a larger k tells little


def too_deep(measure: str, candidates: float) -> str:
    """Return why recall at this k is near its ceiling whatever the systems do; "" where it is not."""
    recall = re.fullmatch(r"R@(\d+)", measure)
    said = f"{measure} among {candidates:g} candidates is near its ceiling: k is more than a twentieth of them"
    return said if recall and int(recall[1]) > DEEPEST * candidates else ""


class Ending(NamedTuple):
    """How the trainings of a system ended on validation, in points; means over seeds.

    `rise` is by how much the best score of the last fifth of the `steps` is above the best before; `start` and `kept`
    are the scores before the first step and of the kept weights, NaN where none was taken at the start.
    """

    steps: int
    rise: float
    start: float
    kept: float


def endings(curves: pd.DataFrame) -> dict[tuple[str, str], Ending]:
    """Return how all trainings of a table ``learning`` ended: system and collection to that."""
    keys = ["system", "collection", "seed"]
    last = curves["step"] > (1 - END) * curves.groupby(keys)["step"].transform("max")
    parts = {"last": last, "before": ~last, "start": curves["step"] == 0, "kept": curves["kept"]}
    best = pd.DataFrame({name: curves[part].groupby(keys)["score"].max() for name, part in parts.items()})
    best["kept"] = best["kept"].where(best["start"].notna())
    best.insert(0, "rise", best.pop("last") - best.pop("before"))
    means, steps = best.groupby(keys[:2]).mean(), curves.groupby(keys[:2])["step"].max()
    return {
        place: Ending(int(steps[place]), *scores) for place, scores in zip(means.index, means.to_numpy(), strict=True)
    }


def ending(rows: Results, system: str, collection: str) -> Ending | None:
    """Return how the trainings of a system ended on a collection; None where no learning curve is recorded."""
    curves = rows.tables.get("learning")
    known = {} if curves is None else rows.once("endings", curves, endings)
    return known.get((system, collection))


def unfit(system: str, collection: str, end: Ending, large: float) -> str:
    """Return what is wrong with a system whose trainings ended so; "" if nothing is.

    From a rise of `large` points on it was still learning: what its contrast is about, at least `NOISE`.
    """
    if end.rise > large:
        rose = f"{system} rose by {end.rise:.1f} points in the last fifth of {end.steps} steps"
        return f"still learning on {called(collection)}: {rose}; more than {end.steps} steps are needed"
    below = f"{system} has {end.kept:.1f} points on validation, and began with {end.start:.1f}"
    return f"below its own start on {called(collection)}: {below}" if end.kept < end.start - NOISE else ""
