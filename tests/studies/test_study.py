"""Studies over ReQA: what is recorded for whom under which name, their rules and tables; on NumPy's docstrings."""

import json

import numpy as np
import pandas as pd
import pytest

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Article, Collection
from retlib.retrieval.lexical import BM25
from retlib.studies import cost, reqa, reqa_tables
from retlib.studies.experiment import COMMON, Experiment, check_parameters
from retlib.studies.reqa import MEASURES, Added, System
from retlib.systems import dense
from retlib.systems.dense import Architecture, Retriever, Schedule

PARAMETERS = {
    "profile": "smoke", "seeds": [0, 1], "source": "run", "articles": "pydocs-smoke", "units": 300, "candidates": 150,
    "shares": [0.05, 0.8], "layers": 1, "width": 64, "dimension": 16, "pooling": "mean", "towers": "siamese",
    "query_length": 12, "document_length": 24, "pretraining_steps": 2, "pretraining_batch": 8,
    "pretraining_rate": 0.001, "mlm_rate": 0.001, "finetuning_steps": {"0.05": 2, "0.8": 3}, "finetuning_batch": 8,
    "finetuning_rate": 0.01,
}  # fmt: skip
NAME = "pydocs-reqa-smoke"
FEW, MANY = f"{NAME}-0.05", f"{NAME}-0.8"
PRETRAINED, PLAIN = "Transformer, ICT", "BoW-MLP"


@pytest.fixture(scope="module")
def study():
    return reqa.study(datasets.load(NAME), PARAMETERS)


@pytest.fixture(scope="module")
def systems():
    return {
        PLAIN: System(reqa.architecture(PARAMETERS, encoder="bow-mlp", width=32)),
        PRETRAINED: System(reqa.architecture(PARAMETERS), ("ict",)),
    }


@pytest.fixture(scope="module")
def added():
    return Added.gather(["pydocs-smoke"], 40)


@pytest.fixture(scope="module")
def desk(study, systems, added):
    """Everything recorded as the notebooks record it."""
    desk = experiment()
    reqa.record_bm25(desk, study, {"BM25": BM25()})
    reqa.record_bm25(desk, study, {"BM25": BM25()}, added)
    reqa.record_others(desk, study.collection, {"BM25": BM25()})
    reqa.record_unlabelled(desk, study, {PRETRAINED: systems[PRETRAINED]})
    reqa.record_systems(desk, study, systems)
    reqa.record_systems(desk, study, {PRETRAINED: systems[PRETRAINED]}, added)
    reqa.record_many(desk, study, {PRETRAINED: systems[PRETRAINED]}, Added.gather(["pydocs-smoke"], 60))
    return desk


def experiment():
    return Experiment("22_reqa", dict(PARAMETERS), **reqa.RULES)


def rows(desk, measure="R@1"):
    return desk.results.rows[desk.results.rows["measure"] == measure]


def per_query(desk, collection, system, measure="R@100"):
    return desk.results.per_query(collection, "test", measure, system)


# --- what is recorded ------------------------------------------------------------------------------


def test_every_system_is_recorded_at_every_share_with_every_seed(desk):
    found = set(rows(desk)[["system", "collection", "seed"]].itertuples(index=False, name=None))
    both = [(name, seed) for name in (PLAIN, PRETRAINED) for seed in (0, 1)]
    expected = {(name, collection, seed) for name, seed in both for collection in (FEW, MANY)}
    expected |= {(PRETRAINED, f"{collection}+added", seed) for collection in (FEW, MANY) for seed in (0, 1)}
    expected |= {(f"{PRETRAINED}, no labels", FEW, seed) for seed in (0, 1)}
    expected |= {("BM25", f"{part}{kind}", 0) for part in (FEW, MANY) for kind in ("", "+added", "-others")}
    expected |= {(PRETRAINED, f"{FEW}+many", 0)}
    assert found == expected
    assert rows(desk)[["system", "collection", "seed"]].duplicated().sum() == 0
    # All but the training queries are there for one claim alone, on R@1.
    others = {key for key in expected if key[1].endswith("-others")}
    for measure in MEASURES:
        assert len(rows(desk, measure)) == len(expected) - (0 if measure == "R@1" else len(others))
    assert set(desk.results.rows["split"]) == {"test"} and set(desk.results.rows["measure"]) == set(MEASURES)


def test_the_shares_are_tested_on_the_same_queries_and_candidates(desk, study):
    few, many = study.part(0.05), study.part(0.8)
    assert (few.name, many.name) == (FEW, MANY)
    assert few.documents.equals(many.documents) and few.split("test").equals(many.split("test"))
    assert few.judgments("test").equals(many.judgments("test"))
    assert (few.split("test")["position"] >= 0.8).all()
    assert set(few.split("train").index) < set(many.split("train").index)
    for collection in (FEW, MANY, f"{FEW}+added", f"{FEW}+many"):
        frame = desk.results.queries[collection, "test", "R@1"]
        assert frame.index.equals(pd.Index(few.judgments("test")["query_id"].unique()))
        assert frame["cluster"].equals(few.queries["cluster"][frame.index])
    assert study.part(0.05) is few  # made once
    lengths = reqa.architecture(PARAMETERS), reqa.architecture(PARAMETERS, layers=2)
    assert study.benchmark(lengths[0]) is study.benchmark(lengths[1])


def test_bm25_does_not_depend_on_the_share(desk, study):
    for kind in ("", "+added"):
        few, many = (per_query(desk, f"{part}{kind}", "BM25", "R@5") for part in (FEW, MANY))
        assert few.equals(many) and few.shape[1] == 1
    part = study.part(0.05)
    run = reqa.ranked(BM25(), part, part.split("test"))
    assert set(run["query_id"]) <= set(part.split("test").index) and set(run["doc_id"]) <= set(part.documents.index)
    first = run.drop_duplicates("query_id").set_index("query_id")["doc_id"]
    hits = first.reindex(part.split("test").index) == part.split("test")["cluster"]
    assert rows(desk).set_index(["system", "collection"])["value"]["BM25", FEW] == pytest.approx(hits.mean())


def test_the_others_are_all_queries_but_those_that_would_train(desk, study):
    queries = study.collection.queries
    for share, part in ((0.05, FEW), (0.8, MANY)):
        frame = desk.results.queries[f"{part}-others", "test", "R@1"]
        assert set(frame.index) == set(queries.index[queries["position"] >= share])
    # The same query has the same value in both: all candidates, ranked once.
    few, many = (per_query(desk, f"{part}-others", "BM25", "R@1") for part in (FEW, MANY))
    assert few.loc[many.index].equals(many)
    assert set(rows(desk).query("collection.str.endswith('-others')")["candidates"]) == {
        len(study.collection.documents)
    }


def test_added_candidates_count_and_can_only_push_others_down(desk, study, added):
    size = len(study.part(0.05).documents)
    found = rows(desk).set_index(["system", "collection", "seed"])["candidates"]
    assert (len(added), size) == (40, study.candidates(0.05))
    assert found[PRETRAINED, FEW, 0] == found["BM25", FEW, 0] == found[f"{PRETRAINED}, no labels", FEW, 0] == size
    assert found[PRETRAINED, f"{FEW}+added", 1] == found["BM25", f"{MANY}+added", 0] == size + 40
    assert found[PRETRAINED, f"{FEW}+many", 0] == size + 60
    for system, kind in ((PRETRAINED, "+added"), (PRETRAINED, "+many")):
        without, more = per_query(desk, FEW, system), per_query(desk, f"{FEW}{kind}", system)
        assert (without[more.columns] >= more).all(axis=None)
        assert (without[more.columns] > more).any(axis=None)  # and some of them do


def test_a_run_names_the_added_candidates(study, systems, added):
    run = study.run(study.retriever(systems[PRETRAINED], 0.05, 0), 0.05, added.tokenize(study.prepared[0], 24))
    others = run[run["doc_id"].str.startswith("added#")]
    assert 0 < len(others) and set(others["doc_id"]) <= set(added.texts.index)
    lexical = reqa.ranked(BM25(), study.part(0.05), study.part(0.05).split("test"), added)
    assert set(added.texts.index) & set(lexical["doc_id"])


def test_very_many_candidates_are_added_for_the_first_share_and_seed_alone(study, systems, added, monkeypatch):
    seen, real = [], dense.candidates
    monkeypatch.setattr(dense, "candidates", lambda *given: seen.append(real(*given)) or seen[-1])
    desk = experiment()
    reqa.record_many(desk, study, {PRETRAINED: systems[PRETRAINED]}, added)
    assert [len(table) for table in seen] == [40] and seen[0].lengths.max() == 12  # half of 24
    (row,) = rows(desk).itertuples()
    assert (row.collection, row.seed, row.system) == (f"{FEW}+many", 0, PRETRAINED)


def test_settings_stand_beside_the_results(desk, study):
    found = rows(desk).set_index(["system", "collection", "seed"])
    plain, pretrained = (json.loads(found.loc[name, MANY, 1]["parameters"]) for name in (PLAIN, PRETRAINED))
    assert (plain["tasks"], plain["pretraining"], plain["encoder"], plain["width"]) == ("none", {}, "bow-mlp", 32)
    assert (pretrained["tasks"], pretrained["encoder"]) == ("ict", "transformer")
    assert (pretrained["pretraining"]["steps"], pretrained["finetuning"]["steps"]) == (2, 3)
    assert pretrained["corpus"] == study.prepared[1].fingerprint[:12]
    assert json.loads(found.loc["BM25", FEW, 0]["parameters"])["k1"] == 1.2
    assert (found.loc[f"{PRETRAINED}, no labels", FEW, 0]["steps"]) == 0
    assert 0 <= found.loc[PRETRAINED, MANY, 1]["steps"] <= 3 and found.loc[PRETRAINED, MANY, 1]["seconds"] > 0
    data = json.loads(found.loc[PRETRAINED, FEW, 0]["data"])
    assert data["fingerprint"] == study.part(0.05).fingerprint and "numpy" in data


def test_what_is_trained_is_found_again(desk, study, systems, monkeypatch):
    monkeypatch.setattr(dense, "train", lambda *given: pytest.fail("it trains again"))
    again = experiment()
    reqa.record_systems(again, study, systems)
    reqa.record_unlabelled(again, study, {PRETRAINED: systems[PRETRAINED]})
    columns = ["system", "collection", "seed", "value"]
    expected = rows(desk)[rows(desk)["system"].isin(rows(again)["system"])]
    expected = expected[expected["collection"].isin([FEW, MANY])]
    assert sorted(map(tuple, rows(again)[columns].to_numpy())) == sorted(map(tuple, expected[columns].to_numpy()))


def test_a_system_is_pretrained_once_for_all_shares(study, systems):
    one, other = (study.pretrained(systems[PRETRAINED], seed) for seed in (0, 1))
    assert one.name and one.name != other.name and one.name == study.pretrained(systems[PRETRAINED], 0).name
    assert study.pretrained(systems[PLAIN], 0).name == ""
    few, many = (study.retriever(systems[PRETRAINED], share, 0).name for share in (0.05, 0.8))
    assert len({one.name, few, many}) == 3


# --- added candidates ------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """Two sources of articles, written here."""
    sources = {
        "one": [
            Article("a", "A", ("Opening one.", "Opening two.", "First here. Second here.", "Third here."), 2),
            Article("b", "B", ("All of it is opening.",), 1),
            Article("c", "C", (), 0),
        ],
        "two": [Article("d", "D", ("Opening.", "Fourth here."), 1)],
        "none": [Article("e", "E", ("Opening.",), 1)],
    }
    monkeypatch.setattr(datasets, "articles", lambda name: iter(sources[name]))


def test_sentences_are_added_with_their_passages_from_outside_the_first_sections(written):
    found = Added.gather(["one", "two"], 4)
    assert found.sentences == ["First here.", "Second here.", "Third here.", "Fourth here."]
    assert found.contexts == ["First here. Second here.", "First here. Second here.", "Third here.", "Fourth here."]
    assert found.texts["added#1"] == "Second here. First here. Second here."
    assert found.texts.index.tolist() == ["added#0", "added#1", "added#2", "added#3"] and len(found) == 4
    assert Added.gather(["two", "one"], 2).sentences == ["Fourth here.", "First here."]


@pytest.mark.parametrize(("sources", "has"), [(["one"], 3), (["two", "one"], 4), (["none"], 0)])
def test_too_few_sentences_are_an_error(written, sources, has):
    with pytest.raises(DataError, match=f"{', '.join(sources)} give {has} candidates, not 5"):
        Added.gather(sources, 5)


def test_added_candidates_are_a_sentence_and_a_window_of_its_passage(written, study):
    added = Added.gather(["one"], 3)
    wordpiece = study.prepared[0]
    found = added.tokenize(wordpiece, 12)
    assert added.tokenize(wordpiece, 12) is found  # kept
    sentence, context = (wordpiece.encode([text]).row(0) for text in ("Second here.", "First here. Second here."))
    expected = [*sentence, wordpiece.sep, *context]
    assert len(expected) > 12
    assert found.row(1).tolist() == expected[:12]
    assert added.tokenize(wordpiece, 5).row(1).tolist() == expected[:5]


# --- parameters ------------------------------------------------------------------------------------


def test_parameters_describe_the_study(study):
    assert study.pretraining == study.masking == Schedule(2, 8, 0.001)
    assert study.finetuning == {0.05: Schedule(2, 8, 0.01), 0.8: Schedule(3, 8, 0.01)}
    assert study.most == 150 and len(study.prepared[0]) == 300
    assert reqa.architecture(PARAMETERS, layers=2) == Architecture("transformer", 2, 64, 16, "mean", "siamese", 12, 24)


RULES = {**COMMON, **reqa.RULES}


def test_the_parameters_of_these_tests_pass():
    assert check_parameters(PARAMETERS, RULES) == PARAMETERS


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("shares", [0.9], "shares = 0.9 must be a number of at least 0.001 and at most 0.8"),
        ("shares", [0], "shares = 0 must be a number"),
        ("shares", [], "shares = .* at least one value"),
        ("shares", [0.05, 0.05], "names a value twice"),
        ("shares", 0.05, "must be a list"),
        ("pooling", "max", "pooling = 'max' is not known.*Valid: cls, mean"),
        ("towers", "three", "towers = 'three' is not known.*Valid: siamese, two"),
        ("articles", "pydoc", "articles = 'pydoc' is not known. Did you mean 'pydocs'"),
        ("units", 99, "units = 99 must be a whole number of at least 100"),
        ("candidates", 0, "candidates = 0 must be a whole number of at least 1"),
        ("layers", 1.5, "layers = 1.5 must be a whole number"),
        ("pretraining_batch", 1, "pretraining_batch = 1 must be a whole number of at least 2"),
        ("finetuning_rate", 2.0, "finetuning_rate = 2.0 must be a number"),
        ("finetuning_steps", {"0.05": 0, "0.8": 3}, r"finetuning_steps\['0.05'\] = 0 must be a whole number"),
        ("finetuning_steps", [2, 3], "finetuning_steps = .* must be a mapping"),
    ],
)
def test_an_impossible_parameter_is_refused(name, value, message):
    with pytest.raises(SettingError, match=message):
        check_parameters({**PARAMETERS, name: value}, RULES)


def test_a_share_without_finetuning_steps_is_refused():
    with pytest.raises(SettingError, match=r"finetuning_steps = .* lacks the share\(s\) \[0.1\]"):
        reqa.study(datasets.load(NAME), {**PARAMETERS, "shares": [0.05, 0.1, 0.8]})


# --- tables ----------------------------------------------------------------------------------------


def test_sizes_are_counted(study):
    found = reqa_tables.sizes([study], [0.05, 0.8])
    assert found["collection"].tolist() == [FEW, MANY]
    for row, share in zip(found.to_dict("records"), (0.05, 0.8), strict=True):
        part = study.part(share)
        for split in ("train", "dev", "test"):
            assert row[f"{split} queries"] == len(part.split(split)) > 0
        assert row["candidates"] == len(part.documents)
    first = found.iloc[0]
    documents = study.part(0.05).documents
    passages = dict(zip(documents["passage"], documents["context"], strict=True))
    assert first["words/passage"] == round(np.mean([len(text.split()) for text in passages.values()]), 1)
    assert first["words/sentence"] == round(np.mean([len(text.split()) for text in documents["sentence"]]), 1)
    assert first["ambiguous %"] == 0 and first["fingerprint"] == study.collection.fingerprint[:12]


def test_weights_are_counted(study, systems):
    two = System(reqa.architecture(PARAMETERS, encoder="bow-mlp", width=32, towers="two"))
    found = reqa_tables.weights(study, {**systems, "two": two}).set_index("system")["weights"]
    assert found.index.tolist() == [PLAIN, PRETRAINED, "two"]
    model = Retriever.fresh(systems[PLAIN].architecture, study.prepared[0], 0).model
    assert found[PLAIN] == sum(p.numel() for p in model.parameters()) > 300 * 32
    assert found["two"] == 2 * found[PLAIN] - 2  # both towers have one scale and one shift


def tiny(name="tiny"):
    """Two passages of two sentences and one of one."""
    fox, cat = "A dog sleeps. The red fox.", "A green bird sings. A cat eats."
    rows = [
        ("p#0", "A dog sleeps.", fox), ("p#1", "The red fox.", fox),
        ("q#0", "A green bird sings.", cat), ("q#1", "A cat eats.", cat),
    ]  # fmt: skip
    documents = pd.DataFrame(rows, columns=["doc_id", "sentence", "context"]).set_index("doc_id")
    documents["text"] = documents["sentence"] + " " + documents["context"]
    asked = {"1": ("red fox", "p#1"), "2": ("dog", "p#0"), "3": ("foxes", "p#1"), "4": ("zebra", "q#0")}
    queries = pd.DataFrame({"text": {q: text for q, (text, _) in asked.items()}, "split": "test"})
    queries["position"] = [0.4, 0.3, 0.1, 0.2]
    qrels = pd.DataFrame([(q, doc, 1) for q, (_, doc) in asked.items()], columns=["query_id", "doc_id", "relevance"])
    return Collection(name, documents, queries, qrels)


LUCENE, STEMMED, ALONE = "k1 1.2, b 0.75", "k1 1.2, b 0.75, stop words, stemmed", "k1 1.2, b 0.75, passage alone"


@pytest.fixture(scope="module")
def table():
    more = tiny("more")
    judged_once = Collection("more", more.documents, more.queries, more.qrels.iloc[:1])
    return reqa_tables.bm25_table([tiny(), judged_once])


def test_bm25_is_tabled_at_every_setting(table):
    count = len(reqa_tables.BM25_SETTINGS)
    assert table["collection"].tolist() == ["tiny"] * count + ["more"] * count
    found = table[table["collection"] == "tiny"].set_index("settings")
    assert found.index.tolist() == list(reqa_tables.BM25_SETTINGS)
    assert (found["queries"] == 4).all() and (found["candidates"] == 4).all() and (found["seconds"] > 0).all()
    # "red fox" and "dog" find their sentences, which stand twice in their own candidate and once in the other.
    # Only a stemmer finds "foxes"; nothing finds "zebra".
    for settings in found.index.drop(ALONE):
        assert found.loc[settings, MEASURES].tolist() == [75 if "stemmed" in settings else 50] * 5
    # The passage alone is the same for both sentences, and the first one wins.
    assert found.loc[ALONE, MEASURES].tolist() == [25, 50, 50, 50, 50]
    only = table[table["collection"] == "more"].set_index("settings")["R@1"]
    assert only.to_dict() == {settings: 0 if settings == ALONE else 100 for settings in reqa_tables.BM25_SETTINGS}


def test_most_settings_are_tried_on_the_first_queries_by_position(monkeypatch):
    monkeypatch.setattr(reqa_tables, "SAMPLE", 2)
    found = reqa_tables.bm25_table([tiny()]).set_index("settings")
    assert found["queries"].tolist() == [4, 4, 2, 2, 2, 2]
    assert found["R@1"].tolist() == [50, 75, 0, 50, 0, 0]  # of "foxes" and "zebra"


def test_the_closest_settings_are_found_on_the_first_collection(table):
    found = reqa_tables.closest(table, {"Paper A": 70.0, "Paper B": 26.0, "Paper C": 100.0, "Paper D": 49.0})
    assert found["printed in"].tolist() == ["Paper A", "Paper B", "Paper C", "Paper D"]
    assert found["R@1"].tolist() == [70, 26, 100, 49] and found["gives"].tolist() == [75, 25, 75, 50]
    assert found["closest here"].tolist() == [STEMMED, ALONE, STEMMED, LUCENE]  # the first of equals
    assert reqa_tables.closest(table, {"Paper": 26}, "R@5")["gives"].tolist() == [50]


def test_the_papers_numbers_are_found_by_share():
    rows = {"ours": "BM-25 | No Pretraining", "full": "Transformer | ICT+BFS+WLP"}
    found = reqa_tables.reported("table-3", "ReQA SQuAD", 0.01, rows)
    assert set(found) == {(system, measure) for system in rows for measure in MEASURES}
    assert found["ours", "R@1"] == 41.86
    assert reqa_tables.reported("table-3", "ReQA SQuAD", 0.8, rows)["full", "R@1"] > found["full", "R@1"]
    last = reqa_tables.reported("table-5", "ReQA NQ", 0.1, {"7": "Index 7 | 12 layers | ICT+BFS+WLP | emb-dim 128"})
    assert list(last) == [("7", "R@100")]
    assert reqa_tables.reported("table-3", "ReQA SQuAD", 0.1, rows) == {}  # 10 % is not in that table
    assert reqa_tables.reported("table-3", "ReQA SQuAD", 0.01, {"ours": "nobody"}) == {}


# --- what inner products save ----------------------------------------------------------------------


def test_costs_are_scaled_to_a_thousand_queries_and_a_million_documents(study, monkeypatch):
    monkeypatch.setattr(runtime.Stopwatch, "seconds", property(lambda self: 2.0))
    desk = experiment()
    cost.record_cost(desk, study, reqa.architecture(PARAMETERS), queries=5, documents=200, pairs=3, repeats=2)
    found = desk.results.rows
    assert set(found["measure"]) == {"seconds for 1000 x 1 million"} and set(found["collection"]) == {f"{NAME}-0.05"}
    values = found.set_index(["system", "seed"])["value"].to_dict()
    assert values == {
        ("inner product", 0): 2e9 / 1000, ("inner product", 1): 2e9 / 1000,
        ("cross-attention", 0): 2e9 / 3, ("cross-attention", 1): 2e9 / 3,
    }  # fmt: skip


def test_a_query_and_a_candidate_are_read_together(study):
    architecture = reqa.architecture(PARAMETERS)
    count = len(study.collection.queries) + 1  # one more than there are: the first query comes again
    table = cost._together(study, architecture, count)
    benchmark, sep = study.benchmark(architecture), study.prepared[0].sep
    for row in (0, 1, count - 1):
        query, document = row % (count - 1), row % len(benchmark.documents)
        expected = [*benchmark.queries.row(query), sep, *benchmark.documents.row(document)][:36]
        assert table.row(row).tolist() == expected
    assert len(table) == count and table.lengths.max() <= 36
