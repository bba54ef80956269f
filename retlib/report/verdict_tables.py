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
    statements, rows = papers_table("claims").set_index("id")["statement"], []
    for line in table.itertuples():
        cells = f"not tested: {line.reason}", "", "", ""
        if not line.reason:
            what = "\n".join(_parts(line)) + (line.closed and f"\nclosed: {line.closed}")
            cells = what, effect(line), f"{p_text(line.p_for)}, {p_text(line.p_against)}", _paper(line)
        rows.append((f"{escape(statements[line.claim])}\n<code>{line.claim}</code>", *cells))
    heads = ["claim", "contrast", "effect [95 %]", "p for, against (before correction)", "paper"]
    shown = pd.DataFrame(rows, columns=heads)
    page = as_page(shown.assign(claim=shown["claim"].mask(shown["claim"].duplicated(), "")), markup=["claim"])
    folded = f"<details><summary>All {len(shown)} contrasts of this chapter</summary>{page.data}</details>"
    return page if len(shown) <= LONGEST else HTML(folded)


def _parts(line: Any) -> list[str]:
    # What a contrast compares, where, and what it asks for.
    given = ("given: " if is_seen(line) else "given, not seen: ") if line.role == CONDITION else ""
    where = f"{line.measure} on {' and '.join(map(called, json.loads(line.collections)[:3]))}"
    above = f"above {amount(line, line.margin)}" if line.margin else ""
    asks = f"within {line.margin:g} of 0" if line.alike else above
    return [*filter(None, (f"{given}{line.label}", where, asks))]


def _paper(line: Any) -> str:
    if pd.isna(line.paper):
        return ""
    return f"{line.paper:+.4g}" if line.unit == "points" else f"x{line.paper:.3g}"


def _text(line: Any) -> str:
    paper = _paper(line) and f", the paper's {_paper(line)}"
    return f"{', '.join(_parts(line))}: {effect(line)}{paper}{line.closed and f'; closed: {line.closed}'}"


def by_claim(verdicts: pd.DataFrame) -> HTML:
    """Return a paper's claims, a row each with an anchor: verdict, claim, what decides it, and the scale."""
    chapter = "{}.html#the-paper-s-claims".format
    rows = [
        {
            **_row(row),
            "what decides": _first(row),
            "scale": _scale(row),
            "all contrasts": link(chapter(row.chapter), "in its chapter") if row.chapter else "",
        }
        for row in verdicts.itertuples()
    ]
    return as_page(pd.DataFrame(rows), verdicts["id"], markup=["claim", "what decides", "all contrasts"])


def every_claim(ledger: pd.DataFrame) -> HTML:
    """Return all claims with a choice of verdict and part above them (the book's tables.js)."""
    known, first = papers(), "what decides, or why it is not tested"
    rows = [
        {**_row(row), "part": link(_place(row), known[row.paper].part), first: _first(row)}
        for row in ledger.itertuples()
    ]
    page = as_page(pd.DataFrame(rows), markup=["part", "claim", first])
    return HTML(f'<div data-filters="verdict,part">{page.data}</div>')


def _place(row: Any) -> str:
    return f"{papers()[row.paper].pages['verdicts']}.html#{row.id}"


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
    if row.verdict == INCONCLUSIVE and 1 < times_as_much(row) <= 100:
        parts.append(f"about {times_as_much(row):.0f} times as much data would decide")
    return "; ".join(parts)


def _scale(row: Any) -> str:
    lines = row.tests
    encoders = dict.fromkeys(part for line in lines for part in line.encoder.split("; ") if part)
    among = [f"{each:,.0f} candidates" for each in sorted(line.candidates for line in lines if line.candidates > 0)]
    values = [f"{line.questions:,.0f} {line.rows}" for line in lines if line.rows]
    parts = [", ".join(encoders), *among[:1], *values[:1], f"{row.seeds} seed{'s' * (row.seeds != 1)}", row.fidelity]
    return "\n".join(filter(None, parts)) if lines else ""


def link(address: str, text: str) -> str:
    """HTML of a link, for the columns of `as_page` that are markup."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def provenance(profile: str, source: str | None) -> pd.DataFrame:
    """Return when, where, and from which revision the rows of each chapter were recorded."""
    chapters = results.rows(profile, source).groupby("experiment", sort=False)
    columns = ["device", "cores", "python", "revision"]
    table = chapters[columns].agg(lambda values: ", ".join(sorted({str(each)[:200] for each in values.dropna()})))
    days = chapters["recorded"].agg(lambda times: " to ".join(dict.fromkeys([min(times)[:10], max(times)[:10]])))
    return pd.concat([chapters["seed"].nunique().rename("seeds"), days, table], axis=1).reset_index()


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return how many claims have each verdict, by paper."""
    names = {key: paper.label for key, paper in papers().items()}
    table = pd.crosstab(ledger["paper"].map(names), ledger["verdict"], margins=True, margins_name="all")
    table = table.reindex(index=[*names.values(), "all"], columns=[*SIGNS, "all"])
    table = table.dropna(how="all").dropna(how="all", axis=1).astype(int)
    heads = {name: f"{sign} {name}" for name, sign in SIGNS.items()} | {"all": "claims"}
    return table.rename(columns=heads).rename_axis(None, axis=1).reset_index()


def flat(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger for printing: a line for each contrast, or one with the reason of what is not tested."""
    rows = verdicts.itertuples()
    evidence = [[*filter(None, [row.reason]), *map(_text, (*row.tests, *row.conditions))] for row in rows]
    columns = ["claim", "verdict", "by_bh", "p", "seeds", "fidelity", "evidence"]
    return verdicts.assign(claim=verdicts["id"], evidence=evidence)[columns].explode("evidence")


def as_text(row: Any) -> str:
    """Return one row of a ledger for a terminal: claim and verdict, then a line for each contrast."""
    rests = "" if pd.isna(row.p) else f"p = {row.p:.2g} after Holm's correction; by Benjamini-Hochberg {row.by_bh}"
    lines = [row.as_tested and f"as tested: {row.as_tested}", row.reason, rests, _scale(row).replace("\n", ", ")]
    lines = filter(None, [*lines, *map(_text, (*row.tests, *row.conditions))])
    return "\n  ".join([f"{row.statement}\n{SIGNS[row.verdict]} {row.verdict}", *lines])


def cards(sentences: Mapping[str, str], ledger: pd.DataFrame) -> HTML:
    """Return a card for each paper: its name, a sentence, and a sign for each of its claims, which leads to it."""
    parts = []
    for key, paper in papers().items():
        head = link(f"{paper.pages['verdicts']}.html", f"{paper.part}. {paper.name}")
        signs = "".join(
            f'<a class="sign {row.verdict.replace(", ", "-").replace(" ", "-")}" href="{_place(row)}" '
            f'title="{escape(row.verdict)}: {escape(row.statement)}">{SIGNS[row.verdict]}</a>'
            for row in ledger[ledger["paper"] == key].itertuples()
        )
        sentence = f"<p>{escape(sentences.get(key, ''))}</p>"
        parts.append(f'<div class="card-of-paper"><b>{head}</b>{sentence}<span class="signs">{signs}</span></div>')
    return HTML(f'<div class="cards">{"".join(parts)}</div>')
