"""The reader's own run beside the published results: what was reproduced.

Compared are means over seeds of measures, in points of 100; times, sizes and counts depend on the machine. Rows of
other data or settings are no rerun and are told apart.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation import results
from retlib.evaluation.measures import is_score

# Points of 100; chosen, not derived: what a reader would hardly see, and what a reader would ask about.
TOLERANCES = {"OK": 0.5, "near": 2.0}
DIFFERS = "differs"
STATUSES = (*TOLERANCES, DIFFERS, "other data", "other settings", "not run")
# What names a row, but for the seed.
NAMES = ["experiment", "system", "collection", "split", "measure"]


def reproduction(profile: str) -> pd.DataFrame:
    """Return every published mean beside the same of the reader's own run; `DataError` if nothing is published.

    Columns `NAMES`, `seeds` (of the own run), `run` and `reference` (means over common seeds, or over all if there are
    none; points of 100), `difference`, `status` (one of `STATUSES`).
    """
    published, own = _rows(profile, "reference"), _rows(profile, "run")
    nothing = f"no results are published at profile {profile!r}, so nothing can be compared with them"
    require(len(published) > 0, nothing, DataError)
    both = _means(published, own).join(_means(own, published).add_suffix("_run")).reset_index()
    difference = 100 * (both["value_run"] - both["value"])
    # Values are kept as float32, so that a difference of just the tolerance may read a little more.
    status = {"not run": both["value_run"].isna(), "other data": both["data_run"] != both["data"]}
    status["other settings"] = both["parameters_run"] != both["parameters"]
    status |= {name: difference.abs() <= most + 1e-4 for name, most in TOLERANCES.items()}
    columns = {"seeds": both["seeds_run"].fillna(0).astype(int), "run": 100 * both["value_run"]}
    columns |= {"reference": 100 * both["value"], "difference": difference}
    return both[NAMES].assign(**columns, status=np.select([*status.values()], [*status], DIFFERS))


def matrix(found: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each experiment have each status."""
    counts = pd.crosstab(found["experiment"], found["status"])
    return counts.reindex(columns=list(STATUSES), fill_value=0).rename_axis(columns=None).reset_index()


def _rows(profile: str, source: str) -> pd.DataFrame:
    rows = results.rows(profile, source).reindex(columns=[*NAMES, "seed", "value", "data", "parameters"])
    rows = rows[rows["measure"].isin(filter(is_score, rows["measure"].unique()))]
    # A copy of a file may differ in bytes from the release and still give the same collection.
    return rows.assign(data=rows["data"].map(lambda data: json.loads(data)["fingerprint"]))


def _means(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    # Over the seeds that the other side has, too; of a mean that has no seed in common over all.
    keys = [*NAMES, "seed"]
    shared = rows.merge(others[keys].drop_duplicates(), how="left", on=keys, indicator=True)
    shared = pd.Series((shared["_merge"] == "both").to_numpy(), rows.index)
    rows = rows[shared | ~shared.groupby([rows[name] for name in NAMES]).transform("any")]
    return rows.groupby(NAMES, sort=False).agg(
        value=("value", "mean"), seeds=("seed", "nunique"), data=("data", "first"), parameters=("parameters", "first")
    )
