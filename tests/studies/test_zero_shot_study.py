"""The systems of Part III: on what each is trained and tested, and what is recorded of it; on NumPy's docstrings."""

import json
from dataclasses import replace

import ltre_slice
import numpy as np
import pandas as pd
import pytest
import zero_shot_slice
from zero_shot_slice import SHARED, SOURCE, TARGET, TESTED, stub, stubs

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.evaluation.measures import evaluate
from retlib.retrieval.lexical import BM25
from retlib.studies import zero_shot_study
from retlib.studies.experiment import COMMON, Experiment, check_parameters
from retlib.studies.zero_shot_study import (
    ADAPTED,
    COMPARED,
    GENERAL,
    MEASURES,
    OFFICIAL,
    ON_TARGET,
    PORTIONS,
    PRETRAINED,
    ablation_jobs,
    has_labels,
    zero_shot_jobs,
)  # fmt: skip
from retlib.systems import dense, query_generation, zero_shot
from retlib.systems.dense import Schedule

RULES = {**COMMON, **zero_shot_study.RULES, **zero_shot_study.TESTED}
GIVEN = {"profile": "smoke", "seeds": [0], "source": "run", **SHARED, **TESTED}


@pytest.fixture(scope="module")
def study():
    return zero_shot_slice.study()


@pytest.fixture(scope="module")
def tests():
    return zero_shot_slice.tests()


@pytest.fixture(scope="module")
def results(study, tests):
    """What notebook 32 records of three of its systems."""
    made = Experiment("32_zero_shot", {"profile": "smoke", "seeds": [0, 1], "source": "run"})
    zero_shot_study.record_lexical(made, study, tests, [TARGET, "of another generator"])
    jobs = {"Siamese | WikiGQ": list(tests), "Two-Tower | WikiGQ+FT(GQ)": [TARGET]}
    zero_shot_study.record_systems(made, study, jobs, tests, [0, 1])
    return made.results


# --- what trains -----------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch, study):
    """Trainings tell what they were asked for."""

    def training(parts, architecture, wordpiece, first, later, seed):
        assert (first, later) == (study.first, study.later) and wordpiece is study.prepared[0]
        return [part.name for part in parts], architecture.towers, architecture.dimension, seed

    monkeypatch.setattr(zero_shot, "chain", training)
    monkeypatch.setattr(dense, "pretrain", lambda *given: ("+".join(given[2]), given[1].towers, given[3].steps))
    monkeypatch.setattr(zero_shot, "fit", lambda start, _, __, part, schedule, seed: (start, part.name, schedule.steps))
    monkeypatch.setattr(zero_shot, "ict", lambda architecture, _, documents, schedule, seed: (
        architecture.towers, len(documents), schedule.steps, seed
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("system", "parts", "towers", "dimension"),
    [
        ("Siamese | WikiGQ", ["WikiGQ 1"], "siamese", 12),
        ("Two-Tower | WikiGQ", ["WikiGQ 1"], "two", 12),
        ("Siamese | WikiGQ, 20 %", ["WikiGQ 0.2"], "siamese", 12),
        ("Two-Tower | Source", [f"{SOURCE}, labels"], "two", 12),
        ("Siamese | WikiGQ+FT(GQ)", ["WikiGQ 1", f"{TARGET}, nucleus"], "siamese", 12),
        ("Siamese | Nucleus", [f"{TARGET}, nucleus"], "siamese", 12),
        ("Two-Tower | Beam", [f"{TARGET}, beam"], "two", 12),
        ("Siamese | Official data", [f"{TARGET}, labels"], "siamese", 12),
        ("Siamese | WikiGQ+FT(official)", ["WikiGQ 1", f"{TARGET}, labels"], "siamese", 12),
        ("Two-Tower | 64 dimensions", [f"{TARGET}, labels"], "two", 64),
    ],
)
def test_each_system_is_trained_on_what_it_is_called(study, told, system, parts, towers, dimension):
    assert study.retriever(system, study.targets[0], 7) == (parts, towers, dimension, 7)


def test_pretraining_tasks_are_given_as_many_steps(study, told):
    target = study.targets[0]
    assert study.retriever("Two-Tower | ICT", target, 7) == ("two", len(target.documents), 3, 7)
    found = study.retriever(COMPARED, target, 7)
    assert found == (("ict+bfs+wlp", "two", 3), f"{TARGET}, few labels", 2)


def test_an_unknown_system_is_refused(study):
    with pytest.raises(SettingError, match="training data = 'WikiGP' is not known"):
        study.retriever("Siamese | Source+WikiGP", study.targets[0], 0)


def test_separate_passages_are_no_target_s_and_smaller_portions_are_parts_of_larger_ones(study):
    # Not even those that were cut from the target.
    titles = set(datasets.load(TARGET).documents["title"])
    assert len(study.separate) == 50 and not set(study.separate["title"]) & titles
    assert titles > set(study.targets[0].documents["title"])
    sources = [set(zero_shot_study._wikigq(study, share).queries["cluster"]) for share in (0.2, 1.0)]
    assert sources[0] < sources[1] <= set(study.separate.index)
    assert len(sources[0]) <= 10 and len(zero_shot_study._wikigq(study, 0.2).documents) == 10


def test_a_hundredth_of_the_labels_is_ten_queries_of_a_split_at_least(monkeypatch):
    whole = datasets.load(SOURCE)
    found, labels = zero_shot_study._few(whole), zero_shot_study._labelled(whole)
    asked = pd.Series(found.queries.index.str.rpartition("?").get_level_values(0), found.queries.index)
    assert asked.groupby(found.queries["split"]).nunique().to_dict() == {"train": 10, "dev": 10}
    assert set(asked) <= set(whole.queries.index) and set(found.qrels["query_id"]) == set(found.queries.index)
    monkeypatch.setattr(zero_shot_study, "FEW", 0.5)
    half = zero_shot_study._few.__wrapped__(whole)
    assert set(found.queries.index) < set(half.queries.index)
    for split in ("train", "dev"):
        assert len(half.split(split)) == pytest.approx(len(labels.split(split)) / 2, abs=2)


# --- what is tested --------------------------------------------------------------------------------


def test_a_target_is_searched_alone_and_among_further_passages(study, tests):
    assert list(tests) == [TARGET, f"{TARGET}+added"]
    (target, test), (same, crowd) = tests.values()
    assert target is same is test is study.targets[0]
    assert len(test.split("test")) == 12 and 95 < len(test.documents) <= 100
    assert len(crowd.documents) == len(test.documents) + 20
    with pytest.raises(DataError, match="pydocs-smoke has .* passages that are no target's, not 1000000"):
        zero_shot_study.tests(study, {TARGET: 1_000_000}, "pydocs-smoke")


def test_official_data_are_those_of_targets_that_have_labels():
    tests = stubs(["nfcorpus", "trec-dl-2019", "squad-small"], {"nfcorpus": 5})
    jobs = zero_shot_jobs(tests, ["nfcorpus", "elsewhere"], ["squad-small"])
    every = ["nfcorpus", "nfcorpus+added", "trec-dl-2019", "squad-small"]
    assert [jobs[system] for system in GENERAL] == [every] * 4
    assert [jobs[system] for system in ADAPTED] == [["nfcorpus"]] * 2
    assert (jobs[OFFICIAL], jobs[COMPARED]) == (["nfcorpus", "nfcorpus+added"], ["squad-small"])
    assert [has_labels(stub(name)) for name in ("nfcorpus", "trec-dl-2019")] == [True, False]


def test_ablations_are_made_where_their_target_is():
    tests = stubs(["bioasq", "nfcorpus"], {"bioasq": 5})
    jobs = ablation_jobs(tests, "bioasq", "nfcorpus")
    assert all(jobs[system] == ["bioasq", "bioasq+added"] for system in ON_TARGET)
    assert all(jobs[f"Siamese | {size} dimensions"] == ["bioasq"] for size in (16, 32, 64, 128))
    assert all(jobs[system] == ["bioasq", "nfcorpus"] for system in (OFFICIAL, PRETRAINED, *PORTIONS))
    assert PORTIONS == ("Siamese | WikiGQ, 4 %", "Siamese | WikiGQ, 20 %", "Siamese | WikiGQ, 100 %")
    elsewhere = ablation_jobs(stubs(["squad-passages"], {}), "bioasq", "nfcorpus")
    assert not any(elsewhere.values())
    assert ablation_jobs(tests, "bioasq", "bioasq")[OFFICIAL] == ["bioasq"]


# --- what is recorded ------------------------------------------------------------------------------


def test_systems_are_recorded_on_their_tests_with_their_seeds(results):
    seeds = results.rows.groupby(["system", "collection"])["seed"].agg(lambda part: sorted(set(part)))
    plain, crowd = TARGET, f"{TARGET}+added"
    assert seeds.to_dict() == {
        ("BM25", plain): [0], ("BM25", crowd): [0], ("BM25, stemmed", plain): [0], ("BM25, stemmed", crowd): [0],
        ("BM25, expanded", plain): [0], ("Siamese | WikiGQ", plain): [0, 1], ("Siamese | WikiGQ", crowd): [0, 1],
        ("Two-Tower | WikiGQ+FT(GQ)", plain): [0, 1],
    }  # fmt: skip
    assert set(results.rows["measure"]) == set(MEASURES) and set(results.rows["split"]) == {"test"}


def test_values_are_those_of_the_runs(results, study, tests):
    _, crowd = tests[f"{TARGET}+added"]
    retriever = study.retriever("Siamese | WikiGQ", None, 1)
    values = evaluate(study.run(retriever, crowd), crowd.judgments("test"), ["R@10"]).set_index("query_id")["value"]
    ours = results.per_query(crowd.name, "test", "R@10", "Siamese | WikiGQ")[1]
    np.testing.assert_allclose(ours, values, atol=1e-5)


def test_expanded_documents_hold_the_queries_that_were_written_for_them(results, study):
    target = study.targets[0]
    texts = zero_shot.expand(target.documents["text"], study.generated(target.documents))
    assert (texts.str.len() > target.documents["text"].str.len()).mean() > 0.9
    run = BM25().rank(texts, target.split("test")["text"])
    values = evaluate(run, target.judgments("test"), ["RR@10"]).set_index("query_id")["value"]
    ours = results.per_query(TARGET, "test", "RR@10", "BM25, expanded")[0]
    np.testing.assert_allclose(ours, values, atol=1e-5)


def test_settings_stand_beside_the_results(results, study):
    rows = results.rows.query("measure == 'R@10' and collection == @TARGET").set_index(["system", "seed"])
    given = json.loads(rows["parameters"]["Two-Tower | WikiGQ+FT(GQ)", 1])
    assert (given["towers"], given["source"], given["head"], given["pooling"]) == ("two", SOURCE, "tanh", "cls")
    assert (given["generator"], given["separate passages"]) == (study.generator.name, 50)
    assert given["first"]["steps"] == 3 and given["later"]["steps"] == 2 and "samples" in given["sampling"]
    assert json.loads(rows["parameters"]["BM25", 0])["k1"] == 1.2


def test_bm25_ranks_all_queries_of_a_whole_collection():
    made = Experiment("32_zero_shot", {"profile": "smoke", "seeds": [0], "source": "run"})
    zero_shot_study.record_whole(made, [TARGET])
    assert set(made.results.rows["collection"]) == {f"{TARGET}, whole"}
    assert (made.results.rows["queries"] == len(datasets.load(TARGET).queries)).all()


def test_a_reference_page_loads_nothing(monkeypatch):
    made = ltre_slice.closed("32_zero_shot", monkeypatch)
    monkeypatch.setattr(datasets, "load", lambda name: pytest.fail(f"{name} is loaded"))
    zero_shot_study.record_whole(made, [TARGET])


# --- parameters ------------------------------------------------------------------------------------


def test_parameters_describe_the_study(study):
    assert study.source.name == SOURCE and [target.name for target in study.targets] == [TARGET]
    assert (study.first, study.later) == (Schedule(3, 8, 0.001), Schedule(2, 8, 0.001))
    how = study.generation
    assert (how.denoising, how.training) == (None, Schedule(3, 8, 0.001))
    assert (how.sampling.samples, how.sampling.keep, how.sampling.p) == (2, 2, 0.95)
    assert (how.architecture.passage_length, how.architecture.query_length, how.architecture.head) == (16, 8, "pointer")
    assert len(study.prepared[0]) == 300


def test_denoising_comes_before_where_it_is_asked_for():
    found = zero_shot_study.studies({**SHARED, "denoising_steps": 5})[SOURCE]
    assert found.generation.denoising == replace(found.generation.training, steps=5)


def test_sentences_in_passages_stay_whole():
    cut = zero_shot_study._cut(datasets.load("pydocs-reqa-smoke"), 60, 5)
    sizes = cut.documents.groupby("passage").size()
    whole = datasets.load("pydocs-reqa-smoke").documents.groupby("passage").size()
    assert sizes.equals(whole[sizes.index]) and len(cut.split("test")) > 5


def test_the_parameters_of_these_tests_pass():
    assert check_parameters(GIVEN, RULES) == GIVEN


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("generators", {}, "generators = {} must map collections to their targets"),
        ("generators", {"squat": [TARGET]}, "generators .* = 'squat' is not known"),
        ("generators", {SOURCE: []}, "at least one value"),
        ("generators", {SOURCE: [TARGET, SOURCE]}, f"{SOURCE!r} is no target of a generator that has seen its labels"),
        ("generators", {SOURCE: [TARGET], "quora": [TARGET]}, "names a target twice"),
        ("generator_head", "copy", "generator_head = 'copy' is not known"),
        ("generator_checkpoint", None, "generator_checkpoint = None must be a folder or hub name"),
        ("denoising_steps", -1, "denoising_steps = -1 must be a whole number of at least 0"),
        ("pooling", "max", "pooling = 'max' is not known"),
        ("head", "sigmoid", "head = 'sigmoid' is not known.*tanh"),
        ("adapted", ["nope"], "adapted .* = 'nope' is not known"),
        ("added", {TARGET: 0}, "added.* = 0 must be a whole number of at least 1"),
    ],
)
def test_an_impossible_parameter_is_refused(name, value, message):
    with pytest.raises(SettingError, match=message):
        check_parameters({**GIVEN, name: value}, RULES)


@pytest.mark.parametrize("name", ["adapted", "compared", "added"])
def test_a_parameter_about_no_target_is_refused(name):
    value = {"quora": 3} if name == "added" else ["quora"]
    with pytest.raises(SettingError, match=rf"{name} \(a target of `generators`\) = 'quora' is not known"):
        zero_shot_study.studies({**GIVEN, name: value})


def test_a_generator_of_sentences_writes_for_every_sentence_and_learns_from_those_that_answer(monkeypatch, study):
    seen = []
    fit = query_generation.fit
    monkeypatch.setattr(
        query_generation, "fit", lambda start, pairs, *given: seen.append(pairs) or fit(start, pairs, *given)
    )
    answers = study.source.documents.assign(sentence="A sentence that answers.")
    mine = replace(study, answers=replace(study.source, documents=answers, pairs=None))
    documents = study.targets[0].documents.iloc[:6]
    found = mine.generated(documents)
    assert set(seen[0]["passage"]) == {"A sentence that answers."}
    assert set(found["passage_id"]) <= set(documents.index)
    assert found.groupby("passage_id").size().max() > study.generation.sampling.keep


def test_answers_are_of_a_generator_s_collection():
    with pytest.raises(SettingError, match="answers"):
        zero_shot_study.studies({**SHARED, "answers": {TARGET: SOURCE}})
