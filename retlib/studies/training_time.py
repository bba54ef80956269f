"""LTRe and ANCE, trained from one model over a growing corpus and looked at on the way (Zhan 2020, section 6.4.1).

Quality is the reciprocal rank of dev queries among all documents. A time is that of training alone, measured
whole; evaluations are left out of it. What follows from these measurements is in `retlib.studies.time_to_quality`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.pairs import pairs_in_batch, rows_of_step
from retlib.retrieval import index as indexes
from retlib.retrieval.index import Index
from retlib.studies.ltre_study import Study
from retlib.systems import ltre
from retlib.systems.dense import Retriever
from retlib.systems.ltre import DEV, LTRE, NEGATIVES, Method, Setting
from retlib.systems.ranking import Ranking
from retlib.training.dynamics import CUT, reciprocal_rank
from retlib.training.trainer import History, RetrievalTask, train

START, ANCE = "BM25 Neg", "ANCE"
MODULES = (*ltre.MODULES, sys.modules[__name__])
ENCODING = "encoding corpus"  # as asynchronous negatives call this part of their time


# --- a growing corpus ------------------------------------------------------------------------------


def distractors(collection: Collection, sources: Iterable[str], count: int) -> pd.DataFrame:
    """The first passages of some sources of articles, outside the first sections, that the collection has not.

    First sections are left out because documents or queries of some collections are made of them.

    Raises
    ------
    DataError
        If there are fewer than `count`.
    """
    known = set(collection.documents["text"])
    found = pd.DataFrame(islice(_passages(sources, known), count), columns=["title", "text"])
    wrong = f"{', '.join(sources)} give {len(found)} passages that {collection.name!r} has not, not {count}"
    require(len(found) == count, wrong, DataError)
    return found.set_axis([f"added-{i}" for i in range(count)])


def _passages(sources: Iterable[str], known: set[str]) -> Iterator[tuple[str, str]]:
    for article in chain.from_iterable(map(datasets.articles, sources)):
        for passage in article.passages[article.opening :]:
            if passage not in known:
                known.add(passage)
                yield article.title, passage


def grown(collection: Collection, added: pd.DataFrame, size: int) -> Collection:
    """A collection with so many documents in all: its own, then the first of those that are added, none relevant.

    Raises
    ------
    DataError
        If the collection alone has more.
    """
    documents = collection.documents
    wrong = f"{collection.name!r} has {len(documents)} documents, more than {size}"
    require(len(documents) <= size, wrong, DataError)
    columns = [name for name in ("title", "text") if name in documents]
    whole = pd.concat([documents[columns], added[columns].iloc[: size - len(documents)]])
    return replace(collection, name=f"{collection.name}, {size}", documents=whole.rename_axis("doc_id"))


# --- measuring -------------------------------------------------------------------------------------


@dataclass
class Corpus:
    """The index of the documents that a training searches, and what the training owes for it.

    An evaluation needs the documents as the weights of that moment encode them, and so does the
    refresh that follows with the same weights: they are encoded once, outside of the training
    time, and the refresh pays for it.

    Parameters
    ----------
    make : callable
        Encodes the documents with the current weights and indexes them.
    index : Index
        As the start encodes them.
    seconds : float
        That making `index` took.
    owed : float
        Seconds that the training has to pay so far, for so many `encodings`.
    """

    make: Callable[[], Index]
    index: Index
    seconds: float
    owed: float = 0.0
    encodings: int = 0

    def renew(self) -> None:
        """Encode the documents anew."""
        with runtime.Stopwatch() as watch:
            self.index = self.make()
        self.seconds = watch.seconds

    def take(self) -> Index:
        """The index, for the training."""
        self.owed += self.seconds
        self.encodings += 1
        return self.index


def measured(start: Retriever, ranking: Ranking, method: Method, seed: int) -> pd.DataFrame:
    """Train, and see how good and how old the training is at each of its evaluations; made once.

    Parameters
    ----------
    start : Retriever
    ranking : Ranking
    method : Method
        LTRe, or asynchronous ANN that trains both encoders and is evaluated when it refreshes.
    seed : int

    Returns
    -------
    DataFrame
        A row for each evaluation: `step`; `score`, RR@10 of up to 500 dev queries among all
        documents; `seconds` of training so far and of its parts; and what was done in them:
        `queries` that were trained on, `encodings` of the corpus, `searches` of a query.
    """
    settings = {
        "start": start.name or start.fingerprint, **ranking.address, "method": method.address, "seed": seed,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        _train(start, ranking, method, seed).to_parquet(folder / "moments.parquet")

    return pd.read_parquet(cache.artefact("training-time", settings, MODULES, make) / "moments.parquet")


def _train(start: Retriever, ranking: Ranking, method: Method, seed: int) -> pd.DataFrame:
    retriever, module = ltre.students(start, method.trained)
    encode, encode_documents = (
        ltre.evaluating(module, side) for side in (retriever.encode_queries, retriever.encode_documents)
    )
    vectors, seconds = _encoded(start, ranking)
    corpus = _corpus(method, vectors, seconds, lambda: encode_documents(ranking.benchmark.documents))
    judged = ranking.judged("train", vectors if method.trained == "query" else None)
    setting = Setting(ranking, judged, method, seed, encode, corpus.take)
    task = RetrievalTask(module, NEGATIVES[method.negatives](setting), method.loss)
    score, seen = _dev_score(ranking, corpus, encode), []

    def validate() -> float:
        if method.trained == "both" and seen:
            corpus.renew()
        seen.append({"encodings": corpus.encodings, **task.parts, ENCODING: corpus.owed})
        return score()

    label = f"{method.negatives}, {len(vectors)} documents, seed {seed}"
    # Without checkpoints: what is timed whole is trained in one go.
    history = train(task, method.settings(), validate, seed, None, label)
    return _moments(history, seen, method, len(judged), seed)


def _corpus(method: Method, vectors: np.ndarray, seconds: float, encode: Callable[[], np.ndarray]) -> Corpus:
    """The corpus of a training, as the start encoded it in so many seconds."""
    build = partial(indexes.build, method.index, search=method.search)
    with runtime.Stopwatch() as watch:
        index = build(vectors)
    return Corpus(lambda: build(encode()), index, seconds + watch.seconds)


def _encoded(start: Retriever, ranking: Ranking) -> tuple[np.ndarray, float]:
    """The start's encodings of all documents, and the seconds that they took; made once for both methods."""
    settings = {"start": start.name or start.fingerprint, **ranking.address, "threads": runtime.threads()}

    def make(folder: Path) -> None:
        with runtime.Stopwatch() as watch:
            vectors = ltre.evaluating(start.model, start.encode_documents)(ranking.benchmark.documents)
        save_file({"vectors": vectors, "seconds": np.array([watch.seconds])}, folder / "vectors.safetensors")

    found = load_file(cache.artefact("timed-vectors", settings, MODULES, make) / "vectors.safetensors")
    return found["vectors"], float(found["seconds"][0])


def _dev_score(ranking: Ranking, corpus: Corpus, encode: Callable) -> Callable[[], float]:
    """Reciprocal rank of some dev queries among all documents, as a function of the weights."""
    judged = ranking.judged("dev")
    chosen = np.random.default_rng(0).permutation(len(judged))[:DEV]
    queries = judged.queries.take(chosen)
    return lambda: reciprocal_rank(judged.hits(chosen, corpus.index.search(encode(queries), CUT)[1]))


def _moments(history: History, seen: list[dict], method: Method, count: int, seed: int) -> pd.DataFrame:
    """What was seen at the evaluations, with what the training owes for encoding the corpus."""
    moments = pd.concat([history.frame().drop(columns="loss"), pd.DataFrame(seen)], axis=1).fillna(0.0)
    moments["seconds"] += moments[ENCODING]
    moments["queries"] = moments["step"] * pairs_in_batch(count, method.batch_size)
    moments["searches"] = [_searches(method, count, seed, step) for step in moments["step"]]
    return moments


def _searches(method: Method, count: int, seed: int, steps: int) -> int:
    """Queries that a training searches for in its first steps: each at its own step, or once for an interval."""
    rows = [rows_of_step(count, method.batch_size, seed, step) for step in range(steps)]
    if method.negatives == LTRE:
        return sum(map(len, rows))
    return sum(
        len(np.unique(np.concatenate(rows[since : since + method.interval])))
        for since in range(0, steps, method.interval)
    )


def methods(study: Study, refreshes: int, looks: int) -> dict[str, Method]:
    """Both trainings: ANCE's is evaluated whenever it refreshes and at the end, LTRe's `looks` times.

    ANCE takes as many steps as there are between so many refreshes.
    """
    interval = study.both.interval
    return {
        ANCE: study.method("Async ANN", steps=refreshes * interval, evaluations=refreshes),
        LTRE: study.method(LTRE, evaluations=looks),
    }


def seeds_of(sizes: Sequence[int], seeds: Sequence[int]) -> dict[int, list[int]]:
    """Size to the seeds that it is measured with: all; of several sizes the largest, one alone."""
    return {size: list(seeds[:1] if size == max(sizes) != min(sizes) else seeds) for size in sorted(sizes)}


def moments(
    study: Study, sources: Sequence[str], sizes: Sequence[int], trainings: dict[str, Method], seeds: Sequence[int]
) -> pd.DataFrame:
    """What `measured` sees of every training: `documents`, `seed` and `system` stand before it."""
    own = study.ranking.collection
    added = distractors(own, sources, max(0, max(sizes) - len(own.documents)))
    lengths, parts = (study.architecture.query_length, study.architecture.document_length), []
    for size, chosen in seeds_of(sizes, seeds).items():
        ranking = Ranking.tokenize(grown(own, added, size), study.prepared[0], *lengths)
        for seed in runtime.progress(chosen, desc=f"{size} documents", unit="seed"):
            start = study.retriever(START, seed)
            for system, method in trainings.items():
                found = measured(start, ranking, method, seed)
                parts.append(found.assign(documents=size, seed=seed, system=system))
    whole = pd.concat(parts, ignore_index=True).fillna(0.0)
    first = ["documents", "seed", "system"]
    return whole[first + [name for name in whole if name not in first]]
