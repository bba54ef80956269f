"""From text to token ids, in all chapters: words, sentences, token tables, vocabularies."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import tokenizers

from retlib.core.errors import DataError, require

WORD = re.compile(r"\w+(?:['’]\w+)*")


def words(text: str) -> list[str]:
    """Return lowercased unigrams (Gillick 2018, section 2.2): runs of letters and digits, with apostrophes inside."""
    return WORD.findall(text.lower())


def stop_words() -> frozenset[str]:
    """Return words that say little of what a text is about: Lucene's list for English, of 33."""
    from bm25s.stopwords import STOPWORDS_EN

    return frozenset(STOPWORDS_EN)


def content_words(text: str) -> frozenset[str]:
    """Return the different words of a text, less the stop words."""
    return frozenset(words(text)) - stop_words()


# A word that ends in a full stop, with closing quotes or brackets, before what may begin a sentence. It is looked for
# from its first letter alone: from each, the time would be quadratic in the longest word, and some have megabytes.
_BOUNDARY = re.compile(r"""(?<!\S)(\S+[.!?][)"'”’\]]*)\s+(?=["'“‘(\[]?[A-Z0-9])""")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st gen col sgt capt lt rev hon sen rep gov no nos vol vs etc al cf ca approx est fl inc ltd "
    "co corp jr sr jan feb mar apr jun jul aug sept sep oct nov dec mt ft op fig pp eds".split()
)


def quick_sentences(text: str) -> list[str]:
    """Return the sentences of running English text, by one rule.

    A sentence ends at ``.``, ``!`` or ``?`` before a capital or a digit, except after an initial, an inner full stop
    (``U.S.``) or a usual abbreviation. On a 1 % sample of English Wikipedia 97 % are those of the library syntok.
    """
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(text):
        word = match[1].strip("()[]\"'“”‘’")
        stem = word[:-1].lower() if word.endswith(".") else ""
        if not (stem in _ABBREVIATIONS or "." in stem or (len(stem) == 1 and stem.isalpha())):
            sentences.append(text[start : match.end(1)])
            start = match.end()
    return [*sentences, text[start:]]


def is_running_text(paragraph: str) -> bool:
    """Return whether a paragraph is no heading, caption or list item: eight words or more, ended as a sentence."""
    return paragraph.count(" ") >= 7 and paragraph.rstrip("\"'”’)").endswith((".", "!", "?"))


def running_text(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of at least four words in the paragraphs that are running text."""
    for paragraph in filter(is_running_text, paragraphs):
        yield from (sentence for sentence in quick_sentences(paragraph) if sentence.count(" ") >= 3)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return where each of several runs begins, and where the last one ends; one number more than there are runs."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class TokenTable:
    """A ragged table of token ids (int32), tokenized once and reused: row i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    lengths = property(lambda self: np.diff(self.offsets), doc="Tokens in each row, shape (rows,).")

    def row(self, i: int) -> np.ndarray:
        """Return the token ids of row `i`."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def take(self, rows: np.ndarray, stop: np.ndarray | None = None) -> Self:
        """Return the table of the given rows, in the given order; with `stop`, of all rows from each to before that."""
        rows = np.asarray(rows, dtype=np.int64)
        starts = self.offsets[rows]
        return self._runs(starts, self.offsets[rows + 1 if stop is None else stop] - starts)

    def _runs(self, starts: np.ndarray, lengths: np.ndarray) -> Self:
        offsets = offsets_of(lengths)
        return TokenTable(self.ids[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)

    def where(self, mask: np.ndarray) -> Self:
        """Return the table of the tokens in a mask, bool, shape (tokens,), and of the first of every row."""
        mask = mask.copy()
        mask[self.offsets[:-1][self.lengths > 0]] = True
        return TokenTable(self.ids[mask], offsets_of(mask)[self.offsets])

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> Self:
        """Return a table of rows of token ids, read once."""
        ids, lengths = array("i"), array("q")
        for row in rows:
            ids.extend(row)
            lengths.append(len(row))
        return cls(np.array(ids, dtype=np.int32), offsets_of(lengths))


def concatenate(parts: Sequence[TokenTable | int], limit: int | None) -> TokenTable:
    """Return tables side by side: row i is row i of each, one after the other, cut at `limit` tokens.

    A number behind the first table is this token in every row.
    """
    tables = [TokenTable.from_rows([[part]] * len(parts[0])) if isinstance(part, int) else part for part in parts]
    ids, lengths = (np.concatenate([getattr(each, name) for each in tables]) for name in ("ids", "lengths"))
    by_row = np.arange(len(lengths)).reshape(len(parts), -1).T.ravel()
    joined = TokenTable(ids, offsets_of(lengths)).take(by_row)
    bounds = joined.offsets[:: len(parts)]
    return joined._runs(bounds[:-1], np.clip(np.diff(bounds), 0, limit))


# --- tokenizers ------------------------------------------------------------------------------------

UNKNOWN = "[UNK]"
CHUNK = 2000  # texts that are tokenized at once
LETTERS = 1000  # rarer ones become unknown tokens, as in BERT's own vocabulary


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary of tokens; `_rows` of a subclass cuts texts into them. Without the special ones, `DataError`."""

    tokens: tuple[str, ...]

    SPECIAL: ClassVar[tuple[str, ...]] = (UNKNOWN,)
    rules: ClassVar[tuple[str, ...]] = ()  # what beside the tokens says how text is cut

    def __post_init__(self) -> None:
        missing = sorted(set(self.SPECIAL) - set(self.tokens))
        require(not missing, f"a {type(self).__name__} needs the tokens {missing}", DataError)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token to id."""
        return {token: i for i, token in enumerate(self.tokens)}

    def encode(self, texts: Iterable[str], length: int | None = None) -> TokenTable:
        """Return the token ids of texts, cut at a length; a text without any becomes `UNKNOWN`, if that is special."""
        unknown, texts = [self.ids[each] for each in self.SPECIAL if each == UNKNOWN], iter(texts)
        chunks = iter(lambda: list(islice(texts, CHUNK)), [])
        return TokenTable.from_rows((row or unknown)[:length] for chunk in chunks for row in self._rows(chunk))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the vocabulary of one token a line, as `save` and BERT's releases (``vocab.txt``) write them."""
        require(Path(path).is_file(), f"there is no vocabulary at {path}", DataError)
        return cls(tuple(Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")))

    def save(self, path: Path) -> None:
        """Write one token a line."""
        Path(path).write_text("\n".join(self.tokens) + "\n", encoding="utf-8")


class Vocabulary(Tokenizer):
    """Whole words (`words`); id 0 stands for every word that is not in the vocabulary."""

    @classmethod
    def of(cls, words: Iterable[str]) -> Self:
        """Return the vocabulary of these words, in their order, behind the unknown one."""
        return cls((UNKNOWN, *words))

    @classmethod
    def build(cls, texts: Iterable[str], max_size: int | None = None) -> Self:
        """Return the words of `texts`, most frequent first; `max_size` at most."""
        counts = Counter(word for text in texts for word in words(text))
        require(len(counts) > 0, "the texts hold no word for a vocabulary", DataError)
        return cls.of(sorted(counts, key=lambda word: (-counts[word], word))[:max_size])

    def _rows(self, texts: list[str]) -> Iterator[list[int]]:
        # The library's WordLevel has a quarter of the speed, and other letters make its words than Python's.
        get = self.ids.get
        return ([get(word, 0) for word in words(text)] for text in texts)


class WordPiece(Tokenizer):
    """Parts of words of lowercased text, as BERT has them (Chang 2020, section 4.1)."""

    SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")

    pad, cls, sep, mask = (
        property(lambda self, token=token: self.ids[token], doc=f"The id of {token}.")
        for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
    )

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 8000) -> Self:
        """Return at most `size` tokens learned from texts; the same texts give the same tokens."""
        texts = list(texts)
        tokenizer = bert_tokenizer({token: i for i, token in enumerate(cls.SPECIAL)})
        counts = Counter(chain.from_iterable(map(tokenizer.normalizer.normalize_str, texts)))
        letters = sorted((x for x in counts if not x.isspace()), key=lambda x: (-counts[x], x))[:LETTERS]
        # The trainer breaks ties by the ids of tokens, and numbers the letters in the order of a
        # randomly seeded hash table. Given the letters, it learns the same from the same texts.
        given = [*cls.SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
        require(size >= len(given), f"size = {size}: at least {len(given)} are needed, for letters and special tokens")
        options = {"special_tokens": given, "limit_alphabet": len(letters), "show_progress": False}
        tokenizer.train_from_iterator(texts, tokenizers.trainers.WordPieceTrainer(vocab_size=size, **options))
        ids = tokenizer.get_vocab()
        return cls(tuple(sorted(ids, key=ids.get)))

    @cached_property
    def _tokenizer(self):
        return bert_tokenizer(self.ids)

    def _rows(self, texts: list[str]) -> Iterator[list[int]]:
        return (encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, lowercased as it was read."""
        return self._tokenizer.decode([int(i) for i in ids])


def bert_tokenizer(ids: dict[str, int]) -> tokenizers.Tokenizer:
    """Return BERT's uncased tokenizer over a vocabulary."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return tokenizer
