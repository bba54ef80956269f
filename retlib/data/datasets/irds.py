"""Public collections that the library ir-datasets reads and fetches (MacAvaney 2021): ``irds:ID`` (chapter 60)."""

from collections import Counter
from contextlib import suppress
from importlib import metadata

import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.datasets import own
from retlib.data.datasets.beir import QRELS

# Endings of the ids of parts, and their splits, the most guarded first; the first of a split counts.
PARTS = {"/test": "test", "/dev": "dev", "/validation": "dev", "/valid": "dev", "/train": "train", "": "whole"}


class Public(own.Corpus):
    """A data set of ir-datasets, which fetches what is absent into ``$IR_DATASETS_HOME``; without parts it is test."""

    provenance = property(lambda self: {self.name: f"ir-datasets {metadata.version('ir-datasets')}"})


def read(name: str, one: str) -> tuple:
    """Return what `retlib.data.datasets.own.Corpus` reads, of an id.

    Raises `SettingError` for an unknown id, and `DataError` if files cannot be fetched or read, or no query of a part
    has judgments.
    """
    from ir_datasets import load

    parts = {}
    for ending, split in PARTS.items():
        with suppress(KeyError):
            parts.setdefault(split, load(one + ending))
    require("whole" in parts, f"ir-datasets knows no {one!r}; its ids are at https://ir-datasets.com")
    whole = parts.pop("whole")
    parts = parts or {"test": whole}
    try:
        rows = [(row.query_id, row.default_text()) for part in parts.values() for row in part.queries_iter()]
        judged = [(row, split) for split, part in parts.items() for row in part.qrels_iter()]
        judged = [(row.query_id, row.doc_id, max(0, row.relevance), split) for row, split in judged]
        documents = {
            each.doc_id: (getattr(each, "text", None) or each.default_text(), getattr(each, "title", ""))
            for each in next(iter(parts.values())).docs_iter()
        }
    except Exception as error:  # of many kinds: of the network, the formats, absent packages
        raise DataError(
            f"{name}: ir-datasets cannot fetch or read it ({type(error).__name__}: {error}). Check the network, move "
            "away what is damaged in $IR_DATASETS_HOME or ~/.ir_datasets, and try again (see https://ir-datasets.com)."
        ) from error
    queries = pd.DataFrame(rows, columns=["query_id", "text"]).drop_duplicates("query_id").set_index("query_id")
    queries["text"] = queries["text"].str.split().str.join(" ")
    judged = pd.DataFrame(judged, columns=[*QRELS, "split"]).drop_duplicates(QRELS[:2])
    judged = judged[judged["query_id"].isin(queries.index)]
    for split in parts:
        require(split in {*judged["split"]}, f"collection {name!r}: no query of {split} has a judgment", DataError)
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"])
    return frame, queries, judged, Counter(), None


own.FORMS["irds"] = ("id of ir-datasets", lambda name, one: Public(name, (), lambda: read(name, one)))
