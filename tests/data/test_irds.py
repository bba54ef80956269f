"""Collections by their ids of ir-datasets, on small files in the official formats; nothing is fetched."""

import io
import tarfile
from pathlib import Path

import ir_datasets
import pandas as pd
import pytest
from ir_datasets.datasets import antique, beir, msmarco_passage
from ir_datasets.datasets.car import CarQuery
from ir_datasets.formats import GenericDoc, TrecQrel
from ir_datasets.util.registry import Registry
from realdata import REAL, real

from retlib.core.errors import DataError, SettingError
from retlib.data import datasets
from retlib.data.datasets import catalogue, irds
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


def put(folder, **files):
    """Write files by name, in which ``__`` stands for a folder's slash and ``_`` for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def answers(home):
    """ANTIQUE in small; 263783 is one of the 200 validation questions."""
    put(
        home / "antique",
        collection_tsv="a_1\tThe first.\na_2\tThe second.\na_3\tThe third.\n",
        train__queries_txt="7\twhy is it\n263783\twhat is it\n8\tnobody judged\n9\twho is it\n",
        train__qrels="7 U0 a_1 4\n7 U0 a_2 1\n263783 U0 a_2 3\n9 U0 a_3 4\n",
        test__queries_txt="5\twho is it\n",
        test__qrels="5 Q0 a_1 3\n5 Q0 a_3 2\n5 Q0 a_2 4\n",
    )
    antique._init()
    return home


def test_antique_in_the_official_format(answers):
    collection = datasets.load("antique")
    # Question 9 of the training file is asked in the test file too.
    assert collection.queries["split"].to_dict() == {"5": "test", "263783": "dev", "7": "train"}
    assert collection.documents["text"].to_dict() == {"a_1": "The first.", "a_2": "The second.", "a_3": "The third."}
    assert set(collection.documents["title"]) == {""}
    judged = collection.qrels.set_index(["query_id", "doc_id"])["relevance"].to_dict()
    test = {("5", "a_1"): 1, ("5", "a_3"): 0, ("5", "a_2"): 2}
    assert judged == {**test, ("263783", "a_2"): 1, ("7", "a_1"): 2, ("7", "a_2"): 0}
    ids = ["antique/test", "antique/train/split200-train", "antique/train/split200-valid"]
    assert collection.provenance == dict.fromkeys(ids, f"ir-datasets {ir_datasets.__version__}")


def test_only_judged_documents(answers):
    collection = irds.collection("part", {"dev": ["antique/train/split200-valid"]}, judged_only=True)
    assert collection.documents.index.tolist() == ["a_2"] and collection.qrels["relevance"].tolist() == [3]


def test_several_ids_of_one_split(answers):
    ids = ["antique/train/split200-train", "antique/train/split200-valid"]
    collection = irds.collection("both", {"train": ids})
    whole = irds.collection("whole", {"train": ["antique/train"]})
    pd.testing.assert_frame_equal(collection.queries.sort_index(), whole.queries.sort_index())


def test_an_unknown_id(answers):
    with pytest.raises(SettingError, match="no 'antique/tset'"):
        irds.collection("wrong", {"train": ["antique/tset"]})


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"collection_tsv": "a_1 The first.\n"}, "expected 2 fields"),
        ({"test__qrels": "5 Q0 a_1\n"}, "expected 4 columns"),
        ({"test__qrels": "5 Q0 a_1 good\n"}, "invalid literal"),
        ({"test__queries_txt": b"5\t\xff\n"}, "UnicodeDecodeError"),
    ],
)
def test_damaged_files(answers, files, problem):
    put(answers / "antique", **files)
    with pytest.raises(DataError, match=f"antique: ir-datasets cannot fetch or read it.*{problem}"):
        datasets.load("antique")


def test_judgments_that_fit_no_query_or_document(answers):
    put(answers / "antique", test__qrels="6 Q0 a_1 3\n")
    with pytest.raises(DataError, match="no query of test has a judgment"):
        datasets.load("antique")
    put(answers / "antique", test__qrels="5 Q0 a_9 3\n")
    with pytest.raises(DataError, match="a_9"):
        datasets.load("antique")


def test_without_network(home):
    antique._init()
    with pytest.raises(DataError, match="ConnectionError: no network to https://ciir"):
        datasets.load("antique")


@pytest.mark.parametrize("name", ["antique", "trec-car", "msmarco"])
def test_ir_datasets_knows_what_the_catalogue_names(name):
    ids = catalogue.catalogue()[name].ids
    assert set(ids) == {"train", "dev", "test"}
    assert all(one in ir_datasets.registry._registered for some in ids.values() for one in some)


def archive(mode, **files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as packed:
        for name, content in files.items():
            content = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "."))
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_msmarco_in_the_official_format(home):
    held = sorted(msmarco_passage.SPLIT200_QIDS)[0]
    put(
        home / "msmarco-passage",
        collectionandqueries_tar_gz=archive("w:gz", collection_tsv="0\tZero.\n1\tOne.\n2\tTwo.\n"),
        queries_tar_gz=archive(
            "w:gz",
            queries_train_tsv=f"10\twhat is zero\n{held}\twhat is one\n11\tunjudged\n",
            queries_dev_tsv="20\twhat is two\n21\tunjudged too\n",
        ),
        train__qrels=f"10\t0\t0\t1\n{held}\t0\t1\t1\n",
        dev__qrels="20\t0\t2\t1\n",
    )
    msmarco_passage._init()
    collection = datasets.load("msmarco")
    assert collection.queries["split"].to_dict() == {"20": "test", held: "dev", "10": "train"}
    assert collection.documents["text"].to_dict() == {"0": "Zero.", "1": "One.", "2": "Two."}
    assert collection.qrels[["query_id", "doc_id"]].to_numpy().tolist() == [["20", "2"], [held, "1"], ["10", "0"]]


@real("beir/nfcorpus.zip")
def test_a_real_collection_is_the_same_through_ir_datasets_and_as_a_zip(home):
    zipped = Path(REAL) / "beir" / "nfcorpus.zip"
    put(home / "beir" / "nfcorpus", source_zip=zipped.read_bytes())
    beir._init()
    found = datasets.load("irds:beir/nfcorpus")
    assert found.fingerprint == datasets.load(f"beir:{zipped}").fingerprint
    bm25 = BM25(stop_words="english", stemmer="english")
    run = bm25.rank(texts(found), found.split("test")["text"], 10)
    scores = measures.evaluate(run, found.judgments("test"), ["nDCG@10"])["value"]
    assert len(scores) == 323 and 0.322 <= scores.mean() <= 0.343  # as published, by implementation


class Segment:
    """A segment of TREC-CAR as ir-datasets gives it, without its archives of several gigabytes."""

    def __init__(self, number):
        query = f"enwiki:Page%20{number}/Its%20parts"
        self.queries_iter = lambda: iter(
            [CarQuery(query, f"Page {number} Its parts", f"Page {number}", ("Its parts",))]
        )
        self.qrels_iter = lambda: iter([TrecQrel(query, f"p{number}", 1, "0")])
        self.docs_iter = lambda: (GenericDoc(f"p{place}", f"Paragraph {place}.") for place in range(9))


def test_trec_car_keeps_the_paragraphs_of_its_segments(home, monkeypatch):
    segments = {f"car/v1.5/train/fold{number}": Segment(number) for number in range(5)}
    monkeypatch.setattr(ir_datasets, "load", segments.__getitem__)
    collection = datasets.load("trec-car")
    assert collection.documents.index.tolist() == ["p0", "p1", "p2", "p3", "p4"]
    assert collection.queries["text"].to_dict()["enwiki:Page%204/Its%20parts"] == "Page 4 Its parts"
    assert collection.queries["split"].tolist() == ["test", "dev", "train", "train", "train"]
