"""All papers at once: the first page, and what is left open."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from retlib.evaluation import results
from retlib.report import rivals
from retlib.report.claims import (
    CONTRADICTED,
    HOLDS,
    INCONCLUSIVE,
    INDICATION,
    NO_EFFECT,
    NOT_TESTED,
    SIGNS,
    STAND_IN,
    SUBSET,
    decisive,
    papers,
    papers_table,
)
from retlib.report.figures import styled
from retlib.report.records import setting
from retlib.report.tables import as_page, chapter_links, claim_cell, data_sets, link, span, stated
from retlib.report.verdict_figures import VERDICT_COLOURS
from retlib.report.verdict_text import DECIDED, came_out, line, power, to_decide, unsettled

MARKERS = {HOLDS: "o", INCONCLUSIVE: "s", CONTRADICTED: "X", NO_EFFECT: "D", INDICATION: "v"}
OPEN = (CONTRADICTED, NO_EFFECT, INCONCLUSIVE, INDICATION, NOT_TESTED)
PLACES = "contradictions in the paper, or with another of the four"
# Claims of a verdict and a paper that the first page names.
TOLD = 2
# Points of the figure of effects that have a number, and a line below it.
FURTHEST = 6
# The sections of the first page with the claims tested from a public encoder, and with BM25 beside all others.
PUBLIC, BESIDE = "from-a-public-encoder", "beside-bm25"
# A ledger, below, is what `retlib.report.claims.ledger` returns.


def verdict_counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """How many claims have each verdict, by paper; those on stand-ins apart."""
    names = {key: paper.label for key, paper in papers().items()}
    data = ledger["fidelity"].map({SUBSET: "on a part of the paper's data", STAND_IN: "on a stand-in"}).fillna("")
    table = pd.crosstab([ledger["paper"].map(names), data], ledger["verdict"])
    table = table.reindex(list(names.values()), level=0).reindex(columns=[each for each in SIGNS if each in table])
    table["claims"] = table.sum(axis=1)
    table.loc[("all", ""), :] = table.sum()
    table = table.astype(int).rename(columns=lambda name: f"{SIGNS[name]} {name}" if name in SIGNS else name)
    return table.rename_axis(index=["paper", "tested"], columns=None).reset_index()


def judged(ledger: pd.DataFrame) -> pd.DataFrame:
    """The papers of which any claim is tested."""
    return ledger[ledger["paper"].isin(ledger["paper"][ledger["verdict"] != NOT_TESTED])]


def told(
    ledger: pd.DataFrame, public: pd.DataFrame, profile: str, source: str | None, leads: Mapping[str, pd.DataFrame]
) -> str:
    """What the book found beside the counts of its verdicts, in a few sentences (MyST).

    Parameters
    ----------
    ledger, public : DataFrame
        The verdicts, and those of a public encoder.
    profile, source : str
        Whose rows they rest on.
    leads : dict
        As `retlib.report.rivals.against_bm25` returns it.
    """
    rest = ledger["fidelity"][ledger["verdict"] != NOT_TESTED]
    tested = public[public["verdict"] != NOT_TESTED]
    against = [f"- {who}: {rivals.standing(found)}." for who, found in leads.items() if len(found)]
    where = link("#" + BESIDE, "each collection")
    head = f"Against BM25, of words or of stems, the better that is recorded; each by one measure ({where} names it):\n"
    sentences = [
        unsettled(ledger),
        "\n".join([head, *against]) if against else "",
        scale(profile, source),
        power(ledger),
        f"Of {len(rest)} claims that are tested {(rest == STAND_IN).sum()} rest on a stand-in for the paper's data, "
        "the others on a subset of it." if len(rest) else "",
        f"From a public encoder {len(tested)} claims are tested: {counted(tested)} ({link('#' + PUBLIC, 'which')})."
        if len(tested) else "",
    ]  # fmt: skip
    return "\n\n".join(filter(None, sentences))


def beside_each_other(ledger: pd.DataFrame) -> str:
    """How many of its decided claims hold, of each paper: a sentence (HTML), the best first; "" of one paper."""
    holds = ledger.loc[ledger["verdict"].isin(DECIDED), "verdict"] == HOLDS
    share = (
        holds.groupby(ledger["paper"]).agg(["sum", "size", "mean"]).sort_values("mean", ascending=False, kind="stable")
    )
    told = [f"{papers()[paper].name} {row['sum']:.0f} of {row['size']:.0f}" for paper, row in share.iterrows()]
    return f"<p>Of the claims that are decided these hold: {', '.join(told)}.</p>" if len(share) > 1 else ""


def listed(ledger: pd.DataFrame, before: pd.DataFrame) -> HTML:
    """The claims that are tested, those that come out otherwise than in another ledger first, with both signs."""
    shown = ledger[ledger["verdict"] != NOT_TESTED]
    shown = shown.assign(was=before.set_index("claim")["verdict"].reindex(shown["claim"]).array)
    same = shown["was"] == shown["verdict"]
    shown = pd.concat([shown[~same], shown[same]])
    lines = [f"<li>{SIGNS[row.was]} → {_line(row, escape(row.statement))}</li>" for row in shown.itertuples()]
    changed = (~same).sum()
    decided = shown[["was", "verdict"]].head(changed).isin(DECIDED).sum(axis=1)
    turned, once = (decided == 2).sum(), (decided == 1).sum()
    said = (
        f"{changed} of {len(lines)} come out otherwise: the sign from random weights → that from the public encoder. "
        f"Of these {turned or 'none'} {'is' if turned < 2 else 'are'} decided in both, {once or 'none'} in one alone, "
        "which does not say that the effect is another. Not the start alone may differ: each claim names its "
        "collections."
    )
    alike = f"<details><summary>{len(lines) - changed} come out alike</summary><ul>{''.join(lines[changed:])}</ul>"
    return HTML(f"<p>{said}</p><ul>{''.join(lines[:changed])}</ul>{alike}</details>")


def answer(ledger: pd.DataFrame) -> HTML:
    """Of each paper how many claims came out how, and the first that are decided."""
    parts = []
    for paper, mine in ledger.groupby("paper", sort=False):
        known = papers()[paper]
        page = f"{known.pages['verdicts']}.html"
        title = link(page, f"{known.part}. {known.authors}")
        decided = mine[mine["verdict"].isin(DECIDED)]
        told = pd.concat([decided[decided["verdict"] == each].head(TOLD) for each in DECIDED])
        lines = [f"<li>{_line(row, _among_verdicts(row))}</li>" for row in told.itertuples()]
        more = len(decided) - len(lines)
        which = link(page, f"{more} more that {'are' if more > 1 else 'is'} decided")
        lines += [f"<li>and {which}</li>"] if more else []
        parts.append(f"<h4>{title}</h4>\n<p>{counted(mine)}</p>\n<ul>{''.join(lines)}</ul>")
    return HTML('<div class="answer">' + "\n".join([beside_each_other(ledger), *parts]) + "</div>")


def _line(row: Any, statement: str) -> str:
    """HTML: the sign of a verdict, what the claim says, and the comparison that the verdict hangs on."""
    return f"{SIGNS[row.verdict]} {stated(row, statement)} ({escape(decisive(row).told)})"


def _among_verdicts(row: Any) -> str:
    """HTML: what a claim says, as a link to its row among the verdicts."""
    return link(f"{papers()[row.paper].pages['verdicts']}.html#{row.claim}", row.statement)


def counted(ledger: pd.DataFrame) -> str:
    """How many claims came out how: HTML for the middle of a sentence."""
    counts = ledger["verdict"].value_counts().reindex(SIGNS).dropna().astype(int)
    return ", ".join(f"<b>{count}</b> {SIGNS[name]} {came_out(name, count > 1)}" for name, count in counts.items())


def scale(profile: str, source: str | None) -> str:
    """On how large models and data the rows of a profile that claims rest on were made: a sentence, "" without rows."""
    rows = results.rows(profile, source)
    tested = {chapter for paper in papers().values() for chapter in paper.chapters}
    trained = rows[rows["experiment"].isin(tested)].dropna(subset=["seconds"]) if len(rows) else rows
    if trained.empty:
        return ""
    settings, minutes = trained["parameters"].dropna().map(json.loads), trained["seconds"].astype(float) / 60
    middle = minutes.median()
    weights, layers = settings.map(_weights).dropna(), settings.map(_layers).dropna()
    sizes = (
        [f"up to about {weights.max() / 1e6:.1f} million weights (bags of words not counted)"] if len(weights) else []
    )
    sizes += [f"{span(layers, '{:.0f}'.format)} layers"] if len(layers) else []
    size = " of " + " and ".join(sizes) if len(weights) else ""
    seeds = rows.groupby("experiment")["seed"].nunique()[trained["experiment"].unique()]
    spreads = {"candidates": trained["candidates"], "queries": trained["queries"], "seeds a chapter": seeds}
    told = [f"{of.median():,.0f} {name} (median; {of.min():,.0f} to {of.max():,.0f})" for name, of in spreads.items()]
    machines = " or ".join(sorted({name.removeprefix("cpu: ") for name in trained["device"]}))
    return (
        f"Encoders{size}, each trained for {middle:.0f} minute{'s' * (round(middle) != 1)} (median; at most "
        f"{minutes.max():.0f}) on {machines}; {', '.join(told)}."
    )


def _weights(settings: Mapping[str, Any]) -> float:
    """About how many weights a tower of these settings has; NaN where they do not say it."""
    tokens, width = settings.get("tokens"), settings.get("width")
    if not isinstance(tokens, Mapping) or "vocabulary" not in tokens or not width:
        return float("nan")
    # A layer of a Transformer has four square matrices of attention, and two four times as large; an MLP has one.
    squares = 12 * _layers(settings) if settings["encoder"] == "transformer" else settings["encoder"] == "bow-mlp"
    return tokens["vocabulary"] * width + squares * width**2 + settings["dimension"] * width


def _layers(settings: Mapping[str, Any]) -> float:
    """Of a Transformer how many layers it has after its last stage; else NaN."""
    return float(setting(settings, "layers")) if settings.get("encoder") == "transformer" else float("nan")


def paper_effect(values: str) -> float:
    """A paper's mean A - B, from the column `paper_values` of its claims; NaN where it gives no such numbers.

    "A=5/7; B=4/5" is 1.5: the mean over what is compared.
    """
    groups = dict(re.findall(r"([A-Z])=([^;]*)", values))
    try:
        a, b = ([float(value) for value in groups[name].split("/")] for name in "AB")
    except (KeyError, ValueError):
        return float("nan")
    return float(np.mean(np.subtract(a, b))) if len(a) == len(b) else float("nan")


def effects(ledger: pd.DataFrame) -> Figure:
    """The papers' effects against ours: for each claim that one system is better than another, the mean A - B.

    The numbers are those of `furthest`.
    """
    figure, (axis,) = styled(6.4, 5.2)
    shown = _both(ledger)
    for verdict, part in shown.groupby("verdict"):
        axis.scatter(
            part["theirs"], part["ours"], s=45, marker=MARKERS[verdict], color=VERDICT_COLOURS[verdict], label=verdict
        )
    axis.axhline(0, color="0.4", linewidth=0.8)
    axis.axline((0, 0), slope=1, color="0.6", linewidth=0.8, linestyle="--", label="as large as in the paper")
    axis.set_xscale("symlog", linthresh=1)
    axis.set_yscale("symlog", linthresh=1)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter("{x:g}")
    axis.set(xlabel="A minus B in the paper (points of 100)", ylabel="A minus B here (points of 100)")
    axis.legend(frameon=False)
    axis.autoscale_view()
    points = axis.transData.transform(shown[["theirs", "ours"]])
    for number, row in enumerate(_furthest(shown).itertuples(), start=1):
        # Away from the nearest of the others.
        away = axis.transData.transform((row.theirs, row.ours)) - points
        away = away[away.any(axis=1)]
        near = away[np.hypot(*away.T).argmin()] if len(away) else np.ones(2)
        at = 10 * near / np.hypot(*near)
        axis.annotate(
            str(number), (row.theirs, row.ours), at, textcoords="offset points", ha="center", va="center", fontsize=9
        )
    return figure


def furthest(ledger: pd.DataFrame) -> HTML:
    """The claims whose effects here fall furthest below the paper's, by their numbers in the figure of `effects`."""
    lines = []
    for row in _furthest(_both(ledger)).itertuples():
        said = f"{row.ours:+.1f} points here, {row.theirs:+.1f} in the paper"
        lines.append(f"<li>{SIGNS[row.verdict]} {_among_verdicts(row)}: {said}</li>")
    return HTML(f"<ol>{''.join(lines)}</ol>")


def _both(ledger: pd.DataFrame) -> pd.DataFrame:
    """Claims that A is better than B, with the mean A - B `theirs` and `ours`, in points of 100 of their measure.

    Means over the comparisons that a claim makes in points. Claims about counts are left out, and those that are not
    tested, and those of which the paper prints no such numbers.
    """
    said, tables = papers_table("claims").set_index("id"), papers_table("tables")
    shown = ledger[ledger["claim"].map(said["direction"]).str.fullmatch("A > B") & (ledger["verdict"] != NOT_TESTED)]
    shown = shown[~shown["claim"].map(said["metric"]).str.startswith("#")]
    fractions = set(tables["paper"][tables["unit"] == "fraction"])  # papers that give measures between 0 and 1
    theirs = shown["claim"].map(said["paper_values"]).map(paper_effect)
    theirs *= np.where(shown["paper"].isin(fractions), 100, 1)
    ours = shown["evidence"].map(lambda found: np.mean([each.a - each.b for each in found if not each.ratio]))
    return shown.assign(theirs=theirs.astype(float), ours=ours.astype(float)).dropna(subset=["theirs", "ours"])


def _furthest(shown: pd.DataFrame) -> pd.DataFrame:
    """Of `_both` the claims whose effect here is furthest below the paper's."""
    gaps = (shown["ours"] - shown["theirs"]).sort_values(kind="stable")
    return shown.loc[gaps.index[gaps < 0]].head(FURTHEST)


def table(ledger: pd.DataFrame) -> HTML:
    """Every claim: its verdict, what decided it, and links to its row among the verdicts and to what tests it."""
    columns = {
        "verdict": lambda row: f"{SIGNS[row.verdict]} {row.verdict}",
        "part": lambda row: papers()[row.paper].part,
        "data": lambda row: row.fidelity,
        "claim": lambda row: claim_cell(row, _among_verdicts(row) if row.evidence else escape(row.statement)),
        "what decided, or why it is not tested": _deciding,
        "seeds": lambda row: row.seeds or "",
        "tested in": chapter_links,
    }
    rows = [{name: cell(row) for name, cell in columns.items()} for row in ledger.itertuples()]
    page = as_page(pd.DataFrame(rows, columns=list(columns)), markup=["claim", "tested in"])
    # What the book's tables.js gives a choice of.
    return HTML(f'<div data-filters="verdict,part,data">{page.data}</div>')


def _deciding(row: Any) -> str:
    """The comparison that a verdict hangs on, and how many there are; or the reason."""
    several = f"\none of {len(row.evidence)} comparisons" if len(row.evidence) > 1 else ""
    return row.reason or "\n".join([row.said, line(decisive(row)) + several, *to_decide(row)])


def inconsistencies(paper: str) -> HTML:
    """Where a paper contradicts itself or another one, and in what, under its part and authors."""
    known = papers()[paper]
    table = as_page(papers_table("inconsistencies").query("paper == @paper")[["where", "what"]])
    return HTML(f"<h3>Part {known.part}: {escape(known.authors)}</h3>\n{table.data}")


def open_counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """For each paper the places in which it contradicts itself, and its claims by what came out."""
    table = pd.crosstab(ledger["paper"], ledger["verdict"]).reindex(index=list(papers()), columns=[*OPEN, HOLDS])
    table.insert(0, PLACES, papers_table("inconsistencies")["paper"].value_counts())
    return table.fillna(0).astype(int).rename_axis(index="paper", columns=None)


def made_on(profile: str, source: str | None) -> pd.DataFrame:
    """What the rows behind the verdicts were made on: when, where and from which revision."""
    columns = ["recorded", "device", "cores", "threads", "python", "platform", "revision"]
    chapters = results.rows(profile, source).groupby("experiment", sort=False)
    found = chapters[columns].agg(_several)
    found.insert(0, "seeds", chapters["seed"].nunique())
    return found.reset_index()


def versions(profile: str, source: str | None) -> pd.DataFrame:
    """The versions of the packages that the rows behind the verdicts were made with."""
    known = results.rows(profile, source)["packages"].dropna().drop_duplicates().map(json.loads)
    frame = pd.DataFrame(known.to_list()).agg(_several)
    return frame.rename_axis("package").rename("version").reset_index()


def _several(values: pd.Series) -> str:
    """Distinct values; of dates the days."""
    texts = values.dropna().astype(str).str.replace(r"T[\d:]+Z$", "", regex=True)
    return ", ".join(sorted(texts.unique()))


def collections(profile: str) -> pd.DataFrame:
    """Which collection stands for each data set of each paper at a profile."""
    parts = {paper.label: data_sets(key, profile) for key, paper in papers().items()}
    return pd.concat(parts, names=["paper", None]).reset_index(level=0)
