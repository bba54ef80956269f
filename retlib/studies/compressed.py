"""LTRe over compressed indexes: their size, how well they search, what is trained on them (Zhan 2020, section 6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import pandas as pd

from retlib.core import runtime
from retlib.retrieval.index import EXACT
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.ltre_study import MEASURES, Study
from retlib.systems import ltre
from retlib.systems.dense import Retriever

START = "BM25 Neg"


def trained(study: Study, factory: str, seed: int) -> Retriever:
    """LTRe from the BM25 Neg model, with an index of this kind in training."""
    return ltre.fit(study.retriever(START, seed), study.ranking, study.method(ltre.LTRE, index=factory), seed)


def record_indexes(experiment: Experiment, study: Study, factories: Iterable[str], seeds: Sequence[int]) -> None:
    """How well each index searches before any training, and how large it is over all training documents."""
    for seed, factory in _jobs(experiment, seeds, factories, "indexes"):
        start = study.retriever(START, seed)
        for part in study.tested_on:
            found = Outcome(ltre.rank(start, study.part(part), index=factory), {"index": factory})
            experiment.measure(f"Index {factory}", part, seed, found, measures=MEASURES)
            size = ltre.indexed(start, study.ranking, factory).size_bytes
            experiment.record(f"Index {factory}", part.name, "index bytes", size, seed)


def record_trained(experiment: Experiment, study: Study, factories: Iterable[str], seeds: Sequence[int]) -> None:
    """What LTRe learns with each index in training, searched without compression; and what training takes."""
    for seed, factory in _jobs(experiment, seeds, factories, "LTRe"):
        retriever = trained(study, factory, seed)
        history = retriever.history
        for part in study.tested_on:
            run = ltre.rank(retriever, study.part(part))
            settings = {**study.settings("LTRe (BM25 Neg)"), "index": factory}
            outcome = Outcome(run, settings, history.evaluations[-1]["step"], history.seconds)
            experiment.measure(f"LTRe, {factory}", part, seed, outcome, measures=MEASURES)
        _costs(experiment, study, f"LTRe, {factory}", retriever, study.query.batch_size, seed)


def record_ance(experiment: Experiment, study: Study, seeds: Sequence[int]) -> None:
    """What the training of ANCE takes, from the same start."""
    for seed in seeds if experiment.live else ():
        _costs(experiment, study, "ANCE", study.retriever("ANCE", seed), study.both.batch_size, seed)


def _costs(experiment: Experiment, study: Study, system: str, retriever: Retriever, batch_size: int, seed: int) -> None:
    parts, history = ltre.parts(retriever.history), retriever.history
    numbers = {
        "training seconds": history.seconds,
        "search share": parts.get("search", 0.0) / history.seconds,
        # Before the first step nothing has been seen; one batch is the least that a training sees.
        "queries to best": max(1, history.best_step) * batch_size,
        **{f"seconds of {part}": value for part, value in parts.items()},
    }
    for part, (measure, value) in product(study.tested_on, numbers.items()):
        experiment.record(system, part.name, measure, value, seed)


def record_matrix(experiment: Experiment, study: Study, factories: Sequence[str], seeds: Sequence[int]) -> None:
    """Every index in training with every index in search (Table 4)."""
    for seed, (learnt, searched) in _jobs(experiment, seeds, list(product(factories, factories)), "index pairs"):
        retriever = trained(study, learnt, seed)
        for part in study.tested_on:
            run = ltre.rank(retriever, study.part(part), index=searched)
            name = f"trained {learnt} searched {searched}"
            experiment.measure(name, part, seed, Outcome(run), measures=["nDCG@10", "RR@10"])


def _jobs(experiment: Experiment, seeds: Sequence[int], of: Iterable, label: str) -> Iterable[tuple]:
    jobs = list(product(seeds, of)) if experiment.live else []
    return runtime.progress(jobs, desc=label, unit="run")


def table(experiment: Experiment, collection: str, factories: Sequence[str]) -> pd.DataFrame:
    """Table 3 of the paper with our numbers, means over seeds: an index in a row, and what is trained on it."""
    rows = experiment.results.rows
    mean = rows[rows["collection"] == collection].groupby(["system", "measure"])["value"].mean()
    exact = mean[f"Index {EXACT}", "index bytes"]
    found = []
    for factory in factories:
        index, system = f"Index {factory}", f"LTRe, {factory}"
        found.append(
            {
                "index": factory,
                "MB": mean[index, "index bytes"] / 1e6,
                "% of the uncompressed": 100 * mean[index, "index bytes"] / exact,
                "RR@10 before training": 100 * mean[index, "RR@10"],
                **{f"{measure} trained": 100 * mean[system, measure] for measure in MEASURES[:3]},
                "training seconds": mean[system, "training seconds"],
                "% in search": 100 * mean[system, "search share"],
            }
        )
    return pd.DataFrame(found).round(2)


def times(experiment: Experiment, collection: str) -> pd.DataFrame:
    """Seconds of each training and of its parts, means over seeds, and its ratio to that of LTRe with exact search."""
    rows = experiment.results.rows
    mine = rows[(rows["collection"] == collection) & rows["measure"].str.contains("seconds")]
    found = mine.pivot_table(index="system", columns="measure", values="value", aggfunc="mean", sort=False)
    whole = found.pop("training seconds")
    found.insert(0, "training seconds", whole)
    found.insert(1, "times LTRe, Exact", whole / whole[f"LTRe, {EXACT}"])
    return found.rename(columns=lambda name: name.removeprefix("seconds of ")).round(2)


def matrix(experiment: Experiment, collection: str, factories: Sequence[str], measure: str = "nDCG@10") -> pd.DataFrame:
    """Table 4: `trained`, `searched` and the mean `value` over seeds, in points of a hundred."""
    rows = experiment.results.rows
    mine = rows[(rows["collection"] == collection) & (rows["measure"] == measure)]
    mean = mine.groupby("system")["value"].mean() * 100
    pairs = product(factories, factories)
    found = [(learnt, searched, mean[f"trained {learnt} searched {searched}"]) for learnt, searched in pairs]
    return pd.DataFrame(found, columns=["trained", "searched", "value"])
