"""Recorded results: added, replaced, written whole, read back, own before reference."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest

from retlib.core import cache, runtime
from retlib.core.errors import DataError
from retlib.evaluation import results
from retlib.evaluation.measures import between_seeds
from retlib.evaluation.results import FIRST, Results

QUERIES = ["q2", "q1", "q3"]
CLUSTERS = pd.Series({"q1": "c1", "q2": "c1", "q3": "c2"})
KEY = ("quora", "test", "AP@100")


def values(numbers, measure="AP@100", queries=QUERIES):
    return pd.DataFrame({"query_id": queries, "measure": measure, "value": numbers})


def row(system="BM25", seed=0, value=0.5, **more):
    return {
        "experiment": "11", "system": system, "collection": "quora", "split": "test", "measure": "AP@100",
        "value": value, "seed": seed, "profile": "quick", **more,
    }  # fmt: skip


def some():
    """Two systems, one of them with two seeds, and a table."""
    made = Results()
    for system, seed, numbers in (("BM25", 0, [0.1, 0.2, 0.3]), ("DE", 1, [1, 0, 0.5]), ("DE", 0, [0.25, 0, 1])):
        made.add_row(**row(system, seed, float(np.mean(numbers)), steps=float("nan") if system == "BM25" else 30.0))
        made.add_queries("quora", "test", system, seed, values(numbers), CLUSTERS)
    made.tables["curve"] = pd.DataFrame({"step": [1, 2], "loss": [0.5, 0.25]})
    return made


def test_per_query_values_come_by_seed_in_the_order_of_numbers():
    made = some()
    for system, seed, numbers in (("DE", 10, [0.5, 0, 0]), ("DE", 2, [0, 0, 0.5]), ("DE, batch 2", 5, [0, 0, 0])):
        made.add_queries("quora", "test", system, seed, values(numbers), CLUSTERS)
    found = made.per_query(*KEY, "DE")
    assert found.columns.tolist() == [0, 1, 2, 10] and found.index.tolist() == QUERIES
    assert found.T.to_numpy().tolist() == [[0.25, 0, 1], [1, 0, 0.5], [0, 0, 0.5], [0.5, 0, 0]]
    assert made.systems(*KEY) == ["BM25", "DE", "DE, batch 2"]
    assert made.clusters(*KEY).to_dict() == CLUSTERS.to_dict() and made.clusters(*KEY).index.tolist() == QUERIES
    assert made.lines("D", "quora").empty and len(made.lines("DE", "quora")) == 2


def test_a_system_is_trained_that_has_steps_in_any_row_or_several_seeds_of_the_measure():
    made = some()
    for system, seed in (("DE", 0), ("BM25", 0), ("BM25", 1), ("one", 0)):
        made.add_row(**row(system, seed) | {"measure": "seconds"})
    for more in ({"system": "one", "steps": 30.0}, {"system": "two"}, {"system": "two", "seed": 1}):
        made.add_row(**row(**more))
    found = {system: made.trained(system, "AP@100") for system in ("DE", "BM25", "one", "two")}
    assert found == {"DE": True, "BM25": False, "one": True, "two": True}


@pytest.mark.parametrize(
    "place", [(*KEY, "nope"), ("quora", "dev", "AP@100", "DE"), ("quora", "test", "R@1", "DE"), ("x", "test", "y", "D")]
)
def test_values_that_are_not_recorded_are_named(place):
    with pytest.raises(DataError) as caught:
        some().per_query(*place)
    assert all(name in str(caught.value) for name in place)


def test_a_row_with_the_same_key_takes_the_others_place():
    made = some()
    for seed, count in ((0, 3), (2, 4)):
        made.add_row(**row("DE", seed, 0.9))
        assert len(made.rows) == count
        assert made.rows.query("system == 'DE' and seed == @seed")["value"].tolist() == [0.9]


def test_values_of_the_same_system_and_seed_or_over_other_queries_replace_those_before():
    made = some()
    made.add_queries("quora", "test", "DE", 0, values([0, 0, 0]), CLUSTERS)
    assert made.per_query(*KEY, "DE").T.to_numpy().tolist() == [[0, 0, 0], [1, 0, 0.5]]
    made.add_queries("quora", "test", "new", 0, values([1, 1], queries=["q7", "q8"]), pd.Series({"q7": "a", "q8": "b"}))
    assert made.systems(*KEY) == ["new"]
    assert made.clusters(*KEY).to_dict() == {"q7": "a", "q8": "b"}


def equal(left, right):
    assert left.rows.drop(columns="source", errors="ignore").equals(right.rows.drop(columns="source", errors="ignore"))
    assert left.queries.keys() == right.queries.keys() and left.tables.keys() == right.tables.keys()
    for mine, other in ((left.queries, right.queries), (left.tables, right.tables)):
        for name in mine:
            pd.testing.assert_frame_equal(mine[name], other[name], check_names=False)


def test_a_round_trip_loses_nothing_whatever_the_names(tmp_path):
    made, numbers = some(), [0.1, 0.2, 0.3]
    several = pd.concat([values(numbers, "RBP(p=0.8)"), values([1, 0, 1], "R@1")])
    made.add_queries("beir/quora v1.1", "test", "DE", 0, several, CLUSTERS)
    made.tables["loss at 0.5/1000"] = pd.DataFrame({"x": [1]})
    made.save(tmp_path / "11")
    equal(read := Results.read(tmp_path / "11"), made)
    assert read.per_query("beir/quora v1.1", "test", "R@1", "DE")[0].tolist() == [1, 0, 1]


def test_a_failure_or_a_kill_leaves_the_old_results_and_the_next_save_replaces_the_whole_folder(tmp_path):
    some().save(tmp_path / "11")
    broken, fresh = some(), Results()
    broken.tables["bad"] = pd.DataFrame({"x": [object()]})
    with pytest.raises(Exception, match="object"):
        broken.save(tmp_path / "11")
    equal(Results.read(tmp_path / "11"), some())
    fresh.add_row(**row("new"))
    fresh.save(tmp_path / "11")
    read = Results.read(tmp_path / "11")
    assert read.rows["system"].tolist() == ["new"] and read.queries == {} and read.tables == {}
    assert [path.name for path in tmp_path.iterdir()] == ["11"]


def test_at_no_moment_of_saving_is_the_folder_half_there(tmp_path, monkeypatch):
    """Whatever is renamed or deleted, the folder is complete or absent just before."""
    some().save(tmp_path / "11")
    seen = []

    def watch(function):
        def call(*arguments, **options):
            if (tmp_path / "11").exists():
                seen.append(len(Results.read(tmp_path / "11").rows))
            return function(*arguments, **options)

        return call

    for module, name in ((os, "replace"), (os, "rename"), (os, "unlink"), (shutil, "rmtree")):
        monkeypatch.setattr(module, name, watch(getattr(module, name)))
    some().save(tmp_path / "11")
    assert seen and set(seen) == {3}


@pytest.mark.parametrize(
    "victim", ["rows.parquet", "queries/quora.test.AP@100.parquet", "tables/curve.parquet", cache.CHECKSUMS]
)
def test_a_damaged_file_is_named_with_its_folder(tmp_path, victim):
    some().save(tmp_path / "11")
    path = tmp_path / "11" / victim
    raw = path.read_bytes()
    flipped = (raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :] for place in range(0, len(raw), 501))
    for damaged in (raw[:-20], b"rubbish", b"", None, *flipped):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(DataError, match=str(tmp_path / "11")) as caught:
            Results.read(tmp_path / "11")
        assert victim in str(caught.value) or victim == cache.CHECKSUMS  # which may tell wrong of others


def test_values_by_query_are_read_when_they_are_asked_for(tmp_path):
    some().save(tmp_path / "11")
    read = Results.read(tmp_path / "11")
    (tmp_path / "11" / "queries" / "quora.test.AP@100.parquet").unlink()
    assert KEY in read.queries and len(read.queries) == len(some().queries)
    with pytest.raises(FileNotFoundError):
        read.per_query(*KEY, "DE")


def test_two_that_save_at_once_leave_the_whole_of_one(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(some().save, [tmp_path / "11"] * 8)]) == 8
    equal(Results.read(tmp_path / "11"), some())
    assert [path.name for path in tmp_path.iterdir()] == ["11"]


# Own runs and the reference


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A project folder and a build folder, both empty."""
    monkeypatch.setattr(runtime, "root", lambda: tmp_path / "root")
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    return tmp_path


def save(folder, experiment, value, **more):
    made = Results()
    made.add_row(**row(value=value, **more) | {"experiment": experiment})
    made.save(folder("quick", experiment))


reference, own = partial(save, results.reference_folder), partial(save, results.own_folder, steps=7)


def test_an_own_run_comes_before_the_reference(places):
    assert results.load("11", "quick") is None
    assert results.rows("quick").columns.tolist() == FIRST and results.experiments("quick") == []
    reference("11", 0.1)
    assert results.load("11", "quick", "run") is None and results.load("11", "laptop") is None
    assert results.load("11", "quick").rows["source"].tolist() == ["reference"]
    own("11", 0.2)
    for source, place, value in ((None, "run", 0.2), ("reference", "reference", 0.1), ("run", "run", 0.2)):
        found = results.load("11", "quick", source)
        assert found.rows[["source", "value"]].to_numpy().tolist() == [[place, value]]
    found.save(results.reference_folder("quick", "11"))  # as "reference" again, whatever it was
    assert results.load("11", "quick", "reference").rows["source"].tolist() == ["reference"]


def test_rows_of_all_experiments_with_the_promised_columns_first(places):
    for make, name, value in ((reference, "11", 0.1), (reference, "12", 0.3), (own, "12", 0.2), (own, "13", 0.4)):
        make(name, value)
    (results.own_folder("quick", "11").parent / ".11.abc").mkdir()  # of a save that was killed
    found = results.rows("quick")
    assert found.columns[:9].tolist() == FIRST
    expected = [["11", 0.1, "reference"], ["12", 0.2, "run"], ["13", 0.4, "run"]]
    assert found[["experiment", "value", "source"]].to_numpy().tolist() == expected
    assert results.experiments("quick") == ["11", "12", "13"]


def test_systems_are_compared_in_points_alone_in_pairs_and_across_collections():
    """By hand: of A, B and C seeds leave a variance of 3 with 4 degrees of freedom, and what they share is 3 with 2."""
    made, queries = Results(), pd.Index(["a", "b", "c", "d"], name="query_id")
    shifts = {"A": (-3, 0, 3), "B": (0, 0, 0), "C": (-2, 1, 4), "BM25": (-10,)}
    shifts["A, again"] = shifts["A"]  # one training under a second name tells nothing more of seeds
    for (place, less), (system, of_seeds) in product((("quora", 0), ("other", 10)), shifts.items()):
        for seed, shift in enumerate(of_seeds):
            points = np.array([0, 40, 60, 100]) + shift - less
            made.add_queries(
                place, "test", system, seed, values(points / 100, queries=queries), pd.Series(queries, queries)
            )
            made.add_row(**row(system, seed) | {"collection": place})
    for given, effect, parts in (
        (("B",), 50, [(5200 / 3 / 4, 3), (1, 4), (1, 2)]),  # the queries' part, and two of seeds
        (("A", "C"), -1, [(2, 4)]),
        (("B", "BM25"), 10, [(1, 4), (1, 2)]),
        (("BM25", "B"), -10, [(1, 4), (1, 2)]),
        (("A", "C", "other"), 9, [(1, 4), (1, 2)] * 2),  # nothing is known to be shared across collections
    ):
        found, variance = made.compared("quora", "AP@100", *given), sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / freedom for part, freedom in parts)
        expected = pytest.approx((effect, variance, freedom), rel=1e-3, abs=1e-3)
        assert (found.effect, found.error**2, found.freedom) == expected, given


def test_another_training_that_finds_as_many_is_another():
    """Two systems with the same means, of which each finds what the other does not; a copy of the first is none."""
    made, questions = Results(), np.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 0]])
    trainings = {"A": questions, "A, again": questions, "B": questions[[2, 0, 1]], "C": questions[:, ::-1]}
    for system, seeds in trainings.items():
        for seed, found in enumerate(seeds):
            made.add_queries("quora", "test", system, seed, values(found), CLUSTERS)
            made.add_row(**row(system, seed, steps=10))
    ((_, freedom), _) = made.pooled([(1, "A")], ["quora"], "AP@100", 3)
    assert freedom == (3 - 1) * (3 - 1)  # of A, B and C with three seeds


def test_what_seeds_change_is_taken_from_systems_with_as_many():
    """Two more systems with five seeds tell of the first three what all tell, and of five what they tell alone."""
    made, noise = Results(), pd.DataFrame(50 + np.random.default_rng(1).normal(0, 2, (4, 5)))
    for system, count in enumerate((3, 3, 5, 5)):
        for seed in range(count):
            made.add_queries("quora", "test", f"S{system}", seed, values([noise[seed][system] / 100] * 3), CLUSTERS)
            made.add_row(**row(f"S{system}", seed, steps=10))
    for seeds, means in ((3, noise.iloc[:, :3]), (5, noise.iloc[2:])):
        expected = [(variance / seeds, freedom) for variance, freedom in between_seeds(means)]
        found = made.pooled([(1, "S2")], ["quora"], "AP@100", seeds)
        assert np.array(found) == pytest.approx(np.array(expected), rel=1e-3)
    assert made.compared("quora", "AP@100", "S0", "S2").seeds == 3
    assert made.compared("quora", "AP@100", "S2", "S3").seeds == 5
