"""From recorded per-query values to verdicts on the papers' claims.

The rules stand here and the bindings in ``data/papers/bindings.yaml``; neither knows a
result. Every claim comes down to comparisons that must all hold. Each comparison has two
one-sided p-values, for the claim and against it. A claim *holds* if every comparison speaks
for it (the largest p-value is under 0.05 after Holm's correction over the claims of the
paper), is *contradicted* if one speaks against it (corrected over all comparisons of the
paper), and is *inconclusive* otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from retlib.core import runtime
from retlib.core.errors import DataError, require_one_of
from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.report.curve_evidence import TESTS as CURVE_TESTS
from retlib.report.evidence import TESTS as RANKING_TESTS
from retlib.report.evidence import Evidence, Records

TESTS = {**RANKING_TESTS, **CURVE_TESTS}
LEVEL = 0.05
HOLDS, INCONCLUSIVE, CONTRADICTED, NOT_TESTED = "holds", "inconclusive", "contradicted", "not tested"
# A sign for each verdict, so that it reads without colour.
SIGNS = {HOLDS: "✓", INCONCLUSIVE: "~", CONTRADICTED: "✗", NOT_TESTED: "·"}


def papers_table(name: str) -> pd.DataFrame:
    """One of the tables of ``data/papers``: claims, tables, settings, artefacts or inconsistencies."""
    return pd.read_csv(runtime.root() / "data" / "papers" / f"{name}.csv", keep_default_na=False)


def reported(paper: str, artefact: str) -> pd.DataFrame:
    """The numbers that a paper reports in one table, figure or section of its text."""
    found = papers_table("tables")
    return found[(found["paper"] == paper) & (found["artefact"] == artefact)].reset_index(drop=True)


def reported_values(paper: str, artefact: str, data_set: str, rows: Mapping[str, str]) -> dict[str, float]:
    """A paper's numbers for our systems.

    Parameters
    ----------
    rows : mapping
        Our system to the name of the row in the paper's table, as tables.csv has it.
    """
    table = reported(paper, artefact)
    values = table[table["dataset"] == data_set].set_index("row")["value"]
    missing = sorted(set(rows.values()) - set(values.index))
    if missing:
        raise DataError(
            f"{paper} {artefact} has no row {missing[0]!r} for {data_set}. It has: {', '.join(values.index)}"
        )
    return {system: float(values[row]) for system, row in rows.items() if values[row] != ""}


def bindings() -> dict:
    """The bindings of claims to comparisons, and of the papers' data sets to collections."""
    path = runtime.root() / "data" / "papers" / "bindings.yaml"
    return _parsed(path, path.stat().st_mtime_ns)


@cache  # every claim asks for it, and parsing takes a good part of a second
def _parsed(path: Path, written: int) -> dict:
    return yaml.safe_load(path.read_text())


def gather(paper: str, profile: str, source: str | None = None) -> tuple[dict[str, list[Evidence]], dict[str, str]]:
    """The evidence on each claim of a paper, and for each claim without evidence the reason."""
    bound = bindings()
    load = cache(lambda experiment: results.load(experiment, profile, source))
    evidence, reasons = {}, {}
    for claim_id in papers_table("claims").query("paper == @paper")["id"]:
        claim = bound["claims"].get(claim_id)
        if claim is None:
            reasons[claim_id] = "its part of the book is not written yet"
            continue
        # What a comparison says for itself counts before what is said of all.
        asked = [{"measure": "AP@100", **claim, **spec} for spec in claim["each"]]
        for each in asked:
            require_one_of(f"test of {claim_id}", each["test"], TESTS)
        try:
            evidence[claim_id] = [
                found
                for each in asked
                for found in TESTS[each["test"]](
                    Records(profile, bound["collections"][paper], each["measure"], load), each
                )
            ]
        except DataError as error:
            reasons[claim_id] = str(error)
    return evidence, reasons


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """The verdict on every claim of a paper.

    Returns
    -------
    DataFrame
        A row for each claim, in the order of claims.csv: `paper`, `claim`, `tier`, `statement`,
        `verdict`, `p` (Holm-corrected within the paper), `seeds`, `closeness` (how close the
        data are to the paper's), `evidence` (a list of `Evidence`), `reason`.
    """
    evidence, reasons = gather(paper, profile, source)
    # Every comparison must speak for a claim, so the largest p-value is the claim's; any one may speak against it.
    p_for = dict(zip(evidence, holm([max(each.p_for for each in found) for found in evidence.values()]), strict=True))
    flat = [claim_id for claim_id, found in evidence.items() for _ in found]
    p_against = pd.Series(holm([each.p_against for found in evidence.values() for each in found]), index=flat)
    against = p_against.groupby(level=0).min()
    rows = []
    for claim in papers_table("claims").query("paper == @paper").to_dict("records"):
        mine = evidence.get(claim["id"], [])
        verdict, p = _decide(p_for[claim["id"]], against[claim["id"]]) if mine else (NOT_TESTED, float("nan"))
        rows.append(
            {
                "paper": paper,
                "claim": claim["id"],
                "tier": claim["tier"],
                "statement": claim["statement"],
                "verdict": verdict,
                "p": p,
                "seeds": min((each.seeds for each in mine), default=0),
                "closeness": _closeness(paper, claim["id"], profile) if mine else "",
                "evidence": mine,
                "reason": reasons.get(claim["id"], ""),
            }
        )
    return pd.DataFrame(rows)


def _decide(p_for: float, p_against: float) -> tuple[str, float]:
    """The verdict, and the corrected p-value that it rests on."""
    if p_against < LEVEL:
        return CONTRADICTED, p_against
    return (HOLDS if p_for < LEVEL else INCONCLUSIVE), p_for


def _closeness(paper: str, claim_id: str, profile: str) -> str:
    """`stand-in` if any of a claim's data sets is one, else `part`."""
    bound = bindings()
    used = compared_on(bound["claims"][claim_id])
    return joint_closeness(bound["collections"][paper][data_set][profile] for data_set in used)


def joint_closeness(places: Iterable[Mapping]) -> str:
    """`stand-in` if one of the collections that play data sets is one, else `part`."""
    return "stand-in" if "stand-in" in {place["closeness"] for place in places} else "part"


def compared_on(claim: Mapping) -> list[str]:
    """The paper's data sets on which a claim's binding compares, each once."""
    found = [name for spec in claim.get("each", ()) for name in _data_sets(spec)]
    return list(dict.fromkeys(found))


def tested_in(claim: Mapping) -> list[str]:
    """The notebooks whose rows test a claim, in order."""
    return sorted({name for spec in claim.get("each", ()) for name in _experiments(spec.values())})


def _experiments(values: Iterable) -> Iterator[str]:
    """The experiments of all systems ("experiment:name") within a binding."""
    for value in values:
        if isinstance(value, str):
            yield from re.findall(r"^(\d\d_\w+):", value)
        elif isinstance(value, (list, tuple)):
            yield from _experiments(value)


def _data_sets(spec: Mapping) -> list[str]:
    return [term[2] for term in spec["terms"]] if "terms" in spec else spec["data"].split("+")


def ledger(profile: str, source: str | None = None) -> pd.DataFrame:
    """The verdicts on all claims of all papers."""
    papers = papers_table("claims")["paper"].unique()
    bound = bindings()["collections"]
    frames = [verdicts(paper, profile, source) if paper in bound else _unwritten(paper) for paper in papers]
    return pd.concat(frames, ignore_index=True)


def _unwritten(paper: str) -> pd.DataFrame:
    claims = papers_table("claims").query("paper == @paper")
    return pd.DataFrame(
        [
            {
                "paper": paper, "claim": claim["id"], "tier": claim["tier"], "statement": claim["statement"],
                "verdict": NOT_TESTED, "p": float("nan"), "seeds": 0, "closeness": "", "evidence": [],
                "reason": "its part of the book is not written yet",
            }
            for claim in claims.to_dict("records")
        ]
    )  # fmt: skip


def first_few(texts: Sequence[str], shown: int | None) -> list[str]:
    """The first so many texts, or all; and, where some are left out, how many."""
    count = len(texts) if shown is None else shown
    return [*texts[:count], *([f"{len(texts) - count} more"] if len(texts) > count else [])]


def flat(verdicts: pd.DataFrame, shown: int | None = None) -> pd.DataFrame:
    """A ledger for printing: evidence as text, one line a claim; of its comparisons the first so many, or all."""
    columns = ["claim", "tier", "verdict", "p", "seeds", "closeness"]
    frame = verdicts[columns].copy()
    frame["evidence"] = [
        "; ".join(first_few([f"{e.label}: {e.text}" for e in row.evidence], shown)) or row.reason
        for row in verdicts.itertuples()
    ]
    return frame


def compared(evidence: Iterable[Evidence]) -> list[str]:
    """A line for each comparison: what is compared, the effect with its interval, and the note."""
    return [f"{e.label}: {e.text}" + (f" ({e.note})" if e.note else "") for e in evidence]


def told(row: Any) -> str:
    """One row of a ledger for a terminal: claim and verdict, then a line for each comparison."""
    data = {"part": "a part of the paper's data", "stand-in": "a stand-in for the paper's data"}
    rests = f"p = {row.p:.2g} after Holm's correction, seeds: {row.seeds}, on {data.get(row.closeness)}"
    said = [rests, *compared(row.evidence)] if row.evidence else [row.reason]
    return "\n".join([row.statement, f"{SIGNS[row.verdict]} {row.verdict}", *(f"  {line}" for line in said)])
