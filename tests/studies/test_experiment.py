"""A notebook's desk: parameters checked before any work, with what is valid; results recorded, records read."""

import json
import re
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, SettingError, short_repr
from retlib.core.history import Cost
from retlib.evaluation import results
from retlib.retrieval.runs import make_run
from retlib.studies import experiment
from retlib.studies import recipe as recipes
from retlib.studies.experiment import (
    CollectionName,
    Distinct,
    Experiment,
    Names,
    Natural,
    NonEmpty,
    NonNegative,
    Outcome,
    Positive,
    PositiveNumber,
    Share,
    Text,
    TextName,
    check,
)
from retlib.studies.recipe import Adaptation, LabelShares, Ranking
from retlib.training import losses

ROOT = runtime.root()


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


# --- parameters ------------------------------------------------------------------------------------

TYPES = {
    "loss": Literal["softmax", "triplet"],
    "batch_size": Positive,
    "margin": Share,
    "scale": PositiveNumber,
    "k1": NonNegative,
    "hidden": bool,
    "collections": NonEmpty[CollectionName],
    "tasks": dict[Literal["P", "Q"], CollectionName],
    "files": dict[Text, Text],
    "other": TextName,
    "system": Names,
}
GOOD = {
    "profile": "quick", "seeds": [0, 1], "source": "run", "recipe": {}, "loss": "softmax", "batch_size": 1000,
    "margin": 0.5, "scale": 1.0, "k1": 0.0, "hidden": False, "collections": ["quora"], "files": {}, "other": "pydocs",
    "tasks": {"Q": "quora", "P": "disfl-qa"}, "system": "all",
}  # fmt: skip


def opened(**changes):
    return Experiment("12", {**GOOD, **changes}, Adaptation, **TYPES)


def test_parameters_come_back_flat_and_nothing_else_of_the_notebook_does():
    more = {"_hidden": 1, "module": json, "function": opened, "__name__": "__main__", "MARGIN": 0.5, "BEST_OF": ["a"]}
    made = opened(**more, recipe={"layers": 2})
    own = {name: value for name, value in GOOD.items() if name != "recipe"}
    assert made.parameters == own | Adaptation(layers=2).model_dump() and made.recipe == Adaptation(layers=2)
    without = {name: value for name, value in GOOD.items() if name != "loss"}
    for given, name in ((without, "loss"), (without | {"los": "softmax"}, "'los'")):  # the misspelt one says more
        with pytest.raises(SettingError, match=name):
            Experiment("12", given, Adaptation, **TYPES)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"los": "softmax"}, ["'los'", "'loss'", "batch_size, collections"]),
        ({"layers": 2}, ["'layers'", "recipe"]),  # of the recipe, and not of the cell
        ({"loss": "sofmax"}, ["loss = 'sofmax'", "Did you mean 'softmax'", "triplet"]),
        ({"batch_size": 0}, ["batch_size = 0", "1"]),
        ({"batch_size": True}, ["batch_size = True"]),
        ({"batch_size": 10**50}, ["batch_size = 1000"]),
        ({"margin": float("nan")}, ["margin = nan"]),
        ({"scale": float("inf")}, ["scale = inf"]),
        ({"scale": 0.0}, ["scale = 0.0"]),
        ({"k1": -0.1}, ["k1 = -0.1"]),
        ({"hidden": 1}, ["hidden = 1"]),
        ({"collections": ["quroa"]}, ["collections[0] = 'quroa'", "'quora'", "pydocs"]),
        ({"collections": "quora"}, ["collections = 'quora'", "-y"]),  # a list by -p
        ({"collections": ["quora", "quora"]}, ["collections = "]),
        ({"tasks": {"Z": "quora"}}, ["tasks", "P, Q"]),
        ({"files": {"GloVe": 5}}, ["files['GloVe'] = 5"]),
        ({"other": "quora"}, ["other = 'quora'", "wikispeedia"]),
        ({"system": []}, ["system = []"]),
        ({"system": ["a", "a"]}, ["system = ['a', 'a']"]),
        ({"seeds": [2**31]}, ["seeds[0] = 2147483648"]),
        ({"seeds": [1, 2, 1]}, ["seeds = [1, 2, 1]"]),
        ({"source": "paper"}, ["source = 'paper'", "reference, run"]),
        ({"profile": "laptpo"}, ["profile = 'laptpo'", "'laptop'"]),
        ({"recipe": 3}, ["recipe = 3"]),
        ({"recipe": '{"layers": 2'}, ["recipe = ", "line 1"]),
        ({"recipe": '{"layerz": 2}'}, ["recipe", "'layerz'", "'layers'"]),
        ({"recipe": '{"layers": -1}'}, ["recipe['layers'] = -1"]),
        ({"recipe": {"width": 100}}, ["recipe['width'] = 100", "64"]),  # whole heads
        ({"recipe": {"articles": "pydoc"}}, ["recipe['articles'] = 'pydoc'", "'pydocs'"]),
        ({"recipe": {"finetuning": {"batch_size": 1}}}, ["recipe['finetuning']['batch_size'] = 1"]),
        ({"recipe": {"finetuning": {"step": 1}}}, ["recipe", "'step'", "'steps'", "epochs"]),
    ],
)
def test_a_wrong_parameter_is_named_once_with_what_is_valid_before_any_work(places, changes, names):
    with pytest.raises(SettingError) as caught:
        opened(**changes)
    told = str(caught.value)
    assert all(name in told for name in names), told
    assert len(told) < 2000 and all(told.count(f"{name} = ") <= 1 for name in changes)
    assert not (places / "build").exists()


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        ({"0.05": 0}, "['0.05'] = 0"),
        ({"0.8": {"squad": 0}}, "['0.8']['squad'] = 0"),
        ({"0.8": {"squat": 3}}, "['0.8']['squat'] = 'squat'"),
        ({"0.8": [3]}, "['0.8'] = [3]"),
    ],
)
def test_of_a_union_the_place_is_named_that_is_wrong(steps, place):
    with pytest.raises(SettingError, match=re.escape(f"finetuning_steps{place}")):
        check(LabelShares, {"finetuning_steps": steps})


def test_a_recipe_may_come_as_json_which_papermill_gives_for_a_mapping():
    given = {"layers": 2, "finetuning": {"epochs": 2.0}}
    assert opened(recipe=json.dumps(given)).parameters == opened(recipe=given).parameters


def test_a_rerun_of_the_cell_is_not_disturbed_by_the_notebooks_own_names():
    namespace = GOOD | {"profile": "explore"}
    namespace["recipe"] = Experiment("12", namespace, Adaptation, **TYPES).recipe  # as a chapter's cell does
    namespace |= {"answer": 42, "loss": "triplet"}  # a plain value that a later cell left behind
    again = Experiment("12", namespace, Adaptation, **TYPES)
    assert again.parameters["loss"] == "triplet" and again.recipe == namespace["recipe"]
    again.record("S", "toy", "P@1", 0.5, 0)
    again.save()
    namespace["loss"] = "nope"
    with pytest.raises(SettingError, match="softmax"):
        Experiment("12", namespace, Adaptation, **TYPES)


def test_a_loss_that_a_cell_registers_is_valid(monkeypatch):
    monkeypatch.setattr(losses.LOSSES, "_things", dict(losses.LOSSES._things))
    losses.register("mine")(lambda scores, targets: scores.mean())
    losses.register("mine, one", one_positive=True)(lambda scores, targets: scores.sum())
    assert Ranking(query_loss="mine").ltre().loss == "mine"
    for name in ("mine, one", "softmax"):  # which take one positive of a query
        with pytest.raises(SettingError, match=f"'{name}'.*lambdarank-mrr"):
            check(Ranking, {"query_loss": name})


@pytest.mark.parametrize("name", notebook_files.names(ROOT))
def test_a_chapter_has_fifteen_parameters_at_most_and_each_profile_a_recipe_for_it(name):
    notebook = ROOT / "notebooks" / f"{name}.ipynb"
    declared = notebook_files.default_parameters(notebook)
    assert len(declared) <= 15
    if "recipe" in declared:
        code = "".join(map(notebook_files.source, notebook_files.cells(notebook)))
        (kind,) = re.findall(r"globals\(\),\s*(\w+),", code)
        model = getattr(recipes, kind)
        assert not {*model.model_fields} & {*declared}
        for profile in notebook_files.profiles(ROOT):
            if profile != "paper":  # whose data plug-ins bring
                check(model, notebook_files.at_profile(ROOT, profile, name)["recipe"])


def test_a_long_value_is_cut():
    assert short_repr([1, "a"]) == "[1, 'a']"
    assert len(short_repr("x" * 100_000)) < 600 and short_repr("x" * 100_000).startswith("'xxx")


# --- what is recorded ------------------------------------------------------------------------------

MEASURES = ("AP@100",)


def desk(**changes):
    return Experiment("12", {"profile": "quick", "seeds": [0], "source": "run", **changes})


def perfect(toy, shift=0):
    """Ranks one relevant document of each test query first, or one that is not."""
    queries = toy.split("test")
    first = toy.qrels.drop_duplicates("query_id").set_index("query_id")["doc_id"][queries.index]
    rows = (toy.documents.index.get_indexer(first) + shift) % len(toy.documents)
    run = make_run(queries.index, toy.documents.index, np.ones((len(queries), 1)), rows[:, None])
    return Outcome(run, {"k1": 0.9}, Cost(30, 1.5, ((0, 0.25), (30, 0.5), (60, 0.375))))


def test_a_measured_system_is_recorded_with_everything_beside_it(toy):
    made = desk()
    made.measure("S", toy, 3, lambda: perfect(toy), ["P@1", "AP@100"])
    rows, count = made.results.rows.set_index("measure"), len(toy.split("test"))
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
        made.measure("S", toy, 3, lambda: perfect(toy), measures)
    made.measure("T", toy, 3, Outcome(perfect(toy).run, {}), ["P@1"])  # not trained
    made.record_curve("S", "other", 3, Cost(0, 1.0, ((0, 0.5), (9, 0.25))))
    made.save()
    found = results.load("12", "quick").tables["learning"]
    assert found.to_numpy().tolist() == [
        ["S", "toy", 3, 0, 25, False], ["S", "toy", 3, 30, 50, True], ["S", "toy", 3, 60, 37.5, False],
        ["S", "other", 3, 0, 50, True], ["S", "other", 3, 9, 25, False],
    ]  # fmt: skip
    assert found.columns.tolist() == ["system", "collection", "seed", "step", "score", "kept"]


def test_an_outcome_that_is_at_hand_is_recorded_as_one_that_is_made_without_its_time(toy):
    desks = desk(), desk()
    for each, outcome in zip(desks, (perfect(toy), lambda: perfect(toy)), strict=True):
        each.measure("S", toy, 3, outcome, ["P@1", "AP@100"])
    given, made = (each.results.rows for each in desks)
    assert given["wall"].isna().all() and made["wall"].notna().all()
    own = ["wall", "recorded", "peak_memory", "load"]  # of each recording
    pd.testing.assert_frame_equal(given.drop(columns=own), made.drop(columns=own))


def test_provenance_is_recorded_with_every_result(toy):
    task, made, other = toy.candidates("test"), desk(), desk()
    made.measure("S", task, 0, lambda: perfect(task), MEASURES)
    recorded = json.loads(made.results.rows["data"][0])
    assert recorded == {"fingerprint": task.fingerprint, "toy.txt": "written for the tests"}
    plain = replace(task, queries=task.queries.drop(columns="cluster"))  # queries are clusters of their own
    other.measure("S", plain, 0, lambda: perfect(plain), MEASURES)
    clusters = other.results.clusters(plain.name, "test", "AP@100")
    assert (clusters == clusters.index).all()
    with pytest.raises(DataError, match="test"):  # before the work
        desk().measure("S", toy.candidates("dev"), 0, lambda: pytest.fail("worked"), MEASURES)


def saved(profile, system, toy, seed=0, shift=0):
    made = desk(profile=profile, seeds=[seed])
    made.measure(system, toy, seed, lambda: perfect(toy, shift), MEASURES)
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


def publish(toy):
    """Record a run of two seeds where the published results lie."""
    made = desk()
    for seed in (0, 1):
        made.measure("S", toy, seed, lambda: perfect(toy), MEASURES)
    shown = made.table("curve", lambda: pd.DataFrame({"x": [1.5]}))
    shown["x"] = "1.5 seconds"  # for the page alone
    made.results.save(results.reference_folder("quick", "12"))


def test_a_reference_page_computes_nothing_and_shows_what_is_recorded(toy):
    publish(toy)
    made = desk(source="reference", seeds=[0, 5])
    made.measure("S", None, 0, lambda: pytest.fail("worked"), MEASURES)
    made.record("S", "toy", "seconds", 1.0, 0)
    assert made.load("no such collection") is None
    assert made.table("curve", lambda: pytest.fail("worked"))["x"].tolist() == [1.5]
    made.save()
    assert not made.live and made.parameters["seeds"] == [0, 1]  # what was recorded, not what was asked for
    assert made.results.per_query("toy", "test", "AP@100", "S").columns.tolist() == [0, 1]
    assert results.load("12", "quick", "run") is None


def test_neither_a_reference_page_shows_an_own_run_nor_a_run_what_was_before(toy):
    with pytest.raises(DataError, match="12.*'quick'"):
        desk(source="reference")
    publish(toy)
    with pytest.raises(DataError, match="'map'"):
        desk(source="reference").table("map", lambda: None)
    assert desk().results.rows.empty
    saved("quick", "own", toy)
    assert desk(source="reference").results.rows["system"].unique().tolist() == ["S"]
    found = saved("quick", "T", toy)
    assert found.rows["system"].tolist() == found.systems("toy", "test", "AP@100") == ["T"]
    assert found.tables["curve"].to_dict("list") == {"system": ["T"]}


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
        types = {"looks": Natural, "few_seeds": Distinct[Natural]}
        made = Experiment("12_a", {"profile": profile, **given}, LabelShares, **types)
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
    made = Experiment("12", namespace, LabelShares, steps=Natural)
    assert (made.parameters["steps"], namespace["steps"], namespace["seeds"]) == (300, 300, [0])
    assert made.recipe.layers == made.parameters["layers"] == namespace["recipe"].layers == 2
