"""Disfl-QA: SQuAD questions and disfluent versions of them (Gupta 2021), as pairs of similar items."""

from __future__ import annotations

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import listed
from retlib.data.datasets._tasks import PAIR, by_text
from retlib.data.datasets.catalogue import provenance
from retlib.data.splits import closure, retrieval_task
from retlib.data.text import words

# What annotators left where no disfluent version was written, as words.
PLACEHOLDERS = {"", "value", "n a", "no question", "no question n a", "question n a", "answer n a"}


@register("disfl-qa")
def load_disfl_qa() -> Collection:
    """The official files as a retrieval task with the official splits.

    A cluster that has questions in two files goes, whole, to the more guarded side: test before dev before train. Pairs
    without a real disfluent version (50 say ``#VALUE!`` or the like) are left out.
    """
    rows = [(*pair, 1, part) for part in ("test", "dev", "train") for pair in _pairs(part)]
    texts, pairs = by_text(pd.DataFrame(rows, columns=[*PAIR, "part"]))
    clusters = closure(pairs)
    # Parts stand in guarding order, so that the first part of a cluster's pairs is its side.
    side = pairs.groupby(pairs["left"].map(clusters), sort=False)["part"].first()
    split = clusters.map(side).reindex(texts.index)
    kept = split.notna()  # a question whose only version equals it is in no cluster
    return retrieval_task("disfl-qa", texts[kept], pairs, split[kept], provenance("disfl-qa"))


def _pairs(part: str) -> list[tuple[str, str]]:
    expected = "question ids with `original` and `disfluent`"
    entries = listed("disfl-qa", f"disfl-qa/{part}.json", lambda content: content.values(), expected, "question")
    pairs = entries.parsed(lambda entry: (entry["original"], entry["disfluent"]), expected)
    return [(original, text) for original, text in pairs if " ".join(words(text)) not in PLACEHOLDERS]
