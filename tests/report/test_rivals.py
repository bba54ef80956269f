"""How the best of what is trained stands to BM25."""

import json

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import rivals
from retlib.report.rivals import Measured

QUERIES = [f"q{number}" for number in range(50)]
ENCODER, PUBLIC = {"encoder": "x"}, {"encoder": "x", "checkpoint": "public"}
SETTINGS = {"A": ENCODER, "B": ENCODER, "both": {"fused": [ENCODER]}, "public + BM25": {"fused": [PUBLIC, {}]}}


def add(made: Results, collection: str, system: str, value: float, noise: np.random.Generator) -> None:
    """Add values of fifty queries with a mean; what is fused from a public encoder has not been trained."""
    column = 0.1 * noise.standard_normal(50)
    trains = SETTINGS.get(system) and "public" not in system
    made.add_row(experiment="x", system=system, collection=collection, split="test", measure="R@1", value=value, seed=0,
                 seconds=3.0 if trains else None, parameters=json.dumps(SETTINGS.get(system, {})))  # fmt: skip
    frame = pd.DataFrame({"query_id": QUERIES, "measure": "R@1", "value": value + column - column.mean()})
    made.add_queries(collection, "test", system, 0, frame, pd.Series(range(50), QUERIES))


@pytest.fixture
def made(monkeypatch) -> Results:
    found, noise = Results(), np.random.default_rng(0)
    levels = {"c": {"BM25": 0.5, "A": 0.4, "B": 0.1, "both": 0.6, "public + BM25": 0.7},
              "d": {"BM25": 0.3, "A": 0.6, "B": 0.1}, "e": {"BM25": 0.3, "A": 0.3001}}  # fmt: skip
    for collection, values in levels.items():
        for system, value in values.items():
            add(found, collection, system, value, noise)
    monkeypatch.setattr(results, "load", lambda name, profile, *_: found if (name, profile) == ("x", "here") else None)
    return found


def test_each_collection_says_who_is_ahead(made):
    found = rivals.leads("here", None, [Measured("nothing", "R@1"), Measured("x", "R@1")], results.ALONE)
    assert found["sign"].to_dict() == {"c": "<", "d": ">", "e": "~"}
    told = '<b>60.0 &gt; 30.0</b>\nA; R@1, <a href="x.html">chapter x</a>, 50 questions, one seed'
    assert found["told"]["d"] == told
    said = rivals.standing(found)
    assert said == "of 3 collections ahead on 1 (d), behind on 1 (c), neither by more than chance on 1 (e)"
    only = rivals.leads("here", None, [Measured("x", "R@1", ["d", "not there"])], results.ALONE)
    assert list(only.index) == ["d"]
    some = rivals.leads("here", None, [Measured("x", "R@1", systems=["B"])], results.ALONE)
    assert some["told"]["d"].startswith("<b>10.0 &lt; 30.0</b>\nB;")
    assert rivals.leads("elsewhere", None, [Measured("x", "R@1")], results.ALONE).empty


def test_a_list_that_a_public_encoder_is_part_of_counts_though_nothing_was_trained(made):
    found = rivals.leads("here", None, [Measured("x", "R@1")], results.FUSED)
    assert list(found.index) == ["c"] and "70.0" in found["told"]["c"] and "public + BM25" in found["told"]["c"]


def test_a_lead_of_less_than_a_point_is_said_to_be_one(made):
    for name, value in {"BM25": 0.5, "A": 0.5099}.items():
        noise = np.random.default_rng(2)  # the same for both: more than chance
        add(made, "f", name, value, noise)
    found = rivals.leads("here", None, [Measured("x", "R@1", ["f", "d"])], results.ALONE)
    assert found["sign"].to_dict() == {"f": ">", "d": ">"} and found["slight"].to_dict() == {"f": True, "d": False}
    assert "A; R@1" in found["told"]["f"] and ", by less than a point, 50 questions, one seed" in found["told"]["f"]
    said = "of 2 collections ahead on 2 (f, d; 1 by less than a point), behind on 0, neither by more than chance on 0"
    assert rivals.standing(found) == said


def test_bm25_of_stems_is_the_rival_where_it_is_the_better_one(made):
    add(made, "d", "BM25, stemmed", 0.65, np.random.default_rng(1))
    assert "60.0 &lt; 65.0" in rivals.leads("here", None, [Measured("x", "R@1", ["d"])], results.ALONE)["told"]["d"]


def test_all_kinds_stand_in_one_table(made):
    page = BeautifulSoup(
        rivals.shown(rivals.against_bm25("here", None, [Measured("x", "R@1")], "elsewhere")).data, "html.parser"
    )
    lines = [[cell.text for cell in line.find_all("td")] for line in page.find_all("tr")][1:]
    assert [line[0] for line in lines] == ["c", "d", "e"]
    assert lines[0][1].startswith("40.0 < 50.0") and lines[0][2].startswith("70.0 > 50.0")
    assert lines[1][2:] == ["", "", ""]
