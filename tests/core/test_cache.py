"""Artefacts: made once, found under the same settings, data and version, resumed when interrupted."""

import json
import shutil
import threading
from pathlib import Path

import pytest
import torch

from retlib.core import cache, runtime
from retlib.core.cache import artefact, key
from retlib.core.errors import DataError


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


def test_an_artefact_is_made_once_and_keeps_its_settings(own_build):
    calls, make = counting()
    first = artefact("model", 1, {"seed": 1, "name": "a"}, make)
    second = artefact("model", 1, {"name": "a", "seed": 1}, make)
    assert first == second and len(calls) == 1
    assert first.parent == own_build / "cache" / "model" and (first / "made.txt").read_text() == "1"
    settings = json.loads((first / "settings.json").read_text())
    assert settings.pop("on")["device"] == "cpu"
    assert settings == {"seed": 1, "name": "a", "version": 1}
    assert len({key({"a": 1}), key({"a": "1"}), key({"a": [1, 2]}), key({"a": [2, 1]})}) == 4


def test_other_settings_kinds_versions_and_arithmetic_are_other_artefacts(monkeypatch):
    calls, make = counting()
    asked = (("model", 1, 1), ("model", 1, 2), ("index", 1, 1), ("model", 2, 1))
    folders = [artefact(kind, version, {"seed": seed}, make) for kind, version, seed in asked]
    able, gpu = runtime.has_bfloat16(), torch.device("cuda")
    changes = {"has_bfloat16": not able, "device": gpu, "_versions": {"torch": "another"}}
    for name, value in changes.items():
        with monkeypatch.context() as changed:
            changed.setattr(runtime, name, lambda *_, value=value: value)
            folders.append(artefact("model", 1, {"seed": 1}, make))
    assert len({*folders}) == len(calls) == 7


def test_an_interrupted_making_leaves_nothing_under_the_name_and_is_taken_up_again(own_build):
    def interrupted(folder):
        (folder / "half.txt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        artefact("model", 1, {"seed": 1}, interrupted)
    assert not [path for path in (own_build / "cache" / "model").iterdir() if path.suffix == ""]
    folder = artefact("model", 1, {"seed": 1}, lambda folder: (folder / "half.txt").rename(folder / "whole.txt"))
    assert (folder / "whole.txt").read_text() == "half"


def test_two_that_ask_at_once_wait_for_one_making():
    (calls, make), all_ask = counting(), threading.Event()

    def slowly(folder):
        all_ask.wait()
        make(folder)

    threads = [threading.Thread(target=artefact, args=("model", 1, {"seed": 1}, slowly)) for _ in range(3)]
    for thread in threads:
        thread.start()
    all_ask.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def flip(path):
    """Turn one bit of a file around."""
    raw = path.read_bytes()
    path.write_bytes(bytes([raw[0] ^ 8]) + raw[1:])


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("victim", ["made.txt", "settings.json", cache.CHECKSUMS])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_damaged_artefact_is_named_and_made_again(victim, damage, capsys):
    _, make = counting()
    folder = artefact("model", 1, {"seed": 1}, make)
    damage(folder / victim)
    runtime.note.cache_clear()
    for _ in range(2):
        assert artefact("model", 1, {"seed": 1}, make) == folder and (folder / "made.txt").read_text() == "2"
    assert victim in capsys.readouterr().err and cache.files_changed(folder) == []


def test_checksums_may_be_written_again(tmp_path):
    assert cache.files_changed(tmp_path) == [cache.CHECKSUMS]
    for text in ("before", "after"):
        (tmp_path / "file").write_text(text)
        cache.write_checksums(tmp_path)
        assert cache.files_changed(tmp_path) == []
    (tmp_path / "file").write_text("later")
    assert cache.files_changed(tmp_path) == ["file"]


def test_a_full_disk_is_named_and_what_was_begun_is_taken_up_again(monkeypatch):
    def full(folder):
        (folder / "half.txt").write_text("half")
        raise OSError("40 requested and 0 written")

    with pytest.raises(OSError, match="^40 requested"):
        artefact("model", 1, {"seed": 1}, full)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
        with pytest.raises(DataError, match=r"cache/model/\w+"):
            artefact("model", 1, {"seed": 1}, full)
    assert (artefact("model", 1, {"seed": 1}, counting()[1]) / "half.txt").exists()
