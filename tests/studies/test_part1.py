"""Part I: how labelled pairs train, what a system may try, averaged word vectors, Skip-Thought, losses of one's own."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_toy

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.text import words as words_of
from retlib.evaluation.measures import evaluate
from retlib.models import baselines
from retlib.studies import part1
from retlib.studies.part1 import (
    AveragedWords,
    Neighbours,
    Sentences,
    bag_of_words,
    candidate_pools,
    grid,
    pair_stage,
    word2vec,
)
from retlib.systems.system import System, Target, fit
from retlib.training import losses
from retlib.training.losses import LOSSES, NEGATIVE

START = System(bag_of_words(16))
TEXT = ["the cat sat on the mat", "a dog sat on the log", "the cat and the dog sat", "no cat sat on a dog"] * 20


@pytest.fixture(scope="module", autouse=True)
def _text():
    """A bulk text of a few sentences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "text", lambda name: iter(TEXT if name == "cats" else TEXT[::-1]))
        yield


@pytest.fixture
def of_mine():
    """A loss registered for one test."""
    names = []

    def register(name, loss, **facts):
        names.append(name)
        return losses.register(name, **facts)(loss)

    yield register
    for name in names:
        LOSSES._things.pop(name, None)


def test_a_stage_of_pairs_has_the_options_of_its_negatives():
    assert pair_stage(steps=3).options == {"mask_known": False, "corrected": False}
    assert pair_stage(steps=3, options={"corrected": True}).options == {"mask_known": False, "corrected": True}
    assert pair_stage(steps=3, negatives="labelled", loss="cross_entropy").options == {}


def test_every_system_may_try_as_many_settings():
    rates, scales = (0.003, 0.01, 0.03), (10.0, 20.0)
    softmax, triplet = (
        grid(START + pair_stage(loss=loss, batch_size=7, steps=3), rates, scales) for loss in ("softmax", "triplet")
    )
    tried = [(system.stages[-1].learning_rate, system.stages[-1].scale) for system in softmax]
    assert tried == [(rate, scale) for rate in rates for scale in scales]
    # The triplet has no scale: it looks at more learning rates within the same range.
    found = [system.stages[-1].learning_rate for system in triplet]
    assert len(set(found)) == 6 and (found[0], found[-1]) == (0.003, 0.03) and found == sorted(found)
    assert {system.stages[-1].batch_size for system in softmax + triplet} == {7}


def test_pools_are_all_candidates_and_those_of_the_test(toy):
    whole, narrow = candidate_pools(toy)
    assert whole.test is whole.trains is narrow.trains is toy
    assert narrow.test.name == "toy-test" and set(narrow.test.documents["split"]) == {"test"}
    assert candidate_pools(None) == []


def make_margin(margin):
    """What a reader writes in a cell: its margin is read from outside."""

    def hinge(scores, targets):
        positive = scores.gather(1, targets.argmax(dim=1, keepdim=True))
        return (margin - positive + scores).clamp(min=0)[targets == NEGATIVE].mean()

    hinge.__module__ = "__main__"  # of a notebook
    return hinge


def test_a_loss_in_cosine_trains_with_the_batch_and_its_margin_is_in_the_address(toy, of_mine):
    names = []
    for margin in (0.1, 50.0, 0.1):
        of_mine("hinge", make_margin(margin), scaled=False, one_positive=True)
        system = START + pair_stage(loss="hinge", batch_size=24, epochs=3, learning_rate=0.03)
        found = fit(system, toy, 0)
        names.append(found.name)
        assert found.model.alpha.item() == 20  # which it does not see
        assert found.history.evaluations[1]["loss"] == pytest.approx(margin, abs=0.6)
    assert names[0] == names[2] != names[1] and len(grid(system, [0.01, 0.1], [1.0, 2.0])) == 4


def test_a_loss_over_encodings_sees_those_of_both_sides(toy, of_mine):
    seen = []

    def spread(scores, targets, queries, documents):
        seen.append((tuple(scores.shape), tuple(queries.shape), tuple(documents.shape)))
        return losses.softmax(scores, targets) + (queries.mean(dim=0) ** 2).sum() + (documents.mean(dim=0) ** 2).sum()

    of_mine("spread", spread, encodings=True, one_positive=True)
    fit(START + pair_stage(loss="spread", batch_size=12, steps=2), toy, 0)
    assert set(seen) == {((12, 12), (12, 16), (12, 16))}


@pytest.mark.parametrize("loss", [lambda scores, targets: scores.mean(dim=1), lambda scores, targets: 1.0])
def test_a_loss_of_another_shape_is_named(of_mine, toy, loss):
    of_mine("mine", loss)
    with pytest.raises(SettingError, match="'mine'"):
        fit(START + pair_stage(loss="mine", batch_size=4, steps=1), toy, 0)


def test_sentences_are_the_first_of_a_text():
    few = Sentences("cats", 3, words=4)
    assert list(few) == TEXT[:3]
    assert few.tokenizer.tokens == ("[UNK]", "the", "sat", "cat", "dog")
    assert few.fingerprint == Sentences("cats", 3).fingerprint
    assert len({few.fingerprint, Sentences("cats", 4).fingerprint, Sentences("dogs", 3).fingerprint}) == 3


def test_word2vec_is_trained_once_for_each_text_and_seed(toy, own_build, monkeypatch):
    real, texts = baselines.train, []

    def noting(given, *others, **settings):
        texts.append(list(given))
        return real(texts[-1], *others, **settings)

    monkeypatch.setattr(baselines, "train", noting)
    first = word2vec(Sentences("cats", 50), 2, 0)
    np.testing.assert_array_equal(word2vec(Sentences("cats", 50), 2, 0).matrix, first.matrix)
    assert texts == [TEXT[:50]]
    word2vec(Sentences("cats", 50), 2, 1)
    word2vec(toy, 2, 0)
    assert texts[2] == toy.documents["text"][toy.documents["split"] == "train"].tolist() and len(texts) == 3


@pytest.mark.parametrize("idf", [True, False])
def test_averaged_words_rank_by_the_cosine_of_weighted_means(toy, idf):
    whole, narrow = candidate_pools(toy)
    system = AveragedWords(epochs=2, idf=idf)
    run = system.run(narrow, 0, depth=5)
    vectors = word2vec(toy, 2, 0)  # of the task, whose training documents the pool has not
    index = {word: i for i, word in enumerate(vectors.vocabulary.tokens)}
    texts = narrow.test.documents["text"]

    def vector(text):
        total = np.zeros(vectors.matrix.shape[1])
        for word in words_of(text):
            df = sum(word in words_of(other) for other in texts)
            total += (np.log((len(texts) + 1) / (df + 1)) if idf else 1) * vectors.matrix[index.get(word, 0)]
        return total / max(np.linalg.norm(total), 1e-12)

    matrix = np.array([vector(text) for text in texts])
    for name, part in run.groupby("query_id", sort=False):
        scores = matrix @ vector(toy.queries["text"][name])
        np.testing.assert_allclose(part["score"], np.sort(scores)[::-1][:5], atol=1e-5)
    _, rows = system.searcher(narrow, 0)(narrow.test.documents.iloc[[3]], 4)
    np.testing.assert_allclose((matrix @ matrix[3])[rows[0]], np.sort(matrix @ matrix[3])[::-1][:4], atol=1e-5)
    assert system.trained and system.cost(whole, 0) == (2, None, ())
    assert system.settings == {"system": "AveragedWords", "text": "the task's", "epochs": 2, "idf": idf}


def test_skip_thought_learns_a_text_in_its_own_words(toy):
    text = Sentences("cats", 60)
    system = part1.skip_thought(text, dimension=16, steps=40, batch_size=8, words=5)
    found = fit(system, toy, 0)
    assert len(found.tokenizer) == 6 and found.architecture.document_length == part1.LENGTH
    scores = found.history.frame()["score"]
    assert scores.max() > scores[0] + 0.2
    run = system.run(Target(toy), 0, depth=10)
    assert evaluate(run, toy.judgments("test"), ["AP@100"])["value"].between(0, 1).all()
    assert fit(system, make_toy("other", slice(0, 6)), 0).name == found.name  # whatever it is tested on
    more = replace(system.stages[0], data=Neighbours(Sentences("cats", 61, words=5)))
    assert fit(replace(system, stages=(more,)), toy, 0).name != found.name
    with pytest.raises(DataError, match="sentences"):  # which have no neighbours
        fit(part1.skip_thought(Sentences("cats", 4), 16, 2, 2, words=5), toy, 0)
