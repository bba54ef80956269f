"""What only the chapter on one's own corpus needs: questions that judge where nobody asked, and what to take."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from retlib.core import notebook_files, runtime
from retlib.core.cache import key
from retlib.core.errors import DataError
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, flag, name_or_none, number, one_of, some_of
from retlib.data import datasets, passages
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.datasets import _beir
from retlib.evaluation.results import Results, load
from retlib.models.exporting import Card, export
from retlib.report import per_query, tables
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

NAME = "60_your_corpus"
MEASURES = ["nDCG@10", "RR@10", "R@100"]
CHOSEN_BY, RIVAL = "nDCG@10", "BM25"
BEST, NEAR, UNKNOWN = "recommended", "as good, as far as can be told", "no other corpus tells"
# Of the documents that a generator asks about, the share whose questions judge.
JUDGE = 0.4
# Behind the name of a collection whose questions a generator wrote.
GENERATED = "generated questions"
# Whether the labels of a corpus trained its systems, which then are others than where labels are hidden.
TAUGHT = "labels train"


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
        several = collection.relevant("train")["query_id"].nunique() > 1
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
    return Corpus(whole, generated, not hidden and len(whole.relevant("test")) > 0)


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


def save(corpus: Corpus, name: str, system: System, seed: int, others: Sequence[str], results: pd.DataFrame) -> Path:
    """Save a retriever for other tools under the build folder, with all that was made for it.

    See `retlib.models.exporting.export`; beside the encoder lie its index (``index``), the generated questions as a
    corpus in BEIR's form (``questions``), and its run with the judgments of the questions that judge, in TREC's.

    Parameters
    ----------
    name : str
        Of the system.
    others : sequence of str
        What else it was trained on: names of collections and articles.
    results : DataFrame
        What the card shows of it.

    Returns
    -------
    Path
        Of the folder, from the one in which the build folder is: a page has no path of this machine.
    """
    whole, judge = corpus.whole.name, corpus.targets[0]
    shown = Path(whole).name if ":" in whole else whole  # a card is passed on, and a path is this machine's
    slug = f"{re.sub(r'[^a-z0-9]+', '-', shown.lower()).strip('-')}-{key(whole)[:6]}"
    folder, retriever = runtime.build_dir() / "retrievers" / slug, fit(system, corpus.judge, seed)
    settings = json.loads(json.dumps(system.settings, default=str).replace(whole, shown))
    export(retriever, folder, Card(f"{name}, {shown}", settings, [shown, *others] if system.stages else [], results))
    found = indexed(retriever, retriever.reads(judge.test), system.index, system.search)
    index.export(found, folder / "index", judge.test.documents.index)
    _beir.write(corpus.asked, folder / "questions")
    runs.write_trec(system.run(judge, seed), folder / "run.txt", "retlib")
    runs.write_qrels(judge.test.judgments("test"), folder / "qrels.txt")
    return folder.relative_to(runtime.build_dir().parent)


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
    known = results.systems(collection, "test", CHOSEN_BY) if comparable(results, collection) else []
    found = tables.against(results, [collection] if known else [], CHOSEN_BY, rival).set_index("system").reindex(known)
    value = [results.compared(collection, CHOSEN_BY, name).effect for name in known]
    return found[["effect", "low", "high"]].fillna(0.0).rename(columns={"effect": "gain"}).assign(value=value)


def bought(results: Results, collection: str) -> pd.DataFrame:
    """Quality and cost of every system on the questions of a collection, as a page shows them; index system."""
    found, means = gains(results, collection), results.means(collection)
    size = means.get("index bytes", means["seconds"] * np.nan) / 1e6
    ends = zip(found["gain"], found["low"], found["high"], strict=True)
    numbers = {
        f"{CHOSEN_BY} (of 100)": found["value"].map("{:.1f}".format),
        f"against {RIVAL}": [f"{gain:+.1f} ± {(high - low) / 2:.1f}" * (high > low) for gain, low, high in ends],
        "R@100": (100 * means["R@100"]).map("{:.1f}".format),
        "training (s)": means["seconds"].map("{:.0f}".format, na_action="ignore"),
        "vectors (MB)": size.map("{:.2f}".format, na_action="ignore"),
        "ms/question": means["latency ms"].map("{:.2g}".format, na_action="ignore"),
    }
    return pd.DataFrame({name: pd.Series(value, found.index) for name, value in numbers.items()}).fillna("")


def judgements(results: Results, data: pd.DataFrame, start: str) -> pd.DataFrame:
    """What generated questions say beside labels, where a corpus has both.

    Parameters
    ----------
    data : DataFrame
        As `described` returns it.
    start : str
        What the systems begin with: a public encoder, or nothing.

    Returns
    -------
    DataFrame
        Columns `start`, `corpus`, whether its labels trained, `system`, its gain over BM25 `by generated questions`
        and `by labels`, and the `error` of the first.
    """
    parts = []
    for corpus in data["corpus"].unique():
        gain = {kind: gains(results, question_set(corpus, kind == GENERATED))["gain"] for kind in ("labels", GENERATED)}
        both = pd.DataFrame(gain).add_prefix("by ").drop(RIVAL, errors="ignore").dropna()
        taught = data.loc[(data["corpus"] == corpus) & (data["questions"] == "own"), "judges"].any()
        parts.append(both.rename_axis("system").reset_index().assign(corpus=corpus, **{TAUGHT: bool(taught)}))
    table = pd.concat(parts, ignore_index=True)
    table["error"] = table[f"by {GENERATED}"].astype(float) - table["by labels"].astype(float)
    return table.assign(start=start)[["start", "corpus", TAUGHT, "system", f"by {GENERATED}", "by labels", "error"]]


def with_recorded(own: pd.DataFrame) -> pd.DataFrame:
    """The judgements of a page, and the published ones, of corpora whose labels were hidden, that it has not."""
    found = [load(NAME, profile, "reference") for profile in notebook_files.profiles(runtime.root())]
    tables = [own, *(each.tables["judgements"] for each in found if each)]
    table = pd.concat([each.assign(**{TAUGHT: each.get(TAUGHT, False)}) for each in tables], ignore_index=True)
    return table.drop_duplicates(["start", "corpus", TAUGHT, "system"], ignore_index=True)


def without_labels() -> pd.DataFrame:
    """What the labels of the others advise on published corpora whose labels are hidden, and what their own say of it.

    Returns
    -------
    DataFrame
        A row for each corpus: what is recommended, its gain over BM25 by the labels of others, the interval of that,
        its gain by those of its own, and what is best by these.
    """
    rows = []
    for profile in notebook_files.profiles(runtime.root()):
        found = load(NAME, profile, "reference")
        data = found.tables["data"] if found else pd.DataFrame({"judges": [], "questions": [], "corpus": []})
        for corpus in data["corpus"][data["judges"].astype(bool) & (data["questions"] == "generated")]:
            judged = found.tables["judgements"]
            others = elsewhere(with_recorded(judged), corpus, judged["start"].iloc[0])
            table, truth = recommended(found, question_set(corpus, True), others), gains(found, corpus)
            first, best = table.iloc[0], truth["gain"].idxmax()
            rows.append({
                "corpus": corpus, "start": judged["start"].iloc[0], "recommended": first.name,
                f"{CHOSEN_BY} above {RIVAL}, by the labels of others": first["gain"], "from": -table["high"][RIVAL],
                "to": -table["low"][RIVAL], "by its own": truth["gain"][first.name],
                "best by its own": best, "the gain of that": truth["gain"][best],
            })  # fmt: skip
    return pd.DataFrame(rows)


def elsewhere(table: pd.DataFrame, without: str, start: str) -> pd.DataFrame:
    """Gains over BM25 by the labels of other corpora than one: corpora by systems, BM25 among them with 0.

    From what `judgements` says of systems that begin alike and learn without labels.
    """
    others = table[(table["corpus"] != without) & (table["start"] == start) & ~table[TAUGHT].astype(bool)]
    found = others.pivot_table(index="corpus", columns="system", values="by labels")
    # Means are compared over the same corpora.
    count = found.count()
    return found.loc[:, count == count.max()].dropna().assign(**{RIVAL: 0.0})


def expected(system: str, read: Sequence[str] = ()) -> str:
    """What a system that none of their labels taught gains on published corpora, and may gain on one more: sentences.

    Parameters
    ----------
    read : sequence of str
        Corpora whose sources its start was trained on; what is left without them is said, too.
    """
    table, said = with_recorded(pd.DataFrame()), []
    for start in table["start"].unique():
        others = elsewhere(table, "", start)
        if system in others:
            whose = f"From {start or 'random weights'} *{system}* stood"
            said.append(f"{whose}, on {_expected(others, system)}.")
            fresh = others.drop(index=[name for name in read if name in others.index])
            if 1 < len(fresh) < len(others):
                said[-1] += f" Without those whose sources that encoder has read, on {_expected(fresh, system)}."
    return "\n\n".join(said)


def _expected(others: pd.DataFrame, system: str) -> str:
    gain, ends = others[system], _of_a_further_corpus(others, RIVAL).loc[system]
    few, most, low, high = (f"{each:+.1f}" for each in (gain.min(), gain.max(), *ends))
    return (
        f"{len(gain)} corpora whose labels were hidden, {few} to {most} points of {CHOSEN_BY} above {RIVAL}, "
        f"mean {gain.mean():+.1f}; 95 % prediction interval for one more corpus {low} to {high}"
    )


def agreement(table: pd.DataFrame) -> str:
    """How far generated questions order corpora as labels do: a sentence for each start that three corpora have.

    Parameters
    ----------
    table : DataFrame
        As `judgements` returns it.
    """
    said = []
    for start, mine in table.groupby("start"):
        sides = (f"by {GENERATED}", "by labels")
        generated, labels = (mine.pivot_table(index="corpus", columns="system", values=side) for side in sides)
        if len(labels) > 2:
            r, spread, error = generated.corrwith(labels), labels.std(), (generated - labels).std()
            said.append(
                f"From {start or 'random weights'}, over {len(labels)} corpora, the gain of a system by generated "
                f"questions and that by labels correlate by {r.min():.2f} to {r.max():.2f} (1 if they agreed); "
                f"from corpus to corpus the second differs by {spread.median():.1f} points (standard deviation, the "
                f"median system), the error of the first by {error.median():.1f}."
            )
    return "\n\n".join(said)


def recommended(results: Results, collection: str, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """The best system of a corpus, and those that cannot be told from it.

    Parameters
    ----------
    collection : str
        Whose test questions judge.
    others : DataFrame, optional
        As `elsewhere` returns it, where generated questions judge: a system's gain is its mean on these other corpora,
        and the intervals are those of a further corpus. Without a corpus that has the systems, generated questions
        order them, and nothing is recommended.

    Returns
    -------
    DataFrame
        As `gains` returns it, the best first, with `low` and `high`, the ends of the 95 % interval of what each gains
        on the best, and `advice`: `BEST`, `NEAR` where that interval holds 0, "worse", or `UNKNOWN`.
    """
    table = gains(results, collection)
    if table.empty:
        return table.assign(advice="")
    told = others is None or len(others) > 0
    if others is not None and told:
        table["gain"] = others.mean().reindex(table.index)
    table = table.sort_values("gain", ascending=False, kind="stable")
    if not told:
        return table.assign(low=np.nan, high=np.nan, advice=UNKNOWN)
    first = table.index[0]
    if others is None:
        ends = gains(results, collection, first).loc[table.index, ["low", "high"]]
    else:
        ends = _of_a_further_corpus(others.reindex(columns=table.index), first)
    advice = np.where(table["gain"].isna(), UNKNOWN, np.where(ends["high"] >= 0, NEAR, "worse")).astype(object)
    advice[0] = BEST
    return table.assign(**ends, advice=advice)


def _of_a_further_corpus(others: pd.DataFrame, first: str) -> pd.DataFrame:
    """The 95 % interval of what each system gains on the first on one more corpus; endless where no two tell it."""
    behind = others.sub(others[first], axis=0)
    count = behind.count()
    half = special.stdtrit(np.maximum(count - 1, 1), 0.975) * np.sqrt(behind.var() * (1 + 1 / count))
    known = count > 1
    low, high = (behind.mean() - half).where(known, -np.inf), (behind.mean() + half).where(known, np.inf)
    ends = pd.DataFrame({"low": low, "high": high})
    ends.loc[first] = 0.0
    return ends


def in_words(corpus: str, table: pd.DataFrame, others: pd.DataFrame | None) -> str:
    """What `recommended` says, as sentences for a page, and who says it."""
    if table.empty:
        return f"**{corpus}**: too few questions to compare on."
    first, near = table.iloc[0], table.index[table["advice"] == NEAR]
    if first["advice"] != BEST:
        why = "generated questions do not tell which system is best, and no labelled corpus was asked from this start"
        return f"**{corpus}**: nothing to recommend, since {why}. Some dozens of questions of people would."
    said = f"**{corpus}**: take **{first.name}**"
    if first.name != RIVAL:
        rival = table.loc[RIVAL]
        said += f", {CHOSEN_BY} {first['gain']:+.1f} [{-rival['high']:+.1f}, {-rival['low']:+.1f}] against {RIVAL}"
        if others is not None:
            ahead, corpora = (others[first.name] > 0).sum(), "corpora" if len(others) > 1 else "corpus"
            said += f", as the labels of {len(others)} other {corpora} say, on {ahead} of which it is ahead"
    return f"{said}." + (f" As good, as far as can be told: {', '.join(near)}." if len(near) else "")
