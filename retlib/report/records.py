"""What evidence is read from: the bindings, the systems that they name, and these systems' recorded values."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, product
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import notebook_files, rules, runtime
from retlib.core.errors import DataError, require
from retlib.evaluation.results import Results

# The names of BM25 over words and over stems.
BM25 = ["BM25", "BM25, stemmed"]

# --- what ``bindings.yaml`` says -----------------------------------------------------------------------

# So many collections are named one by one.
SPELLED = 2
_ANY, _FLAG = rules.number(-sys.float_info.max), rules.flag
_NAMES = rules.mapping_of(None, rules.text)


def _weights(name: str, value: Any) -> None:
    rules.row_of(*[_ANY] * (len(value) if isinstance(value, list) else 1))(name, value)


def _reason(name: str, value: Any) -> None:
    (_NAMES if isinstance(value, dict) else rules.text)(name, value)


# Which systems a comparison has: by one of these keys.
_SYSTEMS = {
    **dict.fromkeys(("pair", "systems"), rules.each_of(rules.text)),
    "system": rules.text,
    "terms": rules.each_of(rules.row_of(_ANY, rules.text, rules.text)),
}
# What it may say more; of these a claim may say what is common to all of its comparisons.
_COMMON = {
    **dict.fromkeys(("test", "measure", "says"), rules.text),
    **dict.fromkeys(("margin", "within", "below", "above", "paper"), _ANY),
    **dict.fromkeys(("floor", "independent"), _FLAG),
    "sides": rules.each_of(_weights),
}


def _comparison(name: str, value: Any) -> None:
    rules.form({}, {**_COMMON, **_SYSTEMS, "data": rules.text})(name, value)
    by = [each for each in _SYSTEMS if each in value]
    require(len(by) == 1, f"{name} = {value!r} must have one of the keys {', '.join(_SYSTEMS)}")
    require(by == ["terms"] or "data" in value, f"{name} = {value!r} must have the key data")


_CLAIM = {
    **_COMMON,
    **dict.fromkeys(("each", "given"), rules.each_of(_comparison)),
    "not_tested": _reason,
    "one_is_enough": _FLAG,
    **dict.fromkeys(("as_tested", "remark"), rules.text),  # another form of the claim; or what to know of its test
    "numbers": rules.mapping_of(None, rules.row_of(rules.text, rules.text, rules.text)),
}
_PLACE = rules.form({"collection": rules.text, "fidelity": rules.one_of(("subset", "stand-in"))}, {"why": rules.text})
BINDINGS = rules.form(
    {
        "collections": rules.mapping_of(None, rules.mapping_of(None, rules.mapping_of(None, _PLACE))),
        "claims": rules.mapping_of(None, rules.form({}, _CLAIM)),
    },
    {**dict.fromkeys(("names", "parts", "endings"), _NAMES), "reasons": rules.mapping_of(None, _reason)},
)


def called(collection: str) -> str:
    """A collection, or several that were trained on together, in words: ``bindings.yaml`` has names and endings."""
    names, (name, words) = bindings().get("names", {}), parted(collection)
    parts = name.split(", ")
    *others, last = (names.get(each, each) for each in parts)
    together = others and {*parts} <= {*names}
    return ", ".join([f"{', '.join(others)} and {last} together" if together else ", ".join([*others, last]), *words])


def part_of(collection: str) -> str:
    """What of its source a collection is, or several are, as ``bindings.yaml`` says it; "" where it does not."""
    parts = bindings().get("parts", {})
    return "; ".join(dict.fromkeys(parts[each] for each in parted(collection)[0].split(", ") if each in parts))


def parted(name: str) -> tuple[str, list[str]]:
    """A collection without what its name ends in, and the words for that."""
    endings, words = bindings().get("endings", {}), []
    while ending := next((each for each in endings if name.endswith(each)), ""):
        name, words = name.removesuffix(ending), [endings[ending], *words]
    return name, words


def bindings() -> dict:
    """The bindings of claims to comparisons, and of the papers' data sets to collections."""
    return notebook_files.parsed(runtime.root() / "data" / "papers" / "bindings.yaml", BINDINGS)


def named(system: str) -> tuple[str, str]:
    """The experiment and the name within it, of a system as the bindings write it: ``experiment:name``."""
    experiment, _, name = system.partition(":")
    return experiment, name


def setting(settings: Mapping[str, Any], name: str) -> Any:
    """A setting of a recorded encoder after its last stage; `KeyError` where it has none."""
    stages = [each for each in settings.get("stages", ()) if name in each]
    return {**settings, **(stages[-1] if stages else {})}[name]


def _chapter(system: str) -> str:
    return f"chapter {named(system)[0][:2]}"


def used(spec: Mapping) -> list[tuple[str, str]]:
    """The systems (``experiment:name``) that a comparison needs, each with the paper's data set."""
    if "terms" in spec:
        return [(system, data_set) for _, system, data_set in spec["terms"]]
    return [*product(spec.get("pair") or spec.get("systems") or [spec["system"]], spec["data"].split("+"))]


class Records:
    """The recorded values of a paper's experiments at one profile, for one measure.

    Parameters
    ----------
    places : mapping
        The paper's data set to profile to its collection, as the bindings have it.
    load : callable
        Experiment to its results, or to None where it has none; called again and again.
    """

    def __init__(self, profile: str, places: Mapping[str, Mapping], measure: str, load: Callable) -> None:
        self.profile, self.places, self.measure, self._load = profile, places, measure, load

    def of(self, system: str) -> tuple[Results, str]:
        """The results of a system's experiment, and its name in them; `DataError` if there are none."""
        experiment, name = named(system)
        found = self._load(experiment)
        require(found is not None, f"not run yet at profile {self.profile}: {_chapter(system)} would do it", DataError)
        return found, name

    def collection(self, data_set: str) -> str:
        """The collection that stands for a paper's data set."""
        place = self.places.get(data_set, {}).get(self.profile)
        require(place is not None, f"no collection stands for {data_set} at profile {self.profile}", DataError)
        return place["collection"]

    def collections(self, data_sets: str) -> dict[str, str]:
        """Those of several data sets, joined by +, each once: collection to one data set that it stands for."""
        return {self.collection(data_set): data_set for data_set in data_sets.split("+")}

    def on(self, data_sets: str) -> str:
        """The collections of data sets, joined by +, in words; how many they are, if many."""
        names = list(map(called, self.collections(data_sets)))
        return " and ".join(names) if len(names) <= SPELLED else f"the mean of {len(names)} collections"

    def label(self, what: str, data_sets: str = "") -> str:
        """What is compared, and where; with the measure, where it is not that of most claims."""
        measure = "" if self.measure == "AP@100" else f"{self.measure}: "
        return measure + what + (f", on {self.on(data_sets)}" if data_sets else "")

    def values(self, system: str, data_set: str) -> pd.DataFrame:
        """Per-query values in points of a hundred: index query, a column for each seed."""
        (found, name), collection = self.of(system), self.collection(data_set)
        missing = f"not run yet: {_chapter(system)} would record {self.measure} of {name} on {called(collection)}"
        require(name in found.systems(collection, "test", self.measure), missing, DataError)
        return found.per_query(collection, "test", self.measure, name) * 100

    def clusters(self, system: str, data_set: str) -> pd.Series:
        """Query to cluster."""
        return self.of(system)[0].clusters(self.collection(data_set), "test", self.measure)

    def by_seed(self, system: str, data_set: str, column: str, measure: str | None = None) -> pd.Series:
        """What is in a column of a system's rows, of those of a measure or of all, by seed."""
        found, name = self.of(system)
        rows = found.lines(name, self.collection(data_set))
        rows = rows if measure is None else rows[rows["measure"] == measure]
        # Rows of costs, and of systems that are not trained, have no steps.
        values = rows.reindex(columns=["seed", column]).dropna().drop_duplicates("seed")
        return values.set_index("seed")[column].sort_index().astype(float)

    def candidates(self, system: str, data_set: str) -> float:
        """Among how many candidates a system was measured; infinite where it is unknown."""
        found, name = self.of(system)

        def least(rows: pd.DataFrame) -> float:
            mine = rows[rows["measure"] == self.measure]  # of curves there are no rows, but of their ends
            known = (mine if len(mine) else rows).reindex(columns=["candidates"])["candidates"].dropna()
            return float(known.astype(float).min()) if len(known) else np.inf

        rows = found.lines(name, self.collection(data_set))
        return found.once(("candidates", self.measure, name, self.collection(data_set)), rows, least)

    def number(self, what: str, system: str, data_set: str) -> str:
        """How many candidates a system was measured among, or a number of its settings, after its last stage.

        "?" where no row says it.
        """
        try:
            if what == "candidates":
                found = self.candidates(system, data_set)
                return f"{found:,.0f}" if np.isfinite(found) else "?"
            found, name = self.of(system)
            return f"{setting(found.settings()[name], what):,}"
        except (DataError, LookupError):
            return "?"

    def trained(self, system: str) -> bool:
        """Whether a system was trained, so that another seed would give another one."""
        found, name = self.of(system)
        return found.trained(name, self.measure)

    def one_seed(self, systems: Iterable[str], values: Iterable[pd.DataFrame]) -> bool:
        """Whether the values of a trained system are of one seed alone."""
        return any(value.shape[1] == 1 and self.trained(name) for name, value in zip(systems, values, strict=True))

    def pooled(self, terms: Iterable[tuple[float, str, str]], seeds: int) -> list[tuple[float, float]]:
        """The variance over seeds of a weighted sum of systems: `Results.pooled` of each chapter together.

        Parameters
        ----------
        terms : iterable of (float, str, str)
            Weight, system, and data sets joined by +, over which its values are averaged first: one model answers all.
        seeds : int
            Over which the sum is taken.
        """
        parts: dict[tuple, list[tuple[float, str]]] = defaultdict(list)
        for weight, system, data_sets in terms:
            experiment, name = named(system)
            parts[experiment, tuple(self.collections(data_sets))].append((weight, name))
        found = (self._load(each).pooled(mine, on, self.measure, seeds) for (each, on), mine in parts.items())
        return list(chain.from_iterable(found))

    def table(self, kind: str, system: str) -> pd.DataFrame:
        """A system's lines of one of its experiment's tables; none where there is no such table."""
        found, name = self.of(system)
        table = found.tables.get(kind, pd.DataFrame(columns=["system", "measure", "collection"]))
        return table[table["system"] == name]
