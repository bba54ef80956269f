"""Which system to take on one's own corpus: from its rows, and from those of corpora whose labels were hidden."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import Results, load
from retlib.report import tables

NAME = "60_your_corpus"
CHOSEN_BY, RIVAL = "nDCG@10", "BM25"
CEILING = 99.95  # points of what is shown as 100.0
BEST, NEAR, UNKNOWN = "recommended", "as good, as far as can be told", "no other corpus tells"
# Behind the name of a collection whose questions a generator wrote.
GENERATED = "generated questions"
# Whether the labels of a corpus trained its systems, which then are others than where labels are hidden.
TAUGHT = "labels train"


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
        As `retlib.studies.your_corpus.described` returns it.
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
    tables = [own, *(each.tables["judgements"] for each in _published())]
    table = pd.concat([each.assign(**{TAUGHT: each.get(TAUGHT, False)}) for each in tables], ignore_index=True)
    return table.drop_duplicates(["start", "corpus", TAUGHT, "system"], ignore_index=True)


def _published() -> list[Results]:
    """The chapter's published results, of all profiles that have any."""
    found = (load(NAME, profile, "reference") for profile in notebook_files.profiles(runtime.root()))
    return [each for each in found if each]


def without_labels() -> pd.DataFrame:
    """What the labels of the others advise on published corpora whose labels are hidden, and what their own say of it.

    Returns
    -------
    DataFrame
        A row for each corpus: what is recommended, its gain over BM25 by the labels of others, the interval of that,
        its gain by those of its own, and what is best by these.
    """
    rows = []
    for found in _published():
        data, judged = found.tables["data"], found.tables["judgements"]
        for corpus in data["corpus"][data["judges"].astype(bool) & (data["questions"] == "generated")]:
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
        As `judgements` returns it; systems that labels taught do not count.
    """
    said = []
    for start, mine in table[~table[TAUGHT].astype(bool)].groupby("start"):
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
    said += "." + (f" As good, as far as can be told: {', '.join(near)}." if len(near) else "")
    if (table["value"] > CEILING).all():
        said += " All systems are perfect on the questions that judge: harder ones may tell them apart."
    return said
