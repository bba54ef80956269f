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


LOSS = '''
    MARGIN = {margin}

    def hinge(x):
        """{words}"""
        return max(0, {margin_name} - x)  # {words}

    class Sampler:
        """{words}"""

        depth = {margin}

        def draw(self, n={margin}):
            return hinge(n)
'''

INNER = """
    ONE, TWO, THREE = {one}, {two}, {three}

    def helper(x):
        return x + ONE

    def inside(xs):
        return sum(helper(x) for x in xs)

    def default(x, n=TWO):
        return x * n

    def named(x, *, n=THREE):
        return (lambda y: y * n)(x)
"""


def test_what_is_computed_makes_the_source(plugin):
    def of(**changes):
        module = plugin(LOSS.format(**{"margin": 0, "words": "a", "margin_name": "MARGIN"} | changes))
        return source(module.hinge), source(module.Sampler)

    first = of()
    assert of(words="b") == first  # docstrings and comments compute nothing
    assert all(a != b for a, b in zip(of(margin=50), first, strict=True))  # a value that is read from outside
    assert of(margin_name="0")[0] != first[0]


def test_what_has_no_source_to_read_is_refused():
    space = {}
    exec("def typed(scores, targets):\n    return scores", space)
    with pytest.raises(SettingError, match="define it with `def` in a file or a notebook's cell"):
        registry.source(space["typed"])


def test_a_plugin_s_names_are_known(plugin, monkeypatch):
    found = Registry("loss", scaled=True)
    monkeypatch.setattr(registry, "FOUND", found, raising=False)
    plugin(
        """
        from retlib.core import registry

        @registry.FOUND.register("mine", scaled=False)
        def mine(scores):
            return scores
        """
    )
    assert found.names() == ["mine"] and found.get("mine").scaled is False


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
        ("from retlib.core.errors import require\nrequire(False, 'the name is taken')", "^the name is taken$"),
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


def test_a_name_is_one_thing_s():
    found = Registry("loss")

    @found.register("a")
    def first():
        return 1

    def other():
        return 2

    found.register("a")(first)  # as a cell that runs again
    with pytest.raises(SettingError, match="first"):
        found.register("a")(other)
    with pytest.raises(SettingError, match="Valid: a"):
        found.get("b")


def test_facts_are_checked_and_have_defaults():
    found = Registry("loss", scaled=True)

    @found.register("a")
    def a():
        return 1

    assert a.scaled is True
    with pytest.raises(SettingError, match="scaled"):
        found.register("b", scale=False)


def test_a_thing_needs_a_name():
    found = Registry("loss")
    with pytest.raises(SettingError, match=r'registered under a name, as in @register\("mine"\)'):
        found.register(lambda scores, targets: 0)


def test_what_cannot_be_called_as_it_will_be_is_refused():
    found = Registry("loss", takes=lambda loss: ("scores", "targets", *["queries"][: loss.more]), more=False)
    found.register("a")(lambda scores, targets, margin=0.5: 0)
    found.register("b", more=True)(lambda *given: 0)
    for mine, more in (lambda scores: 0, False), (lambda s, t, margin: 0, False), (lambda s, t: 0, True):
        with pytest.raises(SettingError, match="loss 'mine' must take scores, targets.* without a default: .*argument"):
            found.register("mine", more=more)(mine)
    assert found.names() == ["a", "b"]


def test_what_is_read_further_in_makes_the_source_too(plugin):
    def of(**changes):
        module = plugin(INNER.format(**{"one": 1, "two": 2, "three": 3} | changes))
        return [source(getattr(module, name)) for name in ("inside", "default", "named")]

    first = of()
    changed = [of(one=5), of(two=5), of(three=5)]
    for place, found in enumerate(changed):
        assert [a != b for a, b in zip(found, first, strict=True)] == [place == i for i in range(3)]


def test_plugins_of_one_name_in_two_folders_are_both_read(plugin, monkeypatch, tmp_path):
    found = Registry("loss")
    monkeypatch.setattr(registry, "FOUND", found, raising=False)
    text = "from retlib.core import registry\n\n@registry.FOUND.register('{}')\ndef loss(x):\n    return x\n"
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(text.format("second"))
    plugin(text.format("first"))
    monkeypatch.setenv("RETLIB_PLUGINS", registry.os.pathsep.join([str(tmp_path / "mine.py"), str(other)]))
    registry.load_plugins.cache_clear()
    assert found.names() == ["first", "second"]
