"""Articles with sections and links, and bulk text: from small files in the official formats, and from real copies."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realdata import real
from releases import PROSE, SWEDEN

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Article
from retlib.data.datasets import released
from retlib.data.text import quick_sentences


@pytest.mark.parametrize(("passages", "opening"), [(("a", "b"), 3), (("a",), 0), ((), 1), (("a",), -1)])
def test_an_impossible_opening_is_an_error(passages, opening):
    with pytest.raises(DataError):
        Article("x", "X", passages, opening)


def test_the_provenance_of_sources_differs(release):
    everything, part = datasets.provenance("pydocs"), datasets.provenance("pydocs-smoke")
    assert {*part} < {*everything} and "numpy" in part and part["numpy"] == everything["numpy"]
    release("wikispeedia")
    before = datasets.provenance("wikispeedia")
    assert before[released.TEXTS].endswith("(unknown)") and before[released.GRAPH].endswith("(unknown)")
    release("wikispeedia", {released.TEXTS: {"x": "another text"}})
    after = datasets.provenance("wikispeedia")
    assert [file for file in before if before[file] != after[file]] == [released.TEXTS]
    with pytest.raises(SettingError, match="wikispedia"):
        datasets.provenance("wikispedia")


def test_wikispeedia_keeps_running_text_alone(release):
    release("wikispeedia")
    sweden, aland = datasets.articles("wikispeedia")
    texts = (
        "The Kingdom of Sweden ( Swedish: Konungariket Sverige ) is a Nordic country in Scandinavia. "
        "It is bordered by Norway in the west, Finland in the northeast.",
        "Sweden has a low population density except in its metropolitan areas.",
        "Soon after the end of the last ice age, Sweden became populated by hunter-gatherers.",
        PROSE,
    )
    assert sweden == Article("Sweden", "Sweden (country)", texts, opening=2, links=("Norway", "Åland"))
    assert aland == Article("Åland", "Åland", (), 0)
    assert "It is bordered by Norway in the west, Finland in the northeast." in datasets.text("wikispeedia")
    # The opening is the first section that has text.
    head, _, tail = SWEDEN.partition("   The Kingdom")
    release("wikispeedia", {released.TEXTS: {"plain/Sweden.txt": head + tail[tail.index("History") :]}})
    assert next(datasets.articles("wikispeedia")).opening == 1


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=13, max_size=60).map(" ".join))
def test_what_was_wrapped_is_joined(text):
    lines = textwrap.wrap(f"{text}.", width=released.WIDTH - 3)
    assert released.paragraphs([f"   {line}" for line in lines]) == [f"{text}."]


@real(released.TEXTS, released.GRAPH)
def test_real_wikispeedia():
    articles = {article.name: article for article in datasets.articles("wikispeedia")}
    links = [link for article in articles.values() for link in article.links]
    assert len(articles) == 4598 and len(links) == 119_879 and {*links} <= {*articles}
    passages = [passage for article in articles.values() for passage in article.passages]
    assert 130_000 < len(passages) < 145_000
    for unwanted in ("Retrieved from", "2007 Schools Wikipedia Selection", "#copyright", "CAPTION:"):
        assert not any(unwanted in passage for passage in passages)
    sweden = articles["Sweden"]
    assert sweden.opening == 4 and sweden.passages[4].startswith("Soon after the end of the last ice age")


def test_wikipedia_of_2015_has_openings_and_sentences_and_no_links(release):
    release("wikipedia-2015")
    listed, other, empty = datasets.articles("wikipedia-2015")
    founded = listed.passages[0]
    assert listed == Article('The "A" list', 'The "A" list', (founded, PROSE, PROSE), 2)
    assert other == Article("B", "B", (PROSE,), 1) and empty == Article("Empty", "Empty", (), 0)
    assert list(datasets.text("wikipedia-2015")) == [
        "It was founded in 1905 by Dr. J. R. Smith.",
        "The U.S. branch is older!",  # and one sentence is too short
        "It is still there today.",
        *(PROSE, PROSE, PROSE),
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('He said "Stop." Then he left.', 2),
        ("Mr. Smith met Prof. A. B. Jones on 3 Jan. 1999.", 1),
        ("It cost 3.5 million. 400 came!", 2),
        ("The U.S. Army and the U.K. Navy agree, e.g. George says so.", 1),
        ("Is it? Yes! (So they say.) It is.", 4),
        ("no capital follows. so it stays one", 1),
    ],
)
def test_quick_sentences(text, count):
    found = quick_sentences(text.strip())
    assert len(found) == count and " ".join(found) == text.strip()  # nothing is lost


def test_pydocs_articles_link_to_each_other_and_are_its_documents():
    articles = {article.name: article for article in datasets.articles("pydocs-smoke")}
    links = [link for article in articles.values() for link in article.links]
    assert links and {*links} <= {*articles} and all(article.passages for article in articles.values())
    assert {*datasets.load("pydocs-passages-smoke").documents["article"]} == {*articles}


def test_documents_of_a_collection_are_articles_where_nothing_else_is():
    found, target = list(datasets.articles("pydocs-target-smoke")), datasets.load("pydocs-target-smoke")
    assert [article.name for article in found] == target.documents.index.tolist()
    assert " ".join(found[0].passages).split() == target.documents["text"].iloc[0].split()
    assert datasets.provenance("pydocs-target-smoke")["pydocs-target-smoke"] == target.fingerprint
