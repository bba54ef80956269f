"""LTRe and ANCE, trained from one model over a growing corpus: the time to one quality; chapter 45.

Quality is the reciprocal rank of validation queries among all documents. A time is that of training alone, measured
whole; evaluations are left out of it. Beyond the largest corpus that is measured, times follow from the seconds for
each document that is encoded, for each document that a query is searched in, and for each query that is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.collection import Collection, with_distractors
from retlib.models.retriever import Retriever
from retlib.report import figures
from retlib.retrieval import index
from retlib.studies.experiment import Experiment
from retlib.systems.system import DEV, Stage, StageSetup, System, fit, stage_seed
from retlib.training import trainer
from retlib.training.dynamics import CUT, reciprocal_rank

VERSION = 1  # of what is measured
ANCE, LTRE = "ANCE", "LTRe"  # the two systems that are compared
ENCODING, SEARCH = "encoding corpus", "search"  # as samplers call these parts of their time
# How a training of LTRe ends: it reaches ANCE's best, or never does; or there is nothing to reach.
REACHED, NEVER, NO_GAIN = "reached", "never reached", "ANCE does not improve"
# Corpora that are not measured: a million, MS MARCO's passages, the passages of English Wikipedia.
BEYOND = (1_000_000, 8_841_823, 22_000_000)
SECONDS, BEST = "seconds to ANCE's best", "RR@10 at its best"
RATIOS = ["ANCE / LTRe, seconds", "ANCE / LTRe, steps"]


def nested_collections(collection: Collection, sources: Sequence[str], sizes: Iterable[int]) -> dict[int, Collection]:
    """Return a collection with so many documents in all: its own, then the first passages of sources of articles.

    These lie outside the first sections, of which documents or queries of some collections are made, and none has the
    text of another document.
    """
    own, sizes = len(collection.documents), sorted(sizes)
    require(own <= sizes[0], f"{collection.name!r} has {own} documents, more than {sizes[0]}", DataError)
    passages = islice(_new_passages(sources, set(collection.documents["text"])), sizes[-1] - own)
    added = pd.DataFrame(passages, columns=["title", "text"])
    wrong = f"{', '.join(sources)} give {len(added)} passages that {collection.name!r} has not, not {sizes[-1] - own}"
    require(len(added) == sizes[-1] - own, wrong, DataError)
    names = {size: f"{collection.name}, {size}" for size in sizes}
    return {size: with_distractors(collection, added.iloc[: size - own], name) for size, name in names.items()}


def _new_passages(sources: Iterable[str], texts: set[str]) -> Iterator[tuple[str, str]]:
    for article in chain.from_iterable(map(datasets.articles, sources)):
        for passage in article.passages[article.opening :]:
            if passage not in texts:
                texts.add(passage)
                yield article.title, passage


# --- measuring -------------------------------------------------------------------------------------


class TimedIndex:
    """The index that a training searches, what is done with it, and what the training owes for it.

    An evaluation needs the documents as the weights of that moment encode them, and so does the refresh that follows
    with the same weights: they are encoded once, outside of the training time, and the refresh pays for it. `build`
    encodes the documents with the current weights. `owed` are the seconds that the training has to pay so far, for so
    many `encodings`; `searches` are the queries that it has searched for.
    """

    def __init__(self, build: Callable[[], index.Index]) -> None:
        self.build, self.owed, self.encodings, self.searches = build, 0.0, 0, 0
        self.renew()

    def renew(self) -> None:
        with runtime.Stopwatch() as self.watch:
            self.index = self.build()

    def take(self) -> TimedIndex:
        """Return the index, for the training."""
        self.owed += self.watch.seconds
        self.encodings += 1
        return self

    def search(self, encoded: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        self.searches += len(encoded)
        return self.index.search(encoded, k)


def measured(start: Retriever, stage: Stage, collection: Collection, seed: int) -> pd.DataFrame:
    """Train over an index, and return how good and how old the training is at each of its evaluations; made once.

    The stage is LTRe's, or one of asynchronous negatives that trains both encoders and is evaluated when it refreshes
    them. Of each `step` there is the `score`, RR@10 of up to 500 validation queries among all documents; `seconds` of
    training so far and of its parts; and what was done in them: `queries` that were trained on, `encodings` of the
    corpus, `searches` of a query.
    """
    settings = {"start": start.name or start.fingerprint, "stage": stage.address(collection), "seed": seed}

    def make(folder: Path) -> None:
        _train(start, stage, collection, seed).to_parquet(folder / "moments.parquet")

    folder = cache.artefact("training-time", VERSION, settings | {"threads": runtime.threads()}, make)
    return pd.read_parquet(folder / "moments.parquet")


def _train(start: Retriever, stage: Stage, collection: Collection, seed: int) -> pd.DataFrame:
    training = StageSetup(stage, start, collection, seed)
    (collection,) = stage.data[0].query_collections(collection)
    tokenized, student = training.student.reads(collection), training.student
    encode = student.encode_documents
    timed = TimedIndex(lambda: index.build(stage.index, encode(tokenized.documents), stage.search))
    task = training.task(training.module, replace(training.inputs(collection), index=timed.take))
    queries, moments = tokenized.labelled("dev"), []
    chosen = np.random.default_rng(0).permutation(len(queries))[:DEV]

    def validate() -> float:
        if stage.trains == "both" and moments:
            timed.renew()
        counts = {"encodings": timed.encodings, "searches": timed.searches}
        moments.append({**task.clock.seconds, ENCODING: timed.owed, **counts})
        rows = timed.index.search(student.encode_queries(queries.queries.take(chosen)), CUT)[1]
        return reciprocal_rank(queries.hits(chosen, queries.candidates(chosen, rows)))

    # Without checkpoints: what is timed whole is trained in one go.
    label = f"{stage}, {len(collection.documents)} documents, seed {seed}"
    history = trainer.train(task, stage, validate, seed, None, label)
    table = pd.concat([history.frame().drop(columns="loss"), pd.DataFrame(moments)], axis=1).fillna(0.0)
    table["seconds"] += table[ENCODING]
    return table.assign(queries=table["step"] * task.negatives.batch_size)


def moments(
    systems: Mapping[str, System], train: Collection, sources: Sequence[str], sizes: Sequence[int], seeds: Sequence[int]
) -> pd.DataFrame:
    """Return what `measured` sees of every system's last stage over corpora of so many documents.

    Of several sizes the largest is measured with the first seed alone.
    """
    parts = []
    for size, collection in nested_collections(train, sources, sizes).items():
        once = size == max(sizes) != min(sizes)
        for seed in runtime.progress(seeds[:1] if once else seeds, desc=f"{size} documents", unit="seed"):
            for name, system in systems.items():
                *before, stage = system.stages
                start = fit(replace(system, stages=tuple(before)), train, seed)
                table = measured(start, stage, collection, stage_seed(seed, len(before)))
                parts.append(pd.DataFrame({"documents": size, "seed": seed, "system": name}, table.index).join(table))
    return pd.concat(parts, ignore_index=True).fillna(0.0)


# --- the time to one quality -----------------------------------------------------------------------


def at_best(moments: pd.DataFrame) -> pd.DataFrame:
    """Return the moment at which ANCE is best, and the first at which LTRe is as good, for each size and seed.

    Where LTRe never is as good its last moment counts. Beside the columns of the moments: `outcome`, and `target`,
    ANCE's best score.
    """
    rows = []
    for _, part in moments.sort_values("step").groupby(["documents", "seed"]):
        ance, ltre = (part[part["system"] == name] for name in (ANCE, LTRE))
        best = ance.loc[ance["score"].idxmax()]
        as_good = ltre[ltre["score"] >= best["score"]]
        outcome = NO_GAIN if best["step"] == 0 else NEVER if as_good.empty else REACHED
        end = ltre.iloc[-1] if as_good.empty else as_good.iloc[0]
        rows += [{**row, "target": best["score"], "outcome": outcome} for row in (best, end)]
    return pd.DataFrame(rows)


def to_best(moments: pd.DataFrame) -> pd.DataFrame:
    """Return `at_best`, a row for each size and seed: seconds and steps of both, and the ratios of `RATIOS`.

    Where LTRe never is as good its time is longer and the ratio smaller than what stands here. Where ANCE is best
    before its first step, there is no ratio.
    """
    rows = ["documents", "seed", "target", "outcome"]
    wide = at_best(moments).pivot(index=rows, columns="system", values=["seconds", "step"]).astype(float)
    table = wide["seconds"].join(wide["step"].add_suffix(" steps"))
    with_gain = table[table.index.get_level_values("outcome") != NO_GAIN]
    table[RATIOS[0]] = with_gain[ANCE] / with_gain[LTRE]
    table[RATIOS[1]] = with_gain["ANCE steps"] / with_gain["LTRe steps"].clip(lower=1)
    return table.reset_index().rename_axis(columns=None)


GROUPS = {
    ENCODING: "encoding the corpus",
    SEARCH: "search",
    "encoding queries": "encoding the batch",
    "encoding documents": "encoding the batch",
    "loss and backward": "loss and backward",
}


def parts(moments: pd.DataFrame) -> pd.DataFrame:
    """Return seconds until ANCE's best in their parts, means over seeds: `documents`, `system`, a column a part."""
    compared = at_best(moments)
    seconds = compared.filter(list(GROUPS)).astype(float).T.groupby(GROUPS, sort=False).sum().T
    seconds["sampling, optimizer"] = compared["seconds"] - seconds.sum(axis=1)
    return seconds.groupby([compared["documents"], compared["system"]]).mean().reset_index()


def ratios(moments: pd.DataFrame) -> pd.DataFrame:
    """Return how many times as much ANCE takes to its best: geometric means, a line for a size and what is counted."""
    middle = np.exp(np.log(to_best(moments).dropna().set_index("documents")[RATIOS]).groupby("documents").mean())
    return middle.rename_axis(columns="counted").stack().rename("times").reset_index()


def spread(moments: pd.DataFrame) -> pd.DataFrame:
    """Return how many times as long ANCE takes to its best, in seconds and in steps: medians, and ranges over seeds."""

    def text(each: pd.Series) -> str:
        whole = f"{each.min():.1f} to {each.max():.1f}" if len(each) > 1 else "one seed"
        return f"{each.median():.1f} ({whole})"

    rows = to_best(moments).dropna().groupby("documents")
    never = rows["outcome"].agg(lambda each: f"{(each == NEVER).sum()} of {len(each)}")
    return rows[RATIOS].agg(text).assign(**{"seeds in which LTRe is never as good": never})


def record(experiment: Experiment, train: Collection | None, moments: pd.DataFrame) -> None:
    """Record how good both get on validation questions of what trains them, and how long it takes.

    That is at the largest size of the corpus with every seed. Where ANCE is best before its first step there are no
    times. Seconds and steps of every row are those until ANCE's best. Nothing is recorded without data.
    """
    table, best = to_best(moments), moments.groupby(["documents", "seed", "system"])["score"].max()
    seeds = table.groupby("documents")["seed"].nunique()
    table = table[table["documents"] == seeds[seeds == seeds.max()].index.max()]
    for row, system in product(table.to_dict("records") if train else (), (ANCE, LTRE)):
        details = {"candidates": row["documents"], "seconds": row[system], "steps": row[f"{system} steps"]}
        values = {BEST: best[row["documents"], row["seed"], system]}
        values |= {} if row["outcome"] == NO_GAIN else {SECONDS: row[system]}
        for measure, value in values.items():
            experiment.record(system, train.name, measure, value, row["seed"], "dev", **details)


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
    largest = at_best(moments).query("outcome != @NO_GAIN")
    documents = largest["documents"].max()
    largest = largest[largest["documents"] == documents]
    ours = {name: part[DONE].mean().to_numpy() for name, part in largest.groupby("system")}
    # A quality that the start has already leaves no step of LTRe to measure: its whole training tells the rates.
    last = moments[moments["documents"] == documents].groupby(["system", "seed"]).tail(1)
    last = last.groupby("system").mean(numeric_only=True)
    last = last.assign(rest=last["seconds"] - last[ENCODING] - last[SEARCH])
    # Seconds for a query that is trained on, for a document that is encoded, for a query in each document searched.
    rates = last[["rest", ENCODING, SEARCH]] / last[DONE].to_numpy() / [1, documents, documents]
    rows, outcome = [], NEVER if (largest["outcome"] == NEVER).any() else REACHED
    for (name, work), size in product({OURS: ours, PAPERS: PAPER}.items() if ours else (), BEYOND):
        long, short = (work[system] * rates.loc[system].to_numpy() * [1, size, size] for system in (ANCE, LTRE))
        ratios = long.sum() / short.sum(), long.sum() / (short.sum() - short[1])
        # The paper's numbers of steps are what they are.
        rows.append((name, size, long.sum(), short.sum(), *ratios, outcome if name == OURS else REACHED))
    columns = ["steps", "documents", ANCE, LTRE, "ratio", "ratio without LTRe's encoding", "outcome"]
    return pd.DataFrame(rows, columns=columns)


def figure(moments: pd.DataFrame) -> Figure:
    """Return time to ANCE's best against the size of the corpus, measured and extrapolated; beside it, what takes it.

    A mark for each seed is open where LTRe's time is only known to be longer. Extrapolated steps are as measured; the
    ratio stands above ("<": an upper bound).
    """
    drawn, (left, right) = figures.styled(8.8, 5.4, 2)
    improved = to_best(moments).query("outcome != @NO_GAIN").set_index("documents")
    beyond = extrapolated(moments).query("steps == @OURS").set_index("documents")
    for system, style in figures.line_styles([ANCE, LTRE]).items():
        mean, is_bound = improved.groupby("documents")[system].mean(), (improved["outcome"] == NEVER) & (system == LTRE)
        left.plot(mean, color=style["color"])
        dashed = {"linestyle": "--", "color": style["color"], "label": f"{system}, extrapolated"}
        left.plot(pd.concat([mean.tail(1), beyond[system]]), **dashed)
        for label, face, seeds in (
            ("measured", style["color"], improved[system][~is_bound]),
            ("whole training: never as good", "white", improved[system][is_bound]),
        ):
            if len(seeds):
                left.plot(seeds, label=f"{system}, {label}", markerfacecolor=face, **style | {"linestyle": "none"})
    for row in beyond.itertuples():
        ratio = f"{'' if row.outcome == REACHED else '< '}{row.ratio:.1f} times"
        left.annotate(ratio, (row.Index, row.ANCE), (-4, 6), textcoords="offset points", fontsize=8, ha="right")
    left.set(xlabel="documents", ylabel="seconds of training to ANCE's best dev RR@10")
    if improved.empty:
        left.set_title("ANCE is nowhere better than its start: no time to compare", fontsize=9)
    else:
        left.set(xscale="log", yscale="log")
    stacks = parts(moments)
    names = stacks.pop("system") + "\n" + stacks.pop("documents").map("{:,}".format)
    looks = {"color": figures.COLOURS[2:], "width": 0.8, "rot": 0, "fontsize": 8, "legend": False}
    stacks.set_axis(names).plot.bar(ax=right, stacked=True, **looks)
    right.set(ylabel="seconds, mean over seeds", xlabel="system, documents")
    return figures.legend(drawn, [left, right])
