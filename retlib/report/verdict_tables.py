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
        (f"{escape(statements[line.claim])}\n<code>{line.claim}</code>", *_contrast(line))
        for line in table.itertuples()
    ]
    heads = ["claim", "contrast", "effect [95 %]", "p for, against (before correction)", "paper"]
    shown = pd.DataFrame(rows, columns=heads)
    shown["claim"] = shown["claim"].mask(shown["claim"].duplicated(), "")
    page = as_page(shown, markup=["claim"])
    if len(shown) <= LONGEST:
        return page
    return HTML(f"<details><summary>All {len(shown)} contrasts of this chapter</summary>{page.data}</details>")


def _contrast(line: Any) -> tuple[str, str, str, str]:
    if line.reason:
        return f"not tested: {line.reason}", "", "", ""
    p_values = f"{p_text(line.p_for)}, {p_text(line.p_against)}"
    return "\n".join(filter(None, _parts(line))), effect(line), p_values, _paper(line)


def _parts(line: Any) -> tuple[str, str, str, str]:
    """What a contrast compares, where, what it asks for, and what shut it."""
    given = ("given: " if is_seen(line) else "given, not seen: ") if line.role == CONDITION else ""
    where = f"{line.measure} on {' and '.join(map(called, json.loads(line.collections)[:3]))}"
    above = f"above {amount(line, line.margin)}" if line.margin else ""
    asks = f"within {line.margin:g} of 0" if line.alike else above
    return f"{given}{line.label}", where, asks, line.closed and f"closed: {line.closed}"


def _paper(line: Any) -> str:
    if pd.isna(line.paper):
        return ""
    return f"{line.paper:+.4g}" if line.unit == "points" else f"x{line.paper:.3g}"


def line_text(line: Any) -> str:
    """Return a contrast in one line: role, label, measure, collections, what it asks for, effect, the paper's."""
    *compared, shut = _parts(line)
    paper = _paper(line) and f", the paper's {_paper(line)}"
    return f"{', '.join(filter(None, compared))}: {effect(line)}{paper}{shut and '; ' + shut}"


def by_claim(verdicts: pd.DataFrame) -> HTML:
    """Return a paper's claims, a row each with an anchor: verdict, claim, what decides it, and the scale."""
    rows = [
        {
            **_row(row),
            "what decides": _first(row),
            "scale": _scale(row),
            "all contrasts": link(f"{row.chapter}.html#the-paper-s-claims", "in its chapter") if row.chapter else "",
        }
        for row in verdicts.itertuples()
    ]
    return as_page(pd.DataFrame(rows), verdicts["id"], markup=["claim", "what decides", "all contrasts"])


def every_claim(ledger: pd.DataFrame) -> HTML:
    """Return all claims with a choice of verdict and part above them (the book's tables.js)."""
    rows = [
        {
            **_row(row),
            "part": link(f"{papers()[row.paper].pages['verdicts']}.html#{row.id}", papers()[row.paper].part),
            "what decides, or why it is not tested": _first(row),
        }
        for row in ledger.itertuples()
    ]
    page = as_page(pd.DataFrame(rows), markup=["part", "claim", "what decides, or why it is not tested"])
    return HTML(f'<div data-filters="verdict,part">{page.data}</div>')


def _row(row: Any) -> dict[str, str]:
    notes = [f"as tested: {row.as_tested}" if row.as_tested else row.remark, row.note and f"{row.verdict}: {row.note}"]
    below = "".join(f"\n<em>{escape(note)}</em>" for note in notes if note)
    statement = f"{escape(row.statement)}{below}\n<code>{row.id}</code>"  # the id is there to be copied
    return {"verdict": f"{SIGNS[row.verdict]} {row.verdict}", "claim": statement}


def _first(row: Any) -> str:
    if row.verdict == NOT_TESTED:
        return escape(row.reason)
    line, count = decisive(row), len(row.tests)
    parts = [f"{escape(line.label)}: <b>{effect(line)}</b>" + (_paper(line) and f", the paper's {_paper(line)}")]
    parts.append(f"p {p_text(row.p)} (Holm)")
    if count > 1:
        speaks = " ".join(f"{SIGNS[verdict]} {number}" for verdict, number in row.speaks.items())
        parts.append(f"{speaks} of {count} contrasts")
    if row.by_bh != row.verdict:
        parts.append(f"by Benjamini-Hochberg {row.by_bh}")
    times = times_as_much(row) if row.verdict == INCONCLUSIVE else 0
    if 1 < times <= 100:
        parts.append(f"about {times:.0f} times as much data would decide")
    return "; ".join(parts)


def _scale(row: Any) -> str:
    lines = row.tests
    if not lines:
        return ""
    encoders = dict.fromkeys(part for line in lines for part in line.encoder.split("; ") if part)
    among = [line.candidates for line in lines if not pd.isna(line.candidates)]
    values = [f"{line.questions:,.0f} {line.rows}" for line in lines if line.rows]
    parts = [", ".join(encoders), f"{min(among):,.0f} candidates" if among else "", *values[:1]]
    return "\n".join(filter(None, [*parts, f"{row.seeds} seed{'s' * (row.seeds != 1)}", row.fidelity]))


def link(address: str, text: str) -> str:
    """HTML of a link, for the columns of `as_page` that are markup."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def provenance(profile: str, source: str | None) -> pd.DataFrame:
    """Return when, where, and from which revision the rows of each chapter were recorded."""
    chapters = results.rows(profile, source).groupby("experiment", sort=False)
    columns = ["device", "cores", "python", "revision"]
    found = chapters[columns].agg(lambda values: ", ".join(sorted({str(each)[:200] for each in values.dropna()})))
    days = chapters["recorded"].agg(lambda times: " to ".join(dict.fromkeys([min(times)[:10], max(times)[:10]])))
    found.insert(0, "recorded", days)
    found.insert(0, "seeds", chapters["seed"].nunique())
    return found.reset_index()


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return how many claims have each verdict, by paper."""
    names = {key: paper.label for key, paper in papers().items()}
    table = pd.crosstab(ledger["paper"].map(names), ledger["verdict"], margins=True, margins_name="all")
    table = table.reindex(index=[*names.values(), "all"], columns=[*SIGNS, "all"])
    table = table.dropna(how="all").dropna(how="all", axis=1).astype(int)
    heads = {name: f"{SIGNS[name]} {name}" for name in SIGNS} | {"all": "claims"}
    return table.rename(columns=heads).rename_axis(None, axis=1).reset_index()


def flat(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger for printing: a line for each contrast, or one with the reason of what is not tested."""
    evidence = [
        [row.reason] * bool(row.reason) + [line_text(line) for line in (*row.tests, *row.conditions)]
        for row in verdicts.itertuples()
    ]
    columns = ["claim", "verdict", "by_bh", "p", "seeds", "fidelity", "evidence"]
    return verdicts.assign(claim=verdicts["id"], evidence=evidence)[columns].explode("evidence")


def as_text(row: Any) -> str:
    """Return one row of a ledger for a terminal: claim and verdict, then a line for each contrast."""
    rests = [] if pd.isna(row.p) else [f"p = {row.p:.2g} after Holm's correction; by Benjamini-Hochberg {row.by_bh}"]
    lines = [row.as_tested and f"as tested: {row.as_tested}", row.reason, *rests, _scale(row).replace("\n", ", ")]
    lines += [line_text(each) for each in (*row.tests, *row.conditions)]
    return "\n  ".join([f"{row.statement}\n{SIGNS[row.verdict]} {row.verdict}", *filter(None, lines)])


def strips(ledger: pd.DataFrame) -> dict[str, str]:
    """Return, for each paper, HTML of a sign for each claim, which leads to the claim."""
    found = {}
    for paper, claims in ledger.groupby("paper", sort=False):
        page = f"{papers()[paper].pages['verdicts']}.html"
        signs = (
            f'<a class="sign {row.verdict.replace(", ", "-").replace(" ", "-")}" href="{page}#{row.id}" '
            f'title="{escape(row.verdict)}: {escape(row.statement)}">{SIGNS[row.verdict]}</a>'
            for row in claims.itertuples()
        )
        found[paper] = f'<span class="signs">{"".join(signs)}</span>'
    return found


def cards(sentences: Mapping[str, str], signs: Mapping[str, str]) -> HTML:
    """Return a card for each paper: its name, a sentence, and the signs of its claims."""
    parts = []
    for key, paper in papers().items():
        head = link(f"{paper.pages['verdicts']}.html", f"{paper.part}. {paper.name}")
        sentence = escape(sentences.get(key, ""))
        parts.append(f'<div class="card-of-paper"><b>{head}</b><p>{sentence}</p>{signs[key]}</div>')
    return HTML(f'<div class="cards">{"".join(parts)}</div>')
