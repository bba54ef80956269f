"""Small recorded results, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from retlib.evaluation.results import Results


def put(
    made: Results,
    system: str,
    by_seed: Mapping[int, Sequence[float]],
    collection: str = "d",
    measure: str = "R@1",
    index: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    **row: object,
) -> Results:
    """Record values by question, in points of a hundred, of each seed of a system, and a row for their mean."""
    for seed, values in by_seed.items():
        asked = pd.Index([f"q{i}" for i in range(len(values))] if index is None else index)
        frame = pd.DataFrame({"query_id": asked, "measure": measure, "value": np.asarray(values, float) / 100})
        grouped = pd.Series(asked if clusters is None else clusters, index=asked)
        made.add_queries(collection, "test", system, seed, frame, grouped)
        number(made, system, {seed: frame["value"].mean()}, collection, measure, **row)
    return made


def number(
    made: Results, system: str, by_seed: Mapping[int, float], collection: str = "d", measure: str = "R@1", **row: object
) -> Results:
    """Record a row alone for each seed of a system."""
    for seed, value in by_seed.items():
        made.add_row(experiment="x", system=system, collection=collection, split="test", measure=measure,
                     value=float(value), seed=seed, profile="quick", **row)  # fmt: skip
    return made


def learned(system: str, *curves: Sequence[float], collection: str = "d", kept: int | None = None) -> pd.DataFrame:
    """Return lines of a table ``learning``: a curve for each seed in steps of 20; the best is kept, or a place."""
    lines = []
    for seed, scores in enumerate(curves):
        place = int(np.argmax(scores)) if kept is None else kept
        lines += [(system, collection, seed, 20 * i, float(score), i == place) for i, score in enumerate(scores)]
    return pd.DataFrame(lines, columns=["system", "collection", "seed", "step", "score", "kept"])
