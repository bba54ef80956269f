"""Which system to take on one's own corpus: from its rows, and from those of corpora with hidden labels (60)."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import special

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import Results, load
from retlib.report import tables

NAME = "60_your_corpus"
CHOSEN_BY, RIVAL = "nDCG@10", "BM25"
BEST, NEAR, UNKNOWN = "recommended", "as good, as far as can be told", "no other corpus tells"
GENERATED = "generated questions"  # behind the name of a collection whose questions a generator wrote


def question_set(corpus: str, generated: bool) -> str:
    """Return the name under which results on a corpus's own or on generated questions are recorded."""
    return f"{corpus}, {GENERATED}" if generated else corpus


def gains(results: Results, collection: str, rival: str = RIVAL) -> pd.DataFrame:
    """Return systems against one on test questions: `gain`, `low` and `high` of its interval, `value`; index system.

    Empty unless there are two questions at least that have not all the same documents.
    """
    recorded = results.systems(collection, "test", CHOSEN_BY)
    if not recorded or results.clusters(collection, "test", CHOSEN_BY).nunique() < 2:
        return pd.DataFrame(columns=["gain", "low", "high", "value"], dtype=float)
    values = tables.scores(results, collection, CHOSEN_BY)[CHOSEN_BY]
    tests = tables.against(results, [collection], CHOSEN_BY, rival).set_index("system").reindex(values.index)
    return tests[["effect", "low", "high"]].fillna(0.0).set_axis(["gain", "low", "high"], axis=1).assign(value=values)


def judgements(results: Results, corpora: Iterable[str]) -> pd.DataFrame:
    """Return every system's gain over BM25 by generated questions and by labels, where both are, and the difference."""
    parts = {}
    for corpus in corpora:
        both = [gains(results, question_set(corpus, each))["gain"] for each in (True, False)]
        both = pd.concat(both, axis=1, join="inner", keys=[f"by {GENERATED}", "by labels"])
        parts[corpus] = both.drop(RIVAL, errors="ignore").assign(error=both.iloc[:, 0] - both.iloc[:, 1])
    table = pd.concat(parts, names=["corpus", "name"]).reset_index().join(_chains(results), on="name")
    return table[["start", "corpus", "system", *table.columns[2:-2]]]


def _chains(results: Results) -> pd.DataFrame:
    # The `start` of each system and, as `system`, what was done from there, by its name.
    if "systems" in results.tables:
        return results.tables["systems"].set_index("name")
    table = results.tables["judgements"][["start", "system"]].drop_duplicates()  # earlier rows have one start
    return table.set_index(table["system"].rename("name"))


def _published() -> list[Results]:
    profiles = notebook_files.profiles(runtime.root())
    return [results for profile in profiles if (results := load(NAME, profile, "reference"))]


def all_judgements(own: pd.DataFrame) -> pd.DataFrame:
    """Return the judgements of a page, and the published ones that it has not."""
    every = [own, *(each.tables["judgements"] for each in _published())]
    return pd.concat(every).drop_duplicates(["start", "corpus", "system"], ignore_index=True)


def without_labels() -> pd.DataFrame:
    """Return what others' labels advise on published corpora whose labels are hidden, beside what their own say."""
    rows = []
    for results in _published():
        data, judged = results.tables["data"], all_judgements(results.tables["judgements"])
        for corpus in data["corpus"][data["judges"] & (data["questions"] == "generated")]:
            advice = recommendation(results, question_set(corpus, True), elsewhere(results, judged, corpus))["gain"]
            own, first = gains(results, corpus)["gain"], advice.index[0]
            rows.append((corpus, first, advice[first], own[first], own.idxmax(), own.max()))
    columns = ["corpus", "recommended", f"{CHOSEN_BY} above {RIVAL}, by the labels of others", "by its own"]
    return pd.DataFrame(rows, columns=[*columns, "best by its own", "the gain of that"])


def elsewhere(results: Results, judged: pd.DataFrame, without: str) -> pd.DataFrame:
    """Return gains of a page's systems over BM25, which has 0, by labels of the other corpora: corpora by systems."""
    others = judged[judged["corpus"] != without].merge(_chains(results).reset_index(), on=["start", "system"])
    gain = others.pivot_table(index="corpus", columns="name", values="by labels")
    count = gain.count()  # means are compared over the same corpora
    return gain.loc[:, count == count.max()].dropna().assign(**{RIVAL: 0.0})


def recommendation(results: Results, collection: str, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the systems of `gains`, the best of them first, with `advice`.

    `low` and `high` are the ends of the 95 % interval of what each gains on the best; `advice` is `BEST`, `NEAR` where
    it holds 0, "worse", or `UNKNOWN`. Where no labels judge, `others` is the table of `elsewhere`: a system's gain is
    its mean there, and the intervals are a further corpus's. Without any, nothing is recommended.
    """
    table = gains(results, collection)
    if others is not None and len(others):
        table = (table if len(table) else table.reindex(others.columns)).assign(gain=others.mean())
    if table.empty:
        return table.assign(advice="")
    table = table.sort_values("gain", ascending=False, kind="stable")
    first, ends = table.index[0], pd.DataFrame({"low": [], "high": []})
    if others is None:
        ends = gains(results, collection, first)
    elif len(others):  # on one more corpus; endless where no two tell it
        behind, count = others.sub(others[first], axis=0), len(others)
        half = (special.stdtrit(count - 1, 0.975) * np.sqrt(1 + 1 / count) * behind.std()).fillna(np.inf)
        ends = pd.DataFrame({"low": behind.mean() - half, "high": behind.mean() + half})
        ends.loc[first] = 0.0
    table = table.assign(low=ends["low"], high=ends["high"])
    unknown, near = table["gain"].isna() | table["low"].isna(), np.where(table["high"] >= 0, NEAR, "worse")
    return table.assign(advice=np.select([unknown, table.index == first], [UNKNOWN, BEST], near))
