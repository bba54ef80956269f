"""The baselines of Gillick 2018, Table 2: lexical systems, averaged word vectors, Skip-Thought."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import pandas as pd

from retlib.core import cache
from retlib.data import datasets, text
from retlib.data.collection import Collection
from retlib.evaluation import measures
from retlib.models import wordvectors
from retlib.models.wordvectors import WordVectors
from retlib.retrieval import lexical
from retlib.studies.experiment import Outcome
from retlib.systems import recipes, skipthought
from retlib.systems.skipthought import SkipThoughtSettings

# A system takes a candidate pool and a seed; beside it, whether the seed changes anything.
System = tuple[Callable[[Collection, int], Outcome], bool]


@dataclass(frozen=True)
class Texts:
    """The first sentences of a bulk text.

    Parameters
    ----------
    name : str
        As `retlib.data.datasets.text` knows it.
    limit : int
        Sentences that are read at most.
    """

    name: str
    limit: int

    def __iter__(self) -> Iterator[str]:
        return islice(datasets.text(self.name), self.limit)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the sentences; reads them once."""
        digest = hashlib.sha256()
        for sentence in self:
            digest.update(f"{sentence}\n".encode())
        return digest.hexdigest()


def cluster_sizes(task: Collection, split: str = "test") -> pd.DataFrame:
    """How many queries have how many relevant documents: `collection`, `relevant`, `queries`."""
    relevant = task.judgments(split).query("relevance > 0").groupby("query_id").size()
    counts = relevant.value_counts().sort_index()
    return pd.DataFrame({"collection": task.name, "relevant": counts.index, "queries": counts.to_numpy()})


def tune_bm25(task: Collection, trials: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """AP@100 of BM25 on the validation queries, for every k1 with every b.

    Returns
    -------
    DataFrame
        Columns `collection`, `k1`, `b`, `AP@100`, `chosen`.
    """
    queries, qrels = measures.held_out(task, "dev")
    rows = []
    for k1 in trials["k1"]:
        for b in trials["b"]:
            run = lexical.BM25(k1=k1, b=b).rank(task.documents["text"], queries["text"])
            value = measures.evaluate(run, qrels, ["AP@100"])["value"].mean()
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
        Settings of `retlib.systems.skipthought.SkipThoughtSettings`.
    bm25 : DataFrame
        As `tune_bm25` returns it, for this task among others.
    """
    own = task.documents.loc[task.documents["split"] == "train", "text"].tolist()
    best = bm25[bm25["chosen"] & (bm25["collection"] == task.name)].iloc[0]
    bm25_settings = {"k1": float(best["k1"]), "b": float(best["b"])}

    def general(seed: int) -> WordVectors:
        return word2vec(other, other.fingerprint, vector_epochs, seed)

    def in_domain(seed: int) -> WordVectors:
        return word2vec(own, task.fingerprint, vector_epochs, seed)

    found: dict[str, System] = {
        "Identity": (lambda pool, seed: _lexical(lexical.Identity(), pool), False),
        "TF-IDF": (lambda pool, seed: _lexical(lexical.TfIdf(), pool), False),
        "BM25": (lambda pool, seed: _lexical(lexical.BM25(**bm25_settings), pool), False),
        "Avg-word2vec, other domain": (lambda pool, seed: averaged(general(seed), pool, idf=False), True),
        "IDF-word2vec, other domain": (lambda pool, seed: averaged(general(seed), pool, idf=True), True),
        "IDF-word2vec, task's domain": (lambda pool, seed: averaged(in_domain(seed), pool, idf=True), True),
    }
    for name, path in vector_files.items():
        found[name] = (lambda pool, seed, path=path: averaged(wordvectors.load(path), pool, idf=True), False)
    settings = SkipThoughtSettings(**skip_thought)
    found["Skip-Thought"] = (lambda pool, seed: _skip_thought(other, settings, pool, seed), True)
    return found


def word2vec(texts: Iterable[str], fingerprint: str, epochs: int, seed: int) -> WordVectors:
    """Train word2vec on texts, or find it trained; `fingerprint` names the texts."""
    described = {"texts": fingerprint, "epochs": epochs, "seed": seed}
    folder = cache.artefact(
        "word2vec",
        described,
        (wordvectors, text),
        lambda folder: wordvectors.train(texts, seed, epochs=epochs).save(folder),
    )
    return wordvectors.load(folder)


def _lexical(system: lexical.LexicalSystem, pool: Collection) -> Outcome:
    queries, _ = measures.held_out(pool, "test")
    return Outcome(system.rank(pool.documents["text"], queries["text"]), system.settings)


def averaged(vectors: WordVectors, pool: Collection, idf: bool) -> Outcome:
    """Rank a pool by averaged word vectors, weighted by IDF among its candidates if asked for."""
    model = wordvectors.AveragedVectors(vectors, idf_texts=pool.documents["text"].tolist() if idf else None)
    return Outcome(recipes.retrieve(model.encode, pool, "test"), {**vectors.settings, "idf": idf})


def _skip_thought(other: Texts, settings: SkipThoughtSettings, pool: Collection, seed: int) -> Outcome:
    trained = skipthought.fit(other, settings, seed, other.fingerprint)
    return Outcome(recipes.retrieve(trained.encode, pool, "test"), {**vars(settings), "text": other.name})
