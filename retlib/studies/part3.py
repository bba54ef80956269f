"""What only Part III needs: its parameters, its tests, what generators write side by side, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, Field

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of, shown
from retlib.data import datasets
from retlib.data.articles import OutOfTarget
from retlib.data.collection import Collection
from retlib.data.splits import hash_position, subsample, with_distractors
from retlib.evaluation import query_measures
from retlib.evaluation.results import Results
from retlib.models.decoding import Decoding
from retlib.studies.experiment import Experiment
from retlib.studies.parameters import ArticlesName, CollectionName, Many, Positive, Several
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Target

MEASURES = ["R@1", "R@5", "R@10", "R@50", "R@100", "RR@10", "nDCG@10"]
DEPTH = 100  # of the runs
# Of what has a hundred thousand questions, whose values by query fill megabytes.
WHOLE_MEASURES = ["R@1", "R@10"]
REAL = "Real"


# --- parameters ------------------------------------------------------------------------------------


def _unseen(generators: dict[str, list[str]]) -> dict[str, list[str]]:
    for source, targets in generators.items():
        require(source not in targets, f"{source!r} is no target of a generator that has seen its labels")
    every = [target for targets in generators.values() for target in targets]
    require(len(set(every)) == len(every), f"{shown(generators)} names a target twice")
    return generators


def _one(generators: dict[str, list[str]]) -> dict[str, list[str]]:
    one = [len(targets) for targets in generators.values()] == [1]
    require(one, f"{shown(generators)} must have one source and one target here")
    return generators


# Labelled collections, each with the targets of a generator that learns from it.
_Generators = Annotated[dict[CollectionName, Many[CollectionName]], Field(min_length=1), AfterValidator(_unseen)]
DATA: dict[str, Any] = {
    "generators": _Generators,
    "answers": dict[CollectionName, CollectionName],
    "documents": Several,
    "questions": Positive,
}
ONE_GENERATOR = {**DATA, "generators": Annotated[_Generators, AfterValidator(_one)]}
# Further candidates of what is tested on; passages that are no target's.
ADDED: dict[str, Any] = {"added": dict[CollectionName, Positive], "added_articles": ArticlesName}
Passages = Annotated[int, Field(ge=50)]


# --- what is tested --------------------------------------------------------------------------------


def targets(experiment: Experiment) -> dict[str, list[Target]]:
    """What systems are trained for and tested on, by the collection that the generator learns from.

    Targets are cut at `documents` and `questions`; where candidates are sentences of passages, these stay whole. With
    the parameter `added` a target is searched a second time, among so many further candidates.
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

    They have judged queries beside those of the test. Not those whose candidates are sentences in their passages
    (ReQA): the paper trains on no labels of these.
    """
    names = []
    for name, whole in ((each.test.name, each.trains) for each in targets):
        others = whole.queries.index[whole.queries["split"] != "test"]
        judged = whole.relevant()["query_id"]
        if judged[judged.isin(others)].nunique() > 1 and "sentence" not in whole.documents:
            names.append(name)
    return names


def sizes(
    sources: Mapping[str, Collection], targets: Mapping[str, Sequence[Target]], outside: OutOfTarget
) -> pd.DataFrame:
    """What generators learn from, the passages out of target, and what is tested on, as Table 2 has them."""
    rows = []
    for source, collection in sources.items():
        tests = [("target", each.test) for each in targets[source]]
        for role, part in [("trains the generator", collection), ("queries are generated", outside), *tests]:
            words = part.documents["text"].str.split().str.len()
            of = part if isinstance(part, Collection) else None
            rows.append({
                "generator": source,
                "collection": of.name if of else "out of target",
                "role": role,
                "passages": len(words),
                **{f"{split} queries": len(of.split(split)) if of else 0 for split in ("train", "dev", "test")},
                "words/passage": f"{words.mean():.1f} ({words.std():.1f})",
                "fingerprint": of.fingerprint[:12] if of else "",
            })  # fmt: skip
    return pd.DataFrame(rows)


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
    """Some passages of a target (id to text), and who writes queries for them: a generator and its decoding by name."""

    target: Collection
    texts: pd.Series
    writers: Mapping[str, tuple[QueryGenerator, Decoding]]

    def written(self, name: str, seed: int) -> pd.DataFrame:

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
    """Record and return `query_measures.statistics` of what each writer writes with each seed, and of real queries."""
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
    """Return passages with their queries, as Tables 1 and 6 have them: `shown` that fare best, and as many worst.

    The queries of the writer `by` decide that. A query has a line, with ✓ where BM25 finds its passage first among the
    sample. Of `quoted` targets alone, unless empty: not every licence allows a quotation.
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
    """Return values over a size, that of each system, as of Figures 2 and 3, in points of 100."""
    rows = results.rows
    mine = rows["collection"].isin(list(collections)) & rows["system"].isin(sizes) & (rows["measure"] == measure)
    mine = rows[mine].reset_index(drop=True)
    mine = mine.assign(size=mine["system"].map(sizes), value=100 * mine["value"])
    return mine[["size", "collection", "seed", "value"]]


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
