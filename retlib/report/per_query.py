"""Systems per query: which queries one answers and another does not, from recorded values.

An average over queries hides where systems differ. Here queries are cut by their lexical
overlap with what is relevant to them, systems are compared by wins and losses, and a choice
between two systems, made with hindsight, says how much they complete each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.data.collection import Collection
from retlib.data.text import content_words, words
from retlib.evaluation import results
from retlib.evaluation.measures import compare, held_out, holm, same_seeds
from retlib.evaluation.results import Results

# Points of 100. Values are recorded to five digits, so that equal ones may differ by this much.
TIE = 2e-3
QUARTILES = "overlap, lower quartile (%)", "overlap, median (%)", "overlap, upper quartile (%)"


# --- the words that a query shares with its document -----------------------------------------------


def overlap(collection: Collection) -> pd.DataFrame:
    """The lexical overlap of each test query with its relevant documents.

    It is the share of the query's different words that stand in a relevant document, in its
    title or text; of several relevant documents, the largest share. Words are those of
    `retlib.data.text.words`, without English stop words and without stemming: another form of a
    word is another word.

    Returns
    -------
    DataFrame
        A row for each test query, in their order: `collection`, `query_id`, `overlap`
        (from 0 to 1; NaN where only stop words are left, or nothing is relevant), and `words`,
        the number of all words of the query, stop words and repeated ones included.

    Raises
    ------
    DataError
        If the collection has no test queries.
    """
    queries, judged = held_out(collection, "test")
    judged = judged[judged["relevance"] > 0]
    documents = collection.documents.loc[judged["doc_id"].unique()]
    texts = documents.get("title", pd.Series("", documents.index)).fillna("") + "\n" + documents["text"]
    asked, found = queries["text"].map(content_words), texts.map(content_words)
    pairs = zip(judged["query_id"], judged["doc_id"], strict=True)
    shares = [len(asked[q] & found[d]) / len(asked[q]) if asked[q] else np.nan for q, d in pairs]
    best = pd.Series(shares, judged["query_id"], dtype=float).groupby(level=0).max().reindex(queries.index)
    counts = [len(words(text)) for text in queries["text"]]
    columns = {"query_id": queries.index, "overlap": best.to_numpy(), "words": counts}
    return pd.DataFrame({"collection": collection.name, **columns})


def spread(table: pd.DataFrame) -> pd.DataFrame:
    """How the overlaps of each collection, as `overlap` returns them, are spread; as a page shows it.

    Returns
    -------
    DataFrame
        Index collection: `queries`, `without a value`, `words/query` (mean), and the quartiles
        of overlap, in per cent of a query's words.
    """
    rows = {}
    for name, part in table.groupby("collection", sort=False):
        quartiles = (100 * part["overlap"].quantile([0.25, 0.5, 0.75])).round()
        rows[name] = {
            "queries": len(part),
            "without a value": int(part["overlap"].isna().sum()),
            "words/query": round(float(part["words"].mean()), 1),
            **dict(zip(QUARTILES, quartiles.astype("Int64"), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("collection")


# --- what was recorded -----------------------------------------------------------------------------


def recorded(leaderboard: str, profile: str, source: str | None = None) -> Results:
    """The results of a notebook that recorded its systems' values per query and the table of overlaps.

    Raises
    ------
    DataError
        If nothing is recorded, naming the profiles where something is; or if there is no table of overlaps.
    """
    found = results.load(leaderboard, profile, source)
    if found is None:
        profiles = ["explore", *notebook_files.profiles(runtime.root())]
        there = [name for name in profiles if results.load(leaderboard, name, source) is not None]
        instead = f", or set profile to one of: {', '.join(there)}" if there else ""
        wrong = f"nothing is recorded of {leaderboard!r} at profile {profile!r}: run that notebook first{instead}"
        raise DataError(wrong)
    require("overlap" in found.tables, f"the results of {leaderboard!r} lack the table 'overlap'", DataError)
    return found


def collections(results: Results, measure: str, rival: str) -> list[str]:
    """The collections on which a rival was measured, of those whose overlaps are known.

    Raises
    ------
    SettingError
        If the measure was recorded on none of them, or the rival was not measured; naming what was.
    """
    keys = [(name, each) for name, split, each in results.queries if split == "test"]
    require_one_of("measure", measure, {each for _, each in keys})
    systems = {name: results.systems(name, "test", measure) for name, each in keys if each == measure}
    require_one_of("rival", rival, set().union(*systems.values()))
    known = set(results.tables["overlap"]["collection"])
    return [name for name, there in systems.items() if rival in there and name in known]


@dataclass(frozen=True)
class Values:
    """What systems reached on the test queries of one collection by one measure.

    Parameters
    ----------
    results : Results
        With values per query.
    systems : sequence of str
        All that were recorded, if empty.

    Raises
    ------
    SettingError
        If a system is unknown; naming what is valid.
    """

    results: Results
    collection: str
    measure: str
    systems: Sequence[str] = ()

    def __post_init__(self) -> None:
        for system in self.systems:
            require_one_of("system", system, self.recorded)

    @property
    def recorded(self) -> list[str]:
        """The systems that were measured, in their order."""
        return self.results.systems(self.collection, "test", self.measure)

    def points(self, system: str) -> pd.DataFrame:
        """Values in points of 100: index query, a column for each seed."""
        return self.results.per_query(self.collection, "test", self.measure, system).astype(float) * 100

    def against(self, rival: str) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Each system but a rival, with its points and the rival's over the seeds that both have."""
        for system in self.systems or self.recorded:
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
    DataError
        If the table lacks a query of the results, or has one twice, or no query has a value.
    """
    clusters, rows = values.results.clusters(values.collection, "test", values.measure), []
    for share in _cut(_shares(table, values.collection, clusters.index), parts):
        low, high = f"{100 * share.min():.0f}", f"{100 * share.max():.0f}"
        part = f"{low if low == high else f'{low}-{high}'} % (n = {len(share)})"
        for system in values.systems or values.recorded:
            estimate = _estimate(values.points(system).loc[share.index], clusters)
            rows.append((part, share.min(), system, *estimate, len(share)))
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


def _estimate(values: pd.DataFrame, clusters: pd.Series) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval, over queries and seeds."""
    if clusters[values.index].nunique() < 2:
        return float(values.to_numpy().mean()), np.nan, np.nan
    found = compare(values, values * 0, clusters)
    return found.effect, *found.interval()


# --- against one system ----------------------------------------------------------------------------


def outcomes(values: Values, rival: str) -> pd.DataFrame:
    """Every system against a rival, query by query.

    The seeds of each are averaged first, those that both have; so a system with several
    ties less often than one without. Two values that differ by no more than rounding are a tie.

    Returns
    -------
    DataFrame
        A row for each system but the rival, the largest effect first: `system`; `wins`, `ties`
        and `losses` (numbers of queries); `effect` (system minus rival, points of 100), the ends
        `low` and `high` of its 95 % interval over queries and seeds, and `p`, of a paired test as
        `retlib.evaluation.results.Results.compared` has it, Holm-corrected over the systems.
    """
    rows = []
    for system, ours, theirs in values.against(rival):
        found = values.results.compared(values.collection, values.measure, system, rival)
        apart = ours.mean(axis=1) - theirs.mean(axis=1)
        counts = (int(each.sum()) for each in (apart > TIE, apart.abs() <= TIE, apart < -TIE))
        rows.append((system, *counts, found.effect, *found.interval(), found.p_value()))
    frame = pd.DataFrame(rows, columns=["system", "wins", "ties", "losses", "effect", "low", "high", "p"])
    return frame.assign(p=holm(frame["p"])).sort_values("effect", ascending=False, kind="stable", ignore_index=True)


def oracle(values: Values, rival: str) -> pd.DataFrame:
    """What a perfect choice between a system and a rival reaches: for each query, the better of the two.

    The upper bound of choosing one of two lists for each query. It is no bound for a fusion of
    the lists, which can rank a document higher than both have it. It is chosen with hindsight:
    of two systems that differ by chance alone, it is above both as well.

    Returns
    -------
    DataFrame
        A row for each system but the rival, the best first: `system`; means over queries and
        seeds, points of 100: `alone` (of the system), `rival` (over the seeds that both have),
        `best_of_both`, chosen for each query and seed.
    """
    rows = []
    for system, *pair in values.against(rival):
        ours, theirs = (points.to_numpy() for points in pair)
        rows.append((system, ours.mean(), theirs.mean(), np.maximum(ours, theirs).mean()))  # (Q, S), by broadcasting
    frame = pd.DataFrame(rows, columns=["system", "alone", "rival", "best_of_both"])
    return frame.sort_values("best_of_both", ascending=False, kind="stable", ignore_index=True)
