"""What Part III brings: its parameters, its tests, what generators write side by side and cost (and chapter 51)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import Field

from retlib.core.errors import DataError, require, require_one_of, short_repr
from retlib.data import datasets
from retlib.data.articles import OutOfTarget
from retlib.data.collection import SPLITS, Collection, hash_position, subsample, with_distractors
from retlib.evaluation import measures
from retlib.models.generator import Decoding
from retlib.studies.experiment import ArticlesName, CollectionName, Experiment, NonEmpty, Positive, TwoOrMore, validator
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Target

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100", "RR@10", "nDCG@10"]
DEPTH = 100  # of the runs
# Of what has a hundred thousand questions, whose values by query fill megabytes.
WHOLE_MEASURES = ["R@1", "R@10"]
REAL = "Real"


def _check_generators(generators: dict[str, list[str]]) -> None:
    for source, targets in generators.items():
        require(source not in targets, f"{source!r} is no target of a generator that has seen its labels")
    every = sum(generators.values(), [])
    require(len({*every}) == len(every), f"{short_repr(generators)} names a target twice")


# Labelled collections, each with the targets of a generator that learns from it.
_Targets = Annotated[dict[CollectionName, NonEmpty[CollectionName]], Field(min_length=1), validator(_check_generators)]
DATA: dict[str, Any] = {
    "generators": _Targets,
    "answers": dict[CollectionName, CollectionName],
    "documents": TwoOrMore,
    "questions": Positive,
}
_alone = validator(lambda given: require(sum(map(len, given.values())) == 1, "here one generator has one target"))
ONE_GENERATOR = {**DATA, "generators": Annotated[_Targets, _alone]}
# Further candidates of what is tested on; passages that are no target's.
ADDED: dict[str, Any] = {"added": dict[CollectionName, Positive], "added_articles": ArticlesName}
Passages = Annotated[int, Field(ge=50)]


def targets(experiment: Experiment) -> dict[str, list[Target]]:
    """Return what systems are trained for and tested on, by the collection that the generator learns from.

    Targets are cut at `documents` and `questions`; where candidates are sentences of passages, these stay whole. With
    the parameter `added` a target is searched a second time, among so many further candidates. Raises `SettingError`
    where a parameter names what is no target, or what trains no generator.
    """
    p, added = experiment.parameters, experiment.parameters.get("added", {})
    for name in ("adapted", "compared", "added", "quoted"):
        for target in p.get(name, ()):
            require_one_of(f"{name} (a target of `generators`)", target, sum(p["generators"].values(), []))
    for source in p["answers"]:
        require_one_of("answers (a collection of `generators`)", source, p["generators"])
    tests = {source: [] for source in p["generators"]}
    jobs = [(source, name) for source, names in p["generators"].items() for name in names]
    for source, name in jobs if experiment.live else ():
        whole = datasets.load(name)
        target = subsample(whole, p["documents"], None if "passage" in whole.documents else p["questions"])
        tests[source].append(Target(target))
        if name in added:
            further = OutOfTarget(p["added_articles"], tuple(p["generators"][source]), added[name]).documents
            wrong = f"{p['added_articles']} has {len(further)} passages that are no target's, not {added[name]}"
            require(len(further) == added[name], wrong, DataError)
            tests[source].append(Target(with_distractors(target, further, f"{name}+added"), target))
    return tests


def with_labels(targets: Iterable[Target]) -> list[str]:
    """Return the tests whose own labels can train; none of ReQA, on whose labels the paper trains nothing."""
    plain = [each for each in targets if "sentence" not in each.trains.documents]
    labelled = [{*each.trains.relevant()["query_id"]} - {*each.trains.split("test").index} for each in plain]
    return [each.test.name for each, queries in zip(plain, labelled, strict=True) if len(queries) > 1]


def sizes(
    sources: Mapping[str, Collection], targets: Mapping[str, Sequence[Target]], outside: OutOfTarget
) -> pd.DataFrame:
    """Return what generators learn from, the passages out of target, and what is tested on, as Table 2 has them."""
    rows = []
    for source, collection in sources.items():
        tests = [("target", each.test) for each in targets[source]]
        for role, part in [("trains the generator", collection), ("queries are generated", outside), *tests]:
            of, words = isinstance(part, Collection), part.documents["text"].str.split().str.len()
            row = {"generator": source, "collection": part.name if of else "out of target", "role": role}
            row["passages"] = len(words)
            row |= {f"{each} queries": len(part.split(each)) if of else 0 for each in SPLITS}
            row["words/passage"] = f"{words.mean():.1f} ({words.std():.1f})"
            rows.append({**row, "fingerprint": part.fingerprint[:12] if of else ""})
    return pd.DataFrame(rows)


def losses(generators: Mapping[str, QueryGenerator], seeds: Sequence[int]) -> pd.DataFrame:
    """Return the generators' held-out loss while they learn: `step`, `generator`, `seed`, `loss`."""
    jobs = product(generators.items(), seeds)
    frames = {(name, seed): each.seeded(seed).fit().history.frame() for (name, each), seed in jobs}
    table = pd.concat(frames, names=["generator", "seed"]).reset_index(["generator", "seed"])
    return table.assign(loss=-table["score"])[["step", "generator", "seed", "loss"]]


class Panel(NamedTuple):
    """Some passages of a target (id to text), and queries for them by who wrote them and with which seed."""

    target: str
    texts: pd.Series
    queries: dict[tuple[str, int], pd.DataFrame]


def panels(
    targets: Iterable[Target], writers: Mapping[str, tuple[QueryGenerator, Decoding]], count: int, seeds: Sequence[int]
) -> list[Panel]:
    """Return so many passages of every target that real queries ask for, by a hash of their ids, with their queries.

    Each of the `writers` is a generator and its decoding. Sentences in passages (ReQA) are left to other pages.
    """
    panels = []
    for target in (each.test for each in targets if "sentence" not in each.test.documents):
        relevant = target.relevant().rename(columns={"doc_id": "passage_id"})
        texts = target.documents["text"][sorted(relevant["passage_id"].unique(), key=hash_position)[:count]]
        relevant = relevant[relevant["passage_id"].isin(texts.index)]
        queries = {(REAL, 0): relevant.assign(query=target.queries["text"][relevant["query_id"]].array)}
        for (name, (generator, how)), seed in product(writers.items(), seeds):
            queries[name, seed] = generator.seeded(seed).queries(texts.to_frame("text"), how)
        panels.append(Panel(target.name, texts, queries))
    return panels


def record_statistics(experiment: Experiment, panels: Sequence[Panel]) -> pd.DataFrame:
    """Record and return `measures.query_statistics` of what each writer writes with each seed, and of real queries."""
    rows = []
    for target, texts, written in panels:
        for (name, seed), queries in written.items():
            statistics = measures.query_statistics(queries, texts)
            rows.append({"target": target, "by": name, "seed": seed, **statistics})
            for measure, value in statistics.items():
                experiment.record(name, target, measure, value, seed, "train")
    return pd.DataFrame(rows)


def examples(panels: Sequence[Panel], by: str, shown: int, seed: int, quoted: Sequence[str] = ()) -> pd.DataFrame:
    """Return passages with their queries, as Tables 1 and 6 have them: `shown` that fare best, and as many worst.

    The queries of the writer `by` decide that. A query has a line, with ✓ where BM25 finds its passage first among the
    sample. Of `quoted` targets alone, unless empty: not every licence allows a quotation.
    """
    rows = []
    for target, texts, written in (each for each in panels if not quoted or each.target in quoted):
        own = {name: queries for (name, each), queries in written.items() if each == seed and name != REAL}
        hits = {name: measures.round_trip(queries, texts) for name, queries in own.items()}
        rate = hits[by].groupby(own[by]["passage_id"]).mean()
        order = sorted(rate.index, key=lambda name: (-rate[name], hash_position(name)))
        marks = {name: each.map({True: "✓ ", False: "✗ "}) for name, each in hits.items()}
        lines = {"real": written[REAL, 0]} | {name: q.assign(query=marks[name] + q["query"]) for name, q in own.items()}
        cells = {name: queries.groupby("passage_id")["query"].agg("\n".join) for name, queries in lines.items()}
        for passage in dict.fromkeys([*order[:shown], *order[len(order) - shown :]]):
            row = {name: each.get(passage, "") for name, each in cells.items()}
            rows.append({"target": target, "passage": texts[passage], **row})
    return pd.DataFrame(rows)
