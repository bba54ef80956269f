"""Studies: settings that validation chooses, systems that a parameter names, further seeds, latencies."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.evaluation.measures import evaluate
from retlib.retrieval.lexical import BM25, TfIdf
from retlib.studies import study
from retlib.studies.part1 import bag_of_words, pair_stage
from retlib.studies.study import Study, best, record_latencies, select, tune, with_further
from retlib.systems.compose import Lexical
from retlib.systems.system import System, Target, fit

BAG = System(bag_of_words(16)) + pair_stage(batch_size=24, epochs=6)


def test_every_trial_is_validated_and_the_best_of_each_system_is_chosen(toy):
    weak, good = BAG.with_last(learning_rate=1e-6, epochs=1), BAG.with_last(scale=10)
    trials = {"words": [Lexical(BM25(b=1.0)), Lexical(BM25(b=0.0)), Lexical(TfIdf())], "bag": [weak, good, BAG]}
    table = tune(trials, toy, seed=0)
    assert table["system"].tolist() == ["words"] * 3 + ["bag"] * 3 and set(table["collection"]) == {"toy"}
    runs = [system.run(Target(toy), 0, "dev", 100) for each in trials.values() for system in each]
    values = [evaluate(run, toy.judgments("dev"), ["AP@100"])["value"].mean() for run in runs]
    assert table["AP@100"].tolist() == values and table["AP@100"].nunique() > 3
    chosen = best(trials, table)
    for name, part in table.groupby("system"):
        assert part["chosen"].sum() == 1 and part["AP@100"][part["chosen"]].item() == part["AP@100"].max()
        assert chosen[name] is trials[name][part["chosen"].tolist().index(True)]
    assert list(best({"bag": trials["bag"]}, table)) == ["bag"]  # the table was recorded with more systems
    without = toy.part(queries=toy.queries["split"] != "test")  # no test query takes part
    assert tune({"words": trials["words"]}, Target(without))["AP@100"].tolist() == table["AP@100"][:3].tolist()
    words, bag = (part.reset_index() for _, part in table.groupby("system", sort=False))
    assert words["b"][:2].tolist() == [1, 0] and words["steps"].isna().all()
    assert bag["learning_rate"].tolist() == [1e-6, 0.01, 0.01] and bag["scale"].tolist() == [20, 10, 20]
    assert bag["steps"].tolist() == [fit(each, toy, 0).history.best_step for each in trials["bag"]]
    assert (bag["seconds"] > 0).all()


def test_of_equal_trials_the_first_is_chosen(toy):
    equal = [Lexical(BM25()), Lexical(BM25(k1=1.2))]
    assert tune({"a": equal}, Target(toy))["chosen"].tolist() == [True, False]


SYSTEMS = {"BM25": 1, "LTRe": 2, "Rand Neg": 3}


def test_a_parameter_names_all_one_or_several():
    assert select(SYSTEMS, "all") == SYSTEMS and list(select(SYSTEMS, "LTRe")) == ["LTRe"]
    assert list(select(SYSTEMS, ["Rand Neg", "BM25"])) == ["BM25", "Rand Neg"]
    for names in ("LTR", ["BM25", "LTR"]):
        with pytest.raises(SettingError, match="'LTR'.*'LTRe'"):
            select(SYSTEMS, names)


def test_further_systems_take_no_row_of_a_chapter():
    assert with_further(SYSTEMS, {"A": 4}, ["B"]) == SYSTEMS | {"A": 4}
    for label in ("LTRe", "B"):
        with pytest.raises(SettingError, match=f"'{label}'"):
            with_further(SYSTEMS, {label: 4}, ["B"])


def test_some_systems_are_recorded_with_further_seeds_or_on_some_tests_only(toy):
    seen, targets = [], [Target(toy), Target(toy.candidates("test"), toy)]
    desk = MagicMock(live=True, parameters={"seeds": [0]})
    desk.measure = lambda name, test, seed, make, measures: seen.append((name, test.name, seed))
    systems, only = {"bag": BAG, "BM25": Lexical(BM25())}, {"bag": ["toy-test"]}
    Study(systems, targets, ["AP@100"]).run(desk, only, further_seeds=[1, 0])
    assert seen == [("bag", "toy-test", 0), ("BM25", "toy", 0), ("BM25", "toy-test", 0), ("bag", "toy-test", 1)]
    assert Study(systems, [], []).run(SimpleNamespace(live=False)) is None  # a page of recorded rows


@pytest.mark.parametrize(("timed", "count"), [(3, 3), (10_000, 19)])
def test_questions_are_timed_one_by_one_after_the_first_were_answered(toy, monkeypatch, timed, count):
    seconds, found = [0.0], {}
    texts = toy.split("test")["text"].tolist()[:19]
    toy = toy.part(queries=toy.queries["text"].isin(texts))
    monkeypatch.setattr(runtime.time, "perf_counter", lambda: seconds[0])
    monkeypatch.setattr(study, "WARM_UP", 2)
    answered = []

    def search(query, k):
        # What comes first is slow: it must not be seen.
        seconds[0] += 100 if len(answered) < 2 else 0.25 if query["text"].item() == texts[0] else 0.5
        answered.append((*query["text"], k))

    def record(system, collection, measure, value, seed):
        found[system, seed, measure] = value

    desk = SimpleNamespace(parameters={"seeds": [2]}, record=record)
    record_latencies(desk, {"A": SimpleNamespace(searcher=lambda target, seed: search)}, Target(toy), timed)
    assert answered == [(text, 100) for text in [*texts[:2], *texts[:count]]]
    assert found["A", 2, "latency ms"] == 500 and found["A", 2, "latency p95 ms"] == 500 and len(found) == 2
