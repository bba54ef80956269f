"""Several systems' lists as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require
from retlib.retrieval import runs

# The constant of Cormack, Clarke and Büttcher 2009.
RANK_CONSTANT = 60


def reciprocal_ranks(lists: Sequence[np.ndarray], constant: int = RANK_CONSTANT) -> tuple[np.ndarray, np.ndarray]:
    r"""Fuse lists by reciprocal rank (Cormack, Clarke and Büttcher 2009).

    .. math:: s(d) = \sum_{r \in \text{lists}} \frac{1}{c + r(d)}

    with the rank r(d) of a document in a list, from 1; a list that lacks it adds nothing.

    Parameters
    ----------
    lists : sequence of int64 arrays, shape (Q, any)
        Rows of documents, best first, each at most once; -1 for none.
    constant : int
        c: the larger, the less the first ranks stand out.

    Returns
    -------
    scores : float64 array, shape (Q, longest)
        As wide as the lists together; -inf where there is no further document.
    rows : int64 array, shape (Q, longest)
        Best first, equal scores in the order of rows; -1 for none.

    Raises
    ------
    DataError
        If there is no list, or they are of different numbers of queries.
    """
    counts = {len(each) for each in lists}
    require(len(counts) == 1, f"lists are fused query by query; these are of {sorted(counts)} queries", DataError)
    together = np.concatenate(lists, axis=1)
    weights = np.concatenate([1 / (constant + 1 + np.arange(each.shape[1])) for each in lists])
    scores, rows = np.full(together.shape, -np.inf), np.full(together.shape, -1, dtype=np.int64)
    for query, found in enumerate(together):
        known = found >= 0
        ids, place = np.unique(found[known], return_inverse=True)
        sums = np.bincount(place, weights[known], len(ids))
        order = np.argsort(-sums, kind="stable")
        scores[query, : len(ids)], rows[query, : len(ids)] = sums[order], ids[order]
    return scores, rows


def fuse(several: Sequence[pd.DataFrame], query_ids: pd.Index, doc_ids: pd.Index, depth: int = 1000) -> pd.DataFrame:
    """The run that `reciprocal_ranks` makes of several, cut at `depth` results a query."""
    scores, rows = reciprocal_ranks([runs.lists(run, query_ids, doc_ids) for run in several])
    return runs.make_run(query_ids, doc_ids, scores[:, :depth], rows[:, :depth])
