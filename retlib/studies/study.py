"""A study: systems x targets x seeds, trained or taken from the cache, evaluated and recorded (Parts I to V)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import require, require_one_of
from retlib.data.collection import Collection
from retlib.evaluation.measures import evaluate, held_out
from retlib.studies.experiment import Experiment, Outcome
from retlib.systems.ranking import Ranker
from retlib.systems.system import Target

ALL = "all"
Tested = Target | Collection  # one that trains and tests
# Questions that are answered before the clock counts: caches fill, and what compiles at its first call has compiled.
WARM_UP = 10


@dataclass(frozen=True, eq=False)
class Study:
    """What a chapter compares: systems by their labels, on targets."""

    systems: Mapping[str, Ranker]
    targets: Sequence[Tested]
    measures: Sequence[str]
    depth: int = 1000

    def run(
        self, experiment: Experiment, only: Mapping[str, Sequence[str]] | None = None, further_seeds: Sequence[int] = ()
    ) -> None:
        """Record every system on every target with every seed; nothing on a page of recorded rows.

        `only` maps a system to the names of the tests that it is recorded on, where these are not all. Systems that
        are cheaper than the chapter's others may have `further_seeds` beside the experiment's.
        """
        if not experiment.live:
            return
        targets, only = [_target(each) for each in self.targets], only or {}
        # Seed by seed, so that a study that is stopped has whole seeds. What is not trained has none.
        seeds = list(dict.fromkeys([*experiment.parameters["seeds"], *further_seeds]))
        jobs = [
            (name, target, seed if system.trained else 0)
            for seed, (name, system), target in product(seeds, self.systems.items(), targets)
            if (system.trained or seed == seeds[0]) and target.test.name in only.get(name, [target.test.name])
        ]
        for name, target, seed in runtime.progress(jobs, desc=experiment.name, unit="run"):
            experiment.measure(name, target.test, seed, partial(self._outcome, name, target, seed), self.measures)

    def _outcome(self, name: str, target: Target, seed: int) -> Outcome:
        system = self.systems[name]
        return Outcome(system.run(target, seed, depth=self.depth), system.settings, system.cost(target, seed))


def _target(tested: Tested) -> Target:
    return tested if isinstance(tested, Target) else Target(tested)


def select(systems: Mapping[str, Any], names: str | Sequence[str]) -> dict[str, Any]:
    """Return the systems that a parameter names: "all", one or several, in the order of their declaration."""
    wanted = [names] if isinstance(names, str) else names
    for name in wanted:
        require_one_of("a name", name, [ALL, *systems])
    return {name: system for name, system in systems.items() if ALL in wanted or name in wanted}


def with_further(systems: Mapping[str, Any], further: Mapping[str, Any], labels: Iterable[str] = ()) -> dict[str, Any]:
    """Return systems, and further ones of the reader's, whose labels are neither theirs nor among other `labels`."""
    taken = [label for label in further if label in {*systems, *labels}]
    require(not taken, f"{taken} are rows of this chapter already: choose other names")
    return {**systems, **further}


def tune(
    trials: Mapping[str, Sequence[Ranker]], target: Tested, seed: int = 0, measure: str = "AP@100", depth: int = 100
) -> pd.DataFrame:
    """Rank the validation queries with every trial of every system, and mark each system's best; see `best`.

    The trials of a system are a budget, which a fair comparison makes equal. Each has a row with its settings (of a
    chain, those of its last stage), the measure, the cost of its training, and whether it is `chosen`: the first of
    the best.
    """
    target, rows = _target(target), []
    _, qrels = held_out(target.test, "dev")
    jobs = [(name, system) for name, each in trials.items() for system in each]
    for name, system in runtime.progress(jobs, desc="trials", unit="trial"):
        value = evaluate(system.run(target, seed, "dev", depth), qrels, [measure])["value"].mean()
        *_, last = ({}, *system.settings.get("stages", ()))
        plain = {key: each for key, each in {**system.settings, **last}.items() if isinstance(each, str | int | float)}
        cost = system.cost(target, seed)
        row = {"system": name, "collection": target.test.name, measure: value}
        rows.append({**plain, **row, "steps": cost.steps, "seconds": cost.seconds})
    table = pd.DataFrame(rows)
    return table.assign(chosen=table.index.isin(table.groupby("system")[measure].idxmax()))


def best(trials: Mapping[str, Sequence[Ranker]], tuned: pd.DataFrame) -> dict[str, Ranker]:
    """Return each system's chosen trial, from the table that `tune` returns."""
    places = tuned.groupby("system", sort=False)["chosen"].agg(lambda chosen: chosen.to_numpy().argmax())
    return {name: trials[name][place] for name, place in places.items() if name in trials}


def record_latencies(
    experiment: Experiment, systems: Mapping[str, Ranker], target: Target, timed: int, depth: int = 100
) -> None:
    """Record the milliseconds of `timed` questions to their results, one by one, warm: median and 95th percentile."""
    texts = target.test.split("test")[:timed]
    questions = [texts.iloc[[place]] for place in range(len(texts))]
    for seed in experiment.parameters["seeds"]:
        searchers = {name: system.searcher(target, seed) for name, system in systems.items()}
        for name, search in runtime.progress(searchers.items(), desc="latency", unit="system"):
            times = []
            for question in [*questions[:WARM_UP], *questions]:
                with runtime.Stopwatch() as watch:
                    search(question, depth)
                times.append(1000 * watch.seconds)
            times = times[-len(questions) :]
            experiment.record(name, target.test.name, "latency ms", np.median(times), seed)
            experiment.record(name, target.test.name, "latency p95 ms", np.percentile(times, 95), seed)
