"""A study over ReQA: systems x shares of labels x seeds, on one collection (Chang 2020, section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import chain, islice, product
from typing import Any

import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.core.rules import Rule, each_of, mapping_of, number, one_of
from retlib.data import datasets
from retlib.data.collection import Collection, low_resource, subsample
from retlib.data.text import TokenTable, WordPiece, quick_sentences
from retlib.models.transformer import POOLINGS
from retlib.retrieval.lexical import BM25
from retlib.studies.experiment import Experiment, Outcome
from retlib.systems import dense
from retlib.systems.dense import Architecture, Benchmark, Retriever, Schedule
from retlib.training.pretraining import Corpus

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100"]
# The systems of Tables 3 and 4.
NAMES = ["BoW-MLP", "BoW-MLP, ICT+BFS+WLP", "Transformer", "Transformer, MLM", "Transformer, ICT+BFS+WLP"]
TEST = 0.2  # the share of the queries that every system of a study is tested on


@dataclass(frozen=True)
class System:
    """A retriever of a study.

    Parameters
    ----------
    architecture : Architecture
    tasks : tuple of str
        Of its pre-training; none by default.
    """

    architecture: Architecture
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Study:
    """One collection, one pre-training corpus, and how long to train on each.

    Parameters
    ----------
    collection : Collection
        See `retlib.systems.dense.Benchmark`.
    prepared : (WordPiece, Corpus)
        As `retlib.systems.dense.prepare` returns it.
    pretraining : Schedule
        Of the tasks that make pairs.
    masking : Schedule
        Of MLM, which needs a lower rate.
    finetuning : mapping of float to Schedule
        For each share of labels that is studied.
    most : int
        About how many candidates there are, the passages of the test queries among them.
    """

    collection: Collection
    prepared: tuple[WordPiece, Corpus]
    pretraining: Schedule
    masking: Schedule
    finetuning: Mapping[float, Schedule]
    most: int

    def part(self, share: float) -> Collection:
        """The collection with a share of its queries for training, the last fifth for testing."""
        return _part(self, share)

    def benchmark(self, architecture: Architecture) -> Benchmark:
        """The collection, tokenized and cut at the lengths of an architecture."""
        return _benchmark(self, architecture.query_length, architecture.document_length)

    def pretrained(self, system: System, seed: int) -> Retriever:
        """The system before it has seen a label."""
        if not system.tasks:
            return Retriever.fresh(system.architecture, self.prepared[0], seed)
        return dense.pretrain(self.prepared, system.architecture, system.tasks, self.schedule(system), seed)

    def schedule(self, system: System) -> Schedule:
        """Of a system's pre-training."""
        return self.masking if system.tasks == (dense.MLM,) else self.pretraining

    def retriever(self, system: System, share: float, seed: int) -> Retriever:
        """The system, fine-tuned on a share of the labels."""
        start, benchmark = self.pretrained(system, seed), self.benchmark(system.architecture)
        return dense.finetune(start, benchmark, self.part(share), self.finetuning[share], seed)

    def run(self, retriever: Retriever, share: float, added: TokenTable | None = None) -> pd.DataFrame:
        """A retriever's run over the test queries."""
        return dense.rank(retriever, self.benchmark(retriever.architecture), self.part(share), added=added)

    def candidates(self, share: float, added: Added | None = None) -> int:
        """How many candidates the test queries have."""
        return len(self.part(share).documents) + (0 if added is None else len(added))

    def settings(self, system: System, share: float) -> dict[str, Any]:
        """What made a system, as recorded beside its results."""
        return {
            **asdict(system.architecture),
            "tasks": "+".join(system.tasks) or "none",
            "pretraining": asdict(self.schedule(system)) if system.tasks else {},
            "finetuning": asdict(self.finetuning[share]),
            "corpus": self.prepared[1].fingerprint[:12],
        }


# A study is asked for the same thing for every system and seed.
@lru_cache(maxsize=64)
def _part(study: Study, share: float) -> Collection:
    return subsample(low_resource(study.collection, share, TEST), study.most)


@lru_cache(maxsize=8)
def _benchmark(study: Study, query_length: int, document_length: int) -> Benchmark:
    return Benchmark.tokenize(study.collection, study.prepared[0], query_length, document_length)


# --- a notebook's parameters -----------------------------------------------------------------------

_POSITIVE = number(1, whole=True)

# The parameters that the notebooks of this part share, so that one finds what another has trained.
RULES: dict[str, Rule] = {
    "articles": one_of(datasets.article_names()),
    "units": number(100, whole=True),
    "candidates": _POSITIVE,
    "shares": each_of(number(0.001, 1 - TEST)),
    "layers": _POSITIVE,
    "width": _POSITIVE,
    "dimension": _POSITIVE,
    "pooling": one_of(POOLINGS),
    "towers": one_of(dense.TOWERS),
    "query_length": _POSITIVE,
    "document_length": _POSITIVE,
    "pretraining_steps": _POSITIVE,
    "pretraining_batch": number(2, whole=True),
    "pretraining_rate": number(1e-7, 1),
    "mlm_rate": number(1e-7, 1),
    "finetuning_steps": mapping_of(None, _POSITIVE),
    "finetuning_batch": number(2, whole=True),
    "finetuning_rate": number(1e-7, 1),
}


def architecture(parameters: Mapping[str, Any], **changes: Any) -> Architecture:
    """The Transformer that a notebook's parameters describe, with changes."""
    names = ("layers", "width", "dimension", "pooling", "towers", "query_length", "document_length")
    return Architecture(**{**{name: parameters[name] for name in names}, **changes})


def study(collection: Collection, parameters: Mapping[str, Any]) -> Study:
    """The study of a collection that a notebook's parameters describe.

    Raises
    ------
    SettingError
        If a share has no number of steps for its fine-tuning.
    """
    given = parameters["finetuning_steps"]
    wrong = [share for share in given if not re.fullmatch(r"0?\.\d+", str(share))]
    require(not wrong, f"finetuning_steps = {given}: {wrong} are no shares, such as 0.05")
    steps = {float(share): count for share, count in given.items()}
    missing = sorted(set(parameters["shares"]) - set(steps))
    require(not missing, f"finetuning_steps = {given} lacks the share(s) {missing}")
    batch, rate = parameters["finetuning_batch"], parameters["finetuning_rate"]
    pretraining = Schedule(
        parameters["pretraining_steps"], parameters["pretraining_batch"], parameters["pretraining_rate"]
    )
    return Study(
        collection,
        dense.prepare(parameters["articles"], parameters["units"]),
        pretraining,
        replace(pretraining, learning_rate=float(parameters["mlm_rate"])),
        {share: Schedule(count, batch, rate) for share, count in steps.items()},
        parameters["candidates"],
    )


# --- recording -------------------------------------------------------------------------------------


def record_systems(
    experiment: Experiment, study: Study, systems: Mapping[str, System], added: Added | None = None
) -> None:
    """Train, rank and record every system at every share with every seed; what is trained is found again."""
    shares, seeds = experiment.parameters["shares"], experiment.parameters["seeds"]
    # Seed by seed, so that a study that is stopped has whole seeds.
    todo = list(product(seeds, systems, shares))
    for seed, name, share in runtime.progress(todo, desc=study.collection.name, unit="run"):

        def make(share: float = share, system: System = systems[name], seed: int = seed) -> Outcome:
            retriever = study.retriever(system, share, seed)
            length = system.architecture.document_length
            further = None if added is None else added.tokenize(study.prepared[0], length)
            run = study.run(retriever, share, further)
            settings, history = study.settings(system, share), retriever.history
            return Outcome(run, settings, history.best_step, history.seconds, study.candidates(share, added))

        experiment.measure(name, named(study.part(share), added), seed, make, measures=MEASURES)


def record_unlabelled(experiment: Experiment, study: Study, systems: Mapping[str, System]) -> None:
    """The pre-trained systems before they have seen a label, on the test queries."""
    share = experiment.parameters["shares"][0]
    for name, system in systems.items():
        for seed in experiment.parameters["seeds"]:

            def make(system: System = system, seed: int = seed) -> Outcome:
                retriever = study.pretrained(system, seed)
                settings = {**study.settings(system, share), "finetuning": {}}
                return Outcome(study.run(retriever, share), settings, steps=0)

            experiment.measure(f"{name}, no labels", study.part(share), seed, make, measures=MEASURES)


def record_bm25(experiment: Experiment, study: Study, systems: Mapping[str, BM25], added: Added | None = None) -> None:
    """BM25 over the same candidates; it is not trained, so one run serves every share."""
    parts = {share: study.part(share) for share in experiment.parameters["shares"]}
    for name, system in systems.items():
        part = next(iter(parts.values()))
        run = ranked(system, part, part.split("test"), added)
        for share, part in parts.items():
            outcome = Outcome(run, system.settings, candidates=study.candidates(share, added))
            experiment.measure(name, named(part, added), 0, outcome, measures=MEASURES)


def record_others(experiment: Experiment, collection: Collection, systems: Mapping[str, BM25]) -> None:
    """BM25 over all candidates, tested on all queries but the share that would train: the paper's test sets."""
    for name, system in systems.items():
        run = ranked(system, collection, collection.queries)
        for share in experiment.parameters["shares"]:
            part = low_resource(collection, share)
            part = replace(part, name=f"{part.name}-others")
            mine = run[run["query_id"].isin(part.split("test").index)]
            outcome = Outcome(mine, system.settings)
            experiment.measure(name, part, 0, outcome, measures=["R@1"])


def ranked(system: BM25, part: Collection, queries: pd.DataFrame, added: Added | None = None) -> pd.DataFrame:
    """The run of a lexical system over a part's candidates, and added ones."""
    texts = part.documents["text"]
    return system.rank(texts if added is None else pd.concat([texts, added.texts]), queries["text"])


def named(part: Collection, added: Added | None) -> Collection:
    """The part under the name that results with further candidates are recorded under."""
    return part if added is None else replace(part, name=f"{part.name}+added")


@dataclass(frozen=True, eq=False)
class Added:
    """Further candidates from other text, none of which is relevant (section 4.4).

    Parameters
    ----------
    sentences, contexts : list of str
        A sentence, and the passage that it stands in.
    """

    sentences: list[str]
    contexts: list[str]

    @classmethod
    def gather(cls, sources: Iterable[str], count: int) -> Added:
        """The first `count` sentences with their passages, outside the first sections.

        First sections are left out because the candidates of some collections are made of them.
        """
        found = list(islice(cls._stream(sources), count))
        require(len(found) == count, f"{', '.join(sources)} give {len(found)} candidates, not {count}", DataError)
        return cls([sentence for sentence, _ in found], [context for _, context in found])

    @staticmethod
    def _stream(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
        for article in chain.from_iterable(map(datasets.articles, sources)):
            for passage in article.passages[article.opening :]:
                for sentence in quick_sentences(passage):
                    yield sentence, passage

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def texts(self) -> pd.Series:
        """Sentence and passage, as candidates have them; ids as `retlib.systems.dense.rank` gives them."""
        texts = [f"{sentence} {context}" for sentence, context in zip(self.sentences, self.contexts, strict=True)]
        return pd.Series(texts, index=dense.added_ids(len(self)), dtype=object)

    def tokenize(self, wordpiece: WordPiece, length: int) -> TokenTable:
        """Token rows, cut at a length."""
        return _tokenized(self, wordpiece, length)


@lru_cache(maxsize=1)  # the same for every seed; as large as the text itself
def _tokenized(added: Added, wordpiece: WordPiece, length: int) -> TokenTable:
    return dense.candidates(added.sentences, added.contexts, wordpiece, length)


def record_many(experiment: Experiment, study: Study, systems: Mapping[str, System], many: Added) -> None:
    """As `record_systems` with very many added candidates, for the first share and seed alone.

    These have half of a document's length, to be encoded in half of the time.
    """
    share, seed = experiment.parameters["shares"][0], experiment.parameters["seeds"][0]
    part = replace(study.part(share), name=f"{study.part(share).name}+many")
    for name, system in systems.items():

        def make(system: System = system) -> Outcome:
            short = many.tokenize(study.prepared[0], system.architecture.document_length // 2)
            run = study.run(study.retriever(system, share, seed), share, short)
            return Outcome(run, study.settings(system, share), candidates=study.candidates(share, many))

        experiment.measure(name, part, seed, make, measures=MEASURES)
