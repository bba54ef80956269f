"""A source of articles with a WordPiece vocabulary learned from it: what pre-training reads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from retlib.core import cache, runtime
from retlib.core.errors import require_one_of, require_positive
from retlib.data import datasets, text
from retlib.data.collection import Article
from retlib.data.corpus import Corpus
from retlib.data.text import WordPiece

VERSION = 1


@dataclass(frozen=True)
class Articles:
    """A source of articles, tokenized once with a vocabulary learned from it.

    Parameters
    ----------
    name : str
        A name in `retlib.data.datasets.article_names()`.
    vocabulary : int
        Tokens of the vocabulary.
    """

    name: str
    vocabulary: int

    def __post_init__(self) -> None:
        require_one_of("articles", self.name, datasets.article_names())
        require_positive(self, "vocabulary")

    @property
    def tokenizer(self) -> WordPiece:
        """The vocabulary."""
        return _made(self)[0]

    @property
    def corpus(self) -> Corpus:
        """The articles as token rows."""
        return _made(self)[1]


@lru_cache(maxsize=4)
def _made(articles: Articles) -> tuple[WordPiece, Corpus]:
    name = articles.name
    reader = sha256(inspect.getsource(datasets.reader(name)).encode()).hexdigest()
    settings = {"source": name, "tokens": articles.vocabulary, "reader": reader, **datasets.provenance(name)}

    def read(label: str) -> Iterator[Article]:
        return runtime.progress(datasets.articles(name), desc=f"{name}: {label}")

    def make(folder: Path) -> None:
        passages = (part for article in read("vocabulary") for part in article.passages)
        wordpiece = WordPiece.train(passages, articles.vocabulary)
        wordpiece.save(folder / "vocab.txt")
        Corpus.build(read("articles"), wordpiece, text.quick_sentences).save(folder / "corpus")

    folder = cache.artefact("corpus", VERSION, settings, make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder / "corpus")
