"""pydocs, the embedded collection: the docstrings of the Python packages installed with the book.

A documented public object is an article, its sections are passages, the names under "See Also" and its
cross-references are hyperlinks. A one-line description that one page gives of *another* is a query that
a person wrote and whose target is known; it is taken out of the text (`retlib.data.datasets.pydocs_text`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
from filelock import FileLock

from retlib.core import runtime
from retlib.core.errors import DataError
from retlib.data import text
from retlib.data.collection import Article, Collection, hash_position, retrieval_task, split_by_cluster
from retlib.data.datasets import register, register_articles, register_text
from retlib.data.datasets._reading import sentence_spans
from retlib.data.datasets._reqa import Passage, answering, candidates
from retlib.data.datasets.pydocs_build import STEPS, TABLES, last_name
from retlib.data.datasets.pydocs_lines import key
from retlib.data.datasets.pydocs_pages import SLICES

SHARES = {"test": 0.2, "dev": 0.1}

# Three tasks for the multi-task notebook, disjoint in their packages, the most general the largest.
GROUPS = {
    "numeric": ("numpy", "scipy"),
    "learning": ("sklearn", "torch", "gensim"),
    "general": ("pandas", "matplotlib", "networkx", "sympy", "python"),
}
# The same on the smoke slice, by the beginnings of paths; the last takes what is left.
SMOKE_GROUPS = {"a": ("numpy.random.",), "b": ("numpy.fft.", "numpy.linalg.", "numpy.ndarray."), "c": ("numpy",)}

# A page to which more pages link is common ground (`numpy.ndarray`), not a near-miss of each of them.
MAX_LINKS_IN = 20

_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


@register("pydocs")
def load_pydocs() -> Collection:
    """Passages of all packages, and the descriptions that pages give of other pages.

    Documents are passages (`title` and `article` are the path of the object; `position` 0 opens the
    article). Queries are descriptions with one target: a text that is given of several pages is left
    out, as are targets whose opening passage is also that of another page. Relevant is the passage that
    opens the target article, and no other: it holds the summary, which is what a description describes,
    while a parameter or a note of the article does not answer it. `cluster` is the target article,
    `source` says where the description stood (see_also or listing), `package` whose target it is, and
    `verbatim` whether the target article contains it word for word.
    """
    return _passages("pydocs", "all")


@register("pydocs-similar")
def load_similar() -> Collection:
    """The similar-item task over all packages (Gillick 2018, section 3.3).

    Items are the distinct short texts: the summary of every page, and the descriptions that others give
    of it. Those of one page are duplicates, and so are those of pages that are one to a reader (see
    `pydocs_build.build`). A text that pages of several clusters share does not say which is meant, and is
    left out. Labelled near-misses (label 0) are the summaries of linked pages, and a description with the
    summary of the page on which it stands; not where both pages have the same name, as methods of sister
    classes do.
    """
    return _similar("pydocs-similar", "all")


@register("pydocs-numeric")
def load_numeric() -> Collection:
    """The similar-item task on NumPy and SciPy."""
    return _similar("pydocs-numeric", "all", _of_packages("numeric"))


@register("pydocs-learning")
def load_learning() -> Collection:
    """The similar-item task on scikit-learn, PyTorch and gensim."""
    return _similar("pydocs-learning", "all", _of_packages("learning"))


@register("pydocs-general")
def load_general() -> Collection:
    """The similar-item task on pandas, Matplotlib, NetworkX, SymPy and the standard library."""
    return _similar("pydocs-general", "all", _of_packages("general"))


@register("pydocs-smoke")
def load_smoke() -> Collection:
    """The similar-item task on a part of NumPy, for tests."""
    return _similar("pydocs-smoke", "smoke")


@register("pydocs-smoke-a")
def load_smoke_a() -> Collection:
    """The similar-item task on numpy.random, for tests of several tasks."""
    return _similar("pydocs-smoke-a", "smoke", _of_smoke("a"))


@register("pydocs-smoke-b")
def load_smoke_b() -> Collection:
    """The similar-item task on numpy.fft, numpy.linalg and numpy.ndarray, for tests of several tasks."""
    return _similar("pydocs-smoke-b", "smoke", _of_smoke("b"))


@register("pydocs-smoke-c")
def load_smoke_c() -> Collection:
    """The similar-item task on the rest of the smoke slice, for tests of several tasks."""
    return _similar("pydocs-smoke-c", "smoke", _of_smoke("c"))


@register("pydocs-reqa")
def load_reqa() -> Collection:
    """Descriptions and the (sentence, passage) pair that they describe, as in ReQA (Chang 2020, section 4.1).

    Queries are those of `pydocs`. Relevant is the first sentence of the passage that opens
    the target article, in that passage. Candidates are the sentences of the passages that
    open articles (those of equal text are one): its first, and each further one of at least
    four words, which leaves fragments of code out. Other passages are no candidates: they
    are mostly lists of parameters, in which there are no sentences to tell apart, and with
    them there would be three times as many.

    The `position` of a query comes from its target's cluster, so that pages that are one to a
    reader are on one side in every split of `low_resource`, and the test queries of the
    default split are those of `pydocs`.
    """
    return _reqa("pydocs-reqa", "all")


@register("pydocs-reqa-smoke")
def load_reqa_smoke() -> Collection:
    """The same on the smoke slice, for tests."""
    return _reqa("pydocs-reqa-smoke", "smoke")


@register_articles("pydocs")
def stream_articles() -> Iterator[Article]:
    """Every page: its passages, those of its first section as opening, and the pages that it links to."""
    return _articles("all")


@register_articles("pydocs-smoke")
def stream_smoke_articles() -> Iterator[Article]:
    """Every page of the smoke slice."""
    return _articles("smoke")


@register_text("pydocs")
def stream_pydocs() -> Iterator[str]:
    """Sentences of the prose of all packages, page by page, without code and without "See Also"."""
    return _sentences("all")


@register_text("pydocs-smoke")
def stream_smoke() -> Iterator[str]:
    """Sentences of the prose of the smoke slice."""
    return _sentences("smoke")


# --- tables ----------------------------------------------------------------------------------------


@cache
def tables(slice_name: str) -> dict[str, pd.DataFrame]:
    """The tables of one of `SLICES`, from the cache if these versions were read before.

    Raises
    ------
    DataError
        If the docstrings cannot be read.
    """
    folder = _folder(slice_name)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Notebooks that start side by side wait for the first of them.
        with FileLock(f"{folder}.lock"), tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            if not folder.is_dir():
                _run_build(slice_name, unfinished)
                os.rename(f"{unfinished}/tables", folder)
    return {table: pd.read_parquet(folder / f"{table}.parquet") for table in TABLES}


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The version of every package that is installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            name = _DISTRIBUTIONS.get(package, package)
            found[package] = platform.python_version() if package == "python" else metadata.version(name)
    return found


def provenance(name: str) -> dict[str, str]:
    """What the articles called `name` are read from: packages with their versions."""
    return versions(SLICES[name.partition("-")[2] or "all"])


def _folder(slice_name: str) -> Path:
    """Where the tables of the installed versions, read by this code, are kept."""
    packages = SLICES[slice_name]
    digest = hashlib.sha256(repr((versions(packages), platform.python_version())).encode())
    for source in (*sorted(Path(__file__).parent.glob("pydocs*.py")), Path(text.__file__)):
        digest.update(source.read_bytes())
    return runtime.cache_dir() / "pydocs" / f"{slice_name}-{digest.hexdigest()[:16]}"


def _run_build(slice_name: str, folder: str) -> None:
    """Run `pydocs_build` in a process of its own, with a progress bar."""
    os.mkdir(f"{folder}/tables")
    command = [sys.executable, "-m", "retlib.data.datasets.pydocs_build", f"{folder}/tables", slice_name]
    above = str(Path(__file__).parents[3])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH")])),
        **{"PYTHONHASHSEED": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
    }
    with open(f"{folder}/errors", "w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        for _ in runtime.progress(process.stdout, desc="pydocs", total=len(SLICES[slice_name]) + STEPS):
            pass
        if process.wait() != 0:
            errors.seek(0)
            raise DataError(f"pydocs: the docstrings of slice {slice_name!r} cannot be read: {errors.read()[-2000:]}")


def _sentences(slice_name: str) -> Iterator[str]:
    """Sentences of the paragraphs of a slice; they are found once, and kept beside its tables.

    A paragraph that many pages repeat is given once; a sentence has three words at least.
    """
    prose, path = tables(slice_name)["prose"], _folder(slice_name).with_suffix(".sentences.parquet")
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        paragraphs = runtime.progress(prose["text"].unique(), desc="pydocs: sentences")
        found = (sentence for paragraph in paragraphs for sentence in text.sentences(paragraph))
        found = [sentence for sentence in found if sentence.count(" ") > 1]
        with tempfile.TemporaryDirectory(dir=path.parent) as unfinished:
            pd.DataFrame({"text": found}).to_parquet(f"{unfinished}/sentences.parquet", index=False)
            os.replace(f"{unfinished}/sentences.parquet", path)
    yield from pd.read_parquet(path)["text"]


def _articles(slice_name: str) -> Iterator[Article]:
    read = tables(slice_name)
    targets = read["links"].groupby("source")["target"].agg(tuple).to_dict()
    # By arrays: to make a frame of every article takes many times as long.
    texts, sections = (read["passages"][name].to_numpy(dtype=object) for name in ("text", "section"))
    rows_of = read["passages"].groupby("article").indices
    for name in read["passages"]["article"].unique():
        rows = rows_of[name]
        is_opening = np.logical_and.accumulate(sections[rows] == sections[rows[0]])
        yield Article(name, name, tuple(texts[rows]), int(is_opening.sum()), targets.get(name, ()))


# --- passages and descriptions ---------------------------------------------------------------------


def _passages(name: str, slice_name: str) -> Collection:
    read = tables(slice_name)
    pages = read["pages"].set_index("article")
    documents = read["passages"].assign(title=read["passages"]["article"])
    documents["package"] = documents["article"].map(pages["package"])
    documents.index = pd.Index(documents["article"] + "#" + documents["position"].astype(str), name="doc_id")
    queries = _queries(read["descriptions"], documents)
    queries["package"] = queries["cluster"].map(pages["package"])
    side = split_by_cluster(pages.index, pages["cluster"], SHARES)
    queries["split"] = queries["cluster"].map(side)
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": (queries["cluster"] + "#0").array, "relevance": 1})
    return Collection(name, documents, queries, qrels, links=read["links"], provenance=versions(SLICES[slice_name]))


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


def _numbered(articles: pd.Series) -> pd.Series:
    """Ids of the texts that describe pages: numpy.sum?0, numpy.sum?1, ..."""
    return articles + "?" + articles.groupby(articles).cumcount().astype(str)


MIN_SENTENCE_WORDS = 4


def _reqa(name: str, slice_name: str) -> Collection:
    whole = _passages(name, slice_name)
    opening = whole.documents[whole.documents["position"] == 0].drop_duplicates("text")
    passages = {
        article: Passage(article, article, text, tuple(_prose_spans(text)))
        for article, text in zip(opening["article"], opening["text"], strict=True)
    }
    clusters = tables(slice_name)["pages"].set_index("article")["cluster"]
    # From above, because `split_by_cluster` puts the lowest positions on the test side and `low_resource` the highest.
    position = 1 - clusters[whole.queries["cluster"]].map(lambda cluster: hash_position(f"0:{cluster}"))
    targets = whole.queries["cluster"]
    queries = whole.queries.assign(
        article=targets, cluster=targets + "#0", ambiguous=False, position=position.to_numpy()
    )
    return answering(name, candidates(passages), queries, whole.provenance)


def _prose_spans(text: str) -> Iterator[tuple[int, int]]:
    for start, end in sentence_spans(text):
        if start == 0 or len(text[start:end].split()) >= MIN_SENTENCE_WORDS:
            yield start, end


# --- similar items ---------------------------------------------------------------------------------

Choice = Callable[[pd.DataFrame], pd.Series]


def _everything(items: pd.DataFrame) -> pd.Series:
    return items["article"] != ""


def _of_packages(group: str) -> Choice:
    return lambda items: items["package"].isin(GROUPS[group])


def _of_smoke(group: str) -> Choice:
    """The pages of a group that are of no group before it."""
    before = tuple(start for name, starts in SMOKE_GROUPS.items() if name < group for start in starts)

    def choose(items: pd.DataFrame) -> pd.Series:
        paths = items["article"].str
        return paths.startswith(SMOKE_GROUPS[group]) & ~paths.startswith(before)

    return choose


def _similar(name: str, slice_name: str, chosen: Choice = _everything) -> Collection:
    read = tables(slice_name)
    items = _items(read, chosen)
    duplicates = items[items["head"] != items.index]
    positives = pd.DataFrame({"left": duplicates["head"].array, "right": duplicates.index, "label": 1})
    pairs = pd.concat([positives, _near_misses(read, items)], ignore_index=True)
    split = split_by_cluster(items.index, items["cluster"], SHARES)
    return retrieval_task(name, items["text"], pairs, split, versions(items["package"].unique()))


def _items(read: dict[str, pd.DataFrame], chosen: Choice) -> pd.DataFrame:
    """The distinct short texts of the chosen pages: text, key, article, package, cluster, rank, head.

    `rank` is 0 for a summary and 1 for a description; `head` is the first item of the cluster.
    """
    summaries = read["pages"].rename(columns={"summary": "text"}).assign(rank=0)
    descriptions = read["descriptions"].rename(columns={"target": "article"})[["article", "text"]].drop_duplicates()
    descriptions = descriptions.merge(read["pages"].drop(columns="summary"), on="article").assign(rank=1)
    items = pd.concat([summaries, descriptions], ignore_index=True)
    items["key"] = items["text"].map(key)
    items = items[chosen(items) & items["key"].str.contains(" ")]
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
    described = items[items["rank"] == 1].reset_index().set_index("key")["id"]
    told = read["descriptions"]
    told = pd.DataFrame({"left": told["origin"], "right": told["text"].map(key).map(described)})
    pairs = pd.concat([linked, told])
    pairs = pairs[pairs["left"].isin(items.index) & pairs["right"].isin(items.index)]
    left, right = (items.loc[pairs[side]].reset_index(drop=True) for side in ("left", "right"))
    same_name = left["article"].map(last_name) == right["article"].map(last_name)
    apart = (left["cluster"] != right["cluster"]) & ~same_name
    ends = np.sort(pairs.to_numpy(dtype=object)[apart], axis=1)
    return pd.DataFrame(ends, columns=["left", "right"]).drop_duplicates().assign(label=0)
