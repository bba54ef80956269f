"""How much of a test's passages stands in the text of pre-training."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np
import pandas as pd

from retlib.core.errors import require
from retlib.data.text import offsets_of, words

CHUNK = 2000  # texts that are in memory at once


def overlap(texts: Iterable[str], passages: Iterable[str], n: int = 8) -> pd.Series:
    """How much of each passage stands in the texts, word for word.

    Parameters
    ----------
    texts : iterable of str
        The pre-training text, streamed; the memory needed depends on the passages alone.
    passages : iterable of str
        The passages of the test.
    n : int
        Length of the runs of words (`retlib.data.text.words`) that are looked for.

    Returns
    -------
    Series
        Of each passage, the share of its runs of `n` words that stand in a text; NaN where
        it has fewer words. Runs are compared by 64-bit hashes.
    """
    require(n >= 1, f"n = {n} words: at least 1 is needed")
    vocabulary: dict[str, int] = {}
    rows = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text)] for text in passages]
    values = np.random.default_rng(0).integers(2**64, size=len(vocabulary) + 1, dtype=np.uint64)
    hashes, passage = _runs(rows, values, n)
    known = np.unique(np.append(hashes, np.uint64(2**64 - 1)))  # so that no hash is beyond the last
    found = np.zeros(len(known), dtype=bool)
    texts = iter(texts)
    while chunk := list(islice(texts, CHUNK)):
        # A word that no passage has ends a run: it cannot be part of one that is looked for.
        seen, _ = _runs([[vocabulary.get(word, -1) for word in words(text)] for text in chunk], values, n)
        places = np.searchsorted(known, seen)
        found[places[known[places] == seen]] = True
    hit = found[np.searchsorted(known, hashes)]
    total = np.bincount(passage, minlength=len(rows))
    share = np.full(len(rows), np.nan)
    np.divide(np.bincount(passage, hit, minlength=len(rows)), total, out=share, where=total > 0)
    return pd.Series(share, name="overlap")


def _runs(rows: list[list[int]], values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all runs of n words without a -1, and the rows they are of."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.fromiter((i for row in rows for i in row), dtype=np.int64, count=lengths.sum())
    row = np.repeat(np.arange(len(rows)), lengths)
    starts = max(len(ids) - n + 1, 0)
    unknown = offsets_of(ids < 0)
    # A run is whole if it ends in the row where it begins, and no word of it is unknown.
    whole = np.flatnonzero((row[:starts] == row[n - 1 :][:starts]) & (unknown[n:] == unknown[:-n]))
    hashes = np.zeros(len(whole), dtype=np.uint64)
    for place in range(n):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + values[ids[whole + place]]
    return hashes, row[whole]
