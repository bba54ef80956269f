"""What Part IV brings: its data, systems of the reader's, what indexes and trainings cost (and ch. 53, 54, 60, 90)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any

import pandas as pd

from retlib.core.errors import SettingError, require, require_one_of
from retlib.data import datasets
from retlib.data.collection import SPLITS, Collection, answered_within, subsample, union
from retlib.studies.experiment import CollectionName, Distinct, Experiment, NonEmpty, Outcome, Positive, Text, validator
from retlib.systems.ranking import indexed
from retlib.systems.system import Stage, System, Target, fit
from retlib.systems.training_data import Labels
from retlib.training import negatives

MEASURES = ["RR@10", "R@100", "R@1000", "nDCG@10", "Judged@10"]
# BM25 as others ran it over a whole collection, of which ours is a pool.
PUBLIC = "BM25, all passages"


def _check_options(lists: dict[str, dict[str, int]]) -> None:
    for label, given in lists.items():
        n, skip = (negatives.options("retrieved", given)[option] for option in ("n", "skip"))
        require(0 <= skip < n - 1, f"{label!r}: skip = {skip} of n = {n} leaves no negative and a positive")


def _check_stages(further: dict[str, dict]) -> None:
    names = Stage.__dataclass_fields__.keys() - {"data", "steps", "epochs", "watching"}
    for label, given in further.items():
        for each in given:
            require_one_of(f"what {label!r} sets", each, names)
        try:
            Stage(data=Labels(), steps=1, **given)
        except (SettingError, TypeError, AttributeError) as error:  # of a value of another kind than a field's
            raise SettingError(f"{label!r}: {error}") from error


# What trains, together; what is tested beside it; and how much of each.
DATA: dict[str, Any] = {
    "collections": NonEmpty[CollectionName],
    "zero_shot": Distinct[CollectionName],
    "documents": Positive,
    "questions": Positive,
}
# By labels: what LTRe's negatives have, as in {"ten": {"n": 10}}; what a `Stage` has beside its data.
RetrievedOptions = Annotated[dict[Text, dict[Text, int]], validator(_check_options)]
StageSettings = Annotated[dict[Text, dict], validator(_check_stages)]


def targets(experiment: Experiment) -> list[Target]:
    """Return each collection as a test of what the union of those in `collections` trained; none without data.

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
    """Return what trains, in the first row, and what is tested on: documents, questions, judgments."""
    rows = []
    for name, part in (("training", targets[0].trains), *((each.test.name, each.test) for each in targets)):
        judged = part.relevant("test").groupby("query_id").size().mean()
        words = part.documents["text"].str.split().str.len().mean()
        row = {"collection": name, "documents": len(part.documents)}
        row |= {f"{split} questions": len(part.split(split)) for split in SPLITS}
        row |= {"relevant/test question": round(float(judged), 2), "words/document": round(float(words), 1)}
        rows.append({**row, "fingerprint": part.fingerprint[:12]})
    return pd.DataFrame(rows)


def record_public(experiment: Experiment, targets: Sequence[Target]) -> None:
    """Record BM25 over all passages where others' run lies beside a collection; its lists end before R@1000."""
    measures = [measure for measure in MEASURES if measure != "R@1000"]
    for test in (each.test for each in targets if datasets.released.RUN in each.test.provenance):
        settings = {"system": "BM25", "run": datasets.released.RUN}
        outcome = Outcome(datasets.released.trec_run(), settings, candidates=datasets.released.PASSAGES)
        experiment.measure(PUBLIC, test, 0, outcome, measures)


def index_sizes(system: System, train: Collection, seed: int) -> dict[str, float]:
    """Return how large a system's index is over all training documents, and the code of one."""
    retriever = fit(system, train, seed)
    made = indexed(retriever, retriever.reads(train), system.index, system.search)
    return {"index bytes": made.size_bytes, "bytes a document": made.vector_bytes}


def training_costs(system: System, train: Collection, seed: int) -> dict[str, float]:
    """Return what a system's last training takes, in seconds of its parts and in queries."""
    history = fit(system, train, seed).history
    seconds = history.seconds
    parts = history.parts | {"optimizer": seconds - sum(history.parts.values())}
    # Before the first step nothing has been seen; one batch is the least that a training sees.
    seen = max(1, history.best_step) * system.stages[-1].batch_size
    costs = {"training seconds": seconds, "search share": parts.get("search", 0.0) / seconds, "queries to best": seen}
    return costs | {f"seconds of {part}": value for part, value in parts.items()}


def record_costs(
    experiment: Experiment, systems: Mapping[str, System], targets: Sequence[Target], costs: Callable
) -> None:
    """Record `index_sizes` or `training_costs` of each system, under every collection that is tested on."""
    jobs = product(experiment.parameters["seeds"], systems.items()) if experiment.live else ()
    for seed, (name, system) in jobs:
        numbers = costs(system, targets[0].trains, seed)
        for target, (measure, value) in product(targets, numbers.items()):
            experiment.record(name, target.test.name, measure, value, seed)
