"""Figures of systems compared query by query, drawn from tables alone; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from retlib.report.figures import COLOURS, legend, line_style, style_axis

# How `outcomes` draws losses and wins: a hatch tells them apart without colour.
LOSS = {"color": COLOURS[1], "hatch": "///", "edgecolor": "white", "linewidth": 0}
WIN = {"color": COLOURS[0]}


def slices(tables: Mapping[str, pd.DataFrame], measure: str) -> Figure:
    """Systems over parts of the queries, from the least lexical overlap to the most; a panel for each collection.

    Parameters
    ----------
    tables : mapping
        Collection to a table as `retlib.report.by_query.slices` returns it. Bars are 95 % intervals;
        systems stand side by side, so that bars do not cover each other.
    """
    figure, axes = _panels(list(tables), 4.4, 3.4)
    systems = list(dict.fromkeys(system for table in tables.values() for system in table["system"]))
    for axis, table in zip(axes, tables.values(), strict=True):
        _lines(axis, table, systems)
        axis.set(xlabel="query's words in a relevant document", ylabel=f"{measure} (points of 100)")
    legend(figure, axes, 3, 8)
    return figure


def _lines(axis: Axes, table: pd.DataFrame, systems: Sequence[str]) -> None:
    edges = table["edge"].drop_duplicates().tolist()
    for number, system in enumerate(systems):
        mine = table[table["system"] == system].set_index("edge").reindex(edges)
        places = np.arange(len(edges)) + 0.5 * (number - (len(systems) - 1) / 2) / len(systems)
        errors = [mine["value"] - mine["low"], mine["high"] - mine["value"]]
        if mine["value"].notna().any():
            axis.errorbar(
                places, mine["value"], errors, markersize=4.5, linewidth=1.1, elinewidth=0.8, capsize=2, label=system,
                **line_style(number),
            )  # fmt: skip
    labels = [part.replace(" (", "\n(") for part in table.drop_duplicates("edge")["part"]]
    axis.set_xticks(range(len(edges)), labels)
    axis.grid(axis="x", visible=False)


def outcomes(tables: Mapping[str, pd.DataFrame], rival: str, measure: str) -> Figure:
    """Queries lost (to the left) and won (to the right) against a rival; a panel for each collection.

    Parameters
    ----------
    tables : mapping
        Collection to a table as `retlib.report.by_query.outcomes` returns it, drawn in its order from
        top to bottom. Ties are a number at the right.
    """
    height = 0.3 * max(len(table) for table in tables.values()) + 1.4
    figure, axes = _panels(list(tables), 5.2, height)
    for axis, table in zip(axes, tables.values(), strict=True):
        _diverging(axis, table)
        axis.set_xlabel(f"queries worse | better than {rival} ({measure})")
    legend(figure, axes, 2, 8)
    return figure


def _diverging(axis: Axes, table: pd.DataFrame) -> None:
    places = np.arange(len(table))[::-1]
    axis.barh(places, -table["losses"], height=0.7, label="losses", **LOSS)
    axis.barh(places, table["wins"], height=0.7, label="wins", **WIN)
    for place, ties in zip(places, table["ties"], strict=True):
        # At the right edge of the panel, whatever the lengths of bars.
        axis.text(1.02, place, f"{ties} ties", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    bound = 1.05 * max(1, table[["wins", "losses"]].to_numpy().max(initial=0))
    axis.axvline(0, color="0.2", linewidth=0.8)
    axis.set(xlim=(-bound, bound), yticks=places, yticklabels=table["system"])
    axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axis.grid(axis="y", visible=False)


def _panels(titles: Sequence[str], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of panels, two a row, each of the given size in inches."""
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    size = (width * columns + (2.6 if columns == 1 else 0.6), height * rows + 0.8)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", dpi=110)
    for axis in axes.flat[len(titles) :]:
        axis.set_visible(False)
    shown = list(axes.flat[: len(titles)])
    for axis, title in zip(shown, titles, strict=True):
        style_axis(axis)
        axis.set_title(title, fontsize=10)
    return figure, shown
