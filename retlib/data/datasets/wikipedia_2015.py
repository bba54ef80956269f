"""English Wikipedia articles of 2015 as WikiExtractor wrote them: bulk text, and pages without hyperlinks."""

import re
from collections.abc import Iterator
from itertools import groupby

from retlib.data.collection import Article
from retlib.data.datasets import register_articles, register_text
from retlib.data.datasets._files import members
from retlib.data.datasets._tasks import article, is_running_text, running_text

_OPENING, _END = re.compile(r'(?m)^<doc id="\d+" url="[^"]*" title="(.*)">$'), "</doc>"


def articles() -> Iterator[tuple[str, list[str]]]:
    """Yield title and lines of every article, in the order of the files, a paragraph or a heading a line.

    The first line, which repeats the title, is left out. Raises `ValueError` if an article is not opened or not closed.
    """
    for file, text in members("wikipedia-2015", "wikipedia-2015/wikiextractor-AA.tar.gz"):
        before, *parts = _OPENING.split(text)
        if before.strip():
            raise ValueError(f"{file}: its first article is not opened")
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            _, *lines, end = filter(None, map(str.strip, body.split("\n")))
            if end != _END or _END in lines:
                raise ValueError(f"{file}: the article {title!r} is not closed, or the next is not opened")
            yield title, lines


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
