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
BOOK = "make book PROFILE=smoke JOBS=2"

# Seconds: the longest command, the book, takes a fifth of them.
LIMIT = 1800


def commands() -> list[str]:
    """Every command in the prose, in order, once."""
    found = []
    for name in ("README.md", "book/how-to-rerun.md", "RERUN.md"):
        for block in re.findall(r"^```bash\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S):
            found += block.splitlines()
    return list(dict.fromkeys(found))


# Those that ask for what the book of `BOOK` recorded.
OF_A_BOOK = [word for word in commands() if "-m retlib" in word and "--profile smoke" in word]


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
