"""Wikispeedia: the articles of the 2007 schools selection of Wikipedia, with their hyperlinks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._files import members
from retlib.data.datasets._tasks import article, is_running_text, running_text
from retlib.data.datasets.catalogue import damaged, locate

FILE = "wikispeedia/wikispeedia_articles_plaintext.tar.gz"
GRAPH = "wikispeedia/wikispeedia_paths-and-graph.tar.gz"
LINKS = "links.tsv"

# Columns at which the text is wrapped.
WIDTH = 74
# What the link that enlarges a picture reads; its caption stands above and below.
_ENLARGE = "Enlarge"
# How footnotes and the titles of tables begin.
_NOTES = ("^", "CAPTION:")
_SELECTION = "2007 Schools Wikipedia Selection"
_LICENCE = "   Retrieved from"


@register_text("wikispeedia")
def sentences() -> Iterator[str]:
    """Yield every sentence of at least four words in the running text of the articles.

    Paragraphs end at an empty line; the last, about source and licence, is the same everywhere and left out. Captions
    that are sentences stay, which `stream_articles` leaves out.
    """
    for _, lines in members("wikispeedia", FILE):
        text = "".join(lines).rsplit(f"\n{_LICENCE}", 1)[0]
        paragraphs = re.split(r"\n\s*\n", text)
        yield from running_text(" ".join(paragraph.split()) for paragraph in paragraphs)


@register_articles("wikispeedia")
def stream_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, and what it links to.

    Infoboxes, tables, lists and quotations (whatever is not indented by three spaces), captions, footnotes and the
    lines about source and licence are left out. Raises `DataError`, with file and line, for an article without a title
    or links that are not pairs of names.
    """
    targets = _links()
    for file, lines in members("wikispeedia", FILE):
        titles, sections = _read(line.rstrip() for line in lines)
        if not titles:
            raise damaged("wikispeedia", lines.place, "the article has no title")
        name = unquote(Path(file).name.removesuffix(".txt"))
        yield article(name, titles[0], sections, targets[name])


def _links() -> dict[str, list[str]]:
    """Name of every article that has links to the names that it links to."""
    targets: dict[str, list[str]] = defaultdict(list)
    is_here = False
    for file, lines in members("wikispeedia", GRAPH):
        if Path(file).name == LINKS:
            is_here = True
            for source, target in filter(None, lines.parsed(_link, "two names with a tab between them")):
                targets[source].append(target)
    if not is_here:
        raise damaged("wikispeedia", str(locate("wikispeedia", GRAPH)), f"there is no {LINKS} in it")
    return targets


def _link(line: str) -> tuple[str, str] | None:
    """The two ends of a link; None for a comment or an empty line."""
    if line.startswith("#") or not line.strip():
        return None
    source, target = map(unquote, line.rstrip("\r\n").split("\t"))
    return source, target


def _read(lines: Iterator[str]) -> tuple[list[str], list[list[str]]]:
    """The titles at the margin, the article's own first, and the paragraphs between them."""
    titles, sections = [], [[]]
    for block in _blocks(lines):
        if block[0].startswith(_LICENCE):
            break
        if block[0].startswith(" "):
            sections[-1].extend(_paragraphs(block))
        elif not block[0].startswith(_SELECTION):
            titles.append(" ".join(block))
            sections.append([])
    return titles, sections


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Lines that stand together; the licence begins a block even where no empty line is above it."""
    for is_text, group in groupby(lines, key=bool):
        block = list(group)
        if is_text:
            cut = next((i for i, line in enumerate(block) if line.startswith(_LICENCE)), len(block))
            yield from filter(None, (block[:cut], block[cut:]))


def _paragraphs(block: list[str]) -> list[str]:
    """The paragraphs of running text in a block, without captions."""
    if any(line[:3].strip() or line[3:4] == " " for line in block):
        return []  # an infobox, a table or a list
    joined = _unwrapped([line.strip() for line in block])
    captions = {i + step for i, line in enumerate(joined) if line == _ENLARGE for step in (-1, 1)}
    # A picture's caption that cannot be enlarged also stands twice.
    captions |= {i + step for i, (one, other) in enumerate(pairwise(joined)) if one == other for step in (0, 1)}
    kept = (line for i, line in enumerate(joined) if i not in captions and not line.startswith(_NOTES))
    return [line for line in kept if is_running_text(line)]


def _unwrapped(lines: list[str]) -> list[str]:
    """Join lines that were one: the next one's first word had no place at the end of the one above."""
    joined = lines[:1]
    for above, below in pairwise(lines):
        has_place = 3 + len(above) + 1 + len(below.split(" ", 1)[0]) <= WIDTH
        if has_place or _ENLARGE in (above, below):
            joined.append(below)
        else:
            joined[-1] += f" {below}"
    return joined
