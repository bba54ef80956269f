"""Registries: names, facts, and sources that change when what is computed changes."""

import textwrap

import pytest

from retlib.core import registry
from retlib.core.errors import SettingError
from retlib.core.registry import Registry, source


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Import a file as `RETLIB_PLUGINS` does, as often as its text changes."""

    # Two texts of one length within a second would share one file of bytecode.
    monkeypatch.setattr(registry.sys, "dont_write_bytecode", True)

    def load(text):
        path = tmp_path / "mine.py"
        path.write_text(textwrap.dedent(text))
        monkeypatch.setenv("RETLIB_PLUGINS", str(path))
        registry.sys.modules.pop("plugin_mine", None)
        registry.inspect.linecache.clearcache()
        registry.load_plugins.cache_clear()
        registry.load_plugins()
        return registry.sys.modules["plugin_mine"]

    yield load
    registry.sys.modules.pop("plugin_mine", None)
    registry.load_plugins.cache_clear()


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

    class Sampler:
        """{words}"""

        depth = {two}

        def draw(self, n={three}):
            return helper(n)
'''


def test_what_is_computed_and_read_from_outside_makes_the_source(plugin):
    def of(**changes):
        module = plugin(MODULE.format(**{"one": 1, "two": 2, "three": 3, "words": "a"} | changes))
        return [source(getattr(module, name)) for name in ("inside", "default", "named", "Sampler")]

    first = of()
    assert of(words="b") == first  # docstrings and comments compute nothing
    for place, name in enumerate(("one", "two", "three")):
        changed = [a != b for a, b in zip(of(**{name: 5}), first, strict=True)]
        assert changed == [*(place == i for i in range(3)), True]


def test_what_has_no_source_to_read_is_refused():
    space = {}
    exec("def typed(scores, targets):\n    return scores", space)
    with pytest.raises(SettingError):
        registry.source(space["typed"])


def test_a_missing_plugin_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("RETLIB_PLUGINS", str(tmp_path / "none.py"))
    registry.load_plugins.cache_clear()
    with pytest.raises(SettingError, match=r"none\.py"):
        registry.load_plugins()
    registry.load_plugins.cache_clear()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = a / 0", r"mine\.py, line 2: ZeroDivisionError: division by zero"),
        ("def f():\n    return 1 +", r"mine\.py, line 2: SyntaxError"),
        ("import no_such_module", r"mine\.py, line 1: ModuleNotFoundError: .*no_such_module"),
        ("from retlib.core.errors import require\nrequire(False, 'taken')", "^taken$"),
    ],
)
def test_what_goes_wrong_in_a_plugin_is_named_with_its_line(plugin, text, said):
    with pytest.raises(SettingError, match=said):
        plugin(text)


def test_a_plugin_s_place_begins_in_the_project_s_folder(plugin, monkeypatch, tmp_path):
    plugin("VALUE = 1")
    monkeypatch.setenv("RETLIB_PLUGINS", "mine.py")
    monkeypatch.setattr(registry.runtime, "root", lambda: tmp_path)
    monkeypatch.chdir("/")
    registry.load_plugins.cache_clear()
    registry.load_plugins()  # where the notebook runs there is no such file


def test_a_name_is_one_thing_s_and_a_thing_says_what_is_asked():
    found = Registry("loss", scaled=True)

    @found.register("a")
    def first():
        return 1

    def other():
        return 2

    found.register("a")(first)  # as a cell that runs again
    assert first.scaled is True
    for wrong, named in (
        (lambda: found.register("a")(other), "first"),
        (lambda: found.get("b"), "Valid: a"),
        (lambda: found.register("b", scale=False), "scaled"),
        (lambda: found.register(other), "loss"),  # without parentheses
    ):
        with pytest.raises(SettingError, match=named):
            wrong()


def test_what_cannot_be_called_as_it_will_be_is_refused():
    found = Registry("loss", takes=lambda loss: ("scores", "targets", *["queries"][: loss.more]), more=False)
    found.register("a")(lambda scores, targets, margin=0.5: 0)
    found.register("b", more=True)(lambda *given: 0)
    for mine, more in (lambda scores: 0, False), (lambda s, t, margin: 0, False), (lambda s, t: 0, True):
        with pytest.raises(SettingError, match="'mine'"):
            found.register("mine", more=more)(mine)
    assert found.names() == ["a", "b"]


def test_plugins_of_one_name_in_two_folders_are_both_read(plugin, monkeypatch, tmp_path):
    found = Registry("loss", scaled=True)
    monkeypatch.setattr(registry, "FOUND", found, raising=False)
    text = (
        "from retlib.core import registry\n\n@registry.FOUND.register('{}', scaled=False)\ndef loss(x):\n    return x\n"
    )
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(text.format("second"))
    plugin(text.format("first"))
    monkeypatch.setenv("RETLIB_PLUGINS", registry.os.pathsep.join([str(tmp_path / "mine.py"), str(other)]))
    registry.load_plugins.cache_clear()
    assert found.names() == ["first", "second"] and found.get("second").scaled is False
