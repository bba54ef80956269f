"""Several collections as one."""

from dataclasses import replace

import pytest
from words import PAGES, make_collection

from retlib.core.errors import DataError
from retlib.data.splits import union


def test_a_union_holds_all_under_prefixed_ids():
    first, second = make_collection("one"), make_collection("two")
    second = replace(second, documents=second.documents.drop(columns="title"))
    whole = union([first, second])
    assert whole.name == "one, two" and len(whole.documents) == 2 * PAGES and len(whole.queries) == 240
    assert whole.documents["text"]["two/d3"] == second.documents["text"]["d3"]
    assert "title" not in whole.documents  # the second has none
    assert whole.documents["collection"].unique().tolist() == ["one", "two"]
    assert whole.queries.loc["one/q90"].tolist() == [*first.queries.loc["q90"], "one"]
    mine = whole.qrels[whole.qrels["query_id"] == "two/q0"]
    assert mine["doc_id"].tolist() == ("two/" + second.qrels[second.qrels["query_id"] == "q0"]["doc_id"]).tolist()
    assert whole.provenance == {"one/a": "b", "two/a": "b"}


def test_clusters_of_two_collections_stay_apart():
    parts = [make_collection(name) for name in ("one", "two")]
    parts = [replace(part, queries=part.queries.assign(cluster=7)) for part in parts]
    assert union(parts).queries["cluster"].unique().tolist() == ["one/7", "two/7"]


def test_one_alone_stays_as_it_is():
    alone = make_collection()
    assert union([alone]) is alone


def test_a_union_of_equal_names_is_an_error():
    with pytest.raises(DataError, match="one, one"):
        union([make_collection("one")] * 2)
