"""LTRe and ANCE, trained from one model over a growing corpus: the time to one quality (Zhan 2020, section 6.4.1).

Quality is the reciprocal rank of validation queries among all documents. A time is that of training alone, measured
whole; evaluations are left out of it. Beyond the largest corpus that is measured, times follow from the seconds for
each document that is encoded, for each document that a query is searched in, and for each query that is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, product
from pathlib import Path

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.splits import with_distractors
from retlib.models.retriever import Retriever
from retlib.retrieval import index as indexes
from retlib.retrieval.index import Index
from retlib.studies.experiment import Experiment
from retlib.systems.ranking import encode_corpus, encoding_seconds
from retlib.systems.stages import DEV, Stage, Training
from retlib.systems.system import System, fit, stage_seed
from retlib.training import trainer
from retlib.training.dynamics import CUT, reciprocal_rank

VERSION = 1  # of what is measured
ANCE, LTRE = "ANCE", "LTRe"  # the two systems that are compared
ENCODING, SEARCH = "encoding corpus", "search"  # as samplers call these parts of their time
# How a training of LTRe ends: it reaches ANCE's best, or never does; or there is nothing to reach.
REACHED, NEVER, NO_GAIN = "reached", "never reached", "ANCE does not improve"
# Corpora that are not measured: a million, MS MARCO's passages, the passages of English Wikipedia.
BEYOND = (1_000_000, 8_841_823, 22_000_000)


# --- a growing corpus ------------------------------------------------------------------------------


def grown(collection: Collection, sources: Sequence[str], sizes: Iterable[int]) -> dict[int, Collection]:
    """A collection with so many documents in all: its own, then the first passages of some sources of articles.

    These lie outside the first sections, of which documents or queries of some collections are made, and none has the
    text of another document.
    """
    own, sizes = len(collection.documents), sorted(sizes)
    require(own <= sizes[0], f"{collection.name!r} has {own} documents, more than {sizes[0]}", DataError)
    wanted = sizes[-1] - own
    passages = islice(_passages(sources, set(collection.documents["text"])), wanted)
    added = pd.DataFrame(passages, columns=["title", "text"])
    wrong = f"{', '.join(sources)} give {len(added)} passages that {collection.name!r} has not, not {wanted}"
    require(len(added) == wanted, wrong, DataError)
    return {
        size: with_distractors(collection, added.iloc[: size - own], f"{collection.name}, {size}") for size in sizes
    }


def _passages(sources: Iterable[str], known: set[str]) -> Iterator[tuple[str, str]]:
    for article in chain.from_iterable(map(datasets.articles, sources)):
        for passage in article.passages[article.opening :]:
            if passage not in known:
                known.add(passage)
                yield article.title, passage


# --- measuring -------------------------------------------------------------------------------------


@dataclass
class Searched:
    """The index that a training searches, what is done with it, and what the training owes for it.

    An evaluation needs the documents as the weights of that moment encode them, and so does the refresh that follows
    with the same weights: they are encoded once, outside of the training time, and the refresh pays for it.
    """

    renewed: Callable[[], Index]  # encodes the documents with the current weights, and indexes them
    index: Index
    seconds: float  # that its encoding took
    owed: float = 0.0  # seconds that the training has to pay so far, for so many encodings
    encodings: int = 0
    searches: int = 0  # queries that the training has searched for

    def renew(self) -> None:
        """Encode the documents anew."""
        with runtime.Stopwatch() as watch:
            self.index = self.renewed()
        self.seconds = watch.seconds

    def take(self) -> Searched:
        """Return the index, for the training."""
        self.owed += self.seconds
        self.encodings += 1
        return self

    def search(self, encoded: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        self.searches += len(encoded)
        return self.index.search(encoded, k)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def dimension(self) -> int:
        return self.index.dimension


def measured(start: Retriever, stage: Stage, collection: Collection, seed: int) -> pd.DataFrame:
    """Train over an index, and return how good and how old the training is at each of its evaluations; made once.

    The stage is LTRe's, or one of asynchronous negatives that trains both encoders and is evaluated when it refreshes
    them. Of each `step` there is the `score`, RR@10 of up to 500 validation queries among all documents; `seconds` of
    training so far and of its parts; and what was done in them: `queries` that were trained on, `encodings` of the
    corpus, `searches` of a query.
    """
    settings = {
        "start": start.name or start.fingerprint, "stage": stage.address(collection), "seed": seed,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        _train(start, stage, collection, seed).to_parquet(folder / "moments.parquet")

    return pd.read_parquet(cache.artefact("training-time", VERSION, settings, make) / "moments.parquet")


def _train(start: Retriever, stage: Stage, collection: Collection, seed: int) -> pd.DataFrame:
    training = Training(stage, start, collection, seed)
    (collection,) = stage.parts[0].collections(collection)
    tokenized, student = training.student.reads(collection), training.student
    index = partial(indexes.build, stage.index, search=stage.search)
    vectors, seconds = encode_corpus(start, tokenized), encoding_seconds(start, tokenized)
    with runtime.Stopwatch() as watch:
        first = index(vectors)
    seconds += watch.seconds
    searched = Searched(lambda: index(student.encode_documents(tokenized.documents)), first, seconds)
    task = training.task(training.module, replace(training.inputs(collection), index=searched.take))
    labelled, seen = tokenized.labelled("dev"), []
    chosen = np.random.default_rng(0).permutation(len(labelled))[:DEV]

    def validate() -> float:
        if stage.trains == "both" and seen:
            searched.renew()
        counted = {"encodings": searched.encodings, "searches": searched.searches}
        seen.append({**task.parts, ENCODING: searched.owed, **counted})
        rows = searched.index.search(student.encode_queries(labelled.queries.take(chosen)), CUT)[1]
        return reciprocal_rank(labelled.hits(chosen, labelled.candidates(chosen, rows)))

    label = f"{stage}, {len(searched)} documents, seed {seed}"
    # Without checkpoints: what is timed whole is trained in one go.
    history = trainer.train(task, stage, validate, seed, None, label)
    moments = pd.concat([history.frame().drop(columns="loss"), pd.DataFrame(seen)], axis=1).fillna(0.0)
    moments["seconds"] += moments[ENCODING]
    return moments.assign(queries=moments["step"] * task.negatives.batch_size)


def moments(
    systems: Mapping[str, System], train: Collection, sources: Sequence[str], sizes: Sequence[int], seeds: Sequence[int]
) -> pd.DataFrame:
    """Return what `measured` sees of every system's last stage over corpora of so many documents.

    Of several sizes the largest is measured with the first seed alone.
    """
    parts = []
    for size, collection in grown(train, sources, sizes).items():
        once = size == max(sizes) != min(sizes)
        for seed in runtime.progress(seeds[:1] if once else seeds, desc=f"{size} documents", unit="seed"):
            for name, system in systems.items():
                *before, stage = system.stages
                start = fit(replace(system, stages=tuple(before)), train, seed)
                found = measured(start, stage, collection, stage_seed(seed, len(before)))
                parts.append(found.assign(documents=size, seed=seed, system=name))
    whole = pd.concat(parts, ignore_index=True).fillna(0.0)
    first = ["documents", "seed", "system"]
    return whole[first + [name for name in whole if name not in first]]


# --- the time to one quality -----------------------------------------------------------------------


def at_best(moments: pd.DataFrame) -> pd.DataFrame:
    """The moment at which ANCE is best, and the first at which LTRe is as good, for each size and seed.

    Where LTRe never is as good its last moment counts. Beside the columns of the moments: `outcome`, and `target`,
    ANCE's best score.
    """
    rows = []
    for _, part in moments.groupby(["documents", "seed"]):
        curves = {system: curve.sort_values("step") for system, curve in part.groupby("system")}
        best = curves[ANCE].loc[curves[ANCE]["score"].idxmax()]
        as_good = curves[LTRE][curves[LTRE]["score"] >= best["score"]]
        reached = curves[LTRE].iloc[-1] if as_good.empty else as_good.iloc[0]
        outcome = NO_GAIN if best["step"] == 0 else NEVER if as_good.empty else REACHED
        rows += [{**row, "target": best["score"], "outcome": outcome} for row in (best, reached)]
    return pd.DataFrame(rows)


def to_best(moments: pd.DataFrame) -> pd.DataFrame:
    """Return `at_best`, a row for each size and seed, with the seconds of both and their ratio, and the steps of both.

    Where LTRe never is as good its time is longer and the ratio smaller than what stands here. Where ANCE is best
    before its first step, there is no ratio.
    """
    wide = at_best(moments).pivot(
        index=["documents", "seed", "target", "outcome"], columns="system", values=["seconds", "step"]
    )
    found = wide["seconds"].reset_index().rename_axis(columns=None)
    gained = found["outcome"] != NO_GAIN
    found["ratio"] = (found[ANCE] / found[LTRE]).where(gained)
    return found.assign(**{f"{name} steps": wide["step", name].to_numpy() for name in (ANCE, LTRE)})


GROUPS = {
    ENCODING: "encoding the corpus",
    SEARCH: "search",
    "encoding queries": "encoding the batch",
    "encoding documents": "encoding the batch",
    "loss and backward": "loss and backward",
}


def parts(moments: pd.DataFrame) -> pd.DataFrame:
    """Seconds until ANCE's best in their parts, means over seeds: `documents`, `system`, a column for each part."""
    compared = at_best(moments)
    known = [name for name in GROUPS if name in compared]
    grouped = compared[known].astype(float).T.groupby(GROUPS, sort=False).sum().T
    grouped["sampling, optimizer"] = compared["seconds"] - grouped.sum(axis=1)
    names = compared[["documents", "system"]]
    return pd.concat([names, grouped], axis=1).groupby(["documents", "system"], as_index=False).mean()


# --- beyond what is measured -----------------------------------------------------------------------


# What a training does: queries it trains on, encodings of the whole corpus, searches of one query.
DONE = ["queries", "encodings", "searches"]
# Section 6.4.1: 600 thousand steps of 64 and a refresh every 10 thousand, for which all 503 thousand training queries
# (section 5.1) are searched; 60 thousand steps of 32 (section 5.3).
PAPER = {ANCE: np.array([600_000 * 64, 60, 60 * 503_000]), LTRE: np.array([60_000 * 32, 1, 60_000 * 32])}
OURS, PAPERS = "steps as measured", "the paper's steps"


def extrapolated(moments: pd.DataFrame) -> pd.DataFrame:
    """Return times over the corpora of `BEYOND`, from the rates on the largest one on which ANCE improved, if any.

    `steps` are those of that corpus, means over its seeds, or the paper's. Beside the seconds and their ratio stands
    the ratio without LTRe's encoding of the corpus, for which the paper's own 3.6 hours have no place. `outcome` is
    that of the seeds of that corpus: where one of them never was as good, the ratio is an upper bound.
    """
    compared = at_best(moments)
    compared = compared[compared["outcome"] != NO_GAIN]
    largest = compared[compared["documents"] == compared["documents"].max()]
    means = {system: part.mean(numeric_only=True) for system, part in largest.groupby("system")}
    ours = {system: mean[DONE].to_numpy() for system, mean in means.items()}
    # A quality that the start has already leaves no step of LTRe to measure: its whole training tells the rates.
    last = moments[moments["documents"] == compared["documents"].max()].groupby(["system", "seed"]).tail(1)
    rates = {system: _rates(part.mean(numeric_only=True)) for system, part in last.groupby("system")}
    columns = ["steps", "documents", ANCE, LTRE, "ratio", "ratio without LTRe's encoding"]
    works = {OURS: ours, PAPERS: PAPER} if means else {}
    rows = []
    for (name, work), size in product(works.items(), BEYOND):
        long, short = (work[system] * rates[system] * [1, size, size] for system in (ANCE, LTRE))
        ratios = long.sum() / short.sum(), long.sum() / (short.sum() - short[1])
        rows.append((name, size, long.sum(), short.sum(), *ratios))
    found, is_bound = pd.DataFrame(rows, columns=columns), (largest["outcome"] == NEVER).any()
    # The paper's numbers of steps are what they are.
    return found.assign(outcome=np.where((found["steps"] == OURS) & is_bound, NEVER, REACHED))


def _rates(moment: pd.Series) -> np.ndarray:
    """Seconds for a query that is trained on, for a document that is encoded, for a query in each document searched."""
    rest = moment["seconds"] - moment[ENCODING] - moment[SEARCH]
    seconds = np.array([rest, moment[ENCODING], moment[SEARCH]])
    return seconds / moment[DONE].to_numpy() / [1, moment["documents"], moment["documents"]]


# --- on the page -----------------------------------------------------------------------------------

SECONDS, BEST = "seconds to ANCE's best", "RR@10 at its best"
RATIOS = "ANCE / LTRe, seconds", "ANCE / LTRe, steps"


def record(experiment: Experiment, train: Collection | None, moments: pd.DataFrame) -> None:
    """How good both get on validation questions of what trains them, and how long it takes, where every seed was run.

    That is at the largest such size of the corpus. Where ANCE is best before its first step there are no times: there
    was nothing to reach. Seconds and steps of every row are those until ANCE's best. Nothing is recorded without data.
    """
    if train is None:
        return
    found, best = to_best(moments), moments.groupby(["documents", "seed", "system"])["score"].max()
    seeds = found.groupby("documents")["seed"].nunique()
    for row in found[found["documents"] == seeds[seeds == seeds.max()].index.max()].to_dict("records"):
        for system in (ANCE, LTRE):
            details = {"candidates": row["documents"], "seconds": row[system], "steps": row[f"{system} steps"]}
            measured = {BEST: best[row["documents"], row["seed"], system]}
            if row["outcome"] != NO_GAIN:
                measured[SECONDS] = row[system]
            for measure, value in measured.items():
                experiment.record(system, train.name, measure, value, row["seed"], "dev", **details)


def table(moments: pd.DataFrame) -> pd.DataFrame:
    """`to_best` as a page shows it."""
    found = to_best(moments)
    found["target"] *= 100
    found = found.rename(columns={"target": "RR@10 of ANCE's best", ANCE: "ANCE seconds", LTRE: "LTRe seconds"})
    return found.round({"RR@10 of ANCE's best": 2, "ANCE seconds": 1, "LTRe seconds": 1, "ratio": 2})


def ratios(moments: pd.DataFrame) -> pd.DataFrame:
    """How many times as much ANCE takes to its best: geometric means, a line for each size and what is counted."""
    middle = np.exp(np.log(_ratios(moments).set_index("documents")[[*RATIOS]]).groupby("documents").mean())
    return middle.rename_axis(columns="counted").stack().rename("times").reset_index()


def spread(moments: pd.DataFrame) -> pd.DataFrame:
    """How many times as long ANCE takes to its best, in seconds and in steps: medians, and the range over seeds."""
    rows = _ratios(moments).groupby("documents")
    table = rows[[*RATIOS]].agg(
        lambda each: f"{each.median():.1f} ({f'{each.min():.1f} to {each.max():.1f}' if len(each) > 1 else 'one seed'})"
    )
    never = rows["outcome"].agg(lambda each: f"{(each == NEVER).sum()} of {len(each)}")
    return table.assign(**{"seeds in which LTRe is never as good": never})


def _ratios(moments: pd.DataFrame) -> pd.DataFrame:
    """`to_best` where there is something to reach, with the ratios of seconds and of steps."""
    found = to_best(moments)
    found = found[found["outcome"] != NO_GAIN]
    steps = found[f"{ANCE} steps"] / found[f"{LTRE} steps"].clip(lower=1)
    return found.assign(**dict(zip(RATIOS, (found["ratio"], steps), strict=True))).astype(dict.fromkeys(RATIOS, float))


def projected(moments: pd.DataFrame) -> pd.DataFrame:
    """`extrapolated` in hours, as a page shows it."""
    found = extrapolated(moments)
    found.insert(1, "outcome", found.pop("outcome").where(found["steps"] == OURS, ""))
    hours = {f"{system} hours": found.pop(system) / 3600 for system in (ANCE, LTRE)}
    return found.assign(**hours).round(2)
