"""A test collection, which every loader returns, and how one is cut, joined or made of pairs (all chapters)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of

SPLITS, ALL = ("train", "dev", "test"), slice(None)
BLOCK = 65_536  # rows whose fingerprint is taken at once
# The split of questions that is in the frame: 80 % train, 20 % test; a tenth of what trains is dev (Chang 2020, section
# 4.1). `low_resource` makes others.
SHARE, HELD_OUT = 0.8, 0.1
MOST_COPIES = 2_000_000  # judgments; where copies would have more, they have none, and the facts show the bound

# The columns that each frame must have, and what each value is; others may stand beside them. An id is in the index.
COLUMNS = {
    "documents": {"id": "string", "text": "string"},
    "queries": {"id": "string", "text": "string", "split": "split"},
    "qrels": {"query_id": "query", "doc_id": "document", "relevance": "integer"},
    "pairs": {"left": "document", "right": "document", "label": "integer", "split": "split"},
}


@dataclass(frozen=True)
class Article:
    """A page of an encyclopedia or manual: paragraphs of running text in order, and the pages that it links to."""

    name: str  # unique among the articles of its source
    title: str
    passages: tuple[str, ...]
    opening: int  # how many of them make up the first section that has any
    links: tuple[str, ...] = ()  # names; some may be no article of the source

    def __post_init__(self) -> None:
        is_possible = min(1, len(self.passages)) <= self.opening <= len(self.passages)
        require(is_possible, f"article {self.name!r} has an impossible opening, {self.opening}", DataError)

    @classmethod
    def of(cls, name: str, title: str, sections: Iterable[list[str]], links: Iterable[str] = ()) -> Self:
        """Return an article of the paragraphs of its sections; its opening is the first section that has any."""
        full = [section for section in sections if section]
        passages = tuple(passage for section in full for passage in section)
        return cls(name, title, passages, len(full[0]) if full else 0, tuple(links))


@dataclass(frozen=True, eq=False)
class Collection:
    """An immutable test collection, checked when it is made.

    `documents` are by `doc_id`: `text`, and where the source has them `title`, `article`, `section`, `position`,
    `split`. `queries` are by `query_id`: `text` and `split`; `cluster` where queries of one cluster share their
    relevant documents. `qrels` are `query_id`, `doc_id`, `relevance` (0 is judged and not relevant); `pairs` labelled
    pairs of documents, `left`, `right`, `label` (1 for duplicates, 0 for near-misses) and `split`. `provenance` is file
    or package to checksum or version; `facts` are what the reader of the files counted, and no part of the fingerprint.

    Raises `DataError` if an id or a judgment is repeated, or a frame is not as `COLUMNS` says.
    """

    name: str
    documents: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    pairs: pd.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        valid = {"document": self.documents.index, "query": self.queries.index, "split": pd.Index(SPLITS)}
        for name, frame in self._frames().items():
            columns = COLUMNS[name]
            missing = [column for column in columns if column not in ("id", *frame)]
            self._check(not missing, f"{name} lacks the column(s) {missing}")
            for column, kind in columns.items():
                values, wrong = frame.index if column == "id" else frame[column], []
                if kind in valid:
                    wrong = values[valid[kind].get_indexer(values) < 0]  # much faster than isin
                # A dtype that is no object tells the kind at once, but not what is missing.
                elif len(values) and (infer_dtype(values, skipna=False) != kind or values.hasnans):
                    wrong = [each for each in values if infer_dtype([each], skipna=False) != kind] or [values.dtype]
                self._check(len(wrong) == 0, f"{name}.{column}: each must be a {kind}; not so {[*wrong[:3]]}")
            repeated = frame.index[frame.index.duplicated()].tolist() if "id" in columns else []
            self._check(not repeated, f"{name}: id {repeated[:1]} is repeated")
        repeated = self.qrels.duplicated(["query_id", "doc_id"])
        self._check(not repeated.any(), "qrels: a (query, document) pair is judged twice")

    def _frames(self) -> dict[str, pd.DataFrame]:
        return {name: frame for name in COLUMNS if (frame := getattr(self, name)) is not None}

    def _check(self, condition: bool, message: str) -> None:
        require(condition, f"collection {self.name!r}: {message}", DataError)

    def __repr__(self) -> str:
        sizes = f"{len(self.documents):,} documents, {len(self.queries):,} queries, {len(self.qrels):,} judgments"
        return f"<Collection {self.name}: {sizes}, {self.fingerprint[:12]}>"

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole content."""
        return _digest(self._frames())

    @cached_property
    def documents_fingerprint(self) -> str:
        """The sha256 of the documents, which all shares of the labels have in common."""
        return _digest({"documents": self.documents})

    @cached_property
    def own_documents(self) -> pd.Index:
        """Return the ids of questions that are documents, with the id and the text of one, or its title and text.

        Those whose document is judged relevant to them are not among them: Gillick 2018 counts it.
        """
        relevant = self.qrels.query("query_id == doc_id and relevance > 0")["query_id"]
        ids = self.queries.index.intersection(self.documents.index).difference(relevant, sort=False)
        queries, documents = self.queries["text"][ids], self.documents.loc[ids]
        titled = documents.get("title", "") + " " + documents["text"]
        queries, text, titled = (each.str.normalize("NFC").str.strip() for each in (queries, documents["text"], titled))
        own = ids[(queries == text) | (queries == titled)]
        if len(own):
            why = "Their own document leaves their lists and is no negative, as no judgment names it relevant"
            runtime.note(f"{len(own)} questions of {self.name} are documents of it. {why}.")
        return own

    def own_rows(self, query_ids: pd.Index) -> np.ndarray:
        """Return the row of the one of `own_documents` that each question is, or -1: (Q,)."""
        return np.where(query_ids.isin(self.own_documents), self.documents.index.get_indexer(query_ids), -1)

    @cached_property
    def text_numbers(self) -> np.ndarray:
        """Return a number for each document, (D,), which is that of its copies: documents of one title and text."""
        return text_numbers(self.documents).to_numpy()

    def copy_bound(self) -> float:
        """Return by how many points of 100, at most, a mean over the test moves if copies of relevant texts count."""
        relevant = self.relevant("test")
        numbers = self.text_numbers[self.documents.index.get_indexer(relevant["doc_id"])]
        texts = pd.DataFrame({"query": relevant["query_id"].to_numpy(), "text": numbers})
        copies = texts.drop_duplicates().assign(count=lambda each: np.bincount(self.text_numbers)[each["text"]])
        moves = copies.groupby("query")["count"].sum() > texts.groupby("query").size()
        return 100 * float(moves.sum()) / max(1, len(self.split("test")))

    def split(self, name: str) -> pd.DataFrame:
        """Return the queries of one split: train, dev or test."""
        require_one_of("split", name, SPLITS)
        return self.queries[self.queries["split"] == name]

    def judgments(self, split: str) -> pd.DataFrame:
        """Return the qrels of one split's queries."""
        return self.qrels[self.qrels["query_id"].isin(self.split(split).index)]

    def relevant(self, split: str | None = None) -> pd.DataFrame:
        """Return the qrels that say relevant, of one split's queries or of all."""
        qrels = self.qrels if split is None else self.judgments(split)
        return qrels[qrels["relevance"] > 0]

    def labelled(self, split: str, label: int | None = 1) -> pd.DataFrame:
        """Return the labelled pairs of one split; `label` None gives both kinds."""
        self._check(self.pairs is not None, "it has no labelled pairs; see `pairs` and `retrieval_task`")
        return self.pairs[(self.pairs["split"] == split) & (label is None or self.pairs["label"] == label)]

    def part(self, documents: pd.Series | slice = ALL, queries: pd.Series | slice = ALL) -> Self:
        """Return the same task with the documents and queries that are chosen (bool), and what names no others."""
        candidates, queries, qrels, pairs = self.documents[documents], self.queries[queries], self.qrels, self.pairs
        qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(candidates.index)]
        if pairs is not None:
            pairs = pairs[pairs[["left", "right"]].isin(candidates.index).all(axis=1)]
        return replace(self, documents=candidates, queries=queries, qrels=qrels, pairs=pairs)

    def candidates(self, split: str) -> Self:
        """Return the same task with the documents of one split as candidates, and its queries alone."""
        part = self.part(self.documents["split"] == split, self.queries["split"] == split)
        return replace(part, name=f"{self.name}-{split}")

    def statistics(self) -> pd.DataFrame:
        """Return the sizes of the task as Gillick 2018, Table 1 gives them, in one row."""
        relevant = self.relevant("test").groupby("query_id").size()
        kinds = {} if self.pairs is None else {"positive": 1, "negative": 0}
        sizes = {
            "collection": self.name,
            **{f"{kind} training pairs": len(self.labelled("train", label)) for kind, label in kinds.items()},
            "test queries": len(self.split("test")),
            "candidates": len(self.documents),
            "relevant candidates/query": round(float(relevant.mean()), 2),
            "words/candidate": round(float(self.documents["text"].str.split().str.len().mean()), 1),
            "copies move a mean by at most": round(self.copy_bound(), 2),
            "fingerprint": self.fingerprint[:12],
        }
        return pd.DataFrame([sizes])


def _digest(frames: Mapping[str, pd.DataFrame]) -> str:
    digest = hashlib.sha256()
    for name, frame in frames.items():
        named = frame.reset_index(names="id") if "id" in COLUMNS[name] else frame
        for column in sorted(named.columns):
            digest.update(f"\x1d{name}.{column}\x1e".encode())
            for start in range(0, len(named), BLOCK):  # a large corpus, joined, would be in memory twice more
                joined = "\x1f".join(named[column].iloc[start : start + BLOCK].astype(str))
                digest.update((("\x1f" if start else "") + joined).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def text_numbers(documents: pd.DataFrame) -> pd.Series:
    """Return a number for each document, which copies of its title and text share."""
    columns = documents.columns.intersection(["title", "text", "sentence", "context"])
    return documents.groupby([*columns], sort=False, dropna=False).ngroup()


# --- how they are cut and joined ----------------------------------------------------------------------


def closure(pairs: pd.DataFrame) -> pd.Series:
    """Return the cluster of each item of pairs (`left`, `right`) of `label` 1: its name is the smallest item in it."""
    import networkx

    graph = networkx.from_pandas_edgelist(pairs[pairs["label"] == 1], "left", "right")
    clusters = {item: min(each) for each in networkx.connected_components(graph) for item in each}
    return pd.Series(clusters, name="cluster", dtype=object).sort_index()


def text_id(text: str) -> str:
    """Return a hash of the text: the same text has the same id, and so the same split, in every copy of a data set."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def hash_position(name: str) -> float:
    """Return where in [0, 1) a name lies: evenly spread, and the same whatever other names there are."""
    return int(text_id(name), 16) / 2.0**64


def split_by_cluster(items: pd.Index, clusters: pd.Series, shares: Mapping[str, float]) -> pd.Series:
    """Return a split for every item so that no cluster is on both sides.

    Items outside of `clusters` (see `closure`) are clusters of one. Shares, such as ``{"test": 0.1, "dev": 0.05}``, are
    of the clusters; the rest is train. A cluster's name alone decides, so that it stays when data are added.
    """
    names = pd.Series(items, index=items).astype(object)
    names.update(clusters)
    sides = np.array([*shares, "train"], dtype=object)
    position = [hash_position(f"0:{name}") for name in names]
    side = np.searchsorted(np.cumsum([*shares.values()]), position, side="right")
    return pd.Series(sides[side], index=items, name="split")


def split_by_position(position: pd.Series, share: float, start: float) -> np.ndarray:
    """Return the split at each position in [0, 1): train, then dev below `share`, test from `start` on, else empty."""
    return np.select([position < (1 - HELD_OUT) * share, position < share, position >= start], SPLITS, "")


def low_resource(collection: Collection, share: float, test: float | None = None) -> Collection:
    """Return the same task with `share` of the queries for training (Chang 2020, section 4.1: 0.01 to 0.80).

    Queries are split by `position`, a hash in [0, 1): those below nine tenths of `share` are train, those up to `share`
    dev, those at the other end test: the last `test` of them, by default all others. So the training queries of a small
    share are among those of a large one. Raises `SettingError` for shares that leave a split empty.
    """
    sides = split_by_position(collection.queries["position"], share, share if test is None else 1 - test)
    wrong = f"share = {share} of {len(sides):,} queries in {collection.name!r} leaves none for one of {SPLITS}"
    require({*SPLITS} <= {*sides}, wrong)
    part = collection.part(queries=sides != "")
    return replace(part, name=f"{collection.name}-{share:g}", queries=part.queries.assign(split=sides[sides != ""]))


def subsample(collection: Collection, documents: int, queries: int | None = None) -> Collection:
    """Return the same task on a part of its documents and test queries, in the order of a hash of their names.

    So a smaller part lies in a larger one. Taken are the test queries; then the documents that are relevant to these,
    which always stay, those that are relevant to other queries, and all others, until there are `documents`. Passages
    (column `passage`) stay whole, so that a sentence competes with its neighbours. With `queries`, training and
    validation queries whose relevant documents all went are dropped.
    """
    names, ids, is_test = collection.documents.index, collection.queries.index, collection.queries["split"] == "test"
    wholes = collection.documents.get("passage", pd.Series(names, names))  # document to what stays whole
    test, relevant = sorted(ids[is_test], key=hash_position)[:queries], collection.relevant()
    needed = set(wholes[relevant["doc_id"][relevant["query_id"].isin(test)]])
    others = relevant["doc_id"][~relevant["query_id"].isin(ids[is_test])]
    useful = set() if queries is None else set(wholes[others])
    sizes = wholes.value_counts()
    sizes = sizes[sorted(sizes.index, key=lambda name: (name not in needed, name not in useful, hash_position(name)))]
    is_chosen = wholes.isin(needed.union(sizes.index[sizes.cumsum() - sizes < documents]))
    if queries is None:
        return collection.part(is_chosen)
    answered = ids.isin(relevant["query_id"][relevant["doc_id"].isin(names[is_chosen])])
    return collection.part(is_chosen, ids.isin(test) | (~is_test & answered))


def answered_within(collection: Collection, part: Collection) -> Collection:
    """Return the same part with every test query of the collection whose relevant documents are all in it."""
    relevant, queries = collection.relevant(), collection.queries
    lost = relevant["query_id"][~relevant["doc_id"].isin(part.documents.index)]
    is_answered = queries.index.isin(relevant["query_id"]) & ~queries.index.isin(lost) & (queries["split"] == "test")
    documents = collection.documents.index.isin(part.documents.index)
    return collection.part(documents, is_answered | queries.index.isin(part.queries.index))


def with_distractors(collection: Collection, distractors: pd.DataFrame, name: str) -> Collection:
    """Return the same task, under a new name, with further candidates, none of which is relevant.

    They have `text`, and `title`, or `sentence` and `context`, where the collection does; their ids begin ``added/``.
    """
    read = ["text", "sentence", "context"] if "sentence" in collection.documents else ["text", "title"]
    own = collection.documents.filter(read)
    added = distractors[own.columns].rename("added/{}".format)
    return replace(collection, name=name, documents=pd.concat([own, added]).rename_axis("doc_id"), pairs=None)


def retrieval_task(name: str, texts: pd.Series, pairs: pd.DataFrame, split: pd.Series) -> Collection:
    """Return labelled pairs of similar items (left, right, label) as a retrieval task (Gillick 2018, section 3.3).

    `texts` and `split` are by item. All items are candidates, those of a positive pair are queries; relevant is the
    `closure` of an item, itself included (the paper's "identity" baseline scores above zero, so it counts itself).
    Pairs with ends on different sides are dropped before the closure is taken, as they would join the sides.
    """
    documents = pd.DataFrame({"text": texts.sort_index(), "split": split.sort_index()}).rename_axis("doc_id")
    pairs = pairs[["left", "right", "label"]].assign(split=pairs["left"].map(split))
    pairs = pairs[pairs["split"] == pairs["right"].map(split)].reset_index(drop=True)
    clusters = closure(pairs)
    queries = documents.loc[clusters.index].assign(cluster=clusters).rename_axis("query_id")
    members = clusters.rename_axis("doc_id").reset_index()
    qrels = members.rename(columns={"doc_id": "query_id"}).merge(members, on="cluster")
    qrels = qrels[["query_id", "doc_id"]].assign(relevance=1)
    return Collection(name, documents, queries, qrels, pairs)


def with_copies(qrels: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """Return judgments and, with their grades, those of other documents that have a relevant one's title and text."""
    numbers = text_numbers(documents)
    copies = numbers[numbers.duplicated(keep=False)].rename("text").rename_axis("copy").reset_index()
    relevant = qrels[qrels["relevance"] > 0].assign(text=lambda rows: numbers[rows["doc_id"]].to_numpy())
    if relevant["text"].map(copies["text"].value_counts()).sum() > MOST_COPIES:
        return qrels
    more = relevant.merge(copies, on="text").sort_values("relevance", ascending=False, kind="stable")
    more = more[["query_id", "copy", "relevance"]].set_axis(["query_id", "doc_id", "relevance"], axis=1)
    return pd.concat([qrels, more], ignore_index=True).drop_duplicates(["query_id", "doc_id"], ignore_index=True)


def union(collections: Sequence[Collection]) -> Collection:
    """Return several collections as one, named after all; all documents are candidates of all queries.

    One alone stays as it is. Ids are prefixed with the name of their collection ("nfcorpus/MED-10"), also in the column
    `collection`. Columns that all have stay. Raises `DataError` if two have one name.
    """
    names = [part.name for part in collections]
    require(len(set(names)) == len(names), f"two collections of a union have one name: {', '.join(names)}", DataError)
    if len(names) == 1:
        return collections[0]
    frames, provenance = [], {}
    for part in collections:
        prefix, qrels = f"{part.name}/", part.qrels
        texts = [each.assign(collection=part.name).rename(prefix.__add__) for each in (part.documents, part.queries)]
        if "cluster" in part.queries:
            texts[1]["cluster"] = prefix + texts[1]["cluster"].astype(str)
        frames.append([*texts, qrels.assign(query_id=prefix + qrels["query_id"], doc_id=prefix + qrels["doc_id"])])
        provenance |= {prefix + key: value for key, value in part.provenance.items()}
    documents, queries, qrels = (pd.concat(parts, join="inner") for parts in zip(*frames, strict=True))
    return Collection(", ".join(names), documents, queries, qrels.reset_index(drop=True), provenance=provenance)
