"""pydocs, the embedded collection: the docstrings of the Python packages installed with the book.

A documented public object is an article, its sections are passages, the names in "See Also" and its
cross-references are hyperlinks. A one-line description that one page gives of *another* is a query that
a person wrote and whose target is known; it is taken out of the text (`retlib.datasets.pydocs_text`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pandas as pd

from retlib import runtime
from retlib.collection import Collection, retrieval_task, split_by_cluster
from retlib.datasets import register, register_text
from retlib.datasets.pydocs_pages import PACKAGES
from retlib.datasets.pydocs_text import key
from retlib.errors import DataError, require

SHARES = {"test": 0.2, "dev": 0.1}

# The three tasks of the multi-task notebook, disjoint in their packages.
GROUPS = {
    "numeric": ("numpy", "scipy"),
    "learning": ("sklearn", "torch", "gensim"),
    "general": ("pandas", "matplotlib", "networkx", "sympy", "python"),
}
ALL = tuple(PACKAGES)
SMOKE = ("numpy",)

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_STEPS = 4  # what `pydocs_build` reports besides the packages


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The version of every package that is installed."""
    found = {}
    for package in packages:
        try:
            name = _DISTRIBUTIONS.get(package, package)
            found[package] = platform.python_version() if package == "python" else metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def tables(packages: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    """The tables that `pydocs_build.build` makes, from the cache if these versions were read before.

    Raises
    ------
    DataError
        If the docstrings cannot be read.
    """
    folder = _folder(packages)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            _run_build(packages, unfinished)
            _move(Path(unfinished), folder)
    return {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}


def _folder(packages: tuple[str, ...]) -> Path:
    """Where the tables of the installed versions, read by this code, are kept."""
    digest = hashlib.sha256(repr(sorted(versions(packages).items())).encode())
    for source in sorted(Path(__file__).parent.glob("pydocs*.py")):
        digest.update(source.read_bytes())
    return runtime.cache_dir() / "pydocs" / digest.hexdigest()[:16]
