"""Data sets by name: one short file a source, in this folder.

A new source is a new module here that decorates a function without arguments:

>>> @register("my-corpus")
... def load_my_corpus() -> Collection:
...     path = locate("my-corpus", "my-corpus/pairs.tsv")
...     ...

and, when it is read from files, an entry in `data/catalogue.yaml` that says where they come from.
Bulk text without queries (for word vectors, pre-training, distractors) registers with
`register_text` a function that yields one sentence at a time; pages with sections and hyperlinks
(for pre-training) register with `register_articles` one that yields each as an `Article`.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType

from retlib.core.errors import require_one_of
from retlib.data.collection import Article, Collection
from retlib.data.datasets.catalogue import data_folders

_COLLECTIONS: dict[str, Callable[[], Collection]] = {}
_TEXTS: dict[str, Callable[[], Iterator[str]]] = {}
_ARTICLES: dict[str, Callable[[], Iterator[Article]]] = {}


def register(name: str) -> Callable:
    """Decorate a function that returns the `Collection` called `name`."""
    return _registrar(_COLLECTIONS, name)


def register_text(name: str) -> Callable:
    """Decorate a generator function that yields the sentences of the bulk text called `name`."""
    return _registrar(_TEXTS, name)


def register_articles(name: str) -> Callable:
    """Decorate a generator function that yields each `Article` of the source called `name`."""
    return _registrar(_ARTICLES, name)


def names() -> list[str]:
    """The names that `load` knows."""
    _discover()
    return sorted(_COLLECTIONS)


def text_names() -> list[str]:
    """The names that `text` knows."""
    _discover()
    return sorted(_TEXTS)


def article_names() -> list[str]:
    """The names that `articles` knows."""
    _discover()
    return sorted(_ARTICLES)


def load(name: str) -> Collection:
    """The collection called `name`; the last few are kept in memory.

    Raises
    ------
    SettingError
        If no collection has that name.
    DataError
        If a file is absent or damaged.
    """
    require_one_of("collection", name, names())
    # The folders are part of the key, so that a changed $RETLIB_DATA is noticed.
    return _load(name, data_folders())


def text(name: str) -> Iterator[str]:
    """The sentences of the bulk text called `name`, streamed in constant memory.

    Raises
    ------
    SettingError
        If no text has that name.
    DataError
        If a file is absent or damaged.
    """
    require_one_of("text", name, text_names())
    return _TEXTS[name]()


def articles(name: str) -> Iterator[Article]:
    """The articles of the source called `name`, streamed.

    Raises
    ------
    SettingError
        If no source of articles has that name.
    DataError
        If a file is absent or damaged.
    """
    require_one_of("articles", name, article_names())
    return _ARTICLES[name]()


def reader(name: str) -> ModuleType:
    """The module that reads the articles called `name`."""
    require_one_of("articles", name, article_names())
    return sys.modules[_ARTICLES[name].__module__]


def readers(name: str) -> list[ModuleType]:
    """The modules that register a collection, a text or articles called `name`; none where nothing is called so."""
    _discover()
    known = [registry[name] for registry in (_COLLECTIONS, _TEXTS, _ARTICLES) if name in registry]
    return [sys.modules[function.__module__] for function in known]


def provenance(name: str) -> dict[str, str]:
    """What the articles called `name` are read from: files with their checksums, or packages with their versions."""
    from retlib.data.datasets import catalogue

    return getattr(reader(name), "provenance", catalogue.provenance)(name)


def _registrar(registry: dict[str, Callable], name: str) -> Callable:
    def decorate(function: Callable) -> Callable:
        registry[name] = function
        return function

    return decorate


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


@lru_cache(maxsize=4)
def _load(name: str, folders: tuple) -> Collection:
    return _COLLECTIONS[name]()
