"""Several collections as one."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection


def union(collections: Sequence[Collection]) -> Collection:
    """Several collections as one, named after all; all documents are candidates of all queries.

    One alone stays as it is. Ids are prefixed with the name of their collection ("nfcorpus/MED-10"), which stands in
    the column `collection` too. Of the other columns, those stay that all collections have.

    Raises
    ------
    DataError
        If there is none, or two have one name.
    """
    names = [part.name for part in collections]
    require(len(names) > 0, "a union needs at least one collection", DataError)
    require(len(set(names)) == len(names), f"two collections of a union have one name: {', '.join(names)}", DataError)
    if len(names) == 1:
        return collections[0]
    parts = [_prefixed(part) for part in collections]
    documents, queries, qrels = (
        pd.concat([getattr(part, frame) for part in parts], join="inner") for frame in ("documents", "queries", "qrels")
    )
    provenance = {key: value for part in parts for key, value in part.provenance.items()}
    return Collection(", ".join(names), documents, queries, qrels.reset_index(drop=True), provenance=provenance)


def _prefixed(part: Collection) -> Collection:
    prefix = f"{part.name}/"
    documents = part.documents.assign(collection=part.name).rename(index=prefix.__add__)
    queries = part.queries.assign(collection=part.name).rename(index=prefix.__add__)
    if "cluster" in queries:
        queries["cluster"] = prefix + queries["cluster"].astype(str)
    qrels = part.qrels.assign(query_id=prefix + part.qrels["query_id"], doc_id=prefix + part.qrels["doc_id"])
    provenance = {prefix + key: value for key, value in part.provenance.items()}
    return Collection(part.name, documents, queries, qrels, provenance=provenance)
