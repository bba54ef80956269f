"""Corpora of one's own, named by where they lie: ``beir:PATH``, ``folder:PATH``, ``csv:PATH``, ``irds:ID``.

Such a name is valid wherever a chapter, the command line or a sweep takes a collection, articles or a text. A path that
is not absolute begins in the project's folder, wherever a notebook runs.
"""

from __future__ import annotations

import csv
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from zipfile import ZipFile

import pandas as pd

from retlib.core import runtime
from retlib.core.cache import checksum
from retlib.core.errors import DataError, require, require_one_of
from retlib.data import passages
from retlib.data.collection import SPLITS, Article, Collection
from retlib.data.datasets import _beir
from retlib.data.datasets._files import Entries, lines, zipped
from retlib.data.datasets._tasks import article, text_id
from retlib.data.datasets.catalogue import damaged

# What is read of a folder.
PAGES = (".txt", ".md", ".html", ".htm", ".jsonl")
LONGEST = 2**31 - 1  # letters of a field of a table
COLUMNS = ("id", "title", "text", "question")  # what is read of a table
# What opens or closes a block of code, and what stands behind it; between backticks stands code within a line.
FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
HEADING = re.compile(r"#{1,6}\s+(.*)")
# A target, and perhaps a title in quotes; what else stands in brackets is text.
LINK = re.compile(r"""!?\[([^\[\]]*)\]\(\s*<?([^)\s>]+)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)""")


@dataclass(frozen=True)
class Own:
    """A corpus of one's own.

    Parameters
    ----------
    name : str
        As it was asked for.
    collection : callable
        Gives it as a `Collection`; one that nobody asked anything has no queries.
    articles : callable
        Gives its articles.
    files : tuple of Path
        What it is read from; none of what another library reads.
    """

    name: str
    collection: Callable[[], Collection]
    articles: Callable[[], Iterator[Article]]
    files: tuple[Path, ...] = ()

    @property
    def provenance(self) -> dict[str, str]:
        """The corpus's name to a checksum of its files."""
        if len(self.files) == 1:
            return {self.name: checksum(self.files[0])}
        above = os.path.commonpath(self.files) if self.files else ""
        told = [f"{path.relative_to(above).as_posix()} {checksum(path)}" for path in self.files]
        return {self.name: sha256("\n".join(told).encode()).hexdigest()}


def find(name: str) -> Own | None:
    """The corpus of a name such as ``folder:notes``; None of a name that has not the form.

    Raises
    ------
    SettingError
        For an unknown form.
    DataError
        If there is nothing at the path.
    """
    form, colon, place = name.partition(":")
    if not colon:
        return None
    require_one_of(f"what stands before the colon of {name!r}", form, FORMS)
    require(place != "", f"{name!r}: a path or an id is missing behind the colon")
    found = FORMS[form][1](name, place)
    states = ((path, status.st_size, status.st_mtime_ns) for path in found.files for status in [path.stat()])
    return _FOUND.setdefault((name, *states), found)


def forms() -> list[str]:
    """The forms of such names, for errors."""
    return [f"{form}:<{place}>" for form, (place, _) in FORMS.items()]


def _path(name: str, place: str) -> Path:
    try:
        path = (runtime.root() / Path(place).expanduser()).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # also a name that is too long, or a home that is not known
        raise DataError(f"{name}: there is nothing at {place!r} ({error})") from error
    return path


def _files(folder: Path) -> list[Path]:
    """The files in a folder, in order, but for hidden ones; also behind links to folders.

    Links may lead in circles: each folder is read once, by its own name before a link's, and none that this one is in.
    """
    found, seen, starts = [], {*folder.parents}, [folder]
    for start in starts:
        for place, folders, files in os.walk(start):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            if (real := Path(place).resolve()) in seen:
                folders.clear()
                continue
            seen.add(real)
            starts += [link for each in folders if (link := Path(place, each)).is_symlink()]  # which walk leaves out
            found += [Path(place, each) for each in files if not each.startswith(".")]
    return sorted(each for each in found if each.is_file())


# --- BEIR, csv, ir-datasets ------------------------------------------------------------------------


def _of_beir(name: str, place: str) -> Own:
    path = _path(name, place)
    if path.is_dir():
        files = {each.relative_to(path).as_posix(): each for each in _files(path)}

        def read(file: str) -> Entries:
            return lines(name, path / file)
    else:
        try:
            with ZipFile(path) as archive:
                members = archive.namelist()
        except Exception as error:  # of many kinds
            raise damaged(name, str(path), f"neither a folder nor a zip archive ({error})") from error
        corpora = [each for each in members if posixpath.basename(each) == "corpus.jsonl"]
        require(len(corpora) == 1, f"{name}: {path} holds {len(corpora)} files corpus.jsonl, not one", DataError)
        inside = corpora[0].removesuffix("corpus.jsonl")
        files = {each.removeprefix(inside): path for each in members}

        def read(file: str) -> Entries:
            return zipped(name, path, inside + file)

    splits = [split for split in SPLITS if f"qrels/{split}.tsv" in files]
    asked = any(read("queries.jsonl")) if "queries.jsonl" in files and not splits else bool(splits)
    judged = {"qrels/", *(f"qrels/{split}.tsv" for split in SPLITS)}
    others = [
        f for f in files if f.startswith("qrels/") and f not in judged and not posixpath.basename(f).startswith(".")
    ]
    require(not others, f"{name}: {path} has {', '.join(others)}: splits are {', '.join(SPLITS)}", DataError)
    require(
        bool(splits) or not asked,
        f"{name}: {path} has queries.jsonl without judgments: they belong in qrels/test.tsv, train.tsv or dev.tsv; "
        "without queries.jsonl the texts alone are read",
        DataError,
    )
    used = ["corpus.jsonl", *(["queries.jsonl"] if splits else []), *(f"qrels/{split}.tsv" for split in splits)]
    for file in used:
        require(file in files, f"{name}: {path} has no {file}", DataError)
    made_of = tuple(dict.fromkeys(files[file] for file in used))
    return collected(name, made_of, lambda own: _beir.beir(name, read, splits, own.provenance))


def _of_csv(name: str, place: str) -> Own:
    path = _path(name, place)
    require(path.is_file(), f"{name}: {path} is no file; another form is folder:<path>", DataError)
    return collected(name, (path,), lambda own: _table(own, path))


def _table(own: Own, path: Path) -> Collection:
    """Rows with a `text`, perhaps an `id`, a `title`, and a `question` that the text answers; in capitals or not."""
    csv.field_size_limit(LONGEST)
    entries = lines(own.name, path)
    source = (line.lstrip("\ufeff") if number == 1 else line for number, line in entries.numbered)
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    reader = csv.DictReader(source, delimiter="\t" if tabs else ",", strict=True)
    documents: dict[str, tuple[str, str]] = {}
    asked: list[tuple[str, str, str]] = []
    try:
        reader.fieldnames = named = [each.strip().lower() for each in reader.fieldnames or []]
        if named.count("text") != 1 or len({*named}) < len(named):
            told = f"the columns are {', '.join(named)}" if named else "there is no line of names"
            between = "tabs" if tabs else "commas"
            raise entries.damaged(1, f"{told}: between {between} must be different ones with `text` among them")
        for each in named:
            # Near enough for one letter more, and not for `uid` or `question_id`, which are columns of their own.
            near = get_close_matches(each, [name for name in COLUMNS if name not in named], n=1, cutoff=0.85)
            if near and each not in COLUMNS:
                raise entries.damaged(1, f"the column `{each}` is not read: call it `{near[0]}`, or leave it out")
        for row in reader:
            # Lines within a field may be meant, but not where they have tabs, as a row has that a lost quote swallows.
            fields = [each for each in row.values() if each and "\n" in each]
            if tabs and any("\t" in each for each in fields):
                told = f"a quote runs on to line {reader.line_num}: double it, and put its field between quotes"
                raise entries.damaged(reader.line_num - sum(each.count("\n") for each in fields), told)
            try:
                doc_id = _beir.checked_id(row.get("id") or text_id(row["text"] or ""))
            except ValueError as error:
                raise entries.damaged(reader.line_num, str(error)) from error
            if None in row or None in row.values():
                raise entries.damaged(reader.line_num, f"not {len(reader.fieldnames)} columns")
            found = (row["text"].strip(), (row.get("title") or "").strip())
            if not any(found):
                raise entries.damaged(reader.line_num, "there is no text")
            if documents.setdefault(doc_id, found) != found:
                raise entries.damaged(reader.line_num, f"the id {doc_id!r} has another text before")
            if question := (row.get("question") or "").strip():
                asked.append((text_id(question), question, doc_id))
    except csv.Error as error:
        told = f"it is no table ({error}; the row begins below line {reader.line_num})"
        raise entries.damaged(reader.reader.line_num, told) from error
    if not documents:
        raise entries.damaged(2, "there is no row")
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"]).rename_axis("doc_id")
    if not asked:
        return Collection(own.name, frame, *_beir.unasked(), provenance=own.provenance)
    judged = pd.DataFrame(asked, columns=["query_id", "text", "doc_id"]).drop_duplicates(["query_id", "doc_id"])
    queries = judged.drop_duplicates("query_id").set_index("query_id")[["text"]].assign(split="train")
    queries, said = _beir.with_splits(queries)
    qrels = judged[["query_id", "doc_id"]].assign(relevance=1).reset_index(drop=True)
    return Collection(own.name, frame, queries, qrels, provenance={**own.provenance, **said})


def collected(name: str, files: tuple[Path, ...], make: Callable[[Own], Collection]) -> Own:
    """A corpus whose articles are its documents."""

    def articles() -> Iterator[Article]:
        documents = own.collection().documents.reindex(columns=["text", "title"], fill_value="")
        for doc_id, text, title in documents.itertuples():
            yield article(doc_id, title or doc_id, [_paragraphs(text)])

    own = Own(name, lambda: make(own), articles, files)
    return own


# --- folders ---------------------------------------------------------------------------------------


def _of_folder(name: str, place: str) -> Own:
    path = _path(name, place)
    other = "csv:<file>" if {".csv", ".tsv"} & {*path.suffixes} else f"folder:{path.parent}"
    require(path.is_dir(), f"{name}: {path} is no folder; another form is {other}", DataError)
    files = tuple(each for each in _files(path) if each.suffix.lower() in PAGES)
    require(len(files) > 0, f"{name}: {path} has no file of {', '.join(PAGES)}", DataError)
    wrong = [ascii(each.name) for each in files if re.search("[\udc80-\udcff]", str(each))]
    require(not wrong, f"{name}: the names {', '.join(wrong)} are not UTF-8: rename these files", DataError)

    def articles() -> Iterator[Article]:
        known = {each.relative_to(path).as_posix() for each in files}
        written = False
        for file in files:
            for page in _pages(name, file, file.relative_to(path).as_posix(), known):
                written = written or bool(page.passages)
                yield page
        require(written, f"{name}: no file of {path} has any text ({len(files)} read)", DataError)

    def collection() -> Collection:
        found = passages.passages(articles())
        found.index = found.index.str.replace(r"\s", lambda blank: quote(blank[0]), regex=True).rename("doc_id")
        return Collection(name, found, *_beir.unasked(), provenance=own.provenance)

    own = Own(name, collection, articles, files)
    return own


def _pages(name: str, path: Path, place: str, known: set[str]) -> Iterator[Article]:
    """The article of a file, named by its place in the folder; of JSON lines one for each."""
    entries = lines(name, path)
    if path.suffix.lower() == ".jsonl":

        def row(entry: dict) -> tuple[str, str]:
            title, text = _beir.checked_text(entry.get("title")), _beir.checked_text(entry["text"])
            if not text:
                raise ValueError("there is no text")
            return title, text

        for number, (title, text) in entries.of_json(row, "an entry with `text`, perhaps `title`").numbered:
            yield article(f"{place}:{number}", title or f"{place}:{number}", [_paragraphs(text)])
        return
    text = "".join(entries).lstrip("\ufeff")
    page = _html(text) if path.suffix.lower() in (".html", ".htm") else _marked(text, path.suffix.lower() == ".md")
    title, sections, links = page
    sections = sections if any(sections) else [_paragraphs(title)]  # there is nothing else
    leads = (posixpath.normpath(posixpath.join(posixpath.dirname(place), link)) for link in map(_target, links))
    yield article(place, title or Path(place).stem, sections, [each for each in dict.fromkeys(leads) if each in known])


def _target(link: str) -> str:
    """The file that a link names, without its place in it; "" of another address."""
    try:
        parts = urlsplit(link)
    except ValueError:  # half an address of the sixth version
        return ""
    return "" if parts.scheme or parts.netloc else unquote(parts.path)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _heading(line: str) -> str:
    """What a heading says: without the marks that may close it, which stand apart."""
    words = line.rstrip()
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else words


def _marked(text: str, markdown: bool) -> tuple[str, list[list[str]], list[str]]:
    """Title, the paragraphs of each section, and links of a text; only Markdown has headings and links.

    A heading is the first paragraph of its section, unless it is the title.
    """
    title, sections, links, fenced = "", [""], [], ""
    for line in text.splitlines():
        fence = FENCE.match(line) if markdown else None
        if fence and not fenced:
            fenced = fence[1]
        elif fence and fence[1].startswith(fenced) and not fence[2].strip():
            fenced = ""
        heading = HEADING.match(line) if markdown and not fenced else None
        if heading:
            words = _heading(heading[1])
            sections.append(f"{words}\n\n" if title else "")
            title = title or words
        else:
            links += [target for _, target in LINK.findall(line)] if markdown else []
            sections[-1] += (LINK.sub(r"\1", line) if markdown else line) + "\n"
    return title, [_paragraphs(each) for each in sections], links


def _html(text: str) -> tuple[str, list[list[str]], list[str]]:
    """Title, the paragraphs of each section, and links of a page."""
    page = _Page()
    page.feed(text)
    page.close()
    page.flush()
    return page.title or page.first, page.sections, page.links


class _Page(HTMLParser):
    """Collects running text between headings."""

    BREAKS = frozenset(
        "p div li td th tr br ul ol table section article blockquote pre dt dd h1 h2 h3 h4 h5 h6".split()
    )
    UNSEEN = frozenset(("script", "style", "template", "svg"))

    def __init__(self) -> None:
        super().__init__()
        self.title, self.first, self.links, self.sections = "", "", [], [[]]
        self._text, self._open, self._heading, self._names = [], 0, False, False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._names = not self.title and not self._open
        elif tag == "body":  # whatever was not closed before
            self._open, self._names = 0, False
        elif tag in self.UNSEEN:
            self._open += 1
        if tag in self.BREAKS:
            self.flush()
        if re.fullmatch("h[1-6]", tag):
            self._heading = True
            self.sections.append([])
        if tag == "a":
            self.links += [value for name, value in attributes if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._names = False
        elif tag in self.UNSEEN:
            self._open = max(0, self._open - 1)
        if tag in self.BREAKS:
            self.flush()

    def handle_data(self, data: str) -> None:
        if self._names:
            self.title = " ".join([*self.title.split(), *data.split()])
        elif not self._open:
            self._text.append(data)

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Take what opens like a section of SGML for a comment, as browsers do; the library asserts it is none."""
        return self.parse_bogus_comment(i)

    def flush(self) -> None:
        """End a paragraph, or a heading."""
        text = " ".join("".join(self._text).split())
        self._text = []
        names = self._heading and text == (self.title or self.first or text)
        self.first, self._heading = self.first or (text if self._heading else ""), False
        if text and not names:
            self.sections[-1].append(text)


# One and the same while its files do not change, so that what was made of it is found again.
_FOUND: dict[tuple, Own] = {}
# Form to what stands behind its colon, and what reads it; other readers add theirs.
FORMS: dict[str, tuple[str, Callable[[str, str], Own]]] = {
    "beir": ("folder or zip", _of_beir),
    "csv": ("file", _of_csv),
    "folder": ("path", _of_folder),
}
