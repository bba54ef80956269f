"""Figures of Part III, drawn from recorded tables alone; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.report.figures import curves, differences, legend, line_style, styled


def gains(table: pd.DataFrame, measure: str, rival: str = "BM25", level: float = 0.05) -> Figure:
    """Systems (rows) minus a rival on every collection (columns); bold where p < `level`.

    Parameters
    ----------
    table : DataFrame
        As `retlib.report.tables.against` returns it.
    """
    systems, names = list(dict.fromkeys(table["system"])), list(dict.fromkeys(table["collection"]))
    effects = table.pivot(index="system", columns="collection", values="effect").loc[systems, names].to_numpy()
    p_values = table.pivot(index="system", columns="collection", values="p").loc[systems, names].to_numpy()
    longest = max(map(len, systems))
    figure, (axis,) = styled(1.05 * len(names) + 2.2 + 0.08 * longest, 0.42 * len(systems) + 2.4)
    image = differences(axis, effects, p_values < level)
    axis.set_aspect("auto")
    axis.set(xticks=range(len(names)), yticks=range(len(systems)), yticklabels=systems)
    axis.set_xticklabels(names, rotation=30, ha="right")
    figure.colorbar(image, ax=axis, label=f"points of {measure} above {rival}")
    return figure


def statistics(table: pd.DataFrame, shown: Mapping[str, str]) -> Figure:
    """What is written by each decoding, a panel for each statistic, a marker for each kind of queries.

    Parameters
    ----------
    table : DataFrame
        As `retlib.studies.part3.record_statistics` returns it; seeds are averaged.
    shown : mapping
        Column of the table to what stands above its panel.
    """
    targets, kinds = list(dict.fromkeys(table["target"])), list(dict.fromkeys(table["by"]))
    figure, axes = styled(2.6 * len(shown) + 2.0, 0.45 * len(targets) + 2.0, len(shown))
    places = np.arange(len(targets))[::-1]
    for axis, (column, title) in zip(axes, shown.items(), strict=True):
        for number, kind in enumerate(kinds):
            values = table[table["by"] == kind].groupby("target")[column].mean().reindex(targets)
            offset = 0.12 * ((len(kinds) - 1) / 2 - number)
            axis.plot(values, places + offset, markersize=7, label=kind, **{**line_style(number), "linestyle": "none"})
        axis.set(yticks=places, ylim=(-0.6, len(targets) - 0.4), title=title)
        axis.set_yticklabels(targets if axis is axes[0] else [])
        axis.title.set_fontsize(10)
        axis.margins(x=0.12)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds), fontsize=9, frameon=False)
    return figure


def over(table: pd.DataFrame, x: str, by: str, xlabel: str, ylabel: str) -> Figure:
    """Values over a size on a logarithmic axis, whose ticks are the sizes; see `retlib.report.figures.curves`.

    Parameters
    ----------
    table : DataFrame
        Columns `x`, `by`, `seed` and `value`.
    """
    figure = curves(table, x, "value", by, xlabel, ylabel, logarithmic="x")
    places = sorted(table[x].unique())
    figure.axes[0].minorticks_off()
    figure.axes[0].set_xticks(places, [f"{place:,}" for place in places])
    return figure


def worth(table: pd.DataFrame, levels: Mapping[str, float]) -> Figure:
    """R@10 over a generator's held-out loss, better generators to the right; the bars are 95 % intervals.

    Parameters
    ----------
    table : DataFrame
        As `retlib.studies.part3.worth` returns it.
    levels : mapping
        Name to the value of what has no generator, a horizontal line.
    """
    figure, (axis,) = styled(7.0, 4.4)
    for number, (system, part) in enumerate(table.groupby("system", sort=False)):
        bars = [part["value"] - part["low"], part["high"] - part["value"]]
        style = {**line_style(number), "linestyle": "none"}
        axis.errorbar(part["loss"], part["value"], yerr=bars, markersize=6, capsize=3, label=system, **style)
    for row in table.drop_duplicates("generator").itertuples():
        place = {"xycoords": axis.get_xaxis_transform(), "xytext": (0, 4), "textcoords": "offset points"}
        axis.annotate(row.generator, (row.loss, 0), ha="center", fontsize=9, **place)
    for (name, value), pattern in zip(levels.items(), (":", "--", "-."), strict=False):
        axis.axhline(value, color="0.4", linestyle=pattern, linewidth=1, label=name)
    axis.invert_xaxis()
    axis.margins(x=0.15, y=0.12)
    axis.set(xlabel="held-out loss of the generator, nats a token (lower is better)", ylabel="R@10 (points of 100)")
    legend(figure, [axis], 3)
    return figure
