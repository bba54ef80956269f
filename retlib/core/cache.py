"""Things that are costly to make, addressed by the hash of what made them.

A trained model or an index is made once, whichever notebook asks, and is found again
only under the same settings, data and code, kind of device and versions of packages.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from retlib.core import runtime


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# Of the package's sources as this process imports them: what old code makes must not get the address of a file that
# was edited in the meantime.
_SOURCES = {path.resolve(): _hash(path) for path in Path(__file__).parents[1].rglob("*.py")}
# Packages whose versions may change what is made.
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "faiss-cpu", "gensim", "bm25s")


@cache
def code_hash(*modules: str) -> str:
    """sha256 over the source of the named modules, in order."""
    paths = [Path(find_spec(name).origin).resolve() for name in modules]
    hashes = [_SOURCES.get(path) or _hash(path) for path in paths]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def key(settings: object) -> str:
    """A hash of JSON values that does not depend on the order of names."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


def artefact(kind: str, settings: Mapping, modules: tuple[ModuleType, ...], make: Callable[[Path], None]) -> Path:
    """The folder of an artefact, made by `make` if it is not there yet.

    Parameters
    ----------
    kind : str
        What it is; the folder in the cache.
    settings : mapping
        Everything that the result depends on besides code, data fingerprints included;
        JSON values.
    modules : tuple of module
        The modules whose source takes part in the address.
    make : callable
        Called with an empty or half-filled folder (what an interrupted call left, so that
        it can resume); fills it. The folder gets its final name only when `make` returns.

    Notes
    -----
    Processes that ask for the same artefact at once wait for the first; a lock of a killed
    process is released by the operating system.
    """
    made_by = {"code": code_hash(*(module.__name__ for module in modules)), "on": runtime.arithmetic(PACKAGES)}
    settings = {**settings, **made_by}
    folder = runtime.cache_dir() / kind / key(settings)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            partial.mkdir(exist_ok=True)
            make(partial)
            (partial / "settings.json").write_text(json.dumps(settings, indent=1, sort_keys=True))
            os.replace(partial, folder)
    return folder
