"""What several data sets are turned into: similar items, questions about passages or sentences, articles."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import pandas as pd

from retlib.data.collection import Article, Collection
from retlib.data.splits import closure, hash_position, retrieval_task, split_by_cluster, split_by_position
from retlib.data.text import quick_sentences

# The split of questions that is in the frame: 80 % train (a tenth of it dev), 20 % test. `low_resource` makes others.
SHARE = 0.8
PAIR = ["left", "right", "label"]


def text_id(text: str) -> str:
    """Return a hash of the text: the same text has the same id, and so the same split, in every copy of a data set."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def guarded(queries: pd.DataFrame, texts: pd.Series) -> pd.DataFrame:
    """Return queries, which stand in the order of their splits, without those whose text an earlier split has."""
    return queries[queries["split"] == queries.groupby(texts)["split"].transform("first")]


def by_text(pairs: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Return one item of every distinct text: item id (`text_id`) to stripped text, and the pairs with ids for texts.

    Pairs have columns `left`, `right` and `label`. Repeated pairs, pairs of a text with itself and pairs with an empty
    side are left out.
    """
    pairs = pairs.assign(left=pairs["left"].str.strip(), right=pairs["right"].str.strip())
    pairs = pairs[(pairs["left"] != "") & (pairs["right"] != "")]
    ids = {text: text_id(text) for text in pd.unique(pd.concat([pairs["left"], pairs["right"]]))}
    pairs = pairs.assign(left=pairs["left"].map(ids), right=pairs["right"].map(ids))
    pairs = pairs[pairs["left"] != pairs["right"]].drop_duplicates(PAIR)
    return pd.Series({item: text for text, item in ids.items()}, dtype=object), pairs.reset_index(drop=True)


def similar_items(name: str, pairs: pd.DataFrame, shares: Mapping[str, float], test: Iterable[str] = ()) -> Collection:
    """Return the retrieval task of labelled pairs (left, right, label), split by `split_by_cluster`; `test` is test.

    Labels are 0 and 1, or these as texts; others raise `ValueError`.
    """
    pairs = pairs.set_axis(PAIR, axis=1).astype({"label": int})
    if not pairs["label"].isin([0, 1]).all():
        raise ValueError("a label is neither 0 nor 1")
    texts, pairs = by_text(pairs)
    split = split_by_cluster(texts.index, closure(pairs), shares)
    split[texts.isin(set(test))] = "test"
    return retrieval_task(name, texts, pairs, split)


class Question(NamedTuple):
    """A question, and the answer with its place in the passage."""

    text: str
    start: int = 0
    answer: str = ""


class Passage(NamedTuple):
    """A passage of an article, where its sentences begin and end, and the questions about it."""

    article: str
    title: str
    text: str
    spans: tuple[tuple[int, int], ...] = ()
    questions: tuple[Question, ...] = ()


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each of `quick_sentences` begins and ends in the text, without the white space around it."""
    end = 0
    for sentence in filter(None, map(str.strip, quick_sentences(text))):
        start = text.index(sentence, end)
        end = start + len(sentence)
        yield start, end


def asked(name: str, passages: Iterable[Passage]) -> Collection:
    """Return the collection whose candidates are passages; passages of equal text are one, with the title of the first.

    Documents have `text`, `title` and `article`. Questions of equal text are one, to which every passage is relevant
    that it was asked about. Answers need not lie in one sentence: questions that `reqa` leaves out are here. See
    `answering`.
    """
    kept, rows = {}, []
    for passage in passages:
        passage_id = text_id(passage.text)
        kept.setdefault(passage_id, (passage.text, passage.title, passage.article))
        rows += [(text_id(question.text), question.text, passage_id) for question in passage.questions]
    documents = pd.DataFrame.from_dict(kept, orient="index", columns=["text", "title", "article"])
    return answering(name, documents, pd.DataFrame(rows, columns=["query_id", "text", "cluster"]))


def reqa(name: str, passages: Iterable[Passage]) -> Collection:
    """Return the collection whose candidates are all (sentence, passage) pairs, see `candidates`.

    ReQA: Ahmad 2019; Chang 2020, section 4.1. Passages of equal text are one, with the sentences of the first. Queries
    have the `article` of the candidate that answers them, and `ambiguous`, whether the answer stands in the passage
    more than once. Relevant is the sentence that holds the answer where the data set marks it. A question whose answer
    runs over a sentence's end or has no place, or whose text came before, is left out.
    """
    kept, rows = {}, {}
    for passage in passages:
        passage_id = text_id(passage.text)
        first = kept.setdefault(passage_id, passage)
        for question in passage.questions:
            start, end = question.start, question.start + len(question.answer)
            holding = (place for place, (left, right) in enumerate(first.spans) if left <= start and end <= right)
            if (sentence := next(holding, None)) is not None:
                is_ambiguous = passage.text.count(question.answer) > 1
                row = (question.text, f"{passage_id}#{sentence}", first.article, is_ambiguous)
                rows.setdefault(text_id(question.text), row)
    judged = pd.DataFrame.from_dict(rows, orient="index", columns=["text", "cluster", "article", "ambiguous"])
    return answering(name, candidates(kept), judged.rename_axis("query_id").reset_index())


def candidates(passages: Mapping[str, Passage]) -> pd.DataFrame:
    """Return all (sentence, passage) pairs of passages under their ids, by `doc_id` (passage id, ``#``, number).

    `text` is sentence and passage, for what indexes one text; `sentence` and `context` are the two apart (a context is
    one string for all its sentences); `passage` is the id, `position` the number; `title` and `article`.
    """
    rows = [
        (f"{name}#{position}", passage.text[start:end], passage.text, name, passage.title, passage.article, position)
        for name, passage in passages.items()
        for position, (start, end) in enumerate(passage.spans)
    ]
    columns = ["doc_id", "sentence", "context", "passage", "title", "article", "position"]
    # As objects, many rows share one string.
    pairs = pd.DataFrame(rows, columns=columns, dtype=object).set_index("doc_id")
    pairs.insert(0, "text", pairs["sentence"] + " " + pairs["context"])
    return pairs.astype({"text": "str", "sentence": "str", "position": int})


def answering(name: str, documents: pd.DataFrame, judged: pd.DataFrame, made_of: Mapping | None = None) -> Collection:
    """Return the collection of judged questions: `query_id`, `text`, and `cluster`, the document that answers.

    Queries have the first `cluster`; `position`, a hash of the text unless one is given, and the `split` that follows
    from it: 72 % train, 8 % dev, 20 % test.
    """
    judged = judged.drop_duplicates(["query_id", "cluster"])
    queries = judged.drop_duplicates("query_id").set_index("query_id")
    position = queries.get("position", queries["text"].map(hash_position)).astype(float)
    queries = queries.assign(position=position, split=split_by_position(position, SHARE, SHARE))
    qrels = judged[["query_id", "cluster"]].set_axis(["query_id", "doc_id"], axis=1).assign(relevance=1)
    return Collection(name, documents, queries, qrels.reset_index(drop=True), provenance=dict(made_of or {}))


def is_running_text(paragraph: str) -> bool:
    """Return whether a paragraph is no heading, caption or list item: eight words or more, ended as a sentence."""
    return paragraph.count(" ") >= 7 and paragraph.rstrip("\"'”’)").endswith((".", "!", "?"))


def running_text(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of at least four words in the paragraphs that are running text."""
    for paragraph in filter(is_running_text, paragraphs):
        yield from (sentence for sentence in quick_sentences(paragraph) if sentence.count(" ") >= 3)


def article(name: str, title: str, sections: Iterable[list[str]], links: Iterable[str] = ()) -> Article:
    """Return an article of the paragraphs of its sections; its opening is the first section that has any."""
    filled = [section for section in sections if section]
    return Article(name, title, tuple(chain.from_iterable(filled)), len(filled[0]) if filled else 0, tuple(links))
