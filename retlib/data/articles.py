"""Articles, to pre-train on and to write queries for: as a `Corpus` of token ids, or as passages (Parts II and III)."""

from __future__ import annotations

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
from safetensors.numpy import load_file, save_file

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_positive
from retlib.data import datasets, passages
from retlib.data.collection import Article
from retlib.data.text import TokenTable, WordPiece, offsets_of, quick_sentences

VERSION, PASSAGES = 2, 1  # of what is made here
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
        tables = {name: vars(getattr(self, name)) for name in TABLES}
        return arrays | {f"{name}-{part}": ids for name, table in tables.items() for part, ids in table.items()}

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole content."""
        digest = hashlib.sha256("\x1f".join(self.names).encode("utf-8", "surrogatepass"))
        for name, values in self._arrays().items():
            digest.update(f"\x1d{name} {values.dtype.str} {len(values)}\x1e".encode())
            digest.update(np.ascontiguousarray(values))
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the arrays, and the names as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self._arrays(), folder / "corpus.safetensors")
        (folder / "names.json").write_text(json.dumps(self.names), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return what `save` wrote."""
        arrays = load_file(folder / "corpus.safetensors")
        tables = {n: TokenTable(arrays.pop(f"{n}-ids"), arrays.pop(f"{n}-offsets")) for n in TABLES}
        return cls(json.loads((folder / "names.json").read_text(encoding="utf-8")), **arrays, **tables)


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
        Corpus.build(pages, wordpiece.encode, quick_sentences).save(folder)

    settings = {"tokens": articles.vocabulary, **datasets.provenance(articles.name)}
    folder = cache.artefact("corpus", VERSION, settings, make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder)


@dataclass(frozen=True)
class OutOfTarget:
    """Passages of a source of articles that none of some collections holds; `most` at most, first by a hash."""

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
