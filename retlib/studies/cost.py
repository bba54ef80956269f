"""What retrieval by inner products saves against a Transformer that reads query and document together."""

from __future__ import annotations

import numpy as np
import torch

from retlib.core import runtime
from retlib.data.text import TokenTable, concatenate, constant
from retlib.retrieval import index
from retlib.studies.experiment import Experiment
from retlib.studies.reqa import Study
from retlib.systems.dense import Architecture

UNIT = "seconds for 1000 x 1 million"


def record_cost(
    experiment: Experiment,
    study: Study,
    architecture: Architecture,
    queries: int,
    documents: int,
    pairs: int,
    repeats: int,
) -> None:
    """Time inner products and cross-attention, scaled to 1000 queries and a million documents (section 2).

    Parameters
    ----------
    queries, documents : int
        Random encodings that are multiplied, and searched for the top 100.
    pairs : int
        Queries and candidates of the collection that the Transformer reads together.
    repeats : int
        Each is recorded as a seed of its own.
    """
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((documents, architecture.dimension), dtype=np.float32)
    asked = generator.standard_normal((queries, architecture.dimension), dtype=np.float32)
    exact = index.build("Exact", vectors)
    reader = architecture.build(study.prepared[0]).query_encoder.eval()
    together = _together(study, architecture, pairs)
    everything, name = 1000 * 1_000_000, study.part(experiment.parameters["shares"][0]).name
    for repeat in range(repeats):
        with runtime.Stopwatch() as products:
            exact.search(asked, 100)
        with runtime.Stopwatch() as attention, torch.no_grad(), runtime.autocast("bfloat16"):
            reader(together)
        scaled = {
            "inner product": products.seconds * everything / (queries * documents),
            "cross-attention": attention.seconds * everything / pairs,
        }
        for system, seconds in scaled.items():
            experiment.record(system, name, UNIT, seconds, repeat)


def _together(study: Study, architecture: Architecture, pairs: int) -> TokenTable:
    """Queries and candidates in one row each, with the separator between them."""
    benchmark, rows = study.benchmark(architecture), np.arange(pairs)
    queries = benchmark.queries.take(rows % len(benchmark.queries))
    documents = benchmark.documents.take(rows % len(benchmark.documents))
    pieces = [queries.segment, constant(study.prepared[0].sep, pairs), documents.segment]
    return concatenate(pieces, architecture.query_length + architecture.document_length)
