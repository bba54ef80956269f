"""Where public checkpoints lie, and what they say of themselves."""

import json
import sys

import numpy as np
import pytest
import torch

from retlib.core.errors import DataError
from retlib.data.text import WordPiece
from retlib.models import checkpoints
from retlib.models.retriever import Architecture, Retriever

WORDS = WordPiece((*WordPiece.SPECIAL, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")))


@pytest.fixture(autouse=True)
def _forgetful():
    """No test remembers where another found a model."""
    checkpoints.folder.cache_clear()
    checkpoints.digest.cache_clear()


def saved(folder, pooling="mean_tokens", modules=("Transformer", "Pooling", "Normalize"), similarity="cosine"):
    """A sentence encoder as sentence-transformers writes one."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder)
    WORDS.save(folder / "vocab.txt")
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    told = [{"type": f"sentence_transformers.models.{each}", "path": paths.get(each, each)} for each in modules]
    (folder / "modules.json").write_text(json.dumps(told))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": similarity}))
    (folder / "1_Pooling").mkdir()
    ways = {f"pooling_mode_{way}": way == pooling for way in ("mean_tokens", "cls_token", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "include_prompt": True, **ways})
    )
    return folder


def by_transformers(folder, texts, pooling, normalized):
    """The encodings as sentence-transformers' three modules make them."""
    from transformers import BertModel, BertTokenizerFast

    batch = BertTokenizerFast(str(folder / "vocab.txt"))(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = BertModel.from_pretrained(folder)(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    pooled = states[:, 0] if pooling == "cls_token" else (states * mask).sum(1) / mask.sum(1)
    return (torch.nn.functional.normalize(pooled, dim=-1) if normalized else pooled).numpy()


@pytest.mark.parametrize(
    ("pooling", "modules", "similarity"),
    [
        ("mean_tokens", ("Transformer", "Pooling", "Normalize"), "cosine"),
        ("mean_tokens", ("Transformer", "Pooling"), "dot"),
        ("cls_token", ("Transformer", "Pooling", "Normalize"), "cosine"),
    ],
)
def test_a_sentence_encoder_gives_its_own_encodings(tmp_path, pooling, modules, similarity):
    folder = saved(tmp_path, pooling, modules, similarity)
    architecture = Architecture.of_checkpoint(str(folder), query_length=8, document_length=8)
    assert (architecture.similarity, architecture.layers, architecture.dimension) == (similarity, 2, 32)
    texts = ["abc", "a", "hg fe dcba", "b c"]
    made = Retriever.fresh(architecture, WORDS, seed=0)
    expected = by_transformers(folder, texts, pooling, "Normalize" in modules)
    np.testing.assert_allclose(made.encode_texts(texts), expected, atol=0.02)  # bfloat16, where there is any
    made.model.double()
    with torch.no_grad():
        exact = made.model.documents(made.tokenizer.encode(texts)).numpy()
    np.testing.assert_allclose(exact, expected, atol=1e-5)


def test_what_is_saved_encodes_as_before(tmp_path):
    architecture = Architecture.of_checkpoint(str(saved(tmp_path)), query_length=8, document_length=8)
    made = Retriever.fresh(architecture, WORDS, seed=0)
    (tmp_path / "mine").mkdir()
    made.save(tmp_path / "mine")
    found = Retriever.load(tmp_path / "mine")
    assert np.array_equal(found.encode_texts(["abc", "de"]), made.encode_texts(["abc", "de"]))
    assert found.fingerprint == made.fingerprint


@pytest.mark.parametrize(("way", "ours"), [("mean", "all"), ("cls", "cls")])
def test_the_newer_way_to_name_a_pooling_is_read(tmp_path, way, ours):
    (saved(tmp_path) / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": way}))
    assert checkpoints.described(str(tmp_path))["pooling"] == ours


def test_weights_that_lack_a_layer_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    weights = load_file(saved(tmp_path) / "model.safetensors")
    save_file(
        {n: w for n, w in weights.items() if "layer.1" not in n}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    architecture = Architecture.of_checkpoint(str(tmp_path), query_length=8, document_length=8)
    with pytest.raises(DataError, match="lacks .*encoder.layer.1"):
        Retriever.fresh(architecture, WORDS, seed=0)


def test_without_weights_there_is_no_digest(tmp_path):
    (saved(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(DataError, match="there is no .*model.safetensors"):
        checkpoints.digest(str(tmp_path))


def test_a_bert_that_says_nothing_of_pooling_is_a_mean_under_the_cosine(tmp_path):
    folder = saved(tmp_path)
    for file in ("modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"):
        (folder / file).unlink()
    found = checkpoints.described(str(folder))
    assert (found["pooling"], found["similarity"], found["head"]) == ("all", "cosine", "none")


@pytest.mark.parametrize(
    ("pooling", "modules"),
    [("max_tokens", ("Transformer", "Pooling")), ("mean_tokens", ("Transformer", "Pooling", "Dense", "Normalize"))],
)
def test_what_is_not_known_here_is_refused(tmp_path, pooling, modules):
    with pytest.raises(DataError, match="only means or .CLS. are known"):
        checkpoints.described(str(saved(tmp_path, pooling, modules)))


def test_a_package_carries_one(tmp_path, monkeypatch):
    package = tmp_path / "some_encoder"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    saved(package / "model")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_encoder", raising=False)
    assert checkpoints.folder("some-encoder") == package / "model"
    assert checkpoints.digest("some-encoder") == checkpoints.digest(str(package / "model"))


def test_a_folder_s_place_begins_in_the_project_s(tmp_path, monkeypatch):
    saved(tmp_path / "mine")
    monkeypatch.setattr(checkpoints.runtime, "root", lambda: tmp_path)
    monkeypatch.chdir("/")
    assert checkpoints.folder("mine") == tmp_path / "mine"


@pytest.mark.parametrize("name", ["json", "nobody/nothing", "no-such-encoder"])
def test_what_is_nowhere_is_named_with_the_ways_to_have_it(name):
    with pytest.raises(DataError, match=rf"no checkpoint '{name}'.*\[starts\]"):
        checkpoints.folder(name)


def test_a_folder_without_a_configuration_is_named(tmp_path):
    with pytest.raises(DataError, match="its config.json cannot be read"):
        checkpoints.described(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", '{"model_type": "bert"}', "num_hidden_layers of its config.json is no whole number"),
        ("config.json", '{"model_type": "mpnet"}', "of the kind 'mpnet'; only 'bert'"),
        ("config.json", "[1]", "its config.json holds a list"),
        ("config.json", "[" * 9999, "its config.json cannot be read"),
        ("modules.json", "[{", "its modules.json cannot be read"),
        ("modules.json", '{"a": 1}', "its modules.json holds a dict"),
        ("tokenizer_config.json", '{"do_lower_case": false}', "keeps capitals"),
        ("1_Pooling/config.json", "3", "its config.json holds a int"),
    ],
)
def test_a_damaged_description_is_named(tmp_path, file, content, message):
    saved(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message):
        checkpoints.described(str(tmp_path))
