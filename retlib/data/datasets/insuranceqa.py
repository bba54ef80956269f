"""InsuranceQA: questions of laymen about insurance, and the answers of agents (Feng 2015)."""

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import table
from retlib.data.datasets._tasks import Passage, Question, asked


@register("insuranceqa")
def load_insuranceqa() -> Collection:
    """Return a quarter of version 1, lemmatised and split anew by its publisher: candidates are all its answers.

    8,690 answers and 4,533 questions with at least one right answer. The publisher's two files share a third of their
    questions, so they are read as one and split by `asked`. What the files label 0 is an answer drawn for another
    question; it stays a candidate and is judged for no question.
    """
    rows = pd.concat([table("insuranceqa", f"insuranceqa/{part}.csv") for part in ("validation", "test")])
    questions = rows["question"].str.strip().map(Question)
    passages = (
        Passage("", "", answer.strip(), questions={"0": (), "1": (question,)}[label])
        for question, answer, label in zip(questions, rows["answer"], rows["label"], strict=True)
    )
    return asked("insuranceqa", passages)
