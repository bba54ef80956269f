"""Models that score a query with a document, in chapters 43 and 51: read together, or token by token.

A model of pairs is a module that is made from a `retlib.models.transformer.Transformer`, whose BERT is trained in
place, and its vocabulary; called with B queries and B * n documents, n to each, it gives scores (B, n). A new one is
one decorated class, here or anywhere (`retlib.core.registry`).
"""

import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.core.registry import Registry
from retlib.data.text import Tokenizer, TokenTable, WordPiece, concatenate
from retlib.models.encoders import encode, padded
from retlib.models.retriever import Architecture, Retriever, Trained
from retlib.models.transformer import Transformer

# Tokens of the vocabulary that tell how long vectors are to begin with.
SAMPLED = 1000
# Pairs that are scored, and texts that are encoded, in one call.
BLOCK = 512

PAIR_MODELS = Registry("pair model")


class TokenVectors(nn.Module):
    """What models of pairs have in common: a Transformer that gives each token a vector.

    The encoder is a retriever's, trained in place under its own head: the mean of a text's vectors is what the
    retriever makes of the text. In ColBERT vectors are of unit length; here they keep the length that a token has in
    that mean, and all are divided by one learned number, which begins as their root mean square.
    """

    def __init__(self, encoder: Transformer, wordpiece: WordPiece) -> None:
        super().__init__()
        self.encoder, self._separator = encoder, wordpiece.sep
        ids = np.unique(np.linspace(0, len(wordpiece) - 1, SAMPLED).astype(np.int32))
        with torch.no_grad():
            alone = encoder.project(encoder.states(TokenTable(ids, np.arange(len(ids) + 1))))  # (tokens, d)
        self.length = nn.Parameter(alone.square().sum(1).mean().sqrt())

    def vectors(self, table: TokenTable) -> Tensor:
        """Return the vectors of all tokens of a table, in the order of its flat ids: (tokens, d), float32."""
        return self.encoder.project(self.encoder.states(table)) / self.length


@PAIR_MODELS.register("cross-encoder")
class CrossEncoder(TokenVectors):
    """BERT over query, [SEP] and document (Nogueira and Cho 2019), whose tokens are then compared by `maxsim`.

    The paper reads a logit off [CLS]. MacAvaney et al. (2019) rank by similarities of jointly read tokens. What is
    longer than the model takes is cut off at the end of the document.
    """

    def forward(self, queries: TokenTable, documents: TokenTable) -> Tensor:
        """Score B queries with B * n documents, n to each: shape (B, n)."""
        each = queries.take(np.repeat(np.arange(len(queries)), len(documents) // len(queries)))
        table = concatenate([each, self._separator, documents], self.encoder.longest)
        vectors, row = self.vectors(table), np.repeat(np.arange(len(table)), table.lengths)
        place = np.arange(len(row)) - table.offsets[row] - each.lengths[row]  # from the separator, 0
        sides = []
        for inside in (place < 0, place > 0):
            mask = torch.from_numpy(inside).to(vectors.device)
            sides += [vectors[mask], np.bincount(row[inside], minlength=len(table))]
        return maxsim(*sides).view(len(queries), -1)


@PAIR_MODELS.register("late-interaction")
class LateInteraction(TokenVectors):
    """ColBERT: the tokens of query and document, read apart, are compared by `maxsim` (Khattab and Zaharia 2020).

    Query and document share the encoder, as in the paper. Of its smaller parts there are none: no marker before queries
    and documents, no queries filled up with [MASK], no punctuation left out. [CLS] and [SEP] have no vector.
    """

    def vectors(self, table: TokenTable) -> Tensor:
        """As of `TokenVectors`; `DataError` if a text has no token."""
        require(bool((table.lengths > 0).all()), "a text without any token has no vector", DataError)
        return super().vectors(table)

    def forward(self, queries: TokenTable, documents: TokenTable) -> Tensor:
        """Score B queries against B * n documents, n to each: shape (B, n)."""
        return maxsim(self.vectors(queries), queries.lengths, self.vectors(documents), documents.lengths)


def maxsim(queries: Tensor, query_lengths: np.ndarray, documents: Tensor, document_lengths: np.ndarray) -> Tensor:
    r"""Return the scores of B queries against B * n documents, n to each, as sets of tokens: shape (B, n).

    .. math:: s(q, d) = \sum_i \max_j \; q_i \cdot d_j

    over the tokens i of the query and j of the document (Khattab and Zaharia 2020, section 3.3). Vectors, (tokens, d),
    are those of all texts, one after the other; lengths are (B,) and (B * n,). A document without any token has the
    score 0.
    """
    left, query_mask = padded(queries, query_lengths)  # (B, S, d), (B, S)
    right, mask = padded(documents, document_lengths)  # (B * n, T, d), (B * n, T)
    right, mask = (part.view(len(left), -1, *part.shape[1:]) for part in (right, mask))
    # What ranks stays exact where the layers ran in bfloat16.
    with torch.autocast(right.device.type, enabled=False):
        products = torch.einsum("bsd,bntd->bnst", left, right)
    best = products.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=-1)  # (B, n, S)
    return best.where(query_mask[:, None] & mask.any(dim=-1, keepdim=True), 0.0).sum(dim=-1)


@dataclass(frozen=True)
class PairArchitecture(Architecture):
    """That of the retriever that a model of pairs starts from, and its kind, a name in `PAIR_MODELS`."""

    kind: str = field(kw_only=True)

    def build(self, tokenizer: Tokenizer, folder: Path | None = None) -> TokenVectors:
        return PAIR_MODELS.get(self.kind)(super().build(tokenizer, folder).query_encoder, tokenizer)


class PairModel(Trained):
    """A model of pairs with its vocabulary and the history of its training."""

    architecture_class = PairArchitecture

    @classmethod
    def fresh(cls, kind: str, start: Retriever, seed: int) -> Self:
        """Return one made from a copy of a retriever's query encoder; `SettingError` if that is no Transformer."""
        encoder = start.model.query_encoder
        require(isinstance(encoder, Transformer), "a model of pairs starts from encoder = 'transformer'")
        runtime.set_seeds(seed)
        model = PAIR_MODELS.get(kind)(copy.deepcopy(encoder), start.tokenizer).to(runtime.device())
        return cls(PairArchitecture(**asdict(start.architecture), kind=kind), start.tokenizer, model)

    @torch.no_grad()
    def scores(self, queries: TokenTable, documents: TokenTable) -> np.ndarray:
        """Return the score of each query with the document in the same row: float32, shape (rows,)."""
        scores = np.empty(len(queries), dtype=np.float32)
        order = np.argsort(queries.lengths + documents.lengths, kind="stable")  # like lengths need little padding
        with runtime.autocast("bfloat16"):
            for rows in filter(len, np.split(order, range(BLOCK, len(order), BLOCK))):
                scores[rows] = self.model(queries.take(rows), documents.take(rows))[:, 0].float().cpu().numpy()
        return scores

    def encode_tokens(self, table: TokenTable) -> np.ndarray:
        """Return the vectors of all tokens of texts that are read by themselves: float32, shape (tokens, d)."""
        with runtime.autocast("bfloat16"):
            return encode(self.model.vectors, table, BLOCK)
