"""Collections by their ids of ir-datasets, on small files in the official formats; nothing is fetched."""

from pathlib import Path

import ir_datasets
import pytest
from ir_datasets.datasets import antique, beir
from ir_datasets.util.registry import Registry
from realdata import REAL, real
from releases import put

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.tokenized import texts
from retlib.evaluation import measures
from retlib.retrieval.lexical import BM25


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder for ir-datasets, whose data sets are defined on it anew."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")
    monkeypatch.setattr(ir_datasets, "registry", Registry())
    monkeypatch.setattr(ir_datasets.util.download.RequestsDownload, "stream", no_network)
    datasets._load.cache_clear()
    yield tmp_path
    datasets._load.cache_clear()


def no_network(download):
    raise ConnectionError(f"no network to {download.url}")


@pytest.fixture
def answers(home):
    """ANTIQUE in small."""
    files = {"collection.tsv": "a_1\tThe first.\na_2\tThe second.\na_3\tThe third.\n"}
    files |= {"train/queries.txt": "7\twhy is it\n8\tnobody judged\n9\twho is it\n"}
    files |= {"train/qrels": "7 U0 a_1 4\n7 U0 a_2 1\n9 U0 a_3 4\n", "test/queries.txt": "5\tWho is it\n"}
    put(home / "antique", files | {"test/qrels": "5 Q0 a_1 3\n5 Q0 a_3 -2\n5 Q0 a_2 4\n"})
    antique._init()
    return home


def test_the_parts_of_a_data_set_are_splits(answers):
    collection = datasets.load("irds:antique")
    # Question 9 of the training file is asked in the test file too; of the one that is left none can be held out.
    assert collection.queries["split"].to_dict() == {"5": "test", "7": "train"}
    assert collection.documents["text"].to_dict() == {"a_1": "The first.", "a_2": "The second.", "a_3": "The third."}
    assert set(collection.documents["title"]) == {""}
    judged = collection.qrels.set_index(["query_id", "doc_id"])["relevance"].to_dict()
    assert judged == {("5", "a_1"): 3, ("5", "a_3"): 0, ("5", "a_2"): 4, ("7", "a_1"): 4, ("7", "a_2"): 1}
    assert collection.provenance == {"irds:antique": f"ir-datasets {ir_datasets.__version__}"}
    assert collection.facts["queries whose text a more guarded split has"] == 1
    assert {*datasets.load("irds:antique/train").queries["split"]} == {"test"}  # which has no such parts


def test_an_unknown_id(answers):
    with pytest.raises(SettingError, match="'antique/tset'"):
        datasets.load("irds:antique/tset")


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("collection.tsv", "a_1 The first.\n", "expected 2 fields"),
        ("test/qrels", "5 Q0 a_1 good\n", "invalid literal"),
        ("test/queries.txt", b"5\t\xff\n", "UnicodeDecodeError"),
        ("test/qrels", "6 Q0 a_1 3\n", "no query of test"),
        ("test/qrels", "5 Q0 a_9 3\n", "a_9"),
    ],
)
def test_damaged_files(answers, file, content, problem):
    put(answers / "antique", {file: content})
    with pytest.raises(DataError, match=problem):
        datasets.load("irds:antique")


def test_without_network(home):
    antique._init()
    with pytest.raises(DataError, match="ConnectionError: no network to https://ciir"):
        datasets.load("irds:antique")


@real("beir/nfcorpus.zip")
def test_a_real_collection_is_the_same_through_ir_datasets_and_as_a_zip(home):
    zipped = Path(REAL) / "beir" / "nfcorpus.zip"
    put(home / "beir" / "nfcorpus", {"source.zip": zipped.read_bytes()})
    beir._init()
    found = datasets.load("irds:beir/nfcorpus")
    assert found.fingerprint == datasets.load(f"beir:{zipped}").fingerprint
    bm25 = BM25(stop_words="english", stemmer="english")
    run = bm25.rank(texts(found), found.split("test")["text"], 10)
    scores = measures.evaluate(run, found.judgments("test"), ["nDCG@10"])["value"]
    assert len(scores) == 323 and 0.322 <= scores.mean() <= 0.343  # as published, by implementation
