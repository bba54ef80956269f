"""The desk of a notebook: its parameters checked, its results recorded, its records read.

A notebook opens an `Experiment` and asks it for everything that costs time. When its
parameter `source` is "run" the experiment computes and records; when it is "reference" it
gives what is recorded, so that the same cells draw the same page in seconds, without data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, SettingError, require, require_one_of
from retlib.core.history import Cost
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, number, one_of
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.evaluation import results
from retlib.evaluation.measures import evaluate, held_out
from retlib.evaluation.results import Results
from retlib.report import tables, verdict_tables
from retlib.report.claims import Claims


def collection_name(name: str, value: Any) -> None:
    """A rule: the name of a collection that `retlib.data.datasets` knows, or of one's own."""
    datasets.COLLECTIONS.check(name if "collection" in name else f"{name} (a collection)", value)


def articles_name(name: str, value: Any) -> None:
    """A rule: the name of articles that `retlib.data.datasets` knows, or of one's own."""
    datasets.ARTICLES.check(name if "articles" in name else f"{name} (articles)", value)


def text_name(name: str, value: Any) -> None:
    """A rule: the name of a bulk text that `retlib.data.datasets` knows, or of one's own."""
    datasets.TEXTS.check(f"{name} (a text)", value)


def profile_name(name: str, value: Any) -> None:
    """A rule: "explore", or a profile in ``notebooks/profiles``."""
    require_one_of(name, value, [notebook_files.EXPLORE, *notebook_files.profiles(runtime.root())])


# Every notebook has these parameters.
COMMON: dict[str, Rule] = {
    "profile": profile_name,
    "seeds": each_of(number(0, whole=True)),
    "source": one_of(("run", "reference")),
}


def whole_heads(name: str, value: Any) -> None:
    """A rule: the width of an encoder, whose layers, now or later, have heads of 64 dimensions."""
    POSITIVE(name, value)
    require(value % 64 == 0, f"{name} = {value} must be a multiple of 64, the size of a head")


def schedule(prefix: str = "") -> dict[str, Rule]:
    """Return the rules of a training's steps, batch size and learning rate, whose names begin with a prefix."""
    return {f"{prefix}steps": POSITIVE, f"{prefix}batch": number(2, whole=True), f"{prefix}rate": RATE}


# What chapters have of an encoder and its pre-training.
ENCODER: dict[str, Rule] = {
    "articles": articles_name,
    "vocabulary": number(100, whole=True),
    "layers": number(0, whole=True),
    "width": whole_heads,
    **dict.fromkeys(("dimension", "query_length", "document_length"), POSITIVE),
    **schedule("pretraining_"),
}


def check_parameters(namespace: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Check a notebook's parameters, which are among its globals, before any work, and return them.

    Every plain value is taken for a parameter the first time (papermill injects a misspelt name like any other), but
    for constants in capitals; once the desk stands, for a rerun of the cell, only the names in `rules` are read.
    """
    plain = (str, int, float, bool, list, dict, type(None))
    given = {k: v for k, v in namespace.items() if not k.startswith("_") and isinstance(v, plain)}
    shell = get_ipython()
    hidden = set(shell.user_ns_hidden) if shell else set()  # what IPython itself puts into a notebook's globals
    ours = {k: v for k, v in given.items() if k not in hidden and not k.isupper()}
    for name in [] if "_parameters_checked" in namespace else sorted(set(ours) - set(rules)):
        near = get_close_matches(name, rules, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"parameter {name!r} is not known.{hint} Valid: {', '.join(sorted(rules))}.")
    missing = sorted(set(rules) - set(given))
    require(not missing, f"the parameters cell lacks {', '.join(missing)}")
    for name, rule in rules.items():
        rule(name, given[name])
    return {name: given[name] for name in rules}


def departure(name: str, parameters: Mapping[str, Any]) -> str:
    """A parameter that is not as the file of its profile has it, in words, of a notebook of the book; seeds may differ.

    "" where there is none, and of an exploration.
    """
    root, profile = runtime.root(), parameters["profile"]
    if profile == notebook_files.EXPLORE or name not in notebook_files.names(root):
        return ""
    # As JSON, in which a runner gives them: numbers as keys are words there.
    given = parameters, notebook_files.at_profile(root, profile, name)
    here, there = (json.loads(results.as_json(each)) for each in given)
    for each in sorted(here.keys() - COMMON.keys()):
        if here[each] != there.get(each) and not each.endswith("_seeds"):
            return f"{each} is {here[each]!r}, and {there.get(each)!r} at profile {profile!r}"
    return ""


@dataclass(eq=False)
class Outcome:
    """What a system produced on one collection with one seed."""

    run: pd.DataFrame  # as `retlib.retrieval.runs.make_run` returns it
    parameters: Mapping[str, Any] = field(default_factory=dict)  # the system's settings, recorded beside its results
    cost: Cost = Cost()
    candidates: int | None = None  # how many there were, if not all of the collection


class Experiment:
    """A notebook's desk, made of its name, its ``globals()``, and a rule for each parameter beside `COMMON`.

    It is `live` in a run; otherwise recorded results are shown.
    """

    def __init__(self, name: str, namespace: dict[str, Any], **rules: Rule) -> None:
        self.name = name
        self._claims: dict[str, Claims] = {}
        self.parameters = check_parameters(namespace, {**COMMON, **rules})
        namespace["_parameters_checked"] = True
        self.profile, self.live = self.parameters["profile"], self.parameters["source"] == "run"
        runtime.set_threads()
        runtime.note.cache_clear()  # a page that runs again says it again
        if shell := get_ipython():  # tables are shown whole, without row numbers, which name nothing
            shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, tables.as_html)
        self.environment = runtime.environment() if self.live else {}
        # Of other parameters than a profile's the rows would be judged as the profile's.
        if self.live and (said := departure(name, self.parameters)):
            runtime.note(f"{said}: recorded as an exploration, apart from the profile's rows.")
            self.profile = notebook_files.EXPLORE
        if self.profile == notebook_files.EXPLORE:  # which is not one choice of parameters
            self.environment["given"] = results.as_json(self.parameters)
        if self.live:
            self.results = Results()
        else:
            found = results.load(name, self.profile, source="reference")
            wrong = f"no reference results of {name} at profile {self.profile!r}: set profile to one that has them"
            require(found is not None, wrong, DataError)
            self.results = found
            # What the page shows is what was recorded, whatever this page was asked for.
            root = runtime.root()
            if name in notebook_files.names(root) and self.profile in notebook_files.profiles(root):
                at_profile = notebook_files.at_profile(root, self.profile, name)
                namespace |= {each: at_profile[each] for each in rules}
                self.parameters |= {each: at_profile[each] for each in rules}
            self.parameters["seeds"] = sorted(int(seed) for seed in found.rows["seed"].unique())

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
        values = evaluate(outcome.run, qrels, list(measures))
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
        return Claims(paper, self.name, self.profile, None if self.live else "reference")

    def record_claims(self, *tested: Claims) -> HTML:
        """Record the table `claims` beside the rows of a run, and return it for the page."""
        self._claims |= {each.paper: each for each in tested}  # those of one paper may have a cell of their own
        table = pd.concat([each.table for each in self._claims.values()], ignore_index=True)
        self.results.tables["claims"] = table
        self.save()
        return verdict_tables.contrasts(table)

    def save(self) -> None:
        """Write a run's results in the place of those of the run before; of an exploration, with these parameters."""
        if self.live:
            self.results.save(results.own_folder(self.profile, self.name, self.parameters))
