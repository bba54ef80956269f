"""What only the page for somebody with a corpus needs: lists beside BM25, and which advice the rows bear out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pandas as pd

from retlib.core.errors import DataError, require, require_one_of
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.contrasts import EQUIVALENCE_MARGIN, LEVEL

# What the rows say of an advice.
AHEAD, BEHIND, MIXED, UNSEEN = "ahead", "behind", "mixed", "no difference seen"


class Advice(NamedTuple):
    """What somebody may try: a system of a chapter's published rows, where another is at hand."""

    have: str
    tries: str
    chapter: str
    profile: str
    system: str
    rival: str
    measure: str
    collections: Sequence[str] = ()  # of these alone; else of all


def published(chapter: str, profile: str) -> Results:
    """The published rows of a chapter; `DataError` if there are none."""
    found = _rows(chapter, profile)
    require(found is not None, f"there are no published rows of {chapter!r} at profile {profile!r}", DataError)
    return found


@cache
def _rows(chapter: str, profile: str) -> Results | None:
    return results.load(chapter, profile, "reference")


def best(found: Results, gains: pd.DataFrame, collection: str, measure: str, rival: str, margin: float) -> dict:
    """The best list of a collection, learned or the rival's own, and the quickest training within a margin of it.

    Parameters
    ----------
    gains : DataFrame
        As `retlib.report.tables.against` returns it.
    """
    require_one_of("measure", measure, found.rows["measure"].unique())
    board = gains[(gains["collection"] == collection) & gains["system"].isin(found.learned())]
    board = board.set_index("system")[["effect", "p"]]
    board.loc[rival] = 0.0, float("nan")
    means = found.means(collection)
    board = board.assign(seconds=means["seconds"].reindex(board.index).fillna(0.0))
    top, trained = board["effect"].idxmax(), board.drop(rival)["effect"].idxmax()
    quick = board.loc[board["effect"] >= board["effect"].max() - margin, "seconds"].idxmin()
    rows = found.rows[(found.rows["collection"] == collection) & (found.rows["measure"] == measure)]
    return {
        "collection": collection, "questions": int(rows["queries"].max()), "best list": top,
        measure: 100 * means.at[top, measure],
        f"best but {rival}": trained, f"above {rival}": board["effect"][trained], "p": board["p"][trained],
        "quickest near the best": quick, "its training, s": board["seconds"][quick],
    }  # fmt: skip


def beside(columns: Mapping[str, tuple[Results | None, bool]], measure: str, rival: str) -> pd.DataFrame:
    """The rival on every collection, and beside it the best learned list of each kind: distance, p and name.

    Parameters
    ----------
    columns : mapping
        Title to recorded results, and whether of these fused lists alone count.

    Returns
    -------
    DataFrame
        Index collection. The best is chosen on the test questions, and p is Holm-corrected over all lists of its kind.
    """
    found: dict[str, dict[str, str]] = {}
    for title, (rows, fused) in columns.items():
        names = [] if rows is None else _tested(rows, [rival], measure)
        gains = tables.against(rows, names, measure, rival) if names else pd.DataFrame()
        for name in names:
            mine = gains[(gains["collection"] == name) & gains["system"].isin(rows.learned())]
            mine = mine[mine["system"].map(rows.kinds()) == results.FUSED] if fused else mine
            cells = found.setdefault(name, {rival: f"{rows.compared(name, measure, rival).effect:.1f}"})
            if len(mine):
                top = mine.loc[mine["effect"].idxmax()]
                p = tables.p_text(top["p"])
                cells[title] = f"{top['effect']:+.1f}, p {'' if p.startswith('<') else '= '}{p}\n{top['system']}"
    return pd.DataFrame.from_dict(found, orient="index", columns=[rival, *columns]).fillna("").rename_axis("collection")


def borne_out(advice: Iterable[Advice]) -> pd.DataFrame:
    """What the published rows say of each advice: how many collections are ahead, and behind, by more than chance.

    Tests are Holm-corrected over the collections of an advice. What is said is mixed where others are a point or more
    on the other side, be it by chance.
    """
    found = []
    for each in advice:
        rows = _rows(each.chapter, each.profile)
        tested = [] if rows is None else _tested(rows, [each.system, each.rival], each.measure)
        if tested := [name for name in tested if name in (each.collections or tested)]:
            gains = pd.DataFrame([_gain(rows, name, each) for name in tested], columns=["effect", "p"])
            sure = gains["effect"][holm(gains["p"]) < LEVEL]
            found.append({
                "you have": each.have, "you may try": each.tries, "its name": _named(rows, each.system, each.measure),
                "the rows": _said(gains["effect"], sure), "against": _named(rows, each.rival, each.measure),
                "ahead, behind, of": f"{(sure > 0).sum()}, {(sure < 0).sum()}, {len(gains)}",
                "median": f"{gains['effect'].median():+.1f} {each.measure}",
                "trained on": _labels(rows, each), "tested in": each.chapter[:2],
            })  # fmt: skip
    return pd.DataFrame(found)


def scale(chapter: str, profile: str, encoder: str, documents: int) -> str:
    """On how many documents and seeds a chapter's rows rest, and how long it takes to encode others, in sentences.

    Parameters
    ----------
    encoder : str
        A system of it whose layers and width the benchmark of encoding has, too.
    documents : int
        To be encoded.
    """
    found, timed = _rows(chapter, profile), results.load("03-encoding", "benchmarks", "reference")
    if found is None or encoder not in found.settings():
        return ""
    sizes, seeds = found.rows["candidates"].dropna().astype(int), found.rows["seed"].nunique()
    said = (
        f"The collections of chapter {chapter[:2]} have {sizes.min():,} to {sizes.max():,} documents, and its rows "
        f"{seeds} seed{'s' * (seeds > 1)}. On many times as many documents the order may be another."
    )
    settings = found.settings()[encoder]
    shape = f"{settings['layers']} layers of {settings['width']}"
    for line in () if timed is None else timed.rows[timed.rows["collection"] == f"encoding, {shape}"][:1].itertuples():
        said += (
            f" An encoder of {shape} read {line.ours:.0f} texts of at most 128 tokens a second in the benchmark of "
            f"chapter 62 ({line.device}, {line.threads} threads): {documents:,} documents take "
            f"{documents / line.ours / 60:.0f} minutes at that rate, and longer ones more. An older processor may take "
            "several times as long."
        )
    return said


def _named(rows: Results, system: str, measure: str) -> str:
    """A system's name; of a public encoder as it is, that."""
    begins = system in rows.learned() and not rows.trained(system, measure)
    alone = rows.kinds().get(system) == results.ALONE
    return f"{system} (as it is public, without a step of training)" if begins and alone else system


def _labels(rows: Results, advice: Advice) -> str:
    """On how many labelled questions a chapter trains a system, if it trains all on the same ones, and says so."""
    data = rows.tables.get("data", pd.DataFrame())
    known = data.set_index("collection")["train questions"] if {"collection", "train questions"} <= {*data} else {}
    if "training" not in known or not rows.trained(advice.system, advice.measure):
        return ""
    each = known.drop("training")[
        lambda counts: (counts > 0) & (counts.cumsum() <= known["training"])
    ]  # what trains is first
    parts = ", ".join(f"{called(name)} {count:,}" for name, count in each.items())
    return f"{known['training']:,} questions" + f" ({parts})" * (len(each) > 1)


def _tested(rows: Results, systems: Sequence[str], measure: str) -> list[str]:
    places = [name for name, split, of in rows.queries if (split, of) == ("test", measure)]
    return [name for name in places if {*systems} <= {*rows.systems(name, "test", measure)}]


def _gain(rows: Results, collection: str, advice: Advice) -> tuple[float, float]:
    found = rows.compared(collection, advice.measure, advice.system, advice.rival)
    return found.effect, found.p_value()


def _said(effects: pd.Series, sure: pd.Series) -> str:
    ahead, behind = (sure > 0).any(), (sure < 0).any()
    if (ahead and effects.min() <= -EQUIVALENCE_MARGIN) or (behind and effects.max() >= EQUIVALENCE_MARGIN):
        return MIXED
    return AHEAD if ahead else BEHIND if behind else UNSEEN
