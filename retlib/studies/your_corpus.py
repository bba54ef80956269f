"""What only the chapter on one's own corpus needs: questions that judge where nobody asked, and what to take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, name_or_none, number, one_of, some_of
from retlib.data import datasets, passages
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.evaluation.measures import compare, same_seeds
from retlib.evaluation.results import Results, load
from retlib.models.exporting import Card, export
from retlib.report import per_query
from retlib.studies import part3, part4
from retlib.studies.experiment import articles_name, collection_name
from retlib.studies.study import best, tune
from retlib.systems.compose import Fused, Ranks
from retlib.systems.generated import synthetic
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import System, Target, fit
from retlib.training.pretraining import TASKS, allowed

NAME = "60_your_corpus"
MEASURES = ["nDCG@10", "RR@10", "R@100"]
CHOSEN_BY, RIVAL = "nDCG@10", "BM25"
BEST, NEAR = "recommended", "as good, as far as can be told"
# Of the documents that a generator asks about, the share whose questions judge.
JUDGE = 0.4
# Behind the name of a collection whose questions a generator wrote.
GENERATED = "generated questions"


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
    "hidden": one_of((False, True)),
    "language": name_or_none,
    "articles": _articles_or_own,
    "tasks": some_of(one_of(TASKS.names())),
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
    """A corpus of a chapter.

    Parameters
    ----------
    whole : Collection
        As it is named.
    asked : Collection
        The same documents with a generator's questions.
    labelled : bool
        Whether its own questions judge, and train where there are some for that.
    """

    whole: Collection
    asked: Collection
    labelled: bool

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
        judged = collection.judgments("train")
        several = judged["query_id"][judged["relevance"] > 0].nunique() > 1
        return several and (collection is self.asked or self.labelled)


def corpus(name: str, writer: QueryGenerator, asked: int, hidden: bool, seed: int) -> Corpus:
    """A corpus with the questions that a generator asks about at most so many of its documents.

    Parameters
    ----------
    hidden : bool
        Whether its own labels are hidden.

    Raises
    ------
    DataError
        If the generator finds nothing to ask about.
    """
    whole = datasets.load(name)
    written = writer.seeded(seed).queries(passages.sample(whole.documents, asked))
    generated = synthetic(question_set(whole.name, True), written, whole.documents, JUDGE)
    judged = whole.judgments("test")
    return Corpus(whole, generated, not hidden and bool((judged["relevance"] > 0).any()))


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


def examples(corpus: Corpus, count: int = 3) -> pd.DataFrame:
    """Some of the generated questions that judge, with the documents that they were written for."""
    asked = corpus.asked.split("test").head(count)
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


def save(corpus: Corpus, name: str, system: System, seed: int, results: pd.DataFrame) -> Path:
    """Save a retriever for other tools, with a card, under the build folder; see `retlib.models.exporting.export`.

    Parameters
    ----------
    name : str
        Of the system.
    results : DataFrame
        What the card shows of it.
    """
    slug = re.sub(r"\W+", "-", corpus.whole.name).strip("-")
    folder = runtime.build_dir() / "retrievers" / slug
    card = Card(f"{name}, {corpus.whole.name}", system.settings, [corpus.whole.name], results)
    export(fit(system, corpus.judge, seed), folder, card)
    return folder


# --- from recorded rows ----------------------------------------------------------------------------


def question_set(corpus: str, generated: bool) -> str:
    """The name under which results on a corpus's own or on generated questions are recorded."""
    return f"{corpus}, {GENERATED}" if generated else corpus


def comparable(results: Results, collection: str) -> bool:
    """Whether systems were measured on two questions at least, of which not all have the same documents."""
    measured = len(results.systems(collection, "test", CHOSEN_BY)) > 0
    return measured and results.clusters(collection, "test", CHOSEN_BY).nunique() > 1


def gains(results: Results, collection: str, rival: str = RIVAL) -> pd.DataFrame:
    """Every system against one, on the test questions of a collection.

    Returns
    -------
    DataFrame
        Index system; `value` (points of 100), `gain`, and the ends `low` and `high` of its 95 % interval. Empty where
        there are fewer than two questions to compare on.
    """
    columns = ["value", "gain", "low", "high"]
    if not comparable(results, collection):
        return pd.DataFrame(columns=columns, index=pd.Index([], name="system"))
    known = results.systems(collection, "test", CHOSEN_BY)
    values = {name: 100 * results.per_query(collection, "test", CHOSEN_BY, name) for name in known}
    clusters, rows = results.clusters(collection, "test", CHOSEN_BY), {}
    for name, ours in values.items():
        found = compare(*same_seeds(ours, values[rival]), clusters)
        rows[name] = [float(ours.to_numpy().mean()), found.effect, *found.interval()]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("system")


def bought(results: Results, collection: str) -> pd.DataFrame:
    """Quality and cost of every system on the questions of a collection, as a page shows them; index system."""
    found, rows = gains(results, collection), results.rows[results.rows["collection"] == collection]
    spent = rows.astype({"seconds": float}).groupby("system")["seconds"].mean()
    means = rows.pivot_table(index="system", columns="measure", values="value", sort=False)
    ends = zip(found["gain"], found["low"], found["high"], strict=True)
    numbers = {
        f"{CHOSEN_BY} (of 100)": found["value"].map("{:.1f}".format),
        f"against {RIVAL}": [f"{gain:+.1f} ± {(high - low) / 2:.1f}" if high > low else "" for gain, low, high in ends],
        "R@100": (100 * means["R@100"]).map("{:.1f}".format),
        "training (s)": spent.map("{:.0f}".format, na_action="ignore"),
        "vectors (MB)": (means.get("index bytes", spent * np.nan) / 1e6).map("{:.2f}".format, na_action="ignore"),
        "ms/question": means["latency ms"].map("{:.2g}".format, na_action="ignore"),
    }
    return pd.DataFrame({name: pd.Series(value, found.index) for name, value in numbers.items()}).fillna("")


def judgements(results: Results, data: pd.DataFrame) -> pd.DataFrame:
    """What generated questions say beside labels, where a corpus has both.

    Parameters
    ----------
    data : DataFrame
        As `described` returns it.

    Returns
    -------
    DataFrame
        Columns `corpus`, `system`, its gain over BM25 `by generated questions` and `by labels`, and the `error` of the
        first.
    """
    parts = []
    for corpus in data["corpus"].unique():
        gain = {kind: gains(results, question_set(corpus, kind == GENERATED))["gain"] for kind in ("labels", GENERATED)}
        both = pd.DataFrame(gain).add_prefix("by ").drop(RIVAL, errors="ignore").dropna()
        parts.append(both.rename_axis("system").reset_index().assign(corpus=corpus))
    table = pd.concat(parts, ignore_index=True)
    table["error"] = table[f"by {GENERATED}"].astype(float) - table["by labels"].astype(float)
    return table[["corpus", "system", f"by {GENERATED}", "by labels", "error"]]


def with_recorded(own: pd.DataFrame) -> pd.DataFrame:
    """The judgements of a page, and the published ones of corpora that it has not."""
    found = [load(NAME, profile, "reference") for profile in notebook_files.profiles(runtime.root())]
    table = own
    for other in (each.tables["judgements"] for each in found if each):
        table = pd.concat([table, other[~other["corpus"].isin(table["corpus"])]], ignore_index=True)
    return table


class Judgement(NamedTuple):
    """How far gains by generated questions are from those by labels.

    Parameters
    ----------
    bias : Series
        System to its mean error on other corpora.
    half : float
        Half of the 95 % interval of a further corpus's error around that; infinite where no two corpora tell it.
    """

    bias: pd.Series
    half: float


def trust(table: pd.DataFrame, without: str) -> Judgement:
    """The error of generated questions as judges, from what `judgements` says of all other corpora than one.

    The variance between corpora is pooled over systems; its degrees of freedom are those of the corpora, of which all
    systems of one have one generator and one sample of questions in common.
    """
    errors = table[table["corpus"] != without].pivot_table(index="corpus", columns="system", values="error")
    count = len(errors)
    if count < 2:
        return Judgement(errors.mean(), np.inf)
    spread = float(np.sqrt(errors.var().mean() * (1 + 1 / count)))
    return Judgement(errors.mean(), float(special.stdtrit(count - 1, 0.975)) * spread)


def recommended(results: Results, collection: str, judgement: Judgement | None = None) -> pd.DataFrame:
    """The best system of a corpus, and those that cannot be told from it.

    Parameters
    ----------
    collection : str
        Whose test questions judge.
    judgement : Judgement, optional
        Where generated questions judge: gains are corrected by its bias, and intervals widened.

    Returns
    -------
    DataFrame
        As `gains` returns it, the best first, with `low` and `high`, the ends of the 95 % interval of what each gains
        on the best, and `advice`: `BEST`, `NEAR` where that interval holds 0, or "worse".
    """
    table = gains(results, collection)
    if table.empty:
        return table.assign(advice="")
    bias = judgement.bias.reindex(table.index).fillna(0.0) if judgement else 0.0
    table = table.assign(gain=table["gain"] - bias).sort_values("gain", ascending=False, kind="stable")
    behind, wider = gains(results, collection, table.index[0]).loc[table.index], judgement.half if judgement else 0.0
    shift = table["gain"] - table["gain"].iloc[0] - behind["gain"]  # what the bias changes
    found = table.assign(low=behind["low"] + shift - wider, high=behind["high"] + shift + wider)
    advice = np.where(found["high"] >= 0, NEAR, "worse").astype(object)
    advice[0] = BEST
    return found.assign(advice=advice)


def in_words(corpus: str, table: pd.DataFrame) -> str:
    """What `recommended` says, as sentences for a page."""
    if table.empty:
        return f"**{corpus}**: too few questions to compare on."
    first, near = table.iloc[0], table.index[table["advice"] == NEAR]
    said = f"**{corpus}**: take **{first.name}**, {CHOSEN_BY} {first['value']:.1f}"
    said += f", {first['gain']:+.1f} against {RIVAL}" if first.name != RIVAL else ""
    return f"{said}." + (f" As good, as far as can be told: {', '.join(near)}." if len(near) else "")
