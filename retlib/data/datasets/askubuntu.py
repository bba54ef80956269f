"""AskUbuntu similar questions of Lei et al. (NAACL 2016), the task of Gillick 2018, section 3.3."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields
from retlib.data.datasets._tasks import PAIR
from retlib.data.splits import retrieval_task


@register("askubuntu")
def load_askubuntu() -> Collection:
    """Return the official files as a retrieval task with the official splits; titles only, as in the paper.

    The test side is every question of `test.txt`, queries and candidates, likewise dev; all others train. Judged
    candidates that are not similar are near-misses (label 0). The random negatives of the training file are no labels
    and are left out, as are training pairs that touch a title of the dev or test side.
    """
    rows = fields("askubuntu", "askubuntu/text_tokenized.txt.gz", 3)
    titles = pd.Series({question: title.strip() for question, title, _ in rows if title.strip()}, dtype=object)
    split, kept = pd.Series("train", index=titles.index, name="split"), []
    for part, file, columns in (("test", "test", 4), ("dev", "dev", 4), ("train", "train_random", 3)):
        pairs = _pairs(f"askubuntu/{file}.txt", columns)
        pairs = pairs[pairs[PAIR[:2]].isin(titles.index).all(axis=1)]  # a few have no title
        pairs = pairs if part != "train" else pairs[pairs["label"] == 1]
        # What is on a more guarded side, under whatever id, has no pairs on this one.
        guarded = titles.index[titles.isin(titles[split != "train"].array)]
        side = split.index.isin(pairs[PAIR[:2]].to_numpy().ravel()) & (split == "train")
        split[side] = part
        kept.append(pairs[~pairs[PAIR[:2]].isin(guarded).any(axis=1)])
    return retrieval_task("askubuntu", titles, pd.concat(kept), split)


def _pairs(file: str, columns: int) -> pd.DataFrame:
    # Lines are query, similar questions, candidates (random ones where it trains), and scores.
    rows = ((query, *map(str.split, others[:2])) for query, *others in fields("askubuntu", file, columns))
    pairs = [
        (query, other, int(other in similar))
        for query, similar, candidates in rows
        for other in dict.fromkeys([*similar, *candidates])
        if other != query
    ]
    return pd.DataFrame(pairs, columns=PAIR).drop_duplicates()
