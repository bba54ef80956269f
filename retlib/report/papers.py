"""The papers' tables with our numbers beside theirs: ``data/papers/rows.yaml`` says what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from html import escape
from itertools import product
from typing import Any

import pandas as pd
import yaml
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require
from retlib.evaluation import results
from retlib.evaluation.measures import Comparison, average
from retlib.evaluation.results import Results
from retlib.report.claims import bindings, joint_closeness, papers_table
from retlib.report.figures import line_style, styled
from retlib.report.reports import as_page, estimate, systems

# Units of measures, and by how many places the point moves to make points of a hundred of them.
POINTS = {"%": 0, "fraction": 2}
# A table with more columns than this is cut up: its data sets become lines.
WIDEST = 8
NOTHING = {
    "ours": float("nan"), "half": float("nan"), "seeds": 0, "queries": 0, "candidates": float("nan"),
    "collection": "", "closeness": "",
}  # fmt: skip


@dataclass(frozen=True)
class Paper:
    """What ``data/papers/papers.yaml`` says of a paper.

    Parameters
    ----------
    key, part, name, authors, title, link : str
    chapters : sequence of str
        The notebooks whose rows test its claims.
    pages : mapping
        Template to the page that is made of it for this paper.
    notes : mapping
        Template to what that page says of this paper alone.
    """

    key: str
    part: str
    name: str
    authors: str
    title: str
    link: str
    chapters: Sequence[str]
    pages: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Part and name, as tables and figures call it."""
        return f"{self.part}  {self.name}"


def papers() -> dict[str, Paper]:
    """The papers by key, in the order of the book's parts."""
    return {key: Paper(key, **each) for key, each in notebook_files.papers(runtime.root()).items()}


@dataclass(frozen=True)
class Counterpart:
    """What of ours stands beside a number of a paper.

    Parameters
    ----------
    experiment, system : str
    data_sets : tuple of str
        Of the paper, as the bindings name them; several are averaged.
    measure : str
    times : float
        What takes a recorded number without values by query to the paper's unit.
    """

    experiment: str
    system: str
    data_sets: tuple[str, ...]
    measure: str
    times: float


def told(paper: str) -> pd.DataFrame:
    """The lines of tables.csv on a paper, with `place`: data set and split in one."""
    frame = papers_table("tables").query("paper == @paper")
    places = [", ".join(filter(None, parts)) for parts in zip(frame["dataset"], frame["split"], strict=True)]
    return frame.assign(place=places)


def declared(paper: str) -> dict[str, list[dict]]:
    """What rows.yaml says of a paper: artefact to its groups."""
    return yaml.safe_load((runtime.root() / "data" / "papers" / "rows.yaml").read_text()).get(paper, {})


def named(paper: str, artefact: str, experiment: str) -> dict[str, str]:
    """The systems of an experiment that have a row in a paper's table: system to the name of the row."""
    pairs = [pair for group in declared(paper)[artefact] for pair in group["rows"].items()]
    return {name.split(":", 1)[1]: row for row, name in pairs if name.startswith(f"{experiment}:")}


def beside(paper: str, experiment: str, collection: str, profile: str) -> dict[tuple[str, str], float]:
    """What a paper reports for the data set that a collection plays: (our system, measure) to its number.

    Empty where the collection stands for several data sets. What follows a comma in the name of a data set is a
    variant of it.
    """
    places = bindings()["collections"].get(paper, {})
    mine = [name for name, place in places.items() if place.get(profile, {}).get("collection") == collection]
    if len(mine) != 1:
        return {}
    values, wanted = told(paper)["value"], mine[0].partition(",")[0]
    return {
        (each.system, each.measure): float(values[line])
        for line, each in counterparts(paper).items()
        if each.experiment == experiment
        and values[line]
        and [name.partition(",")[0] for name in each.data_sets] == [wanted]
    }


def counterparts(paper: str) -> dict[int, Counterpart]:
    """Which of our numbers stands beside which of a paper's: index of `told` to counterpart.

    Raises
    ------
    DataError
        Naming an entry of rows.yaml that matches nothing, or a number that two entries match.
    """
    lines, found = told(paper), {}
    bound = bindings()["collections"].get(paper, {})
    for artefact, group in ((artefact, group) for artefact, groups in declared(paper).items() for group in groups):
        where = f"rows.yaml, {paper}, {artefact}"
        for index, counterpart in _matched(lines[lines["artefact"] == artefact], group, where).items():
            require(index not in found, f"{where}: two entries for {lines.loc[index, 'row']!r}", DataError)
            for name in counterpart.data_sets:
                require(name in bound, f"{where}: bindings.yaml has no data set {name!r}", DataError)
            found[index] = counterpart
    return found


def _matched(lines: pd.DataFrame, group: Mapping, where: str) -> dict[int, Counterpart]:
    """The lines that are in one of a group's rows, places and metrics; each of these must have one."""
    sides, narrowed = {"row": group["rows"], "place": group["data"], "metric": group["measures"]}, lines
    for column, names in sides.items():
        narrowed = narrowed[narrowed[column].isin(names)]
    # First a name that is nowhere in the table, then one that meets none of the group's other names.
    for known, column in product((lines, narrowed), sides):
        for name in sides[column]:
            require(name in set(known[column]), f"{where}: no number of the paper has the {column} {name!r}", DataError)
    return {line.Index: _counterpart(line, group) for line in narrowed.itertuples()}


def _counterpart(line: Any, group: Mapping) -> Counterpart:
    experiment, _, system = group["rows"][line.row].partition(":")
    data_sets = tuple(group["data"][line.place].split("+"))
    return Counterpart(experiment, system, data_sets, group["measures"][line.metric], group.get("times", 1.0))


def numbers(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Every number that a paper reports, with ours.

    Returns
    -------
    DataFrame
        The columns of `told` for all artefacts that have numbers; `theirs`, the paper's number as text,
        and `ours` with `half` of its 95 % interval (none where nothing is recorded by query), both in
        points of a hundred if the number is a measure and in the paper's unit otherwise; `seeds`,
        `queries`, `candidates`, `collection` and `closeness` of ours.
    """
    lines, matched = told(paper), counterparts(paper)
    lines = lines[lines.groupby("artefact")["value"].transform(lambda values: (values != "").any())]
    places = bindings()["collections"].get(paper, {})
    load = cache(lambda experiment: results.load(experiment, profile, source))
    ours = [_ours(matched[i], places, profile, load) if i in matched else NOTHING for i in lines.index]
    theirs = [_printed(line.value, line.unit) for line in lines.itertuples()]
    return lines.assign(theirs=theirs, **pd.DataFrame(ours, index=lines.index))


def _printed(value: str, unit: str) -> str:
    """A paper's number as it was printed, a measure in points of a hundred."""
    return format(Decimal(value).scaleb(POINTS.get(unit, 0)), "f") if value else ""


def _ours(wanted: Counterpart, places: Mapping, profile: str, load: Callable[[str], Results | None]) -> dict:
    found, played = load(wanted.experiment), [places[name].get(profile) for name in wanted.data_sets]
    if found is None or None in played:
        return NOTHING
    parts = [_estimate(found, wanted, place["collection"]) for place in played]
    if None in parts:
        return NOTHING
    joined = parts[0] if len(parts) == 1 else average(parts)
    low, high = joined.interval()
    return {
        "ours": joined.effect,
        "half": (high - low) / 2,
        "seeds": joined.seeds,
        "queries": joined.queries,
        "candidates": _candidates(found, wanted.system, [place["collection"] for place in played]),
        "collection": " and ".join(place["collection"] for place in played),
        "closeness": joint_closeness(played),
    }


def _estimate(found: Results, wanted: Counterpart, collection: str) -> Comparison | None:
    """A mean with its error over queries and seeds; without the error where there are no values by query."""
    if wanted.system in systems(found, collection, wanted.measure):
        return estimate(found, wanted.system, collection, wanted.measure)
    rows = found.rows
    mine = rows[(rows["system"] == wanted.system) & (rows["measure"] == wanted.measure)]
    values = mine.loc[mine["collection"] == collection, "value"]
    unknown = float("nan")
    return Comparison(values.mean() * wanted.times, unknown, unknown, 0, len(values)) if len(values) else None


def _candidates(found: Results, system: str, collections: list[str]) -> float:
    """How many candidates there were; of an average none."""
    mine = found.rows[(found.rows["system"] == system) & found.rows["collection"].isin(collections)]
    return mine.get("candidates", pd.Series(dtype=float)).max() if len(collections) == 1 else float("nan")


def titles(paper: str) -> dict[str, str]:
    """Artefact to its title: "Table 2: retrieval results"."""
    mine = papers_table("artefacts").query("paper == @paper")
    return {line.artefact: f"{_place(line.artefact)}: {line.title}" for line in mine.itertuples()}


def _place(artefact: str) -> str:
    kind, _, number = artefact.partition("-")
    return number.capitalize() if number.isalpha() else f"{'Section' if kind == 'text' else kind.capitalize()} {number}"


def coverage(found: pd.DataFrame) -> pd.DataFrame:
    """How many numbers each artefact has, and how many of these have ours beside them.

    Parameters
    ----------
    found : DataFrame
        As `numbers` returns it; likewise below.
    """
    mine = found[found["theirs"] != ""]
    beside = mine["ours"].notna()
    mine = mine.assign(ours=beside, standing=beside & (mine["closeness"] == "stand-in"))
    table = mine.groupby("artefact", sort=False).agg(
        numbers=("row", "size"), ours=("ours", "sum"), standing=("standing", "sum")
    )
    return table.reset_index()


def titled(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """What `coverage` returns, as a page shows it."""
    shown = table.assign(artefact=table["artefact"].map(titles(paper)))
    return shown.rename(columns={"artefact": "in the paper", "ours": "with ours", "standing": "of these on a stand-in"})


def scale(found: pd.DataFrame) -> pd.DataFrame:
    """What our numbers were measured on, for each of the paper's data sets."""
    mine = found[found["half"].notna() & found["candidates"].notna()].astype({"candidates": int})
    keys = ["place", "collection", "closeness"]
    table = mine.groupby(keys, sort=False)[["candidates", "queries", "seeds"]].max().reset_index()
    return table.rename(columns={"place": "in the paper", "collection": "here"})


def page(found: pd.DataFrame, artefact: str) -> HTML:
    """A table of the paper under its title, for a page."""
    title = titles(found["paper"].iloc[0])[artefact]
    return HTML(f"<h3>{escape(title)}</h3>\n{as_page(table(found, artefact)).data}")


def table(found: pd.DataFrame, artefact: str) -> pd.DataFrame:
    """One of the paper's tables: "theirs | ours ± half of the 95 % interval", nothing behind the bar without ours."""
    mine = found[found["artefact"] == artefact]
    mine = mine.assign(
        both=[_both(line.theirs, line.ours, line.half) for line in mine.itertuples()],
        head=mine["place"].map(_heads(mine)),
        metric=[_with_unit(line.metric, line.unit) for line in mine.itertuples()],
    )
    index = ["head", "row"]
    if len(mine.drop_duplicates(["place", "metric"])) <= WIDEST:
        mine["metric"] = [f"{line.head}\n{line.metric}".strip() for line in mine.itertuples()]
        index = ["row"]
    wide = mine.pivot_table(index=index, columns="metric", values="both", aggfunc="\n".join, sort=False).fillna("")
    return wide.rename_axis(columns=None).reset_index().rename(columns={"head": "data", "row": "in the paper"})


def _with_unit(metric: str, unit: str) -> str:
    return metric if unit in POINTS else f"{metric} ({unit})"


def _both(theirs: str, ours: float, half: float) -> str:
    if pd.isna(ours):
        return f"{theirs} |" if theirs else ""
    text = f"{ours:.3g}" if pd.isna(half) else f"{ours:.1f} ± {half:.1f}"
    return f"{theirs or '–'} | {text}"


def _heads(mine: pd.DataFrame) -> dict[str, str]:
    """Place to how a table names it: with the collections that play it."""
    heads = {}
    for place, part in mine.groupby("place"):
        used = part[part["collection"] != ""].drop_duplicates("collection")
        here = " / ".join(f"{line.collection} ({line.closeness})" for line in used.itertuples())
        heads[place] = f"{place}\nours: {here}" if here else place
    return heads


def against(found: pd.DataFrame) -> Figure:
    """The paper's measures against ours, a marker for each table; filled on the paper's data, open on a stand-in."""
    figure, (axis,) = styled(7.4, 4.6)
    shown = found[found["half"].notna() & (found["theirs"] != "")].astype({"theirs": float})
    names, handles = titles(found["paper"].iloc[0]), []
    for i, (artefact, part) in enumerate(shown.groupby("artefact", sort=False)):
        style = line_style(i)
        colour, marker = style["color"], style["marker"]
        for kind, face in (("part", colour), ("stand-in", "none")):
            points = part[part["closeness"] == kind]
            axis.scatter(points["theirs"], points["ours"], s=26, marker=marker, facecolors=face, edgecolors=colour)
        handles.append(Line2D([], [], linestyle="none", marker=marker, color=colour, label=names[artefact]))
    handles.append(
        Line2D([], [], linestyle="none", marker="o", color="0.4", markerfacecolor="none", label="open: stand-in")
    )
    axis.axline((0, 0), slope=1, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    axis.set(xlim=(0, 100), ylim=(0, 100), xlabel="the paper's (points of 100)", ylabel="ours (points of 100)")
    axis.set_aspect("equal")
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, frameon=False)
    return figure
