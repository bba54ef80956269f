"""Two processes on one machine give what one gives: gradients, loss curve, weights, embeddings of a corpus."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Trains a chain with in-batch, retrieved and listed negatives, and writes what came of it.
SCRIPT = """
import json, sys
import numpy as np
from retlib.core import parallel
from retlib.data import datasets
from retlib.models.retriever import Architecture
from retlib.systems.ranking import encode_corpus
from retlib.systems.stages import Stage
from retlib.systems.system import System, fit
from retlib.systems.training_data import Labels

collection = datasets.load("pydocs-target-smoke")
architecture = Architecture("bow-mlp", layers=1, width=64, dimension=16, query_length=8, document_length=12)
how = {"steps": 6, "batch_size": 17, "learning_rate": 0.01, "precision": "float32", "evaluations": 3}
system = System(architecture) + Stage(data=Labels(), **how)
system += Stage(data=Labels(), negatives="retrieved", options={"n": 5}, loss="lambdarank-mrr", trains="query", **how)
system += Stage(data=Labels(), negatives="ann", options={"n": 1, "interval": 2}, loss="ranknet", chunk=5, **how)
retriever = fit(system, collection, 0)
vectors = encode_corpus(retriever, retriever.reads(collection))
if parallel.rank() == 0:
    np.save(sys.argv[1] + ".npy", vectors)
    rows = [[row["loss"], row["score"]] for row in retriever.history.evaluations]
    json.dump([parallel.size(), rows], open(sys.argv[1], "w"))
"""


def run(folder: Path, processes: int) -> tuple[np.ndarray, np.ndarray]:
    script, found = folder / "script.py", folder / f"of-{processes}.json"
    script.write_text(SCRIPT)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {"RETLIB_BUILD": str(folder / f"build-{processes}"), "RETLIB_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *(launch if processes > 1 else []), str(script), str(found)]
    subprocess.run(command, check=True, env=os.environ | environment, capture_output=True, timeout=300)
    size, rows = json.loads(found.read_text())
    assert size == processes
    assert not list((folder / f"build-{processes}").rglob("*.partial*"))
    return np.array(rows), np.load(f"{found}.npy")


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    (alone, vectors), (together, others) = (run(tmp_path, count) for count in (1, 2))
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(others, vectors, rtol=1e-3, atol=1e-4)
