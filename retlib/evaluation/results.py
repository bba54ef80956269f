"""Recorded results: rows with their provenance, per-query values, curves and tables.

An experiment's results are a folder of Parquet files, small enough to be committed:

- ``rows.parquet``: a row for each system, collection, split, measure and seed;
- ``queries/<collection>.<split>.<measure>.parquet``: per-query values, a column for each system and seed;
- ``tables/<name>.parquet``: what a figure or table of the page needs besides.

The reader's own run lies under the build folder, the published one under ``data/reference``. The two are never mixed
within an experiment.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.core.notebook_files import EXPLORE
from retlib.evaluation.measures import Comparison, average, between_seeds, compare, same_seeds

KEY = ["experiment", "system", "collection", "split", "measure", "seed"]
FIRST = ["experiment", "system", "collection", "split", "measure", "value", "seed", "profile", "source"]

# How a system makes its list.
ALONE, FUSED, RERANKED = "alone", "fused", "re-ranked"

# What a page says of rows that compare with no others.
EARLIER = "These rows are of an earlier training than is declared here"

# Between system and seed in the column names of per-query files.
_SEPARATOR = " | seed "


class Results:
    """The recorded results of one experiment.

    `rows` have the columns `FIRST` and what else was recorded (parameters, cost, environment). `queries` are frames by
    (collection, split, measure): index query; `cluster`, and a column for each (system, seed).
    """

    def __init__(
        self,
        rows: pd.DataFrame | None = None,
        queries: MutableMapping[tuple[str, str, str], pd.DataFrame] | None = None,
        tables: MutableMapping[str, pd.DataFrame] | None = None,
    ) -> None:
        self._rows = pd.DataFrame(columns=FIRST) if rows is None else rows
        # Added to the frame when it is asked for: one by one, each would copy all before it.
        self._added: list[dict[str, object]] = []
        # What was made of a frame, with the frame: verdicts ask for the same thousands of times.
        self._made: dict[object, tuple[pd.DataFrame, Any]] = {}
        self._variances: dict[tuple, tuple[tuple[float, int], ...]] = {}
        self.queries = queries or {}
        self.tables = tables or {}

    @property
    def rows(self) -> pd.DataFrame:
        """All rows, in the order in which they were added."""
        if self._added:
            frames = [frame for frame in (self._rows, pd.DataFrame(self._added)) if len(frame)]
            self._rows = pd.concat(frames, ignore_index=True).drop_duplicates(KEY, keep="last", ignore_index=True)
            self._added = []
        return self._rows

    def once(self, key: object, frame: pd.DataFrame, make: Callable[[pd.DataFrame], Any]) -> Any:
        """What `make` makes of a frame of these results, made again where another frame has taken its place."""
        if key not in self._made or self._made[key][0] is not frame:
            self._made[key] = frame, make(frame)
        return self._made[key][1]

    def lines(self, system: str, collection: str) -> pd.DataFrame:
        """The rows of a system on a collection; none where there are none."""
        parts = self.once("lines", self.rows, lambda rows: dict(iter(rows.groupby(["system", "collection"]))))
        return parts.get((system, collection), self.rows[:0])

    def means(self, collection: str) -> pd.DataFrame:
        """Return means over seeds on a collection: a column a measure, and `seconds` of training (NaN without one).

        The index is the system, in the order of recording.
        """
        mine = self.rows[self.rows["collection"] == collection]
        table = mine.pivot_table(index="system", columns="measure", values="value", sort=False)
        seconds = mine.reindex(columns=["system", "seconds"]).astype({"seconds": float})
        return table.join(seconds.groupby("system")["seconds"].mean())

    def settings(self) -> dict[str, dict]:
        """The settings of each system that has any."""
        known = self.rows.reindex(columns=["system", "parameters"]).dropna().drop_duplicates("system")
        return {name: json.loads(each) for name, each in known.itertuples(index=False)}

    def kinds(self) -> dict[str, str]:
        """Of each system, by its settings: `FUSED`, several lists in one; `RERANKED`, another's list; or `ALONE`."""
        told = self.settings().items()
        return {name: FUSED if "fused" in of else RERANKED if "first" in of else ALONE for name, of in told}

    def learned(self) -> set[str]:
        """The systems that train, or begin with a public encoder."""
        begun = {name for name, of in self.settings().items() if _from_checkpoint(of)}
        return begun.union(self.rows.reindex(columns=["system", "seconds"]).query("seconds > 0")["system"])

    def per_query(self, collection: str, split: str, measure: str, system: str) -> pd.DataFrame:
        """Per-query values of a system: index query, a column for each seed, in the order of seeds."""
        seeds = self._seeds(collection, split, measure).get(system)
        wrong = f"no {measure} of {system!r} on {collection!r} ({split}) is recorded query by query"
        require(seeds is not None, wrong, DataError)
        columns = [f"{system}{_SEPARATOR}{seed}" for seed in seeds]
        return self.queries[collection, split, measure][columns].set_axis(seeds, axis=1)

    def systems(self, collection: str, split: str, measure: str) -> list[str]:
        """The systems that have per-query values, in the order in which they were recorded."""
        return list(self._seeds(collection, split, measure))

    def _seeds(self, *key: str) -> dict[str, list[int]]:
        """The seeds of each system that has per-query values, in order."""
        frame = self.queries.get(key)
        return {} if frame is None else self.once(key, frame, _seeds_of_systems)

    def clusters(self, collection: str, split: str, measure: str) -> pd.Series:
        """Query to cluster, for `retlib.evaluation.measures.compare`."""
        found = self.queries.get((collection, split, measure))
        wrong = f"no {measure} on {collection!r} ({split}) is recorded query by query"
        require(found is not None, wrong, DataError)
        return found["cluster"]

    def trained(self, system: str, measure: str) -> bool:
        """Whether a system was trained, so that another seed would give another one."""

        def all_trained(rows: pd.DataFrame) -> set[str]:
            rows = rows.reindex(columns=["system", "seed", "steps", "measure"])
            # Times are recorded with every seed, of what is not trained, too.
            seeds = rows[rows["measure"] == measure].groupby("system")["seed"].nunique()
            return {*rows["system"][rows["steps"].notna()], *seeds.index[seeds > 1]}

        return system in self.once(("trained", measure), self.rows, all_trained)

    def pooled(
        self, terms: Iterable[tuple[float, str]], collections: Sequence[str], measure: str, seeds: int
    ) -> list[tuple[float, float]]:
        """Return the variance over seeds of a weighted sum of systems, from all trained ones with as many `seeds`.

        Its two parts are those of `retlib.evaluation.measures.between_seeds`, each with its weight and over the number
        of seeds, in points of a hundred. `terms` are weights and systems. One model answers all `collections`, so
        values are averaged over these first.
        """
        weights = [weight for weight, system in terms if self.trained(system, measure)] if seeds > 1 else []
        if not weights:
            return []
        factors = sum(weight**2 for weight in weights), sum(weights) ** 2
        parts = zip(factors, self._between_seeds(tuple(collections), measure, seeds), strict=False)
        return [(factor * variance / seeds, freedom) for factor, (variance, freedom) in parts]

    def _between_seeds(self, collections: tuple[str, ...], measure: str, count: int) -> tuple[tuple[float, int], ...]:
        """`between_seeds` of the systems that have as many seeds, over those that all have; empty where no two have."""
        where = collections, measure, count
        if where not in self._variances:
            # A system or a seed that one of the collections lacks has no value in the sum.
            together = sum(self._seed_means(name, measure) for name in collections) / len(collections)
            together = together[together.notna().sum(axis=1) >= count].dropna(axis=1)
            parts = [self.queries[name, "test", measure] for name in collections if len(together)]
            same = {  # one training under two names is one
                system: tuple(
                    part[f"{system}{_SEPARATOR}{seed}"].to_numpy().tobytes() for part in parts for seed in together
                )
                for system in together.index
            }
            together = together[~pd.Series(same, dtype=object).duplicated()]
            self._variances[where] = between_seeds(together) if min(together.shape) > 1 else ()
        return self._variances[where]

    def _seed_means(self, collection: str, measure: str) -> pd.DataFrame:
        """Means over test questions in points of a hundred: index system, a column a seed."""

        def means(frame: pd.DataFrame) -> pd.DataFrame:
            found = 100 * frame.filter(like=_SEPARATOR).mean()
            return found.set_axis(
                pd.MultiIndex.from_tuples(each.rsplit(_SEPARATOR, 1) for each in found.index)
            ).unstack()

        frame = self.queries.get((collection, "test", measure))
        return pd.DataFrame() if frame is None else self.once(("means", collection, measure), frame, means)

    def compared(self, collection: str, measure: str, a: str, b: str | None = None, on: str = "") -> Comparison:
        """Return one system minus another over the test questions and seeds that both have, in points of a hundred.

        As in verdicts, the variance over seeds is the larger of the pair's own and that of all trained systems of the
        experiment. Without `b` it is the first by itself; `on` is a collection of the same questions on which `b` is
        taken.
        """
        sides = [(1.0, a, collection), *([] if b is None else [(-1.0, b, on or collection)])]
        values = [100 * self.per_query(place, "test", measure, system) for _, system, place in sides]
        ours, theirs = (values[0], 0 * values[0]) if b is None else same_seeds(*values)
        seeds, pooled = max(ours.shape[1], theirs.shape[1]), []
        for place in dict.fromkeys(place for *_, place in sides):
            terms = [(weight, system) for weight, system, where in sides if where == place]
            pooled += self.pooled(terms, [place], measure, seeds)
        return average([compare(ours, theirs, self.clusters(collection, "test", measure))], pooled)

    def add_row(self, **row: object) -> None:
        """Add a row; one with the same key takes its place."""
        self._added.append(row)

    def add_queries(
        self, collection: str, split: str, system: str, seed: int, values: pd.DataFrame, clusters: pd.Series
    ) -> None:
        """Add per-query values, as `retlib.evaluation.measures.evaluate` returns them."""
        for measure, part in values.groupby("measure", sort=False):
            key, name = (collection, split, str(measure)), f"{system}{_SEPARATOR}{seed}"
            self._variances.clear()
            column = part.set_index("query_id")["value"].astype(np.float32).round(5).rename(name)
            old = self.queries.get(key)
            # Another set of queries is another collection, whatever its name: the old values go.
            if old is None or not old.index.equals(column.index):
                old = pd.DataFrame({"cluster": clusters.reindex(column.index)})
            self.queries[key] = pd.concat([old.drop(columns=name, errors="ignore"), column], axis=1)

    def add_lines(self, table: str, lines: pd.DataFrame, key: list[str]) -> None:
        """Add lines to a table in the place of all that have the key of one of them."""
        old = self.tables.get(table, lines[:0])
        stale = old.set_index(key).index.isin(lines.set_index(key).index)
        self.tables[table] = pd.concat([each for each in (old[~stale], lines) if len(each)], ignore_index=True)

    def save(self, folder: Path) -> None:
        """Write everything; a kill never leaves a folder that is half old, half new or incomplete."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with cache.explain_disk_full(folder), _alone(folder.parent):
            for left in folder.parent.glob(f".{folder.name}.*"):  # by a kill
                shutil.rmtree(left)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
                fresh, old = Path(aside, "fresh"), Path(aside, "old")
                fresh.mkdir()
                self._write(fresh)
                cache.write_checksums(fresh)
                # A full folder cannot be replaced in one step, only renamed out of the way.
                if folder.exists():
                    os.replace(folder, old)
                os.replace(fresh, folder)

    def _write(self, fresh: Path) -> None:
        self.rows.drop(columns="source", errors="ignore").to_parquet(fresh / "rows.parquet", compression="zstd")
        for kind in ("queries", "tables"):
            (fresh / kind).mkdir()
        for key, frame in self.queries.items():
            frame.to_parquet(fresh / "queries" / _file_name(*key), compression="zstd")
        for name, frame in self.tables.items():
            frame.to_parquet(fresh / "tables" / _file_name(name), compression="zstd")

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read what `save` wrote, and check all files: `DataError` if one is unreadable or not what was written.

        Values by query and tables are read when they are asked for: a page needs few.
        """
        with _readable(folder):
            if wrong := cache.damaged(folder):
                raise ValueError(f"changed since they were written: {', '.join(wrong)}")
            rows = pd.read_parquet(folder / "rows.parquet")
            queries = {_parts(path): path for path in sorted(folder.glob("queries/*.parquet"))}
            tables = {_parts(path)[0]: path for path in sorted(folder.glob("tables/*.parquet"))}
        return cls(rows, _Files(queries), _Files(tables))


class _Files(UserDict):
    """Frames by name, each read from its file when it is asked for."""

    def __getitem__(self, name: Any) -> pd.DataFrame:
        if isinstance(found := self.data[name], Path):
            with _readable(found.parents[1]):
                self.data[name] = found = pd.read_parquet(found)
        return found


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Errors of reading are those of the folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        published = folder.is_relative_to(runtime.root() / "data" / "reference")
        remedy = "`git checkout` of that folder brings them back" if published else "Delete it and run again"
        raise DataError(f"{folder}: the recorded results cannot be read ({error}). {remedy}.") from error


def _from_checkpoint(settings: Mapping) -> bool:
    """Whether an encoder, or one of those that make a list together, begins with a public one."""
    return bool(settings.get("checkpoint")) or any(map(_from_checkpoint, settings.get("fused", ())))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of processes that save in a folder at once, one after the other; no file of a lock stays among what is kept."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _file_name(*parts: str) -> str:
    """Parts joined by dots; a dot, slash or other unusual character within one is written as %XX."""
    return ".".join(quote(part, safe=" @+,=()").replace(".", "%2E") for part in parts) + ".parquet"


def _parts(path: Path) -> tuple[str, ...]:
    """The parts of which `_file_name` made a file's name."""
    return tuple(unquote(part) for part in path.stem.split("."))


def _seeds_of_systems(frame: pd.DataFrame) -> dict[str, list[int]]:
    """The systems that have columns in a frame of per-query values, in their order, and the seeds of each, sorted."""
    pairs = [column.rsplit(_SEPARATOR, 1) for column in frame.columns if _SEPARATOR in column]
    found: dict[str, list[int]] = {name: [] for name, _ in pairs}
    for name, seed in pairs:
        found[name].append(int(seed))
    return {name: sorted(seeds) for name, seeds in found.items()}


def own_folder(profile: str, experiment: str, parameters: Mapping | None = None) -> Path:
    """Where a run records an experiment; an exploration has a folder for each choice of its parameters."""
    if profile == EXPLORE and parameters is not None:
        chosen = {name: value for name, value in parameters.items() if name not in ("profile", "source")}
        experiment = f"{experiment}+{cache.key(chosen)[:8]}"
    return runtime.build_dir() / profile / "results" / experiment


def reference_folder(profile: str, experiment: str) -> Path:
    """Where the published results of an experiment lie."""
    return runtime.root() / "data" / "reference" / profile / experiment


def load(experiment: str, profile: str, source: str | None = None) -> Results | None:
    """Return the results of an experiment, with a column `source` in their rows; None where nothing is recorded.

    The `source` is "run" or "reference"; without it, the reader's own run (the latest of explorations), else the
    reference.
    """
    name, folder = _recorded(experiment, profile, source)
    if folder is None:
        return None
    found = Results.read(folder)
    found.rows["source"] = name
    return found


def load_table(experiment: str, profile: str, name: str, source: str | None = None) -> pd.DataFrame | None:
    """Return one table of an experiment, without reading the rest; None where there is none. See `load`."""
    _, folder = _recorded(experiment, profile, source)
    file = folder / "tables" / _file_name(name) if folder else None
    if file is None or not file.is_file():
        return None
    with _readable(folder):
        if str(file.relative_to(folder)) in cache.damaged(folder):
            raise ValueError(f"changed since it was written: {file.name}")
        return pd.read_parquet(file)


def _recorded(experiment: str, profile: str, source: str | None) -> tuple[str, Path | None]:
    own = own_folder(profile, experiment)
    explored = sorted(own.parent.glob(f"{glob.escape(experiment)}+*"), key=os.path.getmtime)
    folders = {"run": [own, *explored][-1], "reference": reference_folder(profile, experiment)}
    return next(
        ((name, folder) for name, folder in folders.items() if source in (None, name) and folder.is_dir()), ("", None)
    )


def publish_table(profile: str, experiment: str, name: str, table: pd.DataFrame) -> None:
    """Write a table beside the published results of an experiment."""
    folder = reference_folder(profile, experiment)
    (folder / "tables").mkdir(exist_ok=True)
    table.to_parquet(folder / "tables" / _file_name(name), compression="zstd")
    cache.write_checksums(folder)


def experiments(profile: str) -> list[str]:
    """The experiments that have results at a profile, own or reference."""
    parents = (own_folder(profile, "x").parent, reference_folder(profile, "x").parent)
    folders = (path for parent in parents if parent.is_dir() for path in parent.iterdir())
    return sorted({path.name for path in folders if path.is_dir() and not path.name.startswith(".")})


def rows(profile: str, source: str | None = None) -> pd.DataFrame:
    """The rows of all experiments at a profile, the columns `FIRST` first; explorations by their folders' names."""
    found = [(name, load(name, profile, source)) for name in experiments(profile)]
    frames = [each.rows.assign(experiment=name) for name, each in found if each is not None and len(each.rows)]
    if not frames:
        return pd.DataFrame(columns=FIRST)
    joined = pd.concat(frames, ignore_index=True)
    return joined[FIRST + [column for column in joined.columns if column not in FIRST]]


def as_json(values: Mapping) -> str:
    """A mapping as one cell of a row."""
    return json.dumps(values, sort_keys=True, default=str)
