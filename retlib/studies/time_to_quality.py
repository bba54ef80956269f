"""How long ANCE trains to its best and LTRe until it is as good, on corpora measured and larger (Zhan 2020, 6.4.1).

Beyond the largest corpus that is measured, times follow from the seconds for each document that is encoded, for each
document that a query is searched in, and for each query that is trained on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from retlib.studies.experiment import Experiment
from retlib.studies.ltre_study import Study
from retlib.studies.training_time import ANCE, ENCODING
from retlib.systems.ltre import LTRE

SEARCH = "search"
# How a training of LTRe ends: it reaches ANCE's best, or never does; or there is nothing to reach.
REACHED, NEVER, NO_GAIN = "reached", "never reached", "ANCE does not improve"
# Corpora that are not measured: a million, MS MARCO's passages, the passages of English Wikipedia.
BEYOND = (1_000_000, 8_841_823, 22_000_000)


def to_best(moments: pd.DataFrame) -> pd.DataFrame:
    """The moment at which ANCE is best, and the first at which LTRe is as good, for each size and seed.

    Returns
    -------
    DataFrame
        Columns `documents`, `seed`, `target` (ANCE's best score), `outcome`, the seconds of both
        (`ANCE`, `LTRe`) and their `ratio`; the steps of both (`ANCE steps`, `LTRe steps`).
        Where LTRe never is as good its whole training counts: its time is longer and the ratio
        smaller than what stands here. Where ANCE is best before its first step, there is no
        ratio.
    """
    rows = []
    for (size, seed), part in moments.groupby(["documents", "seed"]):
        curves = {system: curve.sort_values("step") for system, curve in part.groupby("system")}
        best = curves[ANCE].loc[curves[ANCE]["score"].idxmax()]
        as_good = curves[LTRE][curves[LTRE]["score"] >= best["score"]]
        reached = curves[LTRE].iloc[-1] if as_good.empty else as_good.iloc[0]
        outcome = NO_GAIN if best["step"] == 0 else NEVER if as_good.empty else REACHED
        rows.append(
            {
                "documents": size,
                "seed": seed,
                "target": best["score"],
                "outcome": outcome,
                ANCE: best["seconds"],
                LTRE: reached["seconds"],
                "ratio": np.nan if outcome == NO_GAIN else best["seconds"] / reached["seconds"],
                f"{ANCE} steps": best["step"],
                f"{LTRE} steps": reached["step"],
            }
        )
    return pd.DataFrame(rows)


def at_best(moments: pd.DataFrame) -> pd.DataFrame:
    """The moments that `to_best` compares, with all their columns, and its `outcome`."""
    found = to_best(moments)
    long = found.melt(["documents", "seed", "outcome"], [f"{ANCE} steps", f"{LTRE} steps"], "system", "step")
    long["system"] = long["system"].str.removesuffix(" steps")
    return long.merge(moments, on=["documents", "seed", "system", "step"])


GROUPS = {
    ENCODING: "encoding the corpus",
    SEARCH: "search",
    "encoding queries": "encoding the batch",
    "encoding documents": "encoding the batch",
    "loss and backward": "loss and backward",
}


def parts(moments: pd.DataFrame) -> pd.DataFrame:
    """Seconds until ANCE's best in their parts, means over seeds: `documents`, `system`, a column for each part."""
    compared = at_best(moments)
    known = [name for name in GROUPS if name in compared]
    grouped = compared[known].T.groupby(GROUPS, sort=False).sum().T
    grouped["sampling, optimizer"] = compared["seconds"] - grouped.sum(axis=1)
    names = compared[["documents", "system"]]
    return pd.concat([names, grouped], axis=1).groupby(["documents", "system"], as_index=False).mean()


# --- beyond what is measured -----------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What a training does: queries it trains on, encodings of the whole corpus, searches of one query."""

    queries: float
    encodings: float
    searches: float


@dataclass(frozen=True)
class Rates:
    """Seconds for a query that is trained on, for a document that is encoded, for a query in each document searched."""

    query: float
    document: float
    search: float

    @classmethod
    def of(cls, moment: pd.Series) -> Rates:
        """Those of a measured training up to a moment after its first step."""
        encoded, searched = (moment[name] * moment["documents"] for name in ("encodings", "searches"))
        rest = moment["seconds"] - moment[ENCODING] - moment[SEARCH]
        return cls(rest / moment["queries"], moment[ENCODING] / encoded, moment[SEARCH] / searched)

    def seconds(self, work: Work, documents: float) -> float:
        """Of a training over so many documents, each of which is searched."""
        return work.queries * self.query + documents * (work.encodings * self.document + work.searches * self.search)


# Section 6.4.1: 600 thousand steps of 64 and a refresh every 10 thousand, for which all 503 thousand training queries
# (section 5.1) are searched; 60 thousand steps of 32 (section 5.3).
PAPER = {ANCE: Work(600_000 * 64, 60, 60 * 503_000), LTRE: Work(60_000 * 32, 1, 60_000 * 32)}
OURS, PAPERS = "steps as measured", "the paper's steps"


def extrapolated(moments: pd.DataFrame, sizes: Iterable[int] = BEYOND) -> pd.DataFrame:
    """Times over larger corpora, from the rates on the largest one on which ANCE improved.

    Returns
    -------
    DataFrame
        Columns `steps` (those of that corpus, means over its seeds, or the paper's), `documents`,
        seconds of `ANCE` and `LTRe`, and their `ratio`; the ratio without LTRe's encoding of the
        corpus, for which the paper's own 3.6 hours have no place; and `outcome`, that of the
        seeds of that corpus: where one of them never was as good, the ratio is an upper bound.
        Empty if ANCE improved nowhere.
    """
    compared = at_best(moments)
    compared = compared[compared["outcome"] != NO_GAIN]
    largest = compared[compared["documents"] == compared["documents"].max()]
    means = {system: part.mean(numeric_only=True) for system, part in largest.groupby("system")}
    ours = {system: Work(mean["queries"], mean["encodings"], mean["searches"]) for system, mean in means.items()}
    # A quality that the start has already leaves no step of LTRe to measure: its whole training tells the rates.
    last = moments[moments["documents"] == compared["documents"].max()].groupby(["system", "seed"]).tail(1)
    rates = {system: Rates.of(part.mean(numeric_only=True)) for system, part in last.groupby("system")}
    columns = ["steps", "documents", ANCE, LTRE, "ratio", "ratio without LTRe's encoding"]
    works = {OURS: ours, PAPERS: PAPER} if means else {}
    rows = [(name, size, *_compared(work, rates, size)) for name, work in works.items() for size in sizes]
    found, is_bound = pd.DataFrame(rows, columns=columns), (largest["outcome"] == NEVER).any()
    # The paper's numbers of steps are what they are.
    return found.assign(outcome=np.where((found["steps"] == OURS) & is_bound, NEVER, REACHED))


def _compared(work: dict[str, Work], rates: dict[str, Rates], documents: int) -> tuple[float, float, float, float]:
    long, short = (rates[system].seconds(work[system], documents) for system in (ANCE, LTRE))
    trained = rates[LTRE].seconds(replace(work[LTRE], encodings=0), documents)
    return long, short, long / short, long / trained


# --- recording -------------------------------------------------------------------------------------

SECONDS = "seconds to ANCE's best"


def record(experiment: Experiment, study: Study | None, moments: pd.DataFrame) -> None:
    """The times of both at the largest size that has every seed, under the collections that are tested on."""
    found = to_best(moments)
    seeds = found.groupby("documents")["seed"].nunique()
    mine = found[(found["documents"] == seeds[seeds == seeds.max()].index.max()) & (found["outcome"] != NO_GAIN)]
    for row in mine.to_dict("records") if experiment.live else ():
        for part in study.tested_on:
            for system in (ANCE, LTRE):
                details = {"candidates": row["documents"], "seconds": row[system], "steps": row[f"{system} steps"]}
                experiment.record(system, part.name, SECONDS, row[system], row["seed"], "dev", **details)


def table(moments: pd.DataFrame) -> pd.DataFrame:
    """`to_best` as a page shows it."""
    found = to_best(moments)
    found["target"] *= 100
    found = found.rename(columns={"target": "RR@10 of ANCE's best", ANCE: "ANCE seconds", LTRE: "LTRe seconds"})
    return found.round({"RR@10 of ANCE's best": 2, "ANCE seconds": 1, "LTRe seconds": 1, "ratio": 2})


def projected(moments: pd.DataFrame) -> pd.DataFrame:
    """`extrapolated` in hours, as a page shows it."""
    found = extrapolated(moments)
    found.insert(1, "outcome", found.pop("outcome").where(found["steps"] == OURS, ""))
    hours = {f"{system} hours": found.pop(system) / 3600 for system in (ANCE, LTRE)}
    return found.assign(**hours).round(2)
