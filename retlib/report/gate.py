"""The gate: a verdict needs systems that work and a measure that tells them apart (all chapters with claims).

The table ``learning`` of a chapter has what validation saw of each trained system's last stage, by collection and seed:
`step`, `score` in points of 100, and whether its weights were `kept`. The gate looks at the end of these curves. Where
the learning rate has decayed to zero it is blind: there only half again as many steps tell.
"""

from __future__ import annotations

import re

import pandas as pd

from retlib.data.datasets.catalogue import called
from retlib.evaluation.results import Results

END = 0.2  # of a training's steps, in which it must have come to rest
NOISE = 1.0  # points; 500 validation questions have an error of one or two
DEEPEST = 1 / 20  # of the candidates; recall at a larger k tells little


def too_deep(measure: str, candidates: float) -> str:
    """Return why recall at this k is near its ceiling whatever the systems do; "" where it is not."""
    recall = re.fullmatch(r"R@(\d+)", measure)
    why = f"{measure} among {candidates:g} candidates is near its ceiling: k is more than a twentieth of them"
    return why if recall and int(recall[1]) > DEEPEST * candidates else ""


def endings(curves: pd.DataFrame) -> pd.DataFrame:
    """Return how the trainings of each system and collection of a table ``learning`` ended: means over seeds.

    `rise` is by how much the best score of the last fifth of the `steps` is above the best before; `start` and `kept`
    are the scores before the first step and of the kept weights, NaN where none was taken at the start.
    """
    keys = ["system", "collection", "seed"]
    steps = curves.groupby(keys)["step"].transform("max")
    parts = {"last": curves["step"] > (1 - END) * steps, "start": curves["step"] == 0, "kept": curves["kept"]}
    parts["before"] = ~parts["last"]
    best = pd.DataFrame({name: curves[part].groupby(keys)["score"].max() for name, part in parts.items()})
    best = best.assign(rise=best["last"] - best["before"], kept=best["kept"].where(best["start"].notna()))
    return best.groupby(keys[:2]).mean().assign(steps=curves.groupby(keys[:2])["step"].max())


def check(rows: Results, system: str, collection: str, large: float) -> tuple[str, str]:
    """Return what is wrong with how a training ended, from a rise of `large` points on, and what cannot be seen."""
    curves, name = rows.tables.get("learning"), called(collection)
    ends = None if curves is None else rows.once("endings", curves, endings)
    if ends is None or (system, collection) not in ends.index:
        trained = rows.lines(system, collection).reindex(columns=["steps"])["steps"].notna().any()
        return "", f"{system} has no learning curve" if trained else ""
    end = ends.loc[(system, collection)]
    *_, stage = {}, *(rows.settings().get(system, {}).get("stages") or ())
    decayed = f"the rate of {system} has decayed to zero; a run with half again as many steps would tell"
    blind, below = decayed if stage.get("decay") else "", ""
    if end["rise"] > large:
        rose = f"{system} rose by {end['rise']:.1f} points in the last fifth of {end['steps']:.0f} steps"
        return f"still learning on {name}: {rose}; more than {end['steps']:.0f} steps are needed", blind
    if end["kept"] < end["start"] - NOISE:
        below = f"{system} has {end['kept']:.1f} points on validation, and began with {end['start']:.1f}"
    return below and f"below its own start on {name}: {below}", blind
