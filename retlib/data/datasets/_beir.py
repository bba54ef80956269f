"""Collections in BEIR's form (Thakur 2021): ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets._files import Entries
from retlib.data.datasets._tasks import SHARE, guarded
from retlib.data.splits import HELD_OUT, hash_position


def beir(name: str, read: Callable[[str], Entries], splits: Sequence[str], made_of: Mapping[str, str]) -> Collection:
    """The collection whose files `read` gives by their names.

    Parameters
    ----------
    read : callable
    splits : sequence of str
        Those of train, dev and test that have judgments; some are made as `with_splits` says.
    made_of : mapping of str to str
        Provenance.

    Returns
    -------
    Collection
        Queries without a judgment are left out. A query or a text in several splits is left to the most guarded, with
        its judgments: test before dev before train. The provenance says of how many.

    Raises
    ------
    DataError
        For what cannot be read, an id that stands twice, a text that is empty, or a judgment of what is not there,
        with file and line.
    """
    documents = texts(read("corpus.jsonl"), "text", "title")
    if not splits:
        return Collection(name, documents, *unasked(), provenance=made_of)
    asked = texts(read("queries.jsonl"), "text")
    parts = [_judgments(read(f"qrels/{split}.tsv"), asked.index, documents.index).assign(split=split)
             for split in reversed(SPLITS) if split in splits]  # fmt: skip
    judged = pd.concat(parts, ignore_index=True)
    own = guarded(judged, judged["query_id"])
    split = own.drop_duplicates("query_id").set_index("query_id")["split"]
    queries = asked.loc[split.index].assign(split=split)
    kept = guarded(queries, queries["text"].str.casefold()).rename_axis("query_id")
    qrels = own.loc[own["query_id"].isin(kept.index), ["query_id", "doc_id", "relevance"]]
    kept, said = with_splits(kept)
    lost = {
        "queries without a judgment": len(asked) - len(queries),
        "queries whose text a more guarded split has": len(queries) - len(kept),
        "judgments of queries that a more guarded split has": len(judged) - len(own),
    }
    if told := ", ".join(f"{which}: {count}" for which, count in lost.items() if count):
        said["left out"] = told
    return Collection(name, documents, kept, qrels.reset_index(drop=True), provenance={**made_of, **said})


def write(collection: Collection, folder: Path) -> None:
    """Write a collection in this form, to be read as ``beir:<folder>``: texts, titles, queries and judgments if any.

    Raises
    ------
    DataError
        For an id that is empty or has white space.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for earlier in ("queries.jsonl", *(f"qrels/{split}.tsv" for split in SPLITS)):
        (folder / earlier).unlink(missing_ok=True)
    columns = [column for column in ("title", "text") if column in collection.documents]
    asked = {"queries": collection.queries[["text"]]} if len(collection.qrels) else {}
    for file, frame in {"corpus": collection.documents[columns], **asked}.items():
        wrong = [name for name in frame.index if name.split() != [name]]
        require(not wrong, f"{file}: the ids {wrong[:3]} are empty or have white space", DataError)
        named = frame.rename_axis("_id").reset_index()
        named.to_json(folder / f"{file}.jsonl", orient="records", lines=True, force_ascii=False)
    names = {"query_id": "query-id", "doc_id": "corpus-id", "relevance": "score"}
    for split in collection.queries["split"].unique():
        judged = collection.judgments(split)[list(names)].rename(columns=names)
        if len(judged):
            judged.to_csv(folder / "qrels" / f"{split}.tsv", sep="\t", index=False, quoting=csv.QUOTE_NONE)


def unasked() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries and judgments of documents that nobody asked for."""
    queries = pd.DataFrame(index=pd.Index([], dtype="str", name="query_id"), columns=["text", "split"], dtype="str")
    return queries, pd.DataFrame(columns=["query_id", "doc_id", "relevance"], dtype="str").astype({"relevance": int})


def with_splits(queries: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Queries of all splits, where those given allow it; and what was made, in words.

    Of train, a missing test takes a fifth and a missing dev a tenth of what is left, by a hash of the texts: of two
    questions and more at least one, but not all. Of dev alone all is test.

    Parameters
    ----------
    queries : DataFrame
        Columns `text` and `split`.
    """
    split, said = queries["split"].copy(), []
    given = set(split)
    if given == {"dev"}:
        return queries.assign(split="test"), {"splits": "test is what was dev"}
    for name, share in (("test", 1 - SHARE), ("dev", HELD_OUT)):
        if "train" in given and name not in given:
            place = (f"{name} " + queries["text"][split == "train"].str.casefold()).map(hash_position)
            order = np.unique(place)  # what differs by case alone stays together
            meant = int((order < share).sum())
            if count := min(max(1, meant), len(order) - 1):
                split[place.index[place.isin(order[:count])]] = name
                few = f"{share:.0%}" if count == meant else f"{count} of the {len(order)} texts"
                said.append(f"{name} is {few} of what was train")
    return queries.assign(split=split), {"splits": f"{', '.join(said)}, by a hash of the text"} if said else {}


def texts(entries: Entries, *columns: str) -> pd.DataFrame:
    """Entries of JSON lines by their ids: the first of the columns, which has text, and others, which may be absent.

    Ids are ``_id`` or ``id``, texts or numbers.
    """

    def row(entry: dict) -> tuple[str, list[str]]:
        name = entry["_id"] if "_id" in entry else entry["id"]
        return checked_id(name), [checked_text(entry.get(column)) for column in columns]

    first, *others = (f"`{column}`" for column in columns)
    expected = f"an entry with `_id` and {first}" + (f", perhaps {', '.join(others)}" if others else "")
    rows: dict[str, list[str]] = {}
    for number, (name, found) in entries.of_json(row, expected).numbered:
        if name in rows:
            raise entries.damaged(number, f"the id {name!r} stands there a second time")
        if not any(found):
            raise entries.damaged(number, f"{name!r} has no text")
        rows[name] = found
    if not rows:
        raise entries.damaged(1, "there is no entry")
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=list(columns))
    return frame.rename_axis("query_id" if columns == ("text",) else "doc_id")


def checked_id(name: object) -> str:
    """An id as text; `ValueError` for what a run on disk could not hold."""
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"the id {name!r} is neither text nor a number")
    if not (found := str(name)) or found.split() != [found]:
        raise ValueError(f"the id {found!r} is empty or has white space, which would part it in a run on disk")
    return checked_text(found)


def checked_text(value: object) -> str:
    """A text without the white space around it, empty for None; `ValueError` for what no file could hold as text."""
    if not isinstance(value, str | None):
        raise ValueError(f"{value!r} is no text")
    found = (value or "").strip()
    found.encode()  # JSON can spell half a letter
    return found


def _judgments(entries: Entries, queries: pd.Index, documents: pd.Index) -> pd.DataFrame:
    """The judgments of a split: tab-separated below a line of names."""

    def judge(line: str) -> tuple[str, str, int]:
        query_id, doc_id, relevance = line.rstrip("\r\n").split("\t")
        return query_id, doc_id, int(np.int32(int(relevance)))

    numbered = iter(entries.numbered)
    names = next(numbered, (1, ""))[1].split("\t")
    if len(names) != 3 or names[2].strip().lstrip("-").isdecimal():
        raise entries.damaged(1, "the line of names is missing: query-id, corpus-id and score between tabs")
    rows: dict[tuple[str, str], int] = {}
    below = replace(entries, numbered=numbered)
    for number, (query_id, doc_id, relevance) in below.parsed(judge, "query, document and relevance").numbered:
        for what, name, known in (("query", query_id, queries), ("document", doc_id, documents)):
            if name not in known:
                raise entries.damaged(number, f"there is no {what} {name!r}")
        if rows.setdefault((query_id, doc_id), relevance) != relevance:
            raise entries.damaged(number, f"{query_id!r} and {doc_id!r} are judged otherwise before")
    if not rows:
        raise entries.damaged(2, "there is no judgment")
    frame = pd.DataFrame(list(rows), columns=["query_id", "doc_id"], dtype="str")
    return frame.assign(relevance=pd.Series(list(rows.values()), dtype=int))
