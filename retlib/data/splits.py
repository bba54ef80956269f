"""How collections are cut and joined: by cluster, share of labels or size; with distractors; from pairs of texts."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import SPLITS, Collection, text_numbers

# The split of questions that is in the frame: 80 % train, 20 % test; a tenth of what trains is dev (Chang 2020, section
# 4.1). `low_resource` makes others.
SHARE, HELD_OUT = 0.8, 0.1
MOST_COPIES = 2_000_000  # judgments; where copies would have more, they have none, and the facts show the bound


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
