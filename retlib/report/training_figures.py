"""Figures of trainings by retrieval: watched step by step, on maps, through indexes, against the clock."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from retlib.report.curves import WINDOWS
from retlib.report.figures import COLOURS, legend, line_styles, panels, styled

# What `dynamics` draws, in the order of Figure 3, and how it names it.
DYNAMICS = {
    "RR@10": "RR@10",
    "R@200": "R@200",
    "overlap BM25": "overlap with BM25's top 200",
    "overlap stale": "overlap with the last refresh's top 200",
}
# The other measures depend on a step's questions, easy ones and hard ones, more than on the training: they are shown by
# means over parts of it. This one falls and jumps with every refresh, and is shown as recorded.
WITH_REFRESHES = "overlap stale"
RELEVANT = {"marker": "*", "markeredgecolor": "black", "markersize": 13, "ls": "none", "label": "relevant document"}
QUERY = {"marker": "o", "color": COLOURS[0], "markersize": 8, "ls": "none", "zorder": 3}
# What `tsne_map` draws, and how.
PLACED = {
    "document": {"marker": ".", "color": "0.72", "markersize": 4, "ls": "none", "zorder": 1, "label": "document"},
    "relevant": {**RELEVANT, "color": COLOURS[4], "zorder": 3},
    "before": {**QUERY, "markerfacecolor": "white", "label": "query before training"},
    "after": {**QUERY, "label": "query after training"},
}


def dynamics(
    curves: pd.DataFrame, start: str = "", methods: Mapping[str, str] | None = None, epoch: float = np.inf
) -> Figure:
    """Return training curves as in Figure 3 of Zhan 2020: a panel for each measure, a line for each system.

    `curves` has the columns `system`, `seed`, `step`, `measure` (those of `DYNAMICS`) and `value`, between 0 and 1.
    Lines are means over seeds, of `WINDOWS` equal parts of the training except `WITH_REFRESHES`; bands are one standard
    error to either side. `start` is a system that stands still, whose values are taken from what is averaged. Systems
    of one of the `methods` have one colour and marker; all but the first, dashed lines. `epoch` is the number of steps
    of a pass over the questions: beyond the first, a training meets questions that it has learned from.
    """
    figure, axes = styled(8.4, 7.6, columns=2, rows=2, sharex=True)
    named = {system: (methods or {}).get(system, system) for system in dict.fromkeys(curves["system"])}
    named.pop(start, None)
    styles, looks = line_styles(named.values()), {}
    for system, method in named.items():
        is_further = method in (named[name] for name in looks)
        looks[system] = styles[method] | ({"linestyle": "--"} if is_further else {})
    last = curves["step"].max() if len(curves) else 0
    for place, (axis, (measure, name)) in enumerate(zip(axes, DYNAMICS.items(), strict=True)):
        recorded = curves[curves["measure"] == measure]
        points = 100 * recorded.pivot(index="step", columns=["system", "seed"], values="value").astype(float)
        averaged = measure != WITH_REFRESHES
        for system in [name for name in named if name in points]:
            values = points[system]
            if averaged:
                values = values - points[start] if start else values
                part = np.arange(len(values)) * WINDOWS // len(values)
                values = values.groupby(part).mean().set_axis(values.index.to_series().groupby(part).mean())
            mean, error = values.mean(axis=1), values.sem(axis=1)
            marks = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.4}
            marks["markevery"] = -(-len(values) // 12)
            axis.plot(values.index, mean, linewidth=1.3, label=system, **looks[system], **marks)
            colour = looks[system]["color"]
            axis.fill_between(values.index, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        axis.set(ylabel=f"points of 100 above {start}" if start and averaged else "points of 100")
        axis.set_title(f"({'abcd'[place]}) {name}", fontsize=10)
        for passed in range(1, int(last // epoch) + 1):
            label = "" if passed > 1 else "a pass over the questions ends"
            axis.axvline(passed * epoch, color="grey", linestyle=":", linewidth=1, label=label)
    for axis in axes[-2:]:
        axis.set_xlabel("training step")
    legend(figure, axes)
    return figure


def tsne_map(places: pd.DataFrame) -> Figure:
    """Return documents around a query before and after training, as in Figure 1 of Zhan 2020; a panel for each query.

    Its way, which may be far shorter than the distance to any document, is enlarged in a corner. `places` has the
    columns `query` (its text), `what` (document, relevant, before or after), `x` and `y`.
    """
    queries = list(dict.fromkeys(places["query"]))
    figure, axes = panels([fill(query, 44) for query in queries], 3.7, 3.2)
    for axis, query in zip(axes, queries, strict=True):
        mine = places[places["query"] == query].set_index("what")[["x", "y"]]
        for what, style in PLACED.items():
            part = mine[mine.index == what]
            axis.plot(part["x"], part["y"], **style)
        _as_map(axis)
        path, goals = mine.loc[["before", "after"]], mine.loc[["relevant"]]
        _look_at(axis, path, goals, 0.2 * np.ptp(mine, axis=0).max())
        near = axis.inset_axes(_free_corner(axis, pd.concat([path, goals]).to_numpy()), zorder=4)
        _path(near, path, goals, QUERY["color"])
        _as_map(near)
        _look_at(near, path, goals, 0.0)
    legend(figure, axes)
    return figure


def _free_corner(axis: Axes, points: np.ndarray) -> tuple[float, float, float, float]:
    # That which is furthest from points: left, bottom, width and height, as shares of the axes.
    width, height = 0.3, 0.36
    shown = axis.transAxes.inverted().transform(axis.transData.transform(points))
    corners = [np.array([x, y]) for x in (0.02, 0.98 - width) for y in (0.02, 0.98 - height)]
    best = max(corners, key=lambda corner: np.abs(shown - corner - (width / 2, height / 2)).max(axis=1).min())
    return (*best, width, height)


def _as_map(axis: Axes) -> None:
    axis.set(xticks=[], yticks=[])  # t-SNE's coordinates have no unit
    axis.grid(visible=False)
    axis.spines[["top", "right"]].set_visible(True)


def _look_at(axis: Axes, path: pd.DataFrame, goals: pd.DataFrame, around: float) -> None:
    """Enlarge the path, at least so much around it, and the nearest goal; an arrow shows the way to one far off."""
    here, there = path.to_numpy(), (goals if len(goals) else path).to_numpy()
    nearest = there[((there - here[-1]) ** 2).sum(axis=1).argmin()]
    reach = max(3 * np.ptp(here, axis=0).max(), 2 * around)
    seen = np.vstack([here, np.clip(nearest, here.min(axis=0) - reach, here.max(axis=0) + reach)])
    middle, half = (seen.max(axis=0) + seen.min(axis=0)) / 2, max(around, 0.7 * np.ptp(seen, axis=0).max())
    axis.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    way = nearest - middle
    if np.abs(way).max() > half:
        tip, tail = (middle + way * share * half / np.abs(way).max() for share in (0.97, 0.75))
        axis.annotate("\N{BLACK STAR}", tip, tail, ha="center", va="center", arrowprops={"arrowstyle": "->"})


def paths(places: pd.DataFrame) -> Figure:
    """Return a map of the corpus, and beside it, enlarged, how each query moves over it as training proceeds.

    `places` has the columns `what`, `query` (its text), `step`, `x` and `y`. A row for each "document"; for each step
    of a "query", whose path begins at an open circle and ends at a full one, and whose number is on the map; and for
    each "relevant" document, a star.
    """
    documents, queries, relevant = (places[places["what"] == what] for what in ("document", "query", "relevant"))
    texts = list(dict.fromkeys(queries["query"]))
    rows = -(-len(texts) // 2)
    figure = plt.figure(figsize=(9.0, max(4.6, 2.3 * rows + 0.5)), layout="constrained", dpi=110)
    grid = figure.add_gridspec(rows, 4)
    whole = figure.add_subplot(grid[:, :2])
    near = [figure.add_subplot(grid[place // 2, 2 + place % 2]) for place in range(len(texts))]
    for axis in (whole, *near):
        axis.plot(documents["x"], documents["y"], ".", color="0.75", markersize=3, zorder=0, label="document")
    for place, (axis, query) in enumerate(zip(near, texts, strict=True)):
        path = queries[queries["query"] == query].sort_values("step")[["x", "y"]]
        goals = relevant[relevant["query"] == query][["x", "y"]]
        colour = COLOURS[place % len(COLOURS)]
        _path(axis, path, goals, colour)
        axis.set_title(fill(f"{place + 1}: {query}", 28, max_lines=3, placeholder=" …"), fontsize=9)
        _as_map(axis)
        _look_at(axis, path, goals, 0.01 * np.ptp(documents[["x", "y"]], axis=0).max())
        mark = {"boxstyle": "circle,pad=0.2", "facecolor": colour, "edgecolor": "white"}
        style = {"color": "white", "weight": "bold", "ha": "center", "va": "center", "fontsize": 9, "bbox": mark}
        whole.plot(path["x"], path["y"], color=colour, linewidth=1)  # so that the map reaches to the number
        whole.text(*path.iloc[-1], str(place + 1), **style)
    _as_map(whole)
    whole.set_title("all documents", fontsize=9)
    legend(figure, near[:1])
    return figure


def _path(axis: Axes, path: pd.DataFrame, goals: pd.DataFrame, colour: str) -> None:
    axis.plot(path["x"], path["y"], linewidth=1.5, marker=".", markersize=5, zorder=2, color=colour)
    style = {"marker": "o", "linestyle": "none", "markersize": 9, "color": colour, "zorder": 3}
    axis.plot(*path.iloc[0], markerfacecolor="white", label="query at the start", **style)
    axis.plot(*path.iloc[-1], label="query at the end", **style)
    axis.plot(goals["x"], goals["y"], color=colour, zorder=4, **RELEVANT)


def index_matrix(table: pd.DataFrame) -> Figure:
    """Return nDCG@10 by index in training and in search; the best of each column is bold, the diagonal framed.

    `table` has the columns `trained`, `searched` and `value`, in points of a hundred.
    """
    names = list(dict.fromkeys([*table["trained"], *table["searched"]]))
    matrix = table.pivot(index="trained", columns="searched", values="value")
    matrix = matrix.reindex(index=[n for n in names if n in matrix.index], columns=[n for n in names if n in matrix])
    values = matrix.to_numpy(dtype=float)
    figure, (axis,) = styled(1.15 * len(matrix.columns) + 3.4, 0.75 * len(matrix) + 2.2)
    image = axis.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for i, j in np.argwhere(~np.isnan(values)):
        is_best = values[i, j].round(1) == np.nanmax(values[:, j]).round(1)  # as it is printed: ties are all bold
        colour = "white" if values[i, j] < middle else "black"
        weight = "bold" if is_best else "normal"
        axis.text(j, i, f"{values[i, j]:.1f}", ha="center", va="center", color=colour, weight=weight)
        if matrix.index[i] == matrix.columns[j]:
            axis.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=colour, linewidth=1.5))
    axis.set(xticks=range(len(matrix.columns)), yticks=range(len(matrix)), yticklabels=matrix.index)
    axis.set_xticklabels(matrix.columns, rotation=30, ha="right")
    axis.set(xlabel="index in search", ylabel="index in training")
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis, label="nDCG@10 (points of 100)")
    return figure


def training_time(times: pd.DataFrame, beyond: pd.DataFrame, parts: pd.DataFrame) -> Figure:
    """Return time to ANCE's best against the size of the corpus, measured and extrapolated; beside it, what takes it.

    The tables are `to_best`, `extrapolated` and `parts` of `retlib.studies.part4_time`. Of what is extrapolated, the
    steps as measured are drawn, with the ratio above ("<": an upper bound).
    """
    figure, (left, right) = styled(8.8, 4.8, 2)
    improved = times[times["ratio"].notna()]
    ours = beyond[beyond["steps"] == "steps as measured"]
    reached = improved["outcome"] == "reached"
    for system, style in line_styles(("ANCE", "LTRe")).items():
        mean = improved.groupby("documents")[system].mean()
        left.plot(mean.index, mean, color=style["color"])
        # A mark for each seed, open where LTRe's time is only known to be longer.
        known = reached | (system == "ANCE")
        marks = {"marker": style["marker"], "color": style["color"], "linestyle": "none"}
        for seeds, name, face in (
            (improved[known], f"{system}, measured", style["color"]),
            (improved[~known], f"{system}, whole training: never as good", "white"),
        ):
            if len(seeds):
                left.plot(seeds["documents"], seeds[system], label=name, markerfacecolor=face, **marks)
        line = pd.concat([mean.tail(1), ours.set_index("documents")[system]])
        left.plot(line.index, line, "--", color=style["color"], label=f"{system}, extrapolated")
    for row in ours.itertuples():
        ratio = f"{'' if row.outcome == 'reached' else '< '}{row.ratio:.1f} times"
        left.annotate(ratio, (row.documents, row.ANCE), (-4, 6), textcoords="offset points", fontsize=8, ha="right")
    left.set(xlabel="documents", ylabel="seconds of training to ANCE's best dev RR@10")
    if len(improved):
        left.set(xscale="log", yscale="log")
    else:
        left.set_title("ANCE is nowhere better than its start: no time to compare", fontsize=9)
    left.margins(x=0.1, y=0.1)
    # A bar for each size and system, one part of the time upon the other.
    places, bottom = np.arange(len(parts)) + 0.5 * parts["documents"].rank(method="dense").to_numpy(), 0.0
    for place, name in enumerate(parts.columns.drop(["documents", "system"]), 2):
        right.bar(places, parts[name], bottom=bottom, color=COLOURS[place], edgecolor="white", label=name)
        bottom = bottom + parts[name].to_numpy()
    labels = [f"{row.system}\n{row.documents:,}" for row in parts.itertuples()]
    right.set_xticks(places, labels, fontsize=8)
    right.set(ylabel="seconds, mean over seeds", xlabel="system, documents")
    right.grid(axis="x", visible=False)
    for axis, side, columns in ((left, "left", 2), (right, "right", 3)):
        named = axis.get_legend_handles_labels()
        figure.legend(*named, loc=f"outside lower {side}", ncols=columns, fontsize=8, frameon=False)
    return figure
