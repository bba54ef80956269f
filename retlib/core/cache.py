"""Things that are costly to make, addressed by the hash of what made them.

A trained model or an index is made once, whichever notebook asks, and is found again
only under the same settings and data, the same version of what makes its kind, kind of device and versions of packages.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

from filelock import FileLock

from retlib.core import parallel, runtime

# Packages whose versions may change what is made.
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "faiss-cpu", "gensim", "bm25s")


def key(settings: object) -> str:
    """A hash of JSON values that does not depend on the order of names."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


def artefact(kind: str, version: int, settings: Mapping, make: Callable[[Path], None]) -> Path:
    """The folder of an artefact, made by `make` if it is not there yet.

    Parameters
    ----------
    kind : str
        What it is; the folder in the cache.
    version : int
        Of what makes this kind: whoever changes what is computed raises it.
    settings : mapping
        Everything else that the result depends on, data fingerprints and the sources of what was registered
        included; JSON values.
    make : callable
        Called with an empty or half-filled folder (what an interrupted call left, so that
        it can resume); fills it. The folder gets its final name only when `make` returns.

    Notes
    -----
    Processes that ask for the same artefact at once wait for the first; a lock of a killed
    process is released by the operating system.
    """
    settings = {**settings, "version": version, "on": runtime.arithmetic(PACKAGES)}
    folder = runtime.cache_dir() / kind / key(settings)
    if parallel.agreed(folder.is_dir()):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock") if parallel.rank() == 0 else nullcontext():
        if not parallel.agreed(folder.is_dir()):
            partial = folder.with_suffix(".partial")
            with parallel.scratch(partial) as filled:
                make(filled)
            if parallel.rank() == 0:
                (partial / "settings.json").write_text(json.dumps(settings, indent=1, sort_keys=True))
                os.replace(partial, folder)
            parallel.agreed(None)
    return folder
