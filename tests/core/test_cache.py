"""Artefacts: made once, found under the same settings, data and code, resumed when interrupted."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from retlib.core import cache, runtime
from retlib.core.cache import artefact, code_hash, key
from retlib.training import losses, negatives


@pytest.fixture(autouse=True)
def _own_build(own_build):
    """Every test starts with an empty cache."""


def counting():
    """A maker that counts its calls and leaves a file."""
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "made.txt").write_text(f"{len(calls)}")

    return calls, make


def test_an_artefact_is_made_once(own_build):
    calls, make = counting()
    first = artefact("model", {"seed": 1}, (losses,), make)
    second = artefact("model", {"seed": 1}, (losses,), make)
    assert first == second and len(calls) == 1
    assert first.parent == own_build / "cache" / "model"
    assert (first / "made.txt").read_text() == "1"


def test_settings_are_kept_beside_it():
    folder = artefact("model", {"seed": 1, "name": "a"}, (losses,), counting()[1])
    settings = json.loads((folder / "settings.json").read_text())
    assert settings.pop("code") == code_hash("retlib.training.losses") and settings.pop("on")["device"] == "cpu"
    assert settings == {"seed": 1, "name": "a"}


def test_other_settings_kinds_and_code_are_other_artefacts():
    calls, make = counting()
    folders = {
        artefact("model", {"seed": 1}, (losses,), make),
        artefact("model", {"seed": 2}, (losses,), make),
        artefact("index", {"seed": 1}, (losses,), make),
        artefact("model", {"seed": 1}, (negatives,), make),
        artefact("model", {"seed": 1}, (losses, negatives), make),
    }
    assert len(folders) == len(calls) == 5


def test_the_order_of_settings_does_not_matter():
    assert key({"a": 1, "b": [1, 2]}) == key({"b": [1, 2], "a": 1})
    assert key({"a": 1, "b": [1, 2]}) != key({"a": 1, "b": [2, 1]})
    assert key({"a": 1}) != key({"a": "1"})


def test_changed_code_is_another_address(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "toy_module.py"
    module.write_text("x = 1\n")
    before = code_hash("toy_module")
    module.write_text("x = 2\n")
    code_hash.cache_clear()
    assert code_hash("toy_module") != before


def test_other_arithmetic_is_another_address(monkeypatch):
    calls, make = counting()
    first = artefact("model", {"seed": 1}, (losses,), make)
    for name, value in (("has_bfloat16", not runtime.has_bfloat16()), ("_on_cuda", True)):
        with monkeypatch.context() as changed:
            changed.setattr(runtime, name, lambda value=value: value)
            assert artefact("model", {"seed": 1}, (losses,), make) != first
    monkeypatch.setattr(runtime, "_version", lambda package: "another")
    assert artefact("model", {"seed": 1}, (losses,), make) != first
    assert len(calls) == 4


def test_an_edit_while_a_process_runs_does_not_change_its_addresses(tmp_path):
    """What the old code makes is not filed under the new one."""
    shutil.copytree(runtime.root() / "retlib", tmp_path / "retlib", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import retlib.core.cache as a, pathlib; import retlib.training.losses as m; p = pathlib.Path(m.__file__);"
        "p.write_text(p.read_text() + '# edited'); print(a.code_hash('retlib.training.losses'))"
    )
    run = partial(subprocess.run, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=True)
    edited = run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert edited == code_hash("retlib.training.losses")
    asked = "import retlib.core.cache as a; print(a.code_hash('retlib.training.losses'))"
    assert run([sys.executable, "-c", asked], capture_output=True, text=True).stdout.strip() != edited


def test_an_interrupted_making_leaves_nothing_under_the_name_and_is_taken_up_again():
    found = []

    def interrupted(folder):
        (folder / "half.txt").write_text("half")
        raise KeyboardInterrupt

    def resuming(folder):
        found.append((folder / "half.txt").read_text())

    with pytest.raises(KeyboardInterrupt):
        artefact("model", {"seed": 1}, (losses,), interrupted)
    assert not [path for path in (cache.runtime.cache_dir() / "model").iterdir() if path.suffix == ""]
    folder = artefact("model", {"seed": 1}, (losses,), resuming)
    assert found == ["half"] and (folder / "half.txt").exists()


def test_two_that_ask_at_once_wait_for_one_making():
    calls, make = counting()

    def slowly(folder):
        time.sleep(0.2)
        make(folder)

    threads = [threading.Thread(target=artefact, args=("model", {"seed": 1}, (losses,), slowly)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_settings_that_are_not_json_are_refused_before_any_work():
    calls, make = counting()
    with pytest.raises(TypeError):
        artefact("model", {"seed": object()}, (losses,), make)
    assert calls == []
