"""Titles of AskUbuntu question pairs, half duplicates, half random (Rodrigues 2017; Bogdanova 2015 by sizes)."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection, closure, retrieval_task, split_by_cluster
from retlib.data.datasets import register
from retlib.data.datasets._reading import by_text, fields
from retlib.data.datasets.catalogue import damaged, locate, provenance

LABELS = {"duplicate": 1, "non-duplicate": 0}
SHARES = {"dev": 0.10}


@register("askubuntu-titles")
def load_askubuntu_titles() -> Collection:
    """The two official files as a retrieval task; equal titles are one item.

    Every title of the test file is on the test side. 2,324 of them stand in the training
    file too: training pairs that touch a test title are dropped, and with them the titles
    that no other pair names. A tenth of the remaining clusters tunes.
    """
    test, train = (_read(f"askubuntu-titles/{part}_titles.tsv") for part in ("test", "train"))
    held_out = {*test["left"], *test["right"]}
    train = train[~(train["left"].isin(held_out) | train["right"].isin(held_out))]
    texts, pairs = by_text(pd.concat([test, train], ignore_index=True))
    split = split_by_cluster(texts.index, closure(pairs), SHARES)
    split[texts.isin(held_out)] = "test"
    return retrieval_task("askubuntu-titles", texts, pairs, split, provenance("askubuntu-titles"))


def _read(file: str) -> pd.DataFrame:
    path = locate("askubuntu-titles", file)
    rows = []
    for number, (label, left, right) in fields("askubuntu-titles", path, 3):
        if label not in LABELS or not left.strip() or not right.strip():
            raise damaged("askubuntu-titles", path, number, f"not a label ({' or '.join(LABELS)}) and two titles")
        rows.append((left.strip(), right.strip(), LABELS[label]))
    return pd.DataFrame(rows, columns=["left", "right", "label"])
