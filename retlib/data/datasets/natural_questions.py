"""Natural Questions, as far as QED annotates them, as retrieval of the sentence that answers, or of the passage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._passages import asked
from retlib.data.datasets._reading import lines
from retlib.data.datasets._reqa import Passage, Question, reqa
from retlib.data.datasets.catalogue import damaged, locate, provenance

FILES = ("natural-questions/qed-train.jsonlines", "natural-questions/qed-dev.jsonlines")

# The span of an answer that QED did not find in the paragraph.
NOWHERE = (-1, -1)


@register("natural-questions")
def load_natural_questions() -> Collection:
    """QED's training and development questions together: candidates are their (sentence, passage) pairs.

    Passages and sentences are the files' own, as they are: tokens with spaces between them.
    Text above the first of `sentence_starts` belongs to the first sentence; a passage
    without any (3 % in the training file: tables and infoboxes) is one sentence. Relevant
    is the sentence that holds the first answer span of the first annotator.
    Of the 8,522 questions of the variant that the catalogue knows 20 have none and 234 have one that runs over
    the end of a sentence; 8,268 questions and 37,593 candidates are left. Of the answers
    10.2 % stand in their passage more than once (`ambiguous`).
    """
    return reqa("natural-questions", _all(), provenance("natural-questions"))


@register("natural-questions-passages")
def load_passages() -> Collection:
    """The same questions, those without an answer span included, with their gold paragraphs as candidates."""
    return asked("natural-questions-passages", _all(), provenance("natural-questions"))


def _all() -> Iterator[Passage]:
    return (passage for file in FILES for passage in _read(locate("natural-questions", file)))


def _read(path: Path) -> Iterator[Passage]:
    for number, line in lines("natural-questions", path):
        try:
            yield _passage(json.loads(line))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            problem = f"not a question of QED with its paragraph, sentences and answers ({error!r})"
            raise damaged("natural-questions", path, number, problem) from error


def _passage(entry: dict) -> Passage:
    title, text = entry["title_text"], entry["paragraph_text"]
    start, end = _answer(entry)
    if (start, end) != NOWHERE and not 0 <= start < end <= len(text):
        raise ValueError(f"the answer at {start} to {end} is not in the paragraph")
    question = Question(entry["question_text"].strip(), start, text[max(start, 0) : max(end, 0)])
    return Passage(title, title, text, tuple(_spans(text, entry["sentence_starts"])), (question,))


def _answer(entry: dict) -> tuple[int, int]:
    """Where the first answer begins and ends: the training file has spans, the other the annotators' answers."""
    if "answer_spans" in entry:
        start, end = entry["answer_spans"][0]
        return start, end
    first = entry["original_nq_answers"][0][0]
    return first["start"], first["end"]


def _spans(text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    bounds = [0, *starts[1:], len(text)]
    for start, end in pairwise(bounds):
        if start >= end:
            raise ValueError(f"sentence_starts do not rise from 0 to the paragraph's end: {starts!r:.80}")
        yield start, start + len(text[start:end].rstrip())
