"""Passages of running text that end where sentences end (Liang 2020, section 3), and those that are no target."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Article, Collection
from retlib.data.splits import hash_position
from retlib.data.text import offsets_of, quick_sentences, words

MOST_WORDS = 100
# Texts with a run of so many words in common are not independent of each other: what Brown et al. 2020
# (appendix C) take for a copy.
RUN = 13
# An odd number whose powers spread runs of word numbers over 64 bits.
_BASE = np.uint64(0x9E3779B97F4A7C15)


def passages(articles: Iterable[Article], most: int = MOST_WORDS) -> pd.DataFrame:
    """The passages of articles: whole sentences, as many as fit, in order and without a word lost.

    Parameters
    ----------
    articles : iterable of Article
        As `retlib.data.datasets.articles` streams them. A passage may run over the end of a paragraph, not of
        an article.
    most : int
        Words between white space in a passage, at most: 100 in the paper. Only a sentence that has more is
        cut inside.

    Returns
    -------
    DataFrame
        Index `passage_id` (name of the article, ``#``, number), columns `text`, `title` and `article`.

    Raises
    ------
    SettingError
        If `most` is not at least 1.
    DataError
        If there is no text in any article, or two articles have one name.
    """
    require(most >= 1, f"most = {most} words in a passage: at least 1 is needed")
    rows = [
        (f"{article.name}#{number}", text, article.title, article.name)
        for article in articles
        for number, text in enumerate(_packed(chain.from_iterable(map(quick_sentences, article.passages)), most))
    ]
    require(len(rows) > 0, "the articles hold no running text to cut into passages", DataError)
    found = pd.DataFrame(rows, columns=["passage_id", "text", "title", "article"]).set_index("passage_id")
    repeated = found.index[found.index.duplicated()]
    require(len(repeated) == 0, f"two articles have the name of passage {repeated[:1].tolist()}", DataError)
    return found


def _packed(sentences: Iterable[str], most: int) -> list[str]:
    """Sentences joined, in order, as long as they fit."""
    found, taken = [], []
    for sentence in sentences:
        tokens = sentence.split()
        for start in range(0, len(tokens), most):
            part = tokens[start : start + most]
            if len(taken) + len(part) > most:
                found.append(" ".join(taken))
                taken = []
            taken = taken + part
    return [*found, " ".join(taken)] if taken else found


def unseen(found: pd.DataFrame, *targets: Collection) -> pd.DataFrame:
    """The passages that no target collection holds, whole or in part.

    Synthetic queries for a passage that a target tests on would be training data of that target, so what
    shares a run of `RUN` words with one of its documents is left out. Of passages of equal text the first
    is kept.

    Parameters
    ----------
    found : DataFrame
        Passages, with the column `text`.
    targets : Collection
        What is tested on.

    Returns
    -------
    DataFrame
        The rows that are left, in their order.

    Notes
    -----
    Case and punctuation do not count. Documents of fewer than `RUN` words are in no run.
    """
    found = found[~found["text"].duplicated()]
    numbers: dict[str, int] = {}
    known = [_runs(target.documents["text"], numbers)[0] for target in targets]
    runs, rows = _runs(found["text"], numbers)
    is_known = np.isin(runs, np.concatenate(known)) if known else np.zeros(len(runs), dtype=bool)
    seen = np.zeros(len(found), dtype=bool)
    seen[rows[is_known]] = True
    return found[~seen]


def _runs(texts: pd.Series, numbers: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """A hash of every run of `RUN` words, (runs,), and the row that it is in, (runs,); `numbers` grows."""
    rows = [np.array([numbers.setdefault(w, len(numbers)) for w in words(text)], dtype=np.int32) for text in texts]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.concatenate([*rows, np.empty(0, dtype=np.int32)])
    count = max(len(ids) - RUN + 1, 0)
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(RUN):  # Horner's rule, modulo 2^64
        hashes = hashes * _BASE + (ids[place : place + count].astype(np.uint64) + np.uint64(1))
    row = np.repeat(np.arange(len(rows)), lengths)
    left = np.repeat(offsets_of(lengths)[1:], lengths) - np.arange(len(ids))  # words from here to the row's end
    is_within = left[:count] >= RUN
    return hashes[is_within], row[:count][is_within]


def sample(found: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most so many of the passages, those whose ids come first in the order of a hash.

    A smaller sample is a part of every larger one, whatever order the passages have, so that amounts of
    passages can be compared (Liang 2020, figure 3).

    Raises
    ------
    SettingError
        If `most` is not at least 1.
    """
    require(most >= 1, f"most = {most} passages: at least 1 is needed")
    order = np.argsort([hash_position(name) for name in found.index], kind="stable")
    return found.iloc[np.sort(order[:most])]


# Sentences of a passage that a generator of sentences reads, at most, and the words that one has at least.
MOST_SENTENCES, LEAST_WORDS = 3, 5


# A mark at the end of a sentence that stands apart from it, as in files whose tokens are separated by spaces.
_APART = re.compile(r"\s+([.!?])(?=\s|$)")


def sentences_of(text: str) -> list[str]:
    """Split a passage into sentences, also one whose full stops stand apart: "a musician . It" has two.

    See `retlib.data.text.quick_sentences` for the rule. Natural Questions, for one, has such passages. For ICT, which
    has nothing to take out of a passage of one sentence.
    """
    return quick_sentences(_APART.sub(r"\1", text))


def sentences(passages: pd.Series) -> pd.Series:
    """Sentences of passages, for a generator that learned from sentences that answer.

    Parameters
    ----------
    passages : Series
        Passage id to text.

    Returns
    -------
    Series
        At most three of each passage, of five words or more, by a hash: ``id|number`` to the sentence. A
        passage that has none stands for itself; and so does one without marks of punctuation, or whose marks
        stand apart, as in Natural Questions: what is written for these passages whole makes better retrievers.
    """
    found = {}
    for name, text in passages.items():
        parts = {f"{name}|{i}": sentence for i, sentence in enumerate(quick_sentences(text))}
        usable = [place for place, sentence in parts.items() if len(sentence.split()) >= LEAST_WORDS]
        chosen = sorted(usable, key=hash_position)[:MOST_SENTENCES]
        found |= {place: parts[place] for place in chosen} or {f"{name}|0": text}
    return pd.Series(found, dtype=object)


def of_passages(generated: pd.DataFrame) -> pd.DataFrame:
    """The queries of `sentences` as those of their passages: the likeliest first, none twice for one passage."""
    names = generated["passage_id"].str.rpartition("|")[0]
    order = ["passage_id", "log_likelihood", "query"]
    found = generated.assign(passage_id=names).sort_values(order, ascending=[True, False, True], kind="stable")
    found = found.drop_duplicates(["passage_id", "query"], ignore_index=True)
    found.attrs.update(generated.attrs)
    return found
