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
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from scipy.stats import false_discovery_control

from retlib.core.errors import require_one_of
from retlib.evaluation import results
from retlib.evaluation.measures import Comparison, holm
from retlib.report.claims import COLUMNS, CONDITION, TEST
from retlib.report.contrasts import LEVEL
from retlib.report.papers import joint_fidelity, papers, papers_table, places

HOLDS, AGAINST, NO_EFFECT = "holds", "against, here", "no effect"
CONTRADICTED, NOT_REPRODUCED = "contradicted", "not reproduced"
INCONCLUSIVE, INDICATION, NOT_TESTED = "inconclusive", "indication", "not tested"
# A sign for each verdict, so that it reads without colour.
SIGNS = {
    HOLDS: "✓", CONTRADICTED: "✗", NOT_REPRODUCED: "⊘", AGAINST: "↓", NO_EFFECT: "≈", INCONCLUSIVE: "~",
    INDICATION: "○", NOT_TESTED: "·",
}  # fmt: skip


def ledger(profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdicts on all claims of all papers, in the order of the book's parts."""
    for paper in papers_table("claims")["paper"].unique():
        require_one_of("a paper of claims.csv", paper, papers())
    return pd.concat([verdicts(paper, profile, source) for paper in papers()], ignore_index=True)


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdict on every claim of a paper, a row each, in the order of claims.csv.

    Beside its columns there are `test`, the verdict of the test alone; `verdict`, with what it is evidence of, and the
    `note` on that; `p`, on which it rests, corrected by Holm over the paper; `by_bh`, the verdict after Benjamini and
    Hochberg's correction; `speaks`, how many contrasts speak for the claim, against it, for no effect or are open;
    `seeds`; `fidelity` of the data to the paper's; `tests` and `conditions`, lists of lines of the chapters' tables,
    those of tests with `verdict`; `reason`, why it is not tested.
    """
    known = papers_table("claims").query("paper == @paper")
    load = cache(lambda chapter: results.load_table(chapter, profile, "claims", source))
    parts = []
    for claim in known.itertuples():
        table = load(claim.chapter) if claim.chapter else None
        mine = [] if table is None else table[table["claim"] == claim.id]
        why = f"not run at profile {profile}" if claim.chapter else "its part of the book is not written yet"
        parts.append(mine if len(mine) else pd.DataFrame([{"claim": claim.id, "role": TEST, "reason": why}]))
    lines = pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)
    tested = lines[(lines["role"] == TEST) & (lines["reason"] == "")]
    # Every contrast must speak for a claim, so that the largest p-value is the claim's.
    largest = tested.groupby("claim", sort=False)["p_for"].max()
    corrected = {"verdict": _corrected(tested, largest, holm), "by_bh": _corrected(tested, largest, _bh)}
    fidelity = places(paper, profile)["fidelity"]
    found = pd.DataFrame([_row(claim, lines, largest, corrected, fidelity) for claim in known.to_dict("records")])
    found.insert(0, "test", found["verdict"])
    notes = papers_table("evidence").query("profile == @profile").set_index("claim").reindex(found["id"])
    found["note"] = notes["note"].astype(object).where((found["test"] == AGAINST).array).fillna("").array
    # Against a claim is evidence on the paper's own material, or on our scale, our stand-in for its data, our choices.
    kinds = notes["kind"].eq("paper").map({True: CONTRADICTED, False: NOT_REPRODUCED}).where(notes["kind"].notna())
    for column in ("verdict", "by_bh"):
        found[column] = found[column].mask((found[column] == AGAINST) & kinds.notna().array, kinds.array)
    return found


def _bh(p_values: Any) -> np.ndarray:
    return false_discovery_control(np.asarray(p_values, dtype=float)) if len(p_values) else np.empty(0)


def _corrected(tested: pd.DataFrame, largest: pd.Series, correct: Callable) -> pd.DataFrame:
    # A contrast speaks for a claim if the claim would hold with it alone; any one may speak against it. What is closed
    # is corrected for, too: whether it is may depend on its effect.
    alone = [correct([*largest.drop(line.claim), line.p_for])[-1] for line in tested.itertuples()]
    p = pd.DataFrame({"p_for": np.array(alone, float)}, tested.index)
    p["p_against"], p["p_none"] = correct(tested["p_against"]), correct(tested["p_none"])
    kinds = {AGAINST: "p_against", HOLDS: "p_for", NO_EFFECT: "p_none"}
    return p.assign(speaks=np.select([p[name] < LEVEL for name in kinds.values()], [*kinds], INCONCLUSIVE))


def _row(claim: dict, lines: pd.DataFrame, largest: pd.Series, corrected: dict, fidelity: pd.Series) -> dict[str, Any]:
    mine = lines[lines["claim"] == claim["id"]]
    row = {
        **claim, "verdict": NOT_TESTED, "by_bh": NOT_TESTED, "p": np.nan, "speaks": {},
        "seeds": 0, "fidelity": "", "tests": [], "conditions": [], "reason": "; ".join(mine["reason"].unique()),
    }  # fmt: skip
    if row["reason"]:
        return row
    tests, conditions = (mine[mine["role"] == role] for role in (TEST, CONDITION))
    p = {name: each.loc[tests.index] for name, each in corrected.items()}
    # The level that Holm's correction leaves to one more claim beside the others.
    others = largest.drop(claim["id"])
    level = LEVEL / (len(others) + 1 - (holm([*others, 1.0])[:-1] < LEVEL).sum())
    trained = tests["seeds"][(tests["seeds"] > 1) | tests["one_seed"]]
    sets = sorted({name for each in mine["data_sets"] for name in json.loads(each)})
    row |= {
        "seeds": int(trained.min()) if len(trained) else 1,
        "fidelity": joint_fidelity(fidelity[sets].tolist()), "conditions": [*conditions.itertuples()],
        "tests": [*tests.assign(verdict=p["verdict"]["speaks"], level=level).itertuples()],
    }  # fmt: skip
    reasons = [*tests["closed"][tests["closed"] != ""]]
    reasons += [
        f"presupposes {line.label} above {amount(line, line.margin)}; {line.closed or f'here {effect(line)}'}"
        for line in row["conditions"]
        if not is_seen(line)
    ]
    if reasons:
        return row | {"reason": "; ".join(dict.fromkeys(reasons))}
    (verdict, rests), (by_bh, _) = map(_decide, p.values())
    if tests["one_seed"].any():
        verdict = by_bh = INDICATION
    speaks = p["verdict"]["speaks"].value_counts().to_dict()
    return row | {"verdict": verdict, "by_bh": by_bh, "p": rests, "speaks": speaks}


def _decide(p: pd.DataFrame) -> tuple[str, float]:
    speaks = {*p["speaks"]}
    if AGAINST in speaks:
        return AGAINST, p["p_against"].min()
    if NO_EFFECT in speaks and HOLDS not in speaks:
        return NO_EFFECT, p["p_none"].min()
    return HOLDS if speaks == {HOLDS} else INCONCLUSIVE, min(p["p_for"].max(), p["p_against"].min())


def is_seen(condition: Any) -> bool:
    """Return whether a condition speaks for itself: without correction, as it decides no claim."""
    return not condition.closed and condition.p_for < LEVEL


# --- one contrast, for tables and figures ------------------------------------------------------------


def decisive(row: Any) -> Any:
    """Return the contrast that a verdict hangs on: what speaks most against the claim, or least for it."""
    key = {AGAINST: "p_against", NO_EFFECT: "p_none"}.get(row.test)
    return min(row.tests, key=lambda line: getattr(line, key)) if key else max(row.tests, key=lambda line: line.p_for)


def amount(line: Any, effect: float) -> str:
    """Return an effect in the unit of a contrast: ``+2.10``, or ``x3.23`` of a ratio."""
    if line.unit == "points":
        return f"{effect:+.2f}"
    ratio = math.exp(effect)
    return f"x{ratio:.2f}" if 0.1 <= ratio < 1000 else f"x{ratio:.2g}"


def effect(line: Any) -> str:
    """Return a contrast's effect with its 95 % interval: ``+2.10 [+1.20, +3.00]``."""
    return f"{amount(line, line.effect)} [{amount(line, line.low)}, {amount(line, line.high)}]"


def printed(line: Any) -> float:
    """Return the effect that the paper prints, on the scale of `effect`; NaN where it prints none."""
    return math.log(line.paper) if line.unit == "ratio" and line.paper > 0 else line.paper


def times_as_much(row: Any) -> float:
    """Return how many times as much data makes an inconclusive claim hold; infinity where none does.

    Each effect is as large as the paper prints, or as here where it prints none; of what is to be alike, 0.
    """
    needed = [1.0]
    for line in row.tests:
        if not line.closed and line.verdict != HOLDS:
            there = line.effect if math.isnan(printed(line)) else printed(line)
            beyond = line.margin if line.alike else there - line.margin
            error = (line.high - line.low) / 2 / special.stdtrit(line.freedom, 0.975)
            # Both of two tests must pass for two to be alike.
            least = Comparison(0.0, error, line.freedom, 0, 0).smallest(line.level, 0.9 if line.alike else 0.8)
            needed.append(max(1, math.ceil((least / beyond) ** 2)) if beyond > 0 else math.inf)
    return max(needed)
