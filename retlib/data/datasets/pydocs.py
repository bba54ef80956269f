"""pydocs, the embedded collections: the docstrings of the Python packages installed with the book.

A documented public object is an article, what stands before its first title is the opening, and the names under "See
Also" and its cross-references are hyperlinks. What one page says of *another* is a question whose answer is certain; it
is taken out of the text. They are read once for the installed versions (profiles smoke and quick, all chapters).
"""

import importlib.metadata
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from platform import python_version
from types import ModuleType

import numpy as np
import pandas as pd
from numpydoc.docscrape import NumpyDocString

from retlib.core.cache import artefact, checksum
from retlib.core.errors import DataError, require
from retlib.data import collection, passages
from retlib.data.collection import Article, Collection
from retlib.data.datasets import register, register_articles, register_text
from retlib.data.datasets.released import Passage, answer_retrieval, candidates, sentence_spans
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
MIN_WORDS = 5  # of a page that no other page mentions
MAX_SHORT_WORDS = 40  # of a mention or summary of which more than the first sentence is taken


def key(text: str) -> str:
    """Return what two texts share that differ in case, white space and punctuation only."""
    return " ".join(words(text))


# --- from docstrings to tables ---------------------------------------------------------------------

# Modules that are no documentation, that not every machine has, or that do something when they are imported.
_SKIPPED = re.compile(
    r"_|(tests?|testing|conftest|setup|core|externals|f2py|distutils|backends|pylab|sphinxext|ft2font|dviread|scripts"
    r"|nosy|downloader|antigravity|crypt|curses|dbm|encodings|ensurepip|fcntl|grp|idlelib|lib2to3|msilib|msvcrt|nis|nt\w*"
    r"|ossaudiodev|popen_\w+|posix\w*|pty|pwd|pydoc_data|readline|resource|site|spwd|syslog|termios|this|tkinter|tty"
    r"|turtle\w*|unix_\w+|venv|windows_\w+|winreg|winsound)$"
)


def _modules(pattern: str) -> Iterator[ModuleType]:
    # A module, and those below where the pattern ends in a star; what cannot be imported is left out.
    name = pattern.removesuffix(".*")
    if name != pattern and _SKIPPED.match(name.rpartition(".")[2]):
        return
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):  # an absent optional dependency can fail in any way
        return
    yield module
    for child in pkgutil.iter_modules(getattr(module, "__path__", ())) if name != pattern else ():
        yield from _modules(f"{name}.{child.name}.*")


def _home(thing: object) -> str:
    return str(getattr(thing, "__module__", None) or "").partition(".")[0]


def _walk(path: str, thing: object, roots: Container[str], inherited: bool = False, imported: bool = False) -> Iterator:
    # Path, object, whether a base class defines it, and whether another module does, of a module or class and of all
    # that it offers: a module what is in `__all__`, else what it defines, and a package what its own modules define.
    yield path, thing, inherited, imported
    if isinstance(thing, ModuleType):
        listed = getattr(thing, "__all__", None)
        for name in vars(thing) if listed is None else listed:
            member = vars(thing).get(name)
            elsewhere = getattr(member, "__module__", None) != thing.__name__
            is_offered = listed is not None or hasattr(thing, "__path__") or not elsewhere
            is_own = not isinstance(member, ModuleType) and (not _home(member) or _home(member) in roots)
            if is_offered and is_own and not name.startswith("_"):
                yield from _walk(f"{path}.{name}", member, roots, False, elsewhere)
    elif isinstance(thing, type) and not inherited:
        bases = [base for base in reversed(thing.__mro__) if _home(base) in roots]
        members = {name: (base is not thing, raw) for base in bases for name, raw in vars(base).items()}
        for name, (is_inherited, raw) in members.items():  # an accessor (`pandas.Series.str`) is its class
            member = raw.__func__ if isinstance(raw, staticmethod | classmethod) else getattr(raw, "_accessor", raw)
            is_other = isinstance(member, type) and (_home(member) not in roots or member in thing.__mro__)
            if not name.startswith("_") and not is_other:
                yield from _walk(f"{path}.{name}", member, roots, is_inherited, imported)


_SIGNATURES = re.compile(r"\A(?:(?:class |static )?[A-Za-z_][\w.]* ?\([^\n]*\) *(?:(?:-+|=+)>[^\n]*)?(?:\n+|\Z))+")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@cache
def _clean(doc: str) -> str:
    # Without signatures; what pybind11 writes where a person has written nothing is no docstring.
    return "" if "\nOverloaded function." in doc else _ADDRESS.sub("", _SIGNATURES.sub("", inspect.cleandoc(doc)))


def documented(packages: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return every public path with its docstring, and with its page, which is one for all of the same docstring."""
    docs, best = {}, {}
    for package, patterns in packages.items():
        modules = [module for pattern in patterns.split() for module in _modules(pattern)]
        names = {module.__name__.partition(".")[0] for module in modules}
        roots = sys.stdlib_module_names if package == "python" else names
        for path, thing, inherited, imported in (row for each in modules for row in _walk(each.__name__, each, roots)):
            doc = getattr(thing, "__doc__", None)
            is_of_type = not isinstance(thing, type | ModuleType) and doc == type(thing).__doc__
            if isinstance(doc, str) and not is_of_type and (doc := _clean(doc)):
                rank = (inherited, path.count("."), imported, len(path), path)
                best[doc] = min(rank, best.get(doc, rank))
                docs.setdefault(path, doc)
    return docs, {path: best[doc][-1] for path, doc in docs.items()}


def resolve(name: str, page: str, page_of: Mapping[str, str]) -> str | None:
    """Return the other page that a dotted name on a page refers to: below it, below what is above it, or as it is."""
    name, above = name.strip("~."), [page.rsplit(".", cut)[0] for cut in range(page.count(".") + 1)]
    targets = (page_of.get(path) for path in (*(f"{scope}.{name}" for scope in above), name))
    return next((target for target in targets if target not in (None, page)), None)


class _Docstring(NumpyDocString):
    # numpydoc's parser, which keeps sections of any title here.
    def __setitem__(self, section: str, content: object) -> None:
        self._parsed_data[section] = content


_UNREAD = {"Signature", "Summary", "Extended Summary", "See Also", "References", "References:", "index"}
_GOOGLE = re.compile(r"(?m)^([A-Z][A-Za-z ]+::?)\n+(?= +\S)")  # "Args:", whose colon makes it none of numpydoc's titles
_ARGUMENT = re.compile(r"(?m)^ +(\w+)(?: ?\([^)\n]*\))?: ")
_NAME = r"~?\.?([A-Za-z_][\w.]*)"
_REFERENCE = re.compile(rf":[\w:+-]+:`[^`<]*<{_NAME}>`|(?::[\w:+-]+:|(?<![`\w:]))`!?{_NAME}(?:\(\))?`(?![`_])")
_LISTED = re.compile(r"(?m)^ *(?:[-*] )?(?::\w+:)?`?~?([\w.]+)`?(?:\([^()\n]*\))?(?: +-+ +| *: +|  +)(\w.* .*)$")

_WORD = re.compile(r"[^\W\d_]{2}")
_BLOCK = r"(?:\n(?:\1 +\S.*| *$))*"  # what is blank or deeper than the line above
_MARKUP = {
    r"(?m)^( *)\.\. (?:note|warning|important|tip|hint|attention|caution|admonition|topic):: *": r"\1",
    rf"(?m)^( *)\.\. .*{_BLOCK}": "\n",  # other directives, comments and footnotes
    rf"(?m)^( *)(\S.*):: *${_BLOCK}": "\\1\\2:\n",  # literal blocks
    r"(?m)^ *(?:>>>|In \[|\$ |[+|]|[=-]{2,} +[=-]{2,}).*(?:\n *\S.*)*": "",  # examples and tables
    r"(?m)^ *[-=~^*\"'#+]{3,} *$": "",  # underlines
    r"(?m)^ *(?:[-*+•]|\(?\d+[.)]) +": "\n",  # items of lists
    r":[\w:+-]+:`[~!]?([^`<]*?)\s*(?:<[^`>]*>)?`": r"\1",  # roles
    r"``?[~!]?([^`]+?)(?:\s*<[^`>]*>)?``?_{0,2}": r"\1",  # names, code and hyperlinks
    r"\s*\[[#\w]+\]_": "",  # footnotes
    r"(?<![\w*])\*{1,2}(\w(?:[^*]*[\w.!?)])?)\*{1,2}(?![\w*])": r"\1",  # emphasis
}


def paragraphs(lines: Iterable[str]) -> list[str]:
    """Return the paragraphs of lines of reStructuredText, each in one line, without code and without marks."""
    text = "\n".join(lines)
    for pattern, by in _MARKUP.items():
        text = re.sub(pattern, by, text)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [block for block in blocks if _WORD.search(block)]


def _short(lines: Iterable[str]) -> str:
    text = " ".join(paragraphs(lines))
    first = quick_sentences(text)[0].split()[:MAX_SHORT_WORDS]
    return text if text.count(" ") < MAX_SHORT_WORDS else " ".join(first)


def read(path: str, doc: str, pages: Container[str]) -> tuple[str, list[str], list[str], list[tuple[str, str]]]:
    """Return summary, paragraphs of the opening and of the rest, and each name on a page with what is said of it.

    What is said of other pages is not in the paragraphs: under "See Also", and of `pages` below the path, which a
    module may list anywhere and a class under the titles Attributes and Methods.
    """
    names = []

    def take(match: re.Match) -> str:
        member = f"{path}.{match[1]}"
        names.extend([(member, _short([match[2]]))] if member in pages else [])
        return "\n" if member in pages else match[0]

    parameters = set(_ARGUMENT.findall(doc))
    doc = _GOOGLE.sub(f"\n\\1\n{40 * '-'}\n", _LISTED.sub(take, doc) if path in sys.modules else doc)
    try:
        parsed = _Docstring(doc)
    except ValueError:  # of 22,000 some 20 have a "See Also" that is none
        parsed = _Docstring(re.split(r"(?m)^.*\n *[-=]{3,} *$", doc)[0])
    for also, lines in parsed["See Also"]:
        names += [(name, _short(lines) if len(also) == 1 else "") for name, _ in also]
    rest = []
    for title in [title for title, content in parsed.items() if content and title not in _UNREAD]:
        if isinstance(parsed[title][0], str):
            rest += paragraphs(parsed[title])
            continue
        for entry in parsed[title]:
            name = entry.name.partition("(")[0]
            parameters.update(name.replace("*", "").split(", "))
            if title in ("Attributes", "Methods") and f"{path}.{name}" in pages:
                names.append((f"{path}.{name}", _short(entry.desc)))
            elif ": " in (text := " ".join(paragraphs([f"{name or entry.type}:", *entry.desc]))):
                rest.append(text)
    names += [(name, "") for name in sorted({"".join(groups) for groups in _REFERENCE.findall(doc)} - parameters)]
    opening = [*paragraphs(parsed["Summary"]), *paragraphs(parsed["Extended Summary"])]
    return _short(parsed["Summary"]), opening, rest, names


# What makes sense only on the page where it stands: "Equivalent method.", "like this function, but faster".
_CONTEXTUAL = re.compile(
    r"(?i)(?:(?:an?|the) )?(?:equivalent|similar|same|related|corresponding|identical|analogous|opposite|alias|inverse"
    r"|reciprocal|counterpart|alternative|another|see)\b(?:\W+\w+){0,6}\W*$|[.`:]"
    r"|.*\b(?:this|above) (?:function|method|class|routine|module|property|attribute|one|kernel|index|object)\b"
)


def build(packages: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Return the tables of some packages (names to modules, as `PACKAGES`), sorted by path.

    ``pages`` (by path: summary, cluster, split, opening), ``passages`` (by id: text, title, article, position),
    ``questions`` (by id: text, cluster, origin, source, rest, split), ``links`` (source, target). `opening` counts
    passages; `rest` is the opening passage without the summary that asks for it. Pages are of one *cluster*, the
    smallest path among them, when their summaries are the same, or when one links to another of its name
    (`numpy.ndarray.sum` to `numpy.sum`): to a reader they answer the same question, so a split must not part them.
    """
    docs, page_of = documented(packages)
    readings = {page: read(page, docs[page], docs) for page in sorted(set(page_of.values()))}
    names = ((page, name, text) for page, (*_, pairs) in readings.items() for name, text in pairs)
    links = sorted({(page, target, text) for page, name, text in names if (target := resolve(name, page, page_of))})
    links = pd.DataFrame(links, columns=["source", "target", "text"])
    is_question = links["text"].map(key).str.contains(" ") & ~links["text"].str.match(_CONTEXTUAL)
    pages = pd.DataFrame.from_dict(readings, orient="index", columns=["summary", "opening", "rest", "names"])
    whole = (pages.pop("opening") + pages.pop("rest")).map(" ".join)
    is_full = (whole.str.split().str.len() >= MIN_WORDS) | pages.index.isin(links["target"][is_question])
    pages = pages[["summary"]][(whole != "") & is_full]
    is_inside = links[["source", "target"]].isin(pages.index).all(axis=1)
    mentions = links[is_question & is_inside].set_axis(["origin", "cluster", "text"], axis=1)
    links = links[is_inside].drop(columns="text").drop_duplicates(ignore_index=True)
    keys, paths = pages["summary"].map(key), pages.index.to_series()
    first = paths.groupby(keys).transform("min")[keys != ""]
    # `AvgPool3d` and `avg_pool3d` are one name.
    ends = links.apply(lambda paths: paths.str.rpartition(".")[2].str.replace("_", "").str.lower())
    same = links[ends["source"] == ends["target"]]
    edges = {"left": [*first.index, *same["source"]], "right": [*first, *same["target"]], "label": 1}
    pages["cluster"] = paths.map(collection.closure(pd.DataFrame(edges))).fillna(paths)
    pages["split"] = collection.split_by_cluster(pages.index, pages["cluster"], {"test": 0.2, "dev": 0.1})
    # No passage runs over the end of the opening.
    parts = ((page, number, part) for page in pages.index for number, part in enumerate(readings[page][1:3]))
    documents = passages.passages(Article.of(f"{page} {number}", page, [part]) for page, number, part in parts)
    is_opening = documents["article"].str.endswith(" 0")
    pages["opening"] = is_opening.groupby(documents["title"]).sum().clip(lower=1)
    documents = documents.assign(article=documents["title"], position=documents.groupby("title").cumcount())
    documents.index = (documents["article"] + "#" + documents["position"].astype(str)).rename("doc_id")
    questions = _questions(pages, mentions, documents)
    return {"pages": pages, "passages": documents, "questions": questions, "links": links}


def _questions(pages: pd.DataFrame, mentions: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    # Mentions of one page only, whose opening no other page has; of training pages without mentions, the summaries that
    # say which page is meant, if enough of the opening is left without them.
    texts = documents["text"].groupby(documents["article"]).agg(list)
    keys, summaries = mentions["text"].map(key), pages["summary"].map(key)
    is_lone = (mentions.groupby(keys)["cluster"].transform("nunique") == 1) & ~keys.duplicated()
    is_lone &= ~mentions["cluster"].map(texts.str[0].duplicated(keep=False))
    mentions = mentions[is_lone].sort_values(["cluster", "text"])
    mentions.index = mentions["cluster"] + "?" + mentions.groupby("cluster").cumcount().astype(str)
    is_taken = summaries.duplicated(keep=False) | summaries.isin(keys) | ~summaries.str.contains(" ")
    others = pages[["summary"]][(pages["split"] == "train") & ~is_taken & ~pages.index.isin(mentions["cluster"])]
    others["rest"] = list(map(_rest, others["summary"], texts[others.index]))
    is_copy = others["rest"].duplicated(keep=False) | others["rest"].isin(documents["text"])
    others = others[(others["rest"] != "") & ~is_copy].rename(columns={"summary": "text"})
    others = others.assign(cluster=others.index, origin="", source="summary").add_suffix("?summary", axis=0)
    questions = pd.concat([mentions.assign(source="mention", rest=""), others]).rename_axis("query_id")
    return questions.assign(split=pages["split"][questions["cluster"]].array)


def _rest(summary: str, texts: list[str]) -> str:
    rest = texts[0].removeprefix(summary).strip()
    is_repeated = f" {key(summary)} " in f" {key(' '.join([rest, *texts[1:]]))} "
    return rest if len(rest.split()) >= MIN_WORDS and not is_repeated else ""


def save(slice_name: str, folder: str) -> None:
    """Write the tables of one of `SLICES`, in a process of its own: what a notebook imported does not change them."""
    for name, table in build(SLICES[slice_name]).items():
        table.to_parquet(f"{folder}/{name}.parquet")


# --- from tables to collections --------------------------------------------------------------------


def provenance(name: str) -> dict[str, str]:
    """Return what the articles called `name` are read from: packages with their versions."""
    return {each: python_version() if each == "python" else importlib.metadata.version(each) for each in SLICES[name]}


@cache
def tables(slice_name: str) -> dict[str, pd.DataFrame]:
    """Return the tables of one of `SLICES` (see `build`), from the cache if these versions were read before."""

    def make(folder: Path) -> None:
        environment = os.environ | {"PYTHONHASHSEED": "0", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
        code = f"from {__name__} import save; save({slice_name!r}, {str(folder.resolve())!r})"
        command = [sys.executable, "-W", "ignore", "-c", code]
        ended = subprocess.run(command, env=environment, cwd=here.parents[3], capture_output=True, text=True)
        wrong = f"pydocs: the docstrings of slice {slice_name!r} cannot be read: {ended.stderr[-2000:]}"
        require(ended.returncode == 0, wrong, DataError)

    here = Path(__file__)
    files = here, *(here.parents[1] / f"{name}.py" for name in ("collection", "passages", "text"))
    settings = {"slice": slice_name, "versions": provenance(slice_name), "python": python_version()}
    folder = artefact("pydocs", VERSION, {**settings, "sources": [*map(checksum, files)]}, make)
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
    position = [1 - collection.hash_position(f"0:{cluster}") for cluster in clusters.loc[targets]]
    queries = whole.queries.assign(article=targets, cluster=targets + "#0", ambiguous=False, position=position)
    documents = candidates({passage.article: passage for passage in contexts.values()})
    made = answer_retrieval(name, documents, queries.reset_index(names="query_id"))
    return replace(made, provenance=whole.provenance)


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
    made = collection.retrieval_task(name, items["text"], pairs.assign(label=label), split)
    return replace(made, provenance=provenance(slice_name))


_TASKS = {"": page_questions, "-reqa": reqa, "-passages": with_summaries, "-source": source, "-target": target}
for _slice, _end in (("pydocs", ""), ("pydocs-smoke", "-smoke")):
    register_articles(_slice)(lambda name=_slice: articles(name))
    register_text(_slice)(lambda name=_slice: prose(name))
    for _task, _make in _TASKS.items():
        register(_name := f"pydocs{_task}{_end}")(lambda name=_name, of=_slice, make=_make: make(name, of))
for _name, (_slice, _) in GROUPS.items():
    register(_name)(lambda name=_name, of=_slice: similar(name, of))
