"""Figures of trainings by retrieval: watched step by step, on maps, against the clock."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.report.curves import WINDOWS
from retlib.report.figures import COLOURS, legend, line_styles, mean_lines, panels, styled

# What `dynamics` draws, in the order of Figure 3, and how it names it.
DYNAMICS = {
    "RR@10": "(a) RR@10",
    "R@200": "(b) R@200",
    "overlap BM25": "(c) overlap with BM25's top 200",
    "overlap stale": "(d) overlap with the last refresh's top 200",
}
# The other measures depend on a step's questions, easy ones and hard ones, more than on the training: they are shown by
# means over parts of it. This one falls and jumps with every refresh, and is shown as recorded.
WITH_REFRESHES = "overlap stale"


def dynamics(curves: pd.DataFrame, start: str, methods: Mapping[str, str], epoch: float) -> Figure:
    """Return training curves as in Figure 3 of Zhan 2020: a panel for each measure, a line for each system.

    `curves` has the columns `system`, `seed`, `step`, `measure` (those of `DYNAMICS`) and `value`, between 0 and 1.
    Lines are means over seeds of `WINDOWS` parts of the training (except `WITH_REFRESHES`), in bands of a standard
    error. The system `start` stands still, and its values are averaged. `methods` has the others' methods; what has
    another name is dashed. Beyond `epoch` steps, a training meets questions again.
    """
    figure, axes = styled(8.4, 7.6, columns=2, rows=2, sharex=True)
    systems = [name for name in curves["system"].unique() if name != start]
    looks = line_styles(methods[name] for name in systems)
    styles = {name: looks[methods[name]] | ({} if name in looks else {"linestyle": "--"}) for name in systems}
    for axis, (measure, title) in zip(axes, DYNAMICS.items(), strict=True):
        points = curves[curves["measure"] == measure].pivot(index="step", columns=["system", "seed"], values="value")
        points *= 100
        above = "" if measure == WITH_REFRESHES else f" above {start}"
        if above:
            part = np.arange(len(points)) * WINDOWS // len(points)
            points = points.reset_index().groupby(part).mean().set_index("step")
            points = pd.concat({name: points[name] - points[start] for name in systems if name in points}, axis=1)
        mean_lines(axis, points, styles, errors=True)
        axis.set(ylabel=f"points of 100{above}", xlabel="training step")
        axis.set_title(title, fontsize=10)
        axis.label_outer(remove_inner_ticks=False)
        for step in np.arange(epoch, curves["step"].max() + 1, epoch):
            axis.axvline(step, color="grey", linestyle=":", linewidth=1, label="a pass over the questions ends")
    return legend(figure, axes)


def paths(places: pd.DataFrame) -> Figure:
    """Return each query's way over a map while it is trained (Figure 1 of Zhan 2020), and beside it, enlarged.

    `places` has `query` (its text), `what`, `x` and `y`: a row for each "document" (of a query, or of all with none),
    for each "relevant" document, and for each place of the query, in order.
    """
    queries = [query for query in places["query"].unique() if query]
    titles = [title for query in queries for title in (shorten(query, 100, placeholder=" …"), "its way, enlarged")]
    figure, axes = panels(titles, 3.7, 2.3)
    for query, whole, near in zip(queries, axes[::2], axes[1::2], strict=True):
        mine = places[places["query"].isin([query, ""])].set_index("what")[["x", "y"]]
        documents, goals = (mine[mine.index == what] for what in ("document", "relevant"))
        path = mine.drop(["document", "relevant"], errors="ignore")
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
        # The nearest is in sight where the path would not become a dot for that.
        least = 0.002 * np.ptp(mine, axis=0).max()
        reach = 1.5 * max(np.ptp(path, axis=0).max(), least)
        seen = pd.concat([path, nearest.clip(path.min() - reach, path.max() + reach, axis=1)])
        middle, half = (seen.max() + seen.min()) / 2, 0.6 * np.ptp(seen, axis=0).max() + least
        near.set(xlim=middle["x"] + half * np.array([-1, 1]), ylim=middle["y"] + half * np.array([-1, 1]))
    return legend(figure, axes)


def training_time(times: pd.DataFrame, beyond: pd.DataFrame, parts: pd.DataFrame) -> Figure:
    """Return time to ANCE's best against the size of the corpus, measured and extrapolated; beside it, what takes it.

    Tables are `to_best`, `extrapolated`, `parts` of `notebooks/training_time.py`. Extrapolated steps are as measured;
    the ratio stands above ("<": an upper bound).
    """
    figure, (left, right) = styled(8.8, 5.4, 2)
    improved = times[times["outcome"] != "ANCE does not improve"]
    ours = beyond[beyond["steps"] == "steps as measured"].set_index("documents")
    for system, style in line_styles(parts["system"]).items():
        mean = improved.groupby("documents")[system].mean()
        left.plot(mean, color=style["color"])
        left.plot(pd.concat([mean.tail(1), ours[system]]), "--", color=style["color"], label=f"{system}, extrapolated")
        # A mark for each seed, open where LTRe's time is only known to be longer.
        known = (improved["outcome"] == "reached") | (system == "ANCE")
        marks = {"marker": style["marker"], "color": style["color"], "linestyle": "none"}
        left.plot(improved["documents"][known], improved[system][known], label=f"{system}, measured", **marks)
        if not known.all():
            marks |= {"markerfacecolor": "white", "label": f"{system}, whole training: never as good"}
            left.plot(improved["documents"][~known], improved[system][~known], **marks)
    for row in ours.itertuples():
        ratio = f"{'' if row.outcome == 'reached' else '< '}{row.ratio:.1f} times"
        left.annotate(ratio, (row.Index, row.ANCE), (-4, 6), textcoords="offset points", fontsize=8, ha="right")
    left.set(xlabel="documents", ylabel="seconds of training to ANCE's best dev RR@10")
    if improved.empty:
        left.set_title("ANCE is nowhere better than its start: no time to compare", fontsize=9)
    else:
        left.set(xscale="log", yscale="log")
    names = parts["system"] + "\n" + parts["documents"].map("{:,}".format)
    stacks = parts.drop(columns=["documents", "system"]).set_axis(names)
    stacks.plot.bar(ax=right, stacked=True, color=COLOURS[2:], width=0.8, rot=0, fontsize=8, legend=False)
    right.set(ylabel="seconds, mean over seeds", xlabel="system, documents")
    return legend(figure, [left, right])
