"""Figures of verdicts, each of which has the same sign and colour throughout the book."""

from __future__ import annotations

from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from retlib.report.claims import HOLDS, SIGNS, STAND_IN, papers
from retlib.report.figures import styled

VERDICT_COLOURS = {
    "holds": "#009E73", "contradicted": "#D55E00", "no effect": "#0072B2", "inconclusive": "#E69F00",
    "indication": "#56B4E9", "not tested": "#999999",
}  # fmt: skip
LABEL = 104  # characters of a line of a claim above its bars
NOTED = "\u00a0*"  # of a claim of whose test there is something to know
# Tiles in a row, as many as a phone shows at once.
ABREAST = 15


def by_claim(verdicts: pd.DataFrame) -> Figure:
    """Claims as rows: sign and colour of the verdict, and the effects in points with their 95 % intervals.

    Parameters
    ----------
    verdicts : DataFrame
        As `retlib.report.claims.verdicts` returns it.
    """
    # Each claim stands above its bars, so that a narrow page that shows a part of the figure has both.
    shown = verdicts.assign(
        label=[fill(f"{SIGNS[row.verdict]}  {row.statement}{NOTED * bool(row.as_tested)}", LABEL)
               for row in verdicts.itertuples()],
        drawn=[[each for each in found if not each.ratio] for found in verdicts["evidence"]],
    )  # fmt: skip
    # Inches, of bars and of the lines above them.
    shown["space"] = [max(0.2 * bool(row.evidence), 0.07 * len(row.drawn)) for row in shown.itertuples()]
    shown["height"] = [0.16 * (label.count("\n") + 1) + 0.12 for label in shown["label"]] + shown["space"]
    whole = shown["height"].sum()
    shown["foot"] = whole - shown["height"].cumsum()
    figure, (axis,) = styled(7.2, whole + 1.5)
    for row in shown.itertuples():
        colour, middle = VERDICT_COLOURS[row.verdict], row.foot + 0.04 + row.space / 2
        axis.axhspan(row.foot + 0.02, row.foot + row.height - 0.02, color=colour, alpha=0.10, linewidth=0)
        where = {"xycoords": ("axes fraction", "data"), "fontsize": 8}
        axis.annotate(row.label, (0.008, row.foot + row.height - 0.05), va="top", **where).set_in_layout(False)
        axis.vlines(0, row.foot + 0.02, row.foot + row.space + 0.08, color="0.4", linewidth=0.8)
        offsets = np.linspace(0.4, -0.4, len(row.drawn)) * row.space if len(row.drawn) > 1 else [0.0]
        for offset, each in zip(offsets, row.drawn, strict=False):
            axis.plot([each.low, each.high], [middle + offset] * 2, color=colour, linewidth=1.5)
            axis.plot(each.effect, middle + offset, "o", color=colour, markersize=4)
        if row.evidence and not row.drawn:
            told = ", ".join(each.shown(each.effect) for each in row.evidence)
            axis.annotate(f"{told} (for it above x1)", (0.98, middle), va="center", ha="right", **where)
    axis.set(yticks=[], ylim=(0, whole))
    told = "effect in the claim's direction, with 95 % interval (points of 100; beyond 1 logarithmic)"
    axis.set_xlabel(told, fontsize=9)
    # Above, too: a reader of the first of many claims does not see the foot.
    axis.set_title(told, fontsize=9)
    axis.tick_params(top=True, labeltop=True)
    axis.set_xscale("symlog", linthresh=1)
    axis.xaxis.set_major_formatter("{x:g}")
    other = [Patch(alpha=0, label="* as tested: in the table")] * bool(verdicts["as_tested"].any())
    figure.legend(handles=[*verdict_patches(verdicts), *other], loc="outside lower center", ncols=4, frameon=False)
    return figure


def verdict_patches(verdicts: pd.DataFrame) -> list[Patch]:
    """What a legend shows of the verdicts among these: a patch for each kind."""
    kinds = [name for name in SIGNS if (verdicts["verdict"] == name).any()]
    return [Patch(color=VERDICT_COLOURS[name], label=f"{SIGNS[name]} {name}") for name in kinds]


def matrix(ledger: pd.DataFrame) -> Figure:
    """A tile for each claim under its paper's name: the verdict by sign and colour, hatched on a stand-in."""
    lines: list[str | pd.DataFrame] = []
    for name, paper in papers().items():
        mine = ledger[ledger["paper"] == name]
        rows = [mine[start : start + ABREAST] for start in range(0, len(mine), ABREAST)]
        lines += [paper.label, *rows] if rows else []
    figure, (axis,) = styled(4.0, 0.27 * len(lines) + 0.9)
    for row, line in enumerate(lines):
        if isinstance(line, str):
            axis.text(0.08, -row, line, va="center", fontsize=9)
            continue
        for column, claim in enumerate(line.itertuples()):
            colour = VERDICT_COLOURS[claim.verdict]
            # Tints and no transparency, which browsers take for that of the hatches, too.
            pale, middle = (1 - share * (1 - np.array(to_rgb(colour))) for share in (0.2, 0.5))
            tile = FancyBboxPatch(
                (column + 0.08, -row - 0.42), 0.84, 0.84, boxstyle="round,pad=0,rounding_size=0.12",
                hatch="////" if claim.fidelity == STAND_IN else None, facecolor=pale, edgecolor=middle,
            )  # fmt: skip
            axis.add_patch(tile)
            axis.text(
                column + 0.5, -row, SIGNS[claim.verdict], ha="center", va="center", color=colour,
                fontsize=11, fontweight="bold" if claim.tier == "main" else "normal",
            )  # fmt: skip
    axis.set(xlim=(0, ABREAST), ylim=(-len(lines) + 0.45, 0.55))
    axis.set_axis_off()
    handles = verdict_patches(ledger)
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label="on a stand-in"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


def bars(table: pd.DataFrame) -> Figure:
    """What `retlib.report.overview.open_counts` returns: for each paper a bar of each kind, what holds left out."""
    figure, (axis,) = styled(7.6, 4.2)
    told = [kind for kind in table if kind not in VERDICT_COLOURS or (kind != HOLDS and table[kind].any())]
    kinds = {kind: VERDICT_COLOURS.get(kind, "0.35") for kind in told}
    for i, (kind, colour) in enumerate(kinds.items()):
        label = f"claims {SIGNS[kind]} {kind}" if kind in SIGNS else kind
        drawn = axis.barh(np.arange(len(table)) + 0.13 * i, table[kind], height=0.12, color=colour, label=label)
        axis.bar_label(drawn, padding=3, fontsize=8)
    names = [papers()[paper].label for paper in table.index]
    axis.set(yticks=np.arange(len(table)) + 0.32, yticklabels=names, xlabel="number")
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
