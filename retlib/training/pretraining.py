"""Pre-training tasks, in Part II: pairs and masked passages out of articles without labels (Chang 2020, section 3).

A task draws rows of a `retlib.data.articles.Corpus`: this sentence is the query, that passage the document. Pairs are
put together batch by batch and never stored. A new task is one decorated class, here or anywhere
(`retlib.core.registry`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.core.registry import Registry
from retlib.data.articles import Corpus
from retlib.data.text import TokenTable, WordPiece, concatenate, offsets_of
from retlib.data.tokenized import Pairs, pairs_in_batch
from retlib.training.negatives import check_rows

KEPT = -1  # in place of a sentence's row: none was removed
MASKED = 0.15  # share of the tokens of a passage that are hidden (Devlin et al. 2019, section 3.1)

TASKS = Registry("pre-training task")
register, names = TASKS.register, TASKS.names


class Task(ABC):
    """One pre-training task over a structure: which sentence is the query of which passage."""

    queries: int  # sentences that can be a query
    pairs: int  # of a query and a passage that can be drawn

    def __init__(self, structure: Corpus) -> None:
        self.structure = structure

    @abstractmethod
    def draw(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of sentences and of the passages that they are the queries of, two arrays of shape (count,)."""

    @abstractmethod
    def shares(self) -> np.ndarray:
        """Return the chance of each passage to be the one that is drawn, shape (P,)."""


@register("ict")
class InverseCloze(Task):
    """Inverse Cloze Task: a sentence, and the rest of its passage (Chang 2020, section 3; Lee et al. 2019).

    The passage is drawn uniformly among those of at least two sentences, the query uniformly among its sentences.
    """

    def __init__(self, structure: Corpus) -> None:
        super().__init__(structure)
        self._passages = np.flatnonzero(structure.sentences_per_passage >= 2)
        require(len(self._passages) > 0, "ict needs a passage of at least two sentences; there is none", DataError)
        self.queries = self.pairs = int(structure.sentences_per_passage[self._passages].sum())

    def draw(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        passage = self._passages[generator.integers(len(self._passages), size=count)]
        bounds = self.structure.passages
        return generator.integers(bounds[passage], bounds[passage + 1]), passage

    def shares(self) -> np.ndarray:
        shares = np.zeros(len(self.structure.passages) - 1)
        shares[self._passages] = 1 / len(self._passages)
        return shares


class FirstSection(Task):
    """A page is drawn uniformly among those that are `able` and have a first section, the query among its sentences."""

    def __init__(self, structure: Corpus, able: np.ndarray, needs: str) -> None:
        super().__init__(structure)
        first, passages = structure.articles[:-1], structure.passages
        self._starts = passages[first]
        self._counts = passages[first + structure.opening] - self._starts
        self._articles = np.flatnonzero(able & (self._counts >= 1))
        require(len(self._articles) > 0, needs, DataError)
        self.queries = int(self._counts[self._articles].sum())
        # Of each page, the chance to be the query's.
        self._chances = np.bincount(self._articles, minlength=len(structure.names)) / len(self._articles)

    def _draw(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        # Rows of articles, and of the queries.
        article = self._articles[generator.integers(len(self._articles), size=count)]
        return article, self._starts[article] + generator.integers(self._counts[article])


@register("bfs")
class BodyFirst(FirstSection):
    """Body First Selection: a first-section sentence, and a passage of its page (Chang 2020, section 3).

    The passage is drawn uniformly among those of the page that do not hold the query. The paper says "a random passage
    from the same page"; but the words of the query would be in its own.
    """

    def __init__(self, structure: Corpus) -> None:
        others = structure.passages_per_article - 1
        super().__init__(structure, others >= 1, "bfs needs an article with a first section and a second passage")
        self.pairs = int((self._counts * others)[self._articles].sum())

    def draw(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        (article, query), bounds = self._draw(generator, count), self.structure.articles
        passage = generator.integers(bounds[article], bounds[article + 1] - 1)
        return query, passage + (passage >= self.structure.passage_of(query))  # its own passage is jumped over

    def shares(self) -> np.ndarray:
        structure, passages = self.structure, np.arange(len(self.structure.passages) - 1)
        article = structure.article_of(passages)
        others = np.maximum(structure.passages_per_article - 1, 1)
        # The query is not in the passage: surely so outside the first section.
        own = structure.sentences_per_passage / np.maximum(self._counts[article], 1)
        own[passages - structure.articles[article] >= structure.opening[article]] = 0
        return self._chances[article] * (1 - own) / others[article]


@register("wlp")
class WikiLink(FirstSection):
    """Wiki Link Prediction: a first-section sentence, and a passage of a page that links to its page.

    Links run from the document's page to the query's (Chang 2020, section 3). The query's page is one that is linked
    to; then a page is drawn uniformly among those that link to it, then any passage of that page.
    """

    def __init__(self, structure: Corpus) -> None:
        count = len(structure.names)
        # The links the other way round: those that lead to article a are sources[bounds[a]:bounds[a + 1]].
        sources = np.repeat(np.arange(count), np.diff(structure.link_starts))
        self._sources = sources[np.argsort(structure.link_targets, kind="stable")]
        linked = np.bincount(structure.link_targets, minlength=count)
        self._bounds = offsets_of(linked)
        super().__init__(structure, linked >= 1, "wlp needs links between articles, to one that has a first section")
        self.pairs = int((structure.passages_per_article[sources] * self._counts[structure.link_targets]).sum())

    def draw(self, generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        (article, query), bounds = self._draw(generator, count), self.structure.articles
        other = self._sources[generator.integers(self._bounds[article], self._bounds[article + 1])]
        return query, generator.integers(bounds[other], bounds[other + 1])

    def shares(self) -> np.ndarray:
        links, count = np.diff(self._bounds), self.structure.passages_per_article
        each = self._chances / np.maximum(links, 1)  # of a link to each article
        chances = np.bincount(self._sources, np.repeat(each, links), minlength=len(count))
        return np.repeat(chances / count, count)


def task_over(name: str, structure: Corpus) -> Task:
    """Return the task of a name over articles; `DataError` if they have no pair for it."""
    task = TASKS.get(name)(structure)
    require(task.queries > 0, f"{name} finds no pair in these articles", DataError)
    return task


def allowed(tasks: Sequence[str], structure: Corpus) -> list[str]:
    """Return the tasks for which articles have what is needed, and say why others are left out; `DataError` for all."""
    lacking = {}
    for name in tasks:
        try:
            task_over(name, structure)
        except DataError as error:
            lacking[name] = str(error)
    require(len(lacking) < len(tasks), "; ".join(lacking.values()), DataError)
    for name, why in lacking.items():
        runtime.note(f"Pre-training goes without {name}: {why}.")
    return [name for name in tasks if name not in lacking]


class Drawn(NamedTuple):
    """Pairs as rows of sentences and passages of a `Corpus`: three int64 arrays of shape (pairs,)."""

    query: np.ndarray
    passage: np.ndarray
    removed: np.ndarray  # rows of the sentences that the documents lack, or `KEPT`


@dataclass(frozen=True, eq=False)
class PretrainingPairs:
    """Pairs for pre-training, put together when they are asked for (Chang 2020, sections 3 and 4.1).

    A query is a sentence; a document is the title of its article, the separator (``tokenizer.sep``) and a passage; the
    paper says so of ict alone. Tokens beyond `query_length` and `document_length` are cut off. Each pair is drawn from
    one of `tasks`, names in `TASKS`, chosen uniformly. `keep` is the share of the pairs whose query stays in the
    document, where it stands there at all (ict); 0 in Chang 2020, section 3; 0.1 in Lee et al. 2019.
    """

    corpus: Corpus
    tasks: Sequence[str]
    separator: int
    query_length: int | None = 64
    document_length: int | None = 288
    keep: float = 0.0

    def __post_init__(self) -> None:
        valid = f"tasks = {list(self.tasks)} must name at least one, and none twice. Valid: {', '.join(names())}."
        require(len(set(self.tasks)) == len(self.tasks) > 0, valid)
        require(0 <= self.keep <= 1, f"keep = {self.keep} is a share, within 0 and 1")
        self.made  # noqa: B018 - what is wrong with the tasks is said now

    @cached_property
    def made(self) -> list[Task]:
        """The tasks over the corpus."""
        return [task_over(name, self.corpus) for name in self.tasks]

    @cached_property
    def _log_shares(self) -> np.ndarray:
        shares = np.mean([task.shares() for task in self.made], axis=0)
        return np.log(shares, out=np.full(len(shares), -np.inf), where=shares > 0).astype(np.float32)

    def __len__(self) -> int:
        return sum(task.queries for task in self.made)

    def mixed(self, generator: np.random.Generator, count: int) -> Drawn:
        """Return the rows of pairs that are drawn independently of each other."""
        chosen = generator.integers(len(self.made), size=count)
        query, passage = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        for place, task in enumerate(self.made):
            rows = np.flatnonzero(chosen == place)
            sentences, passages = task.draw(generator, len(rows))
            for each, most in (sentences, len(self.corpus.sentences)), (passages, len(self.corpus.passages) - 1):
                check_rows(f"{type(task).__name__}.draw", each, rows.shape, 0, most)
            query[rows], passage[rows] = sentences, passages
        goes = (self.corpus.passage_of(query) == passage) & (generator.random(count) >= self.keep)
        return Drawn(query, passage, np.where(goes, query, KEPT))

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs:
        """Return the pairs of a training step, drawn with replacement; they depend on the arguments alone.

        `Pairs.groups` are the rows of the passages, of copies that of the first; `Pairs.log_shares` are the logarithms
        of the passages' chances to be drawn.
        """
        drawn = self.mixed(np.random.default_rng((seed, step)), pairs_in_batch(len(self), batch_size))
        first, whole = {}, self._documents(drawn._replace(removed=KEPT), None)
        groups = [first.setdefault(whole.row(i).tobytes(), passage) for i, passage in enumerate(drawn.passage)]
        queries = concatenate([self.corpus.sentences.take(drawn.query)], self.query_length)
        shares, documents = self._log_shares[drawn.passage], self._documents(drawn, self.document_length)
        return Pairs(queries, documents, groups=np.array(groups), log_shares=shares)

    def _documents(self, drawn: Drawn, limit: int | None) -> TokenTable:
        corpus, article = self.corpus, self.corpus.article_of(drawn.passage)
        start, stop = corpus.passages[drawn.passage], corpus.passages[drawn.passage + 1]
        # A passage is one run of ids, or two: before and after the sentence that is removed.
        gap = np.where(drawn.removed == KEPT, stop, drawn.removed)
        both = corpus.sentences.take(start, gap), corpus.sentences.take(np.minimum(gap + 1, stop), stop)
        return concatenate([corpus.titles.take(article), self.separator, *both], limit)


class Masked(NamedTuple):
    """Passages with hidden tokens."""

    inputs: TokenTable
    positions: np.ndarray  # int64, (M,): places in the inputs' ids, ascending
    originals: np.ndarray  # int64, (M,): the ids that belong there


@dataclass(frozen=True, eq=False)
class MaskedPassages:
    """Passages for the masked language model (Chang 2020, section 3; Devlin et al. 2019, section 3.1).

    In each passage a share of the tokens is chosen, at least one; of these 80 % become the mask, 10 % a random token
    (none of the other special ones), and 10 % stay as they are. Tokens beyond `length` are cut off.
    """

    corpus: Corpus
    tokenizer: WordPiece
    length: int | None = 288

    def __len__(self) -> int:
        return len(self.corpus.passages) - 1

    def draw(self, step: int, batch_size: int, seed: int) -> Masked:
        """Return the passages of a training step, which depend on the arguments alone; drawn with replacement."""
        generator, count = np.random.default_rng((seed, step)), pairs_in_batch(len(self), batch_size)
        passage, bounds = generator.integers(len(self), size=count), self.corpus.passages
        inputs = concatenate([self.corpus.sentences.take(bounds[passage], bounds[passage + 1])], self.length)
        row, tokens = np.repeat(np.arange(len(inputs)), inputs.lengths), len(inputs.ids)
        shuffled = np.lexsort((generator.random(tokens), row))  # each row's places in random order, row by row
        wanted = np.maximum(1, np.rint(inputs.lengths * MASKED))
        positions = np.sort(shuffled[np.arange(tokens) - inputs.offsets[row] < wanted[row]])
        originals, kind = inputs.ids[positions].astype(np.int64), generator.random(len(positions))
        special = [self.tokenizer.pad, self.tokenizer.cls, self.tokenizer.sep, self.tokenizer.mask]
        ordinary = np.setdiff1d(np.arange(len(self.tokenizer)), special)
        random = ordinary[generator.integers(len(ordinary), size=len(positions))]
        inputs.ids[positions] = np.select([kind < 0.8, kind < 0.9], [self.tokenizer.mask, random], originals)
        return Masked(inputs, positions, originals)
