"""The best lists beside BM25, and which advice the published rows bear out; chapter 55."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pandas as pd

from retlib.core.errors import DataError, require, require_one_of
from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.contrasts import LEVEL


class Advice(NamedTuple):
    """What somebody may try: a system of a chapter's published rows, on all of its collections or on some."""

    tries: str
    chapter: str
    profile: str
    system: str
    rival: str
    measure: str
    collections: Sequence[str] = ()


@cache
def published(chapter: str, profile: str) -> Results:
    """Return the published rows of a chapter; `DataError` if there are none."""
    rows = results.load(chapter, profile, "reference")
    require(rows is not None, f"there are no published rows of {chapter!r} at profile {profile!r}", DataError)
    return rows


def best(rows: Results, gains: pd.DataFrame, collection: str, measure: str, rival: str, margin: float) -> dict:
    """Return a collection's best list, learned or the rival's own, and the quickest training within a margin of it.

    `gains` is the table of `retlib.report.tables.against`.
    """
    require_one_of("measure", measure, rows.rows["measure"].unique())
    board = gains[(gains["collection"] == collection) & gains["system"].isin(_learned(rows))]
    board = board.set_index("system")[["effect", "p"]]
    board.loc[rival] = 0.0, float("nan")
    means = rows.means(collection)
    seconds = means["seconds"].reindex(board.index).fillna(0.0)
    top, trained = board["effect"].idxmax(), board.drop(rival)["effect"].idxmax()
    quick = seconds[board["effect"] >= board["effect"].max() - margin].idxmin()
    return {
        "collection": collection, "best list": top, measure: 100 * means.at[top, measure],
        f"best but {rival}": trained, f"above {rival}": board["effect"][trained], "p": board["p"][trained],
        "quickest near the best": quick, "its training, s": seconds[quick],
    }  # fmt: skip


def _learned(rows: Results) -> set[str]:
    # The systems that train, or begin with a public encoder.
    public = {name for name, settings in rows.settings().items() if _is_public(settings)}
    return public.union(rows.rows.reindex(columns=["system", "seconds"]).query("seconds > 0")["system"])


def _is_public(settings: Mapping) -> bool:
    return bool(settings.get("checkpoint")) or any(map(_is_public, settings.get("fused", ())))


def beside(columns: Mapping[str, tuple[Results, bool]], measure: str, rival: str) -> pd.DataFrame:
    """Return the rival on every collection, and beside it the best learned list of each kind: distance, p and name.

    `columns` has, by title, recorded results, and whether of these fused lists alone count. The best is chosen on the
    test questions, and p is Holm-corrected over all lists of its kind.
    """
    table: dict[str, dict[str, str]] = {}
    for title, (rows, is_fused) in columns.items():
        names = _tested(rows, [rival], measure)
        gains, systems = tables.against(rows, names, measure, rival), _learned(rows)
        if is_fused:
            systems &= {name for name, settings in rows.settings().items() if "fused" in settings}
        for name in names:
            cells = table.setdefault(name, {rival: f"{rows.compared(name, measure, rival).effect:.1f}"})
            lists = gains[(gains["collection"] == name) & gains["system"].isin(systems)]
            for top in lists.nlargest(1, "effect").itertuples():
                p = tables.p_text(top.p)
                cells[title] = f"{top.effect:+.1f}, p {p if p.startswith('<') else f'= {p}'}\n{top.system}"
    return pd.DataFrame.from_dict(table, orient="index", columns=[rival, *columns]).fillna("").rename_axis("collection")


def borne_out(advice: Iterable[Advice]) -> pd.DataFrame:
    """Return what the published rows say of each advice: how many collections are ahead, and behind, by a test.

    Tests are Holm-corrected over the collections of an advice.
    """
    table = []
    for each in advice:
        rows = published(each.chapter, each.profile)
        names = _tested(rows, [each.system, each.rival], each.measure)
        names = [name for name in names if name in (each.collections or names)]
        if not names:
            continue
        gains = [rows.compared(name, each.measure, each.system, each.rival) for name in names]
        effects = pd.Series([gain.effect for gain in gains])
        sure = effects[holm([gain.p_value() for gain in gains]) < LEVEL]
        untrained = each.rival in _learned(rows) and not rows.trained(each.rival, each.measure)
        as_public = untrained and not {"fused", "first"} & rows.settings().get(each.rival, {}).keys()
        table.append({
            "you may try": each.tries,
            "against": f"{each.rival} (as it is public, without a step of training)" if as_public else each.rival,
            "ahead, behind, of": f"{(sure > 0).sum()}, {(sure < 0).sum()}, {len(gains)}",
            "median": f"{effects.median():+.1f} {each.measure}", "tested in": each.chapter[:2],
        })  # fmt: skip
    return pd.DataFrame(table)


def _tested(rows: Results, systems: Sequence[str], measure: str) -> list[str]:
    places = [name for name, split, of in rows.queries if (split, of) == ("test", measure)]
    return [name for name in places if {*systems} <= {*rows.systems(name, "test", measure)}]
