"""How the best of what is trained, or begins with a public encoder, stands to BM25, over all chapters with both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import pandas as pd
from IPython.display import HTML

from retlib.evaluation import results
from retlib.report.contrasts import EQUIVALENCE_MARGIN, LEVEL
from retlib.report.records import BM25, called, parted
from retlib.report.tables import as_page, link, means

# So many collections a sentence names.
NAMED = 3


class Measured(NamedTuple):
    """A chapter tells: by which measure, on which of its collections and of which of its systems; else of all."""

    chapter: str
    measure: str
    collections: Sequence[str] = ()
    systems: Sequence[str] = ()


def against_bm25(
    profile: str, source: str | None, measures: Sequence[Measured], beside: str
) -> dict[str, pd.DataFrame]:
    """How the best dense systems stand to BM25: alone, fused with it, and from a public encoder.

    Parameters
    ----------
    measures : sequence of Measured
        Where BM25 and what is trained are measured alike; of a collection that several have, the first tells.
    beside : str
        The profile of the public encoder.

    Returns
    -------
    dict
        Of each kind what `leads` returns.
    """
    places = {
        "a chapter's best retriever trained from random weights, alone": (profile, source, results.ALONE),
        "its best fusion of such a retriever with BM25": (profile, source, results.FUSED),
        "a chapter's best from a public encoder, alone": (beside, "reference", results.ALONE),
        "its best fusion of such an encoder with BM25": (beside, "reference", results.FUSED),
    }
    return {who: leads(*where, measures, kind) for who, (*where, kind) in places.items()}


def leads(profile: str, source: str | None, measures: Sequence[Measured], kind: str) -> pd.DataFrame:
    """How the best dense system of a kind stands to BM25 on each collection.

    Dense is what trains, or begins with a public encoder. More than chance is p < 0.05 after Bonferroni's correction
    over the systems of which it is the best.

    Returns
    -------
    DataFrame
        Index collection; `sign`: > ahead, < behind, or ~ neither by more than chance; `slight`: whether by less than a
        point; `told`: both values, the system and where they stand (HTML).
    """
    found: dict[str, tuple[str, bool, str]] = {}
    told: set[str] = set()  # collections, whatever share of their labels trains and what else their names end in
    for chapter, measure, collections, systems in measures:
        rows = results.load(chapter, profile, source)
        if rows is None:
            continue
        (table, trained), kinds = means(rows, measure), rows.kinds()
        asked = table.columns.intersection(systems or table.columns).intersection(list(rows.learned()))
        dense = [name for name in asked if kinds.get(name) == kind]
        mine = [name for name in collections or table.index if name in table.index and parted(name)[0] not in told]
        for collection, row in table.loc[mine].iterrows():
            known, lexical = row[dense].dropna(), row.reindex(BM25).dropna()
            if len(known) and len(lexical):
                best = known.idxmax()
                pair = rows.compared(collection, measure, best, lexical.idxmax())
                sign = "~" if pair.p_value() * len(known) >= LEVEL else ">" if pair.effect > 0 else "<"
                slight = sign != "~" and bool(100 * abs(known.max() - lexical.max()) < EQUIVALENCE_MARGIN)
                how = ", by less than a point" * slight + f", {pair.queries:,} questions"
                how += ", not trained here" if best not in trained else ", one seed" if pair.seeds == 1 else ""
                where = f"{measure}, {link(f'{chapter}.html', f'chapter {chapter[:2]}')}{how}"
                values = escape(f"{100 * known.max():.1f} {sign} {100 * lexical.max():.1f}")
                found[called(collection)] = sign, slight, f"<b>{values}</b>\n{escape(best)}; {where}"
        told |= {parted(name)[0] for name in mine if called(name) in found}
    return pd.DataFrame.from_dict(found, orient="index", columns=["sign", "slight", "told"])


def standing(found: pd.DataFrame) -> str:
    """On how many collections something is ahead of BM25, behind it or neither, with the names where they are few.

    Parameters
    ----------
    found : DataFrame
        As `leads` returns it.
    """
    said = []
    for sign, word in {">": "ahead on", "<": "behind on", "~": "neither by more than chance on"}.items():
        mine = found["slight"][found["sign"] == sign]
        notes = [", ".join(mine.index)] if 0 < len(mine) <= NAMED else []
        notes += [f"{mine.sum()} by less than a point"] if mine.any() else []
        said.append(f"{word} {len(mine)}" + f" ({'; '.join(notes)})" * bool(notes))
    return f"of {len(found)} collection{'s' * (len(found) > 1)} {', '.join(said)}"


def shown(leads: Mapping[str, pd.DataFrame]) -> HTML:
    """What `against_bm25` returns, a line for each collection."""
    table = pd.concat({who: found["told"] for who, found in leads.items()}, axis=1).fillna("")
    table = table.rename_axis("collection").reset_index()
    return as_page(table, markup=table.columns[1:])
