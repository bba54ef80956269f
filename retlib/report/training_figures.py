"""Figures of trainings by retrieval: watched step by step, on maps, through indexes, against the clock."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill, shorten

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from retlib.report.figures import COLOURS, legend, line_style, style_axis, styled

# What `dynamics` draws, in the order of Figure 3, and how it names it.
DYNAMICS = {
    "RR@10": "RR@10",
    "R@200": "R@200",
    "overlap BM25": "overlap with BM25's top 200",
    "overlap stale": "overlap with the last refresh's top 200",
}
# Of these the level is that of a step's questions: easy ones and hard ones. What a training changed is the difference
# to what stands still, on the same questions.
OF_QUESTIONS = ("RR@10", "R@200")
# Where `tsne_map` and `paths` draw a document or query, and how.
DOCUMENT = {"marker": ".", "color": "0.72", "markersize": 4, "linestyle": "none"}
RELEVANT = {"marker": "*", "color": COLOURS[4], "markeredgecolor": "black", "markersize": 13, "linestyle": "none"}
BEFORE = {"marker": "o", "color": COLOURS[0], "markerfacecolor": "white", "markersize": 8, "linestyle": "none"}
AFTER = {"marker": "o", "color": COLOURS[0], "markersize": 8, "linestyle": "none"}


def dynamics(
    curves: pd.DataFrame, start: str = "", methods: Mapping[str, str] | None = None, smooth: int | None = None
) -> Figure:
    """Training curves as in Figure 3 of Zhan 2020: a panel for each measure, a line for each system.

    Parameters
    ----------
    curves : DataFrame
        Columns `system`, `seed`, `step`, `measure` (those of `DYNAMICS`) and `value`, between 0
        and 1.
    start : str, optional
        A system of the curves that stands still: the measures in `OF_QUESTIONS` are shown less its values.
    methods : mapping, optional
        System to its method. Systems of one method have one colour and marker; all but the first, dashed lines.
    smooth : int, optional
        Recorded steps over which each seed's curve is averaged; a tenth of them if not given.
        Lines are the mean over seeds, bands reach from the lowest to the highest seed.
    """
    figure, axes = plt.subplots(2, 2, figsize=(9.0, 7.2), sharex=True, layout="constrained", dpi=110)
    systems = list(dict.fromkeys(curves["system"]))
    named = {system: (methods or {}).get(system, system) for system in systems}
    order = list(dict.fromkeys(named.values()))
    first = {method: system for system, method in reversed(named.items())}
    width = smooth or max(1, curves["step"].nunique() // 10)
    for place, (axis, (measure, name)) in enumerate(zip(axes.flat, DYNAMICS.items(), strict=True)):
        style_axis(axis)
        mine, unit = curves[curves["measure"] == measure], "points of 100"
        if start and measure in OF_QUESTIONS:
            mine, unit = _less(mine, start), f"points of 100 above {start}"
        for system in systems:
            place_of_method = order.index(named[system])
            style = line_style(place_of_method) | ({} if first[named[system]] == system else {"linestyle": "--"})
            _band(axis, mine[mine["system"] == system], width, system, place_of_method / len(order), style)
        axis.set(title=f"({'abcd'[place]}) {name}", ylabel=unit)
        axis.title.set_fontsize(10)
    for axis in axes[-1]:
        axis.set_xlabel(f"training step (mean over {width} recorded steps)")
    legend(figure, axes.flat, 4)
    return figure


def _less(curves: pd.DataFrame, start: str) -> pd.DataFrame:
    """Values less those of a system at the same step and seed; without that system."""
    wide = curves.pivot(index=["step", "seed"], columns="system", values="value")
    rest = wide.drop(columns=start).sub(wide[start], axis=0)
    return rest.rename_axis(columns="system").stack().rename("value").reset_index()


def _band(axis: Axes, part: pd.DataFrame, width: int, label: str, offset: float, style: dict) -> None:
    """A system's smoothed curve; `offset` in [0, 1) moves its markers, so that they stand apart from others'."""
    if part.empty:
        return
    values = 100 * part.pivot(index="step", columns="seed", values="value")
    values = values.rolling(width, center=True, min_periods=1).mean()
    every = max(1, len(values) // 8)
    marks = {
        "markersize": 7,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
        "markevery": (int(offset * every), every),
    }
    axis.plot(values.index, values.mean(axis=1), linewidth=1.3, label=label, **style, **marks)
    low, high = values.min(axis=1), values.max(axis=1)
    axis.fill_between(values.index, low, high, color=style["color"], alpha=0.15, linewidth=0)


def tsne_map(places: pd.DataFrame) -> Figure:
    """Documents around a query before and after training, as in Figure 1 of Zhan 2020; a panel for each query.

    Parameters
    ----------
    places : DataFrame
        Columns `query` (its text), `what` (document, relevant, before or after), `x` and `y`.
    """
    queries = list(dict.fromkeys(places["query"]))
    figure, axes = styled(4.0 * len(queries), 4.6, len(queries))
    styles = {"document": DOCUMENT, "relevant": RELEVANT, "before": BEFORE, "after": AFTER}
    names = {
        "document": "document", "relevant": "relevant document",
        "before": "query before training", "after": "query after training",
    }  # fmt: skip
    for axis, query in zip(axes, queries, strict=True):
        mine = places[places["query"] == query].set_index("what")[["x", "y"]]
        for what, style in styles.items():
            part = mine[mine.index == what]
            axis.plot(part["x"], part["y"], zorder=3 if what != "document" else 1, label=names[what], **style)
        arrow = {"arrowstyle": "-|>", "color": "0.2", "shrinkA": 5, "shrinkB": 5}
        axis.annotate("", mine.loc["after"].to_numpy(), mine.loc["before"].to_numpy(), arrowprops=arrow, zorder=2)
        axis.set_title(fill(query, 44), fontsize=9)
        _as_map(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


def _as_map(axis: Axes) -> None:
    """t-SNE's coordinates have no unit."""
    axis.set(xticks=[], yticks=[], xlabel="t-SNE, first coordinate", ylabel="t-SNE, second coordinate")
    axis.grid(visible=False)


def paths(places: pd.DataFrame) -> Figure:
    """A map of the whole corpus, and how queries move over it as training proceeds.

    Parameters
    ----------
    places : DataFrame
        Columns `what`, `query` (its text), `step`, `x` and `y`. A row for each "document"; for each step of a
        "query", whose path begins at an open circle and ends at a full one, which bears the query's number; and for
        each "relevant" document, a star with the number of its query.
    """
    documents, queries, relevant = (places[places["what"] == what] for what in ("document", "query", "relevant"))
    figure, (axis,) = styled(7.5, 7.0)
    axis.plot(documents["x"], documents["y"], "o", color="0.8", markersize=1.5, rasterized=True, zorder=0)
    texts = list(dict.fromkeys(queries["query"]))
    handles = []
    for place, query in enumerate(texts):
        style, number = {"color": COLOURS[place % len(COLOURS)]}, str(place + 1)
        path = queries[queries["query"] == query].sort_values("step")
        axis.plot(path["x"], path["y"], linewidth=1.2, marker=".", markersize=4, zorder=2, **style)
        axis.plot(path["x"].iloc[0], path["y"].iloc[0], "o", markerfacecolor="white", zorder=3, **style)
        axis.plot(path["x"].iloc[-1], path["y"].iloc[-1], "o", zorder=3, **style)
        goals = relevant[relevant["query"] == query]
        axis.plot(goals["x"], goals["y"], "*", markersize=13, markeredgecolor="black", zorder=3, **style)
        for x, y in [(path["x"].iloc[-1], path["y"].iloc[-1]), *zip(goals["x"], goals["y"], strict=True)]:
            halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
            axis.annotate(number, (x, y), (6, 5), textcoords="offset points", fontsize=9, weight="bold", bbox=halo)
        handles.append(Line2D([], [], marker="o", label=f"{number}: {shorten(query, 60, placeholder='…')}", **style))
    kinds = {
        "document": {"color": "0.7", "markersize": 3}, "start": {"color": "0.3", "markerfacecolor": "white"},
        "end": {"color": "0.3"}, "relevant": {"color": "0.7", "marker": "*", "markeredgecolor": "black"},
    }  # fmt: skip
    handles += [
        Line2D([], [], **{"marker": "o", "linestyle": "none", "label": name, **kind}) for name, kind in kinds.items()
    ]
    _as_map(axis)
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def index_matrix(table: pd.DataFrame, measure: str = "nDCG@10") -> Figure:
    """The index in training against the index in search; the best of each column is bold, the diagonal framed.

    Parameters
    ----------
    table : DataFrame
        Columns `trained`, `searched` and `value`, in points of a hundred.
    """
    names = list(dict.fromkeys([*table["trained"], *table["searched"]]))
    matrix = table.pivot(index="trained", columns="searched", values="value")
    matrix = matrix.reindex(index=[n for n in names if n in matrix.index], columns=[n for n in names if n in matrix])
    values = matrix.to_numpy(dtype=float)
    figure, (axis,) = styled(1.15 * len(matrix.columns) + 3.4, 0.75 * len(matrix) + 2.2)
    image = axis.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for i, j in np.argwhere(~np.isnan(values)):
        is_best = values[i, j] == np.nanmax(values[:, j])
        colour = "white" if values[i, j] < middle else "black"
        weight = "bold" if is_best else "normal"
        axis.text(j, i, f"{values[i, j]:.1f}", ha="center", va="center", color=colour, weight=weight)
        if matrix.index[i] == matrix.columns[j]:
            axis.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=colour, linewidth=1.5))
    axis.set(xticks=range(len(matrix.columns)), yticks=range(len(matrix)), yticklabels=matrix.index)
    axis.set_xticklabels(matrix.columns, rotation=30, ha="right")
    axis.set(xlabel="index in search", ylabel="index in training")
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis, label=f"{measure} (points of 100)")
    return figure


def training_time(times: pd.DataFrame, beyond: pd.DataFrame, parts: pd.DataFrame) -> Figure:
    """Time to ANCE's best against the size of the corpus, measured and extrapolated; beside it, what takes the time.

    Parameters
    ----------
    times, beyond, parts : DataFrame
        As `retlib.studies.part4_time` gives them: `to_best`, `extrapolated` and `parts`. Of what is
        extrapolated, the steps as measured are drawn, with the ratio above ("<": an upper bound).
    """
    figure, (left, right) = styled(11.0, 4.8, 2)
    improved = times[times["ratio"].notna()]
    ours = beyond[beyond["steps"] == "steps as measured"]
    for place, system in enumerate(("ANCE", "LTRe")):
        _measured(left, improved, system, place)
        line = pd.concat([improved.groupby("documents")[system].mean().tail(1), ours.set_index("documents")[system]])
        left.plot(line.index, line, "--", color=COLOURS[place], label=f"{system}, extrapolated")
    for row in ours.itertuples():
        said = f"{'' if row.outcome == 'reached' else '< '}{row.ratio:.1f} times"
        left.annotate(said, (row.documents, row.ANCE), (-4, 6), textcoords="offset points", fontsize=8, ha="right")
    left.set(xlabel="documents", ylabel="seconds of training to ANCE's best dev RR@10")
    if len(improved):
        left.set(xscale="log", yscale="log")
    else:
        left.set_title("ANCE is nowhere better than its start: no time to compare", fontsize=9)
    left.margins(x=0.1, y=0.1)
    _stacks(right, parts)
    figure.legend(*_named(left), loc="outside lower left", ncols=2, fontsize=8, frameon=False)
    figure.legend(*_named(right), loc="outside lower right", ncols=3, fontsize=8, frameon=False)
    return figure


def _measured(axis: Axes, times: pd.DataFrame, system: str, place: int) -> None:
    """A mark for each seed, through whose mean goes the line; open where LTRe's time is only known to be longer."""
    style = line_style(place)
    mean = times.groupby("documents")[system].mean()
    axis.plot(mean.index, mean, color=style["color"])
    is_bound = (times["outcome"] != "reached") & (system == "LTRe")
    for part, name, face in (
        (times[~is_bound], f"{system}, measured", style["color"]),
        (times[is_bound], f"{system}, whole training: never as good", "white"),
    ):
        if len(part):
            marks = {"marker": style["marker"], "color": style["color"], "markerfacecolor": face, "linestyle": "none"}
            axis.plot(part["documents"], part[system], label=name, **marks)


def _stacks(axis: Axes, parts: pd.DataFrame) -> None:
    """A bar for each size and system, one part of the time upon the other."""
    names = [name for name in parts if name not in ("documents", "system")]
    places, bottom = np.arange(len(parts)) + 0.5 * parts["documents"].rank(method="dense").to_numpy(), 0.0
    for place, name in enumerate(names):
        axis.bar(places, parts[name], bottom=bottom, color=COLOURS[place + 2], edgecolor="white", label=name)
        bottom = bottom + parts[name].to_numpy()
    labels = [f"{row.system}\n{row.documents:,}" for row in parts.itertuples()]
    axis.set_xticks(places, labels, fontsize=8)
    axis.set(ylabel="seconds, mean over seeds", xlabel="system, documents")
    axis.grid(axis="x", visible=False)


def _named(axis: Axes) -> tuple[list, list]:
    return axis.get_legend_handles_labels()
