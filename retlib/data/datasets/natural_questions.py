"""Natural Questions, as far as QED annotates them, as retrieval of the sentence that answers, or of the passage."""

import json
from collections.abc import Iterator
from itertools import pairwise

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import lines
from retlib.data.datasets._tasks import Passage, Question, asked, reqa

NAME = "natural-questions"


@register(NAME)
def load_natural_questions() -> Collection:
    """Return QED's training and development questions together: candidates are their (sentence, passage) pairs.

    Passages and sentences are the files' own: tokens with spaces between them. Text above the first of
    `sentence_starts` belongs to the first sentence; a passage without any (3 % in the training file: tables and
    infoboxes) is one sentence. Relevant is the sentence that holds the first answer span of the first annotator. Of the
    8,522 questions of the variant that the catalogue knows 20 have none and 234 have one that runs over the end of a
    sentence; 8,268 questions and 37,593 candidates are left. Of the answers 10.2 % stand in their passage more than
    once (`ambiguous`).
    """
    return reqa(NAME, _passages())


@register(f"{NAME}-passages")
def load_passages() -> Collection:
    """Return the same questions, those without an answer span included, with their gold paragraphs as candidates."""
    return asked(f"{NAME}-passages", _passages())


def _passages() -> Iterator[Passage]:
    for part in ("train", "dev"):
        for entry in map(json.loads, lines(NAME, f"{NAME}/qed-{part}.jsonlines")):
            title, text, starts = entry["title_text"], entry["paragraph_text"], entry["sentence_starts"]
            if part == "train":
                start, end = entry["answer_spans"][0]
            else:
                start, end = (entry["original_nq_answers"][0][0][place] for place in ("start", "end"))
            edges = [0, *starts[1:], len(text)]
            is_nowhere = (start, end) == (-1, -1)  # an answer that QED did not find in the paragraph
            if sorted({*edges}) != edges or not (is_nowhere or 0 <= start < end <= len(text)):
                raise ValueError(f"the sentences or the answer of {entry['question_text']!r} are not in its paragraph")
            spans = tuple((left, left + len(text[left:right].rstrip())) for left, right in pairwise(edges))
            question = Question(entry["question_text"].strip(), start, text[max(start, 0) : max(end, 0)])
            yield Passage(title, title, text, spans, (question,))
