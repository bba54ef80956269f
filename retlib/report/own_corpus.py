"""Which system to take on one's own corpus: from its rows, and from those of corpora whose labels were hidden."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import Results, load
from retlib.report import tables

NAME = "60_your_corpus"
CHOSEN_BY, RIVAL = "nDCG@10", "BM25"
BEST, NEAR, UNKNOWN = "recommended", "as good, as far as can be told", "no other corpus tells"
# Behind the name of a collection whose questions a generator wrote.
GENERATED = "generated questions"
# Whether the labels of a corpus trained its systems, which then are others than where labels are hidden.
TAUGHT = "labels train"


def question_set(corpus: str, generated: bool) -> str:
    """Return the name under which results on a corpus's own or on generated questions are recorded."""
    return f"{corpus}, {GENERATED}" if generated else corpus


def comparable(results: Results, collection: str) -> bool:
    """Return whether systems were measured on two questions at least, of which not all have the same documents."""
    measured = len(results.systems(collection, "test", CHOSEN_BY)) > 0
    return measured and results.clusters(collection, "test", CHOSEN_BY).nunique() > 1


def gains(results: Results, collection: str, rival: str = RIVAL) -> pd.DataFrame:
    """Return every system against one on a collection's test questions; index system, empty if not `comparable`.

    Columns `value` (points of 100), `gain`, and the ends `low` and `high` of its 95 % interval.
    """
    systems = results.systems(collection, "test", CHOSEN_BY) if comparable(results, collection) else []
    table = tables.against(results, [collection] if systems else [], CHOSEN_BY, rival).set_index("system")
    value = [results.compared(collection, CHOSEN_BY, name).effect for name in systems]
    ends = table.reindex(systems)[["effect", "low", "high"]].fillna(0.0)
    return ends.rename(columns={"effect": "gain"}).assign(value=value)


def bought(results: Results, collection: str) -> pd.DataFrame:
    """Return quality and cost of every system on the questions of a collection, as a page shows them."""
    table, means = gains(results, collection), results.means(collection)
    half = (table["high"] - table["low"]) / 2
    size = means.get("index bytes", means["seconds"] * np.nan) / 1e6
    texts = {
        f"{CHOSEN_BY} (of 100)": table["value"].map("{:.1f}".format),
        f"against {RIVAL}": (table["gain"].map("{:+.1f}".format) + half.map(" ± {:.1f}".format)).where(half > 0, ""),
        "R@100": (100 * means["R@100"]).map("{:.1f}".format),
        "training (s)": means["seconds"].map("{:.0f}".format, na_action="ignore"),
        "vectors (MB)": size.map("{:.2f}".format, na_action="ignore"),
        "ms/question": means["latency ms"].map("{:.2g}".format, na_action="ignore"),
    }
    return pd.DataFrame({name: text.reindex(table.index) for name, text in texts.items()}).fillna("")


def judgements(results: Results, data: pd.DataFrame, start: str) -> pd.DataFrame:
    """Return what generated questions say beside labels, where a corpus has both.

    `data` is that of `retlib.studies.your_corpus.described`; `start` is the public encoder that systems begin with, or
    "". Columns `start`, `corpus`, `TAUGHT`, `system`, its gain over BM25 `by generated questions` and `by labels`, and
    the `error` of the first.
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
    """Return the judgements of a page, and the published ones, of corpora whose labels were hidden, that it has not."""
    every = [own, *(each.tables["judgements"] for each in _published())]
    table = pd.concat([each.assign(**{TAUGHT: each.get(TAUGHT, False)}) for each in every], ignore_index=True)
    return table.drop_duplicates(["start", "corpus", TAUGHT, "system"], ignore_index=True)


def _published() -> list[Results]:
    found = (load(NAME, profile, "reference") for profile in notebook_files.profiles(runtime.root()))
    return [each for each in found if each]


def without_labels() -> pd.DataFrame:
    """Return what others' labels advise on published corpora whose labels are hidden, and what their own say of it.

    A row for each corpus: what is recommended, its gain over BM25 by the labels of others, the interval of that, its
    gain by those of its own, and what is best by these.
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
    """Return gains over BM25 by the labels of other corpora than one: corpora by systems, BM25 among them with 0.

    From what `judgements` says of systems that begin alike and learn without labels.
    """
    others = table[(table["corpus"] != without) & (table["start"] == start) & ~table[TAUGHT].astype(bool)]
    gain = others.pivot_table(index="corpus", columns="system", values="by labels")
    # Means are compared over the same corpora.
    count = gain.count()
    return gain.loc[:, count == count.max()].dropna().assign(**{RIVAL: 0.0})


def recommended(results: Results, collection: str, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the systems of `gains`, the best of them first, with `advice`.

    `low` and `high` are the ends of the 95 % interval of what each gains on the best; `advice` is `BEST`, `NEAR` where
    that interval holds 0, "worse", or `UNKNOWN`. Where generated questions judge, `others` is the table of `elsewhere`:
    a system's gain is its mean on these corpora, and the intervals are those of a further corpus. Without a corpus that
    has the systems, generated questions order them, and nothing is recommended.
    """
    table = gains(results, collection)
    if table.empty:
        return table.assign(advice="")
    if others is not None and len(others):
        table["gain"] = others.mean().reindex(table.index)
    table = table.sort_values("gain", ascending=False, kind="stable")
    first = table.index[0]
    if others is None:
        ends = gains(results, collection, first).loc[table.index, ["low", "high"]]
    elif len(others):
        # On one more corpus; endless where no two tell it.
        others = others.reindex(columns=table.index)
        behind = others.sub(others[first], axis=0)
        count = behind.count()
        half = special.stdtrit(np.maximum(count - 1, 1), 0.975) * np.sqrt(behind.var() * (1 + 1 / count))
        low, high = (behind.mean() - half).where(count > 1, -np.inf), (behind.mean() + half).where(count > 1, np.inf)
        ends = pd.DataFrame({"low": low, "high": high})
        ends.loc[first] = 0.0
    else:
        return table.assign(low=np.nan, high=np.nan, advice=UNKNOWN)
    advice = np.where(table["gain"].isna(), UNKNOWN, np.where(ends["high"] >= 0, NEAR, "worse")).astype(object)
    advice[0] = BEST
    return table.assign(**ends, advice=advice)
