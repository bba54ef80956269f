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


def test_queries_without_a_relevant_document_are_left_out(collection, ranking):
    ids, relevant = ranking.relevant("train")
    assert ids.tolist() == [f"q{query}" for query in range(80) if query != 2]
    judged = collection.relevant().groupby("query_id")["doc_id"].agg(collection.documents.index.get_indexer)
    assert tokens(relevant) == [sorted(judged[name]) for name in ids] and len(relevant.row(0)) == 2
    labelled = ranking.labelled("train")
    assert tokens(labelled.queries)[1] == UNITS.encode([collection.queries["text"]["q1"]]).ids.tolist()


def test_a_split_without_a_relevant_document_and_an_unknown_id_are_errors(collection, start, ranking):
    none = replace(collection, qrels=collection.qrels.assign(relevance=0))
    with pytest.raises(DataError, match="'words' has no dev"):
        start.reads(none).labelled("dev")
    for rows, ids, unknown in ((ranking.query_rows, ["q0", "no"], "no"), (ranking.document_rows, ["d7", "d77"], "d77")):
        with pytest.raises(KeyError, match=unknown):
            rows(ids)


def test_documents_are_two_parts_with_a_separator_or_one(collection):
    documents = pd.DataFrame({"title": WORDS[0], "text": WORDS[1]}, index=collection.documents.index)
    first, sep, second = UNITS.ids[WORDS[0]], UNITS.sep, UNITS.ids[WORDS[1]]
    reqa = documents.assign(sentence=WORDS[1], context=f"{WORDS[1]} {WORDS[0]}")
    for frame, length, expected in (
        (documents, 5, [first, sep, second]),
        (documents[["text"]], 5, [second]),
        (reqa, 3, [second, sep, second]),  # cut at three
        (reqa, None, [second, sep, second, first]),
    ):
        read = TokenizedCollection.of(replace(collection, documents=frame), UNITS, 4, length)
        assert tokens(read.documents)[0] == expected


def test_texts_are_title_and_text_which_words_have_no_separator_for(collection):
    assert texts(collection)["d1"] == f"{WORDS[1]} {collection.documents['text']['d1']}"
    untitled = replace(collection, documents=collection.documents.drop(columns="title"))
    assert texts(untitled)["d1"] == collection.documents["text"]["d1"]
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


def test_a_passage_is_tokenized_once_for_all_of_its_sentences_and_whoever_comes_next(
    collection, monkeypatch, own_build
):
    documents = pd.DataFrame({"text": "t", "sentence": WORDS[:40], "context": WORDS[0]})
    documents.index = collection.documents.index
    seen, real = [], WordPiece.encode
    monkeypatch.setattr(WordPiece, "encode", lambda self, texts: seen.append(len(texts)) or real(self, texts))
    task = replace(collection, documents=documents)
    read = TokenizedCollection.of(task, UNITS, 4, 5)
    assert seen == []  # until it is asked for
    whole = tokens(read.documents)
    assert sorted(seen) == [1, 40] and tokens(read.block(slice(7, 9))) == whole[7:9]
    # However long queries are.
    assert tokens(TokenizedCollection(task, UNITS, 9, 5).documents) == whole and len(seen) == 2


@pytest.mark.parametrize("kept", [0, 100_000])
def test_a_block_is_a_part_of_all_whether_these_are_kept_or_not(collection, monkeypatch, kept):
    monkeypatch.setattr(tokenized, "KEPT", kept)
    read = TokenizedCollection.of(collection, UNITS, 4, 5)
    mask = np.arange(len(collection.documents)) % 3 == 1
    for rows in (slice(7, 9), slice(None), np.array([5, 0, 5]), mask):
        expected = tokens(read.documents.take(np.arange(len(mask))[rows]))
        assert tokens(read.block(rows)) == tokens(read.fresh(rows)) == expected


def test_a_query_is_drawn_with_which_documents_are_no_negatives(ranking):
    labelled = ranking.labelled("train")
    drawn = labelled.draw(0, 8, seed=1)
    assert tokens(drawn.queries) == tokens(labelled.queries.take(drawn.rows)) and drawn.non_negatives.diagonal().all()
    shares = np.exp(labelled._log_shares[np.isfinite(labelled._log_shares)])
    assert shares.sum() == pytest.approx(1, rel=1e-5)
