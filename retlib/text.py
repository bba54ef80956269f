"""From text to token ids: words, vocabularies, sentences, token tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from retlib.errors import DataError, require

_WORD = re.compile(r"\w+(?:['’]\w+)*")


def words(text: str) -> list[str]:
    """Lowercased unigrams (Gillick 2018, section 2.2): runs of letters and digits.

    An apostrophe inside a word stays; all other punctuation separates.
    """
    return _WORD.findall(text.lower())


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, by syntok's rules (exact and offline)."""
    from syntok import segmenter

    return [
        "".join(token.spacing + token.value for token in sentence).strip()
        for paragraph in segmenter.analyze(text)
        for sentence in paragraph
    ]


@dataclass(frozen=True, eq=False)
class TokenTable:
    """A ragged table of token ids: one row a text, tokenized once and reused.

    Parameters
    ----------
    ids : int32 array, shape (tokens,)
        All rows' token ids, one row after the other.
    offsets : int64 array, shape (rows + 1,)
        Row i is ``ids[offsets[i]:offsets[i + 1]]``.
    """

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each row, shape (rows,)."""
        return np.diff(self.offsets)

    def row(self, i: int) -> np.ndarray:
        """The token ids of row `i`."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def take(self, rows: np.ndarray) -> TokenTable:
        """The table of the given rows, in the given order."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # Each token's place: the start of its source row, plus its place within the row.
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenTable(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets)

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> TokenTable:
        """Build a table from lists of token ids."""
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
        ids = np.fromiter((i for row in rows for i in row), dtype=np.int32, count=offsets[-1])
        return cls(ids, offsets)


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids. Id 0 stands for every word that is not in the vocabulary."""

    words: tuple[str, ...]

    UNKNOWN = 0

    def __len__(self) -> int:
        return len(self.words) + 1

    @classmethod
    def build(cls, texts: Iterable[str], min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """The words of `texts` that occur at least `min_count` times, most frequent first."""
        counts = Counter(word for text in texts for word in words(text))
        kept = [word for word, count in counts.items() if count >= min_count]
        kept.sort(key=lambda word: (-counts[word], word))
        require(len(kept) > 0, "the texts hold no word that is frequent enough for a vocabulary", DataError)
        return cls(tuple(kept[:max_size]))

    def encode(self, texts: Iterable[str]) -> TokenTable:
        """Token ids of each text; a text without any word becomes one unknown word."""
        ids = {word: i for i, word in enumerate(self.words, start=1)}
        return TokenTable.from_rows([[ids.get(w, 0) for w in words(text)] or [self.UNKNOWN] for text in texts])
