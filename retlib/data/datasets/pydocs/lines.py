"""The lines of a docstring: titles, blocks, and the marks of reStructuredText."""

from __future__ import annotations

import re

from retlib.data.text import words

# A description or summary with more words is cut behind its first sentences.
MAX_SHORT_WORDS = 40

# Titles of sections in which every line that is not indented begins an entry.
ENTRY_TITLES = {"parameters", "other parameters", "params", "args", "arguments", "keyword args"} | {
    *("keyword arguments", "returns", "return", "yields", "yield", "receives", "raises", "raise", "warns"),
    *("attributes", "methods", "properties", "inputs", "input", "outputs", "output"),
}
DIRECTIVE = re.compile(r"\.\.\s+([\w:-]+)::\s*(.*)$")
UNDERLINE = re.compile(r"([-=~^*\"'#+])\1{2,}$")
TABLE_RULER = re.compile(r"[=-]{2,}( +[=-]{2,})+$")


def indent(line: str) -> int:
    """How many spaces a line begins with."""
    return len(line) - len(line.lstrip())


def is_title(lines: list[str], i: int) -> bool:
    """Whether line `i` is a section title, underlined by the next line."""
    if i + 1 >= len(lines):
        return False
    title, under = lines[i].strip(), lines[i + 1].strip()
    underlined = bool(UNDERLINE.match(under)) and len(under) + 4 >= len(title)
    return underlined and title != "" and not UNDERLINE.match(title) and "  " not in title


def block_end(lines: list[str], start: int, base: int) -> int:
    """The first line from `start` on that is neither blank nor deeper than `base`."""
    while start < len(lines) and (not lines[start].strip() or indent(lines[start]) > base):
        start += 1
    return start


def paragraph_end(lines: list[str], start: int) -> int:
    """The first blank line from `start` on."""
    while start < len(lines) and lines[start].strip():
        start += 1
    return start


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


def key(text: str) -> str:
    """What two texts share that differ in case, white space and punctuation only."""
    return " ".join(words(text))
