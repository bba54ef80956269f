"""Pre-training, fine-tuning and ranking of two-tower retrievers, on a part of NumPy's docstrings."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Collection, low_resource
from retlib.data.text import TokenTable, WordPiece, concatenate
from retlib.evaluation.measures import evaluate
from retlib.models.encoders import BagOfWordsMLP
from retlib.systems import dense
from retlib.systems.dense import (
    Architecture,
    Benchmark,
    Retriever,
    Schedule,
    candidates,
    finetune,
    prepare,
    pretrain,
    rank,
)
from retlib.training import trainer
from retlib.training.trainer import History

SMALL = Architecture(layers=1, width=64, dimension=16, query_length=12, document_length=24)
SHORT = Schedule(steps=8, batch_size=16, evaluations=4)
JOINT = ("ict", "bfs", "wlp")
DEPTH = 20


class Killed(Exception):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def prepared():
    return prepare("pydocs-smoke", 300)


@pytest.fixture(scope="module")
def task():
    return datasets.load("pydocs-reqa-smoke")


@pytest.fixture(scope="module")
def part(task):
    return low_resource(task, 0.5)


@pytest.fixture(scope="module")
def benchmark(task, prepared):
    return Benchmark.tokenize(task, prepared[0], SMALL.query_length, SMALL.document_length)


@pytest.fixture(scope="module")
def pretrained(prepared):
    return pretrain(prepared, SMALL, JOINT, SHORT, seed=0)


@pytest.fixture(scope="module")
def finetuned(pretrained, benchmark, part):
    return finetune(pretrained, benchmark, part, SHORT, seed=0)


@pytest.fixture
def trainings(trainings_of):
    """The trainings so far."""
    return trainings_of(dense)


def weights(retriever):
    return {name: value.clone() for name, value in retriever.model.state_dict().items()}


def same(left, right):
    left, right = weights(left), weights(right)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def tokens(table):
    return [table.row(i).tolist() for i in range(len(table))]


# --- text ------------------------------------------------------------------------------------------


def test_a_source_is_prepared_once_and_its_titles_and_sentences_are_tokenized(prepared, monkeypatch):
    wordpiece, corpus = prepared
    assert len(wordpiece) == 300
    first = next(datasets.articles("pydocs-smoke"))
    assert wordpiece.encode([first.title]).ids.tolist() == corpus.titles.row(0).tolist()
    sentence = wordpiece.decode(corpus.sentences.row(0)).replace(" ", "")
    assert first.passages[0].lower().replace(" ", "").startswith(sentence)
    monkeypatch.setattr(WordPiece, "train", lambda *_: pytest.fail("made twice"))
    again, same_corpus = prepare("pydocs-smoke", 300)
    assert again == wordpiece and same_corpus.fingerprint == corpus.fingerprint


def test_the_same_is_prepared_again_in_another_folder(prepared, own_build):
    again, same_corpus = prepare("pydocs-smoke", 300)
    assert again == prepared[0] and same_corpus.fingerprint == prepared[1].fingerprint


def test_an_unknown_source_is_an_error():
    with pytest.raises(SettingError, match="'pidocs'.*pydocs"):
        prepare("pidocs", 300)


LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefgh"))


def ids(text):
    return [LETTERS.ids[letter] for letter in text.split()]


def test_candidates_are_sentence_separator_and_passage_cut_at_the_length():
    sentences = pd.Series(["a b", "c", "a b c d e f", "g", ""])
    contexts = pd.Series(["a b c d", "a b c d", "h h", "g", "a b c d"])
    found = candidates(sentences, contexts, LETTERS, 6)
    sep, unknown = LETTERS.sep, LETTERS.ids["[UNK]"]
    assert tokens(found) == [
        [*ids("a b"), sep, *ids("a b c")],
        [*ids("c"), sep, *ids("a b c d")],
        ids("a b c d e f"),
        [*ids("g"), sep, *ids("g")],
        [unknown, sep, *ids("a b c d")],
    ]


def test_a_passage_is_tokenized_once_for_all_of_its_sentences(monkeypatch):
    seen, real = [], WordPiece.encode

    def encode(self, texts):
        texts = list(texts)
        seen.extend(texts)
        return real(self, texts)

    monkeypatch.setattr(WordPiece, "encode", encode)
    candidates(["a", "b", "c"], ["a b c"] * 3, LETTERS, 96)
    assert sorted(seen) == ["a", "a b c", "b", "c"]


def hand_made():
    """Four candidates and six queries, of which three train."""
    documents = pd.DataFrame({"sentence": ["a", "b", "c", "d"], "context": ["a b", "a b", "c d", "c d"]})
    documents.index = pd.Index(["d0", "d1", "d2", "d3"], name="doc_id")
    documents["text"] = documents["sentence"]
    queries = pd.DataFrame(
        {
            "text": ["e", "e f", "f g h a b c d", "g", "h", "h h"],
            "cluster": ["d2", "d0", "d2", "d1", "d3", "d0"],
            "split": ["train", "train", "train", "dev", "dev", "test"],
        },
        index=pd.Index([f"q{i}" for i in range(6)], name="query_id"),
    )
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})
    collection = Collection("hand-made", documents, queries, qrels)
    return collection, Benchmark.tokenize(collection, LETTERS, 4, 5)


@pytest.mark.parametrize(("columns", "expected"), [(["title", "text"], "a b [SEP] c"), (["text"], "c")])
def test_other_documents_are_title_and_text_or_text(columns, expected):
    collection, _ = hand_made()
    documents = pd.DataFrame({"title": "a b", "text": "c"}, index=collection.documents.index)[columns]
    benchmark = Benchmark.tokenize(replace(collection, documents=documents), LETTERS, 4, 5)
    assert tokens(benchmark.documents)[0] == ids(expected)


def test_pairs_of_a_split_by_hand():
    collection, benchmark = hand_made()
    sep = LETTERS.sep
    pairs = benchmark.pairs(collection, "train")
    assert tokens(pairs.queries) == [ids("e"), ids("e f"), ids("f g h a")]  # cut at four
    two, zero = [*ids("c"), sep, *ids("c d")], [*ids("a"), sep, *ids("a b")]
    assert tokens(pairs.documents) == [two, zero, two]
    assert pairs.groups.tolist() == [2, 0, 2]
    np.testing.assert_allclose(pairs.log_shares, np.log([2 / 3, 1 / 3, 2 / 3]), rtol=1e-6)
    assert pairs.log_shares.dtype == np.float32 and pairs.labels is None
    assert np.isclose(np.exp(pairs.log_shares[[0, 1]]).sum(), 1)  # of the distinct candidates
    dev = benchmark.pairs(collection, "dev")
    assert tokens(dev.queries) == [ids("g"), ids("h")] and dev.groups.tolist() == [1, 3]


def test_pairs_of_a_part_are_those_of_its_own_split(benchmark, part, task):
    for split in ("train", "dev"):
        pairs, chosen = benchmark.pairs(part, split), part.split(split)
        assert len(pairs) == len(chosen) > 10
        expected = task.qrels.set_index("query_id")["doc_id"][chosen.index]
        assert task.documents.index[pairs.groups].tolist() == expected.tolist()
        places = task.queries.index.get_indexer(chosen.index)
        assert tokens(pairs.queries) == [benchmark.queries.row(i).tolist() for i in places]


class Scripted:
    """A retriever whose encodings are written beforehand: of a text that begins with a unit."""

    def __init__(self, queries, documents):
        self.queries, self.documents = queries, documents

    def encode_queries(self, table):
        return np.array([self.queries[row[0]] for row in tokens(table)], dtype=np.float32)

    def encode_documents(self, table):
        return np.array([self.documents[row[0]] for row in tokens(table)], dtype=np.float32)


def validation(documents):
    collection, benchmark = hand_made()
    named = {LETTERS.ids[letter]: values for letter, values in documents.items()}
    queries = {LETTERS.ids["g"]: [1.0, 0.0], LETTERS.ids["h"]: [0.0, 1.0]}
    return dense._validation(Scripted(queries, named), benchmark, collection)()


def test_validation_is_the_reciprocal_rank_among_all_answers_and_others():
    # The first query's own is d1: first. The second's is d3, behind d0 and d2.
    found = validation({"a": [0.5, 0.9], "b": [0.7, 0.1], "c": [0.6, 0.8], "d": [0.1, 0.2]})
    assert found == pytest.approx((1 + 1 / 3) / 2)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_model_that_tells_nothing_apart_is_not_the_best(value):
    assert validation({letter: [value, value] for letter in "abcd"}) <= 0.5


def test_validation_has_no_more_others_than_the_pool(monkeypatch):
    monkeypatch.setattr(dense, "POOL", 1)
    seen = []
    monkeypatch.setattr(Scripted, "encode_documents", lambda self, table: seen.append(len(table)) or np.eye(3, 2))
    validation({})
    assert seen == [3]  # two answers and one more


# --- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "transfomer"}, "encoder = 'transfomer'.*Did you mean 'transformer'.*Valid: bow-mlp, transformer"),
        ({"towers": "three"}, "towers = 'three'.*Valid: siamese, two"),
        *(
            ({name: 0}, f"{name} = 0 must be positive")
            for name in ("layers", "width", "dimension", "query_length", "document_length")
        ),
    ],
)
def test_an_architecture_that_cannot_be_is_named(changes, message):
    with pytest.raises(SettingError, match=message):
        Architecture(**changes)


@pytest.mark.parametrize("tasks", [["ict", "nope"], ["mlm", "ict"], []])
def test_tasks_that_cannot_be_are_named(prepared, tasks, trainings):
    with pytest.raises(SettingError, match="Valid: bfs, ict, wlp|a task alone|no task"):
        pretrain(prepared, SMALL, tasks, SHORT, seed=0)
    assert trainings == []


def test_a_bow_mlp_has_no_masked_language_model(prepared, trainings):
    for _ in range(2):
        with pytest.raises(SettingError, match="mlm needs encoder = 'transformer'"):
            pretrain(prepared, replace(SMALL, encoder="bow-mlp"), ["mlm"], SHORT, seed=0)
    assert trainings == []


def test_a_retriever_that_is_not_trained_has_no_run(prepared, benchmark, part):
    with pytest.raises(DataError, match="trained"):
        rank(Retriever.fresh(SMALL, prepared[0], 0), benchmark, part)


def test_a_schedule_rises_over_a_tenth_falls_and_never_stops_early():
    found = replace(SHORT, steps=100, learning_rate=0.5, precision="float32").settings()
    assert (found.steps, found.evaluate_every, found.optimizer, found.precision) == (100, 25, "adam", "float32")
    assert (found.learning_rate, found.warmup, found.decay) == (0.5, 0.1, True)
    assert found.patience > 100
    assert replace(SHORT, steps=3, evaluations=10).settings().evaluate_every == 1
    with pytest.raises(SettingError, match="steps = 0"):
        replace(SHORT, steps=0).settings()


# --- retrievers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"towers": "two"}, {"pooling": "cls"}, {"encoder": "bow-mlp"}, {"encoder": "bow-mlp", "towers": "two"}],
)
def test_a_retriever_is_read_as_it_was_written(prepared, benchmark, changes, tmp_path):
    built = Retriever.fresh(replace(SMALL, **changes), prepared[0], seed=5)
    built.history = History([{"step": 0, "loss": 1.0, "score": 0.5, "seconds": 0.0}], 0)
    folder = tmp_path / "name"
    folder.mkdir()
    built.save(folder)
    torch.manual_seed(0)
    found = Retriever.load(folder)
    assert same(found, built) and found.name == "name"
    assert found.architecture == built.architecture and found.wordpiece == built.wordpiece
    assert found.history == built.history
    queries = benchmark.queries.take(np.arange(20))
    built.model.eval()
    np.testing.assert_array_equal(found.encode_queries(queries), built.encode_queries(queries))
    np.testing.assert_array_equal(found.encode_documents(queries), built.encode_documents(queries))
    assert {path.suffix for path in folder.iterdir()} == {".txt", ".json", ".safetensors"}  # nothing by pickle


def test_siamese_shares_its_weights_and_two_towers_do_not(prepared):
    one, two = (Retriever.fresh(replace(SMALL, towers=towers), prepared[0], 0) for towers in ("siamese", "two"))
    assert one.model.document_encoder is one.model.query_encoder
    assert two.model.document_encoder is not two.model.query_encoder
    assert two.parameters - 2 == 2 * (one.parameters - 2)  # a scale and a shift beside the encoders
    assert one.model.similarity == "dot"
    embeddings = 300 * 64
    assert one.parameters > embeddings


def test_the_seed_gives_the_first_weights(prepared):
    one, again, other = (Retriever.fresh(SMALL, prepared[0], seed) for seed in (3, 3, 4))
    assert same(one, again) and not same(one, other)


@pytest.mark.parametrize("changes", [{}, {"encoder": "bow-mlp"}])
def test_encodings_are_in_the_order_of_the_texts(prepared, benchmark, changes, exact):
    retriever = Retriever.fresh(replace(SMALL, **changes, towers="two"), prepared[0], seed=0)
    retriever.model.eval()
    table = benchmark.documents.take(np.arange(600))  # more than are encoded at once
    assert len(set(table.lengths.tolist())) > 3
    with torch.no_grad():
        for encode, side in (
            (retriever.encode_queries, retriever.model.queries),
            (retriever.encode_documents, retriever.model.documents),
        ):
            found = encode(table)
            assert found.dtype == np.float32 and found.shape == (600, 16)
            np.testing.assert_allclose(found, side(table).numpy(), atol=1e-5)


# --- from articles to a run ------------------------------------------------------------------------


def test_pretraining_validates_from_the_first_step_to_the_last(pretrained):
    steps = [row["step"] for row in pretrained.history.evaluations]
    assert steps == [0, 2, 4, 6, 8]
    assert pretrained.architecture == SMALL and pretrained.name
    assert not pretrained.model.training


@pytest.mark.parametrize("tasks", [["ict"], ["mlm"]])
def test_pretraining_is_validated_on_no_more_than_it_sees(tasks, prepared, own_build, monkeypatch):
    drawn = []
    for kind in (dense.PretrainingPairs, dense.MaskedPassages):
        real = kind.draw
        monkeypatch.setattr(kind, "draw", lambda *given, real=real: drawn.append(given[1:3]) or real(*given))
    for steps, limit, expected in ((2, 512, 16), (2, 12, 12)):
        monkeypatch.setattr(dense, "VALIDATION", limit * (4 if tasks == ["mlm"] else 1))
        drawn.clear()
        dense.pretrain(prepared, SMALL, tasks, Schedule(steps, 8, evaluations=1), seed=limit)
        assert drawn[0] == (0, expected)


def test_a_run_is_that_of_all_candidates_by_inner_product(finetuned, benchmark, part, task):
    run = rank(finetuned, benchmark, part, DEPTH)
    test = part.split("test")
    assert run.columns.tolist() == ["query_id", "doc_id", "score"]
    assert len(run) == len(test) * DEPTH and not run.duplicated(["query_id", "doc_id"]).any()
    assert run["query_id"].unique().tolist() == test.index.tolist()
    assert set(run["doc_id"]) <= set(task.documents.index)
    queries = benchmark.queries.take(task.queries.index.get_indexer(test.index))
    scores = finetuned.encode_queries(queries) @ finetuned.encode_documents(benchmark.documents).T
    best = np.sort(scores, axis=1)[:, ::-1][:, :DEPTH]
    np.testing.assert_allclose(run["score"].to_numpy().reshape(len(test), DEPTH), best, rtol=1e-4, atol=1e-4)
    own = scores[np.repeat(np.arange(len(test)), DEPTH), task.documents.index.get_indexer(run["doc_id"])]
    np.testing.assert_allclose(run["score"], own, rtol=1e-4, atol=1e-4)


def test_a_run_deeper_than_the_candidates_has_them_all(finetuned, benchmark, part, task):
    run = rank(finetuned, benchmark, part, len(task.documents) + 10)
    assert len(run) == len(part.split("test")) * len(task.documents)


def test_everything_is_found_again_without_training(prepared, pretrained, finetuned, benchmark, part, monkeypatch):
    run = rank(finetuned, benchmark, part, DEPTH)
    monkeypatch.setattr(dense, "train", lambda *_: pytest.fail("trained twice"))
    again = pretrain(prepared, SMALL, JOINT, SHORT, seed=0)
    assert same(again, pretrained) and again.name == pretrained.name
    assert str(again.history) == str(pretrained.history)  # a loss that is NaN is not equal to itself
    tuned = finetune(again, benchmark, part, SHORT, seed=0)
    assert same(tuned, finetuned) and tuned.name == finetuned.name
    monkeypatch.setattr(Retriever, "encode_documents", lambda *_: pytest.fail("encoded twice"))
    pd.testing.assert_frame_equal(rank(tuned, benchmark, part, DEPTH), run)


def test_the_same_seed_in_another_folder_gives_the_same_to_the_last_bit(
    prepared, pretrained, finetuned, benchmark, part, own_build, trainings
):
    expected = rank(finetuned, benchmark, part, DEPTH)  # made anew here too, from the first weights
    again = pretrain(prepared, SMALL, JOINT, SHORT, seed=0)
    tuned = finetune(again, benchmark, part, SHORT, seed=0)
    assert len(trainings) == 2
    assert same(again, pretrained) and same(tuned, finetuned)
    pd.testing.assert_frame_equal(rank(tuned, benchmark, part, DEPTH), expected)


def test_another_seed_gives_other_weights(prepared, pretrained, finetuned, benchmark, part):
    other = pretrain(prepared, SMALL, JOINT, SHORT, seed=1)
    assert not same(other, pretrained) and other.name != pretrained.name
    tuned = finetune(pretrained, benchmark, part, SHORT, seed=1)
    assert tuned.name != finetuned.name
    # The seed alone orders the pairs.
    losses = [[row["loss"] for row in found.history.evaluations[1:]] for found in (tuned, finetuned)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": ("ict",)},
        {"schedule": replace(SHORT, steps=4)},
        {"architecture": replace(SMALL, pooling="cls")},
        {"keep": 0.5},
        {"seed": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_takes_part_in_the_address(prepared, pretrained, change, monkeypatch):
    found = []
    monkeypatch.setattr(dense, "train", lambda *given: found.append(given) or History([{"step": 0}]))
    asked = {"architecture": SMALL, "tasks": JOINT, "schedule": SHORT, "seed": 0, **change}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Retriever, "save", lambda *_: found.append("saved"))
        patch.setattr(Retriever, "load", lambda folder: folder.name)
        name = pretrain(prepared, **asked)
    assert len(found) == 2 and name != pretrained.name


def test_finetuning_starts_from_the_weights_it_is_given_and_leaves_them(pretrained, benchmark, part):
    before = weights(pretrained)
    still = finetune(pretrained, benchmark, part, replace(SHORT, learning_rate=1e-12), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in weights(pretrained).items())
    for name, value in weights(still).items():
        torch.testing.assert_close(value, before[name], atol=1e-6, rtol=0)
    assert still.history.evaluations[0]["step"] == 0


def test_a_fresh_retriever_is_finetuned_as_well(prepared, finetuned, benchmark, part):
    fresh = Retriever.fresh(SMALL, prepared[0], seed=0)
    tuned = finetune(fresh, benchmark, part, SHORT, seed=0)
    assert tuned.name not in ("", finetuned.name)
    assert len(rank(tuned, benchmark, part, DEPTH)) == len(part.split("test")) * DEPTH


def test_two_fresh_retrievers_are_not_taken_for_one(prepared, benchmark, part):
    one, other = (
        finetune(Retriever.fresh(SMALL, prepared[0], seed), benchmark, part, SHORT, seed=0) for seed in (1, 2)
    )
    assert one.name != other.name


def test_a_share_of_the_labels_is_another_finetuning(pretrained, finetuned, benchmark, task, trainings):
    less = finetune(pretrained, benchmark, low_resource(task, 0.3), SHORT, seed=0)
    assert less.name != finetuned.name and len(trainings) == 1


def test_training_helps(prepared, benchmark, part, exact):
    # Enough steps to know most of the pairs that it was trained on: the right document is held against each query.
    start = Retriever.fresh(SMALL, prepared[0], seed=0)
    tuned = finetune(start, benchmark, part, Schedule(60, 48, learning_rate=5e-3, evaluations=3), seed=0)
    pairs = benchmark.pairs(part, "train")

    def hits(retriever):
        scores = retriever.encode_queries(pairs.queries) @ retriever.encode_documents(pairs.documents).T
        return (pairs.groups[scores.argmax(axis=1)] == pairs.groups).mean()

    assert hits(tuned) > 5 * hits(start) and hits(tuned) > 0.1, (hits(start), hits(tuned))
    losses = [row["loss"] for row in tuned.history.evaluations[1:]]
    assert losses == sorted(losses, reverse=True)


# --- added candidates ------------------------------------------------------------------------------


def test_added_candidates_appear_and_can_only_lower_recall(finetuned, prepared, benchmark, part):
    alone = rank(finetuned, benchmark, part, DEPTH)
    added = concatenate([prepared[1].sentences.take(np.arange(0, 3000, 10)).segment], SMALL.document_length)
    among = rank(finetuned, benchmark, part, DEPTH, added)
    strangers = among["doc_id"].str.startswith("added#")
    assert 0 < strangers.sum() < len(among)
    assert set(among["doc_id"][strangers]) <= {f"added#{i}" for i in range(300)}
    # Those that were there before keep their scores and their order.
    known = among[~strangers].groupby("query_id", sort=False)["doc_id"].agg(list)
    before = alone.groupby("query_id", sort=False)["doc_id"].agg(list)
    assert all(found == before[name][: len(found)] for name, found in known.items())
    qrels = part.judgments("test")
    measures = ["R@1", "R@5", "R@20"]
    recall = [evaluate(run, qrels, measures).set_index(["query_id", "measure"])["value"] for run in (alone, among)]
    assert (recall[1].reindex(recall[0].index) <= recall[0]).all()
    # Each is found under its own number.
    vectors, queries = finetuned.encode_documents(added), benchmark.queries.take(benchmark_rows(benchmark, part))
    scores = finetuned.encode_queries(queries) @ vectors.T
    rows = part.split("test").index.get_indexer(among["query_id"][strangers])
    own = scores[rows, among["doc_id"][strangers].str.removeprefix("added#").astype(int)]
    np.testing.assert_allclose(among["score"][strangers], own, rtol=1e-4, atol=1e-4)


def benchmark_rows(benchmark, part):
    return benchmark.collection.queries.index.get_indexer(part.split("test").index)


def test_other_candidates_of_the_same_units_are_other_candidates(finetuned, benchmark, part):
    one = TokenTable.from_rows([[7, 8, 9], [10]])
    other = TokenTable.from_rows([[7], [8, 9, 10]])
    everything = len(part.documents) + 2
    runs = [rank(finetuned, benchmark, part, everything, added) for added in (one, other)]
    assert not runs[0].equals(runs[1])


# --- the other encoders and tasks ------------------------------------------------------------------


def test_a_masked_language_model_then_finetuning(prepared, benchmark, part, pretrained):
    start = pretrain(prepared, SMALL, ["mlm"], replace(SHORT, steps=40, learning_rate=3e-3), seed=0)
    scores = [row["score"] for row in start.history.evaluations]
    assert scores[-1] > scores[0] + 0.1 and scores[0] == pytest.approx(-np.log(300), abs=0.6)
    assert start.history.best_step == 40
    fresh = Retriever.fresh(SMALL, prepared[0], seed=0)
    embeddings = "query_encoder.bert.embeddings.word_embeddings.weight"
    assert not torch.equal(weights(start)[embeddings], weights(fresh)[embeddings])
    # The head has no part in it, and is as it was drawn.
    assert torch.equal(weights(start)["query_encoder.head.weight"], weights(fresh)["query_encoder.head.weight"])
    tuned = finetune(start, benchmark, part, SHORT, seed=0)
    assert len(rank(tuned, benchmark, part, DEPTH)) == len(part.split("test")) * DEPTH


def test_two_towers_are_pretrained_apart_on_pairs_and_alike_by_the_masked_language_model(prepared, benchmark, part):
    towers = replace(SMALL, towers="two")
    pairs, masked = (pretrain(prepared, towers, tasks, SHORT, seed=0) for tasks in (["ict"], ["mlm"]))
    for start, alike in ((pairs, False), (masked, True)):
        query, document = start.model.query_encoder, start.model.document_encoder
        assert query is not document
        equal = [torch.equal(a, b) for a, b in zip(query.parameters(), document.parameters(), strict=True)]
        assert all(equal) == alike
        tuned = finetune(start, benchmark, part, SHORT, seed=0)
        both = zip(tuned.model.query_encoder.parameters(), tuned.model.document_encoder.parameters(), strict=True)
        assert not all(torch.equal(a, b) for a, b in both)
        assert len(rank(tuned, benchmark, part, DEPTH)) == len(part.split("test")) * DEPTH


def test_a_bow_mlp_is_pretrained_finetuned_and_ranked(prepared, benchmark, part):
    start = pretrain(prepared, replace(SMALL, encoder="bow-mlp"), JOINT, SHORT, seed=0)
    assert isinstance(start.model.query_encoder, BagOfWordsMLP)
    tuned = finetune(start, benchmark, part, SHORT, seed=0)
    assert len(rank(tuned, benchmark, part, DEPTH)) == len(part.split("test")) * DEPTH


def test_chunks_and_the_correction_reach_the_training(prepared, pretrained, benchmark, part, trainings):
    plain, chunks, corrected = (
        pretrain(prepared, SMALL, JOINT, replace(SHORT, steps=3, evaluations=1, precision="float32", **changes), seed=0)
        for changes in ({}, {"chunk": 5}, {"corrected": True})
    )
    assert [call[0].chunk for call in trainings] == [None, 5, None]
    assert [call[0].negatives.corrected for call in trainings] == [False, False, True]
    losses = [found.history.evaluations[-1]["loss"] for found in (plain, chunks, corrected)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert abs(losses[2] - losses[0]) > 0.01
    finetune(pretrained, benchmark, part, replace(SHORT, chunk=5, corrected=True), seed=0)
    assert trainings[-1][0].chunk == 5 and trainings[-1][0].negatives.corrected


def test_pretraining_starts_from_a_checkpoint(prepared, benchmark, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    saved = Retriever.fresh(SMALL, prepared[0], seed=77).model.query_encoder.bert
    saved.save_pretrained(tmp_path)
    architecture = replace(SMALL, checkpoint=str(tmp_path))
    start = pretrain(prepared, architecture, ["ict"], replace(SHORT, learning_rate=1e-12), seed=0)
    for name, weight in start.model.query_encoder.bert.named_parameters():
        torch.testing.assert_close(weight, saved.get_parameter(name), atol=1e-6, rtol=0)
    with pytest.raises(DataError, match="no BERT checkpoint"):
        Retriever.fresh(replace(SMALL, checkpoint=str(tmp_path / "gone")), prepared[0], seed=0)


# --- kills -----------------------------------------------------------------------------------------


def kill_at(monkeypatch, step):
    """Raise in that step, and write down the steps of this training and of those after it."""
    steps = []

    def noting(batch):
        def wrapped(self, number):
            steps.append(number)
            if len(steps) == step + 1:
                raise Killed
            return batch(self, number)

        return wrapped

    for kind in (dense.RetrievalTask, dense.MaskedTask):
        monkeypatch.setattr(kind, "batch", noting(kind.batch))
    return steps


@pytest.mark.parametrize(
    ("tasks", "changes", "schedule"),
    [
        (JOINT, {}, {}),
        (JOINT, {"towers": "two"}, {"chunk": 5}),
        (["mlm"], {}, {}),
        (["ict"], {"encoder": "bow-mlp"}, {}),
    ],
    ids=["joint", "two towers in chunks", "mlm", "bow-mlp"],
)
def test_a_killed_pretraining_resumes_to_the_same_weights(prepared, tasks, changes, schedule, monkeypatch, tmp_path):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    asked = prepared, replace(SMALL, **changes), tasks, replace(SHORT, **schedule), 0
    expected = pretrain(*asked)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path))
    steps = kill_at(monkeypatch, 5)
    with pytest.raises(Killed):
        pretrain(*asked)
    assert steps == [0, 1, 2, 3, 4, 5]
    found = pretrain(*asked)
    assert steps[6:] == [4, 5, 6, 7]  # from the last evaluation on
    assert same(found, expected) and found.name == expected.name
    kept = {path.name for path in (tmp_path / "cache" / "pretrained" / found.name).iterdir()}
    assert kept - {"bert.json"} == {"vocab.txt", "model.safetensors", "retriever.json", "settings.json"}


def test_a_killed_finetuning_resumes_to_the_same_weights(
    pretrained, finetuned, benchmark, part, monkeypatch, own_build
):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    steps = kill_at(monkeypatch, 3)
    with pytest.raises(Killed):
        finetune(pretrained, benchmark, part, SHORT, seed=0)
    again = finetune(pretrained, benchmark, part, SHORT, seed=0)
    assert steps == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]
    assert same(again, finetuned)
