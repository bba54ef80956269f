"""Disfl-QA: SQuAD questions and disfluent versions of them (Gupta 2021), as pairs of similar items."""

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import content
from retlib.data.datasets._tasks import PAIR, by_text
from retlib.data.splits import closure, retrieval_task
from retlib.data.text import words

# What annotators left where no disfluent version was written, as words.
PLACEHOLDERS = {"", "value", "n a", "no question", "no question n a", "question n a", "answer n a"}


@register("disfl-qa")
def load_disfl_qa() -> Collection:
    """Return the official files as a retrieval task with the official splits.

    A cluster that has questions in two files goes, whole, to the more guarded side: test before dev before train. Pairs
    without a real disfluent version (50 say ``#VALUE!`` or the like) are left out.
    """
    rows = [
        (entry["original"], entry["disfluent"], 1, part)
        for part in ("test", "dev", "train")  # so that the first part of a cluster's pairs is its side
        for entry in content("disfl-qa", f"disfl-qa/{part}.json").values()
        if " ".join(words(entry["disfluent"])) not in PLACEHOLDERS
    ]
    texts, pairs = by_text(pd.DataFrame(rows, columns=[*PAIR, "part"]))
    clusters = closure(pairs)
    side = pairs.groupby(pairs["left"].map(clusters), sort=False)["part"].first()
    # A question whose only version equals it is in no cluster.
    split = clusters.map(side).reindex(texts.index).dropna()
    return retrieval_task("disfl-qa", texts[split.index], pairs, split)
