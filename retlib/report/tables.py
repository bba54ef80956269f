"""Tables for a page, made from recorded results alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from numbers import Integral
from typing import Any

import pandas as pd
from IPython.display import HTML

from retlib.data.datasets.catalogue import called
from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL

# What a paper prints, in points of 100, by our system and measure.
PaperValues = Mapping[tuple[str, str], float]
NOTHING: PaperValues = {}


def scores(results: Results, collection: str, measure: str, paper: PaperValues = NOTHING) -> pd.DataFrame:
    """Return each system's score, in points of 100; index system.

    Columns: the measure, `low` and `high` of its 95 % interval over queries and seeds, what the `paper` has, the scores
    of `each seed`, and the numbers of `seeds` and `queries`.
    """
    rows = []
    for system in results.systems(collection, "test", measure):
        score, theirs = results.compared(collection, measure, system), paper.get((system, measure))
        seeds = 100 * results.per_query(collection, "test", measure, system).mean()
        rows.append((system, score.effect, *score.interval(), theirs, [*seeds], score.seeds, score.queries))
    columns = ["system", measure, "low", "high", "paper", "each seed", "seeds", "queries"]
    return pd.DataFrame(rows, columns=columns).set_index("system")


def recalls(results: Results, collection: str, measures: Sequence[str], paper: PaperValues = NOTHING) -> pd.DataFrame:
    """Return measures of the systems that have the first of them, as ``41.3 ± 0.8 | 40.7``; index system.

    Points of 100, half of the 95 % interval, and what the paper has.
    """
    columns = {}
    for measure in measures:
        table = scores(results, collection, measure, paper)
        half = (table["high"] - table[measure]).map("{:.1f}".format)
        theirs = table["paper"].map(" | {:.1f}".format, na_action="ignore").fillna("")
        columns[measure] = table[measure].map("{:.1f} ± ".format) + half + theirs
    return pd.DataFrame(columns).reindex(columns[measures[0]].index).fillna("")


def latencies(results: Results, collection: str, measure: str = "RR@10") -> pd.DataFrame:
    """Return quality and time of a question: `system`, `value`, `low`, `high` (points of 100), `median`, `p95` (ms)."""
    quality = scores(results, collection, measure)[[measure, "low", "high"]].rename(columns={measure: "value"})
    times = results.means(collection)[["latency ms", "latency p95 ms"]].dropna().set_axis(["median", "p95"], axis=1)
    return times.join(quality).reset_index()[["system", *quality, *times]]


def against(results: Results, collections: Sequence[str], measure: str, rival: str = "BM25") -> pd.DataFrame:
    """Return paired tests of every system against one, on every collection, Holm-corrected over all of them.

    Columns `collection`, `system`, `effect` (system less rival), `low`, `high` and `p`; in points of 100.
    """
    rows = []
    for name in collections:
        for system in results.systems(name, "test", measure):
            if system != rival:
                test = results.compared(name, measure, system, rival)
                rows.append((name, system, test.effect, *test.interval(), test.p_value()))
    table = pd.DataFrame(rows, columns=["collection", "system", "effect", "low", "high", "p"])
    return table.assign(p=holm(table["p"]))


def bracketed(tests: pd.DataFrame, effect: str) -> pd.DataFrame:
    """Return tests as a page shows them: effect and interval in a column of that name, p as text."""
    effects = map("{:+.1f} [{:+.1f}, {:+.1f}]".format, tests["effect"], tests["low"], tests["high"])
    table = tests.drop(columns=["low", "high"]).assign(effect=[*effects], p=tests["p"].map(p_text))
    return table.rename(columns={"effect": f"{effect}, 95 % interval", "p": "p (Holm)"})


def varying(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns that say the same in every row."""
    return table.loc[:, [len(table) < 2 or table[name].nunique(dropna=False) > 1 for name in table]]


def stacked(tables: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Return tables one under the other, each under its collection; one alone needs none."""
    table = pd.concat({called(key): table for key, table in tables.items()}, names=[name]).astype(object).fillna("")
    return table.droplevel(name) if len(tables) == 1 else table


def about(value: float) -> str:
    """Return a number in two digits, as ``1,400`` or ``0.12``; "" if there is none."""
    rounded = float(f"{value:.2g}")
    return "" if pd.isna(value) else f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:g}"


def p_text(value: float) -> str:
    """Return a p-value as pages show it: what rounds to the level and is below it says so."""
    return "< 0.001" if value < 0.001 else f"< {LEVEL}" if LEVEL - 0.0005 <= value < LEVEL else f"{value:.3f}"


def as_html(table: pd.DataFrame) -> str:
    """Return a frame as notebooks show it: whole, without row numbers, which name nothing, and without fingerprints.

    Collections are called as in sentences, but where a fingerprint tells what they hold: those are names to type.
    """
    table = _called(table) if "fingerprint" not in table else table.drop(columns="fingerprint")
    named = table.index.name is not None or not isinstance(table.index, pd.RangeIndex)
    # A list of few rows and more columns stands on its side: a page is longer than it is wide.
    if not named and len(table) <= 6 < len(table.columns) and table.iloc[:, 0].is_unique:
        table, named = table.set_index(table.columns[0]).astype(object).T, True
    if table.columns.nlevels == 1:  # the name of the rows stands in the line of the columns' names
        table = table.rename_axis(columns=table.index.names[-1]).rename_axis(index=lambda _: None)
    with pd.option_context("display.max_colwidth", None, "display.html.use_mathjax", False):
        cells = [_cell if kind.kind in "iuO" else None for kind in table.dtypes]
        html = table.to_html(notebook=True, index=named, max_rows=500, formatters=cells)
    # Long names in heads may break where their parts meet.
    html = re.sub(r"(?<=<th>)[^<]+(?=</th>)", lambda head: re.sub(r"([/_]|,(?=\D))", r"\1<wbr>", head[0]), html)
    return _scoped(html)


def as_page(table: pd.DataFrame, anchors: Sequence[str] = (), markup: Sequence[str] = ()) -> HTML:
    """Return a table for a page: text wraps, line breaks count, collections are called as in sentences.

    `anchors` name its rows for links. Markup and formulas are shown as text, but in the columns `markup`.
    """

    def as_text(value: Any) -> Any:
        if not isinstance(value, str):
            return _cell(value) if isinstance(value, Integral) else value
        # Long names may break before their capitals, lest their column take the room of others.
        return re.sub(r"(?<=[a-z,])(?=[A-Z]\S{6})", "<wbr>", escape(value).replace("\n", "<br>"))

    table = _called(table)
    # Before pandas writes a line break as a backslash and an n, which a text may hold itself.
    html = {name: table[name].str.replace("\n", "<br>") for name in markup}
    safe = table.assign(**{name: table[name].map(as_text) for name in table} | html).rename(columns=as_text)
    page = safe.to_html(index=False, escape=False, border=0, classes="dataframe wrapped mathjax_ignore")
    for anchor in anchors:
        page = page.replace("<tr>", f'<tr id="{anchor}">', 1)  # the line of names has attributes of its own
    return HTML(_scoped(page))


def _scoped(html: str) -> str:
    # So that a screen reader says which column and which row a cell is of.
    head, end, body = html.partition("</thead>")
    return head.replace("<th>", '<th scope="col">') + end + body.replace("<th>", '<th scope="row">')


def _cell(value: Any) -> str:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return f"{value:,}"
    return str(round(value, 6) if isinstance(value, float) else value)


def _called(table: pd.DataFrame) -> pd.DataFrame:
    # With collections called as in sentences: in columns of them, in heads and in the names of rows.
    def in_sentences(label: Any) -> Any:
        return called(label) if isinstance(label, str) else label

    places = [name for name in ("collection", "corpus", "target") if name in table]
    table = table.assign(**{name: table[name].map(called, na_action="ignore") for name in places})
    return table.rename(index=in_sentences, columns=in_sentences).rename_axis(index=in_sentences)
