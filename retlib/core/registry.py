"""Registries: what chapters name (losses, negatives, tasks, encoders), wherever it is defined.

A decorator registers a thing: in the package, in a notebook's cell, or in a file that ``RETLIB_PLUGINS`` names (several
with the system's path separator between; relative to the project's folder). Its name is then valid in chapters, sweeps
and on the command line, and its source takes part in the address of all that is trained with it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from retlib.core import runtime
from retlib.core.errors import RetlibError, SettingError, require, require_one_of

# Values that are part of what a function computes when it reads them from outside.
LITERALS = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, type(None))


class Registry:
    """Names of one kind of thing.

    Parameters
    ----------
    kind : str
        As errors call it: "loss".
    elsewhere : callable, optional
        From an unregistered name, such as a place, to its thing or None.
    forms : callable, optional
        The forms of such names, as errors list them.
    takes : callable, optional
        From a thing to the arguments that it is called with, in order; others must have a default.
    **facts
        What a thing may say of itself, with its default; an attribute of the thing.
    """

    def __init__(
        self,
        kind: str,
        elsewhere: Callable[[str], Any] = lambda name: None,
        forms: Callable[[], list[str]] = list,
        takes: Callable[[Any], tuple[str, ...]] | None = None,
        **facts: Any,
    ) -> None:
        self.kind, self.facts = kind, facts
        self._elsewhere, self._forms, self._takes = elsewhere, forms, takes
        self._things: dict[str, Any] = {}

    def register(self, name: str, **facts: Any) -> Callable[[Any], Any]:
        """Return a decorator that makes a thing available under `name`.

        Raises `SettingError` for a name of another thing, a fact unknown here, or other arguments.
        """
        require(isinstance(name, str), f'a {self.kind} is registered under a name, as in @register("mine")')
        for fact in facts:
            require_one_of(f"what a {self.kind} says of itself", fact, self.facts)

        def add(thing: Any) -> Any:
            known = self._things.get(name)
            if known is not None and _identity(known) != _identity(thing):
                there = f"{known.__module__}.{known.__qualname__}"
                raise SettingError(f"{self.kind} {name!r} is there already: {there}. Choose another name.")
            for fact, value in {**self.facts, **facts}.items():
                setattr(thing, fact, value)
            if self._takes:
                _check_arguments(f"{self.kind} {name!r}", thing, self._takes(thing))
            self._things[name] = thing
            return thing

        return add

    def get(self, name: str) -> Any:
        """The thing of that name; `SettingError` lists the valid ones."""
        return self.check(self.kind, name)

    def check(self, label: str, name: object) -> Any:
        """As `get`; the error calls the name by a label, such as that of a parameter."""
        known = self.names()
        found = isinstance(name, str) and name not in known and self._elsewhere(name)
        if found:
            return found
        require_one_of(label, name, [*known, *self._forms()])
        return self._things[name]

    def names(self) -> list[str]:
        """All names, in order."""
        load_plugins()
        return sorted(self._things)

    def source(self, name: str) -> str:
        """A hash of what the thing computes; see `source`."""
        return source(self.get(name))


def _check_arguments(label: str, thing: Any, arguments: tuple[str, ...]) -> None:
    try:
        inspect.signature(thing).bind(*arguments)
    except (TypeError, ValueError) as error:
        wrong = f"{label} must take {', '.join(arguments)}, and nothing else without a default: {error}"
        raise SettingError(wrong) from None


def _identity(thing: Any) -> tuple[str, str]:
    """A cell that runs again may give its names anew."""
    return (thing.__module__, "" if thing.__module__ == "__main__" else thing.__qualname__)


# --- plugins ---------------------------------------------------------------------------------------


def plugins() -> list[Path]:
    """The files that ``RETLIB_PLUGINS`` names."""
    named = filter(None, os.environ.get("RETLIB_PLUGINS", "").split(os.pathsep))
    return [(runtime.root() / path).resolve() for path in named]


@functools.cache
def load_plugins() -> None:
    """Import the files that ``RETLIB_PLUGINS`` names, once; `SettingError`, with its line, for what is wrong."""
    for file in plugins():
        require(file.is_file(), f"RETLIB_PLUGINS names {file}, which is no file.")
        name = f"plugin_{file.stem}"
        if name in sys.modules and Path(sys.modules[name].__file__) != file:  # of another folder
            name = f"{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
        if name not in sys.modules:
            spec = spec_from_file_location(name, file)
            sys.modules[name] = module = module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException as error:
                del sys.modules[name]  # so that the next look says again what is wrong
                if isinstance(error, RetlibError) or not isinstance(error, Exception):
                    raise
                own = [
                    frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
                ]
                place = f"{file}, line {(own or [getattr(error, 'lineno', None)])[-1]}"
                raise SettingError(f"RETLIB_PLUGINS: {place}: {type(error).__name__}: {error}") from error


# --- sources ---------------------------------------------------------------------------------------


def source(thing: Any) -> str:
    """Return the sha256 of the source of a function or class, without docstrings and comments.

    Outside the package, the literals, functions and classes that it reads from its surroundings take part as well:
    nobody raises a version when they change. Raises `SettingError` if the source cannot be read.
    """
    return _kept_source(thing) if _inside(thing) else _source(thing)


def _source(thing: Any) -> str:
    return hashlib.sha256("\n".join(_lines(thing, set())).encode()).hexdigest()[:24]


# Of the package itself, which does not change while it runs; every look at a trained chain asks for several.
_kept_source = functools.cache(_source)


def _lines(thing: Any, seen: set[int]) -> Iterator[str]:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        yield thing.__name__
        for base in thing.__bases__:
            if not _inside(base):
                yield from _lines(base, seen)
        for name, value in sorted(vars(thing).items()):
            yield from _member(name, value, seen)
    else:
        yield from _function(inspect.unwrap(thing), seen)


def _member(name: str, value: Any, seen: set[int]) -> Iterator[str]:
    found = next((part for key in ("fget", "func", "__func__") if (part := getattr(value, key, None))), value)
    if inspect.isfunction(found):
        yield from _function(found, seen)
    elif isinstance(value, LITERALS) and not name.startswith("__"):
        yield _literal(name, value)


def _function(function: Any, seen: set[int]) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        wrong = f"the source of {function!r} cannot be read: define it with `def` in a file or a notebook's cell"
        raise SettingError(wrong) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            node.decorator_list = []
    yield ast.unparse(tree)
    if not _inside(function):
        for name, value in sorted(_outside(function).items()):
            if isinstance(value, LITERALS):
                yield _literal(name, value)
            elif (inspect.isfunction(value) or isinstance(value, type)) and value.__module__ == function.__module__:
                yield from _lines(value, seen)


def _outside(function: Any) -> dict[str, Any]:
    """What a function reads from its surroundings, the functions and comprehensions inside it and its defaults too."""
    codes = [function.__code__]
    for code in codes:
        codes += [part for part in code.co_consts if inspect.iscode(part)]
    read = {name for code in codes for name in code.co_names} & function.__globals__.keys()
    defaults = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
    return {
        **{name: function.__globals__[name] for name in read},
        **inspect.getclosurevars(function).nonlocals,
        **{f"default {place}": value for place, value in defaults.items()},
    }


def _literal(name: str, value: Any) -> str:
    # The order of a set is another in every process.
    return f"{name} = {sorted(map(repr, value)) if isinstance(value, set | frozenset) else repr(value)}"


def _inside(thing: Any) -> bool:
    """Whether something is the package's, whose versions its own tests watch, or of another installed package."""
    module = getattr(thing, "__module__", "") or ""
    return module != "__main__" and not module.startswith("plugin_")
