"""Corpora named by where they lie: ``beir:PATH``, ``folder:PATH``, ``csv:PATH``, ``irds:ID`` (chapter 60)."""

import csv
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from io import StringIO
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote, unquote
from zipfile import Path as Member

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.cache import checksum, key
from retlib.core.errors import DataError, require, require_one_of
from retlib.data import passages
from retlib.data.collection import HELD_OUT, SHARE, SPLITS, Article, Collection, hash_position, text_id, with_copies
from retlib.data.datasets.catalogue import MOST, catalogue

QRELS, HEAD = ["query_id", "doc_id", "relevance"], ["query-id", "corpus-id", "score"]
BLANK, REPEATED, NOTHING = "blanks left out", "repeated lines", "judgments that name nothing"
MARKDOWN, HTML = (".md", ".markdown", ".rst"), (".html", ".htm")
PAGES = (".txt", *MARKDOWN, *HTML, ".jsonl")  # what is read of a folder, packed by gzip or not
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
BLOCKS = [*"title p div li td th tr ul ol table section article blockquote pre dt dd br".split(), *HEADINGS]
SECTION, PARAGRAPH = "\x1d", "\x1e"  # what stands where one begins, and ends; both are white space in a page
# Settings above a page, of YAML or of TOML; what is none, such as text between two rules, stays text.
SETTINGS = re.compile(r"(?ms)(---|\+{3})[ \t]*\n((?:\s*#[^\n]*\n)*\s*[\w\"'-]+[ \t]*[:=].*?)^(?:\1|\.{3})[ \t]*$")
# Endings of the ids of parts in ir-datasets, and their splits, the most guarded first; the first of a split counts.
PARTS = {"/test": "test", "/dev": "dev", "/validation": "dev", "/valid": "dev", "/train": "train", "": "whole"}
TITLE = re.compile(r"""^title[ \t]*[:=][ \t]*(?:[>|][+-]?\s*)?["']?(.*?)["']?[ \t]*$""", re.M | re.I)
RST_HEADING = re.compile(r"^(?:([^\w\s])\1{2,}[ \t]*\n)?[ \t]*(\S.*)\n([^\w\s])\3{2,}[ \t]*$", re.M)


@dataclass(frozen=True)
class Corpus:
    """A corpus of one's own, its files, and what reads documents, queries, judgments, counts, and facts about files.

    `pages` yields its articles, if they are not the documents, and counts those that are blank.
    """

    name: str
    files: tuple[Path, ...]
    read: Callable[[], tuple]
    pages: Callable[[Counter[str]], Iterator[Article]] | None = None

    def collection(self) -> Collection:
        """Return the corpus as a collection with facts about its texts, its files and what is left out.

        Judgments are by split, test first, or all of train; missing splits are made. A query or text of several splits
        is left to the first of them. Copies of a relevant text count as relevant where there are facts about files;
        those of a release stay as they are. What nobody asked anything has no queries.
        """
        documents, queries, qrels, counts, files = self.read()
        qrels = qrels.assign(split=qrels.get("split", "train")).reset_index(drop=True)
        first = _of_first_split(qrels, qrels["query_id"])
        answered = queries[["text"]].join(first.drop_duplicates("query_id").set_index("query_id")["split"], how="right")
        unique = _of_first_split(answered, answered["text"].str.casefold()).rename_axis("query_id")
        judged = first.loc[first["query_id"].isin(unique.index), QRELS].reset_index(drop=True)
        every = judged if files is None else with_copies(judged, documents)
        all_queries, made = with_splits(unique)
        words = documents["text"].str.count(r"\S+")
        facts = {
            "documents": len(documents),
            "copies of a text": int(documents.duplicated(["text", "title"], keep=False).sum()),
            "shortest text (words)": int(words.min()),
            "longest text (words)": int(words.max()),
            "questions that are documents": 0,
            "judgments": len(qrels) + counts[NOTHING],
            "judgments of copies": len(every) - len(judged),
            **{each: counts[each] for each in (BLANK, REPEATED, NOTHING)},
            "questions without an answer": len(queries) - len(answered),
            "queries whose text a more guarded split has": len(answered) - len(unique),
            "judgments of queries that a more guarded split has": len(qrels) - len(judged),
            **made,
            **(files or {}),
        }
        found = Collection(self.name, documents.rename_axis("doc_id"), all_queries, every, None, self.provenance, facts)
        facts["questions that are documents"] = len(found.own_documents)
        if move := found.copy_bound():
            facts["points that unjudged copies can move a mean by"] = round(move, 1)
        return found

    def articles(self) -> Iterator[Article]:
        """Return the articles of the corpus."""
        return self.pages(Counter()) if self.pages else document_articles(self.collection())

    @property
    def provenance(self) -> dict[str, str]:
        """The corpus's name to a checksum of its files, or to the version of the library that fetches them."""
        if not self.files:
            return {self.name: f"ir-datasets {metadata.version('ir-datasets')}"}
        above = os.path.commonpath(self.files)
        sums = [f"{path.relative_to(above).as_posix()} {checksum(path)}" for path in self.files]
        return {self.name: key(sums)}


def document_articles(collection: Collection) -> Iterator[Article]:
    """Return the documents of a collection as articles."""
    documents = collection.documents.reindex(columns=["title", "text"], fill_value="").itertuples()
    return (Article.of(doc_id, title or doc_id, [_paragraphs(text)]) for doc_id, title, text in documents)


def find(name: str) -> Corpus | None:
    """Return the corpus of a name such as ``folder:notes``, or None of one without a colon; else `RetlibError`."""
    form, colon, place = name.partition(":")
    if not colon:
        return None
    require_one_of(f"what stands before the colon of {name!r}", form, FORMS)
    require(place != "", f"{name!r}: a path or an id is missing behind the colon")
    corpus = FORMS[form][1](name, place)
    states = ((path, status.st_size, status.st_mtime_ns) for path in corpus.files for status in [path.stat()])
    return _CORPORA.setdefault((name, *states), corpus)


def forms() -> list[str]:
    """Return the forms of such names, for errors."""
    return [f"{form}:<{place}>" for form, (place, _) in FORMS.items()]


def _path(name: str, place: str) -> Path:
    path = os.path.join(runtime.root(), os.path.expanduser(place))
    require(os.path.exists(path), f"{name}: nothing lies there; paths begin in {runtime.root()}", DataError)
    return Path(path).resolve()


def _files(top: Path | Member) -> dict[str, Path | Member]:
    # Links may lead in circles: a folder is read once, and none that this one is in.
    files, folders, seen = {}, [("", top)], {*getattr(top, "parents", ())}
    for above, folder in folders:
        real = folder.resolve() if isinstance(folder, Path) else folder
        every = [] if real in seen else sorted(folder.iterdir(), key=lambda each: each.name)
        # Without what is hidden, or packed by a desktop beside what it was asked for.
        inside = [each for each in every if not re.match(r"\.|__MACOSX$", each.name)]
        folders += [(f"{above}{each.name}/", each) for each in inside if each.is_dir()]
        files |= {f"{above}{each.name}": each for each in inside if each.is_file()}
        seen.add(real)
    return dict(sorted(files.items(), key=lambda each: each[0].split("/")))


def _file_facts(places: Iterable[str], read: list[str]) -> dict[str, int | str]:
    endings = Counter(Path(each).suffix.lower() or "without ending" for each in {*places} - {*read})
    others = ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
    return {"files read": len(read), "files passed over": others}


def _text(place: str, file: Path | Member, ending: str = "") -> str:
    from bs4.dammit import EncodingDetector
    from charset_normalizer import from_bytes

    try:
        place.encode()
        raw = file.read_bytes()
        raw = gzip.decompress(raw) if file.name.lower().endswith(".gz") else raw
        raw, mark = EncodingDetector.strip_byte_order_mark(raw)
        if ending in HTML and not mark and (declared := EncodingDetector.find_declared_encoding(raw, is_html=True)):
            # As browsers do: what declares itself in letters of one byte has none of two.
            with suppress(LookupError, ValueError):
                return raw.decode({"iso-8859-1": "cp1252", "utf-16": "utf-8"}.get(declared, declared))
        text = raw.decode(mark or "utf-8")
        if (zero := text.find("\0")) < 0:  # which no text has
            return text
        raise UnicodeDecodeError("utf-8", raw, zero, zero + 1, "zero")
    except UnicodeDecodeError as error:
        start = error.start - error.start % 4096
        names = [name for each in from_bytes(raw[start : start + 8192]) for name in each.could_be_from_charset]
        # Of those that fit the most frequent.
        likely = "cp1252" if "cp1252" in names else [*names, "that of no text"][0]
        why = f"byte {error.start} is not UTF-8, the encoding is likely {likely}"
    except Exception as error:  # of many kinds: of each way of packing its own
        why = str(error)[:MOST]
    place = place.encode(errors="backslashreplace").decode()
    raise DataError(f"{place}: it cannot be read ({why}): save it as UTF-8, or fetch it anew.")


def _lines(text: str) -> list[tuple[int, str]]:
    lines = enumerate(StringIO(text, newline=""), 1)
    return [(number, line) for number, each in lines if (line := each.strip("\ufeff \t\r\n"))]


# --- rows of files, and what is counted of them ----------------------------------------------------


def _line_error(place: str, number: int, problem: str) -> DataError:
    return DataError(f"{place}, line {number}: {problem:.{MOST}}.")


def _rows(place: str, lines: Iterable, parse: Callable[..., tuple], columns: list[str], expected: str) -> pd.DataFrame:
    # The row that `parse` makes of each numbered line; where it fails, `DataError` says that it is not `expected`.
    rows = {}
    for number, line in lines:
        try:
            rows[number] = parse(line)
        except Exception as error:  # of many kinds; that of undecoded bytes would show all of them
            why = str(error) if type(error) is ValueError or isinstance(error, UnicodeError) else repr(error)
            raise _line_error(place, number, f"not {expected} ({why})") from error
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def _nfc(text: str) -> str:
    # In NFC, without white space around it; `ValueError` for half a letter, which JSON can spell.
    return normalize("NFC", text.strip()).encode().decode()


def _unique(place: str, rows: pd.DataFrame, keys: list[str], counts: Counter[str]) -> pd.DataFrame:
    # Rows, by the numbers of their lines, without repeated ones; `DataError` if rows share their keys alone.
    if rows.empty:
        raise _line_error(place, 1, "nothing stands there")
    unique = rows.drop_duplicates()
    counts[REPEATED] += len(rows) - len(unique)
    for number, *shared in unique.loc[unique.duplicated(keys), keys].itertuples():
        raise _line_error(place, number, f"{shared} stands before with another content: keep one of the two")
    return unique


def _texts(
    place: str, lines: Iterable, decode: Callable, columns: list[str], counts: Counter[str], clean: Callable = _nfc
) -> pd.DataFrame:
    # Entries with an id that have a text or a title, their first columns, by the numbers of their lines.
    def row(line: object) -> tuple[str, ...]:
        entry = decode(line)
        name = entry["_id"] if "_id" in entry else entry["id"]
        if type(name) not in (str, int) or str(name).split() != [str(name)]:
            raise ValueError(f"the id {name!r} is no number and no text without white space, as a run on disk needs")
        return str(name).encode().decode(), *(clean(entry.get(column) or "") for column in columns)

    frame = _rows(place, lines, row, ["_id", *columns], f"an entry with `_id` and {' or '.join(columns[:2])}")
    is_blank = (frame[columns[:2]] == "").all(axis=1)
    counts[BLANK] += int(is_blank.sum())
    return _unique(place, frame[~is_blank], ["_id", *columns[2:]], counts)


def _judgments(place: str, lines: Iterable, queries: pd.Index, documents: pd.Index, counts: Counter) -> pd.DataFrame:
    # A split's judgments that name something, by the numbers of their lines; `DataError` where too many name nothing.
    fields = [(number, line.split("\t" if "\t" in line else None)) for number, line in lines]
    places = [0, -2, -1]  # behind the first TREC has a column of its own
    head = [name.strip().lower() for name in fields[0][1]] if fields else []
    if len(head) in (3, 4) and fields[0][1][0].strip() not in queries and not re.fullmatch(r"[-+]?[\d.]+", head[-1]):
        places = [head.index(name) for name in HEAD] if {*HEAD} <= {*head} else places
        del fields[0]

    def judge(row: list[str]) -> tuple[str, str, int]:
        query_id, doc_id, grade = (row[place].strip() for place in places)
        if len(row) not in (3, 4) or not float(grade).is_integer():
            raise ValueError(f"{len(row)} columns, the last of which is {grade}")
        return query_id, doc_id, int(np.int32(int(float(grade))))

    frame = _rows(place, fields, judge, QRELS, "query, document and grade, or TREC's columns")
    frame = _unique(place, frame, QRELS[:2], counts)
    no_query = queries.get_indexer(frame["query_id"]) < 0  # faster than isin
    no_document = documents.get_indexer(frame["doc_id"]) < 0
    dangling = frame[no_query | no_document]
    counts[NOTHING] += len(dangling)
    if len(dangling) > 0.1 * len(frame):  # what is left would measure something else
        lacking = f"{no_query.sum()} no query and {no_document.sum()} no document of these files"
        problem = f"{len(dangling)} of {len(frame)} judgments name nothing ({lacking}): at most a tenth is left out"
        raise _line_error(place, dangling.index[0], problem)
    return frame.drop(dangling.index)


def _of_first_split(rows: pd.DataFrame, keys: pd.Series) -> pd.DataFrame:
    # Without the rows whose key stands in an earlier row of another split.
    return rows[rows["split"] == rows.groupby(keys)["split"].transform("first")]


def no_questions() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the queries and judgments of documents that nobody asked for."""
    queries = pd.DataFrame(columns=["text", "split"], index=pd.Index([], name="query_id", dtype="str"), dtype="str")
    return queries, pd.DataFrame(columns=QRELS, dtype="str").astype({"relevance": int})


def with_splits(queries: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return queries of all splits, by a hash of the texts where one is missing, and what was made, in words."""
    split, given, facts = queries["split"].copy(), set(queries["split"]), []
    if given == {"dev"}:
        return queries.assign(split="test"), {"splits": "test is what was dev"}
    for name, share in (("test", 1 - SHARE), ("dev", HELD_OUT)):
        if "train" in given and name not in given:
            place = (f"{name} " + queries["text"][split == "train"].str.casefold()).map(hash_position)
            order = np.unique(place)  # what differs by case alone stays together
            if count := min(max(1, int((order < share).sum())), len(order) - 1):
                split[place.index[place < order[count]]] = name
                facts.append(f"{name} is {count} of the {len(order)} texts of what was train")
    return queries.assign(split=split), {"splits": f"{', '.join(facts)}, by a hash of the text"} if facts else {}


# --- the forms --------------------------------------------------------------------------------------


def _beir(name: str, place: str) -> Corpus:
    path = _path(name, place)
    try:
        files = _files(path if path.is_dir() else Member(path))
    except Exception as error:  # of many kinds
        raise DataError(f"{name}: it is neither a folder nor a zip archive ({error})") from error
    folders = {each.rpartition("corpus")[0] for each in files if re.search(r"(^|/)corpus\.jsonl(\.gz)?$", each)}
    require("" in folders or len(folders) == 1, f"{name}: it holds {len(folders)} corpus.jsonl, not one", DataError)
    inside = "" if "" in folders else folders.pop()
    # A file that is there twice, packed and not, is read as it is.
    places = [each for each in sorted(files)[::-1] if each.startswith(inside)]
    parts = {each.removeprefix(inside).removesuffix(".gz"): each for each in places}

    def of(part: str) -> tuple[str, list[tuple[int, str]]]:
        place = f"{name}: {parts[part]}"
        return place, _lines(_text(place, files[parts[part]]))

    splits = [split for split in SPLITS if f"qrels/{split}.tsv" in parts]
    used = ["corpus.jsonl", *["queries.jsonl"][: len(splits)], *(f"qrels/{split}.tsv" for split in splits)]
    wrong = [f"no {each}" for each in used if each not in parts]
    wrong += [each for each in parts if re.match("qrels/|queries.jsonl$", each) and each not in used]
    expected = "judgments are qrels/train.tsv, dev.tsv, test.tsv"
    require(not wrong, f"{name}: it has {', '.join(wrong)}; {expected}", DataError)
    paths = tuple(files[parts[each]] for each in used) if path.is_dir() else (path,)

    def read() -> tuple:
        counts, (queries, qrels) = Counter(), no_questions()
        releases = {file.sha256 for card in catalogue().values() for file in card.files}
        # Texts of a release stay as they are, and have no facts about files.
        is_release = bool(releases & {*map(checksum, paths)})
        more = counts, str.strip if is_release else _nfc
        documents = _texts(*of("corpus.jsonl"), json.loads, ["text", "title"], *more).set_index("_id")
        if splits:
            queries = _texts(*of("queries.jsonl"), json.loads, ["text"], *more).set_index("_id")
            ids = queries.index, documents.index
            judged = {split: _judgments(*of(f"qrels/{split}.tsv"), *ids, counts) for split in splits[::-1]}
            qrels = pd.concat(judged, names=["split"]).reset_index("split")
        facts = None if is_release else _file_facts(files, [parts[each] for each in used])
        return documents, queries, qrels, counts, facts

    return Corpus(name, paths, read)


def _table(path: Path) -> tuple:
    csv.field_size_limit(2**31 - 1)
    place, counts = f"csv: {path}", Counter()
    lines = StringIO(_text(place, path), newline="")
    head = next(lines, "")
    mark = max("\t,;" if ".tsv" in path.name.lower() else ",;\t", key=head.count)
    head = [each.strip().lower() for each in next(csv.reader([head], delimiter=mark), [])]
    names = [name for name in head if name]
    if names.count("text") != 1 or len({*names}) < len(names):
        raise _line_error(place, 1, f"the columns are {', '.join(names)}: one must be `text`, and none twice")

    def cells(row: list[str]) -> dict[str, str]:
        # Lines within a field may be meant, but not where they have tabs, as a row has that a lost quote swallows.
        if mark == "\t" and any("\n" in each and "\t" in each for each in row):
            raise ValueError("a quote runs on: double it, and put its field between quotes")
        if len(row) != len(head):
            raise ValueError(f"{len(row)} columns, not {len(head)}")
        entry = dict(zip(head, row, strict=True))
        words = "\n".join(_nfc(entry.get(each, "")) for each in ("title", "text")).strip()
        return {**entry, "_id": entry.get("id", "").strip() or text_id(words)}

    reader = csv.reader(lines, delimiter=mark, strict=True)
    rows = ((1 + reader.line_num, row) for row in reader if any(map(str.strip, row)))
    try:
        frame = _texts(place, rows, cells, ["text", "title", "question"], counts)
    except csv.Error as error:
        raise _line_error(place, 1 + reader.line_num, f"it is no table ({error})") from error
    documents = _unique(place, frame[["_id", "text", "title"]], ["_id"], Counter()).set_index("_id")
    pairs = frame[frame["question"] != ""].assign(query_id=lambda pairs: pairs["question"].map(text_id), relevance=1)
    queries = pairs.drop_duplicates("query_id").set_index("query_id")[["question"]].set_axis(["text"], axis=1)
    qrels = pairs.rename(columns={"_id": "doc_id"})[QRELS]
    others = ", ".join(name for name in names if name not in ("id", "title", "text", "question"))
    return documents, queries, qrels, counts, {"files read": 1, "columns passed over": others}


def _folder(name: str, place: str) -> Corpus:
    path = _path(name, place)
    require(path.is_dir(), f"{name}: it is no folder; another form is csv:<file>", DataError)
    files = _files(path)
    endings = {each: Path(each.lower().removesuffix(".gz")).suffix for each in files}
    used = [each for each in files if endings[each] in PAGES]
    facts = _file_facts(files, used)
    require(used != [], f"{name}: no file of {', '.join(PAGES)}, but {facts['files passed over'] or 'none'}", DataError)
    targets = {normalize("NFC", each): each for each in used}

    def pages(counts: Counter[str]) -> Iterator[Article]:
        unread = []
        for each in used:
            try:
                text = _text(each, files[each], endings[each])
            except DataError as error:
                unread.append(str(error))
            for page in () if unread else _pages(name, each, text, endings[each], targets):
                counts["pages" if page.passages else BLANK] += 1
                if page.passages:
                    yield page
        require(not unread, f"{name}: {' '.join(unread)}", DataError)
        require(counts["pages"] > 0, f"{name}: none of its {len(used)} files has any text", DataError)

    def read() -> tuple:
        counts = Counter()
        documents = passages.passages(pages(counts))
        documents.index = documents.index.str.replace(r"\s", lambda blank: quote(blank[0]), regex=True)
        return documents, *no_questions(), counts, facts

    return Corpus(name, tuple(files[each] for each in used), read, pages)


def _pages(name: str, place: str, text: str, ending: str, targets: Mapping[str, str]) -> Iterator[Article]:
    if ending == ".jsonl":

        def fields(line: str) -> tuple[str, str]:
            entry = json.loads(line)
            return _nfc(entry["text"] or ""), _nfc(entry.get("title") or "")

        expected = "an object of JSON with `text`"
        rows = _rows(f"{name}: {place}", _lines(text), fields, ["text", "title"], expected)
        for number, body, title in rows.itertuples():
            yield Article.of(f"{place}:{number}", _plain(title) or f"{place}:{number}", [_paragraphs(body or title)])
        return
    title, sections, links = _page(re.sub("\r\n?", "\n", text), ending)
    places = (os.path.join(os.path.dirname(place), unquote(re.split("[?#]", link)[0])) for link in links)
    leads = dict.fromkeys(targets.get(normalize("NFC", os.path.normpath(each))) for each in places)
    sections = sections if any(sections) else [_paragraphs(title)]
    yield Article.of(place, title or Path(place).stem, sections, filter(None, leads))


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

    setting = (settings := SETTINGS.match(text)) and TITLE.search(settings[2])
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
    title = next(filter(None, map(_plain, [*names, setting[1] if setting else ""])), "")
    for block in soup(BLOCKS):
        block.insert(0, SECTION if block.name in HEADINGS else PARAGRAPH)
        block.append(PARAGRAPH)
    sections = [_paragraphs(section, PARAGRAPH) for section in soup.get_text().split(SECTION)]
    sections = [part[1:] if part[:1] == [title] else part for part in sections]
    return title, sections, [link["href"] for link in soup("a", href=True)]


def _public(name: str, one: str) -> tuple:
    # What the library ir-datasets reads and fetches (MacAvaney 2021); a set without parts is test.
    from ir_datasets import load

    parts = {}
    for ending, split in PARTS.items():
        with suppress(KeyError):
            parts.setdefault(split, load(one + ending))
    require("whole" in parts, f"ir-datasets knows no {one!r}; its ids are at https://ir-datasets.com")
    whole = parts.pop("whole")
    parts = parts or {"test": whole}
    try:
        rows = [(row.query_id, row.default_text()) for part in parts.values() for row in part.queries_iter()]
        judged = pd.concat({split: pd.DataFrame(part.qrels_iter()) for split, part in parts.items()}, names=["split"])
        documents = {
            each.doc_id: (getattr(each, "text", None) or each.default_text(), getattr(each, "title", ""))
            for each in next(iter(parts.values())).docs_iter()
        }
    except Exception as error:  # of many kinds: of the network, the formats, absent packages
        how = "check the network, and move away what is damaged in $IR_DATASETS_HOME or ~/.ir_datasets"
        wrong = f"ir-datasets cannot fetch or read it ({type(error).__name__}: {error}): {how}"
        raise DataError(f"{name}: {wrong}") from error
    queries = pd.DataFrame(rows, columns=["query_id", "text"]).drop_duplicates("query_id").set_index("query_id")
    queries["text"] = queries["text"].str.split().str.join(" ")
    judged = judged.reset_index("split").drop_duplicates(QRELS[:2], ignore_index=True)
    judged = judged[judged["query_id"].isin(queries.index)].assign(relevance=judged["relevance"].clip(lower=0))
    for split in parts:
        require(split in {*judged["split"]}, f"{name}: no query of {split} has a judgment", DataError)
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"])
    return frame, queries, judged, Counter(), None


def write(collection: Collection, folder: Path) -> None:
    """Write a collection, to be read as ``beir:<folder>``."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for earlier in (folder / "queries.jsonl", *(folder / "qrels").iterdir()):
        earlier.unlink(missing_ok=True)
    queries = {"queries": collection.queries} if len(collection.qrels) else {}
    for file, frame in {"corpus": collection.documents, **queries}.items():
        rows = frame.filter(["title", "text"]).rename_axis("_id").reset_index()
        rows.to_json(folder / f"{file}.jsonl", orient="records", lines=True, force_ascii=False)
    for split in collection.queries["split"].unique():
        if len(qrels := collection.judgments(split)[QRELS]):
            qrels.to_csv(folder / f"qrels/{split}.tsv", sep="\t", index=False, header=HEAD, quoting=csv.QUOTE_NONE)


_CORPORA: dict[tuple, Corpus] = {}  # one and the same while its files do not change: what was made of it is found again
# Form to what stands behind its colon, and what reads it.
FORMS: dict[str, tuple[str, Callable[[str, str], Corpus]]] = {
    "beir": ("folder or zip", _beir),
    "csv": ("file", lambda name, place: Corpus(name, (path := _path(name, place),), lambda: _table(path))),
    "folder": ("path", _folder),
    "irds": ("id of ir-datasets", lambda name, one: Corpus(name, (), lambda: _public(name, one))),
}
