"""What several loaders share: lines and archives read with care, and items known by their text."""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from retlib.datasets.catalogue import damaged


@contextmanager
def _unpacking(dataset: str, path: Path | str) -> Iterator[None]:
    """Turn what gzip and tar raise for a damaged or truncated file into a `DataError`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise damaged(dataset, path, None, f"it cannot be unpacked to its end ({error})") from error


def lines(dataset: str, path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, gzipped or not, with their numbers from 1; the line end stays on."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as handle:
        yield from _decoded(dataset, path, handle)


def _decoded(dataset: str, path: Path | str, raw: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Number and decode lines one by one, so that an error names its line."""
    with _unpacking(dataset, path):
        for number, line in enumerate(raw, 1):
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise damaged(dataset, path, number, f"it is not UTF-8 ({error})") from error


def fields(dataset: str, path: Path, count: int) -> Iterator[tuple[int, list[str]]]:
    """The lines of a tab-separated file without quoting, cut into exactly `count` fields each."""
    for number, line in lines(dataset, path):
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) != count:
            raise damaged(dataset, path, number, f"{len(parts)} fields between tabs instead of {count}")
        yield number, parts


def members(dataset: str, path: Path) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
    """The files in a tar.gz, in order, as name and numbered lines; nothing is unpacked to disk."""
    # gzip and not tarfile unpacks, because tarfile takes some truncated archives for complete.
    with _unpacking(dataset, path), gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                yield member.name, _decoded(dataset, f"{path}: {member.name}", archive.extractfile(member))
        while stream.read(1 << 20):  # to the checksum at the end
            pass


# A word that ends in a full stop, with closing quotes or brackets, before what may begin a sentence.
_BOUNDARY = re.compile(r"""(\S+[.!?][)"'”’\]]*)\s+(?=["'“‘(\[]?[A-Z0-9])""")
_WRAPPING = "()[]\"'“”‘’"
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st gen col sgt capt lt rev hon sen rep gov no nos vol vs etc al cf ca approx est fl inc ltd "
    "co corp jr sr jan feb mar apr jun jul aug sept sep oct nov dec mt ft op fig pp eds".split()
)


def quick_sentences(text: str) -> list[str]:
    """Split running English text into sentences by one rule, for bulk text.

    A sentence ends at ``.``, ``!`` or ``?`` before a capital or a digit, except after an
    initial, an inner full stop (``U.S.``) or a usual abbreviation. On a 1 % sample of
    English Wikipedia 97 % of its sentences are those of `retlib.text.sentences`, at fifteen
    times the speed, which is what a million sentences for word vectors or distractors need.
    """
    found, start = [], 0
    for match in _BOUNDARY.finditer(text):
        word = match[1].strip(_WRAPPING)
        stem = word[:-1].lower() if word.endswith(".") else ""
        if stem in _ABBREVIATIONS or "." in stem or (len(stem) == 1 and stem.isalpha()):
            continue
        found.append(text[start : match.end(1)])
        start = match.end()
    return [*found, text[start:]]


def running_text(paragraphs: Iterable[str]) -> Iterator[str]:
    """The sentences of at least four words in running text.

    Headings and list items are left out: paragraphs of fewer than eight words (some
    extractors end headings with a full stop) and those that do not end as a sentence does.
    """
    for paragraph in paragraphs:
        if paragraph.count(" ") >= 7 and paragraph.rstrip("\"'”’)").endswith((".", "!", "?")):
            yield from (sentence for sentence in quick_sentences(paragraph) if sentence.count(" ") >= 3)


def by_text(pairs: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Make one item of every distinct text.

    Parameters
    ----------
    pairs : DataFrame
        Columns `left`, `right` (texts) and `label`.

    Returns
    -------
    texts : Series
        Item id to text, without the white space around it. The id is a hash of the text:
        the same question has the same id, and so the same split, in every copy of a data set.
    pairs : DataFrame
        The pairs with item ids in place of texts; without repeated pairs, pairs of a text
        with itself, and pairs with an empty side.
    """
    pairs = pairs.assign(left=pairs["left"].str.strip(), right=pairs["right"].str.strip())
    pairs = pairs[(pairs["left"] != "") & (pairs["right"] != "")]
    distinct = pd.unique(pd.concat([pairs["left"], pairs["right"]]))
    ids = {text: hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in distinct}
    pairs = pairs.assign(left=pairs["left"].map(ids), right=pairs["right"].map(ids))
    pairs = pairs[pairs["left"] != pairs["right"]].drop_duplicates(["left", "right", "label"])
    return pd.Series({item: text for text, item in ids.items()}, dtype=object), pairs.reset_index(drop=True)
