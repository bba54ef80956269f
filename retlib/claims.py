"""From recorded per-query values to verdicts on the papers' claims.

The rules stand here and the bindings in ``data/papers/bindings.yaml``; neither knows a
result. Every claim comes down to comparisons that must all hold. Each comparison has two
one-sided p-values, for the claim and against it. A claim *holds* if every comparison speaks
for it (the largest p-value is under 0.05 after Holm's correction over the claims of the
paper), is *contradicted* if one speaks against it (corrected over all comparisons of the
paper), and is *inconclusive* otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
import pandas as pd
import yaml

from retlib import results, runtime
from retlib.errors import DataError, require, require_one_of
from retlib.evaluation import Comparison, compare, holm, same_seeds

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
    return yaml.safe_load((runtime.root() / "data" / "papers" / "bindings.yaml").read_text())


@dataclass(frozen=True)
class Evidence:
    """One comparison of a claim.

    Parameters
    ----------
    label : str
        What is compared, on which collection.
    a, b : float
        The two systems' values, in points of a hundred (or steps).
    effect, low, high : float
        A - B (or the trend, or log A - log B) and its 95 % interval.
    p_for, p_against : float
        One-sided p-values for the claim and against it.
    seeds, queries : int
    note : str
        What a reader must know of it.
    """

    label: str
    a: float
    b: float
    effect: float
    low: float
    high: float
    p_for: float
    p_against: float
    seeds: int
    queries: int
    note: str = ""


class Records:
    """The per-query values of a paper's experiments at one profile, for one measure.

    Parameters
    ----------
    load : callable
        Experiment to its results, or to None where it has none; called again and again.
    """

    def __init__(self, profile: str, places: Mapping[str, Mapping[str, str]], measure: str, load: Callable) -> None:
        self.profile, self.places, self.measure, self._load = profile, places, measure, load

    def results(self, experiment: str) -> results.Results:
        """An experiment's results; `DataError` if it has none."""
        found = self._load(experiment)
        if found is None:
            raise DataError(f"experiment {experiment} has no results at profile {self.profile}")
        return found

    def collection(self, data_set: str) -> str:
        """The collection that plays a paper's data set."""
        place = self.places.get(data_set, {}).get(self.profile)
        if place is None:
            raise DataError(f"no collection plays {data_set} at profile {self.profile}")
        return place["collection"]

    def values(self, system: str, data_set: str) -> pd.DataFrame:
        """Per-query values in points of a hundred, a column for each seed."""
        experiment, name = system.split(":", 1)
        return self.results(experiment).per_query(self.collection(data_set), "test", self.measure, name) * 100

    def clusters(self, system: str, data_set: str) -> pd.Series:
        """Query to cluster."""
        experiment, _ = system.split(":", 1)
        return self.results(experiment).clusters(self.collection(data_set), "test", self.measure)

    def steps(self, system: str, data_set: str) -> pd.Series:
        """Training steps to the best weights, by seed."""
        experiment, name = system.split(":", 1)
        rows = self.results(experiment).rows
        mine = rows[(rows["system"] == name) & (rows["collection"] == self.collection(data_set))]
        # Rows of costs and of systems that are not trained have no steps.
        steps = mine.reindex(columns=["seed", "steps"]).dropna().drop_duplicates("seed")
        return steps.set_index("seed")["steps"].sort_index().astype(float)


def _average(parts: list[Comparison]) -> Comparison:
    """The mean of independent comparisons, one for each data set."""
    count = len(parts)
    variance = sum(part.error**2 for part in parts) / count**2
    spread = sum((part.error**2 / count**2) ** 2 / part.freedom for part in parts)
    freedom = variance**2 / spread if spread > 0 else min(part.freedom for part in parts)
    queries, seeds = sum(part.queries for part in parts), min(part.seeds for part in parts)
    return Comparison(float(np.mean([part.effect for part in parts])), variance**0.5, freedom, queries, seeds)


def _pair(records: Records, spec: Mapping, factor: float = 1.0) -> tuple[Comparison, float, float]:
    """A - factor * B averaged over the data sets, and the two systems' values."""
    parts, left, right = [], [], []
    for data_set in spec["data"].split("+"):
        a, b = same_seeds(*(records.values(system, data_set) for system in spec["pair"]))
        parts.append(compare(a, b * factor, records.clusters(spec["pair"][0], data_set)))
        left.append(a.to_numpy().mean())
        right.append(b.to_numpy().mean())
    return _average(parts), float(np.mean(left)), float(np.mean(right))


def _label(records: Records, spec: Mapping) -> str:
    names = " vs ".join(system.split(":", 1)[1] for system in spec["pair"])
    return f"{names}, on {' and '.join(records.collection(data_set) for data_set in spec['data'].split('+'))}"


def _evidence(
    records: Records,
    spec: Mapping,
    found: tuple[Comparison, float, float],
    p_for: float,
    p_against: float,
    note: str = "",
) -> Evidence:
    comparison, a, b = found
    low, high = comparison.interval()
    return Evidence(
        _label(records, spec), a, b, comparison.effect, low, high, p_for, p_against,
        comparison.seeds, comparison.queries, note,
    )  # fmt: skip


def _greater(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    found = _pair(records, spec)
    p_for = found[0].p_greater()
    return [_evidence(records, spec, found, p_for, 1 - p_for)]


def _at_most(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    found = _pair(records, spec)
    p_against = found[0].p_greater(claim["margin"])
    return [_evidence(records, spec, found, 1 - p_against, p_against, f"margin {claim['margin']} points")]


def _equivalent(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    found = _pair(records, spec)
    comparison, margin = found[0], claim["margin"]
    # Against: the difference lies beyond the margin on one side (two sides, hence the doubling).
    beyond = min(comparison.p_greater(margin), 1 - comparison.p_greater(-margin))
    return [
        _evidence(
            records, spec, found, comparison.p_equivalent(margin), min(1.0, 2 * beyond), f"margin {margin} points"
        )
    ]


def _ratio(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    factor = spec["factor"]
    found = _pair(records, spec, factor)
    p_for = found[0].p_greater()
    note = f"effect is A - {factor} B"
    if found[2] * factor > 100:
        note += f"; beyond the ceiling: B leaves no room for a factor of {factor}"
    return [_evidence(records, spec, found, p_for, 1 - p_for, note)]


def _trend(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    """The linear trend over the systems in order must rise, and no single step may fall."""
    values = [records.values(system, spec["data"]) for system in spec["systems"]]
    shared = reduce(pd.Index.intersection, (value.columns for value in values))
    require(len(shared) > 0, "the systems of a trend have no seed in common", DataError)
    values = [value[shared] for value in values]
    clusters = records.clusters(spec["systems"][0], spec["data"])
    weights = np.arange(len(values)) - (len(values) - 1) / 2
    weights /= (weights**2).sum()
    slope = reduce(lambda x, y: x + y, (value * weight for value, weight in zip(values, weights, strict=True)))
    rising = compare(slope, slope * 0, clusters)
    steps = [compare(after, before, clusters) for before, after in zip(values, values[1:], strict=False)]
    p_for = rising.p_greater()
    p_against = min(1.0, len(steps) * min(1 - step.p_greater() for step in steps), 1 - p_for)
    means = ", ".join(f"{value.to_numpy().mean():.1f}" for value in values)
    low, high = rising.interval()
    label = f"{len(values)} systems in order, on {records.collection(spec['data'])}"
    first, last = (float(value.to_numpy().mean()) for value in (values[0], values[-1]))
    note = f"values {means}; the effect is the rise from one system to the next"
    return [
        Evidence(label, last, first, rising.effect, low, high, p_for, p_against, rising.seeds, rising.queries, note)
    ]


def _fewer(records: Records, spec: Mapping, claim: Mapping) -> list[Evidence]:
    """Over seeds, on the logarithm of the steps: B / A is what a reader asks for."""
    a, b = (records.steps(system, spec["data"]) for system in spec["pair"])
    shared = a.index.intersection(b.index)
    require(len(shared) > 1, "a comparison of training steps needs at least two seeds", DataError)
    a, b = a[shared], b[shared]
    require(bool((a > 0).all() and (b > 0).all()), "a training never got better than its start", DataError)
    logs = np.log(a.to_numpy()) - np.log(b.to_numpy())
    effect, error = float(logs.mean()), float(logs.std(ddof=1) / len(logs) ** 0.5)
    comparison = Comparison(effect, error, len(logs) - 1, 0, len(logs))
    p_against = comparison.p_greater()
    found = comparison, float(a.mean()), float(b.mean())
    return [_evidence(records, spec, found, 1 - p_against, p_against, "steps; the effect is log A - log B")]


TESTS: dict[str, Callable[[Records, Mapping, Mapping], list[Evidence]]] = {
    "greater": _greater,
    "at_most": _at_most,
    "equivalent": _equivalent,
    "ratio": _ratio,
    "trend": _trend,
    "fewer": _fewer,
}


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
        require_one_of(f"test of {claim_id}", claim["test"], TESTS)
        records = Records(profile, bound["collections"][paper], claim.get("measure", "AP@100"), load)
        try:
            evidence[claim_id] = [e for spec in claim["each"] for e in TESTS[claim["test"]](records, spec, claim)]
        except DataError as error:
            reasons[claim_id] = str(error)
    return evidence, reasons


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """The verdict on every claim of a paper.

    Returns
    -------
    DataFrame
        A row for each claim, in the order of claims.csv: `claim`, `tier`, `statement`,
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
    used = {data_set for spec in bound["claims"][claim_id]["each"] for data_set in spec["data"].split("+")}
    kinds = {bound["collections"][paper][data_set][profile]["closeness"] for data_set in used}
    return "stand-in" if "stand-in" in kinds else "part"


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
                "claim": claim["id"], "tier": claim["tier"], "statement": claim["statement"], "verdict": NOT_TESTED,
                "p": float("nan"), "seeds": 0, "closeness": "", "evidence": [],
                "reason": "its part of the book is not written yet",
            }
            for claim in claims.to_dict("records")
        ]
    )  # fmt: skip


def flat(verdicts: pd.DataFrame) -> pd.DataFrame:
    """A ledger for printing: evidence as text, one line a claim."""
    columns = ["claim", "tier", "verdict", "p", "seeds", "closeness"]
    frame = verdicts[columns].copy()
    frame["evidence"] = [
        "; ".join(f"{e.label}: {e.effect:+.2f} [{e.low:+.2f}, {e.high:+.2f}]" for e in row.evidence) or row.reason
        for row in verdicts.itertuples()
    ]
    return frame
