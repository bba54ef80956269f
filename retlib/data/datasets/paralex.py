"""Paralex: 18 million paraphrase pairs of WikiAnswers questions (Fader 2013; Gillick 2018, section 3.3)."""

from __future__ import annotations

from itertools import islice

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import fields, lines
from retlib.data.datasets._tasks import PAIR, similar_items

# All 35 million lines (every pair in both directions) take about 10 GB of memory. Paraphrases of a question follow one
# another in the file, so that the first million keeps clusters together, which a random sample would cut.
LIMIT = 1_000_000


@register("paralex")
def load_paralex() -> Collection:
    """Return the pairs of the first `LIMIT` alignments as a retrieval task.

    Alignments name questions by their lemmas. The text is the first question as it was asked with these lemmas.
    """
    aligned = islice(fields("paralex", "paralex/word_alignments.txt", 3), LIMIT)
    pairs = dict.fromkeys((min(left, right), max(left, right)) for left, right, _ in aligned)
    wanted, text = {lemmas for pair in pairs for lemmas in pair}, {}
    for row in (line.split("\t") for line in lines("paralex", "paralex/questions.txt")):
        if len(row) == 4 and row[3] in wanted:  # question, tokens, parts of speech, lemmas
            text.setdefault(row[3], row[0])
    rows = [(text.get(left, left), text.get(right, right), 1) for left, right in pairs]
    return similar_items("paralex", pd.DataFrame(rows, columns=PAIR), {"test": 0.05, "dev": 0.05})
