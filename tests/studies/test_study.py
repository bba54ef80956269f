"""Studies: settings that validation chooses, learning curves, and which systems a parameter names."""

from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest

from retlib.core.errors import DataError, SettingError
from retlib.evaluation.measures import evaluate
from retlib.evaluation.results import as_json
from retlib.retrieval.lexical import BM25, TfIdf
from retlib.studies import study
from retlib.studies.part1 import bag_of_words, pairs
from retlib.studies.study import Study, best, changed, chosen, learning_curves, tune
from retlib.systems.compose import Lexical
from retlib.systems.system import System, Target, fit
from retlib.training import trainer

BAG = System(bag_of_words(16)) + pairs(batch_size=24, epochs=6)


@pytest.fixture(scope="module")
def trials():
    weak, good = BAG.with_last(learning_rate=1e-6, epochs=1), BAG.with_last(scale=10)
    return {"words": [Lexical(BM25(b=1.0)), Lexical(BM25(b=0.0)), Lexical(TfIdf())], "bag": [weak, good, BAG]}


@pytest.fixture(scope="module")
def table(toy, trials):
    return tune(trials, toy, seed=0)


def validated(system, toy):
    run = system.run(Target(toy), 0, "dev", 100)
    return evaluate(run, toy.judgments("dev"), ["AP@100"])["value"].mean()


def test_every_trial_is_validated_and_the_best_of_each_system_is_chosen(toy, trials, table):
    assert table["system"].tolist() == ["words"] * 3 + ["bag"] * 3 and set(table["collection"]) == {"toy"}
    every = [system for each in trials.values() for system in each]
    assert table["AP@100"].tolist() == [validated(system, toy) for system in every]
    for _, part in table.groupby("system"):
        assert part["chosen"].sum() == 1 and part["AP@100"][part["chosen"]].item() == part["AP@100"].max()
    assert table["AP@100"].nunique() > 3
    equal = [Lexical(BM25()), Lexical(BM25(k1=1.2))]
    assert tune({"a": equal}, Target(toy))["chosen"].tolist() == [True, False]
    without = toy.part(queries=toy.queries["split"] != "test")  # no test query takes part
    found = tune({"words": trials["words"]}, Target(without))
    assert found["AP@100"].tolist() == table["AP@100"][:3].tolist()
    words, bag = (part.reset_index() for _, part in table.groupby("system", sort=False))
    assert words["b"][:2].tolist() == [1, 0] and words["steps"].isna().all()
    assert bag["learning_rate"].tolist() == [1e-6, 0.01, 0.01] and bag["scale"].tolist() == [20, 10, 20]
    assert bag["steps"].tolist() == [fit(each, toy, 0).history.best_step for each in trials["bag"]]
    assert (bag["seconds"] > 0).all()


def test_what_is_chosen_is_the_trial_itself(toy, trials, table, monkeypatch):
    found = best(trials, table)
    assert list(found) == ["words", "bag"]
    for name, system in found.items():
        place = table[table["system"] == name]["chosen"].tolist().index(True)
        assert system is trials[name][place]
    trained = []
    monkeypatch.setattr(trainer, "train", lambda *given: trained.append(given))
    fit(found["bag"], toy, 0)
    assert trained == []
    # A table that was recorded with more systems than are asked for.
    assert list(best({"bag": trials["bag"]}, table)) == ["bag"]


def test_learning_curves_are_those_of_the_trainings(toy):
    systems = {"slow": BAG.with_last(learning_rate=1e-4), "fast": BAG}
    found = learning_curves(systems, toy, [0, 1])
    assert found.groupby(["system", "seed"], sort=False).ngroups == 4
    mine = found[(found["system"] == "fast") & (found["seed"] == 1)].drop(columns=["system", "seed"])
    pd.testing.assert_frame_equal(mine.reset_index(drop=True), fit(BAG, toy, 1).history.frame())


def test_a_change_of_the_last_stage_leaves_the_others():
    chain = BAG + replace(BAG.stages[0], loss="triplet")
    changed = chain.with_last(learning_rate=0.5)
    assert changed.stages == (chain.stages[0], replace(chain.stages[1], learning_rate=0.5))
    with pytest.raises(SettingError, match="'nope'"):
        chain.with_last(loss="nope")


SYSTEMS = {"BM25": 1, "LTRe": 2, "Rand Neg": 3}


@pytest.mark.parametrize(
    ("names", "expected"),
    [("all", list(SYSTEMS)), ("LTRe", ["LTRe"]), (["Rand Neg", "BM25"], ["BM25", "Rand Neg"])],
)
def test_a_parameter_names_all_one_or_several(names, expected):
    assert list(chosen(SYSTEMS, names)) == expected


@pytest.mark.parametrize("names", ["LTR", ["BM25", "LTR"]])
def test_an_unknown_name_is_named(names):
    with pytest.raises(SettingError, match="'LTR'.*'LTRe'"):
        chosen(SYSTEMS, names)


def recorded(*systems):
    """Rows of systems, as a study records them."""
    rows = [{"system": name, "parameters": as_json(system.settings)} for name, system in systems]
    return pd.DataFrame([*rows, {"system": "count", "parameters": None}])


def test_rows_of_systems_that_were_trained_otherwise_are_told():
    longer, deeper = BAG.with_last(epochs=7), BAG + BAG.stages[0]
    rows = recorded(("same", BAG), ("longer", BAG), ("deeper", BAG), ("at two shares", BAG), ("at two shares", longer))
    now = {"same": BAG, "longer": longer, "deeper": deeper, "at two shares": longer, "not recorded": BAG}
    assert changed({**now, "BM25": Lexical(BM25())}, rows) == ["longer", "deeper"]


def test_rows_of_encoders_from_before_there_were_stages_are_told():
    rows = pd.DataFrame([{"system": "gone", "parameters": as_json({"encoder": "transformer"})}])
    assert changed({"bag": BAG}, pd.concat([rows, recorded(("another study's", BAG))])) == ["gone"]


def test_a_setting_that_came_later_is_off_in_rows_from_before():
    rows = recorded(("bag", BAG))
    for later in ('"token_dropout": 0.0, ', '"corrected": false, '):
        assert later in rows["parameters"][0]
        rows["parameters"] = rows["parameters"].str.replace(later, "")
    assert changed({"bag": BAG}, rows) == []
    assert changed({"bag": BAG.with_last(options={"corrected": True})}, rows) == ["bag"]


def test_some_systems_are_recorded_with_further_seeds(toy):
    seen = []
    desk = MagicMock(live=True, parameters={"seeds": [0]})
    desk.measure = lambda name, test, seed, make, measures: seen.append((name, seed))
    Study({"bag": BAG, "BM25": Lexical(BM25())}, [toy], ["AP@100"]).run(desk, further_seeds=[1, 0])
    assert seen == [("bag", 0), ("BM25", 0), ("bag", 1)]


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test adds them."""
    seconds = [0.0]
    monkeypatch.setattr(study.time, "perf_counter", lambda: seconds[0])
    return seconds


def test_each_query_is_timed_alone_and_the_first_ones_are_answered_before(clock, monkeypatch):
    monkeypatch.setattr(study, "WARM_UP", 2)
    answered = []

    def answer(query):
        # What comes first is slow: it must not be seen.
        clock[0] += 100 if len(answered) < 2 else query
        answered.append(query)

    times = study.milliseconds(answer, [0.25, 0.5, 0.125])
    assert answered == [0.25, 0.5, 0.25, 0.5, 0.125]
    assert times.dtype == np.float64 and times.tolist() == [250, 500, 125]
    with pytest.raises(DataError):
        study.milliseconds(len, [])
