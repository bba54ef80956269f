"""Corpora that grow, what is seen of trainings over them, and times from histories and rates of written numbers."""

from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from words import PAGES, SMALL, UNITS, make_collection

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.collection import Article
from retlib.evaluation.measures import evaluate
from retlib.studies.experiment import Experiment
from retlib.systems.system import Stage, System, Target, fit, stage_seed
from retlib.systems.training_data import Labels

import training_time
from training_time import ANCE, BEST, LTRE, NEVER, NO_GAIN, OURS, PAPERS, RATIOS, REACHED, SECONDS, TimedIndex


@pytest.fixture
def pages(monkeypatch):
    """Two sources: a page of an opening and two passages, one of them known; two that repeat the other."""
    written = {
        "first": [Article("a", "A", ("opening", "cu cv cw", "new words"), 1)],
        "second": [Article("b", "B", ("new words", "more words"), 1), Article("c", "C", ("x", "last words"), 1)],
    }
    monkeypatch.setattr(datasets, "articles", written.__getitem__)


def test_a_grown_collection_has_new_passages_outside_the_openings_and_the_same_judgments(pages):
    collection = make_collection()
    assert "cu cv cw" in set(collection.documents["text"])
    found = training_time.nested_collections(collection, ["first", "second"], [PAGES + 3, PAGES + 1])
    smaller, larger = (found[PAGES + more] for more in (1, 3))
    assert larger.documents.index[:PAGES].equals(collection.documents.index) and larger.qrels is collection.qrels
    assert larger.documents["title"].tolist()[PAGES:] == ["A", "B", "C"]
    assert larger.documents["text"].tolist()[PAGES:] == ["new words", "more words", "last words"]
    assert smaller.documents["text"].tolist() == larger.documents["text"].tolist()[:-2]
    assert smaller.fingerprint != larger.fingerprint and smaller.name != larger.name
    for sizes in [PAGES + 4], [7, PAGES + 1]:  # more than there are, and less
        with pytest.raises(DataError, match="'words'"):
            training_time.nested_collections(collection, ["first", "second"], sizes)


def test_a_refresh_pays_for_what_an_evaluation_encoded():
    timed = TimedIndex(iter(["index of a", "index of b"]).__next__)
    first = timed.watch.seconds
    assert timed.take() is timed and (timed.index, timed.owed, timed.encodings) == ("index of a", first, 1)
    timed.renew()
    assert timed.owed == first  # for the evaluation alone, nothing is paid
    timed.take()
    assert (timed.index, timed.encodings, timed.owed) == ("index of b", 2, first + timed.watch.seconds)


LEARNT = {"data": Labels(), "learning_rate": 0.02, "batch_size": 16, "precision": "float32", "keep": "last"}
START = System(SMALL, UNITS) + Stage(data=Labels(), steps=2, batch_size=16)
ANN = {"negatives": "ann", "options": {"interval": 4, "depth": 10}, "loss": "ranknet", "evaluations": 3}
TOP = {"negatives": "retrieved", "options": {"n": 8}, "loss": "lambdarank-mrr", "evaluations": 4, "trains": "query"}
SYSTEMS = {name: START + Stage(**own, **LEARNT, steps=12) for name, own in ((ANCE, ANN), (LTRE, TOP))}


@pytest.fixture(scope="module")
def trained(collection):
    start, seed = fit(START, collection, 0), stage_seed(0, 1)
    return {name: training_time.measured(start, each.stages[-1], collection, seed) for name, each in SYSTEMS.items()}


def test_a_training_is_seen_at_its_evaluations(trained, collection):
    assert trained[ANCE]["step"].tolist() == [0, 4, 8, 12] and trained[LTRE]["step"].tolist() == [0, 3, 6, 9, 12]
    assert trained[ANCE]["encodings"].tolist() == [0, 1, 2, 3] and set(trained[LTRE]["encodings"]) == {1}
    assert trained[ANCE]["queries"].tolist() == [0, 64, 128, 192]
    # 79 training queries have a relevant document: an epoch is four batches of 16, the length of an interval.
    assert trained[ANCE]["searches"].tolist() == [0, 64, 128, 192]
    assert trained[LTRE]["searches"].tolist() == trained[LTRE]["queries"].tolist()
    # Both begin with the same model over the same documents, which LTRe has to pay for and ANCE will have to.
    assert trained[ANCE]["score"][0] == trained[LTRE]["score"][0]
    assert trained[ANCE]["seconds"][0] == 0 and trained[LTRE]["seconds"][0] == trained[LTRE]["encoding corpus"][0] > 0
    for moments in trained.values():
        assert moments["seconds"].is_monotonic_increasing
        names = moments.columns.difference(["step", "score", "seconds", "queries", "encodings", "searches"])
        assert (moments[names].sum(axis=1) <= moments["seconds"] + 0.002).all()  # seconds are rounded to thousandths
        assert (moments[names].diff().iloc[1:] >= 0).all().all()
    for name, moments in trained.items():  # the last score is that of a ranking of all documents by what `fit` trains
        run = SYSTEMS[name].run(Target(collection), 0, "dev", depth=10)
        values = evaluate(run, collection.judgments("dev"), ["RR@10"])["value"]
        assert moments["score"].iloc[-1] == pytest.approx(values.mean(), abs=1e-6)


def test_every_size_is_measured_once_and_the_largest_of_several_with_one_seed(pages, collection, own_build, trainings):
    short = {name: START + replace(system.stages[-1], steps=4) for name, system in SYSTEMS.items()}
    asked = (short, collection, ["first", "second"], [PAGES + 1, PAGES + 3], [0, 1])
    found = training_time.moments(*asked)
    systems = found.groupby(["documents", "seed"])["system"].unique().map(list).to_dict()
    assert systems == dict.fromkeys([(PAGES + 1, 0), (PAGES + 1, 1), (PAGES + 3, 0)], [ANCE, LTRE])
    assert not found.isna().any().any() and found["score"].between(0, 1).all()
    assert len(trainings) == 2 + 6  # the start of each seed, and what is measured
    pd.testing.assert_frame_equal(training_time.moments(*asked), found)
    assert len(trainings) == 8


def history(system, scores, seconds, documents=100, seed=0, **columns):
    """Moments every ten steps."""
    frame = pd.DataFrame({"score": scores, "seconds": np.asarray(seconds, dtype=float), **columns})
    frame["step"] = 10 * np.arange(len(frame))
    return frame.assign(system=system, documents=documents, seed=seed)


@pytest.mark.parametrize(
    ("ance", "ltre", "outcome", "row"),  # seconds, steps, and the ratio of seconds
    [
        # The first moments that have ANCE's best score, as good or better.
        ([0.1, 0.3, 0.4, 0.4, 0.2], [0.1, 0.2, 0.5, 0.4], REACHED, [60, 15, 20, 20, 4]),
        ([0.1, 0.4], [0.1, 0.4, 0.5], REACHED, [30, 10, 10, 10, 3]),
        ([0.1, 0.4], [0.1, 0.3, 0.2], NEVER, [30, 15, 10, 20, 2]),  # its whole training bounds the ratio
        ([0.4, 0.4, 0.3], [0.4, 0.5], NO_GAIN, [0, 5, 0, 0, np.nan]),
    ],
)
def test_the_time_to_anc_es_best(ance, ltre, outcome, row):
    moments = [history(ANCE, ance, 30 * np.arange(len(ance))), history(LTRE, ltre, 5 + 5 * np.arange(len(ltre)))]
    table = training_time.to_best(pd.concat(moments)).drop(columns=["documents", "seed"])
    assert table.iloc[0, :2].tolist() == [0.4, outcome]
    assert table.iloc[0, 2:7].tolist() == pytest.approx(row, nan_ok=True)


def test_parts_are_those_of_the_compared_moments_means_over_seeds():
    columns = {"encoding corpus": [0, 10, 20], "search": [0, 2, 4], "encoding queries": [0, 1, 2],
               "encoding documents": [0, 3, 6], "loss and backward": [0, 4, 8], "sampling": [0, 1, 1]}  # fmt: skip
    scores = [0.1, 0.4, 0.2], [0.1, 0.2, 0.4]
    parts = [history(ANCE, each, [0, 25, 50], seed=seed, **columns) for seed, each in enumerate(scores)]
    parts += [history(LTRE, [0.1, 0.5], [5, 10], seed=seed, **{"encoding corpus": [5, 5]}) for seed in (0, 1)]
    table = training_time.parts(pd.concat(parts).fillna(0.0)).set_index("system")
    assert table.columns[1:].tolist() == [*dict.fromkeys(training_time.GROUPS.values()), "sampling, optimizer"]
    assert table.loc[ANCE].tolist() == [100, 15, 3, 6, 6, 7.5] and table.loc[LTRE].tolist() == [100, 5, 0, 0, 0, 5]


def written(outcome=REACHED):
    """Over 1000 documents: ANCE takes 2 s an encoding, 1 ms a search, 10 ms a query; LTRe 2 s, 2 ms and 5 ms."""
    work = {"queries": [0, 100, 200], "searches": [0, 50, 100]}
    ance = history(ANCE, [0.1, 0.4, 0.2], [0, 3.05, 6.1], 1000, encodings=[0, 1, 2], search=[0, 0.05, 0.1],
                   **{"encoding corpus": [0, 2, 4]}, **work)  # fmt: skip
    scores = [0.1, 0.2, 0.3] if outcome == NEVER else [0.1, 0.4, 0.4]
    work["searches"] = work["queries"]
    ltre = history(LTRE, scores, [2, 2.7, 3.4], 1000, encodings=[1, 1, 1], search=[0, 0.2, 0.4],
                   **{"encoding corpus": [2, 2, 2]}, **work)  # fmt: skip
    return pd.concat([ance, ltre])


def test_times_beyond_follow_from_the_steps_to_the_best(monkeypatch):
    # ANCE's best is its second moment: one encoding, 50 searches, 100 queries; so is LTRe's, with 100 searches.
    monkeypatch.setattr(training_time, "BEYOND", (1000, 1_000_000))
    found, bound = map(training_time.extrapolated, (written(), written(NEVER)))
    found = found.set_index(["steps", "documents"])
    assert found.loc[OURS, 1000].tolist()[:3] == pytest.approx([3.05, 2.7, 3.05 / 2.7])
    long, short = 1 + 2000 + 50, 0.5 + 2000 + 200
    assert found.loc[OURS, 1_000_000].tolist()[:4] == pytest.approx([long, short, long / short, long / 200.5])
    ance, ltre = 600_000 * 64 * 0.01 + 60 * 2 + 60 * 503_000 * 0.001, 60_000 * 32 * 0.005 + 2 + 60_000 * 32 * 0.002
    assert found.loc[PAPERS, 1000].tolist()[:2] == pytest.approx([ance, ltre])
    # A bound stays a bound, and the paper's numbers of steps are what they are.
    assert set(found["outcome"]) == {REACHED} and bound["outcome"].tolist() == [NEVER] * 2 + [REACHED] * 2


def test_the_largest_corpus_on_which_ance_improves_tells_the_rates():
    flat = written().assign(score=0.2)
    assert training_time.extrapolated(flat).empty
    assert training_time.figure(flat).axes[0].get_title()  # says that there is nothing to compare
    both = pd.concat([written(), flat.assign(documents=5000)])
    pd.testing.assert_frame_equal(training_time.extrapolated(both), training_time.extrapolated(written()))


@pytest.mark.parametrize(("outcome", "sign"), [(REACHED, ""), (NEVER, "< ")])
def test_the_figure_marks_what_is_measured_and_dashes_what_is_not(outcome, sign):
    largest = written(outcome).assign(documents=2000)
    beyond = training_time.extrapolated(largest).query("steps == @OURS")
    left, right = training_time.figure(pd.concat([written(), largest])).axes
    lines = {line.get_label(): line for line in left.get_lines()}
    dashed = lines["LTRe, extrapolated"]  # from the mean over the largest corpus that is measured
    assert lines["ANCE, measured"].get_ydata().tolist() == [3.05, 3.05]
    assert dashed.get_linestyle() == "--" and dashed.get_xdata().tolist() == [2000, *training_time.BEYOND]
    assert dashed.get_ydata().tolist()[1:] == beyond[LTRE].tolist()
    assert [text.get_text() for text in left.texts] == [f"{sign}{ratio:.1f} times" for ratio in beyond["ratio"]]
    bound = lines.get("LTRe, whole training: never as good")  # is open
    assert bound.get_ydata().tolist() == [3.4] if outcome == NEVER else bound is None
    assert [bar.get_height() for bar in right.containers[0]] == [2, 2, 2, 2]  # encodings, at the bottom
    assert right.containers[1][0].get_y() == 2
    plt.close("all")


def test_the_largest_size_with_every_seed_is_recorded_where_ance_improved():
    parts = []
    for size, seed, best in [(100, 0, 0.4), (100, 1, 0.4), (200, 0, 0.4), (200, 1, 0.0), (400, 0, 0.4)]:
        parts.append(history(ANCE, [0.1, best], [0, size], size, seed))
        parts.append(history(LTRE, [0.1, 0.5], [size / 100, size / 50], size, seed))
    made = Experiment("45", {"profile": "smoke", "seeds": [0], "source": "run"})
    training_time.record(made, None, pd.concat(parts))
    assert made.results.rows.empty  # a page of recorded rows has no data
    training_time.record(made, SimpleNamespace(name="here, there"), pd.concat(parts))
    rows = made.results.rows
    assert set(rows["candidates"]) == {200} and set(rows["collection"]) == {"here, there"}
    values = rows.set_index(["measure", "system", "seed"])["value"].to_dict()
    bests = {(BEST, ANCE, 0): 0.4, (BEST, LTRE, 0): 0.5, (BEST, ANCE, 1): 0.1, (BEST, LTRE, 1): 0.5}
    assert values == {(SECONDS, ANCE, 0): 200, (SECONDS, LTRE, 0): 4} | bests  # no times where ANCE does not improve


def test_ratios_are_spread_over_seeds():
    one = pd.concat([history(ANCE, [0.1, 0.4], [0, 30]), history(LTRE, [0.1, 0.4], [5, 10])])
    other = [history(ANCE, [0.1, 0.4], [0, 60], seed=1), history(LTRE, [0.1, 0.3, 0.4], [5, 8, 10], seed=1)]
    both = pd.concat([one, *other])
    assert training_time.spread(both).iloc[0].tolist() == ["4.5 (3.0 to 6.0)", "0.8 (0.5 to 1.0)", "0 of 2"]
    ratios = training_time.ratios(both)
    assert ratios["counted"].tolist() == RATIOS and ratios["times"].tolist() == [18**0.5, 0.5**0.5]
    assert training_time.spread(one).iloc[0].tolist() == ["3.0 (one seed)", "1.0 (one seed)", "0 of 1"]
    assert training_time.spread(one.assign(score=0.4)).empty
