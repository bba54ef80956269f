"""Where public checkpoints lie, what they say of themselves, and that they encode as their own libraries do."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, BertTokenizerFast

from retlib.core.errors import DataError
from retlib.data.text import WordPiece
from retlib.models import checkpoints
from retlib.models.retriever import Architecture, Retriever
from retlib.systems.system import System

WORDS = WordPiece((*WordPiece.SPECIAL, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")))


@pytest.fixture(autouse=True)
def _forgetful():
    """No test remembers where another found a model."""
    checkpoints.folder.cache_clear()
    checkpoints.digest.cache_clear()


def saved(folder, pooling="mean_tokens", modules=("Transformer", "Pooling", "Normalize"), similarity="cosine"):
    """A sentence encoder as sentence-transformers writes one."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(folder)
    WORDS.save(folder / "vocab.txt")
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    kinds = [{"type": f"sentence_transformers.models.{each}", "path": paths.get(each, each)} for each in modules]
    (folder / "modules.json").write_text(json.dumps(kinds))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": similarity}))
    (folder / "1_Pooling").mkdir()
    ways = {f"pooling_mode_{way}": way == pooling for way in ("mean_tokens", "cls_token", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"include_prompt": True, **ways}))
    return folder


def by_transformers(folder, texts, pooling, normalized):
    """The encodings as sentence-transformers' three modules make them."""
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
def test_a_sentence_encoder_gives_its_own_encodings_also_when_it_was_saved(
    tmp_path, exact, pooling, modules, similarity
):
    folder = saved(tmp_path, pooling, modules, similarity)
    architecture = Architecture.of_checkpoint(str(folder), query_length=8, document_length=8)
    assert (architecture.similarity, architecture.layers, architecture.dimension) == (similarity, 2, 32)
    texts = ["abc", "a", "hg fe dcba", "b c"]
    made = Retriever.fresh(architecture, WORDS, seed=0)
    expected = by_transformers(folder, texts, pooling, "Normalize" in modules)
    np.testing.assert_allclose(made.encode_texts(texts), expected, atol=1e-5)
    (tmp_path / "mine").mkdir()
    made.save(tmp_path / "mine")
    again = Retriever.load(tmp_path / "mine")
    assert np.array_equal(again.encode_texts(texts), made.encode_texts(texts))
    assert again.fingerprint == made.fingerprint


def test_the_newer_way_to_name_a_pooling_is_read_and_without_any_it_is_a_mean_under_the_cosine(tmp_path):
    file = saved(tmp_path) / "1_Pooling" / "config.json"
    for way, ours in (("mean", "all"), ("cls", "cls")):
        file.write_text(json.dumps({"pooling_mode": way}))
        assert checkpoints.described(str(tmp_path))["pooling"] == ours
    for each in (tmp_path / "modules.json", file, tmp_path / "config_sentence_transformers.json"):
        each.unlink()
    found = checkpoints.described(str(tmp_path))
    assert (found["pooling"], found["similarity"], found["head"]) == ("all", "cosine", "none")


def test_weights_that_are_not_there_are_refused(tmp_path):
    path = saved(tmp_path) / "model.safetensors"
    save_file({n: w for n, w in load_file(path).items() if "layer.1" not in n}, path, {"format": "pt"})
    architecture = Architecture.of_checkpoint(str(tmp_path), query_length=8, document_length=8)
    with pytest.raises(DataError, match="encoder.layer.1"):
        Retriever.fresh(architecture, WORDS, seed=0)
    path.unlink()
    with pytest.raises(DataError, match="model.safetensors"):
        checkpoints.digest(str(tmp_path))


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
    with pytest.raises(DataError, match=rf"'{name}'.*\[starts\]"):
        checkpoints.folder(name)


WRONG = {
    "config.json": ['{"model_type": "bert"}', '{"model_type": "mpnet"}', "{}", "[1]", "[" * 9999],
    "modules.json": ["[{", '{"a": 1}', '[{"type": "a.Transformer"}, {"type": "a.Pooling"}, {"type": "a.Dense"}]'],
    "tokenizer_config.json": ['{"do_lower_case": false}'],
    "1_Pooling/config.json": ["3", '{"pooling_mode_max_tokens": true}'],
}


@pytest.mark.parametrize("file", WRONG)
def test_a_damaged_or_unknown_description_is_named(tmp_path, file):
    saved(tmp_path)
    for content in WRONG[file]:
        (tmp_path / file).write_text(content)
        with pytest.raises(DataError, match=str(tmp_path)):
            checkpoints.described(str(tmp_path))


TEXTS = ["the bridge", "Bridge the river", "river", "nothing of it", ""]
TOKENS = ["the", "bridge", "river", "[UNK]"]
ROWS = np.array([[1, 0], [0, 2], [3, 1], [0, -1]], dtype=np.float32)


def tokenizer(folder, name="tokenizer.json"):
    made = Tokenizer(models.WordLevel({token: number for number, token in enumerate(TOKENS)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.enable_truncation(1)  # which no text is read with
    made.save(str(folder / name))


def read(folder):
    checkpoints.folder.cache_clear()
    architecture = Architecture.of_checkpoint(str(folder))
    return Retriever.fresh(architecture, System(architecture).tokenizer(None), 0)


def plain(folder):
    tokenizer(folder)
    save_file({"embedding.weight": ROWS}, folder / "model.safetensors")
    return ROWS


def model2vec(folder):
    tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    mapping, weights = np.array([2, 0, 0, 1]), np.array([1, 2, 1, 0.5])
    tables = {"embeddings": ROWS.astype(np.float16), "mapping": mapping, "weights": weights}
    save_file(tables, folder / "model.safetensors")
    return ROWS[mapping] * weights[:, None]


def wordllama(folder):
    for part in ("tokenizers", "weights"):
        (folder / part).mkdir()
    tokenizer(folder, "tokenizers/some_tokenizer_config.json")
    save_file({"embedding.weight": ROWS.astype(np.float16)}, folder / "weights" / "some_2.safetensors")
    return ROWS


@pytest.mark.parametrize("form", [plain, model2vec, wordllama])
def test_a_text_is_the_mean_of_its_rows(tmp_path, form):
    rows = form(tmp_path)
    made = read(tmp_path)
    ids = [[0, 1], [3, 0, 2], [2], [3, 3, 3], []]
    means = np.array([rows[each].mean(axis=0) if each else [0, 0] for each in ids])
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    expected = np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0)
    np.testing.assert_allclose(made.encode_texts(TEXTS), expected, atol=1e-6)
    if form is not wordllama:  # which is a package, not a folder of sentence-transformers
        theirs = StaticEmbedding.load(str(tmp_path))
        theirs.tokenizer.no_truncation()
        features = theirs(theirs.preprocess(TEXTS))["sentence_embedding"]
        normal = torch.nn.functional.normalize(features, dim=1).detach().numpy()
        np.testing.assert_allclose(made.encode_texts(TEXTS), normal, atol=1e-6)


def test_static_embeddings_are_saved_with_their_tokenizer(tmp_path):
    plain(tmp_path)
    made = read(tmp_path)
    made.model.query_encoder.weight.data.mul_(torch.tensor([[2.0, 1.0]]))
    (tmp_path / "again").mkdir()
    made.save(tmp_path / "again")
    again = Retriever.load(tmp_path / "again")
    assert again.fingerprint == made.fingerprint != read(tmp_path).fingerprint
    np.testing.assert_array_equal(again.encode_texts(TEXTS), made.encode_texts(TEXTS))


def test_the_package_has_its_own_encodings():
    inference = pytest.importorskip("wordllama.inference", reason="pip install -e '.[starts]'")
    tokens, weights = checkpoints.static_files(checkpoints.folder("wordllama"))
    theirs = inference.WordLlamaInference(load_file(weights)["embedding.weight"], Tokenizer.from_file(str(tokens)))
    texts = ["Where is the old bridge?", "Straße, 中文  and\nlines", "a" * 300]
    np.testing.assert_allclose(read("wordllama").encode_texts(texts), theirs.embed(texts, norm=True), atol=1e-5)


TWO_MODULES = '[{"type": "a.StaticEmbedding", "path": ""}, {"type": "a.Dense", "path": "2"}]'


@pytest.mark.parametrize(
    ("file", "content"),
    [("tokenizer.json", "{}"), ("tokenizer.json", "[1]"), ("model.safetensors", "x"), ("modules.json", TWO_MODULES)],
)
def test_damaged_static_embeddings_are_refused(tmp_path, file, content):
    plain(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError):
        read(tmp_path)
    plain(tmp_path)
    save_file({"embedding.weight": ROWS[:3]}, tmp_path / "model.safetensors")  # of another tokenizer
    with pytest.raises(DataError):
        read(tmp_path)
