"""English Wikipedia articles of 2015 as WikiExtractor wrote them: bulk text, and pages without hyperlinks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._files import members
from retlib.data.datasets._tasks import article, is_running_text, running_text

FILE = "wikipedia-2015/wikiextractor-AA.tar.gz"
_OPENING = re.compile(r'<doc id="\d+" url="[^"]*" title="(.*)">$')


def articles() -> Iterator[tuple[str, str]]:
    """Yield title and text of every article, in the order of the files, a paragraph or a heading a line.

    The first line, which repeats the title, is left out. Raises `DataError` if an article is not opened or not closed.
    """
    for _, lines in members("wikipedia-2015", FILE):
        title, kept, number = None, [], 0
        for number, line in lines.numbered:
            line = line.strip()
            opening = _OPENING.match(line)
            if (title is None) != bool(opening) and line:
                raise lines.damaged(number, "an article is not opened, or not closed")
            if opening:
                title, kept = opening[1], []
            elif line == "</doc>":
                yield title, "\n".join(kept[1:])
                title = None
            elif line:
                kept.append(line)
        if title is not None:
            raise lines.damaged(number, f"the article {title!r} is not closed")


@register_text("wikipedia-2015")
def sentences() -> Iterator[str]:
    """Every sentence of at least four words in the running text of the articles."""
    for _, text in articles():
        yield from running_text(text.split("\n"))


@register_articles("wikipedia-2015")
def stream_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, the name its title, no links.

    A line that is no running text (a heading, or what introduces a list) ends a section, and the first ends the
    opening.
    """
    for title, text in articles():
        groups = groupby(text.split("\n"), key=is_running_text)
        yield article(title, title, [list(lines) for is_text, lines in groups if is_text])
