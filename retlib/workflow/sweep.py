"""One notebook at every combination of some parameters' values: its results in one frame, and one plot.

A sweep is a YAML file::

    notebook: 12_dual_encoder_losses
    profile: quick                     # whose parameters the others keep
    measure: AP@100                    # what the plot shows
    systems: [in_batch_softmax]        # of those that are recorded; all, if left out
    set: {loss: in_batch_softmax}      # parameters that are the same everywhere; none, if left out
    vary:
      batch_size: [10, 100, 1000]      # the first is the plot's axis
      seeds: [[0], [1]]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib.figure import Figure

from retlib.core import cache, notebook_files, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.evaluation.results import Results
from retlib.report.figures import legend, line_style, styled
from retlib.workflow import notebooks, processes
from retlib.workflow.imports import closure

KEYS = ("notebook", "profile", "measure", "systems", "set", "vary")
WHICH = ["system", "collection"]
# Before the names of parameters in a frame: some are called as a recorded column is.
VARIED = "varied "


@dataclass(frozen=True)
class Sweep:
    """What is run.

    Parameters
    ----------
    name : str
        The file's, and its folder's.
    notebook, profile, measure : str
    systems : tuple of str
        That are shown; none stands for all.
    fixed : mapping
        Parameters that every point has.
    vary : mapping
        Parameter to its values, in the order of the file.
    """

    name: str
    notebook: str
    profile: str
    measure: str
    systems: tuple[str, ...]
    fixed: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]]

    @property
    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values."""
        return [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]


def read(path: Path, root: Path) -> Sweep:
    """Read a sweep's file, and check it before anything runs.

    Raises
    ------
    DataError
        If it is no such file.
    SettingError
        Naming what is not known, with what is.
    """
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DataError(f"{path} cannot be read as YAML: {error}") from error
    require(isinstance(told, dict), f"{path} must be a mapping with the keys {', '.join(KEYS)}", DataError)
    for key in told:
        require_one_of(f"a key of {path.name}", key, KEYS)
    for key in ("notebook", "profile", "measure", "vary"):
        require(bool(told.get(key)), f"{path.name} lacks `{key}`", DataError)
    require_one_of("notebook", told["notebook"], notebook_files.names(root))
    require_one_of("profile", told["profile"], notebooks.profiles(root))
    fixed, vary = told.get("set") or {}, told["vary"]
    declared = notebooks.declared(root / "notebooks" / f"{told['notebook']}.ipynb")
    for parameter in [*fixed, *vary]:
        require_one_of(f"a parameter of {told['notebook']}", parameter, declared)
    for parameter, values in vary.items():
        wrong = f"vary: {parameter} = {values!r} must be a list of values"
        require(isinstance(values, list) and len(values) > 0, wrong)
        require(parameter not in fixed, f"{parameter} is set and varied")
    systems = tuple(told.get("systems") or ())
    return Sweep(path.stem, told["notebook"], told["profile"], told["measure"], systems, fixed, vary)


def run(sweep: Sweep, root: Path, jobs: int) -> tuple[pd.DataFrame, list[Path]]:
    """Run the points that are not there yet.

    Returns
    -------
    frame : DataFrame
        The recorded rows of all points that were run, with a column for each varied parameter.
    failed : list of Path
        Executed copies of the points that failed, the error on top.
    """
    folders = [_folder(sweep, root, point) for point in sweep.points]
    todo = [pair for pair in zip(folders, sweep.points, strict=True) if not _results(sweep, pair[0]).is_dir()]
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_execute, sweep, root, *pair) for pair in todo]
        for done in runtime.progress(as_completed(running), desc=sweep.name, total=len(running), unit="point"):
            done.result()
    found = [
        Results.read(_results(sweep, folder)).rows.assign(**_cells(point))
        for folder, point in zip(folders, sweep.points, strict=True)
        if _results(sweep, folder).is_dir()
    ]
    frame = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
    copies = [folder / "failed" / f"{sweep.notebook}.ipynb" for folder in folders]
    return frame, [copy for copy in copies if copy.exists()]


def _cells(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point's values as cells of a frame: a list of one stands for its value."""
    single = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in point.items()}
    return {
        VARIED + name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in single.items()
    }


def folder_of(sweep: Sweep) -> Path:
    """Where a sweep's points, its frame and its plot lie."""
    return runtime.build_dir() / "sweeps" / sweep.name


def _parameters(sweep: Sweep, root: Path, point: Mapping[str, Any]) -> dict[str, Any]:
    found = {**notebooks.plan(root, sweep.profile)[sweep.notebook].parameters, **sweep.fixed, **point}
    wrong = f"{sweep.notebook} cannot be run at profile {sweep.profile!r}: its data are not here, only recorded results"
    require(found["source"] == "run", wrong, DataError)
    return found


def _folder(sweep: Sweep, root: Path, point: Mapping[str, Any]) -> Path:
    """The point's folder: another one as soon as a parameter, the notebook or a module that it imports is."""
    notebook = root / "notebooks" / f"{sweep.notebook}.ipynb"
    code = [path.read_text(encoding="utf-8") for path in [notebook, *closure(notebook, root)]]
    return folder_of(sweep) / cache.key([_parameters(sweep, root, point), code])


def _results(sweep: Sweep, folder: Path) -> Path:
    return folder / sweep.profile / "results" / sweep.notebook


def _execute(sweep: Sweep, root: Path, folder: Path, point: Mapping[str, Any]) -> None:
    """Run one point in a build folder of its own, which shares what is trained with all others."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = runtime.cache_dir()
    shared.mkdir(parents=True, exist_ok=True)
    if not (folder / "cache").is_symlink():
        (folder / "cache").symlink_to(shared)
    command = [
        sys.executable,
        "-m",
        "retlib.workflow.execute",
        str(root / "notebooks" / f"{sweep.notebook}.ipynb"),
        str(folder),
    ]
    command += ["--parameters", json.dumps(_parameters(sweep, root, point))]
    environment = os.environ | {"RETLIB_BUILD": str(folder), processes.MARK: str(folder)}
    with (folder / "log").open("w") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    ended = _results(sweep, folder).is_dir() or (folder / "failed" / f"{sweep.notebook}.ipynb").exists()
    require(ended, f"a point of {sweep.name} ended without a result; see {folder / 'log'}", DataError)


def summary(frame: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """The mean of the sweep's measure on the test split of each point, with the spread and the number of seeds.

    Raises
    ------
    SettingError
        If nothing recorded the measure or one of the systems.
    """
    kept = frame[frame["split"] == "test"]
    for column, names in (("measure", [sweep.measure]), ("system", sweep.systems)):
        for name in names:
            require_one_of(column, name, sorted(kept[column].unique()))
        kept = kept[kept[column].isin(names)] if names else kept
    groups = kept.groupby([*(VARIED + name for name in sweep.vary), *WHICH], sort=False)["value"]
    found = groups.agg(["mean", "std", "count"]).reset_index()
    return found.rename(columns={"mean": sweep.measure, "std": "deviation over seeds", "count": "seeds"})


def plot(table: pd.DataFrame, sweep: Sweep) -> Figure:
    """The measure over the first varied parameter: a panel for each collection, a line for every other difference."""
    x, *others = (VARIED + name for name in sweep.vary)
    collections = list(table["collection"].unique())
    figure, axes = styled(1.0 + 4.5 * len(collections), 4.0, len(collections))
    lines = table.groupby(["system", *others], sort=False).ngroup()
    for axis, collection in zip(axes, collections, strict=True):
        for place, label, part in _lines(table[table["collection"] == collection], lines, others):
            ticks = part[x].astype(str) if part[x].dtype == object else part[x]
            axis.errorbar(ticks, part[sweep.measure], part["deviation over seeds"], label=label, **line_style(place))
        axis.set(title=collection, xlabel=_plain(x), ylabel=sweep.measure)
    legend(figure, axes, 1)
    return figure


def _lines(part: pd.DataFrame, lines: pd.Series, others: Sequence[str]) -> Iterator[tuple[int, str, pd.DataFrame]]:
    for place, points in part.groupby(lines, sort=False):
        first = points.iloc[0]
        yield int(place), ", ".join([first["system"], *(f"{_plain(name)} {first[name]}" for name in others)]), points


def _plain(column: str) -> str:
    """The name of the parameter that a column holds."""
    return column.removeprefix(VARIED)
