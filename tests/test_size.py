"""The package and what else a program executes or reads stay within `[tool.retlib.size]` of pyproject.toml."""

import ast
import json
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["retlib"]["size"]
SLACK = 25  # lines under its allowance at which a room's allowance is to be lowered
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FORMATTER_OFF = re.compile(r"#\s*fmt:\s*(?:skip|off)")
DATA = ("book/**/*.yaml", "data/**/*.yaml", "notebooks/**/*.yaml", "_config.yml", "_toc.yml", "data/papers/**/*.csv")


def files(*patterns):
    return [path for each in patterns for path in ROOT.glob(each) if ".ipynb_checkpoints" not in path.parts]


def lines(*patterns):
    return sum(len(path.read_text().splitlines()) for path in files(*patterns))


def lines_of_code(text):
    """Count the lines that are neither blank nor a comment nor part of a docstring."""
    with_one = [each for each in ast.walk(ast.parse(text)) if isinstance(each, DOCUMENTED) and ast.get_docstring(each)]
    documented = {line for each in with_one for line in range(each.body[0].lineno, each.body[0].end_lineno + 1)}
    numbered = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in documented for number, line in numbered)


def rooms():
    """Return all lines and lines of code of each folder of retlib, with `others` for the files beside them."""
    every, code = Counter(), Counter()
    for path in files("retlib/**/*.py"):
        room = "others" if path.parent.name == "retlib" else path.relative_to(ROOT / "retlib").parts[0]
        every[room] += len(path.read_text().splitlines())
        code[room] += lines_of_code(path.read_text())
    return {room: [every[room], code[room]] for room in every}


def beside():
    """Return what is executed or read and is not in retlib."""
    claims, answers, other = [], [], []
    for cell in (cell for path in files("notebooks/**/*.ipynb") for cell in json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            tags = cell["metadata"].get("tags", ())
            kind = claims if "claims" in tags else answers if "answer" in tags else other
            kind.append("".join(cell["source"]))
    python = files(*(f"{folder}/**/*.py" for folder in ("retlib", "tests", "notebooks", "book", "benchmarks")))
    return {
        "notebook_lines": sum(len(cell.splitlines()) for cell in other),
        "notebook_characters": sum(map(len, other)),
        "claims_cell_lines": sum(len(cell.splitlines()) for cell in claims),
        "answer_cell_lines": sum(len(cell.splitlines()) for cell in answers),
        "python_beside_notebooks": lines("notebooks/**/*.py"),
        "python_in_book": lines("book/**/*.py"),
        "benchmarks": lines("benchmarks/**/*.py"),
        "snakefile": lines("Snakefile"),
        "yaml_and_csv": lines(*DATA),
        "tests": lines("tests/**/*.py"),
        "fmt_skip": sum(
            len(FORMATTER_OFF.findall(text)) for text in [*map(Path.read_text, python), *claims, *answers, *other]
        ),
    }


def test_each_room_keeps_to_its_allowance_and_the_allowance_follows():
    found, allowed, wrong = rooms(), SIZE["rooms"], []
    for room in sorted(found.keys() | allowed.keys()):
        for has, may, kind in zip(found.get(room, [0, 0]), allowed.get(room, [0, 0]), ("", " of code"), strict=True):
            if not may - SLACK < has <= may:
                what = "take lines away, here or in another room" if has > may else "lower the allowance and `total`"
                wrong.append(f"{room} has {has} lines{kind}, its allowance is {may}: {what}.")
    assert not wrong, "\n".join(["[tool.retlib.size.rooms] in pyproject.toml:", *wrong])


def test_the_total_is_the_sum_of_the_rooms_and_only_goes_down():
    total, summed = SIZE["total"], [sum(column) for column in zip(*SIZE["rooms"].values(), strict=True)]
    assert total == summed, f"`total` is {total}, the rooms' allowances sum to {summed}: write the sum as `total`."
    log = subprocess.getoutput(f"git -C '{ROOT}' log --format= -p -U0 -G'^total = ' -- pyproject.toml")
    for past in re.findall(r"^\+total = \[(\d+), (\d+)\]", log, re.MULTILINE):
        up = any(now > int(then) for now, then in zip(total, past, strict=True))
        assert not up, f"`total` is {total} and was {past} in a commit; it only goes down: take lines away."


def test_what_else_is_executed_or_read_does_not_grow():
    allowed = SIZE["beside"]
    wrong = [f"{key} is {has}, its allowance is {allowed[key]}." for key, has in beside().items() if has > allowed[key]]
    assert not wrong, "\n".join(["Take as much away; [tool.retlib.size.beside] of pyproject.toml stays:", *wrong])
