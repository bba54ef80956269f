"""Reading a docstring: its summary, its paragraphs, and what it says of other pages.

Docstrings come in three dialects: numpydoc (underlined sections), Google style (``Args:``) and plain
reStructuredText. All three are read line by line, in this order: signatures at the top go; "See Also"
entries and listings of other pages are taken out, for they hold the queries; code goes; what is left
are paragraphs under section titles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from retlib.text import words

MAX_PASSAGE_WORDS = 100
MAX_SHORT_WORDS = 40


@dataclass(frozen=True)
class Paragraph:
    """One paragraph, or one entry of a section such as Parameters.

    Parameters
    ----------
    section : str
        The title it stands under; "Summary" before the first title.
    text : str
        The whole, in one line.
    prose : str
        The part that is running text: an entry without its name and type.
    """

    section: str
    text: str
    prose: str


@dataclass(frozen=True)
class Mention:
    """What a docstring says of other pages: the names it gives them, and a description or ""."""

    names: tuple[str, ...]
    description: str
    source: str


@dataclass
class Reading:
    """A docstring, read."""

    paragraphs: list[Paragraph] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The first paragraph, or its first sentence where it is long."""
        return short(self.paragraphs[0].text) if self.paragraphs else ""


def read(
    doc: str, resolves: Callable[[str], bool], lists: Callable[[str], bool], is_module: bool = False
) -> Reading:
    """Read a docstring that `inspect.cleandoc` has dedented.

    Parameters
    ----------
    doc : str
        The docstring.
    resolves : callable
        Whether a name, as it stands in this docstring, is another page.
    lists : callable
        Whether a name is a member of what the docstring describes, or a full path to another page.
    is_module : bool
        Whether it is a module's: that may list other pages anywhere, others only under the titles Methods,
        Attributes and Properties.
    """
    lines = _without_signatures(doc.split("\n"))
    lines, mentions = _take_see_also(lines, resolves)
    lines, listed = _take_listings(lines, lists, anywhere=is_module)
    return Reading(_paragraphs(list(_without_code(lines))), mentions + listed)


# --- lines -----------------------------------------------------------------------------------------

_UNDERLINE = re.compile(r"([-=~^*\"'#+])\1{2,}$")
_RULER = re.compile(r"[=-]{2,}( +[=-]{2,})+$")
_GOOGLE_TITLE = re.compile(
    r"(Arg(?:ument)?s|Keyword [Aa]rg(?:ument)?s|Param(?:eter)?s|Inputs?|Outputs?|Shape|Returns?|Yields?|Raises"
    r"|Attributes|Methods|Examples?|Notes?|Warnings?|References?)\s?::?$"
)
_DIRECTIVE = re.compile(r"\.\.\s+([\w:-]+)::\s*(.*)$")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d+[.)])\s+")
_FIELD = re.compile(r":(\w+)([^:`]*):(?:\s+|$)(?!`)")

# Directives whose content is prose; of all others (code, figures, formulas, version notes) nothing is kept.
_PROSE_DIRECTIVES = {"note", "warning", "important", "tip", "hint", "attention", "caution", "admonition", "topic"}
_ENTRY_TITLES = {"parameters", "other parameters", "params", "args", "arguments", "keyword args"} | {
    *("keyword arguments", "returns", "return", "yields", "yield", "receives", "raises", "raise", "warns"),
    *("attributes", "methods", "properties", "inputs", "input", "outputs", "output"),
}
_LISTING_TITLES = {"methods", "attributes", "properties"}
_DROPPED_TITLES = {"references", "reference", "bibliography"}
_HAS_WORD = re.compile(r"[^\W\d_]{2}")
# Without it, a function of pyplot has the same text as the method that it wraps, and they are one page.
_BOILERPLATE = re.compile(r"This is the pyplot wrapper for")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_title(lines: list[str], i: int) -> bool:
    """Whether line i is a section title, underlined by the next line."""
    if i + 1 >= len(lines):
        return False
    title, under = lines[i].strip(), lines[i + 1].strip()
    underlined = bool(_UNDERLINE.match(under)) and len(under) + 4 >= len(title)
    return underlined and title != "" and not _UNDERLINE.match(title) and "  " not in title


def _block_end(lines: list[str], start: int, base: int) -> int:
    """The first line from `start` on that is neither blank nor deeper than `base`."""
    while start < len(lines) and (not lines[start].strip() or _indent(lines[start]) > base):
        start += 1
    return start


def _paragraph_end(lines: list[str], start: int) -> int:
    while start < len(lines) and lines[start].strip():
        start += 1
    return start


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


# --- what a docstring says of other pages ----------------------------------------------------------

_NAME = r"(?::[\w:+-]+:)?`[^`\s]+`(?:\(\))?|~?\.?[A-Za-z_][\w.]*(?:\(\))?"
_NAMES = rf"((?:{_NAME})(?:\s*,\s*(?:{_NAME}))*),?"
_BARE_ENTRY = re.compile(rf"(?:[-*+•]\s+)?{_NAMES}$")
_DESCRIBED_ENTRY = re.compile(rf"(?:[-*+•]\s+)?{_NAMES}\s*(?::|\s--+|\s-|\s[–—])(?:\s+(.*))?$")
_ROLE_ENTRY = re.compile(r"(?:[-*+•]\s+)?(:[\w:+-]+:`[^`]+`)\s+(.*)$")
_LISTED = re.compile(
    r"(?:[-*+•]\s+)?(?:(?:Function|Class|Method)\s+)?((?::[\w:+-]+:)?`[^`\s]+`|[A-Za-z_]\w*(?:\.\w+)*)"
    r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?(?:(?:\s+(?:--+|[-–—])|\s*:)\s+(.*)|\s{2,}(?:--?\s+)?(\S.*)|:?)$"
)


def bare_name(reference: str) -> str:
    """The dotted name in a cross-reference: ``:func:`~numpy.sum``` gives ``numpy.sum``."""
    match = re.match(r"(?::[\w:+-]+:)?`(?:[^`<]*<([^`>]+)>|([^`<]+))`", reference)
    if match:
        reference = match[1] or match[2]
    return reference.strip("~!. ").removesuffix("()")


def _take_see_also(lines: list[str], resolves: Callable[[str], bool]) -> tuple[list[str], list[Mention]]:
    """Take every "See Also" out of the lines: section, directive or paragraph."""
    kept, mentions, i = [], [], 0
    while i < len(lines):
        line, base = lines[i].strip(), _indent(lines[i])
        directive = _DIRECTIVE.match(line)
        is_directive = directive is not None and directive[1] == "seealso"
        if not is_directive and not re.match(r"(?i)see also\b", line):
            kept.append(lines[i])
            i += 1
            continue
        if is_directive:
            end = _block_end(lines, i + 1, base)
            block = [directive[2], *lines[i + 1 : end]]
        elif _is_title(lines, i):
            end = i + 2
            while end < len(lines) and not _is_title(lines, end):
                end += 1
            block = lines[i + 2 : end]
        else:  # a paragraph, or a title with a colon and what is indented under it
            end = max(_block_end(lines, i + 1, base), _paragraph_end(lines, i + 1))
            block = [line[len("see also") :].lstrip(": "), *lines[i + 1 : end]]
        mentions += _entries(block, resolves)
        kept.append("")
        i = end
    return kept, mentions


def _entries(block: list[str], resolves: Callable[[str], bool]) -> Iterator[Mention]:
    """The entries of a "See Also": names, and a description beside or under them."""
    base = min((_indent(line) for line in block[1:] if line.strip()), default=0)
    items: list[tuple[tuple[str, ...], list[str]]] = []
    after_blank = True
    for i, line in enumerate(block):
        text = line.strip()
        if text and (i == 0 or _indent(line) <= base):
            head = _entry_head(text, after_blank, resolves)
            if head is not None or after_blank:
                names, description = head or ((), text)
                items.append((names, [description]))
                text = ""
        if text and items:
            items[-1][1].append(text)
        after_blank = not line.strip()
    for names, description in items:
        yield Mention(names, clean(" ".join(description)), "see_also")


def _entry_head(text: str, after_blank: bool, resolves: Callable[[str], bool]) -> tuple[tuple[str, ...], str] | None:
    match = _DESCRIBED_ENTRY.match(text) or _ROLE_ENTRY.match(text)
    if match:
        return _split_names(match[1]), match[2] or ""
    match = _BARE_ENTRY.match(text)
    # A line of one word may also be the end of the description above it.
    if match and (after_blank or text[0] in ".:`" or any(map(resolves, _split_names(match[1])))):
        return _split_names(match[1]), ""
    return None


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(bare_name(name) for name in re.findall(rf"(?:{_NAME})", names))


def _take_listings(
    lines: list[str], lists: Callable[[str], bool], anywhere: bool
) -> tuple[list[str], list[Mention]]:
    """Take out the lines that list other pages: name, then description beside it or under it."""
    kept, mentions, i, title, in_table = [], [], 0, "", False
    while i < len(lines):
        if _is_title(lines, i):
            title = lines[i].strip().lower()
        in_table = bool(lines[i].strip()) and (in_table or bool(_RULER.match(lines[i].strip())))
        may_list = title in _LISTING_TITLES or (anywhere and title not in _ENTRY_TITLES)
        # The columns of a table may be one space apart.
        line = re.sub(r"(?<=\S) ", "  ", lines[i].strip(), count=1) if in_table else lines[i].strip()
        match = _LISTED.match(line) if may_list else None
        end = i + 1
        if match and lists(bare_name(match[1])):
            while end < len(lines) and lines[end].strip() and _indent(lines[end]) > _indent(lines[i]):
                end += 1
            beside, under = match[2] or match[3] or "", " ".join(lines[i + 1 : end])
            if under and title in _LISTING_TITLES and title != "methods":
                beside = ""  # the type of an attribute
            description = clean(f"{beside} {under}")
            if len(description.split()) > 1:
                mentions.append(Mention((bare_name(match[1]),), description, "listing"))
                kept.append("")
                i = end
                continue
        kept.append(lines[i])
        i += 1
    return kept, mentions


# --- prose -----------------------------------------------------------------------------------------


def _without_code(lines: list[str]) -> Iterator[str]:
    """Drop doctests, literal blocks, formulas, figures, comments, footnotes and rulers of tables."""
    i = 0
    while i < len(lines):
        line, base = lines[i].strip(), _indent(lines[i])
        directive = _DIRECTIVE.match(line)
        i += 1
        if line.startswith((">>>", "In [", "$ ")):
            i = _paragraph_end(lines, i)
        elif directive and directive[1] in _PROSE_DIRECTIVES:
            yield ""
            yield " " * base + directive[2]
        elif directive or re.match(r"\.\.(\s|$)", line):
            i = _block_end(lines, i, base)
            yield ""
        elif line.endswith("::"):
            yield lines[i - 1].rstrip()[:-1]
            i = _block_end(lines, i, base)
            yield ""
        elif line.startswith(("+-", "+=", "|")) or _RULER.match(line):
            yield ""
        else:
            yield lines[i - 1]


class _Assembler:
    """Puts lines together into paragraphs; in a section such as Parameters, each entry is one."""

    def __init__(self) -> None:
        self.paragraphs: list[Paragraph] = []
        self._title, self._head, self._body = "Summary", "", []
        self._base: int | None = 0

    @property
    def empty(self) -> bool:
        return not self.paragraphs and not self._body and self._title == "Summary"

    def title(self, title: str) -> None:
        """Begin a section."""
        self.close()
        self._title, self._base = title, None

    def line(self, line: str, indent: int) -> None:
        """Take the next line; a blank one ends a paragraph, though not an entry."""
        is_entries = self._title.lower() in _ENTRY_TITLES
        if not line:
            if not is_entries:
                self.close()
            return
        self._base = indent if self._base is None else self._base
        field_match = _FIELD.match(line)
        if field_match or (indent <= self._base if is_entries else _BULLET.match(line)):
            self.close()
            self._head, line = _split_entry(line, field_match) if field_match or is_entries else ("", line)
        self._body.append(line)

    def close(self) -> None:
        """End the paragraph; what has no word, and bibliographies, are left out."""
        text, prose = clean(f"{self._head} {' '.join(self._body)}"), clean(" ".join(self._body))
        if _HAS_WORD.search(text) and self._title.lower() not in _DROPPED_TITLES and not _BOILERPLATE.match(text):
            self.paragraphs.append(Paragraph(self._title, text, prose))
        self._head, self._body = "", []


def _paragraphs(lines: list[str]) -> list[Paragraph]:
    assembler, i = _Assembler(), 0
    while i < len(lines):
        line, indent = lines[i].strip(), _indent(lines[i])
        if _is_title(lines, i):
            if assembler.empty:  # the title of the whole docstring is its summary
                assembler.line(line, 0)
                assembler.close()
            else:
                assembler.title(line.rstrip(": "))
            i += 2
            continue
        if _GOOGLE_TITLE.match(line) and indent == 0 and not assembler.empty:
            assembler.title(line.rstrip(": "))
        elif not (_UNDERLINE.match(line) and _is_title(lines, i + 1)):  # the line above a title
            assembler.line(line, indent)
        i += 1
    assembler.close()
    return assembler.paragraphs


def _split_entry(line: str, field_match: re.Match | None) -> tuple[str, str]:
    """The name and type of an entry, and the first line of its description if it stands beside them."""
    if field_match:
        return f"{field_match[2].strip() or field_match[1]}:", line[field_match.end() :]
    google = re.match(r"(`{0,2}\*{0,2}\w+`{0,2}(?:\s*\([^)]*\)+)?\s?:)\s+(.*)$", line)
    if google and " : " not in line[: google.end(1) + 1]:
        return google[1], google[2]
    return line, ""


_ROLE = re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)\s*(?:<[^`>]*>)?`")
_TICKS = re.compile(r"``?~?([^`]+?)(?:\s*<[^`>]*>)?``?_{0,2}")
_FOOTNOTE = re.compile(r"\s*\[[#\w]+\]_")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_STRONG = re.compile(r"(?<![\w*])\*{1,2}(\w(?:[^*]*[\w.!?)])?)\*{1,2}(?![\w*])")


def clean(text: str) -> str:
    """The text in one line, without the marks of reStructuredText and without memory addresses."""
    for pattern, by in ((_ROLE, r"\1"), (_TICKS, r"\1"), (_FOOTNOTE, ""), (_ADDRESS, ""), (_STRONG, r"\1")):
        text = pattern.sub(by, text)
    return " ".join(text.split())


def short(text: str) -> str:
    """The text, or its first sentences where it is longer than `MAX_SHORT_WORDS` words."""
    if len(text.split()) <= MAX_SHORT_WORDS:
        return text
    parts = re.split(r"(?<=[.!?;:])\s+", text)
    taken = parts[0].split()
    for part in parts[1:]:
        if len(taken) + len(part.split()) > MAX_SHORT_WORDS:
            break
        taken += part.split()
    return " ".join(taken[:MAX_SHORT_WORDS])


def passages(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[str, str]]:
    """Pack paragraphs, in order, into (section, text) of at most `MAX_PASSAGE_WORDS` words.

    The summary stands alone, with as much of the text before the first title as fits. Behind it short
    sections share a passage, which bears the title of the first.
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


def key(text: str) -> str:
    """What two texts share that differ in case, white space and punctuation only."""
    return " ".join(words(text))
