"""What a chapter declares and records of its claims, and that the book's cells and claims.csv say the same."""

import ast
import json

import numpy as np
import pandas as pd
import pytest
from recorded import learned, number, put, write_claims
from scipy import stats

from retlib.core import notebook_files, runtime
from retlib.core.errors import SettingError
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report.contrasts import LOG_STEPS, LOG_VALUE, slope
from retlib.report.ledger import CONDITION, EMPTY, NOISE, TEST, Claims, encoder

COUNT = 40
NOISY = np.random.default_rng(0).normal(size=COUNT)
NOISY = (NOISY - NOISY.mean()) / NOISY.std(ddof=1) * COUNT**0.5  # an error of 1
RISING, REST, FALLS = [40, 60, 64, 65, 66, 69], [40, 60, 64, 65, 65, 65], [60, 50, 50, 50, 50, 50]


def level(mean, error=0.0):
    return {0: mean + error * NOISY}


def save(made, chapter="11_a"):
    made.save(results.own_folder("quick", chapter))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The rows of chapter 11 in a project with three data sets, of which D and F are one collection."""
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    write_claims(tmp_path, {"paper-c": {"also": "12_b"}, "paper-other": {"chapter": "13_c"}})
    found = Results()
    row = {"steps": 80, "candidates": 500, "parameters": json.dumps({"encoder": "bow"})}
    put(put(found, "A", level(55, 1), **row), "B", level(50))
    return found


def lines(made, declare, **options):
    """Lines of the table, where a function makes the contrasts of what gives a system's contrast."""
    save(made)
    claims = Claims("paper", "11_a", "quick")

    def of(name, *on, measure="R@1", **more):
        return claims.system(name, on or "D", measure, **more)

    found = declare(of)
    options = {name: each(of) if callable(each) else each for name, each in options.items()}
    claims.test("c", *(found if isinstance(found, list) else [found]), **options)
    return claims.table


def a_over_b(of):
    return of("A") - of("B")


def test_a_line_holds_what_a_verdict_needs(made):
    table = lines(made, lambda of: (of("A") - of("B")).printed(2.1))
    assert table.columns.tolist() == [*EMPTY]
    (found,) = table.to_dict("records")
    half, p = stats.t.ppf(0.975, COUNT - 1), stats.t.sf(5, COUNT - 1)
    numbers = {"effect": 5, "low": 5 - half, "high": 5 + half, "freedom": COUNT - 1, "questions": COUNT, "seeds": 1,
               "p_for": p, "p_none": 1, "paper": 2.1, "margin": 0, "candidates": 500}  # fmt: skip
    assert {name: found[name] for name in numbers} == pytest.approx(numbers, abs=1e-3)
    texts = {"claim": "paper-c", "role": TEST, "label": "A − B", "measure": "R@1", "unit": "points", "encoder": "bow",
             "rows": "questions", "closed": "", "reason": "", "alike": False, "one_seed": True}  # fmt: skip
    assert {name: found[name] for name in texts} == texts and "A" in found["blind"]
    assert json.loads(found["data_sets"]) == ["D"] and json.loads(found["collections"]) == ["d"]
    shared = {"chapter": "11_a", "collections": ["d"]}
    assert json.loads(found["terms"]) == [
        {"weight": weight, "system": name, "mean": pytest.approx(mean, abs=1e-3)} | shared
        for weight, name, mean in ((1, "A", 55), (-1, "B", 50))
    ]


@pytest.mark.parametrize(
    ("declare", "label"),
    [
        (lambda of: of("A") - 3.5, "A − 3.5"),
        (lambda of: of("A") - 0.5 * of("B") - of("C"), "A − 0.5 × B − C"),
        (lambda of: of("A", "D") - of("B", "E"), "A (D) − B (E)"),
        (lambda of: slope([of("C"), of("A")], "words"), "words"),
        (lambda of: of("A", measure="ms", kind=LOG_VALUE) - of("B", measure="ms", kind=LOG_VALUE), "A / B"),
    ],
)
def test_a_contrast_says_what_it_is_of(made, declare, label):
    put(put(put(made, "A", level(50), "e"), "B", level(40), "e"), "C", level(45, 1))
    for name in "AB":
        number(made, name, {0: 3.0 + len(name), 1: 5.0 + ord(name)}, measure="ms")
    found = lines(made, declare, one_is_enough=True)
    assert found["label"].tolist() == [label] and (found["unit"][0] == "ratio") == ("/" in label)


@pytest.mark.parametrize(
    ("declare", "options", "told"),
    [
        (lambda of: of("Z") - of("B"), {}, "Z"),
        (lambda of: of("A") - of("B", measure="R@7"), {}, "R@7"),
        (lambda of: of("A", "D", "G") - of("B", "D", "G"), {}, "G"),  # which no collection stands for
        (lambda of: of("A", "E") - of("B", "E"), {}, "A"),
        (lambda of: of("A") - of("B", chapter="12_b"), {}, "chapter 12"),  # not run
        (lambda of: of("A") - of("B"), {"given": lambda of: [of("Z") - of("B")]}, "Z"),
        (lambda of: of("A", kind=LOG_STEPS) - of("B", kind=LOG_STEPS), {}, "A"),  # one seed
        (lambda of: [of("A") - of("B"), of("A", "F") - of("B", "F")], {}, "needs 2 collections"),
        (a_over_b, {"not_tested": "it cannot come out otherwise"}, "it cannot come out otherwise"),
        (a_over_b, {"not_tested": {"quick": "too small", "laptop": "too large"}}, "too small"),
    ],
)
def test_what_is_not_tested_is_one_line_with_the_reason(made, declare, options, told):
    assert lines(made, a_over_b, not_tested={"laptop": "too large"})["reason"].tolist() == [""]
    table = lines(made, declare, **options)
    assert table["role"].tolist() == [TEST] and told in table["reason"][0]
    assert table[["effect", "p_for", "seeds"]].isna().all(axis=None) and table["closed"].tolist() == [""]


def test_data_sets_that_are_one_collection_repeat_a_comparison_where_one_is_enough(made):
    def declare(of):
        gaps = [of("A", on) - of("B", on) for on in "DF"]  # another claim of them is another comparison
        return [*gaps, *(gap.above(7.0) for gap in gaps), *(gap.within(7.0) for gap in gaps)]

    table = lines(made, declare, one_is_enough=True)
    assert table["margin"].tolist() == [0, 7, 7] and table["alike"].tolist() == [False, False, True]
    assert table["p_for"].tolist() == pytest.approx(stats.t.sf([5, -2, 2], COUNT - 1), abs=1e-3)
    assert [json.loads(each) for each in table["data_sets"]] == [["D"]] * 3
    mean = lines(made, lambda of: of("A", "D", "F") - of("B"), one_is_enough=True)  # each collection counts once
    assert mean["effect"].tolist() == pytest.approx([5], abs=1e-3)


def test_rows_of_another_chapter_are_loaded(made):
    save(put(Results(), "B", level(53)), "12_b")
    assert lines(made, lambda of: of("A") - of("B", chapter="12_b"))["effect"].tolist() == pytest.approx([2], abs=1e-3)


def test_a_claim_is_one_of_this_chapter(made):
    with pytest.raises(SettingError):
        Claims("paper", "11_a", "quick").test("other", not_tested="why")


def test_a_condition_is_seen_by_itself_whatever_the_claim_asks_for(made):
    put(made, "C", level(52, 1))
    given = {"given": lambda of: (each for each in [of("C") - of("B"), (of("C") - of("B")).above(-1.0)])}
    table = lines(made, lambda of: a_over_b(of).above(2.0), **given)
    assert table["role"].tolist() == [TEST, CONDITION, CONDITION] and table["margin"].tolist() == [2, 0, -1]
    assert not lines(made, lambda of: a_over_b(of).within(9.0), **given)["alike"][1:].any()


@pytest.mark.parametrize(
    ("a", "effect", "asks", "closed"),
    [
        (REST, 2.0, {}, False), (RISING, 2.0, {}, True), (RISING, 4.0, {}, False), (RISING, -4.0, {}, False),
        (RISING, 2.0, {"above": 4.0}, False), (RISING, 2.0, {"above": -4.0}, False),
        (RISING, 2.0, {"within": 2.5}, True), (RISING, 2.0, {"within": 4.0}, False), (FALLS, 20.0, {}, True),
        (RISING[:-1] + [65 + NOISE], 0.1, {}, False), (RISING[:-1] + [67.1], 0.1, {}, True),
    ],
)  # fmt: skip
def test_the_gate_closes_what_still_learns_by_more_than_effect_and_margin(made, a, effect, asks, closed):
    put(made, "A", level(50 + effect, 1), steps=80)
    made.tables["learning"] = pd.concat([learned("A", a, kept=5), learned("A", RISING, collection="e")])

    def declare(of):
        contrast = a_over_b(of)
        for name, points in asks.items():
            contrast = getattr(contrast, name)(points)
        return [contrast, contrast.above(-9.0).may_still_learn()]

    gated, ungated = lines(made, declare)["closed"]
    assert bool(gated) == closed and ungated == ""


@pytest.mark.parametrize(("curve", "closed"), [(REST, False), (RISING, False), (FALLS, True)])
def test_the_systems_of_a_condition_may_still_learn_but_not_fall(made, curve, closed):
    put(made, "C", level(51, 1), steps=80)
    made.tables["learning"] = learned("C", curve, kept=5)
    table = lines(made, a_over_b, given=lambda of: [of("C") - of("B")])
    assert [bool(each) for each in table["closed"]] == [False, closed]


@pytest.mark.parametrize(("kind", "closed"), [(LOG_STEPS, True), (LOG_VALUE, False)])
def test_ratios_go_by_the_noise_of_validation_and_times_are_not_gated(made, kind, closed):
    for name, factor in (("A", 1), ("B", 90)):
        for seed, value in enumerate((3, factor + 4)):
            number(made, name, {seed: value}, measure="ms", steps=value)
    made.tables["learning"] = learned("A", RISING)
    table = lines(made, lambda of: of("B", measure="ms", kind=kind) - of("A", measure="ms", kind=kind))
    assert bool(table["closed"][0]) == closed


def test_a_gated_contrast_says_what_the_gate_cannot_see(made):
    put(made, "A", level(55, 1), steps=80)
    made.tables["learning"] = learned("A", REST)
    assert lines(made, a_over_b)["blind"].tolist() == [""]
    del made.tables["learning"]
    table = lines(made, lambda of: [a_over_b(of), (a_over_b(of) - 1).may_still_learn(), of("B") - 3])
    assert [bool(each) for each in table["blind"]] == [True, False, False]


@pytest.mark.parametrize(("fewest", "closed"), [(139, True), (140, False)])
def test_recall_among_few_candidates_is_closed_by_the_fewest(made, fewest, closed):
    for name, few in (("A", 5000), ("B", fewest)):
        put(made, name, level(50, len(name)), measure="R@7", candidates=few)
        put(made, name, level(50, len(name)), measure="R@6", candidates=3)  # of another measure
    table = lines(made, lambda of: of("A", measure="R@7") - 0.5 * of("B", measure="R@7").may_still_learn())
    assert table["candidates"].tolist() == [fewest] and bool(table["closed"][0]) == closed


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ""),
        ({"encoder": "bow"}, "bow"),
        ({"encoder": "transformer", "layers": 0}, "token embeddings, no layer"),
        ({"encoder": "transformer", "layers": 0, "stages": [{"layers": 1}, {"x": 2}]}, "Transformer, 1 layer"),
        ({"encoder": "transformer", "layers": 2, "checkpoint": "public"}, "public"),
        ({"fused": [{"encoder": "bow"}, {"encoder": "bow"}, {}]}, "bow"),
        (
            {"first": {"encoder": "bow"}, "reader": {"encoder": "transformer", "layers": 3}},
            "bow; Transformer, 3 layers",
        ),
    ],
)
def test_what_a_system_encodes_with(settings, expected):
    assert encoder(settings) == expected


ROOT = runtime.root()
BOOK = pd.read_csv(ROOT / "data" / "papers" / "claims.csv", keep_default_na=False)


def declaring(chapter):
    """The cells of a chapter that declare claims."""
    found = notebook_files.cells(ROOT / "notebooks" / f"{chapter}.ipynb")
    return [ast.parse(notebook_files.source(each)) for each in found if "claims" in each["metadata"].get("tags", ())]


DECLARING = [name for name in notebook_files.names(ROOT) if declaring(name)]


@pytest.mark.parametrize("chapter", DECLARING)
def test_a_cell_declares_the_claims_of_claims_csv_and_loads_the_rows_that_it_names(chapter):
    constants = [each for tree in declaring(chapter) for each in ast.walk(tree) if isinstance(each, ast.Constant)]
    texts = [each.value for each in constants if isinstance(each.value, str)]
    assert {*BOOK["chapter"]} <= {*DECLARING}
    mine = BOOK[BOOK["chapter"] == chapter]
    named = [f"{paper}-{text}" for text in texts for paper in mine["paper"].unique()]
    assert sorted(name for name in named if name in {*BOOK["id"]}) == sorted(mine["id"])
    loaded = {text for text in texts if text in notebook_files.names(ROOT)} - {chapter}
    assert loaded == {name for each in mine["also"] for name in each.split()}
