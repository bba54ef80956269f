"""Paralex: 18 million paraphrase pairs of WikiAnswers questions (Fader 2013; Gillick 2018, section 3.3)."""

from __future__ import annotations

from itertools import islice

import pandas as pd

from retlib.data.collection import Collection, closure, retrieval_task, split_by_cluster
from retlib.data.datasets import register
from retlib.data.datasets._reading import by_text, fields, lines
from retlib.data.datasets.catalogue import damaged, locate, provenance

# All 35 million lines (every pair in both directions) take about 10 GB of memory. The
# first million stand for them on a small machine: the paraphrases of a question follow
# one another in the file, so that clusters stay together, which a random sample would cut.
LIMIT = 1_000_000
SHARES = {"test": 0.05, "dev": 0.05}
# Readers of the release skip question lines without four fields; more than a few mean damage.
TOLERATED = 0.001


@register("paralex")
def load_paralex(limit: int | None = LIMIT) -> Collection:
    """The pairs of the first `limit` lines of `word_alignments.txt` (None: all) as a retrieval task.

    Alignments name questions by their lemmas; `questions.txt` gives the question as it was
    asked, and the first one is taken where several share their lemmas. A question that is
    not there keeps its lemmas as its text.
    """
    pairs = _pairs(limit)
    asked = _questions({*pairs["left"], *pairs["right"]})
    for side in ("left", "right"):
        pairs[side] = [asked.get(lemmas, lemmas) for lemmas in pairs[side]]
    texts, pairs = by_text(pairs)
    split = split_by_cluster(texts.index, closure(pairs), SHARES)
    return retrieval_task("paralex", texts, pairs, split, provenance("paralex"))


def _pairs(limit: int | None) -> pd.DataFrame:
    """Each pair of lemmatised questions once: lines are question, question, word alignment."""
    path = locate("paralex", "paralex/word_alignments.txt")
    rows = islice(fields("paralex", path, 3), limit)
    pairs = {(min(left, right), max(left, right)): 1 for _, (left, right, _) in rows}
    return pd.DataFrame([(left, right, 1) for left, right in pairs], columns=["left", "right", "label"])


def _questions(wanted: set[str]) -> dict[str, str]:
    """Lemmas to question: lines are question, tokens, parts of speech, lemmas."""
    path = locate("paralex", "paralex/questions.txt")
    asked, odd, first, number = {}, 0, 0, 0
    for number, line in lines("paralex", path):
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) != 4:
            odd, first = odd + 1, first or number
        elif parts[3] in wanted:
            asked.setdefault(parts[3], parts[0])
    if odd > TOLERATED * number:
        raise damaged("paralex", path, first, f"this and {odd - 1} more of {number} lines have not four fields")
    return asked
