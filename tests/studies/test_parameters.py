"""Parameters of chapters: what a cell may say, what is said of what it may not, and what its recipe holds."""

import json
import re
from typing import Literal

import pytest

from retlib.core import notebook_files, runtime
from retlib.core.errors import SettingError, shown
from retlib.studies import recipe as recipes
from retlib.studies.experiment import Experiment
from retlib.studies.parameters import CollectionName, Many, Names, Number, Positive, Share, Text, TextName, check
from retlib.studies.recipe import Adaptation, Ranking
from retlib.training import losses

TYPES = {
    "loss": Literal["softmax", "triplet"],
    "batch_size": Positive,
    "margin": Share,
    "scale": Number,
    "hidden": bool,
    "collections": Many[CollectionName],
    "tasks": dict[Literal["P", "Q"], CollectionName],
    "files": dict[Text, Text],
    "other": TextName,
    "system": Names,
}
GOOD = {
    "profile": "quick", "seeds": [0, 1], "source": "run", "recipe": {}, "loss": "softmax", "batch_size": 1000,
    "margin": 0.5, "scale": 1.0, "hidden": False, "collections": ["quora"], "files": {}, "other": "pydocs",
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
        ({"loss": "sofmax"}, ["loss = 'sofmax'", "'softmax'", "'triplet'"]),
        ({"batch_size": 0}, ["batch_size = 0", "1"]),
        ({"batch_size": 10.0}, ["batch_size = 10.0"]),
        ({"batch_size": True}, ["batch_size = True"]),
        ({"batch_size": 10**5000}, ["batch_size = a value of type int"]),
        ({"margin": float("nan")}, ["margin = nan"]),
        ({"margin": 1.5}, ["margin = 1.5", "1"]),
        ({"scale": float("inf")}, ["scale = inf"]),
        ({"hidden": 1}, ["hidden = 1"]),
        ({"collections": ["quroa"]}, ["collections[0] = 'quroa'", "'quora'", "pydocs"]),
        ({"collections": "quora"}, ["collections = 'quora'", "-y"]),  # a list by -p
        ({"collections": ["quora", "quora"]}, ["collections = "]),
        ({"tasks": {"Z": "quora"}}, ["tasks", "'P'", "'Q'"]),
        ({"files": {"GloVe": 5}}, ["files['GloVe'] = 5"]),
        ({"other": "quora"}, ["other = 'quora'", "wikipedia-2015"]),
        ({"system": []}, ["system = []"]),
        ({"system": 3}, ["system = 3"]),
        ({"seeds": [2**31]}, ["seeds[0] = 2147483648"]),
        ({"seeds": [1, 2, 1]}, ["seeds = [1, 2, 1]"]),
        ({"source": "paper"}, ["source = 'paper'", "'reference'", "'run'"]),
        ({"profile": "laptpo"}, ["profile = 'laptpo'", "'laptop'"]),
        ({"recipe": 3}, ["recipe = 3"]),
        ({"recipe": '{"layers": 2'}, ["recipe = ", "line 1"]),
        ({"recipe": {"layerz": 2}}, ["recipe", "'layerz'", "'layers'"]),
        ({"recipe": '{"layerz": 2}'}, ["recipe", "'layerz'", "'layers'"]),
        ({"recipe": {"layers": -1}}, ["recipe['layers'] = -1"]),
        ({"recipe": {"width": 100}}, ["recipe['width'] = 100", "64"]),  # whole heads
        ({"recipe": {"articles": "pydoc"}}, ["recipe['articles'] = 'pydoc'", "'pydocs'"]),
        ({"recipe": {"finetuning": {"batch_size": 1}}}, ["recipe['finetuning']['batch_size'] = 1"]),
        ({"recipe": {"finetuning": {"step": 1}}}, ["recipe", "'step'", "'steps'", "epochs"]),
    ],
)
def test_a_wrong_parameter_is_named_once_with_what_is_valid_before_any_work(own_build, changes, names):
    with pytest.raises(SettingError) as caught:
        opened(**changes)
    told = str(caught.value)
    assert all(name in told for name in names), told
    assert len(told) < 2000 and all(told.count(f"{name} = ") <= 1 for name in changes)
    assert not own_build.exists()


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
        check(recipes.LabelShares, {"finetuning_steps": steps})


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
    with pytest.raises(SettingError, match="'softmax'"):
        Experiment("12", namespace, Adaptation, **TYPES)


def test_a_loss_that_a_cell_registers_is_known(monkeypatch):
    monkeypatch.setattr(losses.LOSSES, "_things", dict(losses.LOSSES._things))
    losses.register("mine")(lambda scores, targets: scores.mean())
    losses.register("mine, one", one_positive=True)(lambda scores, targets: scores.sum())
    assert Ranking(query_loss="mine").ltre().loss == "mine"
    for name in ("mine, one", "softmax"):  # which take one positive of a query
        with pytest.raises(SettingError, match=f"'{name}'.*lambdarank-mrr"):
            check(Ranking, {"query_loss": name})


ROOT = runtime.root()


@pytest.mark.parametrize("name", notebook_files.names(ROOT))
def test_a_chapter_has_fifteen_parameters_at_most_and_each_profile_a_recipe_for_it(name):
    notebook = ROOT / "notebooks" / f"{name}.ipynb"
    declared = notebook_files.declared(notebook)
    assert len(declared) <= 15
    if "recipe" in declared:
        code = "".join(map(notebook_files.source, notebook_files.cells(notebook)))
        (kind,) = re.findall(r"globals\(\),\s*(\w+),", code)
        model = getattr(recipes, kind)
        assert not {*model.model_fields} & {*declared}
        for profile in notebook_files.profiles(ROOT):
            if profile != "paper":  # whose data plug-ins bring
                check(model, notebook_files.at_profile(ROOT, profile, name)["recipe"])


def test_a_long_value_is_cut_and_one_without_a_representation_named_by_its_kind():
    assert shown([1, "a"]) == "[1, 'a']"
    assert len(shown("x" * 100_000)) < 600 and shown("x" * 100_000).startswith("'xxx")
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "a value of type list"
