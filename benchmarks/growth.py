"""Cost against size: what each kind of work takes as the corpus grows, and what stays in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from statistics import median

import numpy as np
import pandas as pd

from benchmarks import inputs
from benchmarks.harness import CASES, Line, Scale, timed
from benchmarks.search import DOCUMENT, QUERY, query_encoder
from benchmarks.training import bag
from retlib.core import runtime
from retlib.data.articles import Corpus
from retlib.data.collection import Article
from retlib.data.text import TokenTable, WordPiece, quick_sentences
from retlib.data.tokenized import LabelledQueries
from retlib.evaluation.measures import evaluate
from retlib.models.encoders import encode
from retlib.retrieval.lexical import BM25
from retlib.retrieval.runs import make_run
from retlib.training.negatives import InBatch, Inputs
from retlib.training.pretraining import PretrainingPairs
from retlib.training.tasks import RetrievalTask
from retlib.training.trainer import Schedule, train

ASKED, DEPTH, SHORT = 100, 100, 0.3


def seconds(call: Callable[[], object]) -> float:
    """Of one call; where it is short, the median of several."""
    first = timed(call).seconds
    return first if first > SHORT else median([first, *(timed(call).seconds for _ in range(4))])


def training_step(documents: TokenTable, steps: int = 5) -> float:
    """Seconds of a step of 64 queries, each with one of its documents."""
    queries, relevant = (
        inputs.token_rows(4096, QUERY),
        np.random.default_rng(2).integers(len(documents), size=(4096, 1)),
    )
    judged = LabelledQueries(queries, TokenTable.from_rows(relevant.tolist()), documents)
    task = RetrievalTask(query_encoder(), InBatch(Inputs(judged, 64, 0)), "softmax")
    return train(task, Schedule(steps=steps, evaluations=1), lambda: 0.0, seed=0).seconds / steps


def evaluation(size: int) -> float:
    """Seconds of three measures of as many results as there are documents."""
    queries = max(1, size // DEPTH)
    rows = np.random.default_rng(0).permuted(np.tile(np.arange(2 * DEPTH), (queries, 1)), axis=1)[:, :DEPTH]
    names, ids = (pd.Index([f"{kind}{i}" for i in range(n)]) for kind, n in (("q", queries), ("d", 2 * DEPTH)))
    run = make_run(names, ids, np.tile(np.arange(DEPTH, 0, -1, dtype=np.float32), (queries, 1)), rows)
    qrels = pd.DataFrame({"query_id": names, "doc_id": ids[rows[:, 0]], "relevance": 1})
    return seconds(lambda: evaluate(run, qrels, ["RR@10", "nDCG@10", "R@100"]))


def costs(size: int) -> Iterator[tuple[str, float]]:
    """Each kind of work with its seconds."""
    table, words = inputs.token_rows(size, DOCUMENT), bag(inputs.wordpiece())
    yield "training step, batches of 64", training_step(table)
    yield "encoding, bag of words", seconds(lambda: encode(words.documents, table))
    yield "evaluating, a result a document", evaluation(size)
    texts, model = inputs.made_up_texts(size), BM25()
    yield "BM25, indexing", seconds(lambda: model.fit(texts))
    yield f"BM25, {ASKED} queries", seconds(lambda: model.search(texts[:ASKED], DEPTH))


@CASES.register("09-growth")
def growth(scale: Scale) -> Iterator[Line]:
    """The seconds of each, and the memory of the process after all of them; sizes come in order."""
    for _ in costs(500):  # warms up: the search of BM25 is compiled
        pass
    for size in scale((10_000, 100_000, 1_000_000), (1_000, 4_000)):
        for what, taken in costs(size):
            yield Line("growth", {"what": what, "documents": size, "value": taken, "unit": "seconds"})
        memory = runtime.peak_memory() / 1e9
        yield Line("growth", {"what": "peak memory of all", "documents": size, "value": memory, "unit": "GB"})


@CASES.register("09-pretraining-corpus")
def pretraining(scale: Scale) -> Iterator[Line]:
    """Articles streamed into a corpus, and batches of ICT drawn from it: time, and memory that is added at the peak."""
    for megabytes in scale((2, 6, 20), (0.2,)):
        some = [next(inputs.made_up_articles(seed)).passages[0] for seed in range(3)]
        words, read = WordPiece.train(some, 2000), [0]

        def within(article: Article, read: list[int] = read, most: float = 1e6 * megabytes) -> bool:
            read[0] += sum(len(passage.encode()) for passage in article.passages)
            return read[0] <= most

        before, articles = runtime.peak_memory(), takewhile(within, inputs.made_up_articles())
        built = timed(lambda articles=articles, words=words: Corpus.build(articles, words.encode, quick_sentences))
        pairs = PretrainingPairs(built.output, ["ict"], words.sep)
        steps = scale(200, 3)
        drawn = timed(lambda pairs=pairs, steps=steps: [pairs.draw(step, 128, seed=0) for step in range(steps)])
        yield Line("pretraining", {
            "MB of text": megabytes, "building seconds": built.seconds, "ICT pairs/s": steps * 128 / drawn.seconds,
            "MB added at the peak": (runtime.peak_memory() - before) / 1e6,
        })  # fmt: skip
