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
    """What one training step sees: B queries and their documents.

    Documents are N rows that all queries share, or B * n rows, n to each query; a float32 tensor holds their encodings.
    `targets`, int8, are (B, N) or (B, n); see `retlib.training.losses`. `log_shares`, float32 of shape (N,), are what a
    sampled softmax subtracts from the score of each document. `rows` (B,) are those of the queries in
    `retlib.data.pairs.LabelledQueries`, where they come from there.

    With `hardest`, of the negatives of a query only the highest-scoring one takes part. With `exact`, products are in
    float32 whatever the precision of training: documents that rank side by side differ by less than bfloat16 tells
    apart. `vectors`, float32 of shape (M, d), encode M more documents behind the shared ones (a memory bank); `targets`
    then has N + M columns.
    """

    queries: TokenTable
    documents: TokenTable | Tensor
    targets: Tensor
    shared: bool
    log_shares: Tensor | None = None
    rows: np.ndarray | None = None
    hardest: bool = False
    exact: bool = False
    vectors: Tensor | None = None

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
