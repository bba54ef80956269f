"""What only Part III needs: its parameters, its tests, what generators write side by side, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.rules import (
    POSITIVE,
    RATE,
    Rule,
    each_of,
    flag,
    form,
    mapping_of,
    name_or_none,
    number,
    one_of,
    some_of,
    text,
)
from retlib.data import datasets
from retlib.data.articles import OutOfTarget
from retlib.data.collection import Collection
from retlib.data.splits import hash_position, subsample, with_distractors
from retlib.evaluation import query_measures
from retlib.evaluation.results import Results
from retlib.models.decoding import Decoding
from retlib.models.seq2seq import HEADS
from retlib.studies.experiment import ENCODER, Experiment, articles_name, collection_name
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Target

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100", "RR@10", "nDCG@10"]
DEPTH = 100  # of the runs
# Of what has a hundred thousand questions, whose values by query fill megabytes.
WHOLE_MEASURES = ["R@1", "R@10"]
REAL = "Real"


# --- parameters ------------------------------------------------------------------------------------


def _generators(name: str, value: Any) -> None:
    """A rule: labelled collections, each with a list of others."""
    require(isinstance(value, dict) and len(value) > 0, f"{name} = {value!r} must map collections to their targets")
    for source, targets in value.items():
        collection_name(f"{name} (a collection)", source)
        each_of(collection_name)(f"{name}[{source!r}]", targets)
        require(source not in targets, f"{name}: {source!r} is no target of a generator that has seen its labels")
    named = [target for each in value.values() for target in each]
    require(len(set(named)) == len(named), f"{name} = {value!r} names a target twice")


def one_generator(name: str, value: Any) -> None:
    """A rule: one labelled collection with one other."""
    _generators(name, value)
    one = [len(targets) for targets in value.values()] == [1]
    require(one, f"{name} = {value!r} must have one source and one target here")


# What of a training's schedule is another.
_SCHEDULE = form(
    {},
    {"epochs": number(0), "steps": number(0, whole=True), "batch_size": number(2, whole=True), "learning_rate": RATE},
)

# The parameters of a generator, and of the retriever whose embeddings it begins with.
GENERATOR: dict[str, Rule] = {
    **ENCODER,
    "generators": _generators,
    "answers": mapping_of(None, collection_name),
    "documents": number(2, whole=True),
    "questions": POSITIVE,
    "generator_head": one_of(HEADS),
    "generator_checkpoint": name_or_none,
    "generator_layers": POSITIVE,
    "generator_embedded": flag,
    "generator_epochs": number(0.01),
    "generator_batch": number(2, whole=True),
    "generator_rate": RATE,
    "passage_length": POSITIVE,
}

# Those of what it writes for a retriever, and of the retriever's training; the leaderboard has them, too.
COMMON: dict[str, Rule] = {
    **GENERATOR,
    "samples": POSITIVE,
    "kept": POSITIVE,
    "steps": POSITIVE,
    "batch": number(2, whole=True),
    "rate": RATE,
    "token_dropout": number(0, 0.99),
}

OUT_OF_TARGET: dict[str, Rule] = {"out_of_target": number(50, whole=True)}
# What the chapters on retrievers share, so that one finds what another has made.
RULES: dict[str, Rule] = {**COMMON, **OUT_OF_TARGET, "later_steps": POSITIVE, "finetuning": _SCHEDULE}

# Further candidates of what is tested on.
ADDED: dict[str, Rule] = {"added": mapping_of(None, POSITIVE), "added_articles": articles_name}

TARGETS = some_of(collection_name)
# What a generator may change of a notebook's parameters.
VARIED = {name: rule for name, rule in COMMON.items() if name.startswith("generator_")}


def sizes_of(taken: Iterable[str]) -> Rule:
    """A rule: names of generators, none of them `taken`, each with the parameters that it changes."""

    def check(name: str, value: Any) -> None:
        two = isinstance(value, dict) and len(value) > 1
        require(two, f"{name} = {value!r} must map two names or more to parameters")
        for size, changed in value.items():
            text(f"a name of {name}", size)
            require(size not in taken, f"{name}: {size!r} names something else on this page")
            form({}, VARIED)(f"{name}[{size!r}]", changed)

    return check


# --- what is tested --------------------------------------------------------------------------------


def targets(experiment: Experiment) -> dict[str, list[Target]]:
    """What systems are trained for and tested on, by the collection that the generator learns from.

    Targets are cut at `documents` and `questions`; where candidates are sentences of passages, these stay whole. With
    the parameter `added` a target is searched a second time, among so many further candidates.

    Raises
    ------
    SettingError
        If a parameter speaks of a target that no generator has.
    DataError
        If there are fewer further candidates.
    """
    p = experiment.parameters
    every = [target for each in p["generators"].values() for target in each]
    for name in ("adapted", "compared", "added", "quoted"):
        for target in p.get(name, ()):
            require_one_of(f"{name} (a target of `generators`)", target, every)
    for source in p["answers"]:
        require_one_of("answers (a collection of `generators`)", source, p["generators"])
    if not experiment.live:
        return {source: [] for source in p["generators"]}
    return {source: [t for name in names for t in _tests(p, name, names)] for source, names in p["generators"].items()}


def _tests(p: Mapping[str, Any], name: str, others: Sequence[str]) -> list[Target]:
    whole = datasets.load(name)
    target = subsample(whole, p["documents"], None if "passage" in whole.documents else p["questions"])
    if not (count := p.get("added", {}).get(name)):
        return [Target(target)]
    further = OutOfTarget(p["added_articles"], tuple(others), count).documents
    wrong = f"{p['added_articles']} has {len(further)} passages that are no target's, not {count}"
    require(len(further) == count, wrong, DataError)
    return [Target(target), Target(with_distractors(target, further, f"{name}+added"), target)]


def whole(experiment: Experiment, names: Iterable[str]) -> list[Collection]:
    """Collections with all candidates, and all queries, of whatever split, for a test (Table 7)."""
    loaded = [experiment.load(name) for name in names if experiment.live]
    everything = [each.queries.assign(split="test") for each in loaded]
    named = zip(loaded, everything, strict=True)
    return [replace(each, name=f"{each.name}, whole", queries=queries) for each, queries in named]


def labelled(targets: Iterable[Target]) -> list[str]:
    """The tests whose own labels can train.

    Not those whose candidates are sentences in their passages (ReQA): the paper trains on no labels of these.
    """
    return [each.test.name for each in targets if has_labels(each.trains) and "sentence" not in each.trains.documents]


def has_labels(collection: Collection) -> bool:
    """Whether a collection has judged queries beside those of its test."""
    others = collection.queries.index[collection.queries["split"] != "test"]
    relevant = collection.relevant()["query_id"]
    return relevant[relevant.isin(others)].nunique() > 1


def sizes(
    sources: Mapping[str, Collection], targets: Mapping[str, Sequence[Target]], outside: OutOfTarget
) -> pd.DataFrame:
    """What generators learn from, the passages out of target, and what is tested on, as Table 2 has them."""
    rows = []
    for source, collection in sources.items():
        words = outside.documents["text"].str.split().str.len()
        rows.append(_size(collection, source, "trains the generator"))
        rows.append(
            {
                "generator": source, "collection": "out of target", "role": "queries are generated",
                "passages": len(words), "words/passage": _spread(words), "fingerprint": "",
            }
        )  # fmt: skip
        rows += [_size(each.test, source, "target") for each in targets[source]]
    return pd.DataFrame(rows).fillna({f"{split} queries": 0 for split in ("train", "dev", "test")})


def _size(collection: Collection, source: str, role: str) -> dict:
    counts = {f"{split} queries": len(collection.split(split)) for split in ("train", "dev", "test")}
    words = collection.documents["text"].str.split().str.len()
    return {
        "generator": source, "collection": collection.name, "role": role, "passages": len(words), **counts,
        "words/passage": _spread(words), "fingerprint": collection.fingerprint[:12],
    }  # fmt: skip


def _spread(words: pd.Series) -> str:
    return f"{words.mean():.1f} ({words.std():.1f})"


# --- what generators write -------------------------------------------------------------------------


def losses(generators: Mapping[str, QueryGenerator], seeds: Sequence[int]) -> pd.DataFrame:
    """The generators' held-out loss while they learn: `step`, `generator`, `seed`, `loss`."""
    parts = [
        each.seeded(seed).fit().history.frame().assign(generator=name, seed=seed)
        for name, each in generators.items()
        for seed in seeds
    ]
    joined = pd.concat(parts, ignore_index=True)
    return joined.assign(loss=-joined["score"])[["step", "generator", "seed", "loss"]]


@dataclass(frozen=True, eq=False)
class Panel:
    """Some passages of a target, and who writes queries for them.

    Parameters
    ----------
    texts : Series
        Passage id to text.
    writers : mapping
        Name to a generator and its decoding.
    """

    target: Collection
    texts: pd.Series
    writers: Mapping[str, tuple[QueryGenerator, Decoding]]

    def written(self, name: str, seed: int) -> pd.DataFrame:
        """What a writer writes."""
        generator, how = self.writers[name]
        return generator.seeded(seed).queries(self.texts.to_frame("text"), how)

    @property
    def real(self) -> pd.DataFrame:
        """The real queries of the passages, in the form of generated ones."""
        asked = self.target.relevant()
        asked = asked[asked["doc_id"].isin(self.texts.index)]
        queries = self.target.queries["text"][asked["query_id"]].to_numpy()
        return pd.DataFrame({"passage_id": asked["doc_id"].to_numpy(), "query": queries})


def panels(
    targets: Iterable[Target], writers: Mapping[str, tuple[QueryGenerator, Decoding]], count: int
) -> list[Panel]:
    """So many passages of every target; sentences in passages (ReQA) are left to other pages."""
    collections = [each.test for each in targets if "sentence" not in each.test.documents]
    return [Panel(each, sampled(each, count), writers) for each in collections]


def sampled(target: Collection, count: int) -> pd.Series:
    """The texts of so many passages of a target that real queries ask for, by a hash of their ids."""
    relevant = target.relevant()["doc_id"].unique()
    return target.documents["text"][sorted(relevant, key=hash_position)[:count]]


def record_statistics(experiment: Experiment, panels: Sequence[Panel]) -> pd.DataFrame:
    """What is written for a sample of passages, by each writer with each seed; beside real queries.

    Returns
    -------
    DataFrame
        Columns `target`, `by` (Real, or the writer), `seed`, those of `retlib.evaluation.query_measures.statistics`.
    """
    rows = []
    for panel in runtime.progress(panels, desc="written", unit="target"):
        found = [(REAL, 0, panel.real)]
        seeds = experiment.parameters["seeds"]
        found += [(name, seed, panel.written(name, seed)) for name, seed in product(panel.writers, seeds)]
        for name, seed, queries in found:
            statistics = query_measures.statistics(queries, panel.texts)
            rows.append({"target": panel.target.name, "by": name, "seed": seed, **statistics})
            for measure, value in statistics.items():
                experiment.record(name, panel.target.name, measure, value, seed, "train")
    return pd.DataFrame(rows)


def examples(panels: Sequence[Panel], by: str, shown: int, seed: int, quoted: Sequence[str] = ()) -> pd.DataFrame:
    """Passages with their queries, as Tables 1 and 6 have them: where queries find their passage, and where not.

    Parameters
    ----------
    by : str
        The writer whose queries decide that.
    shown : int
        Of the passages whose queries fare best, and of those whose fare worst.
    seed : int
        Of the writers.
    quoted : sequence of str, optional
        Targets whose passages are quoted; all, if empty. Not every licence allows it.

    Returns
    -------
    DataFrame
        Columns `target`, `passage`, `real`, and one for each writer: a line for each query, with ✓ where
        BM25 finds its passage first among the sample.
    """
    rows = []
    for panel in panels:
        if quoted and panel.target.name not in quoted:
            continue
        marked = {name: _marked(panel.written(name, seed), panel.texts) for name in panel.writers}
        rate = marked[by].groupby("passage_id")["found"].mean()
        order = sorted(rate.index, key=lambda name: (-rate[name], hash_position(name)))
        real = panel.real.groupby("passage_id")["query"].agg("\n".join)
        for name in dict.fromkeys([*order[:shown], *order[len(order) - shown :]]):
            lines = {how: "\n".join(found["line"][found["passage_id"] == name]) for how, found in marked.items()}
            rows.append({"target": panel.target.name, "passage": panel.texts[name], "real": real[name], **lines})
    return pd.DataFrame(rows)


def _marked(queries: pd.DataFrame, texts: pd.Series) -> pd.DataFrame:
    found = query_measures.round_trip(queries, texts)
    signs = found.map({True: "✓ ", False: "✗ "})
    return queries.assign(found=found, line=signs + queries["query"])


def pairs(generator: QueryGenerator, target: Collection, decodings: Mapping[str, Decoding]) -> pd.DataFrame:
    """How many pairs a target's passages give to train on (Table 5): `decoding`, `passages`, `pairs`."""
    counts = [(name, len(generator.queries(target.documents, how))) for name, how in decodings.items()]
    found = pd.DataFrame(counts, columns=["decoding", "pairs"])
    found.insert(1, "passages", len(target.documents))
    return found


# --- what is recorded, over sizes ------------------------------------------------------------------


def over(results: Results, collections: Iterable[str], sizes: Mapping[str, float], measure: str) -> pd.DataFrame:
    """Values over a size, as of Figures 2 and 3.

    Parameters
    ----------
    sizes : mapping
        System to its size.

    Returns
    -------
    DataFrame
        Columns `size`, `collection`, `seed`, `value` (points of a hundred).
    """
    rows = results.rows
    mine = rows["collection"].isin(list(collections)) & rows["system"].isin(sizes) & (rows["measure"] == measure)
    mine = rows[mine].reset_index(drop=True)
    return mine.assign(size=mine["system"].map(sizes), value=100 * mine["value"])[
        ["size", "collection", "seed", "value"]
    ]


def made(generators: Mapping[str, QueryGenerator], seeds: Sequence[int]) -> pd.DataFrame:
    """Generators, a row each: their size, training and held-out loss (nats a token); means over seeds."""
    rows = []
    every = [(name, each.seeded(seed)) for name, each in generators.items() for seed in seeds]
    for name, each in runtime.progress(every, desc="generators", unit="generator"):
        generator = each.fit()
        steps = generator.history.evaluations[-1]["step"]
        rows.append((
            name, generator.parameters / 1e6, steps, each.training.learning_rate,
            generator.history.seconds, generator.history.best_step, -generator.history.best_score,
        ))  # fmt: skip
    columns = ["generator", "million weights", "steps", "rate", "seconds", "best step", "loss"]
    means = pd.DataFrame(rows, columns=columns).groupby("generator", sort=False, as_index=False).mean()
    return means.astype({"steps": int}).round({"best step": 0})
