"""What all tests share: one thread, a build folder of their own, and a small task in real words."""

from __future__ import annotations

import gzip
import io
import os
import runpy
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

# Before any numerical library starts its threads, matplotlib looks for a screen, or a model is looked for elsewhere.
os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="Agg", HF_HUB_OFFLINE="1")

import hypothesis
import numpy as np
import pandas as pd
import pytest

from retlib.core import runtime
from retlib.data import datasets
from retlib.data.collection import Collection, closure, hash_position, retrieval_task
from retlib.training import trainer

# A busy machine is no failure.
hypothesis.settings.register_profile(
    "retlib", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.load_profile("retlib")

# Fixtures of a task of written words (a file with fixtures of the same names has its own), and of released files.
pytest_plugins = ["words", "releases"]


def pytest_collection_modifyitems(items):
    """Files with slow tests start first, so that none is left alone at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


THINGS = (
    "a bicycle tyre", "sourdough bread", "a violin", "tomato plants", "a leaking tap", "a marathon", "Portuguese",
    "a canvas tent", "woollen jumpers", "an old piano", "a beehive", "black coffee", "a chess opening", "a kayak",
    "goat cheese", "a wooden floor", "oil paintings", "a telescope", "fishing nets", "a sewing machine",
    "rose bushes", "a stone wall", "homemade soap", "a sailing boat",
)  # fmt: skip
# Each asks for one thing in four ways that share few words, and the two groups ask for different things.
ASK_CARE = ("how do i take care of {}", "best way of looking after {}", "tips to keep {} in shape", "maintenance of {}")
ASK_PRICE = ("what does {} cost", "is {} expensive", "price of {}", "how much should i pay for {}")


def toy_pairs() -> tuple[pd.Series, pd.DataFrame]:
    """Written questions, and labelled pairs: duplicates of one another, and near-misses about one thing."""
    texts, pairs = {}, []
    for number, thing in enumerate(THINGS):
        for kind, asks in (("c", ASK_CARE), ("p", ASK_PRICE)):
            ids = [f"{number:02d}{kind}{place}" for place in range(len(asks))]
            texts |= {name: ask.format(thing) for name, ask in zip(ids, asks, strict=True)}
            pairs += [(ids[0], ids[1], 1), (ids[0], ids[2], 1), (ids[3], ids[2], 1)]
        pairs += [(f"{number:02d}c{place}", f"{number:02d}p{place}", 0) for place in range(3)]
    return pd.Series(texts), pd.DataFrame(pairs, columns=["left", "right", "label"])


def make_toy(name: str = "toy", things: slice = slice(None)) -> Collection:
    """A similar-question task over the toy texts, or over some of its things."""
    texts, pairs = toy_pairs()
    chosen = {f"{number:02d}" for number in range(len(THINGS))[things]}
    texts = texts[texts.index.str[:2].isin(chosen)]
    pairs = pairs[pairs["left"].str[:2].isin(chosen)]
    # A thing stays on one side with both of its questions, so that near-misses stay too.
    sides = closure(pairs.assign(label=1))
    place = sides.reindex(texts.index).map(lambda name: hash_position(f"3:{name}"))
    split = pd.Series(np.select([place < 0.25, place < 0.5], ["test", "dev"], "train"), texts.index, name="split")
    return replace(retrieval_task(name, texts, pairs, split), provenance={"toy.txt": "written for the tests"})


@pytest.fixture(scope="session")
def toy() -> Collection:
    """A task of 192 questions in 48 clusters."""
    return make_toy()


@pytest.fixture(scope="session", autouse=True)
def build_folder(tmp_path_factory: pytest.TempPathFactory):
    """Whatever the tests make goes to a folder of this session, never into the reader's own."""
    folder = tmp_path_factory.mktemp("build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETLIB_BUILD", str(folder))
        patch.delenv("RETLIB_THREADS", raising=False)
        # Where there is a GPU, too: its sums are others, and `test_golden` says how far.
        patch.setenv("RETLIB_DEVICE", "cpu")
        runtime.set_threads()
        yield folder


@pytest.fixture(scope="session", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory):
    """Nothing connects to another machine, in no process that a test starts."""
    note, folder = tmp_path_factory.mktemp("offline") / "connected.txt", str(Path(__file__).parent / "offline")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETLIB_CONNECTED", str(note))
        patch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        if folder not in sys.path:  # else Python began with it
            runpy.run_path(f"{folder}/sitecustomize.py")
        yield note
    assert not note.exists(), note.read_text()


@pytest.fixture
def own_build(tmp_path, monkeypatch):
    """A build folder of one test alone."""
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


@pytest.fixture
def exact(monkeypatch):
    """Encodings and scores in float32, whatever the processor has."""
    monkeypatch.setattr(runtime, "has_bfloat16", lambda: False)


@pytest.fixture
def trainings_of(monkeypatch):
    """What is given to each training that a module begins, from now on: a function of the module."""

    def listen(module):
        calls, real = [], module.train
        monkeypatch.setattr(module, "train", lambda *given, **more: calls.append(given) or real(*given, **more))
        return calls

    return listen


@pytest.fixture
def trainings(trainings_of):
    """The trainings of systems so far."""
    return trainings_of(trainer)


def tar(files: dict[str, str]) -> bytes:
    """An archive of files by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file below $RETLIB_DATA: text, bytes, or an archive's files by name; gzipped where its name says so."""
    monkeypatch.setenv("RETLIB_DATA", str(tmp_path))
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    datasets._load.cache_clear()

    def put(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        raw = tar(content) if isinstance(content, dict) else content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return path

    yield put
    datasets._load.cache_clear()
