"""The notebooks' own form, the profiles, and how parameters are resolved."""

import json
import os
import signal
import time
from functools import partial

import pytest
import toybook
import yaml
from recorded import number

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, RetlibError, SettingError
from retlib.evaluation import results
from retlib.workflow import notebooks
from retlib.workflow.execute import Page, execute

ROOT = runtime.root()
PAGES = notebooks.pages(ROOT)
FILES = sorted({page.notebook for page in PAGES.values()})


@pytest.fixture
def toy(tmp_path):
    toybook.make(tmp_path)
    return tmp_path


@pytest.mark.parametrize("notebook", FILES, ids=lambda notebook: notebook.stem)
def test_a_notebook_has_the_common_form(notebook):
    """No outputs, no traces of a run, one parameters cell with what every notebook has, a title, ids."""
    cells, metadata = (json.loads(notebook.read_text())[part] for part in ("cells", "metadata"))
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    common = {"profile": "explore", "seeds": [0], "source": "run"}
    assert common.items() <= notebook_files.default_parameters(notebook).items()
    assert notebook_files.source(cells[0]).startswith("# ")
    assert metadata["kernelspec"]["name"] == "python3" and set(metadata) <= {"kernelspec", "language_info"}


def test_every_notebook_is_in_the_book():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = [chapter for part in toc["parts"] for chapter in part["chapters"]]
    chapters = [toc["root"], *(each["file"] for one in listed for each in (one, *one.get("sections", ())))]
    shown = sorted(file.removeprefix("notebooks/") for file in chapters if file.startswith("notebooks/"))
    without = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["exclude_patterns"]
    tools = ["62_speed", "90_explore"]  # notebooks to run, and no pages
    assert sorted([*shown, *tools]) == list(PAGES) and {f"notebooks/{name}.ipynb" for name in tools} <= {*without}
    assert all((ROOT / f"{file}.md").exists() for file in chapters if not file.startswith("notebooks/"))


def test_a_paper_s_pages_are_made_of_templates(toy, tmp_path):
    toybook.add_paper(toy)
    toybook.set_profile(toy, "toy", {"3_c": {"after": ["page"]}, "4_p": {"parameters": {"wait": 0.05}}})
    plans = notebooks.plan(toy, "toy")
    assert list(plans) == ["1_a", "2_b", "3_c", "4_p"]  # the template itself is no page
    assert plans["3_c"].after == ("4_p",) and plans["4_p"].after == ("1_a",)
    assert plans["4_p"].parameters["wait"] == 0.05
    copy = execute(plans["4_p"], tmp_path / "out", "4_p")
    assert copy == tmp_path / "out" / "notebooks" / "4_p.ipynb" and toybook.printed(copy) == "of some2020\n"
    assert notebook_files.source(notebook_files.cells(copy)[0]) == '# Part I\n\nWell. {doc}`4_p`, some2020: "T"'


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"part": None}, "part"), ({"chapters": "1_a"}, "chapters"), ({"chapters": ["1_b"]}, "'1_b'"),
        ({"pages": {"page": 3}}, "pages"), ({"year": 2020}, "year"), (None, "papers.yaml"),
    ],
)  # fmt: skip
def test_a_paper_of_another_form_is_refused(toy, changes, name):
    toybook.add_paper(toy)
    path = toy / "data" / "papers" / "papers.yaml"
    paper = yaml.safe_load(path.read_text())["some2020"]
    path.write_text(yaml.safe_dump({"some2020": changes and paper | changes}))
    with pytest.raises((SettingError, DataError), match=name):
        notebooks.plan(toy, "toy")


@pytest.mark.parametrize("profile", notebook_files.profiles(ROOT))
def test_a_profile_can_be_planned_and_its_first_pages_come_after_all_verdicts(profile):
    plans = notebooks.plan(ROOT, profile)
    assert any(plan.parameters["profile"] == profile for plan in plans.values())
    for plan in plans.values():
        name = plan.parameters["profile"]
        recorded = (ROOT / "data" / "reference" / name / plan.notebook.stem).is_dir()
        assert plan.parameters["source"] == "reference" or name == profile or not recorded
    verdicts = {name for name in plans if plans[name].notebook.stem == "verdicts"}
    assert all(verdicts <= set(plans[name].after) for name in ("01_ledger", "03_claims"))


def test_parameters_are_complete_and_in_the_notebook_s_order(toy):
    toybook.set_profile(toy, "toy", {"2_b": {"parameters": {"wait": 2.0}}})
    complete = {"profile": "toy", "seeds": [3, 4], "source": "run", "wait": 2.0, "fail": False}
    assert [*notebooks.plan(toy, "toy", seeds=[3, 4])["2_b"].parameters.items()] == [*complete.items()]


def test_what_a_profile_does_not_list_may_be_drawn_from_what_another_recorded(toy):
    toybook.set_profile(toy, "mine", {"others": "toy", "2_b": {"parameters": {"wait": 2.0}}})
    toybook.set_profile(toy, "toy", {"1_a": {"parameters": {"wait": 1.0}}})
    (toy / "data" / "reference" / "toy" / "1_a").mkdir(parents=True)
    plans = {name: [*page.parameters.values()][:4] for name, page in notebooks.plan(toy, "mine", seeds=[3]).items()}
    expected = ["toy", [0], "reference", 1.0], ["mine", [3], "run", 2.0], ["toy", [0], "run", 0.0]
    assert [*plans.items()] == [*zip(("1_a", "2_b", "3_c"), expected, strict=True)]


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ({"others": "tyo"}, "'tyo'"),
        ({"9_z": {}}, "9_z.*1_a, 2_b, 3_c"),
        ({"2_b": {"parameters": {"wiat": 1}}}, "wiat.*'wait'"),
        ({"2_b": {"parametres": {}}}, "2_b.*parametres.*'parameters'"),
        ({"2_b": {"after": ["nobody"]}}, "nobody"),
        ({"2_b": {"needs": ["nothing-of-the-kind"]}}, "nothing-of-the-kind.*quora"),
        ({"2_b": 1}, "2_b in toy.yaml"),
        ({"others": ["toy"]}, "'toy'"),
        ({"2_b": {"after": "1_a"}}, "2_b in toy.yaml.*after"),
        ({"2_b": {"parameters": ["wait"]}}, "2_b in toy.yaml.*parameters"),
    ],
)
def test_a_wrong_profile_is_refused(toy, entries, names):
    toybook.set_profile(toy, "toy", entries)
    with pytest.raises((SettingError, DataError), match=names):
        notebooks.plan(toy, "toy")
    with pytest.raises(SettingError, match="tyo.*'toy'"):
        notebooks.plan(toy, "tyo")


NOT_YAML = ["a: [", "[" * 3000, "a: !!bool x", "a: !!timestamp x"]
NOT_JSON = ["1_a: 2026-01-01", "1_a: &x [*x]", "1_a: .nan", r'1_a: "\ud83d"']


@pytest.mark.parametrize("text", [*NOT_YAML, *NOT_JSON])
def test_a_profile_is_yaml_and_holds_what_json_does(toy, text):
    (toy / "notebooks" / "profiles" / "toy.yaml").write_text(text)
    with pytest.raises(DataError, match="toy.yaml"):
        notebooks.plan(toy, "toy")


@pytest.mark.parametrize("text", ["seeds = list(range(3))", "import os", "a, b = 1, 2", "{", "[]", "{}", "[" * 9999])
def test_a_notebook_has_parameters_and_they_are_literals(toy, text):
    notebook = toy / "notebooks" / "1_a.ipynb"
    notebook.write_text(notebook.read_text().replace("wait = 0.0", text) if " " in text else text)
    with pytest.raises(DataError, match="1_a"):
        notebook_files.default_parameters(notebook)


def test_absent_data_turn_to_recorded_results_where_there_are_some(toy, tmp_path, monkeypatch):
    monkeypatch.delenv("RETLIB_DATA", raising=False)
    entries = {"1_a": {"needs": ["quora"]}, "2_b": {"needs": ["pydocs"]}, "3_c": {"needs": ["quora"]}}
    toybook.set_profile(toy, "toy", entries)
    for name in ("1_a", "2_b"):
        (toy / "data" / "reference" / "toy" / name).mkdir(parents=True)
    sources = {name: plan.parameters["source"] for name, plan in notebooks.plan(toy, "toy").items()}
    # pydocs is always here; nothing is recorded for 3_c, whose own error will say what to fetch.
    assert sources == {"1_a": "reference", "2_b": "run", "3_c": "run"}
    file = tmp_path / "own" / "quora" / "quora_duplicate_questions.tsv"
    file.parent.mkdir(parents=True)
    file.write_text("anything")
    monkeypatch.setenv("RETLIB_DATA", str(tmp_path / "own"))
    assert notebooks.plan(toy, "toy")["1_a"].parameters["source"] == "run"


def test_the_most_telling_recorded_results_are_shown(toy):
    for profile in ("quick", "laptop", "smoke"):
        toybook.set_profile(toy, profile, {})
        (toy / "data" / "reference" / profile / "1_a").mkdir(parents=True)
    parameters = notebooks.reference_plan(toy, "1_a").parameters
    assert (parameters["profile"], parameters["source"]) == ("laptop", "reference")
    assert notebooks.reference_plan(toy, "2_b") is None


def test_a_run_moves_its_copy_into_place_with_its_figures_whatever_the_environment_says(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = toy / "notebooks" / "1_a.ipynb"
    toybook.write_notebook(notebook, "import os\nprint(profile, seeds, source, os.environ['MPLBACKEND'])")
    printed = toybook.printed(execute(Page(notebook, {"seeds": [7]}), tmp_path / "out", "1_a"))
    assert printed.startswith("explore [7] run ") and "inline" in printed and os.environ["MPLBACKEND"] == "Agg"
    assert not list((tmp_path / "out" / "running").iterdir())


@pytest.mark.parametrize(("fail", "message"), [(True, "ValueError: told to fail"), ("die", "DeadKernelError")])
def test_a_failed_copy_is_kept(toy, tmp_path, fail, message):
    """The second is a kernel killed from outside, as for want of memory."""
    with pytest.raises(RetlibError, match=f"{message}[\\s\\S]*failed/1_a.ipynb"):
        execute(Page(toy / "notebooks" / "1_a.ipynb", {"fail": fail}), tmp_path, "1_a")
    assert [path.parent.name for path in tmp_path.glob("*/1_a.ipynb") if path.parent != toy / "notebooks"] == ["failed"]


# --- the published rows ----------------------------------------------------------------------------

RECORDS = """
import time
from retlib.evaluation import results
time.sleep(wait)
made, row = results.Results(), dict(system="BM25", collection="toy", split="test", measure="RR@10", value=0.5)
made.add_row(experiment="1_a", seed=seeds[0], **row)
"""


@pytest.fixture
def recording(toy, monkeypatch):
    """A call of `record` in a book whose chapter 1_a records a row; a row of seed 8 was published before."""
    monkeypatch.setattr(runtime, "root", lambda: toy)
    own = 'made.save(results.own_folder(profile, "1_a"))'
    toybook.write_notebook(toy / "notebooks" / "1_a.ipynb", RECORDS + own)
    exec(RECORDS, made := {"wait": 0, "seeds": [8]})
    made["made"].save(results.reference_folder("toy", "1_a"))
    return partial(toybook.call, toy, "record", "--profile", "toy")


def published_seeds():
    return results.load("1_a", "toy", "reference").rows["seed"].tolist()


def test_what_a_chapter_records_takes_the_place_of_what_was_published(toy, recording, monkeypatch):
    """What is unknown or without its data records nothing."""
    monkeypatch.setenv("RETLIB_DATA", "")  # which may hold them
    toybook.set_profile(toy, "toy", {"1_a": {"needs": ["quora"]}})
    for chapter, name in (("1_b", "'1_b'"), ("1_a", "its data")):
        code, said = recording(chapter)
        assert code == 2 and name in said and published_seeds() == [8]
    toybook.set_profile(toy, "toy", {"1_a": {"parameters": {"seeds": [3]}}})
    code, said = recording("1_a")
    assert code == 0 and published_seeds() == [3], said


def test_a_recording_that_is_stopped_publishes_nothing(toy, recording):
    toybook.set_profile(toy, "toy", {"1_a": {"parameters": {"wait": 1000}}})
    process = toybook.start(toy, "record", "--profile", "toy", "1_a")
    while not [*(toy / "_build" / "toy" / "running").glob("*")]:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and published_seeds() == [8], said


def test_the_published_book_needs_no_data():
    """What needs files that may be absent has recorded results to show instead."""
    needy = {name for name, entry in notebook_files.settings(ROOT, "laptop").items() if entry.get("needs")}
    assert needy and needy <= {folder.name for folder in (ROOT / "data" / "reference" / "laptop").iterdir()}


def test_what_a_notebook_costs_is_what_its_published_rows_took(tmp_path, monkeypatch):
    made = results.Results()
    for system, seed, seconds, memory in (("A", 0, 3600.0, 4e9), ("A", 1, 1200.0, 8e9), ("BM25", 0, None, 1e9)):
        for measure in ("R@1", "R@10"):  # one training, two rows
            number(made, system, {seed: 0.5}, measure=measure, seconds=seconds, peak_memory=memory)
    monkeypatch.setattr(notebooks, "reference_folder", lambda profile, name: tmp_path / profile / name)
    made.save(tmp_path / "laptop" / "x")
    assert notebooks.cost("x", "laptop") == notebooks.cost("x", "mine") == (4800, 8000)
    assert notebooks.cost("no rows", "laptop") == (0, 0)


def test_other_seeds_take_the_place_of_further_ones_too():
    given = notebooks.plan(ROOT, "laptop")["22_reqa"].parameters
    asked = notebooks.plan(ROOT, "laptop", seeds=[0])["22_reqa"].parameters
    assert given["further_seeds"] and (asked["seeds"], asked["further_seeds"], asked["layered_seeds"]) == ([0], [], {})
