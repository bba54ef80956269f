"""The papers' tables beside ours, and what did not come out: from hand-made results and the papers' own tables."""

import numpy as np
import pandas as pd
import pytest
import yaml
from bs4 import BeautifulSoup

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import claims, overview, papers, verdict_figures
from retlib.report.claims import CONTRADICTED, INCONCLUSIVE, NOT_TESTED
from retlib.report.evidence import Evidence
from retlib.workflow import notebooks

ROOT = runtime.root()
QUERIES = [f"q{i}" for i in range(20)]
ALONE = pd.Series(QUERIES, index=QUERIES)
HALVES = np.tile([0.0, 1.0], 10)
TABLES = """\
paper,artefact,row,dataset,split,metric,value,unit,note
zhan2020,table-1,Ours,D,dev,MRR@10,0.341,fraction,
zhan2020,table-1,<b>Other</b>,D,dev,MRR@10,0.20,fraction,
zhan2020,table-1,Ours,E,test,MRR@10,41.86,%,
zhan2020,table-1,Ours,BOTH,test,MRR@10,,%,
zhan2020,table-1,Ours,,train,Time,3.6,h,
zhan2020,figure-1,Ours,D,dev,MRR@10,,fraction,
"""
ARTEFACTS = """\
paper,artefact,title,what_it_shows,inputs_needed
zhan2020,table-1,main <i>results</i>,x,y
"""
GROUPS = [
    {
        "data": {"D, dev": "D", "E, test": "E", "BOTH, test": "D+E"},
        "measures": {"MRR@10": "RR@10"},
        "rows": {"Ours": "42_x:A"},
    },
    {"data": {"train": "D"}, "measures": {"Time": "seconds"}, "times": 0.5, "rows": {"Ours": "42_x:A"}},
]


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A folder with one paper's table, of whose data sets D is a part of the paper's, and E a stand-in."""
    folder = tmp_path / "data" / "papers"
    folder.mkdir(parents=True)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    (folder / "tables.csv").write_text(TABLES)
    (folder / "artefacts.csv").write_text(ARTEFACTS)
    places = {
        "D": {"quick": {"collection": "mine", "fidelity": "subset"}},
        "E": {"quick": {"collection": "other", "fidelity": "stand-in"}},
    }
    (folder / "bindings.yaml").write_text(yaml.safe_dump({"collections": {"zhan2020": places}, "claims": {}}))
    declare(tmp_path, GROUPS)
    return tmp_path


def declare(book, groups):
    (book / "data" / "papers" / "rows.yaml").write_text(yaml.safe_dump({"zhan2020": {"table-1": groups}}))


def record(system="A", made=None, **values):
    """Record per-query values of a system on collections, for two seeds, and a time."""
    made = made or Results()
    for collection, (value, seed) in ((c, v) for c in values for v in zip(values[c], (0, 1), strict=True)):
        frame = pd.DataFrame({"query_id": QUERIES, "measure": "RR@10", "value": value})
        made.add_queries(collection, "test", system, seed, frame, ALONE)
        for measure, number in (("RR@10", float(np.mean(value))), ("seconds", 3.0 + 2 * seed)):
            made.add_row(
                experiment="42_x", system=system, collection=collection, split="test", measure=measure, value=number,
                seed=seed, profile="quick", candidates=500 if measure == "RR@10" else None,
            )  # fmt: skip
    made.save(results.own_folder("quick", "42_x"))
    return made


NAMES = ["data", "in the paper", "what"]  # the columns of a table that are no numbers


def test_both_sides_are_in_points_of_a_hundred_or_in_the_papers_unit(book):
    record(mine=[HALVES, HALVES], other=[HALVES * 0.5, HALVES * 0.5])
    found = papers.numbers("zhan2020", "quick").set_index(["row", "place"])
    assert "figure-1" not in set(found["artefact"])  # which has no number
    assert found["theirs"].tolist() == ["34.1", "20", "41.86", "", "3.6"]
    assert found.loc[("Ours", "D, dev"), ["ours", "seeds", "queries", "candidates"]].tolist() == [50, 2, 20, 500]
    assert found.loc[("Ours", "D, dev"), "half"] == pytest.approx(100 * 2.093 * (0.25 / 19) ** 0.5, rel=1e-3)
    assert found.loc[("Ours", "E, test"), ["ours", "fidelity"]].tolist() == [25, "stand-in"]
    # An average is on a stand-in if one of its data sets is; independent errors add up.
    both = found.loc[("Ours", "BOTH, test")]
    assert both["ours"] == 37.5 and both["fidelity"] == "stand-in" and both["collection"] == "mine and other"
    # The mean of 3 and 5 seconds, times a half.
    assert found.loc[("Ours", "train"), "ours"] == 4 * 0.5 and np.isnan(found.loc[("Ours", "train"), "half"])
    assert found.loc[("<b>Other</b>", "D, dev"), "collection"] == ""


def test_an_average_has_the_variance_between_seeds_that_is_pooled_over_systems(book):
    """Of A the seeds agree by luck; of B another seed moves both data sets alike: their mean is as uncertain."""
    luck, moved = [np.full(20, 0.5)] * 2, [np.full(20, 0.4), np.full(20, 0.6)]
    record("B", record(mine=luck, other=luck), mine=moved, other=moved)
    half = papers.numbers("zhan2020", "quick").set_index(["row", "place"]).loc["Ours", "half"]
    assert half["D, dev"] > 1 and half["BOTH, test"] == pytest.approx(half["D, dev"])


def test_a_cell_has_the_papers_number_and_ours_behind_a_bar(book):
    record(mine=[HALVES, HALVES])
    table = papers.table(papers.numbers("zhan2020", "quick"), "table-1").set_index("in the paper")
    head = "D, dev\nours: mine (subset)\nMRR@10"
    ours = "Ours\nours: A"  # the system of ours that stands for the row
    assert table.loc[ours, head].startswith("34.1 | 50.0 ± ") and table.loc["<b>Other</b>", head] == "20"
    # Nothing is recorded on E, and so there is no average; where neither side has a number, nothing is shown.
    assert table.loc[ours, "E, test\nMRR@10"] == "41.86" and table.loc[ours, "BOTH, test\nMRR@10"] == ""
    assert table.loc[ours, "train\nours: mine (subset)\nTime (h)"] == "3.6 | 2"
    assert table.loc["<b>Other</b>", "E, test\nMRR@10"] == ""


def test_a_table_that_would_be_empty_has_a_line_for_each_number(book):
    found = papers.numbers("zhan2020", "quick").query("theirs != ''").head(1)
    apart = [found.assign(row=f"row {n}", metric=f"metric {n}", place=f"place {n}") for n in range(5)]
    table = papers.table(pd.concat(apart), "table-1")
    assert list(table) == ["data", "in the paper", "what", "value"] and len(table) == 5
    assert (table["value"] == found["theirs"].iloc[0]).all()


def test_without_results_the_papers_numbers_stand_alone(book):
    found = papers.numbers("zhan2020", "quick")
    assert found["ours"].isna().all() and (found["collection"] == "").all()
    assert papers.coverage(found).to_dict("records") == [
        {"artefact": "table-1", "numbers": 4, "ours": 0, "stand_ins": 0}
    ]
    assert papers.scale(found).empty
    assert len(papers.against(found).axes[0].collections) == 0


def test_what_stands_here_is_counted(book):
    record(mine=[HALVES, HALVES], other=[HALVES, HALVES])
    found = papers.numbers("zhan2020", "quick")
    # Where the paper prints none, ours counts for nothing.
    assert papers.coverage(found).iloc[0].tolist() == ["table-1", 4, 3, 1]
    assert papers.titled(papers.coverage(found), "zhan2020")["in the paper"][0] == "Table 1: main <i>results</i>"
    scale = papers.scale(found).set_index("in the paper")
    assert scale.loc["D, dev"].tolist() == ["mine", "subset", "", 500, "", 20, "2"]
    assert list(scale.index) == ["D, dev", "E, test"]
    # Of what has several seeds the fewest and the most; one alone is that of what is not trained.
    place = found["half"].notna() & (found["place"] == "D, dev")
    for counts, told in (((1, 3, 10), "3 to 10"), ((1, 1, 1), "1"), ((1, 10, 10), "10")):
        rows = pd.concat([found[place].iloc[:1].assign(seeds=count) for count in counts])
        assert papers.scale(rows)["seeds"].tolist() == [told]


def test_the_papers_sizes_stand_beside_ours(book):
    record(mine=[HALVES, HALVES], other=[HALVES, HALVES])
    found = papers.numbers("zhan2020", "quick")
    sizes = [
        ("D", "corpus", "passages", "8.8", "million passages"), ("D", "train", "queries", "503", "thousand queries"),
        ("D", "dev", "queries", "6980", "queries"), ("D", "dev", "queries", "7000", "queries"),
        ("D", "test", "queries", "43", "queries"), ("E", "test", "Candidates", "", "items"),
        ("E", "all", "#query", "74097", "queries"),
    ]  # fmt: skip
    lines = pd.DataFrame(sizes, columns=["dataset", "split", "metric", "value", "unit"])
    scale = papers.scale(pd.concat([found, lines])).set_index("in the paper")
    assert scale.loc["D, dev", ["candidates there", "queries there"]].tolist() == ["8.8 million", "6,980"]
    assert scale.loc["E, test", ["candidates there", "queries there"]].tolist() == ["", "74,097 in all"]


def test_the_figure_shows_measures_alone_filled_or_open(book):
    record(mine=[HALVES, HALVES], other=[HALVES, HALVES])
    filled, hollow = papers.against(papers.numbers("zhan2020", "quick")).axes[0].collections
    assert filled.get_offsets().tolist() == [[34.1, 50]] and len(filled.get_facecolors()) == 1
    assert hollow.get_offsets().tolist() == [[41.86, 50]] and len(hollow.get_facecolors()) == 0


def test_markup_is_shown_as_text(book):
    shown = papers.page(papers.numbers("zhan2020", "quick"), "table-1").data
    assert "<b>" not in shown and "<i>" not in shown
    page = BeautifulSoup(shown, "html.parser")
    assert page.h3.text == "Table 1: main <i>results</i>" and "<b>Other</b>" in page.text
    assert page.select("th")[1].find("br")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"Ours": "42_x:A", "Theirs": "42_x:B"}}, "rows.yaml, zhan2020, table-1: .* the row 'Theirs'"),
        ({"data": {"D, test": "D"}}, "the place 'D, test'"),
        ({"measures": {"MRR@10": "RR@10", "R@5": "R@5"}}, "the metric 'R@5'"),
        ({"rows": {"<b>Other</b>": "42_x:A"}}, "the place 'BOTH, test'"),  # of which that row has no number
        ({"data": {"D, dev": "D+F"}}, "bindings.yaml has no data set 'F'"),
    ],
)
def test_a_wrong_entry_is_named(book, change, message):
    declare(book, [{**GROUPS[0], **change}])
    with pytest.raises(DataError, match=message):
        papers.counterparts("zhan2020")


def test_a_number_has_one_counterpart(book):
    declare(book, [GROUPS[0], {**GROUPS[0], "rows": {"Ours": "42_x:B"}}])
    with pytest.raises(DataError, match="table-1: two entries for 'Ours'"):
        papers.counterparts("zhan2020")


@pytest.mark.parametrize("paper", claims.papers())
def test_every_declared_row_is_in_the_paper_and_in_a_notebook(paper):
    found = papers.counterparts(paper)  # which raises for a row that is not in the paper
    assert {each.experiment for each in found.values()} <= set(notebooks.pages(ROOT))
    # The page says of every measure that it is in points of a hundred.
    lines = papers.printed(paper).loc[list(found)]
    scaled = lines["unit"].isin(papers.POINTS)
    assert all(found[i].times == 1 for i in lines.index[scaled] if "@" in found[i].measure)
    assert all(found[i].times != 1 for i in lines.index[~scaled] if lines["unit"][i] != "ms")


@pytest.mark.parametrize("paper", claims.papers())
def test_every_declared_system_is_recorded(paper):
    """In the published results of each notebook that has some; word vectors from the Web need a file."""
    places = claims.bindings()["collections"].get(paper, {})
    declared = set(papers.counterparts(paper).values())
    found = {name: results.load(name, "laptop", "reference") for name in {each.experiment for each in declared}}
    names = ["system", "collection", "measure"]
    recorded = {name: set(map(tuple, each.rows[names].to_numpy())) for name, each in found.items() if each is not None}
    for each in declared:
        if each.experiment not in recorded or each.system == "IDF-GloVe":
            continue
        known = recorded[each.experiment]
        for collection in (places[data_set]["laptop"]["collection"] for data_set in each.data_sets):
            assert (each.system, collection, each.measure) in known


def test_systems_of_an_experiment_by_the_papers_names():
    found = papers.rows_of("gillick2018", "table-2", "13_multitask")
    assert found["P+Q"] == "Dual Encoder | P + Q" and "BM25" not in found


def test_a_collection_that_plays_one_data_set_has_the_paper_s_numbers():
    beside = papers.beside
    found = beside("liang2020", "32_zero_shot", "bioasq", "laptop")
    assert found["BM25", "R@1"] == 20.28 and ("Siamese | WikiGQ+FT(GQ)", "R@10") in found
    found = beside("liang2020", "32_zero_shot", "natural-questions-passages+added", "laptop")
    assert found["BM25", "R@1"] == 30.67 and found["Two-Tower | Source", "R@100"] == 87.65
    found = beside("liang2020", "33_ablations", "natural-questions-passages", "laptop")
    # Whatever variant of a data set it is.
    assert found["Siamese | Official data", "R@1"] == 40.78 and found["Two-Tower | Nucleus", "R@1"] == 37.58
    assert beside("liang2020", "32_zero_shot", "natural-questions", "laptop")["BM25", "R@1"] == 18.06
    # One that stands for all of them has none.
    assert beside("liang2020", "32_zero_shot", "pydocs-target", "quick") == {}
    assert beside("liang2020", "32_zero_shot", "quora", "laptop") == {}


@pytest.mark.parametrize("paper", claims.papers())
def test_every_number_of_every_paper_is_on_its_page(paper):
    """Without results of ours, and so for a part that is not written yet."""
    found = papers.numbers(paper, "explore", "reference")
    lines = papers.printed(paper)
    tables = [papers.table(found, artefact) for artefact in papers.coverage(found)["artefact"]]
    cells = [cell for table in tables for cell in table.drop(columns=NAMES, errors="ignore").to_numpy().ravel()]
    shown = sum(line != "" for cell in cells for line in cell.split("\n"))
    assert shown == (lines["value"] != "").sum() == len(found[found["theirs"] != ""])


# --- what is left open ----------------------------------------------------------------------------


def evidence(effect, p_for, p_against, note=""):
    return Evidence(f"A{effect} vs B", 50, 50, effect, effect - 1, effect + 1, p_for, p_against, 3, 100, note, 1.5)


@pytest.fixture
def ledger():
    """All claims untested but two."""
    frame = claims.ledger("explore", "reference")
    frame["evidence"] = frame["evidence"].astype(object)
    chosen = {
        "gillick2018-paralex-encoder-over-bm25": (CONTRADICTED, [evidence(-2, 0.9, 0.04), evidence(-9, 1, 0.001)]),
        "gillick2018-softmax-over-pairwise-ce": (INCONCLUSIVE, [evidence(1, 0.3, 0.7, "<margin>")]),
    }
    for name, (verdict, found) in chosen.items():
        row = frame.index[frame["claim"] == name][0]
        frame.loc[row, ["verdict", "reason"]] = [verdict, ""]
        frame.at[row, "evidence"] = found
    return frame


def rows_of(html):
    page = BeautifulSoup(html.data.replace("<wbr>", ""), "html.parser")  # where a name may break is no part of it
    return [[cell.get_text(" ") for cell in row.select("td")] for row in page.select("tbody tr")], page


def test_the_comparison_that_decided_is_shown_with_its_data_and_links(ledger):
    ((line,), page) = rows_of(overview.table(ledger[ledger["verdict"] == CONTRADICTED]))
    assert "A-9 vs B: 50.0 against 50.0, -9.00 [-10.00, -8.00] one of 2 comparisons" in line[4]
    links = [link["href"] for link in page.select("a")]
    assert links[0] == "15_verdicts.html#gillick2018-paralex-encoder-over-bm25"
    assert links[1:] == ["11_retrieval_tasks.html", "13_multitask.html"]
    ((line,), _) = rows_of(overview.table(ledger[ledger["verdict"] == INCONCLUSIVE]))
    assert "(<margin>) to decide: after correction over the paper effects show from +1.50 on" in line[4]


def test_what_was_not_tested_says_why(ledger):
    lines, _ = rows_of(overview.table(ledger[ledger["verdict"] == NOT_TESTED]))
    told = {claim["not_tested"] for claim in claims.bindings()["claims"].values() if "not_tested" in claim
            if isinstance(claim["not_tested"], str)}  # fmt: skip
    assert len(lines) == len(ledger) - 2 and told <= {line[4] for line in lines}
    assert all("profile explore" in line[4] or line[4] in told for line in lines)


def test_each_papers_contradictions_and_outcomes_are_counted(ledger):
    table = overview.open_counts(ledger)
    assert table[overview.PLACES].sum() == len(claims.papers_table("inconsistencies"))
    assert table.loc["gillick2018", [CONTRADICTED, INCONCLUSIVE]].tolist() == [1, 1]
    assert table.drop(columns=overview.PLACES).to_numpy().sum() == len(ledger)
    kinds = 1 + table[[*overview.OPEN]].any().sum()  # and what no claim came out as has no bar
    assert len(verdict_figures.bars(table).axes[0].patches) == kinds * len(claims.papers())
    assert kinds < 1 + len(overview.OPEN)


@pytest.mark.parametrize("paper", claims.papers())
def test_every_inconsistency_is_on_the_page(paper):
    lines, _ = rows_of(overview.inconsistencies(paper))
    known = claims.papers_table("inconsistencies").query("paper == @paper")
    assert [line[1] for line in lines] == known["what"].tolist()


@pytest.mark.parametrize("paper", claims.papers())
def test_claims_and_rows_of_a_paper_are_of_its_chapters(paper):
    """Its pages come after these."""
    chapters = set(claims.papers()[paper].chapters)
    assert chapters <= set(notebook_files.names(ROOT))
    assert {each.experiment for each in papers.counterparts(paper).values()} <= chapters
    for name in claims.papers_table("claims").query("paper == @paper")["id"]:
        assert set(claims.tested_in(claims.bindings()["claims"].get(name, {}))) <= chapters
