"""What only Part IV needs: trainings that are watched, maps of what moves in them, what indexes and trainings cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator

from retlib.core.errors import SettingError, require, require_one_of
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.datasets import questions
from retlib.data.splits import answered_within, subsample, union
from retlib.retrieval import index
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.parameters import CollectionName, Many, Positive, Some, Text, Whole
from retlib.systems.ranking import indexed
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels
from retlib.training import negatives

MEASURES = ["RR@10", "R@100", "R@1000", "nDCG@10", "Judged@10"]
# BM25 as others ran it over a whole collection, of which ours is a pool.
PUBLIC = "BM25, all passages"


def _retrieved(lists: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    for label, given in lists.items():
        n, skip = (negatives.options("retrieved", given)[option] for option in ("n", "skip"))
        require(skip < n - 1, f"{label!r}: skip = {skip} of n = {n} leaves no negative and a positive")
    return lists


def _stages(further: dict[str, dict]) -> dict[str, dict]:
    names = [each.name for each in fields(Stage) if each.name not in ("data", "steps", "epochs")]
    for label, given in further.items():
        for each in given:
            require_one_of(f"what {label!r} sets", each, names)
        try:
            Stage(data=Labels(), steps=1, **given)
        except (SettingError, TypeError, AttributeError) as error:  # of a value of another kind than a field's
            raise SettingError(f"{label!r}: {error}") from error
    return further


# What trains, together; what is tested beside it; and how much of each.
DATA: dict[str, Any] = {
    "collections": Many[CollectionName],
    "zero_shot": Some[CollectionName],
    "documents": Positive,
    "questions": Positive,
}
# By labels: what LTRe's negatives have, as in {"ten": {"n": 10}}; what a `Stage` has beside its data.
RetrievedOptions = Annotated[dict[Text, dict[Text, Whole]], AfterValidator(_retrieved)]
StageSettings = Annotated[dict[Text, dict], AfterValidator(_stages)]


def beside(systems: Mapping[str, System], own: Mapping[str, System], others: Iterable[str]) -> dict[str, System]:
    """Return a chapter's systems, and those that its parameter `further` declares, whose labels must be new."""
    taken = {*systems, *others, *(f"{label}, rerank" for label in (*systems, *own))}
    for label in own:
        wrong = f"further[{label!r}]: {label!r} is a row of this chapter already. Choose another name."
        require(label not in taken, wrong)
    return {**systems, **own}


def targets(experiment: Experiment) -> list[Target]:
    """Each collection as a test of what the union of those in `collections` trained; none without data.

    Documents are chosen for `questions` test questions; all that they answer are asked.
    """
    if not experiment.live:
        return []
    p = experiment.parameters
    wholes = [datasets.load(name) for name in p["collections"]]
    parts = [subsample(each, p["documents"], p["questions"]) for each in wholes]
    tests = [answered_within(*each) for each in zip(wholes, parts, strict=True)]
    trains = union(parts)
    return [Target(test, trains) for test in (*tests, *map(datasets.load, p["zero_shot"]))]


def sizes(targets: Sequence[Target]) -> pd.DataFrame:
    """What trains, in the first row, and what is tested on: documents, questions, judgments."""
    rows = []
    for name, part in (("training", targets[0].trains), *((each.test.name, each.test) for each in targets)):
        judged = part.relevant("test").groupby("query_id").size().mean()
        words = part.documents["text"].str.split().str.len().mean()
        rows.append(
            {
                "collection": name,
                "documents": len(part.documents),
                **{f"{split} questions": len(part.split(split)) for split in ("train", "dev", "test")},
                "relevant/test question": round(float(judged), 2),
                "words/document": round(float(words), 1),
                "fingerprint": part.fingerprint[:12],
            }
        )
    return pd.DataFrame(rows)


def record_public(experiment: Experiment, targets: Sequence[Target]) -> None:
    """BM25 over all passages where others' run lies beside a collection; its lists end before R@1000."""
    for target in targets:
        if questions.RUN in target.test.provenance:
            settings = {"system": "BM25", "run": questions.RUN}
            outcome = Outcome(questions.trec_run(), settings, candidates=questions.PASSAGES)
            told = [measure for measure in MEASURES if measure != "R@1000"]
            experiment.measure(PUBLIC, target.test, 0, outcome, told)


# --- what indexes and trainings cost ---------------------------------------------------------------


def record_sizes(experiment: Experiment, systems: Mapping[str, System], targets: Sequence[Target]) -> None:
    """How large each system's index is over all training documents, and the code of one, under every collection."""

    def numbers(system: System, train: Collection, seed: int) -> dict[str, float]:
        retriever = fit(system, train, seed)
        made = indexed(retriever, retriever.reads(train), system.index, system.search)
        return {"index bytes": made.size_bytes, "bytes a document": index.vector_bytes(system.index, made.dimension)}

    _record(experiment, systems, targets, numbers)


def record_costs(experiment: Experiment, systems: Mapping[str, System], targets: Sequence[Target]) -> None:
    """What the last training of each system takes, under every collection that is tested on."""

    def numbers(system: System, train: Collection, seed: int) -> dict[str, float]:
        history = fit(system, train, seed).history
        parts = history.timed
        return {
            "training seconds": history.seconds,
            "search share": parts.get("search", 0.0) / history.seconds,
            # Before the first step nothing has been seen; one batch is the least that a training sees.
            "queries to best": max(1, history.best_step) * system.stages[-1].batch_size,
            **{f"seconds of {part}": value for part, value in parts.items()},
        }

    _record(experiment, systems, targets, numbers)


def _record(experiment: Experiment, systems: Mapping, targets: Sequence[Target], numbers: Callable) -> None:
    jobs = product(experiment.parameters["seeds"], systems.items()) if experiment.live else ()
    for seed, (name, system) in jobs:
        found = numbers(system, targets[0].trains, seed)
        for target, (measure, value) in product(targets, found.items()):
            experiment.record(name, target.test.name, measure, value, seed)


def index_table(experiment: Experiment, collection: str, rows: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Return Table 3 of the paper with our numbers, means over seeds, and the bytes that an index keeps of a document.

    `rows` maps a factory to the names of two systems: searched through this index before training, and trained with
    it, which may be missing.
    """
    mean, found = experiment.results.means(collection).reindex(name for pair in rows.values() for name in pair), []
    for factory, (before, after) in rows.items():
        found.append(
            {
                "index": factory,
                "bytes a document": round(mean.at[before, "bytes a document"]),
                "MB": mean.at[before, "index bytes"] / 1e6,
                "RR@10 before training": 100 * mean.at[before, "RR@10"],
                **{f"{measure} trained": 100 * mean.at[after, measure] for measure in MEASURES[:3]},
                "training seconds": mean.at[after, "training seconds"],
            }
        )
    return pd.DataFrame(found).sort_values("bytes a document", kind="stable", ignore_index=True)


def times(experiment: Experiment, collection: str, than: str) -> pd.DataFrame:
    """Seconds of each training and of its parts, means over seeds, and its ratio to that of one system."""
    mean = experiment.results.means(collection).dropna(subset="training seconds")
    found = mean.filter(like="seconds of ").rename(columns=lambda name: name.removeprefix("seconds of "))
    whole = mean["training seconds"]
    found.insert(0, "training seconds", whole)
    found.insert(1, f"times {than}", whole / whole[than])
    return found.round(2)


def matrix(experiment: Experiment, collection: str, names: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """Table 4, nDCG@10: `trained`, `searched`, the mean `value` over seeds in points; `names` of systems by pairs."""
    mean = experiment.results.means(collection)
    found = [(*pair, 100 * mean.at[name, "nDCG@10"]) for pair, name in names.items()]
    return pd.DataFrame(found, columns=["trained", "searched", "value"])
