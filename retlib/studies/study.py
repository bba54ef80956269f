"""A study: systems x targets x seeds, trained or found, evaluated and recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.data.collection import Collection
from retlib.evaluation.measures import evaluate, held_out
from retlib.studies.experiment import Experiment, Outcome
from retlib.systems.ranking import Ranker
from retlib.systems.system import System, Target, fit

ALL = "all"
# Questions that are answered before the clock counts: caches fill, and what compiles at its first call has compiled.
WARM_UP = 10


@dataclass(frozen=True, eq=False)
class Study:
    """What a chapter compares: systems by their labels, on targets, or on collections that train and test."""

    systems: Mapping[str, Ranker]
    targets: Sequence[Target | Collection]
    measures: Sequence[str]
    depth: int = 1000

    def run(
        self,
        experiment: Experiment,
        only: Mapping[str, Sequence[str]] | None = None,
        further_seeds: Sequence[int] = (),
    ) -> None:
        """Record every system on every target with every seed; what is trained is found again.

        `only` maps a system to the names of the tests that it is recorded on, where these are not all. Systems that
        are cheaper than the chapter's others may have `further_seeds` beside the experiment's.
        """
        if not experiment.live:
            if names := changed(self.systems, experiment.results.rows):
                rows = experiment.results.rows
                days = sorted(rows["recorded"][rows["system"].isin(names)].astype(str).str[:10].unique())
                runtime.note(
                    "These rows are of an earlier training than is declared here, so that their levels, and verdicts "
                    f"that rest on them, do not compare with those of other chapters: {', '.join(names)} (recorded "
                    f"{', '.join(days)}). The data may have changed since, for rows beside them, BM25's too."
                )
            return
        targets = [_target(each) for each in self.targets]
        # Seed by seed, so that a study that is stopped has whole seeds. What is not trained has none.
        seeds = list(dict.fromkeys([*experiment.parameters["seeds"], *further_seeds]))
        jobs = [
            (seed if system.trained else 0, name, target)
            for place, (seed, (name, system), target) in enumerate(product(seeds, self.systems.items(), targets))
            if (system.trained or seed == seeds[0])
            and (only is None or name not in only or target.test.name in only[name])
        ]
        for seed, name, target in runtime.progress(jobs, desc=experiment.name, unit="run"):

            def make(name: str = name, target: Target = target, seed: int = seed) -> Outcome:
                system = self.systems[name]
                run = system.run(target, seed, depth=self.depth)
                return Outcome(run, system.settings, system.cost(target, seed))

            experiment.measure(name, target.test, seed, make, measures=self.measures)


def changed(systems: Mapping[str, Ranker], rows: pd.DataFrame) -> list[str]:
    """The systems of recorded rows whose stages were others: their number, or how one trains; or were none yet."""
    found = []
    for name, mine in rows.dropna(subset="parameters").groupby("system", sort=False):
        before = [json.loads(each) for each in mine["parameters"].unique()]
        stages = [[_set(stage) for stage in each.get("stages", ())] for each in before]
        system = systems.get(name)
        if isinstance(system, System):
            if [_set({"data": stage.data, **stage.training_settings}) for stage in system.stages] not in stages:
                found.append(name)
        elif any("encoder" in each and "stages" not in each for each in before):
            found.append(name)
    return found


def _set(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of a stage's settings is set, of its data their number; a setting that came later is off before."""
    told = {name: _set(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    return {name: len(value) if name == "data" else value for name, value in told.items() if value}


def chosen(systems: Mapping[str, Any], names: str | Sequence[str]) -> dict[str, Any]:
    """Return the systems that a parameter names: "all", one or several, in the order of their declaration."""
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        require_one_of("system", name, [ALL, *systems])
    return {name: system for name, system in systems.items() if ALL in wanted or name in wanted}


def _target(given: Target | Collection) -> Target:
    return given if isinstance(given, Target) else Target(given)


# --- settings that validation chooses --------------------------------------------------------------


def tune(
    trials: Mapping[str, Sequence[Ranker]],
    target: Target | Collection,
    seed: int = 0,
    measure: str = "AP@100",
    depth: int = 100,
) -> pd.DataFrame:
    """Rank the validation queries with every trial of every system, and mark each system's best; see `best`.

    The trials of a system are a budget, which a fair comparison makes equal. Each has a row with its settings (of a
    chain, those of its last stage), the measure, the cost of its training, and whether it is `chosen`: the first of
    the best.
    """
    target = _target(target)
    _, qrels = held_out(target.test, "dev")
    rows = []
    jobs = [(name, system) for name, each in trials.items() for system in each]
    for name, system in runtime.progress(jobs, desc="trials", unit="trial"):
        value = evaluate(system.run(target, seed, "dev", depth), qrels, [measure])["value"].mean()
        cost, told = system.cost(target, seed), _plain(system.settings)
        spent = {"steps": cost.steps, "seconds": cost.seconds}
        rows.append({**told, "system": name, "collection": target.test.name, measure: value, **spent})
    table = pd.DataFrame(rows)
    return table.assign(chosen=table.index.isin(table.groupby("system")[measure].idxmax()))


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are one value; those of a chain's last stage stand for all its stages'."""
    *_, last = ({}, *settings.get("stages", ()))
    return {name: value for name, value in {**settings, **last}.items() if isinstance(value, str | int | float)}


def best(trials: Mapping[str, Sequence[Ranker]], tuned: pd.DataFrame) -> dict[str, Ranker]:
    """Each system's chosen trial, from the table that `tune` returns."""
    places = tuned.groupby("system", sort=False).cumcount()[tuned["chosen"]]
    found = zip(tuned["system"][tuned["chosen"]], places, strict=True)
    return {name: trials[name][place] for name, place in found if name in trials}


def learning_curves(systems: Mapping[str, System], target: Target | Collection, seeds: Sequence[int]) -> pd.DataFrame:
    """What validation saw of each system's last stage: columns of `History.frame`, `system` and `seed`."""
    jobs, trains = product(systems.items(), seeds), _target(target).trains
    frames = [fit(system, trains, seed).history.frame().assign(system=name, seed=seed) for (name, system), seed in jobs]
    return pd.concat(frames, ignore_index=True)


# --- latency ---------------------------------------------------------------------------------------


def record_latencies(
    experiment: Experiment, systems: Mapping[str, Ranker], target: Target, timed: int, depth: int = 100
) -> None:
    """Record the milliseconds of `timed` questions to the first results, with every seed; asked one by one, warm."""
    asked = target.test.split("test")[:timed]
    questions = [asked.iloc[[place]] for place in range(len(asked))]
    for seed in experiment.parameters["seeds"]:
        searchers = {name: system.searcher(target, seed) for name, system in systems.items()}
        for name, search in runtime.progress(searchers.items(), desc="latency", unit="system"):
            times = milliseconds(lambda question, search=search: search(question, depth), questions)
            experiment.record(name, target.test.name, "latency ms", float(np.median(times)), seed)
            experiment.record(name, target.test.name, "latency p95 ms", float(np.percentile(times, 95)), seed)


def milliseconds(answer: Callable[[Any], object], questions: Sequence[Any]) -> np.ndarray:
    """Wall-clock milliseconds of each answer, one by one; what is answered must be there when `answer` returns."""
    require(len(questions) > 0, "there is no query to time", DataError)
    for question in questions[:WARM_UP]:
        answer(question)
    marks = [time.perf_counter()]
    for question in questions:
        answer(question)
        marks.append(time.perf_counter())
    return np.diff(marks) * 1000
