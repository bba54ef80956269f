"""The profile of the papers' own settings: every setting is held, and every chapter can be declared."""

import json
import math
import re
from functools import cache

import pages
import part3_pages
import part4_pages
import pytest
import yaml
from conftest import make_toy
from torch import nn

from retlib.core import runtime
from retlib.data import collection, passages
from retlib.data.datasets import ARTICLES, COLLECTIONS
from retlib.models import baselines, checkpoints
from retlib.report.papers import papers_table
from retlib.studies import study
from retlib.studies.part1 import AveragedWords
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import System
from retlib.training.trainer import OPTIMIZERS
from retlib.workflow import notebooks

import paper_scale

ROOT = runtime.root()
SETTINGS = papers_table("settings").set_index(["paper", "component", "setting"])["value"]
PLANS = {name: plan for name, plan in notebooks.plan(ROOT, "paper").items() if plan.parameters["profile"] == "paper"}
# What a setting's expression may name beside what its notebook declares.
BESIDE = {"passages": passages, "splits": collection, "wordvectors": baselines}
# What a plug-in must bring, as the head of the profile says.
BROUGHT = {"wikipedia": ARTICLES}
BROUGHT |= dict.fromkeys(("askubuntu", "paralex", "antique", "trec-car", "msmarco"), COLLECTIONS)
UNITS = {"M": 1e6, "K": 1e3, "k": 1e3, "%": 0.01, "": 1}


# Each entry of settings.yaml under its paper, component and setting.
ENTRIES = {
    (paper, component, setting): entry
    for paper, components in yaml.safe_load((ROOT / "data" / "papers" / "settings.yaml").read_text()).items()
    for component, settings in components.items()
    for setting, entry in settings.items()
}
COMPARED = {key: entry for key, entry in ENTRIES.items() if isinstance(entry, dict) and "page" in entry}


@pytest.fixture(autouse=True, scope="module")
def plugin():
    with pytest.MonkeyPatch.context() as patch:
        for name, registry in BROUGHT.items():
            patch.setitem(registry._things, name, make_toy)
        yield


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
            words = "experiment.load(", "bag_of_words(", "bm25 =", "trials = {name"
            patch.setattr(pages, "WORDS", (*pages.WORDS, *words))
            names, studies = pages.declared(page, given, make_toy)
        else:
            names, studies = part3_pages.declared(page, given)
    (adamw,) = OPTIMIZERS["adamw"](nn.Linear(1, 1), 1.0)
    return {**BESIDE, "paper_scale": paper_scale, "adamw": adamw, **names, "studies": studies}


def test_every_setting_is_held_in_one_of_the_forms_and_nothing_else():
    assert set(ENTRIES) == set(SETTINGS.index)
    forms = [{"page", "says", "is"}, {"page", "says", "is", "but"}, {"fixed"}, {"differs"}, {"beside"}]
    for key, entry in ENTRIES.items():
        assert (entry == "not stated") is SETTINGS[key].startswith("not stated"), key
        assert entry == "not stated" or (set(entry) in forms and "" not in entry.values()), key


@pytest.mark.parametrize("key", COMPARED, ids=" | ".join)
def test_a_setting_of_the_profile_is_the_paper_s_and_its_numbers_are_those_of_the_table(key):
    expected = COMPARED[key]["is"]
    exact = not isinstance(expected, float)  # what is computed may be rounded
    value = eval(COMPARED[key]["says"], declared(COMPARED[key]["page"]))
    assert value == (expected if exact else pytest.approx(expected, rel=1e-9))
    text = SETTINGS[key].replace(",", " ")
    printed = [float(n) * UNITS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?(?:e-?\d+)?)([MKk%]?)", text)]
    printed += [float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)]
    for each in expected if isinstance(expected, list) else [expected]:
        is_number = isinstance(each, int | float) and not isinstance(each, bool)
        assert not is_number or any(math.isclose(each, number) for number in printed), (each, text)


@pytest.mark.parametrize("key", [key for key, entry in ENTRIES.items() if "fixed" in entry], ids=" | ".join)
def test_what_the_code_fixes_is_where_it_is_said_to_be(key):
    path, name = ENTRIES[key]["fixed"].split("::")
    assert re.search(rf"^(def|class) {name}\b", (ROOT / path).read_text(), re.M)


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
