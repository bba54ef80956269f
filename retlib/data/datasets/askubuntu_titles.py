"""Titles of AskUbuntu question pairs, half duplicates, half random (Rodrigues 2017; Bogdanova 2015 by sizes)."""

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields
from retlib.data.datasets._tasks import PAIR, similar_items

LABELS = {"duplicate": 1, "non-duplicate": 0}


@register("askubuntu-titles")
def load_askubuntu_titles() -> Collection:
    """Return the two official files as a retrieval task; equal titles are one item.

    Every title of the test file is on the test side. 2,324 of them stand in the training file too: training pairs that
    touch one are dropped, and titles that no other pair names. A tenth of the remaining clusters tunes.
    """
    test, train = (
        pd.DataFrame([(left.strip(), right.strip(), LABELS[label]) for label, left, right in rows], columns=PAIR)
        for rows in (fields("askubuntu-titles", f"askubuntu-titles/{part}_titles.tsv", 3) for part in ("test", "train"))
    )
    held_out = {*test["left"], *test["right"]}
    apart = ~train[PAIR[:2]].isin(held_out).any(axis=1)
    return similar_items("askubuntu-titles", pd.concat([test, train[apart]]), {"dev": 0.10}, held_out)
