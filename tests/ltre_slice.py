"""Part IV on a slice of NumPy's docstrings, and what its notebooks record under which name."""

from dataclasses import replace
from functools import cache
from itertools import product

from retlib.data import datasets
from retlib.data.collection import subsample
from retlib.evaluation import results
from retlib.retrieval.index import EXACT
from retlib.studies import ltre_study
from retlib.studies.experiment import Experiment
from retlib.studies.ltre_study import MEASURES, NEGATIVES, OPTIMIZERS_WATCHED, WARM, WATCHED
from retlib.studies.time_to_quality import SECONDS

# The parameters that the notebooks share.
SHARED = {
    "collections": ["pydocs-passages-smoke"], "zero_shot": [], "documents": 300, "questions": 20,
    "articles": "pydocs-smoke", "units": 300, "layers": 1, "width": 64, "dimension": 12, "query_length": 12,
    "document_length": 24, "pretraining_steps": 2, "pretraining_batch": 8, "pretraining_rate": 0.001, "warm_steps": 3,
    "warm_rate": 0.01, "batch": 8, "steps": 3, "rate": 0.01, "negatives": 1, "interval": 4, "query_steps": 10,
    "query_rate": 0.01, "retrieved": 10, "query_loss": "lambdarank-mrr", "optimizer": "adamw",
}  # fmt: skip
READERS = {"BERT small": 1, "BERT large": 2}
# What each notebook has beside them.
OWN = {
    "41_training_dynamics": {"optimizers": {"lamb": 0.01, "adamw": 0.01}},
    "42_first_stage": {"system": "all"},
    "43_two_stage": {"depths": [3, 6]},
    "44_compressed_index": {
        "factories": ["OPQ2,IVF1,PQ2", "OPQ6,IVF1,PQ6", EXACT],
        "matrix": ["OPQ6,IVF1,PQ6", EXACT],
    },
    "45_training_time": {"added_text": ["pydocs-smoke"], "sizes": [320, 400], "refreshes": 2, "looks": 5},
}  # fmt: skip
OTHER = "other"  # the collection that is tested on without training
COSTS = ["training seconds", "search share", "queries to best"]


@cache
def study():
    """The study of `SHARED`, with a second collection that is tested on alone."""
    made = ltre_study.study(SHARED)
    # A byte of a code has 256 values: an index takes no fewer documents.
    other = replace(subsample(datasets.load("pydocs-passages-smoke"), 256, 10), name=OTHER)
    return replace(made, tested_on=(*made.tested_on, other))


def desk(notebook, source="run"):
    """Where a notebook records."""
    common = {"profile": "smoke", "seeds": [0, 1], "source": source}
    return Experiment(notebook, common)


def closed(notebook, monkeypatch):
    """A desk that shows what was recorded, which is nothing: asked to compute, it has no study to do it with."""
    monkeypatch.setattr(results, "load", lambda *_, **__: _nothing())
    return desk(notebook, "reference")


def _nothing():
    made = results.Results()
    made.add_row(experiment="x", system="x", collection="x", split="test", measure="x", value=0.0, seed=0)
    return made


def recorded(notebook, given, readers=tuple(READERS)):
    """What a notebook records with these parameters: pairs of system and measure.

    Of notebook 41 it is what stands in the table of curves; seconds of single parts are left out.
    """
    if notebook == "41_training_dynamics":
        labels = [OPTIMIZERS_WATCHED[name] for name in given["optimizers"]]
        systems = ["Warm-up", *(f"{name}{label}" for name, label in product(WATCHED, labels))]
        return set(product(systems, ["RR@10", "R@200", "overlap BM25", "overlap stale"]))
    if notebook == "42_first_stage":
        trained = [WARM, *NEGATIVES]
        found = set(product(["BM25", "BM25+RM3", *trained], MEASURES))
        return found | set(product([f"{name}, rerank" for name in trained], ["RR@10", "nDCG@10"]))
    if notebook == "43_two_stage":
        stages = product(["BM25", "LTRe"], readers, given["depths"])
        systems = ["BM25", "LTRe", "ColBERT", *(f"{first} -> {name}, {depth}" for first, name, depth in stages)]
        return set(product(systems, ["RR@10", "R@1000", "latency ms", "latency p95 ms"]))
    if notebook == "45_training_time":
        return set(product(["ANCE", "LTRe"], [SECONDS]))
    found = set(product([f"Index {factory}" for factory in given["factories"]], [*MEASURES, "index bytes"]))
    found |= set(product([f"LTRe, {factory}" for factory in given["factories"]], [*MEASURES, *COSTS]))
    found |= set(product(["ANCE"], COSTS))
    pairs = product(given["matrix"], given["matrix"])
    return found | set(product([f"trained {a} searched {b}" for a, b in pairs], ["RR@10", "nDCG@10"]))


def seen(rows):
    """The pairs of system and measure in recorded rows, without seconds of single parts."""
    rows = rows[~rows["measure"].str.startswith("seconds of ")]
    return set(rows[["system", "measure"]].itertuples(index=False, name=None))
