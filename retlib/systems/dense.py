"""Two-tower retrievers over sub-word units: pre-training, fine-tuning, ranking (Chang 2020).

As in `retlib.systems.recipes`, a method is a choice of pairs x encoder x negatives x loss, and what
was trained is kept as an artefact: asking twice trains once, whichever notebook asks.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.data import collection, datasets, text
from retlib.data.collection import Collection
from retlib.data.pairs import Pairs
from retlib.data.text import TokenTable, WordPiece, concatenate, constant
from retlib.evaluation import measures
from retlib.models import transformer
from retlib.models.encoders import BagOfWordsMLP, DualEncoder, encode
from retlib.models.transformer import HEADS, POOLINGS, MaskedLanguageModel, Transformer
from retlib.retrieval import index, runs
from retlib.training import pretraining, trainer
from retlib.training.negatives import InBatch
from retlib.training.pretraining import Corpus, Masked, MaskedPassages, PretrainingPairs
from retlib.training.trainer import History, RetrievalTask, Task, TrainingSettings, train

ENCODERS = ("transformer", "bow-mlp")
TOWERS = ("siamese", "two")
MLM = "mlm"
CONFIG = "bert.json"

# Whose source takes part in the address of what is trained here.
MODULES = (*trainer.MODULES, measures, pretraining, transformer, sys.modules[__name__])


@dataclass(frozen=True)
class Architecture:
    """What a retriever is made of.

    Parameters
    ----------
    encoder : {"transformer", "bow-mlp"}
    layers : int
        Of a Transformer.
    width : int
        Of its hidden states, or of the word embeddings of a BoW-MLP.
    dimension : int
        Of an encoding; 512 in the paper.
    pooling : {"mean", "cls"}
        Of a Transformer; the paper's is [CLS].
    towers : {"siamese", "two"}
        Whether both sides share one encoder. The paper's towers are two; they begin alike, as two copies of
        one BERT do (Liang 2020, section 4).
    query_length, document_length : int
        Units beyond these are cut off; 64 and 288 in the paper.
    checkpoint : str
        A folder or hub name of a pre-trained BERT, to start from; `layers` and `width` are then its own.
    head : {"linear", "tanh"}
        Of a Transformer: a linear layer alone, or with tanh behind it (Liang 2020).
    """

    encoder: str = "transformer"
    layers: int = 2
    width: int = 128
    dimension: int = 128
    pooling: str = "mean"
    towers: str = "siamese"
    query_length: int = 32
    document_length: int = 96
    checkpoint: str = ""
    head: str = "linear"

    def __post_init__(self) -> None:
        require_one_of("encoder", self.encoder, ENCODERS)
        require_one_of("towers", self.towers, TOWERS)
        require_one_of("pooling", self.pooling, POOLINGS)
        require_one_of("head", self.head, HEADS)
        require_positive(self, "layers", "width", "dimension", "query_length", "document_length")

    def build(self, wordpiece: WordPiece, config: Path | None = None) -> DualEncoder:
        """The model, its weights drawn from torch's generator; scores are inner products (section 2).

        `config` is a file that describes a BERT whose weights are not wanted.
        """
        query = self._encoder(wordpiece, config)
        document = copy.deepcopy(query) if self.towers == "two" else None
        return DualEncoder(query, document, similarity="dot")

    def _encoder(self, wordpiece: WordPiece, config: Path | None) -> torch.nn.Module:
        if self.encoder == "bow-mlp":
            return BagOfWordsMLP(len(wordpiece), self.width, self.dimension)
        head = {"dimension": self.dimension, "pooling": self.pooling, "head": self.head}
        if config:
            return Transformer.from_config(config, wordpiece, **head)
        if self.checkpoint:
            return Transformer.from_checkpoint(self.checkpoint, wordpiece, **head)
        return Transformer.from_scratch(wordpiece, self.layers, self.width, **head)


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Parameters
    ----------
    steps : int
    batch_size : int
        Pairs in a batch. The paper has 8192 in pre-training, 512 in fine-tuning.
    learning_rate : float
        Its highest value: it rises over a tenth of the steps and falls linearly to 0 (section 4.1).
    evaluations : int
        How often validation data are looked at; the best weights are kept.
    precision : {"float32", "bfloat16"}
    chunk : int, optional
        See `retlib.training.trainer.RetrievalTask`.
    corrected : bool
        See `retlib.training.negatives.InBatch`.
    """

    steps: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    evaluations: int = 4
    precision: str = "bfloat16"
    chunk: int | None = None
    corrected: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "steps", "batch_size", "learning_rate", "evaluations")
        require_one_of("precision", self.precision, runtime.PRECISIONS)

    @property
    def seen(self) -> int:
        """How many pairs training sees."""
        return self.steps * self.batch_size

    def settings(self) -> TrainingSettings:
        """The loop's settings."""
        return TrainingSettings(
            steps=self.steps,
            evaluate_every=math.ceil(self.steps / self.evaluations),
            patience=self.steps + 1,  # it never stops early
            optimizer="adam",
            learning_rate=self.learning_rate,
            precision=self.precision,
            warmup=0.1,
            decay=True,
        )


@dataclass(eq=False)
class Retriever:
    """A trained two-tower model with its vocabulary.

    Parameters
    ----------
    architecture : Architecture
    wordpiece : WordPiece
    model : DualEncoder
    history : History
    name : str
        The address of the artefact; "" of one that is not trained.
    """

    architecture: Architecture
    wordpiece: WordPiece
    model: DualEncoder
    history: History
    name: str = ""

    @classmethod
    def fresh(cls, architecture: Architecture, wordpiece: WordPiece, seed: int) -> Retriever:
        """Randomly initialized."""
        runtime.set_seeds(seed)
        return cls(architecture, wordpiece, architecture.build(wordpiece).to(runtime.device()), History())

    @property
    def fingerprint(self) -> str:
        """sha256 of architecture, vocabulary and weights."""
        digest = hashlib.sha256(json.dumps([asdict(self.architecture), self.wordpiece.tokens]).encode())
        for name, weight in sorted(self.model.named_parameters()):
            digest.update(name.encode() + weight.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def parameters(self) -> int:
        """How many weights it has, embeddings included."""
        return sum(weight.numel() for weight in self.model.parameters())

    def tokenize(self, queries: Sequence[str]) -> TokenTable:
        """Queries as this model reads them."""
        return concatenate([self.wordpiece.encode(queries).segment], self.architecture.query_length)

    def encode_queries(self, table: TokenTable) -> np.ndarray:
        """Encodings of queries, float32, shape (rows, d)."""
        return _encode(self.model.queries, table)

    def encode_documents(self, table: TokenTable) -> np.ndarray:
        """Encodings of documents, float32, shape (rows, d)."""
        return _encode(self.model.documents, table)

    def save(self, folder: Path) -> None:
        """Write vocabulary, weights, architecture and history."""
        self.wordpiece.save(folder / "vocab.txt")
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.named_parameters()}
        save_file(weights, folder / "model.safetensors")
        if self.architecture.encoder == "transformer":
            self.model.query_encoder.bert.config.to_json_file(folder / CONFIG)
        meta = {"architecture": asdict(self.architecture), "history": asdict(self.history)}
        (folder / "retriever.json").write_text(json.dumps(meta))

    @classmethod
    def load(cls, folder: Path) -> Retriever:
        """Read what `save` wrote."""
        meta = json.loads((folder / "retriever.json").read_text())
        architecture, wordpiece = Architecture(**meta["architecture"]), WordPiece.load(folder / "vocab.txt")
        model = architecture.build(wordpiece, folder / CONFIG if (folder / CONFIG).exists() else None)
        # Shared weights are in the file once.
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        model, history = model.to(runtime.device()).eval(), History(**meta["history"])
        return cls(architecture, wordpiece, model, history, folder.name)


def _encode(side: Callable[[TokenTable], Tensor], table: TokenTable) -> np.ndarray:
    # Batches of texts of like length have little padding.
    order = np.argsort(table.lengths, kind="stable")
    with runtime.autocast("bfloat16"):
        encoded = encode(side, table.take(order), batch_size=512)
    back = np.empty_like(encoded)
    back[order] = encoded
    return back


# --- text ------------------------------------------------------------------------------------------


def prepare(source: str, units: int) -> tuple[WordPiece, Corpus]:
    """Tokenize a source of articles with a WordPiece vocabulary learned from it; made once.

    Parameters
    ----------
    source : str
        A name in `retlib.data.datasets.article_names()`.
    units : int
        Size of the vocabulary.
    """
    require_one_of("articles", source, datasets.article_names())
    settings = {"source": source, "units": units, **datasets.provenance(source)}

    def make(folder: Path) -> None:
        articles = runtime.progress(datasets.articles(source), desc=f"{source}: vocabulary")
        wordpiece = WordPiece.train((part for article in articles for part in article.passages), units)
        wordpiece.save(folder / "vocab.txt")
        articles = runtime.progress(datasets.articles(source), desc=f"{source}: articles")
        Corpus.build(articles, wordpiece, text.quick_sentences).save(folder / "corpus")

    folder = cache.artefact("corpus", settings, (collection, pretraining, text, datasets.reader(source)), make)
    return WordPiece.load(folder / "vocab.txt"), Corpus.load(folder / "corpus")


# The columns of documents that are read in two parts with a separator between.
TWO_PARTS = (("sentence", "context"), ("title", "text"))


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A collection, tokenized: a candidate of ReQA is sentence, separator and passage; another document
    is title, separator and text, or its text where it has no title.

    Parameters
    ----------
    collection : Collection
        Documents of ReQA have `sentence` and `context`.
    queries, documents : TokenTable
        A row for each query and each document.
    """

    collection: Collection
    queries: TokenTable
    documents: TokenTable

    @classmethod
    def tokenize(
        cls, collection: Collection, wordpiece: WordPiece, query_length: int, document_length: int
    ) -> Benchmark:
        """Tokenize a collection's queries and candidates, and cut them at so many units."""
        frame = collection.documents
        parts = next((pair for pair in TWO_PARTS if set(pair) <= set(frame.columns)), None)
        queries = concatenate([wordpiece.encode(collection.queries["text"]).segment], query_length)
        if parts:
            documents = candidates(frame[parts[0]], frame[parts[1]], wordpiece, document_length)
        else:
            documents = concatenate([wordpiece.encode(frame["text"]).segment], document_length)
        return cls(collection, queries, documents)

    def pairs(self, part: Collection, split: str) -> Pairs:
        """The queries of a split with the candidate that answers each; queries of one candidate are a group."""
        chosen = part.split(split)
        rows = self.collection.documents.index.get_indexer(chosen["cluster"])
        queries = self.queries.take(self.collection.queries.index.get_indexer(chosen.index))
        require(bool((rows >= 0).all()), f"{part.name!r} has answers that are no candidates here", DataError)
        _, group, counts = np.unique(rows, return_inverse=True, return_counts=True)
        log_shares = np.log(counts[group] / len(rows)).astype(np.float32)
        return Pairs(queries, self.documents.take(rows), groups=rows, log_shares=log_shares)


def candidates(sentences: Sequence[str], contexts: Sequence[str], wordpiece: WordPiece, length: int) -> TokenTable:
    """Candidates as token rows: sentence, separator, passage, cut at `length` units."""
    # A passage stands behind each of its sentences, and is tokenized once.
    places, distinct = pd.factorize(np.asarray(contexts, dtype=object))
    passages = wordpiece.encode(distinct).take(places)
    pieces = [wordpiece.encode(sentences).segment, constant(wordpiece.sep, len(places)), passages.segment]
    return concatenate(pieces, length)


# --- training --------------------------------------------------------------------------------------


@dataclass(eq=False)
class MaskedTask(Task):
    """Predict hidden units (Devlin et al. 2019).

    Parameters
    ----------
    module : MaskedLanguageModel
    passages : MaskedPassages
    batch_size, seed : int
    """

    module: MaskedLanguageModel
    passages: MaskedPassages
    batch_size: int
    seed: int

    def batch(self, step: int) -> Masked:
        """Passages with hidden units."""
        return self.passages.draw(step, self.batch_size, self.seed)

    def loss(self, batch: Masked) -> Tensor:
        """Mean cross-entropy over the hidden units."""
        logits = self.module(batch.inputs, batch.positions).float()
        return F.cross_entropy(logits, torch.from_numpy(batch.originals).to(logits.device))


def pretrain(
    prepared: tuple[WordPiece, Corpus],
    architecture: Architecture,
    tasks: Sequence[str],
    schedule: Schedule,
    seed: int,
    keep: float = 0.0,
) -> Retriever:
    """Pre-train a retriever on articles, or find it trained.

    Parameters
    ----------
    prepared : (WordPiece, Corpus)
        As `prepare` returns it.
    architecture : Architecture
    tasks : sequence of str
        Names in `retlib.training.pretraining.TASKS`, mixed uniformly; or "mlm" alone.
    schedule : Schedule
    seed : int
        Of the initial weights and of the pairs.
    keep : float
        See `retlib.training.pretraining.Mixture`.
    """
    wordpiece, corpus = prepared
    require(MLM not in tasks or len(tasks) == 1, f"tasks = {list(tasks)}: {MLM} makes no pairs, and is a task alone")
    settings = {
        "architecture": asdict(architecture), "tasks": list(tasks), "schedule": asdict(schedule), "seed": seed,
        "keep": keep, "start": _checkpoint(architecture, wordpiece, seed), "corpus": corpus.fingerprint,
        "units": cache.key(wordpiece.tokens), "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        retriever = Retriever.fresh(architecture, wordpiece, seed)
        if list(tasks) == [MLM]:
            task, validate = _masked(retriever, corpus, schedule, seed)
        else:
            task, validate = _paired(retriever, corpus, tasks, schedule, seed, keep)
        label = f"{'+'.join(tasks)} {architecture.encoder} seed {seed}"
        retriever.history = train(task, schedule.settings(), validate, seed, folder, label)
        if architecture.towers == "two" and list(tasks) == [MLM]:
            retriever.model.document_encoder.load_state_dict(retriever.model.query_encoder.state_dict())
        retriever.save(folder)

    return Retriever.load(cache.artefact("pretrained", settings, MODULES, make))


def _checkpoint(architecture: Architecture, wordpiece: WordPiece, seed: int) -> str:
    """What a pre-trained BERT is, whatever it is called; "" from scratch."""
    return Retriever.fresh(architecture, wordpiece, seed).fingerprint if architecture.checkpoint else ""


# Pairs or passages that pre-training is validated on: drawn like those of training, under a seed of
# their own. So few of all that can be drawn are seen twice. A short training is not validated on more than it sees.
VALIDATION = 512


def _paired(
    retriever: Retriever, corpus: Corpus, tasks: Sequence[str], schedule: Schedule, seed: int, keep: float
) -> tuple[Task, Callable[[], float]]:
    lengths = retriever.architecture.query_length, retriever.architecture.document_length
    source = PretrainingPairs(corpus, tasks, retriever.wordpiece.sep, *lengths, keep)
    sampler = InBatch(source, schedule.batch_size, seed, mask_known=True, corrected=schedule.corrected)
    unseen = source.draw(0, min(VALIDATION, schedule.seen), seed + 1_000_003)

    def validate() -> float:
        encoded = retriever.encode_queries(unseen.queries), retriever.encode_documents(unseen.documents)
        return measures.rows_precision(*encoded, unseen.groups)

    return RetrievalTask(retriever.model, sampler, "softmax", schedule.chunk), validate


def _masked(retriever: Retriever, corpus: Corpus, schedule: Schedule, seed: int) -> tuple[Task, Callable[[], float]]:
    require(retriever.architecture.encoder == "transformer", "mlm needs encoder = 'transformer'")
    model = MaskedLanguageModel(retriever.model.query_encoder).to(runtime.device())
    passages = MaskedPassages(corpus, retriever.wordpiece, retriever.architecture.document_length)
    task = MaskedTask(model, passages, schedule.batch_size, seed)
    unseen = passages.draw(0, min(VALIDATION // 4, schedule.seen), seed + 1_000_003)
    return task, lambda: -task.loss(unseen).item()


def finetune(start: Retriever, benchmark: Benchmark, part: Collection, schedule: Schedule, seed: int) -> Retriever:
    """Train a retriever on labelled pairs, or find it trained.

    Parameters
    ----------
    start : Retriever
        Pre-trained, or fresh.
    benchmark : Benchmark
        Of the whole collection.
    part : Collection
        The same with its queries split, as `retlib.data.collection.low_resource` returns it.
    schedule : Schedule
    seed : int
        Of the order of the pairs, and of `start` if that is fresh.

    Notes
    -----
    The weights that are kept are the best on the validation queries, by their reciprocal
    rank among their own answers and 500 other candidates; those before the first step count.
    """
    settings = {
        "start": start.name or start.fingerprint,
        "collection": benchmark.collection.fingerprint, "split": cache.key(part.queries["split"].to_dict()),
        "schedule": asdict(schedule), "seed": seed, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        retriever = replace(start, model=_copy(start))
        pairs = benchmark.pairs(part, "train")
        sampler = InBatch(pairs, schedule.batch_size, seed, mask_known=True, corrected=schedule.corrected)
        task = RetrievalTask(retriever.model, sampler, "softmax", schedule.chunk)
        validate = _validation(retriever, benchmark, part)
        retriever.history = train(task, schedule.settings(), validate, seed, folder, f"{part.name} seed {seed}")
        retriever.save(folder)

    return Retriever.load(cache.artefact("finetuned", settings, MODULES, make))


def _copy(retriever: Retriever) -> DualEncoder:
    """The same model with weights of its own."""
    return copy.deepcopy(retriever.model)


# Candidates beside their own answers that validation queries are ranked against.
POOL = 500


def _validation(retriever: Retriever, benchmark: Benchmark, part: Collection) -> Callable[[], float]:
    """Mean reciprocal rank of the validation queries in a small pool, as a function of the weights."""
    pairs = benchmark.pairs(part, "dev")
    others = np.setdiff1d(np.arange(len(benchmark.documents)), pairs.groups)
    others = np.random.default_rng(0).permutation(others)[:POOL]
    rows = np.concatenate([np.unique(pairs.groups), others])
    pool, own = benchmark.documents.take(rows), np.searchsorted(np.unique(pairs.groups), pairs.groups)

    def score() -> float:
        documents = retriever.encode_documents(pool)
        scores = np.array([index.inner_products(documents, query) for query in retriever.encode_queries(pairs.queries)])
        # Ties count against the model, and so do scores that are no numbers: equal ones are no ranking.
        rank = (~(scores < scores[np.arange(len(own)), own][:, None])).sum(axis=1)
        return float((1 / rank).mean())

    return score


# --- ranking ---------------------------------------------------------------------------------------


def rank(
    retriever: Retriever, benchmark: Benchmark, part: Collection, depth: int = 100, added: TokenTable | None = None
) -> pd.DataFrame:
    """The run of the test queries against all candidates of a part of the collection, exhaustively; made once.

    Parameters
    ----------
    retriever : Retriever
        Trained: it has a name.
    part : Collection
        Its documents and its test queries are among those of the benchmark.
    added : TokenTable, optional
        Further candidates, of which none is relevant; they get the ids ``added#0``, ``added#1``, ...
    """
    require(retriever.name != "", "only a trained retriever can be asked for a run", DataError)
    test = part.split("test")
    settings = {
        "retriever": retriever.name, "collection": benchmark.collection.fingerprint, "depth": depth,
        "queries": cache.key(test.index.tolist()), "candidates": cache.key(part.documents.index.tolist()),
        "added": 0 if added is None else _digest(added),
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        ids = part.documents.index.tolist()
        places = benchmark.collection.documents.index.get_indexer(part.documents.index)
        vectors = retriever.encode_documents(benchmark.documents.take(places))
        if added is not None:
            ids += added_ids(len(added))
            vectors = np.concatenate([vectors, retriever.encode_documents(added)])
        queries = benchmark.queries.take(benchmark.collection.queries.index.get_indexer(test.index))
        scores, rows = index.build("Exact", vectors).search(retriever.encode_queries(queries), depth)
        runs.make_run(test.index, ids, scores, rows).to_parquet(folder / "run.parquet")

    return pd.read_parquet(cache.artefact("run", settings, (*MODULES, index, runs), make) / "run.parquet")


def added_ids(count: int) -> list[str]:
    """The ids of so many added candidates."""
    return [f"added#{i}" for i in range(count)]


def _digest(table: TokenTable) -> str:
    return hashlib.sha256(table.ids.tobytes() + table.offsets.tobytes()).hexdigest()
