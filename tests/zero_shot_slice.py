"""Part III on a slice of NumPy's docstrings, and what its notebooks record under which name."""

from functools import cache
from itertools import product

import pandas as pd

from retlib.data.collection import Collection
from retlib.studies import zero_shot_study
from retlib.studies.zero_shot_study import EXPANDED, LEXICAL, MEASURES, Tests

SOURCE, TARGET = "pydocs-source-smoke", "pydocs-target-smoke"
# The parameters that the notebooks share.
SHARED = {
    "generators": {SOURCE: [TARGET]}, "answers": {}, "documents": 100, "questions": 12,
    "articles": "pydocs-smoke", "separate": 50, "units": 300,
    "generator_head": "pointer", "generator_checkpoint": "", "generator_layers": 1,
    "generator_width": 64, "denoising_steps": 0, "generator_steps": 3, "generator_batch": 8, "generator_rate": 0.001,
    "passage_length": 16, "samples": 2, "kept": 2, "layers": 1, "width": 64, "dimension": 12, "pooling": "cls",
    "head": "tanh", "query_length": 8, "document_length": 16, "steps": 3, "batch": 8, "rate": 0.001, "later_steps": 2,
    "later_rate": 0.001,
}  # fmt: skip
TESTED = {
    "adapted": [TARGET], "compared": [TARGET], "added": {TARGET: 20}, "added_articles": "pydocs-smoke", "whole": [],
}  # fmt: skip
# Laptop's collections without labels to train on, and those whose candidates are sentences.
UNLABELLED, SENTENCES = ("trec-dl-2019",), ("squad-small", "natural-questions")


@cache
def study():
    """The study of `SHARED`."""
    return zero_shot_study.studies(SHARED)[SOURCE]


@cache
def tests():
    """What it is tested on: the target alone, and with further candidates."""
    return zero_shot_study.tests(study(), TESTED["added"], TESTED["added_articles"])


def stub(name):
    """A collection of that name, of which nothing is there but what decides how it is used."""
    documents = pd.DataFrame({"text": ["x", "y"]}, index=["a", "b"])
    if name in SENTENCES:
        documents["sentence"] = "x"
    split = ["test"] * 3 if name in UNLABELLED else ["train", "train", "test"]
    queries = pd.DataFrame({"text": "x", "split": split}, index=["q", "r", "s"])
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": "a", "relevance": 1})
    return Collection(name, documents, queries, qrels)


def stubs(targets, added) -> Tests:
    """What a study of these targets is tested on, by name."""
    found = {}
    for name in targets:
        target = stub(name)
        found[name] = target, target
        if name in added:
            found[f"{name}+added"] = target, stub(f"{name}+added")
    return found


def recorded(notebook, given):
    """What a notebook records with these parameters: triples of system, collection and measure."""
    if notebook == "31_query_generation":
        targets = [name for each in given["generators"].values() for name in each if name not in SENTENCES]
        return set(product(["Real", "Greedy", "Beam", "Nucleus"], targets, ["pairs", "round trip"]))
    found = set()
    for targets in given["generators"].values():
        tests = stubs(targets, given["added"])
        if notebook == "32_zero_shot":
            jobs = zero_shot_study.zero_shot_jobs(tests, given["adapted"], given["compared"])
            jobs |= dict.fromkeys(LEXICAL, list(tests))
            jobs[EXPANDED] = [name for name in given["adapted"] if name in tests]
            jobs["BM25"] = [*jobs["BM25"], *(f"{name}, whole" for name in given["whole"])]
        else:
            jobs = zero_shot_study.ablation_jobs(tests, given["target"], given["second"])
        found |= {triple for system, names in jobs.items() for triple in product([system], names, MEASURES)}
    return found
