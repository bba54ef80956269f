"""The real book at its smallest scale: its pages, in a browser too, and what it recorded."""

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from prose import BOOK, OF_A_BOOK, ROOT, call

from retlib.report.papers import papers_table
from retlib.workflow import notebooks

pytestmark = pytest.mark.slow

TOOLS = {"62_speed", "90_explore"}  # notebooks to run, and no pages
NAMES = [name for name in notebooks.pages(ROOT) if name not in TOOLS]
CLAIMS = len(papers_table("claims"))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The folder in which the book was built."""
    folder = tmp_path_factory.mktemp("book")
    command = f"{BOOK} SEEDS=0"  # of its own seeds one: 12 and 42 have a second below
    if Path(sys.prefix) != ROOT / ".venv":  # in another environment, what `make book` calls
        command = f"{sys.executable} -m retlib build --profile smoke --jobs 2 --seeds 0"
    done = call(command, RETLIB_BUILD=str(folder))
    assert done.returncode == 0, done.stdout
    assert str(folder / "smoke" / "html" / "index.html") in done.stdout
    return folder


@pytest.fixture(scope="module")
def pages(build):
    """Path below the html folder to parsed page."""
    html = build / "smoke" / "html"
    paths = [path.relative_to(html) for path in html.rglob("*.html")]
    paths = sorted(path for path in paths if path.parts[0] != "_static")  # the theme's templates
    return {path: BeautifulSoup((html / path).read_text(), "html.parser") for path in paths}


def test_every_chapter_has_a_page_with_tables_and_figures(pages):
    for name in NAMES:
        page = pages[Path("notebooks", f"{name}.html")]
        # The first page answers in sentences; that on the papers has tables alone.
        assert page.select(".cell_output table") or name == "01_ledger", f"{name} shows no table"
        assert page.select(".cell_output img") or name == "02_papers", f"{name} shows no figure"


@pytest.mark.parametrize("name", [name for name in NAMES if name[0] != "0"])
def test_a_page_opens_with_its_figure_and_says_below_its_answer_of_which_build_it_is(pages, name):
    article = pages[Path("notebooks", f"{name}.html")].select_one("article")
    before = article.select_one(".cell_output img").find_all_previous(string=True)
    hidden = ("script", "style", "details")
    words = [text for text in before if article in text.parents and not text.find_parent(hidden)]
    assert len(" ".join(words).split()) <= 150
    note = article.select_one(".admonition.note")
    assert "profile smoke" in note.get_text() and "with 1 seed" in note.get_text()
    answered = "verdicts" not in name
    assert ("the answer above is of the published run" in note.get_text()) is answered
    assert note.find_previous("img") in article.select(".cell_output img") or not answered


def redirection(page):
    """Where a page leads at once, if it does."""
    found = page.find("meta", attrs={"http-equiv": "Refresh"})
    return found["content"].split("url=")[1] if found else None


CLAIMS_PAGE = Path("notebooks", "03_claims.html")


def test_the_first_page_answers_and_another_has_all_claims(pages):
    first = pages[Path(redirection(pages[Path("index.html")]))]
    assert len(first.select(".cards .sign")) == CLAIMS
    # Nothing that a reader does not need: no parameters, no code, no printed objects.
    assert "Experiment" not in first.select_one("article").text and not first.select(".cell_input")
    assert len(pages[CLAIMS_PAGE].select("#the-table tbody tr")) == CLAIMS


def test_what_a_page_warns_of_stands_below_its_answer(pages):
    warned = [page for page in pages.values() if page.select(".cell_output p.note")]
    assert warned  # pre-training without links, on the page of one's own corpus
    for page in warned:
        top = page.select_one(".admonition.note").text
        assert all(note.text in top for note in page.select(".cell_output p.note"))


def test_every_figure_has_a_caption_and_says_what_it_shows(pages):
    for path, page in pages.items():
        for image in page.select(".cell_output img"):
            assert image.get("alt", "").strip(), f"{path}: an image without alternative text"
            figure = image.find_parent("figure") or image.find_parent(class_="cell_output")
            caption = figure.select_one("figcaption .caption-text, p.caption")
            assert caption and caption.get_text(strip=True), f"{path}: an image without caption"


def test_no_page_shows_an_error_a_warning_or_a_path_of_this_machine(pages, build):
    for path, page in pages.items():
        outputs = " ".join(output.get_text() for output in page.select(".cell_output"))
        outputs = outputs.replace(f"--system {build}", "")  # a command to be run here, of a build that lies elsewhere
        for sign in ("Traceback", "Warning:", "widget-view", "it/s]", str(ROOT), str(build)):
            assert sign not in outputs, f"{path} shows {sign!r}"


def test_the_reference_shows_what_docstrings_say_with_sources_and_no_default_of_this_machine(pages):
    reference = [page.article for path, page in pages.items() if "api" in path.parts]
    assert len(reference) == 10 and str(ROOT) not in "".join(article.get_text() for article in reference)
    evaluation = pages[Path("book", "api", "evaluation.html")].article
    assert "All rows, in the order" in evaluation.get_text()  # of a property
    assert evaluation.select("a[href*='_modules/retlib/evaluation/results']")


def test_links_within_the_book_lead_somewhere(pages):
    anchors = {path: {element["id"] for element in page.find_all(id=True)} for path, page in pages.items()}
    kinds = {"a": "href", "img": "src", "script": "src", "link": "href"}
    for path, page in pages.items():
        for element in page.find_all([*kinds]):
            address = element.get(kinds[element.name], "#")
            parts, place = urlsplit(address), f"{path} links to {address}"
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if parts.scheme:
                assert element.name == "a" or parts.scheme not in ("http", "https"), place
            elif target.suffix == ".html" and address not in ("#", "#top"):
                assert target in pages and unquote(parts.fragment) in {"", *anchors[target]}, place


@pytest.fixture(scope="module")
def browser():
    """Chromium, without sandbox and without traffic of its own."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    flags = "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update"
    flags = [f"--{flag}" for flag in (*flags.split(), "disable-sync")]
    with playwright.sync_playwright() as session:
        with session.chromium.launch(executable_path=program, args=flags) as started:
            yield started


# The tables in sight of which less than half of the rows with numbers show one before anybody scrolls sideways.
WITHOUT_NUMBERS = """() => [...document.querySelectorAll(".bd-article table")].filter((table) => {
  if (!table.checkVisibility()) return false;  // in a closed fold
  const right = (table.closest(".output") ?? table.parentElement).getBoundingClientRect().right;
  const numbers = [...table.tBodies[0].rows].map((row) =>
    [...row.querySelectorAll("td")].filter((cell) => /^[-+−]?\\d/.test(cell.textContent.trim())));
  const seen = (cell) => cell.getBoundingClientRect().left + 30 < Math.min(right, window.innerWidth);
  const rows = numbers.filter((cells) => cells.length);
  return rows.length && rows.filter((cells) => cells.some(seen)).length < rows.length / 2;
}).map((table) => table.textContent.trim().slice(0, 80))"""


NARROW = [CLAIMS_PAGE, Path("notebooks", "12_dual_encoder_losses.html"), Path("book", "at-a-glance.html")]


@pytest.mark.parametrize(("width", "chosen"), [(390, NARROW), (1280, None)])
def test_pages_in_a_browser(browser, pages, build, width, chosen):
    """No errors, nothing loaded from elsewhere, formulas set, numbers in sight, and no page scrolls sideways."""
    view = browser.new_page(viewport={"width": width, "height": 900})
    troubles = []
    view.on("console", lambda message: message.type == "error" and troubles.append(message.text))
    view.on("pageerror", lambda error: troubles.append(str(error)))
    view.on("request", lambda request: request.url.startswith("http") and troubles.append(request.url))
    # The browser gives up its request for the book's sign where the next page is opened.
    view.on("requestfailed", lambda request: "favicon" in request.url or troubles.append(request.url))
    for path in chosen or pages:
        page = pages[path]
        if redirection(page):
            continue
        view.goto((build / "smoke" / "html" / path).as_uri(), wait_until="load")
        if page.select("script[src*='tex-svg']"):
            view.wait_for_function("() => window.MathJax && MathJax.startup && MathJax.startup.promise")
            view.evaluate("() => MathJax.startup.promise.then(() => null)")
        assert not view.query_selector_all("mjx-merror"), f"{path}: a formula cannot be set"
        wide = view.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide at {width}"
        assert view.evaluate(WITHOUT_NUMBERS) == [], f"{path} at {width} has tables whose numbers are out of sight"
        assert troubles == [], f"{path} at {width}"
    view.close()


def test_the_ledgers_filters(browser, pages, build):
    view = browser.new_page()
    view.goto((build / "smoke" / "html" / CLAIMS_PAGE).as_uri(), wait_until="load")
    rows = pages[CLAIMS_PAGE].select("#the-table tbody tr")
    heads = [cell.text for cell in pages[CLAIMS_PAGE].select("#the-table thead th")]

    def shown():
        return view.locator("#the-table tbody tr:visible").count()

    assert shown() == len(rows)
    for name in ("part", "verdict"):
        value = rows[-1].select("td")[heads.index(name)].text
        rows = [row for row in rows if row.select("td")[heads.index(name)].text == value]
        view.get_by_label(name, exact=True).select_option(value)
        assert shown() == len(rows) > 0
    words = rows[-1].select("td")[heads.index("claim")].text.lower().split()[:4]
    view.get_by_label("words").fill(" ".join(reversed(words)).upper())
    rows = [row for row in rows if all(word in row.text.lower() for word in words)]
    assert shown() == len(rows) > 0
    assert f"{shown()} of {CLAIMS}" in view.locator(".filters").text_content()
    view.close()


@pytest.mark.parametrize("command", OF_A_BOOK)
def test_a_command_that_asks_for_results(build, command):
    done = call(command, RETLIB_BUILD=str(build))
    assert done.returncode == 0, done.stdout
    if "results" in command:
        header = "experiment,system,collection,split,measure,value,seed,profile,source"
        assert done.stdout.startswith(header)
        assert {line.split(",")[0] for line in done.stdout.splitlines()[1:]} == {*NAMES, *TOOLS}


def test_two_seeds_reach_verdicts(build):
    """What is trained with the first seed is found again."""
    claims = ("gillick2018-softmax-over-pairwise-ce", "zhan2020-ltre-over-its-document-encoder")
    trained = {path.name for path in (build / "cache" / "retriever").iterdir()}
    done = call(
        f'{sys.executable} -m retlib rerun {" ".join(claims)} --profile smoke --seeds "0 1"', RETLIB_BUILD=str(build)
    )
    # At this scale the gate may close the second.
    assert done.returncode == 0 and "inconclusive" in done.stdout and " 2 " in done.stdout, done.stdout
    assert trained < {path.name for path in (build / "cache" / "retriever").iterdir()}
