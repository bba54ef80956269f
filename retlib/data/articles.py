"""Articles, to pre-train on and to write queries for: as a `Corpus` of token ids, or as passages (Parts II and III)."""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save, save_file

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets, passages
from retlib.data.collection import Article
from retlib.data.text import TokenTable, WordPiece, offsets_of, quick_sentences

VERSION, PASSAGES = 3, 1  # of what is made here
Split = Callable[[str], list[str]]
TABLES = ("sentences", "titles")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A tokenized encyclopedia in a few flat arrays, about four bytes a token: all sentences in order, and titles.

    Of A articles with P passages, passage p has the sentences ``passages[p]`` to ``passages[p + 1]``, and article a the
    passages ``articles[a]`` to ``articles[a + 1]``, at least one each; the first `opening` passages are its first
    section. Article a links to the articles ``link_targets[link_starts[a]:link_starts[a + 1]]``, not to itself and to
    none twice. All arrays are int64.
    """

    names: list[str]
    passages: np.ndarray
    articles: np.ndarray
    opening: np.ndarray
    link_starts: np.ndarray
    link_targets: np.ndarray
    sentences: TokenTable
    titles: TokenTable

    @classmethod
    def build(cls, articles: Iterable[Article], encode: Callable[[Iterable[str]], TokenTable], split: Split) -> Self:
        """Return articles, encoded as they come; links to others and what is without a sentence are dropped.

        With `list` for `encode` sentences and titles stay texts. Raises `DataError` if there is no sentence at all, or
        if two articles have one name.
        """
        rows: dict[str, int] = {}
        numbers: dict[str, int] = {}  # of every name that is linked to, whether it is an article or not
        titles, targets = [], array("q")
        # Sentences of each passage; passages, those of the first section, and links of each article.
        sizes, counts, opening, links = (array("q") for _ in range(4))

        def texts() -> Iterator[str]:
            for article in articles:
                parts = [[text for each in split(part) if (text := each.strip())] for part in article.passages]
                if any(parts):
                    require(article.name not in rows, f"two articles have the name {article.name!r}", DataError)
                    rows[article.name] = len(rows)
                    titles.append(article.title)
                    sizes.extend(len(part) for part in parts if part)
                    counts.append(sum(map(bool, parts)))
                    opening.append(sum(map(bool, parts[: article.opening])))
                    links.append(len(article.links))
                    targets.extend(numbers.setdefault(name, len(numbers)) for name in article.links)
                    yield from chain.from_iterable(parts)

        sentences, count = encode(texts()), len(rows)
        require(count > 0, "the articles hold no sentence", DataError)
        row_of = np.array([rows.get(name, -1) for name in numbers], dtype=np.int64)
        source, target = np.repeat(np.arange(count), links), row_of[np.array(targets)]
        is_link = (target >= 0) & (target != source)
        source, target = np.divmod(np.unique(source[is_link] * count + target[is_link]), count)
        bounds = (offsets_of(each) for each in (sizes, counts))
        starts = offsets_of(np.bincount(source, minlength=count))
        return cls(list(rows), *bounds, np.array(opening), starts, target, sentences, encode(titles))

    sentences_per_passage = property(lambda self: np.diff(self.passages), doc="Sentences of each passage, (P,).")
    passages_per_article = property(lambda self: np.diff(self.articles), doc="Passages of each article, (A,).")

    def article_of(self, passages: np.ndarray) -> np.ndarray:
        """Return the rows of the articles that hold the passages."""
        return np.searchsorted(self.articles, passages, side="right") - 1

    def passage_of(self, sentences: np.ndarray) -> np.ndarray:
        """Return the rows of the passages that hold the sentences."""
        return np.searchsorted(self.passages, sentences, side="right") - 1

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {name: part for name, part in vars(self).items() if isinstance(part, np.ndarray)}
        arrays["names"] = np.frombuffer(json.dumps(self.names).encode(), np.uint8)
        tables = {name: vars(getattr(self, name)) for name in TABLES}
        return arrays | {f"{name}-{part}": ids for name, table in tables.items() for part, ids in table.items()}

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole content."""
        return hashlib.sha256(save(self._arrays())).hexdigest()

    def save(self, path: Path) -> None:
        """Write all of it to a file."""
        save_file(self._arrays(), path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return what `save` wrote."""
        arrays = load_file(path)
        tables = {n: TokenTable(arrays.pop(f"{n}-ids"), arrays.pop(f"{n}-offsets")) for n in TABLES}
        return cls(json.loads(arrays.pop("names").tobytes()), **arrays, **tables)


@dataclass(frozen=True)
class Articles:
    """A source of articles (a name in `retlib.data.datasets.articles`), tokenized once with its own vocabulary."""

    name: str
    vocabulary: int

    tokenizer = property(lambda self: _read(self)[0], doc="The vocabulary, a `WordPiece`.")
    corpus = property(lambda self: _read(self)[1], doc="The articles as token rows, a `Corpus`.")


@lru_cache(maxsize=4)
def _read(articles: Articles) -> tuple[WordPiece, Corpus]:
    def make(folder: Path) -> None:
        paragraphs = (part for article in datasets.articles(articles.name) for part in article.passages)
        wordpiece = WordPiece.train(runtime.progress(paragraphs, desc=articles.name), articles.vocabulary)
        wordpiece.save(folder / "vocab.txt")
        pages = runtime.progress(datasets.articles(articles.name), desc=articles.name)
        Corpus.build(pages, wordpiece.encode, quick_sentences).save(folder / "corpus.safetensors")

    settings = {"tokens": articles.vocabulary, **datasets.provenance(articles.name)}
    folder = cache.artefact("corpus", VERSION, settings, make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder / "corpus.safetensors")


@dataclass(frozen=True)
class OutOfTarget:
    """Passages of a source of articles that none of some collections holds; `most` at most, first by a hash."""

    articles: str
    targets: tuple[str, ...]
    most: int

    @property
    def documents(self) -> pd.DataFrame:
        """Index `passage_id`; `text`, `title` and `article`."""
        collections = [datasets.load(target) for target in self.targets]
        settings = datasets.provenance(self.articles) | {"targets": [each.fingerprint for each in collections]}

        def make(folder: Path) -> None:
            pages = runtime.progress(datasets.articles(self.articles), desc=self.articles)
            passages.unseen(passages.passages(pages), *collections).to_parquet(folder / "passages.parquet")

        folder = cache.artefact("passages", PASSAGES, settings, make)
        return passages.sample(pd.read_parquet(folder / "passages.parquet"), self.most)
