"""Forests and tiles: figures of verdicts, with one sign, colour and marker for each (answers, pages of claims)."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from retlib.report.figures import legend, name_rows, styled
from retlib.report.ledger import NOT_TESTED, SIGNS, decisive, paper_effect
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
    figure, (axis,) = styled(6.6, 0.42 * len(texts) + 0.18 * "".join(texts).count("\n") + 1.1)
    for (row, line), height in zip(lines, name_rows(axis, texts), strict=True):
        looks = {"color": COLOURS[row.verdict], "solid_capstyle": "round"}
        axis.vlines(0, height - 0.28, height + 0.22, color="0.4", linewidth=0.9, zorder=0)
        for limit in {-line.margin, line.margin} if line.alike else {line.margin} - {0.0}:
            axis.plot(limit, height, "|", color="0.4", markersize=11)
        axis.plot([line.low, line.high], [height] * 2, **looks, linewidth=2)
        label = f"{SIGNS[row.verdict]} {row.verdict}"
        axis.plot(line.effect, height, MARKERS[row.verdict], **looks, markersize=7, label=label)
        if not np.isnan(paper_effect(line)):
            axis.plot(paper_effect(line), height, "D", mfc="none", color="0.2", markersize=6.5, label="the paper's")
    axis.set(xlabel="points for the claim (right) or against it (left)")
    return legend(figure, [axis])


def tiles(ledger: pd.DataFrame) -> Figure:
    """Return a tile for each claim under its paper's name: the verdict by sign and colour, hatched on a stand-in."""
    groups, line = dict(iter(ledger.groupby("paper", sort=False))), 0
    count = sum(1 + -(-len(rows) // ABREAST) for rows in groups.values())
    figure, (axis,) = styled(4.0, 0.27 * count + 0.9)
    for name, rows in groups.items():
        axis.text(0.08, -line, papers()[name].label, va="center", fontsize=9)
        places, colours = np.arange(len(rows)), rows["verdict"].map(COLOURS)
        x, y = places % ABREAST + 0.5, -(line + 1 + places // ABREAST)
        # Tints and no transparency, which browsers take for that of the hatches, too.
        pale, edge = ([tuple(1 - share * (1 - np.array(to_rgb(each)))) for each in colours] for share in (0.2, 0.5))
        hatches = ["////" if each == STAND_IN else None for each in rows["fidelity"]]
        axis.bar(x, 0.84, 0.84, y - 0.42, color=pale, edgecolor=edge, hatch=hatches, linewidth=1)
        for column, row, verdict in zip(x, y, rows["verdict"], strict=True):
            sign = {"ha": "center", "va": "center", "fontsize": 11, "fontweight": "bold"}
            axis.text(column, row, SIGNS[verdict], color=COLOURS[verdict], **sign)
        line = 1 - y.min()
    axis.set(xlim=(0, ABREAST), ylim=(-count + 0.45, 0.55))
    axis.set_axis_off()
    shown = {name: colour for name, colour in COLOURS.items() if (ledger["verdict"] == name).any()}
    handles = [Patch(color=colour, label=f"{SIGNS[name]} {name}") for name, colour in shown.items()]
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label="on a stand-in"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
