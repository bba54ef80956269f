"""What a training step sees: queries, documents, and which document is what to which query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retlib.core.errors import require
from retlib.data.text import TokenTable
from retlib.training.losses import IGNORE, NEGATIVE


def check_rows(label: str, rows: Any, shape: tuple[int | None, ...], low: int, count: int) -> None:
    """Check rows that a registered class chose, which may be someone's own; torch and numpy would name neither.

    It raises `SettingError` if they are no array of whole numbers from `low` to `count` - 1, or not of that shape; None
    in it stands for any size.
    """
    wrong = f"{label} must give an array of rows from {low} to {count - 1}, of shape {shape}".replace("None", "any")
    whole = isinstance(rows, np.ndarray) and rows.dtype.kind in "iu" and rows.ndim == len(shape)
    require(whole and all(want in (None, size) for want, size in zip(shape, rows.shape, strict=True)), wrong)
    require(rows.size == 0 or (rows.min() >= low and rows.max() < count), wrong)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees: B queries and their documents."""

    queries: TokenTable
    documents: TokenTable | Tensor  # N that all queries share, or B * n, n to each query; a tensor holds encodings
    targets: Tensor  # int8, (B, N) or (B, n); see `retlib.training.losses`
    shared: bool
    log_shares: Tensor | None = None  # float32, (N,): what a sampled softmax subtracts from a document's scores
    rows: np.ndarray | None = None  # (B,): the queries' in `retlib.data.pairs.LabelledQueries`, if they come from there
    hardest: bool = False  # of the negatives of a query only the highest-scoring one takes part
    exact: bool = False  # products in float32: what ranks side by side differs by less than bfloat16 tells apart
    vectors: Tensor | None = None  # float32, (M, d): a memory bank behind the shared documents; N + M targets then

    def __post_init__(self) -> None:
        require(self.vectors is None or self.shared, "further vectors stand behind documents that all queries share")


@dataclass(frozen=True, eq=False)
class DeferredBatch:
    """A batch whose documents depend on how this very step encodes its queries.

    `close` makes the `Batch` from the queries' encodings, float32 of shape (B, d). `rows` are as for `Batch`.
    """

    queries: TokenTable
    close: Callable[[np.ndarray], Batch]
    rows: np.ndarray


def only_hardest(scores: Tensor, targets: Tensor) -> Tensor:
    """Targets whose negatives are ignored but for the highest-scoring one of each row; shapes (B, N)."""
    negative = targets == NEGATIVE
    best = scores.detach().masked_fill(~negative, -torch.inf).argmax(dim=1, keepdim=True)
    others = negative.scatter(1, best, False)
    return targets.masked_fill(others, IGNORE)
