"""Similar-question tasks in their official formats, and what is damaged in any released source."""

import gzip
import tracemalloc
from itertools import islice

import pytest
from realdata import real_collection, recorded
from releases import FOUNDED, RELEASES, extracted, relevant

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.collection import closure
from retlib.data.datasets import catalogue, released


def check_no_leak(collection):
    """No text and no cluster of positive pairs is on two sides."""
    assert (collection.documents.groupby("text")["split"].nunique() == 1).all()
    side, clusters = collection.documents["split"], closure(collection.pairs)
    assert (side[clusters.index].groupby(clusters).nunique() == 1).all()


def loaded(release, source):
    """The collection of a small release."""
    release(source)
    collection = datasets.load(source)
    check_no_leak(collection)
    assert {*collection.provenance} == {*RELEASES[source]}
    assert all(each.endswith("(unknown)") for each in collection.provenance.values())
    return collection


def test_quora_merges_equal_texts_and_reads_quotes_and_line_ends(release):
    collection = loaded(release, "quora")
    cluster = {'What does "nota bene" mean?', "What is the meaning of nota bene?", "Meaning of\nnota bene?"}
    assert {*collection.documents["text"]} == cluster | {"Why is the sky blue?", "Why is grass green?"}
    assert all({*relevant(collection, text)} == cluster for text in cluster) and len(collection.queries) == 3


def test_askubuntu_titles_keeps_test_titles_out_of_training(release):
    collection = loaded(release, "askubuntu-titles")
    assert {*collection.candidates("test").documents["text"]} == {"T1", "T2", "T3", "T4"}
    assert {*collection.split("test")["text"]} == {*relevant(collection, "T1")} == {"T1", "T2", "T3"}
    assert "X" not in {*collection.documents["text"]}  # a duplicate of a test title
    train, dev = (len(collection.labelled(split)) for split in ("train", "dev"))
    assert train + dev == 60 and 0 < dev < 20


def test_disfl_qa_moves_a_shared_cluster_to_the_guarded_side_and_leaves_blanks_out(release):
    collection = loaded(release, "disfl-qa")
    shared = {"Where is it?", "Who no where is it?", "Where was I mean where is it?"}
    assert {*relevant(collection, "Where is it?")} == shared
    assert collection.documents["split"].value_counts().to_dict() == {"test": 3, "dev": 2, "train": 2}


SOURCES = {file: name for name, files in RELEASES.items() for file in ([*files][:1] if name == "bioasq" else files)}
CHANGES = {
    "quora/quora_duplicate_questions.tsv": [("is_duplicate", "label"), ("\t1\n", "\t2\n"), ('"Mean', "Mean")],
    "askubuntu-titles/train_titles.tsv": [("duplicate\tA0", "same\tA0")],
    "disfl-qa/train.json": [('"disfluent"', '"fluent"')],
    "squad/train-v1.1.json": [('"title"', '"name"'), ('"data"', '"date"')],
    "natural-questions/qed-train.jsonlines": [("title_text", "title"), ('{"title', '["title')],
    "insuranceqa/test.csv": [("label", "right"), (",1\n", ",2\n"), (",1\n", "\n")],
    "bioasq/10B1_golden.json": [('"body"', '"text"'), ('"questions"', '"question"')],
    "trec-dl-2019/collection.tsv": [("1\tone", "1 one")],
    "trec-dl-2019/queries.tsv": [("what is", "what\tis")],
    "trec-dl-2019/qrels.txt": [(" 3\n", " x\n")],
    "trec-dl-2019/run.bm25.trec": [(" 3.5", " high")],
    "wikispeedia/wikispeedia_paths-and-graph.tar.gz": [("Sweden\tNorway", "Sweden Norway")],
}


def cut(raw):
    return raw[: len(raw) * 9 // 10]


def undecodable(raw):
    """With another byte in place of the last letter, in an archive that of its last file."""
    place = len(raw.rstrip(b"\0\r\n")) - 1
    return raw[:place] + b"\xff" + raw[place + 1 :]


def damaged(raw, damage):
    """The content of a file, that may be packed, after a function of it or a replacement in it."""
    if raw[:2] == b"\x1f\x8b":
        return gzip.compress(damaged(gzip.decompress(raw), damage))
    whole = damage(raw) if callable(damage) else raw.replace(*map(str.encode, damage))
    assert whole != raw
    return whole


def read(source):
    """Read all that is registered under a name."""
    datasets._load.cache_clear()
    if source in datasets.COLLECTIONS.names():
        datasets.load(source)
    if source == "trec-dl-2019":
        released.trec_run()
    if source in datasets.ARTICLES.names():
        list(datasets.text(source))
        list(datasets.articles(source))


def check_refused(source, path, content):
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read(source)
    card = catalogue.card_of(source)
    for part in (path.name, card.source, f"python -m retlib fetch {card.name}"):
        assert part in str(error.value)
    assert len(str(error.value)) < 2000


DAMAGES = [
    *((file, cut) for file in SOURCES if ".json" in file),
    *((file, undecodable) for file in SOURCES if not file.endswith(".zip")),
    *((file, change) for file, changes in CHANGES.items() for change in changes),
]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_a_damaged_file_is_named_with_the_command_that_fetches_it(release, tmp_path, file, damage):
    release(SOURCES[file])
    read(SOURCES[file])
    check_refused(SOURCES[file], tmp_path / file, damaged((tmp_path / file).read_bytes(), damage))


@pytest.mark.parametrize("file", [file for file in SOURCES if file.endswith((".gz", ".zip"))])
def test_a_truncated_or_changed_archive_is_never_taken_for_a_whole_one(release, tmp_path, file):
    release(SOURCES[file])
    raw = (tmp_path / file).read_bytes()
    parts = [raw[: int(share * len(raw))] for share in (0, 0.1, 0.5, 0.9, 0.999)]
    if file.endswith(".zip"):
        parts.append(raw.replace(b"They lower it.", b"They raise it."))
    for part in parts:
        check_refused(SOURCES[file], tmp_path / file, part)


def test_bulk_text_is_streamed(release):
    body = [f"{FOUNDED} Paragraph {n} has no end in sight." for n in range(2000)]
    files = {f"AA/wiki_{n:02d}": extracted(str(n), *body) for n in range(10)}
    release("wikipedia-2015", {"wikipedia-2015/wikiextractor-AA.tar.gz": files})
    list(islice(datasets.text("wikipedia-2015"), 10))  # what is set up once
    tracemalloc.start()
    count, (_, peak) = sum(1 for _ in datasets.text("wikipedia-2015")), tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10 * 2000 * 4 and peak < 3e6  # a file is 0.3 MB; the whole text is 2.9 MB, its sentences more


@recorded(
    {
        "quora": (119_224, 66_971, 4_099, 9_376, 389_298),
        "askubuntu-titles": (38_069, 8_316, 936, 4_370, 106_354),
        "disfl-qa": (23_532, 14_284, 1_993, 7_255, 47_100),
        "squad": (90_604, 62_736, 6_903, 17_610, 87_249),
        "squad-small": (20_091, 13_505, 1_494, 3_847, 18_846),
        "squad-passages": (18_891, 62_805, 6_914, 17_623, 87_424),
        "natural-questions": (37_593, 6_062, 631, 1_575, 8_268),
        "natural-questions-passages": (8_096, 6_248, 646, 1_628, 8_522),
        "insuranceqa": (8_690, 3_230, 375, 928, 5_040),
        "bioasq": (18_687, 1_928, 219, 500, 19_589),
        "nfcorpus": (3_633, 2_582, 323, 323, 134_100),
        "trec-dl-2019": (14_581, 0, 0, 43, 4_337),
    }
)
def test_real_collections(name, size):
    collection = real_collection(name, size)
    assert (collection.documents["text"] != "").all() and not collection.documents["text"].str.contains("#VALUE!").any()
    assert (collection.queries.groupby("text")["split"].nunique() == 1).all()
    if collection.pairs is not None:
        check_no_leak(collection)
