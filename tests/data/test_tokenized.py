"""A collection as retrievers read it: relevant rows, two parts of a document, lengths, texts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from words import UNITS, WORDS

from retlib.core.errors import DataError
from retlib.data import tokenized
from retlib.data.text import Vocabulary, WordPiece
from retlib.data.tokenized import TokenizedCollection, texts


def tokens(table):
    return [table.row(i).tolist() for i in range(len(table))]


def relevant_of(collection, query):
    chosen = collection.qrels[(collection.qrels["query_id"] == query) & (collection.qrels["relevance"] > 0)]
    return sorted(collection.documents.index.get_indexer(chosen["doc_id"]).tolist())


def test_queries_without_a_relevant_document_are_left_out(collection, ranking):
    ids, relevant = ranking.relevant("train")
    assert ids.tolist() == [f"q{query}" for query in range(80) if query != 2]
    for query, name in enumerate(ids):
        assert relevant.row(query).tolist() == relevant_of(collection, name)
    assert len(relevant.row(0)) == 2
    labelled = ranking.labelled("train")
    assert labelled.queries.row(1).tolist() == UNITS.encode([collection.queries["text"]["q1"]]).ids.tolist()


def test_a_split_without_a_relevant_document_is_an_error(collection, start):
    none = replace(collection, qrels=collection.qrels.assign(relevance=0))
    with pytest.raises(DataError, match="'words' has no dev queries with a relevant"):
        start.reads(none).labelled("dev")


def test_an_unknown_id_is_an_error(ranking):
    with pytest.raises(KeyError, match="nobody"):
        ranking.query_rows(["q0", "nobody"])
    with pytest.raises(KeyError, match="d77"):
        ranking.document_rows(["d77", "d0"])


def test_documents_are_two_parts_with_a_separator_or_one(collection):
    documents = pd.DataFrame({"title": WORDS[0], "text": WORDS[1]}, index=collection.documents.index)
    first, sep, second = UNITS.ids[WORDS[0]], UNITS.sep, UNITS.ids[WORDS[1]]
    read = TokenizedCollection.of(replace(collection, documents=documents), UNITS, 4, 5)
    assert tokens(read.documents)[0] == [first, sep, second]
    untitled = replace(collection, documents=documents[["text"]])
    assert tokens(TokenizedCollection.of(untitled, UNITS, 4, 5).documents)[0] == [second]
    reqa = documents.assign(sentence=WORDS[1], context=f"{WORDS[1]} {WORDS[0]}")
    read = TokenizedCollection.of(replace(collection, documents=reqa), UNITS, 4, 3)
    assert tokens(read.documents)[0] == [second, sep, second]  # cut at three


def test_words_have_no_separator(collection):
    vocabulary = Vocabulary.build(texts(collection))
    read = TokenizedCollection.of(collection, vocabulary, None, None)
    assert tokens(read.documents)[3] == vocabulary.encode([texts(collection).iloc[3]]).ids.tolist()


def test_what_changes_the_rows_changes_the_address(collection):
    found = {
        TokenizedCollection.of(collection, tokenizer, *lengths).address["tokens"]
        for tokenizer in (UNITS, WordPiece((*UNITS.tokens, "more")), Vocabulary.of(WORDS))
        for lengths in ((4, 12), (4, 11), (5, 12), (None, None))
    }
    assert len(found) == 12


def test_a_passage_is_tokenized_once_for_all_of_its_sentences(collection, monkeypatch):
    documents = pd.DataFrame({"text": "t", "sentence": WORDS[:40], "context": WORDS[0]})
    documents.index = collection.documents.index
    seen, real = [], WordPiece.encode

    def encode(self, texts):
        texts = list(texts)
        seen.append(len(texts))
        return real(self, texts)

    monkeypatch.setattr(WordPiece, "encode", encode)
    read = TokenizedCollection.of(replace(collection, documents=documents), UNITS, 4, 5)
    assert seen == []  # until it is asked for
    whole, part = read.documents, read.block(slice(7, 9))
    assert sorted(seen) == [1, 40] and tokens(part) == tokens(whole)[7:9]


@pytest.mark.parametrize("kept", [0, 100_000])
def test_a_block_is_a_part_of_all_whether_these_are_kept_or_not(collection, monkeypatch, kept):
    monkeypatch.setattr(tokenized, "KEPT", kept)
    read = TokenizedCollection.of(collection, UNITS, 4, 5)
    mask = np.arange(len(collection.documents)) % 3 == 1
    for rows in (slice(7, 9), slice(None), np.array([5, 0, 5]), mask):
        expected = tokens(read.documents.take(np.arange(len(mask))[rows]))
        assert tokens(read.block(rows)) == tokens(read.fresh(rows)) == expected


def test_rows_are_read_again_by_whoever_comes_next(collection, monkeypatch, own_build):
    first = TokenizedCollection(collection, UNITS, 4, 5)
    expected = tokens(first.documents)
    monkeypatch.setattr(WordPiece, "encode", None)  # would fail
    assert tokens(TokenizedCollection(collection, UNITS, 9, 5).documents) == expected  # however long queries are


def test_texts_are_title_and_text(collection):
    assert texts(collection)["d1"] == f"{WORDS[1]} {collection.documents['text']['d1']}"
    untitled = replace(collection, documents=collection.documents.drop(columns="title"))
    assert texts(untitled)["d1"] == collection.documents["text"]["d1"]


def test_relevant_documents_are_drawn_with_what_is_known(ranking):
    labelled = ranking.labelled("train")
    drawn = labelled.draw(0, 8, seed=1)
    for place, row in enumerate(drawn.rows):
        assert drawn.queries.row(place).tolist() == labelled.queries.row(row).tolist()
        assert drawn.known[place, place]
    shares = np.exp(labelled._log_shares[np.isfinite(labelled._log_shares)])
    assert shares.sum() == pytest.approx(1, rel=1e-5)
