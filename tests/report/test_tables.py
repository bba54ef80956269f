"""Tables of a page, from recorded results alone."""

import re

import numpy as np
import pandas as pd
import pytest
from recorded import put
from scipy import stats

from retlib.evaluation.results import Results
from retlib.report import tables

RNG = np.random.default_rng(0)
VALUES = dict(zip([("BM25", 0), ("DE", 0), ("DE", 1), ("TF-IDF", 0)], RNG.random((4, 30)) * 0.4, strict=True))


@pytest.fixture
def recorded():
    made = Results()
    for (system, seed), values in VALUES.items():
        add(made, system, seed, "AP@100", values)
    return made


def add(results, system, seed, measure, values):
    put(results, system, {seed: 100 * values}, "toy", measure)


def test_scores_stand_beside_the_papers(recorded):
    found = tables.scores(recorded, "toy", "AP@100", {("DE", "AP@100"): 90.4, ("BM25", "R@5"): 1.0})
    assert found.index.tolist() == ["BM25", "DE", "TF-IDF"] and found.index.name == "system"
    both = np.concatenate([VALUES["DE", 0], VALUES["DE", 1]]) * 100
    assert found.loc["DE", "AP@100"] == pytest.approx(both.mean(), abs=1e-3)
    assert found.loc["DE", ["seeds", "queries", "paper"]].tolist() == [2, 30, 90.4]
    assert np.isnan(found.loc["BM25", "paper"])
    assert found.loc["DE", "each seed"] == pytest.approx([100 * VALUES["DE", seed].mean() for seed in (0, 1)], abs=1e-3)
    assert (found["low"] < found["AP@100"]).all() and (found["AP@100"] < found["high"]).all()


def test_recalls_stand_side_by_side_with_the_papers(recorded):
    for system, seed in VALUES:
        add(recorded, system, seed, "R@5", np.tile([1.0, 1, 0, 1, 1], 6))
    found = tables.measured(recorded, "toy", ["AP@100", "R@5"], {("DE", "R@5"): 58, ("DE", "R@50"): 1.0})
    assert found.index.tolist() == ["BM25", "DE", "TF-IDF"] and found.index.name == "system"
    assert found.columns.tolist() == ["AP@100", "R@5"]
    # 24 of 30: an error of sqrt(0.8 * 0.2 / 29); the second seed is the same, so it adds none.
    half = stats.t.ppf(0.975, 29) * (0.16 / 29) ** 0.5 * 100
    assert found["R@5"].tolist() == [f"80.0 ± {half:.1f}", f"80.0 ± {half:.1f} | 58.0", f"80.0 ± {half:.1f}"]


def test_a_recall_that_is_not_recorded_is_left_empty(recorded):
    add(recorded, "DE", 0, "R@5", np.linspace(0, 1, 30))
    found = tables.measured(recorded, "toy", ["AP@100", "R@5", "R@50"])
    assert found["R@5"][["BM25", "TF-IDF"]].tolist() == ["", ""] and found["R@5"]["DE"].startswith("50.0 ± ")
    assert (found["AP@100"] != "").all() and (found["R@50"] == "").all()
    assert tables.measured(recorded, "nowhere", ["AP@100"]).columns.tolist() == ["AP@100"]
    # The systems are those of the first measure.
    assert tables.measured(recorded, "toy", ["R@5", "AP@100"]).index.tolist() == ["DE"]


def test_tables_are_stacked_under_their_names(recorded):
    one = tables.measured(recorded, "toy", ["AP@100"])
    found = tables.stacked({"first": one, "squad-passages": one.iloc[:1].assign(paper="58.0")}, "test")
    assert found.index.names == ["test", "system"]
    assert [name for name, _ in found.index] == ["first", "first", "first", "SQuAD passages"]
    # What one table has and another lacks is empty; a table alone is not told apart.
    assert found["paper"].tolist() == ["", "", "", "58.0"]
    assert tables.stacked({"first": one}, "test").equals(one.astype(object))


def test_systems_are_compared_with_one_by_paired_tests_corrected_together():
    noise, found = np.linspace(-10, 10, 40), Results()
    values = {("BM25", name, 0): 50 + noise for name in "ab"}
    values |= {("A", "a", seed): 60 + noise + noise[::-1] / 10 for seed in (0, 1)}
    values |= {("A", "b", 0): 50 + noise[::-1] / 2, ("B", "b", 0): 20 + noise[::-1]}
    for (system, collection, seed), each in values.items():
        put(found, system, {seed: each}, collection, "R@10")
    table = tables.against(found, ["a", "b"], "R@10").set_index(["collection", "system"])
    assert table.index.tolist() == [("a", "A"), ("b", "A"), ("b", "B")]
    assert table["effect"].tolist() == pytest.approx([10, 0, -30], abs=1e-3)
    assert table["p"]["a", "A"] < 0.01 and table["p"]["b", "B"] < 0.01 and table["p"]["b", "A"] > 0.5
    assert tables.against(found, ["a"], "R@10")["p"][0] < table["p"]["a", "A"]


def test_whole_numbers_have_their_thousands_apart_on_every_table():
    table = pd.DataFrame({"documents": [6000, 12], "told": [1234567, True], "share": [0.5, 1500.0]})
    for page in (tables.as_html(table), tables.as_page(table).data):
        assert ">0</th>" not in page  # a row has no name
        assert re.findall("<td>(.*?)</td>", page) == ["6,000", "1,234,567", "0.5", "12", "True", "1500.0"]


def test_collections_are_called_as_in_sentences_but_where_their_fingerprints_stand():
    rows = pd.MultiIndex.from_tuples([("squad-small", "BM25"), ("quora-test", "BM25")], names=["", "quora"])
    shown = tables.as_html(pd.DataFrame({"squad-passages": [1, 2], "words": ["nfcorpus", "b"]}, index=rows))
    expected = {"SQuAD sentences (a part)", "Quora, its test texts alone", "Quora", "SQuAD passages"}
    assert expected <= {*re.findall('">(.*?)<', re.sub("<wbr>", "", shown))}
    assert "<td>nfcorpus</td>" in shown  # a text of whatever
    data = pd.DataFrame({"collection": ["nfcorpus", "squad-small"], "documents": [5, 6]})
    assert "NFCorpus" in tables.as_html(data) and "nfcorpus" not in tables.as_html(data)
    assert "nfcorpus" in tables.as_html(data.assign(fingerprint="0f"))


def test_a_list_of_few_rows_stands_on_its_side_without_its_fingerprints():
    table = pd.DataFrame({"collection": ["a", "b"], **dict.fromkeys("cdefg", 6000), "words": 1.5, "fingerprint": "0f"})
    page = tables.as_html(table)
    assert re.findall("<th scope=.*?>(.*?)</th>", page) == ["", "a", "b", *"cdefg", "words"]
    assert re.findall("<td>(.*?)</td>", page) == ["6,000"] * 10 + ["1.5"] * 2


def test_a_pages_table_shows_markup_as_text_but_where_it_is_asked_for():
    table = pd.DataFrame({"<b>": ["<i>", "a\nb"], "count": [1, 2], "where": ["<a href='x'>a &lt; b</a>", ""]})
    page = tables.as_page(table, ["one", "two"], markup=["where"]).data
    assert "&lt;b&gt;" in page and "&lt;i&gt;" in page and "<td>a<br>b</td>" in page and "<td>2</td>" in page
    assert "<a href='x'>a &lt; b</a>" in page
    assert "mathjax_ignore" in page and "mathjax_ignore" in tables.as_html(table)  # formulas are text
    called = tables.as_page(pd.DataFrame({"collection": ["squad-passages", "mine"], "system": "nfcorpus"})).data
    assert all(f"<td>{name}</td>" in called for name in ("SQuAD passages", "mine", "nfcorpus"))
    assert page.index('id="one"') < page.index("&lt;i&gt;") < page.index('id="two"') < page.index("a<br>b")


def test_a_difference_stands_with_its_interval_in_one_column():
    rows = [("a", 1.25, 0.5, 2.0, 0.0001), ("b", -0.04, -2.0, 1.9, 0.7)]
    shown = tables.bracketed(pd.DataFrame(rows, columns=["system", "effect", "low", "high", "p"]), "gain")
    assert shown.to_numpy().tolist() == [["a", "+1.2 [+0.5, +2.0]", "< 0.001"], ["b", "-0.0 [-2.0, +1.9]", "0.700"]]
    assert shown.columns[1].startswith("gain")


@pytest.mark.parametrize(
    ("p", "told"), [(0.0004, "< 0.001"), (0.0123, "0.012"), (0.0494, "0.049"), (0.0497, "< 0.05"), (0.05, "0.050")]
)
def test_a_p_value_below_the_level_does_not_look_like_it(p, told):
    assert tables.p_text(p) == told


def test_a_column_that_says_the_same_in_every_row_is_left_out():
    table = pd.DataFrame({"a": [1, 1], "b": [1, 2], "c": [None, None], "d": [1.0, None]})
    assert tables.varying(table).columns.tolist() == ["b", "d"]
    assert tables.varying(table.head(1)).columns.tolist() == ["a", "b", "c", "d"]
