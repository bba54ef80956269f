"""Public collections that the library ir-datasets reads and fetches, by its ids (MacAvaney 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import pandas as pd

from retlib.core.errors import DataError, SettingError, require
from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import own, register
from retlib.data.datasets._tasks import guarded
from retlib.data.datasets.catalogue import entry

# What parts of a data set are called, and the splits that they are; the first of a split counts.
PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "test": "test"}


@register("antique")
def load_antique() -> Collection:
    """Return ANTIQUE: 403,666 answers of Yahoo! Answers, and 2,626 non-factoid questions (Hashemi 2020).

    Its grades run from 1 to 4, of which its authors take 3 and 4 for relevant: here 1 and 2, and 0 for those below.
    """
    return collection("antique", entry("antique").ids, least=3)


@register("trec-car")
def load_trec_car() -> Collection:
    """Return TREC-CAR 1.5: a page's title and headings ask for the paragraphs of its section (Dietz 2017).

    Of the five segments the last is test, as in Liang 2020, the fourth dev. Candidates are the paragraphs of these, not
    all 29 million. Reading needs the package trec-car-tools, which is not among the book's own.
    """
    return collection("trec-car", entry("trec-car").ids, judged_only=True)


@register("msmarco")
def load_msmarco() -> Collection:
    """Return MS MARCO: 8.8 million passages, with the judged queries of two of its sets (Nguyen 2016).

    Test are the 55,578 judged development queries, as in Liang 2020; dev is a part of the training set.
    """
    return collection("msmarco", entry("msmarco").ids)


def collection(name: str, ids: Mapping[str, Sequence[str]], least: int = 1, judged_only: bool = False) -> Collection:
    """Return the collection of data sets of ir-datasets, which fetches what is absent into ``$IR_DATASETS_HOME``.

    Each split (train, dev or test) has ids in `ids`, all of the same documents. The grade `least` becomes 1, the next
    2, and those below 0. If `judged_only`, candidates are only the documents with judgments. Queries without a judgment
    are left out; one of several splits is left to the most guarded: test before dev before train. Raises `SettingError`
    for an unknown id, and `DataError` if files cannot be fetched or read, or no query of a split has judgments.
    """
    # The most guarded split first: it keeps what stands in several.
    sets = [(split, _dataset(one)) for split in reversed(SPLITS) for one in ids.get(split, ())]
    try:
        rows = [
            (q.query_id, " ".join(q.default_text().split()), split) for split, one in sets for q in one.queries_iter()
        ]
        judged = [(row.query_id, row.doc_id, row.relevance) for _, one in sets for row in one.qrels_iter()]
        chosen = {doc_id for _, doc_id, _ in judged}
        documents = {
            each.doc_id: (getattr(each, "text", None) or each.default_text(), getattr(each, "title", ""))
            for each in sets[0][1].docs_iter()
            if not judged_only or each.doc_id in chosen
        }
    except Exception as error:  # of many kinds: of the network, the formats, absent packages
        raise DataError(
            f"{name}: ir-datasets cannot fetch or read it ({type(error).__name__}: {error}). Check the network, move "
            "away what is damaged in $IR_DATASETS_HOME or ~/.ir_datasets, and try again (see https://ir-datasets.com)."
        ) from error
    qrels = pd.DataFrame(judged, columns=["query_id", "doc_id", "relevance"]).drop_duplicates(["query_id", "doc_id"])
    qrels["relevance"] = (qrels["relevance"] - least + 1).clip(lower=0)
    queries = pd.DataFrame(rows, columns=["query_id", "text", "split"]).set_index("query_id")
    queries = guarded(queries, queries["text"].str.casefold())
    qrels = qrels[qrels["query_id"].isin(queries.index)].reset_index(drop=True)
    queries = queries[~queries.index.duplicated()].loc[qrels["query_id"].unique()]
    for split, _ in sets:
        require(split in {*queries["split"]}, f"collection {name!r}: no query of {split} has a judgment", DataError)
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"]).rename_axis("doc_id")
    version = f"ir-datasets {metadata.version('ir-datasets')}"
    return Collection(name, frame, queries, qrels, provenance={one: version for some in ids.values() for one in some})


def splits(one: str) -> dict[str, list[str]]:
    """Return the splits of a data set, by the usual names of its parts; a set without parts is test.

    Raises `SettingError` for an unknown id.
    """
    ids = {}
    for part, split in PARTS.items():
        with suppress(SettingError):
            _dataset(f"{one}/{part}")
            ids.setdefault(split, [f"{one}/{part}"])
    _dataset(one)
    return ids or {"test": [one]}


def _dataset(one: str) -> Any:
    import ir_datasets

    try:
        return ir_datasets.load(one)
    except KeyError as error:
        raise SettingError(f"ir-datasets knows no {one!r}; its ids are at https://ir-datasets.com") from error


own.FORMS["irds"] = (
    "id of ir-datasets",
    lambda name, one: own.Own(name, (), lambda _: collection(name, splits(one))),
)
