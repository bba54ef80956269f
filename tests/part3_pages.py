"""What the notebooks of Part III declare and record under which name, without data and without training."""

from itertools import product
from unittest.mock import MagicMock

import pandas as pd
import pytest

from retlib.core import notebook_files, runtime
from retlib.data import datasets
from retlib.data.articles import OutOfTarget
from retlib.data.collection import Collection
from retlib.studies.experiment import Experiment
from retlib.studies.study import Study

NOTEBOOKS = runtime.root() / "notebooks"
# Laptop's collections without labels to train on, and those whose candidates are sentences.
UNLABELLED, SENTENCES = ("trec-dl-2019",), ("squad-small", "natural-questions")
# Cells with one of these words declare what is recorded, or record it.
WORDS = ("import Experiment", "targets =", "QueryGenerator(", "Stage(", "Study(", "panels +=")


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


def declared(page, parameters, live=True):
    """The names in a notebook once it has run, and its studies with the tests that each system is recorded on.

    Live, its collections are stubs; else it shows what is recorded.
    """
    notebook, studies = NOTEBOOKS / f"{page}.ipynb", []
    names = {**notebook_files.declared(notebook), **parameters, "source": "run" if live else "reference"}
    if "added" in names:
        names["added"] = dict.fromkeys(names["added"], 3)
    code = [notebook_files.source(cell) for cell in notebook_files.cells(notebook) if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", stub if live else lambda name: pytest.fail(f"{name} is loaded"))
        patch.setattr(OutOfTarget, "documents", property(lambda self: passages(self.most)))
        patch.setattr(Study, "run", lambda self, _, only=None: studies.append((self, only or {})))
        if live:
            patch.setattr(Experiment, "table", MagicMock())
        for text in code:
            if any(word in text for word in WORDS):
                exec(text, names)
    return names, studies


def recorded(page, parameters):
    """What a notebook records with these parameters: triples of system, collection and measure."""
    names, studies = declared(page, parameters)
    if page == "31_query_generation":
        targets = [panel.target.name for panel in names["panels"]]
        return set(product(["Real", *names["decodings"]], targets, ["pairs", "round trip"]))
    found = set()
    for study, only in studies:
        tests = [getattr(each, "test", each).name for each in study.targets]
        for system, test in product(study.systems, tests):
            if test in only.get(system, [test]):
                found |= set(product([system], [test], study.measures))
    return found
