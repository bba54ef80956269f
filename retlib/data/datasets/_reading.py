"""What several loaders share: lines and archives read with care, and items known by their text."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from retlib.data.collection import Article
from retlib.data.datasets.catalogue import damaged
from retlib.data.text import quick_sentences


@contextmanager
def _unpacking(dataset: str, path: Path | str) -> Iterator[None]:
    """Turn what gzip, tar and zip raise for a damaged or truncated file into a `DataError`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile) as error:
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


def zipped(dataset: str, path: Path, member: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of one file in a zip archive; nothing is unpacked to disk."""
    with _unpacking(dataset, path), zipfile.ZipFile(path) as archive:
        if member not in archive.namelist():
            raise damaged(dataset, path, None, f"it holds no {member}")
        with archive.open(member) as raw:
            yield from _decoded(dataset, f"{path}: {member}", raw)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each of `quick_sentences` begins and ends in the text, without the white space around it."""
    end = 0
    for sentence in filter(None, map(str.strip, quick_sentences(text))):
        start = text.index(sentence, end)
        end = start + len(sentence)
        yield start, end


def is_running_text(paragraph: str) -> bool:
    """Whether a paragraph is no heading, caption or list item.

    It has at least eight words (some extractors end headings with a full stop) and ends as a
    sentence does.
    """
    return paragraph.count(" ") >= 7 and paragraph.rstrip("\"'”’)").endswith((".", "!", "?"))


def running_text(paragraphs: Iterable[str]) -> Iterator[str]:
    """The sentences of at least four words in the paragraphs that are running text."""
    for paragraph in paragraphs:
        if is_running_text(paragraph):
            yield from (sentence for sentence in quick_sentences(paragraph) if sentence.count(" ") >= 3)


def article(name: str, title: str, sections: Iterable[list[str]], links: Iterable[str] = ()) -> Article:
    """An article of the paragraphs of its sections; its opening is the first section that has any."""
    filled = [section for section in sections if section]
    passages = tuple(paragraph for section in filled for paragraph in section)
    return Article(name, title, passages, len(filled[0]) if filled else 0, tuple(links))


def text_id(text: str) -> str:
    """A hash of the text: the same text has the same id, and so the same split, in every copy of a data set."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def by_text(pairs: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Make one item of every distinct text.

    Parameters
    ----------
    pairs : DataFrame
        Columns `left`, `right` (texts) and `label`.

    Returns
    -------
    texts : Series
        Item id (`text_id`) to text, without the white space around it.
    pairs : DataFrame
        The pairs with item ids in place of texts; without repeated pairs, pairs of a text
        with itself, and pairs with an empty side.
    """
    pairs = pairs.assign(left=pairs["left"].str.strip(), right=pairs["right"].str.strip())
    pairs = pairs[(pairs["left"] != "") & (pairs["right"] != "")]
    distinct = pd.unique(pd.concat([pairs["left"], pairs["right"]]))
    ids = {text: text_id(text) for text in distinct}
    pairs = pairs.assign(left=pairs["left"].map(ids), right=pairs["right"].map(ids))
    pairs = pairs[pairs["left"] != pairs["right"]].drop_duplicates(["left", "right", "label"])
    return pd.Series({item: text for text, item in ids.items()}, dtype=object), pairs.reset_index(drop=True)
