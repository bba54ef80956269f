"""What the papers claim and report, and from recorded values to verdicts on their claims.

The papers' own words and numbers are in ``data/papers``. The rules stand here and the bindings in its
``bindings.yaml``; neither knows a result. Every claim comes down to comparisons that must all hold. Each
comparison has one-sided p-values for the claim and against it, and one for no effect of as much as a point. A claim
*holds* if every comparison speaks for it (the largest p-value is under 0.05 after Holm's correction over the claims of
the paper), is *contradicted* if one speaks against it (corrected over all comparisons of the paper), shows *no effect*
if one shows none (corrected likewise) and none speaks for it, and is *inconclusive* otherwise. Where a trained system
has one seed there is an *indication*, whatever the p-values. A claim is *not tested* where its binding says why; where
rows are missing; where its data sets are one collection, unless they repeat one comparison; where a comparison is
closed, as its systems still learn or are below their start (`retlib.report.gate`), or cannot differ; and where one of
its conditions is not seen. These are comparisons without which the claim says nothing: each must speak for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.report.curve_evidence import TESTS as CURVE_TESTS
from retlib.report.evidence import LEVEL, Evidence, in_points, printed
from retlib.report.evidence import TESTS as RANKING_TESTS
from retlib.report.gate import gated
from retlib.report.records import Records, bindings, called, named, used
from retlib.report.seed_evidence import TESTS as SEED_TESTS

TESTS = {**RANKING_TESTS, **CURVE_TESTS, **SEED_TESTS}
HOLDS, CONTRADICTED, NO_EFFECT = "holds", "contradicted", "no effect"
INCONCLUSIVE, INDICATION, NOT_TESTED = "inconclusive", "indication", "not tested"
# A sign for each verdict, so that it reads without colour.
SIGNS = {HOLDS: "✓", CONTRADICTED: "✗", NO_EFFECT: "≈", INCONCLUSIVE: "~", INDICATION: "○", NOT_TESTED: "·"}
# Where one seed points that would be a verdict with several.
POINTS = {HOLDS: "for", INCONCLUSIVE: "open", CONTRADICTED: "against", NO_EFFECT: "no effect"}
# What a binding says of its claim, and not of each comparison.
OF_THE_CLAIM = ("each", "given", "not_tested", "one_is_enough", "as_tested", "remark", "numbers")
SUBSET, STAND_IN = "subset", "stand-in"
FIDELITY = {SUBSET: "a subset of the paper's data", STAND_IN: "a stand-in for the paper's data"}


# --- the papers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """What ``papers.yaml`` says of a paper.

    Parameters
    ----------
    chapters : sequence of str
        The notebooks whose rows test its claims.
    pages : mapping
        Template to the page that is made of it for this paper.
    notes : mapping
        Template to what that page says of this paper alone.
    """

    key: str
    part: str
    name: str
    authors: str
    title: str
    link: str
    chapters: Sequence[str]
    pages: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Part and name, as tables and figures call it."""
        return f"{self.part}  {self.name}"


def papers() -> dict[str, Paper]:
    """The papers by key, in the order of the book's parts."""
    return {key: Paper(key, **said) for key, said in notebook_files.papers(runtime.root()).items()}


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
    for row in rows.values():
        require_one_of(f"row of {paper} {artefact} for {data_set}", row, values.index)
    return {system: float(values[row]) for system, row in rows.items() if values[row] != ""}


# --- the bindings --------------------------------------------------------------------------------------


def compared(claim: Mapping) -> list[tuple[str, str]]:
    """The systems (``experiment:name``) that a claim's binding compares, each with the paper's data set."""
    return [place for part in ("each", "given") for spec in claim.get(part, ()) for place in used(spec)]


def asked(claim: Mapping, part: str = "each") -> list[dict]:
    """A claim's comparisons, or its conditions (`given`), complete: what one says for itself counts first."""
    common = {name: value for name, value in claim.items() if name not in OF_THE_CLAIM}
    return [{"measure": "AP@100", **common, **spec} for spec in claim.get(part, ())]


def untested(claim: Mapping, profile: str) -> str:
    """Why a claim's binding says that it is not tested at a profile; "" where it is."""
    reason = claim.get("not_tested", "")
    return reason.get(profile, "") if isinstance(reason, Mapping) else reason


def compared_on(claim: Mapping) -> list[str]:
    """The paper's data sets on which a claim's binding compares, each once."""
    return list(dict.fromkeys(data_set for _, data_set in compared(claim)))


def tested_in(claim: Mapping) -> list[str]:
    """The notebooks whose rows test a claim, in order."""
    return sorted({named(system)[0] for system, _ in compared(claim)})


def joint_fidelity(places: Iterable[Mapping]) -> str:
    """`stand-in` if one of the collections that stand for data sets is one, else `subset`."""
    return STAND_IN if any(place["fidelity"] == STAND_IN for place in places) else SUBSET


# --- the verdicts --------------------------------------------------------------------------------------


def loader(profile: str, source: str | None) -> Callable[[str], results.Results | None]:
    """What gives the results of an experiment, each read once; see `retlib.evaluation.results.load`."""
    return cache(lambda experiment: results.load(experiment, profile, source))


@dataclass(frozen=True)
class Gathered:
    """What is known of a claim.

    Parameters
    ----------
    evidence, given : sequence of Evidence
        Its comparisons and its conditions.
    reason : str
        Why there is no evidence; "" where there is.
    as_tested : str
        What is tested, where that is not what the paper says, or what a reader must know of it; else "".
    narrower : bool
        Whether it is not what the paper says.
    """

    evidence: Sequence[Evidence] = ()
    given: Sequence[Evidence] = ()
    reason: str = ""
    as_tested: str = ""
    narrower: bool = False


def gather(paper: str, profile: str, source: str | None = None) -> dict[str, Gathered]:
    """The evidence on each claim of a paper."""
    bound, gathered = bindings(), {}
    load, places = loader(profile, source), bound["collections"].get(paper, {})
    # One for each measure: it remembers the variance between seeds of whole chapters.
    of = cache(lambda measure: Records(profile, places, measure, load))
    for claim_id in papers_table("claims").query("paper == @paper")["id"]:
        claim = bound["claims"].get(claim_id)
        if claim is None:
            gathered[claim_id] = Gathered(reason="its part of the book is not written yet")
            continue
        for spec in (spec for part in ("each", "given") for spec in asked(claim, part)):
            require_one_of(f"test of {claim_id}", spec["test"], TESTS)
        numbers = {name: of("").number(*place) for name, place in claim.get("numbers", {}).items()}
        remark = f"as the paper says it; {claim['remark']}" if "remark" in claim else ""
        tested = {"as_tested": claim.get("as_tested", remark).format(**numbers), "narrower": "as_tested" in claim}
        try:
            require(not (reason := untested(claim, profile)), reason, DataError)
            _on_enough(claim, of(""))
            found = [_all_found(claim, part, of) for part in ("each", "given")]
            gathered[claim_id] = Gathered(*found, **tested)
        except DataError as error:
            gathered[claim_id] = Gathered(reason=str(error), **tested)
    return gathered


def _on_enough(claim: Mapping, records: Records) -> None:
    """Whether the data sets of a claim are as many collections; `DataError` if not: one is no sample of several."""
    data_sets = compared_on(claim)
    here = sorted({called(records.collection(data_set)) for data_set in data_sets})
    enough = claim.get("one_is_enough", False) or len(here) == len(data_sets)
    require(enough, f"needs {len(data_sets)} collections, here are {len(here)}: {', '.join(here)}", DataError)


def _once(asked: Iterable[Mapping], records: Records) -> list[Mapping]:
    """Comparisons, each once: those of several data sets are one where one collection stands for them."""

    def key(spec: Mapping) -> str:
        if "terms" in spec:
            here = {"terms": [(weight, system, records.collection(on)) for weight, system, on in spec["terms"]]}
        else:
            here = {"data": list(records.collections(spec["data"]))}
        return results.as_json({name: value for name, value in spec.items() if name != "paper"} | here)

    return list({key(spec): spec for spec in reversed(asked)}.values())[::-1]


def _all_found(claim: Mapping, part: str, of: Callable[[str], Records]) -> list[Evidence]:
    """What the comparisons of a claim find, or its conditions: closed where one is none, with the paper's effect."""
    found = []
    for spec in _once(asked(claim, part), of("")):
        records = of(spec["measure"])
        for each in TESTS[spec["test"]](records, spec):
            found.append(replace(gated(records, spec, each, part == "given"), paper=printed(spec)))
    return found


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """The verdict on every claim of a paper.

    Returns
    -------
    DataFrame
        A row for each claim, in the order of claims.csv: `paper`, `claim`, `tier`, `statement`, `as_tested`,
        `narrower` (whether that is another form of the claim), `verdict`, `said` (how many comparisons speak for it
        and against it), `p` (Holm-corrected within the paper), `seeds`, `fidelity` (`subset` or `stand-in`, of the
        data to the paper's), `evidence` (a list of `Evidence`),
        `given` (the same of its conditions), `reason` (why it is not tested).
    """
    bound, gathered = bindings(), gather(paper, profile, source)
    evidence = {name: each.evidence for name, each in gathered.items() if each.evidence}
    # Every comparison must speak for a claim, so the largest p-value is the claim's; any one may speak against it.
    # What is closed is corrected for, too: whether it is may depend on its effect.
    largest = {name: max(each.p_for for each in found) for name, found in evidence.items()}
    flat = [name for name, found in evidence.items() for _ in found]
    every = pd.DataFrame([(each.p_against, each.p_none) for found in evidence.values() for each in found], index=flat)
    corrected = every.apply(holm)
    rows = []
    for claim in papers_table("claims").query("paper == @paper").itertuples():
        mine, known = evidence.get(claim.id, []), gathered[claim.id]
        given, reason = known.given, known.reason
        verdict, p, said = NOT_TESTED, float("nan"), ""
        if mine:
            others = [value for name, value in largest.items() if name != claim.id]
            # A comparison speaks for a claim if the claim would hold with it alone.
            p_for = [float(holm([*others, each.p_for])[-1]) for each in mine]
            against, place = every[0].tolist(), flat.index(claim.id)
            levels = [(_left(others), _left(against[:i] + against[i + 1 :])) for i in range(place, place + len(mine))]
            mine = [replace(each, levels=both) for each, both in zip(mine, levels, strict=True)]
            verdict, p, said, reason = _decide(mine, given, p_for, *corrected.loc[[claim.id]].to_numpy().T)
        used_on = compared_on(bound["claims"][claim.id]) if mine else ()
        places = [bound["collections"][paper][data_set][profile] for data_set in used_on]
        rows.append(
            {
                "paper": paper, "claim": claim.id, "tier": claim.tier, "statement": claim.statement,
                "as_tested": known.as_tested, "narrower": known.narrower,
                "verdict": verdict, "said": said, "p": p,
                # What is not trained, such as BM25, has one seed for all.
                "seeds": min((each.seeds for each in mine if each.seeds > 1 or each.one_seed), default=int(bool(mine))),
                "fidelity": joint_fidelity(places) if mine else "", "evidence": mine, "given": list(given),
                "reason": reason,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _left(others: Sequence[float]) -> float:
    """The level that Holm's correction leaves to one more p-value beside others."""
    return LEVEL / (len(others) + 1 - (holm([*others, 1.0])[:-1] < LEVEL).sum())


def first_few(texts: Sequence[str], shown: int | None) -> list[str]:
    """The first so many texts, or all; and, where some are left out, how many."""
    count = len(texts) if shown is None else shown
    return [*texts[:count], *([f"{len(texts) - count} more"] if len(texts) > count else [])]


def _decide(
    evidence: Sequence[Evidence],
    given: Sequence[Evidence],
    p_for: Sequence[float],
    p_against: Sequence[float],
    p_none: Sequence[float],
) -> tuple[str, float, str, str]:
    """The verdict, the corrected p-value that it rests on, what its comparisons say, and why there is no verdict."""
    reasons = [each.closed for each in evidence if each.closed]
    reasons += [presupposed(each) for each in given if not seen(each)]
    reasons = list(dict.fromkeys(reasons))
    if reasons:
        return NOT_TESTED, float("nan"), "", "; ".join(first_few(reasons, 2))
    speaks = list(map(_speaks, p_for, p_against, p_none))
    kinds = Counter(speaks)
    said = f"{kinds[HOLDS]} of {len(speaks)} comparison{'s' * (len(speaks) > 1)} for"
    said += f", {kinds[CONTRADICTED] or 'none'} against"
    said += "".join(f", {kinds[each]} {POINTS[each]}" for each in (NO_EFFECT, INCONCLUSIVE) if kinds[each])
    opened = [of for each, of in zip(speaks, evidence, strict=True) if each == INCONCLUSIVE]
    alone = {"for": sum(of.p_for < LEVEL for of in opened), "against": sum(of.p_against < LEVEL for of in opened)}
    told = ", ".join(f"{count} of these {word}" for word, count in alone.items() if count)
    said += f" ({told}, before correction)" * bool(told)
    if kinds[CONTRADICTED]:
        verdict, p = CONTRADICTED, min(p_against)
    elif kinds[NO_EFFECT] and not kinds[HOLDS]:
        verdict, p = NO_EFFECT, min(p_none)
    else:
        verdict, p = HOLDS if kinds[HOLDS] == len(speaks) else INCONCLUSIVE, min(max(p_for), min(p_against))
    if any(each.one_seed for each in evidence):
        return INDICATION, p, f"one seed: {POINTS[verdict]}; {said}", ""
    return verdict, p, said, ""


def _speaks(p_for: float, p_against: float, p_none: float) -> str:
    """What a comparison comes to; of a trend that rises, and once falls, that it falls."""
    several = {CONTRADICTED: p_against, HOLDS: p_for, NO_EFFECT: p_none}
    return next((verdict for verdict, p in several.items() if p < LEVEL), INCONCLUSIVE)


def seen(condition: Evidence) -> bool:
    """Whether a condition speaks for itself: without correction, as it decides no claim."""
    return not condition.closed and condition.p_for < LEVEL


def presupposed(each: Evidence) -> str:
    """What a condition asks for, and that it is not seen here."""
    here = each.shown(each.effect) if each.ratio else f"{each.effect:+.1f} points, maybe by chance"
    here = f"{-each.effect:.1f} points below" if each.effect < min(each.margin, 0) and not each.ratio else here
    told = each.closed or f"here it is {here}"
    limit = f", or behind by less than {in_points(-each.margin)}" if each.margin < 0 else ""
    asked = f"{each.names[0]} is ahead of {each.names[1]}{limit} ({each.place})" if each.names else each.label
    return f"the claim presupposes that {asked}; {told}"


def decisive(row: Any) -> Evidence:
    """The comparison that a verdict hangs on: what speaks most against the claim, or least for it."""

    def doubt(each: Evidence) -> float:
        return {CONTRADICTED: -each.p_against, NO_EFFECT: -each.p_none}.get(row.verdict, each.p_for)

    return max(row.evidence, key=doubt)


def ledger(profile: str, source: str | None = None) -> pd.DataFrame:
    """The verdicts on all claims of all papers, in the order of the book's parts."""
    known = papers()
    for paper in papers_table("claims")["paper"].unique():
        require_one_of("a paper of claims.csv", paper, known)
    return pd.concat([verdicts(paper, profile, source) for paper in known], ignore_index=True)
