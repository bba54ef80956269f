"""The pages of the book, and how each profile, or a sweep, makes them (all chapters).

A profile is a file ``notebooks/profiles/<profile>.yaml``::

    12_dual_encoder_losses:
      needs: [quora]                # data sets to download; without them, recorded rows are shown
      after: [11_retrieval_tasks]   # pages that must have run before; a template stands for all its pages
      parameters: {steps: 100}

Pages that ``papers.yaml`` asks for need no entry. With a line ``others: laptop`` all that has none is drawn from what
is recorded of that profile. A sweep is a notebook at every combination of some parameters' values, each an exploration,
and all results in one table::

    notebook: 12_dual_encoder_losses
    profile: quick                     # whose parameters the others keep
    measure: AP@100                    # what the table shows
    set: {loss: in_batch_softmax}      # parameters that are the same everywhere; none, if left out
    vary:
      batch_size: [10, 100, 1000]
      recipe.layers: [0, 1]            # a value in a parameter that is a mapping
"""

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from retlib.core import cache, registry
from retlib.core.errors import DataError, RetlibError, SettingError, require, require_one_of
from retlib.core.notebook_files import EXPLORE, default_parameters, names, profiles, read_yaml, settings
from retlib.data.datasets import catalogue, own
from retlib.evaluation.results import reference_folder
from retlib.report.papers import papers
from retlib.studies.experiment import Distinct, NonEmpty, Settings, Text, check
from retlib.workflow.execute import Page

# Where recorded rows of several profiles are at hand, a page shows the most telling ones.
PROFILE_ORDER = ("paper", "laptop", "quick", "smoke")


class Entry(Settings):
    """What a profile says of a page."""

    needs: Distinct[Text] = []
    after: Distinct[Text] = []
    parameters: dict[str, Any] = {}


class Sweep(Settings):
    """What the file of a sweep says."""

    notebook: Text
    profile: Text
    measure: Text
    set: dict[str, Any] = {}
    vary: dict[str, NonEmpty[Any]]

    @property
    def points(self) -> list[dict[str, Any]]:
        """The combinations, each a value by name."""
        return [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]


def pages(root: Path) -> dict[str, Page]:
    """Return the book's pages by name, in order: of notebooks, and of templates, as ``papers.yaml`` asks."""
    book = {name: Page(root / "notebooks" / f"{name}.ipynb") for name in names(root)}
    for key, paper in papers(root).items():
        for chapter in paper.chapters:
            require_one_of(f"a chapter of {key} in papers.yaml", chapter, names(root))
        for template, name in paper.pages.items():
            words = {"note": "", "tables_note": "", **vars(paper), **paper.notes, **paper.pages, "paper": key}
            book[name] = Page(root / "notebooks" / f"{template}.ipynb", {"paper": key}, tuple(paper.chapters), words)
    return dict(sorted(book.items()))


def plan(root: Path, profile: str, seeds: Sequence[int] = ()) -> dict[str, Page]:
    """Return each page as a profile makes it, with all parameters; `seeds` replace the profile's."""
    require_one_of("PROFILE", profile, profiles(root))
    entries, book, plans = settings(root, profile), pages(root), {}
    if others := entries.pop("others", None):
        whole = [each for each in profiles(root) if "others" not in settings(root, each)]
        require_one_of(f"others in {profile}.yaml", others, whole)
        plans = {name: _drawn(root, others, name, page) for name, page in plan(root, others).items()}
    claims = pd.read_csv(root / "data" / "papers" / "claims.csv", keep_default_na=False)
    for name in sorted({*entries} if plans else {*entries, *book}):
        require_one_of(f"a notebook in {profile}.yaml", name, book)
        place, page, defaults = f"{name} in {profile}.yaml", book[name], default_parameters(book[name].notebook)
        try:
            entry = check(Entry, entries.get(name) or {})
        except (TypeError, ValueError) as error:
            raise SettingError(f"{place}: {error}") from error
        given = {**page.parameters, **entry.parameters, "profile": profile}
        further = {each: type(value)() for each, value in defaults.items() if each.endswith("_seeds")}
        given |= {**further, "seeds": list(seeds)} if seeds else {}
        for parameter in given:
            require_one_of(f"a parameter of {place}", parameter, defaults)
        for need in entry.needs:
            require_one_of(f"a data set in `needs` of {place}", need, catalogue.catalogue())
        page = replace(page, parameters=defaults | given)
        if not all(file.find() for need in entry.needs for file in catalogue.catalogue()[need].files):
            page = _drawn(root, profile, name, page)
        after = [*page.after, *" ".join(claims["also"][claims["chapter"] == name]).split()]
        for other in entry.after:
            made = [each for each in book if other in (each, book[each].notebook.stem)]  # of a template all
            require_one_of(f"`after` of {place}", other, [other] if made else book)
            after += made
        plans[name] = replace(page, after=tuple(dict.fromkeys(after)))
    return plans


def _drawn(root: Path, profile: str, name: str, page: Page) -> Page:
    # From recorded rows, where there are some.
    recorded = (root / "data" / "reference" / profile / name).is_dir()
    return replace(page, parameters={**page.parameters, "source": "reference"}) if recorded else page


def reference_plan(root: Path, name: str) -> Page | None:
    """Return the page that draws a notebook from recorded rows, or None where there are none."""
    plans = (_drawn(root, each, name, plan(root, each)[name]) for each in PROFILE_ORDER if each in profiles(root))
    return next((page for page in plans if page.parameters["source"] == "reference"), None)


def read_sweep(root: Path, path: Path) -> tuple[Sweep, dict[str, Page]]:
    """Return what a sweep's file says, and the page of each of its points by a name for its copy."""
    sweep = check(Sweep, read_yaml(path))
    plans = plan(root, sweep.profile)
    require_one_of("notebook", sweep.notebook, plans)
    page, copies = plans[sweep.notebook], {}
    wrong = f"{sweep.notebook} cannot be run at {sweep.profile!r}: its data are not here, only recorded results"
    require(page.parameters["source"] == "run", wrong, DataError)
    for point in sweep.points:
        given = {**page.parameters, "profile": EXPLORE}
        for name, value in (sweep.set | point).items():
            parameter, dot, inner = name.partition(".")
            require_one_of(f"a parameter of {sweep.notebook}", parameter, page.parameters.keys() - {"profile"})
            require(not dot or isinstance(given[parameter], dict), f"{name}: {parameter} is no mapping")
            given[parameter] = {**given[parameter], inner: value} if dot else value
        text = re.sub("[^A-Za-z0-9=,._-]+", "", ",".join(f"{name}={value}" for name, value in point.items()))
        copies[f"{text[:100]}-{cache.key(given)[:8]}"] = replace(page, parameters=given, after=())
    return sweep, copies


def stamp(root: Path, page: Page) -> str:
    """Return a hash of all that a page is made of; where it changes, the page is stale.

    The notebook, any file of the package, plug-ins, papers, pinned versions, recorded rows, parameters, own corpora.
    """
    given = dict(page.parameters)
    recorded = [given["profile"]] if given["source"] == "reference" else given.get("recorded", [])
    patterns = [f"data/reference/{each}/*/{cache.CHECKSUMS}" for each in recorded]
    patterns += ["retlib/**/*.py", "notebooks/*.py", "data/papers/*.*", "constraints.txt"]
    files = [page.notebook, *registry.plugins(), *(path for pattern in patterns for path in root.glob(pattern))]
    texts = map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', json.dumps(given)))
    corpora = {text: _state(text) for text in texts if ":" in text and text.partition(":")[0] in own.FORMS}
    return cache.key([{str(path): cache.checksum(path) for path in files}, corpora, given, page.words, page.after])


def _state(corpus: str) -> list:
    try:
        return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in own.find(corpus).files)
    except RetlibError:  # of one that cannot be read the notebook says what is wrong, and others run
        return []


@functools.cache
def cost(name: str, profile: str) -> tuple[int, int]:
    """Return what the trainings of a page's published rows took at most: seconds, and MB of memory."""
    files = (reference_folder(each, name) / "rows.parquet" for each in (profile, *PROFILE_ORDER))
    rows = next((pd.read_parquet(file) for file in files if file.is_file()), pd.DataFrame())
    rows = rows.reindex(columns=["system", "seed", "seconds", "peak_memory"])
    seconds = rows.drop_duplicates(["system", "seed", "seconds"])["seconds"].astype(float).sum()
    return int(seconds), int(max(rows["peak_memory"].dropna(), default=0) / 1e6)
