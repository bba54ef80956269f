"""Public collections that the library ir-datasets reads and fetches (MacAvaney 2021): ``irds:ID`` (chapter 60)."""

from collections import Counter
from contextlib import suppress
from importlib import metadata

import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.datasets import own
from retlib.data.datasets._beir import QRELS, complete_collection

# Endings of the ids of parts, and their splits, the most guarded first; the first of a split counts.
PARTS = {"/test": "test", "/dev": "dev", "/validation": "dev", "/valid": "dev", "/train": "train", "": "whole"}


def collection(name: str, one: str) -> Collection:
    """Return the collection of a data set of ir-datasets, which fetches what is absent into ``$IR_DATASETS_HOME``.

    A set without parts is test. Raises `SettingError` for an unknown id, and `DataError` if files cannot be fetched or
    read, or no query of a part has judgments.
    """
    parts = _parts(one)
    try:
        asked = [
            (row.query_id, " ".join(row.default_text().split()))
            for part in parts.values()
            for row in part.queries_iter()
        ]
        judged = [
            (row.query_id, row.doc_id, max(0, row.relevance), split)
            for split, part in parts.items()
            for row in part.qrels_iter()
        ]
        documents = {
            each.doc_id: (getattr(each, "text", None) or each.default_text(), getattr(each, "title", ""))
            for each in next(iter(parts.values())).docs_iter()
        }
    except Exception as error:  # of many kinds: of the network, the formats, absent packages
        raise DataError(
            f"{name}: ir-datasets cannot fetch or read it ({type(error).__name__}: {error}). Check the network, move "
            "away what is damaged in $IR_DATASETS_HOME or ~/.ir_datasets, and try again (see https://ir-datasets.com)."
        ) from error
    asked = pd.DataFrame(asked, columns=["query_id", "text"]).drop_duplicates("query_id").set_index("query_id")
    judged = pd.DataFrame(judged, columns=[*QRELS, "split"]).drop_duplicates(QRELS[:2])
    judged = judged[judged["query_id"].isin(asked.index)]
    for split in parts:
        require(split in {*judged["split"]}, f"collection {name!r}: no query of {split} has a judgment", DataError)
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"])
    version = f"ir-datasets {metadata.version('ir-datasets')}"
    made_of = {part.dataset_id(): version for part in parts.values()}
    return complete_collection(name, frame, asked, judged, made_of, Counter(), None)


def _parts(one: str) -> dict:
    from ir_datasets import load

    parts = {}
    for ending, split in PARTS.items():
        with suppress(KeyError):
            parts.setdefault(split, load(one + ending))
    require("whole" in parts, f"ir-datasets knows no {one!r}; its ids are at https://ir-datasets.com")
    whole = parts.pop("whole")
    return parts or {"test": whole}


own.FORMS["irds"] = ("id of ir-datasets", lambda name, one: own.Own(name, (), lambda _: collection(name, one)))
