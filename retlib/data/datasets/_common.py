"""What several readers of data sets share: ids of texts, the share that trains, articles (all parts)."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain

from retlib.data.collection import Article
from retlib.data.text import quick_sentences

# The split of questions that is in the frame: 80 % train (a tenth of it dev), 20 % test. `low_resource` makes others.
SHARE = 0.8


def text_id(text: str) -> str:
    """Return a hash of the text: the same text has the same id, and so the same split, in every copy of a data set."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def is_running_text(paragraph: str) -> bool:
    """Return whether a paragraph is no heading, caption or list item: eight words or more, ended as a sentence."""
    return paragraph.count(" ") >= 7 and paragraph.rstrip("\"'”’)").endswith((".", "!", "?"))


def running_text(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of at least four words in the paragraphs that are running text."""
    for paragraph in filter(is_running_text, paragraphs):
        yield from (sentence for sentence in quick_sentences(paragraph) if sentence.count(" ") >= 3)


def article(name: str, title: str, sections: Iterable[list[str]], links: Iterable[str] = ()) -> Article:
    """Return an article of the paragraphs of its sections; its opening is the first section that has any."""
    full = [section for section in sections if section]
    return Article(name, title, tuple(chain.from_iterable(full)), len(full[0]) if full else 0, tuple(links))
