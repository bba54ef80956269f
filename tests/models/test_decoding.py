"""Decoding: against exhaustive search, against transformers' own, and against the distributions that are meant."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from retlib.core.errors import SettingError
from retlib.data.text import WordPiece
from retlib.models import generator
from retlib.models.generator import Bart, Beam, Greedy, Nucleus, PointerGenerator, passage_keys

FOUR = WordPiece((*WordPiece.SPECIAL, *"abcd"))
LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl"))
TEXTS = ["a b c d", "b b", "d a c b a", "c", "a a d b"]
WAYS = [Greedy(), Beam(3), Nucleus(0.9, samples=6, keep=4)]


def make_model(kind=Bart, wordpiece=FOUR, seed=0, noise=0.15):
    torch.manual_seed(seed)
    model = kind.from_scratch(wordpiece, 1, 64, 10).eval()
    for weight in model.parameters():
        weight.data += noise * torch.randn_like(weight)
    return model


def keys(count, seed=0):
    return passage_keys(pd.Index([f"p{i}" for i in range(count)]), seed)


def decoded(how, model, texts, longest=5, own=None):
    """Of each passage its queries and their log-likelihoods, best first."""
    own = keys(len(texts)) if own is None else own
    found = how.decode(model, FOUR.encode(texts), own, longest)
    out = [[] for _ in texts]
    for i, passage in enumerate(found.passages):
        out[passage].append((tuple(found.queries.row(i).tolist()), found.log_likelihoods[i]))
    return out


@torch.no_grad()
def exhaustive(model, text, longest):
    """All queries of up to so many letters, best first; those of the greatest length may lack their end."""
    letters, found = [FOUR.ids[letter] for letter in "abcd"], []
    for length in range(1, longest + 1):
        queries = list(product(letters, repeat=length))
        steps = log_probabilities(model, text, queries)  # (queries, length + 1, V)
        for query, log_p in zip(queries, steps, strict=True):
            written = [*query, model.end][: min(length + 1, longest)]
            found.append((query, sum(log_p[place, token].item() for place, token in enumerate(written))))
    return sorted(found, key=lambda each: -each[1])


def log_probabilities(model, text, queries):
    """Of every next token of queries of one length, read at once: (queries, length + 1, V)."""
    encoded = model.encode(FOUR.encode([text] * len(queries)))
    inputs = torch.tensor([[*model.begin, *query] for query in queries])
    hidden = model.bart.model.decoder(
        input_ids=inputs, encoder_hidden_states=encoded.states, encoder_attention_mask=encoded.text.mask.long()
    ).last_hidden_state
    rows = [
        model._next(model._logits(hidden[:, place]).log_softmax(-1), hidden[:, [place]], inputs[:, [place]], encoded)
        for place in range(inputs.shape[1])
    ]
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("kind", [Bart, PointerGenerator])
def test_a_wide_beam_is_an_exhaustive_search(kind):
    model = make_model(kind, seed=3)
    expected = exhaustive(model, "b a d", 3)
    (found,) = decoded(Beam(width=84), model, ["b a d"], longest=3)
    assert len(expected) == 4 + 16 + 64 == len(found)
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected], rtol=1e-4)
    assert {query for query, _ in found[:20]} == {query for query, _ in expected[:20]}


@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_that_of_transformers(seed):
    model = make_model(seed=seed, noise=0.3)
    found = decoded(Greedy(), model, TEXTS, longest=6)
    for text, [(query, _)] in zip(TEXTS, found, strict=True):
        inputs = torch.tensor([[FOUR.cls, *FOUR.encode([text]).ids, FOUR.sep]])
        expected = model.bart.generate(
            inputs, max_new_tokens=6, do_sample=False, suppress_tokens=model.never, begin_suppress_tokens=[FOUR.sep]
        )[0, 1:].tolist()
        assert [token for token in expected if token not in (FOUR.sep, FOUR.pad)] == list(query)


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.name)
@pytest.mark.parametrize("kind", [Bart, PointerGenerator])
def test_a_passage_has_the_same_queries_in_a_batch_of_any_size(how, kind):
    model = make_model(kind, seed=4)
    together = decoded(how, model, TEXTS, longest=8)
    for i, text in enumerate(TEXTS):
        (alone,) = decoded(how, model, [text], longest=8, own=keys(5)[[i]])
        assert [query for query, _ in alone] == [query for query, _ in together[i]]
        np.testing.assert_allclose([s for _, s in alone], [s for _, s in together[i]], rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", [Bart, PointerGenerator])
@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.name)
def test_likelihoods_are_those_of_training(how, kind):
    model = make_model(kind, seed=6)
    model.bart.final_logits_bias[0, FOUR.sep] = 6.0
    found = how.decode(model, FOUR.encode(TEXTS), keys(5), 8)
    whole = found.queries.lengths < 8  # others have no end
    assert whole.sum() >= 3 and (found.queries.lengths >= 1).all()
    rows = np.flatnonzero(whole)
    expected = model.log_likelihoods(FOUR.encode(TEXTS).take(found.passages[rows]), found.queries.take(rows))
    np.testing.assert_allclose(found.log_likelihoods[rows], expected, rtol=1e-4)


def test_samples_change_with_the_seed_and_with_nothing_else():
    model, how = make_model(), Nucleus(1.0, 10, 10)
    once, again = (decoded(how, model, TEXTS, own=keys(5, seed=1)) for _ in range(2))
    assert once == again != decoded(how, model, TEXTS, own=keys(5, seed=2))
    assert decoded(how, model, ["a b", "a b"])[0] != decoded(how, model, ["a b", "a b"])[1]


def reference(probabilities, p):
    """The nucleus by sorting."""
    order = np.argsort(-probabilities, kind="stable")
    sums = np.cumsum(probabilities[order])
    kept = order[: np.searchsorted(sums, p * sums[-1] * (1 - 1e-9)) + 1]
    nucleus = np.zeros_like(probabilities)
    nucleus[kept] = probabilities[kept] / probabilities[kept].sum()
    return nucleus


@pytest.mark.parametrize("p", [0.05, 0.5, 0.8, 0.95, 1.0])
def test_samples_have_the_distribution_of_the_nucleus(p):
    probabilities = np.array([0.02, 0.4, 0.1, 0.1, 0.0, 0.3, 0.05, 0.03])
    count = 40_000
    log_p = torch.from_numpy(probabilities).log().float().expand(count, -1)
    drawn = generator.nucleus_sample(p, log_p, generator.mixed(np.arange(count, dtype=np.uint64)), 3)
    found = np.bincount(drawn, minlength=8) / count
    np.testing.assert_allclose(found, reference(probabilities, p), atol=5 * 0.5 / count**0.5)
    assert ((found > 0) == (reference(probabilities, p) > 0)).all()


def test_random_numbers_are_uniform_and_independent():
    own = generator.mixed(np.arange(50_000, dtype=np.uint64))
    one, other, again = generator.uniforms(own, 0, 0), generator.uniforms(own, 1, 0), generator.uniforms(own, 0, 1)
    for numbers in (one, other, again):
        assert numbers.min() >= 0 and numbers.max() < 1
        counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
        assert abs(counts - 2500).max() < 5 * 2500**0.5
    correlations = np.corrcoef([one, other, again, np.roll(one, 1)])
    assert abs(correlations - np.eye(4)).max() < 0.03


def test_keys_are_of_the_id_and_the_seed_by_splitmix():
    # The first outputs of SplitMix64 seeded with 1234567 (Vigna's reference implementation).
    steps = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert generator.mixed(steps).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    first, second = passage_keys(pd.Index(["a", "b"]), 0), passage_keys(pd.Index(["b", "c"]), 0)
    assert first[1] == second[0] and len({*first, *second, *passage_keys(pd.Index(["a", "b"]), 1)}) == 5


@pytest.mark.parametrize(
    ("kind", "name", "value"), [(Beam, "width", 0), (Nucleus, "p", 0.0), (Nucleus, "p", 1.1), (Nucleus, "keep", 21)]
)
def test_settings_that_cannot_be_are_named(kind, name, value):
    with pytest.raises(SettingError, match=name):
        kind(**{name: value})
