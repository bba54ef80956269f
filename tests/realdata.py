"""Tests on copies of real data, which are where $RETLIB_DATA says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = os.environ.get("RETLIB_DATA")


def real(*files: str) -> pytest.MarkDecorator:
    """Skip a test where a file that it needs is absent."""
    absent = not REAL or not all((Path(REAL) / file).is_file() for file in files)
    return pytest.mark.skipif(absent, reason=f"$RETLIB_DATA holds no {' or no '.join(files)}")
