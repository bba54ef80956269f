"""Collections in BEIR's form (Thakur 2021): ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from retlib.core.errors import DataError
from retlib.data.collection import Collection
from retlib.data.datasets._tasks import SHARE, guarded
from retlib.data.datasets.catalogue import MOST
from retlib.data.splits import HELD_OUT, hash_position, with_copies

Frame = pd.DataFrame
QRELS, HEAD = ["query_id", "doc_id", "relevance"], ["query-id", "corpus-id", "score"]
DANGLING = 0.1  # of a split's judgments; where more name nothing, what is left measures something else
BLANK, REPEATED, NOTHING = "blanks left out", "repeated lines", "judgments that name nothing"


@dataclass(frozen=True)
class Entries:
    """What a file holds, one after the other, with numbers: lines, or rows of a table; to be read once."""

    dataset: str
    place: str  # the file, or the member of an archive
    numbered: Iterable[tuple[int, Any]]

    def parsed(self, parse: Callable[[Any], Any], expected: str) -> Iterator[tuple[int, Any]]:
        """Yield what `parse` makes of each entry; where it fails, `DataError` says that this is not `expected`."""
        for number, entry in self.numbered:
            try:
                yield number, parse(entry)
            except Exception as error:  # of many kinds; that of undecoded bytes would show all of them
                why = str(error) if type(error) is ValueError or isinstance(error, UnicodeError) else repr(error)
                raise self.damaged(number, f"not {expected} ({why})") from error

    def damaged(self, number: int, problem: str) -> DataError:
        """Return the error for an entry."""
        return DataError(f"{self.dataset}: {self.place}, line {number}: {problem:.{MOST}}.")


def complete_collection(
    name: str, documents: Frame, queries: Frame, qrels: Frame, made_of: Mapping, counts: Counter, files: Mapping | None
) -> Collection:
    """Return a collection with facts about its texts, its files and what is left out; missing splits are made.

    Judgments are by split, test first, or all of train. A query or text of several splits is left to the first of them.
    Copies of a relevant text count as relevant where there are facts about files; those of a release stay as they are.
    """
    qrels = qrels.assign(split=qrels.get("split", "train")).reset_index(drop=True)
    first = guarded(qrels, qrels["query_id"])
    answered = queries[["text"]].join(first.drop_duplicates("query_id").set_index("query_id")["split"], how="right")
    unique = guarded(answered, answered["text"].str.casefold()).rename_axis("query_id")
    kept = first.loc[first["query_id"].isin(unique.index), QRELS].reset_index(drop=True)
    split_queries, made = with_splits(unique)
    words = documents["text"].str.count(r"\S+")
    facts = {
        "documents": len(documents),
        "copies of a text": int(documents.duplicated(["text", "title"], keep=False).sum()),
        "shortest text (words)": int(words.min()),
        "longest text (words)": int(words.max()),
        "questions that are documents": 0,
        "judgments": len(qrels) + counts[NOTHING],
        "judgments of copies": 0,
        **{each: counts[each] for each in (BLANK, REPEATED, NOTHING)},
        "questions without an answer": len(queries) - len(answered),
        "queries whose text a more guarded split has": len(answered) - len(unique),
        "judgments of queries that a more guarded split has": len(qrels) - len(kept),
        **made,
        **(files or {}),
    }
    every = kept if files is None else with_copies(kept, documents)
    facts["judgments of copies"] = len(every) - len(kept)
    documents = documents.rename_axis("doc_id")
    collection = Collection(name, documents, split_queries, every, provenance=made_of, facts=facts)
    facts["questions that are documents"] = len(collection.own_documents)
    if move := collection.copy_bound():
        facts["points that unjudged copies can move a mean by"] = round(move, 1)
    return collection


def write(collection: Collection, folder: Path) -> None:
    """Write a collection, to be read as ``beir:<folder>``."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for earlier in (folder / "queries.jsonl", *(folder / "qrels").iterdir()):
        earlier.unlink(missing_ok=True)
    queries = {"queries": collection.queries} if len(collection.qrels) else {}
    for file, frame in {"corpus": collection.documents, **queries}.items():
        named = frame.filter(["title", "text"]).rename_axis("_id").reset_index()
        named.to_json(folder / f"{file}.jsonl", orient="records", lines=True, force_ascii=False)
    for split in collection.queries["split"].unique():
        if len(qrels := collection.judgments(split)[QRELS]):
            qrels.to_csv(folder / f"qrels/{split}.tsv", sep="\t", index=False, header=HEAD, quoting=csv.QUOTE_NONE)


def unasked() -> tuple[Frame, Frame]:
    """Return the queries and judgments of documents that nobody asked for."""
    queries = pd.DataFrame(columns=["text", "split"], index=pd.Index([], name="query_id", dtype="str"), dtype="str")
    return queries, pd.DataFrame(columns=QRELS, dtype="str").astype({"relevance": int})


def with_splits(queries: Frame) -> tuple[Frame, dict[str, str]]:
    """Return queries of all splits, by a hash of the texts where one is missing, and what was made, in words."""
    split, given, facts = queries["split"].copy(), set(queries["split"]), []
    if given == {"dev"}:
        return queries.assign(split="test"), {"splits": "test is what was dev"}
    for name, share in (("test", 1 - SHARE), ("dev", HELD_OUT)):
        if "train" in given and name not in given:
            place = (f"{name} " + queries["text"][split == "train"].str.casefold()).map(hash_position)
            order = np.unique(place)  # what differs by case alone stays together
            if count := min(max(1, int((order < share).sum())), len(order) - 1):
                split[place.index[place < order[count]]] = name
                facts.append(f"{name} is {count} of the {len(order)} texts of what was train")
    return queries.assign(split=split), {"splits": f"{', '.join(facts)}, by a hash of the text"} if facts else {}


def checked_text(value: str | None, form: str = "") -> str:
    """Return a text without the white space around it, empty for None; `ValueError` for what no file could hold."""
    if not isinstance(value, str | None):
        raise ValueError(f"{value!r} is no text")
    text = (value or "").strip()
    text.encode()  # JSON can spell half a letter
    return normalize(form, text) if form else text


def unique_rows(entries: Entries, rows: Frame, keys: list[str], counts: Counter[str]) -> Frame:
    """Return rows, by the numbers of their lines, without repeated ones; `DataError` if rows share their keys alone."""
    unique = rows.drop_duplicates()
    counts[REPEATED] += len(rows) - len(unique)
    for number, *key in unique.loc[unique.duplicated(keys), keys].itertuples():
        raise entries.damaged(number, f"{key} stands before with another content: keep one of the two")
    return unique


def texts(entries: Entries, decode: Callable, columns: list[str], keys: list[str], counts: Counter, form: str) -> Frame:
    """Return entries with an id that have a text or a title, their first columns, by the numbers of their lines."""

    def row(raw: Any) -> tuple[str, ...]:
        entry = decode(raw)
        name = entry["_id"] if "_id" in entry else entry["id"]
        if type(name) not in (str, int) or str(name).split() != [str(name)]:
            raise ValueError(f"the id {name!r} is no number and no text without white space, as a run on disk needs")
        return checked_text(str(name)), *(checked_text(entry.get(column), form) for column in columns)

    rows = dict(entries.parsed(row, f"an entry with `_id` and {' or '.join(columns[:2])}"))
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["_id", *columns], dtype="str")
    is_blank = (frame[columns[:2]] == "").all(axis=1)
    counts[BLANK] += int(is_blank.sum())
    if is_blank.all():
        raise entries.damaged(1, "there is no entry with a text")
    return unique_rows(entries, frame[~is_blank], keys, counts)


def judgments(entries: Entries, queries: pd.Index, documents: pd.Index, counts: Counter[str]) -> Frame:
    """Return a split's judgments that name something, by the numbers of their lines; of over a tenth `DataError`."""
    lines = [(number, line.split("\t" if "\t" in line else None)) for number, line in entries.numbered]
    places = [0, -2, -1]  # behind the first TREC has a column of its own
    head = [name.strip().lower() for name in lines[0][1]] if lines else []
    if len(head) in (3, 4) and lines[0][1][0].strip() not in queries and not re.fullmatch(r"[-+]?[\d.]+", head[-1]):
        places = [head.index(name) for name in HEAD] if {*HEAD} <= {*head} else places
        del lines[0]

    def judge(fields: list[str]) -> tuple[str, str, int]:
        query_id, doc_id, grade = (fields[place].strip() for place in places)
        if len(fields) not in (3, 4) or not float(grade).is_integer():
            raise ValueError(f"{len(fields)} columns, the last of which is {grade}")
        return query_id, doc_id, int(np.int32(int(float(grade))))

    rows = dict(replace(entries, numbered=lines).parsed(judge, "query, document and grade, or TREC's columns"))
    if not rows:
        raise entries.damaged(2, "there is no judgment")
    frame = unique_rows(entries, pd.DataFrame.from_dict(rows, orient="index", columns=QRELS), QRELS[:2], counts)
    is_query = queries.get_indexer(frame["query_id"]) >= 0  # faster than isin
    is_document = documents.get_indexer(frame["doc_id"]) >= 0
    dangling = frame[~(is_query & is_document)]
    counts[NOTHING] += len(dangling)
    if len(dangling) > DANGLING * len(frame):
        lacking = f"{(~is_query).sum()} no query and {(~is_document).sum()} no document of these files"
        problem = f"{len(dangling)} of {len(frame)} judgments name nothing ({lacking}): at most a tenth is left out"
        raise entries.damaged(dangling.index[0], problem)
    return frame[is_query & is_document]
