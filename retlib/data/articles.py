"""Sources of articles: their text with a vocabulary learned from it, and their passages that no target holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import require_positive
from retlib.data import datasets, passages
from retlib.data.collection import Article
from retlib.data.corpus import Corpus
from retlib.data.text import WordPiece, quick_sentences

VERSION, PASSAGES = 2, 1  # of what is made here


@dataclass(frozen=True)
class Articles:
    """A source of articles (a name in `retlib.data.datasets.articles`), tokenized once with its own vocabulary."""

    name: str
    vocabulary: int

    def __post_init__(self) -> None:
        datasets.ARTICLES.get(self.name, "articles")
        require_positive(self, "vocabulary")

    @property
    def tokenizer(self) -> WordPiece:
        """The vocabulary."""
        return _read(self)[0]

    @property
    def corpus(self) -> Corpus:
        """The articles as token rows."""
        return _read(self)[1]


@lru_cache(maxsize=4)
def _read(articles: Articles) -> tuple[WordPiece, Corpus]:
    def make(folder: Path) -> None:
        paragraphs = (part for article in _stream(articles.name, "vocabulary") for part in article.passages)
        wordpiece = WordPiece.train(paragraphs, articles.vocabulary)
        wordpiece.save(folder / "vocab.txt")
        Corpus.build(_stream(articles.name, "articles"), wordpiece, quick_sentences).save(folder)

    settings = {"tokens": articles.vocabulary, **datasets.provenance(articles.name)}
    folder = cache.artefact("corpus", VERSION, settings, make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder)


def _stream(name: str, label: str) -> Iterator[Article]:
    return runtime.progress(datasets.articles(name), desc=f"{name}: {label}")


@dataclass(frozen=True)
class OutOfTarget:
    """Passages of a source of articles that none of some collections holds, in whole or in part.

    `most` of them at most, first by a hash. See `retlib.data.passages.passages` and `retlib.data.passages.unseen`.
    """

    articles: str
    targets: tuple[str, ...]
    most: int

    def __post_init__(self) -> None:
        datasets.ARTICLES.get(self.articles, "articles")
        require_positive(self, "most")

    @property
    def documents(self) -> pd.DataFrame:
        """Index `passage_id`; `text`, `title` and `article`."""
        return passages.sample(_out_of_target(self.articles, self.targets), self.most)


@lru_cache(maxsize=4)
def _out_of_target(name: str, targets: tuple[str, ...]) -> pd.DataFrame:
    collections = [datasets.load(target) for target in targets]
    settings = {**datasets.provenance(name), "targets": [collection.fingerprint for collection in collections]}

    def make(folder: Path) -> None:
        whole = passages.passages(_stream(name, "passages"))
        passages.unseen(whole, *collections).to_parquet(folder / "passages.parquet")

    return pd.read_parquet(cache.artefact("passages", PASSAGES, settings, make) / "passages.parquet")
