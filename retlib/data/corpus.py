"""Articles as a corpus: flat arrays of token ids, and of where sentences, passages and articles begin (Part II)."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import load_file, save_file

from retlib.core.errors import DataError, require
from retlib.data.collection import Article
from retlib.data.text import TokenTable, WordPiece, offsets_of

Split = Callable[[str], list[str]]


@dataclass(frozen=True, eq=False)
class Structure:
    """Where sentences, passages and articles begin, and which articles link to which.

    Of A articles with P passages, passage p has the sentences ``passages[p]`` to ``passages[p + 1]``, and article a the
    passages ``articles[a]`` to ``articles[a + 1]``, at least one each; the first `opening` passages are its first
    section. Article a links to the articles ``link_targets[link_starts[a]:link_starts[a + 1]]``, not to itself and to
    none twice. All are int64 arrays but the `names`.
    """

    names: np.ndarray
    passages: np.ndarray
    articles: np.ndarray
    opening: np.ndarray
    link_starts: np.ndarray
    link_targets: np.ndarray

    @property
    def sentences_per_passage(self) -> np.ndarray:
        """Sentences of each passage, (P,)."""
        return np.diff(self.passages)

    @property
    def passages_per_article(self) -> np.ndarray:
        """Passages of each article, (A,)."""
        return np.diff(self.articles)

    @property
    def first_sections(self) -> tuple[np.ndarray, np.ndarray]:
        """First sentence of each article's first section, and how many sentences that has; two arrays (A,)."""
        starts = self.passages[self.articles[:-1]]
        return starts, self.passages[self.articles[:-1] + self.opening] - starts

    def article_of(self, passages: np.ndarray) -> np.ndarray:
        """Return the rows of the articles that hold the passages."""
        return np.searchsorted(self.articles, passages, side="right") - 1

    def passage_of(self, sentences: np.ndarray) -> np.ndarray:
        """Return the rows of the passages that hold the sentences."""
        return np.searchsorted(self.passages, sentences, side="right") - 1


class Builder:
    """Takes in articles one by one and notes their structure; their texts it hands on."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.rows: dict[str, int] = {}
        self.passages, self.articles, self.opening = array("q", [0]), array("q", [0]), array("q")
        self.numbers: dict[str, int] = {}  # of every name that is linked to, whether it is an article or not
        self.sources, self.targets = array("q"), array("q")  # of links

    def add(self, article: Article) -> list[str]:
        """Note an article's structure, and return its sentences; one without any is left out."""
        texts, opening = [], 0
        for place, passage in enumerate(article.passages):
            sentences = [text for sentence in self.split(passage) if (text := sentence.strip())]
            if sentences:
                texts += sentences
                self.passages.append(self.passages[-1] + len(sentences))
                opening += place < article.opening
        if texts:
            require(article.name not in self.rows, f"two articles have the name {article.name!r}", DataError)
            self.targets.extend(self.numbers.setdefault(target, len(self.numbers)) for target in article.links)
            self.sources.extend([len(self.rows)] * len(article.links))
            self.rows[article.name] = len(self.rows)
            self.articles.append(len(self.passages) - 1)
            self.opening.append(opening)
        return texts

    def structure(self) -> Structure:
        """Return what was noted, with the links that lead to a known article."""
        count = len(self.rows)
        require(count > 0, "the articles hold no sentence", DataError)
        row_of = np.array([self.rows.get(name, -1) for name in self.numbers], dtype=np.int64)
        sources, targets = np.array(self.sources, dtype=np.int64), row_of[np.array(self.targets, dtype=np.int64)]
        is_link = (targets >= 0) & (targets != sources)
        sources, targets = np.divmod(np.unique(sources[is_link] * count + targets[is_link]), count)
        parts = (self.passages, self.articles, self.opening, offsets_of(np.bincount(sources, minlength=count)), targets)
        return Structure(np.array(list(self.rows), dtype=object), *map(np.array, parts))


@dataclass(frozen=True, eq=False)
class Corpus(Structure):
    """A tokenized encyclopedia in a few flat arrays, about four bytes a token: all sentences in order, and titles."""

    sentences: TokenTable
    titles: TokenTable

    @classmethod
    def build(cls, articles: Iterable[Article], tokenizer: WordPiece, split: Split) -> Self:
        """Return articles, tokenized as they come; links to others and what is without a sentence are dropped.

        Raises `DataError` if there is no sentence at all, or if two articles have one name.
        """
        builder, titles = Builder(split), []

        def texts() -> Iterator[str]:
            for article in articles:
                if sentences := builder.add(article):
                    titles.append(article.title)
                    yield from sentences

        sentences = tokenizer.encode(texts())
        return cls(**vars(builder.structure()), sentences=sentences, titles=tokenizer.encode(titles))

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {part.name: getattr(self, part.name) for part in fields(Structure) if part.name != "names"}
        tables = {"sentences": self.sentences, "titles": self.titles}
        return arrays | {f"{name}-{part}": ids for name, table in tables.items() for part, ids in vars(table).items()}

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
        (folder / "names.json").write_text(json.dumps(list(self.names)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return what `save` wrote."""
        names = np.array(json.loads((folder / "names.json").read_text(encoding="utf-8")), dtype=object)
        arrays = load_file(folder / "corpus.safetensors")
        tables = {n: TokenTable(arrays.pop(f"{n}-ids"), arrays.pop(f"{n}-offsets")) for n in ("sentences", "titles")}
        return cls(names=names, **arrays, **tables)
