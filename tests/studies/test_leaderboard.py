"""The leaderboard: equal budgets, settings chosen on validation questions, and its tables."""

from dataclasses import replace

import leaderboard
import numpy as np
import pandas as pd
import pytest
from recorded import put
from words import SMALL, UNITS

from retlib.core.errors import DataError, SettingError
from retlib.evaluation.measures import evaluate
from retlib.evaluation.results import Results
from retlib.retrieval.lexical import BM25
from retlib.systems.compose import Lexical
from retlib.systems.system import Stage, System, Target
from retlib.systems.training_data import LabelledPairs, Labels

# --- parameters ------------------------------------------------------------------------------------


def test_every_method_tries_as_many_settings():
    leaderboard.equal_budgets(bm25=[(1, 1)], labels=[0.1])
    with pytest.raises(SettingError, match="labels"):
        leaderboard.equal_budgets(bm25=[(1, 1)], labels=[0.1, 0.2])


def test_a_collection_without_labels_is_refused(collection):
    assert leaderboard.check(collection) is collection
    queries = collection.queries.assign(split="test")
    with pytest.raises(DataError, match="train"):
        leaderboard.check(replace(collection, queries=queries))


def test_the_chains_are_a_grid_of_starts_and_ends():
    grid = leaderboard.starts_by_ends({"nothing": (), "GQ": ("GQ",)}, {"alone": (), "labels": ("labels", "LTRe")})
    assert grid["nothing"] == {"alone": ("", ()), "labels": ("labels > LTRe", ("labels", "LTRe"))}
    assert grid["GQ"]["labels"] == ("GQ > labels > LTRe", ("GQ", "labels", "LTRe"))


def test_questions_are_items_with_the_documents_that_are_relevant_to_them(collection):
    items = leaderboard.as_items(collection)
    pairs = pd.concat([items.labelled("train"), items.labelled("dev")])
    judged = collection.qrels[collection.qrels["relevance"] > 0]
    judged = judged[judged["query_id"].map(collection.queries["split"]).isin(["train", "dev"])]
    expected = {(f"question: {q}?{d}", d) for q, d in zip(judged["query_id"], judged["doc_id"], strict=True)}
    assert set(zip(pairs["left"], pairs["right"], strict=True)) == expected
    first = pairs.iloc[0]
    asked = first["left"].removeprefix("question: ").partition("?")[0]
    assert items.documents["text"][first["left"]] == collection.queries["text"][asked]
    assert set(collection.split("test").index).isdisjoint(name.partition("?")[0] for name in items.queries.index)
    bag = System(replace(SMALL, encoder="bag-of-words", similarity="cosine", query_length=None, document_length=None))
    trained = bag + Stage(data=LabelledPairs(items), options={"mask_known": False}, steps=3, batch_size=8)
    run = trained.run(Target(collection), 0)
    assert set(run["doc_id"]) <= set(collection.documents.index)


def test_settings_are_chosen_on_validation_questions_one_method_after_the_other(collection):
    constants, rates, seen = [(0.5, 0.1), (1.5, 0.9)], [1e-4, 0.02], []

    def labels(found):
        seen.append(dict(found))
        return System(SMALL, UNITS) + Stage(data=Labels(), steps=8, batch_size=16, learning_rate=found["labels"])

    methods = {
        "BM25": (constants, lambda found: Lexical(BM25(k1=found["BM25"][0], b=found["BM25"][1]))),
        "labels": (rates, labels),
    }
    chosen, trials = leaderboard.tune(Target(collection), 0, methods)
    assert trials["setting"].tolist() == ["0.5, 0.1", "1.5, 0.9", "0.0001", "0.02"]
    for (name, mine), values in zip(trials.groupby("system", sort=False), (constants, rates), strict=True):
        assert mine["chosen"].sum() == 1 and mine["RR@10"][mine["chosen"]].item() == mine["RR@10"].max()
        assert chosen[name] == values[mine["chosen"].to_numpy().argmax()]
    assert [found["BM25"] for found in seen] == [chosen["BM25"]] * 2
    run = Lexical(BM25(k1=0.5, b=0.1)).run(Target(collection), split="dev")
    values = evaluate(run, collection.judgments("dev"), ["RR@10"])["value"]
    assert trials["RR@10"][0] == pytest.approx(100 * values.mean())


# --- tables ----------------------------------------------------------------------------------------


def made(values):
    found = Results()
    for system, value in values.items():
        put(found, system, {0: np.full(20, 100 * value)}, "c", "RR@10")
    return found


def test_the_grid_has_the_systems_that_there_are():
    cells = {"nothing": {"alone": "", "labels": "labels"}, "GQ": {"alone": "GQ", "labels": "GQ > labels"}}
    found = leaderboard.grid(made({"labels": 0.25, "GQ > labels": 0.5}), "c", cells)
    assert found.loc["nothing"].tolist() == ["", "25.0 ± 0.0"] and found.loc["GQ"].tolist() == ["", "50.0 ± 0.0"]
