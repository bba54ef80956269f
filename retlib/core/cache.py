"""Artefacts (all chapters): models, indexes and runs, each in a folder whose name is the hash of what made it.

One is made once, and found again under the same settings, data, version, kind of device and versions of packages.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock

from retlib.core import runtime
from retlib.core.errors import DataError

CHECKSUMS = "sha256.json"  # in a folder, the sha256 of each of its files


def key(settings: object) -> str:
    """Return a hash of JSON values that does not depend on the order of names."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


def artefact(kind: str, version: int, settings: Mapping, make: Callable[[Path], None]) -> Path:
    """Return the folder of an artefact, made by `make` if it is not there yet or damaged.

    Whoever changes what is computed raises `version`. The `settings`, JSON values, hold all else that the result
    depends on, fingerprints of data and sources of what was registered included. `make` fills a folder that is empty or
    as an interrupted call left it; other processes wait for it. Raises `DataError` if the disk is full.
    """
    settings = {**settings, "version": version, "on": runtime.arithmetic()}
    folder = runtime.build_dir() / "cache" / kind / key(settings)
    with FileLock(f"{folder}.lock"), explain_disk_full(folder):
        if wrong := files_changed(folder):
            if folder.is_dir():
                runtime.note(f"{kind}/{folder.name}: {', '.join(wrong)} changed on the disk; made again.")
            partial = folder.with_suffix(".partial")
            partial.mkdir(exist_ok=True)
            make(partial)
            (partial / "settings.json").write_text(json.dumps(settings, indent=1, sort_keys=True))
            write_checksums(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
    return folder


def checksum(path: Path) -> str:
    """Return the sha256 of a file, computed once as long as the file does not change."""
    return _checksum(path, path.stat().st_size, path.stat().st_mtime_ns)


@cache
def _checksum(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write down what the files of a folder hold, for `files_changed`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    sums = {str(path.relative_to(folder)): checksum(path) for path in files}
    (folder / CHECKSUMS).write_text(json.dumps(sums, indent=1))


def files_changed(folder: Path) -> list[str]:
    """Return the files of a folder that do not hold what `write_checksums` wrote down."""
    try:
        sums = json.loads((folder / CHECKSUMS).read_text())
        return [name for name in sums if not (folder / name).is_file() or checksum(folder / name) != sums[name]]
    except (OSError, ValueError, TypeError):
        return [CHECKSUMS]


@contextmanager
def explain_disk_full(folder: Path) -> Iterator[None]:
    """Raise `DataError` for what goes wrong inside because the disk of a folder is full."""
    try:
        yield
    except Exception as error:
        if "No space left" not in str(error) and shutil.disk_usage(folder.parent).free >= 2**20:
            raise
        wrong = f"{folder}: the disk is full ({error}). Make room and run again: what is done is not repeated."
        raise DataError(wrong) from error
