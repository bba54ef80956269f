"""Titles of AskUbuntu question pairs, half duplicates, half random (Rodrigues 2017; Bogdanova 2015 by sizes)."""

from __future__ import annotations

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields
from retlib.data.datasets._tasks import similar_items

LABELS = {"duplicate": 1, "non-duplicate": 0}
SHARES = {"dev": 0.10}


@register("askubuntu-titles")
def load_askubuntu_titles() -> Collection:
    """The two official files as a retrieval task; equal titles are one item.

    Every title of the test file is on the test side. 2,324 of them stand in the training file too: training pairs that
    touch one are dropped, and titles that no other pair names. A tenth of the remaining clusters tunes.
    """
    test, train = (_pairs(f"askubuntu-titles/{part}_titles.tsv") for part in ("test", "train"))
    held_out = {title for pair in test for title in pair[:2]}
    kept = [pair for pair in train if held_out.isdisjoint(pair[:2])]
    return similar_items("askubuntu-titles", test + kept, SHARES, test=held_out)


def _pairs(file: str) -> list[tuple[str, str, int]]:
    def pair(row: list[str]) -> tuple[str, str, int]:
        label, left, right = map(str.strip, row)
        if not left or not right:
            raise ValueError("an empty title")
        return left, right, LABELS[label]

    expected = f"a label ({' or '.join(LABELS)}) and two titles"
    return list(fields("askubuntu-titles", file, 3).parsed(pair, expected))
