"""From docstrings, which numpydoc parses, to the tables of `pydocs`: pages, passages, questions and links.

It runs in a process of its own: what a notebook has imported does not change it, nor stay in memory (all chapters).
"""

import contextlib
import importlib
import inspect
import io
import pkgutil
import re
import sys
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType

import pandas as pd
from numpydoc.docscrape import NumpyDocString

from retlib.data.collection import Article
from retlib.data.datasets.pydocs import SLICES, key
from retlib.data.passages import passages
from retlib.data.splits import closure, split_by_cluster
from retlib.data.text import quick_sentences

SHARES = {"test": 0.2, "dev": 0.1}
MIN_WORDS = 5  # of a page that no other page mentions
MAX_SHORT_WORDS = 40  # of a mention or summary of which more than the first sentence is taken

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
        with contextlib.redirect_stdout(io.StringIO()):
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
    pages["cluster"] = paths.map(closure(pd.DataFrame(edges))).fillna(paths)
    pages["split"] = split_by_cluster(pages.index, pages["cluster"], SHARES)
    # No passage runs over the end of the opening.
    parts = ((page, number, part) for page in pages.index for number, part in enumerate(readings[page][1:3]))
    parts = (Article(f"{page} {number}", page, tuple(part), min(1, len(part))) for page, number, part in parts)
    documents = passages(parts)
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


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for _name, _table in build(SLICES[sys.argv[2]]).items():
        _table.to_parquet(f"{sys.argv[1]}/{_name}.parquet")
