"""The first page: what it counts, draws and links, from a hand-made ledger and the papers' own tables."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from bs4 import BeautifulSoup
from matplotlib.patches import FancyBboxPatch

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import claims, overview, verdict_figures, verdict_text
from retlib.report.evidence import Evidence
from retlib.workflow import notebooks

CLAIMS = len(claims.papers_table("claims"))


def evidence(effect):
    return Evidence("A - B on c", 50 + effect, 50, effect, effect - 1, effect + 1, 0.01, 0.99, 3, 100, smallest=1.5)


@pytest.fixture
def ledger():
    """Some claims with evidence, the others of the papers without."""
    frame = claims.ledger("explore", "reference")
    frame["evidence"] = frame["evidence"].astype(object)
    chosen = {
        "gillick2018-softmax-over-pairwise-ce": ("holds", "subset", [evidence(7.0)]),
        "gillick2018-paralex-encoder-over-bm25": ("contradicted", "stand-in", [evidence(-11.0)]),
        "chang2020-full-pretraining-over-bm25-nq": ("inconclusive", "subset", [evidence(x) for x in (1.0, 2.0, 3.0)]),
        "zhan2020-two-stage-ltre-over-two-stage-bm25": ("holds", "subset", [evidence(4.0)]),
    }
    for name, (verdict, fidelity, found) in chosen.items():
        row = frame.index[frame["claim"] == name][0]
        frame.loc[row, ["verdict", "fidelity", "reason", "seeds"]] = [verdict, fidelity, "", 3]
        frame.at[row, "evidence"] = found
    return frame


def test_counts_add_up(ledger):
    found = overview.verdict_counts(ledger)
    assert found.iloc[-1]["paper"] == "all" and found.iloc[-1]["claims"] == CLAIMS
    first = found[found["paper"] == claims.papers()["gillick2018"].label].set_index("tested")
    assert (
        first.loc["on a stand-in", "✗ contradicted"] == 1 and first.loc["on a part of the paper's data", "✓ holds"] == 1
    )
    assert found[:-1]["claims"].sum() == CLAIMS


def test_the_matrix_has_a_tile_and_a_sign_for_every_claim(ledger):
    axis = verdict_figures.matrix(ledger).axes[0]
    tiles = [patch for patch in axis.patches if isinstance(patch, FancyBboxPatch)]
    signs = [text.get_text() for text in axis.texts if text.get_text() in claims.SIGNS.values()]
    assert len(tiles) == len(signs) == CLAIMS
    assert {sign: signs.count(sign) for sign in "✓~✗"} == {"✓": 2, "~": 1, "✗": 1}
    assert sum(tile.get_hatch() is not None for tile in tiles) == 1


def test_papers_of_which_nothing_is_tested_are_left_out(ledger):
    kept = overview.judged(ledger[ledger["paper"].isin(["zhan2020", "gillick2018"])])
    assert set(kept["paper"]) == {"zhan2020", "gillick2018"}
    ledger.loc[ledger["paper"] != "zhan2020", "verdict"] = claims.NOT_TESTED
    kept = overview.judged(ledger)
    assert set(kept["paper"]) == {"zhan2020"}
    texts = [text.get_text() for text in verdict_figures.matrix(kept).axes[0].texts]
    assert [text for text in texts if len(text) > 1] == [claims.papers()["zhan2020"].label]


@pytest.mark.parametrize(
    ("values", "effect"),
    [("A=90.4; B=88.3", 2.1), ("A=5/7; B=4/5", 1.5), ("A=3/4; B=2/2; C=1/1", 1.5)],
)
def test_a_papers_effect(values, effect):
    assert overview.paper_effect(values) == pytest.approx(effect)


@pytest.mark.parametrize("values", ["A=90.4; B=", "A=1/2; B=1", "A-B=0.4 (upper bound)", ""])
def test_a_paper_that_gives_no_such_numbers(values):
    assert pd.isna(overview.paper_effect(values))


def test_effects_are_drawn_where_both_sides_have_them(ledger):
    counted = ledger.index[ledger["claim"] == "liang2020-beam-more-pairs-yet-worse"][0]
    ledger.loc[counted, "verdict"] = "holds"
    ledger.at[counted, "evidence"] = [evidence(5.0)]  # of numbers of pairs, which are no points of 100
    axis = overview.effects(ledger).axes[0]
    points = {tuple(point.round(2)) for drawn in axis.collections for point in drawn.get_offsets().filled(float("nan"))}
    # The last paper gives its measures between 0 and 1: the mean of 0.083, 0.047, 0.083 and 0.052.
    # Gillick's 90.4 - 88.3; the mean of 87.6 - 83.7 and 37.3 - 36.5; the mean of Chang's three.
    assert points == {(2.1, 7.0), (2.35, -11.0), (18.03, 2.0), (6.62, 4.0)}


def test_what_falls_furthest_below_its_paper_has_a_number_and_a_line(ledger):
    # Here minus the paper: -13.35, -2.62, 4.9, and -16.03 (the points of the test before).
    page = BeautifulSoup(overview.furthest(ledger).data, "html.parser")
    lines = [line.text for line in page.select("ol > li")]
    assert [line.split(": ")[-1] for line in lines][:2] == [
        "+2.0 points here, +18.0 in the paper", "-11.0 points here, +2.3 in the paper"
    ]  # fmt: skip
    axis = overview.effects(ledger).axes[0]
    numbered = {each.get_text(): tuple(np.round(each.xy, 2)) for each in axis.texts}
    assert numbered["1"] == (18.03, 2.0) and numbered["2"] == (2.35, -11.0) and len(numbered) == len(lines) == 3
    untested = ledger.assign(verdict=claims.NOT_TESTED)
    assert not overview.effects(untested).axes[0].texts and "<li>" not in overview.furthest(untested).data


def test_half_of_the_comparisons_see_what_the_page_says(ledger):
    small = [replace(evidence(1.0), smallest=size) for size in (1.0, 2.0, 9.0)]
    others = ({"ratio": True}, {"step": "step"}, {"counted": "cycles"}, {"closed": "still learning"})
    left_out = [replace(small[0], smallest=50.0, **each) for each in others]
    ledger["evidence"] = [[*small, *left_out]] + [[]] * (len(ledger) - 1)
    said = verdict_text.power(ledger)
    assert (
        "Of 7 comparisons 3 are of measures over questions" in said
        and "a true difference of 2.0 points four times out of five" in said
    )
    assert verdict_text.power(ledger[1:]) == ""


def test_every_claim_is_in_the_table_and_links_lead_to_pages_and_rows(ledger):
    page = BeautifulSoup(overview.table(ledger).data, "html.parser")
    rows = page.select("tbody tr")
    assert len(rows) == CLAIMS
    first = rows[0]
    assert [cell.text for cell in first.select("td")[:3]] == ["✓ holds", "I", "subset"]
    assert "+7.00 [+6.00, +8.00]" in first.text
    assert first.a["href"] == "15_verdicts.html#gillick2018-softmax-over-pairwise-ce"
    pages = {link["href"].split("#")[0].removesuffix(".html") for link in page.select("a")}
    assert pages <= set(notebooks.pages(runtime.root()))
    named = page.select_one("[data-filters]")["data-filters"].split(",")
    assert set(named) <= {cell.text for cell in page.select("thead th")}
    assert [name.text for name in page.select("td > code")] == ledger["claim"].tolist()  # what `rerun` asks for
    assert "one of " in page.find("a", href=re.compile("full-pretraining-over-bm25-nq")).find_parent("tr").text


def test_what_papers_say_is_shown_as_text(ledger):
    ledger["statement"] = "<script>alert(1)</script>"
    shown = overview.table(ledger).data
    assert "<script>" not in shown and shown.count("&lt;script&gt;") == CLAIMS


def test_a_paper_is_added_in_the_data_files_alone(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "papers"
    shutil.copytree(runtime.root() / "data" / "papers", folder)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    known = yaml.safe_load((folder / "papers.yaml").read_text())
    paper = {
        "authors": "A and B",
        "title": "T",
        "link": "x",
        "chapters": ["12_x"],
        "pages": {"verdicts": "61_verdicts"},
    }
    known["new2021"] = {"part": "V", "name": "New 2021", **paper}
    (folder / "papers.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    bound = yaml.safe_load((folder / "bindings.yaml").read_text())
    bound["collections"]["new2021"] = {"D": {"quick": {"collection": "c", "fidelity": "stand-in"}}}
    bound["claims"]["new2021-a-over-b"] = {"test": "greater", "each": [{"pair": ["12_x:A", "12_x:B"], "data": "D"}]}
    (folder / "bindings.yaml").write_text(yaml.safe_dump(bound))
    with (folder / "claims.csv").open("a") as lines:
        lines.write("new2021-a-over-b,main,new2021,text,A is better than B,A vs B,MAP@100,D,A=2; B=1,A > B\n")
    made, queries = Results(), [f"q{i}" for i in range(9)]
    for system, value in (("A", 0.9), ("B", 0.1)):
        frame = pd.DataFrame({"query_id": queries, "measure": "AP@100", "value": value + np.arange(9) / 100})
        made.add_queries("c", "test", system, 0, frame, pd.Series(queries, queries))
    made.save(results.reference_folder("quick", "12_x"))
    found = claims.ledger("quick", "reference")
    row = BeautifulSoup(overview.table(found).data, "html.parser").select("tbody tr")[-1]
    assert [cell.text for cell in row.select("td")[:3]] == ["✓ holds", "V", "stand-in"]
    assert [link["href"] for link in row.select("a")] == ["61_verdicts.html#new2021-a-over-b", "12_x.html"]
    assert "V  New 2021" in [text.get_text() for text in verdict_figures.matrix(found).axes[0].texts]
    assert overview.verdict_counts(found).iloc[-2][["paper", "claims"]].tolist() == ["V  New 2021", 1]


def test_a_claim_of_an_unknown_paper_is_named(tmp_path, monkeypatch):
    shutil.copytree(runtime.root() / "data" / "papers", tmp_path / "data" / "papers")
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    with (tmp_path / "data" / "papers" / "claims.csv").open("a") as lines:
        lines.write("new-a-over-b,main,chang2O2O,text,A is better than B,A vs B,MAP@100,D,A=2; B=1,A > B\n")
    with pytest.raises(SettingError, match="a paper of claims.csv = 'chang2O2O'.*Did you mean 'chang2020'"):
        claims.ledger("quick", "reference")


def test_where_a_claim_is_tested():
    weighed = {"terms": [[1, "13_z:A", "Quora"], [-1, "13_z:B", "NQ"]]}
    each = [{"pair": ["12_x:A", "11_y:B"], "data": "D+Quora"}, {"systems": ["12_x:A"], "data": "E"}, weighed]
    assert claims.tested_in({"each": each}) == ["11_y", "12_x", "13_z"]
    assert claims.compared_on({"each": each}) == ["D", "Quora", "E", "NQ"]
    assert claims.tested_in({}) == claims.compared_on({}) == []


def test_every_tested_claim_names_a_notebook():
    known = set(notebooks.pages(runtime.root()))
    for name, claim in claims.bindings()["claims"].items():
        assert claims.tested_in(claim) and set(claims.tested_in(claim)) <= known, name


def test_what_results_were_made_on(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    made = Results()
    for seed, recorded in enumerate(["2020-01-02T03:04:05Z", "2020-01-02T09:00:00Z", "2020-01-03T00:00:00Z"]):
        made.add_row(
            experiment="11_x", system="s", collection="c", split="test", measure="AP@10", value=0.1, seed=seed,
            profile="quick", recorded=recorded, device="cpu", cores=2, threads=1, python="3.12.1", platform="Linux",
            revision="abc", packages=f'{{"torch": "2.{seed}"}}',
        )  # fmt: skip
    made.save(results.own_folder("quick", "11_x"))
    found = overview.made_on("quick", None)
    assert found.loc[0, "recorded"] == "2020-01-02, 2020-01-03" and found.loc[0, "revision"] == "abc"
    assert overview.versions("quick", None).to_dict("records") == [{"package": "torch", "version": "2.0, 2.1, 2.2"}]


def test_the_answer_counts_all_and_names_what_is_decided(ledger):
    page = BeautifulSoup(overview.answer(ledger).data, "html.parser")
    assert "2 ✓ hold" in BeautifulSoup(overview.counted(ledger), "html.parser").text
    beside, *known = [line.text for line in page.find_all("p")]
    assert "Zhan 2020 1 of 1" in beside
    assert "1 ✓ holds, 1 ✗ is contradicted" in known[0] and "is contradicted" not in "".join(known[1:])
    assert len(page.find_all("h4")) == len(claims.papers())
    named = [line.text for line in page.find_all("li")]
    statements = ledger.set_index("claim")["statement"]
    held, lost = (
        statements[f"gillick2018-{name}"] for name in ("softmax-over-pairwise-ce", "paralex-encoder-over-bm25")
    )
    assert any(line.startswith(f"✓ {held} (") for line in named)
    assert any(line.startswith(f"✗ {lost} (") for line in named)
    assert len(named) == 3  # what is inconclusive is counted alone
    every = ledger["claim"].str.startswith("zhan2020")
    ledger.loc[every, "verdict"] = claims.HOLDS
    ledger["evidence"] = [found or [evidence(1.0)] for found in ledger["evidence"]]
    page = BeautifulSoup(overview.answer(ledger).data, "html.parser")
    assert f"and {every.sum() - overview.TOLD} more that are decided" in page.text


def test_the_first_page_tells_of_bm25_and_of_what_a_public_encoder_changes(ledger, monkeypatch):
    monkeypatch.setattr(results, "rows", lambda *_: pd.DataFrame())
    leads = {
        "the best list": pd.DataFrame({"sign": [">"], "slight": [False]}, index=["d"]),
        "no list": pd.DataFrame({"sign": []}),
    }
    told = overview.told(ledger, ledger[:1], "laptop", None, leads)
    assert "- the best list: of 1 collection ahead on 1 (d)" in told and "no list" not in told
    assert "Of 4 claims that are tested 1 rest on a stand-in" in told and "From a public encoder 1 claims" in told
    before = ledger.assign(verdict=[claims.NOT_TESTED, *ledger["verdict"][1:]])
    page = BeautifulSoup(overview.listed(ledger, before).data, "html.parser")
    assert len(page.find_all("li")) == 4 and "57.0 against 50.0, +7.00" in page.li.text
    assert page.p.text.startswith("1 of 4 come out otherwise") and page.li.text.startswith("· → ✓")
    assert "3 come out alike" in page.details.text and page.li.text not in page.details.text


def test_the_first_page_says_why_claims_are_open(ledger):
    assert verdict_text.unsettled(ledger[:0]) == ""
    weak, against = replace(evidence(1.0), p_for=0.3), replace(evidence(-3.0), p_for=0.99, p_against=0.01)
    told = ledger.head(4).assign(
        verdict=[claims.INCONCLUSIVE] * 2 + [claims.NOT_TESTED] * 2, evidence=[[weak], [weak, against], [weak], []]
    )
    said = verdict_text.unsettled(told)
    assert "Of the 2 that are inconclusive 1 has a comparison that is significant against them before" in said
    assert "the other 1 has at least one that is not significant" in said
    assert "Of the 2 that are not tested 1 compare systems" in said and "for 1 there was no data" in said
    assert "in another form" not in said and "one finding" not in said
    behind = [replace(evidence(-3.0), names=["DE", name]) for name in ("BM25", "BM25", "DE2")]
    lost = told.head(3).assign(verdict=claims.CONTRADICTED, evidence=[[each] for each in behind])
    assert "In 2 ✗ BM25 is ahead of what the claim puts above it" in verdict_text.unsettled(lost)
    assert "told 2 times (2 of Gillick 2018)" in verdict_text.unsettled(lost)
    assert "one finding" not in verdict_text.unsettled(lost[1:])
    narrower = told.assign(
        verdict=claims.HOLDS, as_tested=["", "less than half", "as said; here", ""],
        narrower=[False, True, False, False], evidence=[[evidence(3.0)]] * 4,
    )  # fmt: skip
    assert "Of the 4 that are decided 1 were tested in another form" in verdict_text.unsettled(narrower)
    told = overview.answer(narrower).data
    assert "<em><a " in told and "</em>; as tested: less than half (" in told


def test_the_first_page_says_how_much_more_data_would_decide(ledger):
    # Effects of 1.5 points are seen four times out of five, and how small an effect is goes by the root of the data.
    some, more, known, other_way = (replace(evidence(effect), p_for=0.3) for effect in (1.0, 0.2, 3.0, -1.0))
    opened = ledger.head(4).assign(verdict=claims.INCONCLUSIVE, evidence=[[some], [more], [known], [other_way]])
    assert list(map(verdict_text.data_needed, opened.itertuples())) == [3, 57, 1, np.inf]
    said = verdict_text.unsettled(opened)
    for told in ("1 show it with up to 10 times", "1 with more", "1 should have shown it", "1 may never"):
        assert told in said
    kinds = {
        3: [some, known],  # all of them have to be seen
        57: [some, more],
        1: [known, replace(other_way, closed="still learning")],
        4: [replace(more, paper=0.75)],  # where the paper prints an effect it is that which is to be seen
        9: [replace(known, ratio=True, smallest=np.log(8), effect=np.log(2))],
        5: [replace(other_way, alike=True, margin=0.8)],  # an effect of 0 within the margin, by two tests
    }
    for times, found in kinds.items():
        (row,) = opened.head(1).assign(evidence=[found]).itertuples()
        assert verdict_text.data_needed(row) == times
    leaning = opened.head(1).assign(evidence=[[some, replace(other_way, p_against=0.01)]])
    assert "times as much data" not in verdict_text.unsettled(leaning)


def test_the_papers_stand_beside_each_other(ledger):
    assert overview.beside_each_other(ledger[ledger["paper"] == "gillick2018"]) == ""
    said = overview.beside_each_other(ledger)
    assert "these hold: Zhan 2020 1 of 1, Gillick 2018 1 of 2." in said and "Chang" not in said


def test_the_scale_is_that_of_the_rows(monkeypatch):
    small = {"encoder": "transformer", "tokens": {"vocabulary": 1000}, "width": 100, "dimension": 50, "layers": 2}
    unread = small | {"tokens": {"collection": "x"}}  # a vocabulary whose size the declaration does not name
    known = pd.DataFrame(
        {
            "seconds": [60.0, 180.0, np.nan, 120.0, 9e9], "device": ["cpu"] * 5,
            "candidates": [500.0, 2000.0, 9e9, 600.0, 9e9], "queries": [40.0, 80.0, 9e9, 50.0, 9e9],
            # No claim rests on one's own corpus.
            "experiment": ["22_reqa", "22_reqa", "42_first_stage", "23_ablation", "60_your_corpus"],
            "seed": [0, 1, 0, 0, 0],
            "parameters": [json.dumps(small), json.dumps({"k1": 1.2}), None, json.dumps(unread), json.dumps(small)],
        }
    )  # fmt: skip
    monkeypatch.setattr(results, "rows", lambda profile, source: known)
    assert overview.scale("laptop", None) == (
        "Encoders of up to about 0.3 million weights (bags of words not counted) and 2 layers, "
        "each trained for 2 minutes (median; at most 3) on "
        "cpu; 600 candidates (median; 500 to 2,000), 50 queries (median; 40 to 80), 2 seeds a "
        "chapter (median; 1 to 2)."
    )
    monkeypatch.setattr(results, "rows", lambda profile, source: known[1:2])
    assert overview.scale("laptop", None).startswith("Encoders, each")
    monkeypatch.setattr(results, "rows", lambda profile, source: known[:0])
    assert overview.scale("laptop", None) == ""
