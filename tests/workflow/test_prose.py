"""The commands that the prose gives, but for those that ask for what a book recorded: these are in test_build.py."""

import json

import pytest
from prose import BOOK, ELSEWHERE, ROOT, call, commands, run_as_they_stand

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A build folder that the commands share."""
    return tmp_path_factory.mktemp("prose")


def test_every_command_of_the_prose_is_run():
    assert BOOK in commands()
    assert set(ELSEWHERE) <= set(commands())


@pytest.mark.parametrize("command", run_as_they_stand(of_a_book=False))
def test_a_command_of_the_prose(build, tmp_path, command):
    """As it stands; papermill's among them, whose output goes to a folder of its own."""
    cwd = ROOT
    if "papermill" in command:
        (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
        cwd = tmp_path
    done = call(command, cwd, RETLIB_BUILD=str(build))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [word for word in commands() if word.startswith("make ")])
def test_a_make_target_calls_what_is_tested(command):
    said = call(command.replace("make ", "make --always-make --dry-run ", 1)).stdout
    expected = {
        "book": "-m retlib build --profile",
        "test": "-m pytest",
        "lab": "jupyter lab --notebook-dir . --preferred-dir notebooks",
    }
    assert expected[command.split()[1]] in said


def test_jupyterlab_opens_the_notebooks(tmp_path):
    """The command of `make lab` is one that JupyterLab takes, and what it would open is there."""
    command = ".venv/bin/jupyter lab --notebook-dir . --preferred-dir notebooks --no-browser --show-config-json"
    done = call(command, JUPYTER_CONFIG_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout
    config = json.loads(done.stdout[done.stdout.index("\n{") :])["ServerApp"]
    assert config["default_url"] == "/lab" and (ROOT / config["root_dir"] / config["preferred_dir"]).is_dir()
