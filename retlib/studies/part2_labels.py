"""What labels buy after pre-training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL


def labels_bought(
    results: Results, collections: Sequence[str], shares: Sequence[float], systems: Iterable[str], measure: str
) -> pd.DataFrame:
    """Return what each further share of the labels adds to a system, paired over the same test questions.

    Columns `collection`, `system`, `labels` (their share as text; "no labels" of a pre-trained system), `value` (points
    of 100), `gain` over the row before and its `p`, Holm-corrected over all; NaN in a first row.
    """
    rows = []
    for collection, system in product(collections, systems):
        tests = [(f"{100 * share:g} %", f"{collection}-{share:g}", system) for share in sorted(shares)]
        before = None
        for share, test, name in [("no labels", tests[0][1], f"{system}, no labels"), *tests]:
            if name in results.systems(test, "test", measure):
                value = 100 * results.per_query(test, "test", measure, name).to_numpy().mean()
                gain = results.compared(test, measure, name, before[1], on=before[0]) if before else None
                tested = (gain.effect, gain.p_value()) if gain else (np.nan, np.nan)
                rows.append((collection, system, share, value, *tested))
                before = test, name
    table = pd.DataFrame(rows, columns=["collection", "system", "labels", "value", "gain", "p"])
    p = table["p"].dropna()
    return table.assign(p=pd.Series(holm(p), p.index))


def bought_in_columns(bought: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `labels_bought`, a column for each share: the value, its gain, a star where p < `LEVEL`."""
    star = (bought["p"] < LEVEL).map({True: "*)", False: ")"})
    gains = (bought["gain"].map(" ({:+.1f}".format) + star).where(bought["gain"].notna(), "")
    table = bought.assign(text=bought["value"].map("{:.1f}".format) + gains)
    rows, columns = ["collection", "system"], ["no labels", *bought["labels"]]
    found = table.set_index([*rows, "labels"])["text"].unstack(fill_value="")
    return found.loc[bought.set_index(rows).index.unique(), [each for each in dict.fromkeys(columns) if each in found]]
