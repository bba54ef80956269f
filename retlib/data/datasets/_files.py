"""The released files of data sets, read as they are."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pandas as pd

from retlib.data.datasets.catalogue import locate


def lines(dataset: str, file: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their ends; `ValueError` if it is empty."""
    path = locate(dataset, file)
    if not path.stat().st_size:
        raise ValueError(f"{file} is empty")
    with path.open("rb") as handle:
        yield from (line.decode().rstrip("\r\n") for line in handle)


def fields(dataset: str, file: str, count: int) -> Iterator[list[str]]:
    """Yield the fields of each line of a tab-separated file without quotes; `ValueError` where they are not `count`."""
    for number, line in enumerate(lines(dataset, file), start=1):
        row = line.split("\t")
        if len(row) != count:
            raise ValueError(f"line {number} of {file} has {len(row)} fields, not {count}")
        yield row


def table(dataset: str, file: str, sep: str = ",") -> pd.DataFrame:
    """Return a table as texts; fields may be quoted, and none is missing."""
    return pd.read_csv(locate(dataset, file), sep=sep, dtype=str, keep_default_na=False)


def content(dataset: str, file: str) -> Any:
    """Return what a file of JSON holds."""
    return json.loads(locate(dataset, file).read_bytes())


def members(dataset: str, file: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file in a tar.gz, in order; nothing is unpacked to disk."""
    # gzip and not tarfile unpacks, because tarfile takes some truncated archives for complete.
    with gzip.open(locate(dataset, file)) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            yield member.name, archive.extractfile(member).read().decode()
        while stream.read(1 << 20):  # to the checksum at the end
            pass
