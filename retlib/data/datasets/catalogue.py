"""Where every data set comes from, whether it is here, and how to get it.

`data/catalogue.yaml` has an entry for each. Files are looked for in `$RETLIB_DATA`, then in the cache; each is known by
its sha256, as the official release, as a variant that differs from it in bytes, or not at all.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from retlib.core import runtime
from retlib.core.cache import checksum
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.notebook_files import read_yaml

MOST = 500  # letters of what is said of a damaged file
# What the names of collections, and of the papers' data sets, end in.
VARIANTS = {
    "-0.01": "1 % of the labels", "-0.05": "5 % of the labels", "-0.1": "10 % of the labels",
    "-0.8": "80 % of the labels", "-others": "all questions that do not train", "-all": "all candidates",
    "-test": "its test texts alone", "+added": "more candidates", "+none": "none added", "+many": "most candidates",
    ", whole": "all candidates and questions", ", asked": "questions that were asked before a passage was chosen",
    ", generated questions": "generated questions",
}  # fmt: skip


class _Facts(BaseModel):
    # What the catalogue may say: these fields and no other.
    model_config = ConfigDict(frozen=True, extra="forbid")


class Variant(_Facts):
    """A known copy of a file that differs from the release in bytes."""

    sha256: str
    bytes: int
    note: str


class File(_Facts):
    """One file of a data set; its `name` is the path below a data folder.

    Without a `url` it must be fetched by hand; without `bytes` and `sha256` the release was never seen.
    """

    name: str
    url: str | None = None
    bytes: int | None = Field(None, ge=0)
    sha256: str | None = None
    variants: tuple[Variant, ...] = ()


class Entry(_Facts):
    """One data set: what it is, whose it is, and its files (none for embedded data).

    `how` says how to get files without direct download; `ids` are those of ir-datasets, by split, which keeps the
    files.
    """

    name: str
    title: str
    source: str
    licence: str
    citation: str
    files: tuple[File, ...] = ()
    how: str | None = None
    ids: dict[str, list[str]] = {}
    collections: dict[str, dict[Literal["name", "part"], str]] = {}

    @model_validator(mode="after")
    def _can_be_got(self) -> Entry:
        by_hand = [file.name for file in self.files if file.url is None]
        if by_hand and not self.how:
            raise ValueError(f"{by_hand} have neither a url nor a `how`")
        return self


def read_catalogue(path: Path) -> dict[str, Entry]:
    """Read and check a catalogue; `DataError` for absent or unknown fields, or files that nobody can get."""
    entries = read_yaml(path)
    require(isinstance(entries, dict), f"{path} must map data sets to what is known of them", DataError)
    return {name: _entry_of(path, name, fields) for name, fields in entries.items()}


def _entry_of(path: Path, name: str, fields: object) -> Entry:
    try:
        return Entry.model_validate({"name": name} | dict(fields))
    except ValidationError as error:
        told = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise DataError(f"{path}: entry {name!r}: {'; '.join(told)}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: entry {name!r} is no mapping: {error}") from error


@cache
def catalogue() -> dict[str, Entry]:
    """Every data set of `data/catalogue.yaml`, by name."""
    return read_catalogue(runtime.root() / "data" / "catalogue.yaml")


@cache
def names() -> dict[str, dict[str, str]]:
    """Return what the catalogue calls each collection (`name`), and what of its source that is (`part`)."""
    return {name: told for entry in catalogue().values() for name, told in entry.collections.items()}


def parted(collection: str) -> tuple[str, list[str]]:
    """Return a collection without what its name ends in, and the words for that."""
    words: list[str] = []
    while ending := next((each for each in VARIANTS if collection.endswith(each)), ""):
        collection, words = collection.removesuffix(ending), [VARIANTS[ending], *words]
    return collection, words


def called(collection: str) -> str:
    """Return a collection, or several that were trained on together, in words."""
    name, words = parted(collection)
    parts = name.split(", ")
    *others, last = (names().get(each, {"name": each})["name"] for each in parts)
    together = others and {*parts} <= {*names()}
    return ", ".join([f"{', '.join(others)} and {last} together" if together else ", ".join([*others, last]), *words])


def part_of(collection: str) -> str:
    """Return what of its source a collection is, or several are; "" where the catalogue does not say it."""
    parts = [names()[each]["part"] for each in parted(collection)[0].split(", ") if each in names()]
    return "; ".join(dict.fromkeys(parts))


def _entry(dataset: str) -> Entry:
    require_one_of("data set", dataset, catalogue())
    return catalogue()[dataset]


# --- what is here ----------------------------------------------------------------------------------


def data_folders() -> tuple[Path, ...]:
    """The folders in which files are looked for, in order: `$RETLIB_DATA`, if it is not empty, then the cache."""
    own, last = os.environ.get("RETLIB_DATA"), runtime.cache_dir() / "data"
    return ((runtime.root() / Path(own).expanduser()).resolve(), last) if own else (last,)


def _find(file: File) -> Path | None:
    """Where a file is; `SettingError` if `$RETLIB_DATA` names no folder, which only who looks for a file must know."""
    *own, last = data_folders()
    for folder in own:
        require(folder.is_dir(), f"RETLIB_DATA names {folder}, which is no folder: make it, name another, or unset it")
    return next((folder / file.name for folder in (*own, last) if (folder / file.name).is_file()), None)


def locate(dataset: str, file: str | Path) -> Path:
    """Return where a file of a data set is: its path below a data folder, or the `Path` that is given.

    Raises `DataError`, which says how to get it, if it is in no data folder.
    """
    if isinstance(file, Path):
        require(file.is_file(), f"{dataset}: there is no file {file}", DataError)
        return file
    entry = _entry(dataset)
    files = {each.name: each for each in entry.files}
    require_one_of(f"file of {dataset}", file, files)
    looked, path = ", ".join(map(str, data_folders())), _find(files[file])
    wrong = f"{dataset}: the file {file} is not here. Looked in: {looked}. {_advice(entry, files[file])}"
    require(path is not None, wrong, DataError)
    return path


def _advice(entry: Entry, file: File) -> str:
    if file.url is None:
        return f"It comes from {entry.source} and must be fetched by hand: {entry.how}"
    command = f"run `python -m retlib fetch {entry.name}`, or let $RETLIB_DATA name the folder that already holds it."
    return f"It comes from {file.url}: {command}"


def damaged(dataset: str, place: str, problem: str) -> DataError:
    """The error for a file, or a place in it, that cannot be read as its official format."""
    problem = problem if len(problem) <= MOST else f"{problem[:MOST]} …"  # it may quote a line of megabytes
    if dataset not in catalogue():  # somebody's own
        return DataError(f"{dataset}: {place}: {problem}.")
    return DataError(
        f"{dataset}: {place}: {problem}. The file is damaged or is not the official release "
        f"({_entry(dataset).source}). Move it away and run `python -m retlib fetch {dataset}`."
    )


def _kind(file: File, path: Path) -> str:
    """What a file that is here is: release, variant, or unknown."""
    known = {variant.sha256: f"variant: {variant.note}" for variant in file.variants}
    return (known | {file.sha256: "release"}).get(checksum(path), "unknown")


def provenance(dataset: str) -> dict[str, str]:
    """Return the files of a data set that are here: name to sha256 and what it is.

    The value reads ``<sha256> (release)``, ``(variant: <note>)`` or ``(unknown)``; every `Collection` and result has
    it.
    """
    found = {file: _find(file) for file in _entry(dataset).files}
    return {file.name: f"{checksum(path)} ({_kind(file, path)})" for file, path in found.items() if path}


def table() -> pd.DataFrame:
    """One row a data set: name, title, source, licence, size, here (yes, part, no), loader (yes, no), citation."""
    from retlib.data.datasets import readers

    rows = []
    for entry in catalogue().values():
        present = [_find(file) is not None for file in entry.files]
        whole = all(module.is_here(entry.ids) for module in readers(entry.name)) if entry.ids else all(present)
        here = "yes" if whole else "part" if any(present) else "no"
        # An archive may have the name of the collection in it.
        known_as = {entry.name, *(Path(file.name).stem for file in entry.files)}
        loader = "yes" if any(map(readers, known_as)) else "no"
        rows.append((entry.name, entry.title, entry.source, entry.licence, _size(entry), here, loader, entry.citation))
    return pd.DataFrame(rows, columns=["name", "title", "source", "licence", "size", "here", "loader", "citation"])


def _size(entry: Entry) -> str:
    """Megabytes of the release, or of a known copy where the release was never seen."""
    if not entry.files:
        return "unknown" if entry.ids else "embedded"
    sizes = [file.bytes or max((variant.bytes for variant in file.variants), default=None) for file in entry.files]
    return "unknown" if None in sizes else f"{sum(sizes) / 1e6:.1f} MB"


# --- fetching --------------------------------------------------------------------------------------


def fetch(dataset: str) -> list[str]:
    """Download the files of a data set that are not here; return a line for each that says what was done.

    A file without a known checksum is accepted, and its sha256 said. Raises `DataError` without network, for a wrong
    address or a truncated or wrong file, whether fetched or here, and for files that must be fetched by hand.
    """
    from retlib.data.datasets import readers

    entry = _entry(dataset)
    if entry.ids:
        return [line for module in readers(dataset) for line in module.fetch(entry.ids)]
    if not entry.files:
        return [f"{dataset} comes with the installed packages: there is nothing to fetch."]
    done = [_fetch(entry, file) for file in entry.files if file.url or _find(file)]
    missing = [file for file in entry.files if _find(file) is None]
    if missing:
        names = ", ".join(file.name for file in missing)
        raise DataError(f"{dataset}: put {names} below {_target_folder()}. {_advice(entry, missing[0])}")
    return done


def _fetch(entry: Entry, file: File) -> str:
    path = _find(file)
    if path is None:
        return _download(entry, file, _target_folder() / file.name)
    kind = _kind(file, path)
    if kind == "unknown" and file.sha256 is not None:
        raise DataError(
            f"{entry.name}: {path} is here, but is neither the official release (sha256 {file.sha256}) nor a known "
            f"copy: its sha256 is {checksum(path)}. Move it away and run `python -m retlib fetch {entry.name}` again."
        )
    return f"{file.name}: already here ({kind}), {path}"


def _target_folder() -> Path:
    """The first data folder that can be written: a shared `$RETLIB_DATA` often cannot."""
    *others, last = data_folders()
    return next((folder for folder in others if os.access(folder, os.W_OK)), last)


def _download(entry: Entry, file: File, path: Path) -> str:
    """Let pooch download a file under a temporary name, verify and move it."""
    import pooch

    # The server's Content-Length replaces the total; pooch cannot do with a bar that has none.
    bar = runtime.progress(desc=file.name, total=file.bytes or 1, unit="B", unit_scale=True)
    try:
        downloader = pooch.HTTPDownloader(bar, chunk_size=1 << 16)
        pooch.retrieve(file.url, file.sha256, path.name, path.parent, downloader=downloader)
    except (OSError, ValueError) as error:  # all that requests raises, a full disk; another checksum
        raise DataError(
            f"{entry.name}: {file.name} could not be fetched from {file.url}: {type(error).__name__}: {error}. Nothing "
            f"was kept. Check the network and run `python -m retlib fetch {entry.name}` again, or get the file by hand "
            f"(see {entry.source}) and put it at {path}."
        ) from error
    finally:
        bar.close()
    if file.sha256:
        return f"{file.name}: fetched and verified, {path}"
    return f"{file.name}: fetched, NOT verified (the release's checksum is not known): sha256 {checksum(path)}, {path}"
