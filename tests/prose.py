"""The commands that the prose gives: which there are, and how a test runs one."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from retlib.core import runtime

ROOT = runtime.root()
BIN = Path(sys.executable).parent
BOOK = 'make book PROFILE=smoke JOBS=2 SEEDS="0 1"'

# Seconds: the longest command, the book, takes a fifth of them.
LIMIT = 1800

# Commands that are not run as they stand, and what runs them.
ELSEWHERE = {
    "make book": "the same as BOOK above, at another profile",
    "make test": "continuous integration",
    "make lab": "test_jupyterlab_opens_the_notebooks",
    ".venv/bin/jupyter-book build .": "test_batch.py, on a toy book",
}


def commands() -> list[str]:
    """Every command in the prose, in order, once."""
    found = []
    for name in ("README.md", "book/how-to-rerun.md", "RERUN.md"):
        for block in re.findall(r"^```bash\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S):
            found += block.splitlines()
    return list(dict.fromkeys(found))


def run_as_they_stand(of_a_book: bool) -> list[str]:
    """The commands that tests run as they stand: those that ask for what the book of `BOOK` recorded, or the others."""
    chosen = [command for command in commands() if command not in ELSEWHERE and command != BOOK]
    return [command for command in chosen if ("-m retlib" in command and "smoke" in command) == of_a_book]


def call(command: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    """Run a command of the prose with this environment's programs; one that does not end fails with what it said."""
    words = [
        str(BIN / word.removeprefix(".venv/bin/")) if ".venv/bin/" in word else word for word in shlex.split(command)
    ]
    # Without what an outer `make test` passes down.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    process = subprocess.Popen(
        words, cwd=cwd, env=environment | variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        said = f"{command} did not end within {LIMIT} s. It said:\n{process.communicate()[0]}"
        return subprocess.CompletedProcess(words, 124, said)
    return subprocess.CompletedProcess(words, process.returncode, said)
