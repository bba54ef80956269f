"""Models that score a query with a document, and re-rank what a first stage found (Nogueira and Cho 2019)."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.pairs import LabelledQueries
from retlib.data.text import TokenTable, WordPiece, concatenate, constant
from retlib.models import maxsim
from retlib.models.transformer import Transformer
from retlib.retrieval import runs
from retlib.retrieval.lexical import LexicalSystem
from retlib.systems import dense
from retlib.systems import ranking as rankings
from retlib.systems.dense import CONFIG, Architecture, Retriever, Schedule
from retlib.systems.ranking import Ranking
from retlib.training import hard_negatives, losses
from retlib.training.hard_negatives import TopNegatives
from retlib.training.negatives import Batch
from retlib.training.trainer import History, Task, train

# Whose source takes part in the address of what is made here.
MODULES = (*dense.MODULES, maxsim, hard_negatives, rankings, runs, sys.modules[__name__])

# Pairs that are scored in one call.
BLOCK = 512
# Results of each query that negatives are drawn from.
LISTED = 50
# Validation queries, and the candidates of each that they are validated on: reading is slow.
QUERIES, CANDIDATES = 100, 20


class CrossEncoder(nn.Module):
    """BERT over query, [SEP] and document (Nogueira and Cho 2019), whose units are then compared.

    Scored by `retlib.models.maxsim.score`; the vectors are those of query and document read together.

    Parameters
    ----------
    encoder : Transformer
        Of a retriever; its BERT is trained in place, under a linear layer of its own.
    wordpiece : WordPiece
        Of the token tables.

    Notes
    -----
    The paper's BERT, pre-trained on billions of words, reads a logit off [CLS]. Similarities of jointly read units
    are what MacAvaney, Yates, Cohan and Goharian (2019) rank by; here, as in ColBERT, the best of each unit of the
    query counts. There are no embeddings of the two parts: the separator alone tells them apart. What is longer than
    the model takes is cut off at the end of the document.
    """

    def __init__(self, encoder: Transformer, wordpiece: WordPiece) -> None:
        super().__init__()
        self.encoder = Transformer(encoder.bert, wordpiece, maxsim.DIMENSION)
        self._separator = wordpiece.sep

    def forward(self, queries: TokenTable, documents: TokenTable) -> Tensor:
        """Score B queries with B * n documents, n to each: shape (B, n)."""
        each = queries.take(np.repeat(np.arange(len(queries)), len(documents) // len(queries)))
        pieces = [each.segment, constant(self._separator, len(documents)), documents.segment]
        table = concatenate(pieces, self.encoder.longest)
        units = maxsim.vectors(self.encoder, self.encoder.states(table))
        asked, found = np.minimum(each.lengths, table.lengths), np.maximum(table.lengths - each.lengths - 1, 0)
        row = np.repeat(np.arange(len(table)), table.lengths)
        place = np.arange(len(row)) - table.offsets[row]
        left, right = (
            units[torch.from_numpy(np.flatnonzero(inside)).to(units.device)]
            for inside in (place < each.lengths[row], place > each.lengths[row])
        )
        return maxsim.score(left, asked, right, found).view(len(queries), -1)


@dataclass(frozen=True)
class Lesson:
    """How a model that scores pairs is trained.

    Parameters
    ----------
    schedule : Schedule
        Its batches are of queries, and its chunks are not used.
    negatives : int
        Beside the relevant document of each query.
    loss : str
        One of `retlib.training.losses.names()`, over the documents of a query.

    Raises
    ------
    SettingError
        If there are no negatives, the loss is not known, or the schedule asks for what is not done here.
    """

    schedule: Schedule
    negatives: int = 7
    loss: str = "softmax"

    def __post_init__(self) -> None:
        require(self.negatives >= 1, f"negatives = {self.negatives}: at least 1 is needed")
        losses.get(self.loss)
        whole = self.schedule.chunk is None and not self.schedule.corrected
        require(whole, "models that read pairs are trained without chunks and without correction")


@dataclass(eq=False)
class PairTask(Task):
    """A model of pairs, the documents that each query sees, and a loss over them.

    Parameters
    ----------
    module : Module
        From B queries and B * n documents to scores (B, n).
    negatives : object
        With a method ``batch(step) -> Batch``, of documents of their own to each query.
    loss_name : str
        One of `retlib.training.losses.names()`.
    """

    module: nn.Module
    negatives: Any
    loss_name: str

    def batch(self, step: int) -> Batch:
        """The batch of a step."""
        return self.negatives.batch(step)

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        scores = self.module(batch.queries, batch.documents).float()
        return losses.get(self.loss_name)(scores, batch.targets.to(scores.device))


@dataclass(eq=False)
class Ranker:
    """A trained model of pairs, with what it takes to use it.

    Parameters
    ----------
    model : Module
        See `PairTask`.
    wordpiece : WordPiece
    architecture : Architecture
        Of the retriever that it starts from; its lengths apply.
    history : History
    name : str
        The address of the artefact.
    """

    model: nn.Module
    wordpiece: WordPiece
    architecture: Architecture
    history: History = field(default_factory=History)
    name: str = ""

    @property
    def parameters(self) -> int:
        """How many weights it has, embeddings included."""
        return sum(weight.numel() for weight in self.model.parameters())

    def tokenize(self, collection: Collection) -> Ranking:
        """A collection's queries and documents as this model reads them."""
        lengths = self.architecture.query_length, self.architecture.document_length
        return Ranking.tokenize(collection, self.wordpiece, *lengths)

    @torch.no_grad()
    def scores(self, queries: TokenTable, documents: TokenTable) -> np.ndarray:
        """The score of each query with the document in the same row: float32, shape (rows,)."""
        scores = np.empty(len(queries), dtype=np.float32)
        order = np.argsort(queries.lengths + documents.lengths, kind="stable")  # like lengths need little padding
        with runtime.autocast("bfloat16"):
            for start in range(0, len(order), BLOCK):
                rows = order[start : start + BLOCK]
                found = self.model(queries.take(rows), documents.take(rows))
                scores[rows] = found[:, 0].float().cpu().numpy()
        return scores

    def order(self, query: TokenTable, documents: TokenTable, rows: np.ndarray) -> np.ndarray:
        """These rows of the documents, in the order of their scores with the one query, best first."""
        if not len(rows):
            return rows
        queries = query.take(np.zeros(len(rows), dtype=np.int64))
        return rows[np.argsort(-self.scores(queries, documents.take(rows)), kind="stable")]

    def save(self, folder: Path) -> None:
        """Write vocabulary, weights, architecture and history."""
        self.wordpiece.save(folder / "vocab.txt")
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.named_parameters()}
        save_file(weights, folder / "model.safetensors")
        self.model.encoder.bert.config.to_json_file(folder / CONFIG)
        meta = {"architecture": asdict(self.architecture), "history": asdict(self.history)}
        (folder / "ranker.json").write_text(json.dumps(meta))

    @classmethod
    def load(cls, folder: Path, kind: type[nn.Module]) -> Ranker:
        """Read what `save` wrote of a model of that kind."""
        meta, wordpiece = json.loads((folder / "ranker.json").read_text()), WordPiece.load(folder / "vocab.txt")
        architecture, history = Architecture(**meta["architecture"]), History(**meta["history"])
        model = kind(architecture.build(wordpiece, folder / CONFIG).query_encoder, wordpiece)
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)  # buffers are not in the file
        return cls(model.to(runtime.device()).eval(), wordpiece, architecture, history, folder.name)


# --- training --------------------------------------------------------------------------------------


def listed(system: LexicalSystem, ranking: Ranking) -> pd.DataFrame:
    """A lexical system's best results for the training and validation queries: what `fit` learns from."""
    queries = ranking.collection.queries
    return system.rank(ranking.texts, queries["text"][queries["split"] != "test"], LISTED)


def fit(
    start: Retriever,
    collection: Collection,
    run: pd.DataFrame,
    lesson: Lesson,
    seed: int,
    kind: type[nn.Module] = CrossEncoder,
) -> Ranker:
    """Train a model of pairs on a collection's training queries, or find it trained.

    Parameters
    ----------
    start : Retriever
        Whose query encoder, a Transformer, the model starts from. Its lengths apply.
    collection : Collection
    run : DataFrame
        Of the training and validation queries, by the system whose results are the negatives.
    lesson : Lesson
    seed : int
        Of what is new in the model, and of the batches.
    kind : type
        The model: made from a Transformer and its vocabulary.

    Raises
    ------
    DataError
        If the run has no training or no validation query that has a relevant document.
    SettingError
        If `start` is no Transformer.

    Notes
    -----
    The weights that are kept are the best on `QUERIES` validation queries, no more than training sees, by
    the reciprocal rank of their first relevant document among the first `CANDIDATES` of the run.
    """
    require(start.architecture.encoder == "transformer", "a model of pairs starts from encoder = 'transformer'")
    settings = {
        "kind": kind.__name__, "start": start.name or start.fingerprint, "collection": collection.fingerprint,
        "run": runs.digest(run), "lesson": asdict(lesson), "seed": seed, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        ranker = _fresh(start, kind, seed)
        ranking = ranker.tokenize(collection)
        judged, lists = _listed(ranking, run, "train")
        sampler = TopNegatives(judged, lesson.schedule.batch_size, seed, lesson.negatives, lists)
        task = PairTask(ranker.model, sampler, lesson.loss)
        most = min(QUERIES, lesson.schedule.seen)
        validate = _validation(ranker, *_listed(ranking, run, "dev"), most)
        label = f"{kind.__name__} {collection.name} seed {seed}"
        ranker.history = train(task, lesson.schedule.settings(), validate, seed, folder, label)
        ranker.save(folder)

    folder = cache.artefact("ranker", settings, (*MODULES, sys.modules[kind.__module__]), make)
    return Ranker.load(folder, kind)


def _fresh(start: Retriever, kind: type[nn.Module], seed: int) -> Ranker:
    """A model made from a copy of the query encoder."""
    runtime.set_seeds(seed)
    model = kind(copy.deepcopy(start.model.query_encoder), start.wordpiece).to(runtime.device())
    return Ranker(model, start.wordpiece, start.architecture)


def _listed(ranking: Ranking, run: pd.DataFrame, split: str) -> tuple[LabelledQueries, np.ndarray]:
    """A split's queries that the run has and that have a relevant document; and its list for each, -1 where shorter."""
    ids, relevant = ranking.relevant(split)
    listed = np.flatnonzero(ids.isin(run["query_id"]))
    wrong = f"the run has no {split} query of {ranking.collection.name!r} that has a relevant document"
    require(len(listed) > 0, wrong, DataError)
    ids = ids[listed]
    judged = LabelledQueries(ranking.queries(ids), relevant.take(listed), ranking.benchmark.documents)
    return judged, runs.lists(run, ids, ranking.collection.documents.index)


def _validation(ranker: Ranker, judged: LabelledQueries, lists: np.ndarray, most: int) -> Callable[[], float]:
    """Mean reciprocal rank of at most so many re-ranked validation lists, as a function of the weights."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(judged))[:most])
    lists = lists[chosen, :CANDIDATES]
    place, column = np.nonzero(lists >= 0)
    queries, documents = judged.queries.take(chosen[place]), judged.documents.take(lists[place, column])
    hits = judged.hits(chosen, lists)

    def score() -> float:
        scores = np.full(lists.shape, -np.inf, dtype=np.float32)
        scores[place, column] = ranker.scores(queries, documents)
        best = np.where(hits, scores, -np.inf).max(axis=1, keepdims=True)
        # Ties count against the model, and so do scores that are no numbers.
        rank = 1 + (~(scores < best) & ~hits & (lists >= 0)).sum(axis=1)
        return float(np.where(hits.any(axis=1), 1 / rank, 0).mean())

    return score


# --- ranking ---------------------------------------------------------------------------------------


def rerank(run: pd.DataFrame, depth: int, ranker: Ranker, collection: Collection) -> pd.DataFrame:
    """A run whose first results are put into the order of a model of pairs; made once.

    Parameters
    ----------
    run : DataFrame
        Of queries and documents of the collection.
    depth : int
        Results of each query that the model reads.
    ranker : Ranker
        Trained: it has a name.

    Returns
    -------
    DataFrame
        As `retlib.retrieval.runs.reordered` returns it.
    """
    require(ranker.name != "", "only a trained model can be asked for a run", DataError)
    settings = {
        "ranker": ranker.name, "collection": collection.fingerprint, "run": runs.digest(run), "depth": depth,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        ranking, first = ranker.tokenize(collection), run[runs.places(run) < depth]
        queries, documents = ranking.queries(first["query_id"]), ranking.documents(first["doc_id"])
        runs.reordered(run, depth, ranker.scores(queries, documents)).to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", settings, MODULES, make) / "run.parquet")
