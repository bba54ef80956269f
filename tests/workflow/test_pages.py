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
from retlib.models.pair_models import PAIR_MODELS
from retlib.models.retriever import ENCODERS
from retlib.systems.system import System
from retlib.training import losses, negatives, pretraining
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of a toy book with a reference, a paper and an address."""
    root = tmp_path_factory.mktemp("site")
    toybook.make(root)
    toybook.add_paper(root)
    with (root / "_toc.yml").open("a") as toc:
        toc.write("- file: notebooks/4_p\n")
    (root / "retlib" / "toys").mkdir()
    (root / "retlib" / "toys" / "__init__.py").write_text("")
    (root / "retlib" / "toys" / "only_b.py").write_text(MODULE)
    (root / "book" / "index.md").write_text("# Toy\n\n## Parts\n\n```{rooms}\ntoys\n```\n")
    done = toybook.jupyter_book(root, RETLIB_REPOSITORY="https://github.com/someone/something")
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def page_of(site, name):
    return BeautifulSoup((site / "_build" / "html" / f"{name}.html").read_text(), "html.parser")


@pytest.mark.slow
def test_a_reference_shows_what_docstrings_say(site):
    """Types that are descriptions look nothing up, a property keeps its words, and no default is of this machine."""
    page = page_of(site, "book/index")
    assert page.select_one("h3").get_text().startswith("only_b")
    text = page.article.get_text()
    assert "float32 array, shape (B, d)" in text and "Seconds of each part: all of them." in text
    assert "root=Path.cwd()" in text and str(site) not in text


AT_A_GLANCE = (ROOT / "book" / "at-a-glance.md").read_text()


@pytest.mark.parametrize(
    "registry", [losses.LOSSES, negatives.NEGATIVES, pretraining.TASKS, ENCODERS, PAIR_MODELS], ids=lambda r: r.kind
)
def test_what_the_package_registers_is_at_a_glance(registry):
    """Each under its name, in the first column of a table; names that a test's own plugin adds do not count."""
    firsts = "".join(re.findall(r"^\| (`[^|]*`) \|", AT_A_GLANCE, re.M))
    own = [name for name in registry.names() if registry.get(name).__module__.startswith("retlib.")]
    assert own and [name for name in own if not re.search(rf"[`\"]{re.escape(name)}[`\"]", firsts)] == []


def test_the_code_at_a_glance_makes_a_system():
    made = {}
    exec(re.search(r"^```python\n(.*?)^```", AT_A_GLANCE, re.M | re.S)[1], made)
    assert isinstance(made["retriever"], System) and made["retriever"].stages[0].loss == "softmax"


def test_the_pictures_are_those_that_are_drawn(tmp_path):
    folder = ROOT / "book" / "_static" / "pictures"
    subprocess.run([sys.executable, ROOT / "book" / "pictures.py", tmp_path], check=True, stdout=subprocess.DEVNULL)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn and drawn == {path.name: path.read_text() for path in folder.iterdir()}


def test_every_part_has_exercises():
    pages = re.findall(r"file: book/(exercises-\d)", (ROOT / "_toc.yml").read_text())
    assert pages == sorted({name.split(",")[0] for name in EXERCISES})


@pytest.mark.parametrize("name", EXERCISES)
def test_what_an_exercise_names_exists(name):
    """Its notebooks; their parameters, as `name = value`; names that they use; objects and files of the package."""
    text = EXERCISES[name]
    linked = re.findall(r"{doc}`\.\./notebooks/(\w+)`", text)
    pages = notebooks.pages(ROOT)
    assert linked and set(linked) <= set(pages)
    defaults = {}
    for page in linked:
        defaults |= notebooks.declared(pages[page].notebook)
    known = "".join(re.findall(r"^```{?python}?\n(.*?)^```", text, re.M | re.S))  # or in the exercise's own code
    known += "".join(pages[page].notebook.read_text() for page in linked)
    for code in re.findall(r"(?<![}`])`([^`]+)`", text):
        if assigned := re.fullmatch(r"(\w+) = (.+)", code):
            assert type(ast.literal_eval(assigned[2])) is type(defaults[assigned[1]]), code
        elif re.fullmatch(r"[a-z_]+", code):
            assert re.search(rf"\b{code}\b", known), code
        elif code.startswith("retlib."):
            assert pydoc.locate(code) is not None, code
        elif code.startswith("retlib/"):
            assert (ROOT / code).exists(), code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "opened"), [("1_a", "1_a"), ("4_p", "page")], ids=["its own", "its template"])
def test_a_notebook_opens_elsewhere_where_the_repository_is_known(site, name, opened):
    links = [link["href"] for link in page_of(site, f"notebooks/{name}").select(".dropdown-launch-buttons a[href]")]
    assert links == [
        f"https://mybinder.org/v2/gh/someone/something/main?urlpath=lab/tree/notebooks/{opened}.ipynb",
        f"https://colab.research.google.com/github/someone/something/blob/main/notebooks/{opened}.ipynb",
    ]


@pytest.mark.slow
def test_a_page_made_of_a_template_says_what_its_paper_is(site):
    page = page_of(site, "notebooks/4_p")
    assert page.h1.get_text().startswith("Part I") and "Part I, some2020:" in page.article.get_text()


def test_the_pod_calls_what_is_tested():
    """The command of the page's Kubernetes job is that of `make book`, with options that it takes."""
    block = re.search(r"^```yaml\n(.*?)^```", (ROOT / "book" / "how-to-rerun.md").read_text(), re.M | re.S)[1]
    pod = yaml.safe_load(block)["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert command[:4] == ["python", "-m", "retlib", "build"]
    assert command[command.index("--profile") + 1] in notebooks.profiles(ROOT)
    helped = subprocess.run([sys.executable, *command[1:4], "--help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert all(option in helped for option in command[4:] if option.startswith("--"))
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == [v["name"] for v in pod["volumes"]]
