"""InsuranceQA: questions of laymen about insurance, and the answers of agents (Feng 2015)."""

from __future__ import annotations

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import table
from retlib.data.datasets._tasks import Passage, Question, asked

FILES = ("insuranceqa/validation.csv", "insuranceqa/test.csv")


@register("insuranceqa")
def load_insuranceqa() -> Collection:
    """A quarter of version 1, lemmatised and split anew by its publisher: candidates are all its answers.

    8,690 answers and 4,533 questions with at least one right answer. The publisher's two files share a third of their
    questions, so they are read as one and split by `asked`. What the files label 0 is an answer drawn for another
    question; it stays a candidate and is judged for no question.
    """
    rows = [table("insuranceqa", file, ["question", "answer", "label"]) for file in FILES]
    expected = "a question, an answer, and a label that is 0 or 1"
    return asked("insuranceqa", (answer for part in rows for answer in part.parsed(_answered, expected)), "insuranceqa")


def _answered(row: list[str]) -> Passage:
    question, answer, label = map(str.strip, row)
    if label not in ("0", "1") or not question or not answer:
        raise ValueError(f"label {label!r}")
    return Passage("", "", answer, questions=(Question(question),) if label == "1" else ())
