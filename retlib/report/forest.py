"""Forests and tiles: figures of verdicts, with one sign, colour and marker for each (answers, pages of claims)."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from retlib.report.figures import styled
from retlib.report.ledger import NOT_TESTED, SIGNS, decisive, printed
from retlib.report.papers import STAND_IN, papers

# In the order of the ledger's signs.
_COLOURS = "#009E73", "#C03000", "#D55E00", "#D55E00", "#0072B2", "#B07800", "#56B4E9", "#777777"
COLOURS, MARKERS = (dict(zip(SIGNS, looks, strict=True)) for looks in (_COLOURS, "oX^^svP."))
LETTERS = 66  # of a line of a claim above its bar
ABREAST = 15  # tiles in a row, as many as a phone shows at once


def forest(verdicts: pd.DataFrame, names: Mapping[str, str] | None = None) -> Figure:
    """Return a line for each claim that is tested in points: our effect with its 95 % interval, and the paper's.

    Of several contrasts stands the one that the verdict hangs on. `verdicts` are rows of `retlib.report.ledger.ledger`;
    `names` orders claims and has what stands above their lines; without it all come, by their statements.
    """
    names = names or dict(zip(verdicts["id"], verdicts["statement"], strict=True))
    rows = verdicts.set_index("id", drop=False).loc[list(names)].itertuples()
    lines = [(row, decisive(row)) for row in rows if row.tests and row.verdict != NOT_TESTED]
    lines = [(row, line) for row, line in lines if line.unit == "points"]
    texts = [fill(f"{SIGNS[row.verdict]}  {names[row.id]}", LETTERS) for row, _ in lines]
    heights = np.array([0.15 * (text.count("\n") + 1) + 0.28 for text in texts])
    tops = heights[::-1].cumsum()[::-1]
    figure, (axis,) = styled(6.6, heights.sum() + 1.1)
    for (row, line), text, top, bottom in zip(lines, texts, tops, tops - heights + 0.02, strict=True):
        colour, middle = COLOURS[row.verdict], bottom + 0.14
        axis.axhspan(bottom, top, color="0.5", alpha=0.06, linewidth=0)
        where = {"xycoords": ("axes fraction", "data"), "va": "top", "fontsize": 8.5}
        axis.annotate(text, (0.008, top - 0.03), **where).set_in_layout(False)
        axis.vlines(0, bottom, middle + 0.12, color="0.4", linewidth=0.9, zorder=0)
        for limit in {-line.margin, line.margin} if line.alike else {line.margin} - {0.0}:
            axis.plot(limit, middle, "|", color="0.4", markersize=11)
        axis.plot([line.low, line.high], [middle] * 2, color=colour, linewidth=2, solid_capstyle="round")
        axis.plot(line.effect, middle, MARKERS[row.verdict], color=colour, markersize=7)
        if not np.isnan(printed(line)):
            axis.plot(printed(line), middle, "D", markerfacecolor="none", markeredgecolor="0.2", markersize=6.5)
    axis.set(yticks=[], ylim=(0, heights.sum()), xlabel="points for the claim (right) or against it (left)")
    axis.grid(axis="y", visible=False)
    shown = {row.verdict for row, _ in lines}
    looks = {name: {"color": COLOURS[name], "marker": MARKERS[name]} for name in SIGNS if name in shown}
    handles = [Line2D([], [], label=f"{SIGNS[name]} {name}", **look) for name, look in looks.items()]
    if any(not np.isnan(printed(line)) for _, line in lines):
        hollow = {"linestyle": "", "marker": "D", "markerfacecolor": "none", "color": "0.2"}
        handles.append(Line2D([], [], **hollow, label="the paper's"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8.5, frameon=False)
    return figure


def tiles(ledger: pd.DataFrame) -> Figure:
    """Return a tile for each claim under its paper's name: the verdict by sign and colour, hatched on a stand-in."""
    known, groups = papers(), {name: rows for name, rows in ledger.groupby("paper", sort=False)}
    count = sum(1 + -(-len(rows) // ABREAST) for rows in groups.values())
    figure, (axis,) = styled(4.0, 0.27 * count + 0.9)
    line = 0
    for name, rows in groups.items():
        axis.text(0.08, -line, known[name].label, va="center", fontsize=9)
        places, colours = np.arange(len(rows)), rows["verdict"].map(COLOURS)
        x, y = places % ABREAST + 0.5, -(line + 1 + places // ABREAST)
        # Tints and no transparency, which browsers take for that of the hatches, too.
        pale, edge = ([tuple(1 - share * (1 - np.array(to_rgb(each)))) for each in colours] for share in (0.2, 0.5))
        hatches = ["////" if each == STAND_IN else None for each in rows["fidelity"]]
        axis.bar(x, 0.84, 0.84, y - 0.42, color=pale, edgecolor=edge, hatch=hatches, linewidth=1)
        for column, row, verdict in zip(x, y, rows["verdict"], strict=True):
            sign = {"ha": "center", "va": "center", "fontsize": 11, "fontweight": "bold"}
            axis.text(column, row, SIGNS[verdict], color=COLOURS[verdict], **sign)
        line += 1 + -(-len(rows) // ABREAST)
    axis.set(xlim=(0, ABREAST), ylim=(-count + 0.45, 0.55))
    axis.set_axis_off()
    kinds = [name for name in SIGNS if (ledger["verdict"] == name).any()]
    handles = [Patch(color=COLOURS[name], label=f"{SIGNS[name]} {name}") for name in kinds]
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label="on a stand-in"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
