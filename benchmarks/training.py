"""Training of dual encoders beside sentence-transformers: pairs a second, and quality after equal seconds.

Both begin with the same weights and take the same steps of Adam on the same batches, from texts to trained weights:
ours tokenizes them once, before the first step, the other's batch by batch. The book's loop is asked for the mean that
the other has, of [CLS] and [SEP] too, so that their losses are the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import inputs
from benchmarks.harness import CASES, Duel, Line, Scale, Timed, installed, precisions
from retlib.core import runtime
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.text import TokenTable, WordPiece, bert_tokenizer
from retlib.data.tokenized import Pairs, rows_of_step
from retlib.models.encoders import BagOfWords, DualEncoder, encode
from retlib.models.transformer import Transformer
from retlib.training.negatives import InBatch, Inputs
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

LAYERS, WIDTH, DIMENSION, SCALE = 2, 128, 300, 20.0
QUERY_LENGTH, DOCUMENT_LENGTH = 32, 128
# Losses that are made in another order of sums, and in bfloat16, part as training goes on.
APART = 0.03
MEASURED = 5  # evaluations of a curve
EPOCHS = 5  # of a bag of words


@dataclass(frozen=True, eq=False)
class Job:
    """What both train on, and how.

    Parameters
    ----------
    queries, documents : list of str
        Row i of one belongs to row i of the other.
    wordpiece : WordPiece
    batch, steps : int
    rate : float
    lengths : (int, int) or (None, None)
        At which queries and documents are cut.
    precision, chunk
        Of ours; see `retlib.training.trainer.Schedule`.
    decay : bool
        Whether the rate rises and falls, or stays.
    """

    queries: list[str]
    documents: list[str]
    wordpiece: WordPiece
    batch: int
    steps: int
    rate: float
    lengths: tuple[int | None, int | None] = (QUERY_LENGTH, DOCUMENT_LENGTH)
    precision: str = "float32"
    chunk: int | None = None
    decay: bool = False

    def during(self, steps: int) -> Job:
        """The same of so many steps, over the pairs alone that these see."""
        seen = slice(steps * self.batch)
        return replace(self, steps=steps, queries=self.queries[seen], documents=self.documents[seen])

    def pairs(self) -> Pairs:
        """The pairs; each text is tokenized once, however many pairs have it."""
        both = zip((self.queries, self.documents), self.lengths, strict=True)
        return Pairs(*(self._tokens(*each) for each in both))

    def _tokens(self, texts: list[str], length: int | None) -> TokenTable:
        rows, different = pd.factorize(np.array(texts, dtype=object))
        return self.wordpiece.encode(different.tolist(), length).take(rows)

    def schedule(self, evaluations: int) -> Schedule:
        """Of the book's loop."""
        return Schedule(
            steps=self.steps, batch_size=self.batch, learning_rate=self.rate, warmup=0.1 * self.decay, decay=self.decay,
            precision=self.precision, chunk=self.chunk, evaluations=evaluations,
        )  # fmt: skip


@dataclass
class Trained:
    """What came of it: the mean loss, and quality over seconds of training."""

    loss: float = float("nan")
    curve: list[tuple[float, float]] = field(default_factory=list)


def transformer(words: WordPiece) -> DualEncoder:
    """Always with the same weights."""
    runtime.set_seeds(0)
    encoder = Transformer.from_scratch(words, LAYERS, WIDTH, WIDTH, pooling="all")
    return DualEncoder(encoder).to(runtime.device())


def bag(words: WordPiece) -> DualEncoder:
    """Always with the same weights."""
    runtime.set_seeds(0)
    return DualEncoder(BagOfWords(len(words), DIMENSION)).to(runtime.device())


def ours(job: Job, make: Callable[[WordPiece], DualEncoder], exam: inputs.Exam | None = None) -> Timed:
    """The book's loop."""
    model = make(job.wordpiece)
    with runtime.Stopwatch() as tokenizing:
        negatives = InBatch(Inputs(job.pairs(), job.batch, seed=0), mask_known=False)
    looks = count()

    def validate() -> float:
        if exam is None:
            return -float(next(looks))  # never better, so that no weights are copied
        sides = zip((model.queries, model.documents), (exam.queries, exam.documents), job.lengths, strict=True)
        return exam.mark(*(encode(side, job.wordpiece.encode(read, length)) for side, read, length in sides))

    task = RetrievalTask(model, negatives, "softmax", job.chunk)
    history = train(task, job.schedule(MEASURED if exam else 1), validate, seed=0)
    curve = [(tokenizing.seconds + row["seconds"], row["score"]) for row in history.evaluations]
    return Timed(tokenizing.seconds + history.seconds, Trained(history.evaluations[-1]["loss"], curve))


def their_transformer(words: WordPiece, folder: str) -> list[nn.Module]:
    """The modules of sentence-transformers with the weights of `transformer`; attention is its default, fused."""
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling
    from sentence_transformers.sentence_transformer.modules import Transformer as Words
    from transformers import BertTokenizerFast

    same = transformer(words).query_encoder
    same.bert.save_pretrained(folder)
    BertTokenizerFast(vocab=words.ids).save_pretrained(folder)
    lengths = {"query_length": QUERY_LENGTH + 2, "document_length": DOCUMENT_LENGTH + 2}
    head = Dense(WIDTH, WIDTH, activation_function=None)
    head.linear.load_state_dict(same.head.state_dict())
    return [Words(folder, model_kwargs={"add_pooling_layer": False}, **lengths), Pooling(WIDTH, "mean"), head]


def their_bag(words: WordPiece, folder: str) -> list[nn.Module]:
    """Its StaticEmbedding with the weights of `bag`."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    return [StaticEmbedding(bert_tokenizer(words.ids), bag(words).query_encoder.weight.detach().cpu().clone())]


def theirs(job: Job, make: Callable, exam: inputs.Exam | None = None, cached: int | None = None) -> Timed:
    """The trainer of sentence-transformers: from when training begins to its last step, evaluations left out."""
    from datasets import Dataset
    from sentence_transformers import DefaultBatchSampler, SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer import losses
    from torch.utils.data import SequentialSampler
    from transformers import PrinterCallback, TrainerCallback, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    device = runtime.device().type
    with tempfile.TemporaryDirectory() as folder:
        model = SentenceTransformer(modules=make(job.wordpiece, folder), device=device)
        # The book asks for deterministic algorithms, which this trainer does not do of itself.
        torch.use_deterministic_algorithms(False)
        done, watch = Trained(), runtime.Clock()

        def look() -> None:
            with torch.inference_mode():
                mark = exam.mark(*(part(read, show_progress_bar=False) for part, read in sides))
            done.curve.append((watch.seconds.get("training", 0.0), mark))
            model.train()

        class Clock(TrainerCallback):
            """Times each step, what comes before it included."""

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                self.open()

            def open(self) -> None:
                self.timing = watch("training")
                self.timing.__enter__()

            def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
                if (exam and state.global_step % -(-job.steps // MEASURED) == 0) or state.global_step == job.steps:
                    self.timing.__exit__(None, None, None)
                    if exam:
                        look()
                    self.open()

        settings = Arguments(
            folder, max_steps=job.steps, per_device_train_batch_size=job.batch, learning_rate=job.rate,
            batch_sampler=lambda rows, **options: DefaultBatchSampler(SequentialSampler(rows), **options),
            router_mapping={"anchor": "query", "positive": "document"},  # which length is whose
            lr_scheduler_type="linear" if job.decay else "constant", warmup_steps=int(0.1 * job.decay * job.steps),
            max_grad_norm=0.0,  # as in the book, gradients are not clipped, and weights do not decay
            bf16=job.precision == "bfloat16", use_cpu=device == "cpu", disable_tqdm=True, eval_strategy="no",
            save_strategy="no", logging_strategy="no", report_to="none",
        )  # fmt: skip
        rows = np.concatenate([rows_of_step(len(job.queries), job.batch, 0, step) for step in range(job.steps)])
        columns = {"anchor": [job.queries[row] for row in rows], "positive": [job.documents[row] for row in rows]}
        kind = losses.CachedMultipleNegativesRankingLoss if cached else losses.MultipleNegativesRankingLoss
        loss = kind(model, scale=SCALE, **({"mini_batch_size": cached} if cached else {}))
        trainer = SentenceTransformerTrainer(
            model, settings, Dataset.from_dict(columns), loss=loss, callbacks=[Clock()]
        )
        trainer.remove_callback(PrinterCallback)
        if exam:
            sides = (model.encode_query, exam.queries), (model.encode_document, exam.documents)
            look()
        done.loss = trainer.train().training_loss
    return Timed(watch.seconds["training"], done)


def bare(job: Job) -> Timed:
    """A bag of words as one writes the loop first: dense gradients, all of Adam's moments in every step."""
    runtime.set_seeds(0)
    on = runtime.device()
    words = nn.EmbeddingBag.from_pretrained(bag(job.wordpiece).query_encoder.weight.detach().clone(), freeze=False)
    optimizer, total = torch.optim.Adam(words.parameters(), lr=job.rate), 0.0
    with runtime.Stopwatch() as watch:
        source = job.pairs()
        for step in range(job.steps):
            drawn = source.draw(step, job.batch, 0)
            left, right = (
                F.normalize(words(torch.from_numpy(each.ids).to(on), torch.from_numpy(each.offsets[:-1]).to(on)))
                for each in (drawn.queries, drawn.documents)
            )
            loss = F.cross_entropy(SCALE * left @ right.T, torch.arange(len(left), device=on))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    return Timed(watch.seconds, Trained(total / job.steps))


def apart(mine: Trained, other: Trained) -> float:
    """The difference of two mean losses, as a part of ours."""
    return abs(mine.loss - other.loss) / mine.loss


def job_of(scale: Scale, collection: Collection, batch: int, steps: int, rate: float, **how: Any) -> Job:
    """The first pairs of a collection."""
    queries, documents = inputs.training_pairs(collection)
    words, some = WordPiece.train([*queries, *documents], scale(inputs.TOKENS, 2000)), slice(batch * steps)
    return Job(queries[some], documents[some], words, batch, steps, rate, **how)


@CASES.register("01-training")
def training(scale: Scale) -> Iterator[Duel]:
    """A Transformer of two layers: on texts of one length and of many, and in batches that memory would not hold."""
    installed("sentence_transformers", "datasets")
    name, kinds = "MultipleNegativesRankingLoss", precisions()
    first = inputs.collections(scale, 1)[0]
    varied = first if scale.quick else datasets.load(inputs.VARIED)
    for collection, precision in dict.fromkeys([*((first, each) for each in kinds), (varied, kinds[-1])]):
        job = job_of(scale, collection, scale(128, 16), scale(10, 3), 1e-3, precision=precision)
        yield Duel(
            f"Transformer on {collection.name}, batches of {job.batch}, {precision}", "pairs/s", job.batch * job.steps,
            lambda job=job: ours(job, transformer), {name: lambda job=job: theirs(job, their_transformer)},
            apart, APART, goal=2.5,
        )  # fmt: skip
    # In chunks of a size that each is fast with.
    large = job_of(scale, first, scale(2048, 32), 1, 1e-3, precision=kinds[-1], chunk=scale(256, 16))
    yield Duel(
        f"Transformer on {first.name}, batches of {large.batch} in chunks, {large.precision}", "pairs/s", large.batch,
        lambda: ours(large, transformer),
        {f"Cached{name}": lambda: theirs(large, their_transformer, cached=scale(64, 8))}, apart, APART, goal=2.5,
    )  # fmt: skip


@CASES.register("02-bag-of-words")
def bag_of_words(scale: Scale) -> Iterator[Duel]:
    """A mean of word embeddings, over some epochs; ours, and a bare loop, tokenize in the first alone."""
    installed("sentence_transformers", "datasets")
    read = job_of(scale, inputs.collections(scale, 1)[0], scale(1000, 32), scale(6, 2), 0.01, lengths=(None, None))
    job = replace(read, steps=EPOCHS * read.steps)
    peers = {
        "StaticEmbedding": lambda: theirs(job, their_bag),
        "bare loop, dense Adam": lambda: bare(job),
    }
    yield Duel(
        f"bag of words, batches of {job.batch}, {EPOCHS} epochs", "pairs/s", job.batch * job.steps,
        lambda: ours(job, bag), peers, apart, APART, goal={"StaticEmbedding": 3.0},
    )  # fmt: skip


@CASES.register("01-training-curves")
def curves(scale: Scale) -> Iterator[Line]:
    """Quality after equal seconds, from random weights, each with the rate and the batch that it is often given."""
    installed("sentence_transformers", "datasets")
    for collection in inputs.collections(scale, 2):
        exam = inputs.Exam.of(collection, scale(150, 20), scale(600, 50))
        queries, documents = inputs.training_pairs(collection)
        words = WordPiece.train([*queries, *documents], scale(inputs.TOKENS, 2000))
        layered = {"batch": scale(128, 16), "rate": 1e-3, "precision": precisions()[-1]}
        shallow = {"batch": scale(512, 16), "rate": 0.01, "lengths": (None, None)}
        for name, run, make, how in (
            ("ours, Transformer", ours, transformer, layered),
            ("sentence-transformers, Transformer", theirs, their_transformer, layered),
            ("ours, bag of words", ours, bag, shallow),
            ("sentence-transformers, StaticEmbedding", theirs, their_bag, shallow),
        ):
            whole = Job(queries, documents, words, steps=MEASURED, decay=True, **how)
            tried = whole.during(fitting(whole, run, make, scale(8.0, 0.2)))
            for seconds, mark in run(tried, make, exam).output.curve:
                told = {"contender": name, "collection": collection.name, "seconds": seconds, "RR": mark}
                yield Line("curves", told | {"steps": tried.steps})


def fitting(job: Job, run: Callable, make: Callable, seconds: float) -> int:
    """How many steps take so many seconds, at least one for each evaluation; tried with a few, then with half."""
    steps = MEASURED
    for part in (0.5, 1.0):
        taken = run(job.during(steps), make).seconds
        steps = max(MEASURED, round(part * seconds * steps / taken))
    return steps
