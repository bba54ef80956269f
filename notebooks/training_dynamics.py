"""Trainings that are watched step by step, and maps of what moves in them; chapter 41."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.data.collection import Collection, hash_position
from retlib.report.contrasts import END
from retlib.retrieval import index
from retlib.studies.experiment import Experiment
from retlib.systems.ranking import encode_corpus
from retlib.systems.system import KIND, System, Target, fit
from retlib.training.dynamics import Watching, paths


def sample_queries(targets: Sequence[Target], count: int) -> tuple[str, ...]:
    """Return the ids of some training queries, always the same: the first in the order of a hash; none without data."""
    ids = targets[0].trains.relevant("train")["query_id"].unique() if targets else ()
    return tuple(sorted(ids, key=hash_position)[:count])


def record_curves(
    experiment: Experiment, still: System, watched: Mapping[str, System], train: Collection, watching: Watching
) -> pd.DataFrame:
    """Return what is seen of every watched training, step by step; and of the system that stands still, as "Warm-up".

    What refreshes lists of its own is compared with those: `watching` has the interval of the others. Values are
    between 0 and 1.
    """
    stage, parts = replace(next(iter(watched.values())).stages[-1], learning_rate=1e-12), []  # lost in rounding
    refreshes = intervals(watched, watching).set_index("system")["interval"].to_dict()
    for seed in runtime.progress(experiment.parameters["seeds"], desc="watched trainings", unit="seed"):
        seen = {"Warm-up": fit(still + replace(stage, watching=watching), train, seed).history.watched}
        experiment.record_curve("Warm-up", train.name, seed, still.cost(Target(train), seed))
        for name, system in watched.items():
            history = fit(system.with_last(watching=replace(watching, interval=refreshes[name])), train, seed).history
            experiment.record_curve(name, train.name, seed, history.cost(system.stages[-1].keep))
            seen[name] = history.watched
        for name, rows in seen.items():
            long = pd.DataFrame(rows).melt("step", var_name="measure").astype({"value": "float32"})
            parts.append(long.assign(system=name, seed=seed)[["system", "seed", "step", "measure", "value"]])
    curves = pd.concat(parts, ignore_index=True)
    last = curves[curves["step"] >= (1 - END) * curves["step"].max()].groupby(["system", "measure", "seed"], sort=False)
    for (system, measure, seed), value in last["value"].mean().items():
        name, candidates = f"{measure}, last fifth", len(train.documents)
        experiment.record(system, train.name, name, value, seed, "train", candidates=candidates)
    return curves


def intervals(watched: Mapping[str, System], watching: Watching) -> pd.DataFrame:
    """Return the steps between two refreshes of the lists that each watched system's overlap is taken with."""
    lengths = {name: each.stages[-1].options.get("interval", watching.interval) for name, each in watched.items()}
    return pd.DataFrame(lengths.items(), columns=["system", "interval"])


# Documents that a query retrieves, before and after, around which its map is drawn; documents on the map of all
# (t-SNE of more takes minutes).
NEAREST, MOST = 40, 3000


class Movement(NamedTuple):
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


def movement(system: System, train: Collection, watching: Watching, seed: int) -> Movement:
    """Return what a watched training moved, as `Watching.followed` says."""
    retriever = fit(system.with_last(watching=watching), train, seed)
    tokenized = retriever.reads(train)
    ids, table = tokenized.relevant("train")
    relevant = [table.row(row) for row in ids.get_indexer(list(watching.followed))]
    folder = runtime.build_dir() / "cache" / KIND / retriever.name
    return Movement(*paths(folder), encode_corpus(retriever, tokenized), relevant)


def neighbourhoods(movement: Movement) -> pd.DataFrame:
    """Return a map around each followed query: what it retrieves before or after training, and itself at both times."""
    parts = []
    for place, (name, relevant) in enumerate(zip(movement.names, movement.relevant, strict=True)):
        ends = movement.paths[[0, -1], place]  # (2, d)
        nearest = index.build(index.EXACT, movement.documents).search(ends, NEAREST)[1]
        rows = np.union1d(nearest, relevant)
        what = [*np.where(np.isin(rows, relevant), "relevant", "document"), "before", "after"]
        x, y = _projected(np.concatenate([movement.documents[rows], ends])).T
        parts.append(pd.DataFrame({"query": name, "what": what, "x": x, "y": y}))
    return pd.concat(parts, ignore_index=True)


def whole_map(movement: Movement) -> pd.DataFrame:
    """Return one map of the documents, or of a sample of them, with the path of each followed query, step by step."""
    sample = np.random.default_rng(0).permutation(len(movement.documents))[:MOST]
    goals = [movement.documents[rows] for rows in movement.relevant]
    x, y = _projected(np.concatenate([movement.documents[sample], *goals, *movement.paths])).T
    rows = [("document", "", 0)] * len(sample)
    rows += [("relevant", name, 0) for name, own in zip(movement.names, movement.relevant, strict=True) for _ in own]
    rows += [("query", name, int(step)) for step, name in product(movement.steps, movement.names)]
    return pd.DataFrame(rows, columns=["what", "query", "step"]).assign(x=x, y=y)


def _projected(vectors: np.ndarray) -> np.ndarray:
    # t-SNE of the vectors' directions: float32, shape (rows, 2); the same input gives the same map.
    from sklearn.manifold import TSNE

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    model = TSNE(perplexity=min(30.0, (len(unit) - 1) / 3), init="pca", random_state=0, n_jobs=runtime.threads())
    return model.fit_transform(unit).astype(np.float32)
