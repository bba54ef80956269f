"""English Wikipedia articles of 2015 as WikiExtractor wrote them: bulk text, and pages without hyperlinks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._files import members
from retlib.data.datasets._tasks import article, is_running_text, running_text

_OPENING = re.compile(r'<doc id="\d+" url="[^"]*" title="(.*)">$')


def articles() -> Iterator[tuple[str, list[str]]]:
    """Yield title and lines of every article, in the order of the files, a paragraph or a heading a line.

    The first line, which repeats the title, is left out. Raises `ValueError` if an article is not opened or not closed.
    """
    for file, lines in members("wikipedia-2015", "wikipedia-2015/wikiextractor-AA.tar.gz"):
        title, kept = None, []
        for line in filter(None, map(str.strip, lines)):
            opening = _OPENING.match(line)
            if (title is None) != bool(opening):
                raise ValueError(f"{file}: an article is not opened, or not closed, at {line!r:.80}")
            if opening:
                title, kept = opening[1], []
            elif line == "</doc>":
                yield title, kept[1:]
                title = None
            else:
                kept.append(line)
        if title is not None:
            raise ValueError(f"{file}: the article {title!r} is not closed")


@register_text("wikipedia-2015")
def sentences() -> Iterator[str]:
    """Yield every sentence of at least four words in the running text of the articles."""
    for _, lines in articles():
        yield from running_text(lines)


@register_articles("wikipedia-2015")
def stream_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, the name its title, no links.

    A line that is no running text (a heading, or what introduces a list) ends a section, and the first ends the
    opening.
    """
    for title, lines in articles():
        groups = groupby(lines, key=is_running_text)
        yield article(title, title, [list(group) for is_text, group in groups if is_text])
