"""InsuranceQA: questions of laymen about insurance, and the answers of agents (Feng 2015)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._passages import asked
from retlib.data.datasets._reading import fields, lines
from retlib.data.datasets._reqa import Passage, Question
from retlib.data.datasets.catalogue import damaged, locate, provenance

FILES = ("insuranceqa/validation.csv", "insuranceqa/test.csv")
_COLUMNS = ["question", "answer", "label"]

V2 = "insuranceqa-v2"
ANSWERS = f"{V2}/InsuranceQA.label2answer.token.encoded.gz"
VOCABULARY = f"{V2}/vocabulary"
QUESTIONS = f"{V2}/InsuranceQA.question.anslabel.token.500.pool.solr.{{}}.encoded.gz"
_PARTS = {"train": "train", "valid": "dev", "test": "test"}


@register("insuranceqa")
def load_insuranceqa() -> Collection:
    """A quarter of version 1, lemmatised and split anew by its publisher: candidates are all its answers.

    8,690 answers and 4,533 questions with at least one right answer. The publisher's two files share a
    third of their questions, so they are read as one and split by a hash of the question (`asked`): 72 %
    train, 8 % dev, 20 % test. What the files label 0 is an answer drawn for another question; it stays a
    candidate and is judged for no question.
    """
    return asked("insuranceqa", _pairs(), provenance("insuranceqa"))


def _pairs() -> Iterator[Passage]:
    for file in FILES:
        path = locate("insuranceqa", file)
        for number, (question, answer, label) in _rows(path):
            if label not in ("0", "1") or not question.strip() or not answer.strip():
                raise damaged("insuranceqa", path, number, "not a question, an answer, and a label that is 0 or 1")
            asking = (Question(question.strip(), 0, ""),) if label == "1" else ()
            yield Passage("", "", answer.strip(), (), asking)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows below the names, with the numbers of the lines on which they end."""
    reader = csv.reader((line for _, line in lines("insuranceqa", path)), strict=True)
    try:
        if next(reader, None) != _COLUMNS:
            raise damaged("insuranceqa", path, 1, f"the columns are not {', '.join(_COLUMNS)}")
        for row in reader:
            if len(row) != len(_COLUMNS):
                raise damaged("insuranceqa", path, reader.line_num, f"{len(row)} columns instead of {len(_COLUMNS)}")
            yield reader.line_num, row
    except csv.Error as error:
        raise damaged("insuranceqa", path, reader.line_num, f"it is not CSV ({error})") from error


@register(V2)
def load_insuranceqa_v2() -> Collection:
    """The official release of version 2 with its own splits: 27,413 answers, 12,889, 2,000 and 2,000 questions.

    Every answer is a candidate; those of equal text are one, under the first label. The official files
    also give each question a pool of 500 answers that Solr ranked; `in_pool` says whether a right one is
    among them. That holds for 10,391 training and 1,625 test questions, which are the numbers of Liang
    2020, table 2: a part on which lexical retrieval has succeeded before.

    Of questions of equal text in several splits the most guarded keeps it: test before dev before train.
    """
    words = dict(row for _, row in fields(V2, locate(V2, VOCABULARY), 2))
    answers = pd.Series(_answers(words), dtype=object)
    first = answers.index.to_series().groupby(answers).transform("first")
    asking = [row for part in reversed(_PARTS) for row in _questions(part, words, first)]
    queries = pd.DataFrame(asking, columns=["query_id", "text", "split", "in_pool", "right"]).set_index("query_id")
    # The most guarded split stands first.
    queries = queries[queries["split"] == queries.groupby("text")["split"].transform("first")]
    qrels = queries["right"].explode().rename("doc_id").reset_index().assign(relevance=1)
    documents = pd.DataFrame({"text": answers[first.unique()], "title": ""}).rename_axis("doc_id")
    return Collection(V2, documents, queries.drop(columns="right"), qrels, provenance=provenance(V2))


def _answers(words: dict[str, str]) -> dict[str, str]:
    path = locate(V2, ANSWERS)
    return {label: _decoded(path, number, text, words) for number, (label, text) in fields(V2, path, 2)}


def _questions(part: str, words: dict[str, str], first: pd.Series) -> Iterator[tuple]:
    """(id, text, split, whether a right answer is in the pool, right answers); `first` is label to label."""
    path = locate(V2, QUESTIONS.format(part))
    for number, (_, text, right, pool) in fields(V2, path, 4):
        labels = right.split()
        unknown = [label for label in labels if label not in first.index]
        if not labels or unknown:
            raise damaged(V2, path, number, f"it names no right answer, or unknown ones {unknown[:3]}")
        in_pool, merged = not set(labels).isdisjoint(pool.split()), list(dict.fromkeys(first[labels]))
        yield f"{part}-{number}", _decoded(path, number, text, words), _PARTS[part], in_pool, merged


def _decoded(path: Path, number: int, text: str, words: dict[str, str]) -> str:
    """The text whose words are given by their names in the vocabulary."""
    try:
        return " ".join(words[name] for name in text.split())
    except KeyError as error:
        raise damaged(V2, path, number, f"the vocabulary holds no word {error}") from error
