"""Published rows: pages are drawn from them, without the data and without training, and have the profile's seeds."""

import json
from functools import cache

import pandas as pd
import pytest

from retlib.core import notebook_files, runtime
from retlib.evaluation import results
from retlib.evaluation.measures import is_score
from retlib.workflow import notebooks
from retlib.workflow.execute import execute

ROOT = runtime.root()
plan = cache(notebooks.plan)
RECORDED = [
    rows.parts[-3:-1]
    for profile in notebooks.profiles(ROOT)
    for rows in sorted((ROOT / "data" / "reference" / profile).glob("*/rows.parquet"))
]
# Each notebook once, with the rows that tell most.
PAGES = {name: profile for best in ("quick", "checkpoint", "laptop") for profile, name in RECORDED if profile == best}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_from_published_rows(name, monkeypatch, tmp_path):
    monkeypatch.setenv("RETLIB_DATA", "")  # which may hold the data
    chosen = plan(ROOT, PAGES[name])[name]
    parameters = {**chosen.parameters, "source": "reference"}
    execute(chosen.page.notebook, tmp_path, parameters, name, chosen.page.words)


@pytest.mark.parametrize(("profile", "name"), RECORDED, ids=map(" ".join, RECORDED))
def test_a_profile_says_the_seeds_of_its_published_rows(profile, name):
    rows = pd.read_parquet(results.reference_folder(profile, name) / "rows.parquet", columns=["seed", "measure"])
    rows = rows[rows["measure"].map(is_score)]  # times are of repetitions
    parameters = plan(ROOT, profile)[name].parameters
    further = {*parameters.get("further_seeds", ())}.union(*parameters.get("layered_seeds", {}).values())
    assert set(rows["seed"]) <= {*parameters["seeds"], *further}


@pytest.mark.parametrize("profile", ["quick", "laptop"])
def test_chapter_22_declares_the_steps_and_seeds_of_its_published_rows(profile, monkeypatch):
    """Each collection has steps of its own, and what has layers has further seeds on some: all by their names."""
    declared: dict[tuple[str, str], tuple[int, set[int]]] = {}
    chosen = plan(ROOT, profile)["22_reqa"]
    names = {**notebook_files.declared(chosen.page.notebook), **chosen.parameters, "source": "reference"}
    monkeypatch.setattr(
        "retlib.studies.part2.targets",
        lambda _, collections, share, whole=False: [f"{name}-{share:g}{'-all' * whole}" for name in collections],
    )

    def run(study, experiment, only=None, further_seeds=()):
        seeds = {*chosen.parameters["seeds"], *further_seeds}
        trained = {name: each.stages[-1].steps for name, each in study.systems.items() if each.trained}
        declared.update({(name, test): (steps, seeds) for name, steps in trained.items() for test in study.targets})

    monkeypatch.setattr("retlib.studies.study.Study.run", run)
    code = [cell for cell in notebook_files.cells(chosen.page.notebook) if cell["cell_type"] == "code"]
    sources = [notebook_files.source(cell) for cell in code if "parameters" not in cell["metadata"].get("tags", ())]
    for source in sources[: 1 + next(i for i, source in enumerate(sources) if "Study(" in source)]:
        exec(source, names)
    rows = pd.read_parquet(results.reference_folder(profile, "22_reqa") / "rows.parquet")
    of_training = rows[rows["seconds"].gt(0) & rows["measure"].map(is_score)]
    recorded = {
        place: (json.loads(mine["parameters"].iloc[0])["stages"][-1]["steps"], {*mine["seed"]})
        for place, mine in of_training.groupby(["system", "collection"])
    }
    assert recorded == declared
