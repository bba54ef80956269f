"""The commands that the prose gives, but for those that ask for what a book recorded: these are in test_build.py."""

import contextlib
import os
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from prose import BIN, BOOK, ELSEWHERE, ROOT, call, commands, run_as_they_stand

from retlib.core import notebook_files

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


def _asked(port, token):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/contents/notebooks?token={token}") as answer:
        return answer.read().decode()


def test_jupyterlab_opens_the_notebooks(tmp_path):
    """The command of `make lab`, without a window, on a free port."""
    command = [str(BIN / "jupyter"), "lab", "--notebook-dir", ".", "--preferred-dir", "notebooks"]
    command += ["--no-browser", "--port=0"]
    command += ["--allow-root"] if os.getuid() == 0 else []
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    try:
        listed = ""
        for _ in range(600):  # on a busy machine the server says its address before it answers there
            address = re.search(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab\?token=(\w+)", log.read_text())
            with contextlib.suppress(urllib.error.URLError):
                listed = address and _asked(*address.groups())
            if listed or server.poll() is not None:
                break
            time.sleep(0.1)
        assert listed, log.read_text()
        assert all(f"{name}.ipynb" in listed for name in notebook_files.names(ROOT))
    finally:
        server.kill()
        server.wait()
