"""Articles as a corpus: a few flat arrays of token ids, and of the places where sentences, passages, articles begin."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, offsets_of

if TYPE_CHECKING:
    from retlib.data.collection import Article
    from retlib.data.text import WordPiece

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
        self.links, self.links_per_article = array("q"), array("q")

    def add(self, article: Article) -> list[str]:
        """Note an article's structure, and return its sentences; one without any is left out."""
        found, opening = [], 0
        for place, passage in enumerate(article.passages):
            sentences = [text for sentence in self.split(passage) if (text := sentence.strip())]
            if sentences:
                found.extend(sentences)
                self.passages.append(self.passages[-1] + len(sentences))
                opening += place < article.opening
        if not found:
            return []
        require(article.name not in self.rows, f"two articles have the name {article.name!r}", DataError)
        self.rows[article.name] = len(self.rows)
        self.articles.append(len(self.passages) - 1)
        self.opening.append(opening)
        self.links.extend(self.numbers.setdefault(target, len(self.numbers)) for target in article.links)
        self.links_per_article.append(len(article.links))
        return found

    def structure(self) -> Structure:
        """Return what was noted, with the links that lead to a known article."""
        count = len(self.rows)
        require(count > 0, "the articles hold no sentence", DataError)
        row_of = np.array([self.rows.get(name, -1) for name in self.numbers], dtype=np.int64)
        sources = np.repeat(np.arange(count), np.array(self.links_per_article))
        targets = row_of[np.array(self.links, dtype=np.int64)]
        real = (targets >= 0) & (targets != sources)
        sources, targets = np.divmod(np.unique(sources[real] * count + targets[real]), count)
        return Structure(
            names=np.array(list(self.rows), dtype=object),
            passages=np.array(self.passages),
            articles=np.array(self.articles),
            opening=np.array(self.opening),
            link_starts=offsets_of(np.bincount(sources, minlength=count)),
            link_targets=targets,
        )


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
                if found := builder.add(article):
                    titles.append(article.title)
                    yield from found

        sentences = tokenizer.encode(texts())
        return cls(**vars(builder.structure()), sentences=sentences, titles=tokenizer.encode(titles))

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, TokenTable):
                yield f"{part.name}-ids", value.ids
                yield f"{part.name}-offsets", value.offsets
            elif part.name != "names":
                yield part.name, value

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole content."""
        digest = hashlib.sha256("\x1f".join(self.names).encode("utf-8", "surrogatepass"))
        for name, values in self._arrays():
            digest.update(f"\x1d{name} {values.dtype.str} {len(values)}\x1e".encode())
            digest.update(np.ascontiguousarray(values))
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the arrays as .npy files, and the names, which come last, as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in self._arrays():
            np.save(folder / f"{name}.npy", values, allow_pickle=False)
        (folder / "names.json").write_text(json.dumps(list(self.names)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return what `save` wrote; the arrays stay on disk until they are read."""

        def read(name: str) -> np.ndarray:
            return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))

        names = np.array(json.loads((folder / "names.json").read_text(encoding="utf-8")), dtype=object)
        tables = {n: TokenTable(read(f"{n}-ids"), read(f"{n}-offsets")) for n in ("sentences", "titles")}
        rest = {part.name: read(part.name) for part in fields(Structure) if part.name != "names"}
        return cls(names=names, **rest, **tables)
