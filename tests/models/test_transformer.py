"""The Transformer against BERT called directly, and the masked language model against plain products."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForMaskedLM, BertForPreTraining, BertModel

from retlib.core.errors import DataError, SettingError
from retlib.data.text import TokenTable, WordPiece
from retlib.models import transformer
from retlib.models.encoders import BagOfWords
from retlib.models.transformer import MaskedLanguageModel, Transformer

WORDPIECE = WordPiece((*WordPiece.SPECIAL, *(f"u{i}" for i in range(5, 60))))
PAD, CLS, SEP, MASK = WORDPIECE.pad, WORDPIECE.cls, WORDPIECE.sep, WORDPIECE.mask
ROWS = [[7, 8, 9], [10], [11, 12, 13, 14, 15, 16, 17], [7, 8, 9], [20, 21], [30, 31, 32], [5]]


def make(pooling="mean", layers=1, dropout=0.0, seed=0, dimension=8):
    torch.manual_seed(seed)
    model = Transformer.from_scratch(WORDPIECE, layers, 64, dimension, pooling)
    for part in (each for each in model.modules() if isinstance(each, torch.nn.Dropout)):
        part.p = dropout
    # As they start, layers hardly change what goes through them, and a mistake would hardly show.
    for weight in model.bert.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return model.eval()


def padded(model, rows):
    """Hidden states of one padded batch, by BERT itself: states and mask, both with [CLS] and [SEP]."""
    whole = [[CLS, *row, SEP] for row in rows]
    longest = max(map(len, whole))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in whole])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in whole])
    return model.bert(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def encoded_slowly(model, rows):
    """Encodings by BERT itself and a loop."""
    states, mask = padded(model, rows)
    if model.pooling == "cls":
        return model.head(states[:, 0])
    ends = slice(None) if model.pooling == "all" else slice(1, -1)  # with or without [CLS] and [SEP]
    texts = [own[kept == 1][ends] for own, kept in zip(states, mask, strict=True)]
    return torch.stack([model.head(own.sum(dim=0) / max(1, len(own))) for own in texts])


def states_slowly(model, rows):
    return torch.cat([padded(model, [row])[0][0, 1:-1] for row in rows])


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=15)
@given(
    rows=st.lists(st.lists(st.integers(5, 59), max_size=9), min_size=1, max_size=9),
    pooling=st.sampled_from(transformer.POOLINGS),
    group=st.integers(1, 4),
)
def test_encodings_of_any_rows_are_those_of_one_padded_batch(rows, pooling, group):
    model = make(pooling)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(transformer, "GROUP", group)
        found = model(TokenTable.from_rows(rows))
        assert found.shape == (len(rows), 8) and found.dtype == torch.float32
        assert_close(found, encoded_slowly(model, rows))
        assert_close(model.states(TokenTable.from_rows(rows)), states_slowly(model, rows))


@pytest.mark.parametrize("pooling", transformer.POOLINGS)
def test_gradients_are_those_of_one_padded_batch_and_reach_the_embeddings(pooling, monkeypatch):
    monkeypatch.setattr(transformer, "GROUP", 2)
    found = []
    for encode in (lambda model: model(TokenTable.from_rows(ROWS)), lambda model: encoded_slowly(model, ROWS)):
        model = make(pooling)
        encode(model).square().sum().backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in found[1].items():
        torch.testing.assert_close(found[0][name], gradient, rtol=1e-4, atol=1e-4, msg=lambda s, n=name: f"{n}: {s}")
    embeddings = found[0]["bert.embeddings.word_embeddings.weight"]
    moved = set(embeddings.abs().sum(dim=1).nonzero()[:, 0].tolist())
    assert moved == {CLS, SEP, *(token for row in ROWS for token in row)}  # padding learns nothing


def test_a_text_that_is_too_long_is_named():
    model = make()
    assert model.longest == 510
    longest = TokenTable.from_rows([[7] * 510, [8]])
    with torch.no_grad():
        assert model(longest).shape == (2, 8)
        for wrong in ([[7] * 511], [[8], [7] * 600]):
            for encode in (model, model.states):
                with pytest.raises(DataError, match=f"a text of {max(map(len, wrong))} tokens.*510"):
                    encode(TokenTable.from_rows(wrong))


@pytest.mark.parametrize(
    "how", [{"layers": 1, "width": 100}, {"layers": 1, "width": 0}, {"layers": 0, "width": 64, "pooling": "cls"}]
)
def test_a_setting_that_cannot_be_is_refused(how):
    """Without layers the first token says nothing of the others."""
    with pytest.raises(SettingError):
        Transformer.from_scratch(WORDPIECE, dimension=8, **how)
    with pytest.raises(DataError, match="60 .* 59"):  # of a vocabulary of another size
        Transformer(make().bert, WordPiece(WORDPIECE.tokens[:-1]), 8)


def test_without_layers_a_text_is_the_mean_of_its_normed_embeddings():
    torch.manual_seed(0)
    model = Transformer.from_scratch(WORDPIECE, 0, 64, 8).eval()
    table = TokenTable.from_rows([*ROWS, []])
    embeddings = model.bert.get_input_embeddings().weight
    normed = (embeddings - embeddings.mean(1, keepdim=True)) / embeddings.std(1, correction=0, keepdim=True)
    expected = [normed[torch.tensor(row)].mean(0) if row else torch.zeros(64) for row in [*ROWS, []]]
    assert_close(model(table), model.head(torch.stack(expected)))
    with torch.no_grad():
        assert_close(model(TokenTable.from_rows(ROWS)), encoded_slowly(model, ROWS))


@settings(max_examples=15)
@given(
    rows=st.lists(st.lists(st.integers(5, 59), max_size=9), min_size=1, max_size=9),
    layers=st.integers(1, 3),
    start=st.integers(0, 1),
)
def test_layers_that_grow_change_nothing_until_they_are_trained(rows, layers, start):
    torch.manual_seed(0)
    model, table = Transformer.from_scratch(WORDPIECE, start, 64, 8).eval(), TokenTable.from_rows(rows)
    with torch.no_grad():
        if start:  # layers that were trained, whose norms have a gain and a shift
            for weight in model.bert.encoder.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
        before = model(table)
        model.grow(layers)
        assert_close(model.eval()(table), before)
    assert model.layers == len(model.bert.encoder.layer) == layers


@pytest.mark.parametrize("made", [lambda: make(layers=2), lambda: BagOfWords(45, 8)])
def test_tokens_are_left_out_in_training_alone(made):
    model, table = made().eval(), TokenTable.from_rows([list(range(5, 45))] * 200)
    model.token_dropout = 0.25
    with torch.no_grad():
        whole = model(table)
        torch.testing.assert_close(whole, whole[:1].expand_as(whole))
        drawn = model.train()(table)
    assert len(drawn.unique(dim=0)) > 190


@pytest.mark.parametrize("kind", [BertModel, BertForPreTraining])  # the second with heads and a pooler
def test_a_checkpoint_gives_the_outputs_of_the_model_that_was_saved(tmp_path, kind):
    saved = make(layers=2)
    whole = kind(saved.bert.config)
    whole.base_model.load_state_dict(saved.bert.state_dict(), strict=False)
    whole.save_pretrained(tmp_path)
    found = Transformer.from_checkpoint(str(tmp_path), WORDPIECE, 8, "mean", "linear").eval()
    assert found.bert.pooler is None and found.bert.config._attn_implementation == "eager"
    table = TokenTable.from_rows(ROWS)
    with torch.no_grad():
        assert torch.equal(found.states(table), saved.states(table))
        assert not torch.allclose(found(table), saved(table))  # the head is new
        found.head.load_state_dict(saved.head.state_dict())
        assert torch.equal(found(table), saved(table))


def test_logits_are_those_of_berts_own_masked_language_model():
    torch.manual_seed(0)
    model = MaskedLanguageModel(make()).eval()
    reference = BertForMaskedLM(model.encoder.bert.config).eval()
    reference.bert.load_state_dict(model.encoder.bert.state_dict())
    reference.cls.predictions.transform.load_state_dict(model.transform.state_dict())
    places, rows = np.array([0, 2, 3, 4, 10, 17]), [*ROWS[:2], [MASK, 9], *ROWS[2:]]
    with torch.no_grad():
        model.output.bias.copy_(reference.cls.predictions.decoder.bias.normal_())
        logits = [reference(input_ids=torch.tensor([[CLS, *row, SEP]])).logits[0, 1:-1] for row in rows]
        assert_close(model(TokenTable.from_rows(rows), places), torch.cat(logits)[places])
