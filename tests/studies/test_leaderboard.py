"""The leaderboard: equal budgets, what is recorded, its tables and figures; on NumPy's docstrings and by hand."""

from itertools import product

import board_slice
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from board_slice import PARAMETERS

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.evaluation.measures import evaluate
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.retrieval.lexical import BM25
from retlib.studies import leaderboard, leaderboard_tables
from retlib.studies.experiment import COMMON, Experiment, check_parameters
from retlib.studies.leaderboard import BM25_TUNED, HYBRID, LONGEST, MEASURES, Budget, chains, name_of
from retlib.systems import reranking

GIVEN = {"profile": "smoke", "seeds": [0], "source": "run", **PARAMETERS}
READ = f"{name_of(LONGEST)}{HYBRID}, read 3"


@pytest.fixture(scope="module")
def tuned():
    return leaderboard.tune(board_slice.board(), leaderboard.budget(PARAMETERS), 0)


@pytest.fixture(scope="module")
def results(tuned):
    made = Experiment("51_one_leaderboard", {"profile": "smoke", "seeds": [0], "source": "run"})
    leaderboard.record(made, tuned[0], [0], read=3, timed=3)
    return made.results


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


# --- parameters ------------------------------------------------------------------------------------


def test_the_parameters_are_checked():
    check_parameters(GIVEN, {**COMMON, **leaderboard.RULES})
    for name, wrong in {"bm25_trials": [[1.2]], "read": 0, "query_loss": "softmax", "label_rates": [2]}.items():
        with pytest.raises(SettingError, match=name):
            check_parameters({**GIVEN, name: wrong}, {**COMMON, **leaderboard.RULES})
    with pytest.raises(SettingError, match="b = 1.5"):
        check_parameters({**GIVEN, "bm25_trials": [[1.2, 1.5]]}, {**COMMON, **leaderboard.RULES})


def test_no_method_may_try_more_than_another():
    with pytest.raises(SettingError, match="'labels': 2"):
        Budget([(1, 1)], [0.1], [0.1, 0.2], [0.1], [0.1])


def test_boards_are_of_the_targets():
    board = board_slice.board()
    assert board.target.name == "pydocs-target-smoke" and board.both.trained == "both" and board.query.n == 5
    assert (board.both.interval, board.lesson.schedule.steps, board.recipes["in_batch_triplet"].batch_size) == (1, 2, 8)


def test_a_target_without_labels_is_refused(monkeypatch):
    load = datasets.load

    def without_dev(name):
        found = load(name)
        return found if name != "pydocs-target-smoke" else found.part(queries=found.queries["split"] != "dev")

    monkeypatch.setattr(datasets, "load", without_dev)
    with pytest.raises(DataError, match="'pydocs-target-smoke' has no dev questions"):
        leaderboard.boards(PARAMETERS)


# --- systems ---------------------------------------------------------------------------------------


def test_the_chains_are_a_grid_and_the_other_negatives():
    names = [name_of(chain) for chain in chains()]
    assert len(names) == len(set(names)) == 4 * 3 - 1 + 2
    assert {"labels", "GQ > labels > LTRe", name_of(LONGEST), "ICT+BFS+WLP > labels > BM25 Neg > Async ANN"} <= set(
        names
    )


# --- tuning ----------------------------------------------------------------------------------------


def test_every_method_tries_as_many_settings_and_the_best_is_chosen(tuned):
    board, trials = tuned
    assert (trials.groupby("method").size() == 2).all() and trials["method"].nunique() == 7
    for _, mine in trials.groupby("method"):
        (best,) = mine["RR@10"][mine["chosen"]]
        assert best == mine["RR@10"].max()
    chosen = trials[trials["chosen"]].set_index("method")["setting"]
    assert chosen["BM25"] == f"k1 {board.lexical.k1:g}, b {board.lexical.b:g}"
    for name, method in leaderboard.WORDS.items():
        assert board.recipes[method].method == method
        assert chosen[name] == f"learning rate {board.recipes[method].learning_rate:g}"
    assert chosen["BM25 Neg"] == f"learning rate {board.both.learning_rate:g}"
    assert chosen["labels"] == f"learning rate {board.labels.learning_rate:g}"
    assert board.study.first.learning_rate == PARAMETERS["rate"]
    assert chosen["LTRe"] == f"learning rate {board.query.learning_rate:g}"


def test_validation_questions_choose(tuned):
    board, trials = tuned
    mine = trials[trials["method"] == "BM25"].set_index("setting")["RR@10"]
    for k1, b in PARAMETERS["bm25_trials"]:
        run = board.by_words(BM25(k1=k1, b=b), "dev")
        values = evaluate(run, board.target.judgments("dev"), ["RR@10"])["value"]
        assert mine[f"k1 {k1:g}, b {b:g}"] == pytest.approx(100 * values.mean())


# --- recording -------------------------------------------------------------------------------------


def test_every_system_is_recorded(results, tuned):
    names = [name_of(chain) for chain in chains()]
    dense = {name + suffix for name in names for suffix in ("", HYBRID)}
    lexical = {"BM25", BM25_TUNED, "BM25+RM3", f"{BM25_TUNED}, expanded"}
    found = set(results.systems(tuned[0].target.name, "test", "RR@10"))
    assert found == dense | lexical | set(leaderboard.WORDS) | {READ}
    assert set(MEASURES) <= set(results.rows["measure"])


def test_the_reader_orders_the_first_results_alone(results, tuned):
    rows = results.rows[results.rows["measure"] == "R@10"].set_index("system")["value"]
    # Three of ten results are re-ordered: the same ten stay.
    assert rows[READ] == rows[name_of(LONGEST) + HYBRID]


def test_answers_are_the_recorded_lists(tuned):
    board = tuned[0]
    found = leaderboard.answers(board, 0, 3)
    dense = leaderboard._by_chain(board, LONGEST, 0)
    hybrid = board.fused(dense)
    expected = {BM25_TUNED: board.by_words(board.lexical), name_of(LONGEST): dense, name_of(LONGEST) + HYBRID: hybrid}
    expected[READ] = reranking.rerank(hybrid, 3, board.reader(0), board.target)
    assert list(found) == list(expected)
    ids, documents = board.target.split("test").index, board.target.documents.index
    for (name, run), number in product(expected.items(), (0, 5)):
        rows = found[name](number)
        mine = run[run["query_id"] == ids[number]]
        assert sorted(documents[rows[rows >= 0]]) == sorted(mine["doc_id"]), name
        # Equal scores are ordered by row here, and by id there.
        scores = mine.set_index("doc_id")["score"][documents[rows[rows >= 0]]]
        np.testing.assert_allclose(scores, mine["score"], atol=1e-4, err_msg=name)


def test_times_are_recorded(results, tuned):
    rows = results.rows[results.rows["measure"] == "latency ms"].set_index("system")["value"]
    assert rows.index.tolist() == list(leaderboard.answers(tuned[0], 0, 3)) and (rows > 0).all()


# --- tables ----------------------------------------------------------------------------------------

COUNT = 20


def made(values, seconds=None):
    found = Results()
    ids = [f"q{i}" for i in range(COUNT)]
    for system, value in values.items():
        each = np.broadcast_to(np.asarray(value, dtype=float), COUNT)
        frame = pd.DataFrame({"query_id": ids, "measure": "RR@10", "value": each})
        found.add_queries("c", "test", system, 0, frame, pd.Series(ids, ids))
        row = {"experiment": "x", "system": system, "collection": "c", "measure": "RR@10", "seed": 0, "split": "test"}
        found.add_row(**row, value=each.mean(), seconds=(seconds or {}).get(system))
    return found


def test_the_grid_has_starts_and_ends():
    found = leaderboard_tables.grid(made({"labels": 0.25, "GQ > labels": 0.5, "GQ + BM25": 0.75}), "c")
    assert found.index.tolist() == ["from random weights", "ICT+BFS+WLP", "GQ", "ICT+BFS+WLP > GQ"]
    assert found.loc["from random weights", "labels"] == "25.0 ± 0.0"
    assert found.loc["GQ", ["labels", "nothing more + BM25"]].tolist() == ["50.0 ± 0.0", "75.0 ± 0.0"]
    assert found.loc["GQ", "nothing more"] == ""


def test_costs_are_of_what_was_trained_and_the_best_within_a_time_rise():
    results = made({"a": 0.1, "b": 0.3, "c": 0.2, "BM25": 0.9}, {"a": 1.0, "b": 2.0, "c": 3.0})
    found = leaderboard_tables.costs(results, "c")
    assert found["system"].tolist() == ["a", "b", "c"] and found["value"].tolist() == pytest.approx([10, 30, 20])
    best = leaderboard_tables.best_within(found)
    assert best["system"].tolist() == ["a", "b"]


def test_of_equally_quick_systems_the_better_counts():
    table = pd.DataFrame({"system": ["a", "b"], "value": [1.0, 2.0], "seconds": [5.0, 5.0]})
    assert leaderboard_tables.best_within(table)["system"].tolist() == ["b"]


def test_the_figure_has_a_line_for_every_start(results, tuned):
    costs = leaderboard_tables.costs(results, tuned[0].target.name)
    figure = leaderboard_tables.training_time(costs, 50.0)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    starts = ["from random weights", "ICT+BFS+WLP", "GQ", "ICT+BFS+WLP > GQ"]
    assert labels[:4] == starts and {"bag of words", BM25_TUNED, "best at equal time"} <= set(labels)
    line = figure.axes[0].get_lines()[0]
    mine = costs.set_index("system").loc[["labels", "labels > LTRe"]]
    assert line.get_xdata().tolist() == mine["seconds"].tolist() and line.get_ydata().tolist() == mine["value"].tolist()
    assert "RR@10" in figure.axes[0].get_ylabel() and figure.axes[1].get_xlabel() == "seconds of training"


def test_sizes_and_latencies(results, tuned):
    (row,) = leaderboard_tables.sizes([tuned[0]]).to_dict("records")
    assert row["test questions"] == 12 and 0 < row["generated queries"] <= 2 * row["documents"]
    found = tables.latencies(results, tuned[0].target.name)
    assert len(found) == 4 and (found["low"] <= found["value"]).all() and (found["median"] <= found["p95"]).all()
