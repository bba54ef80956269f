"""pydocs for a retriever that learns from queries: descriptions and summaries over all passages (Zhan 2020)."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from retlib.data.collection import Collection, split_by_cluster
from retlib.data.datasets import pydocs, register
from retlib.data.datasets.pydocs_build import MIN_WORDS
from retlib.data.datasets.pydocs_lines import key


@register("pydocs-passages")
def load_passages() -> Collection:
    """The passages and descriptions of `pydocs`, and summaries as further training queries.

    Descriptions are those of `pydocs`, with its splits. A summary asks for the passage that
    opens its page, from which it is taken out, so that it stands in no document of the page
    (`source` is summary). It is a query only

    - of pages on the training side, so that dev and test have the human descriptions alone;
    - of pages that no description asks for: those keep their summary, which a description
      paraphrases, as do all pages of dev and test;
    - if no other page has it and it is no description of another page;
    - if the page does not repeat it, and leaves at least five words of the passage that are
      no other passage of the collection.
    """
    return _with_summaries("pydocs-passages", "all")


@register("pydocs-passages-smoke")
def load_passages_smoke() -> Collection:
    """The same on the smoke slice, for tests."""
    return _with_summaries("pydocs-passages-smoke", "smoke")


def _with_summaries(name: str, slice_name: str) -> Collection:
    whole = pydocs._passages(name, slice_name)
    pages = pydocs.tables(slice_name)["pages"].set_index("article")
    chosen = _unambiguous(pages, whole.queries)
    rests = _rests(chosen, whole.documents)
    documents = whole.documents.copy()
    documents.loc[rests.index + "#0", "text"] = rests.to_numpy()
    queries = pd.DataFrame(
        {
            "text": chosen["summary"][rests.index].to_numpy(),
            "cluster": rests.index,
            "source": "summary",
            "verbatim": False,
            "package": chosen["package"][rests.index].to_numpy(),
            "split": "train",
        },
        index=rests.index + "?summary",
    ).rename_axis("query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": rests.index + "#0", "relevance": 1})
    return replace(
        whole,
        documents=documents,
        queries=pd.concat([whole.queries, queries]),
        qrels=pd.concat([whole.qrels, qrels], ignore_index=True),
    )


def _unambiguous(pages: pd.DataFrame, descriptions: pd.DataFrame) -> pd.DataFrame:
    """The pages of the training side whose summary says which page is meant, and that nothing else asks for."""
    keys = pages["summary"].map(key)
    is_training = split_by_cluster(pages.index, pages["cluster"], pydocs.SHARES) == "train"
    is_taken = keys.duplicated(keep=False) | keys.isin(descriptions["text"].map(key)) | ~keys.str.contains(" ")
    return pages[is_training & ~is_taken & ~pages.index.isin(descriptions["cluster"])]


def _rests(chosen: pd.DataFrame, documents: pd.DataFrame) -> pd.Series:
    """Page to its opening passage without the summary, where enough is left and the summary is gone."""
    mine = documents[documents["article"].isin(chosen.index)]
    is_opening = mine["position"] == 0
    opening = mine[is_opening].set_index("article")["text"]
    summaries = chosen["summary"][opening.index]
    rests = pd.Series(
        [text.removeprefix(summary).strip() for text, summary in zip(opening, summaries, strict=True)], opening.index
    )
    later = mine[~is_opening].groupby("article")["text"].agg(" ".join).reindex(rests.index, fill_value="")
    left = (rests + " " + later).map(key)
    is_gone = pd.Series(
        [f" {key(summary)} " not in f" {text} " for summary, text in zip(summaries, left, strict=True)], rests.index
    )
    is_distinct = ~rests.duplicated(keep=False) & ~rests.isin(documents["text"])
    return rests[(rests.str.split().str.len() >= MIN_WORDS) & is_gone & is_distinct]
