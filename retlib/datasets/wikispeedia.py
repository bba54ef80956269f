"""Wikispeedia: the articles of the 2007 schools selection of Wikipedia as bulk text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retlib.datasets import register_text
from retlib.datasets._reading import members, running_text
from retlib.datasets.catalogue import locate

FILE = "wikispeedia/wikispeedia_articles_plaintext.tar.gz"


@register_text("wikispeedia")
def sentences() -> Iterator[str]:
    """Every sentence of at least four words in the running text of the articles.

    Paragraphs are wrapped over lines and end at an empty one; the last, about the source
    and the licence, is the same in every article and is left out.
    """
    for _, numbered in members("wikispeedia", locate("wikispeedia", FILE)):
        text = "".join(line for _, line in numbered).rsplit("\n   Retrieved from", 1)[0]
        paragraphs = re.split(r"\n\s*\n", text)
        yield from running_text(" ".join(paragraph.split()) for paragraph in paragraphs)
