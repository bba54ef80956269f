"""Reading a docstring: its summary, its paragraphs, and what it says of other pages.

Numpydoc, Google style (``Args:``) and plain reStructuredText are read line by line, in this order: signatures at the
top go; "See Also" entries and listings of other pages are taken out, for they hold the queries; code goes; what is left
are paragraphs under section titles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retlib.data.datasets.pydocs.lines import (
    DIRECTIVE,
    ENTRY_TITLES,
    TABLE_RULER,
    UNDERLINE,
    block_end,
    clean,
    indent,
    is_title,
    paragraph_end,
    short,
)
from retlib.data.datasets.pydocs.mentions import Known, Mention, take_listings, take_see_also

MAX_PASSAGE_WORDS = 100


@dataclass(frozen=True)
class Paragraph:
    """One paragraph, or one entry of a section such as Parameters."""

    section: str  # the title it stands under; "Summary" before the first title
    text: str  # the whole, in one line
    prose: str  # the part that is running text: an entry without its name and type


@dataclass
class Reading:
    """A docstring, read."""

    paragraphs: list[Paragraph] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All paragraphs in one line."""
        return " ".join(paragraph.text for paragraph in self.paragraphs)

    @property
    def summary(self) -> str:
        """What stands before the first title: its first paragraph, or the first sentences of a long one."""
        opening = self.paragraphs[:1]
        return short(opening[0].text) if opening and opening[0].section == "Summary" else ""


def read(doc: str, resolves: Known, lists: Known, is_module: bool = False) -> Reading:
    """Read a docstring that `inspect.cleandoc` has dedented.

    `resolves` says whether a name, as it stands here, is another page; `lists` whether it is a member of what the
    docstring describes, or a full path to another page. A module's may list pages anywhere, others only under the
    titles Methods, Attributes and Properties.
    """
    lines = _without_signatures(doc.split("\n"))
    lines, mentions = take_see_also(lines, resolves)
    lines, listed = take_listings(lines, lists, anywhere=is_module)
    return Reading(_paragraphs(list(_without_code(lines)), is_module), mentions + listed)


_GOOGLE_TITLE = re.compile(
    r"(Arg(?:ument)?s|Keyword [Aa]rg(?:ument)?s|Param(?:eter)?s|Inputs?|Outputs?|Shape|Returns?|Yields?|Raises"
    r"|Attributes|Methods|Examples?|Notes?|Warnings?|References?)\s?::?$"
)
_BULLET = re.compile(r"(?:[-*+•]|\(?\d+[.)])\s+")
_FIELD = re.compile(r":(\w+)([^:`]*):(?:\s+|$)(?!`)")

# Directives whose content is prose; of all others (code, figures, formulas, version notes) nothing is kept.
_PROSE_DIRECTIVES = {"note", "warning", "important", "tip", "hint", "attention", "caution", "admonition", "topic"}
_DROPPED_TITLES = {"references", "reference", "bibliography"}
_HAS_WORD = re.compile(r"[^\W\d_]{2}")
# Without it, a function of pyplot has the same text as the method that it wraps, and they are one page.
_BOILERPLATE = re.compile(r"This is the pyplot wrapper for")


_SIGNATURE = re.compile(r"(?:class |static )?[A-Za-z_][\w.]*\s?\(")


def _without_signatures(lines: list[str]) -> list[str]:
    """Drop the call signatures that docstrings of compiled functions begin with.

    What stands behind an arrow is kept when nothing else describes the object.
    """
    rest, behind = list(lines), []
    while rest and (not rest[0].strip() or rest[0].strip() == "--" or _SIGNATURE.match(rest[0])):
        if not _SIGNATURE.match(rest[0]):
            rest.pop(0)
            continue
        signature = rest.pop(0)
        while rest and rest[0].strip() and (signature.count("(") > signature.count(")") or rest[0][0] == " "):
            signature += " " + rest.pop(0).strip()
        tail = signature[_closing(signature) :].strip()
        if tail and not tail.startswith(("->", "--", ":", "=>")):
            return lines  # a sentence that begins with a call
        behind.append(tail.lstrip("->=: ") + ("." if tail else ""))
    if any(line.strip() for line in rest):
        return rest
    return [line for line in behind if len(line.split()) > 2]


def _closing(signature: str) -> int:
    """The place behind the parenthesis that closes the first one."""
    depth = 0
    for i, letter in enumerate(signature):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            return i + 1
    return len(signature)


def _without_code(lines: list[str]) -> Iterator[str]:
    """Drop doctests, literal blocks, formulas, figures, comments, footnotes and rulers of tables."""
    i = 0
    while i < len(lines):
        line, base = lines[i].strip(), indent(lines[i])
        directive = DIRECTIVE.match(line)
        i += 1
        if line.startswith((">>>", "In [", "$ ")):
            i = paragraph_end(lines, i)
        elif directive and directive[1] in _PROSE_DIRECTIVES:
            yield ""
            yield " " * base + directive[2]
        elif directive or re.match(r"\.\.(\s|$)", line):
            i = block_end(lines, i, base)
            yield ""
        elif line.endswith("::"):
            yield lines[i - 1].rstrip()[:-1]
            i = block_end(lines, i, base)
            yield ""
        elif line.startswith(("+-", "+=", "|")) or TABLE_RULER.match(line):
            yield ""
        else:
            yield lines[i - 1]


def _paragraphs(lines: list[str], is_module: bool) -> list[Paragraph]:
    """Put lines together into paragraphs; in a section such as Parameters, each entry is one."""
    found: list[Paragraph] = []
    title, head, body, base = "Summary", "", [], 0  # of the paragraph that is read; where entries of its section begin

    def close() -> None:
        """End the paragraph; what has no word, and bibliographies, are left out."""
        nonlocal head, body
        text, prose = clean(f"{head} {' '.join(body)}"), clean(" ".join(body))
        if _HAS_WORD.search(text) and title.lower() not in _DROPPED_TITLES and not _BOILERPLATE.match(text):
            found.append(Paragraph(title, text, prose))
        head, body = "", []

    def take(line: str, depth: int) -> None:
        """The next line; a blank one ends a paragraph, though not an entry."""
        nonlocal head, base
        is_entries = title.lower() in ENTRY_TITLES
        base = depth if base is None and line else base
        starts_entry = line and (_FIELD.match(line) or (is_entries and depth <= base))
        bullet = None if is_entries else _BULLET.match(line)
        if starts_entry or bullet or not (line or is_entries):
            close()
        if starts_entry:
            head, line = _split_entry(line)
        elif bullet:
            head, line = bullet[0], line[bullet.end() :]
        body.extend([line] if line or head else [])

    i = 0
    while i < len(lines):
        line, depth, under = lines[i].strip(), indent(lines[i]), is_title(lines, i)
        is_first = not found and not body and title == "Summary"
        if under and is_first and is_module:  # the title of the whole docstring is its summary
            take(line, 0)
            close()
        elif under or (_GOOGLE_TITLE.match(line) and depth == 0 and not is_first):
            close()
            title, base = line.rstrip(": "), None
        elif not (UNDERLINE.match(line) and is_title(lines, i + 1)):  # the line above a title
            take(line, depth)
        i += 2 if under else 1
    close()
    return found


def _split_entry(line: str) -> tuple[str, str]:
    """The name and type of an entry, and the first line of its description if it stands beside them."""
    field_match = _FIELD.match(line)
    if field_match:
        return f"{field_match[2].strip() or field_match[1]}:", line[field_match.end() :]
    google = re.match(r"(`{0,2}\*{0,2}\w+`{0,2}(?:\s*\([^)]*\)+)?\s?:)\s+(.*)$", line)
    if google and " : " not in line[: google.end(1) + 1]:
        return google[1], google[2]
    return line, ""


def passages(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[str, str]]:
    """Pack paragraphs, in order, into (section, text) of at most `MAX_PASSAGE_WORDS` words.

    The summary stands with as much as fits of the text before the first title. Behind it short sections share a
    passage.
    """
    section, taken = "", []
    for paragraph in paragraphs:
        for piece in _pieces(paragraph.text.split()):
            opens = section == "Summary" != paragraph.section
            if taken and (opens or len(taken) + len(piece) > MAX_PASSAGE_WORDS):
                yield section, " ".join(taken)
                taken = []
            section = section if taken else paragraph.section
            taken = taken + piece
    if taken:
        yield section, " ".join(taken)


def _pieces(tokens: list[str]) -> Iterator[list[str]]:
    """Cut a long paragraph behind the last sentence end that fits, or at the bound."""
    while len(tokens) > MAX_PASSAGE_WORDS:
        ends = [i + 1 for i in range(MAX_PASSAGE_WORDS) if tokens[i].endswith((".", "!", "?", ";"))]
        cut = ends[-1] if ends and ends[-1] > MAX_PASSAGE_WORDS // 4 else MAX_PASSAGE_WORDS
        yield tokens[:cut]
        tokens = tokens[cut:]
    yield tokens
