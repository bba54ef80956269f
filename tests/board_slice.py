"""The leaderboard on a slice of NumPy's docstrings."""

from functools import cache

import zero_shot_slice

from retlib.studies import leaderboard, zero_shot_study

SHARED = {name: value for name, value in zero_shot_slice.SHARED.items() if name in zero_shot_study.COMMON}
PARAMETERS = {
    **SHARED, "ranked_steps": 2, "negatives": 1, "interval": 1, "query_steps": 2, "retrieved": 5,
    "query_loss": "lambdarank-mrr", "optimizer": "adamw", "words_epochs": 1, "words_batch": 8, "reader_steps": 2,
    "reader_batch": 2, "reader_rate": 0.001, "reader_negatives": 2, "read": 3, "timed": 3,
    "bm25_trials": [[0.5, 0.1], [1.5, 0.9]], "words_rates": [0.01, 0.1], "label_rates": [0.001, 0.01],
    "ranked_rates": [0.0005, 0.001], "query_rates": [0.0005, 0.005],
}  # fmt: skip


@cache
def board():
    """The board of `PARAMETERS`, untuned."""
    (found,) = leaderboard.boards(PARAMETERS)
    return found
