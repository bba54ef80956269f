"""Verdicts on tables of contrasts that are made by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import slow_holm
from recorded import claims_table, outcome, write_claims
from scipy import stats

from retlib.core import runtime
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import ledger
from retlib.report.ledger import AGAINST, CONTRADICTED, HOLDS, INCONCLUSIVE, INDICATION, NO_EFFECT, NOT_TESTED
from retlib.report.ledger import NOT_REPRODUCED as NOT

P = st.sampled_from([0.0001, 0.004, 0.01, 0.02, 0.04, 0.05, 0.2, 0.5, 0.9])


TABLE = {}  # the results of chapter 11 at the profile quick


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A project folder, in which chapter 11 has a table."""
    root = tmp_path_factory.mktemp("book")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "root", lambda: root)
        patch.setattr(results, "load", lambda *place: TABLE.get(place[:2]))
        yield root


def save(*outcomes):
    TABLE["11_a", "quick"] = Results(tables={"claims": claims_table(*outcomes)})


@pytest.fixture
def verdicts(book):
    """What the ledger makes of lines, by claim; claims are named by letters."""

    def judge(*lines, claims=None, evidence=""):
        known = claims or {name: {} for name in dict.fromkeys(line["claim"] for line in lines)}
        write_claims(book, known, evidence)
        save(*lines)
        return ledger.verdicts("paper", "quick").set_index("id", drop=False)

    return judge


@pytest.mark.parametrize(
    ("lines", "expected", "rests"),
    [
        ([(0.01, 0.9, 1)], HOLDS, 0.01),
        ([(0.01, 0.9, 1), (0.03, 0.9, 1)], HOLDS, 0.03),  # the largest
        ([(0.05, 0.95, 1)], INCONCLUSIVE, 0.05),  # at the level is not below it
        ([(0.01, 0.9, 1), (0.3, 0.7, 1)], INCONCLUSIVE, 0.3),
        ([(0.9, 0.1, 1)], INCONCLUSIVE, 0.9),
        ([(0.9, 0.02, 1)], AGAINST, 0.02),
        ([(0.001, 0.99, 1), (0.9, 0.02, 1)], AGAINST, 0.04),  # over two contrasts
        ([(0.001, 0.99, 1), (0.9, 0.03, 1)], INCONCLUSIVE, 0.9),
        ([(0.4, 0.6, 0.02)], NO_EFFECT, 0.02),
        ([(0.4, 0.6, 0.03), (0.4, 0.6, 1)], INCONCLUSIVE, 0.4),
        ([(0.4, 0.6, 0.02), (0.01, 0.9, 1)], INCONCLUSIVE, 0.4),  # what is seen elsewhere is more than no effect
        ([(0.4, 0.6, 0.001), (0.99, 0.01, 1)], AGAINST, 0.02),
    ],
)
def test_a_verdict_follows_from_its_contrasts(verdicts, lines, expected, rests):
    found = verdicts(*(outcome("a", p_for, against, p_none=none) for p_for, against, none in lines)).loc["a"]
    assert (found["verdict"], found["test"]) == (expected, expected) and found["p"] == pytest.approx(rests)
    assert sum(found["speaks"].values()) == len(found["tests"]) == len(lines)
    assert (found["seeds"], found["fidelity"], found["reason"]) == (3, "subset", "")


def test_corrections_are_over_the_claims_of_a_paper_and_over_its_contrasts(verdicts):
    lines = [outcome("a", 0.01), outcome("a", 0.02), outcome("b", 0.03), outcome("c", 0.9, 0.001), outcome("d", 0.001)]
    found = verdicts(*lines)
    # For: 0.001, 0.02, 0.03 and 0.9 of four claims; against: 0.001 of five contrasts.
    assert found["p"].to_dict() == pytest.approx({"a": 0.06, "b": 0.06, "c": 0.005, "d": 0.004})
    assert found["verdict"].tolist() == [INCONCLUSIVE, INCONCLUSIVE, AGAINST, HOLDS]
    # A contrast speaks for a claim if the claim would hold with it alone.
    assert found.loc["a", "speaks"] == {HOLDS: 1, INCONCLUSIVE: 1}
    # Another paper's claims do not count.
    other = verdicts(*lines[1:3], claims={"b": {}, "a": {"paper": "other"}})
    assert other["verdict"].to_dict() == {"b": HOLDS}


@settings(max_examples=40)
@given(st.lists(st.lists(st.tuples(P, P, P), min_size=1, max_size=3), min_size=1, max_size=5))
def test_verdicts_are_those_of_slow_corrections(book, claims):
    write_claims(book, {f"c{i}": {} for i in range(len(claims))})
    save(*(
        outcome(f"c{i}", p_for, against, p_none=none)
        for i, mine in enumerate(claims)
        for p_for, against, none in mine
    ))  # fmt: skip
    found = ledger.verdicts("paper", "quick")
    for column, correct in (("test", slow_holm), ("by_bh", stats.false_discovery_control)):
        largest = [max(p_for for p_for, _, _ in mine) for mine in claims]
        against, none = (correct([each[place] for mine in claims for each in mine]) for place in (1, 2))
        start = 0
        for i, mine in enumerate(claims):
            here = slice(start, start := start + len(mine))
            alone = [correct([*largest[:i], p_for, *largest[i + 1 :]])[i] for p_for, _, _ in mine]
            said = [AGAINST if a < 0.05 else HOLDS if f < 0.05 else NO_EFFECT if n < 0.05 else INCONCLUSIVE
                    for f, a, n in zip(alone, against[here], none[here], strict=True)]  # fmt: skip
            expected = AGAINST if AGAINST in said else HOLDS if set(said) == {HOLDS} else INCONCLUSIVE
            expected = NO_EFFECT if NO_EFFECT in said and not {HOLDS, AGAINST} & {*said} else expected
            assert found[column][i] == expected
            if expected == HOLDS and column == "test":
                assert found["p"][i] == pytest.approx(correct(largest)[i])


@pytest.mark.parametrize(
    ("kind", "profile", "expected"),
    [
        ("paper", "quick", CONTRADICTED), ("scale", "quick", NOT), ("stand-in", "quick", NOT),
        ("choice", "quick", NOT), ("paper", "laptop", AGAINST),
    ],
)  # fmt: skip
def test_a_recorded_kind_says_what_a_test_against_a_claim_is_evidence_of(verdicts, kind, profile, expected):
    evidence = f"a,{profile},{kind},why\nb,{profile},{kind},why\n"
    found = verdicts(outcome("a", 0.9, 0.001), outcome("b", 0.001), evidence=evidence)
    assert found["verdict"].tolist() == [expected, HOLDS] and found["test"].tolist() == [AGAINST, HOLDS]
    assert found["by_bh"].tolist() == [expected, HOLDS]
    assert found["note"].tolist() == ["why" if profile == "quick" else "", ""]


@pytest.mark.parametrize("p_for", [0.001, 0.5, 0.999])
def test_one_seed_of_what_is_trained_is_an_indication(verdicts, p_for):
    found = verdicts(outcome("a", p_for), outcome("a", p_for, one_seed=True, seeds=1.0)).loc["a"]
    assert found["verdict"] == found["by_bh"] == INDICATION and not np.isnan(found["p"]) and found["seeds"] == 1
    of_more = outcome("a", 0.01, seeds=1.0), outcome("a", 0.01, seeds=5.0), outcome("a", seeds=3.0)
    assert verdicts(*of_more)["seeds"].tolist() == [3]  # what has one is not trained


def test_what_the_gate_closed_is_not_tested_and_corrected_for_all_the_same(verdicts):
    open_one = outcome("a", 0.03)
    assert verdicts(open_one)["verdict"].tolist() == [HOLDS]
    found = verdicts(open_one, outcome("b", 0.5, closed="still learning"), outcome("b", 0.5))
    assert found["verdict"].tolist() == [INCONCLUSIVE, NOT_TESTED] and np.isnan(found.loc["b", "p"])
    assert found.loc["b", ["reason", "by_bh", "speaks"]].tolist() == ["still learning", NOT_TESTED, {}]
    assert len(found.loc["b", "tests"]) == 2  # what was found is shown
    # What has a reason is no test, and not corrected for.
    found = verdicts(open_one, {"claim": "b", "role": "test", "reason": "no data"})
    assert found["verdict"].tolist() == [HOLDS, NOT_TESTED] and found.loc["b", "reason"] == "no data"
    assert found.loc["b", "tests"] == [] and found.loc["b", "fidelity"] == ""


def test_a_claim_is_tested_where_its_conditions_are_seen_by_themselves(verdicts):
    condition = {"role": "condition", "label": "C − D", "data_sets": '["E"]', "seeds": 1.0, "one_seed": True}
    lines = [outcome("a", 0.03), *(outcome("a", p, **condition) for p in (0.04, 0.001))]
    found = verdicts(*lines).loc["a"]
    # They are no part of the correction nor of the seeds, and their data are data of the claim.
    assert (found["verdict"], found["p"], found["seeds"], found["fidelity"]) == (HOLDS, 0.03, 3, "stand-in")
    assert (len(found["tests"]), len(found["conditions"])) == (1, 2)
    for unseen in (outcome("a", 0.05, **condition), outcome("a", 0.001, closed="ceiling", **condition)):
        found = verdicts(*lines, unseen, outcome("b", 0.001)).loc["a"]
        assert found["verdict"] == NOT_TESTED and "C − D" in found["reason"]
        assert ("ceiling" in found["reason"]) == bool(unseen["closed"])


def test_a_claim_without_a_table_or_a_chapter_says_so(verdicts, book):
    known = {"a": {}, "b": {"chapter": "12_b"}, "c": {"chapter": ""}, "d": {}, "z": {"paper": "other"}}
    found = verdicts(outcome("a", 0.001), claims=known)
    assert found["verdict"].tolist() == [HOLDS, *[NOT_TESTED] * 3]
    assert "quick" in found.loc["b", "reason"] == found.loc["d", "reason"] != found.loc["c", "reason"] != ""
    assert (ledger.verdicts("paper", "laptop")["verdict"] == NOT_TESTED).all()
    assert ledger.ledger("quick")["id"].tolist() == [*"abcdz"]  # of all papers


@pytest.mark.parametrize(("test", "hangs_on"), [(AGAINST, "b"), (NO_EFFECT, "c"), (INCONCLUSIVE, "d"), (HOLDS, "d")])
def test_a_verdict_hangs_on_what_speaks_most_against_it_or_least_for_it(test, hangs_on):
    ps = {"a": (0.5, 0.5, 0.5), "b": (0.8, 0.01, 0.6), "c": (0.7, 0.3, 0.02), "d": (0.9, 0.2, 0.4)}
    lines = [SimpleNamespace(label=name, p_for=p[0], p_against=p[1], p_none=p[2]) for name, p in ps.items()]
    assert ledger.decisive(SimpleNamespace(test=test, tests=lines)).label == hangs_on


def test_effects_are_in_points_or_ratios():
    points = SimpleNamespace(unit="points", effect=2.104, low=-1.0, high=5.2)
    assert ledger.effect_text(points) == "+2.10 [-1.00, +5.20]"
    ratio = SimpleNamespace(unit="ratio", effect=math.log(2), low=math.log(0.05), high=math.log(1234.0))
    assert ledger.effect_text(ratio) == "x2.00 [x0.05, x1.2e+03]"
    assert [ledger.amount_text(ratio, math.log(each)) for each in (0.1, 0.012, 999)] == ["x0.10", "x0.012", "x999.00"]


def test_recorded_kinds_of_evidence_and_papers_of_claims_are_known_ones():
    assert set(ledger.papers_table("evidence")["kind"]) <= {"paper", "scale", "stand-in", "choice"}
    assert set(ledger.papers_table("claims")["paper"]) <= {*ledger.papers()}
