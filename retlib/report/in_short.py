"""What a chapter found, in a few lines: the box on top of its page, made from the rows as they are.

``book/in-short.yaml`` has what no row can say: the question of each chapter; which values answer it; and, for a verdict
that is surprising or asks for advice, why it came out so. A text is shown only where its verdict came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd
from scipy.stats import gmean as geometric_mean

from retlib.core import notebook_files, rules, runtime
from retlib.core.errors import DataError
from retlib.evaluation.results import ALONE, Results
from retlib.report.claims import (
    CONTRADICTED,
    FIDELITY,
    HOLDS,
    INCONCLUSIVE,
    INDICATION,
    LEVEL,
    NO_EFFECT,
    NOT_TESTED,
    SIGNS,
    bindings,
    came_out,
    decisive,
    papers,
    tested_in,
)
from retlib.report.evidence import WORTH
from retlib.report.records import called
from retlib.report.tables import means

# In this order claims are named in a box, at most so many; those of the paper's main claims first.
ORDER = (HOLDS, CONTRADICTED, NO_EFFECT, INDICATION, INCONCLUSIVE)
SHOWN = 6
# What a box calls a system by, which differs from collection to collection.
CHOSEN = {"best": "the best of what is trained", "worst": "the worst"}
# Lines of values of a box; and the digits of a value, in points and in another unit.
TOLD, DIGITS = 5, (".1f", ".3g")


def box(ledger: Callable[[], pd.DataFrame], rows: Callable[[str], Results | None], chapter: str) -> str:
    """MyST for the top of a chapter's page: its question, the claims that it decides, and why; "" without a question.

    Parameters
    ----------
    ledger : callable
        Gives what `retlib.report.claims.ledger` returns; asked where the chapter has a question.
    rows : callable
        Gives the results of a chapter, or None; asked where the texts say what of them is shown.
    chapter : str
        A notebook's name.
    """
    texts = runtime.root() / "book" / "in-short.yaml"
    said = notebook_files.parsed(texts, TEXTS).get(chapter) if texts.exists() else None
    if not said:
        return ""
    bound = bindings()["claims"]
    known = ledger()
    mine = known[[chapter in tested_in(bound.get(claim, {})) for claim in known["claim"]]]
    found = [line for each in said.get("shows", ()) for line in Shown(**each).told(rows, chapter)]
    lines = [f"**{said['question']}**\n", *found, *_counted(mine), *_decided(mine), *_why(mine, said.get("why", {}))]
    return "\n".join([":::{admonition} In short", ":class: tip", "", *lines, ":::"])


@dataclass(frozen=True)
class Shown:
    """Values that answer a chapter's question; ``in-short.yaml`` says what each field is."""

    measure: str
    systems: Sequence[str] = ("best", "BM25")
    heading: str = ""
    table: Sequence[str] = ()
    unit: str = ""
    chapter: str = ""
    profile: str = ""
    answer: Sequence[str] = ()
    near: str = ""
    among: str = ""
    collections: Sequence[str] = ()

    def told(self, rows: Callable[..., Results | None], page: str) -> list[str]:
        """The lines of a box: what two systems' values answer, and the values of some."""
        found = rows(self.chapter or page, **({"profile": self.profile} if self.profile else {}))
        values, trained = self._values(found)
        ranked = [name for name in trained if name not in self.systems] or [*values.columns.difference(self.systems)]
        if self._chosen:
            values = values.dropna(how="all", subset=ranked)
        texts: dict[Any, str] = {}
        gaps: dict[Any, tuple[float, float | None]] = {}
        for collection, row in (values if self.unit else 100 * values).iterrows():
            row, known = row.dropna(), row[ranked].dropna()
            names = {"best": known.idxmax(), "worst": known.idxmin()} if len(known) else {}
            systems, pair = ([names.get(each, each) for each in some] for some in (self.systems, self.answer))
            if pair and {*pair} <= {*row.index}:
                tries = len(known) ** sum(each in CHOSEN for each in self.answer)
                gaps[collection] = row[pair[0]] - row[pair[1]], _p_value(found, collection, self.measure, pair, tries)
            shown = [
                f"{each} **{row[each]:{DIGITS[bool(self.unit)]}}**" for each in dict.fromkeys(systems) if each in row
            ]
            if shown:
                texts[collection] = "; ".join(shown)
        # Where there is an answer, what it rests on.
        told = pd.Series({each: text for each, text in texts.items() if each in (gaps or texts)}, dtype=object)
        if told.empty:
            return []
        alike = told.groupby(told, sort=False)
        lines = [f"- *{'; '.join(map(_name, each.index))}*: {text}." for text, each in alike]
        more = [f"- and {len(lines) - TOLD} more, in the tables of the page."] if len(lines) > TOLD else []
        named = {_name(each): gap for each, gap in gaps.items()}
        answers = [*_answered(named, self.answer), *_enough(100 * values, self.systems, self.near)]
        return [*answers, self._head(found, told.index, bool(trained)), *lines[:TOLD], *more, ""]

    @property
    def _chosen(self) -> list[str]:
        return [each for each in CHOSEN if each in self.systems]

    def _values(self, found: Results | None) -> tuple[pd.DataFrame, list[str]]:
        """A row for each collection, or line of a table, a column for each system; and the systems that train."""
        if self.table and found is not None:
            name, lines, columns = self.table
            return found.tables[name].pivot_table(index=lines, columns=columns, values=self.measure, sort=False), []
        # Ratios of times are of geometric means, here as in verdicts.
        values, trained = means(found, self.measure, geometric_mean if self.unit else "mean")
        values = values.reindex([name for name in self.collections if name in values.index] or values.index)
        return values, [name for name in trained if not self.among or found.kinds().get(name, ALONE) == self.among]

    def _head(self, found: Results, collections: pd.Index, trained: bool) -> str:
        """The line above: of what the values are, over how many seeds, and among how many documents."""
        mine = found.rows[found.rows["measure"] == self.measure]
        sizes = mine.loc[mine["collection"].isin(collections), "candidates"].dropna() if "candidates" in mine else ()
        among = f"; {_span(sizes, ',.0f')} documents" if len(sizes) else ""
        count = mine.groupby("system")["seed"].nunique().max()
        several = f", {'geometric ' * bool(self.unit)}means over {count} seeds"
        seeds = several if count > 1 else ", one seed" * bool(count == 1)
        of = f" in {{doc}}`{self.chapter}`" if self.chapter else ""
        best = f", {' and '.join(self._chosen)} of what is trained" if self._chosen and trained else ""
        return f"{self.heading or self.measure}{of}{best} ({self.unit or 'points of 100'}{seeds}{among}):\n"


# What ``in-short.yaml`` says.
_SHOWN = {each.name: rules.text if each.type == "str" else rules.each_of(rules.text) for each in fields(Shown)}
_SHOWN |= {"answer": rules.row_of(rules.text, rules.text), "table": rules.row_of(rules.text, rules.text, rules.text)}
_OTHERS = {
    "shows": rules.some_of(rules.form({"measure": _SHOWN.pop("measure")}, _SHOWN)),
    "why": rules.mapping_of(None, rules.form({}, dict.fromkeys(SIGNS, rules.text))),
}
TEXTS = rules.mapping_of(None, rules.form({"question": rules.text}, _OTHERS))


def _name(line: Any) -> str:
    """What a box calls a collection, or a line of a table."""
    return called(line) if isinstance(line, str) else f"{line:,}"


def _p_value(found: Results, collection: str, measure: str, pair: Sequence[str], tries: int) -> float | None:
    """That of a paired test, corrected (Bonferroni) for what else could have been chosen; None without rows."""
    try:
        return found.compared(collection, measure, *pair).p_value() * tries
    except DataError:  # such as of a measure that is not recorded query by query
        return None


def _answered(gaps: Mapping[str, tuple[float, float | None]], systems: Sequence[str]) -> list[str]:
    """A sentence that compares two systems: on which collections the one is ahead, by how much, where by chance.

    More than chance is p < 0.05 after Bonferroni's correction over the collections.
    """
    if not gaps:
        return []
    one, other = (CHOSEN.get(name, name) for name in systems)
    parts = []
    for sign, word in ((1, "ahead of"), (-1, "behind")):
        if names := [name for name, (gap, _) in gaps.items() if gap * sign > 0]:
            # Of one collection there may be several: with more labels, or more candidates.
            of = "tests" if any(", " in name for name in names) else "collections"
            alike = {1: names[0], 2: f"both {of}"}.get(len(names), f"all {len(names)} {of}")
            where = alike if len(names) == len(gaps) else "; ".join(names)
            sizes = [abs(gaps[name][0]) for name in names]
            size = _span(sizes, ".1f") if max(sizes) >= 0.05 else "less than 0.1"
            parts.append(
                f"{word} {other} on {where}, by {size} points{_chance({n: gaps[n][1] for n in names}, len(gaps))}"
            )
    return [f"**Here {one} is {', and '.join(parts) or f'level with {other}'}.**\n"]


def _enough(values: pd.DataFrame, systems: Sequence[str], like: str) -> list[str]:
    """A sentence on which of several systems, in their order, is the first that stays within a point of one of them."""
    if not like or like not in values:
        return []
    lost = {name: values[like] - values[name] for name in systems if name != like and name in values}
    if not lost:
        return []
    enough = [name for name, gaps in lost.items() if (gaps <= WORTH).all()]
    if not enough:
        return [f"**None of these stays within {WORTH:g} point of {like} on every collection.**\n"]
    most = max(0.0, lost[enough[0]].max())
    first = f"{enough[0]} is the first of these that stays within {WORTH:g} point of {like}"
    return [f"**{first}: at most {most:.1f} behind.**\n"]


def _chance(p_values: Mapping[str, float | None], tests: int) -> str:
    """On which collections a difference is more than chance; "" where nobody knows."""
    if None in p_values.values():
        return ""
    names = [name for name, p in p_values.items() if p * tests < LEVEL]
    where = {0: "no more than chance", len(p_values): "more than chance"}
    return " (" + where.get(len(names), f"more than chance on {'; '.join(names)}") + ")"


def _span(values: Sequence[float], digits: str) -> str:
    """The least and the greatest, or one where they look alike."""
    return " to ".join(dict.fromkeys(f"{value:{digits}}" for value in (min(values), max(values))))


def _counted(claims: pd.DataFrame) -> list[str]:
    """How many claims came out how, and on what data and seeds."""
    if claims.empty:
        return []
    counts = claims["verdict"].value_counts().reindex(SIGNS).dropna().astype(int)
    found = ", ".join(f"{count} {came_out(verdict, count > 1)}" for verdict, count in counts.items())
    if len(claims) == 1:
        return [f"The one claim that rests on this chapter {came_out(counts.index[0], several=False)}.\n"]
    tested = claims[claims["verdict"] != NOT_TESTED]
    seeds, data = sorted(set(tested["seeds"])), [FIDELITY[each] for each in sorted(set(tested["fidelity"]))]
    several = " to ".join(map(str, dict.fromkeys([*seeds[:1], *seeds[-1:]])))
    scale = f" (seeds: {several}; on {' or '.join(data)})" if seeds else ""
    return [f"Of the {len(claims)} claims that rest on this chapter {found}{scale}.\n"]


def _decided(claims: pd.DataFrame) -> list[str]:
    """A line for each claim with a verdict, and for main ones that stay open; and a link to where the others stand."""
    known = claims[claims["verdict"].isin(ORDER)]
    known = known[(known["verdict"] != INCONCLUSIVE) | (known["tier"] == "main")]
    rank = known["verdict"].map(ORDER.index)
    known = known.assign(minor=known["tier"] != "main", rank=rank).sort_values(["minor", "rank"], kind="stable")
    lines = [_line(row) for row in known.head(SHOWN).itertuples()]
    if len(claims) > len(lines) and not claims.empty:
        page = papers()[claims["paper"].iloc[0]].pages["verdicts"]
        rest = "The other claims and all comparisons" if lines else "What was compared, and why nothing is decided"
        lines.append(f"- {rest}: {{doc}}`verdicts <{page}>`.")
    return [*lines, ""]


def _line(row: Any) -> str:
    """What a claim says, whether it came out, and the comparison that it hangs on."""
    page, found = papers()[row.paper].pages["verdicts"], decisive(row)
    link = f'<a href="{page}.html#{row.claim}">{row.statement}</a>'
    several = f" (the least clear of {len(row.evidence)})" if len(row.evidence) > 1 and row.verdict == HOLDS else ""
    tested = f" As tested: {row.as_tested}." if row.as_tested else ""
    said = f" ({row.said})" if row.verdict == INCONCLUSIVE else several
    return f"- {SIGNS[row.verdict]} *{row.verdict}*: {link}.{tested} Here {found.told}{said}."


def _why(claims: pd.DataFrame, texts: dict[str, dict[str, str]]) -> list[str]:
    """What explains the verdicts that came out."""
    came = dict(zip(claims["claim"], claims["verdict"], strict=True))
    texts = {claim: texts[claim][verdict] for claim, verdict in came.items() if verdict in texts.get(claim, {})}
    return ["**Why, as we read it.** " + " ".join(texts.values()), ""] if texts else []
