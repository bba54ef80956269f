"""BART's pre-training: passages with holes and in disorder, and the passages as they were (Lewis et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retlib.core.errors import require
from retlib.data.corpus import Corpus
from retlib.data.pairs import Pairs
from retlib.data.text import TokenTable

# Of a passage's tokens, and the mean length of the runs that one mask stands for (Lewis 2019, sections 2.2 and 3).
SHARE, SPAN = 0.3, 3.0


@dataclass(frozen=True, eq=False)
class NoisedPassages:
    """Text infilling and sentence permutation, the two kinds of noise of BART's large models (section 3 of the paper).

    The sentences of a passage are put into random order. Then runs of tokens, `SHARE` of them all, are
    each replaced by one mask; their lengths are drawn from a Poisson distribution of mean `SPAN`, and a
    run of length 0 puts a mask where nothing was hidden.

    Parameters
    ----------
    mask : int
        Id of the token that stands for a run.
    length : int
        Tokens of a passage beyond these are cut off.

    Raises
    ------
    SettingError
        If the length is not positive.
    """

    corpus: Corpus
    mask: int
    length: int

    def __post_init__(self) -> None:
        require(self.length >= 1, f"length = {self.length} must be at least 1")

    def __len__(self) -> int:
        return len(self.corpus.passages) - 1

    def draw(self, step: int, batch_size: int, seed: int) -> Pairs:
        """The passages of a training step, which depend on the arguments alone; drawn with replacement.

        `Pairs.queries` are the passages as they were, what is to be written; `Pairs.documents` the noised ones.
        """
        generator = np.random.default_rng((seed, step))
        drawn = generator.integers(len(self), size=min(batch_size, len(self)))
        whole = [self._sentences(passage) for passage in drawn]
        noised = [infilled(permuted(sentences, generator), self.mask, generator) for sentences in whole]
        return Pairs(TokenTable.from_rows([np.concatenate(sentences) for sentences in whole]),
                     TokenTable.from_rows([row[: self.length] for row in noised]))  # fmt: skip

    def _sentences(self, passage: int) -> list[np.ndarray]:
        """Of one passage, cut together at the greatest length."""
        first, last = self.corpus.passages[passage], self.corpus.passages[passage + 1]
        room, found = self.length, []
        for row in range(first, last):
            if room > 0:
                found.append(self.corpus.sentences.row(row)[:room])
                room -= len(found[-1])
        return found


def permuted(sentences: list[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """The tokens of sentences in random order."""
    return np.concatenate([sentences[i] for i in generator.permutation(len(sentences))])


def infilled(tokens: np.ndarray, mask: int, generator: np.random.Generator) -> np.ndarray:
    """Tokens of which runs are replaced by one mask each.

    About a quarter is hidden: runs of length 0, and places that are taken, use up a part of `SHARE`. Of a few
    tokens, sometimes none is. A run that is hidden beside one of length 0 leaves two masks.
    """
    hidden = np.zeros(len(tokens), dtype=bool)
    opened = np.zeros(len(tokens) + 1, dtype=np.int64)  # masks that stand before each token
    wanted = max(1, round(SHARE * len(tokens)))
    while wanted > 0:
        span = min(generator.poisson(SPAN), wanted)
        start = generator.integers(len(tokens) - span + 1)
        run = slice(start, start + span)
        # Two runs that touch would be read as one.
        if hidden[max(start - 1, 0) : start + span + 1].any():
            wanted -= 1  # so that the search ends where there is no room
            continue
        hidden[run] = True
        opened[start] += 1
        wanted -= max(span, 1)
    kept = np.flatnonzero(~hidden)
    filled = np.concatenate([tokens[kept], np.full(opened.sum(), mask, dtype=tokens.dtype)])
    # Masks stand before the token at whose place they are, in the order of places.
    places = np.concatenate([2 * kept + 1, 2 * np.repeat(np.arange(len(opened)), opened)])
    return filled[np.argsort(places, kind="stable")]
