"""The tables of `pydocs` and what is made of them, read once for the installed versions and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import metadata
from pathlib import Path

import pandas as pd

from retlib.core import runtime
from retlib.core.cache import artefact
from retlib.core.errors import DataError
from retlib.data import collection as collections
from retlib.data import splits, text
from retlib.data.collection import COLUMNS, Collection
from retlib.data.datasets import _tasks
from retlib.data.datasets.pydocs.build import STEPS, TABLES
from retlib.data.datasets.pydocs.site import SLICES

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
VERSION = 1  # of what is kept; the code that reads is part of the address
_BUILD = "import sys; from retlib.data.datasets.pydocs.build import main; main(*sys.argv[1:])"


@cache
def tables(slice_name: str) -> dict[str, pd.DataFrame]:
    """Return the tables of one of `SLICES` (see `build.build`), from the cache if these versions were read before.

    Raises `DataError` if the docstrings cannot be read.
    """
    folder = artefact("pydocs", VERSION, _address(slice_name), partial(_run_build, slice_name))
    return {table: pd.read_parquet(folder / f"{table}.parquet") for table in TABLES}


def collection(name: str, slice_name: str, make: Callable[[], Collection]) -> Collection:
    """Return a collection that is made of these tables, from the cache if these versions were made into it before."""

    def save(folder: Path) -> None:
        made = make()
        for part in COLUMNS:
            if (frame := getattr(made, part)) is not None:
                frame.to_parquet(folder / f"{part}.parquet")
        (folder / "provenance.json").write_text(json.dumps(dict(made.provenance)), encoding="utf-8")

    made_by = [hashlib.sha256(Path(each.__file__).read_bytes()).hexdigest() for each in (_tasks, collections, splits)]
    settings = {"collection": name, "made by": made_by, **_address(slice_name)}
    folder = artefact("collection", VERSION, settings, save)
    frames = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    return Collection(name, **frames, provenance=json.loads((folder / "provenance.json").read_text(encoding="utf-8")))


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The version of every package that is installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            name = _DISTRIBUTIONS.get(package, package)
            found[package] = platform.python_version() if package == "python" else metadata.version(name)
    return found


def _address(slice_name: str) -> dict:
    """What the tables depend on: the installed versions, and the code that reads them."""
    digest = hashlib.sha256()
    for source in (*sorted(Path(__file__).parent.glob("*.py")), Path(text.__file__)):
        digest.update(source.read_bytes())
    return {"slice": slice_name, "versions": versions(SLICES[slice_name]), "python": platform.python_version(),
            "sources": digest.hexdigest()}  # fmt: skip


def _run_build(slice_name: str, folder: Path) -> None:
    """Run `build.main` in a process of its own, with a progress bar."""
    above = str(Path(__file__).parents[4])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH")])),
        **{"PYTHONHASHSEED": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
    }
    command = [sys.executable, "-c", _BUILD, str(folder), slice_name]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        for _ in runtime.progress(process.stdout, desc="pydocs", total=len(SLICES[slice_name]) + STEPS):
            pass
        if process.wait() != 0:
            errors.seek(0)
            raise DataError(f"pydocs: the docstrings of slice {slice_name!r} cannot be read: {errors.read()[-2000:]}")


def sentences(slice_name: str) -> Iterator[str]:
    """Yield sentences, of three words at least, of the distinct paragraphs of a slice; kept beside its tables."""

    def make(folder: Path) -> None:
        paragraphs = runtime.progress(tables(slice_name)["prose"]["text"].unique(), desc="pydocs: sentences")
        found = (sentence for paragraph in paragraphs for sentence in text.sentences(paragraph))
        found = [sentence for sentence in found if sentence.count(" ") > 1]
        pd.DataFrame({"text": found}).to_parquet(folder / "sentences.parquet", index=False)

    folder = artefact("pydocs-sentences", VERSION, _address(slice_name), make)
    yield from pd.read_parquet(folder / "sentences.parquet")["text"]
