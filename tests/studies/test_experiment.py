"""A notebook's desk: parameters checked before any work, results recorded, records read."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.core.history import Cost
from retlib.evaluation import results
from retlib.retrieval.runs import make_run
from retlib.studies import experiment
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.parameters import Some, Whole
from retlib.studies.recipe import LabelShares


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A project folder and a build folder, both empty."""
    profiles = tmp_path / "root" / "notebooks" / "profiles"
    profiles.mkdir(parents=True)
    for name in ("quick", "laptop", "smoke"):
        (profiles / f"{name}.yaml").touch()
    monkeypatch.setattr(runtime, "root", lambda: tmp_path / "root")
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    return tmp_path


def desk(name="12", **changes):
    common = {"profile": "quick", "seeds": [0], "source": "run", **changes}
    return Experiment(name, common)


def perfect(toy, shift=0):
    """Ranks one relevant document of each test query first, or one that is not."""
    queries = toy.split("test")
    first = toy.qrels.drop_duplicates("query_id").set_index("query_id")["doc_id"][queries.index]
    rows = (toy.documents.index.get_indexer(first) + shift) % len(toy.documents)
    run = make_run(queries.index, toy.documents.index, np.ones((len(queries), 1)), rows[:, None])
    return Outcome(run, {"k1": 0.9}, Cost(30, 1.5, ((0, 0.25), (30, 0.5), (60, 0.375))))


def test_a_measured_system_is_recorded_with_everything_beside_it(toy):
    made = desk()
    made.measure("S", toy, 3, lambda: perfect(toy), measures=("P@1", "AP@100"))
    rows = made.results.rows.set_index("measure")
    count = len(toy.split("test"))
    assert rows["value"].to_dict() == pytest.approx({"P@1": 1.0, "AP@100": 0.25})  # one of four is found
    for column, expected in {
        "experiment": "12", "system": "S", "collection": "toy", "split": "test", "seed": 3, "profile": "quick",
        "steps": 30, "seconds": 1.5, "queries": count, "candidates": 192, "threads": 1,
    }.items():  # fmt: skip
        assert (rows[column] == expected).all(), column
    assert json.loads(rows["parameters"]["P@1"]) == {"k1": 0.9}
    assert rows["wall"].between(0, 60).all() and (rows["peak_memory"] > 1e7).all()
    assert {"device", "load", "packages", "python", "revision", "recorded"} <= set(rows.columns)
    values = made.results.per_query("toy", "test", "P@1", "S")
    assert values.index.tolist() == toy.judgments("test")["query_id"].unique().tolist()
    assert made.results.clusters("toy", "test", "P@1").to_dict() == toy.split("test")["cluster"].to_dict()


def test_what_validation_saw_of_a_training_is_recorded_once(toy):
    made = desk()
    for measures in (("P@1",), ("AP@100",)):  # asked for again, it takes its own place
        made.measure("S", toy, 3, lambda: perfect(toy), measures=measures)
    made.measure("T", toy, 3, Outcome(perfect(toy).run), measures=("P@1",))  # not trained
    made.learned("S", "other", 3, Cost(0, 1.0, ((0, 0.5), (9, 0.25))))
    made.save()
    found = results.load("12", "quick").tables["learning"]
    assert found.to_numpy().tolist() == [
        ["S", "toy", 3, 0, 25, False], ["S", "toy", 3, 30, 50, True], ["S", "toy", 3, 60, 37.5, False],
        ["S", "other", 3, 0, 50, True], ["S", "other", 3, 9, 25, False],
    ]  # fmt: skip
    assert found.columns.tolist() == ["system", "collection", "seed", "step", "score", "kept"]


def test_an_outcome_that_is_at_hand_is_recorded_as_one_that_is_made(toy):
    given, made = desk(), desk()
    given.measure("S", toy, 3, perfect(toy), measures=("P@1", "AP@100"))
    made.measure("S", toy, 3, lambda: perfect(toy), measures=("P@1", "AP@100"))
    own = ["wall", "recorded", "peak_memory", "load"]  # of each recording
    pd.testing.assert_frame_equal(*(each.results.rows.drop(columns=own, errors="ignore") for each in (given, made)))
    for key, frame in made.results.queries.items():
        pd.testing.assert_frame_equal(given.results.queries[key], frame)
    given.measure("T", toy, 3, lambda: perfect(toy), measures=("P@1",))
    given.save()  # an unknown time stands beside a known one
    recorded = results.load("12", "quick").rows.set_index(["system", "measure"])["wall"]
    assert recorded.isna().to_dict() == {("S", "P@1"): True, ("S", "AP@100"): True, ("T", "P@1"): False}


@pytest.mark.parametrize("part", ["whole", "candidates"])
def test_provenance_is_recorded_with_every_result(toy, part):
    task = toy if part == "whole" else toy.candidates("test")
    made = desk()
    made.measure("S", task, 0, lambda: perfect(task))
    recorded = json.loads(made.results.rows["data"][0])
    assert recorded == {"fingerprint": task.fingerprint, "toy.txt": "written for the tests"}
    plain = replace(task, queries=task.queries.drop(columns="cluster"))  # queries are clusters of their own
    other = desk()
    other.measure("S", plain, 0, lambda: perfect(plain))
    clusters = other.results.clusters(plain.name, "test", "AP@100")
    assert (clusters == clusters.index).all()


def test_a_split_without_queries_fails_before_the_work(toy):
    with pytest.raises(DataError, match="test"):
        desk().measure("S", toy.candidates("dev"), 0, lambda: pytest.fail("worked"))


def saved(profile, system, toy, seed=0, shift=0):
    made = desk(profile=profile, seeds=[seed])
    made.measure(system, toy, seed, lambda: perfect(toy, shift))
    made.table("curve", lambda: pd.DataFrame({"system": [system]}, index=[9]))
    made.save()
    return results.load("12", profile, "run")


def test_explorations_with_other_parameters_stand_side_by_side(toy):
    saved("explore", "S", toy)
    assert saved("explore", "S", toy, seed=1).rows["seed"].tolist() == [1]  # the latest
    again = saved("explore", "S", toy, shift=4)  # past the cluster, with the parameters of the first
    assert again.rows["value"][0] < 0.25 and set(again.rows["source"]) == {"run"}
    listed = results.rows("explore")
    assert len(set(listed["experiment"])) == 2 and listed["experiment"].str.startswith("12+").all()
    seeds = [json.loads(given)["seeds"] for given in listed["given"]]
    assert dict(zip(listed["seed"], seeds, strict=True)) == {0: [0], 1: [1]}
    assert (listed["value"] < 0.25).tolist() == (listed["seed"] == 0).tolist()


def publish(toy, seeds=(0, 1)):
    """Record a run and move it to where the published results lie."""
    made = desk()
    for seed in seeds:
        made.measure("S", toy, seed, lambda: perfect(toy))
    shown = made.table("curve", lambda: pd.DataFrame({"x": [1.5]}))
    shown["x"] = "1.5 seconds"  # for the page alone
    made.results.save(results.reference_folder("quick", "12"))


def test_a_reference_page_computes_nothing_and_shows_what_is_recorded(toy):
    publish(toy)
    made = desk(source="reference", seeds=[0, 5])
    assert not made.live and made.load("no such collection") is None
    made.measure("S", None, 0, lambda: pytest.fail("worked"))
    made.record("S", "toy", "seconds", 1.0, 0)
    assert made.table("curve", lambda: pytest.fail("worked"))["x"].tolist() == [1.5]
    made.save()
    assert made.parameters["seeds"] == [0, 1]  # what was recorded, not what was asked for
    assert made.results.per_query("toy", "test", "AP@100", "S").columns.tolist() == [0, 1]
    assert results.load("12", "quick", "run") is None


def test_neither_a_reference_page_shows_an_own_run_nor_a_run_what_was_before(toy):
    publish(toy)
    assert desk().results.rows.empty
    saved("quick", "own", toy)
    assert desk(source="reference").results.rows["system"].unique().tolist() == ["S"]
    found = saved("quick", "T", toy)
    assert found.rows["system"].tolist() == found.systems("toy", "test", "AP@100") == ["T"]
    assert found.tables["curve"].to_dict("list") == {"system": ["T"]}


def test_what_the_reference_lacks_is_named(toy):
    with pytest.raises(DataError, match="12.*'quick'"):
        desk(source="reference")
    publish(toy)
    with pytest.raises(DataError, match="'map'"):
        desk(source="reference").table("map", lambda: None)


def test_a_profile_has_rows_of_its_own_parameters_alone(places, capsys):
    """Of other seeds, too; what has other parameters, or another recipe, is recorded as an exploration."""
    cell = {"cell_type": "code", "id": "a", "metadata": {"tags": ["parameters"]}, "outputs": []}
    cell["source"] = 'profile = "explore"\nseeds = [0]\nsource = "run"\nrecipe = {}\nlooks = 1\nfew_seeds = []\n'
    (places / "root" / "notebooks" / "12_a.ipynb").write_text(json.dumps({"cells": [cell]}))
    profile = "12_a:\n  parameters: {recipe: {layers: 2, finetuning_steps: {'0.8': 10}}, looks: 5}\n"
    (places / "root" / "notebooks" / "profiles" / "quick.yaml").write_text(profile)
    recipe = {"layers": 2, "finetuning_steps": {"0.8": 10}}

    def kept(profile="quick", **changes):
        given = {"seeds": [0], "source": "run", "recipe": recipe, "looks": 5, "few_seeds": [0], **changes}
        made = Experiment("12_a", {"profile": profile, **given}, LabelShares, looks=Whole, few_seeds=Some[Whole])
        made.record("S", "toy", "P@1", 0.5, 0)
        made.save()
        said = capsys.readouterr().err
        assert results.load("12_a", made.profile, "run").rows["profile"].tolist() == [made.profile]
        return made.profile, said.partition(" is ")[0]

    assert kept(seeds=[3], few_seeds=[4]) == ("quick", "")
    assert kept(recipe=recipe | {"width": 128}) == ("quick", "")  # which is the default
    assert kept("smoke", recipe={}, looks=1) == ("smoke", "") and kept("explore", looks=2) == ("explore", "")
    assert kept(looks=1) == ("explore", "looks")
    assert kept(recipe=recipe | {"layers": 3}) == ("explore", "layers")
    assert kept(recipe={"layers": 2}) == ("explore", "finetuning_steps")
    assert results.load("12_a", "quick").rows["seed"].tolist() == [0] and len(results.experiments("explore")) == 4


def test_a_reference_page_has_the_parameters_of_its_profile(toy, monkeypatch):
    publish(toy)
    monkeypatch.setattr(experiment.notebook_files, "names", lambda _: ["12"])
    profile = {"steps": 300, "seeds": [9], "recipe": {"layers": 2}}
    monkeypatch.setattr(experiment.notebook_files, "at_profile", lambda *_: profile)
    namespace = {"profile": "quick", "seeds": [0], "source": "reference", "steps": 7, "recipe": {}}
    made = Experiment("12", namespace, LabelShares, steps=Whole)
    assert (made.parameters["steps"], namespace["steps"], namespace["seeds"]) == (300, 300, [0])
    assert made.recipe.layers == made.parameters["layers"] == namespace["recipe"].layers == 2


def test_claims_of_a_second_paper_stand_beside_those_of_the_first(toy, monkeypatch):
    monkeypatch.setattr(experiment.tables, "chapter_claims", lambda table: table)
    made, (one, other) = desk(), (SimpleNamespace(paper=name, table=pd.DataFrame({"claim": [name]})) for name in "ab")
    made.record_claims(one)
    assert made.record_claims(other)["claim"].tolist() == ["a", "b"]
    assert made.record_claims(one)["claim"].tolist() == ["a", "b"]  # its cell runs again
