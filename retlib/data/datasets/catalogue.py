"""Where every data set comes from, whether it is here, and how to get it (appendix: data).

`data/catalogue.yaml` has a card for each. Files are looked for in `$RETLIB_DATA`, then in the cache.
"""

import gzip
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pandas as pd
from pydantic import BaseModel, Field

from retlib.core import runtime
from retlib.core.cache import checksum
from retlib.core.errors import DataError, RetlibError, require, require_one_of
from retlib.core.notebook_files import read_yaml

MOST = 500  # letters of what is said of a file: it may quote a line of megabytes


class Variant(BaseModel, frozen=True, extra="forbid"):
    """A known copy of a file that differs from the release in bytes."""

    sha256: str
    bytes: int
    note: str


class File(BaseModel, frozen=True, extra="forbid"):
    """One file: its path below a data folder; without a `url` it is fetched by hand, without `sha256` never seen."""

    name: str
    url: str | None = None
    bytes: int | None = Field(None, ge=0)
    sha256: str | None = None
    variants: tuple[Variant, ...] = ()

    def find(self) -> Path | None:
        """Return the file in the first data folder that has it; `SettingError` if `$RETLIB_DATA` names no folder."""
        folders = data_folders()
        for own in folders[:-1]:
            require(own.is_dir(), f"RETLIB_DATA names {own}, which is no folder: make it, name another, or unset it")
        return next((folder / self.name for folder in folders if (folder / self.name).is_file()), None)

    def kind(self, path: Path) -> str:
        """Return what a file that is here is: release, variant (and which), or unknown."""
        kinds = {variant.sha256: f"variant: {variant.note}" for variant in self.variants} | {self.sha256: "release"}
        return kinds.get(checksum(path), "unknown")


class Words(BaseModel, frozen=True, extra="forbid"):
    """What a collection is called in sentences, what part of its source it is, and what its variants are."""

    name: str
    part: str
    variants: dict[str, str] = {}


class Card(BaseModel, frozen=True, extra="forbid"):
    """One data set: what it is, whose it is, its files (none if embedded), and `how` to get those without a url."""

    name: str
    title: str
    source: str
    licence: str
    citation: str
    files: tuple[File, ...] = ()
    how: str | None = None
    collections: dict[str, Words] = {}


@cache
def catalogue() -> dict[str, Card]:
    """Return every data set of `data/catalogue.yaml`, by name."""
    cards = read_yaml(runtime.root() / "data" / "catalogue.yaml")
    return {name: Card(name=name, **card) for name, card in cards.items()}


@cache
def _words() -> dict[str, tuple[str, str]]:
    # Name and part of each collection and of each variant of one.
    pairs = [pair for card in catalogue().values() for pair in card.collections.items()]
    variants = [(each, kind, words) for _, words in pairs for each, kind in words.variants.items()]
    words = {name: (words.name, words.part) for name, words in pairs}
    return words | {each: (f"{words.name}, {kind}", words.part) for each, kind, words in variants}


def called(collection: str) -> str:
    """Return a collection, or several that were trained on together, in words."""
    return _words().get(collection, (collection, ""))[0]


def part_of(collection: str) -> str:
    """Return what of its source a collection is; "" where the catalogue does not say it."""
    return _words().get(collection, (collection, ""))[1]


def card_of(name: str) -> Card | None:
    """Return the card of what is read under a name, its own or that of a collection on it."""
    return next((card for card in catalogue().values() if name == card.name or name in card.collections), None)


def data_folders() -> tuple[Path, ...]:
    """Return the folders in which files are looked for: `$RETLIB_DATA`, if it is not empty, then the cache."""
    own, last = os.environ.get("RETLIB_DATA"), runtime.build_dir() / "cache" / "data"
    return ((runtime.root() / Path(own).expanduser()).resolve(), last) if own else (last,)


def locate(name: str) -> Path:
    """Return where a file of a data set is; `DataError`, which says how to get it, if it is in no data folder."""
    card, file = next((card, file) for card in catalogue().values() for file in card.files if file.name == name)
    path, folders = file.find(), ", ".join(map(str, data_folders()))
    how = f"run `python -m retlib fetch {card.name}`, or let $RETLIB_DATA name the folder that holds it"
    require(path is not None, f"{card.name}: {name} is in none of {folders}: {how}.", DataError)
    return path


def read_table(name: str, sep: str = ",", columns: list[str] | None = None) -> pd.DataFrame:
    """Return a released table as texts; with `columns` it has no head and no quotes."""
    form = {"header": None, "quoting": 3} if columns else {}  # 3 is none
    frame = pd.read_csv(locate(name), sep=sep, dtype=str, keep_default_na=False, **form)
    return frame.set_axis(columns, axis=1) if columns else frame


def read_archive(name: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file in a released tar.gz, in order; nothing is unpacked to disk."""
    # gzip and not tarfile unpacks, because tarfile takes some truncated archives for complete.
    with gzip.open(locate(name)) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            yield member.name, archive.extractfile(member).read().decode()
        while stream.read(1 << 20):  # to the checksum at the end
            pass


def provenance(name: str) -> dict[str, str]:
    """Return the files that are here of what is read under a name: name to ``<sha256> (<kind>)``, see `File.kind`."""
    paths = {file: file.find() for file in getattr(card_of(name), "files", ())}
    return {file.name: f"{checksum(path)} ({file.kind(path)})" for file, path in paths.items() if path}


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Note which released files are neither the release nor a known copy; `DataError` if one cannot be read."""
    files, card = provenance(name), card_of(name)
    if unknown := ", ".join(file for file, kind in files.items() if kind.endswith("(unknown)")):
        runtime.note(f"{unknown}: neither the official release ({card.source}) nor a known copy of it.")
    try:
        yield
    except Exception as error:  # of many kinds: of each format, and of each way of packing
        if isinstance(error, RetlibError) or not files:
            raise
        how = f"not the official release ({card.source}). Move it away and run `python -m retlib fetch {card.name}`."
        wrong = f"{unknown or ', '.join(files)} cannot be read ({error!r:.{MOST}}): damaged, or {how}"
        raise DataError(f"{name}: {wrong}") from error


def table() -> pd.DataFrame:
    """Return one row a data set: name, title, source, licence, citation, size, here (yes, part, no)."""
    rows = []
    for card in catalogue().values():
        # Megabytes of the release, or of a known copy where the release was never seen.
        sizes = [file.bytes or max((copy.bytes for copy in file.variants), default=0) for file in card.files]
        present = [file.find() is not None for file in card.files]
        facts = card.model_dump(include={"name", "title", "source", "licence", "citation"})
        facts["size"] = f"{sum(sizes) / 1e6:.1f} MB" if sizes else "embedded"
        rows.append({**facts, "here": "yes" if all(present) else "part" if any(present) else "no"})
    return pd.DataFrame(rows)


def fetch(dataset: str) -> list[str]:
    """Download the files of a data set that are not here; return a line for each that says what was done.

    Raises `DataError` if a file cannot be fetched, is another than the release, or must be fetched by hand.
    """
    import pooch

    require_one_of("data set", dataset, catalogue())
    card, lines, again = catalogue()[dataset], [], f"run `python -m retlib fetch {dataset}` again"
    # The first data folder that can be written: a shared `$RETLIB_DATA` often cannot.
    folder = next((each for each in data_folders() if os.access(each, os.W_OK)), data_folders()[-1])
    for file in card.files:
        path = file.find() or folder / file.name
        if path.is_file():
            wrong = f"neither the official release (sha256 {file.sha256}) nor a known copy. Move it away and {again}."
            is_wrong = (kind := file.kind(path)) == "unknown" and file.sha256
            require(not is_wrong, f"{dataset}: {path} is {wrong}", DataError)
            lines.append(f"{file.name}: already here ({kind}), {path}")
        elif file.url:
            try:
                pooch.retrieve(file.url, file.sha256, path.name, path.parent, progressbar=True)
            except (OSError, ValueError) as error:  # all that requests raises, a full disk; another checksum
                raise DataError(
                    f"{dataset}: {file.name} could not be fetched from {file.url}: {type(error).__name__}: {error}. "
                    f"Nothing was kept. Check the network and {again}, or put the file (see {card.source}) at {path}."
                ) from error
            check = "verified" if file.sha256 else "NOT verified (the release's checksum is not known)"
            lines.append(f"{file.name}: fetched, {check}: sha256 {checksum(path)}, {path}")
    absent = ", ".join(file.name for file in card.files if file.find() is None)
    require(not absent, f"{dataset}: put {absent} below {folder}. {card.how}", DataError)
    return lines or [f"{dataset}: nothing to fetch, it comes with installed packages."]
