"""Disfl-QA: SQuAD questions and disfluent versions of them (Gupta 2021), as pairs of similar items."""

from __future__ import annotations

import json

import pandas as pd

from retlib.data.collection import Collection, closure, retrieval_task
from retlib.data.datasets import register
from retlib.data.datasets._reading import by_text
from retlib.data.datasets.catalogue import damaged, locate, provenance
from retlib.data.text import words

# What annotators left where no disfluent version was written, as words.
PLACEHOLDERS = {"", "value", "n a", "no question", "no question n a", "question n a", "answer n a"}


@register("disfl-qa")
def load_disfl_qa() -> Collection:
    """The official files as a retrieval task with the official splits.

    A cluster that has questions in two files goes, whole, to the more guarded side: test
    before dev before train. Pairs without a real disfluent version (50 say ``#VALUE!`` or
    the like) are left out.
    """
    parts = [_read(part).assign(part=part) for part in ("test", "dev", "train")]
    both = pd.concat(parts, ignore_index=True)
    texts, pairs = by_text(both)
    clusters = closure(pairs)
    # Parts stand in guarding order, so that the first part of a cluster's pairs is its side.
    side = pairs.groupby(pairs["left"].map(clusters), sort=False)["part"].first()
    split = clusters.map(side).reindex(texts.index)
    kept = split.notna()  # a question whose only version equals it is in no cluster
    return retrieval_task("disfl-qa", texts[kept], pairs, split[kept], provenance("disfl-qa"))


def _read(part: str) -> pd.DataFrame:
    path = locate("disfl-qa", f"disfl-qa/{part}.json")
    try:
        content = json.loads(path.read_bytes())
        rows = [(entry["original"], entry["disfluent"], 1) for entry in content.values()]
    except ValueError as error:  # not UTF-8, or not JSON
        raise damaged("disfl-qa", path, getattr(error, "lineno", None), str(error)) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged("disfl-qa", path, None, "not question ids with `original` and `disfluent`") from error
    pairs = pd.DataFrame(rows, columns=["left", "right", "label"])
    return pairs[[" ".join(words(text)) not in PLACEHOLDERS for text in pairs["right"]]]
