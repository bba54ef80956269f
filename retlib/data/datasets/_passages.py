"""Question answering as retrieval of the passage that was asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from retlib.data.collection import Collection, hash_position, split_by_position
from retlib.data.datasets._reading import text_id
from retlib.data.datasets._reqa import SHARE, Passage


def asked(name: str, passages: Iterable[Passage], provenance: Mapping[str, str]) -> Collection:
    """A collection whose candidates are passages.

    Parameters
    ----------
    name : str
        Name of the collection.
    passages : iterable of Passage
        Those of equal text are one, with the title of the first.
    provenance : mapping
        Passed on to the collection.

    Returns
    -------
    Collection
        Documents have `text`, `title` and `article`. Queries have `text`; `cluster`, the
        passage that they were asked about; `position`, a hash of the text, and the `split`
        that follows from it: 72 % train, 8 % dev, 20 % test. Questions of equal text are
        one, to which every passage is relevant that it was asked about (`cluster` is the
        first), so that no text is on two sides. An answer need not lie in one sentence, so
        questions that `_reqa.reqa` leaves out are here.
    """
    kept: dict[str, Passage] = {}
    queries: dict[str, tuple[str, str, float]] = {}
    judged: dict[tuple[str, str], None] = {}  # a set in order
    for passage in passages:
        passage_id = text_id(passage.text)
        kept.setdefault(passage_id, passage)
        for question in passage.questions:
            query_id = text_id(question.text)
            queries.setdefault(query_id, (question.text, passage_id, hash_position(question.text)))
            judged[query_id, passage_id] = None
    documents = pd.DataFrame.from_dict(
        {passage_id: (passage.text, passage.title, passage.article) for passage_id, passage in kept.items()},
        orient="index",
        columns=["text", "title", "article"],
    )
    asking = pd.DataFrame.from_dict(queries, orient="index", columns=["text", "cluster", "position"])
    asking["split"] = split_by_position(asking["position"], SHARE, SHARE)
    qrels = pd.DataFrame(list(judged), columns=["query_id", "doc_id"]).assign(relevance=1)
    return Collection(
        name, documents.rename_axis("doc_id"), asking.rename_axis("query_id"), qrels, provenance=dict(provenance)
    )
