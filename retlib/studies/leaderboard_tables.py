"""Tables and figures of the leaderboard, from recorded rows alone."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pandas as pd
from matplotlib.figure import Figure

from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.figures import COLOURS, legend, line_style, styled
from retlib.studies.board import Board, name_of
from retlib.studies.leaderboard import BM25_TUNED, CHOSEN_BY, ENDS, HYBRID, RIVALS, STARTS, WORDS

NOTHING = "from random weights"
# What stands for an end in a table.
ALONE = "nothing more"


def sizes(boards: Iterable[Board]) -> pd.DataFrame:
    """What is ranked, and what trains: documents, questions by split, labels and generated queries."""
    rows = []
    for board in boards:
        counts = {f"{split} questions": len(board.target.split(split)) for split in ("train", "dev", "test")}
        rows.append(
            {
                "collection": board.target.name, "documents": len(board.target.documents), **counts,
                "generated queries": len(board.study.generated(board.target.documents)),
                "generator trained on": board.study.source.name, "fingerprint": board.target.fingerprint[:12],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def grid(results: Results, collection: str, measure: str = CHOSEN_BY) -> pd.DataFrame:
    """The chains as a table: a row for each start, a column for each end, alone and fused with BM25.

    Returns
    -------
    DataFrame
        Text such as ``41.3 ± 0.8``: points of 100 over questions and seeds with half of the 95 % interval;
        empty where there is no such system.
    """
    known = set(results.systems(collection, "test", measure))
    rows: dict[str, dict[str, str]] = {}
    for suffix, start, end in product(("", HYBRID), STARTS, ENDS):
        system, column = name_of((*start, *end)) + suffix, (name_of(end) or ALONE) + suffix
        found = tables.plus_minus(tables.estimate(results, system, collection, measure)) if system in known else ""
        rows.setdefault(name_of(start) or NOTHING, {})[column] = found
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("start")


def costs(results: Results, collection: str, measure: str = CHOSEN_BY) -> pd.DataFrame:
    """Quality and training time of every system that was trained.

    Returns
    -------
    DataFrame
        Columns `system`, `value` (points of 100) and `seconds`, means over seeds; in the order of recording.
    """
    rows = results.rows
    mine = rows[(rows["collection"] == collection) & (rows["measure"] == measure) & rows["seconds"].notna()]
    means = mine.astype({"seconds": float}).groupby("system", sort=False)[["value", "seconds"]].mean().reset_index()
    return means.assign(value=100 * means["value"])


def best_within(table: pd.DataFrame) -> pd.DataFrame:
    """The systems that no quicker one equals, by training time: what is best at equal time; as `costs` returns them."""
    order = table.sort_values(["seconds", "value"], ascending=[True, False], kind="stable")
    before = order["value"].cummax().shift(fill_value=float("-inf"))
    return order[order["value"] > before].reset_index(drop=True)


def training_time(table: pd.DataFrame, level: float, measure: str = CHOSEN_BY) -> Figure:
    """Quality over training time: a line for each start, which grows with every link; alone, and fused with BM25.

    Parameters
    ----------
    table : DataFrame
        As `costs` returns it.
    level : float
        Of tuned BM25, which is not trained.
    """
    known = table.set_index("system")
    figure, axes = styled(10.0, 5.0, 2)
    best = best_within(table)
    for axis, suffix in zip(axes, ("", HYBRID), strict=True):
        groups = {name_of(start) or NOTHING: [name_of((*start, *end)) + suffix for end in ENDS] for start in STARTS}
        groups |= {name_of(RIVALS[0][:1]) + ", other negatives": [name_of(chain) + suffix for chain in RIVALS]}
        groups |= {} if suffix else {"bag of words": list(WORDS)}
        for place, (label, systems) in enumerate(groups.items()):
            points = known.loc[[system for system in systems if system in known.index]]
            # Bags of words are not links of one another.
            style = line_style(place) | ({"linestyle": "none"} if label == "bag of words" else {})
            axis.plot(points["seconds"], points["value"], label=label, **style)
        axis.axhline(level, color="0.4", linestyle=":", label=BM25_TUNED)
        axis.step(
            best["seconds"], best["value"], where="post", color=COLOURS[7], linewidth=1, label="best at equal time"
        )
        axis.set(xscale="log", xlabel="seconds of training", title="fused with BM25" if suffix else "alone")
    low = min(axis.get_ylim()[0] for axis in axes)
    high = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(low, high)
    axes[0].set_ylabel(f"{measure} (points of 100)")
    legend(figure, axes, 3)
    return figure
