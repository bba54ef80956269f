"""From a collection and settings to a trained model, a run and its measures.

A recipe is a choice of pairs x encoder x negatives x loss; the notebooks choose, this
module puts the parts together, and keeps what was trained as an artefact.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.torch import load_file, save_file

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.data.collection import Collection
from retlib.data.pairs import Pairs
from retlib.data.text import Vocabulary
from retlib.evaluation import measures
from retlib.models.encoders import BagOfWords, DualEncoder, encode
from retlib.retrieval import index
from retlib.retrieval.runs import make_run
from retlib.training import trainer
from retlib.training.negatives import InBatch, Labelled
from retlib.training.optimizers import OPTIMIZERS
from retlib.training.trainer import History, Multitask, RetrievalTask, TrainingSettings, train

# The four losses of Gillick 2018, section 2.1: which negatives, and which function of the scores.
METHODS = {
    "pairwise_cross_entropy": ("labelled", "cross_entropy"),
    "in_batch_cross_entropy": ("in_batch", "cross_entropy"),
    "in_batch_softmax": ("in_batch", "softmax"),
    "in_batch_triplet": ("in_batch", "triplet"),
}

# Whose source takes part in the address of a trained model.
MODULES = (*trainer.MODULES, measures, sys.modules[__name__])


@dataclass(frozen=True)
class Recipe:
    """Settings of a bag-of-words dual encoder (Gillick 2018, section 2).

    Parameters
    ----------
    method : str
        One of `METHODS`.
    batch_size : int
        Pairs in a batch.
    optimizer : str
        One of `retlib.training.optimizers.OPTIMIZERS`.
    learning_rate : float
    epochs : float
        The most passes over the training pairs.
    evaluations : int
        Evaluations on validation data in an epoch.
    patience : int
        Evaluations without a better score before training stops.
    dimension : int
        Of the embeddings.
    scale : float
        Where the affine scale starts.
    precision : {"float32", "bfloat16"}
        Of matrix products in training.
    mask_known : bool
        Take known relevant documents out of the in-batch negatives.
    """

    method: str = "in_batch_softmax"
    batch_size: int = 1000
    optimizer: str = "sparse_adam"
    learning_rate: float = 0.01
    epochs: float = 15
    evaluations: int = 2
    patience: int = 12
    dimension: int = 300
    scale: float = 20.0
    precision: str = "bfloat16"
    mask_known: bool = False

    def __post_init__(self) -> None:
        require_one_of("loss", self.method, METHODS)
        require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        require_one_of("precision", self.precision, runtime.PRECISIONS)
        require_positive(self, "batch_size", "learning_rate", "epochs", "evaluations", "patience", "dimension", "scale")
        for name in ("learning_rate", "epochs", "scale"):  # so that 15 and 15.0 have one address
            object.__setattr__(self, name, float(getattr(self, name)))

    def training(self, pairs: int) -> TrainingSettings:
        """The loop's settings for so many training pairs."""
        per_epoch = max(1, pairs // min(self.batch_size, pairs))
        return TrainingSettings(
            steps=max(1, round(self.epochs * per_epoch)),
            evaluate_every=max(1, per_epoch // self.evaluations),
            patience=self.patience,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            precision=self.precision,
        )


@dataclass(eq=False)
class Trained:
    """A trained bag-of-words encoder.

    Parameters
    ----------
    vocabulary : Vocabulary
    encoder : BagOfWords
    history : History
    """

    vocabulary: Vocabulary
    encoder: BagOfWords
    history: History

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit-length encodings of texts, float32, shape (texts, d)."""
        model = DualEncoder(self.encoder).eval()
        return encode(model.queries, self.vocabulary.encode(texts))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the embeddings."""
        return hashlib.sha256(self.encoder.weight.detach().numpy().tobytes()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write vocabulary, weights and history."""
        self.vocabulary.save(folder / "vocabulary.txt")
        history = {"evaluations": self.history.evaluations, "best_step": self.history.best_step}
        (folder / "history.json").write_text(json.dumps(history))
        save_file({"weight": self.encoder.weight.detach().contiguous()}, folder / "encoder.safetensors")

    @classmethod
    def load(cls, folder: Path) -> Trained:
        """Read what `save` wrote."""
        vocabulary = Vocabulary.load(folder / "vocabulary.txt")
        weight = load_file(folder / "encoder.safetensors")["weight"]
        encoder = BagOfWords(*weight.shape)
        encoder.load_state_dict({"weight": weight})
        history = json.loads((folder / "history.json").read_text())
        return cls(vocabulary, encoder, History(history["evaluations"], history["best_step"]))


def build_vocabulary(tasks: Sequence[Collection]) -> Vocabulary:
    """The words of all candidates of all tasks.

    Candidates are indexed before any query comes, so their words are known; no label is
    used. A word without a training pair keeps its random embedding, which still matches itself.
    """
    return Vocabulary.build(text for task in tasks for text in task.documents["text"])


def tokenized_pairs(task: Collection, split: str, vocabulary: Vocabulary, label: int | None = 1) -> Pairs:
    """The labelled pairs of a split as token tables; a pair's group is its cluster."""
    chosen = task.labelled(split, label)
    require(len(chosen) > 0, f"collection {task.name!r} has no {split} pairs", DataError)
    tables = [vocabulary.encode(task.documents.loc[chosen[side], "text"]) for side in ("left", "right")]
    # An item outside every cluster (in negative pairs only) is a cluster of its own.
    clusters = task.queries["cluster"].reindex(chosen["left"]).fillna(chosen["left"].set_axis(chosen["left"]))
    return Pairs(*tables, labels=chosen["label"].to_numpy(np.int8), groups=pd.factorize(clusters)[0])


def _negatives(task: Collection, vocabulary: Vocabulary, recipe: Recipe, seed: int) -> InBatch | Labelled:
    """The sampler that a recipe's method asks for."""
    kind, _ = METHODS[recipe.method]
    if kind == "labelled":
        return Labelled(tokenized_pairs(task, "train", vocabulary, label=None), recipe.batch_size, seed)
    pairs = tokenized_pairs(task, "train", vocabulary)
    return InBatch(pairs, recipe.batch_size, seed, recipe.mask_known)


def _validation(task: Collection, model: DualEncoder, vocabulary: Vocabulary) -> Callable[[], float]:
    """In-batch precision@1 over fixed rows of 1000 validation pairs, as a function of the model's weights."""
    pairs = tokenized_pairs(task, "dev", vocabulary)

    def score() -> float:
        queries, documents = encode(model.queries, pairs.queries), encode(model.documents, pairs.documents)
        return measures.rows_precision(queries, documents, pairs.groups)

    return score


def fit(
    tasks: Sequence[Collection],
    recipe: Recipe,
    seed: int,
    vocabulary: Vocabulary | None = None,
    start: Trained | None = None,
) -> Trained:
    """Train a bag-of-words encoder on one task or several, or find it trained.

    Parameters
    ----------
    tasks : sequence of Collection
        With several, each has its own affine scale, a step takes a batch of each, the losses
        are averaged (Gillick 2018, section 2), and so are the validation scores.
    recipe : Recipe
    seed : int
        Of the initial embeddings and of the order of the pairs.
    vocabulary : Vocabulary, optional
        By default that of the tasks' candidates.
    start : Trained, optional
        Start from its embeddings; it must have the same vocabulary.
    """
    vocabulary = vocabulary or build_vocabulary(tasks)
    require(start is None or start.vocabulary == vocabulary, "start must have the vocabulary of the new training")
    settings = {
        "tasks": [task.fingerprint for task in tasks],
        "recipe": asdict(recipe),
        "seed": seed,
        "vocabulary": cache.key(vocabulary.tokens),
        "start": start and start.fingerprint,
        "threads": runtime.threads(),
    }
    label = f"{'+'.join(task.name for task in tasks)} {recipe.method} seed {seed}"

    def make(folder: Path) -> None:
        _train(tasks, recipe, seed, vocabulary, start, folder, label).save(folder)

    return Trained.load(cache.artefact("bag-of-words", settings, MODULES, make))


def _train(
    tasks: Sequence[Collection],
    recipe: Recipe,
    seed: int,
    vocabulary: Vocabulary,
    start: Trained | None,
    folder: Path,
    label: str,
) -> Trained:
    runtime.set_seeds(seed)
    encoder = BagOfWords(len(vocabulary), recipe.dimension, sparse=recipe.optimizer == "sparse_adam")
    if start:
        encoder.load_state_dict(start.encoder.state_dict())
    encoder.to(runtime.device())
    parts = []
    for task in tasks:
        model = DualEncoder(encoder, scale=recipe.scale).to(runtime.device())
        parts.append(RetrievalTask(model, _negatives(task, vocabulary, recipe, seed), METHODS[recipe.method][1]))
    scores = [_validation(task, part.module, vocabulary) for task, part in zip(tasks, parts, strict=True)]
    # With several tasks, an epoch is one pass over the largest; the smaller ones come round more often.
    pairs = max(len(part.negatives.pairs) for part in parts)
    history = train(
        parts[0] if len(parts) == 1 else Multitask(parts),
        recipe.training(pairs),
        lambda: float(np.mean([score() for score in scores])),
        seed,
        folder,
        label,
    )
    return Trained(vocabulary, encoder.cpu(), history)


def retrieve(encode_texts: Callable[[Sequence[str]], np.ndarray], task: Collection, split: str, depth: int = 100):
    """Rank all candidates for the queries of a split by the inner product of encodings, exhaustively.

    Parameters
    ----------
    encode_texts : callable
        Texts to float32 encodings, shape (texts, d).

    Returns
    -------
    DataFrame
        A run; the query itself stays in its list (it is among its relevant documents).
    """
    queries, _ = measures.held_out(task, split)
    built = index.build("Exact", encode_texts(task.documents["text"].tolist()))
    scores, rows = built.search(encode_texts(queries["text"].tolist()), depth)
    return make_run(queries.index, task.documents.index, scores, rows)


def validation_score(encode_texts: Callable[[Sequence[str]], np.ndarray], task: Collection) -> float:
    """AP@100 on the validation queries against all candidates: what settings are chosen by."""
    run = retrieve(encode_texts, task, "dev")
    return float(measures.evaluate(run, task.judgments("dev"), ["AP@100"])["value"].mean())


def trials(base: Recipe, learning_rates: Sequence[float], scales: Sequence[float]) -> list[Recipe]:
    """The settings that a method may try: every learning rate with every scale.

    The triplet loss has no scale. So that it has no smaller tuning budget than the others,
    it tries as many learning rates as they have settings, over the same range.
    """
    if METHODS[base.method][1] == "triplet":
        finer = np.geomspace(min(learning_rates), max(learning_rates), len(learning_rates) * len(scales))
        return [replace(base, learning_rate=float(f"{rate:.2g}")) for rate in finer]
    return [replace(base, learning_rate=rate, scale=scale) for rate in learning_rates for scale in scales]


def tune(
    task: Collection, systems: Mapping[str, Sequence[Recipe]], seed: int, vocabulary: Vocabulary | None = None
) -> pd.DataFrame:
    """Train every trial of every system once, and mark each system's best by AP@100 on validation data.

    Returns
    -------
    DataFrame
        A row for each trial: `system`, its settings, `precision_at_1` and `AP@100` on
        validation data, `best_step`, `seconds`, and whether it is `chosen`.
    """
    rows = []
    for system, recipes in systems.items():
        for recipe in recipes:
            trained = fit([task], recipe, seed, vocabulary)
            found = {"precision_at_1": trained.history.best_score, "AP@100": validation_score(trained.encode, task)}
            cost = {"best_step": trained.history.best_step, "seconds": trained.history.seconds}
            rows.append({"system": system, **asdict(recipe), **found, **cost})
    table = pd.DataFrame(rows)
    return table.assign(chosen=table.index.isin(table.groupby("system")["AP@100"].idxmax()))


def chosen(table: pd.DataFrame, **changes: object) -> dict[str, Recipe]:
    """Each system's chosen recipe from the table that `tune` returns, with `changes` made to it."""
    names = [item.name for item in fields(Recipe)]
    best = table[table["chosen"]].set_index("system")[names]
    return {str(system): replace(Recipe(**row), **changes) for system, row in best.to_dict("index").items()}
