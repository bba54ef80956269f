"""Registries: names, facts, and sources that change when what is computed changes."""

import os
import sys
import textwrap
from contextlib import suppress

import pytest

from retlib.core import registry
from retlib.core.errors import RetlibError, SettingError
from retlib.core.registry import Registry, source


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Import a file as `RETLIB_PLUGINS` does, as often as its text changes."""

    # Two texts of one length within a second would share one file of bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("RETLIB_PLUGINS", str(tmp_path / "mine.py"))

    def load(text):
        if text:
            (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        registry.load_plugins.cache_clear()
        for name in [name for name in sys.modules if name.startswith("plugin_")]:
            del sys.modules[name]
        registry.inspect.linecache.clearcache()
        registry.load_plugins()
        return next(module for name, module in sys.modules.items() if name.startswith("plugin_mine"))

    yield load
    monkeypatch.delenv("RETLIB_PLUGINS")
    with suppress(StopIteration):
        load("")


MODULE = '''
    ONE, TWO, THREE = {one}, {two}, {three}
    def helper(x):
        """{words}"""
        return x + ONE  # {words}
    def inside(xs):
        return sum(helper(x) for x in xs)
    def default(x, n=TWO):
        return x * n
    def named(x, *, n=THREE):
        return (lambda y: y * n)(x)
    class Base:
        wide = {{"a", "b", {one}}}
    class Sampler(Base):
        """{words}"""
        depth = {two}
        @property
        def draw(self, n={three}):
            return helper(n)
        @staticmethod
        def beside(n):
            return n
'''


def test_what_is_computed_and_read_from_outside_makes_the_source(plugin):
    def of(text=MODULE, **changes):
        module = plugin(text.format(**{"one": 1, "two": 2, "three": 3, "words": "a"} | changes))
        return [source(getattr(module, name)) for name in ("inside", "default", "named", "Sampler")]

    first = of()
    assert of(words="b") == first  # docstrings and comments compute nothing
    assert of(MODULE + "\n\n    def other(x):\n        return {words}") == first
    for place, name in enumerate(("one", "two", "three")):
        changed = [a != b for a, b in zip(of(**{name: 5}), first, strict=True)]
        assert changed == [*(place == i for i in range(3)), True]
    for old, new in (("return n\n", "return -n\n"), ("Base:\n", "Base:\n        more = True\n")):
        assert [a != b for a, b in zip(of(MODULE.replace(old, new)), first, strict=True)] == [False] * 3 + [True]


def test_what_has_no_source_to_read_is_refused():
    space = {}
    exec("def typed(scores, targets):\n    return scores", space)
    with pytest.raises(SettingError):
        source(space["typed"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", r"mine\.py.*FileNotFoundError"),
        ("a = 1\nb = a / 0", r"mine\.py, line 2: ZeroDivisionError"),
        ("def f():\n    return 1 +", r"mine\.py, line 2: SyntaxError"),
        ("import no_such_module", r"mine\.py, line 1: ModuleNotFoundError: .*no_such_module"),
        ("from retlib.core.errors import require\n\nrequire(False, 'taken')", r"mine\.py, line 3: .*taken"),
    ],
)
def test_what_goes_wrong_in_a_plugin_is_named_with_its_line(plugin, text, named):
    with pytest.raises(RetlibError, match=named) as caught:
        plugin(text)
    assert not isinstance(caught.value, ValueError)  # which would be blamed on the parameter that is checked
    assert not [name for name in sys.modules if name.startswith("plugin_")]


def test_plugins_of_one_name_in_two_folders_are_both_read_and_may_ask_for_names(plugin, monkeypatch, tmp_path):
    found = Registry("loss", scaled=True)
    monkeypatch.setattr(registry, "FOUND", found, raising=False)
    text = "from retlib.core.registry import FOUND\n\n@FOUND.register('{}', scaled=False)\ndef loss(x):\n    return x\n"
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(text.format("second") + "assert 'second' in FOUND.names()\n")
    plugin(text.format("first"))
    monkeypatch.setattr(registry.runtime, "root", lambda: tmp_path)
    monkeypatch.setenv("RETLIB_PLUGINS", os.pathsep.join(["mine.py", str(other)]))
    registry.load_plugins.cache_clear()
    assert found.names() == ["first", "second"] and found.get("second").scaled is False


def first():
    return 1


def other():
    return 2


def test_a_name_is_one_thing_s_and_a_thing_says_what_is_asked():
    found = Registry("loss", lambda name: {"elsewhere": other}.get(name), lambda: ["elsewhere"], scaled=True)
    found.register("a")(first)
    found.register("a")(first)  # as a cell that runs again
    for name in ("one", "two"):  # which may give its names anew
        exec(f"def {name}():\n    pass", cell := {"__name__": "__main__"})
        found.register("b")(cell[name])
    assert first.scaled is True and found.get("a") is first and found.get("elsewhere") is other
    before = found.source("a")
    found.register("a", scaled=False)(first)
    assert found.source("a") != before
    for wrong, named in (
        (lambda: found.register("a")(other), "'a'"),
        (lambda: found.get("c", "given"), "given = 'c'.* a, b, elsewhere"),
        (lambda: found.get(["a"]), "loss"),
        (lambda: found.register("c", scale=False), "scaled"),
        (lambda: found.register(other), "loss"),  # without parentheses
    ):
        with pytest.raises(SettingError, match=named):
            wrong()
