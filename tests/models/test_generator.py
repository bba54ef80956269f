"""Generators as models: what they are made of, what they read, and how they are saved."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from generators import LETTERS, SMALL, save_bart

from retlib.core.errors import SettingError
from retlib.models.generator import Generator


@pytest.fixture(scope="module", params=["pointer", "bart"])
def fresh(request):
    return Generator.fresh(replace(SMALL, head=request.param), LETTERS, seed=0)


def test_a_generator_is_saved_and_read(fresh, tmp_path):
    fresh.save(tmp_path)
    again = Generator.load(tmp_path)
    assert (again.fingerprint, again.parameters) == (fresh.fingerprint, fresh.parameters)
    assert again.name == tmp_path.name and (again.architecture, again.tokenizer) == (fresh.architecture, LETTERS)
    tables = LETTERS.encode(["a b c"]), LETTERS.encode(["b"])
    with torch.no_grad():
        assert torch.equal(*(each.model.log_likelihoods(*tables) for each in (fresh, again)))
    assert {path.suffix for path in tmp_path.iterdir()} == {".txt", ".json", ".safetensors"}  # nothing by pickle


def test_seed_vocabulary_and_architecture_make_it_another(fresh):
    made = fresh.architecture
    other = type(LETTERS)((*LETTERS.tokens, "z"))
    found = {
        fresh.fingerprint,
        Generator.fresh(made, LETTERS, seed=1).fingerprint,
        Generator.fresh(made, other, seed=0).fingerprint,
        Generator.fresh(replace(made, query_length=3), LETTERS, seed=0).fingerprint,
    }
    assert len(found) == 4 and Generator.fresh(made, LETTERS, seed=0).fingerprint == fresh.fingerprint
    # What is no parameter but learned all the same.
    changed = Generator.fresh(made, LETTERS, seed=0)
    changed.model.bart.final_logits_bias[0, LETTERS.sep] = 2.0
    assert changed.fingerprint != fresh.fingerprint


def test_texts_are_cut_at_the_lengths(fresh):
    assert fresh.tokenize(["a b c d e f", "k"]).lengths.tolist() == [4, 1]
    assert fresh.passages(pd.Series(["a " * 20, "b"])).lengths.tolist() == [8, 1]


@pytest.mark.parametrize("changes", [{"head": "pointr"}, {"layers": 0}, {"query_length": 0}])
def test_architectures_that_cannot_be_are_named(changes):
    with pytest.raises(SettingError, match=next(iter(changes))):
        replace(SMALL, **changes)
    for architecture, wordpiece in ((SMALL, None), (replace(SMALL, checkpoint="somewhere"), LETTERS)):
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
