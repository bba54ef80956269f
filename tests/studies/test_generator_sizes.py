"""Generators of several sizes, on a slice of NumPy's docstrings; what they are worth, from made-up records."""

import json
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from zero_shot_slice import SHARED, SOURCE, TARGET

from retlib.core.errors import SettingError
from retlib.evaluation.measures import evaluate
from retlib.evaluation.results import Results
from retlib.report import zero_shot_figures
from retlib.retrieval.lexical import BM25
from retlib.studies import generator_sizes, zero_shot_study
from retlib.studies.experiment import COMMON, Experiment, check_parameters

SIZES = {"small": {}, "denoised": {"denoising_steps": 2}, "wide": {"generator_width": 128, "generator_steps": 4}}
# Without those that only what follows a first training has.
GIVEN = {name: SHARED[name] for name in zero_shot_study.COMMON} | {"sizes": SIZES, "sampled": 6, "shown": 1}


@pytest.fixture(scope="module")
def sizes():
    return generator_sizes.sized(GIVEN)


@pytest.fixture(scope="module")
def results(sizes):
    made = Experiment("36_generator_sizes", {"profile": "smoke", "seeds": [0, 1], "source": "run"})
    generator_sizes.record(made, sizes, [0, 1])
    return made.results


def test_a_size_changes_its_generator_and_nothing_else(sizes):
    small, denoised, wide = sizes.values()
    assert denoised.generation == replace(small.generation, denoising=replace(small.generation.training, steps=2))
    assert wide.generation.architecture == replace(small.generation.architecture, width=128)
    assert wide.generation.training == replace(small.generation.training, steps=4)
    for study in sizes.values():
        assert (study.architecture, study.first) == (small.architecture, small.first)
        assert [target.fingerprint for target in study.targets] == [small.targets[0].fingerprint]


def test_generators_are_told_with_their_training(sizes):
    found = generator_sizes.made(sizes).set_index("generator")
    assert found["steps"].to_dict() == {"small": 3, "denoised": 3, "wide": 4}
    assert found["denoising steps"].to_dict() == {"small": 0, "denoised": 2, "wide": 0}
    assert found["million weights"]["wide"] > found["million weights"]["small"] == found["million weights"]["denoised"]
    history = sizes["denoised"].generator.history
    assert found["loss"]["denoised"] == -max(row["score"] for row in history.evaluations)
    # Denoising takes time, too.
    assert found["seconds"]["denoised"] > history.seconds
    assert found["seconds"]["small"] == sizes["small"].generator.history.seconds


def test_every_generator_writes_for_the_same_passages(sizes):
    panel = generator_sizes.panel(sizes, 6)
    assert list(panel.writers) == list(SIZES) and len(panel.texts) == 6
    written = {name: write(0) for name, write in panel.writers.items()}
    assert all(set(queries["passage_id"]) <= set(panel.texts.index) for queries in written.values())
    assert written["small"]["query"].tolist() != written["wide"]["query"].tolist()


def test_each_retriever_learns_from_its_generator(results, sizes):
    seeds = results.rows.groupby("system")["seed"].agg(lambda part: sorted(set(part))).to_dict()
    trained = ["Siamese | ICT", "Siamese | Official data", *(f"Siamese | {name}" for name in SIZES)]
    lexical = ["BM25", "BM25, stemmed", *(f"BM25, expanded | {name}" for name in SIZES)]
    assert seeds == dict.fromkeys(trained, [0, 1]) | dict.fromkeys(lexical, [0])
    told = results.rows[results.rows["system"] == "Siamese | wide"]["parameters"].map(json.loads)
    assert {each["generator"] for each in told} == {sizes["wide"].generator.name}
    target = sizes["wide"].targets[0]
    retriever = sizes["wide"].retriever("Siamese | Nucleus", target, 1)
    values = evaluate(sizes["wide"].run(retriever, target), target.judgments("test"), ["R@10"]).set_index("query_id")
    ours = results.per_query(TARGET, "test", "R@10", "Siamese | wide")[1]
    np.testing.assert_allclose(ours, values["value"], atol=1e-5)


def test_passages_are_expanded_by_the_generator_that_is_named(results, sizes):
    target = sizes["denoised"].targets[0]
    run = BM25().rank(sizes["denoised"].expanded(target.documents), target.split("test")["text"])
    values = evaluate(run, target.judgments("test"), ["RR@10"]).set_index("query_id")["value"]
    ours = results.per_query(TARGET, "test", "RR@10", "BM25, expanded | denoised")[0]
    np.testing.assert_allclose(ours, values, atol=1e-5)


def test_a_target_without_labels_has_no_row_of_them(sizes, monkeypatch):
    monkeypatch.setattr(generator_sizes, "has_labels", lambda target: False)
    monkeypatch.setattr(generator_sizes, "record_bm25", lambda *given: None)
    monkeypatch.setattr(zero_shot_study.Study, "expanded", lambda study, documents: documents["text"])
    asked = []
    monkeypatch.setattr(Experiment, "measure", lambda self, name, *given, **more: asked.append(name))
    made = Experiment("36_generator_sizes", {"profile": "smoke", "seeds": [0], "source": "run"})
    generator_sizes.record(made, sizes, [0])
    assert asked == ["Siamese | ICT", *(f"Siamese | {name}" for name in SIZES)]


# --- what they are worth ---------------------------------------------------------------------------

QUERIES = [f"q{i}" for i in range(20)]


@pytest.fixture
def recorded():
    found = Results()
    values = {"BM25": 0.8, "Siamese | Official data": 0.5}
    values |= {"Siamese | a": 0.2, "Siamese | b": 0.4, "BM25, expanded | a": 0.7, "BM25, expanded | b": 0.9}
    for system, value in values.items():
        frame = pd.DataFrame({"query_id": QUERIES, "measure": "R@10", "value": value})
        found.add_queries("t", "test", system, 0, frame, pd.Series(QUERIES, QUERIES))
    return found


def test_quality_stands_over_the_loss_of_the_generator(recorded):
    table = generator_sizes.worth(recorded, "t", pd.DataFrame({"generator": ["a", "b"], "loss": [4.0, 3.5]}))
    assert table[["generator", "loss", "system", "value"]].to_numpy().tolist() == [
        ["a", 4.0, "Siamese", pytest.approx(20)], ["a", 4.0, "BM25, expanded", pytest.approx(70)],
        ["b", 3.5, "Siamese", pytest.approx(40)], ["b", 3.5, "BM25, expanded", pytest.approx(90)],
    ]  # fmt: skip
    levels = generator_sizes.levels(recorded, "t")
    assert levels == {"BM25": pytest.approx(80), "Siamese | Official data": pytest.approx(50)}
    axis = zero_shot_figures.worth(table, levels).axes[0]
    assert axis.xaxis_inverted() and axis.get_ylabel() == "R@10 (points of 100)"
    assert [text.get_text() for text in axis.texts] == ["a", "b"]
    lines = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
    assert lines["BM25"][0] == pytest.approx(80)
    plt.close("all")


# --- parameters ------------------------------------------------------------------------------------


def test_the_parameters_of_these_tests_pass():
    given = {"profile": "smoke", "seeds": [0], "source": "run", **GIVEN}
    assert check_parameters(given, {**COMMON, **generator_sizes.RULES}) == given


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"small": {}}, "must map two names or more to parameters"),
        (["small", "large"], "must map two names or more to parameters"),
        ({"small": {}, "ICT": {}}, "'ICT' names something else on this page"),
        ({"small": {}, "large": 3}, r"sizes\['large'\] = 3 must map parameters to values"),
        ({"small": {}, "large": {"steps": 3}}, r"sizes\['large'\] \(a parameter .*\) = 'steps' is not known"),
        ({"small": {}, "large": {"generator_steps": 0}}, r"\['generator_steps'\] = 0 must be a whole number"),
    ],
)
def test_impossible_sizes_are_refused(value, message):
    with pytest.raises(SettingError, match=message):
        generator_sizes.RULES["sizes"]("sizes", value)


@pytest.mark.parametrize("generators", [{SOURCE: [TARGET, "quora"]}, {SOURCE: [TARGET], "quora": ["squad"]}])
def test_one_source_and_one_target_are_compared(generators):
    with pytest.raises(SettingError, match="must have one source and one target"):
        generator_sizes.sized({**GIVEN, "generators": generators})
