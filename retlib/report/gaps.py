"""What the papers contradict themselves in, and which of their claims did not come out here."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from retlib.report.claims import (
    CONTRADICTED,
    HOLDS,
    INCONCLUSIVE,
    NOT_TESTED,
    SIGNS,
    bindings,
    compared_on,
    papers_table,
)
from retlib.report.evidence import Evidence
from retlib.report.figures import VERDICT_COLOURS, styled
from retlib.report.front import chapters, labels, statement
from retlib.report.papers import papers
from retlib.report.reports import as_page

OPEN = (CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
PLACES = "contradictions within the paper"


def inconsistencies(paper: str) -> HTML:
    """Where a paper contradicts itself or another one, and in what, under its part and authors."""
    known = papers()[paper]
    table = as_page(papers_table("inconsistencies").query("paper == @paper")[["where", "what"]])
    return HTML(f"<h3>Part {known.part}: {escape(known.authors)}</h3>\n{table.data}")


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """For each paper the places in which it contradicts itself, and its claims by what came out.

    Parameters
    ----------
    ledger : DataFrame
        As `retlib.report.claims.ledger` returns it; likewise below.
    """
    table = pd.crosstab(ledger["paper"], ledger["verdict"]).reindex(index=list(papers()), fill_value=0)
    table = table.reindex(columns=[*OPEN, HOLDS], fill_value=0)
    table.insert(0, PLACES, papers_table("inconsistencies")["paper"].value_counts().reindex(table.index, fill_value=0))
    return table.rename_axis(index="paper", columns=None)


def bars(table: pd.DataFrame) -> Figure:
    """The counts of each paper, a bar for each kind but what holds."""
    figure, (axis,) = styled(7.6, 4.2)
    kinds = {PLACES: "0.35", **{verdict: VERDICT_COLOURS[verdict] for verdict in OPEN}}
    for i, (kind, colour) in enumerate(kinds.items()):
        label = f"claims {SIGNS[kind]} {kind}" if kind in SIGNS else kind
        drawn = axis.barh(np.arange(len(table)) + 0.2 * i, table[kind], height=0.18, color=colour, label=label)
        axis.bar_label(drawn, padding=3, fontsize=8)
    axis.set(yticks=np.arange(len(table)) + 0.3, yticklabels=table.index.map(labels()), xlabel="number")
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


def unheld(ledger: pd.DataFrame, verdict: str, profile: str) -> HTML:
    """The claims with a verdict: what decided it or why there is none, on which data, and the chapters that tried."""
    bound, known = bindings(), papers()
    columns = ["part", "claim", "not tested because" if verdict == NOT_TESTED else "what decided", "data", "tested in"]
    lines = [
        (
            known[row.paper].part,
            statement(row, known[row.paper].pages["verdicts"]),
            deciding(row.evidence, verdict) if row.evidence else row.reason,
            played(bound, row.paper, row.claim, profile),
            chapters(bound["claims"].get(row.claim, {})),
        )
        for row in ledger[ledger["verdict"] == verdict].itertuples()
    ]
    return as_page(pd.DataFrame(lines, columns=columns), markup=["claim", "tested in"])


def deciding(evidence: list[Evidence], verdict: str) -> str:
    """The comparison that a verdict hangs on: what speaks most against a claim, or least for it."""
    against = verdict == CONTRADICTED
    worst = min(evidence, key=lambda each: each.p_against) if against else max(evidence, key=lambda each: each.p_for)
    others = f"\none of {len(evidence)} comparisons" if len(evidence) > 1 else ""
    return f"{worst.label}: {worst.text}" + (f" ({worst.note})" if worst.note else "") + others


def played(bound: Mapping, paper: str, claim_id: str, profile: str) -> str:
    """The data sets of a claim and what plays them at a profile, a line each."""
    used = compared_on(bound["claims"].get(claim_id, {}))
    places = {name: bound["collections"][paper][name].get(profile) for name in used}
    return "\n".join(
        f"{name}: {place['collection']} ({place['closeness']})" if place else f"{name}: nothing"
        for name, place in places.items()
    )
