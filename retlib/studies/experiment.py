"""The desk of a notebook: its parameters checked, its results recorded, its records read.

A notebook opens an `Experiment` and asks it for everything that costs time. When its
parameter `source` is "run" the experiment computes and records; when it is "reference" it
gives what is recorded, so that the same cells draw the same page in seconds, without data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML
from pydantic import create_model

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require
from retlib.core.history import Cost
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.evaluation import results
from retlib.evaluation.measures import evaluate_once, held_out
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.claims import Claims
from retlib.studies.parameters import Many, Profile, Settings, Whole, check


class Common(Settings):
    """What every notebook has."""

    profile: Profile
    seeds: Many[Whole]
    source: Literal["run", "reference"]


COMMON = set(Common.model_fields)


def plain_values(namespace: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a notebook's globals that may be parameters.

    Every plain value is taken for one the first time (papermill injects a misspelt name like any other), but for
    constants in capitals; once there is an experiment, for a rerun of the cell, only `names` are.
    """
    shell = get_ipython()
    hidden = set(shell.user_ns_hidden) if shell else set()  # what IPython itself puts into a notebook's globals
    plain = {
        name: value.model_dump(exclude_unset=True) if isinstance(value, Settings) else value
        for name, value in namespace.items()
        if isinstance(value, str | int | float | bool | list | dict | Settings | None) and not name.startswith("_")
    }
    if "_parameters_checked" in namespace:
        return {name: plain[name] for name in names if name in plain}
    return {name: value for name, value in plain.items() if name not in hidden and not name.isupper()}


def flat(parameters: Settings) -> dict[str, Any]:
    """Return parameters by their names, those of the recipe among them."""
    values = parameters.model_dump()
    return values | values.pop("recipe", {})


def _departure(given: Mapping[str, Any], expected: Mapping[str, Any], profile: str) -> str:
    """The first parameter that is not as the profile has it, in words; seeds may differ."""
    for name, value in expected.items():
        if given[name] != value and not name.endswith("seeds"):
            return f"{name} is {given[name]!r}, and {value!r} at profile {profile!r}"
    return ""


@dataclass(eq=False)
class Outcome:
    """What a system produced on one collection with one seed."""

    run: pd.DataFrame  # as `retlib.retrieval.runs.make_run` returns it
    parameters: Mapping[str, Any] = field(default_factory=dict)  # the system's settings, recorded beside its results
    cost: Cost = Cost()
    candidates: int | None = None  # how many there were, if not all of the collection


class Experiment:
    """A notebook's desk, made of its name, its ``globals()``, its kind of recipe, and the types of its parameters.

    It is `live` in a run; otherwise recorded results are shown. `parameters` are flat: those of the recipe stand among
    them.
    """

    def __init__(
        self, name: str, namespace: dict[str, Any], recipe: type[Settings] | None = None, **types: Any
    ) -> None:
        self.name = name
        self._claims: dict[str, Claims] = {}
        fields = {each: (of, ...) for each, of in (types | ({"recipe": recipe} if recipe else {})).items()}
        model = create_model("Parameters", __base__=Common, **fields)
        self._written = plain_values(namespace, model.model_fields)  # as a sweep knows them, too
        given = check(model, self._written)
        namespace["_parameters_checked"] = True
        self.profile, self.live = given.profile, given.source == "run"
        runtime.set_threads()
        runtime.note.cache_clear()  # a page that runs again says it again
        if shell := get_ipython():  # tables are shown whole, without row numbers, which name nothing
            shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, tables.as_html)
        root, expected = runtime.root(), given
        if self.profile in notebook_files.profiles(root) and name in notebook_files.names(root):
            expected = check(
                model, notebook_files.at_profile(root, self.profile, name) | given.model_dump(include=COMMON)
            )
        if self.live:
            self.environment, self.results = runtime.environment(), Results()
            # Of other parameters than a profile's the rows would be judged as the profile's.
            if departure := _departure(flat(given), flat(expected), self.profile):
                runtime.note(f"{departure}: recorded as an exploration, apart from the profile's rows.")
                self.profile = notebook_files.EXPLORE
            if self.profile == notebook_files.EXPLORE:  # which is not one choice of parameters
                self.environment["given"] = results.as_json(flat(given))
        else:
            recorded = results.load(name, self.profile, source="reference")
            wrong = f"no reference results of {name} at profile {self.profile!r}: set profile to one that has them"
            require(recorded is not None, wrong, DataError)
            self.environment, self.results = {}, recorded
            # What the page shows is what was recorded, whatever this page was asked for.
            seeds = sorted(int(seed) for seed in recorded.rows["seed"].unique())
            given = expected.model_copy(update={"seeds": seeds})
            namespace |= {each: getattr(given, each) for each in fields}
        self.parameters, self.recipe = flat(given), getattr(given, "recipe", None)

    def load(self, name: str) -> Collection | None:
        """A collection; None on a reference page, which needs no data."""
        return datasets.load(name) if self.live else None

    def measure(
        self,
        system: str,
        collection: Collection | None,
        seed: int,
        make: Callable[[], Outcome] | Outcome,
        measures: Iterable[str] = ("AP@100",),
    ) -> None:
        """Run a system on a collection's test queries, evaluate it and record it, values by query included.

        `make` gives the outcome, and its time is recorded; or it is the outcome, whose time is not known.
        """
        if not self.live:
            return
        queries, qrels = held_out(collection, "test")
        with runtime.Stopwatch() as watch:
            outcome = make() if callable(make) else make
        wall = round(watch.seconds, 3) if callable(make) else None
        values = evaluate_once(outcome.run, qrels, list(measures))
        clusters = queries["cluster"] if "cluster" in queries else pd.Series(queries.index, index=queries.index)
        self.results.add_queries(collection.name, "test", system, seed, values, clusters)
        self.learned(system, collection.name, seed, outcome.cost)
        details = {
            "parameters": results.as_json(outcome.parameters),
            "steps": outcome.cost.steps,
            "seconds": outcome.cost.seconds,
            "wall": wall,
            "queries": values["query_id"].nunique(),
            "candidates": outcome.candidates or len(collection.documents),
            "data": results.as_json(
                {"fingerprint": collection.fingerprint, **collection.provenance, **collection.facts}
            ),
        }
        for measure, value in values.groupby("measure", sort=False)["value"].mean().items():
            self.record(system, collection.name, str(measure), value, seed, **details)

    def learned(self, system: str, collection: str, seed: int, cost: Cost) -> None:
        """Record in the table `learning` what validation saw of a training's last stage, if there was a training.

        The `score` is in points of 100; the weights of a step may be `kept`.
        """
        lines = [(system, collection, int(seed), step, 100 * score, step == cost.steps) for step, score in cost.curve]
        if self.live and lines:
            columns = ["system", "collection", "seed", "step", "score", "kept"]
            self.results.add_lines("learning", pd.DataFrame(lines, columns=columns), columns[:3])

    def record(
        self, system: str, collection: str, measure: str, value: float, seed: int, split: str = "test", **details: Any
    ) -> None:
        """Record one number that has no values by query (a time, a size, a count)."""
        if not self.live:
            return
        self.results.add_row(
            experiment=self.name,
            system=system,
            collection=collection,
            split=split,
            measure=measure,
            value=float(value),
            seed=int(seed),
            profile=self.profile,
            **details,
            peak_memory=runtime.peak_memory(),
            recorded=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **self.environment,
        )

    def table(self, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """A small table that the page needs: made and recorded by a run, else as recorded."""
        if self.live:
            self.results.tables[name] = make().reset_index(drop=True)
        require(name in self.results.tables, f"the reference results of {self.name} lack the table {name!r}", DataError)
        return self.results.tables[name].copy()  # a page may write into it what is not to be recorded

    def claims(self, paper: str) -> Claims:
        """Return the claims of a paper that this chapter tests, of its rows as they are recorded now."""
        self.save()
        return Claims(paper, self.name, self.profile, None if self.live else "reference", self.parameters)

    def record_claims(self, *tested: Claims) -> HTML:
        """Record the table `claims` beside the rows of a run, and return it for the page."""
        self._claims |= {each.paper: each for each in tested}  # those of one paper may have a cell of their own
        table = pd.concat([each.table for each in self._claims.values()], ignore_index=True)
        self.results.tables["claims"] = table
        self.save()
        return tables.chapter_claims(table)

    def save(self) -> None:
        """Write a run's results in the place of those of the run before; of an exploration, with these parameters."""
        if self.live:
            self.results.save(results.own_folder(self.profile, self.name, self._written))
