"""Part IV: what its pages declare, what is recorded of watched trainings and of costs, and its maps and tables."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import part4_pages
import pytest
from words import SMALL, UNITS, make_collection

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.data import datasets
from retlib.data.collection import answered_within, hash_position, subsample
from retlib.data.datasets import released
from retlib.models import checkpoints
from retlib.studies import part4
from retlib.studies.experiment import Experiment
from retlib.studies.part4 import MEASURES
from retlib.systems.ranking import encode_corpus, indexed
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels
from retlib.training.dynamics import Watching
from retlib.workflow import notebooks

import training_dynamics

SHORT = {"steps": 4, "batch_size": 16, "learning_rate": 0.01, "keep": "last"}
WARM = System(SMALL, UNITS) + Stage(data=Labels(), **SHORT)
ALONE = {"data": Labels(), "loss": "ranknet", "trains": "query", **SHORT}
LTRE = WARM + Stage(**ALONE | {"negatives": "retrieved", "options": {"n": 6}, "steps": 6})
ANN = WARM + Stage(**ALONE | {"negatives": "ann", "options": {"interval": 2, "depth": 10}, "steps": 6})


@pytest.fixture(scope="module")
def targets(collection):
    """Two collections, tested by themselves; the first trains."""
    return [Target(collection), Target(make_collection("other"), collection)]


def desk(seeds=(0,), source="run"):
    """Where a notebook records."""
    return Experiment("42", {"profile": "smoke", "seeds": list(seeds), "source": source})


def values(made, **where):
    """Recorded values by system and measure."""
    rows = made.results.rows
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.set_index(["system", "measure"])["value"]


@pytest.mark.parametrize("page", [*part4_pages.PAGES, "54_unjudged_documents"])
@pytest.mark.parametrize("profile", ["quick", "smoke", "laptop", "checkpoint"])
def test_every_profile_declares_systems(page, profile, monkeypatch):
    """Without data, and without the weights of a checkpoint."""
    monkeypatch.setattr(checkpoints, "described", lambda name: {"width": 384, "dimension": 384, "checkpoint": name})
    given = dict(notebooks.plan(runtime.root(), profile)[page].parameters) | {"profile": "explore", "source": "run"}
    systems = part4_pages.systems(page, part4_pages.declared(page, **given))
    dense = [each for each in systems.values() if isinstance(each, System)]
    assert dense
    for each in dense:
        assert each.architecture.checkpoint == given["recipe"].get("checkpoint", "")
        assert (each.tokens is None) == bool(given["recipe"].get("checkpoint"))


def test_the_same_chain_on_two_pages_is_trained_once():
    """Equal chains have equal settings, whichever page declares them."""
    chains = {page: part4_pages.systems(page, part4_pages.declared(page)) for page in part4_pages.PAGES}
    ours = chains["42_first_stage"]
    told = {name: system.settings for name, system in ours.items()}
    # What is watched starts from a share of the labels, and shares no chain.
    assert chains["41_training_dynamics"]["start"].settings not in told.values()
    assert chains["44_compressed_index"]["ANCE"].settings == told["ANCE"]
    assert chains["44_compressed_index"]["LTRe, Exact"].settings == told["LTRe (BM25 Neg)"]
    for system in chains["45_training_time"].values():
        assert replace(system, stages=system.stages[:-1]).settings == told["BM25 Neg"]
    late = chains["43_two_stage"]["late interaction"].reader
    assert late.start.settings == told["In-batch"]


def test_a_system_of_ones_own_stands_beside_them():
    further = {"Rand 4": {"negatives": "random", "options": {"n": 4}, "loss": "cross_entropy"}}
    more, plain = (part4_pages.declared("42_first_stage", further=each)["systems"] for each in (further, {}))
    assert list(more) == [*plain, "Rand 4"]
    stage = more["Rand 4"].stages[-1]
    assert (stage.negatives, stage.options, stage.loss) == ("random", {"n": 4}, "cross_entropy")
    assert replace(stage, options={"n": 1}, loss="ranknet", layers=0).settings == plain["Rand Neg"].stages[-1].settings


OWN = [
    ({"negative": "random"}, "'negatives'"), ({"negatives": "randm"}, "'random'"), ({"scale": []}, "'A'"),
    ({"negatives": "random", "options": {"m": 4}}, "'m'"), ({"negatives": "random", "options": 0}, "'A'"),
]  # fmt: skip
ROWS = ["BM25 Neg", "BM25", "BM25+RM3", "Rand Neg, rerank", "A, rerank"]  # whose place no system of one's own takes


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("further", {"A": own}, said) for own, said in OWN),
        *(("further", {"A": {}, row: {"negatives": "random"}}, re.escape(repr(row))) for row in ROWS),
        *(("collections", value, r"^collections[\[ ]") for value in (["zzz"], "zzz", None, [5, "a"])),
    ],
)
def test_an_impossible_system_of_ones_own_or_collection_is_refused(name, value, said):
    with pytest.raises(SettingError, match=said):
        part4_pages.declared("42_first_stage", **{name: value})


def test_watched_trainings_differ_in_their_negatives_and_their_optimizer_alone():
    names = part4_pages.declared("41_training_dynamics", recipe={"interval": 10}, every=2)
    stages = {name: system.stages[-1] for name, system in names["watched"].items()}
    assert {stage.optimizer for name, stage in stages.items() if name.endswith(", AdamW")} == {"adamw"}
    own = ("negatives", "options", "loss", "optimizer", "learning_rate")
    told = {json.dumps({k: v for k, v in stage.settings.items() if k not in own}) for stage in stages.values()}
    assert len(told) == 1 and len(stages) == 14
    found = training_dynamics.intervals(names["watched"], Watching(interval=10)).set_index("system")["interval"]
    assert found.pop("Async ANN (short)") == found.pop("Async ANN (short), AdamW") == 4
    assert set(found) == {10}
    with pytest.raises(SettingError, match="interval = 9"):
        part4_pages.declared("41_training_dynamics", recipe={"interval": 9}, every=2)


def test_a_union_trains_and_each_part_is_tested_by_itself(monkeypatch):
    monkeypatch.setattr(datasets, "load", make_collection)
    asked = {"collections": ["a", "b"], "zero_shot": ["c"], "documents": 30, "questions": 10}
    found = part4.targets(SimpleNamespace(live=True, parameters=asked))
    assert [each.test.name for each in found] == ["a", "b", "c"]
    assert {each.trains.name for each in found} == {"a, b"}
    # What trains is cut; what is tested beside it is whole; every test question with answers in the part is asked.
    cut = subsample(make_collection("a"), 30, 10)
    assert found[0].test.fingerprint == answered_within(make_collection("a"), cut).fingerprint
    assert len(found[0].test.split("test")) > 10 and len(found[2].test.documents) == 40
    sizes = part4.sizes(found).set_index("collection")
    assert sizes.index.tolist() == ["training", "a", "b", "c"]
    for column in ("documents", "train questions"):
        assert sizes[column]["training"] == sizes[column]["a"] + sizes[column]["b"]
    alone = part4.targets(SimpleNamespace(live=True, parameters=asked | {"collections": ["a"]}))
    assert [each.trains.fingerprint for each in alone] == [cut.fingerprint] * 2
    assert part4.targets(SimpleNamespace(live=False, parameters=asked)) == []


def test_a_run_of_others_is_recorded_where_it_lies_beside_a_collection(monkeypatch):
    plain, made = make_collection("plain"), desk()
    beside = replace(plain, name="beside", provenance={released.RUN: "0 (release)"})
    found = beside.relevant("test").drop_duplicates("query_id")[["query_id", "doc_id"]].assign(score=1.0)
    above = found.assign(doc_id="outside the pool", score=2.0)
    run = pd.concat([above, found]).sort_values(["query_id", "score"], ascending=[True, False])
    monkeypatch.setattr(released, "trec_run", lambda: run)
    part4.record_public(made, [Target(plain), Target(beside)])
    rows = made.results.rows
    assert set(rows["collection"]) == {"beside"} and set(rows["system"]) == {part4.PUBLIC}
    assert rows["measure"].tolist() == [each for each in MEASURES if each != "R@1000"] and set(rows["seed"]) == {0}
    assert (rows["candidates"] == 8_841_823).all() and rows[["steps", "seconds", "wall"]].isna().all(axis=None)
    assert values(made)[part4.PUBLIC, "RR@10"] == 0.5  # what lies above is judged by nobody
    assert len(made.results.per_query("beside", "test", "RR@10", part4.PUBLIC)) == rows["queries"].iloc[0]


# --- watched trainings -----------------------------------------------------------------------------

WATCHING = Watching(every=2, interval=4, depth=10)
WATCHED = {"LTRe": LTRE, "Async": ANN}


@pytest.fixture(scope="module")
def watched(collection):
    """A desk with what was seen, and the curves."""
    made = desk([0, 1])
    return made, training_dynamics.record_curves(made, WARM, WATCHED, collection, WATCHING)


def test_every_watched_training_has_its_curve_and_the_mean_of_its_last_fifth(watched):
    made, curves = watched
    assert curves.columns.tolist() == ["system", "seed", "step", "measure", "value"]
    steps = curves.groupby(["system", "seed", "measure"])["step"].agg(list)
    assert len(steps) == 3 * 2 * 4 and all(found == [0, 2, 4] for found in steps)
    assert curves["value"].between(0, 1).all() and curves["value"].dtype == np.float32
    assert len(made.results.rows) == 3 * 2 * 4 and set(made.results.rows["split"]) == {"train"}
    found = curves.set_index(["seed", "system", "measure", "step"])["value"]
    assert values(made, seed=1)["LTRe", "RR@10, last fifth"] == pytest.approx(found[1, "LTRe", "RR@10", 4])


def test_all_begin_where_the_warm_up_stands_and_a_list_is_fresh_only_when_it_is_fetched(watched):
    _, curves = watched
    table = curves.pivot_table(index=["seed", "measure", "step"], columns="system", values="value")
    first, last = (table.xs(step, level="step") for step in (0, 4))
    assert first.eq(first["Warm-up"], axis=0).all(axis=None)
    # It does not move, so its lists are never stale; the others do.
    assert (table["Warm-up"].xs("overlap stale", level="measure") == 1).all()
    assert last.ne(last["Warm-up"], axis=0)[list(WATCHED)].any().all()
    every = training_dynamics.intervals(WATCHED, WATCHING).set_index("system")["interval"]
    assert every.to_dict() == {"LTRe": 4, "Async": 2}
    stale = curves[(curves["measure"] == "overlap stale") & curves["system"].isin(WATCHED)]
    fetched = stale["step"] % stale["system"].map(every) == 0
    assert (stale["value"][fetched] == 1).all() and (stale["value"][~fetched] < 1).all() and not fetched.all()


@pytest.fixture(scope="module")
def watching(targets):
    return replace(WATCHING, pace=4, followed=training_dynamics.sample_queries(targets, 2))


@pytest.fixture(scope="module")
def movement(collection, watching):
    return training_dynamics.movement(LTRE, collection, watching, 0)


@pytest.fixture
def flat(monkeypatch):
    """Maps show the first two dimensions as they are, so that a point tells whose it is."""
    monkeypatch.setattr(training_dynamics, "_projected", lambda vectors: vectors[:, :2])


def points(frame):
    return set(frame[["x", "y"]].itertuples(index=False, name=None))


def of(vectors):
    return {tuple(row[:2]) for row in vectors}


def test_the_same_questions_are_followed_always(targets, collection):
    ids, _ = fit(WARM, collection, 0).reads(collection).relevant("train")
    found = training_dynamics.sample_queries(targets, 5)
    assert found[:3] == training_dynamics.sample_queries(targets, 3) and training_dynamics.sample_queries([], 5) == ()
    assert set(found) <= set(ids) and max(map(hash_position, found)) < min(map(hash_position, {*ids} - {*found}))


def test_what_moved_is_what_was_followed(movement, collection, watching):
    start, trained = fit(WARM, collection, 0), fit(LTRE, collection, 0)
    tokenized = start.reads(collection)
    np.testing.assert_array_equal(movement.documents, encode_corpus(start, tokenized))
    for place, retriever in ((0, start), (-1, trained)):
        table = tokenized.query_rows(watching.followed)
        np.testing.assert_array_equal(movement.paths[place], retriever.encode_queries(table))
    assert movement.steps.tolist() == [0, 4, 6] and movement.names == ["question 1", "question 2"]
    for name, rows in zip(watching.followed, movement.relevant, strict=True):
        own = collection.qrels["query_id"] == name
        relevant = collection.qrels[own & (collection.qrels["relevance"] > 0)]["doc_id"]
        assert sorted(collection.documents.index[rows]) == sorted(relevant)


def test_maps_hold_what_is_retrieved_before_or_after_and_every_path(movement, flat, monkeypatch):
    monkeypatch.setattr(training_dynamics, "NEAREST", 5)
    monkeypatch.setattr(training_dynamics, "MOST", 20)
    near, whole = training_dynamics.neighbourhoods(movement), training_dynamics.whole_map(movement)
    parts = dict(list(whole.groupby("what")))
    assert set(parts) == {"document", "query", "relevant"} and near["query"].unique().tolist() == movement.names
    assert len(parts["document"]) == 20 and points(parts["document"]) <= of(movement.documents)
    for place, name in enumerate(movement.names):
        part, ends = near[near["query"] == name], movement.paths[[0, -1], place]
        shown = {what: points(own) for what, own in part.groupby("what")}
        assert [shown["before"], shown["after"]] == [of([end]) for end in ends]
        relevant = set(movement.relevant[place].tolist())
        nearest = {int(row) for end in ends for row in np.argsort(-(movement.documents @ end))[:5]}
        assert shown["relevant"] == of(movement.documents[sorted(relevant)])
        assert shown["document"] == of(movement.documents[sorted(nearest - relevant)])
        assert len(part) == len(nearest | relevant) + 2
        path = parts["query"][parts["query"]["query"] == name]
        assert path["step"].tolist() == movement.steps.tolist()
        np.testing.assert_array_equal(path[["x", "y"]], movement.paths[:, place, :2])
        assert points(parts["relevant"][parts["relevant"]["query"] == name]) == shown["relevant"]


def test_the_projection_looks_at_directions_and_keeps_groups_together():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(8)[:3], 20, axis=0)
    vectors = (centres + 0.1 * rng.normal(size=centres.shape)).astype(np.float32)
    found = training_dynamics._projected(vectors)
    assert found.shape == (60, 2) and found.dtype == np.float32
    # Lengths do not count (powers of two change no digit), and the same input gives the same map.
    lengths = np.exp2(rng.integers(-3, 4, (60, 1))).astype(np.float32)
    np.testing.assert_array_equal(training_dynamics._projected(vectors * lengths), found)
    distances = np.linalg.norm(found[:, None] - found[None], axis=2) + np.diag(np.full(60, np.inf))
    assert (distances.argmin(axis=1) // 20 == np.arange(60) // 20).all()
    assert np.isfinite(training_dynamics._projected(vectors[:4])).all()


def test_an_index_is_as_large_as_that_of_all_training_documents(targets, collection):
    made, systems = desk(), {"Exact": WARM, "small": WARM.with_index("SQ8")}
    part4.record_costs(made, systems, targets, part4.index_sizes)
    retriever = fit(WARM, collection, 0)
    small = indexed(retriever, retriever.reads(collection), "SQ8").size_bytes
    for target in targets:
        found = values(made, collection=target.test.name)
        assert found["Exact", "index bytes"] == 40 * 16 * 4 > found["small", "index bytes"] == small
        assert [found[name, "bytes a document"] for name in systems] == [16 * 4, 16]


def test_the_costs_of_a_training_are_those_of_its_history(targets, collection):
    made = desk()
    part4.record_costs(made, {"LTRe": LTRE, "warm": WARM}, targets, part4.training_costs)
    for name, system in (("LTRe", LTRE), ("warm", WARM)):
        history, found = fit(system, collection, 0).history, values(made, collection="other")[name]
        parts = found[found.index.str.startswith("seconds of ")]
        assert parts.sum() == pytest.approx(found["training seconds"]) == pytest.approx(history.seconds)
        assert found["search share"] * history.seconds == pytest.approx(history.parts.get("search", 0.0))
        assert found["queries to best"] == max(1, history.best_step) * 16
    reference = SimpleNamespace(live=False, parameters={"seeds": [0]})
    part4.record_costs(reference, {"LTRe": LTRE}, [], part4.training_costs)
