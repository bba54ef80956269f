"""Figures, drawn from recorded rows alone; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator
from matplotlib.transforms import Bbox

from retlib.data.datasets.catalogue import called
from retlib.evaluation.measures import Comparison
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL

# Colours that stay apart for most colour-blind readers (Okabe and Ito); markers tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"
# What several figures show looks the same in all of them: its place in `line_style`. Names that never stand in one
# figure may share a place; those that are not here take the places that their figure leaves.
PLACES = {
    "BM25": 6, "BM25, stemmed, tuned": 30, "tuned BM25": 30, "BM25, stemmed": 14, "BM25, expanded": 22,
    "ANCE": 0, "Async ANN (long)": 0, "LTRe": 1, "BM25 Neg": 2, "Rand Neg": 3, "NCE Neg": 4, "Async ANN (short)": 5,
    "BM25 + Rand Neg": 7,
    "pairwise_cross_entropy": 0, "in_batch_cross_entropy": 1, "in_batch_softmax": 2, "in_batch_triplet": 3,
    "in_batch_softmax, momentum": 4, "in_batch_softmax, momentum, paper's rate": 5,
    "exact": 0, "quantized": 1, "quantized, no lists": 2,
    "Embeddings, ICT": 2, "Embeddings, ICT+BFS+WLP": 3,
    "Siamese": 0, "Two-Tower": 1,
    "squad-passages": 0, "natural-questions-passages": 1, "insuranceqa": 2,
}  # fmt: skip
ROW = 0.36  # inches of a row with its name above what is drawn in it
LEGEND = 6  # lines that are named inside of a plot; more are named below it


def styled(
    width: float = 7.0, height: float = 4.0, columns: int = 1, rows: int = 1, **options: bool
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its panels, row by row, in the book's style; sizes in inches, options of matplotlib."""
    # Styled axis by axis: a style context would undo the interactive mode that a notebook's backend turns on.
    looks = {"figsize": (width, height), "squeeze": False, "layout": "constrained", "dpi": 110}
    figure, axes = plt.subplots(rows, columns, **looks, **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes.ravel()


def line_style(place: int) -> dict[str, str]:
    """Return colour, marker and dashes that no earlier place has."""
    cycle = place // len(COLOURS)
    marker = MARKERS[(place + 3 * cycle) % len(MARKERS)]
    return {"color": COLOURS[place % len(COLOURS)], "marker": marker, "linestyle": ("-", "--", ":")[cycle % 3]}


def line_styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the style of each name in a figure; no two are alike, and those in `PLACES` look as in every figure."""
    names = list(dict.fromkeys(names))
    places: dict[str, int] = {}
    for name in names:
        if name in PLACES and PLACES[name] not in places.values():
            places[name] = PLACES[name]
    free = (place for place in count() if place not in places.values())
    return {name: line_style(places[name] if name in places else next(free)) for name in names}


def name_rows(axis: Axes, names: Sequence[str]) -> np.ndarray:
    """Return heights for rows from the top, and write each name above its row, so that a narrow page shows both."""
    tops = np.arange(len(names))[::-1] + 0.5
    for top, name in zip(tops, names, strict=True):
        where = {"xycoords": ("axes fraction", "data"), "va": "top", "fontsize": 8}
        axis.annotate(name, (0.008, top - 0.06), **where).set_in_layout(False)
    for top in tops[::2]:
        axis.axhspan(top - 1, top, color="0.5", alpha=0.07, linewidth=0)
    axis.set(yticks=[], ylim=(-0.5, len(names) - 0.5))
    axis.grid(axis="y", visible=False)
    return tops - 0.72


def panels(titles: Sequence[str], width: float, height: float, **options: bool) -> tuple[Figure, list[Axes]]:
    """Return a figure of titled panels, two a row, each of the given size in inches; options as of `styled`."""
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    size = (width * columns + (2.6 if columns == 1 else 0.6), height * rows + 0.9)  # a legend takes 7 inches
    figure, axes = styled(*size, columns, rows, **options)
    figure.get_layout_engine().set(h_pad=0.12)  # a title keeps away from the numbers of the panel above
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes, titles, strict=False):
        name = called(title).replace(" %", "\N{NO-BREAK SPACE}%")
        axis.set_title(fill(name, min(40, int(11 * width))), fontsize=10)  # so many letters an inch
    return figure, list(axes[: len(titles)])


def legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """Draw one legend below all panels, at the left, and narrow, since a narrow page shows that first."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    columns = max(1, 72 // (max(map(len, handles), default=0) + 8))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=9, frameon=False)


def effects(
    series: Mapping[str, Mapping[str, Comparison]],
    xlabel: str,
    level: float = 0.0,
    name: str = "",
    order: Sequence[str] = (),
) -> Figure:
    """Return effects with their 95 % intervals: a mark for each series, in rows in an order, or as they come.

    Parameters
    ----------
    series : mapping
        A series' name to its effects by the name of the row.
    level : float
        What effects are seen beside, and its `name`.
    """
    rows = list(order) or list(dict.fromkeys(row for found in series.values() for row in found))
    figure, (axis,) = styled(6.6, 0.42 * len(rows) + 1.3)
    places = dict(zip(rows, name_rows(axis, rows), strict=True))
    for number, (label, found) in enumerate(series.items()):
        at = [places[row] + 0.1 - 0.13 * number for row in found]
        points, ends = zip(*((each.effect, each.interval()[1] - each.effect) for each in found.values()), strict=True)
        axis.errorbar(points, at, xerr=ends, label=label, **line_style(number) | {"linestyle": "none"})
    axis.axvline(level, color="0.4", linewidth=0.9, linestyle="--" if name else "-", label=name or None)
    axis.set(xlabel=xlabel)
    legend(figure, [axis])
    return figure


def differences(axis: Axes, cells: pd.DataFrame, rows: Sequence[str], columns: Sequence[str]) -> AxesImage:
    """Return the image of differences in points as coloured cells with their numbers, bold where p < `LEVEL`.

    `cells` has the columns `row`, `column`, `effect` and `p`.
    """
    matrices = (cells.pivot(index="row", columns="column", values=name) for name in ("effect", "p"))
    effects, p_values = (each.reindex(index=rows, columns=columns).to_numpy(dtype=float) for each in matrices)
    sizes = np.abs(effects[~np.isnan(effects)])
    bound = max(1.0, float(np.percentile(sizes, 90))) if len(sizes) else 1.0
    image = axis.imshow(effects, cmap="RdBu", vmin=-bound, vmax=bound)
    for i, j in np.argwhere(~np.isnan(effects)):
        weight = "bold" if p_values[i, j] < LEVEL else "normal"
        colour = "white" if abs(effects[i, j]) > 0.55 * bound else "black"
        text = f"{effects[i, j]:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
        axis.text(j, i, text, ha="center", va="center", fontsize=8, weight=weight, color=colour)
    axis.grid(visible=False)
    return image


def intervals(tables: Mapping[str, pd.DataFrame], measure: str = "AP@100") -> Figure:
    """Return scores with 95 % intervals and each seed's, a panel a collection; the paper's are open diamonds.

    `tables` are those of `retlib.report.tables.scores`, by collection.
    """
    figure, axes = panels(list(tables), 4.0, ROW * max(map(len, tables.values())) + 0.9)
    for axis, table in zip(axes, tables.values(), strict=True):
        places = name_rows(axis, table.index.str.replace("_", " "))
        ends = [table[measure] - table["low"], table["high"] - table[measure]]
        looks = {"fmt": "o", "color": COLOURS[0], "capsize": 3, "label": "ours, 95 % interval"}
        axis.errorbar(table[measure], places, xerr=ends, **looks)
        seeds = table["each seed"].set_axis(places).explode()
        seeds = seeds[seeds.index.duplicated(keep=False)]  # of one seed the mean says it all
        if len(seeds):
            axis.plot(seeds, seeds.index, "|", color="0.25", markersize=8, label="each seed", zorder=3)
        if table["paper"].notna().any():
            theirs = {"color": COLOURS[1], "markerfacecolor": "none", "label": "paper (its own data)"}
            axis.plot(table["paper"].astype(float), places, "D", **theirs)
        axis.set_xlabel(f"{measure} (points of 100)")
    legend(figure, axes)
    return figure


def _mean_line(axis: Axes, values: pd.DataFrame, label: str, style: dict[str, str]) -> None:
    """The mean over seeds, a column for each, and a band from the lowest to the highest, where there are several."""
    marks = {"markersize": 4, "markevery": max(1, len(values) // 12)}
    axis.plot(values.index, values.mean(axis=1), label=label, **marks, **style)
    if values.shape[1] > 1:
        band = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
        axis.fill_between(values.index, values.min(axis=1), values.max(axis=1), **band)


def curves(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    xlabel: str,
    ylabel: str,
    logarithmic: str = "",
    level: tuple[float, str] | None = None,
) -> Figure:
    """Return lines of y over x, one a value of `by`: the mean over seeds, and a band over several.

    `logarithmic` is "", "x", "y" or "xy"; `level` is a horizontal line and what it stands for.
    """
    figure, (axis,) = styled()
    for name, style in line_styles(table[by]).items():
        values = table[table[by] == name].pivot_table(index=x, columns="seed", values=y)
        _mean_line(axis, values, name.replace("_", " "), style)
    if level:
        axis.axhline(level[0], color="0.4", linestyle=":", label=level[1])
    axis.set(xlabel=xlabel, ylabel=ylabel, **{f"{name}scale": "log" for name in logarithmic})
    if table[by].nunique() > LEGEND:
        legend(figure, [axis])
    else:
        axis.legend(fontsize=9, frameon=False)
    return figure


def histogram(table: pd.DataFrame, x: str, y: str, by: str, xlabel: str, ylabel: str) -> Figure:
    """Return counts y at each x, on logarithmic axes, a marker and colour for each value of `by`."""
    figure, (axis,) = styled()
    for name, style in line_styles(table[by]).items():
        part = table[table[by] == name]
        axis.plot(part[x], part[y], markersize=4, label=called(name), **{**style, "linestyle": "none"})
    axis.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    axis.legend(fontsize=9, frameon=False)
    return figure


def recalls(results: Results, collections: Iterable[str], measures: Sequence[str]) -> Figure:
    """Return R@k over k, rising, a panel a collection, a line a system: mean over seeds, band over their range."""
    depths = [int(measure.partition("@")[2]) for measure in measures]
    collections = list(collections)
    figure, axes = panels(collections, 3.8, 2.4, sharex=True, sharey=True)  # pairs that belong together, as a rule
    rows = results.rows[results.rows["measure"].isin(measures) & (results.rows["split"] == "test")]
    styles = line_styles(rows[rows["collection"].isin(collections)]["system"])
    for axis, collection in zip(axes, collections, strict=True):
        for system, part in rows[rows["collection"] == collection].groupby("system", sort=False):
            values = part.pivot_table(index="measure", columns="seed", values="value")
            _mean_line(axis, 100 * values.reindex(measures).set_axis(depths), system, styles[system])
        axis.set(xscale="log", xlabel="k", xticks=depths, xticklabels=depths)
        axis.minorticks_off()
    figure.supylabel("R@k (points of 100)", fontsize=10)
    legend(figure, axes)
    return figure


def tradeoff(
    table: pd.DataFrame, families: Mapping[str, tuple[str, str]] | None = None, measure: str = "RR@10"
) -> Figure:
    """Return quality against latency, as `retlib.report.tables.latencies` has them: a point for each system.

    `families` has, of some systems, that whose line they are on, and what stands beside the point.
    """
    figure, (axis,) = styled(7.5, 5.2)
    families = families or {}
    family = table["system"].map(lambda name: families.get(name, (name,))[0])
    crowded = family.nunique() > LEGEND  # names at so many points would stand on others: the legend has them
    for place, (name, style) in enumerate(line_styles(family).items()):
        part = table[family == name].sort_values("median")
        latency = [np.zeros(len(part)), part["p95"] - part["median"]]
        quality = [part["value"] - part["low"], part["high"] - part["value"]]
        label = name if crowded or name not in set(table["system"]) else None
        looks = {"capsize": 3, "elinewidth": 0.9, "markersize": 7, "label": label, **style}
        axis.errorbar(part["median"], part["value"], xerr=latency, yerr=quality, **looks)
        for row in part[part["system"].isin(families) | (not crowded)].itertuples():
            # A name stands above its bar, which leads to the right; of depths, neighbours stand above and below.
            side, where = ("right", (-6, 6 if place % 2 else -12)) if row.system in families else ("left", (6, 6))
            text = families.get(row.system, (name, name))[1]
            axis.annotate(text, (row.median, row.value), where, textcoords="offset points", fontsize=8, ha=side)
    axis.set(xscale="log", xlabel="latency of a query, ms: median, bar to the 95th percentile")
    axis.set_ylabel(f"{measure} (points of 100), 95 % interval")
    axis.margins(x=0.2)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    legend(figure, [axis])
    # Raise the texts of points that would stand on one another, the lowest first, until none does.
    figure.canvas.draw()
    placed: list[Bbox] = []
    for text in sorted(axis.texts, key=lambda text: text.get_window_extent().y0):
        box = text.get_window_extent()
        while under := [other.y1 for other in placed if box.overlaps(other)]:
            rise = max(under) - box.y0 + 1  # pixels
            x, y = text.xyann
            text.xyann, box = (x, y + rise * 72 / figure.dpi), box.translated(0, rise)
        placed.append(box)
    return figure


def slices(tables: Mapping[str, pd.DataFrame], measure: str) -> Figure:
    """Return systems over parts of the queries by lexical overlap, a panel a collection; bars are 95 % intervals.

    `tables` are those of `retlib.report.per_query.slices`, by collection.
    """
    figure, axes = panels(list(tables), 4.4, 3.4)
    styles = line_styles(system for table in tables.values() for system in table["system"])
    for axis, table in zip(axes, tables.values(), strict=True):
        parts = table.drop_duplicates("edge")
        for place, (system, style) in enumerate(styles.items()):
            rows = table[table["system"] == system].set_index("edge").reindex(parts["edge"])
            # Systems stand side by side, so that bars do not cover each other.
            x = np.arange(len(parts)) + 0.2 * (place - (len(styles) - 1) / 2) / len(styles)
            ends = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
            if rows["value"].notna().any():
                bars = {"markersize": 4.5, "linewidth": 1.1, "elinewidth": 0.8, "capsize": 2}
                axis.errorbar(x, rows["value"], ends, label=system, **bars, **style)
        axis.set_xticks(range(len(parts)), parts["part"].str.replace(" (", "\n("))
        axis.set(xlabel="query's words in a relevant document", ylabel=f"{measure} (points of 100)")
        axis.grid(axis="x", visible=False)
    legend(figure, axes)
    return figure


def outcomes(tables: Mapping[str, pd.DataFrame], rival: str, measure: str) -> Figure:
    """Return queries lost (to the left, hatched) and won (to the right) against a rival, a panel a collection.

    `tables` are those of `retlib.report.per_query.outcomes`, by collection.
    """
    figure, axes = panels(list(tables), 5.2, ROW * max(map(len, tables.values())) + 1.4)
    for axis, table in zip(axes, tables.values(), strict=True):
        places = name_rows(axis, table["system"].str.replace("_", " "))
        hatched = {"hatch": "///", "edgecolor": "white", "linewidth": 0}
        axis.barh(places, -table["losses"], height=0.4, label="losses", color=COLOURS[1], **hatched)
        axis.barh(places, table["wins"], height=0.4, label="wins", color=COLOURS[0])
        for place, ties in zip(places, table["ties"], strict=True):
            # At the right edge of the panel, whatever the lengths of bars.
            axis.text(1.02, place, f"{ties} ties", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        bound = 1.05 * max(1, table[["wins", "losses"]].to_numpy().max(initial=0))
        axis.axvline(0, color="0.2", linewidth=0.8)
        axis.set(xlim=(-bound, bound), xlabel=f"queries worse | better than {rival} ({measure})")
        axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    legend(figure, axes)
    return figure
