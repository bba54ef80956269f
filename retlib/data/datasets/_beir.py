"""Collections in BEIR's form (Thakur 2021): ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import SPLITS, Collection
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

    def __iter__(self) -> Iterator[Any]:
        return (entry for _, entry in self.numbered)

    def parsed(self, parse: Callable[[Any], Any], expected: str) -> Entries:
        """Return what `parse` makes of each entry; where it fails, `DataError` says that this is not `expected`."""

        def read() -> Iterator[tuple[int, Any]]:
            for number, entry in self.numbered:
                try:
                    yield number, parse(entry)
                except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                    # That of undecoded bytes would show all of them.
                    why = str(error) if type(error) is ValueError or isinstance(error, UnicodeError) else repr(error)
                    raise self.damaged(number, f"not {expected} ({why})") from error

        return replace(self, numbered=read())

    def of_json(self, parse: Callable[[Any], Any], expected: str) -> Entries:
        """Return what `parse` makes of the JSON in each line, with or without a byte-order mark, blank lines aside."""
        filled = ((number, line) for number, each in self.numbered if (line := each.strip("\ufeff \t\r\n")))
        return replace(self, numbered=filled).parsed(lambda line: parse(json.loads(line)), expected)

    def damaged(self, number: int, problem: str) -> DataError:
        """Return the error for an entry."""
        problem = problem if len(problem) <= MOST else f"{problem[:MOST]} …"
        return DataError(f"{self.dataset}: {self.place}, line {number}: {problem}.")


def beir(
    name: str, read: Callable[[str], Entries], splits: Sequence[str], made_of: Mapping, files: Mapping | None = None
) -> Collection:
    """Return the collection whose files `read` gives by their names.

    Texts of one's own, with facts about their files, become NFC; those of a release stay. `DataError` names what cannot
    be read, an id of two texts, a pair of two grades, and a split where over a tenth of the judgments name nothing.
    """
    form = "" if files is None else "NFC"
    counts, (asked, judged) = Counter(), unasked()
    lines = read("corpus.jsonl").of_json(lambda entry: entry, "JSON")
    documents = texts(lines, ["text", "title"], ["_id"], counts, form).set_index("_id")
    if splits:
        order = sorted(splits, key=SPLITS.index)[::-1]
        lines = read("queries.jsonl").of_json(lambda entry: entry, "JSON")
        asked = texts(lines, ["text"], ["_id"], counts, form).set_index("_id")
        parts = [_judgments(read(f"qrels/{split}.tsv"), asked.index, documents.index, counts) for split in order]
        judged = pd.concat(parts, keys=order, names=["split"]).reset_index("split")
    return complete_collection(name, documents, asked, judged, made_of, counts, files)


def complete_collection(
    name: str, documents: Frame, asked: Frame, judged: Frame, made_of: Mapping, counts: Counter, files: Mapping | None
) -> Collection:
    """Return a collection with facts about its texts, its files and what is left out; missing splits are made.

    Judgments are by split, test first, or all of train. A query or text of several splits is left to the first of them.
    Copies of a relevant text count as relevant where there are facts about files; those of a release stay as they are.
    """
    judged = judged.assign(split=judged.get("split", "train")).reset_index(drop=True)
    own = guarded(judged, judged["query_id"])
    answered = asked[["text"]].join(own.drop_duplicates("query_id").set_index("query_id")["split"], how="right")
    kept = guarded(answered, answered["text"].str.casefold()).rename_axis("query_id")
    qrels = own.loc[own["query_id"].isin(kept.index), QRELS].reset_index(drop=True)
    queries, made = with_splits(kept)
    left_out = {
        **{each: counts[each] for each in (BLANK, REPEATED, NOTHING)},
        "questions without an answer": len(asked) - len(answered),
        "queries whose text a more guarded split has": len(answered) - len(kept),
        "judgments of queries that a more guarded split has": len(judged) - len(qrels),
    }
    words = documents["text"].str.count(r"\S+")
    facts = {
        "documents": len(documents),
        "copies of a text": int(documents.duplicated(["text", "title"], keep=False).sum()),
        "shortest text (words)": int(words.min()),
        "longest text (words)": int(words.max()),
        "questions that are documents": 0,
        "judgments": len(judged) + counts[NOTHING],
        "judgments of copies": 0,
    }
    if files is not None:
        given, qrels = len(qrels), with_copies(qrels, documents)
        facts["judgments of copies"] = len(qrels) - given
    facts |= {**left_out, **made, **(files or {})}
    collection = Collection(name, documents.rename_axis("doc_id"), queries, qrels, provenance=made_of, facts=facts)
    facts["questions that are documents"] = len(collection.own_documents)
    if move := collection.copy_bound():
        facts["points that unjudged copies can move a mean by"] = round(move, 1)
    return collection


def write(collection: Collection, folder: Path) -> None:
    """Write a collection, to be read as ``beir:<folder>``; `DataError` names ids that are empty or have white space."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for earlier in ("queries.jsonl", *(f"qrels/{split}.tsv" for split in SPLITS)):
        (folder / earlier).unlink(missing_ok=True)
    queries = {"queries": collection.queries} if len(collection.qrels) else {}
    for file, frame in {"corpus": collection.documents, **queries}.items():
        wrong = [name for name in frame.index if name.split() != [name]]
        require(not wrong, f"{file}: the ids {wrong[:3]} are empty or have white space", DataError)
        named = frame.filter(["title", "text"]).rename_axis("_id").reset_index()
        named.to_json(folder / f"{file}.jsonl", orient="records", lines=True, force_ascii=False)
    for split in collection.queries["split"].unique():
        if len(judged := collection.judgments(split)[QRELS]):
            judged.to_csv(folder / f"qrels/{split}.tsv", sep="\t", index=False, header=HEAD, quoting=csv.QUOTE_NONE)


def unasked() -> tuple[Frame, Frame]:
    """Return the queries and judgments of documents that nobody asked for."""
    queries = pd.DataFrame(index=pd.Index([], dtype="str", name="query_id"), columns=["text", "split"], dtype="str")
    return queries, pd.DataFrame(columns=QRELS, dtype="str").astype({"relevance": int})


def with_splits(queries: Frame) -> tuple[Frame, dict[str, str]]:
    """Return queries of all splits, by a hash of the texts where one is missing, and what was made, in words."""
    split, made = queries["split"].copy(), []
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
                made.append(f"{name} is {few} of what was train")
    return queries.assign(split=split), {"splits": f"{', '.join(made)}, by a hash of the text"} if made else {}


def checked_text(value: object, form: str = "") -> str:
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


def texts(entries: Entries, columns: list[str], keys: list[str], counts: Counter[str], form: str) -> Frame:
    """Return entries with an id that have a text or a title, their first columns, by the numbers of their lines."""

    def row(entry: dict) -> tuple[str, ...]:
        name = entry["_id"] if "_id" in entry else entry["id"]
        if type(name) not in (str, int) or str(name).split() != [str(name)]:
            raise ValueError(f"the id {name!r} is no number and no text without white space, as a run on disk needs")
        return checked_text(str(name)), *(checked_text(entry.get(column), form) for column in columns)

    rows = dict(entries.parsed(row, f"an entry with `_id` and {' or '.join(columns[:2])}").numbered)
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["_id", *columns], dtype="str")
    is_blank = (frame[columns[:2]] == "").all(axis=1)
    counts[BLANK] += int(is_blank.sum())
    if is_blank.all():
        raise entries.damaged(1, "there is no entry with a text")
    return unique_rows(entries, frame[~is_blank], keys, counts)


def _judgments(entries: Entries, queries: pd.Index, documents: pd.Index, counts: Counter[str]) -> Frame:
    lines = [(number, line.split("\t" if "\t" in line else None)) for number, line in entries.numbered if line.strip()]
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

    rows = dict(replace(entries, numbered=lines).parsed(judge, "query, document and grade, or TREC's columns").numbered)
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
