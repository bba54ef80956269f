"""Encoders, the dual encoder and a retriever's towers against plain numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retlib.data.text import TokenTable
from retlib.models.encoders import BagOfWords, BagOfWordsMLP, DualEncoder, encode

ROWS = [[3, 1, 1, 4], [0], [5, 5], [2, 6, 3]]
TABLE = TokenTable.from_rows(ROWS)


def bag():
    torch.manual_seed(0)
    return BagOfWords(7, 5)


def means(weight, rows):
    return np.stack([weight[row].mean(axis=0) for row in rows])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(rows=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), min_size=1, max_size=6))
def test_a_bag_of_words_is_the_mean_of_its_embeddings(rows):
    encoder = bag()
    weight = encoder.weight.detach().numpy()
    encoded = encoder(TokenTable.from_rows(rows)).detach().numpy()
    np.testing.assert_allclose(encoded, means(weight, rows), atol=1e-6)


def scores(model, queries, documents, *how, **options):
    return model.score(model.queries(queries), model.documents(documents), *how, **options)


def test_dense_and_sparse_gradients_are_equal_and_by_hand():
    gradients = []
    for sparse in (False, True):
        encoder = bag()
        encoder.sparse = sparse
        encoder(TABLE).sum().backward()
        assert encoder.weight.grad.is_sparse == sparse
        gradients.append(encoder.weight.grad.to_dense())
    assert torch.equal(*gradients)
    # Word 1 stands twice in a text of four, word 3 once there and once in a text of three.
    by_hand = torch.tensor([1, 1 / 2, 1 / 3, 1 / 4 + 1 / 3, 1 / 4, 1, 1 / 3])
    torch.testing.assert_close(gradients[0], by_hand[:, None].expand(7, 5))


def test_scores_are_cosines_with_the_affine_scale_or_dot_products_that_keep_the_lengths():
    model = DualEncoder(bag())
    model.beta.data.fill_(-0.5)
    vectors = unit(means(model.query_encoder.weight.detach().numpy(), ROWS))
    logits, cosines = scores(model, TABLE, TABLE), scores(model, TABLE, TABLE, scaled=False)
    np.testing.assert_allclose(cosines.detach(), vectors @ vectors.T, atol=1e-6)
    np.testing.assert_allclose(logits.detach(), 20 * (vectors @ vectors.T) - 0.5, atol=1e-5)
    assert cosines.detach().abs().max() <= 1 + 1e-6
    model = DualEncoder(bag(), similarity="dot")
    model.alpha.data.fill_(2.0)
    vectors = means(model.query_encoder.weight.detach().numpy(), ROWS)
    np.testing.assert_allclose(scores(model, TABLE, TABLE).detach(), 2 * vectors @ vectors.T, atol=1e-5)


def test_own_documents_get_the_scores_that_shared_ones_get():
    model = DualEncoder(bag())
    queries = TABLE.take(np.array([0, 2]))
    shared = scores(model, queries, TABLE).detach()
    # Query 0 has documents 1, 3 and 2; query 1 has documents 0, 2 and 1.
    own = scores(model, queries, TABLE.take(np.array([1, 3, 2, 0, 2, 1])), shared=False).detach()
    expected = torch.stack([shared[0, [1, 3, 2]], shared[1, [0, 2, 1]]])
    torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_encoding_in_batches_equals_one_batch(size):
    model = DualEncoder(bag())
    whole = model.queries(TABLE).detach().numpy()
    batched = encode(model.queries, TABLE, batch_size=size)
    assert batched.dtype == np.float32
    np.testing.assert_allclose(batched, whole, atol=1e-6)
    assert encode(model.queries, TokenTable.from_rows([]), batch_size=size).shape == (0, 5)


def layers_by_hand(model, means):
    """Two layers with tanh over means that are brought to mean 0 and variance 1."""
    first, _, second, _ = model.layers
    centred = means - means.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    hidden = np.tanh(centred / spread @ first.weight.detach().numpy().T + first.bias.detach().numpy())
    return np.tanh(hidden @ second.weight.detach().numpy().T + second.bias.detach().numpy())


@given(texts=st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), min_size=1, max_size=6))
def test_a_bow_mlp_is_two_layers_over_the_mean(texts):
    torch.manual_seed(0)
    model = BagOfWordsMLP(7, 4, 3)
    expected = layers_by_hand(model, means(model.units.weight.detach().numpy(), texts))
    np.testing.assert_allclose(model(TokenTable.from_rows(texts)).detach(), expected, atol=1e-5)
