"""Sources of articles: their text with a vocabulary learned from it, and their passages that no target holds."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import require_positive
from retlib.data import datasets, passages
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

    tokenizer = property(lambda self: _read(self)[0], doc="The vocabulary, a `WordPiece`.")
    corpus = property(lambda self: _read(self)[1], doc="The articles as token rows, a `Corpus`.")


@lru_cache(maxsize=4)
def _read(articles: Articles) -> tuple[WordPiece, Corpus]:
    def make(folder: Path) -> None:
        paragraphs = (part for article in datasets.articles(articles.name) for part in article.passages)
        wordpiece = WordPiece.train(runtime.progress(paragraphs, desc=articles.name), articles.vocabulary)
        wordpiece.save(folder / "vocab.txt")
        pages = runtime.progress(datasets.articles(articles.name), desc=articles.name)
        Corpus.build(pages, wordpiece, quick_sentences).save(folder)

    settings = {"tokens": articles.vocabulary, **datasets.provenance(articles.name)}
    folder = cache.artefact("corpus", VERSION, settings, make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder)


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
        whole = passages.passages(runtime.progress(datasets.articles(name), desc=name))
        passages.unseen(whole, *collections).to_parquet(folder / "passages.parquet")

    return pd.read_parquet(cache.artefact("passages", PASSAGES, settings, make) / "passages.parquet")
