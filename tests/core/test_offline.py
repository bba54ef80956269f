"""What the tests start reaches nothing beyond this machine, and no source loads what could run code."""

import ast
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from retlib.core.notebook_files import cells, source

ROOT = Path(__file__).parents[2]
SOURCES = [path for room in ("retlib", "book", "notebooks", "benchmarks", "tests") for path in (ROOT / room).rglob("*")]
CONNECT = "import socket; socket.create_connection(({host!r}, {port}), 1)"


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "2001:db8::1"])
def test_a_connection_to_another_machine_is_refused_here_and_in_other_processes(offline, host):
    with pytest.raises(RuntimeError, match="beyond this machine"):
        socket.create_connection((host, 80), 1)
    ended = subprocess.run([sys.executable, "-c", CONNECT.format(host=host, port=80)], capture_output=True, text=True)
    note = offline.read_text()
    offline.unlink()
    assert "beyond this machine" in ended.stderr and note.count(f"of '{host}'") >= 2


def test_a_connection_to_this_machine_is_made(offline):
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = CONNECT.format(host="localhost", port=server.getsockname()[1])
        assert subprocess.run([sys.executable, "-c", command]).returncode == 0
    assert not offline.exists()


# Modules whose files are programs; functions whose files may be, by the last of their names.
PROGRAMS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {"read_pickle", "to_pickle", "unpack_archive"}


def unsafe(text):
    """What a source has that loads programs from files, or unpacks paths that an archive names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(each.name for each in node.names)]
            yield from {name.split(".")[0] for name in names} & PROGRAMS
        if isinstance(node, ast.Call):
            called, given = ast.unparse(node.func), {each.arg: ast.unparse(each.value) for each in node.keywords}
            last = called.split(".")[-1]
            if given.get("allow_pickle", "False") != "False" or given.get("trust_remote_code", "False") != "False":
                yield called
            if last in LOADERS or (called == "torch.load" and given.get("weights_only") != "True"):
                yield called
            if last in ("extract", "extractall") and given.get("filter") != "'data'" and "str" not in called:
                yield called


def test_nothing_loads_a_pickle_or_unpacks_where_an_archive_says():
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES if path.suffix == ".py"}
    for path in ROOT.glob("notebooks/*.ipynb"):
        texts[path] = "\n".join(source(cell) for cell in cells(path) if cell["cell_type"] == "code")
    assert len(texts) > 200 and {str(path): wrong for path in texts if (wrong := [*unsafe(texts[path])])} == {}


PROGRAM = "import pickle|from joblib import load|torch.load('x')|np.load(x, allow_pickle=True)|pd.read_pickle(x)"
PROGRAM += "|archive.extractall(folder)|torch.load(x, weights_only=False)|Model.load(x, trust_remote_code=True)"
DATA = "torch.load(x, weights_only=True)|np.load(x, allow_pickle=False)|json.load(x)"


def test_what_loads_a_program_is_told_from_what_loads_data():
    assert all([*unsafe(code)] for code in PROGRAM.split("|")) and not any([*unsafe(code)] for code in DATA.split("|"))
