"""The systems of Part IV: what each is trained from and with, and what is recorded of it; on NumPy's docstrings."""

import json
from dataclasses import asdict, replace

import ltre_slice
import numpy as np
import pandas as pd
import pytest
from ltre_slice import OTHER, SHARED, recorded, seen

from retlib.core.errors import SettingError
from retlib.data import datasets
from retlib.data.collection import subsample
from retlib.evaluation.measures import evaluate
from retlib.studies import ltre_study
from retlib.studies.experiment import COMMON, check_parameters
from retlib.studies.ltre_study import NEGATIVES, PRETRAINED, WARM, WATCHED
from retlib.systems import dense, ltre
from retlib.systems.dense import Architecture, Schedule
from retlib.training.dynamics import Watching

MAIN = "pydocs-passages-smoke"
RULES = {**COMMON, **ltre_study.RULES}
GIVEN = {"profile": "smoke", "seeds": [0], "source": "run", **SHARED}
OPTIMIZERS = ltre_slice.OWN["41_training_dynamics"]["optimizers"]
WATCHING = Watching(every=2, interval=4)
SEEDED = [WARM, "BM25 Neg"]  # recorded with a second seed


@pytest.fixture(scope="module")
def study():
    return ltre_slice.study()


@pytest.fixture(scope="module")
def first_stages(study):
    """Everything recorded as notebook 42 records it."""
    made = ltre_slice.desk("42_first_stage")
    bm25 = ltre_study.record_lexical(made, study)
    assert list(bm25) == [MAIN, OTHER]
    ltre_study.record_trained(made, study, [WARM, *NEGATIVES], bm25, [0])
    ltre_study.record_trained(made, study, SEEDED, bm25, [1])
    return made.results


@pytest.fixture(scope="module")
def dynamics(study):
    """What notebook 41 records, and its table of curves."""
    made = ltre_slice.desk("41_training_dynamics")
    return made.results, ltre_study.record_curves(made, study, OPTIMIZERS, WATCHING, [0])


# --- systems ---------------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch):
    """Trainings tell what they were asked for: (negatives, what they start from)."""
    monkeypatch.setattr(ltre, "fit", lambda start, ranking, method, seed: (method.negatives, start))
    monkeypatch.setattr(dense, "pretrain", lambda *given: f"{'+'.join(given[2])} seed {given[4]}")


def test_each_system_of_table_1_starts_from_the_one_it_names(study, told):
    warm = ("In-batch", "ict+bfs+wlp seed 3")
    bm25 = ("BM25 Neg", warm)
    ance = ("Async ANN", bm25)
    expected = {
        "In-batch": warm, "BM25 Neg": bm25, "ANCE": ance, "LTRe (BM25 Neg)": ("LTRe", bm25),
        "LTRe (ANCE)": ("LTRe", ance), "BM25 -> Rand": ("Rand Neg", bm25), "BM25 -> NCE Neg": ("NCE Neg", bm25),
        "BM25 -> BM25 + Rand": ("BM25 + Rand Neg", bm25), "Rand Neg": ("Rand Neg", warm),
        "NCE Neg": ("NCE Neg", warm), "BM25 + Rand Neg": ("BM25 + Rand Neg", warm),
    }  # fmt: skip
    assert {name: study.retriever(name, 3) for name in [WARM, *NEGATIVES]} == expected


def test_methods_of_table_1_train_both_encoders_and_ltre_the_queries_alone(study):
    ance, random, warm = study.method("Async ANN"), study.method("Rand Neg"), study.method(WARM)
    assert asdict(ance) == {**asdict(random), "negatives": "Async ANN"}
    assert (random.trained, random.loss, random.steps, random.n, random.interval) == ("both", "ranknet", 3, 1, 4)
    assert (warm.trained, warm.loss, warm.steps, warm.learning_rate) == ("both", "softmax", 3, 0.01)
    found = study.method(ltre.LTRE, index="SQ8")
    assert (found.trained, found.loss, found.steps, found.n) == ("query", "lambdarank-mrr", 10, 10)
    assert found.index == "SQ8" and study.method(ltre.LTRE).index == "Exact"
    assert study.method("BM25 + Rand Neg").n == 2  # one of each, where one was asked for
    assert study.method("BM25 + Rand Neg", n=4).n == 4


def test_watched_trainings_have_the_start_the_steps_and_the_rate_of_ltre(study, monkeypatch):
    monkeypatch.setattr(ltre, "fit", lambda *given: given)
    monkeypatch.setattr(ltre_study.Study, "retriever", lambda _, name, seed: (name, seed))
    for name, negatives in WATCHED.items():
        start, _, method, seed, watching = study.watched(name, "lamb", 0.02, 7, WATCHING)
        assert (start, seed, watching) == (("BM25 Neg", 7), 7, WATCHING)
        assert (method.negatives, method.trained, method.optimizer) == (negatives, "query", "lamb")
        assert (method.steps, method.batch_size, method.learning_rate) == (10, 8, 0.02)
        assert method.interval == (2 if name == "Async ANN (short)" else 4)


@pytest.mark.parametrize(("long", "short"), [(20, 10), (5, 2), (1, 1)])
def test_the_short_interval_is_half_of_the_long_one(long, short):
    found = ltre_study.intervals(["adamw", "lamb"], Watching(interval=long)).set_index("system")["interval"]
    assert found.pop("Async ANN (short)") == found.pop("Async ANN (short), AdamW") == short
    assert len(found) == 2 * len(WATCHED) - 2 and set(found) == {long}


# --- collections -----------------------------------------------------------------------------------


def test_a_union_trains_and_each_part_is_tested_by_itself(study):
    one, two = (replace(part, name=name) for part, name in zip(study.tested_on, "ab", strict=True))
    both = replace(study, trained_on=(one, two), tested_on=(one, two))
    assert both.ranking.collection.name == "union" and both.ranking.parts == ["a", "b"]
    assert len(both.ranking.collection.documents) == len(one.documents) + len(two.documents)
    assert both.part(two).collection is two and both.part(two) is both.part(two)
    assert study.ranking.collection is study.trained_on[0]  # one is taken as it is
    found = ltre_study.sizes(both).set_index("collection")
    assert found.index.tolist() == ["training", "a", "b"]
    for column in ("documents", "train questions", "test questions"):
        assert found[column]["training"] == found[column]["a"] + found[column]["b"]
    assert found["test questions"].tolist() == [30, 20, 10]


def test_what_trains_is_cut_and_what_is_tested_beside_it_is_whole():
    found = ltre_study.study({**SHARED, "zero_shot": ["pydocs-reqa-smoke"]})
    assert found.trained_on == found.tested_on[:1]
    assert found.trained_on[0].fingerprint == subsample(datasets.load(MAIN), 300, 20).fingerprint
    assert ltre_study.tested(found)["collection"].tolist() == [MAIN, "pydocs-reqa-smoke"]
    assert found.tested_on[1].fingerprint == datasets.load("pydocs-reqa-smoke").fingerprint


# --- what is recorded ------------------------------------------------------------------------------


def test_every_first_stage_is_recorded_on_every_collection_with_its_seeds(first_stages):
    rows = first_stages.rows
    for collection, part in rows.groupby("collection"):
        assert seen(part) == recorded("42_first_stage", SHARED), collection
        seeds = part.groupby("system")["seed"].agg(set)
        assert set(seeds.index[seeds == {0, 1}]) == {*SEEDED, *(f"{name}, rerank" for name in SEEDED)}
        assert (seeds.drop(seeds.index[seeds == {0, 1}]) == {0}).all()
    assert set(rows["collection"]) == {MAIN, OTHER} and set(rows["split"]) == {"test"}
    assert not rows.duplicated(["system", "collection", "measure", "seed"]).any()


@pytest.mark.parametrize("place", [0, 1])
def test_values_are_those_of_the_runs(first_stages, study, place):
    part, name = study.tested_on[place], "LTRe (ANCE)"
    retriever, qrels = study.retriever(name, 0), part.judgments("test")
    run = ltre.rank(retriever, study.part(part))
    bm25 = ltre_study.LEXICAL["BM25"].rank(study.part(part).texts, part.split("test")["text"], 1000)
    for system, found in ((name, run), (f"{name}, rerank", ltre.reorder(retriever, study.part(part), bm25))):
        values = evaluate(found, qrels, ["RR@10"]).set_index("query_id")["value"]
        ours = first_stages.per_query(part.name, "test", "RR@10", system)[0]
        np.testing.assert_allclose(ours, values, atol=1e-5)


def test_settings_stand_beside_the_results(first_stages):
    found = first_stages.rows.query("collection == @MAIN and measure == 'RR@10'").set_index(["system", "seed"])
    given = {name: json.loads(found["parameters"][name, 0]) for name in (WARM, "ANCE", "LTRe (ANCE)")}
    assert (given[WARM]["start"], given[WARM]["negatives"], given[WARM]["loss"]) == (PRETRAINED, WARM, "softmax")
    assert (given["ANCE"]["start"], given["ANCE"]["negatives"]) == ("BM25 Neg", "Async ANN")
    assert (given["LTRe (ANCE)"]["start"], given["LTRe (ANCE)"]["trained"]) == ("ANCE", "query")
    assert given["LTRe (ANCE)"]["dimension"] == 12
    assert json.loads(found["parameters"]["BM25+RM3", 0])["fb_docs"] == 10
    # The weights are the last.
    assert found["steps"][WARM, 0] == found["steps"]["ANCE", 0] == 3
    assert found["steps"]["LTRe (ANCE)", 0] == found["steps"]["LTRe (ANCE), rerank", 0] == 10
    assert (found["seconds"].dropna() > 0).all() and found["seconds"].isna().sum() == 2


def test_a_reference_page_trains_nothing(monkeypatch):
    made = ltre_slice.closed("42_first_stage", monkeypatch)
    assert ltre_study.record_lexical(made, None) == {}
    ltre_study.record_trained(made, None, [WARM], {}, [0])


# --- curves ----------------------------------------------------------------------------------------


def test_every_watched_training_has_its_curve(dynamics):
    _, curves = dynamics
    assert seen(curves) == recorded("41_training_dynamics", {"optimizers": OPTIMIZERS})
    assert curves.columns.tolist() == ["system", "seed", "step", "measure", "value"]
    steps = curves.groupby(["system", "seed", "measure"])["step"].agg(list)
    assert len(steps) == 15 * 4 and all(found == [0, 2, 4, 6, 8] for found in steps)
    assert curves["value"].between(0, 1).all() and curves["value"].dtype == np.float32


def test_all_watched_trainings_begin_where_the_warm_up_stands(dynamics):
    _, curves = dynamics
    table = curves.pivot_table(index=["seed", "measure", "step"], columns="system", values="value")
    first = table.xs(0, level="step")
    assert first.eq(first["Warm-up"], axis=0).all(axis=None)
    # It does not move, so its lists are never stale; the others do.
    assert (table["Warm-up"].xs("overlap stale", level="measure") == 1).all()
    last = table.xs(8, level="step").drop(columns="Warm-up")
    assert last.ne(table["Warm-up"].xs(8, level="step"), axis=0).any().all()
    stale = table.xs("overlap stale", level="measure").xs(2, level="step").drop(columns="Warm-up")
    assert (stale < 1).any(axis=None)


def test_the_mean_of_the_last_fifth_is_recorded(dynamics):
    results, curves = dynamics
    rows = results.rows.set_index(["system", "measure", "seed"])["value"]
    assert len(rows) == 15 * 4
    values = curves.set_index(["system", "measure", "step"])["value"]
    for system, measure in (("LTRe, AdamW", "RR@10"), ("Warm-up", "R@200")):
        assert rows[system, f"{measure}, last fifth", 0] == pytest.approx(values[system, measure, 8])
    assert set(results.rows["collection"]) == {MAIN} and set(results.rows["split"]) == {"train"}


# --- parameters ------------------------------------------------------------------------------------


def test_parameters_describe_the_study(study):
    assert study.architecture == Architecture("transformer", 1, 64, 12, query_length=12, document_length=24)
    assert study.pretraining == Schedule(2, 8, 0.001) and len(study.prepared[0]) == 300
    given = {**SHARED, "rate": 0.5, "warm_rate": 0.25, "query_rate": 0.125, "optimizer": "lamb"}
    found = ltre_study.study(given)
    assert [getattr(found, name).learning_rate for name in ("both", "warm", "query")] == [0.5, 0.25, 0.125]
    assert {getattr(found, name).optimizer for name in ("both", "warm", "query")} == {"lamb"}
    assert {getattr(found, name).batch_size for name in ("both", "warm", "query")} == {8}
    assert found.both.interval == found.query.interval == 4


def test_the_parameters_of_these_tests_pass():
    assert check_parameters(GIVEN, RULES) == GIVEN


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("zero_shot", ["nope"], "zero_shot .* = 'nope' is not known"),
        ("zero_shot", "nfcorpus", "zero_shot = 'nfcorpus' must be a list"),
        ("collections", [], "collections = .* at least one value"),
        ("articles", "pydoc", "articles = 'pydoc' is not known. Did you mean 'pydocs'"),
        ("query_loss", "softmax", "query_loss = 'softmax' is not known.*Valid: .*lambdarank-mrr"),
        ("optimizer", "adamv", "optimizer = 'adamv' is not known. Did you mean 'adam'"),
        ("retrieved", 1, "retrieved = 1 must be a whole number of at least 2"),
        ("batch", 1, "batch = 1 must be a whole number of at least 2"),
        ("interval", 0, "interval = 0 must be a whole number of at least 1"),
        ("query_rate", 0.0, "query_rate = 0.0 must be a number"),
    ],
)
def test_an_impossible_parameter_is_refused(name, value, message):
    with pytest.raises(SettingError, match=message):
        check_parameters({**GIVEN, name: value}, RULES)


def test_a_curve_is_long(study):
    watched = [{"step": 0, "RR@10": 0.5, "R@200": 1.0}, {"step": 4, "RR@10": 0.25, "R@200": 0.0}]
    found = ltre_study._curve("S", 3, watched)
    expected = [(0, "RR@10", 0.5), (4, "RR@10", 0.25), (0, "R@200", 1.0), (4, "R@200", 0.0)]
    assert found[["step", "measure", "value"]].to_records(index=False).tolist() == expected
    assert isinstance(found, pd.DataFrame) and (found["system"] == "S").all() and (found["seed"] == 3).all()
