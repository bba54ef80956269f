"""Figures of Part III, drawn from recorded tables alone; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.data.datasets.catalogue import called
from retlib.report.figures import curves, differences, legend, line_styles, styled


def gains(table: pd.DataFrame, measure: str, rival: str = "BM25") -> Figure:
    """Return systems (rows) less a rival on every collection (columns), as `retlib.report.tables.against` has them."""
    systems, names = list(dict.fromkeys(table["system"])), list(dict.fromkeys(table["collection"]))
    longest = max(map(len, systems))
    figure, (axis,) = styled(0.62 * len(names) + 1.4 + 0.075 * longest, 0.3 * len(systems) + 2.2)
    image = differences(axis, table.rename(columns={"system": "row", "collection": "column"}), systems, names)
    axis.set_aspect("auto")
    axis.set(xticks=range(len(names)), yticks=range(len(systems)), yticklabels=systems)
    axis.set_xticklabels([called(name) for name in names], rotation=30, ha="right")
    figure.colorbar(image, ax=axis, label=f"points of {measure} above {rival}", extend="both")
    return figure


def statistics(table: pd.DataFrame, shown: Mapping[str, str]) -> Figure:
    """Return what each decoding writes, as `retlib.studies.part3.record_statistics` has it; seeds are averaged.

    A panel for each column that is `shown`, under its title there, a marker for each kind of queries.
    """
    targets, kinds = list(dict.fromkeys(table["target"])), line_styles(table["by"])
    figure, axes = styled(1.6 * len(shown) + 1.9, 0.4 * len(targets) + 2.0, len(shown))
    places = np.arange(len(targets))[::-1]
    for axis, (column, title) in zip(axes, shown.items(), strict=True):
        for number, (kind, style) in enumerate(kinds.items()):
            values = table[table["by"] == kind].groupby("target")[column].mean().reindex(targets)
            offset = 0.12 * ((len(kinds) - 1) / 2 - number)
            axis.plot(values, places + offset, markersize=7, label=kind, **{**style, "linestyle": "none"})
        axis.set(yticks=places, ylim=(-0.6, len(targets) - 0.4), title=fill(title, 16))
        axis.set_yticklabels([called(target) for target in targets] if axis is axes[0] else [])
        axis.title.set_fontsize(10)
        axis.margins(x=0.12)
    legend(figure, axes)
    return figure


def over(table: pd.DataFrame, x: str, by: str, xlabel: str, ylabel: str) -> Figure:
    """Return `value` over a size, on a logarithmic axis whose ticks are the sizes, as `curves` draws it."""
    figure = curves(table.assign(**{by: table[by].map(called)}), x, "value", by, xlabel, ylabel, logarithmic="x")
    places = sorted(table[x].unique())
    figure.axes[0].minorticks_off()
    figure.axes[0].set_xticks(places, [f"{place:,}" for place in places])
    return figure
