"""The first page: all claims of all papers in one glance, and what their verdicts rest on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from retlib.evaluation import results
from retlib.report.claims import SIGNS, bindings, first_few, papers_table, tested_in
from retlib.report.evidence import Evidence
from retlib.report.figures import VERDICT_COLOURS as COLOURS
from retlib.report.figures import styled
from retlib.report.papers import papers
from retlib.report.reports import as_page, data_sets, link

CLOSENESS = {"part": "on the paper's data", "stand-in": "on a stand-in"}
MARKERS = {"holds": "o", "inconclusive": "s", "contradicted": "X"}
# Comparisons of a claim that the table shows; its row among the verdicts has all.
SHOWN = 2
_GROUPS = re.compile(r"([A-Z])=([^;]*)")


def counts(ledger: pd.DataFrame) -> pd.DataFrame:
    """How many claims have each verdict, by paper; those on stand-ins apart.

    Parameters
    ----------
    ledger : DataFrame
        As `retlib.report.claims.ledger` returns it.
    """
    data = ledger["closeness"].map(CLOSENESS).fillna("")
    table = pd.crosstab([ledger["paper"].map(labels()), data], ledger["verdict"])
    table = table.reindex(columns=list(SIGNS), fill_value=0)
    table["claims"] = table.sum(axis=1)
    table.loc[("all", ""), :] = table.sum()
    table = table.astype(int).rename(columns=lambda name: f"{SIGNS[name]} {name}" if name in SIGNS else name)
    return table.rename_axis(index=["paper", "tested"], columns=None).reset_index()


def matrix(ledger: pd.DataFrame) -> Figure:
    """A tile for each claim, a row for each paper: the verdict by sign and colour, hatched on a stand-in."""
    most, names = ledger.groupby("paper").size().max(), labels()
    figure, (axis,) = styled(9.5, 0.62 * len(names) + 1.1)
    for row, paper in enumerate(names):
        for column, claim in enumerate(ledger[ledger["paper"] == paper].itertuples()):
            hatch = "////" if claim.closeness == "stand-in" else None
            tile = FancyBboxPatch(
                (column + 0.08, -row - 0.42), 0.84, 0.84, boxstyle="round,pad=0,rounding_size=0.12", hatch=hatch,
                facecolor=f"{COLOURS[claim.verdict]}30", edgecolor=f"{COLOURS[claim.verdict]}60",
            )  # fmt: skip
            axis.add_patch(tile)
            weight = "bold" if claim.tier == "main" else "normal"
            axis.text(
                column + 0.5, -row, SIGNS[claim.verdict], ha="center", va="center", color=COLOURS[claim.verdict],
                fontsize=12, fontweight=weight,
            )  # fmt: skip
    axis.set(xlim=(0, most), ylim=(-len(names) + 0.45, 0.55), xticks=[], yticks=-np.arange(len(names)))
    axis.set_yticklabels(names.values())
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    handles = [Patch(color=COLOURS[name], label=f"{SIGNS[name]} {name}") for name in SIGNS]
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label="on a stand-in"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return figure


def paper_effect(values: str) -> float:
    """A paper's mean A - B, from the column `paper_values` of its claims; NaN where it gives no such numbers.

    "A=5/7; B=4/5" is 1.5: the mean over what is compared.
    """
    groups = dict(_GROUPS.findall(values))
    try:
        a, b = ([float(value) for value in groups[name].split("/")] for name in "AB")
    except (KeyError, ValueError):
        return float("nan")
    return float(np.mean(np.subtract(a, b))) if len(a) == len(b) else float("nan")


def effects(ledger: pd.DataFrame) -> Figure:
    """The papers' effects against ours: for each claim that one system is better than another, the mean A - B.

    Both in points of 100 of the claim's measure, means over the comparisons that the claim makes.
    Claims about counts are left out.
    """
    told = papers_table("claims").set_index("id")
    figure, (axis,) = styled(6.4, 5.2)
    shown = ledger[ledger["claim"].map(told["direction"]).str.fullmatch("A > B") & ledger["evidence"].map(bool)]
    shown = shown[~shown["claim"].map(told["metric"]).str.startswith("#")]
    tables = papers_table("tables")
    fractions = set(tables["paper"][tables["unit"] == "fraction"])  # papers that give measures between 0 and 1
    for verdict, part in shown.groupby("verdict"):
        theirs = part["claim"].map(lambda name: paper_effect(told["paper_values"][name]))
        ours = part["evidence"].map(lambda found: np.mean([each.a - each.b for each in found]))
        theirs *= np.where(part["paper"].isin(fractions), 100, 1)
        axis.scatter(theirs, ours, s=45, marker=MARKERS[verdict], color=COLOURS[verdict], label=verdict)
    axis.axhline(0, color="0.4", linewidth=0.8)
    axis.axline((0, 0), slope=1, color="0.6", linewidth=0.8, linestyle="--")
    axis.set_xscale("symlog", linthresh=1)
    axis.set_yscale("symlog", linthresh=1)
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter("{x:g}")
    axis.set(xlabel="the paper's A minus B (points of 100)", ylabel="ours (points of 100)")
    axis.annotate(
        "as large as in the paper", (0.97, 0.9), xycoords="axes fraction", ha="right", color="0.4", fontsize=8
    )
    axis.legend(frameon=False)
    return figure


def table(ledger: pd.DataFrame) -> HTML:
    """Every claim: its verdict, our effects, and links to its row among the verdicts and to the pages that test it."""
    known, bound = papers(), bindings()["claims"]
    lines = [
        {
            "verdict": f"{SIGNS[row.verdict]} {row.verdict}",
            "part": known[row.paper].part,
            "data": row.closeness,
            "claim": statement(row, known[row.paper].pages["verdicts"]),
            "effect, 95 % interval": _effect(row.evidence) or row.reason,
            "seeds": row.seeds or "",
            "tested in": chapters(bound.get(row.claim, {})),
        }
        for row in ledger.itertuples()
    ]
    shown = as_page(pd.DataFrame(lines), markup=["claim", "tested in"])
    # What the book's filters.js gives a choice of.
    return HTML(f'<div data-filters="verdict,part,data">{shown.data}</div>')


def statement(row: Any, page: str) -> str:
    """What a claim says; with evidence, a link to its row among the verdicts; and the claim's name."""
    said = link(f"{page}.html#{row.claim}", row.statement) if row.evidence else escape(row.statement)
    return f"{said}\n<code>{row.claim}</code>"


def _effect(evidence: Sequence[Evidence]) -> str:
    return "; ".join(first_few([each.text for each in evidence], SHOWN))


def chapters(claim: Mapping) -> str:
    """HTML: a link to each notebook whose rows test a claim."""
    return ", ".join(link(f"{page}.html", page[:2]) for page in tested_in(claim))


def labels() -> dict[str, str]:
    """Paper to what tables and figures call it."""
    return {key: paper.label for key, paper in papers().items()}


def made_on(profile: str, source: str | None) -> pd.DataFrame:
    """What the rows behind the verdicts were made on: when, where and from which revision."""
    columns = ["recorded", "device", "cores", "threads", "python", "platform", "revision"]
    return _rows(profile, source).groupby("experiment", sort=False)[columns].agg(_several).reset_index()


def versions(profile: str, source: str | None) -> pd.DataFrame:
    """The versions of the packages that the rows behind the verdicts were made with."""
    known = _rows(profile, source)["packages"].dropna().drop_duplicates().map(json.loads)
    frame = pd.DataFrame(known.to_list()).agg(_several)
    return frame.rename_axis("package").rename("version").reset_index()


def _rows(profile: str, source: str | None) -> pd.DataFrame:
    found = [results.load(name, profile, source) for name in results.experiments(profile)]
    return pd.concat([each.rows for each in found if each is not None and len(each.rows)], ignore_index=True)


def collections(profile: str) -> pd.DataFrame:
    """Which collection plays each data set of each paper at a profile; see `retlib.report.reports.data_sets`."""
    names = labels()
    parts = {names[paper]: data_sets(paper, profile) for paper in bindings()["collections"]}
    return pd.concat(parts, names=["paper", None]).reset_index(level=0)


def _several(values: pd.Series) -> str:
    """Distinct values; of dates the days."""
    texts = values.dropna().astype(str).str.replace(r"T[\d:]+Z$", "", regex=True)
    return ", ".join(sorted(texts.unique()))
