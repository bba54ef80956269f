"""A task of letters, for tests of models that read pairs; and runs of written lists."""

import numpy as np
import pandas as pd

from retlib.data.collection import Collection
from retlib.data.text import WordPiece
from retlib.models.retriever import Architecture
from retlib.systems.compose import PairSystem
from retlib.systems.system import Stage, System
from retlib.systems.training_data import Labels

LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl"))
SMALL = Architecture(layers=1, width=64, dimension=8, query_length=4, document_length=6)
# Trained from random weights on three of BM25's first twelve.
LESSON = Stage(
    data=Labels(), negatives="bm25", options={"n": 3, "depth": 12}, steps=6, batch_size=4, evaluations=2,
)  # fmt: skip
READER = PairSystem(System(SMALL, LETTERS), LESSON)


def table(*texts):
    return LETTERS.encode(texts)


def tokens(found):
    return [found.row(i).tolist() for i in range(len(found))]


def make_collection():
    """Forty documents of letters, and thirty queries, each of two letters of its document."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghijkl"), 5)) for _ in range(40)]
    documents = pd.DataFrame({"text": texts}, index=pd.Index([f"d{i:02d}" for i in range(40)], name="doc_id"))
    asked = [" ".join(rng.permutation(text.split())[:2]) for text in texts[:30]]
    queries = pd.DataFrame({"text": asked, "split": ["train"] * 18 + ["dev"] * 6 + ["test"] * 6})
    queries.index = pd.Index([f"q{i:02d}" for i in range(30)], name="query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": documents.index[:30], "relevance": 1})
    return Collection("letters", documents, queries, qrels)


def listed(lists):
    """A run of these documents, by query."""
    rows = [(query, doc, -float(place)) for query, docs in lists.items() for place, doc in enumerate(docs)]
    return pd.DataFrame(rows, columns=["query_id", "doc_id", "score"])
