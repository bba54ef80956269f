"""The systems of Part III: on what each is trained, one thing after the other, and on what it is tested.

A system's name is ``tower | data``, as in the paper's tables. A generator that was trained on one labelled
collection serves targets whose labels it has not seen; that is one `Study`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, mapping_of, number, one_of, some_of
from retlib.data import collection, datasets, passages, text
from retlib.data.collection import Collection, hash_position, subsample, with_distractors
from retlib.data.text import WordPiece
from retlib.models import decoding
from retlib.models.transformer import HEADS, POOLINGS
from retlib.retrieval.lexical import BM25
from retlib.studies.experiment import Experiment, Outcome, collection_name
from retlib.systems import dense, query_generation, zero_shot
from retlib.systems.dense import Architecture, Retriever, Schedule
from retlib.systems.query_generation import Generator
from retlib.training.pretraining import Corpus

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100", "RR@10", "nDCG@10"]
# Of what has a hundred thousand questions, whose values by query fill megabytes.
WHOLE_MEASURES = ["R@1", "R@10"]
TOWERS = {"Siamese": "siamese", "Two-Tower": "two"}
TASKS = ("ict", "bfs", "wlp")
LEXICAL = {"BM25": BM25(), "BM25, stemmed": BM25(stop_words="english", stemmer="english")}
EXPANDED = "BM25, expanded"
# Trained once for all targets of a generator.
GENERAL = [f"{tower} | {data}" for data in ("WikiGQ", "Source") for tower in TOWERS]
# Trained on queries that were generated from the target's own passages.
ADAPTED = [f"{tower} | WikiGQ+FT(GQ)" for tower in TOWERS]
OFFICIAL = "Siamese | Official data"
COMPARED = "Two-Tower | ICT+BFS+WLP"
# Table 5.
ON_TARGET = [f"{tower} | {data}" for tower in TOWERS for data in ("ICT", "Beam", "Nucleus")]
PRETRAINED = "Siamese | WikiGQ+FT(official)"
# Share of the labels that `COMPARED` is trained on, and how many queries of a split that is at least.
FEW, FEWEST = 0.01, 10
# Separate passages, at least.
FEWEST_SEPARATE = 50
# Shares of the separate passages, of Figure 3; sizes of an encoding, of Figure 2.
SHARES = (0.04, 0.2, 1.0)
PORTIONS = tuple(f"Siamese | WikiGQ, {share:.0%}".replace("%", " %") for share in SHARES)
DIMENSIONS = (16, 32, 64, 128)
GENERATOR_SEED = 0  # one generator and one set of queries for all seeds, as in the paper


@dataclass(frozen=True)
class Generation:
    """How the generator is trained, and how it writes.

    Parameters
    ----------
    architecture : querygen.Architecture
    denoising : Schedule or None
        Of BART's pre-training on unlabelled text; None leaves it out.
    training : Schedule
        On the labelled pairs.
    sampling : decoding.Nucleus
        Of the queries that retrievers are trained on.
    """

    architecture: query_generation.Architecture
    denoising: Schedule | None
    training: Schedule
    sampling: decoding.Decoding


@dataclass(frozen=True, eq=False)
class Study:
    """A generator, its targets, and how long to train on what it writes.

    Parameters
    ----------
    source : Collection
        Whose labels the generator learned from.
    answers : Collection or None
        The same labels, with the sentences that answer as documents: the generator learns from these and reads
        a passage sentence by sentence. None lets it read whole passages.
    targets : tuple of Collection
        Whose labels it has not seen.
    prepared : (WordPiece, Corpus)
        As `retlib.systems.dense.prepare` returns it.
    generation : Generation
    architecture : Architecture
        Of the Siamese retriever.
    first : Schedule
        Of the first training of a retriever, the same for all.
    later : Schedule, optional
        Of those that follow.
    separate : DataFrame, optional
        Passages that are no target's, as `retlib.data.passages.passages` returns them.
    """

    source: Collection
    answers: Collection | None
    targets: tuple[Collection, ...]
    prepared: tuple[WordPiece, Corpus]
    generation: Generation
    architecture: Architecture
    first: Schedule
    later: Schedule | None = None
    separate: pd.DataFrame | None = None

    @property
    def generator(self) -> Generator:
        """The trained generator."""
        return _generator(self)

    @property
    def generator_seconds(self) -> float:
        """What its training took, denoising included."""
        started = _start(self).history
        return self.generator.history.seconds + (started.seconds if started.evaluations else 0.0)

    def generated(self, documents: pd.DataFrame, how: decoding.Decoding | None = None, seed: int = 0) -> pd.DataFrame:
        """The queries of passages; by nucleus sampling, if not told how."""
        how, texts = how or self.generation.sampling, documents["text"]
        if self.answers is None:
            return query_generation.generate(self.generator, texts, how, seed)
        return passages.of_passages(query_generation.generate(self.generator, passages.sentences(texts), how, seed))

    def expanded(self, documents: pd.DataFrame) -> pd.Series:
        """The texts of passages, each with its queries behind it."""
        return zero_shot.expand(documents["text"], self.generated(documents))

    def retriever(self, system: str, target: Collection | None, seed: int) -> Retriever:
        """A system, trained or found. `target` is not needed for those of `GENERAL`."""
        tower, _, data = system.partition(" | ")
        architecture, wordpiece = replace(self.architecture, towers=TOWERS[tower]), self.prepared[0]
        if data == "ICT":
            return zero_shot.ict(architecture, wordpiece, target.documents, self.first, seed)
        if data == "ICT+BFS+WLP":
            start = dense.pretrain(self.prepared, architecture, TASKS, self.first, seed)
            return zero_shot.fit(start, architecture, wordpiece, _few(target), self.later, seed)
        if data.endswith("dimensions"):
            architecture, data = replace(architecture, dimension=int(data.split()[0])), "Official data"
        parts = [self.part(name, target) for name in data.split("+")]
        return zero_shot.chain(parts, architecture, wordpiece, self.first, self.later, seed)

    def part(self, name: str, target: Collection | None) -> Collection:
        """The collection to train on that a part of a system's name stands for."""
        if name.startswith("WikiGQ"):
            return _wikigq(self, int(name.split()[1]) / 100 if ", " in name else 1.0)
        parts: dict[str, Callable[[], Collection]] = {
            "Source": lambda: _labelled(self.source),
            "Official data": lambda: _labelled(target),
            "FT(official)": lambda: _labelled(target),
            "FT(GQ)": lambda: _on(self, target, self.generation.sampling),
            "Nucleus": lambda: _on(self, target, self.generation.sampling),
            "Beam": lambda: _on(self, target, decoding.Beam()),
        }
        require_one_of("training data", name, parts)
        return parts[name]()

    def run(self, retriever: Retriever, test: Collection) -> pd.DataFrame:
        """A retriever's run over the test queries."""
        lengths = retriever.architecture.query_length, retriever.architecture.document_length
        return dense.rank(retriever, zero_shot.tokenized(test, self.prepared[0], *lengths), test)

    def outcome(self, system: str, target: Collection, test: Collection, seed: int) -> Outcome:
        """A system, trained or found, on a test."""
        retriever = self.retriever(system, target, seed)
        history = retriever.history
        return Outcome(self.run(retriever, test), self.settings(system), history.best_step, history.seconds)

    def settings(self, system: str) -> dict[str, Any]:
        """What made a system, as recorded beside its results."""
        further = {} if self.later is None else {"later": asdict(self.later)}
        further |= {} if self.separate is None else {"separate passages": len(self.separate)}
        return {
            **asdict(self.architecture), "towers": TOWERS[system.partition(" | ")[0]], "source": self.source.name,
            "first": asdict(self.first), "generator": self.generator.name,
            "sampling": self.generation.sampling.settings, **further,
        }  # fmt: skip


# --- what a study trains on -------------------------------------------------------------------------
# Asked for with every system and seed, so kept.


@lru_cache(maxsize=1)  # of the last study alone: what others start from may be large
def _start(study: Study) -> Generator:
    """What learns from labels: fresh, a checkpoint, or trained to denoise."""
    how = study.generation
    wordpiece = None if how.architecture.checkpoint else study.prepared[0]
    fresh = Generator.fresh(how.architecture, wordpiece, GENERATOR_SEED)
    return query_generation.denoise(fresh, study.prepared[1], how.denoising, GENERATOR_SEED) if how.denoising else fresh


@lru_cache(maxsize=4)
def _generator(study: Study) -> Generator:
    read = (study.answers, "sentence") if study.answers else (study.source, "text")
    pairs = query_generation.labelled_pairs(*read)
    return query_generation.fit(_start(study), pairs, study.generation.training, GENERATOR_SEED)


@lru_cache(maxsize=8)
def _wikigq(study: Study, share: float) -> Collection:
    part = passages.sample(study.separate, max(2, round(share * len(study.separate))))
    whole = study.generated(study.separate)
    mine = whole[whole["passage_id"].isin(part.index)].reset_index(drop=True)
    return zero_shot.synthetic(f"WikiGQ {share:g}", mine, part)


@lru_cache(maxsize=8)
def _on(study: Study, target: Collection, how: decoding.Decoding) -> Collection:
    return zero_shot.synthetic(f"{target.name}, {how.name}", study.generated(target.documents, how), target.documents)


@lru_cache(maxsize=8)
def _labelled(collection: Collection) -> Collection:
    return zero_shot.labelled(collection)


@lru_cache(maxsize=8)
def _few(collection: Collection) -> Collection:
    """The labels of a hundredth of the training and of the validation queries, by a hash of their ids."""
    whole = _labelled(collection)
    asked = pd.Series(whole.queries.index.str.rpartition("?").get_level_values(0), whole.queries.index)
    chosen: set[str] = set()
    for _, names in asked.groupby(whole.queries["split"]):
        order = sorted(set(names), key=hash_position)
        chosen |= set(order[: max(FEWEST, round(FEW * len(order)))])
    queries = whole.queries[asked.isin(chosen)]
    qrels = whole.qrels[whole.qrels["query_id"].isin(queries.index)]
    return replace(whole, name=f"{collection.name}, few labels", queries=queries, qrels=qrels)


def has_labels(collection: Collection) -> bool:
    """Whether a collection has judged queries beside those of its test."""
    others = collection.queries.index[collection.queries["split"] != "test"]
    relevant = collection.qrels["query_id"][collection.qrels["relevance"] > 0]
    return relevant[relevant.isin(others)].nunique() > 1


# --- a notebook's parameters -----------------------------------------------------------------------


def _generators(name: str, value: Any) -> None:
    """A rule: labelled collections, each with a list of others."""
    require(isinstance(value, dict) and len(value) > 0, f"{name} = {value!r} must map collections to their targets")
    for source, targets in value.items():
        collection_name(f"{name} (a collection)", source)
        each_of(collection_name)(f"{name}[{source!r}]", targets)
        require(source not in targets, f"{name}: {source!r} is no target of a generator that has seen its labels")
    targets = [target for each in value.values() for target in each]
    require(len(set(targets)) == len(targets), f"{name} = {value!r} names a target twice")


def _checkpoint(name: str, value: Any) -> None:
    require(isinstance(value, str), f"{name} = {value!r} must be a folder or hub name of a BART, or empty")


# The parameters of generator and retriever, which the leaderboard has, too.
COMMON: dict[str, Rule] = {
    "generators": _generators,
    "answers": mapping_of(None, collection_name),
    "documents": number(2, whole=True),
    "questions": POSITIVE,
    "articles": one_of(datasets.article_names()),
    "units": number(100, whole=True),
    "generator_head": one_of(("pointer", "bart")),
    "generator_checkpoint": _checkpoint,
    "generator_layers": POSITIVE,
    "generator_width": POSITIVE,
    "denoising_steps": number(0, whole=True),
    "generator_steps": POSITIVE,
    "generator_batch": number(2, whole=True),
    "generator_rate": RATE,
    "passage_length": POSITIVE,
    "samples": POSITIVE,
    "kept": POSITIVE,
    "layers": POSITIVE,
    "width": POSITIVE,
    "dimension": POSITIVE,
    "pooling": one_of(POOLINGS),
    "head": one_of(HEADS),
    "query_length": POSITIVE,
    "document_length": POSITIVE,
    "steps": POSITIVE,
    "batch": number(2, whole=True),
    "rate": RATE,
}

# What the notebooks of this part share, so that one finds what another has made.
RULES: dict[str, Rule] = {
    **COMMON,
    "separate": number(FEWEST_SEPARATE, whole=True),
    "later_steps": POSITIVE,
    "later_rate": RATE,
}

# Those of what is tested on.
TESTED: dict[str, Rule] = {
    "adapted": some_of(collection_name),
    "compared": some_of(collection_name),
    "added": mapping_of(None, POSITIVE),
    "added_articles": one_of(datasets.article_names()),
    "whole": some_of(collection_name),
}


def studies(p: Mapping[str, Any]) -> dict[str, Study]:
    """The studies that a notebook's parameters describe, by the name of the generator's source.

    Raises
    ------
    SettingError
        If a parameter speaks of a target that no generator has, or a checkpoint is to be pre-trained.
    """
    targets = [target for each in p["generators"].values() for target in each]
    for name in ("adapted", "compared", "added", "quoted"):
        for target in p.get(name, ()):
            require_one_of(f"{name} (a target of `generators`)", target, targets)
    for source in p["answers"]:
        require_one_of("answers (a collection of `generators`)", source, p["generators"])
    wrong = "a generator_checkpoint is pre-trained already: denoising_steps must be 0"
    require(not (p["generator_checkpoint"] and p["denoising_steps"]), wrong)
    return {source: _study(p, source, targets) for source, targets in p["generators"].items()}


def _study(p: Mapping[str, Any], source: str, names: Sequence[str]) -> Study:
    generator = query_generation.Architecture(
        # The weights of a checkpoint know no copy mechanism.
        head="bart" if p["generator_checkpoint"] else p["generator_head"], checkpoint=p["generator_checkpoint"],
        layers=p["generator_layers"], width=p["generator_width"],
        passage_length=p["passage_length"], query_length=p["query_length"],
    )  # fmt: skip
    training = Schedule(p["generator_steps"], p["generator_batch"], p["generator_rate"])
    generation = Generation(
        generator,
        replace(training, steps=p["denoising_steps"]) if p["denoising_steps"] else None,
        training,
        decoding.Nucleus(samples=p["samples"], keep=p["kept"]),
    )
    shape = ("layers", "width", "dimension", "pooling", "head", "query_length", "document_length")
    targets = tuple(_cut(datasets.load(name), p["documents"], p["questions"]) for name in names)
    return Study(
        datasets.load(source),
        datasets.load(p["answers"][source]) if source in p["answers"] else None,
        targets,
        dense.prepare(p["articles"], p["units"]),
        generation,
        Architecture(**{name: p[name] for name in shape}),
        Schedule(p["steps"], p["batch"], p["rate"]),
        Schedule(p["later_steps"], p["batch"], p["later_rate"]) if "later_steps" in p else None,
        passages.sample(separate(p["articles"], names), p["separate"]) if "separate" in p else None,
    )


def _cut(collection: Collection, documents: int, questions: int) -> Collection:
    """A part of a collection; where candidates are sentences of passages, these stay whole."""
    return subsample(collection, documents, None if "passage" in collection.documents else questions)


def separate(source: str, names: Sequence[str]) -> pd.DataFrame:
    """All passages of a source of articles that are none of these collections', whole as they are; made once."""
    targets = [datasets.load(name) for name in names]
    settings = {
        "source": {source: datasets.provenance(source)},
        "targets": [target.fingerprint for target in targets],
    }

    modules = (collection, passages, text, datasets.reader(source))

    def make(folder: Path) -> None:
        articles = runtime.progress(datasets.articles(source), desc=f"{source}: passages")
        passages.unseen(passages.passages(articles), *targets).to_parquet(folder / "passages.parquet")

    return pd.read_parquet(cache.artefact("passages", settings, modules, make) / "passages.parquet")


# By name: the target, and the collection that is searched, which may have further candidates.
Tests = Mapping[str, tuple[Collection, Collection]]


def tests(study: Study, added: Mapping[str, int] | None = None, articles: str = "") -> Tests:
    """What the systems of a study are tested on.

    Parameters
    ----------
    added : mapping, optional
        Target to a number of further candidates; with these it is searched a second time.
    articles : str
        The source of articles whose passages these are.

    Raises
    ------
    DataError
        If there are fewer such passages.
    """
    found = {}
    for target in study.targets:
        found[target.name] = target, target
        if count := (added or {}).get(target.name):
            others = separate(articles, [each.name for each in study.targets])
            wrong = f"{articles} has {len(others)} passages that are no target's, not {count}"
            require(len(others) >= count, wrong, DataError)
            crowd = with_distractors(target, passages.sample(others, count), f"{target.name}+added")
            found[crowd.name] = target, crowd
    return found


# --- recording -------------------------------------------------------------------------------------


def record_lexical(experiment: Experiment, study: Study, tests: Tests, adapted: Iterable[str]) -> None:
    """BM25 on every test; and over documents that are expanded by their queries, on the targets that have some."""
    for _, test in tests.values():
        for name, system in LEXICAL.items():
            record_bm25(experiment, name, system, test, test.documents["text"])
    for target, test in (tests[name] for name in adapted if name in tests):
        record_bm25(experiment, EXPANDED, BM25(), test, study.expanded(target.documents))


def record_bm25(
    experiment: Experiment,
    name: str,
    system: BM25,
    test: Collection,
    texts: pd.Series,
    measures: Sequence[str] = MEASURES,
) -> None:
    """BM25 over texts of a test's documents, recorded under a name."""
    run = system.rank(texts, test.split("test")["text"])
    experiment.measure(name, test, 0, Outcome(run, system.settings), measures=measures)


def record_whole(experiment: Experiment, names: Iterable[str]) -> None:
    """BM25 over all candidates and all queries of collections, of whatever split (Table 7)."""
    for name in names if experiment.live else ():
        whole = datasets.load(name)
        whole = replace(whole, name=f"{name}, whole", queries=whole.queries.assign(split="test"))
        record_bm25(experiment, "BM25", BM25(), whole, whole.documents["text"], WHOLE_MEASURES)


def record_systems(
    experiment: Experiment, study: Study, jobs: Mapping[str, Sequence[str]], tests: Tests, seeds: Sequence[int]
) -> None:
    """Train and record systems, each on the tests that are named.

    Parameters
    ----------
    jobs : mapping
        System to the names of its tests.
    """
    todo = [(seed, system, name) for seed, (system, names) in product(seeds, jobs.items()) for name in names]
    for seed, system, name in runtime.progress(todo, desc=study.source.name, unit="run"):
        target, test = tests[name]

        make = partial(study.outcome, system, target, test, seed)
        experiment.measure(system, test, seed, make, measures=MEASURES)


def zero_shot_jobs(tests: Tests, adapted: Sequence[str], compared: Sequence[str]) -> dict[str, Sequence[str]]:
    """The systems of Tables 3 and 7, and the tests of each.

    Parameters
    ----------
    adapted : sequence of str
        Targets from whose passages queries are generated.
    compared : sequence of str
        Targets on which the pre-training tasks of Chang 2020 are compared, with a hundredth of the labels.
    """
    # Candidates of ReQA are sentences in their passages: the paper trains on no labels of it.
    labelled = [n for n, (target, _) in tests.items() if has_labels(target) and "sentence" not in target.documents]
    jobs: dict[str, Sequence[str]] = dict.fromkeys(GENERAL, list(tests))
    jobs |= dict.fromkeys(ADAPTED, [name for name in adapted if name in tests])
    return jobs | {OFFICIAL: labelled, COMPARED: [name for name in compared if name in tests]}


def ablation_jobs(tests: Tests, target: str, second: str) -> dict[str, Sequence[str]]:
    """The systems of Tables 5 and 8 and Figures 2 and 3, and the tests of each; names of two targets."""
    mine = [name for name, (own, _) in tests.items() if own.name == target]
    both = [name for name in dict.fromkeys([target, second]) if name in tests]
    sized = [f"{tower} | {size} dimensions" for tower in TOWERS for size in DIMENSIONS]
    jobs: dict[str, Sequence[str]] = dict.fromkeys(ON_TARGET, mine)
    jobs |= dict.fromkeys(sized, mine[:1])
    return jobs | dict.fromkeys((OFFICIAL, PRETRAINED, *PORTIONS), both)
