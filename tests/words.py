"""A task of written words, for tests of training by ranking."""

import numpy as np
import pandas as pd
import pytest

from retlib.data.collection import Collection
from retlib.data.text import WordPiece
from retlib.models.retriever import Architecture, Retriever

PAGES = 40
WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "uvwxyz"]
UNITS = WordPiece((*WordPiece.SPECIAL, *WORDS))
SMALL = Architecture(encoder="bow-mlp", width=32, dimension=16, query_length=4, document_length=12)


def make_collection(name="words"):
    """Pages of neighbouring words; each query has words that stand near those of its page."""
    rng = np.random.default_rng(1)
    texts = [" ".join(WORDS[(page + step) % 48] for step in (0, 1, 2)) for page in range(PAGES)]
    documents = pd.DataFrame({"title": [text[:2] for text in texts], "text": texts})
    documents.index = pd.Index([f"d{page}" for page in range(PAGES)], name="doc_id")
    target = rng.integers(0, PAGES, 120)
    near = (target[:, None] + rng.integers(-2, 4, (120, 2))) % 48
    queries = pd.DataFrame({"text": [" ".join(WORDS[word] for word in row) for row in near]})
    queries["split"] = ["train"] * 80 + ["dev"] * 20 + ["test"] * 20
    queries.index = pd.Index([f"q{query}" for query in range(120)], name="query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": documents.index[target], "relevance": 1})
    # Query 0 has a second relevant document and one that is judged not to be; query 2 has none.
    qrels.loc[2, "relevance"] = 0
    other = [name for name in documents.index if name != qrels.loc[0, "doc_id"]][:2]
    more = pd.DataFrame({"query_id": "q0", "doc_id": other, "relevance": [2, 0]})
    return Collection(name, documents, queries, pd.concat([qrels, more], ignore_index=True), provenance={"a": "b"})


@pytest.fixture(scope="module")
def collection():
    """The task of `make_collection`."""
    return make_collection()


@pytest.fixture(scope="module")
def start():
    """A retriever that has not been trained."""
    return Retriever.fresh(SMALL, UNITS, seed=0)


@pytest.fixture(scope="module")
def ranking(collection, start):
    """The task as the retriever reads it."""
    return start.reads(collection)
