"""A collection as retrievers and BM25 see it: relevant rows, unions, texts, and BM25's lists."""

from dataclasses import replace

import numpy as np
import pytest
from words import PAGES, UNITS, WORDS, make_collection

from retlib.core.errors import DataError
from retlib.systems.ranking import Ranking, union


def relevant_of(collection, query):
    chosen = collection.qrels[(collection.qrels["query_id"] == query) & (collection.qrels["relevance"] > 0)]
    return sorted(collection.documents.index.get_indexer(chosen["doc_id"]).tolist())


def test_queries_without_a_relevant_document_are_left_out(collection, ranking):
    ids, relevant = ranking.relevant("train")
    assert ids.tolist() == [f"q{query}" for query in range(80) if query != 2]
    for query, name in enumerate(ids):
        assert relevant.row(query).tolist() == relevant_of(collection, name)
    assert len(relevant.row(0)) == 2
    judged = ranking.judged("train")
    assert judged.queries.row(1).tolist() == UNITS.encode([collection.queries["text"]["q1"]]).ids.tolist()


def test_a_split_without_a_relevant_document_is_an_error(collection, start):
    none = replace(collection, qrels=collection.qrels.assign(relevance=0))
    with pytest.raises(DataError, match="'words' has no dev queries with a relevant"):
        Ranking.of(none, start).judged("dev")


def test_an_unknown_id_is_an_error(ranking):
    with pytest.raises(DataError, match=r"'words' has no queries \['nobody'\]"):
        ranking.queries(["q0", "nobody"])
    with pytest.raises(DataError, match=r"'words' has no documents \['d77'\]"):
        ranking.documents(["d77", "d0"])


def test_token_rows_are_those_of_the_ids(collection, ranking):
    for kind, names in {"queries": ["q7", "q0", "q7"], "documents": ["d9", "d3"]}.items():
        found = getattr(ranking, kind)(names)
        rows = getattr(collection, kind).index.get_indexer(names)
        assert len(found) == len(names)
        for row, place in enumerate(rows):
            assert found.row(row).tolist() == getattr(ranking.benchmark, kind).row(place).tolist()


def test_a_union_holds_all_under_prefixed_ids():
    first, second = make_collection("one"), make_collection("two")
    second = replace(second, documents=second.documents.drop(columns="title"))
    whole = union([first, second], "both")
    assert whole.name == "both" and len(whole.documents) == 2 * PAGES and len(whole.queries) == 240
    assert whole.documents["text"]["two/d3"] == second.documents["text"]["d3"]
    assert "title" not in whole.documents  # the second has none
    assert whole.queries.loc["one/q90"].tolist() == [*first.queries.loc["q90"], "one"]
    mine = whole.qrels[whole.qrels["query_id"] == "two/q0"]
    assert mine["doc_id"].tolist() == ("two/" + second.qrels[second.qrels["query_id"] == "q0"]["doc_id"]).tolist()
    assert whole.provenance == {"one/a": "b", "two/a": "b"}


def test_a_ranking_says_which_collections_it_is_of(start, ranking):
    whole = union([make_collection("one"), make_collection("two")], "both")
    assert Ranking.of(whole, start).parts == ["one", "two"]
    assert ranking.parts == ["words"]


@pytest.mark.parametrize("names", [[], ["one", "one"]])
def test_a_union_of_nothing_or_of_equal_names_is_an_error(names):
    with pytest.raises(DataError, match="union"):
        union([make_collection(name) for name in names], "both")


def test_texts_are_title_and_text(collection, ranking, start):
    assert ranking.texts["d1"] == f"{WORDS[1]} {collection.documents['text']['d1']}"
    untitled = Ranking.of(replace(collection, documents=collection.documents.drop(columns="title")), start)
    assert untitled.texts["d1"] == collection.documents["text"]["d1"]


def test_lists_of_bm25_are_those_of_its_run_and_made_once(collection, ranking, monkeypatch):
    lists, (ids, _) = ranking.bm25("train", 4), ranking.relevant("train")
    run = ranking.lexical.rank(ranking.texts, collection.queries["text"][ids], 4)
    for row, name in zip(lists, ids, strict=True):
        found = collection.documents.index[row[row >= 0]].tolist()
        assert sorted(found) == sorted(run[run["query_id"] == name]["doc_id"])
    assert (ranking.bm25("train", 30) == -1).any()  # few pages share a word with a query
    monkeypatch.setattr(type(ranking.lexical), "fit", lambda *_: pytest.fail("made twice"))
    np.testing.assert_array_equal(ranking.bm25("train", 4), lists)
