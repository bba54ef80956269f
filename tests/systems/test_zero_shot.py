"""Collections of generated queries, what trains on them, and BM25 over documents that they expand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.data.collection import Collection, hash_position
from retlib.data.pairs import Pairs
from retlib.data.text import WordPiece
from retlib.evaluation.measures import evaluate
from retlib.retrieval.lexical import BM25
from retlib.systems import dense, zero_shot
from retlib.systems.dense import Architecture, Retriever, Schedule
from retlib.systems.zero_shot import chain, expand, fit, ict, labelled, synthetic
from retlib.training import trainer
from retlib.training.negatives import InBatch
from retlib.training.pretraining import Corpus

THINGS = ("kettle", "violin", "canoe", "tent", "lamp", "spade", "clock", "stove", "piano", "scarf", "ladder", "drum")
DOCUMENTS = pd.DataFrame(
    {"title": [thing.title() for thing in THINGS], "text": [f"Clean the {t}. Then dry the {t} well." for t in THINGS]},
    index=[f"d{i}" for i in range(len(THINGS))],
)
GENERATED = pd.DataFrame(
    {
        "passage_id": np.repeat(DOCUMENTS.index, 2),
        "query": [ask.format(thing) for thing in THINGS for ask in ("how to clean a {}", "is a {} dry")],
    }
)
ARCHITECTURE = Architecture(layers=1, width=64, dimension=16, query_length=8, document_length=16, head="tanh")
SHORT = Schedule(steps=6, batch_size=4, evaluations=2, precision="float32")


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece.train([*DOCUMENTS["text"], *GENERATED["query"]], 150)


@pytest.fixture(scope="module")
def made():
    return synthetic("made", GENERATED, DOCUMENTS)


@pytest.fixture
def task():
    """Two graded answers to the first question, one to the others; the last is a test question."""
    queries = pd.DataFrame(
        {"text": ["clean kettle", "dry tent", "wet lamp", "drum"], "split": ["train", "dev", "train", "test"]},
        index=["q0", "q1", "q2", "q3"],
    )
    rows = [("q0", "d0", 2), ("q0", "d5", 1), ("q0", "d6", 0), ("q1", "d3", 1), ("q2", "d4", 1), ("q3", "d11", 1)]
    return Collection("task", DOCUMENTS, queries, pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"]))


# --- collections -----------------------------------------------------------------------------------


def test_every_generated_query_asks_for_its_passage(made):
    assert len(made.queries) == len(GENERATED) and made.documents.equals(DOCUMENTS[["text", "title"]])
    assert made.queries["text"].tolist() == GENERATED["query"].tolist()
    assert made.queries["cluster"].tolist() == GENERATED["passage_id"].tolist()
    assert made.queries.index[:3].tolist() == ["d0?0", "d0?1", "d1?0"]
    assert made.qrels["doc_id"].tolist() == GENERATED["passage_id"].tolist()


def test_passages_are_held_out_whole(made):
    sides = made.queries.groupby("cluster")["split"].nunique()
    assert (sides == 1).all()
    # A tenth of twelve passages: the one whose name's hash comes first.
    assert set(made.split("dev")["cluster"]) == {min(DOCUMENTS.index, key=hash_position)}
    assert len(made.split("test")) == 0


def test_at_most_so_many_passages_are_held_out(monkeypatch):
    monkeypatch.setattr(zero_shot, "HELD_OUT", 0.9)
    monkeypatch.setattr(zero_shot, "MOST_HELD_OUT", 3)
    assert synthetic("x", GENERATED, DOCUMENTS).split("dev")["cluster"].nunique() == 3


def test_passages_without_queries_stay_candidates():
    found = synthetic("x", GENERATED.iloc[:6], DOCUMENTS)
    assert len(found.documents) == len(THINGS) and len(found.queries) == 6


@pytest.mark.parametrize(
    ("generated", "message"),
    [
        (GENERATED.replace("d3", "d99"), r"'x': queries were generated from \['d99'\]"),
        (GENERATED.iloc[:2], "'x': queries of 1 passages"),
        (GENERATED.iloc[:0], "'x': queries of 0 passages"),
    ],
)
def test_queries_of_too_few_or_unknown_passages_are_refused(generated, message):
    with pytest.raises(DataError, match=message):
        synthetic("x", generated, DOCUMENTS)


def test_labels_are_a_query_for_each_relevant_document(task):
    found = labelled(task)
    rows = found.queries[["text", "cluster", "split"]].to_records(index=False).tolist()
    assert rows == [
        ("clean kettle", "d0", "train"), ("clean kettle", "d5", "train"),
        ("dry tent", "d3", "dev"), ("wet lamp", "d4", "train"),
    ]  # fmt: skip
    assert found.queries.index.tolist() == ["q0?d0", "q0?d5", "q1?d3", "q2?d4"]
    assert found.documents is task.documents and "test" not in set(found.queries["split"])


def test_without_dev_queries_a_tenth_of_the_training_queries_is_held_out():
    count = 300
    queries = pd.DataFrame({"text": "x", "split": "train"}, index=[f"q{i}" for i in range(count)])
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": "d0", "relevance": 1})
    qrels = pd.concat([qrels, qrels.assign(doc_id="d1")], ignore_index=True)
    found = labelled(Collection("c", DOCUMENTS, queries, qrels))
    held_out = found.split("dev").index.str.rpartition("?").get_level_values(0)
    assert set(held_out) == {name for name in queries.index if hash_position(name) >= 0.9}
    assert 15 < held_out.nunique() < 45 and len(found.queries) == 2 * count


def test_a_collection_without_labels_is_refused(task):
    with pytest.raises(DataError, match="'task' has 0 labelled queries"):
        labelled(replace(task, queries=task.queries.assign(split="test")))
    unanswered = task.qrels.assign(relevance=[1, 0, 0, 0, 0, 1])
    with pytest.raises(DataError, match="'task' has 1 labelled queries"):
        labelled(replace(task, qrels=unanswered))


# --- BM25 over expanded documents ------------------------------------------------------------------


def test_expanded_documents_are_found_by_words_that_only_their_queries_have():
    texts = DOCUMENTS["text"]
    found = expand(texts, GENERATED.assign(query=GENERATED["query"] + " " + GENERATED["passage_id"] + "x"))
    assert found["d0"] == f"{texts['d0']} how to clean a kettle d0x is a kettle dry d0x"
    queries = pd.Series({"q": "d7x"})
    assert BM25().rank(found, queries)["doc_id"].tolist() == ["d7"]
    assert len(BM25().rank(texts, queries)) == 0


def test_a_document_without_queries_stays_as_it_is():
    found = expand(DOCUMENTS["text"], GENERATED[GENERATED["passage_id"] == "d2"])
    assert found.drop("d2").equals(DOCUMENTS["text"].drop("d2")) and found.index.equals(DOCUMENTS.index)
    assert expand(DOCUMENTS["text"], GENERATED.iloc[:0]).equals(DOCUMENTS["text"])


def test_queries_of_another_collection_expand_nothing():
    with pytest.raises(DataError, match=r"generated from \['e'\], which are no documents"):
        expand(DOCUMENTS["text"], pd.DataFrame({"passage_id": ["e"], "query": ["x"]}))


@given(st.lists(st.tuples(st.sampled_from(DOCUMENTS.index.tolist()), st.sampled_from("abc")), max_size=12))
def test_expansion_adds_each_query_once_in_order(rows):
    found = expand(DOCUMENTS["text"], pd.DataFrame(rows, columns=["passage_id", "query"]))
    for name, text in DOCUMENTS["text"].items():
        mine = [query for passage, query in rows if passage == name]
        assert found[name] == " ".join([text, *mine])


# --- training --------------------------------------------------------------------------------------


def test_the_head_is_a_dense_layer_and_tanh(wordpiece):
    for pooling in ("cls", "mean"):
        retriever = Retriever.fresh(replace(ARCHITECTURE, pooling=pooling), wordpiece, seed=0)
        table = wordpiece.encode(DOCUMENTS["text"])
        encoded = retriever.encode_queries(table)
        linear = Retriever.fresh(replace(ARCHITECTURE, pooling=pooling, head="linear"), wordpiece, seed=0)
        np.testing.assert_allclose(encoded, np.tanh(linear.encode_queries(table)), atol=2e-2)
        assert np.abs(encoded).max() < 1


def test_training_on_generated_queries_finds_what_real_ones_ask_for(made, wordpiece):
    """Of words that the generated queries have, too; an untrained model finds one of twelve by chance."""
    test = pd.DataFrame({"text": [f"clean {thing}" for thing in THINGS], "split": "test"}, index=DOCUMENTS.index + "q")
    qrels = pd.DataFrame({"query_id": test.index, "doc_id": DOCUMENTS.index, "relevance": 1})
    task = Collection("real", DOCUMENTS, test, qrels)
    benchmark = dense.Benchmark.tokenize(task, wordpiece, 8, 16)
    longer = Schedule(steps=150, batch_size=11, learning_rate=0.003, evaluations=1, precision="float32")
    found = []
    for steps in (1, 150):
        retriever = fit(None, ARCHITECTURE, wordpiece, made, replace(longer, steps=steps), seed=0)
        run = dense.rank(retriever, benchmark, task, depth=5)
        found.append(evaluate(run, qrels, ["R@1"])["value"].mean())
    assert found[0] < 0.5 < 0.8 < found[1]


def test_a_chain_trains_on_one_after_the_other(made, wordpiece, monkeypatch):
    seen, real = [], dense.finetune

    def finetune(start, benchmark, part, schedule, seed):
        retriever = real(start, benchmark, part, schedule, seed)
        seen.append((start.name, part.name, schedule.steps, seed, retriever.name))
        return retriever

    monkeypatch.setattr(dense, "finetune", finetune)
    other, later = replace(made, name="other"), replace(SHORT, steps=2)
    found = chain([made, other], ARCHITECTURE, wordpiece, SHORT, later, seed=3)
    (_, first, steps, seed, name), second = seen
    assert (first, steps, seed) == ("made", 6, 3)
    assert second == (name, "other", 2, 3, found.name)
    assert chain([made], ARCHITECTURE, wordpiece, SHORT, later, seed=3).name == name
    with pytest.raises(DataError, match="at least one collection"):
        chain([], ARCHITECTURE, wordpiece, SHORT, later, seed=0)


def test_two_towers_begin_alike_and_are_trained_apart(made, wordpiece):
    table = wordpiece.encode(DOCUMENTS["text"])
    for towers, apart in (("siamese", False), ("two", True)):
        retriever = Retriever.fresh(replace(ARCHITECTURE, towers=towers), wordpiece, seed=0)
        sides = retriever.model.query_encoder, retriever.model.document_encoder
        assert (sides[0] is not sides[1]) is apart
        np.testing.assert_array_equal(retriever.encode_queries(table), retriever.encode_documents(table))
        module = trainer.RetrievalTask(retriever.model, InBatch(Pairs(table, table), 12, 0), "softmax")
        module.loss(module.batch(0)).backward()
        torch.optim.SGD(retriever.model.parameters(), lr=1.0).step()
        assert np.allclose(retriever.encode_queries(table), retriever.encode_documents(table)) is not apart


def test_ict_takes_the_sentence_out_of_nine_passages_of_ten(wordpiece, monkeypatch):
    asked, real = [], dense.pretrain
    monkeypatch.setattr(dense, "pretrain", lambda *given: asked.append(given) or real(*given))
    retriever = ict(ARCHITECTURE, wordpiece, DOCUMENTS, SHORT, seed=0)
    ((units, corpus), architecture, tasks, schedule, seed, keep) = asked[0]
    assert (units, architecture, tasks, schedule, seed, keep) == (wordpiece, ARCHITECTURE, ["ict"], SHORT, 0, 0.1)
    # Every passage is a page of its own: two sentences and a title.
    assert corpus.names.tolist() == DOCUMENTS.index.tolist()
    assert corpus.sentences_per_passage.tolist() == [2] * len(THINGS)
    assert wordpiece.decode(corpus.titles.row(0)) == "kettle"
    assert retriever.history.evaluations[-1]["step"] == SHORT.steps


def test_ict_needs_a_passage_of_two_sentences(wordpiece):
    with pytest.raises(DataError, match="ict needs a passage of at least two sentences"):
        ict(ARCHITECTURE, wordpiece, DOCUMENTS.assign(text="One sentence alone."), SHORT, seed=0)


def test_ict_takes_sentences_out_of_tokenized_passages(wordpiece, monkeypatch):
    seen = []
    build = Corpus.build
    monkeypatch.setattr(Corpus, "build", lambda *given: seen.append(build(*given)) or seen[0])
    ict(ARCHITECTURE, wordpiece, DOCUMENTS.assign(text="Water boils . The kettle whistles ."), SHORT, seed=0)
    assert seen[0].sentences_per_passage.tolist() == [2] * len(DOCUMENTS)
