"""pydocs: no leak of a query into a document, targets by import path, one page a text, the same every time."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import pandas as pd
import pytest

from retlib.core.errors import DataError
from retlib.data.datasets import load, pydocs, text
from retlib.data.datasets.pydocs import cached
from retlib.data.datasets.pydocs.build import build
from retlib.data.datasets.pydocs.docstrings import MAX_PASSAGE_WORDS, Paragraph, passages, read
from retlib.data.datasets.pydocs.lines import clean, key, short
from retlib.data.datasets.pydocs.site import SLICES, Site

FAKE = {
    "fakedocs/__init__.py": '''
        """Tools for the tests of a library
        ===================================

        =======  ===================================
        total    Add up everything that is given
        stretch  Not a member of this module at all
        =======  ===================================

        Some words that are no listing.
        """
        from fakedocs.alpha import Box, total, total_again
        from fakedocs.beta import scale
        ''',
    "fakedocs/alpha.py": '''
        def total(values):
            """total(values) -> number

            Return the sum of all the values.

            Parameters
            ----------
            values : list of float
                What is added up.

            See Also
            --------
            scale : Stretch by one and the same factor.
            beta.scale : Grow in proportion to size.
            nowhere : There is no such thing here.
            Box.open, Box.close : Two names at once.
            math.fsum : More exact than this function.

            Notes
            -----
            A <script>alert(1)</script> stays text, as <object at 0x7f00aa> does.

            >>> total([1, 2])
            3
            """

        def total_again(values):
            """total_again(values) -> number

            Return the sum of all the values.

            Parameters
            ----------
            values : list of float
                What is added up.

            Notes
            -----
            A <script>alert(1)</script> stays text, as <object at 0x7f00ab> does.
            """

        def scale(values):
            """Multiply the values in module alpha.

            .. seealso:: :func:`total` adds up whatever it gets.
            """

        def _hidden():
            """A private function is no page."""

        class Box:
            """A box which holds values.

            Attributes
            ----------
            lid : str
                The thing that closes the box from above.
            total : float
                Here it is an attribute without a page.
            """

            @property
            def lid(self):
                """Name of the lid that the box has."""

            def scale(self):
                """Make the box larger by a factor.

                See Also
                --------
                scale : Multiply the values in module alpha.
                """

            def open(self):
                """Lift the lid so that values can be put in."""

            def close(self):
                """Put the lid back so that values stay in."""
        ''',
    "fakedocs/beta.py": '''
        def scale(values):
            """Multiply the values in module beta, which is another."""
        ''',
    "fakedocs/broken.py": "import a_package_that_is_not_installed",
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The tables of a small package."""
    for path, source in FAKE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(textwrap.dedent(source).strip() + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield build({"fakedocs": ("fakedocs.*",), "absent": ("a_package_that_is_not_installed.*",)})
    for name in [name for name in sys.modules if name.partition(".")[0] == "fakedocs"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def smoke():
    return pydocs.tables("smoke")


def described(tables):
    return {tuple(row) for row in tables["descriptions"][["origin", "target", "text"]].to_numpy()}


def test_names_are_resolved_by_import_path_and_never_by_a_short_name(fake):
    # Three things are called scale: each reference means the one nearest to the page on which it stands.
    assert described(fake) == {
        ("fakedocs.total", "fakedocs.alpha.scale", "Stretch by one and the same factor."),
        ("fakedocs.total", "fakedocs.scale", "Grow in proportion to size."),
        ("fakedocs.Box.scale", "fakedocs.alpha.scale", "Multiply the values in module alpha."),
        ("fakedocs.alpha.scale", "fakedocs.total", "adds up whatever it gets."),
        ("fakedocs", "fakedocs.total", "Add up everything that is given"),
        ("fakedocs.Box", "fakedocs.Box.lid", "The thing that closes the box from above."),
    }


def test_where_a_description_stood_is_known(fake):
    sources = fake["descriptions"].set_index("text")["source"]
    assert sources["Add up everything that is given"] == "listing"
    assert sources["The thing that closes the box from above."] == "listing"
    assert sources["Grow in proportion to size."] == "see_also"


def test_pages_are_public_and_those_with_the_same_text_are_one(fake):
    assert set(fake["pages"]["article"]) == {
        *("fakedocs", "fakedocs.total", "fakedocs.scale", "fakedocs.alpha.scale", "fakedocs.Box"),
        *("fakedocs.Box.lid", "fakedocs.Box.scale", "fakedocs.Box.open", "fakedocs.Box.close"),
    }


def test_links_are_every_name_that_is_resolved(fake):
    links = {tuple(row) for row in fake["links"].to_numpy()}
    assert ("fakedocs.total", "fakedocs.Box.open") in links and ("fakedocs.total", "fakedocs.Box.close") in links
    assert {target for source, target in links if source == "fakedocs.Box.scale"} == {"fakedocs.alpha.scale"}


def test_no_text_holds_what_was_taken_out(fake):
    whole = " ".join([*fake["passages"]["text"], *fake["prose"]["text"]])
    for gone in ("Stretch by", "Grow in", "There is no such", "Two names", "adds up whatever", "Add up every", "See"):
        assert gone not in whole
    assert "The thing that closes" not in whole
    # What names no page is no query, and stays.
    assert "Here it is an attribute without a page." in whole


def test_markup_is_text_code_and_addresses_go(fake):
    notes = fake["passages"].set_index(["article", "position"])["text"]["fakedocs.total", 1]
    assert notes == (
        "values : list of float What is added up. A <script>alert(1)</script> stays text, as <object> does."
    )


def test_the_summary_is_what_stands_under_the_signature(fake):
    pages = fake["pages"].set_index("article")
    assert pages["summary"]["fakedocs.total"] == "Return the sum of all the values."
    assert pages["summary"]["fakedocs"] == "Tools for the tests of a library"


def test_verbatim_marks_a_description_that_stands_in_its_target(fake, monkeypatch):
    monkeypatch.setattr(pydocs, "tables", lambda name: fake)
    collection = pydocs.described("fake", "smoke")
    verbatim = collection.queries.set_index("text")["verbatim"]
    assert verbatim["Multiply the values in module alpha."]
    assert not verbatim["Grow in proportion to size."]
    relevant = collection.qrels.set_index("query_id")["doc_id"]
    assert (collection.queries["cluster"] + "#0" == relevant.loc[collection.queries.index]).all()


def test_a_description_of_several_pages_is_no_query(fake, monkeypatch):
    rows = fake["descriptions"]
    both = rows.assign(
        text=rows["text"].replace("Grow in proportion to size.", "the thing that CLOSES the box from above")
    )
    monkeypatch.setattr(pydocs, "tables", lambda name: {**fake, "descriptions": both})
    keys = {key(query) for query in pydocs.described("fake", "smoke").queries["text"]}
    assert "the thing that closes the box from above" not in keys and len(keys) == 4
    items = pydocs._items(pydocs.tables("smoke"), "smoke", None)
    assert "the thing that closes the box from above" not in set(items["key"])


def reading(doc):
    return read(textwrap.dedent(doc).strip(), resolves=lambda name: name in {"f", "g.h"}, lists=lambda name: False)


@pytest.mark.parametrize(
    ("doc", "mentions"),
    [
        (
            "Do.\n\nSee Also\n--------\nf : One.\ng.h :\n    Two\n    lines.",
            [(("f",), "One."), (("g.h",), "Two lines.")],
        ),
        ("Do.\n\nSee also\n========\nf, g.h", [(("f", "g.h"), "")]),
        ("Do.\n\nSee Also\n--------\nf\n    One and\n    word\ng.h", [(("f",), "One and word"), (("g.h",), "")]),
        ("Do.\n\n.. seealso::\n\n    :func:`~g.h` for more,\n    and more.", [(("g.h",), "for more, and more.")]),
        ("Do.\n\n.. seealso:: `f` -- One.", [(("f",), "One.")]),
        ("Do.\n\nSee also:\n    f: One.", [(("f",), "One.")]),
        ("Do.\n\nSee Also\n--------\n`f`\n:ref:`label`\n    Two.", [(("f",), ""), (("label",), "Two.")]),
    ],
)
def test_see_also_is_read_and_removed_in_every_dialect(doc, mentions):
    found = reading(doc)
    assert [(m.names, m.description) for m in found.mentions] == mentions
    assert [p.text for p in found.paragraphs] == ["Do."]


def test_what_follows_see_also_is_kept():
    found = reading("Do.\n\nSee Also\n--------\nf : One.\n\nNotes\n-----\nThree.\n\n.. seealso:: f\n\nFour.")
    assert [(p.section, p.text) for p in found.paragraphs] == [
        *(("Summary", "Do."), ("Notes", "Three."), ("Notes", "Four.")),
    ]


def test_sections_of_google_style_and_sphinx_fields_are_entries():
    found = reading("Do.\n\nArgs:\n    x (int): The\n        first.\n    y: The second.\n\nReturns:\n    A number.")
    assert found.paragraphs[1:] == [
        Paragraph("Args", "x (int): The first.", "The first."),
        Paragraph("Args", "y: The second.", "The second."),
        Paragraph("Returns", "A number.", ""),
    ]
    fields = reading("Do.\n\n:param x: The first.\n:returns: A number.")
    assert [p.prose for p in fields.paragraphs] == ["Do.", "The first.", "A number."]


def test_a_docstring_that_begins_with_a_section_has_no_summary():
    found = reading("Parameters\n----------\nx : int\n    The first.")
    assert found.summary == "" and found.paragraphs == [Paragraph("Parameters", "x : int The first.", "The first.")]


def test_code_formulas_and_bibliographies_are_left_out():
    found = reading(
        """
        Do.

        For instance::

            code = 1

        .. math:: x^2

        .. note:: This counts.

        >>> f()
        1

        References
        ----------
        .. [1] A book.
        """
    )
    assert [p.text for p in found.paragraphs] == ["Do.", "For instance:", "This counts."]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":func:`~a.b` and :class:`C <d.C>`", "a.b and C"),
        ("``x`` of `y` [1]_, **not** *z*", "x of y, not z"),
        ("2**3 and *args", "2**3 and *args"),
        ("<obj at 0x7f12>", "<obj>"),
        ("a\n   b", "a b"),
    ],
)
def test_clean(marked, plain):
    assert clean(marked) == plain


def test_short_keeps_whole_sentences():
    assert short("One two. " + "w " * 50) == "One two."
    assert short("One two. Three.") == "One two. Three."


def test_passages_are_bounded_and_lose_no_word():
    long = Paragraph("Notes", " ".join(f"w{i}" + "." * (i % 7 == 0) for i in range(250)), "")
    given = [Paragraph("Summary", "Do.", ""), Paragraph("Parameters", "x", ""), Paragraph("Returns", "y", ""), long]
    packed = list(passages(given))
    assert packed[0] == ("Summary", "Do.")
    assert packed[1] == ("Parameters", "x y") and packed[2][0] == "Notes"
    assert " ".join(text for _, text in packed) == " ".join(p.text for p in given)
    assert max(len(text.split()) for _, text in packed) <= MAX_PASSAGE_WORDS


def test_real_pages_refer_to_what_they_mean():
    site = Site({"numpy": ("numpy", "numpy.fft")})
    pages = {page.path: page for page in site.pages}

    def on(path, name):
        return site.resolve(name, pages[path]).path

    assert on("numpy.ndarray.sum", "sum") == "numpy.sum"  # a page never refers to itself
    assert on("numpy.ndarray.sum", "mean") == "numpy.ndarray.mean"  # the class comes first
    assert on("numpy.sum", "mean") == "numpy.mean"
    assert on("numpy.fft.ifft", "fft") == "numpy.fft.fft"
    assert on("numpy.sum", "np.add.reduce") == "numpy.ufunc.reduce"
    assert site.resolve("no_such_name", pages["numpy.sum"]) is None


def test_no_document_of_numpy_has_a_see_also_or_an_entry_of_one(smoke):
    texts = smoke["passages"].groupby("article")["text"].agg(" ".join).map(key)
    assert not smoke["passages"]["text"].str.match(r"(?i)see also\b").any()
    everything = "\n".join(texts)
    entries = smoke["descriptions"]["target"].str.rpartition(".")[2] + " " + smoke["descriptions"]["text"]
    leaked = [entry for entry in map(key, entries) if len(entry.split()) > 3 and f" {entry} " in everything]
    assert leaked == []


def test_no_target_is_in_two_splits(smoke):
    passages_, similar = pydocs.described("p", "smoke"), load("pydocs-smoke")
    assert set(passages_.queries["split"]) == {"train", "dev", "test"}
    sides = dict(zip(passages_.queries["cluster"], passages_.queries["split"], strict=True))
    assert (passages_.queries["cluster"].map(sides) == passages_.queries["split"]).all()
    assert (similar.queries.groupby("cluster")["split"].nunique() == 1).all()
    # The side of a page is the same in every collection that has it.
    articles = similar.documents.index.str.split("?").str[0]
    for article, split in zip(articles, similar.documents["split"], strict=True):
        assert sides.get(article, split) == split


def test_similar_items_are_distinct_and_near_misses_are_no_duplicates():
    collection = load("pydocs-smoke")
    assert 600 <= len(collection.documents) <= 1500
    assert not collection.documents["text"].map(key).duplicated().any()
    clusters = collection.queries["cluster"]
    for split in ("train", "dev", "test"):
        assert len(collection.labelled(split, 1)) > 20
    near = collection.pairs[collection.pairs["label"] == 0]
    assert len(near) > 100
    same = near["left"].map(clusters) == near["right"].map(clusters)
    assert not same.any()


def test_the_three_smoke_tasks_are_disjoint():
    tasks = [load(f"pydocs-smoke-{group}") for group in "abc"]
    items = [item for task in tasks for item in task.documents.index]
    assert len(items) == len(set(items))
    for task in tasks:
        assert all(len(task.labelled(split, 1)) for split in ("train", "dev", "test"))


def test_sentences_have_no_code_and_no_see_also():
    stream = list(text("pydocs-smoke"))
    assert len(stream) > 3000 and len(set(stream)) > 2500
    assert not any(">>>" in sentence or sentence.startswith("See Also") for sentence in stream)
    assert any("fast Fourier transform" in sentence.lower() or "Fourier" in sentence for sentence in stream)


DIGEST = """
import hashlib
from retlib.data.datasets.pydocs.build import build
from retlib.data.datasets.pydocs.site import SLICES
tables = build(SLICES["smoke"])
print(hashlib.sha256("".join(table.to_csv() for table in tables.values()).encode()).hexdigest())
"""


def test_the_same_tables_whatever_the_hash_seed():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first == second != ""


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path))
    cached.tables.cache_clear()
    yield tmp_path / "cache" / "pydocs"
    cached.tables.cache_clear()


def test_tables_are_built_once_in_another_process(empty_cache, monkeypatch, smoke):
    built = pydocs.tables("smoke")
    assert len([path for path in empty_cache.iterdir() if path.is_dir()]) == 1
    monkeypatch.setattr(cached, "_run_build", lambda *_: pytest.fail("built twice"))
    cached.tables.cache_clear()
    again = pydocs.tables("smoke")
    for name in smoke:
        assert built[name].equals(again[name]) and built[name].equals(smoke[name])


def test_a_collection_is_made_once_and_read_as_it_was(empty_cache, monkeypatch):
    made = pydocs.similar("pydocs-smoke-b", "smoke", "b")
    first = cached.collection("pydocs-smoke-b", "smoke", lambda: made)
    again = cached.collection("pydocs-smoke-b", "smoke", lambda: pytest.fail("made twice"))
    for each in (first, again):
        assert each.fingerprint == made.fingerprint and each.provenance == made.provenance
        for part in ("documents", "queries", "qrels", "pairs"):
            pd.testing.assert_frame_equal(getattr(each, part), getattr(made, part), check_dtype=False)
        assert each.links is None
    other = cached.collection("pydocs-smoke-c", "smoke", lambda: replace(made, name="pydocs-smoke-c"))
    assert other.name == "pydocs-smoke-c"


def test_a_failed_build_says_so_and_leaves_no_tables(empty_cache, monkeypatch):
    monkeypatch.setitem(SLICES, "unknown", {})
    with pytest.raises(DataError, match="pydocs: the docstrings of slice 'unknown' cannot be read"):
        pydocs.tables("unknown")
    assert not [path for path in empty_cache.iterdir() if path.is_dir() and path.suffix != ".partial"]


def test_another_version_of_a_package_is_another_cache(monkeypatch):
    before = cached._address("smoke")
    monkeypatch.setattr(cached, "versions", lambda packages: {"numpy": "0.1"})
    assert cached._address("smoke") != before


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    assert "no-such-package" not in pydocs.versions(["numpy", "no-such-package"])
