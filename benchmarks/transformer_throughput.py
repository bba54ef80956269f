"""How fast a small BERT dual encoder trains: pairs a second beside sentence-transformers.

``python benchmarks/transformer_throughput.py`` trains one model (two layers of 128, two heads,
mean pooling, cosine) on the same batches of 128 SQuAD pairs, question to sentence, whose lengths
differ as those of most texts do, or to sentence and passage (``--pairs candidates``, nearly all cut
at the same length), with the book's loop and with the trainer of sentence-transformers and its
MultipleNegativesRankingLoss, in float32 and in bfloat16, in one run. Both start from the same
weights and take the same steps of Adam, so their mean losses are near each other: the book's mean
of hidden states leaves out [CLS] and [SEP], the other's does not. The contenders take turns.
The book tokenizes before it trains, sentence-transformers while it does: what that takes is
printed, and is not counted against the book.

It needs the extra `benchmarks`: ``pip install -c constraints.txt -e .[benchmarks]``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from statistics import median

import numpy as np
import pandas as pd
import torch

from retlib.core import runtime
from retlib.data import datasets
from retlib.data.datasets.catalogue import data_folders
from retlib.data.pairs import Pairs, rows_of_step
from retlib.data.text import WordPiece, concatenate, constant
from retlib.models.encoders import DualEncoder
from retlib.models.transformer import Transformer
from retlib.training.batches import Batch
from retlib.training.negatives import InBatch, Inputs
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

LAYERS, WIDTH, BATCH, SCALE, RATE = 2, 128, 128, 20.0, 1e-3
QUERY_LENGTH, DOCUMENT_LENGTH = 32, 128
VOCABULARY = "bert-base-uncased/vocab.txt"
OURS, THEIRS = "the book's loop", "sentence-transformers"


@dataclass(frozen=True)
class Data:
    """The pairs, as text and as tokens."""

    queries: Sequence[str]
    documents: Sequence[str]
    wordpiece: WordPiece
    pairs: Pairs
    seconds: float

    @classmethod
    def load(cls, with_passages: bool) -> Data:
        """SQuAD's training questions, each with the sentence that answers, and its passage if asked for."""
        task = datasets.load("squad")
        chosen = task.split("train")
        found = task.documents.loc[chosen["cluster"]]
        paths = [folder / VOCABULARY for folder in data_folders()]
        path = next((path for path in paths if path.is_file()), None)
        wordpiece = WordPiece.load(path) if path else WordPiece.train([*chosen["text"], *found["context"].unique()])
        queries, sentences = chosen["text"].tolist(), found["sentence"].tolist()
        separator = constant(wordpiece.sep, len(found))
        with runtime.Stopwatch() as watch:
            parts = [wordpiece.encode(sentences).segment]
            if with_passages:
                places, distinct = pd.factorize(found["context"])  # a passage stands behind many questions
                parts += [separator, wordpiece.encode(distinct).take(places).segment]
            asked = concatenate([wordpiece.encode(queries).segment], QUERY_LENGTH)
            pairs = Pairs(asked, concatenate(parts, DOCUMENT_LENGTH), groups=pd.factorize(found.index)[0])
        whole = [f"{sentence} [SEP] {context}" for sentence, context in zip(sentences, found["context"], strict=True)]
        return cls(queries, whole if with_passages else sentences, wordpiece, pairs, watch.seconds)


@dataclass(frozen=True)
class Run:
    """Seconds, wall-clock and processor, of the steps that count, and the mean loss of all steps."""

    wall: float
    cpu: float
    loss: float

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Run:
        """The median of each."""
        return cls(*(median(getattr(run, name) for run in runs) for name in ("wall", "cpu", "loss")))


def now() -> tuple[float, float]:
    """Wall-clock and processor seconds."""
    return time.perf_counter(), time.process_time()


def timed(times: list[tuple[float, float]], warmup: int, loss: float) -> Run:
    """From the times at the start of every step and at the end of the last one."""
    return Run(*(end - start for start, end in zip(times[warmup], times[-1], strict=True)), loss)


def fresh(wordpiece: WordPiece) -> DualEncoder:
    """The model, always with the same weights."""
    runtime.set_seeds(0)
    encoder = Transformer.from_scratch(wordpiece, LAYERS, WIDTH, WIDTH)
    return DualEncoder(encoder, similarity="cosine", scale=SCALE).to(runtime.device())


class Timed(InBatch):
    """Notes when each batch is asked for."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(Inputs(pairs, BATCH, seed=0), mask_known=False)
        self.times: list[tuple[float, float]] = []

    def batch(self, step: int) -> Batch:
        """The batch of a step."""
        self.times.append(now())
        return super().batch(step)


def ours(data: Data, steps: int, warmup: int, precision: str) -> Run:
    """The book's loop."""
    negatives = Timed(data.pairs)
    task = RetrievalTask(fresh(data.wordpiece), negatives, "softmax")
    total = warmup + steps
    ends: list[tuple[float, float]] = []

    def validate() -> float:  # called before the first step and after the last one
        ends.append(now())
        return -float(len(ends))  # never better, so that no weights are copied in between

    how = {"warmup": 0.0, "decay": False, "evaluations": 1, "precision": precision}
    history = train(task, Schedule(steps=total, batch_size=BATCH, learning_rate=RATE, **how), validate, seed=0)
    return timed([*negatives.times, ends[-1]], warmup, history.evaluations[-1]["loss"])


def theirs(data: Data, steps: int, warmup: int, precision: str) -> Run:
    """The trainer of sentence-transformers."""
    from datasets import Dataset
    from sentence_transformers import (
        DefaultBatchSampler,
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling
    from sentence_transformers.sentence_transformer.modules import Transformer as Words
    from torch.utils.data import SequentialSampler
    from transformers import BertTokenizerFast, PrinterCallback, TrainerCallback

    times: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        """Notes when training begins, and when each step ends."""

        def on_train_begin(self, *_: object, **__: object) -> None:
            times.append(now())

        def on_step_end(self, *_: object, **__: object) -> None:
            times.append(now())

    same = fresh(data.wordpiece).query_encoder
    # The book asks for deterministic algorithms, which this trainer does not do of itself.
    torch.use_deterministic_algorithms(False)
    with tempfile.TemporaryDirectory() as folder:
        same.bert.save_pretrained(folder)
        BertTokenizerFast(vocab=data.wordpiece.ids).save_pretrained(folder)
        # Two tokens more for [CLS] and [SEP]; attention is that library's default, the fused product.
        lengths = {"query_length": QUERY_LENGTH + 2, "document_length": DOCUMENT_LENGTH + 2}
        words = Words(folder, model_kwargs={"add_pooling_layer": False}, **lengths)
        head = Dense(WIDTH, WIDTH, activation_function=None)
        head.linear.load_state_dict(same.head.state_dict())
        model = SentenceTransformer(modules=[words, Pooling(WIDTH, "mean"), head], device=runtime.device().type)
        settings = SentenceTransformerTrainingArguments(
            folder,
            max_steps=warmup + steps,
            per_device_train_batch_size=BATCH,
            batch_sampler=lambda pairs, **options: DefaultBatchSampler(SequentialSampler(pairs), **options),
            router_mapping={"anchor": "query", "positive": "document"},  # which length is whose
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,  # as in the book, gradients are not clipped, and weights do not decay
            bf16=precision == "bfloat16",
            use_cpu=runtime.device().type == "cpu",
            disable_tqdm=True,
            eval_strategy="no",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
        )
        rows = np.concatenate([rows_of_step(len(data.pairs), BATCH, 0, step) for step in range(warmup + steps)])
        columns = {"anchor": [data.queries[row] for row in rows], "positive": [data.documents[row] for row in rows]}
        loss = MultipleNegativesRankingLoss(model, scale=SCALE)
        trainer = SentenceTransformerTrainer(
            model, settings, Dataset.from_dict(columns), loss=loss, callbacks=[Clock()]
        )
        trainer.remove_callback(PrinterCallback)
        return timed(times, warmup, trainer.train().training_loss)


def precisions() -> list[str]:
    """Those that the processor has itself."""
    return ["float32"] if isinstance(runtime.autocast("bfloat16"), nullcontext) else list(runtime.PRECISIONS)


def main() -> None:
    """Time both in turn at each precision; print pairs a second and the ratio to sentence-transformers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: all cores")
    parser.add_argument("--steps", type=int, default=30, help="that count in a round (default: 30)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before them that do not (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--pairs", choices=["candidates", "sentences"], default="candidates", help="default: candidates"
    )
    options = parser.parse_args()
    if missing := [name for name in ("sentence_transformers", "datasets") if not find_spec(name)]:
        how = "pip install -c constraints.txt -e .[benchmarks]"
        raise SystemExit(f"This compares with sentence-transformers; {', '.join(missing)} not installed: {how}")

    # Both may tokenize on all threads, and neither has anything to ask the network.
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1"}
    runtime.set_threads(options.threads)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    data = Data.load(options.pairs == "candidates")
    contenders = {(name, precision): contend for precision in precisions() for name, contend in CONTENDERS.items()}
    rounds: dict[tuple[str, str], list[Run]] = {key: [] for key in contenders}
    for _ in range(options.rounds):
        for key, contend in contenders.items():
            rounds[key].append(contend(data, options.steps, options.warmup, key[1]))

    where = runtime.environment()
    print(f"SQuAD, {options.pairs}: {len(data.pairs):,} pairs, {len(data.wordpiece):,} tokens")
    print(f"tokenized in {data.seconds:.1f} s")
    print(f"{where['device']}, {options.threads} threads of {where['cores']} cores, load {where['load']}")
    print(f"torch {torch.__version__}, sentence-transformers {metadata.version('sentence-transformers')}")
    print(f"batch {BATCH}, {options.steps} steps after {options.warmup}, median of {options.rounds} rounds")
    print(f"{'':34}{'pairs/s':>9}{'ratio':>7}{'pairs per processor second':>28}{'ratio':>7}{'loss':>8}")
    pairs = options.steps * BATCH
    for name, precision in contenders:
        mine, other = (Run.of(rounds[key, precision]) for key in (name, THEIRS))
        ratios = other.wall / mine.wall, other.cpu / mine.cpu
        print(f"{name + ', ' + precision:34}{pairs / mine.wall:9,.0f}{ratios[0]:7.2f}", end="")
        print(f"{pairs / mine.cpu:28,.0f}{ratios[1]:7.2f}{mine.loss:8.3f}")


CONTENDERS: dict[str, Callable[[Data, int, int, str], Run]] = {OURS: ours, THEIRS: theirs}

if __name__ == "__main__":
    main()
