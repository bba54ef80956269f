"""Encoders, and the dual encoder that scores a query against documents, in all chapters that train.

An encoder is a module that takes a `TokenTable` of B rows and returns (B, d).
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retlib.core.errors import require_one_of
from retlib.data.text import TokenTable

# Of encodings, with where the learned scale starts: cosines are at most 1, which leaves a softmax nearly flat.
SIMILARITIES = {"cosine": 20.0, "dot": 1.0}


def mean_of_tokens(table: TokenTable, vectors: Callable[[Tensor], Tensor], on: torch.device) -> Tensor:
    """Return the mean of each text's token vectors, shape (rows, d); `vectors` looks up ids, (n,) to (n, d)."""
    # Each distinct token once: gradients summed in a small dense table make a step about twice as fast.
    unique, inverse = np.unique(table.ids, return_inverse=True)
    unique, inverse, offsets = (torch.from_numpy(part).to(on) for part in (unique, inverse, table.offsets[:-1]))
    return F.embedding_bag(inverse, vectors(unique), offsets, mode="mean")


def padded(tokens: Tensor, lengths: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return ids or vectors of tokens, one text after the other, as (rows, longest, ...), filled up with zeros.

    And where the texts have tokens: bool, (rows, longest).
    """
    places = torch.arange(max(1, int(lengths.max(initial=0))), device=tokens.device)
    mask = places < torch.from_numpy(lengths).to(tokens.device)[:, None]
    filled = tokens.new_zeros(*mask.shape, *tokens.shape[1:])
    filled[mask] = tokens
    return filled, mask


def thinned(encoder: nn.Module, table: TokenTable) -> TokenTable:
    """Return a table less the share of tokens that an encoder leaves out while it trains, its `token_dropout`."""
    if encoder.training and encoder.token_dropout:
        return table.where(torch.rand(len(table.ids)).numpy() >= encoder.token_dropout)
    return table


class BagOfWords(nn.Module):
    """The mean of a text's word embeddings, of 300 dimensions in the paper (Gillick 2018, section 2).

    Gradients that are `sparse` are for an optimizer that touches only the words of the batch.
    """

    def __init__(self, vocabulary_size: int, dimension: int = 300) -> None:
        super().__init__()
        # Of unit length in expectation, so that one step of the optimizer means the same at every dimension.
        self.weight = nn.Parameter(torch.randn(vocabulary_size, dimension) / dimension**0.5)
        self.sparse, self.token_dropout = False, 0.0

    def forward(self, table: TokenTable) -> Tensor:
        look_up = partial(F.embedding, weight=self.weight, sparse=self.sparse)
        return mean_of_tokens(thinned(self, table), look_up, self.weight.device)


class BagOfWordsMLP(nn.Module):
    """The mean of a text's token embeddings, then two layers with tanh (Chang 2020, section 4.2).

    `width` is that of an embedding and of the hidden layer, `dimension` that of an encoding.
    """

    def __init__(self, vocabulary_size: int, width: int, dimension: int) -> None:
        super().__init__()
        self.units = BagOfWords(vocabulary_size, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, dimension), nn.Tanh())

    def forward(self, table: TokenTable) -> Tensor:
        mean = self.units(table)
        # The mean of n embeddings of unit length is as short as 1 / sqrt(n), which starves the tanh.
        # In float32 under autocast, too: scores are made of encodings.
        with torch.autocast(mean.device.type, enabled=False):
            return self.layers(F.layer_norm(mean, mean.shape[-1:]))


class DualEncoder(nn.Module):
    r"""Two encoders and a similarity, of those in `SIMILARITIES` (Gillick 2018, section 2).

    The score of a pair is :math:`\alpha \, sim(f(q), g(d)) + \beta`, where :math:`\alpha, \beta` are learned. Without
    an encoder of documents, both sides share that of queries (siamese).
    """

    def __init__(
        self, query_encoder: nn.Module, document_encoder: nn.Module | None = None, similarity: str = "cosine"
    ) -> None:
        super().__init__()
        require_one_of("similarity", similarity, SIMILARITIES)
        self.query_encoder = query_encoder
        self.document_encoder = document_encoder or query_encoder
        self.similarity = similarity
        self.alpha = nn.Parameter(torch.tensor(SIMILARITIES[similarity]))
        self.beta = nn.Parameter(torch.tensor(0.0))

    def _encode(self, encoder: nn.Module, table: TokenTable) -> Tensor:
        encoded = encoder(table)
        return F.normalize(encoded, dim=-1) if self.similarity == "cosine" else encoded

    def queries(self, table: TokenTable) -> Tensor:
        """Return query encodings, shape (rows, d); of unit length under cosine."""
        return self._encode(self.query_encoder, table)

    def documents(self, table: TokenTable) -> Tensor:
        """Return document encodings, shape (rows, d); of unit length under cosine."""
        return self._encode(self.document_encoder, table)

    def score(
        self, encoded_queries: Tensor, encoded_documents: Tensor, shared: bool = True, scaled: bool = True
    ) -> Tensor:
        r"""Score B queries against N documents that all share, (B, N), or against n of each one's own, (B, n).

        Scores are logits :math:`\alpha s + \beta`, or with `scaled` false similarities :math:`s`.
        """
        if scaled:
            # Scaling B encodings is cheaper than scaling B * N similarities.
            encoded_queries = self.alpha * encoded_queries
        if shared:
            scores = encoded_queries @ encoded_documents.T
        else:
            own = encoded_documents.view(len(encoded_queries), -1, encoded_documents.shape[-1])  # (B, n, d)
            scores = torch.einsum("bd,bnd->bn", encoded_queries, own)
        return scores + self.beta if scaled else scores


@torch.no_grad()
def encode(encode_rows: Callable[[TokenTable], Tensor], table: TokenTable, batch_size: int = 512) -> np.ndarray:
    """Return the encodings of a whole token table, for indexing or search: float32, shape (rows, d)."""
    rows = np.split(np.arange(len(table)), range(batch_size, len(table), batch_size))
    return np.concatenate([encode_rows(table.take(each)).float().cpu().numpy() for each in rows])
