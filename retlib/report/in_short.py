"""What a chapter found, in a few lines: the box on top of its page, made from the rows as they are.

``book/in-short.yaml`` has what no row can say: the question of each chapter, and, for a verdict that is surprising
or asks for advice, why it came out so. A text is shown only where its verdict came out. Where no claim rests on a
chapter, it names the measure that answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import Results
from retlib.report.claims import (
    CONTRADICTED,
    FIDELITY,
    HOLDS,
    INDICATION,
    NO_EFFECT,
    NOT_TESTED,
    SIGNS,
    bindings,
    came_out,
    decisive,
    papers,
    tested_in,
)

# In this order claims are named in a box, at most so many; those of the paper's main claims first.
ORDER = (HOLDS, CONTRADICTED, NO_EFFECT, INDICATION)
SHOWN = 6
# Collections of whose rows a box tells.
TOLD = 4


def box(ledger: Callable[[], pd.DataFrame], rows: Callable[[str], Results | None], chapter: str) -> str:
    """MyST for the top of a chapter's page: its question, the claims that it decides, and why; "" without a question.

    Parameters
    ----------
    ledger : callable
        Gives what `retlib.report.claims.ledger` returns; asked where the chapter has a question.
    rows : callable
        Gives the results of a chapter, or None; asked where the texts say what of them is shown.
    chapter : str
        A notebook's name.
    """
    texts = runtime.root() / "book" / "in-short.yaml"
    said = notebook_files.parsed(texts).get(chapter) if texts.exists() else None
    if not said:
        return ""
    bound = bindings()["claims"]
    known = ledger()
    mine = known[[chapter in tested_in(bound.get(claim, {})) for claim in known["claim"]]]
    shows = said.get("shows", {})
    found = _measured(rows(shows.get("chapter", chapter)), **shows) if shows else []
    lines = [f"**{said['question']}**\n", *found, *_counted(mine), *_decided(mine), *_why(mine, said.get("why", {}))]
    return "\n".join([":::{admonition} In short", ":class: tip", "", *lines, ":::"])


def _measured(
    results: Results | None, measure: str, beside: str = "BM25", system: str = "", chapter: str = ""
) -> list[str]:
    """A line for each of the first collections: a system's value, by default the best trained one's, and another's."""
    values = pd.DataFrame() if results is None else results.rows[results.rows["measure"] == measure]
    if values.empty:
        return []
    table = 100 * values.pivot_table(index="collection", columns="system", values="value", sort=False)
    cost = values["seconds"].astype(float) if "seconds" in values else pd.Series(0.0, values.index)
    trained = sorted({*values["system"][cost > 0]} - {beside})
    others = (table[trained] if trained else table.drop(columns=beside, errors="ignore")).dropna(how="all")
    seeds = values.groupby("system")["seed"].nunique().max()
    lines = []
    for collection, row in table.loc[others.index].head(TOLD).iterrows():
        best = system or others.loc[collection].idxmax()
        known = {name: row[name] for name in (best, beside) if name in row and pd.notna(row[name])}
        told = "; ".join(f"{name} {value:.1f}" for name, value in known.items())
        lines.append(f"- *{collection}*: {told}.")
    of = f" in {{doc}}`{chapter}`" if chapter else ""
    kind = "trained system" if trained else "system"
    which = "" if system else f" of the best {kind} here" + f", and of *{beside}*" * (beside in table)
    return [f"{measure}{of}{which}, in points of 100 (means; seeds: {seeds}):\n", *lines, ""]


def _counted(claims: pd.DataFrame) -> list[str]:
    """How many claims came out how, and on what data and seeds."""
    if claims.empty:
        return []
    counts = claims["verdict"].value_counts().reindex(SIGNS).dropna().astype(int)
    found = ", ".join(f"{count} {came_out(verdict, count > 1)}" for verdict, count in counts.items())
    if len(claims) == 1:
        return [f"The one claim that rests on this chapter {came_out(counts.index[0], several=False)}.\n"]
    tested = claims[claims["verdict"] != NOT_TESTED]
    seeds, data = sorted(set(tested["seeds"])), [FIDELITY[each] for each in sorted(set(tested["fidelity"]))]
    several = " to ".join(map(str, dict.fromkeys([*seeds[:1], *seeds[-1:]])))
    scale = f" (seeds: {several}; on {' or '.join(data)})" if seeds else ""
    return [f"Of the {len(claims)} claims that rest on this chapter {found}{scale}.\n"]


def _decided(claims: pd.DataFrame) -> list[str]:
    """A line for each claim with a verdict, and a link to where the others stand."""
    known = claims[claims["verdict"].isin(ORDER)]
    rank = known["verdict"].map(ORDER.index)
    known = known.assign(minor=known["tier"] != "main", rank=rank).sort_values(["minor", "rank"], kind="stable")
    lines = [_line(row) for row in known.head(SHOWN).itertuples()]
    if len(claims) > len(lines) and not claims.empty:
        page = papers()[claims["paper"].iloc[0]].pages["verdicts"]
        rest = "The other claims and all comparisons" if lines else "What was compared, and why nothing is decided"
        lines.append(f"- {rest}: {{doc}}`verdicts <{page}>`.")
    return [*lines, ""]


def _line(row: Any) -> str:
    """What a claim says, whether it came out, and the comparison that it hangs on."""
    page, found = papers()[row.paper].pages["verdicts"], decisive(row)
    link = f'<a href="{page}.html#{row.claim}">{row.statement}</a>'
    several = f", the least clear of {len(row.evidence)}" if len(row.evidence) > 1 and row.verdict == HOLDS else ""
    return f"- {SIGNS[row.verdict]} *{row.verdict}*: {link}. Here {found.text} ({found.label}{several})."


def _why(claims: pd.DataFrame, texts: dict[str, dict[str, str]]) -> list[str]:
    """What explains the verdicts that came out."""
    came = dict(zip(claims["claim"], claims["verdict"], strict=True))
    texts = {claim: texts[claim][verdict] for claim, verdict in came.items() if verdict in texts.get(claim, {})}
    return ["**Why, as we read it.** " + " ".join(texts.values()), ""] if texts else []
