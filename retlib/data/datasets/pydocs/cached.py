"""The tables of `pydocs`, read once for the installed versions and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pandas as pd
from filelock import FileLock

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.data import text
from retlib.data.datasets.pydocs.build import STEPS, TABLES
from retlib.data.datasets.pydocs.site import SLICES

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_BUILD = "import sys; from retlib.data.datasets.pydocs.build import main; main(*sys.argv[1:])"


@cache
def tables(slice_name: str) -> dict[str, pd.DataFrame]:
    """The tables of one of `SLICES` (see `build.build`), from the cache if these versions were read before.

    Raises
    ------
    DataError
        If the docstrings cannot be read.
    """
    folder = _folder(slice_name)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Notebooks that start side by side wait for the first of them.
        with FileLock(f"{folder}.lock"), tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            if not folder.is_dir():
                _run_build(slice_name, unfinished)
                os.rename(f"{unfinished}/tables", folder)
    return {table: pd.read_parquet(folder / f"{table}.parquet") for table in TABLES}


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The version of every package that is installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            name = _DISTRIBUTIONS.get(package, package)
            found[package] = platform.python_version() if package == "python" else metadata.version(name)
    return found


def _folder(slice_name: str) -> Path:
    """Where the tables of the installed versions, read by this code, are kept."""
    digest = hashlib.sha256(repr((versions(SLICES[slice_name]), platform.python_version())).encode())
    for source in (*sorted(Path(__file__).parent.glob("*.py")), Path(text.__file__)):
        digest.update(source.read_bytes())
    return runtime.cache_dir() / "pydocs" / f"{slice_name}-{digest.hexdigest()[:16]}"


def _run_build(slice_name: str, folder: str) -> None:
    """Run `build.main` in a process of its own, with a progress bar."""
    os.mkdir(f"{folder}/tables")
    above = str(Path(__file__).parents[4])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH")])),
        **{"PYTHONHASHSEED": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
    }
    command = [sys.executable, "-c", _BUILD, f"{folder}/tables", slice_name]
    with open(f"{folder}/errors", "w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        for _ in runtime.progress(process.stdout, desc="pydocs", total=len(SLICES[slice_name]) + STEPS):
            pass
        if process.wait() != 0:
            errors.seek(0)
            raise DataError(f"pydocs: the docstrings of slice {slice_name!r} cannot be read: {errors.read()[-2000:]}")


def sentences(slice_name: str) -> Iterator[str]:
    """Sentences of the paragraphs of a slice; they are found once, and kept beside its tables.

    A paragraph that many pages repeat is given once; a sentence has three words at least.
    """
    prose, path = tables(slice_name)["prose"], _folder(slice_name).with_suffix(".sentences.parquet")
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        paragraphs = runtime.progress(prose["text"].unique(), desc="pydocs: sentences")
        found = (sentence for paragraph in paragraphs for sentence in text.sentences(paragraph))
        found = [sentence for sentence in found if sentence.count(" ") > 1]
        with tempfile.TemporaryDirectory(dir=path.parent) as unfinished:
            pd.DataFrame({"text": found}).to_parquet(f"{unfinished}/sentences.parquet", index=False)
            os.replace(f"{unfinished}/sentences.parquet", path)
    yield from pd.read_parquet(path)["text"]
