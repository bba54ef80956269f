"""How many and how different generated queries are, and whether they lead to their passage (chapters of Part III)."""

from itertools import chain, pairwise

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.data.text import words
from retlib.retrieval.lexical import BM25


def round_trip(generated: pd.DataFrame, passages: pd.Series) -> pd.Series:
    """Return whether BM25, with its default settings, finds a query's own passage first: a filter for `generated`.

    `generated` has columns `passage_id` and `query`; `passages` is id to text. `DataError` for another passage's query.
    """
    own = passages.index.get_indexer(generated["passage_id"])
    others = generated["passage_id"][own < 0][:1].tolist()
    require(not others, f"a query is of passage {others}, which is not among the passages", DataError)
    _, rows = BM25().fit(passages.tolist()).search(generated["query"].tolist(), 1)
    return pd.Series(rows[:, 0] == own, index=generated.index, name="round trip")


def statistics(generated: pd.DataFrame, passages: pd.Series) -> pd.Series:
    """Return what a decoding gives, in numbers (Liang 2020, Table 5 has the pairs); arguments as in `round_trip`.

    `queries` counts different ones. `distinct-1` and `distinct-2` (Li et al. 2016) are the shares of different words
    and pairs of neighbouring words in a passage's queries, as means over passages. `overlap` is the share of a query's
    words that stand in its passage, and `round trip` that of the queries for which `round_trip` holds.
    """
    require(len(generated) > 0, "there is no query to measure", DataError)
    leads_home, queries = round_trip(generated, passages), [words(query) for query in generated["query"]]
    own = passages.index.get_indexer(generated["passage_id"])
    texts = {row: set(words(passages.iloc[row])) for row in np.unique(own)}
    shares = [np.mean([word in texts[row] for word in query]) for row, query in zip(own, queries, strict=True) if query]

    def distinct(grams: list[list]) -> float:
        passages = (list(chain.from_iterable(each)) for _, each in pd.Series(grams).groupby(own))
        return pd.Series([len(set(each)) / len(each) for each in passages if each], dtype=float).mean()

    return pd.Series({
        "passages": len(passages), "pairs": len(generated), "queries": generated["query"].nunique(),
        "pairs per passage": len(generated) / len(passages), "words per query": np.mean([*map(len, queries)]),
        "distinct-1": distinct(queries), "distinct-2": distinct([list(pairwise(query)) for query in queries]),
        "overlap": np.mean(shares) if shares else np.nan, "round trip": leads_home.mean(),
    })  # fmt: skip
