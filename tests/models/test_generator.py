"""Generators: training and decoding agree, transformers' BART agrees, the pointer copies, and models are saved."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from generators import LETTERS as VOCABULARY
from generators import SMALL, save_bart
from transformers import AutoTokenizer

from retlib.core.errors import DataError, SettingError
from retlib.data.text import WordPiece
from retlib.models.checkpoints import BartTokenizer
from retlib.models.generator import HEADS, Bart, Beam, Generator, Greedy, PointerGenerator, passage_keys

LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl"))
PASSAGES = LETTERS.encode(["a b c d", "e f", "g a b i j k", "l"])
QUERIES = LETTERS.encode(["c d", "f f f e", "a", "b a l"])


def make_model(kind, seed=0, layers=2):
    torch.manual_seed(seed)
    model = kind.from_scratch(LETTERS, layers, 128, 12).eval()
    # As they start, layers hardly change what goes through them, and a mistake would hardly show.
    for weight in model.parameters():
        weight.data += 0.15 * torch.randn_like(weight)
    return model


@pytest.fixture(scope="module", params=sorted(HEADS))
def model(request):
    return make_model(HEADS[request.param])


@torch.no_grad()
def test_neither_groups_nor_padding_change_a_likelihood(model, monkeypatch):
    whole = model.log_likelihoods(PASSAGES, QUERIES)
    monkeypatch.setattr("retlib.models.transformer.GROUP", 1)
    torch.testing.assert_close(model.log_likelihoods(PASSAGES, QUERIES), whole, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_pointer_by_hand():
    """The mixture of the vocabulary and of the attention on each place, summed over the places of a token."""
    model = make_model(PointerGenerator)
    passage = LETTERS.encode(["a b a"])
    encoded = model.encode(passage)
    assert encoded.text.inner.tolist() == [[False, True, True, True, False]]
    hidden, before = torch.randn(1, 1, 128), torch.tensor([[LETTERS.ids["k"]]])
    inputs = model.bart.model.shared(before)
    states = encoded.states[0, 1:4]
    attention = (states @ (model.copy.weight @ hidden[0, 0]) / 128**0.5).softmax(dim=0)
    told = torch.cat([hidden[0, 0], attention @ states, inputs[0, 0]])
    gate = torch.sigmoid(model.gate.weight[0] @ told + model.gate.bias[0])
    expected = gate * (model.bart.model.shared.weight @ hidden[0, 0]).softmax(dim=0)
    a, b = LETTERS.ids["a"], LETTERS.ids["b"]
    expected[a] += (1 - gate) * (attention[0] + attention[2])
    expected[b] += (1 - gate) * attention[1]
    found = model._next(model._logits(hidden[0]).log_softmax(dim=-1), hidden, before, encoded)
    torch.testing.assert_close(found[0].exp(), expected, rtol=1e-4, atol=1e-6)
    for token in (a, LETTERS.ids["k"]):
        here = torch.ones((1, 1), dtype=torch.bool)
        likelihood = model._log_likelihoods(hidden, inputs, encoded, here, torch.tensor([token]))
        torch.testing.assert_close(likelihood[0].exp(), expected[token], rtol=1e-4, atol=1e-6)


def test_the_pointer_has_gradients_where_nothing_can_be_copied():
    model = make_model(PointerGenerator)
    (-model.log_likelihoods(LETTERS.encode(["a a"]), LETTERS.encode(["b k"])).sum()).backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert gradients["copy.weight"].abs().sum() > 0 and gradients["gate.weight"].abs().sum() > 0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bart")
    save_bart(folder)
    return folder


def test_the_tokenizer_of_a_checkpoint(checkpoint, tmp_path):
    tokenizer, library = BartTokenizer.load(checkpoint / "tokenizer.json"), AutoTokenizer.from_pretrained(checkpoint)
    assert (tokenizer.cls, tokenizer.pad, tokenizer.sep, len(tokenizer)) == (0, 1, 2, 13)
    table = tokenizer.encode(["a b", "", "zz"])
    assert [table.row(i).tolist() for i in range(3)] == [[4, 5], [3], [3]]
    assert tokenizer.encode(["h a b"]).ids.tolist() == library("h a b", add_special_tokens=False)["input_ids"]
    assert len(tokenizer.encode([])) == 0 and tokenizer.decode([4, 6]) == "a c"
    tokenizer.save(tmp_path / "tokens")
    assert BartTokenizer.load(tmp_path / "tokens") == tokenizer


@torch.no_grad()
def test_a_checkpoint_begins_as_bart_does(checkpoint):
    tokenizer = BartTokenizer.load(checkpoint / "tokenizer.json")
    model = Bart.from_checkpoint(str(checkpoint), tokenizer).eval()
    assert model.begin == (2, 0)
    # Two rows of the embeddings stand for no token.
    assert model.never == [0, 1, 3, 12, 13, 14]
    passages, queries = tokenizer.encode(["a b c", "h"]), tokenizer.encode(["c c", "b"])
    found = model.log_likelihoods(passages, queries)
    for i in range(2):
        labels = torch.tensor([[0, *queries.row(i), 2]])
        inputs = torch.tensor([[2, 0, *queries.row(i)]])
        logits = model.bart(input_ids=torch.tensor([[0, *passages.row(i), 2]]), decoder_input_ids=inputs).logits
        expected = logits.log_softmax(dim=-1)[0, 1:].gather(1, labels[0, 1:, None]).sum()
        torch.testing.assert_close(found[i], expected, rtol=1e-4, atol=1e-4)
    model.bart.final_logits_bias[0, tokenizer.sep] = 6.0
    for how in (Greedy(), Beam(3)):
        written = how.decode(model, passages, passage_keys(pd.RangeIndex(2), 0), 6)
        rows = np.flatnonzero(written.queries.lengths < 6)  # others have no end
        expected = model.log_likelihoods(passages.take(written.passages[rows]), written.queries.take(rows))
        np.testing.assert_allclose(written.log_likelihoods[rows], expected, rtol=1e-4)
        assert len(rows) >= 1 and not set(written.queries.ids.tolist()) & {*model.never, model.end}


def test_what_cannot_be_is_named(tmp_path, checkpoint):
    with pytest.raises(SettingError, match="width = 100"):
        Bart.from_scratch(LETTERS, 1, 100, 8)
    for wrong, make in (
        ("none", lambda: Bart.from_checkpoint(str(tmp_path / "none"), LETTERS)),
        ("none", lambda: BartTokenizer.load(tmp_path / "none")),
        ("15 .* 17", lambda: Bart.from_checkpoint(str(checkpoint), LETTERS)),
    ):
        with pytest.raises(DataError, match=wrong):
            make()


@pytest.fixture(scope="module", params=["pointer", "bart"])
def fresh(request):
    return Generator.fresh(replace(SMALL, head=request.param), VOCABULARY, seed=0)


def test_a_generator_is_saved_and_read(fresh, tmp_path):
    fresh.save(tmp_path)
    again = Generator.load(tmp_path)
    assert (again.fingerprint, again.parameters) == (fresh.fingerprint, fresh.parameters)
    assert again.name == tmp_path.name and (again.architecture, again.tokenizer) == (fresh.architecture, VOCABULARY)
    tables = VOCABULARY.encode(["a b c"]), VOCABULARY.encode(["b"])
    with torch.no_grad():
        assert torch.equal(*(each.model.log_likelihoods(*tables) for each in (fresh, again)))
    assert {path.suffix for path in tmp_path.iterdir()} == {".txt", ".json", ".safetensors"}  # nothing by pickle


def test_architectures_that_cannot_be_are_named():
    for name, value in (("head", "pointr"), ("layers", 0), ("query_length", 0)):
        with pytest.raises(SettingError, match=name):
            replace(SMALL, **{name: value})
    for architecture, wordpiece in ((SMALL, None), (replace(SMALL, checkpoint="somewhere"), VOCABULARY)):
        with pytest.raises(SettingError):  # a generator has one vocabulary
            Generator.fresh(architecture, wordpiece, 0)


def test_a_checkpoint_of_bart_is_a_start(tmp_path):
    bart = save_bart(tmp_path / "bart")
    made = replace(SMALL, head="bart", checkpoint=str(tmp_path / "bart"))
    found = Generator.fresh(made, None, 0)
    for name, weight in bart.named_parameters():
        assert torch.equal(found.model.bart.get_parameter(name), weight), name
    assert found.tokenize(["a b c a b c"]).lengths.tolist() == [4]
    (tmp_path / "saved").mkdir()
    found.save(tmp_path / "saved")
    again = Generator.load(tmp_path / "saved")
    assert again.fingerprint == found.fingerprint
    # Wherever it lies, its weights tell it.
    (tmp_path / "bart").rename(tmp_path / "moved")
    assert Generator.fresh(replace(made, checkpoint=str(tmp_path / "moved")), None, 0).fingerprint == found.fingerprint
    with pytest.raises(SettingError, match="40 .* 18"):
        Generator.fresh(replace(made, checkpoint=str(tmp_path / "moved"), passage_length=40), None, 0)
