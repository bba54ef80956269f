"""Passages of running text that end where sentences end (Liang 2020, section 3), and their sentences (Part III)."""

import re
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Article, Collection, hash_position
from retlib.data.text import quick_sentences, words

MOST_WORDS = 100  # of a passage, as in the paper
RUN = 13  # texts with so many words in common, in order, are copies (Brown et al. 2020, appendix C)
# Sentences of a passage that a generator of sentences reads, at most, and the words that one has at least.
MOST_SENTENCES, LEAST_WORDS = 3, 5


def passages(articles: Iterable[Article]) -> pd.DataFrame:
    """Return the passages of articles: whole sentences, as many as fit, in order and without a word lost.

    A passage has `MOST_WORDS` words between white space at most. Only a longer sentence is cut inside. A passage may
    run over the end of a paragraph, not of an article. The index `passage_id` is the name of the article, ``#`` and a
    number. Raises `DataError` if there is no text, or two articles have one name.
    """
    rows = [
        (f"{article.name}#{number}", text, article.title, article.name)
        for article in articles
        for number, text in enumerate(_packed(chain.from_iterable(map(quick_sentences, article.passages))))
    ]
    require(len(rows) > 0, "the articles hold no running text to cut into passages", DataError)
    frame = pd.DataFrame(rows, columns=["passage_id", "text", "title", "article"]).set_index("passage_id")
    repeated = frame.index[frame.index.duplicated()]
    require(repeated.empty, f"two articles have the name of passage {repeated[:1].tolist()}", DataError)
    return frame


def _packed(sentences: Iterable[str]) -> list[str]:
    # Sentences joined, in order, as long as they fit.
    texts = [[]]
    for tokens in map(str.split, sentences):
        for start in range(0, len(tokens), MOST_WORDS):
            part = tokens[start : start + MOST_WORDS]
            if len(texts[-1]) + len(part) > MOST_WORDS:
                texts.append([])
            texts[-1] += part
    return [" ".join(text) for text in texts if text]


def unseen(passages: pd.DataFrame, *targets: Collection) -> pd.DataFrame:
    """Return the passages (column `text`) that no target collection holds, whole or in part, in their order.

    What shares a run of `RUN` words with one of its documents is left out, whatever case and punctuation. Of passages
    of equal text the first is kept.
    """
    passages = passages[~passages["text"].duplicated()]
    texts = chain.from_iterable(target.documents["text"] for target in targets)
    return passages[~(overlap(texts, passages["text"], RUN) > 0).to_numpy()]


def overlap(texts: Iterable[str], passages: Iterable[str], n: int = 8) -> pd.Series:
    """Return the share of the runs of `n` words of each passage that stand in a text; NaN where it has fewer words."""
    runs = [_runs(passage, n) for passage in passages]
    every = set(chain.from_iterable(runs))
    copies = {run for text in texts for run in _runs(text, n) if run in every}
    shares = [np.mean([run in copies for run in each]) if each else np.nan for each in runs]
    return pd.Series(shares, name="overlap", dtype=float)


def _runs(text: str, n: int) -> list[int]:
    hashes = [hash(word) for word in words(text)]
    return [hash(tuple(hashes[start : start + n])) for start in range(len(hashes) - n + 1)]


def sample(passages: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most so many passages, first by a hash of their ids: a smaller sample is part of a larger one."""
    order = np.argsort([hash_position(name) for name in passages.index], kind="stable")
    return passages.iloc[np.sort(order[:most])]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a passage, also of Natural Questions, whose marks stand apart ("a musician . It")."""
    return quick_sentences(re.sub(r"\s+([.!?])(?=\s|$)", r"\1", text))


def sentences(passages: pd.Series) -> pd.Series:
    """Return sentences of passages, by ``id|number``, for a generator that learned from sentences that answer.

    At most three of each passage, of five words or more, by a hash. A passage that has none stands for itself; and so
    does one whose marks stand apart, as in Natural Questions: queries for those whole make better retrievers.
    """
    texts = {}
    for name, text in passages.items():
        parts = {f"{name}|{i}": sentence for i, sentence in enumerate(quick_sentences(text))}
        usable = [place for place, sentence in parts.items() if len(sentence.split()) >= LEAST_WORDS]
        chosen = sorted(usable, key=hash_position)[:MOST_SENTENCES]
        texts |= {place: parts[place] for place in chosen} or {f"{name}|0": text}
    return pd.Series(texts, dtype=object)


def of_passages(generated: pd.DataFrame) -> pd.DataFrame:
    """Return the queries of `sentences` as those of their passages: the likeliest first, none twice for a passage."""
    names, order = generated["passage_id"].str.rpartition("|")[0], ["passage_id", "log_likelihood", "query"]
    queries = generated.assign(passage_id=names).sort_values(order, ascending=[True, False, True], kind="stable")
    return queries.drop_duplicates(["passage_id", "query"], ignore_index=True)
