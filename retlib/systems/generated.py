"""What is made of generated queries: training data for retrievers, and documents that hold more words (Liang 2020).

::

    start + Stage(data=Generated(generator), steps=300)  # on queries that it wrote for the target's own passages
    Lexical(BM25(), read=Expanded(generator))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data import passages
from retlib.data.articles import OutOfTarget
from retlib.data.collection import Collection
from retlib.data.splits import hash_position, with_copies
from retlib.data.tokenized import texts
from retlib.models.decoding import Decoding
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.training_data import CollectionQueries

# Passages whose queries are held out to choose the weights: a share, and at most so many.
HELD_OUT, MOST_HELD_OUT = 0.1, 200


@dataclass(frozen=True, eq=False)
class Generated(CollectionQueries):
    """Queries that a generator wrote, each with the passage that it was written for.

    The passages are by default the documents of the collection that the system is trained for, of which no label is
    seen; `share` is of them, by a hash of their ids. Decoding is by default the generator's own.
    """

    generator: QueryGenerator
    passages: Collection | OutOfTarget | None = None
    share: float = 1.0
    how: Decoding | None = None

    def __repr__(self) -> str:
        name = "generated" if self.passages is None else "generated out of target"
        return name if self.share == 1 else f"{name}, {self.share:g}"

    @property
    def settings(self) -> dict[str, Any]:
        """What was written by whom and how."""
        how = self.how or self.generator.decoding
        return {"data": repr(self), **self.generator.settings, **how.settings}

    def seeded(self, seed: int) -> Generated:
        return replace(self, generator=self.generator.seeded(seed))

    def made_by(self) -> dict[str, float]:
        """The generator; the embeddings that it begins with are not included."""
        made = self.generator.fit()
        return {made.name: made.history.seconds}

    def collection(self, target: Collection) -> Collection:
        """The passages, and their queries as `synthetic` divides them."""
        return _collection(self.generator, self.passages or target, self.share, self.how)


@lru_cache(maxsize=16)  # asked for with every system and seed
def _collection(
    generator: QueryGenerator, source: Collection | OutOfTarget, share: float, how: Decoding | None
) -> Collection:
    documents = source.documents
    # Of a share, too, all queries are written: they are the same, and another share finds them.
    written = generator.queries(documents, how)
    if share < 1:
        documents = passages.sample(documents, max(2, round(share * len(documents))))
        written = written[written["passage_id"].isin(documents.index)]
    return synthetic("generated", written.reset_index(drop=True), documents)


def synthetic(name: str, generated: pd.DataFrame, documents: pd.DataFrame, test: float = 0.0) -> Collection:
    """Return passages and the queries that were generated from them, as a collection to train on.

    `generated` is as `retlib.systems.query_generation.generate` returns it; `documents` have the index `passage_id`,
    `text`, and `title` where there is one. The queries of a share `test` of the asked passages are test, of one at
    least if any. Of the others, those of a tenth of the passages, of 200 at most, are dev. A query's `cluster` is its
    passage. Raises `DataError` for an unknown passage, or for queries of fewer than two of which some train.
    """
    sources = sorted(generated["passage_id"].unique(), key=hash_position)
    wrong = f"{name!r}: queries of {len(sources)} passages; some train, others validate"
    require(len(sources) > (0 if test else 1), wrong, DataError)
    tested = sources[len(sources) - max(bool(test), round(test * len(sources))) :]
    held_out = sources[: max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(sources))))]
    number = generated.groupby("passage_id", sort=False).cumcount()
    queries = pd.DataFrame(
        {
            "text": generated["query"].to_numpy(),
            "cluster": generated["passage_id"].to_numpy(),
            "split": np.select(
                [generated["passage_id"].isin(tested), generated["passage_id"].isin(held_out)], ["test", "dev"], "train"
            ),
        },
        index=(generated["passage_id"] + "?" + number.astype(str)).to_numpy(),
    ).rename_axis("query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})
    qrels = with_copies(qrels, documents) if test else qrels  # where they judge
    columns = [column for column in ("text", "title") if column in documents]
    return Collection(name, documents[columns].rename_axis("doc_id"), queries, qrels)


@dataclass(frozen=True)
class Expanded:
    """A collection's documents read with their generated queries behind them (docT5query: Nogueira and Lin 2019)."""

    generator: QueryGenerator

    def seeded(self, seed: int) -> Expanded:
        """The same with a generator of another seed."""
        return Expanded(self.generator.seeded(seed))

    def __call__(self, collection: Collection) -> pd.Series:
        """The texts under their ids."""
        return expand(texts(collection), self.generator.queries(collection.documents))


def expand(documents: pd.Series, generated: pd.DataFrame) -> pd.Series:
    """Texts with the queries that were generated from them behind each; one without queries stays as it is."""
    joined = generated.groupby("passage_id")["query"].agg(" ".join).reindex(documents.index, fill_value="")
    return (documents + " " + joined).str.rstrip()
