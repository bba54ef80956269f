"""pydocs: what is read of a docstring, whose page a name is, no question in its own text, the same every time."""

import sys

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.datasets import pydocs
from retlib.data.datasets.pydocs import key
from retlib.data.passages import MOST_WORDS

MODULE = """Tools for the tests of a library.

=======  ===================================
total    Add up everything that is given
stretch  Not a member of this module at all
=======  ===================================

Some words that are no listing.
"""
SUM = """total(values) -> number

Return the sum of all the values.

It is exact, and ``scale`` is not.

Parameters
----------
values : list of float
    What is added up.

See Also
--------
alpha.scale : Stretch by one and the same factor.
scale : Grow in proportion
    to size.
nowhere : There is no such thing here.
Box.open, Box.lid : Two names at once.
Box.lid : More exact than this function.
Box : Equivalent class.
"""
BOX = """A box which holds values.

Attributes
----------
lid : str
    The thing that closes the box from above.
total : float
    Here it is an attribute without a page.
"""
LARGER = (
    "Make it larger, see :func:`scale`.\n\nSee Also\n--------\nBox.open : THE THING that closes the box from above!"
)
FAKE = {
    "__init__.py": f"{MODULE!r}\nfrom fakedocs.alpha import Box, total\nfrom fakedocs.beta import scale",
    "alpha.py": f"""
def total(): {SUM!r}
def plus(): 'plus(a, b) -> number\\n\\nAdd two numbers, as <object at 0x7f00ab> does.'
def plus_again(): 'plus_again(a, b)\\n\\nAdd two numbers, as <object at 0x7f00ac> does.'
def scale(): 'Multiply the values in module alpha.'
def _hidden(): 'A private function is no page.'
class Box:
    {BOX!r}
    lid = property(lambda self: 0, doc='Name of the lid that the box has.')
    def scale(self): {LARGER!r}
    @staticmethod
    def open(): 'Lift the lid so that values can be put in.'
class Chest(Box): 'A box with a lock, and with whatever a box has.'
""",
    "beta.py": "def scale(): 'Multiply the values in module beta, which is another.'",
    "broken.py": "import a_package_that_is_not_installed",
}
PACKAGES = {"fakedocs": "fakedocs.*", "absent": "a_package_that_is_not_installed.*"}
TOTAL, SCALE, OTHER_SCALE = "fakedocs.total", "fakedocs.alpha.scale", "fakedocs.scale"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The tables of a small package."""
    for path, source in FAKE.items():
        (tmp_path / "fakedocs").mkdir(exist_ok=True)
        (tmp_path / "fakedocs" / path).write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield pydocs.build(PACKAGES)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fakedocs"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def smoke():
    return pydocs.tables("pydocs-smoke")


def whole(documents):
    """Page to its text without case and punctuation."""
    return documents["text"].groupby(documents["article"]).agg(" ".join).map(key)


def test_pages_are_public_and_those_with_the_same_docstring_are_one(fake):
    # What `Chest` inherits is `Box`'s.
    alpha = [f"fakedocs.alpha.{name}" for name in ("Chest", "plus", "scale")]
    members = [f"fakedocs.Box.{name}" for name in ("lid", "open", "scale")]
    pages = ["fakedocs", "fakedocs.Box", *members, *alpha, OTHER_SCALE, TOTAL]
    assert fake["pages"].index.tolist() == pages
    assert fake["pages"]["summary"]["fakedocs.alpha.plus"] == "Add two numbers, as <object> does."


def test_a_name_means_what_is_nearest_to_its_page(fake):
    mentions = fake["questions"][fake["questions"]["source"] == "mention"]
    assert {tuple(row) for row in mentions[["origin", "cluster", "text"]].to_numpy()} == {
        (TOTAL, SCALE, "Stretch by one and the same factor."),
        (TOTAL, OTHER_SCALE, "Grow in proportion to size."),
        ("fakedocs", TOTAL, "Add up everything that is given"),
    }  # neither what two pages are called nor what makes sense on one page alone is a question
    links = {tuple(row) for row in fake["links"].to_numpy()}
    assert {(TOTAL, f"fakedocs.Box.{name}") for name in ("open", "lid")} < links
    assert {target for source, target in links if source == "fakedocs.Box.scale"} == {"fakedocs.Box.open", OTHER_SCALE}


def test_what_is_said_of_other_pages_is_in_no_text(fake):
    text = " ".join(fake["passages"]["text"])
    for gone in ("Stretch by", "Grow in", "no such thing", "Two names", "Add up every", "that closes", "See Also"):
        assert gone not in text
    assert "total: Here it is an attribute without a page." in text and "Some words that are no listing." in text
    # No passage runs over the end of the opening.
    texts = fake["passages"]["text"]
    assert texts[f"{TOTAL}#0"] == "Return the sum of all the values. It is exact, and scale is not."
    assert texts[f"{TOTAL}#1"] == "values: What is added up."
    assert fake["pages"]["opening"][TOTAL] == 1 and fake["passages"]["article"].eq(TOTAL).sum() == 2
    # Pages of one name that are linked are one to a reader.
    pages = fake["pages"]
    assert pages["cluster"]["fakedocs.Box.scale"] == pages["cluster"][OTHER_SCALE] != pages["cluster"][SCALE]
    assert pages.groupby("cluster")["split"].nunique().eq(1).all()


@pytest.mark.parametrize(
    ("section", "rest", "names"),
    [
        ("See Also\n--------\nf : One.\ng.h :\n    Two\n    lines.", [], [("f", "One."), ("g.h", "Two lines.")]),
        ("See also\n========\nf, :func:`~g.h`", [], [("f", ""), ("~g.h", ""), ("g.h", "")]),
        ("See Also\n--------\n`x y <z>`\n    No name.", [], []),
        ("Args:\n    x (int): The `x`\n        first.", ["x (int): The x first."], []),
        ("Parameters\n----------\n*x : int\n    The `x` of `f`.\ny : int", ["*x: The x of f."], [("f", "")]),
        ("Returns\n-------\nint\n    A number.", ["int: A number."], []),
        ("Explanation\n===========\n\n* One.\n* Two.", ["One.", "Two."], []),
        (">>> f()\n1\n\nReferences\n----------\n.. [1] A book.", [], []),
    ],
)
def test_sections_of_a_docstring(section, rest, names):
    assert pydocs.read("a.b", f"Do.\n\n{section}", {}) == ("Do.", ["Do."], rest, names)
    assert pydocs.read("a.b", section, {})[0] == ""


def test_code_formulas_tables_and_marks_are_left_out():
    lines = [
        *("For instance::", "", "    code = 1", "", ".. math:: x^2", ""),
        *(".. note:: This `~a.b` **counts** [1]_, :class:`C <d.C>` too.", "", "===  ===", "a    b", "===  ===", ""),
        *(">>> f()", "1", "", "2**3 and *args"),
    ]
    assert pydocs.paragraphs(lines) == ["For instance:", "This a.b counts, C too.", "2**3 and *args"]


WORDS = st.lists(st.sampled_from(["sum", "of", "values", "axis", "matrix"]), min_size=1, max_size=60).map(" ".join)


@given(st.lists(WORDS.map(lambda words: f"{words.capitalize()}."), max_size=4), WORDS, WORDS)
def test_every_paragraph_is_kept_and_nothing_that_is_said_of_others(written, name, said):
    doc = "\n\n".join([*written, f"See Also\n--------\n{name.split()[0]} : Zebras, {said}."])
    summary, opening, rest, names = pydocs.read("a.b", doc, {})
    assert opening == written and rest == [] and [name for name, _ in names] == name.split()[:1]
    assert summary.count(" ") < pydocs.MAX_SHORT_WORDS and (not written or written[0].startswith(summary))
    assert "Zebras" not in " ".join(opening)


def test_no_text_of_numpy_holds_what_was_taken_out(smoke):
    mentions = smoke["questions"][smoke["questions"]["source"] == "mention"]
    entries = (mentions["cluster"].str.rpartition(".")[2] + " " + mentions["text"]).map(key)
    everything = "\n".join(whole(smoke["passages"]))
    assert not [entry for entry in entries if entry.count(" ") > 2 and f" {entry} " in everything]
    assert not smoke["passages"]["text"].str.contains(">>>|^See Also").any()
    assert smoke["passages"]["text"].str.split().str.len().max() <= MOST_WORDS


@pytest.mark.parametrize("name", ["", "-passages", "-source", "-target"])
def test_no_page_is_in_two_splits_and_every_question_has_its_passage(smoke, name):
    collection = datasets.load(f"pydocs{name}-smoke")
    queries = collection.queries
    sides = smoke["pages"].groupby("cluster")["split"].first()
    assert (queries["cluster"].map(smoke["pages"]["cluster"]).map(sides) == queries["split"]).all()
    assert set(queries["split"][queries["source"] == "mention"]) == {"train", "dev", "test"}
    assert not queries["text"].map(key).duplicated().any()
    assert collection.qrels.set_index("query_id")["doc_id"].eq(queries["cluster"] + "#0").all()


def test_summaries_are_taken_out_of_their_own_passages_alone():
    before, after = datasets.load("pydocs-smoke"), datasets.load("pydocs-passages-smoke")
    summaries = after.queries[after.queries["source"] == "summary"]
    pd.testing.assert_frame_equal(after.queries.drop(summaries.index), before.queries)
    assert set(summaries["split"]) == {"train"} and not set(summaries["cluster"]) & set(before.queries["cluster"])
    changed = after.documents["text"][after.documents["text"] != before.documents["text"]]
    assert len(changed) > 50 and set(changed.index) == set(summaries["cluster"] + "#0")
    assert (changed.str.split().str.len() >= pydocs.MIN_WORDS).all() and not changed.duplicated().any()
    texts = whole(after.documents)
    assert not any(key(text) in texts[page] for text, page in zip(summaries["text"], summaries["cluster"], strict=True))


def test_two_domains_share_neither_pages_nor_questions(smoke):
    source, target = datasets.load("pydocs-source-smoke"), datasets.load("pydocs-target-smoke")
    ours, theirs = set(source.documents["article"]), set(target.documents["article"])
    assert not ours & theirs and ours | theirs == set(smoke["pages"].index)
    assert all(path.startswith(("numpy.fft", "numpy.linalg", "numpy.random")) for path in theirs)
    clusters = smoke["pages"]["cluster"]
    assert not set(clusters[list(theirs)]) & set(source.queries["cluster"].map(clusters))


def test_similar_items_are_distinct_and_near_misses_are_no_duplicates(smoke):
    tasks = [datasets.load(f"pydocs-smoke-{group}") for group in "abc"]
    items = [item for task in tasks for item in task.documents.index]
    assert len(items) == len(set(items)) > 600
    cluster = pd.concat([smoke["pages"]["cluster"], smoke["questions"]["cluster"].map(smoke["pages"]["cluster"])])
    for task in tasks:
        assert not task.documents["text"].map(key).duplicated().any()
        assert all(len(task.labelled(split)) for split in ("train", "dev", "test"))
        same = task.pairs["left"].map(cluster) == task.pairs["right"].map(cluster)
        assert (same == (task.pairs["label"] == 1)).all()


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path))
    pydocs.tables.cache_clear()
    yield tmp_path / "cache" / "pydocs"
    pydocs.tables.cache_clear()


def test_tables_are_built_once_for_the_installed_versions(empty_cache, monkeypatch, smoke):
    made = pydocs.tables("pydocs-smoke")
    assert all(made[name].equals(smoke[name]) for name in smoke)  # built anew, the same
    monkeypatch.setattr(pydocs.subprocess, "run", lambda *_, **__: pytest.fail("built twice"))
    pydocs.tables.cache_clear()
    pydocs.tables("pydocs-smoke")
    monkeypatch.setattr(pydocs.importlib.metadata, "version", lambda package: "0.1")
    pydocs.tables.cache_clear()
    with pytest.raises(pytest.fail.Exception):
        pydocs.tables("pydocs-smoke")


def test_a_failed_build_says_so_and_leaves_no_tables(empty_cache, monkeypatch):
    monkeypatch.setitem(pydocs.SLICES, "unknown", {})
    with pytest.raises(DataError, match="KeyError: 'unknown'"):
        pydocs.tables("unknown")
    assert not [path for path in empty_cache.iterdir() if path.is_dir() and path.suffix != ".partial"]
