"""Figures, drawn from recorded rows alone; every function returns a matplotlib figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from retlib.data.datasets.catalogue import called
from retlib.evaluation.measures import Comparison
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL

# Colours that stay apart for most colour-blind readers (Okabe and Ito); markers tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "osD^vPX*"
ROW = 0.36  # inches of a row with its name above what is drawn in it


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


def panels(titles: Sequence[str], width: float, height: float, **options: bool) -> tuple[Figure, list[Axes]]:
    """Return a figure of titled panels, two a row, each of the given size in inches; options as of `styled`."""
    columns, rows = min(2, len(titles)), -(-len(titles) // 2)
    size = (width * columns + (2.6 if columns == 1 else 0.6), height * rows + 0.9)  # a legend takes 7 inches
    figure, axes = styled(*size, columns, rows, **options)
    figure.get_layout_engine().set(h_pad=0.12)  # a title keeps away from the numbers of the panel above
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(fill(called(title).replace(" %", "\N{NO-BREAK SPACE}%"), 36), fontsize=10)
    return figure, list(axes[: len(titles)])


def line_style(place: int) -> dict[str, str]:
    """Return colour, marker and dashes that no earlier place has."""
    cycle = place // len(COLOURS)
    marker = MARKERS[(place + 3 * cycle) % len(MARKERS)]
    return {"color": COLOURS[place % len(COLOURS)], "marker": marker, "linestyle": ("-", "--", ":")[cycle % 3]}


def line_styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the style of each name in a figure, by their order; no two are alike."""
    return {name: line_style(place) for place, name in enumerate(dict.fromkeys(names))}


def legend(figure: Figure, axes: Iterable[Axes]) -> Figure:
    """Draw one legend below all panels, at the left, and narrow, since a narrow page shows that first."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    columns = max(1, 72 // (max(map(len, handles), default=0) + 8))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
    return figure


def name_rows(axis: Axes, names: Sequence[str]) -> np.ndarray:
    """Return heights for rows from the top, and write each name above its row, so that a narrow page shows both."""
    tops = np.arange(len(names))[::-1] + 0.5
    for top, name in zip(tops, names, strict=True):
        where = {"xycoords": ("axes fraction", "data"), "va": "top", "fontsize": 8}
        axis.annotate(name.replace("_", " "), (0.008, top - 0.06), **where).set_in_layout(False)
    for top in tops[::2]:
        axis.axhspan(top - 1, top, color="0.5", alpha=0.07, linewidth=0)
    axis.set(yticks=[], ylim=(-0.5, len(names) - 0.5))
    axis.grid(axis="y", visible=False)
    return tops - 0.72


def _ends(table: pd.DataFrame) -> list[pd.Series]:
    return [table["value"] - table["low"], table["high"] - table["value"]]


def marks(axis: Axes, series: Mapping[str, pd.DataFrame], rows: Sequence[str] = ()) -> pd.Series:
    """Draw a mark with its interval for each series in each row; returns the rows' heights.

    A series is a table `value`, `low`, `high` by row. Rows are in an order, or as they come.
    """
    rows = list(rows) or list(dict.fromkeys(row for table in series.values() for row in table.index))
    heights = pd.Series(name_rows(axis, rows), rows)
    for number, (label, table) in enumerate(series.items()):
        at = heights[table.index] + 0.13 * ((len(series) - 1) / 2 - number)
        axis.errorbar(table["value"], at, xerr=_ends(table), **line_style(number) | {"linestyle": "none"}, label=label)
    return heights


def intervals(tables: Mapping[str, pd.DataFrame], measure: str = "AP@100") -> Figure:
    """Return scores with 95 % intervals and each seed's, a panel a collection; the paper's are open diamonds."""
    figure, axes = panels(list(tables), 4.0, ROW * max(map(len, tables.values())) + 0.9)
    for axis, table in zip(axes, tables.values(), strict=True):
        heights = marks(axis, {"ours, 95 % interval": table.rename(columns={measure: "value"})})
        seeds = table["each seed"].set_axis(heights)
        seeds = seeds[seeds.map(len) > 1].explode()  # of one seed the mean says it all
        if len(seeds):
            axis.plot(seeds, seeds.index, "|", color="0.25", markersize=8, label="each seed", zorder=3)
        if table["paper"].notna().any():
            theirs = {"color": COLOURS[1], "markerfacecolor": "none", "label": "paper (its own data)"}
            axis.plot(table["paper"].astype(float), heights, "D", **theirs)
        axis.set_xlabel(f"{measure} (points of 100)")
    return legend(figure, axes)


def effects(series: Mapping[str, Mapping[str, Comparison]], xlabel: str, order: Sequence[str] = ()) -> Figure:
    """Return effects with 95 % intervals by row, in an order or as they come: a mark for each series."""
    columns = ["value", "low", "high"]
    tables = {
        label: pd.DataFrame([(each.effect, *each.interval()) for each in part.values()], [*part], columns)
        for label, part in series.items()
    }
    figure, (axis,) = styled(6.6, 0.42 * len({row for part in series.values() for row in part}) + 1.3)
    marks(axis, tables, order)
    axis.axvline(0, color="0.4", linewidth=0.9)
    axis.set(xlabel=xlabel)
    return legend(figure, [axis])


def outcomes(tables: Mapping[str, pd.DataFrame], rival: str, measure: str) -> Figure:
    """Return queries lost (to the left, hatched) and won (to the right) against a rival, a panel a collection."""
    figure, axes = panels(list(tables), 5.2, ROW * max(map(len, tables.values())) + 1.4)
    for axis, table in zip(axes, tables.values(), strict=True):
        heights = name_rows(axis, table["system"])
        axis.barh(heights, -table["losses"], 0.4, label="losses", color=COLOURS[1], hatch="///", edgecolor="white")
        axis.barh(heights, table["wins"], 0.4, label="wins", color=COLOURS[0])
        for height, ties in zip(heights, table["ties"], strict=True):
            # At the right edge of the panel, whatever the lengths of bars.
            axis.text(1.02, height, f"{ties} ties", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        axis.set(xlabel=f"queries worse | better than {rival} ({measure})")
        axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    return legend(figure, axes)


def slices(tables: Mapping[str, pd.DataFrame], measure: str) -> Figure:
    """Return systems over parts of the queries by lexical overlap, a panel a collection; bars are 95 % intervals."""
    figure, axes = panels(list(tables), 4.4, 3.4)
    styles = line_styles(pd.concat(tables.values())["system"])
    for axis, table in zip(axes, tables.values(), strict=True):
        for place, (system, rows) in enumerate(table.groupby("system", sort=False)):
            x = np.arange(len(rows)) + 0.2 * place / len(styles)  # side by side: no bar covers another
            looks = {"markersize": 4.5, "linewidth": 1.1, "elinewidth": 0.8, "capsize": 2, "label": system}
            axis.errorbar(x, rows["value"], _ends(rows), **looks, **styles[system])
        parts = table["part"].unique()
        axis.set_xticks(range(len(parts)), [part.replace(" (", "\n(") for part in parts])
        axis.set(xlabel="query's words in a relevant document", ylabel=f"{measure} (points of 100)")
    return legend(figure, axes)


def tradeoff(table: pd.DataFrame, families: Mapping[str, str] | None = None, measure: str = "RR@10") -> Figure:
    """Return quality against latency, a point a system; `families` has the name of the line that some are on."""
    figure, (axis,) = styled(7.5, 5.2)
    family = table["system"].replace(families or {})
    for name, style in line_styles(family).items():
        part = table[family == name].sort_values("median")
        latency = [0 * part["median"], part["p95"] - part["median"]]
        axis.errorbar(part["median"], part["value"], _ends(part), latency, capsize=3, markersize=7, label=name, **style)
    axis.set(xscale="log", xlabel="latency of a query, ms: median, bar to the 95th percentile")
    axis.set_ylabel(f"{measure} (points of 100), 95 % interval")
    axis.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}")
    axis.minorticks_off()
    return legend(figure, [axis])


def mean_lines(axis: Axes, values: pd.DataFrame, styles: Mapping[str, dict[str, str]], errors: bool = False) -> None:
    """Draw means over seeds, in bands of their range or of a standard error; the columns are name and seed."""
    for name in [name for name in styles if name in values]:
        seeds, style = values[name].dropna(how="all"), styles[name]
        mean, error = seeds.mean(axis=1), seeds.sem(axis=1)
        axis.plot(mean, label=name.replace("_", " "), markersize=4, markevery=max(1, len(seeds) // 12), **style)
        low, high = (mean - error, mean + error) if errors else (seeds.min(axis=1), seeds.max(axis=1))
        axis.fill_between(mean.index, low, high, color=style["color"], alpha=0.18, linewidth=0)


def curves(table: pd.DataFrame, x: str, y: str, by: str, xlabel: str, ylabel: str, logarithmic: str = "") -> Figure:
    """Return lines of y over x, one a value of `by`: the mean over seeds, and a band from the lowest to the highest.

    `logarithmic` is "", "x" or "xy"; the ticks of such an x are its values.
    """
    figure, (axis,) = styled()
    mean_lines(axis, table.pivot_table(index=x, columns=[by, "seed"], values=y), line_styles(table[by]))
    axis.set(xlabel=xlabel, ylabel=ylabel, **{f"{name}scale": "log" for name in logarithmic})
    if logarithmic:
        axis.set_xticks(table[x].unique(), [f"{size:,}" for size in table[x].unique()], fontsize=7)
        axis.xaxis.minorticks_off()
    return legend(figure, [axis])


def recalls(results: Results, collections: Iterable[str], measures: Sequence[str]) -> Figure:
    """Return R@k over k, rising, a panel a collection, a line a system: mean over seeds, band over their range."""
    names, depths = list(collections), [int(measure.partition("@")[2]) for measure in measures]
    figure, axes = panels(names, 3.8, 2.4, sharex=True, sharey=True)  # pairs that belong together, as a rule
    rows = results.rows.query("collection in @names and measure in @measures and split == 'test'")
    rows = rows.assign(points=100 * rows["value"], k=rows["measure"].map(dict(zip(measures, depths, strict=True))))
    for axis, name in zip(axes, names, strict=True):
        points = rows[rows["collection"] == name].pivot_table(index="k", columns=["system", "seed"], values="points")
        mean_lines(axis, points, line_styles(rows["system"]))
        axis.set(xscale="log", xlabel="k", xticks=depths, xticklabels=depths)
        axis.minorticks_off()
    figure.supylabel("R@k (points of 100)", fontsize=10)
    return legend(figure, axes)


def _matrix(cells: pd.DataFrame, form: str, label: str, **colours: object) -> Figure:
    # Cells of a row, a column, a value and whether it is bold; where row and column are one, the number is framed.
    (ylabel, rows), (xlabel, columns) = ((name, list(cells[name].unique())) for name in cells.columns[:2])
    figure, (axis,) = styled(0.75 * len(columns) + 0.08 * max(map(len, rows)) + 1.6, 0.4 * len(rows) + 2.2)
    values = cells.pivot(index=ylabel, columns=xlabel, values="value").loc[rows, columns]
    image = axis.imshow(values.astype(float), aspect="auto", alpha=0.55, **colours)  # pale, below black numbers
    for row, column, value, is_bold in cells.itertuples(index=False):
        looks = {"weight": "bold" if is_bold else "normal", "bbox": {"fill": False} if row == column else None}
        axis.text(columns.index(column), rows.index(row), form.format(value), ha="center", va="center", **looks)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis, label=label)
    return figure


def gains(table: pd.DataFrame, measure: str) -> Figure:
    """Return systems less BM25 by collection, as `retlib.report.tables.against` has them; bold where p < `LEVEL`."""
    bound = table["effect"].abs().max()
    cells = table[["system", "collection"]].assign(value=table["effect"], bold=table["p"] < LEVEL)
    cells["collection"] = cells["collection"].map(called)
    return _matrix(cells, "{:+.1f}", f"points of {measure} above BM25", cmap="RdBu", vmin=-bound, vmax=bound)


def index_matrix(table: pd.DataFrame) -> Figure:
    """Return nDCG@10 by index in training and in search; the best of each column is bold, the diagonal framed.

    The columns are `trained`, `searched` and `value`, in points of a hundred.
    """
    printed = table["value"].round(1)  # ties as printed are all bold
    cells = table.assign(bold=printed == printed.groupby(table["searched"]).transform("max"))
    cells = cells.rename(columns={"trained": "index in training", "searched": "index in search"})
    return _matrix(cells, "{:.1f}", "nDCG@10 (points of 100)", cmap="cividis")
