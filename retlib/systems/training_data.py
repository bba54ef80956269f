"""What stages train on: pre-training tasks over articles, labels, labelled pairs; in every chapter that trains."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.data.articles import Articles, Corpus
from retlib.data.collection import Article, Collection, hash_position, split_by_position
from retlib.data.passages import sentences_of
from retlib.data.text import WordPiece
from retlib.data.tokenized import Pairs, PairSource, TokenizedCollection
from retlib.evaluation import measures
from retlib.models.encoders import DualEncoder
from retlib.models.retriever import Retriever
from retlib.models.transformer import MaskedLanguageModel, Transformer
from retlib.systems.system import StageSetup, TrainingData, Validate
from retlib.training.negatives import Inputs
from retlib.training.pretraining import TASKS, MaskedPassages, PretrainingPairs, allowed
from retlib.training.tasks import MaskedTask, Task

# Pairs or passages that pre-training is validated on, drawn like those of training, under a seed of their own; no more
# than a short training sees.
UNSEEN, OTHER_SEED = 512, 1_000_003
# Of a hundredth of the labels there are at least so many queries of a split.
FEWEST = 10


def _over_pairs(setup: StageSetup, module: DualEncoder, source: PairSource, unseen: Pairs) -> tuple[Task, Validate]:
    # A task over pairs, and precision@1 within rows of unseen ones.
    student = setup.student

    def validate() -> float:
        encoded = student.encode_queries(unseen.queries), student.encode_documents(unseen.documents)
        return measures.rows_precision(*encoded, unseen.groups)

    return setup.task(module, Inputs(source, setup.stage.batch_size, setup.seed)), validate


@dataclass(frozen=True)
class Pretraining(TrainingData):
    """Pairs out of text that nobody labelled (Chang 2020, section 3).

    The `tasks` of `retlib.training.pretraining.TASKS` are mixed uniformly; those that the articles do not allow, such
    as wlp without links, are left out with a sentence. Without articles each passage of what trains is a page of its
    own. For `keep` see `retlib.training.pretraining.PretrainingPairs`. Validated by precision@1 of unseen pairs.
    """

    tasks: Sequence[str]
    articles: Articles | None = None
    keep: float = 0.0

    def __post_init__(self) -> None:
        for name in self.tasks:
            require_one_of("a pre-training task", name, TASKS.names())

    def address(self, target: Collection) -> dict[str, Any]:
        tasks = [[name, TASKS.source(name)] for name in self.tasks]
        text = self.articles.corpus if self.articles else target
        return {"tasks": tasks, "keep": self.keep, "pages": text.fingerprint}

    def prepare(self, setup: StageSetup, module: DualEncoder) -> tuple[Task, Validate]:
        student, tokenizer = setup.student.architecture, setup.student.tokenizer
        corpus = self.articles.corpus if self.articles else _passages_as_pages(setup.target, tokenizer)
        own = not self.articles or self.articles.tokenizer == tokenizer
        require(own, f"pages of {self.articles} are read in their own vocabulary: it must be the system's tokens, too")
        lengths = student.query_length, student.document_length
        source = PretrainingPairs(corpus, allowed(self.tasks, corpus), tokenizer.sep, *lengths, self.keep)
        unseen = source.draw(0, min(UNSEEN, setup.stage.seen or UNSEEN), setup.seed + OTHER_SEED)
        return _over_pairs(setup, module, source, unseen)


@lru_cache(maxsize=4)
def _passages_as_pages(collection: Collection, tokenizer: WordPiece) -> Corpus:
    texts = collection.documents.reindex(columns=["title", "text"], fill_value="")
    pages = (Article(name, title, (text,), opening=1) for name, title, text in texts.itertuples(name=None))
    return Corpus.build(pages, tokenizer.encode, sentences_of)


@dataclass(frozen=True)
class MaskedTokens(TrainingData):
    """Passages with hidden tokens, to be predicted by a Transformer (MLM: Devlin et al. 2019).

    Validated by the log-likelihood of hidden tokens of unseen passages. The output's bias begins with the tokens'
    frequencies: else the first hundreds of steps put these into the states, which then all have one direction.
    """

    articles: Articles

    def address(self, target: Collection) -> dict[str, Any]:
        return {"masked": self.articles.corpus.fingerprint}

    def prepare(self, setup: StageSetup, module: DualEncoder) -> tuple[Task, Validate]:
        student, stage, encoder, corpus = setup.student, setup.stage, module.query_encoder, self.articles.corpus
        fits = isinstance(encoder, Transformer) and encoder.layers > 0 and not stage.token_dropout
        require(fits, "masked tokens are predicted by a Transformer with layers, from all that stands around them")
        model = MaskedLanguageModel(encoder).to(runtime.device())
        counts = 1 + np.bincount(corpus.sentences.ids, minlength=model.output.out_features)
        model.output.bias.data.copy_(torch.from_numpy(np.log(counts / counts.sum())))
        passages = MaskedPassages(corpus, student.tokenizer, student.architecture.document_length)
        task = MaskedTask(model, passages, stage.batch_size, setup.seed)
        unseen = passages.draw(0, min(UNSEEN // 4, stage.seen or UNSEEN), setup.seed + OTHER_SEED)
        return task, lambda: -task.loss(unseen).item()

    def finish(self, student: Retriever) -> None:
        """With two towers, the other gets the same weights."""
        if student.architecture.towers == "two":
            student.model.document_encoder.load_state_dict(student.model.query_encoder.state_dict())


class CollectionQueries(TrainingData):
    """Queries of a collection with what is relevant to each, as the subclass says; see `StageSetup.validation`."""

    fits_query_encoder = True

    @abstractmethod
    def collection(self, target: Collection) -> Collection:
        """The queries that train and validate, with all documents."""

    def query_collections(self, target: Collection) -> list[Collection]:
        return [self.collection(target)]

    def address(self, target: Collection) -> dict[str, Any]:
        return {type(self).__name__: self.collection(target).fingerprint}

    def prepare(self, setup: StageSetup, module: DualEncoder) -> tuple[Task, Validate]:
        collection = self.collection(setup.target)
        return setup.task(module, setup.inputs(collection)), setup.validation(collection)


@dataclass(frozen=True, eq=False)
class Labels(CollectionQueries):
    """A collection's own training queries, by default those of the collection that the system is trained for.

    `share` is of its training and validation queries, by a hash of their ids. A collection without validation queries
    that have a relevant document lends a tenth of its training queries.
    """

    of: Collection | None = None
    share: float = 1.0

    def __repr__(self) -> str:
        name = "labels" if self.of is None else f"labels of {self.of.name}"
        return name if self.share == 1 else f"{name}, {self.share:g}"

    def collection(self, target: Collection) -> Collection:
        return _labels(self.of or target, self.share)


@lru_cache(maxsize=16)
def _labels(collection: Collection, share: float) -> Collection:
    queries = collection.queries
    judged = queries["split"][collection.relevant()["query_id"].unique()]
    judged = judged[judged != "test"]
    require(
        len(judged) > 1, f"collection {collection.name!r} has {len(judged)} labelled queries to train on", DataError
    )
    if "dev" not in set(judged):
        # Where a tenth leaves train or dev without a labelled query, dev has the one whose hash is highest.
        position = pd.Series(queries.index, queries.index).map(hash_position)
        split = queries["split"].where(queries["split"] == "test", split_by_position(position, 1, 1))
        lent = position[judged.index]
        if split[lent.index].nunique() == 1:
            split[lent.index] = np.where(lent == lent.max(), "dev", "train")
        collection, judged = replace(collection, queries=queries.assign(split=split)), split[lent.index]
    if share == 1:
        return collection
    chosen: set[str] = set(collection.split("test").index)
    for names in judged.groupby(judged).groups.values():
        chosen |= set(sorted(names, key=hash_position)[: max(FEWEST, round(share * len(names)))])
    return collection.part(queries=collection.queries.index.isin(chosen))


@dataclass(frozen=True, eq=False)
class LabelledPairs(CollectionQueries):
    """A collection's labelled pairs of items: questions that ask the same (Gillick 2018, section 3.3).

    Negatives "labelled" see the pairs that are labelled negative, too. Validated by precision@1 within rows of 1000
    pairs.
    """

    of: Collection | None = None
    fits_query_encoder = False

    def __repr__(self) -> str:
        return "labelled pairs" if self.of is None else f"labelled pairs of {self.of.name}"

    def collection(self, target: Collection) -> Collection:
        return self.of or target

    def prepare(self, setup: StageSetup, module: DualEncoder) -> tuple[Task, Validate]:
        tokenized = setup.student.reads(self.collection(setup.target))
        source = _pairs(tokenized, "train", None if setup.stage.negatives == "labelled" else 1)
        return _over_pairs(setup, module, source, _pairs(tokenized, "dev", 1))


def _pairs(tokenized: TokenizedCollection, split: str, label: int | None) -> Pairs:
    # The labelled pairs of a split; a pair's group is its cluster.
    collection = tokenized.collection
    chosen = collection.labelled(split, label)
    require(len(chosen) > 0, f"collection {collection.name!r} has no {split} pairs", DataError)
    left, right = chosen["left"], chosen["right"]
    # An item outside every cluster (in negative pairs only) is a cluster of its own.
    groups = pd.factorize(collection.queries["cluster"].reindex(left).fillna(left.set_axis(left)))[0]
    shares = right.map(right.value_counts(normalize=True)).to_numpy(np.float32)
    texts = collection.text_numbers[collection.documents.index.get_indexer(right)]
    tables, labels = map(tokenized.document_rows, (left, right)), chosen["label"].to_numpy(np.int8)
    return Pairs(*tables, labels, groups, np.log(shares), texts=texts)
