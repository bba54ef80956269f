"""The three lists of packages agree, hold all that is imported, and describe this environment."""

import ast
import re
import sys
import tomllib
from importlib import metadata

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from retlib.core import runtime

ROOT = runtime.root()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_FILE = ROOT / "environment.yml"
# What conda calls by another name.
CONDA = {"pytorch": "torch", "snakemake-minimal": "snakemake"}
# What comes with a declared package and is as good as declared.
OPTIONAL = [line for extra in ("benchmarks", "starts") for line in PROJECT["optional-dependencies"][extra]]
WITH_OTHERS = {"beautifulsoup4", "docutils", "huggingface-hub", "ipython", "packaging", "requests", "sphinx"}
WITH_OTHERS.add("pydantic-core")


def direct():
    """Name to requirement, as pyproject.toml has them."""
    lines = PROJECT["dependencies"] + [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def pins():
    """Name to version, as constraints.txt has them."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert len(pinned) == len(lines)
    return pinned


def conda():
    """Name to version, as environment.yml has them, conda's names turned to pip's."""
    lines = yaml.safe_load(CONDA_FILE.read_text())["dependencies"]
    (pip,) = [line["pip"] for line in lines if isinstance(line, dict)]
    assert pip[0] == "-c constraints.txt" and pip[-1] == "-e ."
    pairs = [line.split("=") for line in lines if isinstance(line, str) and line != "pip" and ">" not in line]
    pairs += [line.split("==") for line in pip[1:-1]]
    return {canonicalize_name(CONDA.get(name, name)): version for name, version in pairs}


def test_the_three_lists_agree():
    wanted = {name: pins().get(name) for name in direct()}
    assert conda() == wanted
    assert f"python{PROJECT['requires-python']}" in yaml.safe_load(CONDA_FILE.read_text())["dependencies"]


def test_a_pin_is_in_its_range_and_installed_and_what_it_needs_is_pinned():
    pinned, ranges = pins(), direct()
    # `make test` installs what the tests need: no rivals that benchmarks compare with, and no large weights.
    absent = {canonicalize_name(Requirement(line).name) for line in OPTIONAL}
    for name, version in pinned.items():
        if name in ranges:
            assert ranges[name].specifier.contains(version), name
        if not [*metadata.distributions(name=name)]:
            assert name in absent or name not in ranges, name  # of another platform or Python
            continue
        # A build for one kind of machine, such as +cpu, counts as its version.
        assert name not in ranges or metadata.version(name).split("+")[0] == version, name
        for need in map(Requirement, metadata.requires(name) or []):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in pinned, f"{name} needs {need}"
                assert need.specifier.contains(pinned[canonicalize_name(need.name)]), f"{name} needs {need}"


def test_everything_imported_is_declared():
    owners = metadata.packages_distributions()
    folders = ("retlib", "tests", "notebooks", "book/_ext", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    local = {path.stem for path in files} | {"retlib", "benchmarks"}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in {name.split(".")[0] for name in names} - local - set(sys.stdlib_module_names):
                owner = {canonicalize_name(dist) for dist in owners.get(name, [name])}
                assert owner & (direct().keys() | WITH_OTHERS), f"{path} imports {name}"
