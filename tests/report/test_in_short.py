"""The box on top of a chapter says what its rows say, and nothing else."""

import re
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from retlib.core import runtime
from retlib.core.errors import SettingError
from retlib.evaluation.results import EARLIER, Results
from retlib.report import claims, in_short
from retlib.report.evidence import Evidence
from retlib.workflow import notebooks

TEXTS = yaml.safe_load((runtime.root() / "book" / "in-short.yaml").read_text())
CHAPTER = "12_dual_encoder_losses"
SOFTMAX, TRIPLET = "gillick2018-softmax-over-pairwise-ce", "gillick2018-triplet-close-to-softmax"


def evidence(effect, p_for=0.01, label="A minus B, on c"):
    return Evidence(label, 50 + effect, 50, effect, effect - 1, effect + 1, p_for, 1 - p_for, 3, 100)


@pytest.fixture(scope="module")
def nothing():
    """The ledger of a profile without rows."""
    frame = claims.ledger("explore", "reference")
    return frame.assign(evidence=frame["evidence"].astype(object))


def judged(ledger, **verdicts):
    """A ledger in which claims have verdicts, each with its comparisons."""
    found = ledger.copy()
    for claim, (verdict, comparisons) in verdicts.items():
        row = found.index[found["claim"] == claim][0]
        found.loc[row, ["verdict", "fidelity", "reason", "seeds"]] = [verdict, "subset", "", 3]
        found.at[row, "evidence"] = comparisons
    return found


def nothing_recorded(_, profile=None):
    return None


def recorded(**values):
    """Results of systems on a collection, a value a seed."""
    found = Results()
    for system, each in values.items():
        for seed, value in enumerate(each):
            found.add_row(experiment="e", system=system, collection="c", split="test", measure="RR@10", value=value,
                          seed=seed)  # fmt: skip
    return found


def test_a_chapter_without_claims_tells_what_its_rows_have(nothing):
    boxes = [in_short.box(lambda: nothing, lambda _, profile=None, found=found: found, "42_first_stage")
             for found in (recorded(BM25=[0.5], A=[0.6, 0.8]), recorded(BM25=[0.9], A=[0.1, 0.2]))]  # fmt: skip
    assert "*c*: A **70.0**; BM25 **50.0**" in boxes[0] and "2 seeds" in boxes[0]
    assert "*c*: A **15.0**; BM25 **90.0**" in boxes[1]
    assert "points" not in in_short.box(lambda: nothing, nothing_recorded, "42_first_stage")
    others = {"42_first_stage": recorded(BM25=[0.5], A=[0.4])}
    found = {None: others["42_first_stage"], "checkpoint": recorded(BM25=[0.5], A=[0.6])}
    named = in_short.box(lambda: nothing, lambda _, profile=None: found[profile], "55_which_method")
    assert "*c*: A **40.0**; BM25 **50.0**" in named and "{doc}`42_first_stage`" in named
    assert "*c*: A **60.0**; BM25 **50.0**" in named


def test_what_is_trained_is_told_before_what_is_not(nothing):
    found = recorded(BM25=[0.5], RM3=[0.9])
    found.add_row(
        experiment="e", system="ANCE", collection="c", split="test", measure="RR@10", value=0.4, seed=0, seconds=3.0
    )
    box = in_short.box(lambda: nothing, lambda _, profile=None: found, "42_first_stage")
    assert "*c*: ANCE **40.0**; BM25 **50.0**" in box and "best and worst of what is trained" in box


def test_values_of_a_table_are_told_in_their_unit(nothing):
    found = recorded(quantized=[0.5])
    rows = [
        (candidates, index, 0.25, 12.34, 40.0 + (index == "exact"))
        for candidates in (20, 3000)
        for index in ("exact", "quantized")
    ]
    found.tables["curve"] = pd.DataFrame(rows, columns=["candidates", "index", "loss", "speed-up", "MB"])
    box = in_short.box(lambda: nothing, lambda _: found, "14_ann_search")
    assert "- *20; 3,000*: quantized **12.3**." in box and "times as fast" in box
    assert "Here, in MB, *quantized* is below *exact* on both lines, by 1." in box


def test_two_books_of_other_rows_say_other_things(nothing):
    won = judged(nothing, **{SOFTMAX: (claims.HOLDS, [evidence(7.0)]), TRIPLET: (claims.NO_EFFECT, [evidence(0.1)])})
    lost = judged(nothing, **{SOFTMAX: (claims.CONTRADICTED, [evidence(-4.0, 0.99)])})
    first, second, none = (
        in_short.box(lambda each=each: each, nothing_recorded, CHAPTER) for each in (won, lost, nothing)
    )
    assert "1 holds" in first and "1 shows no effect" in first and "+7.00 [+6.00, +8.00]" in first
    assert "1 is contradicted" in second and "-4.00 [-5.00, -3.00]" in second and "holds" not in second
    why = TEXTS[CHAPTER]["why"][SOFTMAX]["holds"]
    assert why in first and why not in second and "Why" not in second
    assert "are not tested" in none and "Here" not in none
    for box in (first, second):
        assert f"15_verdicts.html#{SOFTMAX}" in box
    assert len({first, second, none}) == 3


def test_a_reason_that_several_claims_share_is_said_once_behind_the_signs_of_all(nothing):
    held = judged(nothing, **{claim: (claims.HOLDS, [evidence(7.0)]) for claim in (SOFTMAX, TRIPLET)})
    _, line, _ = in_short._why(held, {claim: {claims.HOLDS: "So."} for claim in (TRIPLET, SOFTMAX)})
    assert line.startswith("- <a") and line.endswith(" So.") and line.count("So.") == 1
    assert f"15_verdicts.html#{SOFTMAX}" in line and f"15_verdicts.html#{TRIPLET}" in line


def test_the_comparison_that_decides_is_shown(nothing):
    several = [evidence(9.0, 0.001, "clear"), evidence(1.5, 0.04, "close"), evidence(5.0, 0.01, "middle")]
    box = in_short.box(lambda: judged(nothing, **{SOFTMAX: (claims.HOLDS, several)}), nothing_recorded, CHAPTER)
    assert "Here close: 51.5 against 50.0, +1.50 [+0.50, +2.50] (the least clear of 3)" in box and "clear:" not in box
    worst = [evidence(2.0, 0.01, "good"), evidence(-3.0, 0.999, "bad")]
    box = in_short.box(lambda: judged(nothing, **{SOFTMAX: (claims.CONTRADICTED, worst)}), nothing_recorded, CHAPTER)
    assert "-3.00" in box and "Here bad:" in box and "good" not in box


@pytest.mark.parametrize(
    ("verdict", "narrower", "told"),
    [
        (claims.HOLDS, False, "*holds*:"),
        (claims.HOLDS, True, "*holds as tested*:"),
        (claims.CONTRADICTED, True, "*contradicted as tested*:"),
        (claims.INCONCLUSIVE, True, "*inconclusive*:"),
    ],
)
def test_a_verdict_on_another_form_of_a_claim_says_so(nothing, verdict, narrower, told):
    mine = nothing.assign(narrower=nothing["narrower"].where(nothing["claim"] != SOFTMAX, narrower))
    box = in_short.box(lambda: judged(mine, **{SOFTMAX: (verdict, [evidence(2.0)])}), nothing_recorded, CHAPTER)
    assert f"{claims.SIGNS[verdict]} {told} <a href" in box


def test_main_claims_come_first_and_open_ones_if_they_are_main(nothing):
    mine = nothing[[CHAPTER in claims.tested_in(claims.bindings()["claims"].get(c, {})) for c in nothing["claim"]]]
    every = {claim: (claims.INCONCLUSIVE, [evidence(1.0, 0.2)]) for claim in mine["claim"]}
    box = in_short.box(lambda: judged(nothing, **every), nothing_recorded, CHAPTER)
    assert f"All {len(mine)} claims that rest on this chapter are inconclusive" in box
    told = {claim for claim in mine["claim"] if f"#{claim}" in box}
    assert told == {*mine["claim"][mine["tier"] == "main"][: in_short.SHOWN]}
    minor = nothing[nothing["tier"] == "minor"]["claim"].iloc[0]
    page = claims.tested_in(claims.bindings()["claims"][minor])[0]
    main = next(claim for claim in nothing[nothing["tier"] == "main"]["claim"]
                if page in claims.tested_in(claims.bindings()["claims"].get(claim, {})))  # fmt: skip
    both = {minor: (claims.HOLDS, [evidence(2.0)]), main: (claims.CONTRADICTED, [evidence(-2.0, 0.99)])}
    box = in_short.box(lambda: judged(nothing, **both), nothing_recorded, page)
    assert box.index(f"#{main}") < box.index(f"#{minor}")


def test_pages_without_a_question_have_no_box():
    def refuse(*_):
        raise AssertionError("no ledger and no rows are needed")

    assert in_short.box(refuse, refuse, "90_explore") == "" == in_short.box(refuse, refuse, "no_chapter")


def test_texts_are_of_chapters_claims_and_verdicts_that_exist():
    bound = claims.bindings()["claims"]
    assert set(TEXTS) <= set(notebooks.pages(runtime.root()))
    for chapter, said in TEXTS.items():
        assert set(said) <= {"question", "shows", "why"} and said["question"].endswith("?")
        for claim, texts in said.get("why", {}).items():
            assert chapter in claims.tested_in(bound[claim]) and set(texts) <= set(claims.SIGNS)
            # What was measured is in rows, not in prose.
            assert not re.search(r"\d", re.sub(r"BM25|\{doc\}`\w+`", "", " ".join(texts.values())))


def test_every_chapter_that_decides_claims_has_a_question():
    bound = pd.Series(claims.bindings()["claims"]).map(claims.tested_in).explode().dropna()
    assert set(bound) <= set(TEXTS)


@pytest.mark.parametrize(
    "said",
    [
        {"shows": []}, {"question": 3}, {"question": "Which?", "shows": [{"systems": ["A"]}]},
        {"question": "Which?", "shows": [{"measure": "RR@10", "answers": [["A"]]}]},
        {"question": "Which?", "why": {SOFTMAX: {"hold": "So."}}}, {"question": "Which?", "whys": {}},
    ],
)  # fmt: skip
def test_texts_of_another_form_are_refused(tmp_path, monkeypatch, said):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "in-short.yaml").write_text(yaml.safe_dump({CHAPTER: said}))
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    with pytest.raises(SettingError, match="in-short.yaml"):
        in_short.box(nothing_recorded, nothing_recorded, CHAPTER)


def answers(monkeypatch, found, notes=(), **show):
    texts = {"42_first_stage": {"question": "Which?", "shows": [{"measure": "RR@10", **show}]}}
    monkeypatch.setattr(in_short, "notebook_files", SimpleNamespace(parsed=lambda *_: texts))
    return in_short.box(lambda: claims.ledger("explore", "reference"), lambda _: found, "42_first_stage", notes)


def on(collections, seconds=None, **values):
    """Results of systems, a value a collection; of what has seconds, trained in them."""
    found = Results()
    for system, each in values.items():
        for collection, value in zip(collections, each, strict=True):
            of = {"seconds": 1.0, "parameters": "{}"} if system in (seconds or ()) else {}
            found.add_row(experiment="e", system=system, collection=collection, split="test", measure="RR@10",
                          value=value, seed=0, **of)  # fmt: skip
    return found


def test_a_box_answers_before_it_lists(monkeypatch):
    found = on("xyz", A=[0.5, 0.6, 0.7], B=[0.4, 0.3, 0.8], C=[0.1, 0.2, 0.3])
    box = answers(monkeypatch, found, systems=["A", "B", "C"], answers=[["A", "B"]])
    assert "Here *A* is ahead of *B* on x; y, by 10.0 to 30.0 points, and behind *B* on z, by 10.0 points." in box
    assert box.index("Here *A* is") < box.index("*x*: A **50.0**") and "one seed" in box
    box = answers(monkeypatch, found, systems=["A", "C"], answers=[["C", "A"]])
    assert "Here *C* is behind *A* on all 3 collections, by 40.0 points." in box
    assert "level with *B*" in answers(monkeypatch, on("x", A=[0.5], B=[0.5]), systems=["A", "B"], answers=[["A", "B"]])
    assert "Here" not in answers(monkeypatch, found, systems=["A"], answers=[["A", "nobody"]])
    trained = on("xz", "AB", A=[0.5, 0.7], B=[0.4, 0.8])
    box = answers(monkeypatch, trained, systems=["best", "B"], answers=[["best", "B"]])
    assert "ahead of *B* on x, by 10.0 points, and *B* itself on z." in box


def test_values_are_folded_behind_an_answer_and_else_in_sight(monkeypatch):
    found = on("abcdef", A=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], B=[0.05] * 6)
    before, folded = answers(monkeypatch, found, systems=["A", "B"], answers=[["A", "B"]]).split(
        ":::{dropdown} The values"
    )
    inside, after = folded.split("\n:::\n")
    assert inside.count("- *") == 6 and "- *" not in before + after and "RR@10 (points of 100" in before
    seen = answers(monkeypatch, found, systems=["A", "B"])
    assert seen.count("- *") == in_short.TOLD and "and 1 more" in seen and "dropdown" not in seen


def test_a_difference_is_rounded_itself(monkeypatch):
    asked = {"systems": ["A", "B"], "answers": [["A", "B"]]}
    box = answers(monkeypatch, on("x", A=[0.6663], B=[0.6637]), **asked)  # in one decimal 66.6 and 66.4
    assert "by 0.26 points" in box and "A **66.63**; B **66.37**" in box
    box = answers(monkeypatch, on("x", A=[0.667], B=[0.664]), **asked)
    assert "by 0.30 points" in box and "A **66.70**; B **66.40**" in box
    box = answers(
        monkeypatch, on("x", A=[0.6766], B=[0.6642]), **asked
    )  # 1.24, as verdicts say it, where what is written differs by 1.3
    assert "by 1.2 points" in box and "A **67.7**; B **66.4**" in box
    box = answers(monkeypatch, on("x", A=[0.6634], B=[0.6656], C=[0.5]), systems=["C", "A", "B"], near="B")
    assert "at most 0.22 behind" in box and "C **50.00**; A **66.34**; B **66.56**" in box
    box = answers(monkeypatch, on("x", A=[1243.4], B=[29.46]), unit="MB", **asked)
    assert "Here, in MB, *A* is above *B* on x, by 1,214" in box and "A **1,243**; B **29.5**" in box


def test_a_box_says_what_its_rows_lack(monkeypatch):
    box = answers(monkeypatch, on("x", A=[0.5], B=[0.4]), systems=["A", "two towers", "B", "layers grown"])
    assert "A **50.0**; B **40.0**" in box and "- Not in these rows: two towers; layers grown." in box


def test_the_best_is_among_those_of_a_name(monkeypatch):
    found = on("x", ("A", "B", "C"), A=[0.4], B=[0.6], C=[0.5])
    box = answers(monkeypatch, found, systems=["best"], among=["A", "C"])
    assert "C **50.0**" in box and "B **" not in box


def test_rows_of_an_earlier_training_answer_nothing(monkeypatch):
    asked = {"systems": ["A", "B"], "answers": [["A", "B"]], "near": "B"}
    found = on("x", A=[0.5], B=[0.4])
    assert "Here *A* is" in answers(monkeypatch, found, notes=["Pre-training goes without links."], **asked)
    box = answers(monkeypatch, found, notes=[f"{EARLIER}: A."], **asked)
    assert "Here" not in box and "None" not in box and "first of" not in box
    assert "No answer is drawn" in box and "A **50.0**" in box


def test_an_answer_of_the_best_is_of_its_kind_and_collections(monkeypatch):
    found = on("xy", ("A", "B"), A=[0.5, 0.6], B=[0.7, 0.5], BM25=[0.6, 0.4])
    asked = {"systems": ["best", "BM25"], "answers": [["best", "BM25"]]}
    assert "ahead of *BM25* on both collections, by 10.0 to 20.0" in answers(monkeypatch, found, **asked)
    found.rows.loc[found.rows["system"] == "B", "parameters"] = '{"first": {}}'
    alone = answers(monkeypatch, found, among=["alone"], **asked)
    assert "ahead of *BM25* on y, by 20.0 points, and behind *BM25* on x, by 10.0 points" in alone
    assert "Here the best of what is trained (*A*) is behind *BM25* on x, by" in answers(
        monkeypatch, found, among=["alone"], collections=["x"], **asked
    )


def test_an_answer_says_where_it_is_more_than_chance(monkeypatch):
    found = on("xyz", ("A", "B", "C"), A=[0.5, 0.6, 0.7], B=[0.4, 0.3, 0.8], C=[0.1, 0.1, 0.1])
    p = {"x": 0.01, "y": 0.003, "z": 0.2}

    def compared(_, on, __, *pair):
        values = found.rows[found.rows["collection"] == on].set_index("system")["value"]
        return SimpleNamespace(p_value=lambda: p[on], effect=100 * (values[pair[0]] - values[pair[1]]))

    monkeypatch.setattr(Results, "compared", compared)
    box = answers(monkeypatch, found, systems=["A", "B"], answers=[["A", "B"]])
    assert "points (significant), and behind *B* on z, by 10.0 points (not significant)" in box
    # There are three collections, and the best is one of three, so that its p counts nine times.
    box = answers(monkeypatch, found, systems=["best", "worst"], answers=[["best", "worst"]])
    assert "collections, by 40.0 to 70.0 points (not significant)" in box
    assert "(significant on y)" in answers(monkeypatch, found, systems=["best"], answers=[["best", "C"]])


def test_two_systems_are_compared_over_the_seeds_that_both_have(monkeypatch):
    found = Results()
    shared, alone = [[0.5, 0.7], [0.6, 0.6]], [[0.1, 0.1]]
    for system, seeds in (("A", shared + alone), ("B", [[0.4, 0.4], [0.4, 0.6]])):
        for seed, values in enumerate(seeds):
            each = pd.DataFrame({"query_id": ["p", "q"], "measure": "RR@10", "value": values})
            found.add_queries("x", "test", system, seed, each, pd.Series(["p", "q"], index=["p", "q"]))
            found.add_row(experiment="e", system=system, collection="x", split="test", measure="RR@10", seed=seed,
                          value=sum(values) / 2, seconds=1.0, parameters="{}")  # fmt: skip
    box = answers(monkeypatch, found, systems=["A", "B"], answers=[["A", "B"]])
    # Over the first two seeds 60 against 45; over all that each has 43.3 against 45.
    assert "Here *A* is ahead of *B* on x, by 15.0 points" in box and "means over 2 to 3 seeds, " in box
    assert "A **43.3**; B **45.0**" in box and "differences over those that both have" in box
    # What the best is counts, not what it was chosen from.
    box = answers(monkeypatch, found, systems=["best"], answers=[["best", "best"]])
    assert "means over 2 seeds" in box


def test_a_box_says_what_is_enough(monkeypatch):
    found = on("xy", small=[0.40, 0.60], middle=[0.492, 0.61], large=[0.495, 0.60], whole=[0.5, 0.6])
    asked = {"systems": ["small", "middle", "large", "whole"], "near": "whole"}
    # On x the smallest loses ten points and the next 0.8.
    told = "within 1 point of whole on every collection is middle: it is at most 0.80 behind.**"
    assert told in answers(monkeypatch, found, **asked)
    # What stays, and is followed by what does not, may be luck.
    order = ["middle", "small", "large", "whole"]
    assert "on every collection is large: " in answers(monkeypatch, found, systems=order, near="whole")
    few = {**asked, "systems": ["small", "whole"]}
    told = "**There is none of these from which on all stay within 1 point of whole on every collection.**"
    assert told in answers(monkeypatch, found, **few)
    # What was not searched on every collection is not known to be enough.
    gap = on("xy", middle=[0.5, float("nan")], whole=[0.5, 0.6])
    assert "none of these" in answers(monkeypatch, gap, systems=["middle", "whole"], near="whole")


def test_a_box_says_among_how_many_documents(monkeypatch):
    found = on("xy", A=[0.5, 0.6])
    found.rows["candidates"] = [3000, 14000]
    assert "(points of 100, one seed; 3,000 to 14,000 documents)" in answers(monkeypatch, found, systems=["A"])
    assert "; 14,000 documents)" in answers(monkeypatch, found, systems=["A"], collections=["y"])
    found.add_row(**dict(found.rows.iloc[-1], system="over all", candidates=8_841_823))
    assert "3,000 to 14,000 documents)" in answers(monkeypatch, found, systems=["A"])


def test_times_are_told_by_geometric_means(monkeypatch):
    box = answers(monkeypatch, recorded(slow=[1.0, 4.0], quick=[1.0, 1.0]), systems=["slow", "quick"], unit="seconds")
    assert "slow **2**; quick **1**" in box and "geometric means over 2 seeds" in box


def test_a_box_says_who_still_learned(monkeypatch):
    """The best of the last fifth of a hundred steps against the best before: a rise of 2.0, and one of 0.5."""
    found = on("xy", A=[0.5, 0.6], B=[0.4, 0.5], C=[0.4, 0.5])
    curves = {("A", "x"): 52.0, ("A", "y"): 50.5, ("B", "x"): 52.0, ("B", "y"): 52.0, ("C", "x"): 50.5}
    lines = [
        (*where, 0, step, score) for where, end in curves.items() for step, score in ((0, 40.0), (80, 50.0), (100, end))
    ]
    table = pd.DataFrame(lines, columns=["system", "collection", "seed", "step", "score"])
    assert "Still learning" not in answers(monkeypatch, found, systems=["A", "B"])
    found.tables["learning"] = table.assign(kept=table["step"] == 100)
    box = answers(monkeypatch, found, systems=["A", "B"])
    assert "Still learning when their steps ended" in box and "raise what they reach: *A* (x); *B*.\n" in box


def test_a_box_says_who_kept_the_weights_of_the_start(monkeypatch):
    found = Results()
    for system, steps in {"A": ([0, 0], [0, 0]), "B": ([0, 0], [0, 30]), "C": ([0, 30], [30, 30])}.items():
        for collection, by_seed in zip("xy", steps, strict=True):
            for seed, step in enumerate(by_seed):
                found.add_row(experiment="e", system=system, collection=collection, split="test", measure="RR@10",
                              value=0.5, seed=seed, steps=step, seconds=1.0, parameters="{}")  # fmt: skip
    said = "these have the weights that they began with: "
    assert f"{said}*A*; *B* (x).\n" in answers(monkeypatch, found, systems=["A"])
    found.rows.loc[(found.rows["system"] == "A") & (found.rows["seed"] == 1), "collection"] = "x"
    assert f"{said}*A* (x); *B* (x).\n" in answers(monkeypatch, found, systems=["A"])  # on y one seed alone is left
    found.rows["seconds"] = 0.0  # what is not trained has no others
    assert said not in answers(monkeypatch, found, systems=["A"])
