"""Generated queries as training data, and documents that they expand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from generators import LETTERS, SHORT, SMALL, make_collection, make_corpus, texts

from retlib.core.errors import DataError
from retlib.data.articles import Articles
from retlib.data.collection import Collection, hash_position
from retlib.models.generator import Beam, Nucleus
from retlib.models.retriever import Architecture
from retlib.retrieval.lexical import BM25
from retlib.systems import query_generation
from retlib.systems.compose import Lexical, PairSystem
from retlib.systems.query_generation import Generated, QueryGenerator, synthetic
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels

THINGS = ("kettle", "violin", "canoe", "tent", "lamp", "spade", "clock", "stove", "piano", "scarf", "ladder", "drum")
DOCUMENTS = pd.DataFrame(
    {"title": [thing.title() for thing in THINGS], "text": [f"Clean the {t}. Then dry the {t} well." for t in THINGS]},
    index=[f"d{i}" for i in range(len(THINGS))],
)
QUERIES = pd.DataFrame(
    {
        "passage_id": np.repeat(DOCUMENTS.index, 2),
        "query": [ask.format(thing) for thing in THINGS for ask in ("how to clean a {}", "is a {} dry")],
    }
)
ARCHITECTURE = Architecture(layers=1, width=64, dimension=16, query_length=8, document_length=16)


@pytest.fixture(scope="module")
def made():
    return synthetic("made", QUERIES, DOCUMENTS)


def test_every_generated_query_asks_for_its_passage(made):
    assert len(made.queries) == len(QUERIES) and made.documents.equals(DOCUMENTS[["text", "title"]])
    assert made.queries["text"].tolist() == QUERIES["query"].tolist()
    assert made.queries["cluster"].tolist() == QUERIES["passage_id"].tolist()
    assert made.queries.index[:3].tolist() == ["d0?0", "d0?1", "d1?0"]
    assert made.qrels["doc_id"].tolist() == QUERIES["passage_id"].tolist()


def test_passages_are_held_out_whole(made):
    sides = made.queries.groupby("cluster")["split"].nunique()
    assert (sides == 1).all()
    # A tenth of twelve passages: the one whose name's hash comes first.
    assert set(made.split("dev")["cluster"]) == {min(DOCUMENTS.index, key=hash_position)}
    assert len(made.split("test")) == 0


def test_at_most_so_many_passages_are_held_out(monkeypatch):
    monkeypatch.setattr(query_generation, "HELD_OUT", 0.9)
    monkeypatch.setattr(query_generation, "MOST_HELD_OUT", 3)
    assert synthetic("x", QUERIES, DOCUMENTS).split("dev")["cluster"].nunique() == 3


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (QUERIES.replace("d3", "d99"), "d99"),
        (QUERIES.iloc[:2], "1 passages"),
        (QUERIES.iloc[:0], "0 passages"),
    ],
)
def test_queries_of_too_few_or_unknown_passages_are_refused(queries, message):
    with pytest.raises(DataError, match=message):
        synthetic("x", queries, DOCUMENTS)


@pytest.fixture
def generator(monkeypatch):
    """A generator of letters, declared."""
    monkeypatch.setattr(Articles, "tokenizer", LETTERS)
    monkeypatch.setattr(Articles, "corpus", make_corpus())
    declared = QueryGenerator(SMALL, Articles("pydocs-smoke", 300), SHORT, decoding=Nucleus(samples=3, keep=2))
    return replace(declared, learns_from=make_collection())


@pytest.fixture
def target():
    """Passages of letters that the generator has not seen."""
    documents = pd.DataFrame({"text": texts(25, seed=7)}, index=[f"t{i}" for i in range(25)])
    queries = pd.DataFrame({"text": ["a b", "c d"], "split": "test"}, index=["q0", "q1"])
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": ["t0", "t1"], "relevance": 1})
    return Collection("target", documents.rename_axis("doc_id"), queries, qrels)


def test_by_default_the_queries_are_of_the_target_s_passages(generator, target):
    found = Generated(generator).collection(target)
    written = generator.queries(target.documents)
    assert found.queries["text"].tolist() == written["query"].tolist()
    assert found.fingerprint == synthetic("x", written, target.documents).fingerprint
    assert Generated(generator).collection(target) is found  # asked for with every system and seed
    assert Generated(generator).address(target) == {"Generated": found.fingerprint}
    beam = Generated(generator, how=Beam(2)).collection(target)
    assert beam.queries["text"].tolist() == generator.queries(target.documents, Beam(2))["query"].tolist()


def test_every_seed_has_a_generator_and_queries_of_its_own(generator, target):
    """A retriever of a seed learns from the queries of that seed, and documents are expanded with them."""
    other = generator.seeded(4)
    stage = Stage(data=Generated(generator), steps=1, batch_size=4).seeded(4)
    (found,) = stage.data[0].query_collections(target)
    assert found.fingerprint == synthetic("x", other.queries(target.documents), target.documents).fingerprint
    assert found.fingerprint != Generated(generator).collection(target).fingerprint
    start = System(Architecture(encoder="bag-of-words", dimension=8, similarity="cosine"), LETTERS)
    chain = start + Stage(data=Generated(generator), steps=1, batch_size=4)
    mine = start + Stage(data=Generated(other), steps=1, batch_size=4)
    assert fit(chain, target, 4).name == fit(mine, target, 4).name
    lists = other.queries(target.documents).groupby("passage_id")["query"].agg(list)
    whole = pd.Series({name: " ".join([text, *lists.get(name, [])]) for name, text in target.documents["text"].items()})
    expanded, expected = Lexical(BM25(), generator), BM25().rank(whole, target.queries["text"], 9)
    pd.testing.assert_frame_equal(expanded.run(Target(target), 4, depth=9), expected)
    assert expanded.trained and not Lexical(BM25()).trained
    assert (whole.str.len() > target.documents["text"].str.len()).mean() > 0.9


def test_a_share_has_the_same_queries_of_fewer_passages(generator, target):
    other = make_collection()
    whole, part = (Generated(generator, other, share).collection(target) for share in (1.0, 0.2))
    assert set(whole.documents.index) == set(other.documents.index) and len(part.documents) == 12
    assert set(part.queries["cluster"]) == set(part.documents.index)  # and each has its queries
    mine = whole.queries[whole.queries["cluster"].isin(part.documents.index)]
    assert part.queries["text"].tolist() == mine["text"].tolist()
    fewest = Generated(generator, other, 0.001).collection(target)
    assert len(fewest.documents) == 2


def test_a_retriever_is_trained_on_one_after_the_other(generator, target, own_build):
    start = System(ARCHITECTURE, LETTERS)
    how = {"steps": 4, "batch_size": 8, "learning_rate": 1e-3, "precision": "float32"}
    other = make_collection()
    first = start + Stage(data=Generated(generator, other), **how)
    second = first + Stage(data=Generated(generator), **how)
    # Trained once for all targets, where it is not the target's passages that have queries.
    assert fit(first, other, 0).name == fit(first, target, 0).name
    # One generator wrote for both stages: its training counts once, and so it does where a reader follows.
    spent = [each.history.seconds for each in (generator.fit(), fit(first, target, 0), fit(second, target, 0))]
    assert second.cost(Target(target), 0).seconds == pytest.approx(sum(spent))
    reader = PairSystem(first, Stage(data=Generated(generator), loss="cross_entropy", negatives="random", **how))
    spent[2] = reader.fit(target, 0).history.seconds
    assert reader.cost(Target(target), 0).seconds == pytest.approx(sum(spent))
    alone = replace(reader, start=start)  # whose generator wrote for no stage before
    assert alone.cost(Target(target), 0).seconds == pytest.approx(spent[0] + alone.fit(target, 0).history.seconds)
    (given,) = first.settings["stages"][0]["data"]
    assert (given["learns from"], given["decoding"]) == ("small", "nucleus")
    assert "queries" not in str(Labels().settings) and str(first.stages[0]) == "generated out of target, in-batch"


def test_a_share_of_the_passages_can_be_test():
    made = synthetic("x", QUERIES, DOCUMENTS, test=0.4)
    passages = {split: set(made.split(split)["cluster"]) for split in ("train", "dev", "test")}
    count = QUERIES["passage_id"].nunique()
    assert len(passages["test"]) == round(0.4 * count) and passages["dev"] == set(
        synthetic("x", QUERIES, DOCUMENTS).split("dev")["cluster"]
    )
    assert sum(map(len, passages.values())) == len(set.union(*passages.values())) == count
    one = QUERIES[QUERIES["passage_id"] == QUERIES["passage_id"].iloc[0]]
    assert set(synthetic("x", one, DOCUMENTS, test=0.4).queries["split"]) == {"test"}
