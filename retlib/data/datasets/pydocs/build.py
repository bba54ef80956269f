"""From docstrings to the tables of `pydocs`: pages, passages, prose, descriptions and links.

The reading runs in a process of its own (`main`): what a notebook has imported does not change it, nor stay in memory.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping

import pandas as pd

from retlib.data.datasets.pydocs.docstrings import Reading, passages, read
from retlib.data.datasets.pydocs.lines import key, short
from retlib.data.datasets.pydocs.mentions import bare_name
from retlib.data.datasets.pydocs.site import SLICES, Page, Report, Site
from retlib.data.splits import closure

TABLES = ("pages", "passages", "prose", "descriptions", "links")
STEPS = 3  # what `build` reports besides the packages

# A page with fewer words is left out, unless another page describes it.
MIN_WORDS = 5

# A description that makes sense only on the page where it stands: "Equivalent method.", "like this
# function, but faster", and a bare cross-reference.
_CONTEXTUAL = re.compile(
    r"(?i)(?:(?:an?|the) )?(?:equivalent|similar|same|related|corresponding|identical|analogous|opposite|alias|inverse"
    r"|reciprocal|counterpart|alternative|another|see)\b(?:\W+\w+){0,6}\W*$"
    r"|.*\b(?:this|above) (?:function|method|class|routine|module|property|attribute|one|kernel|index|object)\b|[.`:]"
)
_EQUIVALENT = re.compile(r"(?i)(?:(?:an?|the) )?(?:equivalent|corresponding|same|identical)\b(?:\W+\w+){0,6}\W*$")
_REFERENCE = re.compile(r":[\w:+-]+:`[^`]+`|(?<![`\w])`~?\.?[A-Za-z_][\w.]*`(?![`_])")
_DELEGATION = re.compile(rf"(?i)(?:refer to|see|alias (?:of|for)|same as)\s+({_REFERENCE.pattern})")
_PARAMETERS = re.compile(r"^\s*\*{0,2}(\w+(?:, ?\*{0,2}\w+)*) ?(?:\([^)]*\))?:(?:\s|$)", re.MULTILINE)
# A page that only points to another one, or says that it is no longer to be used.
_POINTER = re.compile(r"(?i)(?:see|refer to|alias|(?:in-place|out-of-place) version of)\b(?:\W+\w+){0,8}\W*$")
_DEPRECATED = re.compile(r"(?i)(?:deprecated|this \w+ (?:is|has been) (?:now )?deprecated)\b")


def build(packages: Mapping[str, Iterable[str]], report: Report = lambda step: None) -> dict[str, pd.DataFrame]:
    """Read the docstrings of some packages (names to modules, as `site.PACKAGES`).

    ``pages`` (article, package, summary, cluster), ``passages`` (article, position, section, text), ``prose`` (article,
    text: a paragraph a row), ``descriptions`` (target, text, source, origin) and ``links`` (source, target) are sorted
    by path, then by place. `report` is told every package, and `STEPS` more.

    Pages with the same text are one page, under the shortest path. Pages are of one *cluster* when their summaries are
    the same, or when one of the same name refers to the other for what it does (`numpy.ndarray.sum` to `numpy.sum`): to
    a reader they answer the same question, so a split must not part them.
    """
    library = _Library(Site(packages, report))
    report("docstrings")
    descriptions = sorted(set(library.descriptions()))
    kept = library.kept({target for target, *_ in descriptions})
    pages = pd.DataFrame(
        [(page.path, page.package, reading.summary) for page, reading in kept.items()],
        columns=["article", "package", "summary"],
    )
    paths = set(pages["article"])
    pages["cluster"] = _clusters(pages, _within(library.equivalents(), paths))
    links = _within(library.links(), paths)
    report("links")

    def table(columns: list[str], rows: Callable[[Reading], Iterable[tuple]]) -> pd.DataFrame:
        filled = [(page.path, *row) for page, reading in kept.items() for row in rows(reading)]
        return pd.DataFrame(filled, columns=["article", *columns])

    def numbered(reading: Reading) -> Iterator[tuple[int, str, str]]:
        return ((position, *passage) for position, passage in enumerate(passages(reading.paragraphs)))

    tables = {
        "pages": pages,
        "passages": table(["position", "section", "text"], numbered),
        "prose": table(["text"], lambda reading: [(part.prose,) for part in reading.paragraphs if part.prose]),
        "descriptions": pd.DataFrame(descriptions, columns=["target", "text", "source", "origin"]),
        "links": pd.DataFrame(links, columns=["source", "target"]),
    }
    report("passages")
    return tables


class _Library:
    """The pages of a site, read.

    `canonical` gives for every page with text the page that stands for all with the same text: that with the
    shortest path.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._readings = {page: self._read(page) for page in site.pages}
        by_text: dict[str, list[Page]] = {}
        for page, reading in self._readings.items():
            if reading.paragraphs:
                by_text.setdefault(key(reading.text), []).append(page)
        shortest = {page: min(pages, key=lambda p: p.length) for pages in by_text.values() for page in pages}
        self.canonical: dict[Page, Page] = shortest

    def _read(self, page: Page) -> Reading:
        return read(
            page.doc,
            resolves=lambda name: self._site.resolve(name, page) is not None,
            lists=lambda name: self._site.listed(name, page) is not None,
            is_module=page.is_module,
        )

    def kept(self, described: set[str]) -> dict[Page, Reading]:
        """The pages that stand for themselves, and say enough or are described by another."""
        return {
            page: reading
            for page, reading in self._readings.items()
            if self.canonical.get(page) is page and (page.path in described or not _says_little(reading.text))
        }

    def descriptions(self) -> Iterator[tuple[str, str, str, str]]:
        """(target, text, source, origin) of every description of one other page that stands for itself."""
        for page, origin in self.canonical.items():
            for mention in self._readings[page].mentions:
                find = self._site.resolve if mention.source == "see_also" else self._site.listed
                target = self.canonical.get(find(mention.names[0], page)) if len(mention.names) == 1 else None
                text = short(mention.description)
                is_usable = len(key(text).split()) > 1 and not _CONTEXTUAL.match(text)
                if target not in (None, origin) and is_usable:
                    yield target.path, text, mention.source, origin.path

    def links(self) -> Iterator[tuple[str, str]]:
        """Hyperlinks: names under "See Also" and in listings, and cross-references in the text."""
        for page, origin in self.canonical.items():
            parameters = {name.strip("* ") for names in _PARAMETERS.findall(page.doc) for name in names.split(",")}
            # A plain name in backticks is often one of the parameters.
            references = (r for r in _REFERENCE.findall(page.doc) if r[0] == ":" or r.strip("`") not in parameters)
            names = {bare_name(reference) for reference in references}
            names.update(name for mention in self._readings[page].mentions for name in mention.names)
            for name in names:
                target = self.canonical.get(self._site.resolve(name, page))
                if target not in (None, origin):
                    yield origin.path, target.path

    def equivalents(self) -> Iterator[tuple[str, str]]:
        """Pages of the same name of which one refers to the other for what it does."""
        for page, origin in self.canonical.items():
            mentions = self._readings[page].mentions
            names = [m.names[0] for m in mentions if len(m.names) == 1 and _EQUIVALENT.match(m.description)]
            names += [bare_name(reference) for reference in _DELEGATION.findall(" ".join(page.doc.split()))]
            for name in names:
                found = self._site.resolve(name, page)
                if found in self.canonical and last_name(page.path) == last_name(found.path):
                    yield origin.path, self.canonical[found].path


def _says_little(text: str) -> bool:
    return bool(len(text.split()) < MIN_WORDS or _POINTER.match(text) or _DEPRECATED.match(text))


def _within(rows: Iterable[tuple[str, str]], paths: set[str]) -> list[tuple[str, str]]:
    """The distinct rows of which both ends are among the pages, sorted."""
    return sorted({row for row in rows if paths.issuperset(row)})


def last_name(path: str) -> str:
    """The last part of a path, such that `AvgPool3d` and `avg_pool3d` are the same."""
    return path.rpartition(".")[2].replace("_", "").lower()


def _clusters(pages: pd.DataFrame, equivalents: list[tuple[str, str]]) -> list[str]:
    """The cluster of each page: the smallest path among the pages that are one with it."""
    same = pages.assign(key=pages["summary"].map(key)).query("key != ''")
    first = same.groupby("key")["article"].transform("min")
    edges = [*equivalents, *zip(same["article"], first, strict=True)]
    component = closure(pd.DataFrame(edges, columns=["left", "right"]).assign(label=1))
    return [component.get(article, article) for article in pages["article"]]


def main(folder: str, slice_name: str) -> None:
    """Build the tables of one of `SLICES` and write them as Parquet, one file a table; prints its steps."""
    warnings.simplefilter("ignore")
    for name, table in build(SLICES[slice_name], report=lambda step: print(step, flush=True)).items():
        table.to_parquet(f"{folder}/{name}.parquet", index=False)
