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

Each combination is an exploration; Snakemake runs them as it runs the book.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from retlib.core import cache, rules, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.core.notebook_files import EXPLORE, MAPPING, read_yaml
from retlib.evaluation import results
from retlib.report.figures import legend, line_style, styled
from retlib.workflow import build, notebooks

_VARIED = rules.mapping_of(None, rules.each_of(lambda *_: None))
FILE = rules.form(
    {**dict.fromkeys(("notebook", "profile", "measure"), rules.text), "vary": _VARIED},
    {"systems": rules.some_of(rules.text), "set": MAPPING},
)
# Before the names of parameters in a frame: some are called as a recorded column is.
VARIED = "varied "


@dataclass(frozen=True)
class Sweep:
    """What is run: a file, whose name is the sweep's, parameters to vary, and a plan for each combination of values.

    `systems` are those that are shown; none stands for all.
    """

    path: Path
    notebook: str
    measure: str
    systems: Sequence[str]
    varied: Sequence[str]
    plans: Mapping[str, notebooks.Plan]

    @property
    def folder(self) -> Path:
        """Where the executed copies, the frame and the plot lie."""
        return runtime.build_dir() / "sweeps" / self.path.stem


def read(path: Path, root: Path) -> Sweep:
    """Read a sweep's file, and check it before anything runs.

    Raises `DataError` if it is no such file, or the notebook only shows recorded results, and `SettingError` naming
    what is unknown.
    """
    told = read_yaml(path)
    FILE(path.name, told)
    require(bool(told["vary"]), f"{path.name} has nothing to vary", DataError)
    name, profile, fixed, vary = told["notebook"], told["profile"], told.get("set", {}), told["vary"]
    plans = notebooks.plan(root, profile)
    require_one_of("notebook", name, plans)
    plan = plans[name]
    for parameter in [*fixed, *vary]:
        require_one_of(f"a parameter of {name}", parameter, {*plan.parameters} - {"profile"})
    for parameter in vary:
        require(parameter not in fixed, f"{parameter} is set and varied")
    wrong = f"{name} cannot be run at profile {profile!r}: its data are not here, only recorded results"
    require(plan.parameters["source"] == "run", wrong, DataError)
    if published := notebooks.reference_plan(root, name):
        rows = results.load(name, published.parameters["profile"], "reference").rows
        require_one_of(f"a measure of {name}", told["measure"], rows["measure"].unique())
    plans = {}
    for values in product(*vary.values()):
        point = dict(zip(vary, values, strict=True))
        given = {**plan.parameters, **fixed, **point, "profile": EXPLORE}
        plans[_name(point, given)] = notebooks.Plan(plan.page, given)
    return Sweep(path, name, told["measure"], told.get("systems", ()), tuple(vary), plans)


def _name(point: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """What a combination's files are called: its values, as far as a file's name bears them, and a hash of all."""
    values = ",".join(f"{name}={value}" for name, value in point.items())
    return f"{re.sub('[^A-Za-z0-9=,._-]+', '', values)[:100]}-{cache.key(parameters)[:8]}"


def run(sweep: Sweep, jobs: int) -> tuple[pd.DataFrame, int]:
    """Run the combinations that are not up to date; return all recorded rows, and 0, or 1 when one failed.

    Rows have a column for each varied parameter.
    """
    code = build.run(sweep.plans, sweep.folder, jobs, {"sweep": sweep.path.resolve()})
    found = [pd.DataFrame()]
    for name, plan in sweep.plans.items():
        if (sweep.folder / "notebooks" / f"{name}.ipynb").exists():
            folder = results.own_folder(EXPLORE, sweep.notebook, plan.parameters)
            cells = {VARIED + each: _cell(plan.parameters[each]) for each in sweep.varied}
            found.append(results.Results.read(folder).rows.assign(**cells))
    return pd.concat(found, ignore_index=True), code


def _cell(value: Any) -> Any:
    """A parameter's value as a cell of a frame: a list of one stands for its value."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return json.dumps(value) if isinstance(value, list | dict) else value


def summary(frame: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """Return the mean of the sweep's measure on the test split of each combination, its spread and number of seeds.

    Raises `SettingError` if nothing recorded the measure or one of the systems.
    """
    kept = frame[frame["split"] == "test"]
    for column, names in (("measure", [sweep.measure]), ("system", sweep.systems)):
        for name in names:
            require_one_of(column, name, sorted(kept[column].unique()))
        kept = kept[kept[column].isin(names)] if names else kept
    groups = kept.groupby([*(VARIED + name for name in sweep.varied), "system", "collection"], sort=False)["value"]
    found = groups.agg(["mean", "std", "count"]).reset_index()
    return found.rename(columns={"mean": sweep.measure, "std": "deviation over seeds", "count": "seeds"})


def plot(table: pd.DataFrame, sweep: Sweep) -> Figure:
    """The measure over the first varied parameter: a panel for each collection, a line for every other difference."""
    x, *others = (VARIED + name for name in sweep.varied)
    collections = list(table["collection"].unique())
    figure, axes = styled(1.0 + 4.5 * len(collections), 4.0, len(collections))
    lines = table.groupby(["system", *others], sort=False)
    for place, ((system, *values), line) in enumerate(lines):
        label = ", ".join([system, *(f"{_plain(name)} {value}" for name, value in zip(others, values, strict=True))])
        for axis, collection in zip(axes, collections, strict=True):
            points = line[line["collection"] == collection]
            ticks = points[x].astype(str) if points[x].dtype == object else points[x]
            spread = points["deviation over seeds"]
            axis.errorbar(ticks, points[sweep.measure], spread, label=label, **line_style(place))
            axis.set(title=collection, xlabel=_plain(x), ylabel=sweep.measure)
    legend(figure, axes)
    return figure


def _plain(column: str) -> str:
    return column.removeprefix(VARIED)
