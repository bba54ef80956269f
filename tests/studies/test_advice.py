"""What the page for somebody with a corpus says of recorded rows."""

import json

import numpy as np
import pytest
from recorded import put

from retlib.core.errors import DataError
from retlib.evaluation.results import Results
from retlib.report import tables

import advice
from advice import Advice

COUNT = 40


def recorded(**systems):
    """Rows of collections: system to collection to its score on every question, with a little noise between them."""
    found, noise = Results(), np.random.default_rng(0)
    for system, scores in systems.items():
        seconds = None if system.startswith("BM25") else 7.0
        for name, score in scores.items():
            values = 100 * score + noise.standard_normal(COUNT)
            put(found, system, {0: values - values.mean() + 100 * score}, name, "RR@10", queries=COUNT, seconds=seconds)
    return found


BOARD = recorded(BM25={"a": 0.5, "b": 0.5}, quick={"a": 0.3, "b": 0.8}, slow={"a": 0.4, "b": 0.8})


def test_the_best_list_may_be_the_rivals_own():
    gains = tables.against(BOARD, ["a", "b"], "RR@10")
    lost, won = (advice.best(BOARD, gains, name, "RR@10", "BM25", 5.0) for name in "ab")
    assert (lost["best list"], lost["best but BM25"], lost["quickest near the best"]) == ("BM25", "slow", "BM25")
    assert lost["RR@10"] == 50 and lost["above BM25"] == pytest.approx(-10, abs=1) and lost["its training, s"] == 0
    assert won["best list"] in ("quick", "slow") and won["best list"] == won["best but BM25"]
    assert won["its training, s"] == 7 and won["p"] < 0.05


def test_the_best_of_each_kind_stands_beside_the_rival():
    other = recorded(BM25={"b": 0.5}, x={"b": 0.6}, alone={"b": 0.9}, **{"BM25+RM3": {"b": 0.9}})
    other.rows["parameters"] = [json.dumps({"fused": []} if name == "x" else {}) for name in other.rows["system"]]
    table = advice.beside({"alone": (BOARD, False), "fused": (other, True), "none": (BOARD, True)}, "RR@10", "BM25")
    assert table.index.tolist() == ["a", "b"] and table.columns.tolist() == ["BM25", "alone", "fused", "none"]
    assert table.loc["a", "alone"].endswith("slow") and table.loc["a", "alone"].startswith("-")
    assert table.loc["b", "fused"].endswith("\nx") and "p < 0.001" in table.loc["b", "fused"]
    assert table.loc["a", "fused"] == table.loc["b", "none"] == ""


def test_advice_is_what_the_rows_bear_out(monkeypatch):
    public = recorded(A={"a": 0.6, "b": 0.5}, B={"a": 0.5, "b": 0.5})
    public.rows["parameters"] = json.dumps({"checkpoint": "mini"})
    monkeypatch.setattr(advice, "published", lambda chapter, profile: {"11": BOARD, "12": public}[chapter])
    pairs = [("11", "quick", "BM25"), ("11", "slow", "quick"), ("11", "x", "BM25"), ("12", "A", "B")]
    every = [Advice("t", chapter, "p", a, b, "RR@10") for chapter, a, b in pairs]
    table = advice.borne_out([*every, every[-1]._replace(collections=("a",))])
    assert table["ahead, behind, of"].tolist() == ["1, 1, 2", "1, 0, 2", "1, 0, 2", "1, 0, 1"]  # x is not recorded
    assert table["tested in"].tolist() == ["11", "11", "12", "12"]
    # A public encoder without training is called so.
    assert table["against"].tolist()[2:] == ["B (as it is public, without a step of training)"] * 2


def test_a_chapter_without_published_rows_is_named():
    with pytest.raises(DataError, match="'42_first_stag'.*'laptop'"):
        advice.published("42_first_stag", "laptop")
