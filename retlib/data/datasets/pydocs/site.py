"""The pages of `pydocs`: which public objects have a docstring, and what a name in one refers to."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

_STANDARD_LIBRARY = """
    abc argparse array ast asyncio base64 bisect builtins bz2 calendar cmath codecs collections collections.abc
    colorsys concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib
    email.message enum errno filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob
    graphlib gzip hashlib heapq hmac html http.client http.cookies http.server imaplib importlib inspect io ipaddress
    itertools json linecache locale logging logging.handlers lzma math mimetypes mmap multiprocessing operator
    optparse os os.path pathlib pickle pickletools pkgutil platform plistlib poplib pprint queue random re reprlib
    sched secrets select selectors shelve shlex shutil signal smtplib socket socketserver sqlite3 ssl stat statistics
    string struct subprocess symtable sys sysconfig tarfile tempfile textwrap threading time timeit token tokenize
    trace traceback tracemalloc types typing unicodedata unittest urllib.parse urllib.request urllib.robotparser uuid
    warnings wave weakref xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client zipfile zipimport zlib zoneinfo
"""

# Package to the modules that are read. A star reads the public modules below as well: where the
# implementation lies in modules with public names, the documented ones are listed instead.
PACKAGES: dict[str, tuple[str, ...]] = {
    "numpy": ("numpy.*",),
    "scipy": ("scipy.*",),
    "pandas": (
        *("pandas", "pandas.api.*", "pandas.arrays", "pandas.errors", "pandas.plotting", "pandas.tseries.offsets"),
        *("pandas.tseries.frequencies", "pandas.io.formats.style", "pandas.io.json", "pandas.testing"),
    ),
    "sklearn": ("sklearn.*",),
    "torch": (
        *("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils.*", "torch.nn.attention"),
        *("torch.autograd", "torch.autograd.functional", "torch.distributions.*", "torch.fft", "torch.func"),
        *("torch.linalg", "torch.masked", "torch.nested", "torch.optim.*", "torch.signal.*", "torch.sparse"),
        *("torch.special", "torch.utils.data.*", "torch.amp", "torch.hub", "torch.profiler"),
        *("torch.utils.checkpoint", "torch.jit", "torch.random"),
    ),
    "gensim": ("gensim.*",),
    "matplotlib": ("matplotlib.*",),
    "networkx": ("networkx.*",),
    "sympy": ("sympy", "sympy.physics.mechanics"),
    "python": tuple(_STANDARD_LIBRARY.split()),
}

# What is read at once: everything, or as much of it as a test can wait for.
SLICES = {
    "all": PACKAGES,
    "smoke": {"numpy": ("numpy", "numpy.fft", "numpy.linalg", "numpy.random")},
}

# Modules that are no documentation, or that need what is not pinned with the book.
_NOT_WALKED = re.compile(
    r"_|(tests?|testing|conftest|setup|core|externals|f2py|distutils"  # numpy, scipy, pandas, sklearn
    r"|backends|pylab|sphinxext|ft2font|dviread|scripts|nosy|downloader)$"  # matplotlib, gensim
)
# Torch's tensors of one type repeat every method of `torch.Tensor`.
_REPEATED = re.compile(r"torch\.[A-Z]\w+(Tensor|Storage)$")
_ABBREVIATIONS = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "nx": "networkx"}

Report = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Page:
    """One public object and its docstring, whose names are looked up in its `scopes`.

    In this order: its class, the module that defines it, the module that offers it, the packages above.
    """

    path: str  # the shortest public one under which the object can be imported
    package: str  # key of `PACKAGES`
    doc: str  # without indentation
    is_module: bool
    scopes: tuple[object, ...]

    @property
    def length(self) -> tuple[int, int, str]:
        """What the shorter of two paths has less of."""
        return self.path.count("."), len(self.path), self.path


@dataclass(frozen=True)
class _Found:
    """An object and one path to it; the class that it is a member of, and whether others define it."""

    path: str
    thing: object
    owner: type | None = None
    inherited: bool = False
    imported: bool = False

    @property
    def rank(self) -> tuple:
        """Of several paths to an object the smallest is kept."""
        return self.inherited, self.path.count("."), self.imported, len(self.path), self.path


class Site:
    """Every documented public object of some packages (as `PACKAGES`), and what a name on a page refers to.

    Nothing is executed but imports. A package that cannot be imported is left out. `report` is told each that is done.
    """

    def __init__(self, packages: Mapping[str, Iterable[str]], report: Report = lambda step: None) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._pages: dict[int, Page] = {}  # by identity of the object
        self._things: list[object] = []  # kept alive, so that identities stay unique
        self._roots: dict[str, set[str]] = {}  # the top-level modules in which a package's objects may be defined
        for package, patterns in packages.items():
            modules = dict(_imported(patterns))
            self._modules.update(modules)
            names = {name.partition(".")[0] for name in modules}
            self._roots[package] = set(sys.stdlib_module_names) if package == "python" else names
            self._read(package, modules)
            report(package)

    @property
    def pages(self) -> list[Page]:
        """All pages, by path."""
        return sorted({page.path: page for page in self._pages.values()}.values(), key=lambda page: page.path)

    def _read(self, package: str, modules: dict[str, ModuleType]) -> None:
        for found in _collect(modules, self._roots[package]):
            doc = docstring(found.thing)
            # An object that an earlier package has is that package's: here it is only imported.
            if doc and id(found.thing) not in self._pages:
                self._things.append(found.thing)
                scopes = tuple(self._scopes(found, self._roots[package]))
                page = Page(found.path, package, doc, isinstance(found.thing, ModuleType), scopes)
                self._pages[id(found.thing)] = page

    def _scopes(self, found: _Found, roots: set[str]) -> Iterator[object]:
        if isinstance(found.thing, type):
            yield found.thing
        elif not isinstance(found.thing, ModuleType) and _home(type(found.thing)) in roots:
            yield type(found.thing)  # an instance with a docstring of its own, such as `scipy.stats.norm`
        if found.owner is not None:
            yield found.owner
        where = getattr(found.owner or found.thing, "__module__", None)
        defined = _prefixes(where) if isinstance(where, str) and where.partition(".")[0] in roots else []
        public = [name for name in _prefixes(found.path) if name in self._modules]
        names = dict.fromkeys([*defined[:1], *public, *defined[1:]])
        yield from (sys.modules[name] for name in names if name in sys.modules)

    def resolve(self, reference: str, page: Page) -> Page | None:
        """Return the page that a dotted name on `page` refers to, by import path, or None.

        It is looked up in `Page.scopes`, and then as an absolute path. A page never refers to itself: ``sum`` on
        ``numpy.ndarray.sum`` is ``numpy.sum``.
        """
        parts = _parts(reference)
        found = (self._at(scope, parts, page, self._roots[page.package]) for scope in page.scopes)
        return next((target for target in found if target), None) or self._absolute(parts, page)

    def listed(self, reference: str, page: Page) -> Page | None:
        """The page that a dotted name refers to in a list of members: a member, or a full path."""
        parts = _parts(reference)
        member = self._at(page.scopes[0], parts, page, self._roots[page.package])
        return member or (self._absolute(parts, page) if len(parts) > 1 else None)

    def _absolute(self, parts: list[str], page: Page) -> Page | None:
        module = self._modules.get(parts[0])
        return self._at(module, parts[1:], page, None) if module else None

    def _at(self, thing: object, parts: list[str], page: Page, roots: set[str] | None) -> Page | None:
        """The page, other than `page`, that a path from `thing` leads to; within the packages `roots` unless None."""
        for i, part in enumerate(parts):
            if isinstance(thing, ModuleType):
                step = vars(thing).get(part, self._modules.get(f"{thing.__name__}.{part}"))
                if i == 0 and roots is not None and not _offers(thing, part, step, roots):
                    return None
                thing = step
            else:
                thing = _class_attribute(thing if isinstance(thing, type) else type(thing), part)
            if thing is None:
                return None
        target = self._pages.get(id(thing))
        return None if target is page else target


def docstring(thing: object) -> str:
    """The docstring of an object itself, not of its type or a base class; empty if it has none."""
    if isinstance(thing, type):
        text = vars(thing).get("__doc__")
    else:
        try:
            text = thing.__doc__
        except Exception:  # a lazy object may fail in any way
            return ""
        if not isinstance(thing, ModuleType) and text == type(thing).__doc__:
            return ""
    # The second is what pybind11 writes where a person has written nothing.
    if not isinstance(text, str) or "\nOverloaded function." in text:
        return ""
    return inspect.cleandoc(text.expandtabs()).strip()


def _imported(patterns: Iterable[str]) -> Iterator[tuple[str, ModuleType]]:
    """Import modules, and those below where the pattern ends in a star; skip what cannot be imported."""
    for pattern in patterns:
        waiting = [pattern.removesuffix(".*")]
        while waiting:
            name = waiting.pop()
            try:
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    module = importlib.import_module(name)
            except (Exception, SystemExit):  # an absent optional dependency can fail in any way
                continue
            yield name, module
            if pattern.endswith("*"):
                children = sorted(child.name for child in pkgutil.iter_modules(getattr(module, "__path__", ())))
                waiting.extend(f"{name}.{child}" for child in reversed(children) if not _NOT_WALKED.match(child))


def _home(thing: object) -> str:
    """The top-level module in which something is defined; empty where it does not say."""
    name = getattr(thing, "__name__" if isinstance(thing, ModuleType) else "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def _parts(reference: str) -> list[str]:
    first, *rest = reference.split(".")
    return [*_ABBREVIATIONS.get(first, first).split("."), *filter(None, rest)]


def _offers(module: ModuleType, name: str, thing: object, roots: set[str]) -> bool:
    """Whether a name is the module's own to offer, and not one that it happens to import."""
    if _home(thing) not in roots | {""}:
        return False
    if hasattr(module, "__path__") or isinstance(thing, ModuleType) or name in getattr(module, "__all__", ()):
        return True
    return getattr(thing, "__module__", None) in (None, module.__name__)


def _prefixes(path: str) -> list[str]:
    """The path and the paths above it: a.b gives a.b, a."""
    return [path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1)]


def _collect(modules: dict[str, ModuleType], roots: set[str]) -> Iterable[_Found]:
    """Every public object of some modules, each once, under its best path."""
    best: dict[int, _Found] = {}

    def offer(found: _Found) -> None:
        if id(found.thing) not in best or found.rank < best[id(found.thing)].rank:
            best[id(found.thing)] = found

    for name, module in modules.items():
        offer(_Found(name, module))
        for found in _module_members(name, module, roots):
            offer(found)
    classes = sorted((found for found in best.values() if isinstance(found.thing, type)), key=lambda f: f.path)
    while classes:
        outer = classes.pop()
        for found in _class_members(outer.path, outer.thing, roots):
            if isinstance(found.thing, type) and id(found.thing) not in best:
                classes.append(found)
            offer(found)
    return best.values()


def _public(names: Iterable[object]) -> list[str]:
    return sorted(name for name in set(map(str, names)) if not name.startswith("_"))


def _module_members(name: str, module: ModuleType, roots: set[str]) -> Iterator[_Found]:
    """What a module offers: its `__all__`, or else the public names that it defines.

    A package without `__all__` also offers what it imports from its own modules.
    """
    listed = getattr(module, "__all__", None)
    for attribute in _public(listed if listed is not None else vars(module)):
        path = f"{name}.{attribute}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                thing = getattr(module, attribute)
        except Exception:  # a name that is listed and absent, or removed with an error
            continue
        own = getattr(thing, "__module__", None) == module.__name__
        if isinstance(thing, ModuleType) or _home(thing) not in roots | {""} or _REPEATED.match(path):
            continue
        if own or listed is not None or hasattr(module, "__path__"):
            yield _Found(path, thing, imported=not own)


def _class_members(path: str, cls: type, roots: set[str]) -> Iterator[_Found]:
    """The public members of a class: its own, those of its private bases, and its accessors' classes."""
    for base in cls.__mro__:
        for attribute in _public(vars(base)) if _home(base) in roots else ():
            thing = _class_attribute(base, attribute)
            if not isinstance(thing, type) or (base is cls and _home(thing) in roots):
                yield _Found(f"{path}.{attribute}", thing, cls, inherited=base is not cls)


def _class_attribute(cls: type, name: str) -> object:
    """A member as it lies in the class or a base; None if there is none.

    An accessor, a descriptor that is a class when it is asked for on a class (`pandas.Series.str`), is
    that class.
    """
    raw = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    accessor = getattr(raw, "_accessor", None)
    return accessor if isinstance(accessor, type) else raw
