"""The commands that the prose gives, each at its cheapest; those that ask for what a book recorded: test_build.py."""

import json
import shlex

import papermill
import pytest
from click.testing import CliRunner
from papermill.cli import papermill as papermill_cli
from prose import BOOK, OF_A_BOOK, ROOT, call, commands

from retlib.core import notebook_files
from retlib.workflow import notebooks
from retlib.workflow.cli import main

PAPERMILL = [command for command in commands() if command.startswith(".venv/bin/papermill")]
RETLIB = [command for command in commands() if "-m retlib" in command and command not in OF_A_BOOK]
MAKE = {
    "book": "-m retlib build --profile",
    "test": "-m pytest",
    "lab": "jupyter lab --notebook-dir . --preferred-dir notebooks",
}
OTHERS = {".venv/bin/jupyter-book build .": "test_batch.py", ".venv/bin/snakemake --dry-run": "below"}


def test_every_command_of_the_prose_is_tried():
    tried = [*PAPERMILL, *RETLIB, *OF_A_BOOK]
    assert any(command.startswith(BOOK) for command in commands())
    assert all(command.startswith(("make ", *OTHERS)) for command in commands() if command not in tried)


@pytest.mark.parametrize("command", RETLIB)
def test_a_command_of_the_package(command, own_build):
    _, _, _, name, *arguments = shlex.split(command)
    if name == "sweep":  # test_sweep.py runs one
        assert notebooks.read_sweep(ROOT, ROOT / arguments[0])[1]
        arguments = ["--help"]
    done = CliRunner().invoke(main, [name, *arguments])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", PAPERMILL)
def test_a_command_of_papermill_gives_parameters_that_the_notebook_takes(command, tmp_path):
    """Up to the cell that checks them."""
    _, notebook, _, *given = shlex.split(command)
    out = tmp_path / "out.ipynb"
    done = CliRunner().invoke(papermill_cli, [str(ROOT / notebook), str(out), *given, "--prepare-only"])
    assert done.exit_code == 0, done.output
    given = papermill.iorw.load_notebook_node(str(out)).metadata.papermill.parameters
    names = notebook_files.default_parameters(ROOT / notebook) | given
    for cell in notebook_files.cells(ROOT / notebook):
        tags = {*cell["metadata"].get("tags", ())}
        if cell["cell_type"] == "code" and "experiment" not in names and not tags & {"parameters", "answer"}:
            exec(notebook_files.source(cell), names)
    assert given and names["experiment"].live


@pytest.mark.slow
def test_papermill_runs_a_notebook(tmp_path, own_build):
    """One beside which stands a module of its own."""
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    done = call(next(each for each in PAPERMILL if "reqa" in each), tmp_path, RETLIB_BUILD=str(own_build))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [command for command in commands() if command.startswith("make ")])
def test_a_make_target_calls_what_is_tested(command):
    said = call(command.replace("make ", "make --always-make --dry-run ", 1)).stdout
    assert MAKE[command.split()[1]] in said


@pytest.mark.slow
def test_snakemake_and_jupyterlab_take_their_commands(tmp_path, own_build):
    (command,) = [command for command in commands() if command.startswith(".venv/bin/snakemake")]
    done = call(command, RETLIB_BUILD=str(own_build))
    assert done.returncode == 0 and "12_dual_encoder_losses" in done.stdout, done.stdout
    command = ".venv/bin/jupyter lab --notebook-dir . --preferred-dir notebooks --no-browser --show-config-json"
    done = call(command, JUPYTER_CONFIG_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout
    config = json.loads(done.stdout[done.stdout.index("\n{") :])["ServerApp"]
    assert config["default_url"] == "/lab" and (ROOT / config["root_dir"] / config["preferred_dir"]).is_dir()
