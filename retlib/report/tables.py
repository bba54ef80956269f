"""Tables for a page, made from recorded results alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from numbers import Integral
from typing import Any

import pandas as pd
from IPython.display import HTML

from retlib.data.datasets.catalogue import called, names, parted
from retlib.evaluation.measures import Comparison, holm
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL

# A list of at most so many rows that has more columns stands on its side: a page is longer than it is wide.
FEW_ROWS = 6


def scores(
    results: Results, collection: str, reported: Mapping[str, float] | None = None, measure: str = "AP@100"
) -> pd.DataFrame:
    """Return each system's score beside the paper's number, where `reported` has one; index system.

    In points of 100: the measure, `low` and `high` of its 95 % interval over queries and seeds, `paper`, and the
    scores of `each seed`; besides, the numbers of `seeds` and `queries`.
    """
    rows = {}
    for system in results.systems(collection, "test", measure):
        found = results.compared(collection, measure, system)
        low, high = found.interval()
        rows[system] = {
            measure: found.effect, "low": low, "high": high, "seeds": found.seeds, "queries": found.queries,
            "paper": (reported or {}).get(system),
            "each seed": list(100 * results.per_query(collection, "test", measure, system).mean()),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("system")


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table that `scores` has of AP@100 as a page shows it."""
    text = {
        "AP@100 ours": table["AP@100"].map("{:.1f}".format),
        "95 % interval": table["low"].map("{:.1f} to ".format) + table["high"].map("{:.1f}".format),
        "AP@100 paper": table["paper"].map("{:.1f}".format, na_action="ignore").fillna(""),
    }
    return pd.DataFrame({**text, "seeds": table["seeds"], "queries": table["queries"]}, index=table.index)


def recalls(
    results: Results,
    collection: str,
    measures: Sequence[str],
    reported: Mapping[tuple[str, str], float] | None = None,
) -> pd.DataFrame:
    """Return several measures of each system, the paper's numbers beside them; index system.

    Text such as ``41.3 ± 0.8 | 40.7``: points of 100, half of the 95 % interval over queries and seeds, and what
    `reported` has for (system, measure). The systems are those of the first measure.
    """
    known = {measure: results.systems(collection, "test", measure) for measure in measures}
    table = pd.DataFrame("", index=pd.Index(known[measures[0]], name="system"), columns=[*measures])
    for measure in measures:
        for system in table.index:
            ours = plus_minus(results.compared(collection, measure, system)) if system in known[measure] else ""
            theirs = (reported or {}).get((system, measure))
            table.loc[system, measure] = ours if theirs is None else f"{ours} | {theirs:.1f}".strip()
    return table


def latencies(results: Results, collection: str, measure: str = "RR@10") -> pd.DataFrame:
    """Return quality and time of a question: `system`, `value`, `low`, `high` (points of 100), `median`, `p95` (ms)."""
    times, rows = results.means(collection), []
    for system, row in times[times["latency ms"].notna()].iterrows():
        quality = results.compared(collection, measure, str(system))
        rows.append((system, quality.effect, *quality.interval(), row["latency ms"], row["latency p95 ms"]))
    return pd.DataFrame(rows, columns=["system", "value", "low", "high", "median", "p95"])


def in_units(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table that `latencies` has as a page shows it: rounded, units in the names of its columns."""
    names = {"value": "RR@10 (of 100)", "low": "95 % from", "high": "to", "median": "median (ms)", "p95": "p95 (ms)"}
    times = {name: table[name].map("{:.3g}".format) for name in ("median", "p95")}
    return table.assign(**times).set_index("system").round(1).rename(columns=names)


def varying(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns that say the same in every row."""
    return table.loc[:, [len(table) < 2 or table[name].nunique(dropna=False) > 1 for name in table]]


def plus_minus(found: Comparison) -> str:
    """Return text such as ``41.3 ± 0.8``: the effect, and half of its 95 % interval."""
    low, high = found.interval()
    return f"{found.effect:.1f} ± {(high - low) / 2:.1f}"


def about(value: float) -> str:
    """Return a number in two digits, as ``1,400`` or ``0.12``; "" if there is none."""
    rounded = float(f"{value:.2g}")
    return "" if pd.isna(value) else f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:g}"


def span(values: Iterable[float], text: Callable[[float], str]) -> str:
    """Return the least and the greatest, or one where they look alike."""
    return " to ".join(dict.fromkeys(map(text, (min(values), max(values)))))


def p_text(value: float) -> str:
    """Return a p-value as pages show it."""
    # What rounds to the level and is below it says so.
    return "< 0.001" if value < 0.001 else f"< {LEVEL}" if LEVEL - 0.0005 <= value < LEVEL else f"{value:.3f}"


def stacked(tables: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Return tables one under the other, each under its collection; one alone needs none."""
    table = pd.concat({called(key): table for key, table in tables.items()}, names=[name])
    table = table.astype(dict.fromkeys(table.columns[table.isna().any()], object)).fillna("")
    widest = max(tables.values(), key=lambda table: table.shape[1])
    table = table[list(dict.fromkeys([*widest, *table]))]  # in the order of the one that has most
    return table.droplevel(name) if len(tables) == 1 else table


def bracketed(tests: pd.DataFrame, effect: str, places: int = 1) -> pd.DataFrame:
    """Return tests as a page shows them: effect and interval in a column of that name, p as text."""
    text = f"{{:+.{places}f}} [{{:+.{places}f}}, {{:+.{places}f}}]".format
    effects = list(map(text, tests["effect"], tests["low"], tests["high"]))
    table = tests.drop(columns=["low", "high"]).assign(effect=effects, p=tests["p"].map(p_text))
    return table.rename(columns={"effect": f"{effect}, 95 % interval", "p": "p (Holm)"})


def against(results: Results, collections: Sequence[str], measure: str, rival: str = "BM25") -> pd.DataFrame:
    """Return paired tests of every system against one, on every collection, Holm-corrected over all of them.

    Columns `collection`, `system`, `effect` (system less rival), `low`, `high` and `p`; in points of 100.
    """
    rows = []
    for name in collections:
        for system in results.systems(name, "test", measure):
            if system != rival:
                found = results.compared(name, measure, system, rival)
                rows.append((name, system, found.effect, *found.interval(), found.p_value()))
    table = pd.DataFrame(rows, columns=["collection", "system", "effect", "low", "high", "p"])
    return table.assign(p=holm(table["p"]))


def as_html(table: pd.DataFrame) -> str:
    """Return a frame as notebooks show it: whole, without row numbers, which name nothing, and without fingerprints.

    Collections are called as in sentences, but where a fingerprint tells what they hold: those are names to type.
    """
    table = _called(table) if "fingerprint" not in table else table.drop(columns="fingerprint")
    named = table.index.name is not None or not isinstance(table.index, pd.RangeIndex)
    if not named and len(table) <= FEW_ROWS < len(table.columns) and table.iloc[:, 0].is_unique:
        table, named = table.set_index(table.columns[0]).astype(object).T, True
    if table.columns.nlevels == 1:  # the name of the rows stands in the line of the columns' names
        name, nameless = table.index.names[-1], [None] * table.index.nlevels
        table = table.set_axis(table.index.set_names(nameless)).rename_axis(columns=name)
    with pd.option_context("display.max_colwidth", None, "display.html.use_mathjax", False):
        cells = [_cell if kind.kind in "iuO" else None for kind in table.dtypes]
        html = table.to_html(notebook=True, index=named, max_rows=500, formatters=cells)
    # Long names in heads may break where their parts meet.
    return re.sub(r"(?<=<th>)[^<]+(?=</th>)", lambda head: re.sub(r"([/_]|,(?=\D))", r"\1<wbr>", head[0]), html)


def _cell(value: Any) -> str:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return f"{value:,}"
    return str(round(value, 6) if isinstance(value, float) else value)


def as_page(table: pd.DataFrame, anchors: Sequence[str] = (), markup: Sequence[str] = ()) -> HTML:
    """Return a table for a page: text wraps, line breaks count, collections are called as in sentences.

    `anchors` name its rows, so that other pages can link to them. Markup and formulas are shown as text, but in the
    columns `markup`, whose values are HTML already.
    """

    def as_text(value: object) -> object:
        if isinstance(value, str):
            # Long names may break before their capitals, lest their column take the room of others.
            return re.sub(r"(?<=[a-z,])(?=[A-Z]\S{6})", "<wbr>", broken(escape(value)))
        return _cell(value) if isinstance(value, Integral) else value

    def broken(html: str) -> str:
        # Before pandas writes a line break as a backslash and an n, which a text may hold itself.
        return html.replace("\n", "<br>")

    table = _called(table)
    cells = {name: table[name].map(broken if name in markup else as_text) for name in table}
    safe = table.assign(**cells).rename(columns=as_text)
    html = safe.to_html(index=False, escape=False, border=0, classes="dataframe wrapped mathjax_ignore")
    for anchor in anchors:
        html = html.replace("<tr>", f'<tr id="{anchor}">', 1)  # the line of names has attributes of its own
    return HTML(html)


def _called(table: pd.DataFrame) -> pd.DataFrame:
    """With collections called as in sentences: in columns of them, in heads and in the names of rows."""

    def in_sentences(label: Any) -> Any:
        return called(label) if isinstance(label, str) and parted(label)[0] in names() else label

    places = [name for name in ("collection", "corpus", "target") if name in table]
    table = table.assign(**{name: table[name].map(called, na_action="ignore") for name in places})
    return table.rename(index=in_sentences, columns=in_sentences).rename_axis(index=in_sentences)
