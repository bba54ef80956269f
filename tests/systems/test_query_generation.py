"""Query generators: their training, what they write for passages, and how a killed generation goes on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from generators import LETTERS, SHORT, SMALL, make_collection, make_corpus, make_pairs, texts

from retlib.core.errors import DataError, SettingError
from retlib.data.articles import Articles
from retlib.data.text import TokenTable, WordPiece
from retlib.models.generator import Beam, Found, Generator, Greedy, Nucleus
from retlib.models.retriever import Architecture
from retlib.systems import query_generation
from retlib.systems.query_generation import QueryGenerator, generate, tidy, train_generator, writing_pairs
from retlib.systems.system import Stage, System, fit
from retlib.systems.training_data import Labels
from retlib.training.trainer import Schedule

PASSAGES = pd.Series(texts(11, seed=1), index=[f"p{i}" for i in range(11)])


@pytest.fixture(scope="module")
def start():
    return Generator.fresh(SMALL, LETTERS, seed=0)


@pytest.fixture(scope="module")
def trained(start):
    return train_generator(start, make_pairs(), SHORT, seed=0)


@pytest.fixture
def trainings(trainings_of):
    return trainings_of(query_generation)


def test_a_generator_is_trained_once_and_found_again(trained, start, trainings):
    again = train_generator(start, make_pairs(), SHORT, seed=0)
    assert trainings == [] and again.name == trained.name != ""
    assert again.architecture == SMALL and again.tokenizer == LETTERS
    assert [row["step"] for row in again.history.evaluations] == [0, 2, 4]
    assert again.fingerprint == trained.fingerprint != start.fingerprint
    assert again.model.training is False


def test_what_makes_it_another_generator(trained, start, trainings):
    pairs, bart = make_pairs(), Generator.fresh(replace(SMALL, head="bart"), LETTERS, 0)
    others = [(start, pairs, SHORT, 1), (start, make_pairs(train=30), SHORT, 0), (trained, pairs, SHORT, 0)]
    others += [(start, pairs, replace(SHORT, steps=2), 0), (bart, pairs, SHORT, 0)]
    assert len({trained.name, *(train_generator(*given).name for given in others)}) == 6 and len(trainings) == 5


def test_training_leaves_its_start_as_it_is_and_learns(start, own_build):
    before = start.fingerprint
    found = train_generator(start, make_pairs(200, 50), Schedule(steps=80, batch_size=32, learning_rate=3e-3), seed=0)
    assert start.fingerprint == before
    scores = found.history.frame()["score"]
    # Two letters out of 12 and an end: (2 ln 12) / 3 = 1.66 nats a token, for a model that reads nothing.
    assert scores.iloc[-1] > -1.2 > scores.iloc[0]


def test_what_cannot_be_trained_is_named(start):
    pairs = make_pairs()
    for split, other in (("train", "dev"), ("dev", "train")):
        with pytest.raises(DataError, match=f"none has split = '{split}'"):
            train_generator(start, pairs.assign(split=other), SHORT, seed=0)
    with pytest.raises(DataError, match="no passage"):
        generate(start, PASSAGES[:0], Greedy(), seed=0)
    with pytest.raises(DataError, match="learns_from"):
        DECLARED.fit()


@pytest.mark.parametrize("articles", [True, False])
def test_labelled_pairs_are_those_of_training_and_validation_divided_by_article(articles):
    collection = make_collection(articles)
    found = writing_pairs(collection)
    query, text = collection.queries["text"], collection.documents["text"]
    asked = [(query[f"q{i}"], text[f"d{i}"]) for i in range(1, 50)] + [(query["q1"], text["d5"])]
    assert sorted(zip(found["query"], found["passage"], strict=True)) == sorted(asked)
    assert set(found["split"]) == {"train", "dev"}
    numbers = found["passage"].map({passage: i for i, passage in enumerate(text)})
    assert found["split"].groupby(numbers // (3 if articles else 1)).nunique().max() == 1


@pytest.mark.parametrize("how", [Greedy(), Beam(3), Nucleus(0.95, 6, 4)], ids=lambda how: how.name)
def test_queries_are_sorted_distinct_and_found_again(trained, how, monkeypatch):
    found = generate(trained, PASSAGES, how, seed=0)
    assert found.columns.tolist() == ["passage_id", "query", "log_likelihood", "tokens"]
    assert set(found["passage_id"]) <= set(PASSAGES.index)
    assert not found.duplicated(["passage_id", "query"]).any() and (found["query"] != "").all()
    order = found.sort_values(["passage_id", "log_likelihood"], ascending=[True, False])
    assert order.index.tolist() == found.index.tolist()
    assert (found["log_likelihood"] < 0).all() and found["tokens"].between(1, 4).all()
    monkeypatch.setattr(type(how), "decode", None)
    pd.testing.assert_frame_equal(generate(trained, PASSAGES, how, seed=0), found)


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
    real, written = Greedy.decode, []

    def killed(self, model, table, *rest):
        written.append(len(table))
        if len(written) == 3:
            raise KeyboardInterrupt
        return real(self, model, table, *rest)

    monkeypatch.setattr(Greedy, "decode", killed)
    with pytest.raises(KeyboardInterrupt):
        generate(trained, PASSAGES, Greedy(), seed=0)
    found = generate(trained, PASSAGES, Greedy(), seed=0)
    assert written == [4, 4, 3, 3]  # the third part was lost, and was made again
    monkeypatch.setenv("RETLIB_BUILD", str(own_build / "other"))
    pd.testing.assert_frame_equal(generate(trained, PASSAGES, Greedy(), seed=0), found)


def test_what_makes_them_other_queries(trained, own_build, monkeypatch):
    real, decoded = Nucleus.decode, []
    monkeypatch.setattr(Nucleus, "decode", lambda *given: decoded.append(given) or real(*given))
    how, others = Nucleus(1.0, 3, 3), PASSAGES.replace(PASSAGES["p0"], "a")
    one, drawn = (generate(trained, PASSAGES, how, seed)["query"] for seed in (0, 1))
    assert set(one) != set(drawn)
    generate(trained, PASSAGES, replace(how, samples=4), 0)
    generate(trained, others, how, 0)
    assert len(decoded) == 4
    generate(trained, others, how, 0)
    assert len(decoded) == 4
    frames = [generate(trained, PASSAGES, Greedy(), seed) for seed in (0, 1)]  # what is not drawn has no seed
    pd.testing.assert_frame_equal(*frames)


def test_duplicates_of_a_passage_and_empty_queries_go(trained, own_build, monkeypatch):
    a, b = LETTERS.ids["a"], LETTERS.ids["b"]
    queries = TokenTable.from_rows([[a], [b], [a], [], [a]])
    found = Found(np.array([0, 0, 0, 1, 1]), queries, np.array([-1.0, -2.0, -3.0, -1.0, -4.0]))
    monkeypatch.setattr(Greedy, "decode", lambda *given: found)
    written = generate(trained, pd.Series(["a", "b"], index=["x", "y"]), Greedy(), 0)
    assert written["passage_id"].tolist() == ["x", "x", "y"] and written["query"].tolist() == ["a", "b", "a"]
    assert written["log_likelihood"].tolist() == [-1, -2, -4]


def test_tidy():
    assert tidy("what is newton ' s law that doesn ' t fit ?") == "what is newton's law that doesn't fit ?"
    assert tidy("the so - called rock - and - roll") == "the so-called rock-and-roll"
    assert tidy("' quoted ' words") == "' quoted ' words" and tidy("") == ""


DECLARED = QueryGenerator(SMALL, Articles("pydocs-smoke", 300), SHORT, decoding=Nucleus(samples=3, keep=2))


@pytest.fixture
def letters(monkeypatch):
    """Articles of letters."""
    monkeypatch.setattr(Articles, "tokenizer", LETTERS)
    monkeypatch.setattr(Articles, "corpus", make_corpus())


def test_a_declared_generator_learns_from_labels_once(letters, trainings, own_build):
    made = replace(DECLARED, learns_from=make_collection())
    assert trainings == []  # until it is asked
    assert made.fit() is made.fit() and len(trainings) == 1
    pairs = writing_pairs(make_collection())
    expected, another = (train_generator(Generator.fresh(SMALL, LETTERS, seed), pairs, SHORT, seed) for seed in (0, 5))
    assert made.fit().name == expected.name
    assert made.settings["learns from"] == "small"
    other = made.seeded(5)
    assert other.fit().name == another.name != expected.name and len(trainings) == 2


SHAPE = Architecture(layers=0, width=64, dimension=16)


def test_it_may_begin_with_the_embeddings_of_a_retriever(letters, own_build, monkeypatch):
    tuned = System(SHAPE, DECLARED.articles) + Stage(data=Labels(), steps=3, batch_size=8, learning_rate=0.1)
    made = replace(DECLARED, embeddings=tuned, learns_from=make_collection(), seed=3)
    theirs = fit(tuned, make_collection(), 3).model.query_encoder.bert.embeddings.word_embeddings.weight
    given: list[Generator] = []
    real = query_generation.train_generator
    monkeypatch.setattr(query_generation, "train_generator", lambda *of: given.append(of[0]) or real(*of))
    assert made.fit().name != replace(made, embeddings=None).fit().name
    mine, fresh = (each.model.bart.model.shared.weight for each in given)
    assert torch.nn.functional.cosine_similarity(mine[1:], theirs[1:]).min() > 0.9999  # the first is padding
    assert mine.square().mean().item() == pytest.approx(fresh.square().mean().item())  # as long as they were
    wide = replace(made, architecture=replace(SMALL, width=128))
    with pytest.raises(SettingError, match=r"128\).*64\)"):
        wide.fit()
    other = fit(System(SHAPE, Articles("pydocs-smoke", 300)), make_collection(), 0)
    other.tokenizer = WordPiece((*LETTERS.tokens[:-1], "+"))
    with pytest.raises(SettingError, match="vocabulary"):
        Generator.fresh(SMALL, LETTERS, 0).take_embeddings(other)


def test_one_that_learned_from_sentences_writes_for_every_sentence(letters, own_build):
    whole = make_collection()
    sentences = replace(whole, documents=whole.documents.assign(sentence=whole.documents["text"]))
    made = replace(DECLARED, learns_from=sentences)
    text = "The apples are red today. All pears are green now. Plums are ripe in autumn."
    found = made.queries(pd.DataFrame({"text": [text, text]}, index=["x", "y"]))
    assert set(found["passage_id"]) == {"x", "y"} and not found.duplicated(["passage_id", "query"]).any()
    assert found.groupby("passage_id").size().max() > made.decoding.keep
