"""Natural Questions, as far as QED annotates them, as retrieval of the sentence that answers, or of the passage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, pairwise

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import lines
from retlib.data.datasets._tasks import Passage, Question, asked, reqa

NAME = "natural-questions"
FILES = (f"{NAME}/qed-train.jsonlines", f"{NAME}/qed-dev.jsonlines")

# The span of an answer that QED did not find in the paragraph.
NOWHERE = (-1, -1)


@register(NAME)
def load_natural_questions() -> Collection:
    """QED's training and development questions together: candidates are their (sentence, passage) pairs.

    Passages and sentences are the files' own: tokens with spaces between them. Text above the first of
    `sentence_starts` belongs to the first sentence; a passage without any (3 % in the training file: tables and
    infoboxes) is one sentence. Relevant is the sentence that holds the first answer span of the first annotator. Of the
    8,522 questions of the variant that the catalogue knows 20 have none and 234 have one that runs over the end of a
    sentence; 8,268 questions and 37,593 candidates are left. Of the answers 10.2 % stand in their passage more than
    once (`ambiguous`).
    """
    return reqa(NAME, _passages(), NAME)


@register(f"{NAME}-passages")
def load_passages() -> Collection:
    """The same questions, those without an answer span included, with their gold paragraphs as candidates."""
    return asked(f"{NAME}-passages", _passages(), NAME)


def _passages() -> Iterator[Passage]:
    expected = "a question of QED with its paragraph, sentences and answers"
    return chain.from_iterable(lines(NAME, file).parsed(_passage, expected) for file in FILES)


def _passage(line: str) -> Passage:
    entry = json.loads(line)
    title, text = entry["title_text"], entry["paragraph_text"]
    if "answer_spans" in entry:  # the training file; the other has the annotators' answers
        start, end = entry["answer_spans"][0]
    else:
        first = entry["original_nq_answers"][0][0]
        start, end = first["start"], first["end"]
    if (start, end) != NOWHERE and not 0 <= start < end <= len(text):
        raise ValueError(f"the answer at {start} to {end} is not in the paragraph")
    question = Question(entry["question_text"].strip(), start, text[max(start, 0) : max(end, 0)])
    return Passage(title, title, text, tuple(_spans(text, entry["sentence_starts"])), (question,))


def _spans(text: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    for start, end in pairwise([0, *starts[1:], len(text)]):
        if start >= end:
            raise ValueError(f"sentence_starts do not rise from 0 to the paragraph's end: {starts!r:.80}")
        yield start, start + len(text[start:end].rstrip())
