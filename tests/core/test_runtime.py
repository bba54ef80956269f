"""Threads, seeds, devices and folders; and that two processes train the same model bit for bit."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from retlib.core import runtime
from retlib.core.errors import SettingError


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "²", ""])
def test_impossible_threads_are_named(monkeypatch, value):
    monkeypatch.setenv("RETLIB_THREADS", value)
    with pytest.raises(SettingError, match="RETLIB_THREADS"):
        runtime.threads()


def test_every_library_gets_the_same_threads(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("RETLIB_THREADS", "2")
    try:
        runtime.set_threads()
        assert torch.get_num_threads() == runtime.threads() == 2
        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "2"
    finally:
        monkeypatch.setenv("RETLIB_THREADS", "1")
        runtime.set_threads()
    assert torch.get_num_threads() == runtime.threads() == 1


def test_seeds_reach_python_numpy_and_torch():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002

    draws = [(runtime.set_seeds(seed), *draw())[1:] for seed in (5, 5, 6)]
    assert draws[0] == draws[1] and all(a != b for a, b in zip(draws[1], draws[2], strict=True))
    assert torch.are_deterministic_algorithms_enabled()


def test_device_is_asked_for_by_name(monkeypatch):
    monkeypatch.setenv("RETLIB_DEVICE", "cpu")
    assert runtime.device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("tpu", "cuda"):
        monkeypatch.setenv("RETLIB_DEVICE", name)
        with pytest.raises(SettingError, match=f"{name}.* cpu"):
            runtime.device()


@pytest.mark.parametrize(
    "processor, able",
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fma avx512f avx512_bf16", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fma avx512f avx512_bf16", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: avx512_fp16 avx512_bf16 amx_bf16", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: avx512_fp16 avx512_bf16", False),  # hides its AMX
        ("vendor_id\t: GenuineIntel\nflags\t\t: fma avx512f\nbugs\t: bf16", False),
        ("Features\t: fp asimd bf16", True),
    ],
)
def test_bfloat16_is_for_processors_that_are_faster_with_it(processor, able, monkeypatch):
    monkeypatch.setattr(runtime.Path, "read_text", lambda path: processor)
    assert runtime.has_bfloat16.__wrapped__() is able


@pytest.mark.parametrize("able", [True, False])
def test_autocast_rounds_products_alone_where_the_processor_can(able, monkeypatch):
    monkeypatch.setattr(runtime, "has_bfloat16", lambda: able)
    monkeypatch.setenv("RETLIB_DEVICE", "cpu")
    left, right = torch.full((1, 1), 1 + 2**-10), torch.ones(1, 1)
    with runtime.autocast("float32"):
        assert (left @ right).dtype == torch.float32
    with runtime.autocast("bfloat16"):
        assert (left @ right).dtype == (torch.bfloat16 if able else torch.float32)
        assert (left + right).dtype == torch.float32


def test_folders_follow_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "elsewhere"))
    assert runtime.build_dir() == tmp_path / "elsewhere"
    monkeypatch.delenv("RETLIB_BUILD")
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    assert runtime.build_dir() == tmp_path / "_build"


def test_what_has_not_loaded_torch_computes_on_the_processor(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(runtime, "device", None)  # not to be asked
    columns = runtime.environment()
    assert columns["device"].startswith("cpu: ") and columns["threads"] == 1
    packages = json.loads(columns["packages"])
    assert packages["numpy"] == np.__version__ and {*packages} == {*runtime.TRACKED}
    assert all(isinstance(value, str | int | float) for value in columns.values())


def test_peak_memory_is_in_bytes():
    before = runtime.peak_memory()
    block = np.ones(30_000_000)  # 240 MB
    assert runtime.peak_memory() >= block.nbytes
    assert before <= runtime.peak_memory() < 2**40


TRAIN = """
import hashlib, sys
sys.path[:0] = [{tests!r}]
from conftest import make_toy
from retlib.core import runtime
from retlib.models.retriever import Architecture
from retlib.systems.system import Stage, System, fit
from retlib.systems.training_data import LabelledPairs
runtime.set_threads()
bow = System(Architecture(encoder="bag-of-words", dimension=24, similarity="cosine", query_length=None))
trained = fit(bow + Stage(data=LabelledPairs(), epochs=4, batch_size=16, optimizer="sparse_adam"), make_toy(), 3)
rows = [(row["step"], repr(row["loss"]), row["score"]) for row in trained.history.evaluations]
print(trained.fingerprint, hashlib.sha256(repr(rows).encode()).hexdigest())
"""


def test_two_processes_train_the_same_model_bit_for_bit(own_build, tmp_path, capsys):
    text = TRAIN.format(tests=str(Path(__file__).parents[1]))
    ended = subprocess.run(
        [sys.executable, "-c", text],
        # A cache of its own: it must train as well. Hashes of strings differ, so an order that depends on them shows.
        env={**os.environ, "RETLIB_BUILD": str(tmp_path / "other"), "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    exec(text, {})
    ends = [ended.stdout.split(), capsys.readouterr().out.split()]
    assert len(ends[0]) == 2 and ends[0] == ends[1]


def test_a_clock_counts_each_part_alone(monkeypatch):
    now = iter([0.0, 10.0, 11.0, 11.0, 14.0, 20.0, 30.0, 35.0])
    monkeypatch.setattr(runtime.time, "perf_counter", now.__next__)
    clock = runtime.Clock()
    with clock("outer"):
        with clock("inner"):
            pass
        with clock("other"):
            pass
    with clock("inner"):
        pass
    assert clock.seconds == {"inner": 1 + 5, "other": 3, "outer": 20 - 1 - 3}


def test_the_revision_says_what_git_says(monkeypatch, tmp_path):
    head, dirty = (
        subprocess.getoutput(f"git -C '{runtime.root()}' {command}")
        for command in ("rev-parse --short=12 HEAD", "status --porcelain -uno")
    )
    assert runtime.environment()["revision"] == (f"{head}{'+' if dirty else ''}" if head.isalnum() else "unknown")
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    assert runtime.environment()["revision"] == "unknown"


def test_a_note_is_said_once(capsys):
    for text in ("a < b", "a < b", "another"):
        runtime.note(text)
    assert capsys.readouterr().err.splitlines() == ["a < b", "another"]
