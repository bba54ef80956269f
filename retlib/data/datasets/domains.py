"""pydocs in two domains: packages on which a query generator is trained, and packages unseen by it (Liang 2020)."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import pydocs, pydocs_passages, register

# The unseen domain of each slice: objects below these paths.
TARGETS = {
    "all": ("pandas", "sklearn"),
    "smoke": ("numpy.fft", "numpy.linalg", "numpy.random"),
}


@register("pydocs-source")
def load_source() -> Collection:
    """`pydocs-passages` without pandas and scikit-learn: the labelled pairs of a query generator.

    A training query is a description, or a summary that was taken out of its passage. What asks for a page
    that is one to a reader with a page of the target (`pandas.isna` and `numpy.isnan` might be) is left out.
    """
    return _source("pydocs-source", "all")


@register("pydocs-source-smoke")
def load_source_smoke() -> Collection:
    """The smoke slice without numpy.fft, numpy.linalg and numpy.random, for tests."""
    return _source("pydocs-source-smoke", "smoke")


@register("pydocs-target")
def load_target() -> Collection:
    """`pydocs` on pandas and scikit-learn: whole passages, and the descriptions that pages give of others.

    Its training split is the target's official data; what is zero-shot does not see it. A description may
    stand in its target word for word (`verbatim`).
    """
    return _target("pydocs-target", "all")


@register("pydocs-target-smoke")
def load_target_smoke() -> Collection:
    """The same on numpy.fft, numpy.linalg and numpy.random, for tests."""
    return _target("pydocs-target-smoke", "smoke")


def _source(name: str, slice_name: str) -> Collection:
    whole = pydocs_passages._with_summaries(name, slice_name)
    clusters = pydocs.tables(slice_name)["pages"].set_index("article")["cluster"]
    theirs = clusters[_is_target(clusters.index, slice_name)]
    is_shared = whole.queries["cluster"].map(clusters).isin(theirs)
    return _part(whole, ~_is_target(whole.documents["article"], slice_name), ~is_shared)


def _target(name: str, slice_name: str) -> Collection:
    whole = pydocs._passages(name, slice_name)
    is_target = _is_target(whole.queries["cluster"], slice_name)
    return _part(whole, _is_target(whole.documents["article"], slice_name), is_target)


def _is_target(articles: pd.Series | pd.Index, slice_name: str) -> pd.Series:
    """Whether each path is that of an object of the unseen domain, or below it."""
    return (articles + ".").str.startswith(tuple(f"{path}." for path in TARGETS[slice_name]))


def _part(whole: Collection, documents: pd.Series, queries: pd.Series) -> Collection:
    """The collection of the marked documents and queries, and of the links between its articles."""
    kept = whole.documents[documents]
    asked = whole.queries[queries]
    articles = set(kept["article"])
    links = whole.links[whole.links["source"].isin(articles) & whole.links["target"].isin(articles)]
    qrels = whole.qrels[whole.qrels["query_id"].isin(asked.index)].reset_index(drop=True)
    return replace(whole, documents=kept, queries=asked, qrels=qrels, links=links.reset_index(drop=True))
