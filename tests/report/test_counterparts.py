"""The papers' tables beside ours, from hand-made results and the papers' own tables; what papers claim and print."""

import shutil

import numpy as np
import pandas as pd
import pytest
from recorded import number, put

from retlib.core import runtime
from retlib.data import datasets
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import papers
from retlib.workflow import notebooks

ROOT = runtime.root()
HALVES = np.tile([0.0, 1.0], 10)
TABLES = """\
paper,artefact,row,dataset,split,metric,value,unit,note,experiment,system,data_set,measure,times
zhan2020,table-1,Ours,D,dev,MRR@10,0.341,fraction,,42_x,A,D,RR@10,
zhan2020,table-1,Other,D,dev,MRR@10,0.20,fraction,,,,,,
zhan2020,table-1,Ours,E,test,MRR@10,41.86,%,,42_x,A,E,RR@10,
zhan2020,table-1,Ours,BOTH,test,MRR@10,,%,,42_x,A,D+E,RR@10,
zhan2020,table-1,Ours,,train,Time,3.6,h,,42_x,A,D,seconds,0.5
zhan2020,figure-1,Ours,D,dev,MRR@10,,fraction,,,,,,
"""
ARTEFACTS = """\
paper,artefact,title,what_it_shows,inputs_needed
zhan2020,table-1,main results,x,y
"""
COLLECTIONS = """\
paper,data_set,profile,collection,fidelity,why
zhan2020,D,quick,mine,subset,
zhan2020,E,quick,other,stand-in,
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A folder with one paper's table, of whose data sets D is a part of the paper's, and E a stand-in."""
    folder = tmp_path / "data" / "papers"
    folder.mkdir(parents=True)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    for name, text in {"tables": TABLES, "artefacts": ARTEFACTS, "collections": COLLECTIONS}.items():
        (folder / f"{name}.csv").write_text(text)
    shutil.copy(ROOT / "data" / "catalogue.yaml", tmp_path / "data")


def record(system="A", made=None, **values):
    """Record per-query values of a system on collections, for two seeds, and a time."""
    made = made or Results()
    for collection, by_seed in values.items():
        points = {seed: 100 * value for seed, value in enumerate(by_seed)}
        put(made, system, points, collection, "RR@10", [f"{collection}{i}" for i in range(20)])
        number(made, system, {0: 3.0, 1: 5.0}, collection, "seconds")
    made.save(results.own_folder("quick", "42_x"))
    return made


def table(found):
    return papers.table(found[found["artefact"] == "table-1"])


def test_both_sides_are_in_points_of_a_hundred_or_in_the_papers_unit(book):
    record(mine=[HALVES, HALVES], other=[HALVES * 0.5, HALVES * 0.5])
    found = papers.numbers("zhan2020", "quick")
    assert set(found["title"]) == {"Table 1: main results"}  # figure-1 has none
    assert found["theirs"].tolist() == ["34.1", "20", "41.86", "", "3.6"]
    # An average is on a stand-in if one of its data sets is; of 3 and 5 seconds it is the mean, times a half.
    assert found["ours"].tolist() == pytest.approx([50, np.nan, 25, 37.5, 4 * 0.5], nan_ok=True)
    assert found["collection"].tolist()[1:4] == ["", "other (stand-in)", "mine and other (stand-in)"]
    half = 100 * 2.093 * (0.25 / 19) ** 0.5
    both = (half**2 + (half / 2) ** 2) ** 0.5 / 2  # independent errors add up
    assert found["half"].tolist() == pytest.approx([half, np.nan, half / 2, both, np.nan], nan_ok=True, rel=0.03)


def test_an_average_has_the_variance_between_seeds_that_is_pooled_over_systems(book):
    """Of A the seeds agree by luck; of B another seed moves both data sets alike: their mean is as uncertain."""
    luck, moved = [np.full(20, 0.5)] * 2, [np.full(20, 0.4), np.full(20, 0.6)]
    record("B", record(mine=luck, other=luck), mine=moved, other=moved)
    half = papers.numbers("zhan2020", "quick").set_index(["row", "place"]).loc["Ours", "half"]
    assert half["D, dev"] > 1 and half["BOTH, test"] == pytest.approx(half["D, dev"])


def test_a_cell_has_the_papers_number_and_ours_behind_a_bar(book):
    record(mine=[HALVES, HALVES])
    shown = table(papers.numbers("zhan2020", "quick")).set_index(["data", "in the paper"])
    data, ours = "D, dev\nours: mine (subset)", "Ours\nours: A"  # the system of ours that stands for the row
    assert (
        shown.loc[(data, ours), "MRR@10"].startswith("34.1 | 50.0 ± ") and shown.loc[(data, "Other"), "MRR@10"] == "20"
    )
    # Nothing is recorded on E, and so there is no average; where neither side has a number, nothing is shown.
    assert shown["MRR@10"]["E, test"].tolist() == ["41.86"] and shown["MRR@10"]["BOTH, test"].tolist() == [""]
    assert shown["Time (h)"]["train\nours: mine (subset)", ours] == "3.6 | 2"


def test_a_table_that_would_be_empty_has_a_line_for_each_number(book):
    found = papers.numbers("zhan2020", "quick").query("theirs != ''").head(1)
    shown = table(pd.concat([found.assign(row=f"row {n}", metric=f"metric {n}", place=f"place {n}") for n in range(5)]))
    assert list(shown) == ["data", "in the paper", "what", "value"] and shown["what"][4] == "metric 4"


def test_what_stands_here_is_counted(book):
    for expected in ([4, 0, 0], [4, 3, 1]):  # where the paper prints none, ours counts for nothing
        shown = papers.coverage(papers.numbers("zhan2020", "quick"))
        assert shown.to_numpy().tolist() == [["Table 1: main results", *expected]]
        record(mine=[HALVES, HALVES], other=[HALVES, HALVES])


@pytest.mark.parametrize("paper", papers.papers())
def test_every_declared_row_is_in_one_of_the_papers_chapters_and_recorded(paper):
    lines = papers.paper_numbers(paper)
    declared = lines[lines["experiment"] != ""].assign(times=lambda each: each["times"].replace("", "1").astype(float))
    chapters = set(papers.papers()[paper].chapters)
    assert {*declared["experiment"]} <= chapters <= set(notebooks.pages(ROOT))
    tested = papers.papers_table("claims").query("paper == @paper")
    assert {*tested["chapter"], *tested["also"].str.split().explode().dropna()} <= chapters
    # The page says of every measure that it is in points of a hundred.
    unit = declared["unit"]
    assert (declared["times"][unit.isin(papers.POINTS) & declared["measure"].str.contains("@")] == 1).all()
    assert (declared["times"][~unit.isin([*papers.POINTS, "ms"])] != 1).all()
    # In the published results of each notebook that has some; word vectors from the Web need a file.
    wanted = declared[declared["system"] != "IDF-GloVe"].assign(data_set=declared["data_set"].str.split("+"))
    wanted = wanted.explode("data_set")
    wanted["collection"] = wanted["data_set"].map(papers.collections(paper, "laptop")["collection"])
    names, published = ["experiment", "system", "collection", "measure"], results.rows("laptop", "reference")
    wanted = wanted[wanted["experiment"].isin(published["experiment"])]
    assert {*map(tuple, wanted[names].to_numpy())} <= {*map(tuple, published[names].to_numpy())}
    # Without results of ours, and so for a part that is not written yet, every number is on the page.
    found = papers.numbers(paper, "explore", "reference")
    assert found["ours"].isna().all() and (found["collection"] == "").all()
    shown = [papers.table(lines) for _, lines in found.groupby("title")]
    names = ["data", "in the paper", "what"]  # the columns of a table that are no numbers
    cells = [cell for each in shown for cell in each.drop(columns=names, errors="ignore").to_numpy().ravel()]
    count = sum(line != "" for cell in cells for line in cell.split("\n"))
    assert count == (papers.paper_numbers(paper)["value"] != "").sum() == (found["theirs"] != "").sum()


def test_a_papers_numbers_stand_by_our_systems_and_measures():
    values = papers.paper_values("gillick2018", "13_multitask", "Quora")
    assert values["P+Q", "AP@100"] == 90.5 and ("BM25", "AP@100") not in values
    values = papers.paper_values("chang2020", "22_reqa", "SQuAD 1%")
    assert values["BM25", "R@1"] == 41.86 and ("Transformer, ICT+BFS+WLP", "R@100") in values
    # Of several numbers the first, here that of table 1; points of a hundred.
    assert papers.paper_values("zhan2020", "42_first_stage", "MSMARCO Passage")["BM25", "RR@10"] == 18.7
    assert papers.paper_values("zhan2020", "42_first_stage", "Quora") == {}
    assert papers.paper_values("zhan2020", "12_dual_encoder_losses", "Quora") == {}  # without any number


def test_a_collection_that_plays_one_data_set_has_the_paper_s_numbers():
    found = papers.by_collection("liang2020", "32_zero_shot", "laptop")
    assert found["natural-questions-passages+added"]["Two-Tower | Source", "R@100"] == 87.65
    assert (found["natural-questions"]["BM25", "R@1"], found["bioasq"]["BM25", "R@1"]) == (18.06, 20.28)
    found = papers.by_collection("liang2020", "33_ablations", "laptop")["natural-questions-passages"]
    # Whatever variant of a data set it is. One that stands for all of them has none.
    assert found["Siamese | Official data", "R@1"] == 40.78 and found["Two-Tower | Nucleus", "R@1"] == 37.58
    assert papers.by_collection("liang2020", "32_zero_shot", "quick") == {}


def test_a_data_set_stands_by_a_collection_that_can_be_loaded():
    table = papers.papers_table("collections")
    assert set(table["fidelity"]) == {papers.SUBSET, papers.STAND_IN}
    assert not table.duplicated(["paper", "data_set", "profile"]).any()
    # A collection's name, its test candidates alone, all of its queries, a share of it, or more candidates.
    whole = table["collection"].str.replace(r"(-test|, whole|\+added|-0\.\d+(\+added|-others)?)$", "", regex=True)
    assert set(whole.str.split(", ").explode()) <= set(datasets.COLLECTIONS.names())  # of several, all train
