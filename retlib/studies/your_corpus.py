"""What only the chapter on one's own corpus needs: questions that judge where nobody asked, and what is saved."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.cache import key
from retlib.core.errors import DataError
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, flag, name_or_none, number, one_of, some_of
from retlib.data import datasets, passages
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.datasets import _beir
from retlib.models.exporting import Card, export
from retlib.report import per_query
from retlib.report.own_corpus import CHOSEN_BY, question_set
from retlib.retrieval import index, runs
from retlib.studies import part3, part4
from retlib.studies.experiment import articles_name, collection_name
from retlib.studies.study import best, tune
from retlib.systems.compose import Fused, Ranks
from retlib.systems.generated import synthetic
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.ranking import indexed
from retlib.systems.system import System, Target, fit
from retlib.training.pretraining import TASKS, allowed

MEASURES = ["nDCG@10", "RR@10", "R@100"]
# Of the documents that a generator asks about, the share whose questions judge.
JUDGE = 0.4


def _articles_or_own(name: str, value: Any) -> None:
    """A rule: the name of articles, or nothing for those of the corpus itself."""
    if value != "":
        articles_name(name, value)


# Parameters of Part III that say which collections: here the corpora do.
TARGETED = ("generators", "answers", "documents", "questions")
RULES: dict[str, Rule] = {
    **{name: rule for name, rule in part3.COMMON.items() if name not in TARGETED},
    **part4.STARTS,
    "corpora": each_of(collection_name),
    "hidden": flag,
    "language": name_or_none,
    "articles": _articles_or_own,
    "tasks": some_of(one_of(TASKS.names)),
    "learns_from": collection_name,
    "asked": number(2, whole=True),
    "query_steps": POSITIVE,
    "query_rate": RATE,
    "retrieved": number(2, whole=True),
    "reranker_steps": number(0, whole=True),
    "reranker_rate": RATE,
    "reranked": POSITIVE,
    "fusion_shares": each_of(number(0, 1)),
    "timed": POSITIVE,
}  # fmt: skip


class Corpus(NamedTuple):
    """A corpus of a chapter."""

    whole: Collection
    asked: Collection  # the same documents with a generator's questions
    labelled: bool  # whether its own questions judge, and train where there are some for that

    @property
    def judge(self) -> Collection:
        """The collection whose test questions choose and recommend."""
        return self.whole if self.labelled else self.asked

    @property
    def targets(self) -> list[Target]:
        """What systems are tested on: the judge first; beside it the other questions, where there are any."""
        others = (self.asked, self.whole) if not self.labelled else (self.whole, self.asked)
        return [Target(each, self.judge) for each in others if len(each.split("test"))]

    def trains(self, collection: Collection) -> bool:
        """Whether a collection has questions to train on, beside those that judge."""
        several = collection.relevant("train")["query_id"].nunique() > 1
        return several and (collection is self.asked or self.labelled)


def corpus(name: str, writer: QueryGenerator, asked: int, hidden: bool, seed: int) -> Corpus:
    """Return a corpus, its labels hidden or not, with a generator's questions about at most so many documents."""
    whole = datasets.load(name)
    labelled = not hidden and len(whole.relevant("test")) > 0
    few = whole.relevant("test")["query_id"].nunique() if labelled else round(JUDGE * min(asked, len(whole.documents)))
    if few < 2:  # a generator learns for minutes first
        why = "it takes four documents that are asked about, or two labelled test questions"
        runtime.note(f"{whole.name} is too small to compare systems on, and nothing is recommended for it: {why}.")
    written = writer.seeded(seed).queries(passages.sample(whole.documents, asked))
    generated = synthetic(question_set(whole.name, True), written, whole.documents, JUDGE)
    return Corpus(whole, generated, labelled)


def pretrains(tasks: Sequence[str], pages: Articles) -> list[str]:
    """The pre-training tasks that a corpus allows; none, with a sentence, where it allows none."""
    try:
        return allowed(tasks, pages.corpus) if tasks else []
    except DataError as error:
        runtime.note(f"There is no pre-training on {pages.name}: {error}.")
        return []


def described(corpora: Sequence[Corpus]) -> pd.DataFrame:
    """What each corpus is like: a row for its own questions, and one for the generated ones."""
    rows = []
    for whole, asked, labelled in corpora:
        words = whole.documents["text"].str.split().str.len()
        titles = whole.documents["title"].ne("").mean() if "title" in whole.documents else 0.0
        for kind, each in (("own", whole), ("generated", asked)):
            overlap = per_query.overlap(each)["overlap"].median() if len(each.split("test")) else np.nan
            rows.append({
                "corpus": whole.name,
                "documents": len(words),
                "words/document": int(words.median()),
                "of the longest tenth": int(words.quantile(0.9)),
                "with a title (%)": round(100 * float(titles)),
                "questions": kind,
                **{split: len(each.split(split)) for split in ("train", "dev", "test")},
                "judges": (kind == "own") == labelled,
                "words found in the document (%)": 100 * overlap,
                "fingerprint": each.fingerprint[:12],
            })  # fmt: skip
    return pd.DataFrame(rows)


def examples(corpus: Corpus) -> pd.DataFrame:
    """Three of the generated questions that judge, with the documents that they were written for."""
    asked = corpus.asked.split("test").head(3)
    texts = [shorten(text, 200, placeholder=" …") for text in corpus.asked.documents["text"][asked["cluster"]]]
    return pd.DataFrame({"corpus": corpus.whole.name, "question": asked["text"].array, "document": texts})


def fused(system: Ranks, words: Ranks, shares: Sequence[float], corpus: Corpus, seed: int) -> Fused:
    """A system's list with BM25's; its share is chosen on labelled validation questions, else it is half.

    Generated questions would choose too small a share: they are made of the words of their document.
    """
    if not corpus.labelled or not len(corpus.whole.judgments("dev")):
        return Fused((system, words), (0.5, 0.5))
    trials = [Fused((system, words), (share, 1 - share)) for share in shares]
    return best({"": trials}, tune({"": trials}, corpus.targets[0], seed, CHOSEN_BY))[""]


def save(corpus: Corpus, name: str, system: System, seed: int, others: Sequence[str], results: pd.DataFrame) -> Path:
    """Save a retriever for other tools under the build folder, with all that was made for it.

    See `retlib.models.exporting.export`; beside the encoder lie its index (``index``), the generated questions as a
    corpus in BEIR's form (``questions``), and its run with the judgments of the questions that judge, in TREC's. The
    card shows `results`, and `others`: collections and articles that it was trained on, too. The path is as `--system`
    takes it: from the project's folder, and absolute outside of that.
    """
    whole, judge = corpus.whole.name, corpus.targets[0]
    # A card is passed on, and a path is this machine's; of two, the longer may begin as the other.
    names = {each: each for each in sorted([whole, *others], key=len, reverse=True)}
    names |= {each: Path(each).name for each in names if ":" in each and not each.startswith("irds:")}
    shown, told = names[whole], json.dumps(system.settings, default=str, ensure_ascii=False)
    for each, plain in names.items():
        told = told.replace(each, plain)
    slug = f"{re.sub(r'[^a-z0-9]+', '-', shown.lower()).strip('-')}-{key(whole)[:6]}"
    folder, retriever = runtime.build_dir() / "retrievers" / slug, fit(system, corpus.judge, seed)
    data = [shown, *(names[each] for each in others)] if system.stages else []
    export(retriever, folder, Card(f"{name}, {shown}", json.loads(told), data, results))
    found = indexed(retriever, retriever.reads(judge.test), system.index, system.search)
    index.export(found, folder / "index", judge.test.documents.index)
    _beir.write(corpus.asked, folder / "questions")
    runs.write_trec(system.run(judge, seed), folder / "run.txt", "retlib")
    runs.write_qrels(judge.test.judgments("test"), folder / "qrels.txt")
    return folder.relative_to(runtime.root()) if folder.is_relative_to(runtime.root()) else folder
