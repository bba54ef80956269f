"""What only the leaderboard needs: equal budgets, questions as items for bags of words, its tables and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.core.errors import DataError, require
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, number, row_of
from retlib.data.collection import Collection
from retlib.data.tokenized import texts
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.figures import COLOURS, legend, line_style, styled
from retlib.studies import part3, part4, study
from retlib.systems.compose import Ranks
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Target
from retlib.systems.training_data import Labels

MEASURES = ["RR@10", "R@1", "R@10", "R@100", "nDCG@10"]
CHOSEN_BY = "RR@10"
# Before the ids of queries that become items of a task.
ASKED = "question: "


# Those of Part III's generator and retriever, of Part IV's training by ranking, and of the rest.
RULES: dict[str, Rule] = {
    **part3.COMMON,
    **{
        name: part4.RULES[name]
        for name in ("negatives", "interval", "query_steps", "retrieved", "query_loss", "optimizer")
    },
    "ranked_steps": POSITIVE,
    "reader_layers": POSITIVE,
    "words_epochs": POSITIVE,
    "words_batch": number(2, whole=True),
    "reader_steps": POSITIVE,
    "reader_batch": POSITIVE,
    "reader_rate": RATE,
    "reader_negatives": POSITIVE,
    "read": POSITIVE,
    "timed": POSITIVE,
    "bm25_trials": each_of(row_of(number(0), number(0, 1))),
    "words_rates": each_of(RATE),
    "label_rates": each_of(RATE),
    "ranked_rates": each_of(RATE),
    "query_rates": each_of(RATE),
    "fusion_shares": each_of(number(0, 1)),
}


def equal_budgets(**trials: Sequence) -> None:
    """Every method must try as many settings as the others; `SettingError` counts them if not."""
    counts = {name: len(values) for name, values in trials.items()}
    same = len(set(counts.values())) == 1
    require(same, f"every method must try as many settings as the others; here they try {counts}")


def check(collection: Collection) -> Collection:
    """A collection whose every split has judged questions: to train on, to choose settings on, and to test on.

    Raises
    ------
    DataError
        If one has none.
    """
    splits = set(collection.queries["split"][collection.relevant()["query_id"].unique()])
    for split in ("train", "dev", "test"):
        wrong = f"{collection.name!r} has no {split} questions with a relevant document; a leaderboard needs them"
        require(split in splits, wrong, DataError)
    return collection


def as_items(collection: Collection) -> Collection:
    """The labels as pairs of items, as Gillick's encoders are trained: a question is an item as a document is."""
    whole = Labels().collection(collection)
    asked = whole.queries[whole.queries["split"] != "test"]
    judged = whole.relevant()
    judged = judged[judged["query_id"].isin(asked.index)]
    found = asked.loc[judged["query_id"], ["text", "split"]].assign(cluster=judged["doc_id"].array)
    ids = ASKED + judged["query_id"] + "?" + judged["doc_id"]
    queries = found.set_axis(pd.Index(ids, name="query_id"))
    items = pd.concat([texts(collection), queries["text"]]).to_frame("text").rename_axis("doc_id")
    pairs = {"left": queries.index, "right": queries["cluster"].array, "label": 1, "split": queries["split"].array}
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})
    return Collection(f"{collection.name}, items", items, queries, qrels, pairs=pd.DataFrame(pairs))


def tune(
    target: Target, seed: int, methods: Mapping[str, tuple[Sequence[Any], Callable[[dict[str, Any]], Ranks]]]
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Choose one setting of each method on validation queries, one method after the other.

    Parameters
    ----------
    methods : mapping
        Method to the values that it may try, and to what makes its system of the values chosen so far and its own, by
        the names of the methods.

    Returns
    -------
    dict
        Method to the value that was chosen, the first of the best.
    DataFrame
        The trials: `system`, `setting` (a learning rate, a share, or BM25's k1 and b), the measure that chooses in
        points of 100, `chosen`, `collection`.
    """
    chosen: dict[str, Any] = {}
    tables = []
    for name, (values, make) in methods.items():
        trials = [make({**chosen, name: value}) for value in values]
        table = study.tune({name: trials}, target, seed, CHOSEN_BY, depth=1000)
        chosen[name] = next(value for value, best in zip(values, table["chosen"], strict=True) if best)
        settings = [", ".join(f"{each:g}" for each in np.atleast_1d(value)) for value in values]
        tables.append(table[["system", CHOSEN_BY, "chosen", "collection"]].assign(setting=settings))
    found = pd.concat(tables, ignore_index=True)[["system", "setting", CHOSEN_BY, "chosen", "collection"]]
    return chosen, found.assign(**{CHOSEN_BY: 100 * found[CHOSEN_BY]})


# --- tables and figures, from recorded rows --------------------------------------------------------


def sizes(targets: Mapping[str, Sequence[Target]], generators: Mapping[str, QueryGenerator], seed: int) -> pd.DataFrame:
    """What is ranked, and what trains: documents, questions by split, labels, and a seed's generated queries."""
    rows = []
    for source, target in ((source, each.test) for source, tests in targets.items() for each in tests):
        rows.append(
            {
                "collection": target.name,
                "documents": len(target.documents),
                **{f"{split} questions": len(target.split(split)) for split in ("train", "dev", "test")},
                "generated queries": len(generators[source].seeded(seed).queries(target.documents)),
                "generator trained on": source,
                "fingerprint": target.fingerprint[:12],
            }
        )
    return pd.DataFrame(rows)


def grid(results: Results, collection: str, systems: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Systems as a table.

    Parameters
    ----------
    systems : mapping
        Row to column to the name of the system that stands there.

    Returns
    -------
    DataFrame
        Text such as ``41.3 ± 0.8``: points of 100 over questions and seeds with half of the 95 % interval;
        empty where there is no such system.
    """
    known = set(results.systems(collection, "test", CHOSEN_BY))

    def cell(system: str) -> str:
        if system not in known:
            return ""
        return tables.plus_minus(results.compared(collection, CHOSEN_BY, system))

    rows = {row: {column: cell(system) for column, system in columns.items()} for row, columns in systems.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("start")


def costs(results: Results, collection: str) -> pd.DataFrame:
    """Quality and training time of every system that was trained.

    Returns
    -------
    DataFrame
        Columns `system`, `value` (points of 100) and `seconds`, means over seeds; in the order of recording.
    """
    means = results.means(collection)[[CHOSEN_BY, "seconds"]].dropna()
    found = means.rename(columns={CHOSEN_BY: "value"}).reset_index()
    return found.assign(value=100 * found["value"])


def best_within(table: pd.DataFrame) -> pd.DataFrame:
    """The systems that no quicker one equals, by training time: what is best at equal time; as `costs` returns them."""
    order = table.sort_values(["seconds", "value"], ascending=[True, False], kind="stable")
    before = order["value"].cummax().shift(fill_value=float("-inf"))
    return order[order["value"] > before].reset_index(drop=True)


def training_time(
    table: pd.DataFrame,
    panels: Mapping[str, Mapping[str, Mapping[str, str]]],
    apart: Iterable[str],
    level: tuple[str, float],
) -> Figure:
    """Quality over training time, each panel on axes of its own; the steps are the best at equal time of what it shows.

    Parameters
    ----------
    table : DataFrame
        As `costs` returns it.
    panels : mapping
        Title to label to the systems of a line, each of which goes on from the one before; a system to its name, whose
        number stands in its point.
    apart : iterable of str
        Labels whose systems do not go on from one another.
    level : (str, float)
        Name and value of a system that is not trained.
    """
    known = table.set_index("system")
    every = [name for groups in panels.values() for systems in groups.values() for name in systems.values()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(every), 1)}
    figure, axes = styled(10.0, 5.0, len(panels))
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        for place, (label, systems) in enumerate(groups.items()):
            points = known.loc[[system for system in systems if system in known.index]]
            style = line_style(place) | ({"linestyle": "none"} if label in set(apart) else {})
            axis.plot(points["seconds"], points["value"], label=label, markersize=11, alpha=0.8, **style)
            for row in points.itertuples():
                inside = {"ha": "center", "va": "center", "fontsize": 7, "color": "white", "weight": "bold"}
                axis.annotate(str(numbers[systems[row.Index]]), (row.seconds, row.value), **inside)
        best = best_within(table[table["system"].isin([name for systems in groups.values() for name in systems])])
        axis.axhline(level[1], color="0.4", linestyle=":", label=level[0])
        axis.step(
            best["seconds"], best["value"], where="post", color=COLOURS[7], linewidth=1, label="best at equal time"
        )
        axis.set(xscale="log", xlabel="seconds of training", title=title)
    for name, place in numbers.items():
        axes[0].plot([], [], " ", label=f"{place}: {name}")
    axes[0].set_ylabel(f"{CHOSEN_BY} (points of 100)")
    legend(figure, axes)
    return figure


def name_of(links: Iterable[str]) -> str:
    """The name of a chain: those of its links, in their order."""
    return " > ".join(links)


def starts_by_ends(
    starts: Mapping[str, Sequence[str]], ends: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """The chains of a grid: start to end to a chain's name and its links."""
    rows: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
    for (start, first), (end, last) in product(starts.items(), ends.items()):
        links = (*first, *last)
        rows.setdefault(start, {})[end] = name_of(links), links
    return rows
