"""Things that are costly to make, addressed by the hash of what made them.

A trained model or an index is made once, whichever notebook asks, and found again only under the same settings, data,
version of its kind, kind of device and versions of packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock

from retlib.core import runtime
from retlib.core.errors import DataError

# Packages whose versions may change what is made.
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "faiss-cpu", "gensim", "bm25s")
# In a folder, the sha256 of each of its files.
SUMS = "sha256.json"


def key(settings: object) -> str:
    """A hash of JSON values that does not depend on the order of names."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


def artefact(kind: str, version: int, settings: Mapping, make: Callable[[Path], None]) -> Path:
    """Return the folder of an artefact, made by `make` if it is not there yet.

    `kind` is the folder in the cache; whoever changes what is computed raises `version`. The `settings`, JSON values,
    hold all else that the result depends on, fingerprints of data and sources of what was registered included. `make`
    fills a folder that is empty or as an interrupted call left it. The folder gets its final name when `make` returns.

    Processes that ask for the same artefact wait for the first. One with a file that is not what was written is made
    again; one from before sums were kept is taken as it is. Raises `DataError` if the disk is full.
    """
    settings = {**settings, "version": version, "on": runtime.arithmetic(PACKAGES)}
    folder = runtime.cache_dir() / kind / key(settings)
    if _whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not _whole(folder):
            partial = folder.with_suffix(".partial")
            with room(partial):
                partial.mkdir(exist_ok=True)
                make(partial)
                (partial / "settings.json").write_text(json.dumps(settings, indent=1, sort_keys=True))
                seal(partial)
                shutil.rmtree(folder, ignore_errors=True)  # a damaged one
                publish(partial, folder)
    return folder


def _whole(folder: Path) -> bool:
    wrong = damaged(folder)
    if wrong:
        runtime.note(f"{folder.parent.name}/{folder.name}: {', '.join(wrong)} changed on the disk; made again.")
    return folder.is_dir() and not wrong


def publish(partial: Path, path: Path) -> None:
    """Give a file or a folder that is written its name; a power cut, too, leaves it whole under one of the two."""
    for each in (*partial.rglob("*"), partial):
        _sync(each)
    os.replace(partial, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """sha256 of a file, computed once as long as the file does not change."""
    status = path.stat()
    return _checksum(path, status.st_size, status.st_mtime_ns)


@cache
def _checksum(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path) -> None:
    """Write down what the files of a folder hold, for `damaged`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)
    sums = {str(path.relative_to(folder)): checksum(path) for path in files}
    (folder / SUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")


def damaged(folder: Path, files: Sequence[Path] | None = None) -> list[str]:
    """The files of a folder, or some of them, that do not hold what they did when it was sealed, if it was."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8")).items()
        sums = [each for each in sums if files is None or folder / each[0] in files]
        return [name for name, known in sums if not (folder / name).is_file() or checksum(folder / name) != known]
    except FileNotFoundError:
        return []
    except (ValueError, AttributeError):
        return [SUMS]


def put(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file in place of the one that was put there before; return its path, whose name has its hash (`last`)."""
    partial, before = path.with_suffix(".partial"), _put(path)
    write(partial)
    publish(partial, named := path.with_stem(f"{path.stem}-{checksum(partial)}"))
    for old in before:
        if old != named:
            old.unlink()
    return named


def last(path: Path) -> Path | None:
    """The file that was put last at a path, of those that are what was written; None if there is none."""
    return next((found for found in _put(path) if found.stem == f"{path.stem}-{checksum(found)}"), None)


def parts(
    folder: Path, rows: int, size: int, file: str, make: Callable[[slice], Callable[[Path], None]], **bar: str
) -> Iterator[Path]:
    """Yield the files of something that is made in parts of `size` rows, in order; a kill costs the part in the making.

    The `folder` is one that `artefact` fills. In the name of a part the number of its first row stands before the
    suffix of `file`. `make` takes the rows of a part and returns what writes it, as `put` takes it; `bar` goes to
    `progress`.
    """
    path = folder / file
    with runtime.progress(total=rows, **bar) as shown:
        for start in range(0, rows, size):
            part = slice(start, min(start + size, rows))
            place = path.with_stem(f"{path.stem}-{start:09d}")
            whole = last(place) or put(place, make(part))
            shown.update(part.stop - start)
            yield whole


def _put(path: Path) -> list[Path]:
    """Files put at a path, the latest first."""
    found = path.parent.glob(f"{path.stem}-*{path.suffix}")
    return sorted(found, key=lambda each: each.stat().st_mtime_ns, reverse=True)


def full(folder: Path) -> bool:
    """Whether there is less than a megabyte left on the disk of a folder."""
    return shutil.disk_usage(folder).free < 2**20


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Say of what fails inside, where the disk of a folder is full, that this is why."""
    try:
        yield
    except Exception as error:
        if "No space left" not in str(error) and not full(folder.parent):
            raise
        told = f"{folder}: the disk is full ({error}). Make room and run again: what is done is not repeated."
        raise DataError(told) from error
