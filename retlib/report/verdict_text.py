"""Verdicts in words: a line for each comparison, what they mean together, and what would decide those that are open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from retlib.report.claims import (
    CONTRADICTED,
    FIDELITY,
    HOLDS,
    INCONCLUSIVE,
    INDICATION,
    NO_EFFECT,
    NOT_TESTED,
    SIGNS,
    decisive,
    first_few,
    papers,
    seen,
)
from retlib.report.evidence import LEVEL, WORTH, Evidence
from retlib.report.records import BM25

DECIDED = (HOLDS, CONTRADICTED, NO_EFFECT)
# So many times as much data as here could still be gathered.
SOME = 10


def came_out(verdict: str, several: bool) -> str:
    """A verdict as a verb, of one claim or of several."""
    known = {
        HOLDS: ("holds", "hold"), NO_EFFECT: ("shows no effect", "show no effect"),
        INDICATION: ("has an indication", "have an indication"),
    }  # fmt: skip
    return known.get(verdict, (f"is {verdict}", f"are {verdict}"))[several]


def flat(verdicts: pd.DataFrame, shown: int | None = None) -> pd.DataFrame:
    """A ledger for printing: evidence as text, one line a claim; of its comparisons the first so many, or all."""
    evidence = []
    for row in verdicts.itertuples():
        told = [*(each.told for each in row.evidence), *(f"given {each.told}" for each in row.given)]
        asked = [f"as tested: {row.as_tested}"] * bool(row.as_tested)
        evidence.append("; ".join([row.reason + row.said, *first_few(told, shown), *asked]))  # it has one of the two
    return verdicts[["claim", "tier", "verdict", "p", "seeds", "fidelity"]].assign(evidence=evidence)


def line(each: Evidence) -> str:
    """A line for a comparison: what is compared, the values, the effect with its interval, and the note."""
    note = "; ".join(filter(None, (each.note, each.closed)))
    return each.told + (f" ({note})" if note else "")


def leans_against(row: Any) -> bool:
    """Whether a claim is inconclusive, and a comparison speaks against it before correction over the paper."""
    return row.verdict == INCONCLUSIVE and any(each.p_against < LEVEL for each in row.evidence)


def data_needed(row: Any) -> float:
    """How many times as much data makes an inconclusive claim hold; infinity where none is known to.

    That is if the effect of every comparison is as large as the paper prints, or as large as here where it prints none;
    of what is to be alike, if it is 0.
    """
    lacking = (each for each in row.evidence if not each.closed and each.p_for >= each.levels[0])
    return max((each.times(each.wanted, each.levels[0], each.power) for each in lacking), default=1.0)


def to_decide(row: Any) -> list[str]:
    """Of a claim that is inconclusive: how small an effect shows, and what it takes to see the paper's, or ours."""
    if row.verdict != INCONCLUSIVE:
        return []
    if leans_against(row):
        each = min(row.evidence, key=lambda each: each.p_against)
        beyond = abs(each.effect) - each.margin if each.alike else each.margin - each.effect
        # Of what is to be alike both sides are paid for; a step that falls says little of a line.
        takes = "" if each.step else each.takes(beyond, each.levels[1] / (1 + each.alike))
        told = f"{each.compared} speaks against the claim before correction over the paper, and not after it"
        return [f"to decide: {told}" + (f"; for that, one as large as here {takes}" if takes else "")]
    each = decisive(row)
    which = f" {each.compared}:" * (len(row.evidence) > 1)
    return [f"to decide:{which} after correction over the paper {each.decides(each.levels[0])}"]


def small(verdicts: pd.DataFrame) -> str:
    """A sentence on how many verdicts that say a side are of an effect of less than a point; "" without any such."""
    decided = verdicts[verdicts["verdict"].isin((HOLDS, CONTRADICTED))]
    found = [each for each in map(decisive, decided.itertuples()) if not each.margin and not each.ratio]
    few = sum(abs(each.effect) < WORTH for each in found)
    told = "Where a claim has no margin, ✓ and ✗ say on which side its effect lies, not how large it is"
    rest = f"{few} {'rests' if few == 1 else 'rest'}" if few else "none rests"
    which = f"of {len(found)} such verdict{'s' * (len(found) > 1)} {rest} on an effect of less than a point"
    return f"{told}: {which}." if found else ""


def sizes(verdicts: pd.DataFrame) -> str:
    """A sentence on the claims that hold with an effect of another size than the paper's; "" where it prints none."""
    held = verdicts.loc[verdicts["verdict"] == HOLDS, "evidence"]
    printed = [[each for each in found if each.paper is not None] for found in held]
    printed = [found for found in printed if found]
    smaller = sum(any(each.high < each.printed for each in found) for found in printed)
    larger = sum(any(each.low > each.printed for each in found) for found in printed)
    told = (
        f"✓ says that the direction holds: of {len(printed)} that are tested beside the paper's size, the 95 % interval"
    )
    return f"{told} of a comparison is below that size in {smaller}, and above it in {larger}." if printed else ""


def without_curve(verdicts: pd.DataFrame) -> str:
    """A sentence on the claims whose systems were trained here, and left no learning curve; "" if there are none."""
    bare = verdicts[[any(each.no_curve for each in found) for found in verdicts["evidence"]]]
    which = "; ".join(bare["statement"])
    said = "Claims on systems without a learning curve, of which the gate does not know whether they still learned"
    return f"{said}: {which}." if which else ""


def conditions(given: Iterable[Evidence]) -> list[str]:
    """A line for each condition, as `line`, marked as one."""
    return [f"given{'' if seen(each) else ', not seen'}: {line(each)}" for each in given]


def format_verdict(row: Any) -> str:
    """One row of a ledger for a terminal: claim and verdict, then a line for each comparison."""
    rests = [f"p = {row.p:.2g} after Holm's correction, seeds: {row.seeds}, on {FIDELITY.get(row.fidelity)}"]
    said = [row.reason + row.said, *([] if pd.isna(row.p) else rests), *map(line, row.evidence), *conditions(row.given)]
    said += to_decide(row)
    asked = [f"  as tested: {row.as_tested}"] if row.as_tested else []
    return "\n".join([row.statement, *asked, f"{SIGNS[row.verdict]} {row.verdict}", *(f"  {each}" for each in said)])


def unsettled(ledger: pd.DataFrame) -> str:
    """Why claims are open, and what it means that one is contradicted: paragraphs, "" where every claim holds."""
    opened = ledger[ledger["verdict"] == INCONCLUSIVE]
    against = sum(map(leans_against, opened.itertuples()))
    untested = ledger[ledger["verdict"] == NOT_TESTED]
    unfit = sum(map(bool, untested["evidence"]))
    narrower = ledger["narrower"][ledger["verdict"].isin(DECIDED)]
    contradicted = ledger[ledger["verdict"] == CONTRADICTED]
    lost = [bool({*BM25} & {*decisive(row).names[1:]}) for row in contradicted.itertuples()]  # to BM25, which is ahead
    behind = contradicted.loc[lost, "paper"].map({key: paper.name for key, paper in papers().items()})
    whose = ", ".join(f"{count} of {name}" for name, count in behind.value_counts().items())
    why = [
        f"Of the {len(opened)} that are inconclusive {_have(against)} a comparison that is significant against them "
        f"before the correction over the paper, and not after it; the other {_have(len(opened) - against)} at least "
        "one that is not significant."
        if len(opened)
        else "",
        _takes(opened[[not leans_against(row) for row in opened.itertuples()]]) if len(opened) else "",
        f"Of the {len(untested)} that are not tested {unfit} compare systems that were still improving when their "
        f"training ended, or that are not as good as the claim presupposes; for {len(untested) - unfit} there was no "
        "data, or no outcome that could speak against them."
        if len(untested)
        else "",
    ]
    what = [
        "✗ says that small models on little data contradict a claim, not that the paper is wrong; the top of its "
        "chapter says why, where we know."
        if len(contradicted) else "",
        f"In {len(behind)} ✗ BM25 is ahead of what the claim puts above it: one finding, told {len(behind)} times "
        f"({whose})."
        if len(behind) > 1 else "",
        small(ledger),
        sizes(ledger),
        f"Of the {len(narrower)} that are decided {narrower.sum()} were tested in another form than the paper's, such "
        "as a direction where it gives a size: their lines have the claim in italics, and after “as tested” what "
        "was tested."
        if narrower.any() else "",
    ]  # fmt: skip
    return "\n\n".join(filter(None, ["\n".join(f"- {each}" for each in why if each), " ".join(filter(None, what))]))


def _takes(opened: pd.DataFrame) -> str:
    """What would decide claims that nothing speaks against: a sentence on how many of them take how much more data."""
    times = np.array([data_needed(row) for row in opened.itertuples()])
    kinds = {
        f"show it with up to {SOME} times as much data": (times > 1) & (times <= SOME),
        "with more": (times > SOME) & (times < np.inf),
        "should have shown it already, so that it is probably smaller here": times == 1,
        "may never show it, as it is not beyond what the claim asks": times == np.inf,
    }
    counts = [f"{of.sum()} {how}" for how, of in kinds.items() if of.any()]
    told = "If the effect is as large as the paper prints, or as here where it prints none, of these"
    return f"{told} {'; '.join(counts)}." if counts else ""


def power(ledger: pd.DataFrame) -> str:
    """How comparisons over questions are tested, and how small a difference half of them would have seen, or ""."""
    found = [each for row in ledger.itertuples() for each in row.evidence if not each.ratio and not each.step]
    every = ledger["evidence"].map(len).sum()
    found = [each for each in found if each.counted == "questions" and not each.closed]
    least = pd.Series([each.smallest for each in found], dtype=float).dropna()
    return (
        f"Of {every} comparisons {len(least)} are of measures over questions: paired t-tests over questions and seeds, "
        f"corrected over their paper (Holm). Half of them are exact enough to find a true difference of "
        f"{least.median():.1f} points four times out of five, before the correction."
        if len(least) else ""
    )  # fmt: skip


def _have(count: int) -> str:
    return f"{count} {'has' if count == 1 else 'have'}"
