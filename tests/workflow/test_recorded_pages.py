"""Published rows: pages are drawn from them, without the data and without training, and have the profile's seeds."""

from functools import cache

import matplotlib.pyplot as plt
import pages
import pandas as pd
import pytest

from retlib.core import notebook_files, runtime
from retlib.evaluation import results
from retlib.workflow import notebooks
from retlib.workflow.execute import run_cells

ROOT = runtime.root()
plan = cache(notebooks.plan)
RECORDED = sorted(rows.parts[-3:-1] for rows in ROOT.glob("data/reference/*/*/rows.parquet"))
RECORDED = [each for each in RECORDED if each[0] in notebook_files.profiles(ROOT)]
# Each notebook once, with the rows that tell most.
PAGES = {name: profile for best in ("quick", "checkpoint", "laptop") for profile, name in RECORDED if profile == best}
# And those from public starts that have claims.
TESTED = [(name, profile) for profile, name in RECORDED if "claims" in results.load(name, profile, "reference").tables]
PAGES = sorted({*PAGES.items(), *(each for each in TESTED if each[1] == "checkpoint")})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "profile"), PAGES)
def test_a_page_is_drawn_from_published_rows_and_tests_its_claims_alike(name, profile, monkeypatch):
    """In this process, its answer too; the book of test_build.py has a kernel for each."""
    monkeypatch.setenv("RETLIB_DATA", "")  # which may hold the data
    monkeypatch.chdir(ROOT / "notebooks")
    chosen = plan(ROOT, profile)[name]
    page = run_cells(
        chosen.notebook, ("parameters",), **{**chosen.parameters, "profile": profile, "source": "reference"}
    )
    plt.close("all")
    published = results.load(name, profile, "reference").tables.get("claims")
    if published is not None:
        found = page["experiment"].results.tables["claims"]
        pd.testing.assert_frame_equal(found, published, check_dtype=False, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("profile", "name"), RECORDED, ids=map(" ".join, RECORDED))
def test_the_seeds_of_a_profile_are_recorded(profile, name):
    """More may be: a profile runs those that decide."""
    rows = pd.read_parquet(results.reference_folder(profile, name) / "rows.parquet", columns=["seed", "measure"])
    rows = rows[rows["measure"].str.fullmatch(r"\S+@\d+")]  # times are of repetitions
    assert rows.empty or {*plan(ROOT, profile)[name].parameters["seeds"]} <= set(rows["seed"])


# Of other parts some systems are chosen by validation, with data that are not here.
CHAINS = [each for each in RECORDED if each[0] in ("quick", "laptop") and each[1].startswith(("2", "3", "4"))]


@pytest.mark.parametrize(("profile", "name"), CHAINS, ids=map(" ".join, CHAINS))
def test_every_system_is_declared_as_it_was_trained_for_its_published_rows(profile, name):
    chosen = plan(ROOT, profile)[name]
    _, studies = pages.declared(chosen.notebook.stem, chosen.parameters)
    rows = results.load(name, profile, "reference").rows
    assert [each for declared, _ in studies for each in pages.stale(declared.systems, rows)] == []
