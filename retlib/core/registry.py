"""Registries of what chapters name: losses, negatives, tasks, encoders, corpora.

A decorator registers a thing: in the package, a notebook's cell, or a file that ``RETLIB_PLUGINS`` names (paths from
the project's folder, with the system's separator between). Its name is then valid in chapters, sweeps and on the
command line, and its source is a part of the address of what is trained with it.
"""

import ast
import functools
import inspect
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from retlib.core import cache, runtime
from retlib.core.errors import RetlibError, SettingError, require, require_one_of

LITERALS = int | float | str | bytes | tuple | list | dict | set | frozenset | None


class Registry:
    """Names of one `kind` of thing.

    `find` returns what is not registered, such as a corpus by its folder, or None; `forms` lists the forms of
    such names. `facts` are what a thing may say of itself, with defaults; they become its attributes.
    """

    def __init__(self, kind: str, find: Callable = lambda _: None, forms: Callable = list, **facts: Any) -> None:
        self.kind, self._find, self._forms, self._facts = kind, find, forms, facts
        self._things: dict[str, Any] = {}

    def register(self, name: str, **facts: Any) -> Callable[[Any], Any]:
        """Return a decorator that makes a thing available under `name`, again if a cell runs again.

        Raises `SettingError` for a name of another thing or a fact unknown here.
        """
        require(isinstance(name, str), f'a {self.kind} is registered under a name, as in @register("mine")')
        for fact in facts:
            require_one_of(f"what a {self.kind} says of itself", fact, self._facts)

        def add(thing: Any) -> Any:
            old, in_cell = self._things.get(name, thing), thing.__module__ == "__main__"
            wrong = f"{self.kind} {name!r} is there already, in {old.__module__}: choose another name"
            require(old.__module__ == thing.__module__ and (in_cell or old.__qualname__ == thing.__qualname__), wrong)
            for fact, value in {**self._facts, **facts}.items():
                setattr(thing, fact, value)
            self._things[name] = thing
            return thing

        return add

    def get(self, name: Any, label: str = "") -> Any:
        """Return the thing of that name; `SettingError`, which calls it by the label, lists the valid ones."""
        if name in (names := self.names()):
            return self._things[name]
        thing = isinstance(name, str) and self._find(name)
        return thing or require_one_of(label or self.kind, name, [*names, *self._forms()])

    def names(self) -> list[str]:
        """Return all names, in order."""
        load_plugins()
        return sorted(self._things)

    def source(self, name: str) -> str:
        """Return a hash of what the thing computes and says of itself; see `source`."""
        thing = self.get(name)
        return cache.key([source(thing), {fact: getattr(thing, fact) for fact in self._facts}])


def plugins() -> list[Path]:
    """Return the files that ``RETLIB_PLUGINS`` names."""
    paths = os.environ.get("RETLIB_PLUGINS", "").split(os.pathsep)
    return [(runtime.root() / path).resolve() for path in paths if path]


@functools.cache
def load_plugins() -> None:
    """Import the files that ``RETLIB_PLUGINS`` names, once; `RetlibError` names the line that is wrong."""
    for file in plugins():
        name = f"plugin_{file.stem}_{cache.key(str(file))}"
        if name in sys.modules:  # it is being read, and asks for names itself
            continue
        try:
            spec = spec_from_file_location(name, file)
            sys.modules[name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
        except Exception as error:
            sys.modules.pop(name, None)
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(file)] or [getattr(error, "lineno", 0)]
            # No ValueError: pydantic would take it for one of the parameter that it checks.
            wrong = f"RETLIB_PLUGINS: {file}, line {lines[-1]}: {type(error).__name__}: {error}"
            raise RetlibError(wrong) from error


def source(thing: Any) -> str:
    """Return a hash of the source of a function or class, without docstrings, comments and decorators.

    Outside the package, the literals, functions and classes that it reads from its surroundings take part as well:
    nobody raises a version when they change. Raises `SettingError` if the source cannot be read.
    """
    return cache.key([*_parts(inspect.unwrap(thing), set())])


def _is_own(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").startswith(("__main__", "plugin_"))


def _parts(thing: Any, seen: set[int]) -> Iterator[str]:
    seen.add(id(thing))
    if isinstance(thing, type):
        yield thing.__name__
        read = {f"base {base.__name__}": base for base in thing.__bases__ if _is_own(base)} | dict(vars(thing))
    else:
        yield _text(thing)
        read = _read(thing) if _is_own(thing) else {}
    for name, value in sorted(read.items()):
        value = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "func", None) or value)
        if isinstance(value, LITERALS) and not name.startswith("__"):
            # The order of a set is another in every process.
            yield f"{name} = {sorted(map(repr, value)) if isinstance(value, set | frozenset) else value!r}"
        elif (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
            if value.__module__ == thing.__module__ or _is_own(value):
                yield from _parts(value, seen)


@functools.cache  # every look at a trained chain asks for several
def _text(function: Any) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        wrong = f"the source of {function!r} cannot be read: define it with `def` in a file or a notebook's cell"
        raise SettingError(wrong) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.body = node.body[ast.get_docstring(node) is not None :] or [ast.Pass()]
            node.decorator_list = []
    return ast.unparse(tree)


def _read(function: Any) -> dict[str, Any]:
    # What a function, functions and comprehensions inside it and its defaults read from outside.
    codes = [function.__code__]
    for code in codes:
        codes += filter(inspect.iscode, code.co_consts)
    names = {name for code in codes for name in code.co_names} & function.__globals__.keys()
    defaults = {f"default of {each.name}": each.default for each in inspect.signature(function).parameters.values()}
    return {name: function.__globals__[name] for name in names} | inspect.getclosurevars(function).nonlocals | defaults
