"""What a chapter found, in a few lines: the box on top of its page, made from the rows as they are.

``book/in-short.yaml`` has what no row can say: the question of each chapter; which values answer it; and, for a verdict
that is surprising or asks for advice, why it came out so. A text is shown only where its verdict came out.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import gmean as geometric_mean

from retlib.core import notebook_files, rules, runtime
from retlib.core.errors import DataError
from retlib.evaluation.measures import Comparison, holm
from retlib.evaluation.results import ALONE, EARLIER, Results
from retlib.report.claims import (
    CONTRADICTED,
    FIDELITY,
    HOLDS,
    INCONCLUSIVE,
    INDICATION,
    NO_EFFECT,
    NOT_TESTED,
    SIGNS,
    bindings,
    decisive,
    papers,
    tested_in,
)
from retlib.report.evidence import LEVEL, WORTH
from retlib.report.gate import NOISE, endings
from retlib.report.records import called
from retlib.report.tables import means, span, stated
from retlib.report.verdict_text import DECIDED, came_out

# In this order claims are named in a box, at most so many; those of the paper's main claims first.
ORDER = (HOLDS, CONTRADICTED, NO_EFFECT, INDICATION, INCONCLUSIVE)
SHOWN = 6
# What a box calls a system by, which differs from collection to collection.
CHOSEN = {"best": "the best of what is trained", "worst": "the worst"}
# Lines of values of a box where they are in sight; systems that a sentence names as the best.
TOLD, NAMED = 5, 2
POINTS = "points of 100"
SIGNIFICANT = "significant"
MEANT = (
    "*Significant* is p < 0.05 in a paired test after correction, as [How to read](../book/how-to-read.md) has it.\n"
)


def box(
    ledger: Callable[[], pd.DataFrame], rows: Callable[[str], Results | None], chapter: str, notes: Sequence[str] = ()
) -> str:
    """MyST for the top of a chapter's page: its question, the claims that it decides, and why; "" without a question.

    Parameters
    ----------
    ledger : callable
        Gives what `retlib.report.claims.ledger` returns; asked where the chapter has a question.
    rows : callable
        Gives the results of a chapter, or None; asked where the texts say what of them is shown.
    chapter : str
        A notebook's name.
    notes : sequence of str
        What the page warns of; rows of an earlier training answer nothing.
    """
    texts = runtime.root() / "book" / "in-short.yaml"
    said = notebook_files.parsed(texts, TEXTS).get(chapter) if texts.exists() else None
    if not said:
        return ""
    bound = bindings()["claims"]
    known = ledger()
    mine = known[[chapter in tested_in(bound.get(claim, {})) for claim in known["claim"]]]
    shows, earlier = [Shown(**each) for each in said.get("shows", ())], any(EARLIER in each for each in notes)
    if earlier:
        shows = [replace(each, answers=(), near="") for each in shows]
    found, values = ["No answer is drawn from these rows; the warning below says why.\n"] * earlier, []
    for each in shows:
        answers, listed = each.told(rows, chapter)
        found += answers or listed
        values += listed if answers else []
    found += [MEANT] * any(SIGNIFICANT in each for each in found)
    folded = [":::{dropdown} The values", *values, ":::", ""] if values else []
    here = rows(chapter) if shows else None
    short = [*_short_of_steps(here), *_unmoved(here)] if here else []
    lines = [*found, *short, *folded, *_counted(mine), *_decided(mine), *_why(mine, said.get("why", {}))]
    return "\n".join(["::::{admonition} In short", ":class: tip", "", f"**{said['question']}**\n", *lines, "::::"])


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
    answers: Sequence[Sequence[str]] = ()
    near: str = ""
    among: Sequence[str] = ()
    collections: Sequence[str] = ()

    def told(self, rows: Callable[..., Results | None], page: str) -> tuple[list[str], list[str]]:
        """Lines of a box: what pairs of systems answer; and the values of some."""
        found = rows(self.chapter or page, **({"profile": self.profile} if self.profile else {}))
        if found is None:
            return [], []
        values, trained = self._values(found)
        ranked = trained or [*values.columns.difference(self.systems)]
        if self._chosen:
            values = values.dropna(how="all", subset=ranked)
        shown = values if self.unit else 100 * values
        lines = [_Line(_name(each), each, row.dropna(), row.reindex(ranked).dropna()) for each, row in shown.iterrows()]
        pairs = [(line, asked, pair) for line in lines for asked in self.answers if (pair := line.pair(asked))]
        enough = _enough(100 * values, self.systems, self.near)
        near = [line.row[self.near] - line.row[enough] for line in lines] if enough else []
        gaps: dict[tuple[str, ...], dict[str, tuple[float, float | None]]] = {}
        for line, asked, pair in pairs:
            tries = len(line.known) ** sum(each in CHOSEN for each in asked)
            paired = _paired(found, line.collection, self.measure, pair)
            gap = paired.effect if paired and not self.unit else line.row[pair[0]] - line.row[pair[1]]
            gap = gap if pair[0] != pair[1] else np.nan  # what is chosen is the other
            gaps.setdefault(tuple(asked), {})[line.name] = gap, paired and paired.p_value() * tries
        digits = _Digits.of(self.unit, [*near, *(gap for each in gaps.values() for gap, _ in each.values())])
        # Where there is an answer, what it rests on.
        lines = [line for line in lines if not gaps or any(line.name in each for each in gaps.values())]
        told = pd.Series({line.name: line.text(self.systems, digits) for line in lines}, dtype=object)
        told = told[told != ""]
        if told.empty:
            return [], []
        listed = [f"- *{'; '.join(each.index)}*: {text}." for text, each in told.groupby(told, sort=False)]
        lacking = [name for name in self.systems if name not in {*CHOSEN, *values}]
        none = [f"- Not in these rows: {'; '.join(lacking)}."] if lacking else []
        sides = {asked: zip(*(pair for _, by, pair in pairs if tuple(by) == asked), strict=True) for asked in gaps}
        whom = {asked: list(map(_whom, asked, each)) for asked, each in sides.items()}
        answers = [_answered(each, whom[asked], digits) for asked, each in gaps.items()]
        if {*values} & {*self.systems} > {self.near}:
            answers.append(_stays(enough, self.near, digits, near, lacking))
        head = self._head(found, [line for line in lines if line.name in told], bool(trained), bool(gaps))
        if answers:
            return [head, *answers], [f"{self.heading or self.measure}:\n", *listed, *none, ""]
        more = [f"- and {len(listed) - TOLD} more, in the tables of the page."] if len(listed) > TOLD else []
        return [], [head, *listed[:TOLD], *more, *none, ""]

    @property
    def _chosen(self) -> list[str]:
        return [each for each in CHOSEN if each in self.systems]

    def _values(self, found: Results) -> tuple[pd.DataFrame, list[str]]:
        """A row for each collection, or line of a table, a column for each system; and the systems that train."""
        if self.table and self.table[0] in found.tables:
            name, lines, columns = self.table
            table = found.tables[name]
            mine = table if self._chosen else table[table[columns].isin(self.systems)]
            return mine.pivot_table(index=lines, columns=columns, values=self.measure, sort=False), []
        # Ratios of times are of geometric means, here as in verdicts.
        values, trained = means(found, self.measure, geometric_mean if self.unit else "mean")
        values = values.reindex([name for name in self.collections if name in values.index] or values.index)
        kinds = found.kinds()
        return values, [name for name in trained if not self.among or {name, kinds.get(name, ALONE)} & {*self.among}]

    def _head(self, found: Results, lines: Sequence[_Line], trained: bool, compared: bool) -> str:
        """The line above: of what the values are, over how many seeds, and among how many documents."""
        mine = found.rows[found.rows["measure"] == self.measure]
        told = mine[mine["collection"].isin([line.collection for line in lines])]
        sizes = told.groupby("collection")["candidates"].min().dropna() if "candidates" in mine else ()
        among = f"; {span(sizes, '{:,.0f}'.format)} documents" if len(sizes) else ""
        mine = told if len(told) else mine[mine["system"].isin(self.systems) | bool(self._chosen)]  # of a table's lines
        counts = mine.groupby(["collection", "system"])["seed"].nunique()
        named = {(line.collection, line.system(each)) for line in lines for each in self.systems}
        counts = counts[counts.index.isin(named)] if len(told) else counts
        varied = mine.groupby(["system", "collection"])["value"].nunique().gt(1).any()  # bytes are those of every seed
        several = span(counts[counts > 1], str) if varied and (counts > 1).any() else ""
        several = f", {'geometric ' * bool(self.unit)}means over {several} seeds" * bool(several)
        several += ", differences over those that both have" * (compared and " to " in several)
        seeds = several or ", one seed" * (counts.tolist() == [1] * len(counts) != [] and not self.unit)
        of = f" in {{doc}}`{self.chapter}`" if self.chapter else ""
        best = f", {' and '.join(self._chosen)} of what is trained" if self._chosen and trained else ""
        return f"{self.heading or self.measure}{of}{best} ({self.unit or POINTS}{seeds}{among}):\n"


@dataclass(frozen=True)
class _Line:
    """The values of systems on a collection, or in a line of a table; those that `best` and `worst` are among."""

    name: str
    collection: Any
    row: pd.Series
    known: pd.Series

    def system(self, asked: str) -> str:
        """The name of a system, which may be asked for as the best or the worst."""
        if asked not in CHOSEN or self.known.empty:
            return asked
        return self.known.idxmax() if asked == "best" else self.known.idxmin()

    def pair(self, asked: Sequence[str]) -> list[str]:
        """Two systems, or none where one of them has no value here."""
        names = [self.system(each) for each in asked]
        return names if {*names} <= {*self.row.index} else []

    def text(self, systems: Sequence[str], digits: _Digits) -> str:
        """The values of systems, one after the other."""
        names = dict.fromkeys(map(self.system, systems))
        return "; ".join(f"{each} **{digits.text(self.row[each])}**" for each in names if each in self.row)


@dataclass(frozen=True)
class _Digits:
    """How values are written, and their differences: `places` of points."""

    unit: str
    places: int = 1

    @classmethod
    def of(cls, unit: str, differences: Sequence[float]) -> _Digits:
        """One place, or two where two values that are compared differ by less than a point."""
        return cls(unit, 2 if any(abs(each) < WORTH for each in differences) else 1)

    def text(self, value: float) -> str:
        """A value; where `unit` is given in three digits, or whole, and of points in two places at most."""
        if self.unit:
            value = round(value, 2) if self.unit == POINTS else value
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        return f"{value:.{self.places}f}"

    def rounded(self, difference: float) -> float:
        """The difference of two values, as it is written."""
        return float(self.text(difference).replace(",", ""))


# What ``in-short.yaml`` says.
_SHOWN = {each.name: rules.text if each.type == "str" else rules.each_of(rules.text) for each in fields(Shown)}
_SHOWN |= {
    "answers": rules.each_of(rules.row_of(rules.text, rules.text)),
    "table": rules.row_of(rules.text, rules.text, rules.text),
}
_OTHERS = {
    "shows": rules.some_of(rules.form({"measure": _SHOWN.pop("measure")}, _SHOWN)),
    "why": rules.mapping_of(None, rules.form({}, dict.fromkeys(SIGNS, rules.text))),
}
TEXTS = rules.mapping_of(None, rules.form({"question": rules.text}, _OTHERS))


def _name(line: Any) -> str:
    """What a box calls a collection, or a line of a table."""
    return called(line) if isinstance(line, str) else f"{line:,}"


def _paired(found: Results, collection: str, measure: str, pair: Sequence[str]) -> Comparison | None:
    """Two systems over the questions and seeds that both have; None without rows."""
    try:
        return found.compared(collection, measure, *pair)
    except DataError:  # such as of a measure that is not recorded query by query
        return None


def _whom(asked: str, found: Sequence[str]) -> str:
    """What a sentence calls a system: of what was chosen also who that is, if they are few."""
    names = list(dict.fromkeys(found))
    few = f" ({', or '.join(f'*{name}*' for name in names)})" if len(names) <= NAMED else ""
    return CHOSEN[asked] + few if asked in CHOSEN else f"*{asked}*"


def _answered(gaps: Mapping[str, tuple[float, float | None]], systems: Sequence[str], digits: _Digits) -> str:
    """A sentence that compares two systems: on which collections the one is ahead, by how much, where significantly.

    That is p < 0.05 after Holm's correction over the collections.
    """
    one, other = systems
    ahead, behind = ("above", "below") if digits.unit else ("ahead of", "behind")
    p_values = [p for _, p in gaps.values() if p is not None]
    sure = dict(zip(gaps, holm(p_values) < LEVEL, strict=True)) if len(p_values) == len(gaps) else {}
    parts = []
    for sign, word in ((1, ahead), (-1, behind), (0, "level with")):
        if names := [name for name, (gap, _) in gaps.items() if np.sign(digits.rounded(gap)) == sign]:
            # Of one collection there may be several: with more labels, or more candidates.
            of = "lines" if digits.unit else "tests" if any(", " in name for name in names) else "collections"
            alike = {1: names[0], 2: f"both {of}"}.get(len(names), f"all {len(names)} {of}")
            where = alike if len(names) == len(gaps) else "; ".join(names)
            size = span([abs(gaps[name][0]) for name in names], digits.text)
            tested = _tested([name for name in names if sure[name]], len(names)) if sure else ""
            by = f", by {size}{'' if digits.unit else ' points'}{tested}" if sign else ""
            parts.append(f"{word} {other} on {where}{by}")
    if same := [name for name, (gap, _) in gaps.items() if np.isnan(gap)]:
        parts.append(f"{other} itself on {'; '.join(same)}")
    unit = f", in {digits.unit}," if digits.unit else ""
    return f"**Here{unit} {one} is {', and '.join(parts)}.**\n"


def _enough(values: pd.DataFrame, systems: Sequence[str], like: str) -> str:
    """Of several systems, in their order, the first from which on all stay within a point of one of them everywhere."""
    others = [name for name in systems if name != like and {name, like} <= {*values}]
    stays = [bool((values[like] - values[name] <= WORTH).all()) for name in others]
    return next((name for place, name in enumerate(others) if all(stays[place:])), "")


def _stays(name: str, like: str, digits: _Digits, behind: Sequence[float], lacking: Sequence[str]) -> str:
    """A sentence on what `_enough` found, and how far it is behind at most; others may not be recorded."""
    if not name:
        tried = " that were tried" * bool(lacking)
        told = f"**There is none of these{tried} from which on all stay within {WORTH:g} point of {like}"
        return f"{told} on every collection.**\n"
    most = digits.text(max(0.0, *map(digits.rounded, behind)))
    told = f"**The smallest of these that stays, like all larger ones, within {WORTH:g} point of {like}"
    return f"{told} on every collection is {name}: it is at most {most} behind.**\n"


def _tested(sure: Sequence[str], count: int) -> str:
    """On which of so many collections a difference is significant."""
    where = {0: "not significant", count: SIGNIFICANT}
    return " (" + where.get(len(sure), f"{SIGNIFICANT} on {'; '.join(sure)}") + ")"


def _short_of_steps(found: Results) -> list[str]:
    """A line on the retrievers that still learned when their steps ended, as the gate has it; where not on all."""
    curves = found.tables.get("learning")
    ends = {} if curves is None else endings(curves)
    kinds = found.kinds()
    rises = {place: end.rise > NOISE for place, end in ends.items() if kinds.get(place[0], ALONE) == ALONE}
    said = "Still learning when their steps ended, by validation, so that more steps may raise what they reach"
    return _of_systems(said, pd.Series(rises, dtype=bool), " and ")


def _unmoved(found: Results) -> list[str]:
    """A line on retrievers that trained, and whose weights are those that they began with, in all seeds; and where."""
    rows, kinds = found.rows, found.kinds()
    if not {"steps", "seconds"} <= {*rows}:
        return []
    alone = rows["system"].map(lambda name: kinds.get(name, ALONE) == ALONE)
    trained = rows[(rows["seconds"] > 0) & rows["steps"].notna() & (rows["split"] == "test") & alone]
    each = trained.groupby(["system", "collection"], sort=False).agg({"steps": "max", "seed": "nunique"})
    most = each["seed"].groupby(level="system").transform("max")  # a test of fewer seeds says nothing of the others
    said = "No step was better on validation questions than none, so that these have the weights that they began with"
    return _of_systems(said, (each["steps"] == 0) & (each["seed"] == most), "; ")


def _of_systems(said: str, so: pd.Series, between: str) -> list[str]:
    """A line on the systems of which something is so, and where, if not on all of their collections."""
    told = []
    for name, places in so.groupby(level=0, sort=False):
        where = between.join(called(place) for _, place in places[places].index)
        told += [f"*{name}*" + f" ({where})" * (not places.all())] if where else []
    return [f"{said}: {'; '.join(told)}.\n"] if told else []


def _counted(claims: pd.DataFrame) -> list[str]:
    """How many claims came out how, and on what data and seeds."""
    if claims.empty:
        return []
    counts = claims["verdict"].value_counts().reindex(SIGNS).dropna().astype(int)
    found = ", ".join(f"{count} {came_out(verdict, count > 1)}" for verdict, count in counts.items())
    if len(claims) == 1:
        return [f"The one claim that rests on this chapter {came_out(counts.index[0], several=False)}.\n"]
    tested = claims[claims["verdict"] != NOT_TESTED]
    data = " or ".join(FIDELITY[each] for each in sorted(set(tested["fidelity"])))
    scale = f" (seeds: {span(tested['seeds'], str)}; on {data})" if len(tested) else ""
    said = f"Of the {len(claims)} claims that rest on this chapter {found}"
    if len(counts) == 1:
        which = "Both" if len(claims) == 2 else f"All {len(claims)}"
        said = f"{which} claims that rest on this chapter {came_out(counts.index[0], several=True)}"
    return [f"{said}{scale}.\n"]


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
    found, link = decisive(row), _linked(row, row.statement)
    several = f" (the least clear of {len(row.evidence)})" if len(row.evidence) > 1 and row.verdict == HOLDS else ""
    said = f" ({row.said})" if row.verdict == INCONCLUSIVE else several
    verdict = row.verdict + " as tested" * (row.narrower and row.verdict in DECIDED)
    return f"- {SIGNS[row.verdict]} *{verdict}*: {stated(row, link)}. Here {found.told}{said}."


def _why(claims: pd.DataFrame, texts: dict[str, dict[str, str]]) -> list[str]:
    """What explains the verdicts that came out: a line for each reason, after the signs of the claims that share it."""
    found: dict[str, list[str]] = {}
    for row in claims.itertuples():
        if row.verdict in texts.get(row.claim, {}):
            found.setdefault(texts[row.claim][row.verdict], []).append(_linked(row, SIGNS[row.verdict]))
    lines = [f"- {' '.join(signs)} {text}" for text, signs in found.items()]
    return ["**Why, as we read it** (a sign leads to its claim):\n", *lines, ""] if lines else []


def _linked(row: Any, text: str) -> str:
    """A link to a claim's verdict, which says the claim to whoever points at it."""
    page, statement = papers()[row.paper].pages["verdicts"], html.escape(row.statement)
    return f'<a href="{page}.html#{row.claim}" title="{statement}">{text}</a>'
