"""Sweeps over a notebook's parameters, on a toy notebook that records a number at once."""

import pandas as pd
import pytest
import toybook
import yaml
from click.testing import CliRunner

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.evaluation import results
from retlib.workflow import build, cli, notebooks

BODY = """
from retlib.evaluation.results import Results, own_folder

if rate > 5:
    raise ValueError("too fast")
made = Results()
for seed in seeds:
    for system in ("a", "b"):
        made.add_row(experiment="1_a", system=system, collection="toy", split="test", measure="R@1",
                     value=size * rate + seed + (system == "b"), seed=seed, profile=profile)
made.save(own_folder(profile, "1_a", {"seeds": seeds, "size": size, "rate": rate, "recipe": recipe}))
"""
PARAMETERS = 'profile = "explore"\nseeds = [0]\nsource = "run"\nsize = 1\nrate = 1.0\nrecipe = {}'
VARIED = {"size": [1, 10], "rate": [0.5, 2.0]}
TOLD = {"notebook": "1_a", "profile": "toy", "measure": "R@1", "set": {"seeds": [0, 2]}, "vary": VARIED}


@pytest.fixture
def root(tmp_path, monkeypatch, own_build):
    toybook.make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(toybook, "PARAMETERS", PARAMETERS)
        toybook.write_notebook(tmp_path / "notebooks" / "1_a.ipynb", BODY)
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    return tmp_path


def written(root, **changes):
    path = root / "mine.yaml"
    told = {name: value for name, value in (TOLD | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(told, sort_keys=False))
    return path


@pytest.mark.slow
def test_every_combination_is_run_once(root):
    path = written(root)
    table, code = build.sweep(path, jobs=2)
    assert code == 0
    expected = {(str(s), str(r), n): s * r + 1 + (n == "b") for s in (1, 10) for r in (0.5, 2.0) for n in "ab"}
    assert table.set_index(["varied size", "varied rate", "system"])["R@1"].to_dict() == expected
    assert (table["seeds"] == 2).all() and table["deviation over seeds"].round(4).eq(1.4142).all()
    assert len(set(results.rows("explore")["experiment"])) == 4  # explorations like any others
    # What is there is not run again, whatever else is asked for.
    before = stamps(path)
    table, _ = build.sweep(written(root, vary={"size": [10, 100], "rate": [2.0]}), jobs=2)
    assert sorted(table["varied size"].unique()) == ["10", "100"]
    after = stamps(path)
    assert len(before) == 4 and len(after) == 5 and before.items() <= after.items()


def stamps(path):
    return {each: each.stat().st_mtime_ns for each in runtime.build_dir().glob(f"sweeps/{path.stem}/notebooks/*.ipynb")}


@pytest.mark.slow
def test_a_failed_combination_is_named_and_the_others_are_there(root):
    done = CliRunner().invoke(cli.main, ["sweep", str(written(root, vary={"rate": [1.0, 9.0]})), "--format", "csv"])
    assert done.exit_code == 1 and "ValueError: too fast" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "varied rate,system,collection,R@1,deviation over seeds,seeds" and len(lines) == 3
    assert len(pd.read_csv(runtime.build_dir() / "sweeps" / "mine" / "results.csv")) == 4


def test_names_are_names_of_files(root):
    _, pages = notebooks.read_sweep(root, written(root, vary={"size": ["a/b", "ab", {"a": "b"}, "x" * 300]}, set=None))
    assert len(pages) == 4 and all("/" not in name and len(name) < 200 for name in pages)


def test_a_value_within_a_parameter_varies_and_the_profile_s_others_stay(root):
    toybook.set_profile(root, "toy", {"1_a": {"parameters": {"recipe": {"layers": 2, "width": 64}}}})
    _, pages = notebooks.read_sweep(root, written(root, set={"recipe.width": 128}, vary={"recipe.layers": [0, 1]}))
    assert [page.parameters["recipe"] for page in pages.values()] == [
        {"layers": 0, "width": 128}, {"layers": 1, "width": 128},
    ]  # fmt: skip


def test_test_rows_alone_count_and_parameters_may_be_called_as_recorded_columns_are():
    rows = pd.DataFrame({"system": ["a", "b", "b"], "split": ["test", "test", "dev"], "value": [1.0, 2.0, 9.0]})
    rows = rows.assign(collection="toy", measure="R@1", seed=0)
    rows = pd.concat([rows.assign(**{"varied seeds": each}) for each in (0, 1)])
    table = build.summary(rows, "R@1")[["varied seeds", "system", "R@1", "seeds"]]
    assert table.to_numpy().tolist() == [[0, "a", 1.0, 1], [0, "b", 2.0, 1], [1, "a", 1.0, 1], [1, "b", 2.0, 1]]
    with pytest.raises(SettingError, match="R@1"):
        build.summary(rows, "AP@7")


def test_without_its_data_a_notebook_is_not_swept(root, monkeypatch):
    monkeypatch.setenv("RETLIB_DATA", "")
    toybook.set_profile(root, "toy", {"1_a": {"needs": ["quora"]}})
    (root / "data" / "reference" / "toy" / "1_a").mkdir(parents=True)
    with pytest.raises(DataError, match="1_a"):
        notebooks.read_sweep(root, written(root))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"notebook": "9_x"}, "'9_x'"), ({"profile": "quik"}, "'quik'"), ({"vary": {"sice": [1]}}, "sice"),
        ({"vary": {"size": []}}, "size"), ({"set": {"profile": "toy"}}, "profile"), ({"vary": {"rate.x": [1]}}, "rate"),
        ({"measure": None}, "measure"), ({"vary": ["size"]}, "vary"), ({"seeds": [0]}, "seeds"),
    ],
)  # fmt: skip
def test_wrong_files(root, changes, name):
    with pytest.raises((DataError, SettingError), match=name):
        notebooks.read_sweep(root, written(root, **changes))


def test_the_sweeps_of_the_repository_can_be_read():
    files = [*runtime.root().glob("notebooks/sweeps/*.yaml")]
    assert files and all(notebooks.read_sweep(runtime.root(), path)[1] for path in files)
