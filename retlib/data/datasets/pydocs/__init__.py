"""pydocs, the embedded collections: the docstrings of the Python packages installed with the book.

A documented public object is an article, what stands before its first title is the opening, and the names under "See
Also" and its cross-references are hyperlinks. What one page says of *another* is a question whose answer is certain; it
is taken out of the text. `build` reads them, once for the installed versions (profiles smoke and quick, all chapters).
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd

from retlib.core.cache import artefact, checksum
from retlib.core.errors import DataError, require
from retlib.data import splits
from retlib.data.collection import Article, Collection
from retlib.data.datasets import register, register_articles, register_text
from retlib.data.datasets.questions import Passage, answer_retrieval, candidates, sentence_spans
from retlib.data.text import quick_sentences, words

# Distribution to the modules that are read; a star reads the public modules below as well. Where the implementation
# lies in modules with public names, the documented ones are listed instead.
PACKAGES = {
    "numpy": "numpy.*",
    "scipy": "scipy.*",
    "pandas": "pandas pandas.api.* pandas.arrays pandas.errors pandas.plotting pandas.tseries.offsets"
    " pandas.tseries.frequencies pandas.io.formats.style pandas.io.json pandas.testing",
    "scikit-learn": "sklearn.*",
    "torch": "torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils.* torch.nn.attention torch.autograd"
    " torch.autograd.functional torch.distributions.* torch.fft torch.func torch.linalg torch.masked torch.nested"
    " torch.optim.* torch.signal.* torch.sparse torch.special torch.utils.data.* torch.amp torch.hub torch.profiler"
    " torch.utils.checkpoint torch.jit torch.random",
    "gensim": "gensim.*",
    "matplotlib": "matplotlib.*",
    "networkx": "networkx.*",
    "sympy": "sympy sympy.physics.mechanics",
    "python": " ".join(f"{name}.*" for name in sorted(sys.stdlib_module_names)),
}
# What is read at once: everything, or as much of it as a test can wait for.
SLICES = {"pydocs": PACKAGES, "pydocs-smoke": {"numpy": "numpy numpy.fft numpy.linalg numpy.random"}}
# The pages that a query generator does not see (Liang 2020).
TARGETS = {"pydocs": r"(pandas|sklearn)\b", "pydocs-smoke": r"numpy\.(fft|linalg|random)\b"}
# Three tasks of every slice for the multi-task notebook, the most general the largest: slice and pages.
GROUPS = {
    "pydocs-numeric": ("pydocs", r"(numpy|scipy)\b"),
    "pydocs-learning": ("pydocs", r"(sklearn|torch|gensim)\b"),
    "pydocs-general": ("pydocs", r"(?!(numpy|scipy|sklearn|torch|gensim)\b)"),
    "pydocs-smoke-a": ("pydocs-smoke", r"numpy\.random\."),
    "pydocs-smoke-b": ("pydocs-smoke", r"numpy\.(fft|linalg|ndarray)\."),
    "pydocs-smoke-c": ("pydocs-smoke", r"(?!numpy\.(random|fft|linalg|ndarray)\.)"),
}
VERSION = 2  # of what is read; the code that reads it is part of the address


def key(text: str) -> str:
    """Return what two texts share that differ in case, white space and punctuation only."""
    return " ".join(words(text))


def provenance(name: str) -> dict[str, str]:
    """Return what the articles called `name` are read from: packages with their versions."""
    python = platform.python_version()
    return {package: python if package == "python" else metadata.version(package) for package in SLICES[name]}


@cache
def tables(slice_name: str) -> dict[str, pd.DataFrame]:
    """Return the tables of one of `SLICES` (see `build.build`), from the cache if these versions were read before."""

    def make(folder: Path) -> None:
        environment = os.environ | {"PYTHONHASHSEED": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", f"{__name__}.build", str(folder.resolve()), slice_name]
        ended = subprocess.run(command, env=environment, cwd=here.parents[3], capture_output=True, text=True)
        wrong = f"pydocs: the docstrings of slice {slice_name!r} cannot be read: {ended.stderr[-2000:]}"
        require(ended.returncode == 0, wrong, DataError)

    here, others = Path(__file__).parent, ("passages", "splits", "text")
    sources = [checksum(file) for file in (*sorted(here.glob("*.py")), *(here.parents[1] / f"{x}.py" for x in others))]
    settings = {"slice": slice_name, "versions": provenance(slice_name), "python": platform.python_version()}
    folder = artefact("pydocs", VERSION, {**settings, "sources": sources}, make)
    return {file.stem: pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))}


def articles(slice_name: str) -> Iterator[Article]:
    """Yield every page: its passages, those of its opening first, and the pages that it links to."""
    pages, documents, links = (tables(slice_name)[table] for table in ("pages", "passages", "links"))
    texts = documents["text"].groupby(documents["article"]).agg(tuple).to_dict()
    targets = links.groupby("source")["target"].agg(tuple).to_dict()
    for page, opening in pages["opening"].items():
        yield Article(page, page, texts[page], opening, targets.get(page, ()))


def prose(slice_name: str) -> Iterator[str]:
    """Yield sentences, of three words at least, page by page, without code and without "See Also"."""
    for passage in tables(slice_name)["passages"]["text"]:
        yield from (sentence for sentence in quick_sentences(passage) if sentence.count(" ") > 1)


def page_questions(name: str, slice_name: str, sources: tuple[str, ...] = ("mention",)) -> Collection:
    """Return passages, and what pages say of other pages.

    Relevant is only the passage that opens the target article, the `cluster`: it holds the summary. `source` says what
    the question is: a mention on another page, or a summary.
    """
    documents, questions = (tables(slice_name)[table] for table in ("passages", "questions"))
    queries = questions[questions["source"].isin(sources)].drop(columns="rest")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": (queries["cluster"] + "#0").array, "relevance": 1})
    return Collection(name, documents, queries, qrels, provenance=provenance(slice_name))


def with_summaries(name: str, slice_name: str) -> Collection:
    """Return `page_questions` with summaries as further training queries (Zhan 2020), taken out of their passages."""
    whole = page_questions(name, slice_name, ("mention", "summary"))
    questions, documents = tables(slice_name)["questions"].query("rest != ''"), whole.documents.copy()
    documents.loc[questions["cluster"] + "#0", "text"] = questions["rest"].array
    return replace(whole, documents=documents)


def source(name: str, slice_name: str) -> Collection:
    """Return the labelled pairs of a query generator: `with_summaries` without the pages of the target's clusters."""
    clusters = tables(slice_name)["pages"]["cluster"]
    is_target = clusters.index.str.match(TARGETS[slice_name])
    others = clusters[~is_target & ~clusters.isin(clusters[is_target])].index
    whole = with_summaries(name, slice_name)
    return whole.part(~whole.documents["article"].str.match(TARGETS[slice_name]), whole.queries["cluster"].isin(others))


def target(name: str, slice_name: str) -> Collection:
    """Return `page_questions` in an unseen domain; what is zero-shot does not see its training split."""
    whole = page_questions(name, slice_name)
    pages = whole.documents["article"], whole.queries["cluster"]
    return whole.part(*(each.str.match(TARGETS[slice_name]) for each in pages))


def reqa(name: str, slice_name: str) -> Collection:
    """Return `page_questions` with sentences in their passages as candidates, as in ReQA (Chang 2020, section 4.1).

    Relevant is the first sentence of the passage that opens the target article. Candidates are the first sentence of
    each distinct passage that opens an article, and its further ones of at least four words. The `position` of a query
    is that of its target's cluster: no cluster is on two sides, and the test queries are those of `page_questions`.
    """
    whole, clusters = page_questions(name, slice_name), tables(slice_name)["pages"]["cluster"]
    contexts = {}
    for page, context in whole.documents[whole.documents["position"] == 0].set_index("article")["text"].items():
        spans = (span for span in sentence_spans(context) if span[0] == 0 or context[slice(*span)].count(" ") > 2)
        contexts.setdefault(context, Passage(page, page, context, tuple(spans)))
    targets = whole.queries["cluster"]
    # From above: `split_by_cluster` puts the lowest positions on the test side and `low_resource` the highest.
    position = [1 - splits.hash_position(f"0:{cluster}") for cluster in clusters.loc[targets]]
    queries = whole.queries.assign(article=targets, cluster=targets + "#0", ambiguous=False, position=position)
    documents = candidates({passage.article: passage for passage in contexts.values()})
    return answer_retrieval(name, documents, queries.reset_index(names="query_id"), whole.provenance)


def similar(name: str, slice_name: str) -> Collection:
    """Return the similar-item task over the pages of one of `GROUPS` (Gillick 2018, section 3.3).

    Items are the distinct short texts: the summary of every page, and what others say of it. Those of one cluster are
    duplicates; near-misses are the summaries of linked pages, and a mention with the summary of the page it stands on.
    """
    pages, questions, links = (tables(slice_name)[table] for table in ("pages", "questions", "links"))
    pages = pages[pages.index.str.match(GROUPS[name][1]) & pages["summary"].str.contains(" ")]
    mentions = questions[(questions["source"] == "mention") & questions["cluster"].isin(pages.index)]
    summaries = pd.DataFrame({"text": pages["summary"], "cluster": pages.index, "origin": ""})
    items = pd.concat([summaries, mentions]).rename_axis("id")
    items = items[~items["text"].map(key).duplicated()]
    cluster, split = (pages[column].loc[items["cluster"]].set_axis(items.index) for column in ("cluster", "split"))
    first = items.index.to_series().groupby(cluster).transform("first")
    # A page to which more pages link is common ground (`numpy.ndarray`), not a near-miss of each of them.
    linked = links[links.groupby("target")["source"].transform("size") <= 20]
    left, right = [*first, *linked["source"], *items["origin"]], [*first.index, *linked["target"], *first.index]
    pairs = pd.DataFrame(np.sort([left, right], axis=0).T, columns=["left", "right"], dtype=object).drop_duplicates()
    pairs = pairs[pairs.isin(items.index).all(axis=1) & (pairs["left"] != pairs["right"])]
    label = (pairs["left"].map(cluster) == pairs["right"].map(cluster)).astype(int)
    return splits.retrieval_task(name, items["text"], pairs.assign(label=label), split, provenance(slice_name))


_TASKS = {"": page_questions, "-reqa": reqa, "-passages": with_summaries, "-source": source, "-target": target}
for _slice, _end in (("pydocs", ""), ("pydocs-smoke", "-smoke")):
    register_articles(_slice)(lambda name=_slice: articles(name))
    register_text(_slice)(lambda name=_slice: prose(name))
    for _task, _make in _TASKS.items():
        register(_name := f"pydocs{_task}{_end}")(lambda name=_name, of=_slice, make=_make: make(name, of))
for _name, (_slice, _) in GROUPS.items():
    register(_name)(lambda name=_name, of=_slice: similar(name, of))
