"""The pages around the chapters: the package's reference, the exercises, and the buttons that open a notebook."""

import ast
import pkgutil
import pydoc
import re
import subprocess
import sys

import pytest
import toybook
import yaml
from bs4 import BeautifulSoup

import retlib
from retlib.core import runtime
from retlib.workflow import notebooks

ROOT = runtime.root()
EXERCISES = {
    f"{page.stem}, {text.splitlines()[0]}": text
    for page in sorted((ROOT / "book").glob("exercises-*.md"))
    for text in page.read_text().split("\n## ")[1:]
}

MODULE = '''"""A module."""

from pathlib import Path


class Thing:
    """A thing.

    Parameters
    ----------
    vectors : float32 array, shape (B, d)
        Of `B` texts.
    """

    def __init__(self, vectors, root=Path.cwd()):
        pass

    @property
    def seconds(self):
        """Seconds of each part: all of them."""
'''


def test_every_room_is_in_the_reference():
    rooms = [room.name for room in pkgutil.iter_modules(retlib.__path__) if room.ispkg]
    blocks = re.findall(r"^```{rooms}\n(.*?)^```", (ROOT / "book" / "api.md").read_text(), re.M | re.S)
    assert sorted("".join(blocks).splitlines()) == sorted(rooms)


def test_a_reference_shows_what_docstrings_say(tmp_path):
    """Types that are descriptions look nothing up, a property keeps its words, and no default is of this machine."""
    toybook.make(tmp_path)
    (tmp_path / "retlib" / "toys").mkdir()
    (tmp_path / "retlib" / "toys" / "__init__.py").write_text("")
    (tmp_path / "retlib" / "toys" / "only_b.py").write_text(MODULE)
    (tmp_path / "book" / "index.md").write_text("# Toy\n\n## Parts\n\n```{rooms}\ntoys\n```\n")
    done = toybook.jupyter_book(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    page = BeautifulSoup((tmp_path / "_build" / "html" / "book" / "index.html").read_text(), "html.parser")
    assert page.select_one("h3").get_text().startswith("only_b")
    text = page.article.get_text()
    assert "float32 array, shape (B, d)" in text and "Seconds of each part: all of them." in text
    assert "root=Path.cwd()" in text and str(tmp_path) not in text


def test_every_part_has_exercises():
    pages = re.findall(r"file: book/(exercises-\d)", (ROOT / "_toc.yml").read_text())
    assert pages == sorted({name.split(",")[0] for name in EXERCISES})


@pytest.mark.parametrize("name", EXERCISES)
def test_what_an_exercise_names_exists(name):
    """Its notebooks; their parameters, as `name = value` or alone; objects and files of the package."""
    text = EXERCISES[name]
    linked = re.findall(r"{doc}`\.\./notebooks/(\w+)`", text)
    pages = notebooks.pages(ROOT)
    assert linked and set(linked) <= set(pages)
    defaults = {}
    for page in linked:
        defaults |= notebooks.declared(pages[page].notebook)
    for code in re.findall(r"(?<![}`])`([^`]+)`", text):
        if assigned := re.fullmatch(r"(\w+) = (.+)", code):
            assert type(ast.literal_eval(assigned[2])) is type(defaults[assigned[1]]), code
        elif re.fullmatch(r"[a-z_]+", code):
            assert code in defaults, code
        elif code.startswith("retlib."):
            assert pydoc.locate(code) is not None, code
        elif code.startswith("retlib/"):
            assert (ROOT / code).exists(), code


LAUNCHED = [
    "https://mybinder.org/v2/gh/someone/something/main?urlpath=lab/tree/notebooks/1_a.ipynb",
    "https://colab.research.google.com/github/someone/something/blob/main/notebooks/1_a.ipynb",
]


@pytest.mark.parametrize(("address", "links"), [("https://github.com/someone/something", LAUNCHED), ("", [])])
def test_a_notebook_opens_elsewhere_where_the_repository_is_known(tmp_path, address, links):
    toybook.make(tmp_path)
    toybook.add_paper(tmp_path)
    with (tmp_path / "_toc.yml").open("a") as toc:
        toc.write("- file: notebooks/4_p\n")
    done = toybook.jupyter_book(tmp_path, RETLIB_REPOSITORY=address)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, opened in (("1_a", "1_a"), ("4_p", "page")):  # a page made of a template opens that
        page = BeautifulSoup((tmp_path / "_build" / "html" / "notebooks" / f"{name}.html").read_text(), "html.parser")
        buttons = [link["href"] for link in page.select(".dropdown-launch-buttons a[href]")]
        assert buttons == [link.replace("1_a", opened) for link in links]
    assert page.h1.get_text().startswith("Part I") and "Part I, some2020:" in page.article.get_text()


def test_the_pod_calls_what_is_tested():
    """The command of the page's Kubernetes job is that of `make book`, with options that it takes."""
    block = re.search(r"^```yaml\n(.*?)^```", (ROOT / "book" / "how-to-rerun.md").read_text(), re.M | re.S)[1]
    pod = yaml.safe_load(block)["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command[:3] == ["python", "-m", "retlib.workflow.build"]
    assert command[command.index("--profile") + 1] in notebooks.profiles(ROOT)
    helped = subprocess.run([sys.executable, *command[1:3], "--help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert all(option in helped for option in command[3:] if option.startswith("--"))
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == [v["name"] for v in pod["volumes"]]
