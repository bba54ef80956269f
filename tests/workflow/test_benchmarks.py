"""The benchmarks' harness: turns, agreement, refusal and resumption; no second is asserted."""

import sys
from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from retlib.core import runtime
from retlib.evaluation import results

sys.path.append(str(runtime.root()))
from benchmarks import harness  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.harness import CASES, OURS, Busy, Duel, Line, Others  # noqa: E402


@pytest.fixture
def idle(monkeypatch):
    monkeypatch.setattr(Others, "busy", lambda self: 0.0)
    monkeypatch.setattr(harness, "TOLD", 0.0)


@pytest.fixture
def case(own_build, idle):
    """Register a case under a name of this test alone; it goes when the test ends."""

    yield CASES.register("99-mine")
    CASES._things.pop("99-mine", None)


def duel(calls, peer=1.0):
    """Ours returns 1."""
    ours, peers = (lambda: calls.append(OURS) or 1.0), {"peer": lambda: calls.append("peer") or peer}
    return Duel("count", "calls/s", 1, ours, peers, apart=lambda a, b: abs(a - b), tolerance=0.1, goal=2.0)


def test_contenders_take_turns_and_a_ratio_is_of_the_seconds_that_count():
    calls = []
    (row,) = harness.fight(duel(calls))
    assert calls == [OURS, "peer"] * (1 + harness.ROUNDS)
    assert row["rounds"] == harness.ROUNDS and row["agree"] and row["low"] <= row["ratio"] <= row["high"]
    contenders = {"ours": lambda: harness.Timed(1.0, 0), "peers": {"peer": lambda: harness.Timed(3.0, 0)}}
    (row,) = harness.fight(Duel("x", "y/s", 6, **contenders, apart=lambda *_: 0.0, tolerance=0.0))
    assert (row["ratio"], row["low"], row["high"], row["ours"], row["value"]) == (3.0, 3.0, 3.0, 6.0, 2.0)


def test_outputs_that_differ_are_reported(case):
    case(lambda scale: iter([duel([], peer=1.5)]))
    made = harness.measure("99-mine", quick=True)
    assert not made.rows["agree"].any() and made.rows["apart"].tolist() == [0.5]
    assert "DIFFER" in harness.shown(made.rows).to_string()


@pytest.mark.parametrize(("busy", "threads", "refused"), [(0.0, 2, False), (1.0, 1, False), (1.0, 2, True)])
def test_a_busy_machine_is_refused(monkeypatch, busy, threads, refused):
    monkeypatch.setattr(harness.os, "cpu_count", lambda: 2)
    monkeypatch.setenv("RETLIB_THREADS", str(threads))
    harness.require_room(busy, anyway=True)
    with pytest.raises(Busy) if refused else nullcontext():
        harness.require_room(busy, anyway=False)


def test_nothing_is_kept_of_a_case_that_others_disturbed(case, monkeypatch):
    case(lambda scale: iter([duel([])]))
    monkeypatch.setattr(Others, "busy", lambda self: 1e6)
    with pytest.raises(Busy):
        harness.keep("99-mine", quick=True)
    assert not harness.folder("99-mine").exists()
    made = harness.keep("99-mine", quick=True, anyway=True)
    assert made.rows["anyway"].all() and (made.rows["others"] == 1e6).all()
    assert results.load("99-mine", harness.profile()).rows["agree"].all()


def test_what_is_measured_is_found_again_with_as_many_threads_and_at_its_scale(case, monkeypatch):
    case(lambda scale: iter([Line("sizes", {"n": scale(2, 1)})]))
    assert harness.known("99-mine", True, False) is None
    harness.keep("99-mine", quick=True)
    assert harness.known("99-mine", True, False).tables["sizes"]["n"].tolist() == [1]
    assert harness.known("99-mine", False, False) is None
    monkeypatch.setenv("RETLIB_THREADS", "7")
    assert harness.known("99-mine", True, False) is None


@pytest.mark.parametrize("name", ["04-exact-search", "05-bm25"])
def test_a_case_at_its_smallest(own_build, idle, name):
    harness.load_cases()
    made = harness.measure(name, quick=True, anyway=True)
    assert made.rows["agree"].all() and made.rows["quick"].all() and (made.rows["value"] > 0).all()


@pytest.mark.parametrize(("given", "code"), [(["--help"], 0), (["05-bm52"], 1), (["--record", "--quick"], 2)])
def test_the_command(own_build, monkeypatch, given, code):
    for name in ("RETLIB_THREADS", "RAYON_NUM_THREADS", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "1")
    assert CliRunner().invoke(main, given).exit_code == code
