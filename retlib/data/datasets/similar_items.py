"""Pairs of similar questions (Part I): Quora (Gillick 2018, section 3.3), titles of AskUbuntu, Disfl-QA."""

import json
from collections.abc import Iterable, Mapping

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._common import text_id
from retlib.data.datasets.catalogue import locate, read_table
from retlib.data.splits import closure, retrieval_task, split_by_cluster
from retlib.data.text import words

SIDES = ["left", "right"]
# What annotators left where no disfluent version was written, as words.
PLACEHOLDERS = {"", "value", "n a", "no question", "no question n a", "question n a", "answer n a"}


def by_text(pairs: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Return the distinct texts by their `text_id`, and the pairs (left, right, label) with ids for texts.

    Left out are repeated pairs, pairs of a text with itself, and pairs with an empty side.
    """
    pairs = pairs.assign(**{side: pairs[side].str.strip() for side in SIDES})
    pairs = pairs[(pairs[SIDES] != "").all(axis=1)]
    ids = {text: text_id(text) for text in pd.unique(pairs[SIDES].to_numpy(dtype=object).ravel())}
    pairs = pairs.assign(**{side: pairs[side].map(ids) for side in SIDES})
    pairs = pairs[pairs["left"] != pairs["right"]].drop_duplicates([*SIDES, "label"])
    return pd.Series({item: text for text, item in ids.items()}, dtype=object), pairs.reset_index(drop=True)


def similar_items(
    name: str, pairs: pd.DataFrame, labels: Mapping[str, int], shares: Mapping[str, float], test: Iterable[str] = ()
) -> Collection:
    """Return the retrieval task of labelled pairs, split by `split_by_cluster`; the texts in `test` are test."""
    texts, pairs = by_text(pairs.assign(label=pairs["label"].map(labels).astype(int)))
    split = split_by_cluster(texts.index, closure(pairs), shares)
    split[texts.isin(set(test))] = "test"
    return retrieval_task(name, texts, pairs, split)


@register("quora")
def load_quora() -> Collection:
    """Return the official TSV; 'candidates("test")' gives the paper's smaller candidate set.

    Its partition is not published: a tenth of the clusters gives about as many test queries on a fifth of the pairs.
    """
    rows = read_table("quora/quora_duplicate_questions.tsv", "\t")
    pairs = rows[["question1", "question2", "is_duplicate"]].set_axis([*SIDES, "label"], axis=1)
    return similar_items("quora", pairs, {"0": 0, "1": 1}, {"test": 0.118, "dev": 0.05})


@register("askubuntu-titles")
def load_askubuntu_titles() -> Collection:
    """Return the two official files (Rodrigues 2017; Bogdanova 2015 by sizes); a tenth of the other clusters tunes.

    2,324 titles of the test file stand in the training file too: training pairs that touch one are dropped.
    """
    files = [f"askubuntu-titles/{part}_titles.tsv" for part in ("test", "train")]
    test, train = (read_table(file, "\t", ["label", *SIDES]) for file in files)
    test, train = (part.apply(lambda column: column.str.strip()) for part in (test, train))
    held_out = {*test["left"], *test["right"]}
    pairs = pd.concat([test, train[~train[SIDES].isin(held_out).any(axis=1)]])
    return similar_items("askubuntu-titles", pairs, {"duplicate": 1, "non-duplicate": 0}, {"dev": 0.10}, held_out)


@register("disfl-qa")
def load_disfl_qa() -> Collection:
    """Return SQuAD's questions and disfluent versions of them (Gupta 2021) with the official splits.

    A cluster of several files goes to test before dev before train. Pairs without a real disfluent version (50 say
    ``#VALUE!`` or the like) are left out.
    """
    rows = [
        (entry["original"], entry["disfluent"], 1, part)
        for part in ("test", "dev", "train")  # so that the first part of a cluster's pairs is its side
        for entry in json.loads(locate(f"disfl-qa/{part}.json").read_bytes()).values()
        if " ".join(words(entry["disfluent"])) not in PLACEHOLDERS
    ]
    texts, pairs = by_text(pd.DataFrame(rows, columns=[*SIDES, "label", "part"]))
    clusters = closure(pairs)
    split = clusters.map(pairs.groupby(pairs["left"].map(clusters), sort=False)["part"].first())
    return retrieval_task("disfl-qa", texts[split.index], pairs, split)
