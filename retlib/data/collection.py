"""A test collection, which every loader returns: documents, queries, judgments, labelled pairs (all chapters)."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of

SPLITS, ALL = ("train", "dev", "test"), slice(None)
BLOCK = 65_536  # rows whose fingerprint is taken at once

# The columns that each frame must have, and what each value is; others may stand beside them. An id is in the index.
COLUMNS = {
    "documents": {"id": "string", "text": "string"},
    "queries": {"id": "string", "text": "string", "split": "split"},
    "qrels": {"query_id": "query", "doc_id": "document", "relevance": "integer"},
    "pairs": {"left": "document", "right": "document", "label": "integer", "split": "split"},
}


@dataclass(frozen=True)
class Article:
    """A page of an encyclopedia or manual: paragraphs of running text in order, and the pages that it links to."""

    name: str  # unique among the articles of its source
    title: str
    passages: tuple[str, ...]
    opening: int  # how many of them make up the first section that has any
    links: tuple[str, ...] = ()  # names; some may be no article of the source

    def __post_init__(self) -> None:
        is_possible = min(1, len(self.passages)) <= self.opening <= len(self.passages)
        require(is_possible, f"article {self.name!r} has an impossible opening, {self.opening}", DataError)

    @classmethod
    def of(cls, name: str, title: str, sections: Iterable[list[str]], links: Iterable[str] = ()) -> Self:
        """Return an article of the paragraphs of its sections; its opening is the first section that has any."""
        full = [section for section in sections if section]
        passages = tuple(passage for section in full for passage in section)
        return cls(name, title, passages, len(full[0]) if full else 0, tuple(links))


@dataclass(frozen=True, eq=False)
class Collection:
    """An immutable test collection, checked when it is made.

    `documents` are by `doc_id`: `text`, and where the source has them `title`, `article`, `section`, `position`,
    `split`. `queries` are by `query_id`: `text` and `split`; `cluster` where queries of one cluster share their
    relevant documents. `qrels` are `query_id`, `doc_id`, `relevance` (0 is judged and not relevant); `pairs` labelled
    pairs of documents, `left`, `right`, `label` (1 for duplicates, 0 for near-misses) and `split`. `provenance` is file
    or package to checksum or version; `facts` are what the reader of the files counted, and no part of the fingerprint.

    Raises `DataError` if an id or a judgment is repeated, or a frame is not as `COLUMNS` says.
    """

    name: str
    documents: pd.DataFrame
    queries: pd.DataFrame
    qrels: pd.DataFrame
    pairs: pd.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        valid = {"document": self.documents.index, "query": self.queries.index, "split": pd.Index(SPLITS)}
        for name, frame in self._frames().items():
            columns = COLUMNS[name]
            missing = [column for column in columns if column not in ("id", *frame)]
            self._check(not missing, f"{name} lacks the column(s) {missing}")
            for column, kind in columns.items():
                values, wrong = frame.index if column == "id" else frame[column], []
                if kind in valid:
                    wrong = values[valid[kind].get_indexer(values) < 0]  # much faster than isin
                # A dtype that is no object tells the kind at once, but not what is missing.
                elif len(values) and (infer_dtype(values, skipna=False) != kind or values.hasnans):
                    wrong = [each for each in values if infer_dtype([each], skipna=False) != kind] or [values.dtype]
                self._check(len(wrong) == 0, f"{name}.{column}: each must be a {kind}; not so {[*wrong[:3]]}")
            repeated = frame.index[frame.index.duplicated()].tolist() if "id" in columns else []
            self._check(not repeated, f"{name}: id {repeated[:1]} is repeated")
        repeated = self.qrels.duplicated(["query_id", "doc_id"])
        self._check(not repeated.any(), "qrels: a (query, document) pair is judged twice")

    def _frames(self) -> dict[str, pd.DataFrame]:
        return {name: frame for name in COLUMNS if (frame := getattr(self, name)) is not None}

    def _check(self, condition: bool, message: str) -> None:
        require(condition, f"collection {self.name!r}: {message}", DataError)

    def __repr__(self) -> str:
        sizes = f"{len(self.documents):,} documents, {len(self.queries):,} queries, {len(self.qrels):,} judgments"
        return f"<Collection {self.name}: {sizes}, {self.fingerprint[:12]}>"

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole content."""
        return _digest(self._frames())

    @cached_property
    def documents_fingerprint(self) -> str:
        """The sha256 of the documents, which all shares of the labels have in common."""
        return _digest({"documents": self.documents})

    @cached_property
    def own_documents(self) -> pd.Index:
        """Return the ids of questions that are documents, with the id and the text of one, or its title and text.

        Those whose document is judged relevant to them are not among them: Gillick 2018 counts it.
        """
        relevant = self.qrels.query("query_id == doc_id and relevance > 0")["query_id"]
        ids = self.queries.index.intersection(self.documents.index).difference(relevant, sort=False)
        queries, documents = self.queries["text"][ids], self.documents.loc[ids]
        titled = documents.get("title", "") + " " + documents["text"]
        queries, text, titled = (each.str.normalize("NFC").str.strip() for each in (queries, documents["text"], titled))
        own = ids[(queries == text) | (queries == titled)]
        if len(own):
            why = "Their own document leaves their lists and is no negative, as no judgment names it relevant"
            runtime.note(f"{len(own)} questions of {self.name} are documents of it. {why}.")
        return own

    def own_rows(self, query_ids: pd.Index) -> np.ndarray:
        """Return the row of the one of `own_documents` that each question is, or -1: (Q,)."""
        return np.where(query_ids.isin(self.own_documents), self.documents.index.get_indexer(query_ids), -1)

    @cached_property
    def text_numbers(self) -> np.ndarray:
        """Return a number for each document, (D,), which is that of its copies: documents of one title and text."""
        return text_numbers(self.documents).to_numpy()

    def copy_bound(self) -> float:
        """Return by how many points of 100, at most, a mean over the test moves if copies of relevant texts count."""
        relevant = self.relevant("test")
        numbers = self.text_numbers[self.documents.index.get_indexer(relevant["doc_id"])]
        texts = pd.DataFrame({"query": relevant["query_id"].to_numpy(), "text": numbers})
        copies = texts.drop_duplicates().assign(count=lambda each: np.bincount(self.text_numbers)[each["text"]])
        moves = copies.groupby("query")["count"].sum() > texts.groupby("query").size()
        return 100 * float(moves.sum()) / max(1, len(self.split("test")))

    def split(self, name: str) -> pd.DataFrame:
        """Return the queries of one split: train, dev or test."""
        require_one_of("split", name, SPLITS)
        return self.queries[self.queries["split"] == name]

    def judgments(self, split: str) -> pd.DataFrame:
        """Return the qrels of one split's queries."""
        return self.qrels[self.qrels["query_id"].isin(self.split(split).index)]

    def relevant(self, split: str | None = None) -> pd.DataFrame:
        """Return the qrels that say relevant, of one split's queries or of all."""
        qrels = self.qrels if split is None else self.judgments(split)
        return qrels[qrels["relevance"] > 0]

    def labelled(self, split: str, label: int | None = 1) -> pd.DataFrame:
        """Return the labelled pairs of one split; `label` None gives both kinds."""
        self._check(self.pairs is not None, "it has no labelled pairs; see `pairs` and `retrieval_task`")
        return self.pairs[(self.pairs["split"] == split) & (label is None or self.pairs["label"] == label)]

    def part(self, documents: pd.Series | slice = ALL, queries: pd.Series | slice = ALL) -> Self:
        """Return the same task with the documents and queries that are chosen (bool), and what names no others."""
        candidates, queries, qrels, pairs = self.documents[documents], self.queries[queries], self.qrels, self.pairs
        qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(candidates.index)]
        if pairs is not None:
            pairs = pairs[pairs[["left", "right"]].isin(candidates.index).all(axis=1)]
        return replace(self, documents=candidates, queries=queries, qrels=qrels, pairs=pairs)

    def candidates(self, split: str) -> Self:
        """Return the same task with the documents of one split as candidates, and its queries alone."""
        part = self.part(self.documents["split"] == split, self.queries["split"] == split)
        return replace(part, name=f"{self.name}-{split}")

    def statistics(self) -> pd.DataFrame:
        """Return the sizes of the task as Gillick 2018, Table 1 gives them, in one row."""
        relevant = self.relevant("test").groupby("query_id").size()
        kinds = {} if self.pairs is None else {"positive": 1, "negative": 0}
        sizes = {
            "collection": self.name,
            **{f"{kind} training pairs": len(self.labelled("train", label)) for kind, label in kinds.items()},
            "test queries": len(self.split("test")),
            "candidates": len(self.documents),
            "relevant candidates/query": round(float(relevant.mean()), 2),
            "words/candidate": round(float(self.documents["text"].str.split().str.len().mean()), 1),
            "copies move a mean by at most": round(self.copy_bound(), 2),
            "fingerprint": self.fingerprint[:12],
        }
        return pd.DataFrame([sizes])


def _digest(frames: Mapping[str, pd.DataFrame]) -> str:
    digest = hashlib.sha256()
    for name, frame in frames.items():
        named = frame.reset_index(names="id") if "id" in COLUMNS[name] else frame
        for column in sorted(named.columns):
            digest.update(f"\x1d{name}.{column}\x1e".encode())
            for start in range(0, len(named), BLOCK):  # a large corpus, joined, would be in memory twice more
                joined = "\x1f".join(named[column].iloc[start : start + BLOCK].astype(str))
                digest.update((("\x1f" if start else "") + joined).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def text_numbers(documents: pd.DataFrame) -> pd.Series:
    """Return a number for each document, which copies of its title and text share."""
    columns = documents.columns.intersection(["title", "text", "sentence", "context"])
    return documents.groupby([*columns], sort=False, dropna=False).ngroup()
