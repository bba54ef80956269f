"""Sentence vectors from word vectors, uniform or weighted by IDF (Gillick 2018, section 3.4)."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from retlib.core.errors import DataError, require
from retlib.data.text import TokenTable, Vocabulary, words

Entry = tuple[str, np.ndarray]
Only = Container[str] | None


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Parameters
    ----------
    vocabulary : Vocabulary
    matrix : float32 array, shape (len(vocabulary), d)
        Row i belongs to the word of id i; row 0, of unknown words, is zero.
    settings : mapping
        What made them, in JSON values.
    """

    vocabulary: Vocabulary
    matrix: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write `vectors.safetensors` and `words.json` into a folder, from which `load` reads them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"matrix": self.matrix}, folder / "vectors.safetensors")
        content = {"words": self.vocabulary.tokens, "settings": dict(self.settings)}
        (folder / "words.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def train(
    texts: Iterable[str],
    seed: int = 0,
    *,
    dimension: int = 300,
    epochs: int = 5,
    skip_gram: bool = True,
    window: int = 5,
    negatives: int = 5,
    min_count: int = 2,
) -> WordVectors:
    """Train word2vec (Mikolov et al. 2013) with gensim on one thread: equal input, equal bits.

    Parameters
    ----------
    texts : iterable of str
        Read once; a context does not cross from one text to the next. Of a text, the first
        10,000 words count.
    dimension : int
        Of the vectors; the paper's have 300.
    epochs, window, negatives, min_count : int
        Passes; words to each side; random words for each observed one; how often a word must
        occur to get a vector.
    skip_gram : bool
        Predict the context from the word (skip-gram), else the word from its context (CBOW).
        The paper does not say which. On questions, skip-gram retrieved far better at equal epochs.

    Raises
    ------
    DataError
        If no word occurs `min_count` times.
    """
    from gensim.models import Word2Vec

    for name, value in {"dimension": dimension, "epochs": epochs, "window": window, "min_count": min_count}.items():
        require(value >= 1, f"{name} = {value}: at least 1 is needed")
    require(negatives >= 1, f"negatives = {negatives}: at least 1 is needed")
    # Interned, a word takes the memory of one, however often it occurs.
    corpus = [[sys.intern(word) for word in words(text)] for text in texts]
    algorithm = {"vector_size": dimension, "sg": int(skip_gram), "window": window, "negative": negatives}
    model = Word2Vec(min_count=min_count, workers=1, seed=seed, **algorithm)
    model.build_vocab(corpus)
    require(len(model.wv) > 0, f"word2vec: no word occurs {min_count} times in {len(corpus)} texts", DataError)
    model.train(corpus, total_examples=model.corpus_count, epochs=epochs)
    settings = {"system": "word2vec", **algorithm, "epochs": epochs, "min_count": min_count, "seed": seed}
    return _from_entries(zip(model.wv.index_to_key, model.wv.vectors, strict=True), dimension, settings)


def load(path: Path | str, only: Only = None) -> WordVectors:
    """Read word vectors from a file of GloVe or word2vec, or from a folder that `WordVectors.save` wrote.

    Parameters
    ----------
    path : path
        `*.bin` or `*.bin.gz` is word2vec's binary form; any other file is text with a word
        and its numbers on each line, with word2vec's first line (count and dimension) or
        without it (GloVe), gzipped or not.
    only : container of str, optional
        Of a file, keep these words: it then takes the memory and most of the time of what is needed.

    Raises
    ------
    DataError
        If the file is absent, damaged or of another form, naming file and line.

    Notes
    -----
    Words are kept as they are in the file, while `retlib.data.text.words` are lowercase: in a file
    that distinguishes case, the lowercase form is the one that is found. Of a word that stands
    twice, the first is kept.

    """
    path = Path(path)
    require(path.exists(), f"there are no word vectors at {path}", DataError)
    if path.is_dir():
        return _load_saved(path)
    binary = path.suffixes[-2:] == [".bin", ".gz"] or path.suffix == ".bin"
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        try:
            dimension, entries = (_binary_entries if binary else _text_entries)(stream, path, only)
            vectors = _from_entries(entries, dimension, {"system": "file", "name": path.name})
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path} is damaged: {error}") from error
    require(len(vectors.vocabulary) > 1, f"{path} holds none of the words that are asked for", DataError)
    return vectors


def _load_saved(folder: Path) -> WordVectors:
    try:
        content = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        matrix = load_file(folder / "vectors.safetensors")["matrix"]
        vocabulary = Vocabulary(tuple(content["words"]))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"{folder} holds no saved word vectors: {error}") from error
    require(len(vocabulary) == len(matrix), f"{folder}: words and vectors differ in number", DataError)
    return WordVectors(vocabulary, matrix, content["settings"])


def _from_entries(entries: Iterable[Entry], dimension: int, settings: Mapping[str, Any]) -> WordVectors:
    known: dict[str, None] = {}
    # One buffer that grows in place: files are read that fill half of the memory.
    buffer = bytearray(4 * dimension)
    for word, vector in entries:
        if word not in known:
            known[word] = None
            buffer += vector.astype("<f4", copy=False).tobytes()
    matrix = np.frombuffer(buffer, dtype="<f4").reshape(-1, dimension)
    return WordVectors(Vocabulary.of(known), matrix, settings)


def _text_entries(stream: BinaryIO, path: Path, only: Only) -> tuple[int, Iterator[Entry]]:
    first = stream.readline()
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        count, dimension = map(int, fields)
        return dimension, _text_rows(stream, path, only, dimension, count)
    require(len(fields) > 2, f"{path}, line 1: expected a word and its numbers; found {first[:80]!r}", DataError)
    # The first line is read again, by the same rule as all others.
    stream.seek(0)
    return len(fields) - 1, _text_rows(stream, path, only, len(fields) - 1, None)


def _text_rows(stream: BinaryIO, path: Path, only: Only, dimension: int, count: int | None) -> Iterator[Entry]:
    before = 0 if count is None else 1
    read = 0
    for read, line in enumerate(stream, start=1):
        # From the right: GloVe has words with a space inside.
        word, *numbers = line.rstrip().rsplit(b" ", dimension)
        word = word.decode(errors="replace")
        if only is not None and word not in only:
            continue
        try:
            vector = np.array(numbers, dtype=np.float32)
        except ValueError:
            vector = np.empty(0)
        if len(vector) != dimension or not np.isfinite(vector).all():
            shown = line[:80].decode(errors="replace")
            raise DataError(f"{path}, line {before + read}: expected a word and {dimension} numbers; found {shown!r}")
        yield word, vector
    promised = count is None or read == count
    require(promised, f"{path}: line 1 promises {count} words, but {read} follow: the file is cut", DataError)


def _binary_entries(stream: BinaryIO, path: Path, only: Only) -> tuple[int, Iterator[Entry]]:
    fields = stream.readline(100).split()
    numeric = len(fields) == 2 and all(field.isdigit() for field in fields)
    require(numeric, f"{path}: its first line is not word2vec's, a count and a dimension", DataError)
    count, dimension = map(int, fields)
    return dimension, _binary_rows(stream, path, only, dimension, count)


def _binary_rows(stream: BinaryIO, path: Path, only: Only, dimension: int, count: int) -> Iterator[Entry]:
    for number in range(1, count + 1):
        # The original program ends each vector with a line break, gensim does not.
        word = b"".join(iter(lambda: stream.read(1) or b" ", b" ")).lstrip(b"\n").decode(errors="replace")
        content = stream.read(4 * dimension)
        complete = len(content) == 4 * dimension
        require(complete, f"{path}: cut within word {number} of the {count} that its first line promises", DataError)
        if only is None or word in only:
            yield word, np.frombuffer(content, dtype="<f4")


class AveragedVectors:
    """A text as the mean of its words' vectors; words without a vector do not count.

    Parameters
    ----------
    vectors : WordVectors
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
