"""The arithmetic of the papers' own scale, by hand; and what recorded trainings took, on rows written by the test."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from retlib.evaluation import results
from retlib.report import tables

import paper_scale
from paper_scale import Work

SMALL = Work("1", "x", layers=2, width=64, vocabulary=10, lengths=(3, 5), examples=7, batch=4)


def test_operations_and_memory_by_hand():
    # 24 and 4 operations for each token, layer and weight of a product, and each pair of tokens.
    assert SMALL.forward(3) == 3 * 2 * (24 * 64 * 64 + 4 * 3 * 64)
    assert Work("1", "x", 0, 64, 10).forward(3) == 3 * 2 * 64
    assert SMALL.flops == 3 * 7 * (SMALL.forward(3) + SMALL.forward(5))
    searched = Work("1", "x", 2, 64, 10, (3,), 7, trainings=2, passages=100, length=5, searched=6, dimension=8)
    each = 3 * 7 * searched.forward(3) + 100 * searched.forward(5) + 2 * 6 * 100 * 8
    assert searched.flops == 2 * each
    kept = sum(t * (34 * 64 + 5 * t) for t in (3, 5))  # one head of 64
    assert SMALL.memory == 16 * paper_scale.weights(2, 64, 10) + 4 * 2 * kept
    assert Work("1", "x", 0, 64, 10, passages=100, dimension=8).memory == 16 * 640 + 4 * 800


def stage(**changes):
    given = {"data": ["labels"], "steps": 10, "batch_size": 4, "negatives": "in-batch", "trains": "both", "options": {}}
    return given | changes


def row(seconds, *stages, seed=0, **changes):
    encoder = {"encoder": "transformer", "layers": 1, "width": 64, "query_length": 3, "document_length": 5}
    told = json.dumps({**encoder, "stages": list(stages), **changes})
    return {"system": told, "collection": "c", "seed": seed, "seconds": seconds, "parameters": told}


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Record rows as an experiment, and give what is timed of them."""
    monkeypatch.setattr(paper_scale, "parameters", lambda: {"some": {}, "none": {}})
    monkeypatch.setattr(results, "reference_folder", lambda profile, name: tmp_path / profile / name)

    def record(*rows):
        (tmp_path / "laptop" / "some").mkdir(parents=True)
        pd.DataFrame(rows).to_parquet(tmp_path / "laptop" / "some" / "rows.parquet")
        return paper_scale.timed(["laptop"])

    return record


def test_a_stage_has_the_seconds_that_its_chain_adds(recorded):
    first = stage(data=["Pretraining(tasks=('ict',))"])
    found = recorded(row(5.0, first), row(7.0, first, stage()), row(9.0, stage(steps=3), stage()))
    assert found[["data", "seconds"]].values.tolist() == [["Pretraining", 5.0], ["labels", 2.0]]  # the last: unknown
    assert found["FLOPs"].tolist() == [3 * 40 * (SMALL.forward(3) + SMALL.forward(5)) / 2] * 2


def test_a_chain_counts_once_however_it_is_searched_and_for_each_seed(recorded):
    grown, bag = row(7.0, stage(layers=3)), row(4.0, stage(), encoder="bow-mlp")
    several, generated = stage(data=["labels", "Pretraining(x)"]), stage(data=["{'data': 'generated'}"])
    unknown = [row(9.0, *each) for each in ((several,), (generated,), (stage(steps=0, epochs=2),), ())]
    chains = row(5.0, stage()), row(5.0, stage(), index="OPQ"), row(6.0, stage(), seed=1), grown, bag
    found = recorded(*chains, *unknown, row(None, stage(), seed=2))
    assert found["seconds"].tolist() == [5.0, 6.0, 7.0, 4.0]  # what the formula does not know is left out
    assert found["layers"].tolist() == [1, 1, 3, 0]  # layers that grow count, and a bag of words has none


def test_what_an_example_reads(recorded):
    own, bm25 = stage(), stage(negatives="bm25", options={"n": 2})
    retrieved, masked = stage(negatives="retrieved", trains="query", options={"n": 50}), stage(data=["MaskedTokens(x)"])
    found = recorded(*(row(seconds, each) for seconds, each in enumerate((own, bm25, retrieved, masked), 1)))
    lengths = (3, 5), (3, 5, 5, 5), (3,), (5,)
    assert found["FLOPs"].tolist() == [Work("1", "x", 1, 64, 0, each, 40).flops for each in lengths]


def test_kinds_predict_one_another():
    timed = pd.DataFrame({"layers": [1, 1, 2, 0], "FLOPs": 100.0, "seconds": [1.0, 1.0, 4.0, 50.0]})
    found = paper_scale.kinds(timed.assign(**dict.fromkeys(paper_scale.KIND[1:], "x"))).set_index("layers")
    assert found["rate"].to_dict() == {0: 2.0, 1: 100.0, 2: 25.0} and found["trainings"].to_dict() == {0: 1, 1: 2, 2: 1}
    # A training of 4 seconds is predicted from one at four times its rate to take one; for the first nothing is left.
    assert found["predicted"].tolist() == pytest.approx([np.nan, 4, 0.25], nan_ok=True)
    assert paper_scale.rate(found.reset_index(), True) == pytest.approx(50)


def test_what_is_published_is_predicted_within_a_factor_of_three():
    layered = paper_scale.kinds(paper_scale.timed(["laptop", "checkpoint"])).query("layers > 0")
    assert len(layered) > 3 and layered["width"].nunique() > 1 and layered["predicted"].between(1 / 3, 3).all()


def test_costs_by_hand():
    kinds = pd.DataFrame({"layers": [1, 0], "rate": [10.0, 1.0]})
    bag = Work("2", "y", 0, 64, 10, (3,), 7)
    found = paper_scale.costs([SMALL, bag], kinds, gpu=1000.0, price=2.0)
    assert found["hours here"].tolist() == pytest.approx([SMALL.flops / 36000, bag.flops / 3600])
    assert found["hours on a GPU"][0] == SMALL.flops / 3.6e6 and found["price"][0] == 2 * SMALL.flops / 3.6e6
    assert found["hours on a GPU"].isna().tolist() == [False, True]
    large = replace(SMALL, what="z", trainings=3)
    chapters = paper_scale.by_chapter(paper_scale.costs([SMALL, large, bag], kinds, gpu=1000.0, price=2.0))
    assert chapters["trainings"].to_dict() == {"1": 4, "2": 1}
    assert chapters["hours on a GPU"].fillna(0).tolist() == pytest.approx([4 * SMALL.flops / 3.6e6, 0])
    assert chapters["its dearest line (trainings)"].tolist() == ["z (3)", ""]
    assert [label.get_text() for label in paper_scale.figure(found).axes[0].get_yticklabels()] == ["1", "2"]


def test_numbers_come_in_ones_and_are_shown_in_two_digits():
    assert paper_scale.size("liang2020", "table-2", "MSMARCO", "# Passages") == 8.8e6
    assert paper_scale.size("liang2020", "table-2", "MSMARCO", "# Train queries") == 532761
    shown = {1.2345: "1.2", 0.0912: "0.091", 87.3: "87", 1_423: "1,400", 1.44e6: "1,400,000", float("nan"): ""}
    assert {value: tables.about(value) for value in shown} == shown
