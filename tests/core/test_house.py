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


def test_an_import_from_a_floor_above_breaks_the_contract(house):
    assert lint(house).returncode == 0
    with open(house / "retlib" / "models" / "encoders.py", "a") as file:
        file.write("\n\ndef late():\n    from retlib.systems import stages\n\n    return stages\n")
    broken = lint(house)
    assert broken.returncode != 0
    assert "retlib.models is not allowed to import retlib.systems" in broken.stdout


def test_a_room_beside_breaks_it_and_so_does_one_without_a_floor(house):
    with open(house / "retlib" / "training" / "losses.py", "a") as file:
        file.write("\nfrom retlib.evaluation import measures  # noqa\n")
    assert "retlib.training is not allowed to import retlib.evaluation" in lint(house).stdout
    shutil.copytree(house / "retlib" / "core", house / "retlib" / "cellar")
    assert lint(house).returncode != 0
