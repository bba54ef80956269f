"""Corpora of one's own, named by where they lie: ``beir:PATH``, ``folder:PATH``, ``csv:PATH`` (chapter 60).

Such a name is valid wherever a collection, articles or a text are named. What is left out of them is counted.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from io import StringIO
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote, unquote
from zipfile import Path as Member
from zipfile import ZipFile

import pandas as pd

from retlib.core import runtime
from retlib.core.cache import checksum
from retlib.core.errors import DataError, require, require_one_of
from retlib.data import passages
from retlib.data.collection import SPLITS, Article, Collection
from retlib.data.datasets import _beir
from retlib.data.datasets._beir import BLANK, Entries, checked_text
from retlib.data.datasets._tasks import article, text_id
from retlib.data.datasets.catalogue import MOST, catalogue

MARKDOWN, HTML = (".md", ".markdown", ".rst"), (".html", ".htm")
HIDDEN = re.compile(r"\.|__MACOSX$")  # which a desktop packs beside what it was asked for
PAGES = (".txt", *MARKDOWN, *HTML, ".jsonl")  # what is read of a folder, packed by gzip or not
COLUMNS = {"id", "title", "text", "question"}  # what is read of a table, the text at least, in capitals or not
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
BLOCKS = [*"title p div li td th tr ul ol table section article blockquote pre dt dd".split(), *HEADINGS]
SECTION, PARAGRAPH = "\x1d", "\x1e"  # what stands where one begins, and ends; both are white space in a page
# Settings above a page, of YAML or of TOML; what is none, such as text between two rules, stays text.
SETTINGS = re.compile(r"(---|\+\+\+)[ \t]*\n((?:\s*#.*\n)*\s*[\w\"'-]+[ \t]*[:=].*?)^(?:\1|\.\.\.)[ \t]*$", re.M | re.S)
TITLE = re.compile(r"""^title[ \t]*[:=][ \t]*(?:[>|][+-]?\s*)?["']?(.*?)["']?[ \t]*$""", re.M | re.I)
RST_HEADING = re.compile(r"^(?:([^\w\s])\1{2,}[ \t]*\n)?[ \t]*(\S.*)\n([^\w\s])\3{2,}[ \t]*$", re.M)


@dataclass(frozen=True)
class Own:
    """A corpus of one's own: its files, if any, what makes it a collection, and its articles, if not its documents."""

    name: str
    files: tuple[Path, ...]
    make: Callable[[Own], Collection]
    pages: Callable[[Counter[str]], Iterator[Article]] | None = None  # which counts those that are blank

    def collection(self) -> Collection:
        """Return the corpus as a collection; one that nobody asked anything has no queries."""
        return self.make(self)

    def articles(self) -> Iterator[Article]:
        """Return the articles of the corpus."""
        if self.pages:
            return self.pages(Counter())
        documents = self.collection().documents.reindex(columns=["title", "text"], fill_value="").itertuples()
        return (article(doc_id, title or doc_id, [_paragraphs(text)]) for doc_id, title, text in documents)

    @property
    def provenance(self) -> dict[str, str]:
        """The corpus's name to a checksum of its files."""
        if len(self.files) == 1:
            return {self.name: checksum(self.files[0])}
        above = os.path.commonpath(self.files) if self.files else ""
        sums = [f"{path.relative_to(above).as_posix()} {checksum(path)}" for path in self.files]
        return {self.name: sha256("\n".join(sums).encode()).hexdigest()}


def find(name: str) -> Own | None:
    """Return the corpus of a name such as ``folder:notes``, or None of one without a colon; else `RetlibError`."""
    form, colon, place = name.partition(":")
    if not colon:
        return None
    require_one_of(f"what stands before the colon of {name!r}", form, FORMS)
    require(place != "", f"{name!r}: a path or an id is missing behind the colon")
    own = FORMS[form][1](name, place)
    states = ((path, status.st_size, status.st_mtime_ns) for path in own.files for status in [path.stat()])
    return _OWN.setdefault((name, *states), own)


def forms() -> list[str]:
    """Return the forms of such names, for errors."""
    return [f"{form}:<{place}>" for form, (place, _) in FORMS.items()]


def _path(name: str, place: str) -> Path:
    try:
        return (runtime.root() / Path(place).expanduser()).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # also a name that is too long, or a home that is not known
        raise DataError(f"{name}: {getattr(error, 'strerror', error)}; paths begin in {runtime.root()}") from error


def _files(folder: Path) -> dict[str, Path]:
    # Links may lead in circles: a folder is read once, and none that this one is in.
    files, seen = [], {*folder.parents}
    for place, folders, names in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        folders[:] = [] if real in seen else [each for each in folders if not HIDDEN.match(each)]
        folders.sort(key=lambda each, place=place: (Path(place, each).is_symlink(), each))
        files += [] if real in seen else [Path(place, each) for each in names if not HIDDEN.match(each)]
        seen.add(real)
    return {each.relative_to(folder).as_posix(): each for each in sorted(files) if each.is_file()}


def _members(name: str, path: Path) -> dict[str, Member]:
    try:
        archive = ZipFile(path)
    except Exception as error:  # of many kinds
        raise DataError(f"{name}: it is neither a folder nor a zip archive ({error})") from error
    members = [each for each in archive.namelist() if not any(map(HIDDEN.match, each.split("/")))]
    require(len({*members}) == len(members), f"{name}: it holds a file several times", DataError)
    return {each: Member(archive, each) for each in members if not each.endswith("/")}


def _counted(places: Iterable[str], read: list[str]) -> dict[str, int | str]:
    endings = Counter(Path(each).suffix.lower() or "without ending" for each in {*places} - {*read})
    others = ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
    return {"files read": len(read), "files passed over": others}


def _text(file: Path | Member, ending: str = "") -> str:
    raw = file.read_bytes()
    raw = gzip.decompress(raw) if file.name.lower().endswith(".gz") else raw
    encoding = json.detect_encoding(raw)  # which also guesses where there is no mark
    encoding = encoding if encoding in ("utf-16", "utf-32") else "utf-8"
    if ending in HTML and encoding == "utf-8":
        from bs4.dammit import EncodingDetector

        declared = EncodingDetector.find_declared_encoding(raw, is_html=True) or encoding
        # As browsers do: what declares itself in letters of one byte has none of two.
        with suppress(LookupError, ValueError):
            return raw.decode({"iso-8859-1": "cp1252", "utf-16": encoding}.get(declared, declared))
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
        place = text.find("\0")  # which no text has
    except UnicodeDecodeError as error:
        place = error.start
    if place < 0:
        return text
    from charset_normalizer import from_bytes

    start = place - place % 4096
    names = [name for each in from_bytes(raw[start : start + 8192]) for name in each.could_be_from_charset]
    likely = "cp1252" if "cp1252" in names else [*names, "that of no text"][0]  # of those that fit the most frequent
    raise ValueError(f"byte {place} is not UTF-8, the encoding is likely {likely}")


def _content(dataset: str, place: str, file: Path | Member) -> str:
    try:
        return _text(file)
    except Exception as error:  # of many kinds: of each way of packing its own
        why = f"it cannot be read ({str(error)[:MOST]}): save it as UTF-8, or fetch it anew"
        raise DataError(f"{dataset}: {place}: {why}.") from error


def _lines(dataset: str, place: str, text: str) -> Entries:
    lines = enumerate(StringIO(text, newline=""), 1)
    filled = ((number, line) for number, each in lines if (line := each.strip("\ufeff \t\r\n")))
    return Entries(dataset, place, filled)


def _of_beir(name: str, place: str) -> Own:
    path = _path(name, place)
    files = _files(path) if path.is_dir() else _members(name, path)
    folders = {each.rpartition("corpus")[0] for each in files if re.search(r"(^|/)corpus\.jsonl(\.gz)?$", each)}
    require("" in folders or len(folders) == 1, f"{name}: it holds {len(folders)} corpus.jsonl, not one", DataError)
    inside = "" if "" in folders else folders.pop()
    places = [each for each in sorted(files)[::-1] if each.startswith(inside)]
    # A file that is there twice, packed and not, is read as it is.
    parts = {each.removeprefix(inside).removesuffix(".gz"): each for each in places}

    def read(part: str) -> Entries:
        return _lines(name, parts[part], _content(name, parts[part], files[parts[part]]))

    splits = [split for split in SPLITS if f"qrels/{split}.tsv" in parts]
    used = ["corpus.jsonl", *["queries.jsonl"][: len(splits)], *(f"qrels/{split}.tsv" for split in splits)]
    wrong = [f"no {each}" for each in used if each not in parts]
    wrong += [each for each in parts if each.startswith("qrels/") and each not in used]
    if not splits and "queries.jsonl" in parts and any(read("queries.jsonl").numbered):
        wrong.append("queries.jsonl without judgments")
    expected = "judgments are qrels/train.tsv, dev.tsv, test.tsv"
    require(not wrong, f"{name}: it has {', '.join(wrong)}; {expected}", DataError)
    used = [parts[each] for each in used]

    def make(own: Own) -> Collection:
        # Texts of a release stay as they are, and have no facts about files; those of one's own become NFC.
        releases = {file.sha256 for entry in catalogue().values() for file in entry.files}
        facts = None if releases & {*own.provenance.values()} else _counted(files, used)
        form, counts, (queries, qrels) = "NFC" if facts else "", Counter(), _beir.unasked()

        def frame(part: str, columns: list[str]) -> pd.DataFrame:
            return _beir.texts(read(part), json.loads, columns, ["_id"], counts, form).set_index("_id")

        documents = frame("corpus.jsonl", ["text", "title"])
        if splits:
            queries = frame("queries.jsonl", ["text"])
            ids = queries.index, documents.index
            parts = {split: _beir.judgments(read(f"qrels/{split}.tsv"), *ids, counts) for split in splits[::-1]}
            qrels = pd.concat(parts, names=["split"]).reset_index("split")
        return _beir.complete_collection(name, documents, queries, qrels, own.provenance, counts, facts)

    return Own(name, tuple(files[each] for each in used) if path.is_dir() else (path,), make)


def _table(own: Own) -> Collection:
    csv.field_size_limit(2**31 - 1)
    path = own.files[0]
    entries, lines = Entries("csv", str(path), ()), StringIO(_content("csv", str(path), path), newline="")
    marks = "\t,;" if ".tsv" in path.name.lower() else ",;\t"
    head = next(lines, "")
    heads = {mark: [each.strip().lower() for each in next(csv.reader([head], delimiter=mark), [])] for mark in marks}
    mark = max(marks, key=lambda mark: ("text" in heads[mark], len(heads[mark])))
    names = [name for name in heads[mark] if name]
    if names.count("text") != 1 or len({*names}) < len(names):
        raise entries.damaged(1, f"the columns are {', '.join(names) or 'unnamed'}: one must be `text`, and none twice")
    for name in {*names} - COLUMNS:
        # Near enough for one letter more, and not for `uid` or `question_id`, which are columns of their own.
        if near := get_close_matches(name, COLUMNS - {*names}, n=1, cutoff=0.85):
            raise entries.damaged(1, f"the column `{name}` is not read: call it `{near[0]}`, or leave it out")

    def cells(row: list[str]) -> dict[str, str]:
        # Lines within a field may be meant, but not where they have tabs, as a row has that a lost quote swallows.
        if mark == "\t" and any("\n" in each and "\t" in each for each in row):
            raise ValueError("a quote runs on: double it, and put its field between quotes")
        if len(row) != len(heads[mark]):
            raise ValueError(f"{len(row)} columns, not {len(heads[mark])}")
        entry = dict(zip(heads[mark], row, strict=True))
        words = [normalize("NFC", entry.get(each, "").strip()) for each in ("title", "text")]
        return {**entry, "_id": entry.get("id", "").strip() or text_id("\n".join(words).strip())}

    reader, counts = csv.reader(lines, delimiter=mark, strict=True), Counter()
    rows = replace(entries, numbered=((1 + reader.line_num, row) for row in reader if any(map(str.strip, row))))
    try:
        frame = _beir.texts(rows, cells, ["text", "title", "question"], ["_id", "question"], counts, "NFC")
    except csv.Error as error:
        raise entries.damaged(1 + reader.line_num, f"it is no table ({error})") from error
    documents = _beir.unique_rows(rows, frame[["_id", "text", "title"]], ["_id"], Counter()).set_index("_id")
    pairs = frame[frame["question"] != ""].assign(query_id=lambda pairs: pairs["question"].map(text_id), relevance=1)
    qrels = pairs.rename(columns={"_id": "doc_id"})[_beir.QRELS]
    queries = pairs.drop_duplicates("query_id").set_index("query_id")[["question"]].set_axis(["text"], axis=1)
    facts = _counted([path.name], [path.name])
    return _beir.complete_collection(own.name, documents, queries, qrels, own.provenance, counts, facts)


def _of_folder(name: str, place: str) -> Own:
    path = _path(name, place)
    require(path.is_dir(), f"{name}: it is no folder; another form is csv:<file>", DataError)
    files = _files(path)
    endings = {each: Path(each.lower().removesuffix(".gz")).suffix for each in files}
    read = [each for each in files if endings[each] in PAGES]
    facts = _counted(files, read)
    require(read != [], f"{name}: no file of {', '.join(PAGES)}, but {facts['files passed over'] or 'none'}", DataError)
    wrong = [ascii(each) for each in read if re.search("[\udc80-\udcff]", each)]
    require(not wrong, f"{name}: the names {', '.join(wrong)} are not UTF-8: rename these files", DataError)

    def pages(counts: Counter[str]) -> Iterator[Article]:
        targets, unread = {normalize("NFC", each): each for each in read}, []
        for each in read:
            try:
                text = _text(files[each], endings[each])
            except Exception as error:  # of many kinds: of each way of packing its own
                unread.append(f"{each} ({error})")
            for page in () if unread else _pages(name, each, text, endings[each], targets):
                counts["pages" if page.passages else BLANK] += 1
                if page.passages:
                    yield page
        require(not unread, f"{name}: not read are {', '.join(unread)}: save them as UTF-8", DataError)
        require(counts["pages"] > 0, f"{name}: none of its {len(read)} files has any text", DataError)

    def make(own: Own) -> Collection:
        counts = Counter()
        documents = passages.passages(pages(counts))
        documents.index = documents.index.str.replace(r"\s", lambda blank: quote(blank[0]), regex=True)
        return _beir.complete_collection(name, documents, *_beir.unasked(), own.provenance, counts, facts)

    return Own(name, tuple(files[each] for each in read), make, pages)


def _pages(name: str, place: str, text: str, ending: str, targets: Mapping[str, str]) -> Iterator[Article]:
    if ending == ".jsonl":

        def fields(line: str) -> tuple[str, str]:
            entry = json.loads(line)
            return checked_text(entry["text"]), checked_text(entry.get("title"))

        for number, (body, title) in _lines(name, place, text).parsed(fields, "an object of JSON with `text`"):
            yield article(f"{place}:{number}", _plain(title) or f"{place}:{number}", [_paragraphs(body or title)])
        return
    title, sections, links = _page(re.sub("\r\n?", "\n", text), ending)
    places = (posixpath.join(posixpath.dirname(place), unquote(re.split("[?#]", link)[0])) for link in links)
    leads = dict.fromkeys(targets.get(normalize("NFC", posixpath.normpath(each))) for each in places)
    sections = sections if any(sections) else [_paragraphs(title)]
    yield article(place, title or Path(place).stem, sections, filter(None, leads))


def _plain(text: str) -> str:
    return normalize("NFC", " ".join(text.split()))


def _paragraphs(text: str, end: str = r"\n\s*\n") -> list[str]:
    return [_plain(part) for part in re.split(end, text) if part.strip()]


def _page(text: str, ending: str) -> tuple[str, list[list[str]], list[str]]:
    # Title, the paragraphs of each section, which its heading begins unless it is the title, and links.
    if ending == ".txt":
        return "", [_paragraphs(text)], []
    from bs4 import BeautifulSoup
    from markdown_it import MarkdownIt

    named = (settings := SETTINGS.match(text)) and TITLE.search(settings[2])
    text = text[settings.end() :] if settings else text
    text = RST_HEADING.sub(r"# \2", text) if ending == ".rst" else text
    text = MarkdownIt("js-default", {"html": ending != ".rst"}).render(text) if ending in MARKDOWN else text
    # What opens like a section of SGML or an instruction is a comment, as in browsers; the parser would stop or warn.
    soup = BeautifulSoup("\n" + re.sub(r"<!\[(?!CDATA\[)|<\?", "<!", text), "html.parser")
    for tag in soup(lambda tag: tag.name in ("svg", "template") and not tag.find("body")):  # else it was not closed
        tag.decompose()
    for image in soup("img", alt=True):
        image.append(f" {image['alt']} ")
    names = [tag.get_text() for tag in (soup.title, soup.find(HEADINGS)) if tag]
    title = next(filter(None, map(_plain, [*names, named[1] if named else ""])), "")
    text, block = "", None
    for string in soup.strings:
        last, block = block, string.find_parent(BLOCKS)
        is_new = block is not last or getattr(string.previous_element, "name", "") == "br"
        is_heading = block is not last and getattr(block, "name", "") in HEADINGS
        text += (SECTION if is_heading else PARAGRAPH if is_new else "") + string
    sections = [_paragraphs(section, PARAGRAPH) for section in text.split(SECTION)]
    sections = [part[1:] if part[:1] == [title] else part for part in sections]
    return title, sections, [link["href"] for link in soup("a", href=True)]


_OWN: dict[tuple, Own] = {}  # one and the same while its files do not change: what was made of it is found again
# Form to what stands behind its colon, and what reads it; other readers add theirs.
FORMS: dict[str, tuple[str, Callable[[str, str], Own]]] = {
    "beir": ("folder or zip", _of_beir),
    "csv": ("file", lambda name, place: Own(name, (_path(name, place),), _table)),
    "folder": ("path", _of_folder),
}
