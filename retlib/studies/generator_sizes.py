"""How much a better generator is worth: the same study with generators of several sizes and trainings (Liang 2020).

The paper has one generator, BART-large (section 4), and does not vary it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from retlib.core import runtime
from retlib.core.errors import require, require_one_of
from retlib.core.rules import number
from retlib.data.collection import Collection
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.retrieval.lexical import BM25
from retlib.studies import zero_shot_tables
from retlib.studies.experiment import Experiment
from retlib.studies.zero_shot_study import (
    COMMON,
    EXPANDED,
    LEXICAL,
    MEASURES,
    OFFICIAL,
    Study,
    has_labels,
    record_bm25,
    studies,
)
from retlib.studies.zero_shot_tables import DECODINGS, REAL, Panel

# What a size may change of a notebook's parameters.
VARIED = {name: rule for name, rule in COMMON.items() if name.startswith(("generator_", "denoising_"))}
RETRIEVER, MEASURE = "Siamese", "R@10"
# What every generator is measured against: the target's sentences for queries, and its labels where it has some.
SENTENCES, LABELS = f"{RETRIEVER} | ICT", OFFICIAL
TAKEN = (*(system.partition(" | ")[2] for system in (SENTENCES, LABELS)), REAL)


def _sizes(name: str, value: Any) -> None:
    """A rule: names of generators, each with the parameters that it changes."""
    require(isinstance(value, dict) and len(value) > 1, f"{name} = {value!r} must map two names or more to parameters")
    for size, changed in value.items():
        require(size not in TAKEN, f"{name}: {size!r} names something else on this page")
        require(isinstance(changed, dict), f"{name}[{size!r}] = {changed!r} must map parameters to values")
        for parameter, its in changed.items():
            require_one_of(f"{name}[{size!r}] (a parameter of the generator)", parameter, VARIED)
            VARIED[parameter](f"{name}[{size!r}][{parameter!r}]", its)


RULES = {
    **COMMON,
    "sizes": _sizes,
    "sampled": number(2, whole=True),
    "shown": number(1, whole=True),
}


def sized(parameters: Mapping[str, Any]) -> dict[str, Study]:
    """The study of a notebook's parameters with each of its generators, by the names in `sizes`.

    Raises
    ------
    SettingError
        If the parameters have not one generator with one target: the page is about a single comparison.
    """
    generators = parameters["generators"]
    one = len(generators) == 1 and all(len(targets) == 1 for targets in generators.values())
    require(one, f"generators = {generators!r} must have one source and one target here")
    (source,) = generators
    return {name: studies({**parameters, **changed})[source] for name, changed in parameters["sizes"].items()}


def made(sizes: Mapping[str, Study]) -> pd.DataFrame:
    """The generators, a row each: their size, training and held-out loss (nats a unit)."""
    rows = []
    for name, study in runtime.progress(sizes.items(), desc="generators", unit="generator"):
        how, generator = study.generation, study.generator
        denoising = how.denoising.steps if how.denoising else 0
        rows.append((
            name, generator.parameters / 1e6, denoising, how.training.steps, how.training.learning_rate,
            study.generator_seconds, generator.history.best_step, -generator.history.best_score,
        ))  # fmt: skip
    columns = ["generator", "million weights", "denoising steps", "steps", "rate", "seconds", "best step", "loss"]
    return pd.DataFrame(rows, columns=columns)


def _shared(sizes: Mapping[str, Study]) -> tuple[Study, Collection]:
    """The first study, which has what all share, and their target."""
    first = next(iter(sizes.values()))
    return first, first.targets[0]


def panel(sizes: Mapping[str, Study], count: int) -> Panel:
    """So many passages of the target, with every generator's samples."""
    _, target = _shared(sizes)
    texts = zero_shot_tables.sampled(target, count)
    writers: dict[str, Callable[[int], pd.DataFrame]] = {
        name: partial(zero_shot_tables.written, study, texts, DECODINGS["Nucleus"]) for name, study in sizes.items()
    }
    return Panel(target, texts, writers)


def record(experiment: Experiment, sizes: Mapping[str, Study], seeds: Sequence[int]) -> None:
    """Record BM25, the baselines, and with each generator a retriever and BM25 over expanded passages."""
    first, target = _shared(sizes)
    for name, system in LEXICAL.items():
        record_bm25(experiment, name, system, target, target.documents["text"])
    for name, study in sizes.items():
        record_bm25(experiment, expanded(name), BM25(), target, study.expanded(target.documents))
    jobs = {system: (first, system) for system in (SENTENCES, *([LABELS] if has_labels(target) else []))}
    jobs |= {trained(name): (study, f"{RETRIEVER} | Nucleus") for name, study in sizes.items()}
    todo = list(product(seeds, jobs.items()))
    for seed, (name, (study, system)) in runtime.progress(todo, desc=target.name, unit="run"):
        make = partial(study.outcome, system, target, target, seed)
        experiment.measure(name, target, seed, make, measures=MEASURES)


def trained(size: str) -> str:
    """The name of the retriever that learns from a generator's queries."""
    return f"{RETRIEVER} | {size}"


def expanded(size: str) -> str:
    """The name of BM25 over passages with a generator's queries behind them."""
    return f"{EXPANDED} | {size}"


def worth(results: Results, collection: str, generators: pd.DataFrame) -> pd.DataFrame:
    """Quality, R@10, over a generator's held-out loss.

    Returns
    -------
    DataFrame
        Columns `generator`, `loss` (nats a unit), `system` ("Siamese" or BM25 over expanded passages), `value`,
        `low` and `high` (points of a hundred, 95 % interval over queries and seeds).
    """
    rows = []
    for row in generators.itertuples():
        for kind, system in {RETRIEVER: trained(row.generator), EXPANDED: expanded(row.generator)}.items():
            found = tables.estimate(results, system, collection, MEASURE)
            rows.append((row.generator, row.loss, kind, found.effect, *found.interval()))
    return pd.DataFrame(rows, columns=["generator", "loss", "system", "value", "low", "high"])


def levels(results: Results, collection: str) -> dict[str, float]:
    """The values of BM25 and of the baselines that were recorded, in points of a hundred."""
    recorded = results.systems(collection, "test", MEASURE)
    names = [name for name in ("BM25", SENTENCES, LABELS) if name in recorded]
    return {name: tables.estimate(results, name, collection, MEASURE).effect for name in names}
