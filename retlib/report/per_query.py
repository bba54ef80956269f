"""Systems per query, from recorded values: which queries one answers and another does not.

Queries are cut by their lexical overlap with what is relevant to them, systems are compared by wins and losses, and a
choice between two systems, made with hindsight, says how much they complete each other.
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


def overlap(collection: Collection) -> pd.DataFrame:
    """Return the lexical overlap of each test query with its relevant documents.

    It is the share, from 0 to 1, of the query's different words, without stop words and not stemmed, that stand in a
    relevant document; of several, the largest share; NaN where only stop words are left, or nothing is relevant.
    Columns `collection`, `query_id`, `overlap`, and `words`, the number of all words of the query.
    """
    queries, judged = held_out(collection, "test")
    judged = judged[judged["relevance"] > 0]
    documents = collection.documents.loc[judged["doc_id"].unique()]
    texts = documents.get("title", pd.Series("", documents.index)).fillna("") + "\n" + documents["text"]
    asked, read = queries["text"].map(content_words), texts.map(content_words)
    pairs = zip(judged["query_id"], judged["doc_id"], strict=True)
    shares = [len(asked[q] & read[d]) / len(asked[q]) if asked[q] else np.nan for q, d in pairs]
    best = pd.Series(shares, judged["query_id"], dtype=float).groupby(level=0).max().reindex(queries.index)
    counts = [len(words(text)) for text in queries["text"]]
    columns = {"query_id": queries.index, "overlap": best.to_numpy(), "words": counts}
    return pd.DataFrame({"collection": collection.name, **columns})


def spread(table: pd.DataFrame) -> pd.DataFrame:
    """Return how the overlaps of each collection, as `overlap` has them, are spread; as a page shows it."""
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


def recorded(leaderboard: str, profile: str, source: str | None = None) -> Results:
    """Return the results of a notebook that recorded values per query and the table of overlaps, or `DataError`."""
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
    """Return the collections on which a rival was measured, of those whose overlaps are known."""
    keys = [(name, each) for name, split, each in results.queries if split == "test"]
    require_one_of("measure", measure, {each for _, each in keys})
    systems = {name: results.systems(name, "test", measure) for name, each in keys if each == measure}
    require_one_of("rival", rival, set().union(*systems.values()))
    known = set(results.tables["overlap"]["collection"])
    return [name for name, there in systems.items() if rival in there and name in known]


@dataclass
class Values:
    """What systems, or all that were recorded, reached on the test queries of a collection by a measure."""

    results: Results
    collection: str
    measure: str
    systems: Sequence[str] = ()

    def __post_init__(self) -> None:
        known = self.results.systems(self.collection, "test", self.measure)
        for system in self.systems:
            require_one_of("system", system, known)
        self.systems = [*self.systems] or known

    def points(self, system: str) -> pd.DataFrame:
        """Return values in points of 100: index query, a column for each seed."""
        return self.results.per_query(self.collection, "test", self.measure, system).astype(float) * 100

    def against(self, rival: str) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
        """Yield each system but a rival, with its points and the rival's over the seeds that both have."""
        for system in self.systems:
            if system != rival:
                yield system, *same_seeds(self.points(system), self.points(rival))


def slices(values: Values, table: pd.DataFrame, parts: int) -> pd.DataFrame:
    """Return each system's mean over the queries of little, more and most lexical overlap.

    `table` is that of `overlap`. Queries are ordered by overlap and cut into at most so many parts of equal size; those
    of equal overlap stay together, so that parts differ in size. Queries without a value are in no part.

    Columns `part` (such as ``0-33 % (n = 210)``), `edge` (its lowest overlap, from 0 to 1), `system`, `value`, `low`
    and `high` of its 95 % interval (points of 100; NaN where the part has one query or cluster), and `queries`.
    """
    collection, rows = values.collection, []
    clusters = values.results.clusters(collection, "test", values.measure)
    shares = table[table["collection"] == collection].set_index("query_id")["overlap"]
    twice = shares.index[shares.index.duplicated()][:1].tolist()
    require(not twice, f"the table of overlaps has query {twice} of {collection!r} twice", DataError)
    missing = clusters.index.difference(shares.index)[:1].tolist()
    require(not missing, f"the table of overlaps lacks query {missing} of {collection!r}", DataError)
    shares = shares.reindex(clusters.index).dropna()
    require(len(shares) > 0, f"no query of {collection!r} has an overlap", DataError)
    for share in _cut(shares, parts):
        low, high = f"{100 * share.min():.0f}", f"{100 * share.max():.0f}"
        part = f"{low if low == high else f'{low}-{high}'} % (n = {len(share)})"
        for system in values.systems:
            points = values.points(system).loc[share.index]
            estimate = float(points.to_numpy().mean()), np.nan, np.nan
            if clusters[share.index].nunique() > 1:
                mean = compare(points, points * 0, clusters)
                estimate = mean.effect, *mean.interval()
            rows.append((part, share.min(), system, *estimate, len(share)))
    return pd.DataFrame(rows, columns=["part", "edge", "system", "value", "low", "high", "queries"])


def _cut(shares: pd.Series, parts: int) -> list[pd.Series]:
    # Equal values stay together, where their middle rank falls.
    place = (2 * shares.rank(method="average") - 1) * parts // (2 * len(shares))
    return [part for _, part in shares.groupby(place)]


def outcomes(values: Values, rival: str) -> pd.DataFrame:
    """Return every system against a rival, query by query, the largest effect first.

    Columns `system`; `wins`, `ties` and `losses`, numbers of queries, whose seeds are averaged first, those that both
    have; `effect` (system less rival, points of 100), `low`, `high` and `p` of a paired test over queries and seeds,
    Holm-corrected over the systems.
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
    """Return what a perfect choice between a system and a rival reaches, the best first: the upper bound of choosing.

    It is chosen with hindsight: of two systems that differ by chance alone, it is above both. A fusion, which can rank
    a document higher than both lists have it, may be above it. Columns `system`, and means over queries and seeds in
    points of 100: `alone`, `rival` (over the seeds that both have), and `best_of_both`.
    """
    rows = []
    for system, *pair in values.against(rival):
        ours, theirs = (points.to_numpy() for points in pair)
        rows.append((system, ours.mean(), theirs.mean(), np.maximum(ours, theirs).mean()))  # (Q, S), by broadcasting
    frame = pd.DataFrame(rows, columns=["system", "alone", "rival", "best_of_both"])
    return frame.sort_values("best_of_both", ascending=False, kind="stable", ignore_index=True)
