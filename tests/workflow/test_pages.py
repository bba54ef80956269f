"""The package's reference, the code of methods and exercises, and the buttons that open a notebook."""

import json
import pkgutil
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import retlib
from retlib.core import notebook_files, runtime
from retlib.data.articles import Corpus
from retlib.data.collection import Article
from retlib.data.datasets import catalogue
from retlib.models import pair_models
from retlib.models.pair_models import PAIR_MODELS
from retlib.models.retriever import ENCODERS
from retlib.retrieval import index, runs
from retlib.systems.system import System
from retlib.training import losses, negatives, pretraining
from retlib.workflow import cli, notebooks

ROOT = runtime.root()


def test_every_room_is_in_the_reference():
    pages = {path.stem: path.read_text() for path in (ROOT / "book" / "api").glob("*.md")}
    rooms = {name: re.findall(r"^```{rooms}\n(.*?)\n```", text, re.M | re.S) for name, text in pages.items()}
    assert rooms == {room.name: [room.name] for room in pkgutil.iter_modules(retlib.__path__) if room.ispkg}
    listed = re.findall(r"file: book/api/(\w+)", (ROOT / "_toc.yml").read_text())
    assert re.findall(r"{doc}`api/(\w+)`", (ROOT / "book" / "api.md").read_text()) == listed


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
    drawn, old = ({path.name: path.read_text() for path in each.iterdir()} for each in (tmp_path, folder))
    # Where matplotlib puts tiles differs from processor to processor in the last digits; what they say does not.
    says = r"<text[^>]*>([^<]*)<|fill: (#\w+|url)"  # signs, names, tints and hatches
    new, before = (re.findall(says, pictures.pop("verdicts.svg")) for pictures in (drawn, old))
    assert new == before and len(new) > 190, "verdicts have changed: run book/pictures.py"
    assert drawn and drawn == old


def words(page):
    """The source of a notebook's Markdown cells."""
    cells = notebook_files.cells(ROOT / "notebooks" / f"{page}.ipynb")
    return [notebook_files.source(cell) for cell in cells if cell["cell_type"] == "markdown"]


NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
EXERCISES = {page: text for page in NOTEBOOKS for text in words(page) if text.startswith("## Exercise")}


def written(page, **given):
    """What the code beside a page's formula makes of tensors of a few numbers."""
    made = {"torch": torch, "F": torch.nn.functional, "np": np, "losses": losses, **given}
    for block in BLOCK.findall("\n".join(text for text in words(page) if text != EXERCISES.get(page))):
        exec(block, made)
    return SimpleNamespace(**{name: value for name, value in made.items() if name.isidentifier()})


def numbers(*shape, seed=0):
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=-1, keepdim=True)


def test_the_code_of_the_losses():
    made = written(
        "12_dual_encoder_losses", queries=numbers(6, 5), documents=numbers(6, 5, seed=1), alpha=9.0, beta=0.1
    )
    targets = torch.eye(6, dtype=torch.int8)
    for name, scores in (("softmax", made.scores), ("cross_entropy", made.scores), ("triplet", made.cosines)):
        torch.testing.assert_close(getattr(made, f"in_batch_{name}"), losses.get(name)(scores, targets))


@pytest.mark.parametrize(("task", "same"), [("ict", (1, 1)), ("bfs", (0, 1)), ("wlp", (0, 0))])
def test_the_code_of_the_pretraining_tasks(task, same):
    """What it says of the places of query and document is so for every pair."""
    links, texts = (("apple", "pear"), ("pear", "apple")), ("a. b", "c. d. e", "f. g")
    articles = [Article(name, name, texts, 2, (link,)) for name, link in links]
    corpus = Corpus.build(articles, list, lambda text: text.split("."))
    made = written("21_pretraining_tasks", task=task, corpus=corpus, generator=np.random.default_rng(0))
    assert (set(made.same_passage), set(made.same_page)) == ({bool(same[0])}, {bool(same[1])})


def test_the_code_of_the_generator():
    logits, attention = torch.randn(3, 7), torch.rand(3, 4).softmax(dim=1)
    passage, switch, token = torch.tensor([[1, 2, 2, 5]] * 3), torch.rand(3, 1), torch.tensor([[2], [0], [5]])
    made = written("31_query_generation", **locals())
    copied = sum(torch.nn.functional.one_hot(passage[:, i], 7) * attention[:, i : i + 1] for i in range(4))
    torch.testing.assert_close(made.p, switch * logits.softmax(dim=1) + (1 - switch) * copied)
    torch.testing.assert_close(made.loss, -made.p.gather(1, token).log().mean())


def test_the_code_of_ltre():
    queries, documents = numbers(4, 6).requires_grad_(), numbers(9, 6, seed=1).requires_grad_()
    judged = torch.eye(4, 9, dtype=torch.int8)
    found = index.build("Exact", documents.detach().numpy())
    given = {"index": found, "queries": queries, "documents": documents.detach(), "judged": judged}
    made = written("41_training_dynamics", **given, n=9, alpha=9.0)
    torch.testing.assert_close(made.scores, made.scores.sort(dim=1, descending=True).values)
    assert made.targets.sum(dim=1).tolist() == [1] * 4
    assert queries.grad.abs().sum() > 0 and documents.grad is None


def test_the_code_of_a_step_on_negatives():
    made = written(
        "42_first_stage", queries=numbers(4, 6).requires_grad_(), documents=numbers(4, 3, 6, seed=1), alpha=9.0
    )
    targets = torch.tensor([[1, 0, 0]] * 4, dtype=torch.int8)
    torch.testing.assert_close(made.ranknet, losses.ranknet(made.scores, targets))


def test_the_code_of_two_stages():
    query, documents, first = numbers(3, 5), [numbers(n, 5, seed=n) for n in (2, 4, 6)], torch.tensor([3.0, 1.0, 2.5])
    made = written("43_two_stage", query=query, documents=documents, first=first, share=0.3)
    lengths = np.array([len(each) for each in documents])
    torch.testing.assert_close(made.second, pair_models.maxsim(query, np.array([3]), torch.cat(documents), lengths)[0])
    lists = [(each.numpy()[None], np.arange(3)[None]) for each in (made.second, first)]
    scores, rows = (part[0, :3] for part in runs.combined(lists, (0.3, 0.7)))
    np.testing.assert_allclose(made.score.numpy()[rows], scores, rtol=1e-5)


def test_the_code_of_a_compressed_index():
    n, documents, query, centroids = 3, numbers(10, 12), numbers(12, seed=1), torch.randn(3, 256, 4)
    rotation = torch.linalg.qr(torch.randn(12, 12)).Q
    made = written("44_compressed_index", **locals())
    nearest = torch.stack([centroids[part, made.codes[part]] for part in range(n)], dim=1).reshape(10, 12)
    torch.testing.assert_close(made.scores, nearest @ (query @ rotation))
    assert made.codes.max() < 256


LINK = re.compile(r"\]\(([^)#\s]+\.(?:ipynb|md))(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_links_of_a_notebook_name_files_or_pages_that_are_made_of_a_template(page):
    """So that they work in JupyterLab, too; a role of Sphinx is no link there."""
    prose, made = "\n".join(words(page)), {name for name, each in notebooks.pages(ROOT).items() if each.words}
    assert "{doc}`" not in prose.replace("{doc}`{{", "")
    for target in LINK.findall(prose):
        assert (ROOT / "notebooks" / target).is_file() or target.removesuffix(".ipynb") in made, target


def test_the_code_of_the_solutions_runs():
    """In a process of its own, as it registers losses and tasks."""
    blocks = [block for text in EXERCISES.values() for block in BLOCK.findall(text) if ".register(" in block]
    use = """
import torch
from retlib.data.articles import Corpus
from retlib.data.collection import Article
from retlib.data.datasets import catalogue

encoded, targets = torch.eye(4, 6), torch.eye(4, dtype=torch.int8)
print(losses.get("triplet-mean")(encoded @ encoded.T, targets).item())
print(losses.get("softmax-apart")(encoded @ encoded.T, targets, encoded, encoded).isfinite().item())
articles = [Article(name, name, ("a. b", "c", "d"), 1, ()) for name in ("a", "b")]
task = pretraining.TASKS.get("mine")(Corpus.build(articles, list, lambda text: text.split(".")))
print(set(task.draw(np.random.default_rng(0), 50)[1].tolist()), task.shares().tolist())
"""
    solved = [block for block in blocks if "# and now?" not in block]
    code = "\n".join(["from retlib.training import losses", *solved, use])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["0.0", "True", "{1, 2, 4, 5} [0.0, 0.25, 0.25, 0.0, 0.25, 0.25]"], done.stderr


@pytest.mark.parametrize(
    ("configured", "variable", "opened"), [("", "", ""), ("https://a", "", "https://a"), ("https://a", "b/", "b")]
)
def test_one_setting_says_where_the_repository_is(monkeypatch, configured, variable, opened):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    import launch

    monkeypatch.setenv("RETLIB_REPOSITORY", variable)
    config = SimpleNamespace(html_theme_options={"repository_url": configured})
    launch.add_buttons(None, config)
    assert config.html_theme_options["repository_url"] == opened
    assert ("launch_buttons" in config.html_theme_options) is bool(opened)


def test_what_a_chapter_costs_is_read_from_profile_catalogue_and_rows(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    import costs

    rows = {row[0]: dict(zip(costs.HEAD[1:], row[1:], strict=True)) for row in costs.costs("laptop")}
    name = "12_dual_encoder_losses"
    row, size = rows[f"{{doc}}`../notebooks/{name}`"], catalogue.table().set_index("name").loc["quora", "size"]
    assert row["data to fetch"] == "quora" and row["MB"] == f"{float(size.removesuffix(' MB')):.0f}"
    recorded = pd.read_parquet(ROOT / "data" / "reference" / "laptop" / name / "rows.parquet")
    seeds = notebook_files.at_profile(ROOT, "laptop", name)["seeds"]
    recorded = recorded[recorded["seed"].isin(seeds) & (recorded["seconds"] > 0)]
    assert row["minutes of the costliest"] == f"{recorded.groupby('system')['seconds'].median().max() / 60:.0f}"
    assert row["seeds"] == str(len(seeds))
    # Of two chains that begin alike the beginning has a row of its own; of the other two the quicker stands for it.
    stages = {"A": ["a"], "A > B": ["a", "b"], "C > D": ["c", "d"], "C > E": ["c", "e"]}
    told = [json.dumps({"stages": each}) for each in stages.values()]
    trained = pd.DataFrame({"parameters": told, "seed": 0, "seconds": [60, 100, 30, 90]})
    assert costs._together(trained) == 100 + 90
    assert costs._together(pd.concat([trained, trained.assign(seed=1)])) == 2 * (100 + 90)
    assert costs._together(trained.drop(columns="parameters")) == 0
    reader = {"model": "cross-encoder", "start": {"stages": ["a"]}, "stage": "f"}
    readers = [json.dumps(each) for each in (reader, {"first": {}, "reader": reader}, {"fused": []})]
    pairs = pd.DataFrame({"parameters": readers, "seed": 0, "seconds": [110, 110, 500]})
    assert costs._together(pd.concat([trained, pairs])) == 100 + 90 + (110 - 60)
    # What chapters begin with alike is trained once, so that all take no longer than their sum; all are in whole hours.
    *hours, every = (float(row["hours of all, at least"].lstrip("< ") or 0) for row in rows.values())
    assert 0 < every < sum(hours) + 0.5


def test_the_pod_calls_what_is_tested():
    """The command of the page's Kubernetes job is that of `make book`, with options that it takes."""
    block = re.search(r"^```yaml\n(.*?)^```", (ROOT / "RERUN.md").read_text(), re.M | re.S)[1]
    pod = yaml.safe_load(block)["spec"]["template"]["spec"]
    *module, command, _profile, profile, jobs, _count = pod["containers"][0]["command"]
    assert module == ["python", "-m", "retlib"] and profile in notebook_files.profiles(ROOT)
    assert {_profile, jobs} <= {each.opts[0] for each in cli.main.commands[command].params}
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == [v["name"] for v in pod["volumes"]]
