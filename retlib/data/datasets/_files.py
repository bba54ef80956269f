"""The files of data sets, read with care: what cannot be read is an error that names file and line."""

from __future__ import annotations

import csv
import gzip
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from retlib.core.errors import DataError
from retlib.data.datasets.catalogue import damaged, locate


@dataclass(frozen=True)
class Entries:
    """What a file holds, one after the other: lines, rows of a table, or a list in JSON; to be read once.

    `place` is the file, or the member of an archive. Errors call an entry `kind`.
    """

    dataset: str
    place: str
    numbered: Iterable[tuple[int, Any]]
    kind: str = "line"

    def __iter__(self) -> Iterator[Any]:
        return (entry for _, entry in self.numbered)

    def parsed(self, parse: Callable[[Any], Any], expected: str) -> Entries:
        """What `parse` makes of each entry; where it fails, `DataError` says that this is not `expected`."""

        def read() -> Iterator[tuple[int, Any]]:
            for number, entry in self.numbered:
                try:
                    found = parse(entry)
                except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                    # That of undecoded bytes would show all of them.
                    why = str(error) if type(error) is ValueError or isinstance(error, UnicodeError) else repr(error)
                    raise self.damaged(number, f"not {expected} ({why})") from error
                yield number, found

        return replace(self, numbered=read())

    def of_json(self, parse: Callable[[Any], Any], expected: str) -> Entries:
        """What `parse` makes of the JSON in each line, with or without a byte-order mark; blank lines hold none."""
        filled = ((number, line) for number, each in self.numbered if (line := each.strip("\ufeff \t\r\n")))
        return replace(self, numbered=filled).parsed(lambda line: parse(json.loads(line)), expected)

    def damaged(self, number: int, problem: str) -> DataError:
        """The error for an entry."""
        return damaged(self.dataset, f"{self.place}, {self.kind} {number}", problem)


@contextmanager
def _unpacking(dataset: str, place: str) -> Iterator[None]:
    """Turn what gzip, tar and zip raise for a damaged, truncated or encrypted file into a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # of many kinds: of each way of packing its own
        raise damaged(dataset, place, f"it cannot be unpacked to its end ({error})") from error


def _decoded(dataset: str, place: str, raw: Iterable[bytes]) -> Entries:
    """Decode lines one by one, so that an error names its line."""

    def read() -> Iterator[tuple[int, bytes]]:
        with _unpacking(dataset, place):
            yield from enumerate(raw, 1)

    return Entries(dataset, place, read()).parsed(lambda line: line.decode("utf-8"), "UTF-8")


def lines(dataset: str, file: str | Path) -> Entries:
    """The lines of a UTF-8 file, gzipped or not; the line end stays on."""
    path = locate(dataset, file)

    def read() -> Iterator[bytes]:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as handle:
            yield from handle

    return _decoded(dataset, str(path), read())


def fields(dataset: str, file: str | Path, count: int) -> Entries:
    """The lines of a tab-separated file without quoting, cut into exactly `count` fields each."""

    def cut(line: str) -> list[str]:
        parts = line.rstrip("\r\n").split("\t")
        if len(parts) != count:
            raise ValueError(f"{len(parts)} fields")
        return parts

    return lines(dataset, file).parsed(cut, f"{count} fields between tabs")


def table(dataset: str, file: str | Path, columns: list[str], delimiter: str = ",") -> Entries:
    """The rows below the names of a table whose fields may be quoted, with the lines on which they end."""
    source = lines(dataset, file)
    reader = csv.reader(source, delimiter=delimiter)

    def read() -> Iterator[tuple[int, list[str]]]:
        try:
            if next(reader, None) != columns:
                raise source.damaged(1, f"the columns are not {', '.join(columns)}")
            for row in reader:
                if len(row) != len(columns):
                    raise source.damaged(reader.line_num, f"not {len(columns)} columns ({len(row)} columns)")
                yield reader.line_num, row
        except csv.Error as error:
            raise source.damaged(reader.line_num, f"it is no table ({error})") from error

    return replace(source, numbered=read())


def listed(dataset: str, file: str | Path, choose: Callable[[Any], Iterable], expected: str, kind: str) -> Entries:
    """The list that `choose` finds in a file of JSON, whose entries are of a `kind`; else it is not `expected`."""
    path = locate(dataset, file)
    try:
        return Entries(dataset, str(path), enumerate(choose(json.loads(path.read_bytes()))), kind)
    except ValueError as error:  # not UTF-8, or not JSON
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise damaged(dataset, f"{path}{line}", str(error)) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged(dataset, str(path), f"not {expected} ({error!r})") from error


def members(dataset: str, file: str | Path) -> Iterator[tuple[str, Entries]]:
    """The files in a tar.gz, in order, as name and lines; nothing is unpacked to disk."""
    path = locate(dataset, file)
    # gzip and not tarfile unpacks, because tarfile takes some truncated archives for complete.
    with _unpacking(dataset, str(path)), gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile():
                yield member.name, _decoded(dataset, f"{path}: {member.name}", archive.extractfile(member))
        while stream.read(1 << 20):  # to the checksum at the end
            pass


def zipped(dataset: str, file: str | Path, member: str) -> Entries:
    """The lines of one file in a zip archive; nothing is unpacked to disk."""
    path = locate(dataset, file)

    def read() -> Iterator[bytes]:
        with zipfile.ZipFile(path) as archive:
            if (count := archive.namelist().count(member)) != 1:
                problem = f"it holds {member} {count} times" if count else f"it holds no {member}"
                raise damaged(dataset, str(path), problem)
            with archive.open(member) as raw:
                yield from raw

    return _decoded(dataset, f"{path}: {member}", read())
