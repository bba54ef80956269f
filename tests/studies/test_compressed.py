"""LTRe over compressed indexes: what is recorded on NumPy's docstrings, and tables of written numbers."""

import json
from itertools import product

import ltre_slice
import numpy as np
import pandas as pd
import pytest
from ltre_slice import OTHER, recorded, seen

from retlib.evaluation.results import Results
from retlib.retrieval.index import EXACT
from retlib.studies import compressed
from retlib.studies.ltre_study import MEASURES
from retlib.systems import ltre

MAIN = "pydocs-passages-smoke"
OWN = ltre_slice.OWN["44_compressed_index"]
FACTORIES, MATRIX = OWN["factories"], OWN["matrix"]
SMALL, LARGE = FACTORIES[:2]


@pytest.fixture(scope="module")
def study():
    return ltre_slice.study()


@pytest.fixture(scope="module")
def desk(study):
    """Everything recorded as notebook 44 records it."""
    made = ltre_slice.desk("44_compressed_index")
    compressed.record_indexes(made, study, FACTORIES, [0])
    compressed.record_trained(made, study, FACTORIES, [0])
    compressed.record_ance(made, study, [0])
    compressed.record_matrix(made, study, MATRIX, [0])
    return made


@pytest.fixture(scope="module")
def value(desk):
    """Of a system and measure, on the collection that trains."""
    rows = desk.results.rows
    return rows[rows["collection"] == MAIN].set_index(["system", "measure"])["value"]


# --- what is recorded ------------------------------------------------------------------------------


def test_every_index_is_recorded_on_every_collection(desk):
    for collection, part in desk.results.rows.groupby("collection"):
        assert seen(part) == recorded("44_compressed_index", OWN), collection
    assert set(desk.results.rows["collection"]) == {MAIN, OTHER}


def test_indexes_are_as_large_as_their_codes(desk, value, study):
    sizes = [value[f"Index {factory}", "index bytes"] for factory in FACTORIES]
    documents = len(study.ranking.collection.documents)
    assert sizes[2] == documents * 12 * 4
    # One byte for each part of a code; a rotation and centroids are as large for both, and outweigh so few codes.
    assert sizes[1] - sizes[0] == pytest.approx(documents * 4, abs=200)
    # All documents that train are indexed, whatever is searched.
    other = desk.results.rows.query("collection == @OTHER and measure == 'index bytes'")
    assert other["value"].tolist() == sizes


def test_ltre_through_the_whole_index_is_that_of_table_1(study):
    names = [compressed.trained(study, factory, 0).name for factory in FACTORIES]
    assert names[2] == study.retriever("LTRe (BM25 Neg)", 0).name and len(set(names)) == 3


def test_an_index_is_judged_by_the_start_and_a_training_by_exact_search(desk, study):
    start, part = study.retriever("BM25 Neg", 0), study.tested_on[0]
    through = {
        f"Index {LARGE}": ltre.rank(start, study.part(part), index=LARGE),
        f"LTRe, {LARGE}": ltre.rank(compressed.trained(study, LARGE, 0), study.part(part)),
        f"trained {LARGE} searched {EXACT}": ltre.rank(compressed.trained(study, LARGE, 0), study.part(part)),
        f"trained {EXACT} searched {LARGE}": ltre.rank(
            compressed.trained(study, EXACT, 0), study.part(part), index=LARGE
        ),
    }
    for system, run in through.items():
        values = ltre.evaluation.evaluate(run, part.judgments("test"), ["nDCG@10"])["value"]
        ours = desk.results.per_query(MAIN, "test", "nDCG@10", system)[0]
        np.testing.assert_allclose(ours, values, atol=1e-5, err_msg=system)


def test_the_index_of_a_training_stands_beside_its_results(desk):
    rows = desk.results.rows.query("measure == 'RR@10' and collection == @MAIN").set_index("system")
    for factory in FACTORIES:
        assert json.loads(rows["parameters"][f"Index {factory}"]) == {"index": factory}
        given = json.loads(rows["parameters"][f"LTRe, {factory}"])
        assert (given["index"], given["start"]) == (factory, "BM25 Neg")
        assert rows["steps"][f"LTRe, {factory}"] == 10


@pytest.mark.parametrize("system", [f"LTRe, {SMALL}", f"LTRe, {EXACT}", "ANCE"])
def test_the_costs_of_a_training_are_those_of_its_history(value, study, system):
    found = value[system]
    history = (study.retriever("ANCE", 0) if system == "ANCE" else compressed.trained(study, system[6:], 0)).history
    parts = found[found.index.str.startswith("seconds of ")]
    assert parts.sum() == pytest.approx(found["training seconds"]) == pytest.approx(history.seconds)
    assert found["search share"] * history.seconds == pytest.approx(history.parts.get("search", 0.0))
    assert found["queries to best"] == max(1, history.best_step) * 8


def test_a_reference_page_trains_nothing(monkeypatch):
    made = ltre_slice.closed("44_compressed_index", monkeypatch)
    for record in (compressed.record_indexes, compressed.record_trained, compressed.record_matrix):
        record(made, None, FACTORIES, [0])
    compressed.record_ance(made, None, [0])


# --- tables ----------------------------------------------------------------------------------------


class Written:
    """A desk of two seeds whose values are written: rows of (system, measure, value with seed 0, with seed 1)."""

    def __init__(self, *rows):
        self.results = Results()
        for (system, measure, *values), collection in product(rows, ["here", "there"]):
            for seed, value in enumerate(values):
                self.results.add_row(
                    experiment="44", system=system, collection=collection, split="test", measure=measure, seed=seed,
                    value=value if collection == "here" else -1.0,
                )  # fmt: skip


def of_factory(factory, size, before, after, seconds, share):
    quality = [(f"LTRe, {factory}", measure, *after) for measure in MEASURES]
    costs = [("training seconds", seconds), ("search share", share)]
    return [
        (f"Index {factory}", "index bytes", size, size), (f"Index {factory}", "RR@10", *before), *quality,
        *((f"LTRe, {factory}", measure, number, number) for measure, number in costs),
    ]  # fmt: skip


def test_table_3_is_in_points_and_shares_means_over_seeds():
    small = of_factory(SMALL, 3e6, (0.1, 0.2), (0.25, 0.27), 5.0, 0.2)
    whole = of_factory(EXACT, 6e6, (0.4, 0.4), (0.5, 0.5), 10.0, 0.5)
    found = compressed.table(Written(*small, *whole), "here", [SMALL, EXACT]).set_index("index")
    assert found.loc[SMALL].tolist() == pytest.approx([3, 50, 15, 26, 26, 26, 5, 20])
    assert found["% of the uncompressed"].tolist() == [50, 100] and found.index.tolist() == [SMALL, EXACT]


def test_times_are_ratios_to_ltre_with_exact_search():
    made = Written(
        (f"LTRe, {EXACT}", "training seconds", 10.0, 20.0), (f"LTRe, {EXACT}", "seconds of search", 3.0, 4.0),
        ("ANCE", "training seconds", 150.0, 150.0), ("ANCE", "seconds of encoding corpus", 90.0, 90.0),
    )  # fmt: skip
    found = compressed.times(made, "here")
    assert found.columns.tolist()[:2] == ["training seconds", "times LTRe, Exact"]
    assert found.loc["ANCE", ["training seconds", "times LTRe, Exact", "encoding corpus"]].tolist() == [150, 10, 90]
    assert found["search"][f"LTRe, {EXACT}"] == 3.5 and np.isnan(found["search"]["ANCE"])


def test_the_matrix_has_every_pair_in_points():
    values = {(SMALL, SMALL): 0.4, (SMALL, EXACT): 0.3, (EXACT, SMALL): 0.2, (EXACT, EXACT): 0.5}
    rows = [(f"trained {a} searched {b}", "nDCG@10", value - 0.1, value + 0.1) for (a, b), value in values.items()]
    rows += [(system, "RR@10", 0.0) for system, *_ in rows]
    found = compressed.matrix(Written(*rows), "here", [SMALL, EXACT])
    expected = pd.DataFrame([(*pair, 100 * value) for pair, value in values.items()], columns=found.columns)
    assert found.columns.tolist() == ["trained", "searched", "value"]
    pd.testing.assert_frame_equal(found, expected)
