"""What a docstring says of other pages: "See Also" entries and listings, which are taken out of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from retlib.data.datasets.pydocs.lines import (
    DIRECTIVE,
    ENTRY_TITLES,
    TABLE_RULER,
    block_end,
    clean,
    indent,
    is_title,
    paragraph_end,
)

Known = Callable[[str], bool]


@dataclass(frozen=True)
class Mention:
    """What a docstring says of other pages: by which names, what of them (or ""), and where it says so."""

    names: tuple[str, ...]
    description: str
    source: Literal["see_also", "listing"]


# Titles under which a class lists its members.
_LISTING_TITLES = {"methods", "attributes", "properties"}

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


def take_see_also(lines: list[str], resolves: Known) -> tuple[list[str], list[Mention]]:
    """Take every "See Also" (section, directive or paragraph) out of a docstring: what is left, and what was said."""
    kept, mentions, i = [], [], 0
    while i < len(lines):
        line, base = lines[i].strip(), indent(lines[i])
        directive = DIRECTIVE.match(line)
        is_directive = directive is not None and directive[1] == "seealso"
        if not is_directive and not re.match(r"(?i)see also\b", line):
            kept.append(lines[i])
            i += 1
            continue
        if is_directive:
            end = block_end(lines, i + 1, base)
            block = [directive[2], *lines[i + 1 : end]]
        elif is_title(lines, i):
            end = i + 2
            while end < len(lines) and not is_title(lines, end):
                end += 1
            block = lines[i + 2 : end]
        else:  # a paragraph, or a title with a colon and what is indented under it
            end = max(block_end(lines, i + 1, base), paragraph_end(lines, i + 1))
            block = [line[len("see also") :].lstrip(": "), *lines[i + 1 : end]]
        mentions += _entries(block, resolves)
        kept.append("")
        i = end
    return kept, mentions


def _entries(block: list[str], resolves: Known) -> Iterator[Mention]:
    """The entries of a "See Also": names, and a description beside or under them."""
    base = min((indent(line) for line in block[1:] if line.strip()), default=0)
    items: list[tuple[tuple[str, ...], list[str]]] = []
    before = ""
    for i, line in enumerate(block):
        text = line.strip()
        head = _entry_head(text, before, resolves) if text and (i == 0 or indent(line) <= base) else None
        if head is not None:
            items.append((head[0], [head[1]]))
        elif items:
            items[-1][1].append(text)
        before = text
    for names, description in items:
        yield Mention(names, clean(" ".join(description)), "see_also")


def _entry_head(text: str, before: str, resolves: Known) -> tuple[tuple[str, ...], str] | None:
    """Names and description if a line begins an entry; `before` is the line above it."""
    match = _DESCRIBED_ENTRY.match(text)
    if not match and (before == "" or before.endswith(".")):
        match = _ROLE_ENTRY.match(text)
    if match:
        return _split_names(match[1]), match[2] or ""
    match = _BARE_ENTRY.match(text)
    # A line of one word may also be the end of the description above it.
    if match and (before == "" or text[0] in ".:`" or any(map(resolves, _split_names(match[1])))):
        return _split_names(match[1]), ""
    return ((), text) if before == "" else None


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(bare_name(name) for name in re.findall(rf"(?:{_NAME})", names))


def take_listings(lines: list[str], lists: Known, anywhere: bool) -> tuple[list[str], list[Mention]]:
    """Take out the lines that list other pages: a name, and a description beside it or under it.

    Pages may be listed `anywhere`, or only under the titles Methods, Attributes and Properties; `lists` says
    whether a name is that of another page in a list of members.
    """
    kept, mentions, i, title, in_table = [], [], 0, "", False
    while i < len(lines):
        if is_title(lines, i):
            title = lines[i].strip().lower()
        in_table = bool(lines[i].strip()) and (in_table or bool(TABLE_RULER.match(lines[i].strip())))
        may_list = title in _LISTING_TITLES or (anywhere and title not in ENTRY_TITLES)
        # The columns of a table may be one space apart.
        line = re.sub(r"(?<=\S) ", "  ", lines[i].strip(), count=1) if in_table else lines[i].strip()
        match = _LISTED.match(line) if may_list else None
        end = i + 1
        if match and lists(bare_name(match[1])):
            while end < len(lines) and lines[end].strip() and indent(lines[end]) > indent(lines[i]):
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
