"""Tables of recorded results: scores of systems, queries one by one, claims with their verdicts (every chapter)."""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.datasets.catalogue import called
from retlib.data.text import content_words, words
from retlib.data.tokenized import texts
from retlib.evaluation import results
from retlib.evaluation.measures import compare, held_out, holm, in_pairs
from retlib.evaluation.results import Results
from retlib.report.contrasts import LEVEL
from retlib.report.ledger import CONDITION, NOT_TESTED, SIGNS, amount_text, decisive, effect_text, is_seen
from retlib.report.papers import papers, papers_table

PRINTED = ", the paper's "
TIE = 2e-3  # points: values are recorded to five digits, so that equal ones may differ by this much
# Points between two runs; chosen, not derived: what a reader would hardly see, and what a reader would ask about.
TOLERANCES, DIFFERS = {"OK": 0.5, "near": 2.0}, "differs"
STATUSES = (*TOLERANCES, DIFFERS, "other data", "other settings", "not run")
NAMES = ["experiment", "system", "collection", "split", "measure"]  # of a row, but for the seed


def scores(results: Results, collection: str, measure: str, paper: Mapping = {}) -> pd.DataFrame:
    """Return each system's score, in points of 100; index system.

    Columns: the measure, `low` and `high` of its 95 % interval over queries and seeds, what the `paper` prints, by
    system and measure, the scores of `each seed`, and the numbers of `seeds` and `queries`.
    """
    rows = []
    for system in results.systems(collection, "test", measure):
        score, theirs = results.compared(collection, measure, system), paper.get((system, measure))
        seeds = 100 * results.per_query(collection, "test", measure, system).mean()
        rows.append((system, score.effect, *score.interval(), theirs, [*seeds], score.seeds, score.queries))
    columns = ["system", measure, "low", "high", "paper", "each seed", "seeds", "queries"]
    return pd.DataFrame(rows, columns=columns).set_index("system")


def measured(results: Results, collection: str, measures: Sequence[str], paper: Mapping = {}) -> pd.DataFrame:
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
    quality = scores(results, collection, measure)[[measure, "low", "high"]].set_axis(["value", "low", "high"], axis=1)
    times = results.means(collection)[["latency ms", "latency p95 ms"]].dropna().set_axis(["median", "p95"], axis=1)
    return quality.join(times, how="right").reset_index()


def against(results: Results, collections: Sequence[str], measure: str, rival: str = "BM25") -> pd.DataFrame:
    """Return paired tests of every system against one, on every collection, Holm-corrected over all of them.

    Columns `collection`, `system`, `effect` (system less rival), `low`, `high` and `p`; in points of 100.
    """
    pairs = [(on, system) for on in collections for system in results.systems(on, "test", measure) if system != rival]
    tests = [(*pair, results.compared(pair[0], measure, pair[1], rival)) for pair in pairs]
    rows = [(*pair, test.effect, *test.interval(), test.p_value()) for *pair, test in tests]
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


def overlap(collection: Collection) -> pd.DataFrame:
    """Return the lexical overlap of each test query with its relevant documents.

    That is the share of its different words, without stop words and not stemmed, in a relevant document; of several the
    largest; NaN where only stop words are left, or nothing is relevant. Columns `collection`, `query_id`, `overlap`,
    and `words`, the number of all words of the query.
    """
    queries, judged = held_out(collection, "test")
    judged = judged[judged["relevance"] > 0]
    rows = collection.documents.index.get_indexer(judged["doc_id"].unique())
    terms, inside = queries["text"].map(content_words), texts(collection, rows).map(content_words)
    pairs = zip(judged["query_id"], judged["doc_id"], strict=True)
    shares = [len(terms[q] & inside[d]) / len(terms[q]) if terms[q] else np.nan for q, d in pairs]
    best = pd.Series(shares, judged["query_id"], dtype=float).groupby(level=0).max().reindex(queries.index)
    table = pd.DataFrame({"overlap": best, "words": queries["text"].map(words).map(len)}).rename_axis("query_id")
    return table.reset_index().assign(collection=collection.name)[["collection", "query_id", "overlap", "words"]]


def slices(results: Results, collection: str, measure: str, systems: Sequence[str], parts: int) -> pd.DataFrame:
    """Return the mean of systems, of all if none is named, over the queries of little, more and most lexical overlap.

    Queries with a value, in the order of the table `overlap`, are cut into at most so many equal parts; equal overlaps
    stay together. Columns `part` (such as ``0-33 % (n = 210)``), `edge` (its lowest overlap, from 0 to 1), `system`,
    `value`, `low` and `high` of its 95 % interval (points of 100; NaN for one query or cluster), and `queries`.
    """
    clusters = results.clusters(collection, "test", measure)
    shares = results.tables["overlap"].query("collection == @collection").set_index("query_id")["overlap"]
    complete = shares.index.is_unique and clusters.index.isin(shares.index).all()
    require(complete, f"the overlaps of {collection!r} are not those of its questions", DataError)
    shares, rows = shares.reindex(clusters.index).dropna(), []
    # Equal values stay together, where their middle rank falls.
    for _, share in shares.groupby((2 * shares.rank(method="average") - 1) * parts // (2 * len(shares))):
        ends = dict.fromkeys(f"{100 * end:.0f}" for end in (share.min(), share.max()))
        part, several = f"{'-'.join(ends)} % (n = {len(share)})", clusters[share.index].nunique() > 1
        for system in systems or results.systems(collection, "test", measure):
            points = 100 * results.per_query(collection, "test", measure, system).loc[share.index].astype(float)
            interval = compare(points, clusters).interval() if several else (np.nan, np.nan)
            rows.append((part, share.min(), system, points.to_numpy().mean(), *interval, len(share)))
    return pd.DataFrame(rows, columns=["part", "edge", "system", "value", "low", "high", "queries"])


def outcomes(results: Results, collection: str, measure: str, rival: str) -> pd.DataFrame:
    """Return every system against a rival, query by query, the largest effect first.

    In points of 100, over common seeds. Beside the columns of `against`: `wins`, `ties` and `losses`, numbers of
    queries, whose seeds are averaged first; and what they reach `alone`, the `rival`, and the `best of both`, chosen
    for each query and seed with hindsight: the upper bound of a choice, above both even if they differ by chance alone,
    and none of a fusion.
    """
    rows = []
    for _, system, *test in against(results, [collection], measure, rival).itertuples(index=False):
        pair = (results.per_query(collection, "test", measure, name) for name in (system, rival))
        ours, theirs = (100 * values.to_numpy() for values in in_pairs(*pair))  # (Q, S)
        apart = ours.mean(axis=1) - theirs.mean(axis=1)
        counts = [int(each.sum()) for each in (apart > TIE, abs(apart) <= TIE, apart < -TIE)]
        rows.append((system, *counts, *test, ours.mean(), theirs.mean(), np.maximum(ours, theirs).mean()))
    columns = ["system", "wins", "ties", "losses", "effect", "low", "high", "p", "alone", "rival", "best of both"]
    return pd.DataFrame(rows, columns=columns).sort_values("effect", ascending=False, kind="stable", ignore_index=True)


# Compared are means over seeds of measures, in points of 100; times, sizes and counts depend on the machine. Rows of
# other data or settings are no rerun and are told apart.


def reproduction(profile: str) -> pd.DataFrame:
    """Return every published mean beside the same of the reader's own run; `DataError` if nothing is published.

    Columns `NAMES`, `seeds` (of the own run), `run` and `reference` (means over common seeds, or over all if there are
    none; points of 100), `difference`, `status` (one of `STATUSES`).
    """
    rows = [_rows(profile, source) for source in ("reference", "run")]
    nothing = f"no results are published at profile {profile!r}, so nothing can be compared with them"
    require(len(rows[0]) > 0, nothing, DataError)
    published, own = (each.groupby(NAMES, sort=False)[["data", "parameters"]].first() for each in rows)
    own, values = own.reindex(published.index), [100 * each.set_index([*NAMES, "seed"])["value"] for each in rows]
    values = pd.concat(values, axis=1, keys=["reference", "run"])
    shared = values.notna().all(axis=1)
    values = values[shared | ~shared.groupby(NAMES).transform("any")].groupby(NAMES)
    table = values.mean().assign(seeds=values["run"].count()).reindex(published.index)
    difference = table["run"] - table["reference"]
    # Values are kept as float32, so that a difference of just the tolerance may read a little more.
    status = {"not run": table["run"].isna(), "other data": published["data"] != own["data"]}
    status |= {"other settings": published["parameters"] != own["parameters"]}
    status |= {name: difference.abs() <= most + 1e-4 for name, most in TOLERANCES.items()}
    status = np.select([*status.values()], [*status], DIFFERS)
    table = table[["seeds", "run", "reference"]].assign(difference=difference, status=status)
    return table.reset_index()


def counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each experiment have each status."""
    table = pd.crosstab(rows["experiment"], rows["status"])
    return table.reindex(columns=list(STATUSES), fill_value=0).rename_axis(columns=None).reset_index()


def _rows(profile: str, source: str) -> pd.DataFrame:
    rows = results.rows(profile, source).reindex(columns=[*NAMES, "seed", "value", "data", "parameters"])
    rows = rows[rows["measure"].str.fullmatch(r"\S+@\d+")]  # of ranked lists, and no time, size or count
    # A copy of a file may differ in bytes from the release and still give the same collection.
    return rows.assign(data=rows["data"].map(lambda data: json.loads(data)["fingerprint"]))


def as_html(table: pd.DataFrame, markup: Sequence[str] = (), wrapped: bool = False) -> str:
    """Return a frame as notebooks show it: whole, without row numbers, which name nothing, and without fingerprints.

    Collections are called as in sentences, but where a fingerprint tells what they hold: those are names to type.
    Markup and formulas are text, but in the columns `markup`.
    """

    def as_text(value: Any) -> Any:
        if isinstance(value, Integral) and not isinstance(value, bool):
            return f"{value:,}"
        # Long names may break where their parts meet, lest their column take the room of others.
        ends = r"(?<=[/_])(?=\S)|(?<=,)(?=[^\s\d])|(?<=[a-z])(?=[A-Z]\S{6})"
        return re.sub(ends, "<wbr>", escape(value)).replace("\n", "<br>") if isinstance(value, str) else value

    def as_label(value: Any) -> Any:
        return as_text(called(value) if isinstance(value, str) and "fingerprint" not in table else value)

    named = not wrapped and (table.index.name is not None or not isinstance(table.index, pd.RangeIndex))
    places = [name for name in ("collection", "corpus", "target") if name in table and "fingerprint" not in table]
    page = table.assign(**{name: table[name].map(called, na_action="ignore") for name in places})
    page = page.drop(columns="fingerprint", errors="ignore")
    # A list of few rows and more columns stands on its side: a page is longer than it is wide.
    if not (named or wrapped) and len(page) <= 6 < len(page.columns) and page.iloc[:, 0].is_unique:
        page, named = page.set_index(page.columns[0]).astype(object).T, True
    page = page.map(as_text).assign(**{name: table[name].str.replace("\n", "<br>") for name in markup})
    page = page.rename(index=as_label, columns=as_label).rename_axis(index=as_label, columns=as_label)
    if page.columns.nlevels == 1:  # the name of the rows stands in the line of the columns' names
        page = page.rename_axis(columns=page.index.names[-1]).rename_axis(index=lambda _: None)
    looks = f"{'wrapped ' if wrapped else ''}mathjax_ignore"
    html = page.to_html(index=named, escape=False, border=0, max_rows=500, classes=looks)
    # So that a screen reader says which column and which row a cell is of.
    head, end, body = html.partition("</thead>")
    return head.replace("<th>", '<th scope="col">') + end + body.replace("<th>", '<th scope="row">')


def as_page(table: pd.DataFrame, anchors: Sequence[str] = (), markup: Sequence[str] = ()) -> HTML:
    """Return a table whose text wraps, without its rows' names; `anchors` name its rows for links."""
    page = as_html(table, markup, wrapped=True)
    for anchor in anchors:
        page = page.replace("<tr>", f'<tr id="{anchor}">', 1)  # the line of names has attributes of its own
    return HTML(page)


def link(address: str, text: str) -> str:
    """HTML of a link, for the columns of `as_page` that are markup."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def chapter_claims(table: pd.DataFrame) -> HTML:
    """Return a chapter's table `claims` for its page: every contrast with its effect, before correction."""
    statements, rows = papers_table("claims").set_index("id")["statement"], []
    for line in table.itertuples():
        cells = f"not tested: {line.reason}", "", "", ""
        if not line.reason:
            p = f"{p_text(line.p_for)}, {p_text(line.p_against)}"
            cells = "\n".join(_parts(line)), effect_text(line), p, _paper(line)
        rows.append((f"{escape(statements[line.claim])}\n<code>{line.claim}</code>", *cells))
    heads = ["claim", "contrast", "effect [95 %]", "p for, against (before correction)", "paper"]
    claims = pd.DataFrame(rows, columns=heads)
    page = as_page(claims.assign(claim=claims["claim"].mask(claims["claim"].duplicated(), "")), markup=["claim"])
    folded = f"<details><summary>All {len(claims)} contrasts of this chapter</summary>{page.data}</details>"
    return page if len(claims) <= 12 else HTML(folded)


def by_claim(verdicts: pd.DataFrame) -> HTML:
    """Return claims, a row each with an anchor, and a choice of verdict and part above them (the book's tables.js).

    Its verdict, part, text with remarks and the id, which is there to be copied, what decides it, and the scale.
    """
    by_key, rows = papers(), []
    for row in verdicts.itertuples():
        remark = f"as tested: {row.as_tested}" if row.as_tested else row.remark
        notes = filter(None, (remark, row.note and f"{row.verdict}: {row.note}"))
        below = "".join(f"\n<em>{escape(note)}</em>" for note in notes)
        claim = f"{escape(row.statement)}{below}\n<code>{row.id}</code>"
        part = link(f"{by_key[row.paper].pages['verdicts']}.html#{row.id}", by_key[row.paper].part)
        contrasts = row.chapter and link(f"{row.chapter}.html#the-paper-s-claims", "in its chapter")
        rows.append((f"{SIGNS[row.verdict]} {row.verdict}", part, claim, _decides(row), _scale(row), contrasts))
    last = "what decides, or why it is not tested"
    table = pd.DataFrame(rows, columns=["verdict", "part", "claim", last, "scale", "all contrasts"])
    page = as_page(table, verdicts["id"], markup=["part", "claim", last, "all contrasts"])
    return HTML(f'<div data-filters="verdict,part">{page.data}</div>')


def cards(sentences: Mapping[str, str], ledger: pd.DataFrame) -> HTML:
    """Return a card for each paper: its name, a sentence, and a sign for each of its claims, which leads to it."""
    parts = []
    for key, paper in papers().items():
        page = f"{paper.pages['verdicts']}.html"
        head = link(page, f"{paper.part}. {paper.name}")
        signs = "".join(
            f'<a class="sign {row.verdict.replace(", ", "-").replace(" ", "-")}" href="{page}#{row.id}" '
            f'title="{escape(row.verdict)}: {escape(row.statement)}">{SIGNS[row.verdict]}</a>'
            for row in ledger[ledger["paper"] == key].itertuples()
        )
        sentence = f"<p>{escape(sentences.get(key, ''))}</p>"
        parts.append(f'<div class="card-of-paper"><b>{head}</b>{sentence}<span class="signs">{signs}</span></div>')
    return HTML(f'<div class="cards">{"".join(parts)}</div>')


def flat(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a ledger for printing: a line for each contrast, and one with the reason of what is not tested."""
    columns = ["claim", "verdict", "by_bh", "p", "seeds", "fidelity", "evidence"]
    evidence = []
    for row in verdicts.itertuples():
        lines = [*row.tests, *row.conditions]
        texts = [f"{', '.join(_parts(line))}: {effect_text(line)}{_paper(line, PRINTED)}" for line in lines]
        evidence.append([*filter(None, [row.reason]), *texts])
    return verdicts.assign(claim=verdicts["id"], evidence=evidence)[columns].explode("evidence")


def provenance(profile: str, source: str | None) -> pd.DataFrame:
    """Return when, where, and from which revision the rows of each chapter were recorded."""
    rows, columns = results.rows(profile, source), ["seed", "recorded", "device", "cores", "python", "revision"]
    chapters = rows.assign(recorded=rows["recorded"].str[:10]).groupby("experiment", sort=False)[columns]
    return chapters.agg(lambda values: ", ".join(map(str, sorted({*values.dropna()})))).reset_index()


def _decides(row: Any) -> str:
    if row.verdict == NOT_TESTED:
        return escape(row.reason)
    line, speaks = decisive(row), " ".join(f"{SIGNS[verdict]} {count}" for verdict, count in row.speaks.items())
    parts = [f"{escape(line.label)}: <b>{effect_text(line)}</b>{_paper(line, PRINTED)}", f"p {p_text(row.p)} (Holm)"]
    parts += [f"{speaks} of {len(row.tests)} contrasts"] if len(row.tests) > 1 else []
    parts += [f"by Benjamini-Hochberg {row.by_bh}"] if row.by_bh != row.verdict else []
    return "; ".join(parts)


def _scale(row: Any) -> str:
    lines = row.tests
    encoders = dict.fromkeys(part for line in lines for part in line.encoder.split("; ") if part)
    among = [f"{each:,.0f} candidates" for each in sorted(line.candidates for line in lines if line.candidates > 0)]
    values = [f"{line.questions:,.0f} {line.rows}" for line in lines if line.rows]
    parts = [", ".join(encoders), *among[:1], *values[:1], f"{row.seeds} seed{'s' * (row.seeds != 1)}", row.fidelity]
    return "\n".join(filter(None, parts)) if lines else ""


def _parts(line: Any) -> list[str]:
    # What a contrast compares, where, what it asks for, and why the gate closed it.
    given = ("given: " if is_seen(line) else "given, not seen: ") if line.role == CONDITION else ""
    where = f"{line.measure} on {' and '.join(map(called, json.loads(line.collections)[:3]))}"
    above = f"above {amount_text(line, line.margin)}" if line.margin else ""
    asks = f"within {line.margin:g} of 0" if line.alike else above
    return [*filter(None, (given + line.label, where, asks, line.closed and f"closed: {line.closed}"))]


def _paper(line: Any, before: str = "") -> str:
    # The effect that the paper prints, if it does.
    text = f"{line.paper:+.4g}" if line.unit == "points" else f"x{line.paper:.3g}"
    return "" if pd.isna(line.paper) else before + text
