"""pydocs in two domains: disjoint in their pages, and without a query's text in the passage that answers it."""

import pandas as pd
import pytest

from retlib.data import datasets
from retlib.data.datasets import pydocs
from retlib.data.datasets.pydocs.lines import key
from retlib.data.splits import split_by_cluster


@pytest.fixture(scope="module")
def smoke():
    return datasets.load("pydocs-source-smoke"), datasets.load("pydocs-target-smoke")


def test_the_two_are_all_pages_and_share_none(smoke):
    source, target = smoke
    ours, theirs = set(source.documents["article"]), set(target.documents["article"])
    assert not ours & theirs
    assert ours | theirs == set(pydocs.described("p", "smoke").documents["article"])
    assert all(path.startswith(("numpy.fft", "numpy.linalg", "numpy.random")) for path in theirs)
    for part, articles in ((source, ours), (target, theirs)):
        assert set(part.queries["cluster"]) <= articles
        assert set(part.links["source"]) | set(part.links["target"]) <= articles


def test_the_target_has_whole_passages_and_descriptions_alone(smoke):
    whole, target = pydocs.described("p", "smoke"), smoke[1]
    assert set(target.queries["source"]) <= {"see_also", "listing"}
    pd.testing.assert_frame_equal(target.documents, whole.documents.loc[target.documents.index])
    pd.testing.assert_frame_equal(target.queries, whole.queries.loc[target.queries.index])
    assert {"train", "dev", "test"} == set(target.queries["split"])


def test_the_source_leaks_no_query_of_its_own(smoke):
    source = smoke[0]
    summaries = source.queries[source.queries["source"] == "summary"]
    assert len(summaries) > 50 and set(summaries["split"]) == {"train"}
    whole = source.documents["text"].map(key).groupby(source.documents["article"]).agg(" ".join)
    assert not any(key(t) in whole[page] for t, page in zip(summaries["text"], summaries["cluster"], strict=True))
    both = pydocs.with_summaries("p", "smoke")
    pd.testing.assert_frame_equal(source.documents, both.documents.loc[source.documents.index])


def test_no_query_of_the_source_is_one_of_the_target(smoke):
    keys = [set(part.queries["text"].map(key)) for part in smoke]
    assert not keys[0] & keys[1]


def test_a_question_about_a_page_that_is_one_with_a_page_of_the_target_is_left_out(monkeypatch):
    names = pd.Index([f"numpy.f{number}" for number in range(100)])
    same, other = names[split_by_cluster(names, pd.Series(dtype=object), pydocs.SHARES) == "train"][:2]
    theirs = "numpy.fft.f"
    rows = [(same, "Do it well.", theirs), (other, "Do another thing.", other), (theirs, "Do it.", theirs)]
    tables = {
        "pages": pd.DataFrame(rows, columns=["article", "summary", "cluster"]).assign(package="numpy"),
        "passages": pd.DataFrame(
            [(a, 0, "Summary", f"{s} It takes {a} and gives it back again.") for a, s, _ in rows],
            columns=["article", "position", "section", "text"],
        ),
        "descriptions": pd.DataFrame(
            [(same, "Do it so.", "see_also", other), (theirs, "Do it thus.", "see_also", other)],
            columns=["target", "text", "source", "origin"],
        ),
        "links": pd.DataFrame([(other, same), (other, theirs)], columns=["source", "target"]),
    }
    monkeypatch.setattr(pydocs, "tables", lambda name: tables)
    source, target = pydocs.source("s", "smoke"), pydocs.target("t", "smoke")
    assert source.documents["article"].tolist() == [same, other]
    assert source.queries["text"].tolist() == ["Do another thing."]
    assert target.queries["text"].tolist() == ["Do it thus."]
    assert source.links.to_numpy().tolist() == [[other, same]] and target.links.empty


@pytest.mark.parametrize(
    ("path", "slice_name", "is_target"),
    [
        ("pandas", "all", True),
        ("pandas.Series.sum", "all", True),
        ("pandas_gbq.read", "all", False),
        ("sklearn.svm.SVC", "all", True),
        ("numpy.fft", "all", False),
        ("numpy.fft.ifft", "smoke", True),
        ("numpy.fftpack", "smoke", False),
    ],
)
def test_paths_of_the_target(path, slice_name, is_target):
    assert pydocs._is_target(pd.Series([path]), slice_name).tolist() == [is_target]
