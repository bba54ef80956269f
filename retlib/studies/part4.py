"""What only Part IV needs: trainings that are watched, maps of what moves in them, what indexes and trainings cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AfterValidator

from retlib.core import runtime
from retlib.core.errors import SettingError, require, require_one_of
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.datasets import trec_dl_2019
from retlib.data.splits import answered_within, hash_position, subsample, union
from retlib.report.gate import END
from retlib.retrieval import index
from retlib.studies.experiment import Experiment, Outcome
from retlib.studies.parameters import CollectionName, Many, Positive, Some, Text, Whole
from retlib.systems.ranking import encode_corpus, indexed
from retlib.systems.stages import Stage
from retlib.systems.system import KIND, System, Target, fit, observe
from retlib.systems.training_data import Labels
from retlib.training import negatives
from retlib.training.dynamics import Watching, paths

MEASURES = ["RR@10", "R@100", "R@1000", "nDCG@10", "Judged@10"]
# BM25 as others ran it over a whole collection, of which ours is a pool.
PUBLIC = "BM25, all passages"
# Documents that a query retrieves, before and after, around which its map is drawn; documents on the map of all
# (t-SNE of more takes minutes).
NEAREST, MOST = 40, 3000


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
        if trec_dl_2019.RUN in target.test.provenance:
            settings = {"system": "BM25", "run": trec_dl_2019.RUN}
            outcome = Outcome(trec_dl_2019.public_run(), settings, candidates=trec_dl_2019.PASSAGES)
            told = [measure for measure in MEASURES if measure != "R@1000"]
            experiment.measure(PUBLIC, target.test, 0, outcome, told)


# --- trainings that are watched --------------------------------------------------------------------


def followed(targets: Sequence[Target], count: int) -> tuple[str, ...]:
    """The ids of some training queries, the same whenever asked: the first in the order of a hash."""
    if not targets:
        return ()
    ids = targets[0].trains.relevant("train")["query_id"].unique()
    return tuple(sorted(ids, key=hash_position)[:count])


def record_curves(
    experiment: Experiment, still: System, watched: Mapping[str, System], train: Collection, watching: Watching
) -> pd.DataFrame:
    """What was seen of every watched training, step by step; and of the system that stands still, as "Warm-up".

    What refreshes lists of its own is compared with those: `watching` has the interval of the others. Values are
    between 0 and 1.
    """
    stage, parts = next(iter(watched.values())).stages[-1], []
    refreshes = intervals(watched, watching).set_index("system")["interval"]
    for seed in runtime.progress(experiment.parameters["seeds"], desc="watched trainings", unit="seed"):
        seen = {"Warm-up": observe(still, stage, train, seed, watching)}
        experiment.learned("Warm-up", train.name, seed, still.cost(Target(train), seed))
        for name, system in watched.items():
            history = fit(system, train, seed, replace(watching, interval=int(refreshes[name]))).history
            experiment.learned(name, train.name, seed, history.cost(system.stages[-1].keep))
            seen[name] = history.watched
        for name, rows in seen.items():
            long = pd.DataFrame(rows).melt("step", var_name="measure").astype({"value": "float32"})
            parts.append(long.assign(system=name, seed=seed)[["system", "seed", "step", "measure", "value"]])
    curves = pd.concat(parts, ignore_index=True)
    last = curves[curves["step"] >= (1 - END) * curves["step"].max()].groupby(["system", "measure", "seed"], sort=False)
    for (system, measure, seed), value in last["value"].mean().items():
        told = {"candidates": len(train.documents)}
        experiment.record(system, train.name, f"{measure}, last fifth", value, seed, "train", **told)
    return curves


def intervals(watched: Mapping[str, System], watching: Watching) -> pd.DataFrame:
    """Return the steps between two refreshes of the lists that each watched system's overlap is taken with."""
    found = {name: each.stages[-1].options.get("interval", watching.interval) for name, each in watched.items()}
    return pd.DataFrame(found.items(), columns=["system", "interval"])


# --- maps ------------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """How followed queries moved in a training of the query encoder, and where documents stand.

    `steps` (T,), `paths` (T, F, d), `documents` (D, d), and `relevant`, rows of documents for each of F queries.
    """

    steps: np.ndarray
    paths: np.ndarray
    documents: np.ndarray
    relevant: list[np.ndarray]

    @property
    def names(self) -> list[str]:
        """Of the queries on maps."""
        return [f"question {place + 1}" for place in range(self.paths.shape[1])]


def moved(system: System, train: Collection, watching: Watching, seed: int) -> Moved:
    """What a watched training moved, as `Watching.followed` says."""
    retriever = fit(system, train, seed, watching)
    tokenized = retriever.reads(train)
    ids, table = tokenized.relevant("train")
    relevant = [table.row(row) for row in ids.get_indexer(list(watching.followed))]
    folder = runtime.cache_dir() / KIND / retriever.name
    return Moved(*paths(folder), encode_corpus(retriever, tokenized), relevant)


def neighbourhoods(moved: Moved) -> pd.DataFrame:
    """Return a map around each followed query: what it retrieves before or after training, and itself at both times."""
    parts = []
    for place, (name, relevant) in enumerate(zip(moved.names, moved.relevant, strict=True)):
        ends = moved.paths[[0, -1], place]  # (2, d)
        nearest = index.build(index.EXACT, moved.documents).search(ends, NEAREST)[1]
        rows = np.union1d(nearest, relevant)
        what = [*np.where(np.isin(rows, relevant), "relevant", "document"), "before", "after"]
        x, y = _projected(np.concatenate([moved.documents[rows], ends])).T
        parts.append(pd.DataFrame({"query": name, "what": what, "x": x, "y": y}))
    return pd.concat(parts, ignore_index=True)


def whole_map(moved: Moved) -> pd.DataFrame:
    """Return one map of the documents, or of a sample of them, with the path of each followed query, step by step."""
    sample = np.random.default_rng(0).permutation(len(moved.documents))[:MOST]
    goals = [moved.documents[rows] for rows in moved.relevant]
    x, y = _projected(np.concatenate([moved.documents[sample], *goals, *moved.paths])).T
    rows = [("document", "", 0)] * len(sample)
    rows += [("relevant", name, 0) for name, own in zip(moved.names, moved.relevant, strict=True) for _ in own]
    rows += [("query", name, int(step)) for step, name in product(moved.steps, moved.names)]
    return pd.DataFrame(rows, columns=["what", "query", "step"]).assign(x=x, y=y)


def _projected(vectors: np.ndarray) -> np.ndarray:
    """t-SNE of the vectors' directions: float32, shape (rows, 2); the same input gives the same map."""
    from sklearn.manifold import TSNE

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    perplexity = min(30.0, (len(unit) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=runtime.threads())
    return model.fit_transform(unit).astype(np.float32)


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
