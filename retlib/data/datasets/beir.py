"""Collections in BEIR's form (Thakur 2021), and what is counted of every corpus of one's own (chapter 60)."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
from pandas import DataFrame as Frame

from retlib.core.errors import DataError
from retlib.data.collection import Collection
from retlib.data.datasets._common import SHARE
from retlib.data.datasets.catalogue import MOST
from retlib.data.splits import HELD_OUT, hash_position, with_copies

Lines = Iterable[tuple[int, Any]]  # of a file, or the rows of a table, with their numbers
QRELS, HEAD = ["query_id", "doc_id", "relevance"], ["query-id", "corpus-id", "score"]
DANGLING = 0.1  # of a split's judgments; where more name nothing, what is left measures something else
BLANK, REPEATED, NOTHING = "blanks left out", "repeated lines", "judgments that name nothing"


def line_error(place: str, number: int, problem: str) -> DataError:
    """Return the error for a line of a file."""
    return DataError(f"{place}, line {number}: {problem:.{MOST}}.")


def rows_of(place: str, lines: Lines, parse: Callable[[Any], tuple], columns: list[str], expected: str) -> Frame:
    """Return the row that `parse` makes of each line; where it fails, `DataError` says that it is not `expected`."""
    rows = {}
    for number, line in lines:
        try:
            rows[number] = parse(line)
        except Exception as error:  # of many kinds; that of undecoded bytes would show all of them
            why = str(error) if type(error) is ValueError or isinstance(error, UnicodeError) else repr(error)
            raise line_error(place, number, f"not {expected} ({why})") from error
    return Frame.from_dict(rows, orient="index", columns=columns)


def nfc_text(text: str) -> str:
    """Return a text in NFC without white space around it; `ValueError` for what no file can hold."""
    return normalize("NFC", text.strip()).encode().decode()  # JSON can spell half a letter


def unique_rows(place: str, rows: Frame, keys: list[str], counts: Counter[str]) -> Frame:
    """Return rows, by the numbers of their lines, without repeated ones; `DataError` if rows share their keys alone."""
    if rows.empty:
        raise line_error(place, 1, "nothing stands there")
    unique = rows.drop_duplicates()
    counts[REPEATED] += len(rows) - len(unique)
    for number, *key in unique.loc[unique.duplicated(keys), keys].itertuples():
        raise line_error(place, number, f"{key} stands before with another content: keep one of the two")
    return unique


def texts(place: str, lines: Lines, decode: Callable, columns: list[str], counts: Counter, clean=nfc_text) -> Frame:
    """Return entries with an id that have a text or a title, their first columns, by the numbers of their lines."""

    def row(line: Any) -> tuple[str, ...]:
        entry = decode(line)
        name = entry["_id"] if "_id" in entry else entry["id"]
        if type(name) not in (str, int) or str(name).split() != [str(name)]:
            raise ValueError(f"the id {name!r} is no number and no text without white space, as a run on disk needs")
        return str(name).encode().decode(), *(clean(entry.get(column) or "") for column in columns)

    frame = rows_of(place, lines, row, ["_id", *columns], f"an entry with `_id` and {' or '.join(columns[:2])}")
    is_blank = (frame[columns[:2]] == "").all(axis=1)
    counts[BLANK] += int(is_blank.sum())
    return unique_rows(place, frame[~is_blank], ["_id", *columns[2:]], counts)


def judgments(place: str, lines: Lines, queries: pd.Index, documents: pd.Index, counts: Counter[str]) -> Frame:
    """Return a split's judgments that name something, by the numbers of their lines; of over a tenth `DataError`."""
    fields = [(number, line.split("\t" if "\t" in line else None)) for number, line in lines]
    places = [0, -2, -1]  # behind the first TREC has a column of its own
    head = [name.strip().lower() for name in fields[0][1]] if fields else []
    if len(head) in (3, 4) and fields[0][1][0].strip() not in queries and not re.fullmatch(r"[-+]?[\d.]+", head[-1]):
        places = [head.index(name) for name in HEAD] if {*HEAD} <= {*head} else places
        del fields[0]

    def judge(row: list[str]) -> tuple[str, str, int]:
        query_id, doc_id, grade = (row[place].strip() for place in places)
        if len(row) not in (3, 4) or not float(grade).is_integer():
            raise ValueError(f"{len(row)} columns, the last of which is {grade}")
        return query_id, doc_id, int(np.int32(int(float(grade))))

    frame = rows_of(place, fields, judge, QRELS, "query, document and grade, or TREC's columns")
    frame = unique_rows(place, frame, QRELS[:2], counts)
    no_query = queries.get_indexer(frame["query_id"]) < 0  # faster than isin
    no_document = documents.get_indexer(frame["doc_id"]) < 0
    dangling = frame[no_query | no_document]
    counts[NOTHING] += len(dangling)
    if len(dangling) > DANGLING * len(frame):
        lacking = f"{no_query.sum()} no query and {no_document.sum()} no document of these files"
        problem = f"{len(dangling)} of {len(frame)} judgments name nothing ({lacking}): at most a tenth is left out"
        raise line_error(place, dangling.index[0], problem)
    return frame.drop(dangling.index)


def complete_collection(
    name: str, documents: Frame, queries: Frame, qrels: Frame, counts: Counter, files: Mapping | None, made_of: Mapping
) -> Collection:
    """Return a collection with facts about its texts, its files and what is left out; missing splits are made.

    Judgments are by split, test first, or all of train. A query or text of several splits is left to the first of them.
    Copies of a relevant text count as relevant where there are facts about files; those of a release stay as they are.
    """
    qrels = qrels.assign(split=qrels.get("split", "train")).reset_index(drop=True)
    first = _of_first_split(qrels, qrels["query_id"])
    answered = queries[["text"]].join(first.drop_duplicates("query_id").set_index("query_id")["split"], how="right")
    unique = _of_first_split(answered, answered["text"].str.casefold()).rename_axis("query_id")
    judged = first.loc[first["query_id"].isin(unique.index), QRELS].reset_index(drop=True)
    every = judged if files is None else with_copies(judged, documents)
    split_queries, made = with_splits(unique)
    words = documents["text"].str.count(r"\S+")
    facts = {
        "documents": len(documents),
        "copies of a text": int(documents.duplicated(["text", "title"], keep=False).sum()),
        "shortest text (words)": int(words.min()),
        "longest text (words)": int(words.max()),
        "questions that are documents": 0,
        "judgments": len(qrels) + counts[NOTHING],
        "judgments of copies": len(every) - len(judged),
        **{each: counts[each] for each in (BLANK, REPEATED, NOTHING)},
        "questions without an answer": len(queries) - len(answered),
        "queries whose text a more guarded split has": len(answered) - len(unique),
        "judgments of queries that a more guarded split has": len(qrels) - len(judged),
        **made,
        **(files or {}),
    }
    documents = documents.rename_axis("doc_id")
    collection = Collection(name, documents, split_queries, every, provenance=made_of, facts=facts)
    facts["questions that are documents"] = len(collection.own_documents)
    if move := collection.copy_bound():
        facts["points that unjudged copies can move a mean by"] = round(move, 1)
    return collection


def _of_first_split(rows: Frame, keys: pd.Series) -> Frame:
    # Without the rows whose key stands in an earlier row of another split.
    return rows[rows["split"] == rows.groupby(keys)["split"].transform("first")]


def no_questions() -> tuple[Frame, Frame]:
    """Return the queries and judgments of documents that nobody asked for."""
    queries = Frame(columns=["text", "split"], index=pd.Index([], name="query_id", dtype="str"), dtype="str")
    return queries, Frame(columns=QRELS, dtype="str").astype({"relevance": int})


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


def write(collection: Collection, folder: Path) -> None:
    """Write a collection, to be read as ``beir:<folder>``."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for earlier in (folder / "queries.jsonl", *(folder / "qrels").iterdir()):
        earlier.unlink(missing_ok=True)
    queries = {"queries": collection.queries} if len(collection.qrels) else {}
    for file, frame in {"corpus": collection.documents, **queries}.items():
        rows = frame.filter(["title", "text"]).rename_axis("_id").reset_index()
        rows.to_json(folder / f"{file}.jsonl", orient="records", lines=True, force_ascii=False)
    for split in collection.queries["split"].unique():
        if len(qrels := collection.judgments(split)[QRELS]):
            qrels.to_csv(folder / f"qrels/{split}.tsv", sep="\t", index=False, header=HEAD, quoting=csv.QUOTE_NONE)
