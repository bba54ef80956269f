"""Wikispeedia: the articles of the 2007 schools selection of Wikipedia, with their hyperlinks (West 2009)."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._files import members
from retlib.data.datasets._tasks import article, is_running_text, running_text

FILE = "wikispeedia/wikispeedia_articles_plaintext.tar.gz"
GRAPH = "wikispeedia/wikispeedia_paths-and-graph.tar.gz"

WIDTH = 74  # columns at which the text is wrapped
ENLARGE = "Enlarge"  # what the link reads that enlarges a picture; its caption stands above and below
NOTES = ("^", "CAPTION:")  # how footnotes and the titles of tables begin
SELECTION, LICENCE = "2007 Schools Wikipedia Selection", "\n   Retrieved from"


@register_text("wikispeedia")
def sentences() -> Iterator[str]:
    """Yield every sentence of at least four words in the running text of the articles.

    Paragraphs end at an empty line; the last, about source and licence, is the same everywhere and left out. Captions
    that are sentences stay, which `stream_articles` leaves out.
    """
    for _, text in members("wikispeedia", FILE):
        paragraphs = re.split(r"\n\s*\n", text.rsplit(LICENCE, 1)[0])
        yield from running_text(" ".join(paragraph.split()) for paragraph in paragraphs)


@register_articles("wikispeedia")
def stream_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, and what it links to.

    Infoboxes, tables, lists and quotations (whatever is not indented by three spaces), captions, footnotes and the
    lines about source and licence are left out.
    """
    links = defaultdict(list)
    graph = {Path(file).name: text for file, text in members("wikispeedia", GRAPH)}
    for line in graph["links.tsv"].split("\n"):
        if line.strip() and not line.startswith("#"):
            source, target = map(unquote, line.rstrip("\r").split("\t"))
            links[source].append(target)
    for file, text in members("wikispeedia", FILE):
        titles, sections = [], [[]]  # what stands at the margin, the article's title first, and what between
        text = "\n".join(map(str.rstrip, text.split("\n")))
        for block in re.findall(r"[^\n]+(?:\n[^\n]+)*", text.split(LICENCE)[0]):
            if block.startswith(" "):
                sections[-1].extend(_paragraphs(block.split("\n")))
            elif not block.startswith(SELECTION):
                titles.append(block.replace("\n", " "))
                sections.append([])
        name = unquote(Path(file).name.removesuffix(".txt"))
        yield article(name, titles[0], sections, links[name])


def _paragraphs(block: list[str]) -> list[str]:
    # The paragraphs of running text in a block, without captions.
    if any(line[:3].strip() or line[3:4] == " " for line in block):
        return []  # an infobox, a table or a list
    lines = [line.strip() for line in block]
    joined = lines[:1]
    for above, below in pairwise(lines):
        # Two lines were one where the next one's first word had no place at the end of the one above.
        has_place = 3 + len(above) + 1 + len(below.split(" ", 1)[0]) <= WIDTH
        if has_place or ENLARGE in (above, below):
            joined.append(below)
        else:
            joined[-1] += f" {below}"
    captions = {i + step for i, line in enumerate(joined) if line == ENLARGE for step in (-1, 1)}
    # A picture's caption that cannot be enlarged also stands twice.
    captions |= {i + step for i, (one, other) in enumerate(pairwise(joined)) if one == other for step in (0, 1)}
    kept = (line for i, line in enumerate(joined) if i not in captions and not line.startswith(NOTES))
    return list(filter(is_running_text, kept))
