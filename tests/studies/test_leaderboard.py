"""The leaderboard: equal budgets, settings chosen on validation questions, and its tables."""

from dataclasses import replace

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

import leaderboard


def test_every_method_tries_as_many_settings():
    tried = dict.fromkeys(leaderboard.TRIED, [0.1])
    leaderboard.equal_budgets(tried)
    with pytest.raises(SettingError, match="label_rates"):
        leaderboard.equal_budgets(tried | {"label_rates": [0.1, 0.2]})


def test_a_collection_without_labels_is_refused(collection):
    assert leaderboard.check(collection) is collection
    with pytest.raises(DataError, match="train"):
        leaderboard.check(replace(collection, queries=collection.queries.assign(split="test")))


def test_questions_are_items_with_the_documents_that_are_relevant_to_them(collection):
    items = leaderboard.as_items(collection)
    pairs = pd.concat([items.labelled("train"), items.labelled("dev")])
    judged = collection.qrels[collection.qrels["relevance"] > 0]
    judged = judged[judged["query_id"].map(collection.queries["split"]).isin(["train", "dev"])]
    expected = {(f"question: {q}?{d}", d) for q, d in zip(judged["query_id"], judged["doc_id"], strict=True)}
    assert set(zip(pairs["left"], pairs["right"], strict=True)) == expected == {*items.queries["cluster"].items()}
    first = pairs.iloc[0]
    asked = first["left"].removeprefix("question: ").partition("?")[0]
    assert items.documents["text"][first["left"]] == collection.queries["text"][asked]
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
    for (name, part), values in zip(trials.groupby("system", sort=False), (constants, rates), strict=True):
        assert part["chosen"].sum() == 1 and part["RR@10"][part["chosen"]].item() == part["RR@10"].max()
        assert chosen[name] == dict(zip(part["chosen"], values, strict=True))[True]
    assert [found["BM25"] for found in seen] == [chosen["BM25"]] * 2
    run = Lexical(BM25(k1=0.5, b=0.1)).run(Target(collection), split="dev")
    values = evaluate(run, collection.judgments("dev"), ["RR@10"])["value"]
    assert trials["RR@10"][0] == pytest.approx(100 * values.mean())


def test_the_grid_has_the_systems_that_there_are():
    results = put(put(Results(), "labels", {0: [25.0] * 20}, "c", "RR@10"), "GQ > labels", {0: [50] * 20}, "c", "RR@10")
    cells = {"nothing": {"alone": "", "labels": "labels"}, "GQ": {"alone": "GQ", "labels": "GQ > labels"}}
    found = leaderboard.grid(results, "c", cells)
    assert found.loc["nothing"].tolist() == ["", "25.0 ± 0.0"] and found.loc["GQ"].tolist() == ["", "50.0 ± 0.0"]
