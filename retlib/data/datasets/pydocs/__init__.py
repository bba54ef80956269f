"""pydocs, the embedded collections: the docstrings of the Python packages installed with the book.

A documented public object is an article, its sections are passages, the names under "See Also" and its
cross-references are hyperlinks. A one-line description that one page gives of *another* is a query that
a person wrote and whose target is known; it is taken out of the text (`mentions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from retlib.data.collection import Article, Collection
from retlib.data.datasets import register, register_articles, register_text
from retlib.data.datasets._tasks import Passage, answering, candidates, sentence_spans
from retlib.data.datasets.pydocs.build import MIN_WORDS, last_name
from retlib.data.datasets.pydocs.cached import collection, sentences, tables, versions
from retlib.data.datasets.pydocs.lines import key
from retlib.data.datasets.pydocs.site import SLICES
from retlib.data.splits import hash_position, retrieval_task, split_by_cluster

SHARES = {"test": 0.2, "dev": 0.1}

# Three tasks of every slice for the multi-task notebook, the most general the largest: a page is in the first that
# has the beginning of its path.
GROUPS = {
    "all": {"numeric": ("numpy", "scipy"), "learning": ("sklearn", "torch", "gensim"), "general": ("",)},
    "smoke": {"a": ("numpy.random.",), "b": ("numpy.fft.", "numpy.linalg.", "numpy.ndarray."), "c": ("",)},
}
# The domain of every slice that a query generator does not see: objects below these paths (Liang 2020).
TARGETS = {"all": ("pandas", "sklearn"), "smoke": ("numpy.fft", "numpy.linalg", "numpy.random")}

# A page to which more pages link is common ground (`numpy.ndarray`), not a near-miss of each of them.
MAX_LINKS_IN = 20
# A sentence is a candidate of `reqa` if it opens its passage or has so many words.
MIN_SENTENCE_WORDS = 4


def _sliced(registrar: Callable, name: str) -> Callable:
    """Register what a function makes of a slice: of everything under `name`, of the smoke slice under `name`-smoke."""

    def decorate(make: Callable) -> Callable:
        for slice_name, full in (("all", name), ("smoke", f"{name}-smoke")):
            made = partial(make, full, slice_name)
            kept = partial(collection, full, slice_name, made) if registrar is register else made
            registrar(full)(lambda kept=kept: kept())  # a function of this module, which so is known to read it
        return make

    return decorate


def provenance(name: str) -> dict[str, str]:
    """What the articles called `name` are read from: packages with their versions."""
    return versions(SLICES[name.partition("-")[2] or "all"])


@_sliced(register_articles, "pydocs")
def articles(name: str, slice_name: str) -> Iterator[Article]:
    """Every page: its passages, those of its first section as opening, and the pages that it links to."""
    read = tables(slice_name)
    targets = read["links"].groupby("source")["target"].agg(tuple).to_dict()
    # By arrays: to make a frame of every article takes many times as long.
    texts, sections = (read["passages"][column].to_numpy(dtype=object) for column in ("text", "section"))
    rows_of = read["passages"].groupby("article").indices
    for page in read["passages"]["article"].unique():
        rows = rows_of[page]
        is_opening = np.logical_and.accumulate(sections[rows] == sections[rows[0]])
        yield Article(page, page, tuple(texts[rows]), int(is_opening.sum()), targets.get(page, ()))


@_sliced(register_text, "pydocs")
def prose(name: str, slice_name: str) -> Iterator[str]:
    """Sentences of the prose, page by page, without code and without "See Also"."""
    return sentences(slice_name)


# --- descriptions and the passages that they describe ----------------------------------------------


@register("pydocs")
def load_pydocs() -> Collection:
    """Passages of all packages, and the descriptions that pages give of other pages."""
    return collection("pydocs", "all", lambda: described("pydocs", "all"))


def described(name: str, slice_name: str) -> Collection:
    """Return passages, and the descriptions that pages give of other pages.

    Documents are passages (`title` and `article` are the path of the object; `position` 0 opens the article). Queries
    are descriptions with one target: texts that are given of several pages are left out, and targets whose opening
    passage is also another page's. Relevant is only the passage that opens the target article: it holds the summary,
    which is what a description describes. `cluster` is the target article, `source` says where the description stood
    (see_also or listing), `package` whose target it is, and `verbatim` whether the target article contains it word for
    word.
    """
    read = tables(slice_name)
    pages = read["pages"].set_index("article")
    documents = read["passages"].assign(title=read["passages"]["article"])
    documents["package"] = documents["article"].map(pages["package"])
    documents.index = pd.Index(documents["article"] + "#" + documents["position"].astype(str), name="doc_id")
    queries = _queries(read["descriptions"], documents)
    queries["package"] = queries["cluster"].map(pages["package"])
    queries["split"] = queries["cluster"].map(split_by_cluster(pages.index, pages["cluster"], SHARES))
    qrels = _opening(queries["cluster"])
    return Collection(name, documents, queries, qrels, links=read["links"], provenance=versions(SLICES[slice_name]))


def _opening(clusters: pd.Series) -> pd.DataFrame:
    """The judgments of queries that ask for the passage that opens a page."""
    return pd.DataFrame({"query_id": clusters.index, "doc_id": (clusters + "#0").array, "relevance": 1})


def _queries(descriptions: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """The descriptions that can be told apart: text, cluster (the target), source, verbatim."""
    queries = descriptions.assign(key=descriptions["text"].map(key)).rename(columns={"target": "cluster"})
    queries = queries[queries.groupby("key")["cluster"].transform("nunique") == 1].drop_duplicates("key")
    opening = documents[documents["position"] == 0].set_index("article")["text"].map(key)
    queries = queries[~queries["cluster"].isin(opening.index[opening.duplicated(keep=False)])]
    targets = documents[documents["article"].isin(queries["cluster"])]
    whole = targets["text"].map(key).groupby(targets["article"]).agg(" ".join)
    pairs = zip(queries["key"], queries["cluster"].map(whole), strict=True)
    queries["verbatim"] = [f" {inner} " in f" {outer} " for inner, outer in pairs]
    queries.index = pd.Index(_numbered(queries["cluster"]), name="query_id")
    return queries[["text", "cluster", "source", "verbatim"]]


def _numbered(pages: pd.Series) -> pd.Series:
    """Ids of the texts that describe pages: numpy.sum?0, numpy.sum?1, ..."""
    return pages + "?" + pages.groupby(pages).cumcount().astype(str)


@_sliced(register, "pydocs-reqa")
def reqa(name: str, slice_name: str) -> Collection:
    """Return descriptions and the (sentence, passage) pair that they describe, as in ReQA (Chang 2020, section 4.1).

    Queries are those of `described`. Relevant is the first sentence of the passage that opens the target article.
    Candidates are the sentences of the passages that open articles (those of equal text are one): the first, and each
    further one of at least four words. Other passages, mostly lists of parameters, are no candidates: with them there
    would be three times as many.

    The `position` of a query comes from its target's cluster, so that pages that are one to a reader are on one side in
    every `low_resource` split, and the default test queries are those of `described`.
    """
    whole = described(name, slice_name)
    opening = whole.documents[whole.documents["position"] == 0].drop_duplicates("text")
    passages = {
        page: Passage(page, page, text, tuple(_prose_spans(text)))
        for page, text in zip(opening["article"], opening["text"], strict=True)
    }
    clusters, targets = tables(slice_name)["pages"].set_index("article")["cluster"], whole.queries["cluster"]
    # From above: `split_by_cluster` puts the lowest positions on the test side and `low_resource` the highest.
    position = 1 - clusters[targets].map(lambda cluster: hash_position(f"0:{cluster}")).to_numpy()
    queries = whole.queries.assign(article=targets, cluster=targets + "#0", ambiguous=False, position=position)
    return answering(name, candidates(passages), queries, whole.provenance)


def _prose_spans(text: str) -> Iterator[tuple[int, int]]:
    for start, end in sentence_spans(text):
        if start == 0 or len(text[start:end].split()) >= MIN_SENTENCE_WORDS:
            yield start, end


@_sliced(register, "pydocs-passages")
def with_summaries(name: str, slice_name: str) -> Collection:
    """Return passages and descriptions, and summaries as further training queries (for Zhan 2020).

    Descriptions are those of `described`, with its splits. A summary asks for the passage that opens its page, from
    which it is taken out, so that it stands in no document of the page (`source` is summary). It is a query only

    - of training pages, so that dev and test have the human descriptions alone;
    - of pages that no description asks for: those keep their summary, as do all of dev and test;
    - if no other page has it and it is no description of another page;
    - if its page does not repeat it, and leaves at least five words that are no other passage of the collection.
    """
    whole = described(name, slice_name)
    pages = tables(slice_name)["pages"].set_index("article")
    chosen = _unambiguous(pages, whole.queries)
    rests = _rests(chosen["summary"], whole.documents)
    documents = whole.documents.copy()
    documents.loc[rests.index + "#0", "text"] = rests.to_numpy()
    chosen = chosen.loc[rests.index].rename(columns={"summary": "text"})[["text", "package"]]
    queries = chosen.assign(cluster=rests.index, source="summary", verbatim=False, split="train")
    queries.index = pd.Index(rests.index + "?summary", name="query_id")
    both = pd.concat([whole.queries, queries])
    qrels = pd.concat([whole.qrels, _opening(queries["cluster"])], ignore_index=True)
    return replace(whole, documents=documents, queries=both, qrels=qrels)


def _unambiguous(pages: pd.DataFrame, descriptions: pd.DataFrame) -> pd.DataFrame:
    """The pages of the training side whose summary says which page is meant, and that nothing else asks for."""
    keys = pages["summary"].map(key)
    is_training = split_by_cluster(pages.index, pages["cluster"], SHARES) == "train"
    is_taken = keys.duplicated(keep=False) | keys.isin(descriptions["text"].map(key)) | ~keys.str.contains(" ")
    return pages[is_training & ~is_taken & ~pages.index.isin(descriptions["cluster"])]


def _rests(summaries: pd.Series, documents: pd.DataFrame) -> pd.Series:
    """Page to its opening passage without the summary, where enough is left and the summary is gone."""
    mine = documents[documents["article"].isin(summaries.index)]
    is_opening = mine["position"] == 0
    opening = mine[is_opening].set_index("article")["text"]
    both = list(zip(opening, summaries[opening.index], strict=True))
    rests = pd.Series([text.removeprefix(summary).strip() for text, summary in both], opening.index)
    later = mine[~is_opening].groupby("article")["text"].agg(" ".join).reindex(rests.index, fill_value="")
    left = (rests + " " + later).map(key)
    is_gone = np.array([f" {key(summary)} " not in f" {text} " for (_, summary), text in zip(both, left, strict=True)])
    is_distinct = ~rests.duplicated(keep=False) & ~rests.isin(documents["text"])
    return rests[(rests.str.split().str.len() >= MIN_WORDS) & is_gone & is_distinct]


# --- two domains -----------------------------------------------------------------------------------


@_sliced(register, "pydocs-source")
def source(name: str, slice_name: str) -> Collection:
    """Return the labelled pairs of a query generator: `with_summaries` without the pages of the target.

    What asks for a page that is one to a reader with a page of the target is left out.
    """
    whole = with_summaries(name, slice_name)
    clusters = tables(slice_name)["pages"].set_index("article")["cluster"]
    theirs = clusters[_is_target(clusters.index, slice_name)]
    is_shared = whole.queries["cluster"].map(clusters).isin(theirs)
    return _domain(whole, ~_is_target(whole.documents["article"], slice_name), ~is_shared)


@_sliced(register, "pydocs-target")
def target(name: str, slice_name: str) -> Collection:
    """Return `described` in an unseen domain: whole passages, and the descriptions that pages give of others.

    What is zero-shot does not see its training split. A description may stand in its target word for word (`verbatim`).
    """
    whole = described(name, slice_name)
    is_target = _is_target(whole.queries["cluster"], slice_name)
    return _domain(whole, _is_target(whole.documents["article"], slice_name), is_target)


def _is_target(paths: pd.Series | pd.Index, slice_name: str) -> pd.Series | np.ndarray:
    """Whether each path is that of an object of the unseen domain, or below it."""
    return (paths + ".").str.startswith(tuple(f"{path}." for path in TARGETS[slice_name]))


def _domain(whole: Collection, documents: pd.Series, queries: pd.Series) -> Collection:
    """The collection of the marked documents and queries, and of the links between its articles."""
    part = whole.part(documents, queries)
    is_inside = whole.links.isin(set(part.documents["article"])).all(axis=1)
    return replace(part, links=whole.links[is_inside].reset_index(drop=True))


# --- similar items ---------------------------------------------------------------------------------


def similar(name: str, slice_name: str, group: str | None = None) -> Collection:
    """Return the similar-item task over the pages of a slice, or of one of its `GROUPS` (Gillick 2018, section 3.3).

    Items are the distinct short texts: the summary of every page, and the descriptions that others give of it. Those of
    one page, or of pages that are one to a reader (see `build.build`), are duplicates; a text of several clusters is
    left out. Labelled near-misses (label 0) are the summaries of linked pages, and a description with the summary of
    the page on which it stands; not where both pages have the same name, as methods of sister classes do.
    """
    read = tables(slice_name)
    items = _items(read, slice_name, group)
    duplicates = items[items["head"] != items.index]
    positives = pd.DataFrame({"left": duplicates["head"].array, "right": duplicates.index, "label": 1})
    pairs = pd.concat([positives, _near_misses(read, items)], ignore_index=True)
    split = split_by_cluster(items.index, items["cluster"], SHARES)
    return retrieval_task(name, items["text"], pairs, split, versions(items["package"].unique()))


for _name, _part in {
    "pydocs-similar": ("all",),
    **{f"pydocs-{group}": ("all", group) for group in GROUPS["all"]},
    "pydocs-smoke": ("smoke",),
    **{f"pydocs-smoke-{group}": ("smoke", group) for group in GROUPS["smoke"]},
}.items():
    register(_name)(lambda name=_name, part=_part: collection(name, part[0], lambda: similar(name, *part)))


def _group(path: str, slice_name: str) -> str:
    return next(group for group, starts in GROUPS[slice_name].items() if path.startswith(starts))


def _items(read: dict[str, pd.DataFrame], slice_name: str, group: str | None) -> pd.DataFrame:
    """The distinct short texts of the pages of a group: text, key, article, package, cluster, rank, head.

    `rank` is 0 for a summary and 1 for a description; `head` is the first item of the cluster.
    """
    summaries = read["pages"].rename(columns={"summary": "text"}).assign(rank=0)
    descriptions = read["descriptions"].rename(columns={"target": "article"})[["article", "text"]].drop_duplicates()
    descriptions = descriptions.merge(read["pages"].drop(columns="summary"), on="article").assign(rank=1)
    items = pd.concat([summaries, descriptions], ignore_index=True)
    items["key"] = items["text"].map(key)
    if group is not None:
        items = items[items["article"].map(lambda path: _group(path, slice_name)) == group]
    items = items[items["key"].str.contains(" ")]
    items = items[items.groupby("key")["cluster"].transform("nunique") == 1]
    items = items.sort_values(["cluster", "rank", "article", "text"]).drop_duplicates("key")
    items.index = pd.Index(items["article"].where(items["rank"] == 0, _numbered(items["article"])), name="id")
    items["head"] = items.index.to_series().groupby(items["cluster"]).transform("first")
    return items


def _near_misses(read: dict[str, pd.DataFrame], items: pd.DataFrame) -> pd.DataFrame:
    """Pairs of texts of linked pages that are of different clusters and names: left, right, label 0."""
    linked = read["links"].set_axis(["left", "right"], axis=1)
    linked = linked[linked.groupby("right")["left"].transform("size") <= MAX_LINKS_IN]
    # A description, and the summary of the page on which it stands.
    ids = items[items["rank"] == 1].reset_index().set_index("key")["id"]
    told = read["descriptions"]
    told = pd.DataFrame({"left": told["origin"], "right": told["text"].map(key).map(ids)})
    pairs = pd.concat([linked, told])
    pairs = pairs[pairs["left"].isin(items.index) & pairs["right"].isin(items.index)]
    left, right = (items.loc[pairs[side]].reset_index(drop=True) for side in ("left", "right"))
    same_name = left["article"].map(last_name) == right["article"].map(last_name)
    apart = (left["cluster"] != right["cluster"]) & ~same_name
    ends = np.sort(pairs.to_numpy(dtype=object)[apart], axis=1)
    return pd.DataFrame(ends, columns=["left", "right"]).drop_duplicates().assign(label=0)
