"""AskUbuntu similar questions of Lei et al. (NAACL 2016), the task of Gillick 2018, section 3.3."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields
from retlib.data.datasets._tasks import PAIR
from retlib.data.datasets.catalogue import provenance
from retlib.data.splits import retrieval_task

# Readers of the release skip training questions that have no title; more than a few mean damage.
TOLERATED = 0.01


@register("askubuntu")
def load_askubuntu() -> Collection:
    """The official files as a retrieval task with the official splits; titles only, as in the paper.

    The test side is every question of `test.txt`, queries and candidates, likewise dev; all others train. Judged
    candidates that are not similar are near-misses (label 0). The random negatives of the training file are no labels
    and are left out, as are training pairs that touch a title of the dev or test side.
    """
    rows = fields("askubuntu", "askubuntu/text_tokenized.txt.gz", 3).parsed(_titled, "a question id, title and body")
    titles = pd.Series(dict(rows), dtype=object)
    titles = titles[titles != ""]
    pairs, split = {}, pd.Series("train", index=titles.index, name="split")
    for part in ("dev", "test"):  # test last: what is in both is on its side
        pairs[part] = _judged(part, titles)
        split[pairs[part][["left", "right"]].to_numpy().ravel()] = part
    pairs["dev"] = _without(pairs["dev"], titles, titles[split == "test"])
    pairs["train"] = _without(_training(titles), titles, titles[split != "train"])
    return retrieval_task("askubuntu", titles, pd.concat(pairs.values()), split, provenance("askubuntu"))


def _titled(row: list[str]) -> tuple[str, str]:
    question, title, _ = row
    if not question.isdigit():
        raise ValueError(f"{question!r} is no question id")
    return question, title.strip()


def _without(pairs: pd.DataFrame, titles: pd.Series, held_out: pd.Series) -> pd.DataFrame:
    """The pairs neither side of which has a held-out title, under whatever id."""
    held_out = titles.index[titles.isin(held_out.array)]
    return pairs[~pairs[["left", "right"]].isin(held_out).any(axis=1)]


def _training(titles: pd.Series) -> pd.DataFrame:
    """Positive pairs of `train_random.txt`: query, similar questions, random questions."""
    rows = fields("askubuntu", "askubuntu/train_random.txt", 3)
    found = [(query, other, 1, line) for line, (query, similar, _) in rows.numbered for other in similar.split()]
    pairs = pd.DataFrame(found, columns=[*PAIR, "line"])
    known = pairs[["left", "right"]].isin(titles.index).all(axis=1)
    if (~known).mean() > TOLERATED:
        line = pairs["line"][~known].iloc[0]
        raise rows.damaged(line, f"{(~known).sum()} pairs name questions without a title, the first here")
    return _distinct(pairs.loc[known, PAIR])


def _judged(part: str, titles: pd.Series) -> pd.DataFrame:
    """Judged pairs of `dev.txt` or `test.txt`: query, similar questions, candidates, BM25 scores."""

    def judge(row: list[str]) -> list[tuple[str, str, int]]:
        query, similar, candidates, scores = row[0], *map(str.split, row[1:])
        unknown = [question for question in (query, *candidates) if question not in titles.index]
        if unknown:
            raise ValueError(f"question {unknown[0]!r} has no title in text_tokenized.txt.gz")
        if not set(similar) <= set(candidates) or len(scores) != len(candidates):
            raise ValueError("similar questions, candidates and scores do not fit together")
        return [(query, other, int(other in similar)) for other in candidates]

    rows = fields("askubuntu", f"askubuntu/{part}.txt", 4).parsed(judge, "a query with judged candidates")
    return _distinct(pd.DataFrame([pair for row in rows for pair in row], columns=PAIR))


def _distinct(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs[pairs["left"] != pairs["right"]].drop_duplicates()
