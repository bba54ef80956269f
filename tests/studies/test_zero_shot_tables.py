"""Tables and figures of Part III: from made-up records, and from what a generator writes for NumPy's docstrings."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import zero_shot_slice
from zero_shot_slice import SOURCE, TARGET

from retlib.data.collection import Collection
from retlib.evaluation.results import Results
from retlib.report import claims, zero_shot_figures
from retlib.studies import zero_shot_tables
from retlib.studies.experiment import Experiment
from retlib.studies.zero_shot_tables import Panel

COUNT = 40
QUERIES = [f"q{i}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def studies():
    return {SOURCE: zero_shot_slice.study()}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def made(values):
    """Results with per-query values by (system, collection, measure, seed): a mean, or a list."""
    found = Results()
    for (system, collection, measure, seed), value in values.items():
        each = np.broadcast_to(np.asarray(value, dtype=float), COUNT)
        frame = pd.DataFrame({"query_id": QUERIES, "measure": measure, "value": each})
        found.add_queries(collection, "test", system, seed, frame, pd.Series(QUERIES, QUERIES))
        found.add_row(
            experiment="x",
            system=system,
            collection=collection,
            measure=measure,
            seed=seed,
            value=each.mean(),
            split="test",
        )
    return found


# --- data ------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_paper_s_table(studies):
    tests = {SOURCE: zero_shot_slice.tests()}
    found = zero_shot_tables.sizes(studies, tests).set_index("collection")
    assert found.index.tolist() == [SOURCE, "separate passages", TARGET, f"{TARGET}+added"]
    (target, test), _ = tests[SOURCE].values()
    assert found["passages"][TARGET] == len(target.documents) and found["test queries"][TARGET] == 12
    assert found["fingerprint"][TARGET] == test.fingerprint[:12]
    words = target.documents["text"].str.split().str.len()
    assert found["words/passage"][TARGET] == f"{words.mean():.1f} ({words.std():.1f})"
    assert found["train queries"]["separate passages"] == 0 and found["passages"]["separate passages"] == 50
    assert zero_shot_tables.separate(studies, TARGET)["passages"].tolist() == [50]


# --- what is written -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def desk():
    return Experiment("31_query_generation", {"profile": "smoke", "seeds": [0, 1], "source": "run"})


def test_statistics_are_recorded_for_real_queries_and_every_decoding(studies, desk):
    found = zero_shot_tables.record_statistics(desk, zero_shot_tables.decodings(studies, 8), [0, 1])
    kinds = found.groupby("by", sort=False)["seed"].agg(list).to_dict()
    assert kinds == {"Real": [0], "Greedy": [0, 1], "Beam": [0, 1], "Nucleus": [0, 1]}
    rows = found.set_index(["by", "seed"])
    assert rows.loc[("Beam", 0)].equals(rows.loc[("Beam", 1)])  # nothing is drawn
    assert rows["pairs"]["Beam", 0] > rows["pairs"]["Greedy", 0]
    recorded = desk.results.rows.set_index(["system", "measure", "seed"])["value"]
    for by, seed in (("Beam", 1), ("Nucleus", 1), ("Real", 0)):
        for measure in ("pairs", "round trip", "overlap"):
            assert recorded[by, measure, seed] == pytest.approx(rows[measure][by, seed])
    wanted = zero_shot_slice.recorded("31_query_generation", zero_shot_slice.SHARED)
    assert wanted <= set(desk.results.rows[["system", "collection", "measure"]].itertuples(index=False, name=None))


def test_only_passages_that_real_queries_ask_for_are_sampled(studies):
    target = studies[SOURCE].targets[0]
    texts, more = zero_shot_tables.sampled(target, 5), zero_shot_tables.sampled(target, 9)
    assert len(texts) == 5 and set(texts.index) < set(more.index) <= set(target.qrels["doc_id"])
    real = Panel(target, texts, {}).real
    assert set(real["passage_id"]) == set(texts.index) and set(real["query"]) <= set(target.queries["text"])


def test_examples_begin_with_the_best_and_end_with_the_worst(studies, monkeypatch):
    target = studies[SOURCE].targets[0]
    order = zero_shot_tables.sampled(target, 6).index.tolist()

    def written(study, texts, how, seed):
        """Queries of the first passage are its own words, those of the second half so, of the others another's."""
        rows = [(name, texts[name if place == 0 or (place, i) == (1, 0) else order[0]]) for place, name in
                enumerate(order) for i in range(2)]  # fmt: skip
        return pd.DataFrame(rows, columns=["passage_id", "query"])

    monkeypatch.setattr(zero_shot_tables, "written", written)
    found = zero_shot_tables.examples(zero_shot_tables.decodings(studies, 6), "Nucleus", 2)
    texts = zero_shot_tables.sampled(target, 6)
    assert found["passage"].tolist()[:2] == texts[order[:2]].tolist() and len(found) == 4
    assert [line[0] for line in found["Nucleus"][0].split("\n")] == ["✓", "✓"]
    assert [line[0] for line in found["Nucleus"][1].split("\n")] == ["✓", "✗"]
    assert "✓" not in found["Nucleus"][3]
    assert (found["target"] == TARGET).all() and found["real"][0] in set(target.queries["text"])
    panels = zero_shot_tables.decodings(studies, 6)
    assert zero_shot_tables.examples(panels, "Nucleus", 2, [TARGET]).equals(found)
    assert len(zero_shot_tables.examples(panels, "Nucleus", 2, ["another"])) == 0


def test_pairs_are_counted_over_all_passages_of_a_target(studies):
    found = zero_shot_tables.pairs(studies, TARGET).set_index("decoding")
    study = studies[SOURCE]
    assert found.index.tolist() == ["Beam", "Nucleus"] and (found["passages"] == len(study.targets[0].documents)).all()
    assert found["pairs"]["Nucleus"] == len(study.generated(study.targets[0].documents))
    assert len(zero_shot_tables.pairs(studies, "quora")) == 0


def test_losses_fall_to_what_the_generator_kept(studies):
    found = zero_shot_tables.losses(studies)
    assert set(found.columns) == {"generator", "step", "loss", "seed"} and (found["generator"] == SOURCE).all()
    assert found["loss"].min() == pytest.approx(-studies[SOURCE].generator.history.best_score)


# --- the paper's numbers, and ours -----------------------------------------------------------------


def test_the_paper_s_numbers_stand_beside_the_systems_that_they_are_of():
    found = zero_shot_tables.reported("table-3", "Natural Questions")
    assert found["BM25", "R@1"] == 30.67 and found["Siamese | WikiGQ", "R@10"] == 82.91
    assert found["Two-Tower | Source", "R@100"] == 87.65 and len(found) == 18
    found = zero_shot_tables.reported("table-5", "Natural Questions")
    assert found["Two-Tower | Nucleus", "R@1"] == 37.58 and found["Siamese | ICT", "R@100"] == 73.54
    found = zero_shot_tables.reported("table-8", "InsuranceQA")
    assert found["Siamese | WikiGQ+FT(official)", "R@1"] == 34.33 and found["Siamese | Official data", "R@10"] == 67.72
    assert zero_shot_tables.reported("table-7", "ReQA NQ")["BM25", "R@1"] == 18.06
    assert zero_shot_tables.reported("table-3", "nowhere") == {}


def test_a_collection_that_plays_one_data_set_has_the_paper_s_numbers():
    beside = zero_shot_tables.beside
    assert beside("bioasq", "laptop", ["table-3", "table-7"])["BM25", "R@1"] == 20.28
    assert beside("natural-questions-passages", "laptop", ["table-8"])["Siamese | Official data", "R@1"] == 40.78
    # One that stands for all of them has none.
    assert beside("pydocs-target", "quick", ["table-3"]) == {} == beside("quora", "laptop", ["table-3"])


def test_systems_are_compared_with_bm25_by_paired_tests_corrected_together():
    noise = np.linspace(-1, 1, COUNT) / 10
    values = {("BM25", name, "R@10", 0): 0.5 + noise for name in "ab"}
    values |= {("A", "a", "R@10", seed): 0.6 + noise + noise[::-1] / 10 for seed in (0, 1)}
    values |= {("A", "b", "R@10", 0): 0.5 + noise[::-1] / 2, ("B", "b", "R@10", 0): 0.2 + noise[::-1]}
    found = zero_shot_tables.against(made(values), ["a", "b"], "R@10").set_index(["collection", "system"])
    assert found.index.tolist() == [("a", "A"), ("b", "A"), ("b", "B")]
    assert found["effect"].tolist() == pytest.approx([10, 0, -30], abs=1e-3)
    assert found["p"]["a", "A"] < 0.01 and found["p"]["b", "B"] < 0.01 and found["p"]["b", "A"] > 0.5
    alone = zero_shot_tables.against(made(values), ["a"], "R@10")
    assert alone["p"][0] < found["p"]["a", "A"]


def test_points_of_the_curves_are_read_off_the_systems_names():
    values = {(f"{tower} | {size} dimensions", "t", "R@10", 1): size / 200 for tower in ("Siamese", "Two-Tower")
              for size in (16, 128)}  # fmt: skip
    values |= {("Siamese | WikiGQ, 4 %", name, "R@10", 0): 0.25 for name in "tu"}
    values |= {("Siamese | WikiGQ, 100 %", "t", "R@10", 0): 0.5, ("Siamese | WikiGQ, 4 %", "t", "R@1", 0): 0.1}
    found = zero_shot_tables.by_dimension(made(values), "t")
    assert set(found.itertuples(index=False, name=None)) == {
        (16, "Siamese", 1, 8.0), (128, "Siamese", 1, 64.0), (16, "Two-Tower", 1, 8.0), (128, "Two-Tower", 1, 64.0)
    }  # fmt: skip
    found = zero_shot_tables.by_portion(made(values), ["t", "u"], 5000)
    assert set(found.itertuples(index=False, name=None)) == {
        (200, "t", 0, 25.0), (200, "u", 0, 25.0), (5000, "t", 0, 50.0)
    }  # fmt: skip
    assert zero_shot_tables.recorded(made(values), "t") == ["t"]


# --- figures ---------------------------------------------------------------------------------------


def test_gains_show_every_difference_and_mark_those_beyond_chance():
    table = pd.DataFrame(
        [("a", "X", 3.25, 0.01), ("b", "X", -1.0, 0.2), ("b", "Y", 0.5, 0.04)],
        columns=["collection", "system", "effect", "p"],
    )
    figure = zero_shot_figures.gains(table, "R@10")
    axis = figure.axes[0]
    assert {text.get_text(): text.get_weight() for text in axis.texts} == {
        "+3.2": "bold", "-1.0": "normal", "+0.5": "bold"
    }  # fmt: skip
    assert [label.get_text() for label in axis.get_yticklabels()] == ["X", "Y"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "b"]
    assert figure.axes[1].get_ylabel() == "points of R@10 above BM25"


def test_statistics_are_drawn_for_each_kind_of_queries_and_averaged_over_seeds():
    rows = [
        ("t", "Real", 0, 0.9, 1.0),
        ("t", "Beam", 0, 0.4, 5.0),
        ("t", "Beam", 1, 0.6, 5.0),
        ("u", "Real", 0, 0.7, 2),
    ]
    table = pd.DataFrame(rows, columns=["target", "by", "seed", "round trip", "pairs"])
    figure = zero_shot_figures.statistics(table, {"round trip": "Round", "pairs": "Pairs"})
    assert [axis.get_title() for axis in figure.axes] == ["Round", "Pairs"]
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    np.testing.assert_allclose(lines["Beam"].get_xdata(), [0.5, np.nan])
    np.testing.assert_allclose(lines["Real"].get_xdata(), [0.9, 0.7])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["t", "u"]
    # They stand apart where they are equal.
    assert (lines["Beam"].get_ydata() != lines["Real"].get_ydata()).all()


def test_sizes_are_the_ticks_of_a_logarithmic_axis():
    table = pd.DataFrame({"size": [16, 128, 4000], "kind": "k", "seed": 0, "value": [1.0, 2.0, 3.0]})
    axis = zero_shot_figures.over(table, "size", "kind", "sizes", "R@10").axes[0]
    assert axis.get_xscale() == "log" and (axis.get_xlabel(), axis.get_ylabel()) == ("sizes", "R@10")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["16", "128", "4,000"]
    np.testing.assert_allclose(axis.get_lines()[0].get_ydata(), [1, 2, 3])


def test_a_collection_without_titles_or_test_queries_has_a_size():
    documents = pd.DataFrame({"text": ["a b", "c"]}, index=["x", "y"])
    queries = pd.DataFrame({"text": ["q"], "split": ["train"]}, index=["q"])
    qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["x"], "relevance": [1]})
    found = zero_shot_tables._size(Collection("c", documents, queries, qrels), "s", "target")
    assert (found["train queries"], found["test queries"], found["words/passage"]) == (1, 0, "1.5 (0.7)")


def test_every_data_set_of_the_paper_s_tables_is_played():
    named = set(claims.reported("liang2020", "table-3")["dataset"]) | set(
        claims.reported("liang2020", "table-7")["dataset"]
    )
    assert named <= set(claims.bindings()["collections"]["liang2020"])
