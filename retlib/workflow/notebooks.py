"""The pages of the book, and how each profile makes them (all chapters).

A profile is a file ``notebooks/profiles/<profile>.yaml``::

    12_dual_encoder_losses:
      needs: [quora]                # data sets to download; without them, recorded rows are shown
      after: [11_retrieval_tasks]   # pages that must have run before; a template stands for all its pages
      parameters: {steps: 100}

Pages that ``papers.yaml`` asks for need no entry. With a line ``others: laptop`` all that has none is drawn from what
is recorded of that profile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pandas as pd

from retlib.core.cache import CHECKSUMS, checksum, key
from retlib.core.errors import RetlibError, SettingError, require_one_of
from retlib.core.notebook_files import default_parameters, names, profiles, settings
from retlib.core.registry import plugins
from retlib.data.datasets import catalogue, own
from retlib.evaluation.results import reference_folder
from retlib.report.papers import papers
from retlib.studies.experiment import Distinct, Settings, Text, check
from retlib.workflow.execute import Page

# Where recorded rows of several profiles are at hand, a page shows the most telling ones.
PROFILE_ORDER = ("paper", "laptop", "quick", "smoke")


class Entry(Settings):
    """What a profile says of a page."""

    needs: Distinct[Text] = []
    after: Distinct[Text] = []
    parameters: dict[str, Any] = {}


def pages(root: Path) -> dict[str, Page]:
    """Return the book's pages by name, in order: a notebook's, and those that ``papers.yaml`` asks of templates."""
    book = {name: Page(root / "notebooks" / f"{name}.ipynb") for name in names(root)}
    for paper in papers(root).values():
        for chapter in paper.chapters:
            require_one_of(f"a chapter of {paper.key} in papers.yaml", chapter, names(root))
        for template, name in paper.pages.items():
            texts = {each: value for each, value in vars(paper).items() if isinstance(value, str)}
            words = {"note": "", "tables_note": "", **paper.notes, **paper.pages, **texts, "paper": paper.key}
            notebook = root / "notebooks" / f"{template}.ipynb"
            book[name] = Page(notebook, {"paper": paper.key}, tuple(paper.chapters), words)
    return dict(sorted(book.items()))


def plan(root: Path, profile: str, seeds: Sequence[int] | None = None) -> dict[str, Page]:
    """Return how a profile makes each page, with all its parameters; `seeds` take the place of the profile's."""
    require_one_of("PROFILE", profile, profiles(root))
    entries = settings(root, profile)
    others, book = entries.pop("others", None), pages(root)
    for name in entries:
        require_one_of(f"a notebook in {profile}.yaml", name, book)
    plans = {}
    if others is not None:
        valid = [name for name in profiles(root) if "others" not in settings(root, name)]
        require_one_of(f"others in {profile}.yaml", others, valid)
        plans = {name: _drawn(root, others, name, page) for name, page in plan(root, others).items()}
    for name in entries if plans else book:
        plans[name] = _plan(root, profile, book, name, entries.get(name), seeds)
    return plans


def _plan(root: Path, profile: str, book: Mapping[str, Page], name: str, entry: Any, seeds: Sequence | None) -> Page:
    place, page, defaults = f"{name} in {profile}.yaml", book[name], default_parameters(book[name].notebook)
    try:
        entry = check(Entry, {} if entry is None else entry)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{place}: {error}") from error
    given = {**page.parameters, **entry.parameters, "profile": profile}
    if seeds is not None:
        further = {each: type(value)() for each, value in defaults.items() if each.endswith("_seeds")}
        given |= {**further, "seeds": list(seeds)}
    for parameter in given:
        require_one_of(f"a parameter of {place}", parameter, defaults)
    page = replace(page, parameters=defaults | given)
    if entry.needs:
        here = catalogue.table().set_index("name")["here"]
        for need in entry.needs:
            require_one_of(f"a data set in `needs` of {place}", need, here.index)
        if (here[entry.needs] != "yes").any():
            page = _drawn(root, profile, name, page)
    claims = pd.read_csv(root / "data" / "papers" / "claims.csv", keep_default_na=False)
    after = [*page.after, *" ".join(claims["also"][claims["chapter"] == name]).split()]
    for other in entry.after:
        made = [each for each in book if other in (each, book[each].notebook.stem)]  # of a template all
        require_one_of(f"`after` of {place}", other, [other] if made else book)
        after += made
    return replace(page, after=tuple(dict.fromkeys(after)))


def _drawn(root: Path, profile: str, name: str, page: Page) -> Page:
    # From recorded rows, where there are some.
    recorded = (root / "data" / "reference" / profile / name).is_dir()
    return replace(page, parameters={**page.parameters, "source": "reference"}) if recorded else page


def reference_plan(root: Path, name: str) -> Page | None:
    """Return the page that draws a notebook from recorded rows, or None where there are none."""
    plans = (_drawn(root, each, name, plan(root, each)[name]) for each in PROFILE_ORDER if each in profiles(root))
    return next((page for page in plans if page.parameters["source"] == "reference"), None)


def stamp(root: Path, page: Page) -> str:
    """Return a hash of all that a page is made of; where it changes, the page is stale.

    The notebook, any file of the package, plug-ins, papers, pinned versions, recorded rows, parameters, own corpora.
    """
    given = dict(page.parameters)
    recorded = [given["profile"]] if given["source"] == "reference" else given.get("recorded", [])
    patterns = [f"data/reference/{each}/*/{CHECKSUMS}" for each in recorded]
    patterns += ["retlib/**/*.py", "notebooks/*.py", "data/papers/*.*", "constraints.txt"]
    files = [page.notebook, *plugins(), *(path for pattern in patterns for path in root.glob(pattern))]
    texts = map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', json.dumps(given)))
    corpora = {text: _state(text) for text in texts if ":" in text and text.partition(":")[0] in own.FORMS}
    return key([{str(path): checksum(path) for path in files}, corpora, given, dict(page.words), page.after])


@cache
def _state(corpus: str) -> list:
    with suppress(RetlibError):  # of one that cannot be read the notebook says what is wrong, and others run
        files = {path: path.stat() for path in own.find(corpus).files}
        return sorted((str(path), status.st_size, status.st_mtime_ns) for path, status in files.items())
    return []


def urgency(plans: Mapping[str, Page], profile: str) -> dict[str, int]:
    """Return, of each page, the seconds from its start to the end of the book, with a core for each."""
    seconds: dict[str, int] = {}
    for name in reversed([*TopologicalSorter({name: page.after for name, page in plans.items()}).static_order()]):
        waiting = [seconds[other] for other, page in plans.items() if name in page.after]
        # What stands alone and records no rows, as chapter 60 does, may train as long as any.
        unknown = 0 if waiting or plans[name].after else 100
        seconds[name] = 10 + (cost(name, profile)[0] or unknown) + max(waiting, default=0)
    return seconds


@cache
def cost(name: str, profile: str) -> tuple[int, int]:
    """Return what the trainings of a page's published rows took at most: seconds, and MB of memory."""
    files = (reference_folder(each, name) / "rows.parquet" for each in (profile, *PROFILE_ORDER))
    rows = next((pd.read_parquet(file) for file in files if file.is_file()), pd.DataFrame())
    rows = rows.reindex(columns=["system", "seed", "seconds", "peak_memory"])
    seconds = rows.drop_duplicates(["system", "seed", "seconds"])["seconds"].astype(float).sum()
    return int(seconds), int(max(rows["peak_memory"].dropna(), default=0) / 1e6)
