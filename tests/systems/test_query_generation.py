"""The query generator: its training, what it writes for passages, and how a killed generation goes on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from retlib.core.errors import DataError, SettingError
from retlib.data.collection import Article, Collection
from retlib.data.text import TokenTable, WordPiece
from retlib.models.decoding import Beam, Found, Greedy, Nucleus
from retlib.systems import query_generation
from retlib.systems.dense import Schedule
from retlib.systems.query_generation import (
    Architecture,
    Generator,
    WritingTask,
    denoise,
    fit,
    generate,
    labelled_pairs,
    tidy,
)
from retlib.training.pretraining import Corpus

LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl", "'", "-"))
SMALL = Architecture(layers=1, width=64, passage_length=8, query_length=4)
SHORT = Schedule(steps=4, batch_size=4, evaluations=2, precision="float32")


def texts(count, seed=0, length=6):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefghijkl"), length)) for _ in range(count)]


def make_pairs(train=40, dev=8):
    """The query is the first two letters of its passage."""
    passages = texts(train + dev)
    split = ["train"] * train + ["dev"] * dev
    return pd.DataFrame({"query": [text[:3] for text in passages], "passage": passages, "split": split})


PASSAGES = pd.Series(texts(11, seed=1), index=[f"p{i}" for i in range(11)])


@pytest.fixture(scope="module")
def start():
    return Generator.fresh(SMALL, LETTERS, seed=0)


@pytest.fixture(scope="module")
def trained(start):
    return fit(start, make_pairs(), SHORT, seed=0)


@pytest.fixture(scope="module")
def corpus():
    halves = zip(texts(6), texts(6, seed=1), strict=True)
    articles = [Article(f"a{i}", "", (f"{one}. {other}.",), 1) for i, (one, other) in enumerate(halves)]
    return Corpus.build(articles, LETTERS, lambda text: text.split("."))


@pytest.fixture
def trainings(monkeypatch):
    """The trainings so far."""
    calls, real = [], query_generation.train
    monkeypatch.setattr(query_generation, "train", lambda *given: calls.append(given) or real(*given))
    return calls


# --- training --------------------------------------------------------------------------------------


def test_a_generator_is_trained_once_and_found_again(trained, start, trainings):
    again = fit(start, make_pairs(), SHORT, seed=0)
    assert trainings == [] and again.name == trained.name != ""
    assert again.architecture == SMALL and again.units == LETTERS
    assert [row["step"] for row in again.history.evaluations] == [0, 2, 4]
    assert again.fingerprint == trained.fingerprint != start.fingerprint
    assert again.parameters == trained.parameters > 10_000
    assert again.model.training is False


def test_what_makes_it_another_generator(trained, start, trainings):
    names = {
        trained.name,
        fit(start, make_pairs(), SHORT, seed=1).name,
        fit(start, make_pairs(train=30), SHORT, seed=0).name,
        fit(start, make_pairs(), replace(SHORT, steps=2), seed=0).name,
        fit(trained, make_pairs(), SHORT, seed=0).name,
        fit(Generator.fresh(replace(SMALL, head="bart"), LETTERS, 0), make_pairs(), SHORT, seed=0).name,
    }
    assert len(names) == 6 and len(trainings) == 5


def test_training_leaves_its_start_as_it_is_and_learns(start, own_build):
    before = start.fingerprint
    found = fit(start, make_pairs(200, 50), Schedule(steps=80, batch_size=32, learning_rate=3e-3), seed=0)
    assert start.fingerprint == before
    scores = found.history.frame()["score"]
    # Two letters out of 12 and an end: (2 ln 12) / 3 = 1.66 nats a unit, for a model that reads nothing.
    assert scores.iloc[-1] > -1.2 > scores.iloc[0]


def test_the_loss_is_the_mean_of_units_with_their_ends(start):
    table, queries = LETTERS.encode(["a b c", "d"]), LETTERS.encode(["a b", "d"])
    task = WritingTask(start.model, query_generation.Pairs(queries, table), 2, 0)
    batch = task.batch(0)
    assert sorted(batch.queries.lengths) == [1, 2]
    with torch.no_grad():
        expected = -start.model.log_likelihoods(table, queries).sum() / 5
        torch.testing.assert_close(task.loss(batch), expected)


def test_a_generator_is_saved_and_read(start, tmp_path):
    start.save(tmp_path)
    again = Generator.load(tmp_path)
    assert again.fingerprint == start.fingerprint and again.name == tmp_path.name


def test_pairs_are_cut_at_the_lengths(trained):
    pairs = pd.DataFrame({"query": ["a b c d e f", "k"], "passage": ["a " * 20, "b"]})
    found = query_generation._tokenized(trained, pairs)
    assert found.queries.lengths.tolist() == [4, 1] and found.documents.lengths.tolist() == [8, 1]


def test_denoising_is_an_artefact_that_training_starts_from(start, corpus, trainings):
    denoised = denoise(start, corpus, SHORT, seed=0)
    assert denoised.name != "" and denoise(start, corpus, SHORT, seed=0).name == denoised.name
    assert len(trainings) == 1
    assert fit(denoised, make_pairs(), SHORT, seed=0).name != fit(start, make_pairs(), SHORT, seed=0).name


def test_what_cannot_be_trained_is_named(start, corpus):
    pairs = make_pairs()
    with pytest.raises(DataError, match=r"missing: \['split'\]"):
        fit(start, pairs.drop(columns="split"), SHORT, seed=0)
    for split, other in (("train", "dev"), ("dev", "train")):
        with pytest.raises(DataError, match=f"none has split = '{split}'"):
            fit(start, pairs.assign(split=other), SHORT, seed=0)
    for schedule in (replace(SHORT, chunk=2), replace(SHORT, corrected=True)):
        with pytest.raises(SettingError, match="without chunks and without correction"):
            fit(start, pairs, schedule, seed=0)
        with pytest.raises(SettingError, match="without chunks and without correction"):
            denoise(start, corpus, schedule, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": "pointr"}, "Did you mean 'pointer'"),
        ({"layers": 0}, "layers = 0"),
        ({"query_length": 0}, "query_length = 0"),
    ],
)
def test_architectures_that_cannot_be_are_named(changes, message):
    with pytest.raises(SettingError, match=message):
        replace(SMALL, **changes)


def test_a_generator_has_one_vocabulary():
    for architecture, wordpiece in ((SMALL, None), (replace(SMALL, checkpoint="somewhere"), LETTERS)):
        with pytest.raises(SettingError, match="give one of them"):
            Generator.fresh(architecture, wordpiece, 0)


# --- labelled pairs --------------------------------------------------------------------------------


def make_collection(articles=True):
    documents = pd.DataFrame({"text": [f"text {i}" for i in range(60)]}, index=[f"d{i}" for i in range(60)])
    if articles:
        documents["article"] = [f"article {i // 3}" for i in range(60)]
    queries = pd.DataFrame({"text": [f"query {i}" for i in range(60)]}, index=[f"q{i}" for i in range(60)])
    queries["split"] = ["train"] * 40 + ["dev"] * 10 + ["test"] * 10
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": documents.index, "relevance": 1})
    qrels.loc[0, "relevance"] = 0
    more = pd.DataFrame({"query_id": ["q1"], "doc_id": ["d5"], "relevance": [2]})
    qrels = pd.concat([qrels, more], ignore_index=True)
    return Collection("small", documents.rename_axis("doc_id"), queries.rename_axis("query_id"), qrels)


@pytest.mark.parametrize("articles", [True, False])
def test_labelled_pairs_are_those_of_training_and_validation_divided_by_article(articles):
    collection = make_collection(articles)
    found = labelled_pairs(collection)
    asked = {(f"query {i}", f"text {i}") for i in range(1, 50)} | {("query 1", "text 5")}
    assert set(zip(found["query"], found["passage"], strict=True)) == asked and len(found) == 50
    assert set(found["split"]) == {"train", "dev"}
    unit = found["passage"].str.removeprefix("text ").astype(int) // (3 if articles else 1)
    assert found["split"].groupby(unit).nunique().max() == 1
    with pytest.raises(SettingError, match="column = 'sentence'"):
        labelled_pairs(collection, "sentence")


# --- generation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [Greedy(), Beam(3), Nucleus(0.95, 6, 4)], ids=lambda how: how.name)
def test_queries_are_sorted_distinct_and_found_again(trained, how, monkeypatch):
    found = generate(trained, PASSAGES, how, seed=0)
    assert found.columns.tolist() == ["passage_id", "query", "log_likelihood", "units"]
    assert set(found["passage_id"]) <= set(PASSAGES.index) and found.attrs["name"]
    assert not found.duplicated(["passage_id", "query"]).any() and (found["query"] != "").all()
    order = found.sort_values(["passage_id", "log_likelihood"], ascending=[True, False])
    assert order.index.tolist() == found.index.tolist()
    assert (found["log_likelihood"] < 0).all() and found["units"].between(1, 4).all()
    monkeypatch.setattr(query_generation, "_written", None)
    pd.testing.assert_frame_equal(generate(trained, PASSAGES, how, seed=0), found)


def test_likelihoods_are_those_of_the_model():
    brief = Generator.fresh(replace(SMALL, head="bart"), LETTERS, seed=0)
    before = brief.fingerprint
    brief.model.bart.final_logits_bias[0, LETTERS.sep] = 2.0
    assert brief.fingerprint != before
    found = generate(brief, PASSAGES, Beam(3), seed=0)
    found = found[found["units"] < 4]  # others were cut
    assert len(found) > 10
    with torch.no_grad():
        tables = brief.passages(PASSAGES[found["passage_id"]]), LETTERS.encode(found["query"])
        expected = brief.model.log_likelihoods(*tables)
    np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-4)


@pytest.mark.parametrize("how", [Beam(2), Nucleus(0.95, 4, 2)], ids=lambda how: how.name)
def test_a_passage_gets_the_same_queries_in_any_company(trained, how, own_build, monkeypatch):
    whole = generate(trained, PASSAGES, how, seed=0)
    some = generate(trained, PASSAGES.iloc[[7, 2, 9]], how, seed=0)
    expected = whole[whole["passage_id"].isin(["p7", "p2", "p9"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(some, expected, rtol=1e-4)
    monkeypatch.setattr(query_generation, "BATCH", 2)
    monkeypatch.setattr(query_generation, "PART", 5)
    monkeypatch.setenv("RETLIB_BUILD", str(own_build / "other"))
    pd.testing.assert_frame_equal(generate(trained, PASSAGES, how, seed=0), whole, rtol=1e-4)


def test_a_killed_generation_loses_one_part(trained, own_build, monkeypatch):
    monkeypatch.setattr(query_generation, "PART", 4)
    real, written = query_generation._written, []

    def killed(generator, ids, *rest):
        written.append(len(ids))
        if len(written) == 3:
            raise KeyboardInterrupt
        return real(generator, ids, *rest)

    monkeypatch.setattr(query_generation, "_written", killed)
    with pytest.raises(KeyboardInterrupt):
        generate(trained, PASSAGES, Greedy(), seed=0)
    found = generate(trained, PASSAGES, Greedy(), seed=0)
    assert written == [4, 4, 3, 3]  # the third part was lost, and was made again
    (folder,) = [path for path in (own_build / "cache" / "generated").iterdir() if path.is_dir()]
    assert {path.name for path in folder.iterdir()} == {"queries.parquet", "settings.json"}
    assert f'"generator": "{trained.name}"' in (folder / "settings.json").read_text()
    monkeypatch.setattr(query_generation, "_written", real)
    monkeypatch.setenv("RETLIB_BUILD", str(own_build / "other"))
    pd.testing.assert_frame_equal(generate(trained, PASSAGES, Greedy(), seed=0), found)


def test_what_makes_them_other_queries(trained):
    how = Nucleus(1.0, 3, 3)
    one = generate(trained, PASSAGES, how, seed=0)
    others = [
        generate(trained, PASSAGES, how, seed=1),
        generate(trained, PASSAGES, replace(how, samples=4), seed=0),
        generate(trained, PASSAGES.replace(PASSAGES["p0"], "a"), how, seed=0),
    ]
    assert len({frame.attrs["name"] for frame in (one, *others)}) == 4
    assert set(one["query"]) != set(others[0]["query"])


def test_duplicates_of_a_passage_and_empty_queries_go(trained, monkeypatch):
    a, b = LETTERS.ids["a"], LETTERS.ids["b"]
    queries = TokenTable.from_rows([[a], [b], [a], [], [a]])
    found = Found(np.array([0, 0, 0, 1, 1]), queries, np.array([-1.0, -2.0, -3.0, -1.0, -4.0]))
    monkeypatch.setattr(Greedy, "decode", lambda *given: found)
    written = query_generation._written(trained, pd.Index(["x", "y"]), LETTERS.encode(["a", "b"]), Greedy(), 0)
    assert written["passage_id"].tolist() == ["x", "x", "y"] and written["query"].tolist() == ["a", "b", "a"]
    assert written["log_likelihood"].tolist() == [-1, -2, -4]


def test_passages_that_cannot_be_are_named(trained):
    with pytest.raises(DataError, match="there is no passage"):
        generate(trained, PASSAGES[:0], Greedy(), seed=0)
    with pytest.raises(DataError, match=r"passage id \['p0'\] is repeated"):
        generate(trained, pd.Series(["a", "b"], index=["p0", "p0"]), Greedy(), seed=0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what is newton ' s law", "what is newton's law"),
        ("what doesn ' t fit ?", "what doesn't fit ?"),
        ("the so - called rock - and - roll", "the so-called rock-and-roll"),
        ("' quoted ' words", "' quoted ' words"),
        ("", ""),
    ],
)
def test_tidy(query, expected):
    assert tidy(query) == expected
