"""From docstrings to the tables of `pydocs`: pages, passages, sentences, descriptions and links.

The reading runs in a process of its own (``python -m retlib.datasets.pydocs_build``), so that what a
notebook has imported before does not change what is read, and what is read does not stay in memory.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from retlib.collection import closure
from retlib.datasets.pydocs_pages import PACKAGES, Page, Site
from retlib.datasets.pydocs_text import Reading, bare_name, key, passages, read
from retlib.datasets.pydocs_text import short as shorten

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
_DELEGATION = re.compile(r"(?i)(?:refer to|see|alias (?:of|for)|same as)\s+(" + _REFERENCE.pattern + ")")
_PARAMETERS = re.compile(r"^\s*\*{0,2}(\w+(?:, ?\*{0,2}\w+)*) ?(?:\([^)]*\))?:(?:\s|$)", re.MULTILINE)
# A summary that only points elsewhere is no text of its own.
_POINTER = re.compile(r"(?i)(?:see|alias|in-place version of|out-of-place version of|refer to|deprecated)\b")


def build(packages: Mapping[str, Iterable[str]]) -> dict[str, pd.DataFrame]:
    """Read the docstrings of some packages.

    Parameters
    ----------
    packages : mapping of str to sequence of str
        Package to the modules that are read, as `PACKAGES`.

    Returns
    -------
    dict of str to DataFrame
        ``pages`` (article, package, summary, cluster), ``passages`` (article, position, section, text),
        ``prose`` (article, text; a paragraph a row), ``descriptions`` (target, text, source, origin), ``links`` (source,
        target). All rows are sorted by path, then by place, so that they depend on the docstrings alone.

    Notes
    -----
    Pages with the same text are one page, under the shortest path. Pages are of one *cluster* when their
    summaries are the same, or when one of the same name refers to the other for what it does
    (`numpy.ndarray.sum` to `numpy.sum`): to a reader they are answers to the same question, so a split
    must not part them.
    """
    site = Site(packages)
    readings = {page: _read(site, page) for page in site.pages}
    canonical = _merge(readings)
    descriptions = list(_descriptions(site, readings, canonical))
    described = {target for target, _, _, _ in descriptions}
    kept = {p.path: p for p, r in readings.items() if canonical.get(p) is p and _is_worth_keeping(p, r, described)}

    def known(rows: Iterable[tuple]) -> list[tuple]:
        return sorted({row for row in rows if row[0] in kept and row[-1] in kept})

    links = known(_links(site, readings, canonical))
    pages = pd.DataFrame(
        [(path, page.package, readings[page].summary) for path, page in sorted(kept.items())],
        columns=["article", "package", "summary"],
    )
    pages["cluster"] = _clusters(pages, known(_equivalents(site, readings, canonical)))
    rows = {"passages": [], "prose": []}
    for path, page in sorted(kept.items()):
        for position, (section, text) in enumerate(passages(readings[page].paragraphs)):
            rows["passages"].append((path, position, section, text))
        rows["prose"] += [(path, paragraph.prose) for paragraph in readings[page].paragraphs if paragraph.prose]
    descriptions = sorted({row for row in descriptions if row[0] in kept})
    return {
        "pages": pages,
        "passages": pd.DataFrame(rows["passages"], columns=["article", "position", "section", "text"]),
        "prose": pd.DataFrame(rows["prose"], columns=["article", "text"]),
        "descriptions": pd.DataFrame(descriptions, columns=["target", "text", "source", "origin"]),
        "links": pd.DataFrame(links, columns=["source", "target"]),
    }


def _read(site: Site, page: Page) -> Reading:
    return read(
        page.doc,
        resolves=lambda name: site.resolve(name, page) is not None,
        lists=lambda name: site.listed(name, page) is not None,
        is_module=page.is_module,
    )


def _merge(readings: dict[Page, Reading]) -> dict[Page, Page]:
    """Every page with text to the page that stands for all that have the same text."""
    by_text: dict[str, list[Page]] = {}
    for page, reading in readings.items():
        if reading.paragraphs:
            by_text.setdefault(key(" ".join(p.text for p in reading.paragraphs)), []).append(page)
    first = {text: min(pages, key=lambda p: (p.path.count("."), len(p.path), p.path)) for text, pages in by_text.items()}
    return {page: first[text] for text, pages in by_text.items() for page in pages}


def _descriptions(site: Site, readings: dict[Page, Reading], canonical: dict[Page, Page]) -> Iterator[tuple]:
    """(target, text, source, origin) of every description of one other page that stands for itself."""
    for page, reading in readings.items():
        for mention in reading.mentions:
            if len(mention.names) != 1 or page not in canonical:
                continue
            find = site.resolve if mention.source == "see_also" else site.listed
            target = canonical.get(find(mention.names[0], page))
            text = shorten(mention.description)
            is_usable = len(key(text).split()) > 1 and not _CONTEXTUAL.match(text)
            if target is not None and target is not canonical[page] and is_usable:
                yield target.path, text, mention.source, canonical[page].path


def _links(site: Site, readings: dict[Page, Reading], canonical: dict[Page, Page]) -> Iterator[tuple[str, str]]:
    """Hyperlinks: names under "See Also" and in listings, and cross-references in the text."""
    for page, reading in readings.items():
        if page not in canonical:
            continue
        own = {name.strip("* ") for names in _PARAMETERS.findall(page.doc) for name in names.split(",")}
        in_text = {reference for reference in _REFERENCE.findall(page.doc)}
        # A plain name in backticks is often one of the parameters.
        names = {bare_name(r) for r in in_text if r.startswith(":") or r.strip("`") not in own}
        names.update(name for mention in reading.mentions for name in mention.names)
        for name in names:
            target = canonical.get(site.resolve(name, page))
            if target is not None and target is not canonical[page]:
                yield canonical[page].path, target.path


def _equivalents(site: Site, readings: dict[Page, Reading], canonical: dict[Page, Page]) -> Iterator[tuple[str, str]]:
    """Pages of the same name of which one refers to the other for what it does."""
    for page, reading in readings.items():
        names = [m.names[0] for m in reading.mentions if len(m.names) == 1 and _EQUIVALENT.match(m.description)]
        names += [bare_name(name) for name in _DELEGATION.findall(" ".join(page.doc.split()))]
        for name in names:
            target = site.resolve(name, page)
            if page in canonical and target in canonical and _last_name(page.path) == _last_name(target.path):
                yield canonical[page].path, canonical[target].path


def _last_name(path: str) -> str:
    """The last part of a path, such that `AvgPool3d` and `avg_pool3d` are the same."""
    return path.rpartition(".")[2].replace("_", "").lower()


def _is_worth_keeping(page: Page, reading: Reading, described: set[str]) -> bool:
    return page.path in described or sum(len(p.text.split()) for p in reading.paragraphs) >= MIN_WORDS


def _clusters(pages: pd.DataFrame, equivalents: list[tuple[str, str]]) -> list[str]:
    """The cluster of each page: the smallest path among the pages that are one with it."""
    same = pages.assign(key=pages["summary"].map(key)).query("key != ''")
    first = same.groupby("key")["article"].transform("min")
    edges = [*equivalents, *zip(same["article"], first, strict=True)]
    component = closure(pd.DataFrame(edges, columns=["left", "right"]).assign(label=1))
    return [component.get(article, article) for article in pages["article"]]


def main(names: Iterable[str], folder: Path) -> None:
    """Build the tables of some packages and write them as Parquet, one file a table."""
    warnings.simplefilter("ignore")
    for name, table in build({name: PACKAGES[name] for name in names}).items():
        table.to_parquet(folder / f"{name}.parquet", index=False)


if __name__ == "__main__":
    main(sys.argv[2:], Path(sys.argv[1]))
