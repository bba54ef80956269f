"""AskUbuntu similar questions of Lei et al. (NAACL 2016), the task of Gillick 2018, section 3.3."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection, retrieval_task
from retlib.data.datasets import register
from retlib.data.datasets._reading import fields
from retlib.data.datasets.catalogue import damaged, locate, provenance

# Readers of the release skip training questions that have no title; more than a few mean damage.
TOLERATED = 0.01


@register("askubuntu")
def load_askubuntu() -> Collection:
    """The official files as a retrieval task with the official splits; titles only, as in the paper.

    The test side is every question of `test.txt`, queries and candidates, likewise dev;
    all other questions are on the training side. Judged candidates that are not similar
    are near-misses (label 0). The random negatives of the training file are no labels and
    are left out. Training pairs that touch a title of the dev or test side are dropped.
    """
    titles = _titles()
    pairs, split = {}, pd.Series("train", index=titles.index, name="split")
    for part in ("dev", "test"):  # test last: what is in both is on its side
        pairs[part] = _annotations(part, titles)
        split[pd.unique(pairs[part][["left", "right"]].to_numpy().ravel())] = part
    pairs["dev"] = _without(pairs["dev"], titles, titles[split == "test"])
    pairs["train"] = _without(_training(titles), titles, titles[split != "train"])
    return retrieval_task("askubuntu", titles, pd.concat(pairs.values()), split, provenance("askubuntu"))


def _without(pairs: pd.DataFrame, titles: pd.Series, held_out: pd.Series) -> pd.DataFrame:
    """The pairs neither side of which has a held-out title, under whatever id."""
    held_out = set(held_out)
    return pairs[~(pairs["left"].map(titles).isin(held_out) | pairs["right"].map(titles).isin(held_out))]


def _titles() -> pd.Series:
    """Question id to title, where there is one: `text_tokenized.txt.gz` holds id, title and body."""
    path = locate("askubuntu", "askubuntu/text_tokenized.txt.gz")
    titles = {}
    for number, (question, title, _) in fields("askubuntu", path, 3):
        if not question.isdigit() or question in titles:
            raise damaged("askubuntu", path, number, f"{question!r} is no question id, or a repeated one")
        titles[question] = title.strip()
    titles = pd.Series(titles, dtype=object)
    return titles[titles != ""]


def _training(titles: pd.Series) -> pd.DataFrame:
    """Positive pairs of `train_random.txt`: query, similar questions, random questions."""
    path = locate("askubuntu", "askubuntu/train_random.txt")
    rows = []
    for number, (query, similar, _) in fields("askubuntu", path, 3):
        rows.extend((query, other, 1, number) for other in similar.split())
    pairs = pd.DataFrame(rows, columns=["left", "right", "label", "line"])
    known = pairs["left"].isin(titles.index) & pairs["right"].isin(titles.index)
    if (~known).mean() > TOLERATED:
        line = pairs["line"][~known].iloc[0]
        raise damaged("askubuntu", path, line, f"{(~known).sum()} pairs name questions without a title, the first here")
    return _distinct(pairs[known].drop(columns="line"))


def _annotations(part: str, titles: pd.Series) -> pd.DataFrame:
    """Judged pairs of `dev.txt` or `test.txt`: query, similar questions, candidates, BM25 scores."""
    path = locate("askubuntu", f"askubuntu/{part}.txt")
    rows = []
    for number, (query, similar, candidates, scores) in fields("askubuntu", path, 4):
        similar, candidates = set(similar.split()), candidates.split()
        unknown = [question for question in (query, *candidates) if question not in titles.index]
        if unknown:
            raise damaged("askubuntu", path, number, f"question {unknown[0]!r} has no title in text_tokenized.txt.gz")
        if not similar <= set(candidates) or len(scores.split()) != len(candidates):
            raise damaged("askubuntu", path, number, "similar questions, candidates and scores do not fit together")
        rows.extend((query, other, int(other in similar)) for other in candidates)
    return _distinct(pd.DataFrame(rows, columns=["left", "right", "label"]))


def _distinct(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs[pairs["left"] != pairs["right"]].drop_duplicates()
