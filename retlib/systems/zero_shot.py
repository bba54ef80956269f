"""Retrievers that learn from generated queries alone (Liang 2020).

Passages with their generated queries are a `Collection` like any other: what trains on labels trains on
them, through `retlib.systems.dense.finetune`. What differs between the paper's rows is which collections train a
retriever, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Article, Collection, hash_position, split_by_position
from retlib.data.passages import sentences_of
from retlib.data.text import WordPiece
from retlib.systems import dense
from retlib.systems.dense import Architecture, Benchmark, Retriever, Schedule
from retlib.training.pretraining import Corpus

# Passages whose queries are held out to choose the weights: a share, and at most so many.
HELD_OUT, MOST_HELD_OUT = 0.1, 200
# Share of the ICT pairs whose sentence stays in its passage (section 4, after Lee et al. 2019).
KEPT = 0.1


def synthetic(name: str, generated: pd.DataFrame, documents: pd.DataFrame) -> Collection:
    """Passages and the queries that were generated from them, as a collection to train on.

    Parameters
    ----------
    name : str
        Of the collection.
    generated : DataFrame
        Columns `passage_id` and `query`, as `retlib.systems.query_generation.generate` returns them. Queries of
        equal text are kept as they come; see `retlib.evaluation.query_measures.distinct`.
    documents : DataFrame
        The passages: index `passage_id`; `text`, and `title` where there is one.

    Returns
    -------
    Collection
        A query is relevant to its passage, its `cluster`. The queries of a tenth of the
        passages, of 200 at most, are dev, the others train.

    Raises
    ------
    DataError
        If there are queries for fewer than two passages, or for one that is not there.
    """
    places = documents.index.get_indexer(generated["passage_id"])
    unknown = generated["passage_id"][places < 0].unique()[:3].tolist()
    require(not unknown, f"{name!r}: queries were generated from {unknown}, which are no passages here", DataError)
    sources = sorted(generated["passage_id"].unique(), key=hash_position)
    require(len(sources) > 1, f"{name!r}: queries of {len(sources)} passages; some train, others validate", DataError)
    held_out = sources[: max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(sources))))]
    number = generated.groupby("passage_id", sort=False).cumcount()
    queries = pd.DataFrame(
        {
            "text": generated["query"].to_numpy(),
            "cluster": generated["passage_id"].to_numpy(),
            "split": np.where(generated["passage_id"].isin(held_out), "dev", "train"),
        },
        index=(generated["passage_id"] + "?" + number.astype(str)).to_numpy(),
    ).rename_axis("query_id")
    columns = [column for column in ("text", "title") if column in documents]
    return Collection(name, documents[columns].rename_axis("doc_id"), queries, _asking(queries))


def labelled(collection: Collection) -> Collection:
    """A collection's own labels as pairs to train on: a query for each of its relevant documents, its `cluster`.

    Parameters
    ----------
    collection : Collection
        Without dev queries, a tenth of the training queries become these, by a hash of their ids.

    Raises
    ------
    DataError
        If fewer than two of its training and dev queries have a relevant document.
    """
    asked = collection.queries[collection.queries["split"] != "test"]
    judged = collection.qrels[(collection.qrels["relevance"] > 0) & collection.qrels["query_id"].isin(asked.index)]
    wrong = f"collection {collection.name!r} has {judged['query_id'].nunique()} labelled queries to train on"
    require(judged["query_id"].nunique() > 1, wrong, DataError)
    split = asked["split"]
    if "dev" not in set(split[judged["query_id"].unique()]):
        position = pd.Series(split.index, split.index).map(hash_position)
        split = pd.Series(split_by_position(position, 1, 1), split.index)
    queries = pd.DataFrame(
        {
            "text": asked["text"][judged["query_id"]].to_numpy(),
            "cluster": judged["doc_id"].to_numpy(),
            "split": split[judged["query_id"]].to_numpy(),
        },
        index=(judged["query_id"] + "?" + judged["doc_id"]).to_numpy(),
    ).rename_axis("query_id")
    return replace(collection, name=f"{collection.name}, labels", queries=queries, qrels=_asking(queries), pairs=None)


def _asking(queries: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})


def expand(documents: pd.Series, generated: pd.DataFrame) -> pd.Series:
    """Documents with their generated queries behind them, for a lexical system (docT5query: Nogueira and Lin 2019).

    Parameters
    ----------
    documents : Series
        Texts under their ids.
    generated : DataFrame
        Columns `passage_id`, one of those ids, and `query`. A document without queries stays as it is.
    """
    unknown = generated["passage_id"][~generated["passage_id"].isin(documents.index)].unique()[:3].tolist()
    require(not unknown, f"queries were generated from {unknown}, which are no documents here", DataError)
    joined = generated.groupby("passage_id")["query"].agg(" ".join).reindex(documents.index, fill_value="")
    return (documents + " " + joined).str.rstrip()


# --- training --------------------------------------------------------------------------------------


def fit(
    start: Retriever | None,
    architecture: Architecture,
    wordpiece: WordPiece,
    collection: Collection,
    schedule: Schedule,
    seed: int,
) -> Retriever:
    """Train a retriever on the queries of a collection, each with its `cluster`, or find it trained.

    Parameters
    ----------
    start : Retriever or None
        What was trained before it, on another collection; None begins with random weights, or with
        those of the architecture's checkpoint.
    collection : Collection
        As `synthetic` or `labelled` returns it.
    schedule : Schedule
    seed : int

    Notes
    -----
    See `retlib.systems.dense.finetune`: the loss is the softmax over the documents of the batch (section
    2.2), and the weights that are kept are the best on the queries that are held out. Of a
    generated collection these are generated, too: no label is seen.
    """
    begun = start or Retriever.fresh(architecture, wordpiece, seed)
    benchmark = tokenized(collection, wordpiece, architecture.query_length, architecture.document_length)
    return dense.finetune(begun, benchmark, collection, schedule, seed)


def ict(
    architecture: Architecture, wordpiece: WordPiece, documents: pd.DataFrame, schedule: Schedule, seed: int
) -> Retriever:
    """Train a retriever by the Inverse Cloze Task on passages: in 90 % of the pairs the sentence is taken out.

    Parameters
    ----------
    documents : DataFrame
        As for `synthetic`. Passages of one sentence make no pair; see `retlib.data.passages.sentences_of`.
    schedule : Schedule
        As many steps as on generated queries make it a comparison (section 4).
    """
    prepared = wordpiece, Corpus.build(_articles(documents), wordpiece, sentences_of)
    return dense.pretrain(prepared, architecture, ["ict"], schedule, seed, KEPT)


def _articles(documents: pd.DataFrame) -> Iterator[Article]:
    """Every passage as a page of its own."""
    titles = documents["title"] if "title" in documents else pd.Series("", documents.index)
    for name, title, text in zip(documents.index, titles, documents["text"], strict=True):
        yield Article(name, title, (text,), opening=1)


@lru_cache(maxsize=12)  # a study asks for the same one for every system and seed
def tokenized(collection: Collection, wordpiece: WordPiece, query_length: int, document_length: int) -> Benchmark:
    """As `retlib.systems.dense.Benchmark.tokenize`; the last few are kept."""
    return Benchmark.tokenize(collection, wordpiece, query_length, document_length)


def chain(
    collections: Sequence[Collection],
    architecture: Architecture,
    wordpiece: WordPiece,
    first: Schedule,
    later: Schedule,
    seed: int,
) -> Retriever:
    """Train on one collection after the other: the first by one schedule, those that follow by another."""
    require(len(collections) > 0, "a chain of trainings needs at least one collection", DataError)
    retriever = None
    for place, collection in enumerate(collections):
        retriever = fit(retriever, architecture, wordpiece, collection, later if place else first, seed)
    return retriever
