"""The joint self-attention is BERT's own."""

import copy

import pytest
import torch
from transformers import BertConfig, BertModel

from retlib.core import runtime
from retlib.models.attention import join


@pytest.fixture
def models():
    """A BERT with its own attention, and the same one with the joint attention; without dropout."""
    runtime.set_seeds(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**sizes, **none, intermediate_size=64, attn_implementation="eager")
    own = BertModel(config, add_pooling_layer=False)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    joint = copy.deepcopy(own)
    join(joint)
    return own, joint


@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 1, 3]])
def test_states_and_gradients_are_those_of_three_products(models, lengths):
    inputs = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5)[None, :] < torch.tensor(lengths)[:, None]
    weights = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(2)) * mask[:, :, None]
    states = []
    for model in models:
        found = model(inputs_embeds=inputs, attention_mask=None if mask.all() else mask.long()).last_hidden_state
        (found * weights).sum().backward()
        states.append(found[mask])
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-5)
    gradients = [{name: p.grad for name, p in model.named_parameters() if p.grad is not None} for model in models]
    assert any("attention.self.key.weight" in name for name in gradients[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_dropout_is_of_the_attention_in_training_alone(models):
    _, joint = models
    attention = joint.encoder.layer[0].attention.self
    attention.dropout.p = 0.5
    inputs = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    joint.eval()
    assert torch.equal(attention(inputs)[0], attention(inputs)[0])
    joint.train()
    assert not torch.equal(attention(inputs)[0], attention(inputs)[0])


def test_a_copy_has_weights_of_its_own(models):
    _, joint = models
    other = copy.deepcopy(joint)
    with torch.no_grad():
        joint.encoder.layer[0].attention.self.query.weight.zero_()
    assert type(other.encoder.layer[0].attention.self).__name__ == "JointSelfAttention"
    assert other.encoder.layer[0].attention.self.query.weight.any()
