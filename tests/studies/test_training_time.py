"""Corpora that grow, and what is seen of trainings over them."""

from dataclasses import replace

import ltre_slice
import pandas as pd
import pytest
from words import PAGES, make_collection

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.collection import Article
from retlib.evaluation.measures import evaluate
from retlib.studies import training_time
from retlib.studies.training_time import ANCE, Corpus
from retlib.systems.ltre import LTRE, Method, fit, rank
from retlib.systems.ranking import Ranking

# --- a growing corpus ------------------------------------------------------------------------------


@pytest.fixture
def pages(monkeypatch):
    """Two sources: a page of an opening and two passages, one of them known; a page that repeats the other."""
    written = {
        "first": [Article("a", "A", ("opening", "cu cv cw", "new words"), 1)],
        "second": [Article("b", "B", ("new words", "more words"), 0 + 1), Article("c", "C", ("x", "last words"), 1)],
    }
    monkeypatch.setattr(datasets, "articles", written.__getitem__)


def test_distractors_are_new_passages_outside_the_openings(pages):
    collection = make_collection()
    assert "cu cv cw" in set(collection.documents["text"])
    found = training_time.distractors(collection, ["first", "second"], 3)
    assert found.to_dict("list") == {"title": ["A", "B", "C"], "text": ["new words", "more words", "last words"]}
    assert found.index.tolist() == ["added-0", "added-1", "added-2"]


def test_too_few_distractors_are_an_error(pages):
    with pytest.raises(DataError, match="first, second give 3 passages that 'words' has not, not 4"):
        training_time.distractors(make_collection(), ["first", "second"], 4)


def test_a_grown_collection_has_its_own_documents_first_and_the_same_judgments(pages):
    collection = make_collection()
    added = training_time.distractors(collection, ["first", "second"], 3)
    smaller, larger = (training_time.grown(collection, added, PAGES + more) for more in (1, 3))
    assert larger.documents.index[:PAGES].equals(collection.documents.index) and larger.qrels is collection.qrels
    assert smaller.documents["text"].tolist() == larger.documents["text"].tolist()[:-2]
    assert smaller.documents["title"].iloc[-1] == "A" and smaller.fingerprint != larger.fingerprint
    with pytest.raises(DataError, match=f"'words' has {PAGES} documents, more than 7"):
        training_time.grown(collection, added, 7)


def test_of_several_sizes_the_largest_has_one_seed():
    assert training_time.seeds_of([30, 10, 20], [4, 5]) == {10: [4, 5], 20: [4, 5], 30: [4]}
    assert training_time.seeds_of([10], [4, 5]) == {10: [4, 5]}


# --- measuring -------------------------------------------------------------------------------------


def test_a_refresh_pays_for_what_an_evaluation_encoded():
    made = iter("bc")
    corpus = Corpus(lambda: next(made), "a", seconds=2.0)
    assert (corpus.take(), corpus.owed, corpus.encodings) == ("a", 2.0, 1)
    corpus.renew()
    assert corpus.owed == 2.0  # for the evaluation alone, nothing is paid
    assert (corpus.take(), corpus.encodings) == ("b", 2) and corpus.owed == 2.0 + corpus.seconds


LEARNT = {"learning_rate": 0.02, "batch_size": 16, "precision": "float32"}
LONG = Method("Async ANN", 12, "both", interval=4, evaluations=3, depth=10, **LEARNT)
SHORT = Method(LTRE, 12, "query", "lambdarank-mrr", n=8, evaluations=4, **LEARNT)
METHODS = {ANCE: LONG, LTRE: SHORT}


@pytest.fixture
def trained(start, own_build):
    ranking = Ranking.of(make_collection(), start)
    return {name: training_time.measured(start, ranking, method, seed=0) for name, method in METHODS.items()}


def test_a_training_is_seen_at_its_evaluations(trained):
    assert trained[ANCE]["step"].tolist() == [0, 4, 8, 12] and trained[LTRE]["step"].tolist() == [0, 3, 6, 9, 12]
    assert trained[ANCE]["encodings"].tolist() == [0, 1, 2, 3] and set(trained[LTRE]["encodings"]) == {1}
    assert trained[ANCE]["queries"].tolist() == [0, 64, 128, 192]
    # 79 training queries have a relevant document: an epoch is four batches of 16, the length of an interval.
    assert trained[ANCE]["searches"].tolist() == [0, 64, 128, 192]
    assert trained[LTRE]["searches"].tolist() == trained[LTRE]["queries"].tolist()
    # Both begin with the same model over the same documents, which LTRe encoded before and ANCE will encode.
    assert trained[ANCE]["score"][0] == trained[LTRE]["score"][0]
    assert trained[ANCE]["seconds"][0] == 0 and trained[LTRE]["seconds"][0] == trained[LTRE]["encoding corpus"][0] > 0
    assert trained[ANCE]["encoding corpus"][1] == pytest.approx(trained[LTRE]["encoding corpus"][1], abs=0.05)


def test_time_rises_and_holds_its_parts(trained):
    for moments in trained.values():
        assert moments["seconds"].is_monotonic_increasing
        names = moments.columns.difference(["step", "score", "seconds", "queries", "encodings", "searches"])
        assert (moments[names].sum(axis=1) <= moments["seconds"] + 0.002).all()  # seconds are rounded to thousandths
        assert (moments[names].diff().iloc[1:] >= 0).all().all()


def test_the_score_is_that_of_a_ranking_of_all_documents(trained, start):
    """What is evaluated is the training of `ltre.fit`: the last score is that of its model."""
    ranking = Ranking.of(make_collection(), start)
    for system, moments in trained.items():
        run = rank(fit(start, ranking, METHODS[system], seed=0), ranking, "dev", depth=10)
        values = evaluate(run, ranking.collection.judgments("dev"), ["RR@10"])["value"]
        assert moments["score"].iloc[-1] == pytest.approx(values.mean(), abs=1e-6)


def test_what_was_measured_is_found_again(start, own_build, trainings_of):
    calls, ranking = trainings_of(training_time), Ranking.of(make_collection(), start)
    first, again = (training_time.measured(start, ranking, SHORT, seed=0) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    training_time.measured(start, ranking, SHORT, seed=1)
    assert len(calls) == 2


def test_an_interval_longer_than_an_epoch_searches_each_query_once():
    method = replace(LONG, interval=12, evaluations=1)
    assert training_time._searches(method, 70, 0, 12) == 70
    assert training_time._searches(replace(method, interval=2), 70, 0, 4) == 64
    assert training_time._searches(SHORT, 70, 0, 12) == 12 * 16


# --- the notebook's study --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moments():
    """Everything that notebook 45 measures, on a slice of NumPy's docstrings."""
    study = ltre_slice.study()
    own = ltre_slice.OWN["45_training_time"]
    trainings = training_time.methods(study, own["refreshes"], own["looks"])
    return training_time.moments(study, own["added_text"], own["sizes"], trainings, [0, 1])


def test_every_size_is_measured(moments):
    assert moments.groupby(["documents", "seed"])["system"].unique().map(list).to_dict() == {
        (320, 0): [ANCE, LTRE], (320, 1): [ANCE, LTRE], (400, 0): [ANCE, LTRE],
    }  # fmt: skip
    steps = moments.groupby("system")["step"].unique().map(list).to_dict()
    assert steps == {ANCE: [0, 4, 8], LTRE: [0, 2, 4, 6, 8, 10]}
    assert not moments.isna().any().any() and moments["score"].between(0, 1).all()
