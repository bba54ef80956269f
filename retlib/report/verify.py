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
    rows = [_rows(profile, source) for source in ("reference", "run")]
    nothing = f"no results are published at profile {profile!r}, so nothing can be compared with them"
    require(len(rows[0]) > 0, nothing, DataError)
    names = pd.MultiIndex.from_frame(rows[0][NAMES].drop_duplicates())
    reference, run = (100 * each.pivot_table("value", NAMES, "seed").reindex(names) for each in rows)
    reference, run = reference.align(run)
    shared = reference.notna() & run.notna()
    shared |= ~np.asarray(shared.any(axis=1))[:, None]
    published, own = (each.groupby(NAMES)[["data", "parameters"]].first().reindex(names) for each in rows)
    seeds, reference, run = run[shared].count(axis=1), reference[shared].mean(axis=1), run[shared].mean(axis=1)
    difference = run - reference
    # Values are kept as float32, so that a difference of just the tolerance may read a little more.
    status = {"not run": run.isna(), "other data": published["data"] != own["data"]}
    status |= {"other settings": published["parameters"] != own["parameters"]}
    status |= {name: difference.abs() <= most + 1e-4 for name, most in TOLERANCES.items()}
    columns = {"seeds": seeds, "run": run, "reference": reference, "difference": difference}
    columns["status"] = np.select([*status.values()], [*status], DIFFERS)
    return pd.DataFrame(columns).reset_index()


def counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each experiment have each status."""
    table = pd.crosstab(rows["experiment"], rows["status"])
    return table.reindex(columns=list(STATUSES), fill_value=0).rename_axis(columns=None).reset_index()


def _rows(profile: str, source: str) -> pd.DataFrame:
    rows = results.rows(profile, source).reindex(columns=[*NAMES, "seed", "value", "data", "parameters"])
    rows = rows[rows["measure"].isin(filter(is_score, rows["measure"].unique()))]
    # A copy of a file may differ in bytes from the release and still give the same collection.
    return rows.assign(data=rows["data"].map(lambda data: json.loads(data)["fingerprint"]))
