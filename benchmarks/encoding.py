"""The corpus encoded from its texts, beside `SentenceTransformer.encode` of the very same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks import inputs
from benchmarks.harness import CASES, Duel, Scale, installed, precisions
from retlib.core import runtime
from retlib.data.text import WordPiece
from retlib.data.tokenized import texts
from retlib.models.exporting import export
from retlib.models.retriever import Architecture, Retriever

# Layers and widths: those of the book's chapters, and those of all-MiniLM-L6-v2, here with random weights.
SIZES = ((2, 128), (6, 384))
LENGTH = 128
APART = 0.01  # of cosines, in bfloat16


def encoder(folder: str, precision: str) -> Callable:
    """The peer, from the folder that the book exports."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device=runtime.device().type, model_kwargs={"dtype": precision}).encode_document


def cosines_apart(mine: np.ndarray, other: np.ndarray) -> float:
    """1 less the least cosine of two encodings of one text."""
    lengths = np.linalg.norm(mine, axis=1) * np.linalg.norm(other, axis=1)
    return float(1 - (np.einsum("nd,nd->n", mine, other) / lengths).min())


@CASES.register("03-encoding")
def encoding(scale: Scale) -> Iterator[Duel]:
    """Both sort by length, and multiply in bfloat16 where the processor does."""
    installed("sentence_transformers")
    collection = inputs.collections(scale, 1)[0]
    read = texts(collection).tolist()
    words = WordPiece.train(read, scale(inputs.TOKENS, 2000))
    for layers, width in SIZES[: scale(2, 1)]:
        some = read[: scale(3072, 128) // layers**2 * 2]
        made = Architecture(layers=layers, width=width, dimension=width, pooling="all", document_length=LENGTH)
        mine = Retriever.fresh(made, words, seed=0)
        with tempfile.TemporaryDirectory() as folder:
            export(mine, Path(folder), "random weights", {})
            other = encoder(folder, precisions()[-1])
            peers = {
                f"SentenceTransformer.encode, batches of {batch}": lambda other=other, some=some, batch=batch: other(
                    some, batch_size=batch, show_progress_bar=False
                )
                for batch in (32, 128)
            }
            yield Duel(
                f"encoding, {layers} layers of {width}", "texts/s", len(some),
                lambda mine=mine, some=some: mine.encode_texts(some), peers, cosines_apart, APART, goal=1.5,
            )  # fmt: skip
