"""The reader's own run beside the published results: what was reproduced.

Compared are means over seeds of measures, in points of 100; times, sizes and counts depend on the machine. Rows of
other data or settings are no rerun and are told apart.
"""

from __future__ import annotations

import json

import pandas as pd

from retlib.core.errors import DataError, require
from retlib.evaluation import results
from retlib.evaluation.measures import is_score

OK, NEAR, DIFFERS = "OK", "near", "differs"
OTHER_DATA, OTHER_SETTINGS, NOT_RUN = "other data", "other settings", "not run"
STATUSES = (OK, NEAR, DIFFERS, OTHER_DATA, OTHER_SETTINGS, NOT_RUN)
# Points of 100; chosen, not derived: what a reader would hardly see, and what a reader would ask about.
TOLERANCES = {OK: 0.5, NEAR: 2.0}
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
    both = _means(published, own).add_suffix("_reference").join(_means(own, published).add_suffix("_run"))
    run, reference = 100 * both["value_run"], 100 * both["value_reference"]
    columns = {"seeds": both["seeds_run"].fillna(0).astype(int), "run": run, "reference": reference}
    status = [_status(row) for row in both.to_dict("records")]
    return pd.DataFrame({**columns, "difference": run - reference, "status": status}).reset_index()


def matrix(found: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each experiment have each status."""
    counts = pd.crosstab(found["experiment"], found["status"])
    return counts.reindex(columns=list(STATUSES), fill_value=0).rename_axis(columns=None).reset_index()


def _status(row: dict) -> str:
    if pd.isna(row["value_run"]):
        return NOT_RUN
    if row["data_run"] != row["data_reference"]:
        return OTHER_DATA
    if row["parameters_run"] != row["parameters_reference"]:
        return OTHER_SETTINGS
    apart = abs(row["value_run"] - row["value_reference"])
    # Values are kept as float32, so that a difference of just the tolerance may read a little more.
    return next((name for name, most in TOLERANCES.items() if 100 * apart <= most + 1e-4), DIFFERS)


def _rows(profile: str, source: str) -> pd.DataFrame:
    rows = results.rows(profile, source).reindex(columns=[*NAMES, "seed", "value", "data", "parameters"])
    rows = rows[rows["measure"].isin(filter(is_score, rows["measure"].unique()))]
    # A copy of a file may differ in bytes from the release and still give the same collection.
    return rows.assign(data=rows["data"].map(lambda data: json.loads(data)["fingerprint"]))


def _means(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Over the seeds that the other side has, too; of a mean that has no seed in common over all."""
    is_shared = rows.set_index([*NAMES, "seed"]).index.isin(others.set_index([*NAMES, "seed"]).index)
    is_shared = pd.Series(is_shared, index=rows.index, dtype=bool)
    rows = rows[is_shared | ~is_shared.groupby([rows[name] for name in NAMES]).transform("any")]
    return rows.groupby(NAMES, sort=False).agg(
        value=("value", "mean"), seeds=("seed", "nunique"), data=("data", "first"), parameters=("parameters", "first")
    )
