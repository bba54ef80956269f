"""The house: rooms import rooms on floors below, and a contract refuses what does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retlib.core import runtime

LINTER = Path(sys.executable).parent / "lint-imports"


@pytest.fixture
def house(tmp_path):
    """A copy of the package with its contract."""
    root, leave = runtime.root(), shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "retlib", tmp_path / "retlib", ignore=leave)
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def lint(house):
    environment = os.environ | {"PYTHONPATH": str(house)}
    return subprocess.run([LINTER, "--no-cache"], cwd=house, env=environment, capture_output=True, text=True)


def test_an_import_from_a_floor_above_or_beside_breaks_the_contract_and_so_does_a_room_without_a_floor(house):
    assert lint(house).returncode == 0
    for file, module in (("models/encoders.py", "systems"), ("training/losses.py", "evaluation")):
        with open(house / "retlib" / file, "a") as opened:
            opened.write(f"\n\ndef late():\n    import retlib.{module}\n")
    broken = lint(house).stdout
    assert "retlib.models is not allowed to import retlib.systems" in broken
    assert "retlib.training is not allowed to import retlib.evaluation" in broken
    shutil.copytree(house / "retlib" / "core", house / "retlib" / "cellar")
    assert "cellar" in lint(house).stdout
