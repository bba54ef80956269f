"""Figures of recorded rows, and the style, panels, rows and legends that they are made of (every chapter)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from textwrap import fill, shorten

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from retlib.data.datasets.catalogue import called
from retlib.evaluation.measures import Comparison
from retlib.evaluation.results import Results
from retlib.report.contrasts import WINDOWS
from retlib.report.ledger import NOT_TESTED, SIGNS, decisive
from retlib.report.papers import STAND_IN, papers

# Colours that stay apart for most colour-blind readers (Okabe and Ito); markers tell them apart without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
# Of the lines of a figure, by their order.
STYLES = list(plt.cycler(linestyle=["-", "--", ":", "-."]) * plt.cycler(color=COLOURS, marker="osD^vPX*"))
# In the order of the ledger's signs.
_BY_SIGN = "#009E73", "#C03000", "#D55E00", "#D55E00", "#0072B2", "#B07800", "#56B4E9", "#777777"
VERDICT_COLOURS, MARKERS = (dict(zip(SIGNS, looks, strict=True)) for looks in (_BY_SIGN, "oX^^svP."))
ABREAST = 15  # tiles in a row, as many as a phone shows at once
ROW = 0.36  # inches of a row with its name above what is drawn in it


def styled(width: float = 7.0, height: float = 4.0, columns: int = 1, rows: int = 1, **options: bool) -> tuple:
    """Return a figure and its panels, row by row, in the book's style; sizes in inches, options of matplotlib."""
    # Styled axis by axis: a style context would undo the interactive mode that a notebook's backend turns on.
    looks = {"figsize": (width, height), "squeeze": False, "layout": "constrained", "dpi": 110}
    figure, axes = plt.subplots(rows, columns, **looks, **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes.ravel()


def panels(titles: Sequence[str], width: float, height: float, **options: bool) -> tuple[plt.Figure, np.ndarray]:
    """Return a figure of titled panels, two a row, each of the given size in inches; options as of `styled`."""
    columns, rows = min(2, len(titles)), -(-len(titles) // 2)
    size = (width * columns + (2.6 if columns == 1 else 0.6), height * rows + 0.9)  # a legend takes 7 inches
    figure, axes = styled(*size, columns, rows, **options)
    figure.get_layout_engine().set(h_pad=0.12)  # a title keeps away from the numbers of the panel above
    for axis in axes[len(titles) :]:
        axis.set_visible(False)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(fill(called(title).replace(" %", "\N{NO-BREAK SPACE}%"), 36), fontsize=10)
    return figure, axes[: len(titles)]


def line_styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the style of each name in a figure, by their order; no two of the first 32 are alike."""
    return dict(zip(dict.fromkeys(names), cycle(STYLES), strict=False))


def legend(figure: plt.Figure, axes: Iterable[plt.Axes]) -> plt.Figure:
    """Draw one legend below all panels, at the left, and narrow, since a narrow page shows that first."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    columns = max(1, 72 // (max(map(len, handles), default=0) + 8))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=columns, fontsize=9, frameon=False)
    return figure


def name_rows(axis: plt.Axes, names: Sequence[str]) -> np.ndarray:
    """Return heights for rows from the top, and write each name above its row, so that a narrow page shows both."""
    sizes = np.array([1 + 0.42 * name.count("\n") for name in names])
    tops = sizes[::-1].cumsum()[::-1] - 0.5
    for number, (name, top, size) in enumerate(zip(names, tops, sizes, strict=True)):
        where = {"xycoords": ("axes fraction", "data"), "va": "top", "fontsize": 8}
        axis.annotate(name.replace("_", " "), (0.008, top - 0.06), **where).set_in_layout(False)
        axis.axhspan(top - size, top, color="0.5", alpha=0.0 if number % 2 else 0.07, linewidth=0)
    axis.set(yticks=[], ylim=(-0.5, sizes.sum() - 0.5))
    axis.grid(axis="y", visible=False)
    return tops - sizes + 0.28


def marks(axis: plt.Axes, series: Mapping[str, pd.DataFrame], rows: Sequence[str] = ()) -> pd.Series:
    """Draw series, `value`, `low`, `high` by row, with rows in an order or as they come; return the rows' heights."""
    rows = list(rows) or list(dict.fromkeys(row for table in series.values() for row in table.index))
    heights = pd.Series(name_rows(axis, rows), rows)
    for number, (label, table) in enumerate(series.items()):
        at = heights[table.index] + min(0.13, 0.5 / len(series)) * ((len(series) - 1) / 2 - number)
        ends = table["value"] - table["low"], table["high"] - table["value"]
        axis.errorbar(table["value"], at, xerr=ends, **STYLES[number] | {"linestyle": "none"}, label=label)
    return heights


def intervals(tables: Mapping[str, pd.DataFrame], measure: str) -> plt.Figure:
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


def effects(series: Mapping[str, Mapping[str, Comparison]], xlabel: str, order: Sequence[str] = ()) -> plt.Figure:
    """Return effects with 95 % intervals by row, in an order or as they come: a mark for each series."""
    values = ({row: (each.effect, *each.interval()) for row, each in part.items()} for part in series.values())
    tables = [pd.DataFrame(each, ["value", "low", "high"]).T for each in values]
    figure, (axis,) = styled(6.6, 0.42 * len({row for part in series.values() for row in part}) + 1.3)
    marks(axis, dict(zip(series, tables, strict=True)), order)
    axis.axvline(0, color="0.4", linewidth=0.9)
    axis.set(xlabel=xlabel)
    return legend(figure, [axis])


def slices(tables: Mapping[str, pd.DataFrame], measure: str) -> plt.Figure:
    """Return systems by parts of the queries of rising overlap, a panel a collection; bars are 95 % intervals."""
    figure, axes = panels(list(tables), 4.4, 3.4)
    systems = pd.concat(tables.values())["system"].unique()  # a system looks the same in every panel
    for axis, table in zip(axes, tables.values(), strict=True):
        marks(axis, {name: table[table["system"] == name].set_index("part") for name in systems})
        axis.set_xlabel(f"{measure} (points of 100)")
    return legend(figure, axes)


def tradeoff(table: pd.DataFrame, measure: str) -> plt.Figure:
    """Return quality against latency, as `retlib.report.tables.latencies` has them; points of one name are joined."""
    figure, (axis,) = styled(7.5, 5.2)
    for name, style in line_styles(table["system"]).items():
        part = table[table["system"] == name].sort_values("median")
        latency = [0 * part["median"], part["p95"] - part["median"]]
        ends = part["value"] - part["low"], part["high"] - part["value"]
        axis.errorbar(part["median"], part["value"], ends, latency, capsize=3, markersize=7, label=name, **style)
    axis.set(xscale="log", xlabel="latency of a query, ms: median, bar to the 95th percentile")
    axis.set_ylabel(f"{measure} (points of 100), 95 % interval")
    axis.xaxis.set(major_locator=plt.LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}")
    axis.minorticks_off()
    return legend(figure, [axis])


def mean_lines(axis: plt.Axes, values: pd.DataFrame, styles: Mapping[str, dict[str, str]]) -> None:
    """Draw means over seeds, in bands of their range; the columns are name and seed."""
    for name in [name for name in styles if name in values]:
        seeds, style = values[name].dropna(how="all"), styles[name]
        looks = style | {"markersize": 4, "markevery": max(1, len(seeds) // 12)}
        axis.plot(seeds.mean(axis=1), label=name.replace("_", " "), **looks)
        axis.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=style["color"], alpha=0.18, lw=0)


def lines(
    table: pd.DataFrame, x: str, y: str, by: str, xlabel: str, ylabel: str, logarithmic: str = "", panel: str = ""
) -> plt.Figure:
    """Return lines of y over x, one a value of `by`: the mean over seeds, and a band from the lowest to the highest.

    `logarithmic` is "", "x" or "xy"; the ticks of such an x are its values. Each value of `panel` has one of its own.
    """
    parts = dict(iter(table.groupby(panel, observed=True))) if panel else {"": table}
    figure, axes = panels(list(parts), 3.8, 2.4, sharex=True, sharey=True) if panel else styled()
    for axis, part in zip(axes, parts.values(), strict=True):
        mean_lines(axis, part.pivot_table(index=x, columns=[by, "seed"], values=y), line_styles(table[by]))
        axis.set(xlabel=xlabel, ylabel=ylabel, **{f"{name}scale": "log" for name in logarithmic})
        axis.label_outer()
        if logarithmic:
            ticks = sorted(table[x].unique())
            axis.set_xticks(ticks, [f"{size:,}" for size in ticks], fontsize=7)
            axis.xaxis.minorticks_off()
    return legend(figure, axes)


def recalls(results: Results, collections: Iterable[str], measures: Sequence[str]) -> plt.Figure:
    """Return R@k over k, rising, a panel a collection, a line a system: mean over seeds, band over their range."""
    rows = results.rows.query("collection in @collections and measure in @measures and split == 'test'")
    panel, k = pd.Categorical(rows["collection"], list(collections)), rows["measure"].str.partition("@")[2].astype(int)
    rows = rows.assign(points=100 * rows["value"], k=k, collection=panel)
    return lines(rows, "k", "points", "system", "k", "R@k (points)", "x", "collection")


# What `dynamics` draws, in the order of Figure 3, and how it names it.
DYNAMICS = {
    "RR@10": "(a) RR@10",
    "R@200": "(b) R@200",
    "overlap BM25": "(c) overlap with BM25's top 200",
    "overlap stale": "(d) overlap with the last refresh's top 200",
}


def dynamics(curves: pd.DataFrame, start: str, epoch: float) -> plt.Figure:
    """Return training curves as in Figure 3 of Zhan 2020: a panel for each measure, a line for each system.

    `curves` has the columns `system`, `seed`, `step`, `measure` (those of `DYNAMICS`) and `value`, between 0 and 1.
    Lines are less those of the system `start`, which stands still. After `epoch` steps questions come again.
    """
    figure, axes = panels(list(DYNAMICS.values()), 3.9, 3.35, sharex=True)
    systems = [name for name in curves["system"].unique() if name != start]
    for axis, measure in zip(axes, DYNAMICS, strict=True):
        points = curves[curves["measure"] == measure].pivot(index="step", columns=["system", "seed"], values="value")
        # What jumps with every refresh is shown as recorded; the others by means over parts of the training.
        points, above = 100 * points, "" if measure == "overlap stale" else f" above {start}"
        if above:
            part = np.arange(len(points)) * WINDOWS // len(points)
            points = points.reset_index().groupby(part).mean().set_index("step")
            points = pd.concat({name: points[name] - points[start] for name in systems if name in points}, axis=1)
        mean_lines(axis, points, line_styles(systems))
        axis.set_ylabel(f"points of 100{above}")
        for step in np.arange(epoch, curves["step"].max() + 1, epoch):
            axis.axvline(step, color="grey", linestyle=":", linewidth=1, label="a pass over the questions ends")
    plt.setp(axes[2:], xlabel="training step")
    return legend(figure, axes)


def paths(places: pd.DataFrame) -> plt.Figure:
    """Return each query's way over a map while it is trained (Figure 1 of Zhan 2020), and beside it, enlarged.

    `places` has `query` (its text), `what`, `x` and `y`: a row for each "document" (of a query, or of all with none),
    for each "relevant" document, and for each place of the query, in order.
    """
    queries = [query for query in places["query"].unique() if query]
    titles = [title for query in queries for title in (shorten(query, 100, placeholder=" …"), "its way, enlarged")]
    figure, axes = panels(titles, 3.7, 2.3)
    for query, whole, near in zip(queries, axes[::2], axes[1::2], strict=True):
        own = places[places["query"].isin([query, ""])].set_index("what")[["x", "y"]]
        documents, goals = (own[own.index == what] for what in ("document", "relevant"))
        path = own.drop(["document", "relevant"], errors="ignore")
        nearest = goals.iloc[((goals - path.iloc[-1]) ** 2).sum(axis=1).argsort()[:1]]
        for axis in (whole, near):
            axis.plot(documents["x"], documents["y"], ".", color="0.75", markersize=3, label="document")
            axis.plot(goals["x"], goals["y"], "*", color=COLOURS[4], mec="black", ms=13, label="relevant document")
            axis.plot(path["x"], path["y"], ".-", color=COLOURS[0])
            axis.plot(*path.iloc[0], "o", color=COLOURS[0], markerfacecolor="white", label="query at the start")
            axis.plot(*path.iloc[-1], "o", color=COLOURS[0], label="query at the end")
            axis.set(xticks=[], yticks=[])  # t-SNE's coordinates have no unit
            axis.spines[:].set_visible(True)
        way = pd.concat([path.tail(1), nearest])
        near.plot(way["x"], way["y"], ":", color="0.4", zorder=0, label="to the nearest relevant one")
        reach = 0.3 * np.ptp(path, axis=0).max() + 0.002 * np.ptp(own, axis=0).max()
        low, high = path.min() - reach, path.max() + reach
        near.set(xlim=(low["x"], high["x"]), ylim=(low["y"], high["y"]))
    return legend(figure, axes)


def forest(verdicts: pd.DataFrame, names: Mapping[str, str] | None = None) -> plt.Figure:
    """Return a line for each claim that is tested in points: our effect with its 95 % interval, and the paper's.

    Of several contrasts stands the one that the verdict hangs on. `verdicts` are rows of `retlib.report.ledger.ledger`;
    `names` orders claims and has what stands above their lines; without it all come, by their statements.
    """
    names = names or dict(zip(verdicts["id"], verdicts["statement"], strict=True))
    rows = verdicts.set_index("id", drop=False).loc[list(names)].itertuples()
    lines = [(row, decisive(row)) for row in rows if row.verdict != NOT_TESTED]
    lines = [(row, line) for row, line in lines if line.unit == "points"]
    texts = [fill(f"{SIGNS[row.verdict]}  {names[row.id]}", 66) for row, _ in lines]
    figure, (axis,) = styled(6.6, 0.42 * len(texts) + 0.18 * "".join(texts).count("\n") + 1.1)
    for (row, line), height in zip(lines, name_rows(axis, texts), strict=True):
        looks = {"color": VERDICT_COLOURS[row.verdict], "label": f"{SIGNS[row.verdict]} {row.verdict}"}
        axis.vlines(0, height - 0.28, height + 0.22, color="0.4", linewidth=0.9, zorder=0)
        for limit in {-line.margin, line.margin} if line.alike else {line.margin} - {0.0}:
            axis.plot(limit, height, "|", color="0.4", markersize=11)
        axis.plot([line.low, line.high], [height] * 2, **looks, linewidth=2, solid_capstyle="round")
        axis.plot(line.effect, height, MARKERS[row.verdict], **looks, markersize=7)
        if not np.isnan(line.paper):
            axis.plot(line.paper, height, "D", mfc="none", color="0.2", markersize=6.5, label="the paper's")
    axis.set(xlabel="points for the claim (right) or against it (left)")
    return legend(figure, [axis])


def tiles(ledger: pd.DataFrame) -> plt.Figure:
    """Return a tile for each claim under its paper's name: the verdict by sign and colour, hatched on a stand-in."""
    groups, line = dict(iter(ledger.groupby("paper", sort=False))), 0
    count = sum(1 + -(-len(rows) // ABREAST) for rows in groups.values())
    figure, (axis,) = styled(4.0, 0.27 * count + 0.9)
    for name, rows in groups.items():
        axis.text(0.08, -line, f"{papers()[name].part}  {papers()[name].name}", va="center", fontsize=9)
        places, colours = np.arange(len(rows)), rows["verdict"].map(VERDICT_COLOURS)
        x, y = places % ABREAST + 0.5, -(line + 1 + places // ABREAST)
        # Tints and no transparency, which browsers take for that of the hatches, too.
        pale, edge = ([tuple(1 - share * (1 - np.array(to_rgb(each)))) for each in colours] for share in (0.2, 0.5))
        hatches = ["////" if each == STAND_IN else None for each in rows["fidelity"]]
        axis.bar(x, 0.84, 0.84, y - 0.42, color=pale, edgecolor=edge, hatch=hatches, linewidth=1)
        for column, row, verdict in zip(x, y, rows["verdict"], strict=True):
            sign = {"ha": "center", "va": "center", "fontsize": 11, "fontweight": "bold"}
            axis.text(column, row, SIGNS[verdict], color=VERDICT_COLOURS[verdict], **sign)
        line = 1 - y.min()
    axis.set(xlim=(0, ABREAST), ylim=(-count + 0.45, 0.55))
    axis.set_axis_off()
    shown = [verdict for verdict in SIGNS if (ledger["verdict"] == verdict).any()]
    handles = [Patch(color=VERDICT_COLOURS[verdict], label=f"{SIGNS[verdict]} {verdict}") for verdict in shown]
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label="on a stand-in"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure
