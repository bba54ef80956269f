"""Tables of claims: what a chapter's contrasts say before correction, and the verdicts of a paper, claim by claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd
from IPython.display import HTML

from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.report.claims import CONDITION
from retlib.report.ledger import INCONCLUSIVE, NOT_TESTED, SIGNS, amount, decisive, effect, is_seen, times_as_much
from retlib.report.papers import papers, papers_table
from retlib.report.tables import as_page, p_text

LONGEST = 12  # lines of a table that is not folded


def contrasts(table: pd.DataFrame) -> HTML:
    """Return a chapter's table `claims` for its page: every contrast with its effect, before correction."""
    statements = papers_table("claims").set_index("id")["statement"]
    rows = [
        {"claim": f"{escape(statements[line.claim])}\n<code>{line.claim}</code>", **_contrast(line),
         "p for, against": "" if line.reason else f"{p_text(line.p_for)}, {p_text(line.p_against)}",
         "paper": "" if pd.isna(line.paper) else _paper(line)}
        for line in table.itertuples()
    ]  # fmt: skip
    shown = pd.DataFrame(rows)
    shown["claim"] = shown["claim"].mask(shown["claim"].duplicated(), "")
    shown = shown.rename(columns={"effect": "effect [95 %]", "p for, against": "p for, against (before correction)"})
    page = as_page(shown, markup=["claim"])
    if len(shown) <= LONGEST:
        return page
    return HTML(f"<details><summary>All {len(shown)} contrasts of this chapter</summary>{page.data}</details>")


def _contrast(line: Any) -> dict[str, str]:
    if line.reason:
        return {"contrast": f"not tested: {line.reason}", "effect": ""}
    on = " and ".join(map(called, json.loads(line.collections)[:3]))
    role = "given: " if line.role == CONDITION else ""
    shut = f"\nclosed: {line.closed}" if line.closed else ""
    within = (
        f"\nwithin {line.margin:g} of 0"
        if line.alike
        else f"\nabove {amount(line, line.margin)}"
        if line.margin
        else ""
    )
    return {"contrast": f"{role}{line.label}\n{line.measure}, {on}{within}{shut}", "effect": effect(line)}


def by_claim(verdicts: pd.DataFrame) -> HTML:
    """Return a paper's claims, a row each with an anchor: verdict, claim, what decides it, the scale, and a fold."""
    rows = [
        {
            "verdict": f"{SIGNS[row.verdict]} {row.verdict}",
            "claim": statement(row),
            "what decides": _deciding(row),
            "scale": _scale(row),
            "chapter": link(f"{row.chapter}.html", row.chapter[:2]) if row.chapter else "",
        }
        for row in verdicts.itertuples()
    ]
    return as_page(pd.DataFrame(rows), verdicts["id"], markup=["claim", "what decides", "chapter"])


def statement(row: Any) -> str:
    """HTML: what a claim says, what was tested where that is another thing, and its id, to be copied."""
    notes = [f"as tested: {row.as_tested}" if row.as_tested else row.remark, row.note and f"{row.verdict}: {row.note}"]
    told = "".join(f"\n<em>{escape(note)}</em>" for note in notes if note)
    return f"{escape(row.statement)}{told}\n<code>{row.id}</code>"


def _deciding(row: Any) -> str:
    told = [escape(line_text(line)) for line in (*row.conditions, *row.tests)]
    fold = "<details><summary>all contrasts</summary>" + "\n".join(told) + "</details>"
    return _first(row) + (fold if told else "")


def _first(row: Any) -> str:
    if row.verdict == NOT_TESTED:
        return escape(row.reason)
    line, count = decisive(row), len(row.tests)
    first = f"{escape(line.label)}: <b>{effect(line)}</b>"
    first += "" if pd.isna(line.paper) else f", the paper's {_paper(line)}"
    first += f"; p {p_text(row.p)} (Holm)"
    speaks = " ".join(f"{SIGNS[verdict]} {number}" for verdict, number in row.speaks.items())
    first += f"; {speaks} of {count} contrasts" if count > 1 else ""
    return first + (f"; by Benjamini-Hochberg {row.by_bh}" if row.by_bh != row.verdict else "") + _needed(row)


def _paper(line: Any) -> str:
    return f"{line.paper:+.4g}" if line.unit == "points" else f"x{line.paper:.3g}"


def _needed(row: Any) -> str:
    times = times_as_much(row) if row.verdict == INCONCLUSIVE else 0
    return f"; about {times:.0f} times as much data would decide" if 1 < times <= 100 else ""


def line_text(line: Any) -> str:
    """Return a contrast in one line: role, label, measure, collections, effect, the paper's, and what shut it."""
    on = " and ".join(map(called, json.loads(line.collections)[:3]))
    given = ("given: " if is_seen(line) else "given, not seen: ") if line.role == CONDITION else ""
    paper = "" if pd.isna(line.paper) else f", the paper's {_paper(line)}"
    margin = f" (above {amount(line, line.margin)})" if line.margin and not line.alike else ""
    margin = f" (within {line.margin:g} of 0)" if line.alike else margin
    shut = f"; closed: {line.closed}" if line.closed else ""
    return f"{given}{line.label}, {line.measure} on {on}: {effect(line)}{margin}{paper}{shut}"


def _scale(row: Any) -> str:
    lines = row.tests
    if not lines:
        return ""
    encoders = dict.fromkeys(part for line in lines for part in line.encoder.split("; ") if part)
    among = [line.candidates for line in lines if not pd.isna(line.candidates)]
    counted = [f"{line.questions:,.0f} {line.rows}" for line in lines if line.rows]
    parts = [", ".join(encoders), f"{min(among):,.0f} candidates" if among else "", counted[0] if counted else "",
             f"{row.seeds} seed{'s' * (row.seeds != 1)}", row.fidelity]  # fmt: skip
    return "\n".join(filter(None, parts))


def link(address: str, text: str) -> str:
    """HTML of a link, for the columns of `as_page` that are markup."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def every_claim(ledger: pd.DataFrame) -> HTML:
    """Return all claims with a choice of verdict, part and data above them (the book's tables.js)."""
    parts = {key: paper.part for key, paper in papers().items()}
    rows = [
        {
            "verdict": f"{SIGNS[row.verdict]} {row.verdict}",
            "part": link(f"{papers()[row.paper].pages['verdicts']}.html#{row.id}", parts[row.paper]),
            "claim": statement(row),
            "what decides, or why it is not tested": _first(row),
        }
        for row in ledger.itertuples()
    ]
    page = as_page(pd.DataFrame(rows), markup=["part", "claim", "what decides, or why it is not tested"])
    return HTML(f'<div data-filters="verdict,part">{page.data}</div>')


def provenance(profile: str, source: str | None) -> pd.DataFrame:
    """Return when, where, from which revision and with which packages the rows of each chapter were recorded."""
    columns = ["recorded", "device", "cores", "python", "platform", "revision", "packages"]
    chapters = results.rows(profile, source).groupby("experiment", sort=False)
    found = chapters[columns].agg(lambda values: ", ".join(sorted({str(each)[:200] for each in values.dropna()})))
    found["recorded"] = found["recorded"].str.replace(r"T[\d:]+Z", "", regex=True).map(_days)
    found.insert(0, "seeds", chapters["seed"].nunique())
    return found.reset_index()


def _days(text: str) -> str:
    days = sorted(set(text.split(", ")))
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return how many claims have each verdict, by paper."""
    names = {key: paper.label for key, paper in papers().items()}
    table = pd.crosstab(ledger["paper"].map(names), ledger["verdict"]).reindex(list(names.values())).dropna(how="all")
    table = table.reindex(columns=[each for each in SIGNS if each in table]).astype(int)
    table["claims"] = table.sum(axis=1)
    table.loc["all"] = table.sum()
    return (
        table.rename(columns=lambda name: f"{SIGNS.get(name, '')} {name}".strip())
        .rename_axis(None, axis=1)
        .reset_index()
    )


def flat(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger for printing: a line for each contrast, or one with the reason of what is not tested."""
    lines = verdicts.assign(evidence=[
        [row.reason] * bool(row.reason) + [line_text(line) for line in (*row.tests, *row.conditions)]
        for row in verdicts.itertuples()
    ])  # fmt: skip
    return lines.rename(columns={"id": "claim"})[
        ["claim", "verdict", "by_bh", "p", "seeds", "fidelity", "evidence"]
    ].explode("evidence")


def as_text(row: Any) -> str:
    """Return one row of a ledger for a terminal: claim and verdict, then a line for each contrast."""
    note = [f"  as tested: {row.as_tested}"] if row.as_tested else []
    rests = [] if pd.isna(row.p) else [f"p = {row.p:.2g} after Holm's correction; by Benjamini-Hochberg {row.by_bh}"]
    scale = [_scale(row).replace("\n", ", ")] if row.tests else []
    lines = (
        [row.reason] * bool(row.reason) + rests + scale + [line_text(each) for each in (*row.tests, *row.conditions)]
    )
    return "\n".join([row.statement, *note, f"{SIGNS[row.verdict]} {row.verdict}", *(f"  {each}" for each in lines)])


def strips(ledger: pd.DataFrame) -> dict[str, str]:
    """Return, for each paper, HTML of a sign for each claim, which leads to the claim."""
    found = {}
    for paper, mine in ledger.groupby("paper", sort=False):
        page = f"{papers()[paper].pages['verdicts']}.html"
        signs = (
            f'<a class="sign {row.verdict.replace(", ", "-").replace(" ", "-")}" href="{page}#{row.id}" '
            f'title="{escape(row.verdict)}: {escape(row.statement)}">{SIGNS[row.verdict]}</a>'
            for row in mine.itertuples()
        )
        found[paper] = f'<span class="signs">{"".join(signs)}</span>'
    return found


def cards(sentences: Mapping[str, str], signs: Mapping[str, str]) -> HTML:
    """Return a card for each paper: its name, a sentence, and the signs of its claims."""
    parts = []
    for key, paper in papers().items():
        head = link(f"{paper.pages['verdicts']}.html", f"{paper.part}. {paper.name}")
        parts.append(f'<div class="card-of-paper"><b>{head}</b><p>{escape(sentences[key])}</p>{signs[key]}</div>')
    return HTML(f'<div class="cards">{"".join(parts)}</div>')


def strip_table(ledger: pd.DataFrame, caption: str) -> HTML:
    """Return the signs of all papers' claims under a caption."""
    lines = "".join(f"<p>{escape(papers()[key].name)}<br>{signs}</p>" for key, signs in strips(ledger).items())
    return HTML(f"<p><b>{escape(caption)}</b></p>{lines}")
