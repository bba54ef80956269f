"""The command line: what it prints, and how it ends."""

import io
import json
import re
import subprocess
import sys

import pandas as pd
import pytest
from click.testing import CliRunner
from recorded import claims_table, outcome

from retlib.core import runtime
from retlib.data.datasets import catalogue
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report.papers import papers_table
from retlib.workflow.cli import main


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An own run of one experiment and a reference of another, with the real claims."""
    root = runtime.root()
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("papers", "catalogue.yaml"):
        (tmp_path / "data" / name).symlink_to(root / "data" / name)
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    for experiment, folder in (("11", results.own_folder), ("12", results.reference_folder)):
        save(folder("quick", experiment), experiment=experiment, profile="quick", steps=None, parameters="{}")
    return tmp_path


def save(folder, **row):
    made = Results()
    for seed in (0, 1):
        made.add_row(system="BM25", collection="quora", split="test", measure="AP@100", value=0.5, seed=seed, **row)
    made.save(folder)


def call(*arguments):
    return CliRunner().invoke(main, arguments)


def shown(*arguments):
    """The table that a command prints."""
    printed = call(*arguments, "--format", "csv")
    assert printed.exit_code == 0, printed.output
    return pd.read_csv(io.StringIO(printed.stdout))


def test_help_lists_the_commands():
    printed = call("--help").output
    assert all(name in printed and call(name, "-h").exit_code == 0 for name in main.commands)


def test_results_as_csv_have_the_promised_columns_first(places):
    frame = shown("results", "--profile", "quick")
    assert frame.columns[: len(results.FIRST)].tolist() == results.FIRST
    assert frame["source"].tolist() == ["run", "run", "reference", "reference"]
    assert frame["seed"].tolist() == [0, 1, 0, 1] and (frame["value"] == 0.5).all()


def test_a_chapters_explorations_are_shown_together_or_one_by_its_name(places):
    for experiment, size in (("12", 1), ("12", 2), ("123", 1)):
        save(results.own_folder("explore", experiment, {"size": size}), experiment=experiment, profile="explore")
    names = sorted(results.own_folder("explore", "12", {"size": size}).name for size in (1, 2))
    for chapter, expected in (("12", names), (names[1], names[1:])):
        assert shown("results", chapter, "--profile", "explore")["experiment"].unique().tolist() == expected
    assert call("results", "12+", "--profile", "explore").exit_code == 2


def test_one_chapter_has_results_of_its_own(places):
    assert shown("results", "12")["experiment"].tolist() == [12, 12]
    refused = call("results", "13")
    assert refused.exit_code == 2 and "'13'" in refused.stderr
    by_eye = call("results").output
    assert "BM25" in by_eye and "reference" in by_eye and "parameters" not in by_eye


@pytest.mark.parametrize("command", ["results", "claims"])
def test_nothing_recorded_or_unreadable_rows_end_with_two(places, command):
    refused = call(command, "--profile", "laptop")
    assert (refused.exit_code, refused.stdout) == (2, "") and "Run: make book PROFILE=laptop" in refused.stderr
    folder = results.own_folder("quick", "11")
    (folder / "rows.parquet").write_bytes(b"rubbish")
    refused = call(command)
    assert refused.exit_code == 2 and str(folder) in refused.stderr and "Traceback" not in refused.output


def test_claims_end_with_nought_whatever_the_verdicts(places):
    lines = call("claims").stdout.splitlines()
    assert len(lines) == 1 + len(papers_table("claims")) and max(map(len, lines)) < 220
    assert call("claims").stderr == "Profile quick; chapters of your own run: 1, published: 1.\n"
    frame = shown("claims")
    assert frame.columns.tolist() == ["claim", "verdict", "by_bh", "p", "seeds", "fidelity", "evidence"]
    assert sorted(frame["claim"]) == sorted(papers_table("claims")["id"])
    assert set(frame["verdict"]) == {"not tested"} and frame["evidence"].notna().all()


def test_datasets_lists_the_catalogue():
    assert {"quora", "squad", "bioasq"} <= set(shown("datasets")["name"])
    assert "http" not in call("datasets").output


def test_a_corpus_is_asked_by_its_place_without_what_trains_or_draws(tmp_path):
    (tmp_path / "sorting.md").write_text("# Sorting\n\nA list is sorted in place. It is stable.\n")
    (tmp_path / "cafe.txt").write_text("Cafe\u0301 riders meet.\n")
    printed = call("search", f"folder:{tmp_path}", "how are lists sorted", "--depth", "1").output
    assert printed.splitlines()[1] == "BM25"
    assert "sorting.md#0: Sorting A list is sorted" in printed and "cafe" not in printed
    assert "BM25: no match" in call("search", f"folder:{tmp_path}", "zzzz").output
    code = f"""if True:
        import sys
        from click.testing import CliRunner
        from retlib.workflow.cli import main
        print(CliRunner().invoke(main, ["search", "folder:{tmp_path}", "cafe\u0301"]).output)
        print({{"torch", "transformers", "matplotlib", "IPython", "sklearn"}} & {{*sys.modules}})"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "cafe.txt#0: cafe Café riders meet." in ended.stdout and ended.stdout.endswith("set()\n")
    refused = call("search", "nowhere", "x")
    assert refused.exit_code == 2 and "folder:<path>" in refused.output


def test_what_cannot_be_asked_is_refused_before_the_corpus_is_read(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("Trees grow in the wood.\n")
    bert = {"model_type": "bert", "max_position_embeddings": 8, "num_hidden_layers": 1, "hidden_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(bert))
    monkeypatch.setattr("retlib.data.datasets.load", lambda name: pytest.fail("the corpus was read"))
    for asked, wrong in ((["?!"], "needs a word"), (["trees", "--system", str(tmp_path)], "there is no ")):
        refused = call("search", f"folder:{tmp_path}", *asked)
        assert refused.exit_code == 2 and wrong in refused.stderr


def test_fetch_prints_what_it_did_and_errors_in_one_line(monkeypatch):
    refused = call("fetch", "quroa")
    assert refused.exit_code == 2 and re.fullmatch("error: .*'quora'.*\n", refused.stderr)
    monkeypatch.setattr(catalogue, "fetch", lambda name: iter([f"{name}: here"]))
    assert call("fetch", "quora").output == "quora: here\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("results", "--format", "xml"), ("claims", "--profile", "quik"), ("resluts",), ("fetch",), (),
        ("sweep", "nowhere.yaml"), ("build", "--seeds", "2147483648"),
        ("build", "--seeds", "1,2"), ("build", "--seeds", "0 -1"), ("build", "--jobs", "0"),
        ("--profile", "quick", "claims"),
    ],
)  # fmt: skip
def test_a_wrong_call_ends_with_two_and_says_where_more_is_told(arguments):
    found = call(*arguments)
    assert found.exit_code == 2 and isinstance(found.exception, SystemExit)
    assert found.output == found.stderr and "Usage: " in found.stderr


def test_make_help_names_every_target():
    targets = re.search(r"^\.PHONY: help (.*)", (runtime.root() / "Makefile").read_text(), re.MULTILINE)[1].split()
    printed = subprocess.getoutput(f"make -C '{runtime.root()}' --no-print-directory help")
    assert {*targets, ".venv/ready"} == set(re.findall(r"^make (\S+)", printed, re.MULTILINE))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "file" / "build"))
    found = call("build", "--profile", "smoke")
    assert found.exit_code == 2 and found.stderr.startswith("error: ") and str(tmp_path) in found.stderr


# --- one claim -------------------------------------------------------------------------------------

CLAIM = "gillick2018-softmax-over-pairwise-ce"


@pytest.fixture
def built(monkeypatch):
    """What `rerun` asks the book for; nothing is run, and the book ends with `built["code"]`."""
    asked = {"code": 0}

    def build(profile, jobs, seeds, options=(), only=()):
        asked.update(profile=profile, jobs=jobs, seeds=seeds, only=list(only))
        return asked["code"]

    monkeypatch.setattr("retlib.workflow.build.build", build)
    return asked


def test_a_claim_is_rerun_by_its_notebooks_and_judged(places, built):
    folder = results.own_folder("quick", "12_dual_encoder_losses")
    save(folder, experiment=folder.name)
    made = Results.read(folder)
    made.tables["claims"] = claims_table(outcome(CLAIM, 1e-6, data_sets='["Quora"]', collections='["pydocs-numeric"]'))
    made.save(folder)
    found = call("rerun", CLAIM, "--jobs", "3", "--seeds", "0 1 2")
    assert found.exit_code == 0, found.output
    assert built == {"code": 0, "profile": "quick", "jobs": 3, "seeds": [0, 1, 2], "only": ["12_dual_encoder_losses"]}
    assert CLAIM in found.output and "holds" in found.output
    assert "A − B, R@1" in found.output and "+2" in found.output


@pytest.mark.parametrize("code", [0, 1])
def test_a_claim_without_results_says_why_and_a_failed_notebook_leaves_no_verdict(places, built, code):
    built["code"] = code
    found = call("rerun", CLAIM)
    assert built["seeds"] == [] and found.exit_code == code
    assert ("not tested" in found.output) is (code == 0)


def test_a_claim_that_is_none_is_refused_before_any_work(places, built):
    found = call("rerun", "gillick2018-softmax")
    assert found.exit_code == 2 and "Did you mean 'gillick2018-softmax-" in found.output and "only" not in built
