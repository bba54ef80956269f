"""What labels buy after pre-training, and how many of them it replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from retlib.data.datasets.catalogue import called
from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL


def labels_bought(
    results: Results, collections: Sequence[str], shares: Sequence[float], systems: Iterable[str], measure: str
) -> pd.DataFrame:
    """What each further share of the labels adds to a system, paired over the same test questions.

    Returns
    -------
    DataFrame
        Columns `collection`, `system`, `labels` (their share as text; "no labels" of a pre-trained system),
        `value` (points of 100), `gain` over the row before and its `p`, Holm-corrected over all; NaN in a first row.
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


def bought_in_words(bought: pd.DataFrame) -> str:
    """How many pre-trained systems gain more than chance at each share, from the table of `labels_bought`."""
    names = ["collection", "system"]
    pretrained = bought.set_index(names).loc[bought[bought["labels"] == "no labels"].set_index(names).index].dropna()
    said = [
        f"{share} of the labels: {int(((part['p'] < LEVEL) & (part['gain'] > 0)).sum())} of {len(part)} gain more than "
        f"chance, {part['gain'].median():+.1f} points in the median"
        for share, part in pretrained.groupby("labels", sort=False)
    ]
    return f"Pre-trained systems, each share against the one before it. {'; '.join(said)}." if said else ""


def bought_in_columns(bought: pd.DataFrame) -> pd.DataFrame:
    """The table of `labels_bought` with a column for each share: the value, its gain, a star where p < `LEVEL`."""
    star = (bought["p"] < LEVEL).map({True: "*)", False: ")"})
    gains = (bought["gain"].map(" ({:+.1f}".format) + star).where(bought["gain"].notna(), "")
    table = bought.assign(text=bought["value"].map("{:.1f}".format) + gains)
    rows, columns = ["collection", "system"], ["no labels", *bought["labels"]]
    found = table.set_index([*rows, "labels"])["text"].unstack(fill_value="")
    return found.loc[bought.set_index(rows).index.unique(), [each for each in dict.fromkeys(columns) if each in found]]


def replaced_in_words(
    results: Results,
    collections: Sequence[str],
    shares: Sequence[float],
    questions: pd.Series,
    pairs: Sequence[tuple[str, str]],
    measure: str,
) -> str:
    """How many labels pre-training replaces: of what has seen none, against what has labels alone.

    Parameters
    ----------
    questions : Series
        Index collection at a share of the labels; how many train.
    pairs : sequence of (str, str)
        Of two systems the pre-trained one, and the one without.

    Returns
    -------
    str
        A list in Markdown of the questions with which the first is still ahead, or the second already, by more than
        chance (Holm-corrected over all); "" where nothing of this is recorded.
    """
    rows = []
    for collection, (name, plain) in product(collections, pairs):
        tests = [f"{collection}-{share:g}" for share in sorted(shares)]
        free = f"{name}, no labels"
        for test in tests if free in results.systems(tests[0], "test", measure) else ():
            if plain in results.systems(test, "test", measure):
                found = results.compared(tests[0], measure, free, plain, on=test)
                rows.append((collection, name, plain, f"{questions[test]:,}", found.effect, found.p_value()))
    names = ["collection", "name", "plain"]
    table = pd.DataFrame(rows, columns=[*names, "questions", "effect", "p"])
    said = []
    for (collection, name, plain), part in table[holm(table["p"]) < LEVEL].groupby(names, sort=False):
        more, fewer = part["questions"][part["effect"] > 0], part["questions"][part["effect"] < 0]
        bounds = [*(f"more than {each}" for each in more[-1:]), *(f"fewer than {each}" for each in fewer[:1])]
        said.append(f"- *{called(collection)}*: *{name}* without a label is worth {' and '.join(bounds)} labelled "
                    f"questions of *{plain}*.")  # fmt: skip
    return "\n".join(said)
