"""A current Wikipedia, from the XML dump of its pages, with sections and hyperlinks."""

from __future__ import annotations

import bz2
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

from retlib.data.collection import Article
from retlib.data.datasets import register_articles
from retlib.data.datasets._tasks import article, is_running_text
from retlib.data.datasets.catalogue import damaged, locate

FILE = "wikipedia/simplewiki-latest-pages-articles.xml.bz2"

# Elements whose content is no running text.
_DROPPED = {"table", "ref", "references", "gallery", "math", "chem", "pre", "source", "syntaxhighlight", "timeline"} | {
    *("score", "imagemap", "hiero", "graph", "templatedata", "categorytree", "inputbox", "section", "style", "poem"),
}
# Items of lists, by how their lines begin, and breaks within a line.
_ITEMS, _BREAK = re.compile(r"(?m)^[*#:;].*$"), re.compile(r"<br\s*/?>")
# The older name of File, which the dump does not list.
_ALIASES = {"image"}
# What templates leave behind when they go: "(; )", "( )".
_EMPTY_BRACKETS = re.compile(r"\s?\([\s,;:]*\)")


@register_articles("wikipedia")
def stream_articles() -> Iterator[Article]:
    """Yield every page of the main namespace that is no redirect: paragraphs of running text and links.

    Templates (so infoboxes too), tables, lists, pictures and footnotes are left out. The name of an article is its
    title. Links are those of the whole page, without what they say about a section. A link to a redirect keeps its
    name, which is no article's: to resolve it, all redirects would have to be kept. The memory used does not depend on
    the size of the dump. Raises `DataError`, with the line, if the dump is truncated or not a MediaWiki export.
    """
    path = locate("wikipedia", FILE)
    namespaces = _ALIASES
    for kind, element in _elements(path):
        if kind == "siteinfo":
            names = (space.text for space in element.findall(".//{*}namespace"))
            namespaces = {name.lower() for name in names if name} | _ALIASES
            continue
        title, space, text = (element.findtext(f"{{*}}{tag}") for tag in ("title", "ns", "revision/{*}text"))
        if None in (title, space, text):
            raise damaged("wikipedia", str(path), f"the page {title!r} has no title, namespace or text")
        if space == "0" and element.find("{*}redirect") is None:
            yield _article(title, text, namespaces)


def _elements(path: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """Kind and element of the head of a dump (siteinfo) and of each page; each is forgotten after its turn."""
    try:
        with bz2.open(path) as stream:
            events = ElementTree.iterparse(stream, events=("start", "end"))
            _, root = next(events)
            if _local(root) != "mediawiki":
                raise damaged(
                    "wikipedia", f"{path}, line 1", f"the XML is a {_local(root)!r}, not a 'mediawiki' export"
                )
            for event, element in events:
                if event == "end" and _local(element) in ("siteinfo", "page"):
                    yield _local(element), element
                    root.clear()
    except ElementTree.ParseError as error:
        raise damaged("wikipedia", f"{path}, line {error.position[0]}", f"it is not XML ({error})") from error
    except (EOFError, OSError) as error:
        raise damaged("wikipedia", str(path), f"it cannot be unpacked to its end ({error})") from error


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _article(title: str, text: str, namespaces: set[str]) -> Article:
    import mwparserfromhell

    links = mwparserfromhell.parse(text).filter_wikilinks()
    leads = dict.fromkeys(_target(str(link.title), namespaces) for link in links)
    code = mwparserfromhell.parse(_BREAK.sub(" ", _ITEMS.sub("", text)))
    unseen = [link for link in code.filter_wikilinks() if _is_foreign(str(link.title), namespaces)]
    unseen += [tag for tag in code.filter_tags() if str(tag.tag).strip().lower() in _DROPPED]
    for node in unseen:
        with suppress(ValueError):  # it stands in one that is gone
            code.remove(node)
    sections = [_paragraphs(part.strip_code()) for part in code.get_sections(flat=True, include_headings=False)]
    return article(title, title, sections, [lead for lead in leads if lead not in ("", title)])


def _target(link: str, namespaces: set[str]) -> str:
    """The page that a link names; empty where it is no article."""
    link = " ".join(link.partition("#")[0].replace("_", " ").split()).lstrip(": ")
    return "" if _is_foreign(link, namespaces) else link[:1].upper() + link[1:]


def _is_foreign(link: str, namespaces: set[str]) -> bool:
    """Whether a link leads to a picture, a category or another page that is no article."""
    space, colon, _ = link.partition(":")
    return bool(colon) and space.strip().lower() in namespaces


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of running text of a section: a line each in wiki text."""
    lines = (" ".join(_EMPTY_BRACKETS.sub("", line).split()) for line in text.split("\n"))
    return [line for line in lines if is_running_text(line)]
