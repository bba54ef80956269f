"""What pre-training pairs cost in memory: articles streamed into a corpus, and batches drawn from it.

``python benchmarks/pretraining_memory.py`` tokenizes 100 MB of made-up articles (or real ones:
``--articles wikispeedia``), draws 1000 batches of ICT pairs, and prints the resident memory that was
added at the peak, and the time it took. The tokenizer is learnt before memory is counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
import psutil

from retlib.core import runtime
from retlib.data import datasets
from retlib.data.collection import Article
from retlib.data.text import WordPiece, quick_sentences
from retlib.training.pretraining import Corpus, PretrainingPairs

WORDS, SENTENCE, PASSAGE, ARTICLE = 50_000, 20, 5, 8  # words in all; words, sentences and passages in each
BATCH, BATCHES = 128, 1000


def made_up(seed: int = 0) -> Iterator[Article]:
    """Articles without end, of random words with the frequencies of Zipf's law."""
    generator = np.random.default_rng(seed)
    letters = generator.integers(ord("a"), ord("z") + 1, size=(WORDS, 12)).astype(np.uint8)
    lengths = generator.integers(2, 12, size=WORDS)
    vocabulary = np.array([row[:n].tobytes().decode() for row, n in zip(letters, lengths, strict=True)], dtype=object)
    chances = 1 / np.arange(1, WORDS + 1)
    chances /= chances.sum()
    number = 0
    while True:
        chosen = vocabulary[generator.choice(WORDS, size=(ARTICLE, PASSAGE, SENTENCE), p=chances)]
        passages = tuple(" ".join(" ".join(words).capitalize() + "." for words in passage) for passage in chosen)
        links = tuple(str(target) for target in generator.integers(number + 1, size=5))
        yield Article(str(number), chosen[0, 0, 0], passages, 2, links)
        number += 1


class Limited:
    """The first articles that have so many bytes of text together; counts them."""

    def __init__(self, articles: Iterator[Article], most: float) -> None:
        self.articles, self.most, self.bytes = articles, most, 0

    def __iter__(self) -> Iterator[Article]:
        for article in self.articles:
            if self.bytes >= self.most:
                return
            self.bytes += sum(len(passage.encode()) for passage in article.passages)
            yield article


def main() -> None:
    """Build, draw, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100, help="text to read at most (default: 100)")
    parser.add_argument("--articles", metavar="NAME", help="articles of retlib.data.datasets (default: made-up ones)")
    options = parser.parse_args()

    def articles() -> Iterator[Article]:
        return iter(datasets.articles(options.articles)) if options.articles else made_up()

    runtime.set_threads(1)
    tokenizer = WordPiece.train(passage for article in islice(articles(), 500) for passage in article.passages)
    before, start = psutil.Process().memory_info().rss, time.perf_counter()
    source = Limited(articles(), options.megabytes * 1e6)
    corpus = Corpus.build(source, tokenizer, quick_sentences)
    built = time.perf_counter()
    pairs = PretrainingPairs(corpus, ["ict"], tokenizer.sep)
    for step in range(BATCHES):
        pairs.draw(step, BATCH, seed=0)
    drawn = time.perf_counter()
    print(f"{source.bytes / 1e6:.1f} MB of text: {corpus}")
    print(f"resident memory added at the peak: {(runtime.peak_memory() - before) / 1e6:.0f} MB")
    print(f"building: {built - start:.1f} s; {BATCHES * BATCH / (drawn - built):,.0f} ICT pairs/s")


if __name__ == "__main__":
    main()
