"""A notebook at every combination of some parameters' values, each an exploration, and all results in one table.

A sweep is a YAML file::

    notebook: 12_dual_encoder_losses
    profile: quick                     # whose parameters the others keep
    measure: AP@100                    # what the table shows
    set: {loss: in_batch_softmax}      # parameters that are the same everywhere; none, if left out
    vary:
      batch_size: [10, 100, 1000]
      recipe.layers: [0, 1]            # a value in a parameter that is a mapping

Snakemake runs the combinations as it runs the book.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, SettingError, require, require_one_of
from retlib.core.notebook_files import EXPLORE, read_yaml
from retlib.evaluation import results
from retlib.studies.parameters import Many, Settings, Text, check
from retlib.workflow import build, notebooks
from retlib.workflow.execute import Page

VARIED = "varied "  # before the names of parameters in a frame: some are called as a recorded column is


class File(Settings):
    """What the file of a sweep says."""

    notebook: Text
    profile: Text
    measure: Text
    set: dict[str, Any] = {}
    vary: dict[str, Many[Any]]


@dataclass(frozen=True)
class Sweep:
    """A sweep's file, and by name each combination of values with the page that it makes."""

    file: File
    path: Path
    points: Mapping[str, Mapping[str, Any]]
    plans: Mapping[str, Page]

    @property
    def folder(self) -> Path:
        """Where the executed copies and the table of all rows lie."""
        return runtime.build_dir() / "sweeps" / self.path.stem


def read(path: Path, root: Path) -> Sweep:
    """Read a sweep's file; `SettingError` or `DataError` for what it says wrongly, or a notebook without its data."""
    content = read_yaml(path)
    try:
        file = check(File, content)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{path.name}: {error}") from error
    plans = notebooks.plan(root, file.profile)
    require_one_of("notebook", file.notebook, plans)
    page, points, made = plans[file.notebook], {}, {}
    wrong = f"{file.notebook} cannot be run at profile {file.profile!r}: its data are not here, only recorded results"
    require(page.parameters["source"] == "run", wrong, DataError)
    for values in product(*file.vary.values()):
        point, given = dict(zip(file.vary, values, strict=True)), {**page.parameters, "profile": EXPLORE}
        for name, value in (file.set | point).items():
            parameter, dot, inner = name.partition(".")
            require_one_of(f"a parameter of {file.notebook}", parameter, page.parameters.keys() - {"profile"})
            require(not dot or isinstance(given[parameter], dict), f"{name}: {parameter} is no mapping")
            given[parameter] = {**given[parameter], inner: value} if dot else value
        text = ",".join(f"{name}={value}" for name, value in point.items())
        name = f"{re.sub('[^A-Za-z0-9=,._-]+', '', text)[:100]}-{cache.key(given)[:8]}"
        points[name], made[name] = point, replace(page, parameters=given, after=())
    return Sweep(file, path, points, made)


def run(sweep: Sweep, jobs: int) -> tuple[pd.DataFrame, int]:
    """Run the combinations that are not up to date; return all recorded rows, and 0, or 1 when one failed.

    Rows have a column for each varied parameter.
    """
    code, frames = build.run(sweep.folder, jobs, {"sweep": sweep.path.resolve()}, only=[*sweep.plans]), []
    for name, page in sweep.plans.items():
        if (sweep.folder / "notebooks" / f"{name}.ipynb").exists():
            folder = results.own_folder(EXPLORE, sweep.file.notebook, page.parameters)
            cells = {VARIED + each: _cell(value) for each, value in sweep.points[name].items()}
            frames.append(results.Results.read(folder).rows.assign(**cells))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), code


def _cell(value: Any) -> Any:
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return json.dumps(value) if isinstance(value, list | dict) else value


def summary(frame: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """Return the mean of the sweep's measure on the test split of each combination, its spread and number of seeds."""
    rows, measure = frame[frame["split"] == "test"], sweep.file.measure
    require_one_of("measure", measure, rows["measure"].unique())
    columns = [*(VARIED + name for name in sweep.file.vary), "system", "collection"]
    groups = rows[rows["measure"] == measure].groupby(columns, sort=False)["value"]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    return table.rename(columns={"mean": measure, "std": "deviation over seeds", "count": "seeds"})
