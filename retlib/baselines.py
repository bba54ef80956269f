"""The baselines of Gillick 2018, Table 2: lexical systems, averaged word vectors, Skip-Thought."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import pandas as pd

from retlib import artefacts, datasets, evaluation, lexical, recipes, skipthought, text, wordvectors
from retlib.collection import Collection
from retlib.experiment import Outcome
from retlib.skipthought import SkipThoughtSettings

# A system's maker, which takes a seed, and whether the seed changes anything.
System = tuple[Callable[[int], Outcome], bool]


@dataclass(frozen=True)
class Texts:
    """The first sentences of a bulk text.

    Parameters
    ----------
    name : str
        As `retlib.datasets.text` knows it.
    limit : int
        Sentences that are read at most.
    """

    name: str
    limit: int

    def __iter__(self) -> Iterator[str]:
        return islice(datasets.text(self.name), self.limit)


def cluster_sizes(task: Collection, split: str = "test") -> pd.DataFrame:
    """How many queries have how many relevant documents: `collection`, `relevant`, `queries`."""
    relevant = task.judgments(split).query("relevance > 0").groupby("query_id").size()
    counts = relevant.value_counts().sort_index()
    return pd.DataFrame({"collection": task.name, "relevant": counts.index, "queries": counts.to_numpy()})


def _lexical_run(system: Any, task: Collection, split: str) -> pd.DataFrame:
    """Fit a lexical system on all candidates and rank them for the queries of a split."""
    queries, _ = evaluation.held_out(task, split)
    system.fit(task.documents["text"].tolist())
    scores, rows = system.search(queries["text"].tolist(), 100)
    return evaluation.make_run(queries.index, task.documents.index, scores, rows)


def tune_bm25(task: Collection, trials: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """AP@100 of BM25 on the validation queries, for every k1 with every b.

    Returns
    -------
    DataFrame
        Columns `collection`, `k1`, `b`, `AP@100`, `chosen`.
    """
    rows = []
    for k1 in trials["k1"]:
        for b in trials["b"]:
            run = _lexical_run(lexical.BM25(k1=k1, b=b), task, "dev")
            value = evaluation.evaluate(run, task.judgments("dev"), ["AP@100"])["value"].mean()
            rows.append({"collection": task.name, "k1": k1, "b": b, "AP@100": value})
    table = pd.DataFrame(rows)
    return table.assign(chosen=table.index == table["AP@100"].idxmax())


def systems(
    task: Collection,
    other: Texts,
    vector_epochs: int,
    vector_files: Mapping[str, str],
    skip_thought: Mapping[str, int],
    bm25: pd.DataFrame,
) -> dict[str, System]:
    """Every baseline of the table by name.

    Parameters
    ----------
    task : Collection
    other : Texts
        Text of another domain than the task's.
    vector_epochs : int
        Of word2vec.
    vector_files : mapping
        Name to path of further word vectors, averaged with IDF weights.
    skip_thought : mapping
        Settings of `retlib.skipthought.SkipThoughtSettings`.
    bm25 : DataFrame
        As `tune_bm25` returns it, for this task among others.
    """
    own = task.documents.loc[task.documents["split"] == "train", "text"].tolist()
    best = bm25[bm25["chosen"] & (bm25["collection"] == task.name)].iloc[0]
    train = partial(wordvectors.train, epochs=vector_epochs)
    found: dict[str, System] = {
        "Identity": (lambda seed: _lexical(lexical.Identity(), task), False),
        "TF-IDF": (lambda seed: _lexical(lexical.TfIdf(), task), False),
        "BM25": (lambda seed: _lexical(lexical.BM25(k1=best["k1"], b=best["b"]), task), False),
        "Avg-word2vec, other domain": (lambda seed: _averaged(train(list(other), seed=seed), task, idf=False), True),
        "IDF-word2vec, other domain": (lambda seed: _averaged(train(list(other), seed=seed), task, idf=True), True),
        "IDF-word2vec, task's domain": (lambda seed: _averaged(train(own, seed=seed), task, idf=True), True),
    }
    for name, path in vector_files.items():
        found[name] = (lambda seed, path=path: _averaged(wordvectors.load(path), task, idf=True), False)
    found["Skip-Thought"] = (lambda seed: _skip_thought(other, SkipThoughtSettings(**skip_thought), task, seed), True)
    return found


def _lexical(system: Any, task: Collection) -> Outcome:
    return Outcome(_lexical_run(system, task, "test"), system.settings)


def _averaged(vectors: Any, task: Collection, idf: bool) -> Outcome:
    model = wordvectors.AveragedVectors(vectors, idf_texts=task.documents["text"].tolist() if idf else None)
    return Outcome(recipes.retrieve(model.encode, task, "test"), {**vectors.settings, "idf": idf})


def _skip_thought(other: Texts, settings: SkipThoughtSettings, task: Collection, seed: int) -> Outcome:
    named = f"{other.name}, {other.limit} sentences, {artefacts.code_hash(text.__name__, datasets.__name__)}"
    trained = skipthought.fit(other, settings, seed, named)
    return Outcome(recipes.retrieve(trained.encode, task, "test"), {**vars(settings), "text": other.name})
