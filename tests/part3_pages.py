"""What the notebooks of Part III declare and record under which name, without data and without training."""

from itertools import product

import pages
import pandas as pd
import pytest

from retlib.data.articles import OutOfTarget
from retlib.data.collection import Collection
from retlib.studies import part3

# Laptop's collections without labels to train on, and those whose candidates are sentences.
UNLABELLED, SENTENCES = ("trec-dl-2019",), ("squad-small", "natural-questions")


def stub(name):
    """A collection of that name, of which nothing is there but what decides how it is used."""
    documents = pd.DataFrame({"text": ["x", "y"]}, index=["a", "b"])
    if name in SENTENCES:
        documents["sentence"] = documents["context"] = "x"
    split = ["test"] * 3 if name in UNLABELLED else ["train", "train", "test"]
    queries = pd.DataFrame({"text": "x", "split": split}, index=["q", "r", "s"])
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": "a", "relevance": 1})
    return Collection(name, documents, queries, qrels)


def passages(count):
    """So many passages."""
    return pd.DataFrame({"text": "x", "title": "x"}, index=[f"p{i}" for i in range(count)])


def declared(page, parameters):
    """What a notebook declares when it runs over stubs; see `pages.declared`."""
    if "added" in parameters:
        parameters = {**parameters, "added": dict.fromkeys(parameters["added"], 3)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OutOfTarget, "documents", property(lambda self: passages(self.most)))
        patch.setattr(part3, "panels", lambda *_: [])
        return pages.declared(page, parameters, stub)


def recorded(page, parameters):
    """What a notebook records with these parameters: triples of system, collection and measure."""
    _, studies = declared(page, parameters)
    found = set()
    for study, only in studies:
        tests = [getattr(each, "test", each).name for each in study.targets]
        for system, test in product(study.systems, tests):
            if test in only.get(system, [test]):
                found |= set(product([system], [test], study.measures))
    return found
