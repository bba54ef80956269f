"""Data sets by name: one short file a source, in this folder, in a notebook's cell or in a plug-in.

A new source is a function without arguments under a decorator:

>>> @register("my-corpus")
... def load_my_corpus() -> Collection:
...     rows = fields("my-corpus", "my-corpus/pairs.tsv", 3)
...     ...

and, when it is read from files, an entry in `data/catalogue.yaml` that says where they come from.
From then on its name is valid wherever a collection is named; a cell that runs again replaces it.
Bulk text without queries (for word vectors, pre-training, distractors) registers with
`register_text` a function that yields one sentence at a time; pages with sections and hyperlinks
(for pre-training) register with `register_articles` one that yields each as an `Article`.
A corpus of one's own needs no function: its name is where it lies (`retlib.data.datasets.own`).
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from retlib.core.errors import require_one_of
from retlib.core.registry import Registry
from retlib.data.collection import Article, Collection
from retlib.data.datasets import catalogue, own
from retlib.data.datasets._tasks import running_text

# Of what the functions in this folder make of the same files: whoever changes what articles they yield raises it.
VERSION = 1

_COLLECTIONS, _TEXTS, _ARTICLES = Registry("collection"), Registry("text"), Registry("articles")


def register(name: str) -> Callable:
    """Decorate a function that returns the `Collection` called `name`."""
    return _COLLECTIONS.register(name)


def register_text(name: str) -> Callable:
    """Decorate a generator function that yields the sentences of the bulk text called `name`."""
    return _TEXTS.register(name)


def register_articles(name: str) -> Callable:
    """Decorate a generator function that yields each `Article` of the source called `name`."""
    return _ARTICLES.register(name)


def names() -> list[str]:
    """The names that `load` knows."""
    return _COLLECTIONS.names()


def text_names() -> list[str]:
    """The names that `text` knows."""
    return _TEXTS.names()


def article_names() -> list[str]:
    """The names that `articles` knows."""
    return _ARTICLES.names()


def require_known(label: str, name: object, names: Iterable[str]) -> None:
    """Raise `SettingError`, with what is valid, unless a name is one of these or that of a corpus of one's own."""
    names = list(names)
    if name not in names and not (isinstance(name, str) and own.find(name)):
        forms = (f"{form}:<{place}>" for form, (place, _) in own.FORMS.items())
        require_one_of(label, name, [*names, *forms])


def _own(name: str, registry: Registry) -> own.Own | None:
    """A corpus of one's own of that name, unless something is registered under it."""
    return None if name in registry.names() else own.find(name)


def load(name: str) -> Collection:
    """The collection called `name`, or lying where `name` says; the last few are kept in memory.

    Raises
    ------
    SettingError
        If no collection has that name.
    DataError
        If a file is absent or damaged.
    """
    if found := _own(name, _COLLECTIONS):
        changed = tuple((path, status.st_size, status.st_mtime_ns) for path in found.files for status in [path.stat()])
        return _load_own(name, changed)
    require_known("collection", name, names())
    # The folders are part of the key, so that a changed $RETLIB_DATA is noticed.
    return _load(_COLLECTIONS.get(name), catalogue.data_folders())


@lru_cache(maxsize=4)
def _load(make: Callable[[], Collection], folders: tuple) -> Collection:
    return make()


@lru_cache(maxsize=4)
def _load_own(name: str, changed: tuple) -> Collection:
    return own.find(name).collection()


def text(name: str) -> Iterator[str]:
    """The sentences of the bulk text called `name`, streamed in constant memory; errors as those of `load`."""
    if found := _own(name, _TEXTS):
        return (sentence for article in found.articles() for sentence in running_text(article.passages))
    return _TEXTS.get(name)()


def articles(name: str) -> Iterator[Article]:
    """The articles of the source called `name`, streamed; errors as those of `load`."""
    found = _own(name, _ARTICLES)
    return found.articles() if found else _ARTICLES.get(name)()


def reader(name: str) -> ModuleType:
    """The module that reads the articles called `name`."""
    return own if _own(name, _ARTICLES) else sys.modules[_ARTICLES.get(name).__module__]


def readers(name: str) -> list[ModuleType]:
    """The modules that register a collection, a text or articles called `name`; none where nothing is called so."""
    known = [registry.get(name) for registry in (_COLLECTIONS, _TEXTS, _ARTICLES) if name in registry.names()]
    return [sys.modules[function.__module__] for function in known]


def provenance(name: str) -> dict[str, str]:
    """What makes the articles called `name`, for addresses: what they are read from, and the reader.

    Files with their checksums, or packages with their versions, and `VERSION`; of a source that is registered
    outside of this folder, the hash of its function.
    """
    if found := _own(name, _ARTICLES):
        return {"version": str(VERSION), **found.provenance}
    module = reader(name)
    if not module.__name__.startswith(f"{__name__}."):
        return {"source": _ARTICLES.source(name)}
    return {"version": str(VERSION), **getattr(module, "provenance", catalogue.provenance)(name)}


for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
