"""Tests on copies of real data, which are where $RETLIB_DATA says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retlib.data import datasets
from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import catalogue

REAL = os.environ.get("RETLIB_DATA")


def real(*files: str) -> pytest.MarkDecorator:
    """Skip a test where a file that it needs is absent."""
    absent = not REAL or not all((Path(REAL) / file).is_file() for file in files)
    return pytest.mark.skipif(absent, reason=f"$RETLIB_DATA holds no {' or no '.join(files)}")


def recorded(sizes: dict[str, tuple[int, ...]]) -> pytest.MarkDecorator:
    """Parametrize a test by the names of collections and their sizes; each is skipped where its files are absent."""
    files = {name: [file.name for file in catalogue.card_of(name).files] for name in sizes}
    return pytest.mark.parametrize(
        ("name", "size"), [pytest.param(name, size, marks=real(*files[name])) for name, size in sizes.items()]
    )


def real_collection(name: str, size: tuple[int, ...]) -> Collection:
    """Load a collection that has so many documents; train, dev and test queries; and judgments.

    A release has other sizes where the sizes are those of a copy.
    """
    collection = datasets.load(name)
    copies = [file.name for file in catalogue.card_of(name).files if file.variants]
    if all("(variant" in collection.provenance[file] for file in copies):
        queries = [len(collection.split(split)) for split in SPLITS]
        assert (len(collection.documents), *queries, len(collection.qrels)) == size
    return collection
