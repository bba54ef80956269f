"""A test collection: documents, queries, relevance judgments, labelled pairs and links.

Data takes one way through the package, and this is its first stop: every loader in
`retlib.data.datasets` ends in a `Collection`, and every model and measure starts from one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from retlib.core.errors import DataError, SettingError, require

SPLITS = ("train", "dev", "test")

# Rows whose fingerprint is taken at once.
BLOCK = 65_536
# The part of the training queries that `low_resource` holds out as dev (Chang 2020, section 4.1).
HELD_OUT = 0.1

# The columns that each frame must have; others may stand beside them.
COLUMNS = {
    "documents": ("text",),
    "queries": ("text", "split"),
    "qrels": ("query_id", "doc_id", "relevance"),
    "pairs": ("left", "right", "label", "split"),
    "links": ("source", "target"),
}


@dataclass(frozen=True)
class Article:
    """A page of an encyclopedia or manual: passages in order, and the pages that it links to.

    Parameters
    ----------
    name : str
        Unique among the articles of its source; what links name.
    title : str
        What a reader sees above the page.
    passages : tuple of str
        Paragraphs of running text, in order.
    opening : int
        How many of them make up the first section that has any; 0 without passages.
    links : tuple of str
        Names of other pages; some of these may be no article of the source.

    Raises
    ------
    DataError
        If `opening` is not a number of passages at the beginning.
    """

    name: str
    title: str
    passages: tuple[str, ...]
    opening: int
    links: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_possible = min(1, len(self.passages)) <= self.opening <= len(self.passages)
        require(
            is_possible,
            f"article {self.name!r}: an opening of {self.opening} of {len(self.passages)} passages",
            DataError,
        )


@dataclass(frozen=True, eq=False)
class Collection:
    """An immutable test collection, checked when it is made.

    Parameters
    ----------
    name : str
        The name under which results are recorded.
    documents : DataFrame
        Index `doc_id` (str, unique); column `text`; where the source has them `title`,
        `article`, `section`, `position`, `split`.
    queries : DataFrame
        Index `query_id` (str, unique); columns `text` and `split` (train, dev or test);
        `cluster` where queries of one cluster share their relevant documents.
    qrels : DataFrame
        Columns `query_id`, `doc_id`, `relevance` (int; 0 is judged and not relevant).
    pairs : DataFrame, optional
        Labelled pairs of documents: `left`, `right` (document ids), `label` (1 for
        duplicates, 0 for near-misses), `split`.
    links : DataFrame, optional
        Hyperlinks between articles: `source`, `target`.
    provenance : mapping of str to str
        Where the content came from: file name or package to checksum or version.

    Raises
    ------
    DataError
        If an id is repeated, or a frame names an id, split or column that is not there.

    Notes
    -----
    In a similar-item task (`retrieval_task`) a query *is* a document and has its id, so
    that a system can be asked to leave the query itself out of its list, or not.
    """

    name: str
    documents: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    pairs: pd.DataFrame | None = None
    links: pd.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for frame_name, columns in COLUMNS.items():
            self._check_columns(frame_name, columns)
        for frame_name in ("documents", "queries"):
            index = getattr(self, frame_name).index
            repeated = index[index.duplicated()]
            self._check(len(repeated) == 0, f"{frame_name}: id {repeated[:1].tolist()} is repeated")
        self._check_known("qrels", "query_id", self.queries.index)
        self._check_known("qrels", "doc_id", self.documents.index)
        for frame_name in ("queries", "pairs"):
            frame = getattr(self, frame_name)
            if frame is not None:
                unknown = set(frame["split"]) - set(SPLITS)
                self._check(not unknown, f"{frame_name}: unknown split {sorted(map(str, unknown))}")
        if self.pairs is not None:
            self._check_known("pairs", "left", self.documents.index)
            self._check_known("pairs", "right", self.documents.index)
        repeated = self.qrels.duplicated(["query_id", "doc_id"])
        self._check(not repeated.any(), "qrels: a (query, document) pair is judged twice")

    def _check(self, condition: bool, message: str) -> None:
        require(condition, f"collection {self.name!r}: {message}", DataError)

    def _check_columns(self, frame_name: str, columns: tuple[str, ...]) -> None:
        frame = getattr(self, frame_name)
        if frame is None:
            return
        missing = [column for column in columns if column not in frame.columns]
        self._check(not missing, f"{frame_name} lacks the column(s) {missing}")

    def _check_known(self, frame_name: str, column: str, index: pd.Index) -> None:
        values = getattr(self, frame_name)[column]
        # The index is unique (checked before), and its own look-up is much faster than isin.
        unknown = values[index.get_indexer(values) < 0]
        self._check(unknown.empty, f"{frame_name}.{column} names unknown ids {unknown[:3].tolist()}")

    def __repr__(self) -> str:
        return (
            f"<Collection {self.name}: {len(self.documents):,} documents, "
            f"{len(self.queries):,} queries, {len(self.qrels):,} judgments, {self.fingerprint[:12]}>"
        )

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the whole content; equal content gives an equal fingerprint."""
        digest = hashlib.sha256()
        for frame_name in COLUMNS:
            frame = getattr(self, frame_name)
            if frame is None:
                continue
            named = frame.reset_index(names="id") if frame_name in ("documents", "queries") else frame
            for column in sorted(named.columns):
                digest.update(f"\x1d{frame_name}.{column}\x1e".encode())
                for start in range(0, len(named), BLOCK):  # a large corpus, joined, would be in memory twice more
                    joined = "\x1f".join(named[column].iloc[start : start + BLOCK].astype(str))
                    digest.update(("\x1f" * (start > 0) + joined).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def split(self, name: str) -> pd.DataFrame:
        """The queries of one split: train, dev or test."""
        if name not in SPLITS:
            raise SettingError(f"split = {name!r} is not known. Valid: {', '.join(SPLITS)}.")
        return self.queries[self.queries["split"] == name]

    def judgments(self, split: str) -> pd.DataFrame:
        """The qrels of one split's queries."""
        return self.qrels[self.qrels["query_id"].isin(self.split(split).index)]

    def labelled(self, split: str, label: int | None = 1) -> pd.DataFrame:
        """The labelled pairs of one split; `label` None gives both kinds."""
        if self.pairs is None:
            raise DataError(f"collection {self.name!r} has no labelled pairs; see `pairs` and `retrieval_task`")
        chosen = self.pairs["split"] == split
        if label is not None:
            chosen &= self.pairs["label"] == label
        return self.pairs[chosen]

    def part(
        self, documents: pd.Series | np.ndarray | None = None, queries: pd.Series | np.ndarray | None = None
    ) -> Collection:
        """The same task with some of its documents and queries; judgments and pairs that name others are dropped.

        Parameters
        ----------
        documents, queries : bool array or Series, optional
            Which to keep, one value for each. All by default.
        """
        kept = self.documents if documents is None else self.documents[documents]
        asked = self.queries if queries is None else self.queries[queries]
        qrels, pairs = self.qrels, self.pairs
        qrels = qrels[qrels["query_id"].isin(asked.index) & qrels["doc_id"].isin(kept.index)]
        if pairs is not None:
            pairs = pairs[pairs["left"].isin(kept.index) & pairs["right"].isin(kept.index)]
        return replace(self, documents=kept, queries=asked, qrels=qrels, pairs=pairs)

    def candidates(self, split: str) -> Collection:
        """The same task with only the documents of one split as candidates, and its queries alone."""
        part = self.part(self.documents["split"] == split, self.queries["split"] == split)
        return replace(part, name=f"{self.name}-{split}")

    def statistics(self, split: str = "test") -> pd.DataFrame:
        """Sizes of the task as Gillick 2018, Table 1 gives them, in one row."""
        judged = self.judgments(split)
        relevant = judged[judged["relevance"] > 0].groupby("query_id").size()
        count = {"collection": self.name}
        if self.pairs is not None:
            count["positive training pairs"] = len(self.labelled("train"))
            count["negative training pairs"] = len(self.labelled("train", 0))
        count |= {
            f"{split} queries": len(self.split(split)),
            "candidates": len(self.documents),
            "relevant candidates/query": round(float(relevant.mean()), 2),
            "words/candidate": round(float(self.documents["text"].str.split().str.len().mean()), 1),
            "fingerprint": self.fingerprint[:12],
        }
        return pd.DataFrame([count])


def closure(pairs: pd.DataFrame) -> pd.Series:
    """Clusters of the graph that positive pairs induce: its connected components.

    Parameters
    ----------
    pairs : DataFrame
        Columns `left`, `right`, `label`; only rows with label 1 are edges.

    Returns
    -------
    Series
        Index: every item of a positive pair, sorted. Value: the smallest item of its
        cluster, so that a cluster's name does not depend on the order of the pairs.
    """
    positive = pairs[pairs["label"] == 1]
    items = pd.Index(np.unique(positive[["left", "right"]].to_numpy(dtype=object).ravel().astype(str)))
    left, right = items.get_indexer(positive["left"]), items.get_indexer(positive["right"])
    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(len(items),) * 2)
    _, component = connected_components(graph, directed=False)
    # Items are sorted, so the first of each component is its smallest.
    first = pd.Series(items).groupby(component).first()
    return pd.Series(first.to_numpy()[component], index=items, name="cluster", dtype=object)


def hash_position(name: str) -> float:
    """Where in [0, 1) a name lies: evenly spread, and the same whatever other names there are."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") / 2.0**64


def split_by_cluster(items: pd.Index, clusters: pd.Series, shares: Mapping[str, float], seed: int = 0) -> pd.Series:
    """Assign every item to a split so that no cluster is on both sides.

    The side of a cluster depends on its name and the seed alone, so that it stays where
    it is when data are added.

    Parameters
    ----------
    items : Index
    clusters : Series
        Item to cluster, as `closure` gives it; items outside are clusters of one.
    shares : mapping
        Split to its share of the clusters, such as ``{"test": 0.1, "dev": 0.05}``; the rest is train.
    """
    names = pd.Series(items, index=items).astype(object)
    names.update(clusters)
    unique = names.unique()
    position = np.array([hash_position(f"{seed}:{name}") for name in unique])
    side = np.full(len(unique), "train", dtype=object)
    start = 0.0
    for split, share in shares.items():
        side[(position >= start) & (position < start + share)] = split
        start += share
    return names.map(dict(zip(unique, side, strict=True))).rename("split")


def split_by_position(position: pd.Series, share: float, start: float) -> np.ndarray:
    """The split at each position in [0, 1): train and then dev below `share`, test from `start` on, else empty."""
    return np.select([position < (1 - HELD_OUT) * share, position < share, position >= start], SPLITS, "")


def low_resource(collection: Collection, share: float, test: float | None = None) -> Collection:
    """The same task with `share` of the queries for training (Chang 2020, section 4.1).

    Queries are split by the column `position` of their frame, a hash in [0, 1): those below
    nine tenths of `share` are train, those up to `share` dev, those at the other end test.
    So the training queries of a small share are among those of a large one, and no query
    is on two sides; the candidates stay all documents.

    Parameters
    ----------
    collection : Collection
        Its queries have `position`.
    share : float
        The part that trains, dev included: 0.01, 0.05, 0.10 and 0.80 in the paper.
    test : float, optional
        Test on the last `test` of the positions alone and drop what lies between, so that
        several shares are tested on the same queries. By default all others are test.

    Raises
    ------
    DataError
        If the queries have no positions.
    SettingError
        If the shares are impossible, or so small that a split is without queries.
    """
    require("position" in collection.queries, f"collection {collection.name!r}: queries have no `position`", DataError)
    start = share if test is None else 1 - test
    require(
        0 < share < 1 and share <= start + 1e-9 and start < 1,
        f"share = {share} with test = {test}: both must be above 0, and together at most 1",
    )
    sides = pd.Series(split_by_position(collection.queries["position"], share, start), collection.queries.index)
    for split in SPLITS:
        require(
            bool((sides == split).any()),
            f"share = {share} of {len(collection.queries):,} queries in {collection.name!r} leaves none for {split}",
        )
    part = collection.part(queries=sides != "")
    queries = part.queries.assign(split=sides[sides != ""])
    return replace(part, name=f"{collection.name}-{share:g}", queries=queries)


def subsample(collection: Collection, documents: int, queries: int | None = None) -> Collection:
    """The same task on a part of its documents and test queries.

    Both are taken in the order of a hash of their names, so that a smaller part lies in a larger
    one: the test queries; then the documents that are relevant to these, those that are relevant to
    queries of the other splits, and all others, until there are `documents`. Where documents are
    sentences of passages (column `passage`), passages stay whole, so that a sentence competes with
    its neighbours.

    Parameters
    ----------
    documents : int
        At most so many, but for those that are relevant to the test queries and for the end of a passage.
    queries : int, optional
        At most so many test queries; training and validation queries whose relevant documents all
        went are dropped. By default every query stays, and only the candidates become fewer: behind
        those that are relevant to test queries, all documents are alike.

    Raises
    ------
    SettingError
        If a number is not at least 1.
    """
    for name, count in (("documents", documents), ("queries", queries)):
        require(count is None or count >= 1, f"{count} {name}: at least 1 is needed")
    names, is_test = collection.documents.index, collection.queries["split"] == "test"
    wholes = collection.documents.get("passage", pd.Series(names, names))  # document to what stays whole
    test = sorted(collection.queries.index[is_test], key=hash_position)[:queries]
    relevant = collection.qrels[collection.qrels["relevance"] > 0]
    is_tested = relevant["query_id"].isin(collection.queries.index[is_test])
    needed = set(wholes[relevant["doc_id"][relevant["query_id"].isin(test)]])
    asked = set() if queries is None else set(wholes[relevant["doc_id"][~is_tested]])
    sizes = wholes.value_counts()
    order = sorted(sizes.index, key=lambda name: (name not in needed, name not in asked, hash_position(name)))
    before = np.cumsum(sizes[order].to_numpy()) - sizes[order].to_numpy()
    chosen = needed | {name for name, start in zip(order, before, strict=True) if start < documents}
    kept = wholes.isin(chosen)
    if queries is None:
        return collection.part(kept)
    answered = relevant["query_id"][relevant["doc_id"].isin(names[kept])]
    return collection.part(
        kept, collection.queries.index.isin(test) | (~is_test & collection.queries.index.isin(answered))
    )


def answered_within(collection: Collection, part: Collection) -> Collection:
    """The same part with every test query of the collection whose relevant documents are all in it.

    `subsample` takes documents for some test queries; others have the same answers, and more queries
    tell smaller differences apart.
    """
    kept = collection.documents.index.isin(part.documents.index)
    relevant = collection.qrels[collection.qrels["relevance"] > 0]
    lost = relevant["query_id"][~relevant["doc_id"].isin(part.documents.index)]
    tested = (collection.queries["split"] == "test") & collection.queries.index.isin(relevant["query_id"])
    asked = tested & ~collection.queries.index.isin(lost)
    return collection.part(kept, asked | collection.queries.index.isin(part.queries.index))


def with_distractors(collection: Collection, distractors: pd.DataFrame, name: str) -> Collection:
    """The same task with further candidates, none of which is relevant.

    Parameters
    ----------
    distractors : DataFrame
        Passages: `text`, and `title`, or `sentence` and `context`, where the collection has these. Their ids get the
        prefix ``added/``.
    name : str
        Of the new collection.
    """
    own = collection.documents
    read = ("text", "sentence", "context") if "sentence" in own else ("text", "title")
    columns = [column for column in read if column in own]
    documents = pd.concat([own[columns], distractors[columns].rename("added/{}".format)]).rename_axis("doc_id")
    return replace(collection, name=name, documents=documents, pairs=None)


def retrieval_task(
    name: str,
    texts: pd.Series,
    pairs: pd.DataFrame,
    split: pd.Series,
    provenance: Mapping[str, str] | None = None,
) -> Collection:
    """Turn labelled pairs of similar items into a retrieval task (Gillick 2018, section 3.3).

    Every item of a positive pair is a query; its relevant documents are the members of
    its cluster in the transitive closure of the positive pairs, itself included (the
    paper's "identity" baseline scores above zero, so it counts itself); the candidates
    are all items.

    Parameters
    ----------
    name : str
        Name of the collection.
    texts : Series
        Item id to text.
    pairs : DataFrame
        Columns `left`, `right`, `label`.
    split : Series
        Item id to split. Pairs whose ends are on different sides are dropped, before the
        closure is taken: they would join the sides.
    provenance : mapping, optional
        Passed on to the collection.
    """
    texts, split = texts.sort_index(), split.sort_index()
    require(texts.index.equals(split.index), f"collection {name!r}: texts and splits differ in their items", DataError)
    sides = pairs["left"].map(split), pairs["right"].map(split)
    pairs = pairs.assign(split=sides[0])[sides[0] == sides[1]].reset_index(drop=True)
    clusters = closure(pairs)
    queries = pd.DataFrame({"text": texts[clusters.index], "split": split[clusters.index], "cluster": clusters})
    queries.index.name = "query_id"
    members = pd.DataFrame({"doc_id": clusters.index, "cluster": clusters.to_numpy()})
    qrels = members.rename(columns={"doc_id": "query_id"}).merge(members, on="cluster")
    qrels = qrels[["query_id", "doc_id"]].assign(relevance=1)
    documents = pd.DataFrame({"text": texts, "split": split}).rename_axis("doc_id")
    columns = ["left", "right", "label", "split"]
    return Collection(name, documents, queries, qrels, pairs=pairs[columns], provenance=dict(provenance or {}))
