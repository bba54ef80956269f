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
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, SettingError, require, require_one_of
from retlib.core.notebook_files import EXPLORE, read_yaml
from retlib.evaluation import results
from retlib.studies.experiment import NonEmpty, Settings, Text, check
from retlib.workflow import build, notebooks
from retlib.workflow.execute import Page

VARIED = "varied "  # before the names of parameters in a frame: some are called as a recorded column is


class Sweep(Settings):
    """What the file of a sweep says."""

    notebook: Text
    profile: Text
    measure: Text
    set: dict[str, Any] = {}
    vary: dict[str, NonEmpty[Any]]


def folder(path: Path) -> Path:
    """Return where the executed copies of a sweep's file lie."""
    return runtime.build_dir() / "sweeps" / path.stem


def read(path: Path, root: Path) -> tuple[Sweep, dict[str, Page]]:
    """Return what a sweep's file says, and the page of each combination by a name for its copy."""
    content = read_yaml(path)
    try:
        sweep = check(Sweep, content)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{path.name}: {error}") from error
    plans = notebooks.plan(root, sweep.profile)
    require_one_of("notebook", sweep.notebook, plans)
    page, pages = plans[sweep.notebook], {}
    wrong = f"{sweep.notebook} cannot be run at profile {sweep.profile!r}: its data are not here, only recorded results"
    require(page.parameters["source"] == "run", wrong, DataError)
    for values in product(*sweep.vary.values()):
        point, given = dict(zip(sweep.vary, values, strict=True)), {**page.parameters, "profile": EXPLORE}
        for name, value in (sweep.set | point).items():
            parameter, dot, inner = name.partition(".")
            require_one_of(f"a parameter of {sweep.notebook}", parameter, page.parameters.keys() - {"profile"})
            require(not dot or isinstance(given[parameter], dict), f"{name}: {parameter} is no mapping")
            given[parameter] = {**given[parameter], inner: value} if dot else value
        text = re.sub("[^A-Za-z0-9=,._-]+", "", ",".join(f"{name}={value}" for name, value in point.items()))
        pages[f"{text[:100]}-{cache.key(given)[:8]}"] = replace(page, parameters=given, after=())
    return sweep, pages


def run(path: Path, jobs: int) -> tuple[pd.DataFrame, int]:
    """Run what is not up to date; return all rows, with a column for each varied parameter, and 1 when one failed."""
    sweep, pages = read(path, runtime.root())
    code, frames = build.run(folder(path), jobs, {"sweep": path.resolve()}, only=[*pages]), []
    for name, page in pages.items():
        if (folder(path) / "notebooks" / f"{name}.ipynb").exists():
            rows = results.Results.read(results.own_folder(EXPLORE, sweep.notebook, page.parameters)).rows
            frames.append(rows.assign(**{VARIED + name: _cell(page, name) for name in sweep.vary}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(), code


def _cell(page: Page, name: str) -> Any:
    parameter, dot, inner = name.partition(".")
    value = page.parameters[parameter][inner] if dot else page.parameters[parameter]
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return json.dumps(value) if isinstance(value, list | dict) else value


def summary(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the mean of a measure on the test split of each combination, its spread and number of seeds."""
    rows = rows[rows["split"] == "test"]
    require_one_of("measure", measure, rows["measure"].unique())
    columns = [*(name for name in rows if name.startswith(VARIED)), "system", "collection"]
    groups = rows[rows["measure"] == measure].groupby(columns, sort=False)["value"]
    table = groups.agg(["mean", "std", "count"]).reset_index()
    return table.rename(columns={"mean": measure, "std": "deviation over seeds", "count": "seeds"})
