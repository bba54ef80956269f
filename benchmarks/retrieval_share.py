"""What share of an LTRe training step goes into retrieving from all documents.

``python benchmarks/retrieval_share.py`` trains the query encoder (two layers of 128) by LTRe over 100
thousand made-up vectors with exact search; ``--documents 1000000 --index IVF2048,PQ64x4fs,RFlat
--search nprobe=64,k_factor=2`` over a million with a compressed index. Vectors are drawn around as many
centres as documents / 20, queries are made of random words and start near nothing in particular, so that
the quality of what is learnt means nothing; the time does not depend on it. The recall of the index is
that of its top n against exact search, for the queries' encodings after training.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from retlib.core import runtime
from retlib.data.pairs import LabelledQueries
from retlib.data.text import TokenTable, WordPiece, offsets_of
from retlib.models.encoders import DualEncoder, encode
from retlib.models.transformer import Transformer
from retlib.retrieval import index
from retlib.training.hard_negatives import Retrieved
from retlib.training.trainer import RetrievalTask, TrainingSettings, train

DIMENSION, QUERIES, UNITS, MEAN_LENGTH = 128, 4096, 8000, 12


def vectors(count: int, seed: int = 0) -> np.ndarray:
    """Unit vectors around random centres: float32, shape (count, DIMENSION)."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(1, count // 20), DIMENSION), dtype=np.float32)
    found = centres[generator.integers(len(centres), size=count)]
    found += 0.5 * generator.standard_normal(found.shape, dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def queries(seed: int = 1) -> TokenTable:
    """Rows of random units, of the lengths of questions."""
    generator = np.random.default_rng(seed)
    offsets = offsets_of(generator.poisson(MEAN_LENGTH - 1, QUERIES) + 1)
    return TokenTable(generator.integers(5, UNITS, offsets[-1]).astype(np.int32), offsets)


def main() -> None:
    """Train, and print the seconds of a step in their parts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--index", default="Exact", help="factory (default: Exact)")
    parser.add_argument("--search", default="", help="its search parameters, such as nprobe=64,k_factor=2")
    parser.add_argument("--retrieved", type=int, default=50, help="documents of a query (default: 50)")
    parser.add_argument("--batch", type=int, default=64, help="queries of a step (default: 64)")
    parser.add_argument("--steps", type=int, default=60, help="default: 60")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="default: all cores")
    options = parser.parse_args()

    os.environ["RETLIB_THREADS"] = str(options.threads)  # indexes search with as many
    runtime.set_threads()
    runtime.set_seeds(0)
    documents, table = vectors(options.documents), queries()
    search = {name: int(value) for name, value in (part.split("=") for part in options.search.split(",") if part)}
    start = time.perf_counter()
    built = index.build(options.index, documents, search)
    building = time.perf_counter() - start
    relevant = np.random.default_rng(2).integers(options.documents, size=(QUERIES, 1)).astype(np.int32)
    judged = LabelledQueries(table, TokenTable.from_rows(relevant.tolist()), documents)
    pieces = WordPiece((*WordPiece.SPECIAL, *(f"w{i}" for i in range(UNITS - len(WordPiece.SPECIAL)))))
    model = DualEncoder(Transformer.from_scratch(pieces, 2, DIMENSION, DIMENSION), similarity="dot")
    task = RetrievalTask(model, Retrieved(judged, options.batch, 0, built, options.retrieved), "lambdarank-mrr")
    settings = TrainingSettings(options.steps, options.steps, 2, "adamw", 1e-4, "bfloat16")
    history = train(task, settings, lambda: 0.0, seed=0)

    encoded = encode(model.queries, table.take(np.arange(256)))
    nearest = index.build("Exact", documents).search(encoded, options.retrieved)[1]
    found = built.search(encoded, options.retrieved)[1]
    recall = np.mean([np.isin(left, right).mean() for left, right in zip(nearest, found, strict=True)])
    where = runtime.environment()
    print(f"{where['device']}, {options.threads} threads of {where['cores']} cores, load {where['load']}")
    size = f"{built.size_bytes / 1e6:,.0f} MB"
    print(f"{options.documents:,} vectors of {DIMENSION}, {options.index} {options.search}: {size}")
    print(f"built in {building:.1f} s; recall of the top {options.retrieved}: {recall:.3f}")
    step = 1000 * history.seconds / options.steps
    print(f"{options.batch} queries, {options.steps} steps of {step:.0f} ms, of which")
    for name, seconds in history.parts.items():
        print(f"  {name:<20}{1000 * seconds / options.steps:8.1f} ms  {seconds / history.seconds:6.1%}")


if __name__ == "__main__":
    main()
