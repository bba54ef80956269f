"""The own run beside the published results: hand-made rows, each status once."""

import json

import pytest
from click.testing import CliRunner

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.workflow.cli import main


def record(folder, rows):
    made = Results()
    for system, seed, value, changes in rows:
        row = {"experiment": folder.name, "system": system, "collection": "c", "split": "test", "measure": "R@10"}
        row |= {"value": value, "seed": seed, "profile": "quick", "parameters": "{}"}
        made.add_row(**row | {"data": json.dumps({"fingerprint": "f"})} | changes)
    made.save(folder)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two published experiments; of the first there is an own run, whose rows stand in every way."""
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    names = ("same", "edge", "close", "far", "data", "settings", "gone")
    published = [(name, seed, 0.5, {}) for name in names for seed in (0, 1)]
    record(results.reference_folder("quick", "1_a"), [*published, ("clock", 0, 3.0, {"measure": "training seconds"})])
    record(results.reference_folder("quick", "2_b"), [("BM25", 0, 0.5, {})])
    own = [
        ("same", 0, 0.4, {}), ("same", 1, 0.6, {}),  # the mean is compared, not the seeds
        ("edge", 0, 0.505, {}), ("close", 0, 0.515, {}), ("far", 0, 0.47, {}),
        ("data", 0, 0.5, {"data": json.dumps({"fingerprint": "g"})}),
        ("settings", 0, 0.5, {"parameters": '{"k1": 2}'}),
        ("clock", 0, 9.0, {"measure": "training seconds"}),
        ("own", 0, 0.1, {}),
    ]  # fmt: skip
    record(results.own_folder("quick", "1_a"), own)


def test_each_status(places):
    found = tables.reproduction("quick").set_index("system")
    assert found["status"].to_dict() == {
        "same": "OK", "edge": "OK", "close": "near", "far": "differs", "data": "other data",
        "settings": "other settings", "gone": "not run", "BM25": "not run",
    }  # fmt: skip
    assert found.loc["far", ["run", "reference", "difference"]].tolist() == pytest.approx([47, 50, -3])
    assert found.loc["same", "seeds"] == 2 and found.loc["gone", "seeds"] == 0
    counts = tables.counts(tables.reproduction("quick"))
    assert counts.columns.tolist() == ["experiment", *tables.STATUSES]
    assert counts.to_numpy().tolist() == [["1_a", 2, 1, 1, 1, 1, 1], ["2_b", 0, 0, 0, 0, 0, 1]]


def test_the_command_shows_what_differs_and_says_so_at_its_end(places):
    found = CliRunner().invoke(main, ["verify", "--profile", "quick"])
    assert found.exit_code == 1
    assert "1_a" in found.output and "far" in found.output and "close" not in found.output
    assert "close" in CliRunner().invoke(main, ["verify", "--profile", "quick", "--format", "csv"]).output


def test_a_profile_of_nothing_or_of_times_alone_has_nothing_to_compare(places):
    record(results.reference_folder("paper", "1_a"), [("clock", 0, 3.0, {"measure": "latency ms"})])
    for profile in ("paper", "smoke"):
        with pytest.raises(DataError, match=profile):
            tables.reproduction(profile)


def test_means_are_over_the_seeds_that_both_have_or_else_over_all(places):
    published = [("A", seed, value, {}) for seed, value in enumerate((0.50, 0.54, 0.58))]
    record(results.reference_folder("quick", "1_a"), [*published, ("B", 0, 0.5, {}), ("B", 1, 0.7, {})])
    record(results.own_folder("quick", "1_a"), [("A", 0, 0.50, {}), ("B", 7, 0.6, {})])
    found = tables.reproduction("quick").set_index("system")
    assert found[["run", "reference"]].loc[["A", "B"]].to_numpy().ravel() == pytest.approx([50, 50, 60, 60])
