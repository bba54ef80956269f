"""Paralex: 18 million paraphrase pairs of WikiAnswers questions (Fader 2013; Gillick 2018, section 3.3)."""

from __future__ import annotations

from itertools import islice

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields, lines
from retlib.data.datasets._tasks import similar_items

# All 35 million lines (every pair in both directions) take about 10 GB of memory. The
# first million stand for them on a small machine: the paraphrases of a question follow
# one another in the file, so that clusters stay together, which a random sample would cut.
LIMIT = 1_000_000
SHARES = {"test": 0.05, "dev": 0.05}
# Readers of the release skip question lines without four fields; more than a few mean damage.
TOLERATED = 0.001


@register("paralex")
def load_paralex() -> Collection:
    """The pairs of the first `LIMIT` lines of `word_alignments.txt` as a retrieval task.

    Alignments name questions by their lemmas; `questions.txt` gives the first question as it was asked with these
    lemmas. A question that is not there keeps its lemmas as its text.
    """
    aligned = islice(fields("paralex", "paralex/word_alignments.txt", 3), LIMIT)  # question, question, alignment
    pairs = dict.fromkeys((min(left, right), max(left, right)) for left, right, _ in aligned)
    asked = _questions({lemmas for pair in pairs for lemmas in pair})
    return similar_items("paralex", ((*(asked.get(lemmas, lemmas) for lemmas in pair), 1) for pair in pairs), SHARES)


def _questions(wanted: set[str]) -> dict[str, str]:
    """Lemmas to question: lines are question, tokens, parts of speech, lemmas."""
    source = lines("paralex", "paralex/questions.txt")
    asked, odd, number = {}, [], 0
    for number, line in source.numbered:
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) != 4:
            odd.append(number)
        elif parts[3] in wanted:
            asked.setdefault(parts[3], parts[0])
    if len(odd) > TOLERATED * number:
        raise source.damaged(odd[0], f"this and {len(odd) - 1} more of {number} lines have not four fields")
    return asked
