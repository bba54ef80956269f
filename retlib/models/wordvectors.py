"""Sentence vectors from word vectors, uniform or weighted by IDF (Gillick 2018, section 3.4)."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, Vocabulary, words

if TYPE_CHECKING:
    from gensim.models import KeyedVectors

# Of word2vec: numbers of a vector (as in the paper), words to each side, random words for each observed one, and how
# often a word must occur.
DIMENSION, WINDOW, NEGATIVES, MIN_COUNT = 300, 5, 5, 2


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Parameters
    ----------
    matrix : float32 array, shape (len(vocabulary), d)
        Row i belongs to the word of id i; row 0, of unknown words, is zero.
    """

    vocabulary: Vocabulary
    matrix: np.ndarray

    def save(self, folder: Path) -> None:
        """Write `vectors.safetensors` and `words.json` into a folder, from which `load` reads them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"matrix": self.matrix}, folder / "vectors.safetensors")
        content = json.dumps({"words": self.vocabulary.tokens}, ensure_ascii=False)
        (folder / "words.json").write_text(content, encoding="utf-8")


def train(texts: Iterable[str], seed: int = 0, *, epochs: int = 5) -> WordVectors:
    """Train word2vec (Mikolov et al. 2013) with gensim on one thread: equal input, equal bits.

    Parameters
    ----------
    texts : iterable of str
        Read once; a context does not cross from one text to the next. Of a text, the first
        10,000 words count.
    epochs : int
        Passes.

    Raises
    ------
    DataError
        If no word occurs `MIN_COUNT` times.

    Notes
    -----
    The paper does not say whether the context is predicted from the word (skip-gram) or the word from its
    context (CBOW). Here it is skip-gram, which on questions retrieved far better at equal epochs.
    """
    from gensim.models import Word2Vec

    require(epochs >= 1, f"epochs = {epochs}: at least 1 is needed")
    # Interned, a word takes the memory of one, however often it occurs.
    corpus = [[sys.intern(word) for word in words(text)] for text in texts]
    algorithm = {"vector_size": DIMENSION, "sg": 1, "window": WINDOW, "negative": NEGATIVES, "min_count": MIN_COUNT}
    model = Word2Vec(workers=1, seed=seed, **algorithm)
    model.build_vocab(corpus)
    require(len(model.wv) > 0, f"word2vec: no word occurs {MIN_COUNT} times in {len(corpus)} texts", DataError)
    model.train(corpus, total_examples=model.corpus_count, epochs=epochs)
    return _of(model.wv)


def load(path: Path | str) -> WordVectors:
    """Read word vectors from a file of GloVe or word2vec, or from a folder that `WordVectors.save` wrote.

    Parameters
    ----------
    path : path
        `*.bin` or `*.bin.gz` is word2vec's binary form; any other file is text with a word
        and its numbers on each line, with word2vec's first line (count and dimension) or
        without it (GloVe), gzipped or not.

    Raises
    ------
    DataError
        If the file is absent, damaged or of another form.

    Notes
    -----
    Words are kept as they are in the file, while `retlib.data.text.words` are lowercase: in a file
    that distinguishes case, the lowercase form is the one that is found. Of a word that stands
    twice, the first is kept. gensim reads the binary form; its reader of text takes more than three
    times as long as the one here, and fails at GloVe's words that have a space inside.
    """
    path = Path(path)
    require(path.exists(), f"there are no word vectors at {path}", DataError)
    if path.is_dir():
        vocabulary = Vocabulary(tuple(json.loads((path / "words.json").read_text(encoding="utf-8"))["words"]))
        return WordVectors(vocabulary, load_file(path / "vectors.safetensors")["matrix"])
    try:
        if path.name.removesuffix(".gz").endswith(".bin"):
            from gensim.models import KeyedVectors

            return _of(KeyedVectors.load_word2vec_format(str(path), binary=True, unicode_errors="replace"))
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return WordVectors(*_read_text(stream, path))
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged, or no file of word vectors: {error}") from error


def _of(vectors: KeyedVectors) -> WordVectors:
    """What gensim holds, with a row of zeros for unknown words before it."""
    matrix = np.concatenate([np.zeros((1, vectors.vector_size), dtype=np.float32), vectors.vectors])
    return WordVectors(Vocabulary.of(vectors.index_to_key), matrix)


def _read_text(stream: BinaryIO, path: Path) -> tuple[Vocabulary, np.ndarray]:
    first = stream.readline()
    fields = first.split()
    headed = len(fields) == 2 and all(field.isdigit() for field in fields)
    require(len(fields) >= 2, f"{path}, line 1: expected a word and its numbers; found {first[:80]!r}", DataError)
    dimension = int(fields[1]) if headed else len(fields) - 1
    if not headed:
        stream.seek(0)
    known: dict[str, None] = {}
    # One buffer that grows in place: files are read that fill half of the memory.
    buffer, read = bytearray(4 * dimension), 0
    for read, line in enumerate(stream, start=1):
        # From the right: GloVe has words with a space inside.
        word, *numbers = line.rstrip().rsplit(b" ", dimension)
        try:
            vector = np.array(numbers, dtype="<f4")
        except ValueError:
            vector = np.empty(0)
        if len(vector) != dimension or not np.isfinite(vector).all():
            wrong = f"expected a word and {dimension} numbers; found {line[:80].decode(errors='replace')!r}"
            raise DataError(f"{path}, line {read + headed}: {wrong}")
        if (word := word.decode(errors="replace")) not in known:
            known[word] = None
            buffer += vector.tobytes()
    whole = not headed or read == int(fields[0])
    require(
        whole,
        f"{path}: line 1 promises {first.split()[0].decode()} words, but {read} follow: the file is cut",
        DataError,
    )
    return Vocabulary.of(known), np.frombuffer(buffer, dtype="<f4").reshape(-1, dimension)


class AveragedVectors:
    """A text as the mean of its words' vectors; words without a vector do not count.

    Parameters
    ----------
    idf_texts : sequence of str, optional
        Weight each word by its inverse document frequency among these texts, the candidates:
        ln((N + 1) / (df + 1)). Without them every word weighs the same.
    """

    def __init__(self, vectors: WordVectors, idf_texts: Sequence[str] | None = None) -> None:
        self.vectors = vectors
        if idf_texts is None:
            self.weights = np.ones(len(vectors.vocabulary), dtype=np.float32)
        else:
            self.weights = inverse_document_frequency(vectors.vocabulary, idf_texts)
        self.weights[0] = 0  # the unknown word

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Sentence vectors of length 1, float32, shape (n, d); zero for a text without a known word."""
        table = self.vectors.vocabulary.encode(texts)
        sums = _rows(table, self.weights[table.ids], len(self.weights)) @ self.vectors.matrix
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return np.divide(sums, lengths, out=sums, where=lengths > 0)


def inverse_document_frequency(vocabulary: Vocabulary, texts: Sequence[str]) -> np.ndarray:
    """ln((N + 1) / (df + 1)) of each word id among N texts; float32, shape (len(vocabulary),)."""
    table = vocabulary.encode(texts)
    occurs = _rows(table, np.ones(len(table.ids), dtype=np.float32), len(vocabulary))
    occurs.sum_duplicates()
    frequency = np.bincount(occurs.indices, minlength=len(vocabulary))
    return np.log((len(table) + 1) / (frequency + 1)).astype(np.float32)


def _rows(table: TokenTable, values: np.ndarray, width: int) -> csr_array:
    return csr_array((values, table.ids, table.offsets), shape=(len(table), width))
