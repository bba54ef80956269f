"""Public collections that the library ir-datasets reads and fetches, by its ids (MacAvaney 2021)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from retlib.core.errors import DataError, RetlibError, SettingError, require, require_one_of
from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import own, register
from retlib.data.datasets._tasks import guarded
from retlib.data.datasets.catalogue import catalogue

if TYPE_CHECKING:
    from ir_datasets.datasets.base import Dataset

Ids = Mapping[str, Sequence[str]]  # split (train, dev or test) to the ids of what is in it
# What parts of a data set are called, and the splits that they are; the first of a split counts.
PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "test": "test"}


@register("antique")
def load_antique() -> Collection:
    """ANTIQUE: non-factoid questions and the answers of Yahoo! Answers (Hashemi 2020).

    403,666 answers; 2,226, 200 and 200 questions. Its grades run from 1 to 4, of which its authors take 3 and 4 for
    relevant: here 1 and 2, and 0 for those below.
    """
    return collection("antique", catalogue()["antique"].ids, least=3)


@register("trec-car")
def load_trec_car() -> Collection:
    """TREC-CAR 1.5: a page's title and headings ask for the paragraphs of its section (Dietz 2017).

    Of the five segments the last is test, as in Liang 2020, the fourth dev. Candidates are the paragraphs of these, not
    all 29 million. Reading needs the package trec-car-tools, which is not among the book's own.
    """
    return collection("trec-car", catalogue()["trec-car"].ids, judged_only=True)


@register("msmarco")
def load_msmarco() -> Collection:
    """MS MARCO passages: 8.8 million, with the judged queries of the training and the development set (Nguyen 2016).

    Test are the 55,578 judged development queries, as in Liang 2020; dev is a part of the training set.
    """
    return collection("msmarco", catalogue()["msmarco"].ids)


def collection(name: str, ids: Ids, least: int = 1, judged_only: bool = False) -> Collection:
    """Return the collection of data sets of ir-datasets, which fetches what is absent into ``$IR_DATASETS_HOME``.

    Each split (train, dev or test) has ids in `ids`, all of the same documents. The grade `least` becomes 1, the next
    2, and those below 0. If `judged_only`, candidates are only the documents with judgments. Documents have `text` and
    `title` (empty where there is none). Queries without a judgment are left out; one of several splits is left to the
    most guarded: test before dev before train.

    Raises `SettingError` for an unknown split or id, or no id, and `DataError` if the files cannot be fetched or read,
    or no query of a part has judgments.
    """
    for split in ids:
        require_one_of("split", split, SPLITS)
    # The most guarded split first: it keeps what stands in several.
    sets = [(split, _dataset(one)) for split in reversed(SPLITS) for one in ids.get(split, ())]
    require(len(sets) > 0, f"collection {name!r} needs at least one id of ir-datasets in a split")
    with _reading(name):
        queries = pd.concat([_queries(one).assign(split=split) for split, one in sets])
        qrels = pd.concat([_judgments(one, least) for _, one in sets]).drop_duplicates(["query_id", "doc_id"])
        # Of a text in several splits the first stays, also where that one is without judgments.
        queries = guarded(queries, queries["text"].str.casefold())
        qrels = qrels[qrels["query_id"].isin(queries.index)].reset_index(drop=True)
        queries = queries[~queries.index.duplicated()].loc[qrels["query_id"].unique()].rename_axis("query_id")
        documents = _documents(sets[0][1], set(qrels["doc_id"]) if judged_only else None)
    for split, _ in sets:
        require(split in set(queries["split"]), f"collection {name!r}: no query of {split} has a judgment", DataError)
    version = f"ir-datasets {metadata.version('ir-datasets')}"
    return Collection(name, documents, queries, qrels, provenance=dict.fromkeys(_flat(ids), version))


def splits(one: str) -> dict[str, list[str]]:
    """Return the splits of a data set, by the usual names of its parts; a set without parts is test.

    Raises `SettingError` for an unknown id.
    """
    found = {}
    for part, split in PARTS.items():
        with suppress(SettingError):
            _dataset(f"{one}/{part}")
            found.setdefault(split, [f"{one}/{part}"])
    _dataset(one)
    return found or {"test": [one]}


def fetch(ids: Ids) -> list[str]:
    """Have ir-datasets fetch and verify what the ids name, if it is not here; one line an id says so."""
    for one in _flat(ids):
        data = _dataset(one)
        with _reading(one):
            for items in (data.docs_iter(), data.queries_iter(), data.qrels_iter()):
                next(iter(items), None)
    return [f"{one}: fetched by ir-datasets, {_home()}" for one in _flat(ids)]


def is_here(ids: Ids) -> bool:
    """Whether ir-datasets has files of the data sets that the ids name; a failed download leaves folders."""
    folders = (_home() / one.partition("/")[0] for one in _flat(ids))
    return all(any(path.is_file() for path in folder.rglob("*")) for folder in folders)


def _flat(ids: Ids) -> list[str]:
    return [one for some in ids.values() for one in some]


def _home() -> Path:
    """Where ir-datasets keeps its files; asking the library would make the folder."""
    return Path(os.environ.get("IR_DATASETS_HOME", Path.home() / ".ir_datasets"))


def _dataset(one: str) -> Dataset:
    import ir_datasets

    try:
        return ir_datasets.load(one)
    except KeyError as error:
        raise SettingError(f"ir-datasets knows no {one!r}; its ids are at https://ir-datasets.com") from error


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn whatever ir-datasets raises while it fetches and reads into a `DataError`."""
    try:
        yield
    except RetlibError:
        raise
    except Exception as error:  # of many kinds: of the network, the formats, absent packages
        raise DataError(
            f"{name}: ir-datasets cannot fetch or read it ({type(error).__name__}: {error}). Its files are in "
            f"{_home()}; check the network, move away what is damaged, and try again (see https://ir-datasets.com)."
        ) from error


def _queries(data: Dataset) -> pd.DataFrame:
    rows = {query.query_id: " ".join(query.default_text().split()) for query in data.queries_iter()}
    return pd.DataFrame({"text": pd.Series(rows, dtype=object)}).rename_axis("query_id")


def _judgments(data: Dataset, least: int) -> pd.DataFrame:
    rows = [(row.query_id, row.doc_id, max(row.relevance - least + 1, 0)) for row in data.qrels_iter()]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"])


def _documents(data: Dataset, chosen: set[str] | None) -> pd.DataFrame:
    rows = {
        document.doc_id: (getattr(document, "text", None) or document.default_text(), getattr(document, "title", ""))
        for document in data.docs_iter()
        if chosen is None or document.doc_id in chosen
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["text", "title"]).rename_axis("doc_id")


def _of_id(name: str, one: str) -> own.Own:
    return own.Own(name, (), lambda _: collection(name, splits(one)))


own.FORMS["irds"] = ("id of ir-datasets", _of_id)
