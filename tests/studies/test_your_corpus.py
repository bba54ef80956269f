"""One's own corpus, from its documents to advice: corpora of every shape, and the advice from rows made by hand."""

import ast
import json

import numpy as np
import pandas as pd
import pytest

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import Results
from retlib.models import checkpoints
from retlib.report import own_corpus
from retlib.report.own_corpus import BEST, NEAR, UNKNOWN
from retlib.studies import your_corpus

NOTEBOOK = runtime.root() / "notebooks" / "60_your_corpus.ipynb"
SMALL = {
    "learns_from": "pydocs-source-smoke", "vocabulary": 400, "asked": 12, "generator_epochs": 0.05,
    "generator_layers": 1, "width": 64, "dimension": 32, "query_length": 8, "document_length": 24,
    "passage_length": 16, "pretraining_steps": 2, "pretraining_batch": 8, "steps": 2, "batch": 4,
    "query_steps": 2, "retrieved": 4, "reranker_steps": 2, "reranked": 3, "fusion_shares": [0.3, 0.6], "timed": 2,
}  # fmt: skip
WORDS = "the stone bridge over a slow river was built by masons who came from the north in spring".split()


def sentence(number, count=9):
    return " ".join(WORDS[(number * 7 + place * 5) % len(WORDS)] for place in range(count)).capitalize() + f" {number}."


def beir(folder, documents, queries=(), qrels=()):
    """Write a BEIR folder: ids to texts, (id, text) of queries, (query, document) pairs that are relevant."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": "", "text": text} for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": name, "text": text} for name, text in queries]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    if qrels:
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t1" for query, document in qrels)]
        (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return f"beir:{folder}"


def pages(folder, texts):
    """Write files at places in a folder."""
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return f"folder:{folder}"


SHAPES = {
    "one document": lambda at: pages(at, {"only.txt": f"{sentence(1)} {sentence(2)}"}),
    "two documents of a word": lambda at: pages(at, {"a.txt": "bridge", "b.txt": "river"}),
    "one question": lambda at: beir(
        at, {str(n): sentence(n) for n in range(30)}, [("7", "who built the bridge?")], [("7", "3")]
    ),
    "numeric ids, half of them asked": lambda at: beir(
        at,
        {str(n): f"{sentence(n)} {sentence(n + 50)}" for n in range(40)},
        [(str(100 + n), f"what about {n}?") for n in range(20)],
        [(str(100 + n), str(n)) for n in range(20)],
    ),
    "long documents": lambda at: pages(at, {f"{n}.txt": " ".join(map(sentence, range(400))) for n in range(4)}),
    "many scripts": lambda at: pages(
        at,
        {
            "el.md": "# Γέφυρα\n\nΗ γέφυρα είναι παλιά. Ο ποταμός είναι αργός.",
            "ja.md": "# 橋\n\n石の橋は川の上にあります。北から来た石工が造りました。",
            "ar.txt": "الجسر الحجري قديم. النهر بطيء.",
            "ru.html": "<h1>Мост</h1><p>Каменный мост построен весной. <a href='el.md'>Река</a> медленна.</p>",
            "emoji.txt": "🌉🌉 🏞️. 🌉!",
        },
    ),
    "nested folders with links": lambda at: pages(
        at,
        {
            f"a/{n}/page.md": f"# Page {n}\n\n{sentence(n)} {sentence(n + 1)}\n\n## More\n\n{sentence(n + 2)} "
            f"See [next](../{(n + 1) % 12}/page.md).\n"
            for n in range(12)
        },
    ),
    "a table of texts": lambda at: _table(at, {f"d{n}": sentence(n) for n in range(3000)}),
}


def _table(folder, texts):
    folder.mkdir(exist_ok=True)
    pd.DataFrame({"id": list(texts), "text": list(texts.values())}).to_csv(folder / "table.csv", index=False)
    return f"csv:{folder / 'table.csv'}"


def ran(**given):
    """The names of the notebook after its cells ran with these parameters."""
    names = notebook_files.declared(NOTEBOOK) | given
    for cell in notebook_files.cells(NOTEBOOK):
        if cell["cell_type"] == "code" and "parameters" not in cell["metadata"].get("tags", []):
            tree = ast.parse(notebook_files.source(cell))
            last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], ast.Expr) else ast.Constant(None)
            exec(compile(tree, cell["id"], "exec"), names)
            displayed = eval(compile(ast.fix_missing_locations(ast.Expression(last)), cell["id"], "eval"), names)
            assert not isinstance(displayed, pd.DataFrame) or len(displayed), f"{cell['id']} shows an empty table"
    return names


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_corpus_of_every_shape_goes_through_without_an_edit(tmp_path, shape):
    name = SHAPES[shape](tmp_path / "corpus")
    names = ran(corpora=[name], **SMALL)
    (advice,) = names["advice"].values()
    judged = names["data"].set_index("questions")["judges"]
    assert judged["own"] == (shape in ("one question", "numeric ids, half of them asked"))
    # No labelled corpus was asked from random weights: what generated questions judge recommends nothing.
    best = 0 if names["judges"].iloc[0] else 1
    assert len(advice) == 0 or list(advice["advice"]).count(BEST) == best
    assert len(names["experiment"].results.rows) > 0


class Writer:
    """Asks one question about every document."""

    def seeded(self, seed):
        return self

    def queries(self, documents):
        return pd.DataFrame({"passage_id": documents.index, "query": documents["text"].str[:10].array})


@pytest.mark.parametrize(
    ("documents", "questions", "hidden", "said"),
    [(1, 0, False, True), (3, 0, False, True), (4, 0, False, False), (3, 2, False, False), (3, 2, True, True),
     (9, 1, False, True)],
)  # fmt: skip
def test_a_corpus_that_is_too_small_is_told_when_it_is_read(tmp_path, capsys, documents, questions, hidden, said):
    runtime.note.cache_clear()
    asked = [(f"q{n}", f"what about {n}?") for n in range(questions)]
    texts = {str(n): sentence(n) for n in range(documents)}
    name = beir(tmp_path / "corpus", texts, asked, [(f"q{n}", str(n)) for n in range(questions)])
    corpus = your_corpus.corpus(name, Writer(), 10, hidden, 0)
    assert ("is too small to compare systems on" in capsys.readouterr().err) is said
    assert (corpus.judge.split("test").get("cluster", corpus.judge.split("test")["text"]).nunique() < 2) is said


@pytest.mark.slow
def test_where_a_retriever_is_saved_is_told_from_the_project_s_folder_and_on_its_card_not_at_all(
    own_build, tmp_path, monkeypatch
):
    name = SHAPES["one question"](tmp_path / "dépôt" / "corpus")
    others = [SHAPES["nested folders with links"](tmp_path / "dépôt" / "corpus-notes")]
    names = ran(corpora=[name], **SMALL | {"reranker_steps": 0, "articles": others[0]})
    corpus, (dense, _) = names["corpus"], names["encoders"][name]
    chosen = list(dense)[-1]
    outside = your_corpus.save(corpus, chosen, dense[chosen], 0, others, pd.DataFrame())
    (tmp_path / "data").symlink_to(runtime.root() / "data")
    monkeypatch.setattr(runtime, "root", lambda: tmp_path)
    monkeypatch.chdir("/")
    folder = your_corpus.save(corpus, chosen, dense[chosen], 0, others, pd.DataFrame())
    assert folder.parent.as_posix() == "build/retrievers" and outside == tmp_path / folder
    assert checkpoints.at_hand(str(folder)) == tmp_path / folder
    card = (tmp_path / folder / "README.md").read_text(encoding="utf-8")
    assert "- corpus;" in card and "- corpus-notes;" in card and str(tmp_path) not in card


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


def test_where_no_labelled_corpus_tells_nothing_can_be_told_apart():
    results = made(BM25=[0.5, 0.5, 0.5, 0.5], best=[0.9, 0.7, 0.8, 0.7])
    assert own_corpus.recommendation(results, "mine")["advice"].tolist() == [BEST, "worse"]
    none = pd.DataFrame({"BM25": []})
    unknown = own_corpus.recommendation(results, "mine", none)
    assert set(unknown["advice"]) == {UNKNOWN} and unknown[["low", "high"]].isna().all(axis=None)
    one = pd.DataFrame({"BM25": [0.0], "best": [9.0]}, index=["a"])  # the difference on one corpus has no spread
    assert own_corpus.recommendation(results, "mine", one).loc["BM25", "high"] == np.inf


def test_without_labels_those_of_other_corpora_advise():
    results = made(BM25=[0.5, 0.5, 0.5, 0.5], dense=[0.4, 0.2, 0.3, 0.2], new=[0.9, 0.9, 0.9, 0.9])
    others = pd.DataFrame({"BM25": [0.0, 0.0], "dense": [7.0, 9.0], "other": [50.0, 90.0]}, index=["a", "b"])
    table = own_corpus.recommendation(results, "mine", others)
    assert list(table.index) == ["dense", "BM25", "new"]
    assert table["gain"].to_dict() == pytest.approx({"dense": 8.0, "BM25": 0.0, "new": np.nan}, nan_ok=True)
    assert table.loc["dense", ["low", "high"]].tolist() == [0.0, 0.0]
    # BM25 - dense = -7, -9 elsewhere: variance 2, of a mean of two and of a further corpus 3; t of one degree 12.706.
    half = 12.706 * np.sqrt(3)
    assert table.loc["BM25", ["low", "high"]].tolist() == pytest.approx([-8 - half, -8 + half], abs=0.01)
    assert table.loc["new", "advice"] == UNKNOWN


def test_other_corpora_are_those_of_systems_that_begin_alike():
    rows = [("", "a", "s", 3.0), ("", "a", "t", -3.0), ("", "b", "s", 5.0), ("", "c", "s", 9.0), ("x", "a", "s", 50.0)]
    table = pd.DataFrame(rows, columns=["start", "corpus", "system", "by labels"])
    # t is known on one of the two corpora, so that its mean would be of another thing.
    assert own_corpus.elsewhere(table, "c", "").to_dict("list") == {"s": [3.0, 5.0], "BM25": [0.0, 0.0]}


def test_generated_questions_are_judged_by_labels(monkeypatch):
    both = made(BM25=[0.2, 0.4], dense=[0.6, 0.6])
    made(both, "mine, generated questions", BM25=[0.5, 0.7], dense=[0.5, 0.5])
    (row,) = own_corpus.judgements(both, ["mine"], "x").to_dict("records")
    assert (row["start"], row["corpus"], row["system"], row["error"]) == ("x", "mine", "dense", pytest.approx(-10 - 30))
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


def test_too_few_questions_recommend_nothing():
    assert own_corpus.recommendation(made(BM25=[0.5], dense=[0.7]), "mine").empty
