"""The profile of the papers' own settings: every setting is held, and every chapter can be declared."""

import json
import math
import re
from functools import cache
from typing import Any

import pages
import paper_scale
import part3_pages
import part4_pages
import pytest
import yaml
from conftest import make_toy
from torch import nn

from retlib.core import runtime
from retlib.data import passages, splits
from retlib.data.datasets import ARTICLES, COLLECTIONS
from retlib.models import baselines, checkpoints
from retlib.report import claims
from retlib.studies import study
from retlib.studies.part1 import AveragedWords
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import System
from retlib.training.trainer import OPTIMIZERS
from retlib.workflow import notebooks

ROOT = runtime.root()
HELD = yaml.safe_load((ROOT / "data" / "papers" / "settings.yaml").read_text())
SETTINGS = claims.papers_table("settings").set_index(["paper", "component", "setting"])["value"]
PLANS = {name: plan for name, plan in notebooks.plan(ROOT, "paper").items() if plan.parameters["profile"] == "paper"}
# What a setting's expression may name beside what its notebook declares.
BESIDE = {"passages": passages, "splits": splits, "wordvectors": baselines}
# What a plug-in must bring, as the head of the profile says.
BROUGHT = {"wikipedia": ARTICLES}
BROUGHT |= dict.fromkeys(("askubuntu", "paralex", "antique", "trec-car", "msmarco"), COLLECTIONS)
UNITS = {"M": 1e6, "K": 1e3, "k": 1e3, "%": 0.01, "": 1}


@pytest.fixture(autouse=True, scope="module")
def plugin():
    with pytest.MonkeyPatch.context() as patch:
        for name, registry in BROUGHT.items():
            patch.setitem(registry._things, name, make_toy)
        yield


def entries():
    """Each entry of settings.yaml under its paper, component and setting."""
    return {
        (paper, component, setting): entry
        for paper, components in HELD.items()
        for component, settings in components.items()
        for setting, entry in settings.items()
    }


def compared():
    return {key: entry for key, entry in entries().items() if "page" in entry and isinstance(entry, dict)}


@cache
def declared(page):
    """What a notebook declares with the profile's parameters: no data, no weights, no training."""
    given = dict(PLANS[page].parameters)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "best", lambda trials, _: {name: each[0] for name, each in trials.items()})
        patch.setattr(checkpoints, "described", lambda name: {"width": 768, "dimension": 768, "checkpoint": name})
        if page.startswith("4"):
            names, studies = part4_pages.declared(page, **given | {"profile": "explore", "source": "run"}), []
        elif page.startswith("2"):  # whose tests need labels; recorded rows need none
            patch.setattr("retlib.studies.experiment.notebook_files.at_profile", lambda *_: given)
            names, studies = pages.declared(page, given | {"profile": "laptop"})
        elif page.startswith("1"):
            patch.setattr(
                pages, "WORDS", (*pages.WORDS, "experiment.load(", "bag_of_words(", "bm25 =", "trials = {name")
            )
            names, studies = pages.declared(page, given, make_toy)
        else:
            names, studies = part3_pages.declared(page, given)
    (adamw,) = OPTIMIZERS["adamw"](nn.Linear(1, 1), 1.0)
    return {**BESIDE, "paper_scale": paper_scale, "adamw": adamw, **names, "studies": studies}


# --- the settings ----------------------------------------------------------------------------------


def test_every_setting_is_held_and_nothing_else_and_what_is_not_stated_is_what_the_papers_do_not_state():
    assert set(entries()) == set(SETTINGS.index)
    silent = {key for key, value in SETTINGS.items() if value.startswith("not stated")}
    assert {key for key, entry in entries().items() if entry == "not stated"} == silent


def test_an_entry_has_one_of_the_known_forms():
    forms = [{"page", "says", "is"}, {"page", "says", "is", "but"}, {"fixed"}, {"differs"}, {"beside"}]
    for key, entry in entries().items():
        assert entry == "not stated" or (set(entry) in forms and all(entry[part] != "" for part in entry)), key
    assert {entry["beside"] for entry in entries().values() if "beside" in entry} == {"a machine", "a time"}


@pytest.mark.parametrize("key", compared(), ids=" | ".join)
def test_a_setting_of_the_profile_is_the_paper_s(key):
    entry = compared()[key]
    found = eval(entry["says"], declared(entry["page"]))
    exact = not isinstance(entry["is"], float)  # what is computed may be rounded
    assert found == (entry["is"] if exact else pytest.approx(entry["is"], rel=1e-9))


def numbers(value: Any) -> list[float]:
    """The numbers in a value."""
    parts = value if isinstance(value, list) else [value]
    return [float(each) for each in parts if isinstance(each, int | float) and not isinstance(each, bool)]


@pytest.mark.parametrize("key", [key for key, entry in compared().items() if numbers(entry["is"])], ids=" | ".join)
def test_the_expected_numbers_are_those_of_the_table(key):
    text = SETTINGS[key].replace(",", " ")
    printed = [float(n) * UNITS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?(?:e-?\d+)?)([MKk%]?)", text)]
    printed += [float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)]
    for expected in numbers(compared()[key]["is"]):
        assert any(math.isclose(expected, each) for each in printed), (expected, SETTINGS[key])


@pytest.mark.parametrize("key", [key for key, entry in entries().items() if "fixed" in entry], ids=" | ".join)
def test_what_the_code_fixes_is_where_it_is_said_to_be(key):
    path, name = entries()[key]["fixed"].split("::")
    assert re.search(rf"^(def|class) {name}\b", (ROOT / path).read_text(), re.M)


# --- the profile -----------------------------------------------------------------------------------


def test_the_profile_has_every_chapter_that_tests_a_paper():
    chapters = {path.stem for path in (ROOT / "notebooks").glob("[1-4][1-5]_*.ipynb")}
    assert set(PLANS) == chapters and all(plan.parameters["source"] == "run" for plan in PLANS.values())


@pytest.mark.parametrize("page", PLANS)
def test_a_chapter_can_be_declared_at_the_papers_settings(page):
    names, given = declared(page), dict(PLANS[page].parameters)
    told, given = names["experiment"].parameters, given | given.pop("recipe", {})
    for name in given.keys() - {"profile", "source", "seeds"}:
        assert json.loads(json.dumps(told[name])) == given[name]
    if page != "21_pretraining_tasks":  # which only draws pairs
        assert any(isinstance(value, System | AveragedWords | QueryGenerator) for value in flat(names.values()))


def flat(values):
    """Values, and those of mappings and lists."""
    for value in values:
        if isinstance(value, dict | list):
            yield from flat(value.values() if isinstance(value, dict) else value)
        yield value


def test_chapters_share_what_they_train():
    first, pair, time = (declared(page) for page in ("42_first_stage", "43_two_stage", "45_training_time"))
    assert pair["systems"]["LTRe"].settings == first["systems"]["LTRe (ANCE)"].settings
    assert time["bm25"].settings == first["systems"]["BM25 Neg"].settings
    assert first["start"].architecture.checkpoint and first["systems"]["In-batch"] == first["start"]
    zero, ablation = (declared(page)["learned"] for page in ("32_zero_shot", "33_ablations"))
    assert zero["msmarco"].architecture == ablation["msmarco"].architecture
