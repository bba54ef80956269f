"""Articles with sections and links: from files in the official formats, written here, and from real copies."""

import bz2
import tracemalloc
from itertools import islice
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realdata import real

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.collection import Article
from retlib.data.datasets import pydocs, wikipedia, wikispeedia

PROSE = "It has been the subject of many long books."


# Article.


@pytest.mark.parametrize(("passages", "opening"), [(("a", "b"), 3), (("a",), 0), ((), 1), (("a",), -1)])
def test_an_impossible_opening_is_an_error(passages, opening):
    with pytest.raises(DataError, match=f"article 'x': an opening of {opening} of {len(passages)} passages"):
        Article("x", "X", passages, opening)


def test_the_provenance_of_sources_differs(write):
    everything, part = datasets.provenance("pydocs"), datasets.provenance("pydocs-smoke")
    assert (
        set(part) == {"source", "reader", "version", "numpy"} < set(everything) and part["numpy"] == everything["numpy"]
    )
    assert set(datasets.provenance("wikispeedia")) == {"source", "reader", "version"}  # its files are not here
    for name in ("plaintext", "paths-and-graph"):
        write(f"wikispeedia/wikispeedia_articles_{name}.tar.gz".replace("articles_paths", "paths"), {"x": name})
    before = datasets.provenance("wikispeedia")
    files = [file for file in before if file.startswith("wikispeedia/")]
    assert len(files) == 2 and all(before[file].endswith("(unknown)") for file in files)
    write("wikispeedia/wikispeedia_articles_plaintext.tar.gz", {"x": "something else that is longer"})
    after = datasets.provenance("wikispeedia")
    assert [before[file] == after[file] for file in before].count(False) == 1
    with pytest.raises(SettingError, match="wikispedia"):
        datasets.provenance("wikispedia")


# Wikispeedia.

LICENCE = '   Retrieved from " http://en.wikipedia.org/wiki/X"\n   This reference article is mainly selected.\n'
SWEDEN = f"""   #copyright

Sweden (country)

2007 Schools Wikipedia Selection. Related subjects: Countries; European
Countries

                   Konungariket Sverige
   Motto: With the times is what they all say here today.
    - King         Carl XVI Gustaf
   ^a The Swedish language is de facto the national language of the place.

   The Kingdom of Sweden ( Swedish: Konungariket Sverige ) is a Nordic
   country in Scandinavia. It is bordered by Norway in the west, Finland
   in the northeast.

   Sweden has a low population density except in its metropolitan areas.

History

Prehistory

   The three large "royal mounds" at Gamla Uppsala are very old indeed, as
   all say.
   Enlarge
   The three large "royal mounds" at Gamla Uppsala are very old indeed, as
   all say.

   Soon after the end of the last ice age, Sweden became populated by
   hunter-gatherers.
   A picture of a hunter who gathers what he can find.
   A picture of a hunter who gathers what he can find.

     * A list item that is as long as a sentence is.

   ^1 A footnote that is as long as any sentence is.

   CAPTION: A table that has as many words as a sentence.

Literature

   {PROSE}
{LICENCE}"""
LINKS = "# The list of all links.\n\nSweden\tNorway\nSweden\t%C3%85land\nNorway\tSweden\n"


@pytest.fixture
def school(write):
    def put(text=SWEDEN, links=LINKS, name="links.tsv"):
        write(wikispeedia.GRAPH, {"graph/articles.tsv": "Sweden\n", f"graph/{name}": links})
        empty = f"   #copyright\n\nÅland\n\n{LICENCE}"
        return write(wikispeedia.FILE, {"plain/Sweden.txt": text, "plain/%C3%85land.txt": empty})

    return put


def test_wikispeedia_keeps_running_text_alone(school):
    school()
    sweden, aland = datasets.articles("wikispeedia")
    assert sweden == Article(
        "Sweden",
        "Sweden (country)",
        (
            "The Kingdom of Sweden ( Swedish: Konungariket Sverige ) is a Nordic country in Scandinavia. "
            "It is bordered by Norway in the west, Finland in the northeast.",
            "Sweden has a low population density except in its metropolitan areas.",
            "Soon after the end of the last ice age, Sweden became populated by hunter-gatherers.",
            PROSE,
        ),
        opening=2,
        links=("Norway", "Åland"),
    )
    assert aland == Article("Åland", "Åland", (), 0)


def test_the_opening_is_the_first_section_that_has_text(school):
    school(f"X\n\n   Short.\n\nHistory\n\n   {PROSE}\n\nMore\n\n   {PROSE}\n\n{LICENCE}")
    assert next(datasets.articles("wikispeedia")).opening == 1


def test_a_damaged_wikispeedia_file_is_named_with_its_line(school):
    school(links=LINKS + "only one end\n")
    with pytest.raises(DataError, match=r"links\.tsv, line 6: not two names"):
        list(datasets.articles("wikispeedia"))
    school(name="other.tsv")
    with pytest.raises(DataError, match=r"there is no links\.tsv in it"):
        list(datasets.articles("wikispeedia"))
    path = school(text="   no title\n")
    with pytest.raises(DataError, match="the article has no title") as error:
        list(datasets.articles("wikispeedia"))
    assert f"{path}: plain/Sweden.txt" in str(error.value)


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=12), min_size=13, max_size=60), min_size=1, max_size=4))
def test_what_was_wrapped_is_joined(paragraphs):
    import textwrap

    texts = [" ".join(paragraph) + "." for paragraph in paragraphs]
    wrapped = [textwrap.wrap(text, width=wikispeedia.WIDTH - 3) for text in texts]
    for text, lines in zip(texts, wrapped, strict=True):
        assert wikispeedia._unwrapped(lines) == [text]


@real(wikispeedia.FILE, wikispeedia.GRAPH)
def test_real_wikispeedia():
    articles = {article.name: article for article in datasets.articles("wikispeedia")}
    assert len(articles) == 4598
    links = [link for article in articles.values() for link in article.links]
    assert len(links) == 119_879 and set(links) <= set(articles)
    passages = [passage for article in articles.values() for passage in article.passages]
    assert 130_000 < len(passages) < 145_000
    assert sum(not article.passages for article in articles.values()) <= 1
    for unwanted in ("Retrieved from", "2007 Schools Wikipedia Selection", "#copyright", "CAPTION:"):
        assert not any(unwanted in passage for passage in passages)
    assert sum(" Enlarge " in passage for passage in passages) <= 1
    sweden = articles["Sweden"]
    assert sweden.opening == 4 and sweden.passages[0].startswith("The Kingdom of Sweden ( Swedish:")
    assert sweden.passages[4].startswith("Soon after the end of the last ice age")


# Wikipedia dumps.

TEXT = """{{Infobox|name={{lc:X}}|a=[[Gold]]}}
[[File:X.jpg|thumb|A picture of [[Mars]] that has as many words as a sentence.]]
'''Paris''' ({{lang-fr|x}}; ) is the ''capital''&nbsp;city of [[France#Cities|the French]] and has [[tower]]s.<ref>A
footnote that is as long as any sentence is, see [[Source text]].</ref>
<!-- a comment -->
== History ==
{| class="wikitable"
| A cell that has as many words as a sentence has.
|}
* An item of a list that is as long as a sentence, with [[eiffel_tower]].
Its [http://x.org history] has been the subject of <b>many</b> long books.<br>And so it goes.

=== Deep ===
Short.
[[Category:Cities]] [[:Category:Towns]] [[#Here]] [[Paris]] [[de:Paris]] [[ ]]
"""


def page(title, text, namespace=0, redirect=""):
    target = f'<redirect title="{redirect}" />' if redirect else ""
    return (
        f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>1</id>{target}"
        f"<revision><id>2</id><text>{escape(text)}</text></revision></page>\n"
    )


def dump(*pages):
    head = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n<siteinfo><sitename>W</sitename><namespaces>'
        '<namespace key="0" /><namespace key="6">File</namespace><namespace key="14">Category</namespace>'
        "</namespaces></siteinfo>\n"
    )
    return f"{head}{''.join(pages)}</mediawiki>\n"


def test_wikipedia_has_text_sections_and_links(write):
    others = page("Talk:Paris", TEXT, namespace=1), page("Lutetia", "#REDIRECT [[Paris]]", redirect="Paris")
    write(wikipedia.FILE, bz2.compress(dump(page("Paris", TEXT), *others, page("Void", "")).encode()))
    paris, void = datasets.articles("wikipedia")
    assert paris == Article(
        "Paris",
        "Paris",
        (
            "Paris is the capital city of the French and has towers.",
            "Its history has been the subject of many long books. And so it goes.",
        ),
        opening=1,
        links=("Gold", "Mars", "France", "Tower", "Source text", "Eiffel tower", "De:Paris"),
    )
    assert void == Article("Void", "Void", (), 0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bz2.compress(dump(page("A", PROSE)).encode())[:-9], "cannot be unpacked to its end"),
        (b"no bzip2 at all", "cannot be unpacked to its end"),
        (bz2.compress(dump(page("A", PROSE)).encode()[:-30]), r", line 3: it is not XML"),
        (bz2.compress(b"<html></html>"), r", line 1: the XML is a 'html'"),
        (bz2.compress(b""), r", line 1: it is not XML"),
        (bz2.compress(dump("<page><title>A</title></page>").encode()), "the page 'A' has no title, namespace or text"),
    ],
)
def test_a_damaged_dump_is_named(write, content, problem):
    path = write(wikipedia.FILE, content)
    with pytest.raises(DataError, match=problem) as error:
        list(datasets.articles("wikipedia"))
    assert str(path) in str(error.value) and "dumps.wikimedia.org" in str(error.value)


def test_a_dump_is_streamed_in_constant_memory(write):
    def peak(count):
        content = dump(*(page(f"Page {n}", f"{PROSE} [[Page {n + 1}]]\n" * 20) for n in range(count)))
        write(wikipedia.FILE, bz2.compress(content.encode(), 1))
        del content
        list(islice(datasets.articles("wikipedia"), 3))  # what is set up once
        tracemalloc.start()
        try:
            assert sum(1 for _ in datasets.articles("wikipedia")) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(50), peak(1000)
    assert many < few + 100_000  # the text of the additional pages is 1.1 MB


# Wikipedia of 2015.

WIKIPEDIA = "wikipedia-2015/wikiextractor-AA.tar.gz"


def extracted(title, *lines):
    body = "\n".join([title, "", *lines])
    return f'<doc id="1" url="http://x" title="{title}">\n{body}\n\n</doc>\n'


def test_wikipedia_2015_has_openings_and_no_links(write):
    first = extracted("A", PROSE, PROSE, "History. ", PROSE, "Early years. ", PROSE)
    write(WIKIPEDIA, {"AA/wiki_00": first + extracted("B", "History. ", PROSE) + extracted("C", "Short.")})
    assert list(datasets.articles("wikipedia-2015")) == [
        Article("A", "A", (PROSE,) * 4, 2),
        Article("B", "B", (PROSE,), 1),
        Article("C", "C", (), 0),
    ]


@real(WIKIPEDIA)
def test_real_wikipedia_2015():
    articles = list(islice(datasets.articles("wikipedia-2015"), 300))
    assert len({article.name for article in articles}) == 300
    assert sum(bool(article.passages) for article in articles) >= 280  # the others are disambiguations and lists
    openings = [article.opening for article in articles if article.passages]
    assert 1 <= sum(openings) / len(openings) < 6


# pydocs.


def test_pydocs_articles_are_its_pages():
    tables = pydocs.tables("smoke")
    articles = list(datasets.articles("pydocs-smoke"))
    names = [article.name for article in articles]
    assert set(names) == set(tables["pages"]["article"]) and len(set(names)) == len(names)
    assert sum(len(article.passages) for article in articles) == len(tables["passages"])
    assert sum(len(article.links) for article in articles) == len(tables["links"])
    assert all(link in set(names) for article in articles for link in article.links)
    sections = tables["passages"].groupby("article")["section"].agg(list)
    for article in articles:
        first, *_ = opening = sections[article.name][: article.opening]
        assert set(opening) == {first}
        assert sections[article.name][article.opening : article.opening + 1] != [first]


def test_documents_of_a_collection_are_articles_where_nothing_else_is():
    collection = datasets.load("pydocs-smoke")
    found = list(datasets.articles("pydocs-target-smoke"))
    target = datasets.load("pydocs-target-smoke")
    assert [article.name for article in found] == target.documents.index.tolist()
    assert " ".join(found[0].passages).split() == target.documents["text"].iloc[0].split()
    assert datasets.provenance("pydocs-target-smoke")["pydocs-target-smoke"] == target.fingerprint
    assert datasets.provenance("pydocs-smoke") != {"pydocs-smoke": collection.fingerprint}
