"""Recorded results of every chapter: rows with their provenance, per-query values, curves and tables.

An experiment has a folder of Parquet files, small enough to be committed: ``rows.parquet`` (a row for each system,
collection, split, measure and seed), ``queries/<collection>.<split>.<measure>.parquet`` (a column for each system and
seed) and ``tables/<name>.parquet`` (what a figure or table of the page needs besides). The reader's own run lies under
the build folder, the published one under ``data/reference``; they are never mixed.
"""

import json
import shutil
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import pandas as pd
from filelock import FileLock

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.core.notebook_files import EXPLORE
from retlib.evaluation.measures import Comparison, Pieces, average, between_seeds, compare, in_pairs

KEY = ["experiment", "system", "collection", "split", "measure", "seed"]
FIRST = ["experiment", "system", "collection", "split", "measure", "value", "seed", "profile", "source"]

Frames = MutableMapping[Any, pd.DataFrame]
_SEPARATOR = " | seed "  # between system and seed in the column names of per-query files


class Results:
    """The recorded results of one experiment.

    `rows` have the columns `FIRST` and parameters, cost and environment. `queries` are frames by (collection, split,
    measure): index query; columns (system, seed), the first of them ("cluster", 0).
    """

    def __init__(
        self, rows: pd.DataFrame | None = None, queries: Frames | None = None, tables: Frames | None = None
    ) -> None:
        self._rows = pd.DataFrame(columns=FIRST) if rows is None else rows
        self.queries, self.tables = queries or {}, tables or {}
        # Added to the frame when it is asked for: one by one, each would copy all before it.
        self._added: list[dict[str, object]] = []
        self._made: dict[object, Any] = {}  # of what is here: verdicts ask for the same thousands of times

    @property
    def rows(self) -> pd.DataFrame:
        """All rows, in the order in which they were added."""
        if self._added:
            frames = [frame for frame in (self._rows, pd.DataFrame(self._added)) if len(frame)]
            self._rows = pd.concat(frames, ignore_index=True).drop_duplicates(KEY, keep="last", ignore_index=True)
            self._added = []
        return self._rows

    def once(self, make: Callable[[Self], Any]) -> Any:
        """Return what a function makes of these results, made again after something was added."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def lines(self, system: str, collection: str) -> pd.DataFrame:
        """Return the rows of a system on a collection."""
        return self.rows[(self.rows["system"] == system) & (self.rows["collection"] == collection)]

    def means(self, collection: str) -> pd.DataFrame:
        """Return means over seeds: index system, a column a measure, and `seconds` of training (NaN without one)."""
        lines = self.rows[self.rows["collection"] == collection]
        seconds = lines.reindex(columns=["system", "seconds"]).astype({"seconds": float}).groupby("system").mean()
        return lines.pivot_table(index="system", columns="measure", values="value", sort=False).join(seconds)

    def settings(self) -> dict[str, dict]:
        """Return the settings of each system that has any."""
        lines = self.rows.reindex(columns=["system", "parameters"]).dropna().drop_duplicates("system")
        return {name: json.loads(each) for name, each in lines.itertuples(index=False)}

    def trained(self, system: str, measure: str) -> bool:
        """Return whether a system was trained, so that another seed would give another one."""
        rows, own = self.rows, self.rows["system"] == system
        # Times are recorded with every seed, of what is not trained, too.
        seeds = rows["seed"][own & (rows["measure"] == measure)].nunique()
        return seeds > 1 or ("steps" in rows and bool(rows["steps"][own].notna().any()))

    def systems(self, collection: str, split: str, measure: str) -> list[str]:
        """Return the systems that have per-query values, in the order in which they were recorded."""
        frame = self.queries.get((collection, split, measure))
        return [] if frame is None else [*frame.columns.unique(0).drop("cluster")]

    def per_query(self, collection: str, split: str, measure: str, system: str) -> pd.DataFrame:
        """Return values of a system, (queries, sorted seeds); of "cluster" the questions'. `DataError` without any."""
        frame = self.queries.get((collection, split, measure))
        wrong = f"no {measure} of {system!r} on {collection!r} ({split}) is recorded query by query"
        require(frame is not None and system in frame, wrong, DataError)
        return frame[system].sort_index(axis=1)

    def clusters(self, collection: str, split: str, measure: str) -> pd.Series:
        """Return query to cluster, for `retlib.evaluation.measures.compare`."""
        return self.per_query(collection, split, measure, "cluster").squeeze(axis=1)

    def pooled(self, terms: Iterable[tuple[float, str]], on: Sequence[str], measure: str, seeds: int) -> Pieces:
        """Return the variance over seeds of a weighted sum of systems, from all trained ones with as many `seeds`.

        Its parts are those of `between_seeds`, in points of 100, of the systems' means over the collections.
        """
        weights = [weight for weight, system in terms if self.trained(system, measure)]
        if not weights or seeds == 1:
            return []
        if (key := (*on, measure, seeds)) not in self._made:
            self._made[key] = self._between_seeds(on, measure, seeds)
        parts = zip((sum(weight**2 for weight in weights), sum(weights) ** 2), self._made[key], strict=False)
        return [(factor * part / seeds, freedom) for factor, (part, freedom) in parts]

    def _between_seeds(self, collections: Sequence[str], measure: str, seeds: int) -> Pieces:
        frames = [self.queries[name, "test", measure] for name in collections]
        means = [100 * frame.loc[:, frame.columns != ("cluster", 0)].mean().unstack() for frame in frames]
        # A system or a seed that one of the collections lacks has no value in the sum.
        means = sum(means).sort_index() / len(frames)
        means = means[means.notna().sum(axis=1) >= seeds].dropna(axis=1)
        values = [tuple(frame[name][means.columns].to_numpy().tobytes() for frame in frames) for name in means.index]
        means = means[~pd.Index(values, dtype=object, tupleize_cols=False).duplicated()]  # trainings under two names
        return between_seeds(means) if min(means.shape) > 1 else ()

    def compared(self, collection: str, measure: str, a: str, b: str | None = None, on: str = "") -> Comparison:
        """Return one system minus another, or by itself, over the test questions and seeds that both have, in points.

        As in verdicts, the variance over seeds is the larger of the pair's own and that of all trained systems. `b` is
        taken `on` another collection of the same questions.
        """
        terms, values = {collection: [(1.0, a)]}, [100 * self.per_query(collection, "test", measure, a)]
        if b is not None:
            terms.setdefault(on or collection, []).append((-1.0, b))
            values.append(-100 * self.per_query(on or collection, "test", measure, b))
        found = compare(sum(in_pairs(*values)), self.clusters(collection, "test", measure))
        pooled = [part for place, each in terms.items() for part in self.pooled(each, [place], measure, found.seeds)]
        return average([found], pooled)

    def add_row(self, **row: object) -> None:
        """Add a row; one with the same key takes its place."""
        self._added.append(row)
        self._made.clear()

    def add_queries(
        self, collection: str, split: str, system: str, seed: int, values: pd.DataFrame, clusters: pd.Series
    ) -> None:
        """Add per-query values, as `retlib.evaluation.measures.evaluate` returns them."""
        self._made.clear()
        for measure, part in values.groupby("measure", sort=False):
            column = part.set_index("query_id")["value"].astype("float32").round(5).rename((system, seed))
            old = self.queries.get((collection, split, str(measure)))
            # Another set of queries is another collection, whatever its name: the old values go.
            if old is None or not old.index.equals(column.index):
                old = clusters.reindex(column.index).to_frame(("cluster", 0))
            columns = [old.drop(columns=[column.name], errors="ignore"), column]
            self.queries[collection, split, str(measure)] = pd.concat(columns, axis=1)

    def add_lines(self, table: str, lines: pd.DataFrame, key: list[str]) -> None:
        """Add lines to a table in the place of all that have the key of one of them."""
        self._made.clear()
        old = self.tables.get(table, lines[:0])
        stale = old.set_index(key).index.isin(lines.set_index(key).index)
        self.tables[table] = pd.concat([each for each in (old[~stale], lines) if len(each)], ignore_index=True)

    def save(self, folder: Path) -> None:
        """Write everything; a kill never leaves a folder that is half old, half new or incomplete."""
        files = {"rows.parquet": self.rows.drop(columns="source", errors="ignore")}
        files |= {f"tables/{_file_name(name)}": frame for name, frame in self.tables.items()}
        for key, frame in self.queries.items():
            columns = [f"{system}{_SEPARATOR}{seed}" for system, seed in frame.columns[1:]]
            files[f"queries/{_file_name(*key)}"] = frame.set_axis(["cluster", *columns], axis=1)
        runtime.build_dir().mkdir(parents=True, exist_ok=True)
        fresh, old = (folder.with_name(f".{folder.name}.{part}") for part in ("fresh", "old"))
        with cache.explain_disk_full(folder), FileLock(runtime.build_dir() / "results.lock"):
            for left in (fresh, old):  # by a kill
                shutil.rmtree(left, ignore_errors=True)
            for name, frame in files.items():
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                frame.to_parquet(fresh / name, compression="zstd")
            cache.write_checksums(fresh)
            # A full folder cannot be replaced in one step, only renamed out of the way.
            if folder.exists():
                folder.replace(old)
            fresh.replace(folder)
            shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `save` wrote, checked (`DataError`): values by query and tables only when they are asked for."""
        wrong = cache.files_changed(folder)
        remedy = "Delete it and run again; what is published comes back by `git checkout` of that folder"
        require(not wrong, f"{folder}: the recorded {', '.join(wrong)} changed since written. {remedy}.", DataError)
        return cls(
            pd.read_parquet(folder / "rows.parquet"),
            _Files({_parts(path): path for path in sorted(folder.glob("queries/*.parquet"))}),
            _Files({_parts(path)[0]: path for path in sorted(folder.glob("tables/*.parquet"))}),
        )


class _Files(UserDict):
    # Frames by name, each read from its file when it is asked for.

    def __getitem__(self, name: Any) -> pd.DataFrame:
        if isinstance(file := self.data[name], Path):
            self.data[name] = frame = pd.read_parquet(file)
            if file.parent.name == "queries":
                columns = (column.rsplit(_SEPARATOR, 1) for column in frame.columns[1:])
                columns = [("cluster", 0), *((system, int(seed)) for system, seed in columns)]
                frame.columns = pd.MultiIndex.from_tuples(columns)
        return self.data[name]


def _file_name(*parts: str) -> str:
    # Parts joined by dots; a dot, slash or other unusual character within one is written as %XX.
    return ".".join(quote(part, safe=" @+,=()").replace(".", "%2E") for part in parts) + ".parquet"


def _parts(path: Path) -> tuple[str, ...]:
    return tuple(unquote(part) for part in path.stem.split("."))


def own_folder(profile: str, experiment: str, parameters: Mapping | None = None) -> Path:
    """Return where a run records an experiment; an exploration has a folder for each choice of its parameters."""
    if profile == EXPLORE and parameters is not None:
        chosen = {name: value for name, value in parameters.items() if name not in ("profile", "source")}
        experiment = f"{experiment}+{cache.key(chosen)[:8]}"
    return runtime.build_dir() / profile / "results" / experiment


def reference_folder(profile: str, experiment: str) -> Path:
    """Return where the published results of an experiment lie."""
    return runtime.root() / "data" / "reference" / profile / experiment


def load(experiment: str, profile: str, source: str | None = None) -> Results | None:
    """Return the results of an experiment, None where none are, with a column `source` in their rows.

    The `source` is "run" or "reference"; without it, the own run (the latest of explorations), else the reference.
    """
    own = own_folder(profile, experiment)
    explored = sorted(own.parent.glob(f"{experiment}+*"), key=lambda folder: folder.stat().st_mtime)
    for name, folder in {"run": [own, *explored][-1], "reference": reference_folder(profile, experiment)}.items():
        if source in (None, name) and folder.is_dir():
            recorded = Results.read(folder)
            recorded.rows["source"] = name
            return recorded
    return None


def experiments(profile: str) -> list[str]:
    """Return the experiments that have results at a profile, own or reference."""
    parents = (own_folder(profile, "x").parent, reference_folder(profile, "x").parent)
    return sorted({path.name for parent in parents for path in parent.glob("[!.]*") if path.is_dir()})


def rows(profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the rows of all experiments, the columns `FIRST` first; explorations by their folders' names."""
    loaded = {name: load(name, profile, source) for name in experiments(profile)}
    frames = [each.rows.assign(experiment=name) for name, each in loaded.items() if each is not None and len(each.rows)]
    joined = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=FIRST)
    return joined[FIRST + [column for column in joined.columns if column not in FIRST]]


def as_json(values: Mapping) -> str:
    """Return a mapping as one cell of a row."""
    return json.dumps(values, sort_keys=True, default=str)
