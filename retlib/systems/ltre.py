"""Retrievers that are trained on what a ranking of all documents finds (Zhan 2020).

All methods are one training: they differ in their negatives, in the loss, and in what is trained. As in
`retlib.systems.dense`, what was trained is kept as an artefact: asking twice trains once, whichever notebook asks.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file, save_file

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.data.pairs import LabelledQueries
from retlib.data.text import TokenTable
from retlib.evaluation import measures
from retlib.models.encoders import DualEncoder
from retlib.retrieval import index as indexes
from retlib.retrieval import lexical, runs
from retlib.retrieval.index import EXACT, Index
from retlib.retrieval.runs import make_run
from retlib.systems import dense
from retlib.systems import ranking as rankings
from retlib.systems.dense import Retriever
from retlib.systems.ranking import Ranking
from retlib.training import dynamics, hard_negatives
from retlib.training.dynamics import CUT, Dynamics, Watching, reciprocal_rank
from retlib.training.hard_negatives import (
    HardestInBatch,
    InBatchJudged,
    MixedNegatives,
    RandomNegatives,
    Retrieved,
    Sampler,
    StaleNegatives,
    TopNegatives,
)  # fmt: skip
from retlib.training.trainer import History, RetrievalTask, TrainingSettings, train

TRAINED = ("query", "both")
LTRE = "LTRe"
# Losses that take one positive of a query, where LTRe may retrieve several.
ONE_POSITIVE = ("softmax", "triplet")

# Whose source takes part in the address of what is made here.
MODULES = (*dense.MODULES, dynamics, indexes, lexical, hard_negatives, rankings, sys.modules[__name__])


# --- methods ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How to train.

    Parameters
    ----------
    negatives : str
        One of `NEGATIVES`.
    steps : int
    trained : {"query", "both"}
        The query encoder alone, over the documents as the start encodes them; or both, as one
        where the start has one for both sides.
    loss : str
        One of `retlib.training.losses.names()`.
    optimizer : str
        One of `retlib.training.optimizers.OPTIMIZERS`.
    learning_rate : float
        Its highest value: it rises over a share `warmup` of the steps and falls linearly to 0.
    batch_size : int
        Queries of a step.
    n : int
        Documents that LTRe retrieves; else negatives of a query.
    depth : int
        Of the lists that negatives are drawn from; 200 in the paper.
    interval : int
        Steps between two refreshes of asynchronous lists.
    index : str
        Factory of the index that is searched in training; see `retlib.retrieval.index.build`.
    search : mapping
        Its search parameters.
    warmup : float
    evaluations : int
        How often the dev queries are looked at.
    precision : {"float32", "bfloat16"}
    """

    negatives: str
    steps: int
    trained: str = "query"
    loss: str = "ranknet"
    optimizer: str = "adamw"
    learning_rate: float = 1e-4
    batch_size: int = 64
    n: int = 1
    depth: int = 200
    interval: int = 200
    index: str = EXACT
    search: Mapping[str, float] = field(default_factory=dict)
    warmup: float = 0.1
    evaluations: int = 4
    precision: str = "bfloat16"

    def __post_init__(self) -> None:
        require_one_of("negatives", self.negatives, NEGATIVES)
        require_one_of("trained", self.trained, TRAINED)
        for name in ("steps", "batch_size", "n", "depth", "interval", "evaluations"):
            require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: at least 1 is needed")
        if self.negatives == LTRE:
            require(self.trained == "query", f"{LTRE} trains the query encoder alone: its documents are indexed before")
            several = f"loss = {self.loss!r} takes one positive of a query; {LTRE} may retrieve several"
            require(self.loss not in ONE_POSITIVE, several)

    @property
    def address(self) -> dict[str, Any]:
        """What of it takes part in the address of an artefact: of `OPTIONS`, those that it uses.

        Where the query encoder alone is trained, dev queries are searched in the index, whatever the negatives.
        """
        used = {*NEGATIVES[self.negatives].uses, *(INDEXED if self.trained == "query" else ())}
        return {name: value for name, value in asdict(self).items() if name not in OPTIONS or name in used}

    def settings(self) -> TrainingSettings:
        """The loop's settings: the last weights are kept, as a few dev queries do not tell negatives apart."""
        return TrainingSettings(
            steps=self.steps,
            evaluate_every=-(-self.steps // self.evaluations),
            patience=self.steps + 1,  # it never stops early
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            precision=self.precision,
            warmup=self.warmup,
            decay=True,
            keep="last",
        )


@dataclass(frozen=True, eq=False)
class Setting:
    """What a sampler is made of.

    Parameters
    ----------
    ranking : Ranking
    judged : LabelledQueries
        Its training queries.
    method : Method
    seed : int
    encode : callable
        Of queries, with the current weights.
    index : callable
        The index of the documents; where these are trained too, with the current weights.
    """

    ranking: Ranking
    judged: LabelledQueries
    method: Method
    seed: int
    encode: Callable[[TokenTable], np.ndarray]
    index: Callable[[], Index]

    @property
    def common(self) -> tuple[LabelledQueries, int, int]:
        """What every sampler takes."""
        return self.judged, self.method.batch_size, self.seed

    @property
    def bm25(self) -> np.ndarray:
        """BM25's lists of the training queries."""
        return self.ranking.bm25("train", self.method.depth)


def _half_and_half(s: Setting) -> MixedNegatives:
    half, odd = divmod(s.method.n, 2)
    require(odd == 0, f"n = {s.method.n}: a mixture of equal parts needs an even number")
    return MixedNegatives(TopNegatives(*s.common, half, s.bm25), RandomNegatives(*s.common, half))


def _asynchronous(s: Setting) -> StaleNegatives:
    return StaleNegatives(*s.common, s.method.n, s.encode, s.index, s.method.interval, s.method.depth)


@dataclass(frozen=True)
class Negatives:
    """A kind of negatives: makes their sampler.

    Parameters
    ----------
    make : callable
    uses : tuple of str
        Which of `OPTIONS` it depends on, and "lexical" where it depends on BM25.
    """

    make: Callable[[Setting], Sampler]
    uses: tuple[str, ...] = ()

    def __call__(self, setting: Setting) -> Sampler:
        return self.make(setting)


# The settings of a `Method` that some negatives use and others do not; the index is two of them.
INDEXED = ("index", "search")
OPTIONS = ("n", "depth", "interval", *INDEXED)

# The rivals of section 5.2.2 and LTRe. "In-batch" is none of them: the usual way to warm up.
NEGATIVES = {
    "In-batch": Negatives(lambda s: InBatchJudged(*s.common)),
    "Rand Neg": Negatives(lambda s: RandomNegatives(*s.common, s.method.n), ("n",)),
    "BM25 Neg": Negatives(lambda s: TopNegatives(*s.common, s.method.n, s.bm25), ("n", "depth", "lexical")),
    "NCE Neg": Negatives(lambda s: HardestInBatch(*s.common)),
    "BM25 + Rand Neg": Negatives(_half_and_half, ("n", "depth", "lexical")),
    "Async ANN": Negatives(_asynchronous, OPTIONS),
    LTRE: Negatives(lambda s: Retrieved(*s.common, s.index(), s.method.n), ("n", *INDEXED)),
}


# --- training --------------------------------------------------------------------------------------


def fit(start: Retriever, ranking: Ranking, method: Method, seed: int, watch: Watching | None = None) -> Retriever:
    """Train a retriever by ranking, or find it trained.

    Parameters
    ----------
    start : Retriever
        The warm-up. It has read the collection with the vocabulary and lengths of `ranking`.
    ranking : Ranking
    method : Method
    seed : int
        Of the order of the queries and of what is drawn for them.
    watch : Watching, optional
        Look at every step, see `retlib.training.dynamics`; into `Retriever.history.watched`. For a
        method that trains the query encoder alone.

    Returns
    -------
    Retriever
        With the weights of the last step; its history has scores on dev queries. If only the
        query encoder was trained it has two towers.
    """
    require(watch is None or method.trained == "query", "only a training of the query encoder can be watched")
    uses_bm25 = watch is not None or "lexical" in NEGATIVES[method.negatives].uses
    settings = {
        "start": start.name or start.fingerprint, **ranking.address, "method": method.address,
        "lexical": ranking.lexical.settings if uses_bm25 else {}, "watch": asdict(watch) if watch else {},
        "seed": seed, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        retriever, module = students(start, method.trained)
        setting = _setting(start, retriever, module, ranking, method, seed)
        task = RetrievalTask(module, NEGATIVES[method.negatives](setting), method.loss)
        looking = _looking(setting, watch) if watch else None
        label = f"{method.negatives} seed {seed}"
        validate = _validation(setting, retriever)
        retriever.history = train(task, method.settings(), validate, seed, folder, label, looking)
        if looking is not None and watch.followed:
            looking.follow(method.steps)
            save_file({name: values.numpy() for name, values in looking.paths.items()}, folder / PATHS)
        retriever.save(folder)

    return Retriever.load(cache.artefact(KIND, settings, MODULES, make))


def standing(start: Retriever, ranking: Ranking, method: Method, seed: int, watch: Watching) -> list[dict]:
    """What a watch sees of a retriever that is not trained, on the queries of a training's steps."""
    retriever, module = students(start, "query")
    setting = _setting(start, retriever, module, ranking, replace(method, trained="query"), seed)
    looking, sampler = _looking(setting, watch), NEGATIVES[method.negatives](setting)
    seen = ((step, looking(step, sampler.batch(step))) for step in range(method.steps))
    return [{"step": step, **found} for step, found in seen if found is not None]


KIND, PATHS = "ranked", "paths.safetensors"


def paths(retriever: Retriever) -> tuple[np.ndarray, np.ndarray]:
    """How the queries moved that a watched training followed: steps (T,), and encodings (T, F, d)."""
    path = runtime.cache_dir() / KIND / retriever.name / PATHS
    followed = retriever.name != "" and path.exists()
    require(followed, "no queries were followed in the training of this retriever", DataError)
    found = load_file(path)
    return found["steps"], found["encodings"]


def parts(history: History) -> pd.Series:
    """Seconds of a training in its parts; the last is what the others leave: the optimizer's step."""
    rest = history.seconds - sum(history.parts.values())
    return pd.Series({**history.parts, "optimizer": rest}, name="seconds")


def students(start: Retriever, trained: str) -> tuple[Retriever, DualEncoder]:
    """A retriever with weights of its own, and what of it is trained."""
    if trained == "both":
        retriever = replace(start, model=copy.deepcopy(start.model), history=History(), name="")
        return retriever, retriever.model
    given = start.model
    student = DualEncoder(copy.deepcopy(given.query_encoder), similarity=given.similarity).to(runtime.device())
    student.alpha, student.beta = copy.deepcopy(given.alpha), copy.deepcopy(given.beta)
    towers = DualEncoder(student.query_encoder, given.document_encoder, given.similarity)
    towers.alpha, towers.beta = student.alpha, student.beta
    architecture = replace(start.architecture, towers="two")
    return Retriever(architecture, start.wordpiece, towers, History()), student


def _setting(
    start: Retriever, retriever: Retriever, module: torch.nn.Module, ranking: Ranking, method: Method, seed: int
) -> Setting:
    encode = evaluating(module, retriever.encode_queries)
    if method.trained == "query":
        judged = ranking.judged("train", encode_corpus(start, ranking))
        found = indexed(start, ranking, method.index, method.search)
        return Setting(ranking, judged, method, seed, encode, lambda: found)
    encode_documents = evaluating(module, retriever.encode_documents)

    def again() -> Index:
        return indexes.build(method.index, encode_documents(ranking.benchmark.documents), method.search)

    return Setting(ranking, ranking.judged("train"), method, seed, encode, again)


def evaluating(module: torch.nn.Module, encode: Callable[[TokenTable], np.ndarray]) -> Callable:
    """Encode without dropout in the midst of a training."""

    def quietly(table: TokenTable) -> np.ndarray:
        training = module.training
        module.eval()
        try:
            return encode(table)
        finally:
            module.train(training)

    return quietly


def _looking(setting: Setting, watch: Watching) -> Dynamics:
    lists = setting.ranking.bm25("train", watch.depth)
    followed = setting.ranking.queries(watch.followed)
    return Dynamics(*setting.common, setting.encode, setting.index(), lists, watch, followed)


# Dev queries that are looked at, and candidates beside their own that they are ranked against.
DEV, POOL = 500, 500


def _validation(setting: Setting, retriever: Retriever) -> Callable[[], float]:
    """Reciprocal rank of some dev queries, as a function of the weights.

    Among all documents, in the index of the training, if these stay as they are; else in a pool.
    """
    judged = setting.ranking.judged("dev", None if setting.method.trained == "both" else setting.judged.documents)
    chosen = np.random.default_rng(0).permutation(len(judged))[:DEV]
    queries = judged.queries.take(chosen)
    if setting.method.trained == "query":
        pool, search = np.arange(len(judged.documents)), setting.index().search
    else:
        own = np.unique(judged.relevant.take(chosen).ids)
        others = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(judged.documents)), own))
        pool = np.concatenate([own, others[:POOL]])
        table = judged.documents.take(pool)
        search = lambda encoded, k: indexes.build(EXACT, retriever.encode_documents(table)).search(encoded, k)  # noqa: E731

    def score() -> float:
        rows = search(retriever.encode_queries(queries), CUT)[1]
        return reciprocal_rank(judged.hits(chosen, np.where(rows < 0, -1, pool[rows])))

    return score


# --- ranking ---------------------------------------------------------------------------------------


def _of_documents(retriever: Retriever) -> str:
    """sha256 of what encodes documents: methods that train the query encoder alone share it with their start."""
    digest = hashlib.sha256(json.dumps(asdict(replace(retriever.architecture, towers="siamese"))).encode())
    for name, weight in sorted(retriever.model.document_encoder.state_dict().items()):
        digest.update(name.encode() + weight.cpu().numpy().tobytes())
    return digest.hexdigest()


def encode_corpus(retriever: Retriever, ranking: Ranking) -> np.ndarray:
    """Encodings of all documents, made once for each document encoder: float32, shape (D, d)."""
    settings = {"encoder": _of_documents(retriever), **ranking.address, "threads": runtime.threads()}

    def make(folder: Path) -> None:
        vectors = evaluating(retriever.model, retriever.encode_documents)(ranking.benchmark.documents)
        save_file({"vectors": vectors}, folder / "vectors.safetensors")

    folder = cache.artefact("vectors", settings, MODULES, make)
    return load_file(folder / "vectors.safetensors")["vectors"]


def indexed(
    retriever: Retriever, ranking: Ranking, factory: str = EXACT, search: Mapping[str, float] | None = None
) -> Index:
    """The index of all documents, made once; see `retlib.retrieval.index.build`."""
    search = dict(search or {})
    if factory == EXACT:
        return indexes.build(EXACT, encode_corpus(retriever, ranking), search)
    settings = {"encoder": _of_documents(retriever), **ranking.address, "factory": factory}

    def make(folder: Path) -> None:
        indexes.build(factory, encode_corpus(retriever, ranking)).save(folder)

    found = indexes.load(cache.artefact("index", settings, MODULES, make))
    found.set(**search)
    return found


def rank(
    retriever: Retriever,
    ranking: Ranking,
    split: str = "test",
    index: str = EXACT,
    depth: int = 1000,
    search: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The run of a split's queries against all documents, made once.

    Parameters
    ----------
    retriever : Retriever
        Trained: it has a name.
    ranking : Ranking
        Of any collection, as the retriever reads it.
    index, search
        See `indexed`.
    """
    require(retriever.name != "", "only a trained retriever can be asked for a run", DataError)
    settings = {
        "retriever": retriever.name, **ranking.address, "split": split, "index": index, "search": dict(search or {}),
        "depth": depth, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        ids = measures.held_out(ranking.collection, split)[0].index
        encoded = retriever.encode_queries(ranking.queries(ids))
        scores, rows = indexed(retriever, ranking, index, search).search(encoded, depth)
        run = make_run(ids, ranking.collection.documents.index, scores, rows)
        run.to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", settings, (*MODULES, runs), make) / "run.parquet")


def answering(retriever: Retriever, ranking: Ranking) -> Callable[[str, int], np.ndarray]:
    """What answers any question: from its text and k to the rows of the k best documents, best first."""
    index = indexed(retriever, ranking)
    return lambda text, k: index.search(retriever.encode_queries(retriever.tokenize([text])), k)[1][0]


def reorder(retriever: Retriever, ranking: Ranking, run: pd.DataFrame, depth: int = 100) -> pd.DataFrame:
    """The first documents of another system's run, in the retriever's order (Zhan 2020, Table 1, "Rerank").

    What lies deeper is left out, unlike in `retlib.retrieval.runs.reordered`.
    """
    documents, vectors = ranking.collection.documents.index, encode_corpus(retriever, ranking)
    head = run[runs.places(run) < depth]
    ids = pd.Index(head["query_id"].unique())
    encoded, rows = retriever.encode_queries(ranking.queries(ids)), runs.lists(head, ids, documents)
    # Query by query: all vectors at once would be as many as the run is long.
    scores = np.array([indexes.inner_products(vectors[row], query) for row, query in zip(rows, encoded, strict=True)])
    return make_run(ids, documents, scores, rows)
