"""The systems of Part IV: from which other each is trained, and on what it is tested (Zhan 2020, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import pandas as pd

from retlib.core import runtime
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, number, one_of, some_of
from retlib.data import datasets
from retlib.data.collection import Collection, subsample
from retlib.data.text import WordPiece
from retlib.retrieval.lexical import BM25, RM3, LexicalSystem
from retlib.studies.experiment import Experiment, Outcome, collection_name
from retlib.systems import dense, ltre
from retlib.systems.dense import Architecture, Retriever, Schedule
from retlib.systems.ltre import Method
from retlib.systems.ranking import Ranking, union
from retlib.training import losses
from retlib.training.dynamics import Watching
from retlib.training.optimizers import OPTIMIZERS
from retlib.training.pretraining import Corpus

MEASURES = ["RR@10", "R@1000", "nDCG@10", "Judged@10"]
TASKS = ("ict", "bfs", "wlp")
PRETRAINED, WARM = "pre-trained", "In-batch"
LEXICAL: dict[str, LexicalSystem] = {"BM25": BM25(), "BM25+RM3": RM3()}
# The trained systems of Table 1: the negatives, and the system that each starts from.
NEGATIVES = {
    "Rand Neg": ("Rand Neg", WARM),
    "NCE Neg": ("NCE Neg", WARM),
    "BM25 Neg": ("BM25 Neg", WARM),
    "BM25 + Rand Neg": ("BM25 + Rand Neg", WARM),
    "BM25 -> Rand": ("Rand Neg", "BM25 Neg"),
    "BM25 -> NCE Neg": ("NCE Neg", "BM25 Neg"),
    "BM25 -> BM25 + Rand": ("BM25 + Rand Neg", "BM25 Neg"),
    "ANCE": ("Async ANN", "BM25 Neg"),
    "LTRe (BM25 Neg)": (ltre.LTRE, "BM25 Neg"),
    "LTRe (ANCE)": (ltre.LTRE, "ANCE"),
}
# The methods whose training is watched (Figure 3), all from the BM25 Neg model.
WATCHED = {
    "Rand Neg": "Rand Neg",
    "BM25 Neg": "BM25 Neg",
    "NCE Neg": "NCE Neg",
    "BM25 + Rand Neg": "BM25 + Rand Neg",
    "Async ANN (short)": "Async ANN",
    "Async ANN (long)": "Async ANN",
    "LTRe": ltre.LTRE,
}


# The optimizers of the watched trainings, and what they add to a system's name.
OPTIMIZERS_WATCHED = {"lamb": "", "adamw": ", AdamW"}


@dataclass(frozen=True, eq=False)
class Study:
    """Collections, an encoder, and how long and how fast to train.

    Parameters
    ----------
    trained_on, tested_on : tuple of Collection
        The union of the first trains; each of the second is searched by itself.
    prepared : (WordPiece, Corpus)
        As `retlib.systems.dense.prepare` returns it.
    architecture : Architecture
    pretraining : Schedule
        Of ICT, BFS and WLP, in place of the paper's RoBERTa.
    warm, both, query : Method
        Of the first training on labels, of the trainings of both encoders, and of LTRe and
        its rivals that train the query encoder alone; their negatives are filled in.
    """

    trained_on: tuple[Collection, ...]
    tested_on: tuple[Collection, ...]
    prepared: tuple[WordPiece, Corpus]
    architecture: Architecture
    pretraining: Schedule
    warm: Method
    both: Method
    query: Method

    @property
    def ranking(self) -> Ranking:
        """What trains."""
        return _ranking(self, None)

    def part(self, collection: Collection) -> Ranking:
        """A collection that is tested on."""
        return _ranking(self, collection)

    def method(self, negatives: str, **changes: Any) -> Method:
        """How a system with these negatives is trained in Table 1."""
        base = self.query if negatives == ltre.LTRE else self.warm if negatives == WARM else self.both
        values = {**asdict(base), "negatives": negatives, **changes}
        # Negatives of equal parts come in pairs.
        if negatives == "BM25 + Rand Neg":
            values["n"] += values["n"] % 2
        return Method(**values)

    def retriever(self, name: str, seed: int) -> Retriever:
        """A system of Table 1, trained or found; with what it starts from."""
        if name == PRETRAINED:
            return dense.pretrain(self.prepared, self.architecture, TASKS, self.pretraining, seed)
        negatives, start = (WARM, PRETRAINED) if name == WARM else NEGATIVES[name]
        return ltre.fit(self.retriever(start, seed), self.ranking, self.method(negatives), seed)

    def watched(self, name: str, optimizer: str, rate: float, seed: int, watching: Watching) -> Retriever:
        """A system of Figure 3: the query encoder alone, watched at every step."""
        changes = {"optimizer": optimizer, "learning_rate": rate, "interval": interval(name, watching)}
        method = replace(self.likened(WATCHED[name]), **changes)
        return ltre.fit(self.retriever("BM25 Neg", seed), self.ranking, method, seed, watching)

    def likened(self, negatives: str) -> Method:
        """A training of the query encoder alone with these negatives, with LTRe's steps, learning rate and batches."""
        same = {key: getattr(self.query, key) for key in ("steps", "learning_rate", "batch_size", "trained")}
        return self.method(negatives, **same)

    def settings(self, name: str) -> dict[str, Any]:
        """What made a system of Table 1, as recorded beside its results."""
        if name in (PRETRAINED, WARM):
            return {**asdict(self.architecture), "start": PRETRAINED, **_flat(self.warm)}
        negatives, start = NEGATIVES[name]
        return {**asdict(self.architecture), "start": start, **_flat(self.method(negatives))}


def interval(name: str, watching: Watching) -> int:
    """Steps between two refreshes of a watched system's lists: the short interval is half of the long one."""
    return max(1, watching.interval // 2) if name.endswith("(short)") else watching.interval


def _flat(method: Method) -> dict[str, Any]:
    return {key: value for key, value in asdict(method).items() if value != {}}


@lru_cache(maxsize=32)
def _ranking(study: Study, collection: Collection | None) -> Ranking:
    lengths = study.architecture.query_length, study.architecture.document_length
    whole = collection or (study.trained_on[0] if len(study.trained_on) == 1 else union(study.trained_on, "union"))
    return Ranking.tokenize(whole, study.prepared[0], *lengths)


# --- a notebook's parameters -----------------------------------------------------------------------

# Of training by ranking, but for the rates.
RANKED_RULES: dict[str, Rule] = {
    "negatives": POSITIVE,
    "interval": POSITIVE,
    "query_steps": POSITIVE,
    "retrieved": number(2, whole=True),
    "query_loss": one_of([name for name in losses.names() if name not in ltre.ONE_POSITIVE]),
    "optimizer": one_of(OPTIMIZERS),
}
# The parameters that the notebooks of this part share, so that one finds what another has trained.
RULES: dict[str, Rule] = {
    "collections": each_of(collection_name),
    "zero_shot": some_of(collection_name),
    "documents": POSITIVE,
    "questions": POSITIVE,
    "articles": one_of(datasets.article_names()),
    "units": number(100, whole=True),
    "layers": POSITIVE,
    "width": POSITIVE,
    "dimension": POSITIVE,
    "query_length": POSITIVE,
    "document_length": POSITIVE,
    "pretraining_steps": POSITIVE,
    "pretraining_batch": number(2, whole=True),
    "pretraining_rate": RATE,
    "warm_steps": POSITIVE,
    "warm_rate": RATE,
    "batch": number(2, whole=True),
    "steps": POSITIVE,
    "rate": RATE,
    "query_rate": RATE,
    **RANKED_RULES,
}


def study(p: Mapping[str, Any]) -> Study:
    """The study that a notebook's parameters describe."""
    trained_on = tuple(_load(name, p) for name in p["collections"])
    shape = {name: p[name] for name in ("layers", "width", "dimension", "query_length", "document_length")}
    common = {"batch_size": p["batch"], "optimizer": p["optimizer"]}
    both = Method("Rand Neg", p["steps"], "both", "ranknet", n=p["negatives"], learning_rate=p["rate"], **common)
    return Study(
        trained_on,
        (*trained_on, *map(datasets.load, p["zero_shot"])),
        dense.prepare(p["articles"], p["units"]),
        Architecture(**shape),
        Schedule(p["pretraining_steps"], p["pretraining_batch"], p["pretraining_rate"]),
        Method(WARM, p["warm_steps"], "both", "softmax", learning_rate=p["warm_rate"], **common),
        Method(**{**asdict(both), "interval": p["interval"]}),
        Method(
            ltre.LTRE, p["query_steps"], "query", p["query_loss"], n=p["retrieved"], learning_rate=p["query_rate"],
            interval=p["interval"], **common,
        ),
    )  # fmt: skip


def _load(name: str, p: Mapping[str, Any]) -> Collection:
    return subsample(datasets.load(name), p["documents"], p["questions"])


# --- recording -------------------------------------------------------------------------------------


def record_lexical(experiment: Experiment, study: Study) -> dict[str, pd.DataFrame]:
    """BM25, alone and with feedback, on every collection; returns BM25's run of each."""
    found = {}
    for part in study.tested_on if experiment.live else ():
        texts, queries = study.part(part).texts, part.split("test")["text"]
        for name, system in LEXICAL.items():
            run = system.rank(texts, queries, depth=1000)
            experiment.measure(name, part, 0, Outcome(run, system.settings), measures=MEASURES)
            found.setdefault(part.name, run)
    return found


def record_trained(
    experiment: Experiment, study: Study, names: Iterable[str], bm25: Mapping[str, pd.DataFrame], seeds: Sequence[int]
) -> None:
    """Train every system of Table 1 and record it on every collection: its retrieval, and BM25's top 100 re-ranked."""
    jobs = list(product(seeds, names)) if experiment.live else []
    for seed, name in runtime.progress(jobs, desc="first stages", unit="system"):
        retriever = study.retriever(name, seed)
        settings, history = study.settings(name), retriever.history
        for part in study.tested_on:
            ranking, cost = study.part(part), (history.evaluations[-1]["step"], history.seconds)
            searched = Outcome(ltre.rank(retriever, ranking), settings, *cost)
            ordered = Outcome(ltre.reorder(retriever, ranking, bm25[part.name]), settings, *cost)
            experiment.measure(name, part, seed, searched, measures=MEASURES)
            experiment.measure(f"{name}, rerank", part, seed, ordered, measures=["RR@10", "nDCG@10"])


def record_curves(
    experiment: Experiment, study: Study, optimizers: Mapping[str, float], watching: Watching, seeds: Sequence[int]
) -> pd.DataFrame:
    """What was seen of every watched training, step by step; and of the warm-up on the same queries.

    Parameters
    ----------
    optimizers : mapping
        Name in `OPTIMIZERS_WATCHED` to its learning rate.

    Returns
    -------
    DataFrame
        Columns `system`, `seed`, `step`, `measure`, `value` (between 0 and 1).
    """
    parts = []
    for seed in runtime.progress(seeds, desc="watched trainings", unit="seed"):
        start = study.retriever("BM25 Neg", seed)
        standing = ltre.standing(start, study.ranking, study.likened("Rand Neg"), seed, watching)
        parts.append(_curve("Warm-up", seed, standing))
        for name, (optimizer, rate) in product(WATCHED, optimizers.items()):
            history = study.watched(name, optimizer, rate, seed, watching).history
            parts.append(_curve(f"{name}{OPTIMIZERS_WATCHED[optimizer]}", seed, history.watched))
    curves = pd.concat(parts, ignore_index=True)
    last = curves[curves["step"] >= 0.8 * curves["step"].max()]
    for (system, measure, seed), value in (
        last.groupby(["system", "measure", "seed"], sort=False)["value"].mean().items()
    ):
        experiment.record(system, study.ranking.collection.name, f"{measure}, last fifth", value, seed, "train")
    return curves


def intervals(optimizers: Iterable[str], watching: Watching) -> pd.DataFrame:
    """Steps between the refreshes of each watched system's lists: `system`, `interval`."""
    labels = [OPTIMIZERS_WATCHED[optimizer] for optimizer in optimizers]
    rows = [(f"{name}{label}", interval(name, watching)) for name, label in product(WATCHED, labels)]
    return pd.DataFrame(rows, columns=["system", "interval"])


def sizes(study: Study) -> pd.DataFrame:
    """What trains and what is tested on: documents, questions, judgments."""
    rows = []
    for name, part in {"training": study.ranking.collection, **{p.name: p for p in study.tested_on}}.items():
        counts = {f"{split} questions": len(part.split(split)) for split in ("train", "dev", "test")}
        judged = part.judgments("test").query("relevance > 0").groupby("query_id").size().mean()
        words = part.documents["text"].str.split().str.len().mean()
        numbers = {"relevant/question": round(float(judged), 2), "words/document": round(float(words), 1)}
        rows.append(
            {
                "collection": name,
                "documents": len(part.documents),
                **counts,
                **numbers,
                "fingerprint": part.fingerprint[:12],
            }
        )
    return pd.DataFrame(rows)


def _curve(system: str, seed: int, watched: list[dict]) -> pd.DataFrame:
    long = pd.DataFrame(watched).melt("step", var_name="measure").astype({"value": "float32"})
    return long.assign(system=system, seed=seed)[["system", "seed", "step", "measure", "value"]]


def tested(study: Study) -> pd.DataFrame:
    """The names of the collections that are tested on."""
    return pd.DataFrame({"collection": [part.name for part in study.tested_on]})
