"""Verdicts: what the chapters' tables `claims` say, corrected over each paper (front page, pages of claims, answers).

Each contrast has one-sided p-values for its claim and against it, and one for no effect of as much as a point. A claim
*holds* if every contrast speaks for it (the largest p-value is under 0.05 after Holm's correction over the claims of
the paper). The test goes *against* it if one contrast does, corrected over all contrasts of the paper; a recorded note
makes that *contradicted* or *not reproduced*. It shows *no effect* if one contrast shows none, corrected likewise, and
none speaks for it; else it is *inconclusive*. A trained system of one seed gives an *indication*. A claim is *not
tested* where its chapter says why, where the gate shut a contrast, and where a condition is not seen. This module knows
no claim by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.report.claims import COLUMNS, CONDITION, TEST
from retlib.report.contrasts import LEVEL
from retlib.report.papers import collections, joint_fidelity, papers, papers_table

HOLDS, AGAINST, NO_EFFECT = "holds", "against, here", "no effect"
CONTRADICTED, NOT_REPRODUCED = "contradicted", "not reproduced"
INCONCLUSIVE, INDICATION, NOT_TESTED = "inconclusive", "indication", "not tested"
# A sign for each verdict, so that it reads without colour.
SIGNS = {
    HOLDS: "✓", CONTRADICTED: "✗", NOT_REPRODUCED: "⊘", AGAINST: "↓", NO_EFFECT: "≈", INCONCLUSIVE: "~",
    INDICATION: "○", NOT_TESTED: "·",
}  # fmt: skip
UNTESTED = dict.fromkeys(("test", "verdict", "by_bh"), NOT_TESTED) | dict.fromkeys(("note", "fidelity", "reason"), "")
UNTESTED |= {"p": np.nan, "seeds": 0, "speaks": {}, "tests": [], "conditions": []}


def ledger(profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdicts on all claims of all papers, in the order of the book's parts."""
    return pd.concat([verdicts(paper, profile, source) for paper in papers()], ignore_index=True)


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdict on every claim of a paper, a row each, in the order of claims.csv.

    Beside its columns: `test`, the verdict of the test alone; `verdict`, with what it is evidence of, and the `note` on
    that; its `p` (Holm); `by_bh`, the verdict after Benjamini and Hochberg's correction; how many contrasts are of each
    verdict (`speaks`); `seeds`; `fidelity` of the data; `tests` and `conditions`, lists of lines of the chapters'
    tables, those of tests with `verdict`; `reason`, why it is not tested.
    """
    from scipy.stats import false_discovery_control  # half a second, which a desk does not wait for

    claims, rows = papers_table("claims").query("paper == @paper"), []
    tables = (results.load_table(each, profile, "claims", source) for each in claims["chapter"].unique() if each)
    tables = [table for table in tables if table is not None] or [pd.DataFrame(columns=COLUMNS)]
    lines = pd.concat(tables, ignore_index=True)
    lines = lines[lines["claim"].isin(claims["id"])]
    tests = lines[(lines["role"] == TEST) & (lines["reason"] == "")]
    corrected = [_corrected(tests, correct) for correct in (holm, false_discovery_control)]
    notes = papers_table("evidence").query("profile == @profile").set_index("claim").to_dict("index")
    fidelity = collections(paper, profile)["fidelity"]
    for claim in claims.to_dict("records"):
        name, of_claim = claim["id"], lines[lines["claim"] == claim["id"]]
        why = f"not run at profile {profile}" if claim["chapter"] else "its part of the book is not written yet"
        verdict = _judge(of_claim, *corrected, notes.get(name), fidelity) if len(of_claim) else {"reason": why}
        rows.append(claim | UNTESTED | verdict)
    return pd.DataFrame(rows)


def _corrected(tests: pd.DataFrame, correct: Callable) -> pd.DataFrame:
    # Every contrast must speak for a claim, so that the largest p-value is the claim's, and one speaks for it if the
    # claim would hold with it alone. Any one may speak against it. What is closed is corrected for, too: whether it is
    # may depend on its effect.
    largest = tests.groupby("claim", sort=False)["p_for"].max()
    p = {name: correct(tests[name].to_numpy(float)) for name in ("p_against", "p_none")}
    p["p_for"] = [correct([*largest.drop(line.claim), line.p_for])[-1] for line in tests.itertuples()]
    kinds = {AGAINST: "p_against", HOLDS: "p_for", NO_EFFECT: "p_none"}
    p = pd.DataFrame(p, tests.index, dtype=float)
    return p.assign(speaks=np.select([p[name] < LEVEL for name in kinds.values()], [*kinds], INCONCLUSIVE))


def _judge(
    lines: pd.DataFrame, by_holm: pd.DataFrame, by_bh: pd.DataFrame, note: dict | None, fidelity: pd.Series
) -> dict:
    if (lines["reason"] != "").any():
        return {"reason": "; ".join(lines["reason"].unique())}
    tests, conditions = (lines[lines["role"] == role] for role in (TEST, CONDITION))
    by_holm, by_bh = by_holm.loc[tests.index], by_bh.loc[tests.index]
    sets = sorted({name for each in lines["data_sets"] for name in json.loads(each)})
    row = {
        "seeds": int(min(tests["seeds"][(tests["seeds"] > 1) | tests["one_seed"]], default=1)),
        "fidelity": joint_fidelity(fidelity[sets].tolist()), "conditions": [*conditions.itertuples()],
        "tests": [*tests.assign(verdict=by_holm["speaks"]).itertuples()],
    }  # fmt: skip
    reasons = [*filter(None, tests["closed"])] + [
        f"presupposes {line.label} above {amount_text(line, line.margin)}; {line.closed or f'here {effect_text(line)}'}"
        for line in row["conditions"]
        if not is_seen(line)
    ]
    if reasons:
        return row | {"reason": "; ".join(dict.fromkeys(reasons))}
    (test, p), (other, _) = _decide(by_holm), _decide(by_bh)
    if tests["one_seed"].any():
        test = other = INDICATION
    # Against a claim is evidence on the paper's own material, or on our scale, our stand-in for its data, our choices.
    against = {AGAINST: CONTRADICTED if note["kind"] == "paper" else NOT_REPRODUCED} if note else {}
    row |= {"test": test, "verdict": against.get(test, test), "by_bh": against.get(other, other), "p": p}
    row["note"] = note["note"] if note and test == AGAINST else ""
    return row | {"speaks": by_holm["speaks"].value_counts().to_dict()}


def _decide(p: pd.DataFrame) -> tuple[str, float]:
    speaks = {*p["speaks"]}
    if AGAINST in speaks:
        return AGAINST, p["p_against"].min()
    if NO_EFFECT in speaks and HOLDS not in speaks:
        return NO_EFFECT, p["p_none"].min()
    return HOLDS if speaks == {HOLDS} else INCONCLUSIVE, min(p["p_for"].max(), p["p_against"].min())


# --- one contrast, for tables and figures ------------------------------------------------------------


def is_seen(condition: Any) -> bool:
    """Return whether a condition speaks for itself: without correction, as it decides no claim."""
    return not condition.closed and condition.p_for < LEVEL


def decisive(row: Any) -> Any:
    """Return the contrast that a verdict hangs on: what speaks most against the claim, or least for it."""
    if row.test in (AGAINST, NO_EFFECT):
        return min(row.tests, key=lambda line: line.p_against if row.test == AGAINST else line.p_none)
    return max(row.tests, key=lambda line: line.p_for)


def amount_text(line: Any, effect: float) -> str:
    """Return an effect in the unit of a contrast: ``+2.10``, or ``x3.23`` of a ratio."""
    if line.unit == "points":
        return f"{effect:+.2f}"
    ratio = math.exp(effect)
    return f"x{ratio:.2f}" if 0.1 <= ratio < 1000 else f"x{ratio:.2g}"


def effect_text(line: Any) -> str:
    """Return a contrast's effect with its 95 % interval: ``+2.10 [+1.20, +3.00]``."""
    return f"{amount_text(line, line.effect)} [{amount_text(line, line.low)}, {amount_text(line, line.high)}]"


def paper_effect(line: Any) -> float:
    """Return the effect that the paper prints, on the scale of a contrast's `effect`; NaN where it prints none."""
    return math.log(line.paper) if line.unit == "ratio" and line.paper > 0 else line.paper
