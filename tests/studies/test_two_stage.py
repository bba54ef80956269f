"""First stages and what reads their results: the runs, the answers that are timed, what is recorded."""

from dataclasses import replace

import ltre_slice
import numpy as np
import pandas as pd
import pytest
from ltre_slice import READERS, recorded, seen

from retlib.evaluation import latency
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.studies import two_stage
from retlib.studies.two_stage import Stages
from retlib.systems import reranking
from retlib.systems.dense import Schedule
from retlib.systems.reranking import Lesson, Ranker

DEPTHS = ltre_slice.OWN["43_two_stage"]["depths"]
LESSON = Lesson(Schedule(steps=2, batch_size=4, learning_rate=0.001, evaluations=1), negatives=2)
NAME = "pydocs-passages-smoke"
SEED, TIMED = 1, 3


@pytest.fixture(scope="module")
def stages():
    study = ltre_slice.study()
    return Stages(study, study.tested_on[0], READERS, LESSON, SEED)


@pytest.fixture(scope="module")
def runs(stages):
    return stages.runs(DEPTHS)


@pytest.fixture(scope="module")
def desk(stages):
    made = ltre_slice.desk("43_two_stage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "WARM_UP", 1)
        two_stage.record(made, stages, DEPTHS, TIMED)
    return made


def lists(run):
    return run.groupby("query_id", sort=False)["doc_id"].agg(list)


def test_every_system_is_recorded_with_its_latency(desk):
    rows = desk.results.rows
    assert seen(rows) == recorded("43_two_stage", {"depths": DEPTHS})
    assert set(rows["collection"]) == {NAME}
    # BM25 has no seed; its time is that of this repetition.
    seeds = rows.groupby(["system", rows["measure"].str.startswith("latency")])["seed"].agg(set)
    assert seeds.pop(("BM25", False)) == {0} and (seeds == {SEED}).all()


def test_runs_and_answers_are_of_the_same_systems(stages, runs):
    assert set(stages.answers(DEPTHS)) == set(runs) and len(runs) == 3 + 2 * 2 * 2


def test_reading_reorders_the_head_alone(runs):
    moved = 0
    for system, run in runs.items():
        if " -> " not in system:
            continue
        first, depth = runs[system.split(" -> ")[0]], int(system.rsplit(", ", 1)[1])
        for before, after in zip(lists(first), lists(run), strict=True):
            assert set(before[:depth]) == set(after[:depth]) and before[depth:] == after[depth:]
            moved += before != after
    assert moved > 0


@pytest.mark.parametrize("system", ["LTRe", "LTRe -> BERT small, 6", "BM25 -> BERT large, 3", "BM25"])
def test_what_is_timed_finds_what_is_in_the_run(stages, runs, system):
    answer, documents = stages.answers(DEPTHS)[system], stages.collection.documents.index
    depth = int(system.rsplit(", ", 1)[1]) if "," in system else 5
    for number, name in enumerate(stages.collection.split("test").index):
        mine = runs[system][runs[system]["query_id"] == name].head(depth)
        rows = np.asarray(answer(number))[:depth]
        found = documents[rows[rows >= 0]].tolist()
        if mine["score"].is_unique and "BM25" not in system:  # BM25 breaks ties at the cut in another order
            assert found == mine["doc_id"].tolist()
        assert len(found) == len(mine) and len(set(found) & set(mine["doc_id"])) >= len(mine) - 1


def test_late_interaction_is_timed_on_the_text_to_its_results(stages, runs):
    answer, documents = stages.answers(DEPTHS)["ColBERT"], stages.collection.documents.index
    for number, name in enumerate(stages.collection.split("test").index[:TIMED]):
        scores, rows = answer(number)
        mine = runs["ColBERT"][runs["ColBERT"]["query_id"] == name].head(100)
        np.testing.assert_allclose(scores[0], mine["score"], rtol=1e-3)
        assert documents[rows[0, 0]] in mine["doc_id"][mine["score"] > mine["score"].max() - 1e-3].tolist()


def test_a_question_that_finds_nothing_is_not_read(stages):
    strange = stages.collection.queries.iloc[[0]].assign(text="zzzz", split="test")  # it shares no word with any
    alone = replace(stages, collection=replace(stages.collection, queries=strange, qrels=stages.collection.qrels[:0]))
    no_reader = Ranker(None, stages.retriever.wordpiece, stages.retriever.architecture)
    alone.__dict__.update(readers={"none": no_reader}, _units=None)  # nothing is trained, and no reader is asked
    assert len(alone.answers([3])["BM25 -> none, 3"](0)) == 0


def test_readers_have_their_layers_and_learn_from_bm25s_lists(stages):
    for name, layers in READERS.items():
        assert stages.readers[name].model.encoder.bert.config.num_hidden_layers == layers
    assert stages.colbert.model.encoder.bert.config.num_hidden_layers == stages.study.architecture.layers
    splits = stages.collection.queries["split"]
    assert set(splits[stages.listed["query_id"].unique()]) == {"train", "dev"}
    assert stages.listed.groupby("query_id").size().max() == reranking.LISTED


@pytest.mark.parametrize(("timed", "count"), [(3, 3), (10_000, 20)])
def test_so_many_questions_are_timed_as_there_are(stages, runs, monkeypatch, timed, count):
    asked = []
    monkeypatch.setattr(Stages, "runs", lambda self, depths: {"BM25": runs["BM25"]})
    monkeypatch.setattr(Stages, "answers", lambda self, depths: {"BM25": asked.append})
    monkeypatch.setattr(latency, "WARM_UP", 0)
    two_stage.record(ltre_slice.desk("43_two_stage"), stages, DEPTHS, timed)
    assert asked == list(range(count))


def test_the_table_has_quality_and_latency_of_every_system(desk):
    table = tables.latencies(desk.results, NAME)
    assert list(tables.in_units(table)) == ["system", "RR@10 (of 100)", "95 % from", "to", "median (ms)", "p95 (ms)"]
    found = table.set_index("system")
    assert set(found.index) == {system for system, _ in recorded("43_two_stage", {"depths": DEPTHS})}
    rows = desk.results.rows.set_index(["system", "measure"])["value"]
    for system, row in found.iterrows():
        assert row["value"] == pytest.approx(100 * rows[system, "RR@10"], abs=1e-3)
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["median"], row["p95"]) == (rows[system, "latency ms"], rows[system, "latency p95 ms"])


def test_the_times_of_a_table_are_means_over_seeds(desk):
    made = ltre_slice.desk("43_two_stage")
    rows = desk.results.rows.query("system == 'ColBERT' and measure == 'latency ms'")
    rows = pd.concat([desk.results.rows, rows.assign(seed=2, value=rows["value"] + 2)])
    made.results = Results(rows, desk.results.queries)
    before, after = (tables.latencies(each.results, NAME).set_index("system") for each in (desk, made))
    assert after["median"]["ColBERT"] == pytest.approx(before["median"]["ColBERT"] + 1)
