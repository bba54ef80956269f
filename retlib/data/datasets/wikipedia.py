"""Articles of Wikipedia (Parts I to IV): its selection for schools of 2007 with hyperlinks (West 2009), and of 2015."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from urllib.parse import unquote

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._common import article, is_running_text, running_text
from retlib.data.datasets.catalogue import read_archive

TEXTS = "wikispeedia/wikispeedia_articles_plaintext.tar.gz"
GRAPH = "wikispeedia/wikispeedia_paths-and-graph.tar.gz"

WIDTH = 74  # columns at which the text is wrapped
ENLARGE = "Enlarge"  # what the link reads that enlarges a picture; its caption stands above and below
NOTES = ("^", "CAPTION:")  # how footnotes and the titles of tables begin
SELECTION, LICENCE = "2007 Schools Wikipedia Selection", "\n   Retrieved from"
OPENING = re.compile(r'(?m)^<doc id="\d+" url="[^"]*" title="(.*)">$')


@register_text("wikispeedia")
def wikispeedia_sentences() -> Iterator[str]:
    """Yield every sentence of the running text, captions included, without the paragraph on source and licence."""
    for _, text in read_archive(TEXTS):
        paragraphs = re.split(r"\n\s*\n", text.rsplit(LICENCE, 1)[0])
        yield from running_text(" ".join(paragraph.split()) for paragraph in paragraphs)


@register_articles("wikispeedia")
def wikispeedia_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, and what it links to.

    Left out is whatever is not indented by three spaces (infoboxes, tables, lists, quotations), captions and footnotes.
    """
    links = defaultdict(list)
    graph = {Path(file).name: text for file, text in read_archive(GRAPH)}
    for line in graph["links.tsv"].splitlines():
        if line and not line.startswith("#"):
            source, target = map(unquote, line.split("\t"))
            links[source].append(target)
    for file, text in read_archive(TEXTS):
        titles, sections = [], [[]]  # what stands at the margin, the article's title first, and what between
        text = "\n".join(map(str.rstrip, text.split("\n")))
        for block in re.findall(r"[^\n]+(?:\n[^\n]+)*", text.split(LICENCE)[0]):
            if block.startswith(" "):
                sections[-1].extend(paragraphs(block.split("\n")))
            elif not block.startswith(SELECTION):
                titles.append(block.replace("\n", " "))
                sections.append([])
        name = unquote(Path(file).name.removesuffix(".txt"))
        yield article(name, titles[0], sections, links[name])


def paragraphs(block: list[str]) -> list[str]:
    """Return the paragraphs of running text in a block of lines of `wikispeedia`, without captions."""
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
    rest = (line for i, line in enumerate(joined) if i not in captions and not line.startswith(NOTES))
    return list(filter(is_running_text, rest))


@register_articles("wikipedia-2015")
def wikipedia_articles() -> Iterator[Article]:
    """Yield every article, as WikiExtractor wrote it: its paragraphs of running text, the name its title, no links.

    A line that is no running text (a heading, or what introduces a list) ends a section, and the first the opening.
    """
    for _, text in read_archive("wikipedia-2015/wikiextractor-AA.tar.gz"):
        _, *parts = OPENING.split(text)
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            # The first line repeats the title, the last closes the article.
            lines = [line for line in map(str.strip, body.split("\n")) if line][1:-1]
            groups = groupby(lines, key=is_running_text)
            yield article(title, title, [list(group) for is_text, group in groups if is_text])
