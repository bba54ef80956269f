"""Data sets by name: a few short functions a source, in this folder, in a notebook's cell or in a plug-in.

A new source is a function without arguments under a decorator:

>>> import pandas as pd
>>> from retlib.data.collection import Collection
>>> from retlib.data.datasets import register
>>> @register("my-corpus")
... def load_my_corpus() -> Collection:
...     documents = pd.read_csv("documents.csv", dtype=str, index_col="doc_id")
...     queries = pd.read_csv("queries.csv", dtype=str, index_col="query_id")
...     qrels = pd.read_csv("qrels.csv", dtype={"query_id": str, "doc_id": str})
...     return Collection("my-corpus", documents, queries, qrels)

Documents and queries have `text`, queries a `split` (train, dev or test), qrels `relevance`; paths of a notebook begin
in its folder. From then on its name is valid wherever a collection is named; a cell that runs again replaces it. What
this folder reads from files has a card in `data/catalogue.yaml` that says whence they are.

`register_articles` takes a function that yields each page as an `Article` (for pre-training); else the documents of a
collection are its articles. `register_text` takes one that yields the sentences of a bulk text (for word vectors,
distractors); else they are those of the articles. A corpus of one's own needs no function: its name is where it lies
(`retlib.data.datasets.own`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from retlib.core.errors import DataError, require
from retlib.core.registry import Registry, source
from retlib.data.collection import Article, Collection
from retlib.data.datasets import catalogue, own
from retlib.data.text import running_text


def _text(name: str) -> Callable[[], Iterator[str]] | None:
    pages = ARTICLES.get(name) if own.find(name) or name in ARTICLES.names() else None
    return pages and (lambda: (line for article in pages() for line in running_text(article.passages)))


def _articles(name: str) -> Callable[[], Iterator[Article]] | None:
    if corpus := own.find(name):
        return corpus.articles
    return (lambda: own.document_articles(load(name))) if name in COLLECTIONS.names() else None


# Functions that return a `Collection`, that yield the sentences of a bulk text, and that yield each `Article`.
COLLECTIONS = Registry("collection", lambda name: (corpus := own.find(name)) and corpus.collection, own.forms)
TEXTS = Registry("text", _text, own.forms)
ARTICLES = Registry("articles", _articles, own.forms)
register, register_text, register_articles = COLLECTIONS.register, TEXTS.register, ARTICLES.register


def load(name: str) -> Collection:
    """Return the collection called `name`, or lying where `name` says; the last few are kept in memory.

    Raises `SettingError` for an unknown name, `DataError` if a file is absent or damaged, or a collection has another.
    """
    # The folders are part of the key, so that a changed $RETLIB_DATA is noticed.
    return _load(name, COLLECTIONS.get(name), catalogue.data_folders())


@lru_cache(maxsize=4)
def _load(name: str, read: Callable[[], Collection], folders: tuple) -> Collection:
    with catalogue.reading(name):
        collection = read()
    is_named = name not in COLLECTIONS.names() or getattr(collection, "name", None) == name
    require(is_named, f"what is registered as {name!r} must return a Collection of that name", DataError)
    return collection if collection.provenance else replace(collection, provenance=catalogue.provenance(name))


def text(name: str) -> Iterator[str]:
    """Return the sentences of the bulk text called `name`, streamed in constant memory; errors as those of `load`."""
    return _streamed(name, TEXTS.get(name))


def articles(name: str) -> Iterator[Article]:
    """Return the articles of the source called `name`, streamed; errors as those of `load`."""
    return _streamed(name, ARTICLES.get(name))


def _streamed(name: str, read: Callable[[], Iterator]) -> Iterator:
    with catalogue.reading(name):
        yield from read()


def provenance(name: str) -> dict[str, str]:
    """Return what makes the articles called `name`, for addresses: their reader, and files, packages or collection."""
    if corpus := own.find(name):
        return {"source": source(own), **corpus.provenance}
    if name in pydocs.SLICES:
        return {"source": source(pydocs), **pydocs.provenance(name)}
    if name in ARTICLES.names():
        return {"source": ARTICLES.source(name) + source(released), **catalogue.provenance(name)}
    return {name: load(name).fingerprint}


from retlib.data.datasets import pydocs, released  # noqa: E402 - they register what they read
