"""Query by query: which queries a system answers and another does not, from recorded values.

An average over queries hides where systems differ. Here queries are cut by their lexical
overlap with what is relevant to them, systems are compared by wins and losses, and a choice
between two systems, made with hindsight, says how much they complete each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.rules import number
from retlib.data.collection import Collection
from retlib.data.text import words
from retlib.evaluation import results
from retlib.evaluation.measures import compare, held_out, holm, same_seeds
from retlib.evaluation.results import Results

# Points of 100. Values are recorded to five digits, so that equal ones may differ by this much.
TIE = 2e-3


# --- the words that a query shares with its document -----------------------------------------------


def overlap(collection: Collection, split: str = "test") -> pd.DataFrame:
    """The lexical overlap of each query with its relevant documents.

    It is the share of the query's different words that stand in a relevant document, in its
    title or text; of several relevant documents, the largest share. Words are those of
    `retlib.data.text.words`, without English stop words and without stemming: another form of a
    word is another word.

    Parameters
    ----------
    collection : Collection
    split : str
        Whose queries.

    Returns
    -------
    DataFrame
        A row for each query of the split, in their order: `collection`, `query_id`, `overlap`
        (from 0 to 1; NaN where only stop words are left, or nothing is relevant), and `words`,
        the number of all words of the query, stop words and repeated ones included.

    Raises
    ------
    SettingError
        If the split is unknown.
    DataError
        If it has no queries.
    """
    queries, judged = held_out(collection, split)
    asked = {name: _content(text) for name, text in queries["text"].items()}
    judged = judged[judged["relevance"] > 0]
    found = {name: _content(text) for name, text in _texts(collection, judged["doc_id"].unique()).items()}
    pairs = zip(judged["query_id"], judged["doc_id"], strict=True)
    shares = pd.Series([_share(asked[query], found[doc]) for query, doc in pairs], judged["query_id"], dtype=float)
    return pd.DataFrame(
        {
            "collection": collection.name,
            "query_id": queries.index,
            "overlap": shares.groupby(level=0).max().reindex(queries.index).to_numpy(),
            "words": [len(words(text)) for text in queries["text"]],
        }
    )


def _content(text: str) -> frozenset[str]:
    """The different words of a text, less the stop words."""
    from bm25s.stopwords import STOPWORDS_EN

    return frozenset(words(text)) - frozenset(STOPWORDS_EN)


def _texts(collection: Collection, names: Iterable[str]) -> pd.Series:
    """Title and text of some documents."""
    documents = collection.documents.loc[names]
    if "title" not in documents:
        return documents["text"]
    return documents["title"].fillna("") + "\n" + documents["text"]


def _share(asked: frozenset[str], found: frozenset[str]) -> float:
    return len(asked & found) / len(asked) if asked else np.nan


def spread(table: pd.DataFrame) -> pd.DataFrame:
    """How the overlaps of each collection are spread, as a page shows it.

    Parameters
    ----------
    table : DataFrame
        As `overlap` returns it, of one collection or several.

    Returns
    -------
    DataFrame
        Index collection: `queries`, `without a value`, `words/query` (mean), and the quartiles
        of overlap in per cent.
    """
    rows = {}
    for name, part in table.groupby("collection", sort=False):
        quartiles = 100 * part["overlap"].quantile([0.25, 0.5, 0.75])
        rows[name] = {
            "queries": len(part),
            "without a value": int(part["overlap"].isna().sum()),
            "words/query": round(float(part["words"].mean()), 1),
            **dict(zip(("25 %", "median", "75 %"), quartiles.round().tolist(), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("collection")


# --- what was recorded -----------------------------------------------------------------------------


def recorded(board: str, profile: str, source: str | None = None) -> Results:
    """The results of a notebook that recorded its systems' values by query and the table of overlaps.

    Parameters
    ----------
    board : str
        The notebook's name.
    profile : str
    source : {"run", "reference"}, optional
        As for `retlib.evaluation.results.load`.

    Raises
    ------
    DataError
        If nothing is recorded, naming the profiles where something is; or if there is no table of overlaps.
    """
    found = results.load(board, profile, source)
    if found is None:
        profiles = [results.EXPLORE, *notebook_files.profiles(runtime.root())]
        there = [name for name in profiles if results.load(board, name, source) is not None]
        instead = f", or set profile to one of: {', '.join(there)}" if there else ""
        raise DataError(f"nothing is recorded of {board!r} at profile {profile!r}: run that notebook first{instead}")
    require("overlap" in found.tables, f"the results of {board!r} lack the table 'overlap'", DataError)
    return found


def collections(results: Results, measure: str, rival: str, split: str = "test") -> list[str]:
    """The collections on which a rival was measured, of those whose overlaps are known.

    Raises
    ------
    SettingError
        If the measure was recorded on none of them, or the rival was not measured; naming what was.
    """
    require_one_of("measure", measure, {each for _, part, each in results.queries if part == split})
    there = [name for name, part, each in results.queries if (part, each) == (split, measure)]
    systems = {name: results.systems(name, split, measure) for name in there}
    require_one_of("rival", rival, {system for several in systems.values() for system in several})
    known = set(results.tables["overlap"]["collection"])
    return [name for name in there if rival in systems[name] and name in known]


@dataclass(frozen=True)
class Values:
    """What systems reached on one collection by one measure, query by query.

    Parameters
    ----------
    results : Results
        With values by query.
    collection, measure : str
    systems : sequence of str, optional
        All that were recorded, if not given.
    split : str

    Raises
    ------
    SettingError
        If collection, measure or a system is unknown; naming what is valid.
    """

    results: Results
    collection: str
    measure: str
    systems: Sequence[str] | None = None
    split: str = "test"

    def __post_init__(self) -> None:
        there = {(name, each) for name, part, each in self.results.queries if part == self.split}
        require_one_of("collection", self.collection, {name for name, _ in there})
        require_one_of("measure", self.measure, {each for name, each in there if name == self.collection})
        for system in self.systems or ():
            require_one_of("system", system, self.recorded)

    @property
    def recorded(self) -> list[str]:
        """The systems that were measured, in their order."""
        return self.results.systems(self.collection, self.split, self.measure)

    @property
    def shown(self) -> Sequence[str]:
        """The systems that are asked for."""
        return self.recorded if self.systems is None else self.systems

    @property
    def clusters(self) -> pd.Series:
        """The cluster of each query."""
        return self.results.clusters(self.collection, self.split, self.measure)

    def points(self, system: str) -> pd.DataFrame:
        """Values in points of 100: index query, a column for each seed."""
        return self.results.per_query(self.collection, self.split, self.measure, system).astype(float) * 100

    def against(self, rival: str) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Each system but a rival, with its points and the rival's over the seeds that both have.

        Raises
        ------
        SettingError
            If the rival was not measured.
        """
        require_one_of("rival", rival, self.recorded)
        for system in self.shown:
            if system != rival:
                yield system, *same_seeds(self.points(system), self.points(rival))


# --- by overlap ------------------------------------------------------------------------------------


def slices(values: Values, table: pd.DataFrame, parts: int) -> pd.DataFrame:
    """Each system's mean over the queries of little, more and most lexical overlap.

    Queries are ordered by overlap and cut into parts of equal size. Queries of equal overlap
    stay together, in the part where the middle of them falls; so parts differ in size, and
    there are fewer where many queries are equal. Queries without a value are in no part.

    Parameters
    ----------
    values : Values
    table : DataFrame
        As `overlap` returns it; collections and queries that are not asked for do not matter.
    parts : int
        How many, at most.

    Returns
    -------
    DataFrame
        A row for each part, least overlap first, and system: `part` (lowest to highest overlap in
        it and its size, such as ``0-33 % (n = 210)``), `edge` (its lowest overlap, from 0 to 1),
        `system`, `value` (mean over queries and seeds, points of 100), `low` and `high` (the ends
        of its 95 % interval; NaN where the part has one query, or one cluster of queries),
        `queries`.

    Raises
    ------
    SettingError
        If `parts` is less than 1.
    DataError
        If the table lacks a query of the results, or has one twice, or no query has a value.
    """
    number(1, whole=True)("parts", parts)
    clusters, rows = values.clusters, []
    for share in _cut(_shares(table, values.collection, clusters.index), parts):
        for system in values.shown:
            estimate = _estimate(values.points(system).loc[share.index], clusters)
            rows.append((_label(share), share.min(), system, *estimate, len(share)))
    return pd.DataFrame(rows, columns=["part", "edge", "system", "value", "low", "high", "queries"])


def _shares(table: pd.DataFrame, collection: str, queries: pd.Index) -> pd.Series:
    """The overlaps of these queries that have one; index query."""
    mine = table[table["collection"] == collection].set_index("query_id")["overlap"]
    twice = mine.index[mine.index.duplicated()][:1].tolist()
    require(not twice, f"the table of overlaps has query {twice} of {collection!r} twice", DataError)
    missing = queries.difference(mine.index)[:1].tolist()
    require(not missing, f"the table of overlaps lacks query {missing} of {collection!r}", DataError)
    shares = mine.reindex(queries).dropna()
    require(len(shares) > 0, f"no query of {collection!r} has an overlap", DataError)
    return shares


def _cut(shares: pd.Series, parts: int) -> list[pd.Series]:
    """Parts of equal size, lowest first; equal values stay together, where their middle rank falls."""
    place = (2 * shares.rank(method="average") - 1) * parts // (2 * len(shares))
    return [part for _, part in shares.groupby(place)]


def _label(share: pd.Series) -> str:
    low, high = f"{100 * share.min():.0f}", f"{100 * share.max():.0f}"
    return f"{low if low == high else f'{low}-{high}'} % (n = {len(share)})"


def _estimate(values: pd.DataFrame, clusters: pd.Series) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval, over queries and seeds."""
    if clusters[values.index].nunique() < 2:
        return float(values.to_numpy().mean()), np.nan, np.nan
    found = compare(values, values * 0, clusters)
    return found.effect, *found.interval()


def slices_text(table: pd.DataFrame) -> pd.DataFrame:
    """What `slices` returns, as a page shows it: a row for each system, a column for each part.

    Values are text such as ``41.3 ± 0.8``: the mean, and half of its 95 % interval.
    """
    half = (table["high"] - table["low"]) / 2
    text = [f"{v:.1f}" + ("" if np.isnan(h) else f" ± {h:.1f}") for v, h in zip(table["value"], half, strict=True)]
    order = {"index": list(dict.fromkeys(table["system"])), "columns": table["edge"].drop_duplicates()}
    wide = table.assign(text=text).pivot(index="system", columns="edge", values="text").reindex(**order)
    return wide.set_axis(table.drop_duplicates("edge")["part"].tolist(), axis=1)


# --- against one system ----------------------------------------------------------------------------


def outcomes(values: Values, rival: str) -> pd.DataFrame:
    """Every system against a rival, query by query.

    The seeds of each are averaged first, those that both have; so a system with several
    ties less often than one without. Two values that differ by no more than rounding are a tie.

    Parameters
    ----------
    values : Values
    rival : str
        The system that the others are compared with.

    Returns
    -------
    DataFrame
        A row for each system but the rival, the largest effect first: `system`; `wins`, `ties`
        and `losses` (numbers of queries); `effect` (system minus rival, points of 100), the ends
        `low` and `high` of its 95 % interval over queries and seeds, and `p`, of a paired test,
        Holm-corrected over the systems.

    Raises
    ------
    SettingError
        If the rival was not measured.
    """
    clusters, rows = values.clusters, []
    for system, ours, theirs in values.against(rival):
        found = compare(ours, theirs, clusters)
        apart = ours.mean(axis=1) - theirs.mean(axis=1)
        counts = (int((apart > TIE).sum()), int((apart.abs() <= TIE).sum()), int((apart < -TIE).sum()))
        rows.append((system, *counts, found.effect, *found.interval(), found.p_value()))
    columns = ["system", "wins", "ties", "losses", "effect", "low", "high", "p"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(p=holm(frame["p"])).sort_values("effect", ascending=False, kind="stable", ignore_index=True)


def outcomes_text(table: pd.DataFrame) -> pd.DataFrame:
    """What `outcomes` returns, as a page shows it: index system, effects and p-values as text."""
    effects = [f"{row.effect:+.1f} [{row.low:+.1f}, {row.high:+.1f}]" for row in table.itertuples()]
    p_values = ["< 0.001" if p < 0.001 else f"{p:.3f}" for p in table["p"]]
    counts = table.set_index("system")[["wins", "ties", "losses"]]
    return counts.assign(**{"effect, 95 % interval": effects, "p (Holm)": p_values})


def oracle(values: Values, rival: str) -> pd.DataFrame:
    """What a perfect choice between a system and a rival reaches: for each query, the better of the two.

    The upper bound of choosing one of two lists for each query. It is no bound for a fusion of
    the lists, which can rank a document higher than both have it. It is chosen with hindsight:
    of two systems that differ by chance alone, it is above both as well.

    Parameters
    ----------
    values : Values
    rival : str

    Returns
    -------
    DataFrame
        A row for each system but the rival, the best first: `system`; means over queries and
        seeds, points of 100: `alone` (of the system), `rival` (over the seeds that both have),
        `best_of_both`, chosen for each query and seed.

    Raises
    ------
    SettingError
        If the rival was not measured.
    """
    rows = []
    for system, *pair in values.against(rival):
        ours, theirs = (points.to_numpy() for points in pair)
        rows.append((system, ours.mean(), theirs.mean(), np.maximum(ours, theirs).mean()))  # (Q, S), by broadcasting
    frame = pd.DataFrame(rows, columns=["system", "alone", "rival", "best_of_both"])
    return frame.sort_values("best_of_both", ascending=False, kind="stable", ignore_index=True)
