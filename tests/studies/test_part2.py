"""Studies over ReQA: what is recorded for whom under which name, and tables; on NumPy's docstrings."""

from itertools import product

import pandas as pd
import pytest
from recorded import put

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Article, Collection
from retlib.evaluation import results
from retlib.models.retriever import Retriever
from retlib.retrieval.lexical import BM25
from retlib.studies import part2
from retlib.studies.experiment import Experiment, Positive
from retlib.studies.part2 import MEASURES
from retlib.studies.recipe import LabelShares
from retlib.studies.study import Study
from retlib.systems.compose import Lexical
from retlib.systems.system import Stage, System
from retlib.systems.training_data import Labels

import open_domain
import reqa

RECIPE = LabelShares(articles="pydocs-smoke", vocabulary=300, width=64, dimension=16, query_length=12,
                     document_length=24, pretraining_steps=2, pretraining_batch=8)  # fmt: skip
NAME = "pydocs-reqa-smoke"
FEW = f"{NAME}-0.05"
BAG = System(RECIPE.architecture(layers=0), RECIPE.pages)
PLAIN = System(RECIPE.architecture(encoder="bow-mlp", width=32), RECIPE.pages)
PRETRAINED = RECIPE.pretrained("ict")
LABELS = Stage(data=Labels(), steps=2, batch_size=8)


def experiment(**changes):
    given = {"profile": "smoke", "seeds": [0, 1], "source": "run", "shares": [0.05, 0.8], "candidates": 150, **changes}
    return Experiment("22", given, shares=part2.Shares, candidates=Positive)


@pytest.mark.parametrize("shares", [[0.9], [0.0], []])
def test_a_share_leaves_questions_to_test_on(shares):
    with pytest.raises(SettingError, match="shares"):
        experiment(shares=shares)


@pytest.fixture(scope="module")
def targets():
    return {share: part2.targets(experiment(), [NAME], share) for share in (0.05, 0.8)}


@pytest.fixture(scope="module")
def recorded(targets):
    """Three systems among own and further candidates, as a chapter records them."""
    desk, tests = experiment(), targets[0.05]
    tests = tests + open_domain.with_candidates(tests, open_domain.article_sentences(("pydocs-smoke",), 40))
    systems = {"BM25": Lexical(BM25()), "plain": PLAIN + LABELS, "pre-trained": PRETRAINED + LABELS}
    Study(systems, tests, MEASURES, depth=100).run(desk)
    reqa.record_others(desk, [datasets.load(NAME)], "BM25", Lexical(BM25()))
    return desk


def rows(desk, measure="R@1"):
    return desk.results.rows[desk.results.rows["measure"] == measure]


def test_every_system_is_recorded_on_every_target_with_every_seed(recorded):
    found = set(rows(recorded, "R@10")[["system", "collection", "seed"]].itertuples(index=False, name=None))
    seeds = [("BM25", 0), *product(("plain", "pre-trained"), (0, 1))]  # words are not trained
    assert found == {(system, name, seed) for (system, seed), name in product(seeds, (FEW, f"{FEW}+added"))}
    whole, of = len(datasets.load(NAME).queries), rows(recorded).set_index("collection")["queries"]
    assert whole > of[f"{FEW}-others"] > of[f"{NAME}-0.8-others"] > 0  # all queries but those that would train


def test_further_candidates_can_only_push_others_down(recorded):
    for system in ("BM25", "plain"):
        alone, among = (recorded.results.per_query(name, "test", "R@100", system) for name in (FEW, f"{FEW}+added"))
        assert (among.to_numpy() <= alone.to_numpy()).all()
    counts = rows(recorded).drop_duplicates("collection").set_index("collection")["candidates"]
    assert counts[f"{FEW}+added"] == counts[FEW] + 40


def test_the_shares_are_tested_on_the_same_queries_and_candidates(targets):
    few, many = targets[0.05][0], targets[0.8][0]
    assert few.test.split("test").index.equals(many.test.split("test").index)
    assert few.test.documents.index.equals(many.test.documents.index)
    assert set(few.trains.split("train").index) < set(many.trains.split("train").index)
    (some,), (every,) = targets[0.05], part2.targets(experiment(), [NAME], 0.05, whole=True)
    assert every.test.name == f"{some.test.name}-all" and len(every.test.documents) > len(some.test.documents)
    assert every.test.split("test").index.equals(some.test.split("test").index)
    assert every.trains.fingerprint == some.trains.fingerprint


def test_very_many_candidates_are_read_to_half_of_the_length(targets, monkeypatch):
    seen, real = [], open_domain.dense_searcher
    monkeypatch.setattr(open_domain, "dense_searcher", lambda *given: seen.append(given[0]) or real(*given))
    added = open_domain.article_sentences(("pydocs-smoke",), 60)
    desk, (many,) = experiment(), open_domain.with_candidates(targets[0.05], added, "many")
    open_domain.record_one_seed(desk, "plain", PLAIN + LABELS, many)
    assert [each.architecture.document_length for each in seen] == [12]
    assert rows(desk)[["collection", "seed"]].to_numpy().tolist() == [[f"{FEW}+many", 0]]


def test_sentences_are_added_with_their_passages_from_outside_the_first_sections(monkeypatch):
    first = Article("a", "A", ("Opening one.", "Opening two.", "First here. Second here.", "Third here."), 2)
    others = Article("b", "B", ("All of it is opening.",), 1), Article("c", "C", (), 0)
    written = {"one": [first, *others], "two": [Article("d", "D", ("Opening.", "Fourth here."), 1)], "none": others[:1]}
    monkeypatch.setattr(datasets, "articles", lambda name: iter(written[name]))
    found = open_domain.article_sentences(("one", "two"), 4)
    assert found["sentence"].tolist() == ["First here.", "Second here.", "Third here.", "Fourth here."]
    assert found["context"].tolist()[:2] == ["First here. Second here."] * 2
    assert found["text"][1] == "Second here. First here. Second here."
    for sources, has in ((("one",), 3), (("two", "one"), 4), (("none",), 0)):
        with pytest.raises(DataError, match=f"{has} .* 5"):
            open_domain.article_sentences(sources, 5)


def tiny(name="tiny"):
    """Two passages of two sentences."""
    fox, cat = "A dog sleeps. The red fox.", "A green bird sings. A cat eats."
    documents = pd.DataFrame({"context": {"p#0": fox, "p#1": fox, "q#0": cat, "q#1": cat}})
    documents["sentence"] = ["A dog sleeps.", "The red fox.", "A green bird sings.", "A cat eats."]
    documents["text"] = documents["sentence"] + " " + documents["context"]
    texts = {"1": "red fox", "2": "dog", "3": "foxes", "4": "zebra"}
    queries = pd.DataFrame({"text": texts, "split": "test", "position": dict(zip("1234", (4, 3, 1, 2), strict=True))})
    relevant = pd.DataFrame({"query_id": list("1234"), "doc_id": ["p#1", "p#0", "p#1", "q#0"], "relevance": 1})
    return Collection(name, documents, queries, relevant)


ALONE = "k1 1.2, b 0.75, passage alone"


def test_bm25_is_tabled_at_every_setting(monkeypatch):
    more = tiny("more")
    table = reqa.bm25_table([tiny(), Collection("more", more.documents, more.queries, more.qrels.iloc[:1])])
    count = len(reqa.BM25_SETTINGS)
    assert table["collection"].tolist() == ["tiny"] * count + ["more"] * count
    found = table[table["collection"] == "tiny"].set_index("settings")
    assert found.index.tolist() == list(reqa.BM25_SETTINGS)
    assert (found["queries"] == 4).all() and (found["candidates"] == 4).all() and (found["seconds"] > 0).all()
    # "red fox" and "dog" find their sentences, which stand twice in their own candidate and once in the other.
    # Only a stemmer finds "foxes"; nothing finds "zebra".
    for settings in found.index.drop(ALONE):
        assert found.loc[settings, MEASURES].tolist() == [75 if "stemmed" in settings else 50] * 5
    # The passage alone is the same for both sentences, and the first one wins.
    assert found.loc[ALONE, MEASURES].tolist() == [25, 50, 50, 50, 50]
    only = table[table["collection"] == "more"].set_index("settings")["R@1"]
    assert only.to_dict() == {settings: 0 if settings == ALONE else 100 for settings in reqa.BM25_SETTINGS}
    monkeypatch.setattr(reqa, "SAMPLE", 2)  # most settings are tried on the first queries by position
    few = reqa.bm25_table([tiny()])
    assert few["queries"].tolist() == [4, 4, 2, 2, 2, 2]
    assert few["R@1"].tolist() == [50, 75, 0, 50, 0, 0]  # of "foxes" and "zebra"


def test_what_labels_buy_is_tested_step_by_step():
    """Without any label each question is found in half of the cases, with few always; more labels change nothing."""
    found = results.Results()
    values = {("here-0.05", "a, no labels"): [0.0, 1.0] * 20, ("here-0.8", "fresh"): [0.0, 1.0] * 20}
    values |= {("here-0.05", "a"): [1.0] * 40, ("here-0.8", "a"): [1.0] * 40, ("here-0.05", "fresh"): [0.0] * 40}
    for (test, system), each in values.items():
        put(found, system, {0: [100 * value for value in each]}, test, "R@10")
    bought = reqa.labels_bought(found, ["here"], [0.8, 0.05], ["a", "fresh"], "R@10")
    assert bought["labels"].tolist() == ["no labels", "5 %", "80 %", "5 %", "80 %"]
    assert bought["value"].tolist() == [50.0, 100.0, 100.0, 0.0, 50.0]
    assert bought["gain"].fillna(-1).tolist() == [-1, 50.0, 0.0, -1, 50.0]
    assert (bought["p"] < 0.05).tolist() == [False, True, False, False, True]
    table = reqa.bought_in_columns(bought)
    assert table.loc[("here", "a")].tolist() == ["50.0", "100.0 (+50.0*)", "100.0 (+0.0)"]
    assert table.loc[("here", "fresh")].tolist() == ["", "0.0", "50.0 (+50.0*)"]


def test_weights_are_counted():
    two = System(RECIPE.architecture(encoder="bow-mlp", width=32, towers="two"), RECIPE.pages)
    found = part2.weights({"plain": PLAIN, "two": two}).set_index("system")["weights"]
    model = Retriever.fresh(PLAIN.architecture, RECIPE.pages.tokenizer, 0).model
    assert found["plain"] == sum(p.numel() for p in model.parameters()) > 300 * 32
    assert found["two"] == 2 * found["plain"] - 2  # both towers have one scale and one shift
    grown = BAG + Stage(data=Labels(), steps=1, layers=1)
    deep = System(RECIPE.architecture(), RECIPE.pages)
    found = part2.weights({"bare": BAG, "grown": grown, "deep": deep}).set_index("system")["weights"]
    assert found["grown"] == found["deep"] > found["bare"]


def test_costs_are_scaled_to_a_thousand_queries_and_a_million_documents(targets, monkeypatch):
    monkeypatch.setattr(runtime.Stopwatch, "__exit__", lambda watch, *_: setattr(watch, "seconds", 2.0))
    desk = experiment()
    open_domain.record_cost(desk, PRETRAINED, targets[0.05][0], queries=5, documents=200, pairs=3, repeats=2)
    values = desk.results.rows.set_index(["system", "seed"])["value"].to_dict()
    assert values == {
        (name, seed): 2e9 / n for name, n in (("inner product", 1000), ("cross-attention", 3)) for seed in (0, 1)
    }
