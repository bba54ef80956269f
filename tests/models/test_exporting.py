"""What is exported encodes in others' tools, and here again, as it did before."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer
from words import UNITS, WORDS

from retlib.core.errors import DataError, SettingError
from retlib.data.collection import Collection
from retlib.data.datasets.own import no_questions
from retlib.data.text import Vocabulary, WordPiece
from retlib.models import checkpoints
from retlib.models.exporting import export
from retlib.models.retriever import Architecture, Retriever
from retlib.systems.system import System

MADE = Architecture(width=64, dimension=16, query_length=5, document_length=9)
STATIC = Architecture("static", layers=0, width=16, dimension=16, head="none", query_length=None, document_length=None)
KINDS = {
    "static": STATIC,
    "static, two towers, cosine": replace(STATIC, towers="two", similarity="cosine"),
    "embeddings": replace(MADE, layers=0),
    "embeddings, two towers, cosine": replace(MADE, layers=0, towers="two", similarity="cosine"),
    "embeddings, no head": replace(MADE, layers=0, head="none", dimension=64),
    "layers": MADE,
    "layers, two towers": replace(MADE, towers="two"),
    "layers, cosine": replace(MADE, similarity="cosine"),
    "[CLS]": replace(MADE, pooling="cls", layers=1),
    "all, two towers, no head, cosine": replace(
        MADE, pooling="all", head="none", dimension=64, towers="two", similarity="cosine"
    ),
}
# The last two are longer than queries, and than documents.
TEXTS = [WORDS[0], "Ünknown, 中文!", " ", "a [SEP] b", " ".join(WORDS[3:7]), " ".join(WORDS[10:30])]
TITLED = [(" ", WORDS[1]), (WORDS[2], " ".join(WORDS[3:5])), (" ".join(WORDS[5:7]), " ".join(WORDS[20:40]))]


def static_start(folder):
    """Static embeddings as sentence-transformers saves them: capitals count, and there is no unknown token."""
    letters = "abcdefghijklmnopqrstuvwxyzABCÜ中,"
    tokens = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(2)
    made = SentenceTransformer(modules=[StaticEmbedding(tokens, torch.randn(len(letters), 16))], device="cpu")
    made.save(str(folder), create_model_card=False)
    return folder


def trained(architecture, folder):
    """A retriever none of whose weights are as they begin: two towers differ, and nothing is zero."""
    tokens = UNITS
    if architecture.encoder == "static":
        architecture = replace(architecture, checkpoint=str(static_start(folder / "start")))
        tokens = checkpoints.tokenizer(architecture.checkpoint)
    made = Retriever.fresh(architecture, tokens, seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return made


@pytest.fixture(params=KINDS)
def exported(request, tmp_path, exact):
    """A retriever, and its folder."""
    made = trained(KINDS[request.param], tmp_path)
    export(made, tmp_path / "mine", "Mine", {"trained on": ["squad"], **System(made.architecture).settings})
    return made, tmp_path / "mine"


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-5)


def documents(retriever):
    """The encodings of documents, one of them without a title, as a system that ranks them has them."""
    frame = pd.DataFrame(TITLED, columns=["title", "text"], index=pd.Index(list("abc"), name="doc_id"))
    return retriever.encode_documents(retriever.reads(Collection("titled", frame, *no_questions())).documents)


def test_sentence_transformers_gives_the_same_encodings(exported):
    made, folder = exported
    found = SentenceTransformer(str(folder), device="cpu")
    close(found.encode(TEXTS), made.encode_texts(TEXTS))
    close(found.encode_document(TEXTS, batch_size=1), made.encode_texts(TEXTS))
    close(found.encode_query(TEXTS), made.encode_queries(made.tokenize(TEXTS)))
    titled = [" ".join(each) for each in TITLED] if made.architecture.encoder == "static" else TITLED
    close(found.encode_document(titled), documents(made))
    assert found.similarity_fn_name == made.architecture.similarity
    for side in checkpoints.SIDES if made.architecture.towers == "two" else ():
        alone = SentenceTransformer(str(folder / side), device="cpu").encode(TEXTS)
        close(alone, found.encode(TEXTS, task=side))
    assert np.isfinite(found.encode("")).all() and np.isfinite(made.encode_texts([""])).all()


def test_it_is_read_back(exported):
    made, folder = exported
    architecture = Architecture.of_checkpoint(str(folder))
    assert replace(architecture, checkpoint="") == replace(made.architecture, checkpoint="")
    system = System(architecture)
    found = Retriever.fresh(architecture, system.tokenizer(None), seed=5)
    for texts in (TEXTS, [*TEXTS, ""]):
        close(found.encode_texts(texts), made.encode_texts(texts))
        close(found.encode_queries(found.tokenize(texts)), made.encode_queries(made.tokenize(texts)))
    close(documents(found), documents(made))
    assert not system.trained
    export(found, folder.with_name("again"), "Again", {})
    again = Retriever.fresh(Architecture.of_checkpoint(str(folder.with_name("again"))), found.tokenizer, seed=6)
    close(again.encode_texts(TEXTS), made.encode_texts(TEXTS))
    assert not [path for path in folder.with_name("again").rglob("*.json") if str(folder) in path.read_text()]


@pytest.fixture
def towers(tmp_path):
    export(trained(KINDS["embeddings, two towers, cosine"], tmp_path), tmp_path, "Two", {})
    return tmp_path


@pytest.mark.parametrize("file", ["query/model.safetensors", "document/3_Dense/model.safetensors"])
def test_all_weights_take_part_in_the_digest(towers, file):
    before = checkpoints.digest(str(towers))
    save_file({name: 2 * weight for name, weight in load_file(towers / file).items()}, towers / file)
    checkpoints.digest.cache_clear()
    assert checkpoints.digest(str(towers)) != before


def test_what_another_made_of_it_is_not_taken_for_ours(towers):
    SentenceTransformer(str(towers / "query"), device="cpu").save(str(towers / "theirs"))
    for name in (towers / "theirs", towers):
        (name / "retlib.json").unlink(missing_ok=True)
        with pytest.raises(DataError, match=str(name)):
            checkpoints.described(str(name))


def test_a_head_of_another_size_is_refused(towers):
    architecture = replace(Architecture.of_checkpoint(str(towers)), dimension=8)
    with pytest.raises(DataError, match="8.* 16"):
        Retriever.fresh(architecture, System(architecture).tokenizer(None), 0)


def test_the_card_has_what_is_known_and_its_code_runs(exported, monkeypatch):
    made, folder = exported
    text = (folder / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: sentence-transformers\n") and "# Mine\n" in text
    about = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    assert about["trained on"] == ["squad"] and about["query_length"] == made.architecture.query_length
    monkeypatch.chdir(folder)
    (peer,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(peer, names := {})
    close(names["queries"], made.encode_queries(made.tokenize(["a question"])))
    assert names["scores"].shape == (1, 2)


LETTERS = WordPiece((*WordPiece.SPECIAL, *"abé中", "##a", "##b"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    export(Retriever.fresh(MADE, LETTERS, 0), folder, "Letters", {})
    return AutoTokenizer.from_pretrained(folder)


@given(text=st.text(min_size=1) | st.text("abAÉé中 \u0301\x00\t\u200b[SEP]"))
def test_any_text_has_the_same_tokens(tokenizer, text):
    if text:
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert found == LETTERS.encode([text]).row(0).tolist()


@pytest.mark.parametrize("tokens", [Vocabulary.of(["a"]), LETTERS])
def test_another_kind_is_refused(tmp_path, tokens):
    made = Retriever.fresh(Architecture(encoder="bag-of-words"), tokens, 0)
    with pytest.raises(SettingError, match=f"bag-of-words.*{type(tokens).__name__}"):
        export(made, tmp_path, "", {})
