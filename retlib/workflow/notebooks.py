"""The notebooks and their parameters: what each profile sets for each notebook.

A profile is a file `notebooks/profiles/<profile>.yaml`::

    12_dual_encoder_losses:
      needs: [quora]                # data sets to download; without them, recorded rows are shown
      after: [11_retrieval_tasks]   # notebooks that must have run before; a template stands for all its pages
      parameters: {steps: 100}

Pages that `data/papers/papers.yaml` asks for need no entry. With a line ``others: laptop`` all that has none is drawn
from what is recorded of that profile, which has no such line itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from retlib.core import rules
from retlib.core.errors import SettingError, require, require_one_of
from retlib.core.notebook_files import MAPPING, Page, also, declared, pages, profiles, settings

_NAMES = rules.some_of(rules.text)
ENTRY = rules.form({}, {"needs": _NAMES, "after": _NAMES, "parameters": MAPPING})

# Where recorded rows of several profiles are at hand, a page shows the most telling ones.
TELLING = ("paper", "laptop", "quick", "smoke")

# What any notebook may take of a scheduler's memory, in MB, and of its time, in minutes.
LEAST_MEMORY, LEAST_MINUTES = 4000, 60


@dataclass(frozen=True)
class Plan:
    """How a profile makes one page: from which notebook, with which parameters, after which other pages."""

    page: Page
    parameters: Mapping[str, Any]
    after: tuple[str, ...] = ()


def plan(root: Path, profile: str, seeds: Sequence[int] | None = None) -> dict[str, Plan]:
    """Return how `profile` (a file in `notebooks/profiles`) runs each page; parameters are complete, defaults included.

    `root` is the project's folder; `seeds` take the place of the profile's. Raises `SettingError` if the profile, or a
    notebook, key or parameter in it, is unknown, or its `others` has `others`.
    """
    require_one_of("PROFILE", profile, profiles(root))
    book, entries = pages(root), settings(root, profile)
    others = entries.pop("others", None)
    for name in entries:
        require_one_of(f"a notebook in {profile}.yaml", name, book)
    rest: dict[str, Plan] = {}
    if others is not None:
        require_one_of(f"others in {profile}.yaml", others, set(profiles(root)) - {profile})
        wrong = f"others in {profile}.yaml = {others!r}, a profile with `others` of its own; name one without"
        require(settings(root, others).get("others") is None, wrong)
        for name, each in plan(root, others).items():
            if name not in entries:
                rest[name] = _drawn(each) if _recorded(root, others, name) else each
    return {name: rest.get(name) or _plan(root, profile, name, entries.get(name), seeds, book) for name in book}


def needed(plans: Mapping[str, Plan], chosen: Iterable[str]) -> dict[str, Plan]:
    """Some of the plans, with those of the notebooks that they come after, and theirs."""
    found: set[str] = set()
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += plans[name].after
    return {name: plan for name, plan in plans.items() if name in found}


def chains(plans: Mapping[str, Plan]) -> dict[str, int]:
    """Return, for each plan, how many pages stand in the longest row of pages that wait for one another, itself first.

    Raises `SettingError` if some come after each other.
    """
    waiting = {name: [other for other, plan in plans.items() if name in plan.after] for name in plans}
    lengths: dict[str, int] = {}
    try:
        for name in TopologicalSorter(waiting).static_order():
            lengths[name] = 1 + max((lengths[other] for other in waiting[name]), default=0)
    except CycleError as error:
        raise SettingError(f"pages come `after` each other in a circle: {', '.join(error.args[1])}") from error
    return lengths


@cache
def resources(name: str, profile: str) -> dict[str, int]:
    """Return what a scheduler should give a notebook: what its published rows took, and half as much again.

    ``mem_mb``, ``runtime`` in minutes, and ``seconds`` of its trainings alone, by which long ones are told. Rows of
    another profile are taken where this has none. Of a chain each row has the time of the whole, so that sums are upper
    bounds.
    """
    import pandas as pd  # here, as the command line waits for what is above

    from retlib.evaluation import results

    files = (results.reference_folder(each, name) / "rows.parquet" for each in (profile, *TELLING))
    rows = next((pd.read_parquet(file) for file in files if file.is_file()), pd.DataFrame())
    rows = rows.reindex(columns=["system", "seed", "seconds", "peak_memory"])
    seconds = rows.drop_duplicates(["system", "seed", "seconds"])["seconds"].astype(float).sum()
    memory = max(rows["peak_memory"].dropna(), default=0) / 1e6
    return {
        "mem_mb": math.ceil(max(1.5 * memory, LEAST_MEMORY)),
        "runtime": math.ceil(max(1.5 * seconds / 60, LEAST_MINUTES)),
        "seconds": math.ceil(seconds),
    }


def reference_plan(root: Path, name: str) -> Plan | None:
    """The plan that draws a notebook from recorded rows, or None where there are none."""
    for profile in TELLING:
        if _recorded(root, profile, name) and profile in profiles(root):
            return _drawn(plan(root, profile)[name])
    return None


def _drawn(chosen: Plan) -> Plan:
    """The plan that draws a page from recorded rows."""
    return replace(chosen, parameters={**chosen.parameters, "source": "reference"})


def _plan(
    root: Path, profile: str, name: str, entry: dict | None, seeds: Sequence[int] | None, book: Mapping[str, Page]
) -> Plan:
    entry = {} if entry is None else entry
    ENTRY(f"{name} in {profile}.yaml", entry)
    page = book[name]
    defaults = declared(page.notebook)
    chosen = {**page.parameters, **entry.get("parameters", {})}
    for parameter in chosen:
        require_one_of(f"a parameter of {name} in {profile}.yaml", parameter, defaults)
    chosen["profile"] = profile
    if seeds is not None and "seeds" in defaults:
        further = {each: type(value)() for each, value in defaults.items() if each.endswith("_seeds")}
        chosen |= {**further, "seeds": list(seeds)}
    at_hand = _at_hand(entry.get("needs", ()))
    if _recorded(root, profile, name) and not at_hand:
        chosen["source"] = "reference"
    after, known = [*page.after, *also(root, name)], {*book, *(each.notebook.stem for each in book.values())}
    for other in entry.get("after", ()):
        require_one_of(f"`after` of {name} in {profile}.yaml", other, known)
        after += [made for made, each in book.items() if other in (made, each.notebook.stem)]
    return Plan(page, defaults | chosen, tuple(after))


def _recorded(root: Path, profile: str, name: str) -> bool:
    return (root / "data" / "reference" / profile / name).is_dir()


def _at_hand(needs: Iterable[str]) -> bool:
    """Whether all of the data sets are on this machine."""
    if not needs:
        return True
    from retlib.data.datasets import catalogue

    here = catalogue.table().set_index("name")["here"]
    for name in needs:
        require_one_of("a data set in `needs`", name, here.index)
    return all(here[name] == "yes" for name in needs)
