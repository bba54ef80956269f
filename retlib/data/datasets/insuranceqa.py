"""InsuranceQA: questions of laymen about insurance, and the answers of agents (Feng 2015)."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields, table
from retlib.data.datasets._tasks import Passage, Question, asked, guarded
from retlib.data.datasets.catalogue import provenance

FILES = ("insuranceqa/validation.csv", "insuranceqa/test.csv")

V2 = "insuranceqa-v2"
ANSWERS = f"{V2}/InsuranceQA.label2answer.token.encoded.gz"
VOCABULARY = f"{V2}/vocabulary"
QUESTIONS = f"{V2}/InsuranceQA.question.anslabel.token.500.pool.solr.{{}}.encoded.gz"
_PARTS = {"test": "test", "valid": "dev", "train": "train"}


@register("insuranceqa")
def load_insuranceqa() -> Collection:
    """A quarter of version 1, lemmatised and split anew by its publisher: candidates are all its answers.

    8,690 answers and 4,533 questions with at least one right answer. The publisher's two files share a
    third of their questions, so they are read as one and split by a hash of the question (`asked`): 72 %
    train, 8 % dev, 20 % test. What the files label 0 is an answer drawn for another question; it stays a
    candidate and is judged for no question.
    """
    rows = [table("insuranceqa", file, ["question", "answer", "label"]) for file in FILES]
    expected = "a question, an answer, and a label that is 0 or 1"
    return asked("insuranceqa", (answer for part in rows for answer in part.parsed(_answered, expected)), "insuranceqa")


def _answered(row: list[str]) -> Passage:
    question, answer, label = map(str.strip, row)
    if label not in ("0", "1") or not question or not answer:
        raise ValueError(f"label {label!r}")
    return Passage("", "", answer, questions=(Question(question),) if label == "1" else ())


@register(V2)
def load_insuranceqa_v2() -> Collection:
    """The official release of version 2 with its own splits: 27,413 answers, 12,889, 2,000 and 2,000 questions.

    Every answer is a candidate; those of equal text are one, under the first label. The official files
    also give each question a pool of 500 answers that Solr ranked; `in_pool` says whether a right one is
    among them. That holds for 10,391 training and 1,625 test questions, which are the numbers of Liang
    2020, table 2: a part on which lexical retrieval has succeeded before.

    Of questions of equal text in several splits the most guarded keeps it: test before dev before train.
    """
    words = dict(fields(V2, VOCABULARY, 2))

    def decoded(row: list[str]) -> tuple[str, str]:
        """A label and a text, whose words are given by their names in the vocabulary."""
        return row[0], " ".join(words[name] for name in row[1].split())

    def asking(row: list[str]) -> tuple[str, bool, list[str]]:
        """Text, whether a right answer is in the pool, and the right answers."""
        labels = row[2].split()
        unknown = [label for label in labels if label not in first.index]
        if not labels or unknown:
            raise ValueError(f"it names no right answer, or unknown ones {unknown[:3]}")
        return decoded(row)[1], not set(labels).isdisjoint(row[3].split()), list(dict.fromkeys(first[labels]))

    answers = pd.Series(dict(fields(V2, ANSWERS, 2).parsed(decoded, "words of the vocabulary")), dtype=object)
    first = answers.index.to_series().groupby(answers).transform("first")
    queries = pd.concat([_questions(part, asking) for part in _PARTS])
    queries = guarded(queries, queries["text"])
    qrels = queries["right"].explode().rename("doc_id").reset_index().assign(relevance=1)
    documents = pd.DataFrame({"text": answers[first.unique()], "title": ""}).rename_axis("doc_id")
    return Collection(V2, documents, queries.drop(columns="right"), qrels, provenance=provenance(V2))


def _questions(part: str, parse: Callable) -> pd.DataFrame:
    rows = fields(V2, QUESTIONS.format(part), 4).parsed(parse, "a question with right answers")
    found = pd.DataFrame(list(rows), columns=["text", "in_pool", "right"]).assign(split=_PARTS[part])
    return found.set_index(pd.Index([f"{part}-{i}" for i in range(1, len(found) + 1)], name="query_id"))
