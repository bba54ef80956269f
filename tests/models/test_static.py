"""Static embeddings of others: what is read of a folder is what its own library makes of it."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from retlib.core.errors import DataError
from retlib.models import checkpoints, static
from retlib.models.retriever import Architecture, Retriever
from retlib.systems.system import System

TEXTS = ["the bridge", "Bridge the river", "river", "nothing of it", ""]
TOKENS = ["the", "bridge", "river", "[UNK]"]
ROWS = np.array([[1, 0], [0, 2], [3, 1], [0, -1]], dtype=np.float32)


def tokenizer(folder, name="tokenizer.json"):
    made = Tokenizer(models.WordLevel({token: number for number, token in enumerate(TOKENS)}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.enable_truncation(1)  # which no text is read with
    made.save(str(folder / name))
    return made


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
    save_file(
        {"embeddings": ROWS.astype(np.float16), "mapping": mapping, "weights": weights}, folder / "model.safetensors"
    )
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


def test_it_is_saved_with_its_tokenizer(tmp_path):
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
    tokens, weights = static.files(checkpoints.folder("wordllama"))
    theirs = inference.WordLlamaInference(load_file(weights)["embedding.weight"], Tokenizer.from_file(str(tokens)))
    texts = ["Where is the old bridge?", "Straße, 中文  and\nlines", "a" * 300]
    np.testing.assert_allclose(read("wordllama").encode_texts(texts), theirs.embed(texts, norm=True), atol=1e-5)


TWO_MODULES = '[{"type": "a.StaticEmbedding", "path": ""}, {"type": "a.Dense", "path": "2"}]'


@pytest.mark.parametrize(
    ("file", "content"),
    [("tokenizer.json", "{}"), ("tokenizer.json", "[1]"), ("model.safetensors", "x"), ("modules.json", TWO_MODULES)],
)
def test_what_is_damaged_is_refused(tmp_path, file, content):
    plain(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError):
        read(tmp_path)
    plain(tmp_path)
    save_file({"embedding.weight": ROWS[:3]}, tmp_path / "model.safetensors")  # of another tokenizer
    with pytest.raises(DataError):
        read(tmp_path)
