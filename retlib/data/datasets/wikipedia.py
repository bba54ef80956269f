"""A current Wikipedia, from the XML dump of its pages, with sections and hyperlinks."""

from __future__ import annotations

import bz2
import re
from collections.abc import Iterator

from retlib.data.collection import Article
from retlib.data.datasets import register_articles
from retlib.data.datasets._tasks import article, is_running_text
from retlib.data.datasets.catalogue import locate


@register_articles("wikipedia")
def stream_articles() -> Iterator[Article]:
    """Yield every page of the main namespace that is no redirect: paragraphs of running text and links, streamed."""
    import mwparserfromhell
    from gensim.corpora.wikicorpus import extract_pages, filter_wiki

    with bz2.open(locate("wikipedia", "wikipedia/simplewiki-latest-pages-articles.xml.bz2")) as dump:
        for title, text, _ in extract_pages(dump, filter_namespaces=("0",)):
            if text and not text.lstrip().lower().startswith("#redirect"):
                code = mwparserfromhell.parse(text)
                links = dict.fromkeys(_target(str(link.title)) for link in code.filter_wikilinks())
                parts = (filter_wiki(str(part)) for part in code.get_sections(flat=True, include_headings=False))
                yield article(
                    title, title, map(_paragraphs, parts), (name for name in links if name not in ("", title))
                )


def _target(link: str) -> str:
    # The title of the article that a link names, or nothing where it names a page of another kind.
    name = " ".join(link.partition("#")[0].replace("_", " ").split())
    return "" if ":" in name else name[:1].upper() + name[1:]


def _paragraphs(text: str) -> list[str]:
    # Without items of lists, and marks of bold and italic letters.
    lines = (" ".join(re.sub("''+", "", line).split()) for line in re.sub("(?m)^[*#:;].*", "", text).split("\n"))
    return list(filter(is_running_text, lines))
