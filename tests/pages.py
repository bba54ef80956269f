"""What a notebook declares, without training: its cells that declare systems are run, and its studies listed."""

import json
from unittest.mock import MagicMock

import pytest

from retlib.core import notebook_files, runtime
from retlib.data import datasets
from retlib.studies.experiment import Experiment
from retlib.studies.study import Study
from retlib.systems.system import System

NOTEBOOKS = runtime.root() / "notebooks"
# Cells with one of these words declare what is recorded, or record it.
WORDS = ("Experiment(", "targets =", "recipe.architecture(", "recipe.start(", "recipe.pretrained(")
WORDS += ("recipe.generator(", "Stage(", "Study(")


def declared(page, parameters, load=None):
    """The names in a notebook once it has run, and its studies, each with `only` as `Study.run` has it.

    With `load`, which gives a collection of a name, it runs; else it shows what is recorded, and loads nothing.
    """
    notebook, studies = NOTEBOOKS / f"{page}.ipynb", []
    names = {**notebook_files.default_parameters(notebook), **parameters, "source": "run" if load else "reference"}
    code = [notebook_files.source(cell) for cell in notebook_files.cells(notebook) if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", load or (lambda name: pytest.fail(f"{name} is loaded")))
        patch.setattr(Study, "run", lambda self, _, only=None, further_seeds=(): studies.append((self, only or {})))
        if load:
            patch.setattr(Experiment, "table", MagicMock())
        for text in code:
            if any(word in text for word in WORDS) and not text.startswith("def answer"):
                exec(text, names)
    return names, studies


def stale(systems, rows):
    """The systems of recorded rows that have other stages now: another number of them, or trained otherwise."""
    recorded = rows.dropna(subset="parameters").groupby("system")["parameters"].unique()
    names = []
    for name, system in systems.items():
        if isinstance(system, System) and name in recorded:
            stages = [[_set(stage) for stage in json.loads(each).get("stages", ())] for each in recorded[name]]
            if [_set({"data": stage.data, **stage.training_settings}) for stage in system.stages] not in stages:
                names.append(name)
    return names


def _set(settings):
    # What is set, of data their number; a setting that came later is off in rows from before.
    values = {name: _set(value) if isinstance(value, dict) else value for name, value in settings.items()}
    return {name: len(value) if name == "data" else value for name, value in values.items() if value}
