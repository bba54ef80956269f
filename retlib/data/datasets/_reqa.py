"""Question answering as retrieval of a (sentence, passage) pair (ReQA: Ahmad 2019; Chang 2020, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from retlib.data.collection import Collection, hash_position, split_by_position
from retlib.data.datasets._reading import text_id

# The split that is in the frame: 80 % train (a tenth of it dev), 20 % test. `low_resource` makes the others.
SHARE = 0.8


@dataclass(frozen=True)
class Question:
    """A question, and the answer with its place in the passage."""

    text: str
    start: int
    answer: str


@dataclass(frozen=True)
class Passage:
    """A passage of an article, where its sentences begin and end, and the questions about it."""

    article: str
    title: str
    text: str
    spans: tuple[tuple[int, int], ...]
    questions: tuple[Question, ...] = ()


def reqa(name: str, passages: Iterable[Passage], provenance: Mapping[str, str]) -> Collection:
    """A collection whose candidates are all (sentence, passage) pairs.

    Parameters
    ----------
    name : str
        Name of the collection.
    passages : iterable of Passage
        Those of equal text are one, with the sentences of the first.
    provenance : mapping
        Passed on to the collection.

    Returns
    -------
    Collection
        Documents as `candidates` gives them. Queries have `text`; `cluster`, the candidate
        that answers them; its `article`; `ambiguous`, whether the answer stands in the
        passage more than once; `position`, a hash of the text, and the `split` that follows
        from it. Relevant is the sentence that holds the answer where the data set marks it.
        Of questions of equal text the first is kept. ``queries.attrs["left_out"]`` counts
        those that are not: `repeated`, and `in no sentence`, whose answer runs over a
        sentence's end or has no place in the passage.
    """
    kept: dict[str, Passage] = {}
    rows: dict[str, tuple] = {}
    left_out = {"repeated": 0, "in no sentence": 0}
    for passage in passages:
        passage_id = text_id(passage.text)
        first = kept.setdefault(passage_id, passage)
        for question in passage.questions:
            query_id, sentence = text_id(question.text), _sentence(first.spans, question)
            if sentence is None or query_id in rows:
                left_out["in no sentence" if sentence is None else "repeated"] += 1
                continue
            ambiguous = passage.text.count(question.answer) > 1
            gold = f"{passage_id}#{sentence}"
            rows[query_id] = (question.text, gold, first.article, ambiguous, hash_position(question.text))
    columns = ["text", "cluster", "article", "ambiguous", "position"]
    queries = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("query_id")
    queries.attrs["left_out"] = left_out
    return answering(name, candidates(kept), queries, provenance)


def _sentence(spans: Iterable[tuple[int, int]], question: Question) -> int | None:
    """Number of the sentence that holds the whole answer."""
    start, end = question.start, question.start + len(question.answer)
    return next((number for number, (left, right) in enumerate(spans) if left <= start and end <= right), None)


def candidates(passages: Mapping[str, Passage]) -> pd.DataFrame:
    """All (sentence, passage) pairs.

    Parameters
    ----------
    passages : mapping of str to Passage
        By the id that they get.

    Returns
    -------
    DataFrame
        Index `doc_id` (passage id, ``#``, number of the sentence). `text` is the sentence and
        then the passage, for what indexes one text; `sentence` and `context` are the two
        apart (a context is one string for all its sentences); `passage` is the id,
        `position` the number; `title` and `article`.
    """
    rows = [
        (name, position, passage, passage.text[start:end])
        for name, passage in passages.items()
        for position, (start, end) in enumerate(passage.spans)
    ]
    names, positions, sources, sentences = zip(*rows, strict=True) if rows else ((), (), (), ())
    shared = {
        "context": [passage.text for passage in sources],
        "passage": names,
        "title": [passage.title for passage in sources],
        "article": [passage.article for passage in sources],
    }
    documents = pd.DataFrame(
        {
            "text": [f"{sentence} {passage.text}" for sentence, passage in zip(sentences, sources, strict=True)],
            "sentence": sentences,
            # As objects, many rows share one string.
            **{column: pd.Series(values, dtype=object) for column, values in shared.items()},
            "position": positions,
        }
    )
    documents.index = pd.Index([f"{row[0]}#{row[1]}" for row in rows], name="doc_id", dtype=str)
    return documents


def answering(name: str, documents: pd.DataFrame, queries: pd.DataFrame, provenance: Mapping[str, str]) -> Collection:
    """The collection in which each query has one relevant document, its `cluster`, with the default split."""
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})
    queries = queries.assign(split=split_by_position(queries["position"], SHARE, SHARE))
    return Collection(name, documents, queries, qrels, provenance=dict(provenance))
